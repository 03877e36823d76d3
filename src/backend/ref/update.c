/* update.c -- one optimizer update and the sum of two gradients, reference loops.
 *
 * SGD, PyTorch's form:
 *     g += weight_decay p       buffer = momentum buffer + g
 *     p -= rate (nesterov ? g + momentum buffer : buffer)          without buffer: p -= rate g
 *
 * AdamW:
 *     p *= 1 - rate weight_decay
 *     m = beta1 m + (1 - beta1) g          v = beta2 v + (1 - beta2) g^2
 *     p -= rate / correction1  m / (sqrt(v) / correction2_sqrt + eps)
 *
 * Each element is computed in double from what is stored; p and the state are overwritten, the
 * gradient is left as it is. */
#include "backend/ref/ref.h"

#include <math.h>

static void sgd(const cgp__update *u) {
    const double rate = u->rate, momentum = u->momentum;
    for (int64_t i = 0; i < u->n; i++) {
        const double g = u->grad[i] + u->weight_decay * u->param[i];
        double step = g;
        if (u->state[0]) {
            u->state[0][i] = (float)(momentum * u->state[0][i] + g);
            step = u->nesterov ? g + momentum * u->state[0][i] : u->state[0][i];
        }
        u->param[i] = (float)(u->param[i] - rate * step);
    }
}

static void adamw(const cgp__update *u) {
    const double rate = u->rate, beta1 = u->beta1, beta2 = u->beta2;
    for (int64_t i = 0; i < u->n; i++) {
        const double g = u->grad[i], p = u->param[i] * (1.0 - rate * u->weight_decay);
        const double m = beta1 * u->state[0][i] + (1.0 - beta1) * g;
        const double v = beta2 * u->state[1][i] + (1.0 - beta2) * g * g;
        const double denominator = sqrt(v) / u->correction2_sqrt + u->eps;
        u->state[0][i] = (float)m;
        u->state[1][i] = (float)v;
        u->param[i] = (float)(p - rate / u->correction1 * m / denominator);
    }
}

void cgp__ref_update(cgp__device *device, const cgp__update *update) {
    (void)device;
    if (update->rule == CGP__UPDATE_SGD)
        sgd(update);
    else
        adamw(update);
}
