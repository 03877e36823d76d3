/* update.c -- one optimizer update, elementwise; param and state are overwritten.
 *
 * SGD:    g = grad + weight_decay param          b = momentum b + g
 *         param -= rate (nesterov ? g + momentum b : b)          without b: param -= rate g
 * AdamW:  m = beta1 m + (1 - beta1) grad         v = beta2 v + (1 - beta2) grad^2
 *         param = param (1 - rate weight_decay)
 *                 - rate / correction1  m / (sqrt(v) / correction2_sqrt + eps) */
#include "backend/cpu/kernels/vec.h"

#include <math.h>

/* Constants of a whole update; differences from 1 are taken in double. */
typedef struct constants {
    float rate, decay, momentum, beta1, rest1, beta2, rest2, scale2, eps;
} constants;

INLINE vec sgd(const cgp__update *u, const constants *k, vec param, vec grad, vec *buffer) {
    vec step = grad + k->decay * param;
    if (buffer) {
        *buffer = k->momentum * *buffer + step;
        step = u->nesterov ? step + k->momentum * *buffer : *buffer;
    }
    return param - k->rate * step;
}

INLINE vec adamw(const constants *k, vec param, vec grad, vec *m, vec *v) {
    *m = k->beta1 * *m + k->rest1 * grad;
    *v = k->beta2 * *v + k->rest2 * (grad * grad);
    return k->decay * param - k->rate * *m / (square_root(*v) * k->scale2 + k->eps);
}

static void update_sgd(const cgp__update *u) {
    const constants k = {.rate = (float)u->rate,
                         .decay = (float)u->weight_decay,
                         .momentum = (float)u->momentum};
    float *param = u->param, *buffer = u->state[0];
    int64_t i = 0;
    for (; i + LANES <= u->n; i += LANES) {
        vec b = {0};
        if (buffer) b = load(buffer + i);
        store(param + i, sgd(u, &k, load(param + i), load(u->grad + i), buffer ? &b : NULL));
        if (buffer) store(buffer + i, b);
    }
    const int64_t left = u->n - i;
    if (left == 0) return;
    vec b = {0};
    if (buffer) b = load_part(buffer + i, left);
    const vec p = sgd(u, &k, load_part(param + i, left), load_part(u->grad + i, left),
                      buffer ? &b : NULL);
    store_part(param + i, p, left);
    if (buffer) store_part(buffer + i, b, left);
}

static void update_adamw(const cgp__update *u) {
    const constants k = {.rate = (float)(u->rate / u->correction1),
                         .decay = (float)(1.0 - u->rate * u->weight_decay),
                         .beta1 = (float)u->beta1,
                         .rest1 = (float)(1.0 - u->beta1),
                         .beta2 = (float)u->beta2,
                         .rest2 = (float)(1.0 - u->beta2),
                         .scale2 = (float)(1.0 / u->correction2_sqrt),
                         .eps = (float)u->eps};
    float *param = u->param, *state1 = u->state[0], *state2 = u->state[1];
    int64_t i = 0;
    for (; i + LANES <= u->n; i += LANES) {
        vec m = load(state1 + i), v = load(state2 + i);
        store(param + i, adamw(&k, load(param + i), load(u->grad + i), &m, &v));
        store(state1 + i, m);
        store(state2 + i, v);
    }
    const int64_t left = u->n - i;
    if (left == 0) return;
    vec m = load_part(state1 + i, left), v = load_part(state2 + i, left);
    const vec p = adamw(&k, load_part(param + i, left), load_part(u->grad + i, left), &m, &v);
    store_part(param + i, p, left);
    store_part(state1 + i, m, left);
    store_part(state2 + i, v, left);
}

void CGP__CPU_NAME(update)(const cgp__update *update) {
    const cgp__update own = *update;
    if (own.rule == CGP__UPDATE_SGD)
        update_sgd(&own);
    else
        update_adamw(&own);
}
