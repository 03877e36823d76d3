/* SPDX-License-Identifier: Apache-2.0 */
/* backend.c -- backends by name, and checks that all of them make. */
#include "backend/backend.h"

#include <inttypes.h>
#include <string.h>

cgp_status cgp__backend_find(const char *name, const cgp__backend **out) {
    static const cgp__backend *const backends[] = {&cgp__backend_cpu, &cgp__backend_ref};
    enum { COUNT = sizeof backends / sizeof backends[0] };
    const char *names[COUNT];
    for (int i = 0; i < COUNT; i++) {
        names[i] = backends[i]->name;
        if (strcmp(name, names[i]) == 0) {
            *out = backends[i];
            return CGP_OK;
        }
    }
    const char *nearest = cgp_nearest(name, names, COUNT);
    if (nearest)
        return cgp_fail(CGP_EINVAL, "device: expects cpu or ref, got \"%s\" (did you mean %s?)",
                        name, nearest);
    return cgp_fail(CGP_EINVAL, "device: expects cpu or ref, got \"%s\"", name);
}

#define OP_NAME(kind, name) #name,
static const char *const op_names[CGP__OP_KINDS] = {CGP__OPS(OP_NAME)};

cgp_status cgp__kernel_check(const char *backend, const cgp__kernel_spec *spec) {
    if ((unsigned)spec->op >= CGP__OP_KINDS || (unsigned)spec->direction >= CGP__DIRECTIONS)
        return cgp_fail(CGP_EINVAL, "%s: expects an op and a direction, got %d and %d", backend,
                        (int)spec->op, (int)spec->direction);
    if (spec->n < 1 || spec->attributes.rows < 1)
        return cgp_fail(CGP_EINVAL,
                        "%s: expects %s of 1 or more rows, got %" PRId64 " samples of %" PRId64,
                        backend, op_names[spec->op], spec->n, spec->attributes.rows);
    return CGP_OK;
}

cgp_status cgp__kernel_missing(const char *backend, const cgp__kernel_spec *spec) {
    static const char *const directions[] = {"forward", "backward input", "backward weight"};
    return cgp_fail(CGP_EINVAL, "%s: expects a direction that %s has, got %s", backend,
                    op_names[spec->op], directions[spec->direction]);
}
