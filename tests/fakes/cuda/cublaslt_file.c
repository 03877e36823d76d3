/* SPDX-License-Identifier: Apache-2.0 */
/* cublaslt_file.c -- opens the fake cuBLASLt as if it were a shared library. Any existing file is
 * accepted as the library's file. */
#include <cublasLt.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "internal.h"

static __thread char error[512];

void *cgp__shim_dlopen(const char *file, int flags) {
    static char library;
    const cgp__shim_settings *s = cgp__shim_get_settings();
    (void)flags;
    const bool is_found = strchr(file, '/') ? access(file, R_OK) == 0 : !s->unlisted;
    if (s->algorithms > 0 && is_found) return &library;
    snprintf(error, sizeof error, "%s: cannot open shared object file: No such file or directory",
             file);
    return NULL;
}

const char *cgp__shim_dlerror(void) {
    return error;
}

#define FUNCTION(name)                                                                             \
    { #name, (void *)(uintptr_t)name }

void *cgp__shim_dlsym(void *object, const char *name) {
    static const struct {
        const char *name;
        void *function;
    } all[] = {FUNCTION(cublasLtCreate),
               FUNCTION(cublasLtDestroy),
               FUNCTION(cublasLtGetVersion),
               FUNCTION(cublasLtMatmul),
               FUNCTION(cublasLtMatmulAlgoCheck),
               FUNCTION(cublasLtMatmulAlgoGetHeuristic),
               FUNCTION(cublasLtMatmulDescCreate),
               FUNCTION(cublasLtMatmulDescDestroy),
               FUNCTION(cublasLtMatmulDescSetAttribute),
               FUNCTION(cublasLtMatmulPreferenceCreate),
               FUNCTION(cublasLtMatmulPreferenceDestroy),
               FUNCTION(cublasLtMatmulPreferenceSetAttribute),
               FUNCTION(cublasLtMatrixLayoutCreate),
               FUNCTION(cublasLtMatrixLayoutDestroy)};
    (void)object;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(all[i].name, name) == 0) return all[i].function;
    return NULL;
}
