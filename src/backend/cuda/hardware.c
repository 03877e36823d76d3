/* SPDX-License-Identifier: Apache-2.0 */
/* hardware.c -- describes GPUs before a device exists: their number, memory and compute capability,
 * and why a GPU cannot be used. */
#include "backend/cuda/device.h"
#include "backend/cuda/gemm_lt.h"

#include <stdio.h>

/* Lowest compute capability that the kernels support, as 10 x major + minor. */
#ifndef CGP_CUDA_LEAST
#define CGP_CUDA_LEAST 80
#endif

/* --- the driver --- */

/* Return the oldest driver branch for a major version of CUDA; 0: not known. */
static int driver_branch(int major) {
    static const int branches[] = {[11] = 450, [12] = 525, [13] = 580};
    return major < (int)(sizeof branches / sizeof *branches) ? branches[major] : 0;
}

/* Write why there is no GPU. CUDA returns the same error for a driver that is too old and for a
 * missing driver. */
static void why_no_gpu(cudaError_t error, char *text, size_t size) {
    int version = 0;
    char branch[48] = "";
    const int major = CUDART_VERSION / 1000, least = driver_branch(major);
    if (error != cudaErrorInsufficientDriver) {
        snprintf(text, size, "%s", cudaGetErrorString(error));
        return;
    }
    if (least) snprintf(branch, sizeof branch, ", version %d or later", least);
    if (cudaDriverGetVersion(&version) != cudaSuccess) version = 0;
    if (version == 0)
        snprintf(text, size,
                 "no NVIDIA driver (expected one for CUDA %d%s; in a container, libcuda.so.1)",
                 major, branch);
    else
        snprintf(text, size,
                 "expected a driver for CUDA %d%s, got one for CUDA %d.%d (update it, or build "
                 "with a toolkit of CUDA %d)",
                 major, branch, version / 1000, version % 1000 / 10, version / 1000);
}

static cgp_status count_gpus(int *count) {
    char why[192];
    cudaError_t error = cudaGetDeviceCount(count);
    if (error == cudaSuccess && *count == 0) error = cudaErrorNoDevice;
    if (error == cudaSuccess) {
        if (*count > CGP__CUDA_ORDINALS) *count = CGP__CUDA_ORDINALS;
        return CGP_OK;
    }
    why_no_gpu(error, why, sizeof why);
    (void)cudaGetLastError();
    return cgp__cuda_host->fail(CGP_EDEVICE, CGP__CUDA_NAME ": no GPU: %s", why);
}

/* --- an ordinal --- */

cgp_status cgp__cuda_refused(int ordinal, cudaError_t error, const char *what) {
    (void)cudaGetLastError();
    return cgp__cuda_host->fail(CGP_EDEVICE, CGP__CUDA_NAME ": device %d: %s: %s", ordinal, what,
                                cudaGetErrorString(error));
}

static cgp_status read_attribute(int ordinal, enum cudaDeviceAttr attribute, int *value) {
    const cudaError_t error = cudaDeviceGetAttribute(value, attribute, ordinal);
    return error == cudaSuccess ? CGP_OK : cgp__cuda_refused(ordinal, error, "its properties");
}

static cgp_status read_capability(int ordinal, int *major, int *minor) {
    CGP__TRY_STATUS(read_attribute(ordinal, cudaDevAttrComputeCapabilityMajor, major));
    return read_attribute(ordinal, cudaDevAttrComputeCapabilityMinor, minor);
}

/* Check the compute capability of an ordinal that exists. */
static cgp_status check_capability(int ordinal) {
    int major = 0, minor = 0;
    CGP__TRY_STATUS(read_capability(ordinal, &major, &minor));
    if (10 * major + minor >= CGP_CUDA_LEAST) return CGP_OK;
    return cgp__cuda_host->fail(
        CGP_EDEVICE,
        CGP__CUDA_NAME ": device %d: expected compute capability %d.%d or later, got %d.%d (a "
                       "later GPU, or cpu)",
        ordinal, CGP_CUDA_LEAST / 10, CGP_CUDA_LEAST % 10, major, minor);
}

