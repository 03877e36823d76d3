/* SPDX-License-Identifier: Apache-2.0 */
/* cross_entropy.c -- softmax cross-entropy of each row of logits x, with label smoothing s, times
 * the row's weight w. The caller adds up the losses of rows.
 *
 *     max = max_c x[c]     log_sum = log sum_c exp(x[c] - max)
 *     loss = w (log_sum + (max - x[target]) + s (x[target] - mean(x)))
 *     dx[c] = scale w (exp((x[c] - max) - log_sum) - (1 - s) (c == target) - s / classes)
 *
 * The loss and dx are 0 in an ignored row.
 *
 * max and log_sum are saved separately for every row, because their sum in f32 would lose log_sum
 * if logits are large. The gradient dx may alias x. */
#include "backend/cpu/kernels/row_exp.h"
#include "backend/cpu/operands.h"

#include <math.h>

typedef double dvec __attribute__((vector_size(8 * LANES)));

/* Return the sum of a row, in double. */
INLINE double row_sum(cgp_dtype type, const void *x, int64_t n) {
    dvec sums = {0};
    double sum = 0.0;
    for (int64_t c = 0; c < n; c += LANES)
        sums += __builtin_convertvector(load_left(type, x, c, n - c), dvec);
    for (int k = 0; k < LANES; k++)
        sum += sums[k];
    return sum;
}

INLINE float weight_of(cgp_dtype type, const cgp__cpu_loss *a, int64_t row) {
    return a->weights ? load_part_as(type, a->weights, row, 1)[0] : 1.0f;
}

INLINE void forward(cgp_dtype type, const cgp__cpu_loss *a, int64_t row) {
    const void *x = cgp__cpu_at(type, a->x, row * a->classes);
    const float max = row_max(type, x, a->classes);
    const double log_sum = log(row_exp_sum(type, x, a->classes, max));
    const bool counts = a->targets[row] != a->ignore;
    a->max[row] = max;
    a->log_sum[row] = (float)log_sum;
    a->losses[row] = 0.0;
    if (!counts) return;
    const float logit = load_part_as(type, x, a->targets[row], 1)[0];
    double loss = log_sum + ((double)max - (double)logit);
    if (a->smoothing > 0.0)
        loss += a->smoothing * ((double)logit - row_sum(type, x, a->classes) / (double)a->classes);
    a->losses[row] = (double)weight_of(type, a, row) * loss;
}

TYPED(forward, (const cgp__cpu_loss *loss, int64_t row), loss, row)

void CGP__CPU_NAME(cross_entropy_forward)(const cgp__cpu_loss *loss) {
    for (int64_t row = 0; row < loss->rows; row++)
        CALL_TYPED(loss->type, forward, loss, row);
}

/* A row's target, its saved values, and its smoothed label. In the label, every class has the
 * probability `each`, and the target class has `hit` more. */
typedef struct saved_row {
    float max, log_sum, hit, each;
    int32_t target;
} saved_row;

INLINE vec slope(vec x, saved_row r, float scale, ivec is_target) {
    const vec label = keep(is_target, splat(r.hit));
    return scale * ((exp_or_zero((x - r.max) - r.log_sum) - label) - r.each);
}

INLINE void backward_row(cgp_dtype type, void *dx, const void *x, int64_t n, saved_row r,
                         float scale, bool add) {
    const ivec iota = IOTA;
    int64_t c = 0;
    for (; c + LANES <= n; c += LANES) {
        const vec g = slope(load_as(type, x, c), r, scale, iota + (int32_t)c == r.target);
        store_as(type, dx, c, add ? load_as(type, dx, c) + g : g);
    }
    if (c == n) return;
    const vec part = load_part_as(type, x, c, n - c);
    const vec g = slope(part, r, scale, iota + (int32_t)c == r.target);
    store_part_as(type, dx, c, add ? load_part_as(type, dx, c, n - c) + g : g, n - c);
}

INLINE void backward(cgp_dtype type, const cgp__cpu_loss *a, int64_t row) {
    const void *x = cgp__cpu_at(type, a->x, row * a->classes);
    void *dx = cgp__cpu_at(type, a->dx, row * a->classes);
    const saved_row r = {a->max[row], a->log_sum[row], (float)(1.0 - a->smoothing),
                         (float)(a->smoothing / (double)a->classes), a->targets[row]};
    const float scale = a->scale * weight_of(type, a, row);
    if (r.target != a->ignore && a->add)
        backward_row(type, dx, x, a->classes, r, scale, true);
    else if (r.target != a->ignore)
        backward_row(type, dx, x, a->classes, r, scale, false);
    else if (!a->add)
        memset(dx, 0, (size_t)a->classes * (type == CGP_BF16 ? 2 : 4));
}

TYPED(backward, (const cgp__cpu_loss *loss, int64_t row), loss, row)

void CGP__CPU_NAME(cross_entropy_backward)(const cgp__cpu_loss *loss) {
    for (int64_t row = 0; row < loss->rows; row++)
        CALL_TYPED(loss->type, backward, loss, row);
}
