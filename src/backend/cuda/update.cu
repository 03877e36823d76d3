/* SPDX-License-Identifier: Apache-2.0 */
/* update.cu -- one optimizer update, elementwise, which overwrites param and state. Below, g is
 * grad times gradient_scale.
 *
 * SGD:      g += weight_decay param              b = momentum b + g
 *           param -= lr (nesterov ? g + momentum b : b)        without b: param -= lr g
 * AdamW:    m = beta1 m + (1 - beta1) g          v = beta2 v + (1 - beta2) g^2
 *           param = param (1 - lr weight_decay)
 *                   - lr / correction1  m / (sqrt(v) / correction2_sqrt + eps)
 * Adam:     g += weight_decay param; then AdamW without decay
 * RMSprop:  g += weight_decay param              v = alpha v + (1 - alpha) g^2
 *           b = momentum b + g / (sqrt(v) + eps)       without b: the quotient itself
 *           param -= lr b
 *
 * The order of operations and the bits are the same as in the cpu backend. Source: AdamW,
 * Loshchilov and Hutter 2019, arXiv:1711.05101; Adam, Kingma and Ba 2015, arXiv:1412.6980. */
#include "backend/cuda/map.cuh"

#include <math.h>

/* Constants of an update. Differences such as 1 - beta are computed in double. */
typedef struct constants {
    float scale, lr, decay, momentum, beta1, rest1, beta2, rest2, scale2, eps;
    bool nesterov;
} constants;

__device__ static inline constants constants_of(const cgp_update &u) {
    const cgp_update_values v = *u.values;
    const bool moments = u.rule == CGP_UPDATE_ADAMW || u.rule == CGP_UPDATE_ADAM;
    const double beta2 = moments ? u.beta2 : u.alpha;
    constants k;
    k.scale = (float)v.gradient_scale;
    k.lr = (float)(moments ? v.lr / v.correction1 : v.lr);
    k.decay =
        (float)(u.rule == CGP_UPDATE_ADAMW ? 1.0 - v.lr * u.weight_decay : u.weight_decay);
    k.momentum = (float)u.momentum;
    k.beta1 = (float)u.beta1;
    k.rest1 = (float)(1.0 - u.beta1);
    k.beta2 = (float)beta2;
    k.rest2 = (float)(1.0 - beta2);
    k.scale2 = (float)(moments ? 1.0 / v.correction2_sqrt : 1.0);
    k.eps = (float)u.eps;
    k.nesterov = u.nesterov;
    return k;
}

/* Rules: return the new param of one element and overwrite its `states` states. */

struct sgd {
    static constexpr int states = 0;
    __device__ static float apply(const constants &k, float param, float grad, float *) {
        return param - k.lr * (grad + k.decay * param);
    }
};

struct sgd_momentum {
    static constexpr int states = 1;
    __device__ static float apply(const constants &k, float param, float grad, float *state) {
        const float step = grad + k.decay * param;
        state[0] = k.momentum * state[0] + step;
        return param - k.lr * (k.nesterov ? step + k.momentum * state[0] : state[0]);
    }
};

/* Update both moments; return the step to subtract from param. */
__device__ static inline float adaptive(const constants &k, float grad, float *state) {
    state[0] = k.beta1 * state[0] + k.rest1 * grad;
    state[1] = k.beta2 * state[1] + k.rest2 * (grad * grad);
    return k.lr * state[0] / (sqrtf(state[1]) * k.scale2 + k.eps);
}

struct adamw {
    static constexpr int states = 2;
    __device__ static float apply(const constants &k, float param, float grad, float *state) {
        return k.decay * param - adaptive(k, grad, state);
    }
};

struct adam {
    static constexpr int states = 2;
    __device__ static float apply(const constants &k, float param, float grad, float *state) {
        return param - adaptive(k, grad + k.decay * param, state);
    }
};

/* Return the gradient divided by the root of its running mean square. */
__device__ static inline float normalised(const constants &k, float param, float grad,
                                          float *state) {
    const float g = grad + k.decay * param;
    state[0] = k.beta2 * state[0] + k.rest2 * (g * g);
    return g / (sqrtf(state[0]) + k.eps);
}

struct rmsprop {
    static constexpr int states = 1;
    __device__ static float apply(const constants &k, float param, float grad, float *state) {
        return param - k.lr * normalised(k, param, grad, state);
    }
};

struct rmsprop_momentum {
    static constexpr int states = 2;
    __device__ static float apply(const constants &k, float param, float grad, float *state) {
        state[1] = k.momentum * state[1] + normalised(k, param, grad, state);
        return param - k.lr * state[1];
    }
};

/* Update pack p of n elements. */
template <class Rule, int n>
__device__ static inline void update_pack(const cgp_update &u, const constants &k, int64_t p) {
    typedef pack<float, n> floats;
    const floats grad = ((const floats *)u.grad)[p];
    floats param = ((floats *)u.param)[p], states[2] = {};
    for (int s = 0; s < Rule::states; s++)
        states[s] = ((floats *)u.state[s])[p];
    for (int i = 0; i < n; i++) {
        float state[2] = {states[0].at[i], states[1].at[i]};
        param.at[i] = Rule::apply(k, param.at[i], k.scale * grad.at[i], state);
        for (int s = 0; s < Rule::states; s++)
            states[s].at[i] = state[s];
    }
    ((floats *)u.param)[p] = param;
    for (int s = 0; s < Rule::states; s++)
        ((floats *)u.state[s])[p] = states[s];
}

template <class Rule> __global__ void update(cgp_update u, bool packed) {
    const constants k = constants_of(u);
    const int64_t packs = packed ? u.n / 4 : 0, rest = 4 * packs;
    FOR_EACH(p, packs) {
        update_pack<Rule, 4>(u, k, p);
    }
    FOR_EACH(i, u.n - rest) {
        update_pack<Rule, 1>(u, k, rest + i);
    }
}

template <class Rule> static cudaError_t run(const cgp_update *u, cudaStream_t stream) {
    bool packed = is_aligned(u->param) && is_aligned(u->grad);
    for (int s = 0; s < Rule::states; s++)
        packed = packed && is_aligned(u->state[s]);
    if (u->n == 0) return cudaSuccess;
    return launch(update<Rule>, blocks_for(packed ? ceil_div(u->n, 4) : u->n), dim3(BLOCK),
                  stream, *u, packed);
}

cudaError_t cgp__cuda_update(const cgp_update *update, cudaStream_t stream) {
    switch (update->rule) {
    case CGP_UPDATE_SGD:
        return update->state[0] ? run<sgd_momentum>(update, stream) : run<sgd>(update, stream);
    case CGP_UPDATE_ADAMW:
        return run<adamw>(update, stream);
    case CGP_UPDATE_ADAM:
        return run<adam>(update, stream);
    case CGP_UPDATE_RMSPROP:
        return update->state[1] ? run<rmsprop_momentum>(update, stream)
                                : run<rmsprop>(update, stream);
    }
    return cudaErrorInvalidValue;
}
