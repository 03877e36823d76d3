/* SPDX-License-Identifier: Apache-2.0 */
/* element_losses.c -- losses of single elements x with targets t, and their slopes in x. Binary
 * cross-entropy with logits is -t log s(x) - (1 - t) log(1 - s(x)), s(x) = 1 / (1 + exp(-x)):
 *
 *     e = exp(-|x|)        loss = max(x, 0) - x t + log(1 + e)        slope = s(x) - t
 *     s(x) = 1 / (1 + e) for x >= 0, e / (1 + e) below
 *
 * These forms neither overflow nor lose precision. The other losses, with d = x - t:
 *
 *     MSE          d^2                                           slope = 2 d
 *     SMOOTH_L1    d^2 / (2 beta) if |d| < beta                  slope = d / beta
 *                  |d| - beta / 2 elsewhere                      slope = sign(d)
 *     WEIGHTED_MEAN x t                                          slope = t
 *
 * dx = scale slope. Losses are f32; their sum is double, in LANES lanes. dx may alias x. */
#include "backend/cpu/kernels/map.h"
#include "backend/cpu/operands.h"

typedef double dvec __attribute__((vector_size(8 * LANES)));

INLINE vec bce(vec x, vec target, float beta) {
    (void)beta;
    return keep(~(x <= 0.0f), x) - x * target + log_one_plus(exp_of_minus_abs(x));
}

INLINE vec bce_slope(vec x, vec target, float beta) {
    const vec e = exp_of_minus_abs(x);
    (void)beta;
    return pick(x < 0.0f, e, splat(1.0f)) / (1.0f + e) - target;
}

INLINE vec mse(vec x, vec target, float beta) {
    const vec d = x - target;
    (void)beta;
    return d * d;
}

INLINE vec mse_slope(vec x, vec target, float beta) {
    (void)beta;
    return 2.0f * (x - target);
}

INLINE vec smooth_l1(vec x, vec target, float beta) {
    const vec d = x - target, size = pick(d < 0.0f, -d, d);
    return pick(size < beta, 0.5f * d * d / beta, size - 0.5f * beta);
}

INLINE vec smooth_l1_slope(vec x, vec target, float beta) {
    const vec d = x - target, size = pick(d < 0.0f, -d, d);
    const vec sign = keep(d > 0.0f, splat(1.0f)) - keep(d < 0.0f, splat(1.0f));
    return pick(size < beta, d / beta, sign);
}

INLINE vec product(vec x, vec target, float beta) {
    (void)beta;
    return x * target;
}

INLINE vec product_slope(vec x, vec target, float beta) {
    (void)x;
    (void)beta;
    return target;
}

/* A function that returns the losses of a vector of elements, or their slopes. It must be INLINE,
 * so that the loops contain no calls. */
typedef vec of_element(vec x, vec target, float beta);

/* Return the losses of elements i .. i + left - 1; the other lanes are undefined. */
INLINE vec losses_at(cgp_dtype type, const cgp__cpu_element_loss *a, int64_t i, int64_t left,
                     of_element *loss) {
    return loss(load_left(type, a->x, i, left), load_left(type, a->targets, i, left), a->beta);
}

INLINE void sum_losses(cgp_dtype type, const cgp__cpu_element_loss *a, of_element *loss) {
    dvec sums = {0};
    int64_t i = 0;
    for (; i + LANES <= a->n; i += LANES)
        sums += __builtin_convertvector(losses_at(type, a, i, LANES, loss), dvec);
    if (i < a->n) {
        const int64_t left = a->n - i;
        const vec last = losses_at(type, a, i, left, loss);
        sums += __builtin_convertvector(keep(lanes_below(left), last), dvec);
    }
    *a->sum = 0.0;
    for (int k = 0; k < LANES; k++)
        *a->sum += sums[k];
}

INLINE void forward(cgp_dtype type, const cgp__cpu_element_loss *a) {
    if (a->op == CGP_OP_MSE)
        sum_losses(type, a, mse);
    else if (a->op == CGP_OP_SMOOTH_L1)
        sum_losses(type, a, smooth_l1);
    else if (a->op == CGP_OP_WEIGHTED_MEAN)
        sum_losses(type, a, product);
    else
        sum_losses(type, a, bce);
}

TYPED(forward, (const cgp__cpu_element_loss *loss), loss)

void CGP__CPU_NAME(element_loss_forward)(const cgp__cpu_element_loss *loss) {
    CALL_TYPED(loss->type, forward, loss);
}

INLINE void slopes_at(cgp_dtype type, const cgp__cpu_element_loss *a, int64_t i, int64_t left,
                      bool add, of_element *slope) {
    const vec x = load_left(type, a->x, i, left), target = load_left(type, a->targets, i, left);
    store_left(type, a->dx, i, a->scale * slope(x, target, a->beta), left, add);
}

INLINE void slopes(cgp_dtype type, const cgp__cpu_element_loss *a, bool add, of_element *slope) {
    int64_t i = 0;
    for (; i + LANES <= a->n; i += LANES) {
        prefetch_ahead(type, a->x, i);
        prefetch_ahead(type, a->targets, i);
        slopes_at(type, a, i, LANES, add, slope);
    }
    if (i < a->n) slopes_at(type, a, i, a->n - i, add, slope);
}

/* `loss` is copied, so that stores to dx cannot change its fields. */
INLINE void set_slopes(cgp_dtype type, const cgp__cpu_element_loss *loss, of_element *slope) {
    const cgp__cpu_element_loss a = *loss;
    if (a.add)
        slopes(type, &a, true, slope);
    else
        slopes(type, &a, false, slope);
}

INLINE void backward(cgp_dtype type, const cgp__cpu_element_loss *a) {
    if (a->op == CGP_OP_MSE)
        set_slopes(type, a, mse_slope);
    else if (a->op == CGP_OP_SMOOTH_L1)
        set_slopes(type, a, smooth_l1_slope);
    else if (a->op == CGP_OP_WEIGHTED_MEAN)
        set_slopes(type, a, product_slope);
    else
        set_slopes(type, a, bce_slope);
}

TYPED(backward, (const cgp__cpu_element_loss *loss), loss)

void CGP__CPU_NAME(element_loss_backward)(const cgp__cpu_element_loss *loss) {
    CALL_TYPED(loss->type, backward, loss);
}
