/* SPDX-License-Identifier: Apache-2.0 */
/* cross_entropy.c -- the sum over rows of -log softmax(x)[target], with label smoothing s and a
 * weight w for each row (1 if there are no weights). Reference kernels.
 *
 *     max = max_c x[c]     log_sum = log sum_c exp(x[c] - max)
 *     loss = sum of w (log_sum + (max - x[target]) + s (x[target] - mean(x))) over rows that count
 *     dx[c] = loss_scale w (exp((x[c] - max) - log_sum) - (1 - s) (c == target) - s / classes)
 *
 * A row counts unless its target is `ignore`; dx is 0 in an ignored row. The loss is overwritten
 * with the sum, which is computed in double in the order of rows. backward_input needs logits,
 * targets, max and log_sum, which forward saves for every row. The gradient dx may alias the logits
 * unless the kernel adds to dx. */
#include "backend/kernel.h"
#include "backend/ref/ref.h"

#include <math.h>

/* Return the maximum of elements first .. first + n - 1. */
static float row_max(cgp_dtype type, const void *x, int64_t first, int64_t n) {
    float max = cgp__ref_load(type, x, first);
    for (int64_t c = 1; c < n; c++) {
        const float one = cgp__ref_load(type, x, first + c);
        max = one > max ? one : max;
    }
    return max;
}

/* Return log sum exp(x - max) over elements first .. first + n - 1. */
static double log_sum_exp(cgp_dtype type, const void *x, int64_t first, int64_t n, double max) {
    double sum = 0.0;
    for (int64_t c = 0; c < n; c++)
        sum += exp(cgp__ref_load(type, x, first + c) - max);
    return log(sum);
}

/* Return the part of a row's loss that label smoothing adds. */
static double smoothed(const cgp_kernel_spec *spec, const void *x, int64_t first, int64_t target) {
    const double smoothing = cgp_spec_cross_entropy(spec)->smoothing;
    const int64_t classes = spec->attributes.in;
    double sum = 0.0;
    for (int64_t c = 0; c < classes; c++)
        sum += cgp__ref_load(spec->type, x, first + c);
    return smoothing * (cgp__ref_load(spec->type, x, first + target) - sum / (double)classes);
}

static double weight_of(const cgp_kernel_spec *spec, const cgp_kernel_args *args, int64_t row) {
    return args->x[2] ? cgp__ref_load(spec->type, args->x[2], row) : 1.0;
}

static void cross_entropy_forward(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    const int64_t rows = spec->n * spec->attributes.rows, classes = spec->attributes.in;
    const int32_t *targets = args->x[1];
    double loss = 0.0;
    for (int64_t row = 0; row < rows; row++) {
        const int64_t first = row * classes;
        const float max = row_max(spec->type, args->x[0], first, classes);
        const double log_sum = log_sum_exp(spec->type, args->x[0], first, classes, max);
        if (targets[row] != cgp_spec_cross_entropy(spec)->ignore)
            loss += weight_of(spec, args, row) *
                    (log_sum +
                     ((double)max - cgp__ref_load(spec->type, args->x[0], first + targets[row])) +
                     smoothed(spec, args->x[0], first, targets[row]));
        args->saved[0][row] = max;
        args->saved[1][row] = (float)log_sum;
    }
    cgp__set_loss(args, loss);
}

static void cross_entropy_input(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    const int64_t rows = spec->n * spec->attributes.rows, classes = spec->attributes.in;
    const int32_t *targets = args->x[1];
    const double smoothing = cgp_spec_cross_entropy(spec)->smoothing;
    const double hit = 1.0 - smoothing, each = smoothing / (double)classes;
    for (int64_t row = 0; args->dx[0] && row < rows; row++) {
        const double max = args->saved[0][row], log_sum = args->saved[1][row];
        const double scale = cgp__loss_scale(args) * weight_of(spec, args, row);
        const bool counts = targets[row] != cgp_spec_cross_entropy(spec)->ignore;
        for (int64_t c = 0; c < classes; c++) {
            const double x = cgp__ref_load(spec->type, args->x[0], row * classes + c);
            const double slope = exp((x - max) - log_sum) - (c == targets[row] ? hit : 0.0) - each;
            cgp__ref_store(spec->type, args->dx[0], row * classes + c, cgp__ref_adds(spec, 0),
                           counts ? scale * slope : 0.0);
        }
    }
}

const cgp__ref_op cgp__ref_cross_entropy = {.run = {cross_entropy_forward, cross_entropy_input}};
