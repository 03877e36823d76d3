/* SPDX-License-Identifier: Apache-2.0 */
/* backend.c -- the `ref` backend: plain loops that compute sums in double. Tests compare the
 * results of every other backend with those of `ref`. The backend has one thread and uses host
 * memory. A kernel consists of a spec and a function. */
#include "backend/device_names.h"
#include "backend/host.h"
#include "backend/ref/ref.h"
#include "backend/registry.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct cgp_device {
    cgp__host host; /* for custom ops */
};

struct cgp_kernel {
    cgp_device *device;
    cgp_kernel_spec spec;
    cgp__ref_run *run; /* function of a built-in op; NULL for a custom op */
};

#define ENTRY(kind, name, family) &cgp__ref_##name,
static const cgp__ref_op *const ops[CGP_OP_KINDS] = {CGP_OPS(ENTRY)};

static cgp_status find_run(const cgp_kernel_spec *spec, cgp__ref_run **out) {
    CGP_TRY(cgp__kernel_check("ref", spec));
    *out = ops[spec->op]->run[spec->direction];
    return *out ? CGP_OK : cgp__kernel_missing("ref", spec);
}

static cgp_status memory_create(cgp_device *device, size_t bytes, void **out) {
    (void)device;
    if (bytes > (size_t)PTRDIFF_MAX - CGP__ALIGN)
        return cgp__no_memory("ref: device memory", bytes);
    const size_t capacity = (size_t)cgp__align_up(bytes ? (int64_t)bytes : 1);
    void *memory = aligned_alloc(CGP__ALIGN, capacity);
    if (!memory) return cgp__no_memory("ref: device memory", bytes);
    *out = memset(memory, 0, capacity); /* the write also makes the memory resident */
    return CGP_OK;
}

static void memory_destroy(cgp_device *device, void *memory, size_t bytes) {
    (void)device;
    (void)bytes;
    free(memory);
}

/* If the types are equal, copy the bytes, so that a NaN keeps its bits. */
static cgp_status convert(cgp_device *device, cgp_dtype to_type, void *to, cgp_dtype from_type,
                          const void *from, int64_t n) {
    (void)device;
    if (to_type == from_type) {
        if (n > 0) memcpy(to, from, (size_t)n * cgp_dtype_bytes(to_type));
        return CGP_OK;
    }
    for (int64_t i = 0; i < n; i++)
        cgp__ref_write(to_type, to, i, cgp__ref_load(from_type, from, i));
    return CGP_OK;
}

static cgp_status workspace(const cgp_device_options *options, const cgp_kernel_spec *spec,
                            int64_t *bytes) {
    (void)options;
    cgp__ref_run *run = NULL;
    if (spec->op == CGP_OP_CUSTOM) {
        *bytes = cgp__align_up(cgp__custom_workspace(spec, 1));
        return CGP_OK;
    }
    CGP_TRY(find_run(spec, &run));
    *bytes = ops[spec->op]->workspace ? ops[spec->op]->workspace(spec) : 0;
    return CGP_OK;
}

static cgp_status kernel_create(cgp_device *device, const cgp_kernel_spec *spec, cgp_kernel **out) {
    cgp__ref_run *run = NULL;
    if (spec->op != CGP_OP_CUSTOM) CGP_TRY(find_run(spec, &run));
    cgp_kernel *kernel = cgp__calloc(1, sizeof *kernel);
    if (!kernel) return cgp__no_memory("ref: kernel", sizeof *kernel);
    *kernel = (cgp_kernel){.device = device, .spec = *spec, .run = run};
    *out = kernel;
    return CGP_OK;
}

static cgp_status add(cgp_device *device, float *to, const float *from, int64_t n) {
    (void)device;
    for (int64_t i = 0; i < n; i++)
        to[i] += from[i];
    return CGP_OK;
}

static void parallel_for(cgp_device *device, int64_t items, int64_t block, cgp__range *range,
                         const void *work) {
    (void)device;
    (void)block;
    if (items > 0) range(work, 0, items, 0);
}

/* Create a device. It has one thread on any core, because the speed of this backend does not
 * matter. */
static cgp_status device_create(cgp_device **out, const cgp_device_options *options) {
    CGP_TRY(cgp__device_check_ordinal(&cgp__backend_ref, options));
    cgp_device *device = cgp__calloc(1, sizeof *device);
    if (!device) return cgp__no_memory("ref: device", sizeof *device);
    device->host = (cgp__host){device, 1, parallel_for, convert, add};
    *out = device;
    return CGP_OK;
}

static void device_destroy(cgp_device *device) {
    free(device);
}

static cgp_status kernel_run(cgp_kernel *kernel, const cgp_kernel_args *args) {
    if (!kernel->run) return cgp__custom_run(&kernel->device->host, &kernel->spec, args);
    kernel->run(&kernel->spec, args);
    return CGP_OK;
}

static cgp_status sum_squares(cgp_device *device, const float *x, int64_t n, double *out) {
    (void)device;
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i] * x[i];
    *out = sum;
    return CGP_OK;
}

static cgp_status find_nonfinite(cgp_device *device, const float *x, int64_t n, int64_t *out) {
    (void)device;
    *out = -1;
    for (int64_t i = 0; i < n && *out < 0; i++) {
        if (!isfinite(x[i])) *out = i;
    }
    return CGP_OK;
}

static bool has_cores(const cgp_device *device) {
    (void)device;
    return false;
}

const cgp_backend cgp__backend_ref = {
    .struct_size = sizeof(cgp_backend),
    .name = "ref",
    .host_addressable = true,
    .custom_ops = true,
    .device.count = cgp__host_count,
    .device.memory = cgp__host_memory,
    .device.create = device_create,
    .device.destroy = device_destroy,
    .device.has_cores = has_cores,
    .device.memory_create = memory_create,
    .device.memory_destroy = memory_destroy,
    .device.copy = cgp__host_copy,
    .kernels.workspace = workspace,
    .kernels.create = kernel_create,
    .kernels.run = kernel_run,
    .kernels.destroy = cgp__host_kernel_destroy,
    .kernels.merge = cgp__host_merge,
    .kernels.commit = cgp__host_commit,
    .kernels.check_commit = cgp__host_check_commit,
    .kernels.sum_squares = sum_squares,
    .kernels.find_nonfinite = find_nonfinite,
    .kernels.update = cgp__ref_update,
    .kernels.add = add,
    .kernels.convert = convert,
};
