/* SPDX-License-Identifier: Apache-2.0 */
/* update.c -- one optimizer step, elementwise, which overwrites param and state. Below, g is grad
 * times gradient_scale.
 *
 * SGD:      g += weight_decay param              b = momentum b + g
 *           param -= lr (nesterov ? g + momentum b : b)        without b: param -= lr g
 * AdamW:    m = beta1 m + (1 - beta1) g          v = beta2 v + (1 - beta2) g^2
 *           param = param (1 - lr weight_decay)
 *                   - lr / correction1  m / (sqrt(v) / correction2_sqrt + eps)
 * Adam:     g += weight_decay param; then like AdamW without decay
 * RMSprop:  g += weight_decay param              v = alpha v + (1 - alpha) g^2
 *           b = momentum b + g / (sqrt(v) + eps)                 without b: the quotient itself
 *           param -= lr b
 *
 * Source: AdamW, Loshchilov and Hutter 2019, arXiv:1711.05101; Adam, Kingma and Ba 2015,
 * arXiv:1412.6980. */
#include "backend/cpu/kernels/vec.h"

/* Constants of an update. Differences such as 1 - beta are computed in double. */
typedef struct constants {
    float scale, lr, decay, momentum, beta1, rest1, beta2, rest2, scale2, eps;
    bool nesterov;
} constants;

/* Return the new param of one vector; overwrite its state. */
typedef vec rule(const constants *k, vec param, vec grad, vec *state);

INLINE vec sgd(const constants *k, vec param, vec grad, vec *state) {
    (void)state;
    return param - k->lr * (grad + k->decay * param);
}

INLINE vec sgd_momentum(const constants *k, vec param, vec grad, vec *state) {
    const vec step = grad + k->decay * param;
    state[0] = k->momentum * state[0] + step;
    return param - k->lr * (k->nesterov ? step + k->momentum * state[0] : state[0]);
}

/* Update both moments; return the step to subtract from param. */
INLINE vec adaptive(const constants *k, vec grad, vec *state) {
    state[0] = k->beta1 * state[0] + k->rest1 * grad;
    state[1] = k->beta2 * state[1] + k->rest2 * (grad * grad);
    return k->lr * state[0] / (square_root(state[1]) * k->scale2 + k->eps);
}

INLINE vec adamw(const constants *k, vec param, vec grad, vec *state) {
    return k->decay * param - adaptive(k, grad, state);
}

INLINE vec adam(const constants *k, vec param, vec grad, vec *state) {
    return param - adaptive(k, grad + k->decay * param, state);
}

/* Return the gradient divided by the root of its mean square. */
INLINE vec normalised(const constants *k, vec param, vec grad, vec *state) {
    const vec g = grad + k->decay * param;
    state[0] = k->beta2 * state[0] + k->rest2 * (g * g);
    return g / (square_root(state[0]) + k->eps);
}

INLINE vec rmsprop(const constants *k, vec param, vec grad, vec *state) {
    return param - k->lr * normalised(k, param, grad, state);
}

INLINE vec rmsprop_momentum(const constants *k, vec param, vec grad, vec *state) {
    state[1] = k->momentum * state[1] + normalised(k, param, grad, state);
    return param - k->lr * state[1];
}

/* Apply a rule with `states` states to all vectors of an update. The function is inlined with
 * constant `apply` and `states`, which makes one loop per rule. */
INLINE void run(const cgp_update *u, const constants *k, rule *apply, int states) {
    int64_t i = 0;
    for (; i + LANES <= u->n; i += LANES) {
        vec state[2] = {{0}, {0}};
        for (int s = 0; s < states; s++)
            state[s] = load(u->state[s] + i);
        store(u->param + i, apply(k, load(u->param + i), k->scale * load(u->grad + i), state));
        for (int s = 0; s < states; s++)
            store(u->state[s] + i, state[s]);
    }
    const int64_t left = u->n - i;
    if (left == 0) return;
    vec state[2] = {{0}, {0}};
    for (int s = 0; s < states; s++)
        state[s] = load_part(u->state[s] + i, left);
    const vec param = load_part(u->param + i, left), grad = load_part(u->grad + i, left);
    store_part(u->param + i, apply(k, param, k->scale * grad, state), left);
    for (int s = 0; s < states; s++)
        store_part(u->state[s] + i, state[s], left);
}

static constants constants_of(const cgp_update *u) {
    const bool moments = u->rule == CGP_UPDATE_ADAMW || u->rule == CGP_UPDATE_ADAM;
    const double beta2 = moments ? u->beta2 : u->alpha;
    return (constants){
        .scale = (float)u->values->gradient_scale,
        .lr = (float)(moments ? u->values->lr / u->values->correction1 : u->values->lr),
        .decay = (float)(u->rule == CGP_UPDATE_ADAMW ? 1.0 - u->values->lr * u->weight_decay
                                                     : u->weight_decay),
        .momentum = (float)u->momentum,
        .beta1 = (float)u->beta1,
        .rest1 = (float)(1.0 - u->beta1),
        .beta2 = (float)beta2,
        .rest2 = (float)(1.0 - beta2),
        .scale2 = (float)(moments ? 1.0 / u->values->correction2_sqrt : 1.0),
        .eps = (float)u->eps,
        .nesterov = u->nesterov};
}

void CGP__CPU_NAME(update)(const cgp_update *update) {
    const cgp_update copy = *update;
    const constants k = constants_of(&copy);
    switch (copy.rule) {
    case CGP_UPDATE_SGD:
        if (copy.state[0])
            run(&copy, &k, sgd_momentum, 1);
        else
            run(&copy, &k, sgd, 0);
        break;
    case CGP_UPDATE_ADAMW:
        run(&copy, &k, adamw, 2);
        break;
    case CGP_UPDATE_ADAM:
        run(&copy, &k, adam, 2);
        break;
    case CGP_UPDATE_RMSPROP:
        if (copy.state[1])
            run(&copy, &k, rmsprop_momentum, 2);
        else
            run(&copy, &k, rmsprop, 1);
        break;
    }
}
