/* SPDX-License-Identifier: Apache-2.0 */
/* in_program.h -- the backend cuda-host, linked into the test so that its settings can be changed.
 * The test calls the backend's entry point, as the library does for a plug-in. */
#ifndef CGP_TESTS_CUDA_IN_PROGRAM_H
#define CGP_TESTS_CUDA_IN_PROGRAM_H

#include <dlfcn.h>

#include "cuda/runtime.h"
#include "plugin/find.h"
#include "plugin/plugin.h"
#include "support.h"

static inline const cgp_backend *cuda_host(void) {
    static cgp__plugin program = {.path = (char *)(uintptr_t) "this program"};
    const cgp_backend *backend = NULL;
    if (!program.table) {
        program.object = dlopen(NULL, RTLD_NOW);
        assert_non_null(program.object);
        assert_ok(cgp__plugin_enter(&program));
    }
    assert_ok(cgp__backend_find("cuda-host", &backend));
    return backend;
}

#endif
