/* SPDX-License-Identifier: Apache-2.0 */
/* registry.h -- the registry of backends by name. The contract is cgpipe/ext/backend.h. `ref` runs
 * plain loops with double sums, as a reference for tests; `cpu` runs vector kernels. */
#ifndef CGP_SRC_BACKEND_REGISTRY_H
#define CGP_SRC_BACKEND_REGISTRY_H

#include <cgpipe/ext/backend.h>

extern const cgp_backend cgp__backend_ref;
extern const cgp_backend cgp__backend_cpu;

/* Add a backend for the life of the process; adding the same table again is no error. Threads: any.
 * @retval CGP_EINVAL  The table has another version, a function is missing, or another backend has
 * the same name.
 * @retval CGP_ELIMIT  There are 16 backends already. */
cgp_status cgp__backend_add(const cgp_backend *backend);

/* Return backend i, or NULL if there is no backend i. Threads: any. */
const cgp_backend *cgp__backend_at(int i);

#endif
