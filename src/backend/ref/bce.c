/* SPDX-License-Identifier: Apache-2.0 */
/* bce.c -- the sum over elements of the binary cross-entropy of sigmoid(x) and targets t in 0..1.
 * Reference kernels.
 *
 *     loss = sum of max(x, 0) - x t + log(1 + exp(-|x|))
 *     dx = loss_scale (1 / (1 + exp(-x)) - t)
 *
 * loss is overwritten with the sum, which is computed in double in the order of elements.
 * backward_input needs logits and targets; dx may be the logits unless the kernel adds to dx. */
#include "backend/kernel.h"
#include "backend/ref/ref.h"

#include <math.h>

static void bce_forward(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    const int64_t count = cgp__ref_elements(spec);
    double loss = 0.0;
    for (int64_t i = 0; i < count; i++) {
        const double x = cgp__ref_load(spec->type, args->x[0], i);
        const double t = cgp__ref_load(spec->type, args->x[1], i);
        loss += (x > 0.0 ? x : 0.0) - x * t + log1p(exp(-fabs(x)));
    }
    cgp__set_loss(args, loss);
}

static void bce_input(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    const int64_t count = cgp__ref_elements(spec);
    for (int64_t i = 0; args->dx[0] && i < count; i++) {
        const double x = cgp__ref_load(spec->type, args->x[0], i);
        const double t = cgp__ref_load(spec->type, args->x[1], i);
        cgp__ref_store(spec->type, args->dx[0], i, cgp__ref_adds(spec, 0),
                       cgp__loss_scale(args) * (1.0 / (1.0 + exp(-x)) - t));
    }
}

const cgp__ref_op cgp__ref_bce_with_logits = {.run = {bce_forward, bce_input}};
