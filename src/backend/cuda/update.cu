/* SPDX-License-Identifier: Apache-2.0 */
/* update.cu -- optimizer updates, elementwise, which overwrite param and state. A launch updates a
 * table of tensors (multi-tensor apply: NVIDIA Apex, csrc/multi_tensor_apply.cuh). Below, g is grad
 * times gradient_scale.
 *
 * SGD:      g += weight_decay param              b = momentum b + g
 *           param -= lr (nesterov ? g + momentum b : b)        without b: param -= lr g
 * AdamW:    m = beta1 m + (1 - beta1) g          v = beta2 v + (1 - beta2) g^2
 *           param = param (1 - lr weight_decay)
 *                   - lr / correction1  m / (sqrt(v) / correction2_sqrt + eps)
 * Adam:     g += weight_decay param; then like AdamW without decay
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

__device__ static inline constants constants_of(const cgp_update &u, const cgp_update_values &v,
                                                double weight_decay) {
    const bool moments = u.rule == CGP_UPDATE_ADAMW || u.rule == CGP_UPDATE_ADAM;
    const double beta2 = moments ? u.beta2 : u.alpha;
    constants k;
    k.scale = (float)v.gradient_scale;
    k.lr = (float)(moments ? v.lr / v.correction1 : v.lr);
    k.decay = (float)(u.rule == CGP_UPDATE_ADAMW ? 1.0 - v.lr * weight_decay : weight_decay);
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

/* The rules below return the new param of one element and overwrite the element's `states`
 * states. */

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

/* --- launches --- */

/* Maximum number of tensors in a launch, and number of elements that a thread block updates. */
enum { TENSORS = 64, CHUNK = 16 * BLOCK };

/* A tensor of n elements. `values`: index of the `values` of the tensor's update, counted from the
 * `values` of the first update in the list. `packed`: the operands are aligned for packs of four
 * elements. */
struct tensor {
    float *param, *state[2];
    const float *grad;
    int64_t n;
    double weight_decay;
    int first_block;
    int16_t values;
    bool packed;
};

struct tensors {
    tensor at[TENSORS];
    int n;
};
static_assert(sizeof(tensors) + sizeof(cgp_update) <= 4096, "arguments of a kernel");

/* Update pack p, which has n elements. */
template <class Rule, int n>
__device__ static inline void update_pack(const tensor &t, const constants &k, int64_t p) {
    typedef pack<float, n> floats;
    const floats grad = ((const floats *)t.grad)[p];
    floats param = ((floats *)t.param)[p], states[2] = {};
    for (int s = 0; s < Rule::states; s++)
        states[s] = ((floats *)t.state[s])[p];
    for (int i = 0; i < n; i++) {
        float state[2] = {states[0].at[i], states[1].at[i]};
        param.at[i] = Rule::apply(k, param.at[i], k.scale * grad.at[i], state);
        for (int s = 0; s < Rule::states; s++)
            states[s].at[i] = state[s];
    }
    ((floats *)t.param)[p] = param;
    for (int s = 0; s < Rule::states; s++)
        ((floats *)t.state[s])[p] = states[s];
}

/* Update tensors; each thread block updates a chunk of one tensor. */
template <class Rule> __global__ void update(cgp_update u, tensors all) {
    int of = 0;
    for (int apart = TENSORS / 2; apart > 0; apart /= 2) /* binary search */
        if (of + apart < all.n && all.at[of + apart].first_block <= (int)blockIdx.x) of += apart;
    const tensor &t = all.at[of];
    const constants k = constants_of(u, u.values[t.values], t.weight_decay);
    const int64_t begin = (int64_t)((int)blockIdx.x - t.first_block) * CHUNK;
    const int64_t end = begin + CHUNK < t.n ? begin + CHUNK : t.n;
    const int64_t rest = t.packed ? end / 4 * 4 : begin;
    for (int64_t p = begin / 4 + threadIdx.x; p < rest / 4; p += BLOCK)
        update_pack<Rule, 4>(t, k, p);
    for (int64_t i = rest + threadIdx.x; i < end; i += BLOCK)
        update_pack<Rule, 1>(t, k, i);
}

/* Return the next tensors that have at least one element. Set *blocks to the number of thread
 * blocks that they need. */
static tensors next_tensors(const cgp_update **at, const cgp_update *end,
                            const cgp_update_values *values, int *blocks) {
    tensors all = {};
    *blocks = 0;
    for (; *at < end && all.n < TENSORS; ++*at) {
        const cgp_update &u = **at;
        if (u.n == 0) continue;
        const bool packed = is_aligned(u.param) && is_aligned(u.grad) && is_aligned(u.state[0]) &&
                            is_aligned(u.state[1]);
        all.at[all.n++] = {u.param, {u.state[0], u.state[1]},     u.grad, u.n, u.weight_decay,
                           *blocks, (int16_t)(u.values - values), packed};
        *blocks += (int)ceil_div(u.n, CHUNK);
    }
    return all;
}

template <class Rule>
static cudaError_t run(const cgp_update *updates, int n, cudaStream_t stream) {
    for (const cgp_update *at = updates, *end = updates + n; at < end;) {
        int blocks;
        const tensors all = next_tensors(&at, end, updates->values, &blocks);
        if (all.n == 0) break;
        CGP__TRY_CUDA_ERROR(
            launch(update<Rule>, dim3((unsigned)blocks), dim3(BLOCK), stream, *updates, all));
    }
    return cudaSuccess;
}

cudaError_t cgp__cuda_update(const cgp_update *updates, int n, cudaStream_t stream) {
    if (n == 0) return cudaSuccess;
    float *const *state = updates->state;
    switch (updates->rule) {
    case CGP_UPDATE_SGD:
        return state[0] ? run<sgd_momentum>(updates, n, stream) : run<sgd>(updates, n, stream);
    case CGP_UPDATE_ADAMW:
        return run<adamw>(updates, n, stream);
    case CGP_UPDATE_ADAM:
        return run<adam>(updates, n, stream);
    case CGP_UPDATE_RMSPROP:
        return state[1] ? run<rmsprop_momentum>(updates, n, stream)
                        : run<rmsprop>(updates, n, stream);
    }
    return cudaErrorInvalidValue;
}
