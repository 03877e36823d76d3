/* SPDX-License-Identifier: Apache-2.0 */
/* elementwise.c -- loops of the elementwise reference kernels. The output y may alias x. The
 * gradient dx may alias dy unless the kernel adds to dx. */
#include "backend/ref/ref.h"

void cgp__ref_map(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                  cgp__ref_formula *value) {
    const int64_t count = cgp__ref_elements(spec);
    for (int64_t i = 0; i < count; i++)
        cgp__ref_write(spec->type, args->y, i,
                       (float)value(cgp__ref_load(spec->type, args->x[0], i)));
}

void cgp__ref_map_back(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                       const void *operand, cgp__ref_formula *slope) {
    const int64_t count = cgp__ref_elements(spec);
    for (int64_t i = 0; args->dx[0] && i < count; i++) {
        const double dy = cgp__ref_load(spec->type, args->dy, i);
        cgp__ref_store(spec->type, args->dx[0], i, cgp__ref_adds(spec, 0),
                       dy * slope(cgp__ref_load(spec->type, operand, i)));
    }
}
