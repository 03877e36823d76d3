/* SPDX-License-Identifier: Apache-2.0 */
/* cross_entropy.c -- softmax cross-entropy of each row of logits x: log_sum + (max - x[target]).
 * The caller adds up the losses of rows.
 *
 *     max = max_c x[c]     log_sum = log sum_c exp(x[c] - max)
 *     dx[c] = scale (exp((x[c] - max) - log_sum) - (c == target)), 0 in a row that does not count
 *
 * max and log_sum are saved separately for every row: their sum in f32 would lose log_sum if logits
 * are large. The gradient dx may be x. */
#include "backend/cpu/kernels/row_exp.h"
#include "backend/cpu/operands.h"

#include <math.h>

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
    a->losses[row] = log_sum + ((double)max - (double)logit);
}

TYPED(forward, (const cgp__cpu_loss *loss, int64_t row), loss, row)

void CGP__CPU_NAME(cross_entropy_forward)(const cgp__cpu_loss *loss) {
    for (int64_t row = 0; row < loss->rows; row++)
        CALL_TYPED(loss->type, forward, loss, row);
}

/* A row's target, and its saved values, which backward reads. */
typedef struct saved_row {
    float max, log_sum;
    int32_t target;
} saved_row;

INLINE vec slope(vec x, saved_row r, float scale, ivec is_target) {
    return scale * (exp_or_zero((x - r.max) - r.log_sum) - keep(is_target, splat(1.0f)));
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
    const saved_row r = {a->max[row], a->log_sum[row], a->targets[row]};
    if (r.target != a->ignore && a->add)
        backward_row(type, dx, x, a->classes, r, a->scale, true);
    else if (r.target != a->ignore)
        backward_row(type, dx, x, a->classes, r, a->scale, false);
    else if (!a->add)
        memset(dx, 0, (size_t)a->classes * (type == CGP_BF16 ? 2 : 4));
}

TYPED(backward, (const cgp__cpu_loss *loss, int64_t row), loss, row)

void CGP__CPU_NAME(cross_entropy_backward)(const cgp__cpu_loss *loss) {
    for (int64_t row = 0; row < loss->rows; row++)
        CALL_TYPED(loss->type, backward, loss, row);
}
