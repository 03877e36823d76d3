/* SPDX-License-Identifier: Apache-2.0 */
/* argmax.c -- y[row] = the first c with the largest x[row, c]; a NaN never counts as larger. */
#include "backend/ref/ref.h"

static void argmax_forward(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    const int64_t rows = spec->n * spec->attributes.rows, width = spec->attributes.in;
    int32_t *y = args->y;
    for (int64_t row = 0; row < rows; row++) {
        float max = cgp__ref_load(spec->type, args->x[0], row * width);
        y[row] = 0;
        for (int64_t c = 1; c < width; c++) {
            const float x = cgp__ref_load(spec->type, args->x[0], row * width + c);
            if (!(x > max)) continue;
            max = x;
            y[row] = (int32_t)c;
        }
    }
}

const cgp__ref_op cgp__ref_argmax = {.run = {argmax_forward}};
