/* SPDX-License-Identifier: Apache-2.0 */
/* kernel.c -- checks of kernel specs that `cpu` and `ref` share. */
#include "backend/kernel.h"

#include <inttypes.h>

cgp_status cgp__kernel_check(const char *backend, const cgp_kernel_spec *spec) {
    if ((unsigned)spec->op >= CGP_OP_KINDS || (unsigned)spec->direction >= CGP_OP_DIRECTIONS)
        return cgp_fail(CGP_EINVAL, "%s: expects an op and a direction, got %d and %d", backend,
                        (int)spec->op, (int)spec->direction);
    if (spec->n < 1 || spec->attributes.rows < 1)
        return cgp_fail(CGP_EINVAL,
                        "%s: expects %s of 1 or more rows, got %" PRId64 " samples of %" PRId64,
                        backend, cgp_op_name(spec->op), spec->n, spec->attributes.rows);
    return CGP_OK;
}

cgp_status cgp__kernel_missing(const char *backend, const cgp_kernel_spec *spec) {
    static const char *const directions[] = {"forward", "backward input", "backward weight"};
    return cgp_fail(CGP_EINVAL, "%s: expects a direction that %s has, got %s", backend,
                    cgp_op_name(spec->op), directions[spec->direction]);
}