/* Count the GPUs. If none of them can run the kernels, fail with a message that names the first
 * GPU. */
cgp_status cgp__cuda_count(int *count) {
    int n = 0;
    CGP__TRY_STATUS(count_gpus(&n));
    for (int i = n - 1; i >= 0; i--) {
        const cgp_status status = check_capability(i);
        if (status == CGP_OK) break;
        if (i == 0) return status;
    }
    *count = n;
    return CGP_OK;
}

cgp_status cgp__cuda_check_usable(int ordinal) {
    int n = 0;
    CGP__TRY_STATUS(count_gpus(&n));
    if (ordinal >= 0 && ordinal < n) return check_capability(ordinal);
    return cgp__cuda_host->fail(CGP_EINVAL, CGP__CUDA_NAME ": expected ordinal 0 to %d, got %d",
                                n - 1, ordinal);
}

cgp_status cgp__cuda_memory_info(int ordinal, size_t *available, size_t *total) {
    CGP__TRY_STATUS(cgp__cuda_check_usable(ordinal));
    cgp__cuda_forget_device();
    cudaError_t error = cgp__cuda_use(ordinal);
    if (error == cudaSuccess) error = cudaMemGetInfo(available, total);
    return error == cudaSuccess ? CGP_OK : cgp__cuda_refused(ordinal, error, "its memory");
}

cgp_status cgp__cuda_memory(int ordinal, int64_t *bytes) {
    size_t available = 0, total = 0;
    CGP__TRY_STATUS(cgp__cuda_memory_info(ordinal, &available, &total));
    *bytes = (int64_t)available;
    return CGP_OK;
}

/* Describe what the bits of results depend on. In f32, and in tf32 without cuBLASLt, they depend
 * only on the sources. In bf16, tensor cores of another compute capability may add in another
 * order. cuBLASLt's algorithms also depend on the library's version and on the GPU. */
cgp_status cgp__cuda_numerics(int ordinal, cgp_dtype type, bool tf32, char *text, size_t size) {
    size_t version = 0;
    int major = 0, minor = 0, multiprocessors = 0;
    text[0] = '\0';
    CGP__TRY_STATUS(cgp__cuda_check_usable(ordinal));
    if (type != CGP_BF16 && !tf32) return CGP_OK;
    CGP__TRY_STATUS(cgp__cuda_lt_version(&version));
    if (version == 0 && tf32) {
        snprintf(text, size, "GEMMs in f32");
        return CGP_OK;
    }
    CGP__TRY_STATUS(read_capability(ordinal, &major, &minor));
    if (version == 0) {
        snprintf(text, size, "own GEMMs, compute capability %d.%d", major, minor);
        return CGP_OK;
    }
    CGP__TRY_STATUS(read_attribute(ordinal, cudaDevAttrMultiProcessorCount, &multiprocessors));
    snprintf(text, size, "cuBLASLt %zu, compute capability %d.%d, %d multiprocessors", version,
             major, minor, multiprocessors);
    return CGP_OK;
}

/* Write the UUID of a GPU, or of a GPU instance (MIG). */
cgp_status cgp__cuda_identity(int ordinal, char *text, size_t size) {
    struct cudaDeviceProp properties;
    CGP__TRY_STATUS(cgp__cuda_check_usable(ordinal));
    const cudaError_t error = cudaGetDeviceProperties(&properties, ordinal);
    if (error != cudaSuccess) return cgp__cuda_refused(ordinal, error, "its UUID");
    const unsigned char *bytes = (const unsigned char *)properties.uuid.bytes;
    size_t used = (size_t)snprintf(text, size, "GPU-");
    for (size_t i = 0; i < sizeof properties.uuid.bytes && used + 2 < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%02x", bytes[i]);
    return CGP_OK;
}
