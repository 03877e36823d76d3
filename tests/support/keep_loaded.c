/* SPDX-License-Identifier: Apache-2.0 */
/* keep_loaded.c -- a dlclose() that does nothing, so that modules stay loaded. At exit, the leak
 * sanitizer can then still name the modules of MPI components that leak (tests/mpi/lsan.supp). */
#include <dlfcn.h>

__attribute__((visibility("default"))) int dlclose(void *handle) {
    (void)handle;
    return 0;
}
