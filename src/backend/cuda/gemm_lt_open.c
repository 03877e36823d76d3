/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_lt_open.c -- finds and opens cuBLASLt. The environment variable CGP_CUBLASLT names the
 * library's file, or is `off`, which disables the library. If the variable is not set, the library
 * is looked up on the loader's path and in the directories of CGP_CUBLASLT_DIRS, which the Python
 * package sets. The library must have the same major version as the headers. */
#include "backend/cuda/device.h"
#include "backend/cuda/gemm_lt.h"

#include <stdatomic.h>

/* Warn, once per process, that a GEMM runs without the library. */
static void warn_of_own_kernels(const cgp__cuda_gemm_problem *problem, const char *why,
                                const char *fix) {
    static atomic_flag warned = ATOMIC_FLAG_INIT;
    if (atomic_flag_test_and_set(&warned)) return;
    cgp__cuda_host->log(
        CGP_LOG_WARN, CGP__CUDA_NAME, "linear layers in %s run without cuBLASLt%s: %s (%s)",
        problem->tf32 ? "tf32" : "bf16", problem->tf32 ? ", much slower" : "", why, fix);
}

#ifdef CGP_CUDA_NO_CUBLASLT

cgp_status cgp__cuda_lt_version(size_t *version) {
    *version = 0;
    return CGP_OK;
}

cgp_status cgp__cuda_lt_announce(cgp_device *device, const cgp__cuda_gemm_problem *problem,
                                 int64_t samples) {
    (void)device, (void)problem, (void)samples;
    return CGP_OK;
}

cgp_status cgp__cuda_lt_prepare(cgp_device *device, const cgp__cuda_gemm_problem *problem) {
    (void)device, (void)problem;
    return CGP_OK;
}

cgp_status cgp__cuda_lt_gemm_create(cgp_device *device, const cgp__cuda_gemm_problem *problem,
                                    cgp__cuda_lt_gemm **out) {
    (void)device, (void)out;
    warn_of_own_kernels(problem, "the plug-in was built without cublasLt.h",
                        "build it with a toolkit that has this header");
    return CGP_OK;
}

void cgp__cuda_lt_gemm_destroy(cgp__cuda_lt_gemm *gemm) {
    (void)gemm;
}

cudaError_t cgp__cuda_lt_gemm_run(cgp__cuda_lt_gemm *gemm, const cgp__cuda_lt_operands *operands,
                                  cudaStream_t stream) {
    (void)gemm, (void)operands, (void)stream;
    return cudaErrorNotSupported;
}

void cgp__cuda_lt_destroy(cgp__cuda_lt *lt) {
    (void)lt;
}

#else

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/gemm_lt_library.h"

#ifdef CGP_CUDA_HOST
#define dlopen cgp__shim_dlopen
#define dlsym cgp__shim_dlsym
#define dlerror cgp__shim_dlerror
#endif

/* Name of the library's file. Its major version must match the headers. */
#define TEXT(x) #x
#define NAME(major) "libcublasLt.so." TEXT(major)
static const char file_name[] = NAME(CUBLAS_VER_MAJOR);

typedef struct library {
    bool is_there;
    /* Why there is no library; "": CGP_CUBLASLT is off. */
    char why[512];
    cgp__cuda_lt_calls calls;
} library;

/* Try the file in each directory of a list. */
static void *open_in(const char *directories) {
    void *object = NULL;
    for (const char *at = directories; !object && at && *at != '\0';) {
        char path[4096];
        const size_t length = strcspn(at, ":");
        const int n = snprintf(path, sizeof path, "%.*s/%s", (int)length, at, file_name);
        if (at[0] == '/' && n < (int)sizeof path) object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        at += length + (at[length] == ':');
    }
    return object;
}

