/* SPDX-License-Identifier: Apache-2.0 */
/* keep_loaded.c -- dlclose() that closes nothing: so the leak sanitizer knows the modules of what
 * MPI's components leave behind, which tests/mpi/lsan.supp names. */
#include <dlfcn.h>

__attribute__((visibility("default"))) int dlclose(void *handle) {
    (void)handle;
    return 0;
}
