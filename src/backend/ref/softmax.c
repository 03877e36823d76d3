/* SPDX-License-Identifier: Apache-2.0 */
/* softmax.c -- softmax of each row of C, and its log. Reference kernels.
 *
 *     SOFTMAX        y = exp(x - m) / sum, sum = sum(exp(x - m))     dx = y (dy - sum(dy y))
 *     LOG_SOFTMAX    y = (x - m) - log(sum)                          dx = dy - exp(y) sum(dy)
 *
 * m is max x. backward_input needs y. The output y may alias x, because the sums of a row are
 * complete before the row is written. For the same reason, dx may alias dy unless the kernel adds
 * to dx. */
#include "backend/ref/ref.h"

#include <math.h>

static void forward(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    const int64_t rows = spec->n * spec->attributes.rows, width = spec->attributes.out;
    const bool logs = spec->op == CGP_OP_LOG_SOFTMAX;
    for (int64_t row = 0; row < rows; row++) {
        const int64_t at = row * width;
        double max = -INFINITY, sum = 0.0;
        for (int64_t c = 0; c < width; c++)
            max = fmax(max, cgp__ref_load(spec->type, args->x[0], at + c));
        for (int64_t c = 0; c < width; c++)
            sum += exp(cgp__ref_load(spec->type, args->x[0], at + c) - max);
        for (int64_t c = 0; c < width; c++) {
            const double x = cgp__ref_load(spec->type, args->x[0], at + c);
            cgp__ref_write(spec->type, args->y, at + c,
                           (float)(logs ? (x - max) - log(sum) : exp(x - max) / sum));
        }
    }
}

static void input(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    const int64_t rows = spec->n * spec->attributes.rows, width = spec->attributes.out;
    const bool logs = spec->op == CGP_OP_LOG_SOFTMAX;
    for (int64_t row = 0; args->dx[0] && row < rows; row++) {
        const int64_t at = row * width;
        double sum = 0.0;
        for (int64_t c = 0; c < width; c++)
            sum += (double)cgp__ref_load(spec->type, args->dy, at + c) *
                   (logs ? 1.0 : cgp__ref_load(spec->type, args->y, at + c));
        for (int64_t c = 0; c < width; c++) {
            const double y = cgp__ref_load(spec->type, args->y, at + c);
            const double dy = cgp__ref_load(spec->type, args->dy, at + c);
            cgp__ref_store(spec->type, args->dx[0], at + c, cgp__ref_adds(spec, 0),
                           logs ? dy - exp(y) * sum : y * (dy - sum));
        }
    }
}

const cgp__ref_op cgp__ref_softmax = {.run = {forward, input}};
const cgp__ref_op cgp__ref_log_softmax = {.run = {forward, input}};
