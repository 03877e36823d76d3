/* SPDX-License-Identifier: Apache-2.0 */
/* cross_entropy.c -- lse - x[target] of each row; x are logits. The caller adds them up.
 *
 *     lse = m + log sum_c exp(x[c] - m), m = max x
 *     dx[c] = scale (exp(x[c] - lse) - (c == target)), 0 in a row that does not count
 *
 * lse is saved for every row. dx may be x. */
#include "backend/cpu/kernels/row_exp.h"

#include <math.h>

INLINE void forward(cgp_dtype type, const cgp__cpu_loss *a, int64_t row) {
    const void *x = cgp__cpu_at(type, a->x, row * a->classes);
    const float max = row_max(type, x, a->classes);
    const double lse = (double)max + log(row_exp_sum(type, x, a->classes, max));
    const bool counts = a->targets[row] != a->ignore;
    a->lse[row] = (float)lse;
    a->losses[row] = 0.0;
    if (counts) a->losses[row] = lse - (double)load_part_as(type, x, a->targets[row], 1)[0];
}

TYPED(forward, (const cgp__cpu_loss *loss, int64_t row), loss, row)

void CGP__CPU_NAME(cross_entropy_forward)(const cgp__cpu_loss *loss) {
    for (int64_t row = 0; row < loss->rows; row++)
        CALL_TYPED(loss->type, forward, loss, row);
}

INLINE vec slope(vec x, float lse, float scale, ivec is_target) {
    return scale * (exp_or_zero(x - lse) - keep(is_target, splat(1.0f)));
}

INLINE void backward_row(cgp_dtype type, void *dx, const void *x, int64_t n, float lse,
                         float scale, int32_t target, bool add) {
    const ivec iota = IOTA;
    int64_t c = 0;
    for (; c + LANES <= n; c += LANES) {
        const vec g = slope(load_as(type, x, c), lse, scale, iota + (int32_t)c == target);
        store_as(type, dx, c, add ? load_as(type, dx, c) + g : g);
    }
    if (c == n) return;
    const vec part = load_part_as(type, x, c, n - c);
    const vec g = slope(part, lse, scale, iota + (int32_t)c == target);
    store_part_as(type, dx, c, add ? load_part_as(type, dx, c, n - c) + g : g, n - c);
}

INLINE void backward(cgp_dtype type, const cgp__cpu_loss *a, int64_t row) {
    const void *x = cgp__cpu_at(type, a->x, row * a->classes);
    void *dx = cgp__cpu_at(type, a->dx, row * a->classes);
    const int32_t target = a->targets[row];
    if (target != a->ignore && a->add)
        backward_row(type, dx, x, a->classes, a->lse[row], a->scale, target, true);
    else if (target != a->ignore)
        backward_row(type, dx, x, a->classes, a->lse[row], a->scale, target, false);
    else if (!a->add)
        memset(dx, 0, (size_t)a->classes * (type == CGP_BF16 ? 2 : 4));
}

TYPED(backward, (const cgp__cpu_loss *loss, int64_t row), loss, row)

void CGP__CPU_NAME(cross_entropy_backward)(const cgp__cpu_loss *loss) {
    for (int64_t row = 0; row < loss->rows; row++)
        CALL_TYPED(loss->type, backward, loss, row);
}
