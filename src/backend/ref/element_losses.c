/* SPDX-License-Identifier: Apache-2.0 */
/* element_losses.c -- the sum over elements of a loss of x and target t. Reference kernels.
 *
 *     BCE_WITH_LOGITS    max(x, 0) - x t + log(1 + exp(-|x|))    slope = 1 / (1 + exp(-x)) - t
 *     MSE                (x - t)^2                               slope = 2 (x - t)
 *     SMOOTH_L1          d^2 / (2 beta), d = x - t               slope = d / beta
 *       |d| >= beta      |d| - beta / 2                          slope = sign(d)
 *     WEIGHTED_MEAN      x t                                     slope = t
 *
 *     loss = sum of losses        dx = loss_scale slope
 *
 * The loss is overwritten with the sum, which is computed in double in the order of elements.
 * backward_input needs x and targets, or for WEIGHTED_MEAN only the targets. The gradient dx may
 * alias x unless the kernel adds to dx. */
#include "backend/kernel.h"
#include "backend/ref/ref.h"

#include <math.h>

static double value_of(const cgp_kernel_spec *spec, double x, double t) {
    const double d = x - t, beta = cgp_spec_element_loss(spec)->beta;
    if (spec->op == CGP_OP_BCE_WITH_LOGITS)
        return (x > 0.0 ? x : 0.0) - x * t + log1p(exp(-fabs(x)));
    if (spec->op == CGP_OP_MSE) return d * d;
    if (spec->op == CGP_OP_WEIGHTED_MEAN) return x * t;
    return fabs(d) < beta ? 0.5 * d * d / beta : fabs(d) - 0.5 * beta;
}

static double slope_of(const cgp_kernel_spec *spec, double x, double t) {
    const double d = x - t, beta = cgp_spec_element_loss(spec)->beta;
    if (spec->op == CGP_OP_BCE_WITH_LOGITS) return 1.0 / (1.0 + exp(-x)) - t;
    if (spec->op == CGP_OP_MSE) return 2.0 * d;
    if (spec->op == CGP_OP_WEIGHTED_MEAN) return t;
    return fabs(d) < beta ? d / beta : (double)((d > 0.0) - (d < 0.0));
}

static void forward(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    const int64_t count = cgp__ref_elements(spec);
    double loss = 0.0;
    for (int64_t i = 0; i < count; i++)
        loss += value_of(spec, cgp__ref_load(spec->type, args->x[0], i),
                         cgp__ref_load(spec->type, args->x[1], i));
    cgp__set_loss(args, loss);
}

static void backward(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    const int64_t count = cgp__ref_elements(spec);
    for (int64_t i = 0; args->dx[0] && i < count; i++) {
        const bool reads = spec->op != CGP_OP_WEIGHTED_MEAN;
        const double x = reads ? cgp__ref_load(spec->type, args->x[0], i) : 0.0;
        const double t = cgp__ref_load(spec->type, args->x[1], i);
        cgp__ref_store(spec->type, args->dx[0], i, cgp__ref_adds(spec, 0),
                       cgp__loss_scale(args) * slope_of(spec, x, t));
    }
}

const cgp__ref_op cgp__ref_bce_with_logits = {.run = {forward, backward}};
const cgp__ref_op cgp__ref_mse = {.run = {forward, backward}};
const cgp__ref_op cgp__ref_smooth_l1 = {.run = {forward, backward}};
const cgp__ref_op cgp__ref_weighted_mean = {.run = {forward, backward}};
