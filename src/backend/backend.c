/* SPDX-License-Identifier: Apache-2.0 */
/* backend.c -- backends by name. */
#include "backend/backend.h"

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
