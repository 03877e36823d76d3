/* SPDX-License-Identifier: Apache-2.0 */
/* relu.c -- y = x where x > 0, slope * x elsewhere. Reference kernels.
 *
 *     dx = dy where y > 0, slope * dy elsewhere
 *
 * backward_input needs only y: as slope >= 0, y > 0 exactly where x > 0. If slope is 0, y is 0 for
 * x = -infinity. The output y may alias x. The gradient dx may alias dy unless the kernel adds to
 * dx. */
#include "backend/ref/ref.h"

/* Return `value` if sign > 0 or sign is NaN, otherwise slope times `value`. */
static float rectified(float sign, float value, float slope) {
    if (!(sign <= 0.0f)) return value;
    return slope > 0.0f ? slope * value : 0.0f;
}

static void relu_forward(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    const int64_t count = cgp__ref_elements(spec);
    for (int64_t i = 0; i < count; i++) {
        const float x = cgp__ref_load(spec->type, args->x[0], i);
        cgp__ref_write(spec->type, args->y, i, rectified(x, x, spec->attributes.slope));
    }
}

static void relu_input(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    const int64_t count = cgp__ref_elements(spec);
    for (int64_t i = 0; args->dx[0] && i < count; i++) {
        const float y = cgp__ref_load(spec->type, args->y, i);
        const float dy = cgp__ref_load(spec->type, args->dy, i);
        cgp__ref_store(spec->type, args->dx[0], i, cgp__ref_adds(spec, 0),
                       rectified(y, dy, spec->attributes.slope));
    }
}

const cgp__ref_op cgp__ref_relu = {.run = {relu_forward, relu_input}};
