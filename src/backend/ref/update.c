/* SPDX-License-Identifier: Apache-2.0 */
/* update.c -- reference loops of optimizer updates. Below, g is the gradient times gradient_scale.
 *
 * SGD, PyTorch's form:
 *     g += weight_decay p       buffer = momentum buffer + g
 *     p -= lr (nesterov ? g + momentum buffer : buffer)          without buffer: p -= lr g
 *
 * AdamW:
 *     p *= 1 - lr weight_decay
 *     m = beta1 m + (1 - beta1) g          v = beta2 v + (1 - beta2) g^2
 *     p -= lr / correction1  m / (sqrt(v) / correction2_sqrt + eps)
 *
 * Adam: g += weight_decay p; then like AdamW without decay.
 *
 * RMSprop, PyTorch's form:
 *     g += weight_decay p       v = alpha v + (1 - alpha) g^2
 *     buffer = momentum buffer + g / (sqrt(v) + eps)               without buffer: the quotient
 *     p -= lr buffer
 *
 * Each element is computed in double from the stored values. The update overwrites p and the state;
 * the gradient is unchanged. */
#include "backend/ref/ref.h"

#include <math.h>

/* Update element i, whose gradient is g. */
typedef void rule(const cgp_update *u, int64_t i, double g);

static void sgd(const cgp_update *u, int64_t i, double g) {
    g += u->weight_decay * u->param[i];
    double step = g;
    if (u->state[0]) {
        u->state[0][i] = (float)(u->momentum * u->state[0][i] + g);
        step = u->nesterov ? g + u->momentum * u->state[0][i] : u->state[0][i];
    }
    u->param[i] = (float)(u->param[i] - u->values->lr * step);
}

/* Update both moments; set element i to p minus the step. */
static void adaptive(const cgp_update *u, int64_t i, double p, double g) {
    const double m = u->beta1 * u->state[0][i] + (1.0 - u->beta1) * g;
    const double v = u->beta2 * u->state[1][i] + (1.0 - u->beta2) * g * g;
    const double denominator = sqrt(v) / u->values->correction2_sqrt + u->eps;
    u->state[0][i] = (float)m;
    u->state[1][i] = (float)v;
    u->param[i] = (float)(p - u->values->lr / u->values->correction1 * m / denominator);
}

static void adamw(const cgp_update *u, int64_t i, double g) {
    adaptive(u, i, u->param[i] * (1.0 - u->values->lr * u->weight_decay), g);
}

static void adam(const cgp_update *u, int64_t i, double g) {
    adaptive(u, i, u->param[i], g + u->weight_decay * u->param[i]);
}

static void rmsprop(const cgp_update *u, int64_t i, double g) {
    g += u->weight_decay * u->param[i];
    const double v = u->alpha * u->state[0][i] + (1.0 - u->alpha) * g * g;
    double step = g / (sqrt(v) + u->eps);
    u->state[0][i] = (float)v;
    if (u->state[1]) {
        step += u->momentum * u->state[1][i];
        u->state[1][i] = (float)step;
    }
    u->param[i] = (float)(u->param[i] - u->values->lr * step);
}

cgp_status cgp__ref_update(cgp_device *device, const cgp_update *updates, int n) {
    static rule *const rules[] = {[CGP_UPDATE_SGD] = sgd,
                                  [CGP_UPDATE_ADAMW] = adamw,
                                  [CGP_UPDATE_ADAM] = adam,
                                  [CGP_UPDATE_RMSPROP] = rmsprop};
    (void)device;
    for (const cgp_update *u = updates; u < updates + n; u++)
        for (int64_t i = 0; i < u->n; i++)
            rules[u->rule](u, i, u->values->gradient_scale * u->grad[i]);
    return CGP_OK;
}