static void find_functions(library *l, void *object) {
    const char *missing = NULL;
    void *function;
#define FIND(name)                                                                                 \
    function = dlsym(object, "cublasLt" #name);                                                    \
    if (!function) missing = "cublasLt" #name;                                                     \
    memcpy(&l->calls.name, &function, sizeof function);
    CGP__CUDA_LT_CALLS(FIND)
#undef FIND
    l->is_there = !missing;
    if (missing) snprintf(l->why, sizeof l->why, "%s: expected %s, got none", file_name, missing);
}

/* Check the major version of the library. cuBLAS 11 numbers its versions differently, so its
 * version is not checked. */
static void check_version(library *l) {
    const size_t major = l->is_there ? l->calls.GetVersion() / 10000 : 0;
    if (!l->is_there || CUBLAS_VER_MAJOR < 12 || major == CUBLAS_VER_MAJOR) return;
    l->is_there = false;
    snprintf(l->why, sizeof l->why, "expected version %d of the library, got %zu", CUBLAS_VER_MAJOR,
             major);
}

static void open_library(library *l) {
    const char *named = getenv("CGP_CUBLASLT");
    const bool is_named = named && *named != '\0';
    l->is_there = false;
    l->why[0] = '\0';
    if (is_named && strcmp(named, "off") == 0) return;
    void *object = dlopen(is_named ? named : file_name, RTLD_NOW | RTLD_LOCAL);
    if (!object) snprintf(l->why, sizeof l->why, "%s", dlerror());
    if (!object && !is_named) object = open_in(getenv("CGP_CUBLASLT_DIRS"));
    if (!object) return;
    find_functions(l, object);
    check_version(l);
}

static library opened;

static void open_once(void) {
    open_library(&opened);
}

/* Find the library, once per process. The backend cuda-host looks for the library in each call,
 * because its tests change the library. */
static void find_library(library *out) {
#ifdef CGP_CUDA_HOST
    (void)open_once;
    open_library(out);
#else
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, open_once);
    *out = opened;
#endif
}

/* Find the library. If CGP_CUBLASLT names a file, this file must be usable. */
static cgp_status find_usable(library *out) {
    const char *named = getenv("CGP_CUBLASLT");
    find_library(out);
    if (out->is_there || out->why[0] == '\0' || !named || *named == '\0') return CGP_OK;
    return cgp__cuda_host->fail(
        CGP_EINVAL, CGP__CUDA_NAME ": CGP_CUBLASLT=%s: %s (expected the path of %s, or off)", named,
        out->why, file_name);
}

cgp_status cgp__cuda_lt_version(size_t *version) {
    library l;
    CGP__TRY_STATUS(find_usable(&l));
    *version = l.is_there ? l.calls.GetVersion() : 0;
    return CGP_OK;
}

cgp_status cgp__cuda_lt_open(cgp_device *device, const cgp__cuda_gemm_problem *problem) {
    library l;
    if (device->lt) return CGP_OK;
    CGP__TRY_STATUS(find_usable(&l));
    if (!l.is_there) {
        if (l.why[0] != '\0')
            warn_of_own_kernels(problem, l.why,
                                "add its directory, such as pip's nvidia/cublas/lib, to "
                                "LD_LIBRARY_PATH; or CGP_CUBLASLT=PATH; "
                                "CGP_CUBLASLT=off: no warning");
        return CGP_OK;
    }
    cgp__cuda_lt *lt = calloc(1, sizeof *lt);
    if (!lt) return cgp__cuda_host->fail(CGP_ENOMEM, CGP__CUDA_NAME ": cuBLASLt: out of memory");
    lt->calls = l.calls;
    const cublasStatus_t status = lt->calls.Create(&lt->handle);
    if (status == CUBLAS_STATUS_SUCCESS)
        device->lt = lt;
    else
        free(lt);
    return cgp__cuda_check(device, cgp__cuda_lt_error(status), "cuBLASLt, to begin");
}

void cgp__cuda_lt_destroy(cgp__cuda_lt *lt) {
    if (!lt) return;
    (void)lt->calls.Destroy(lt->handle);
    free(lt->choices);
    free(lt->rows);
    free(lt);
}

#endif
