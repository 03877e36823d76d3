/* SPDX-License-Identifier: Apache-2.0 */
/* commit.cu -- at the end of a step, moves running statistics from the accumulator to the state.
 * The kernel runs as one thread block, so that a barrier can separate all reads of `tracked` from
 * its update. */
#include "backend/cuda/running_stats.cuh"

/* Collect the first n entries of the log. */
static __global__ void merge(running_stats a, int n) {
    running_stats plain = a;
    plain.log = NULL;
    for (int k = 0; k < n; k++) {
        const float *values = logged(a, k);
        const double rows = *(const double *)(const void *)(a.log + k * a.log_bytes);
        for (int64_t i = threadIdx.x; i < a.channels; i += BLOCK)
            collect(plain, i, values[i], values[a.channels + i], rows);
        __syncthreads();
        if (threadIdx.x == 0) count_collected(plain, rows);
        __syncthreads();
        plain.first = false;
    }
}

/* Return the new value of state k (0: mean, 1: variance) of channel i. */
__device__ static inline float outcome(running_stats a, int k, int64_t i) {
    const double value = a.accumulator[2 + k * a.channels + i];
    if (!a.deferred) return (float)value;
    const double before = k == 0 ? a.mean[i] : a.variance[i];
    const double now = k == 0 ? value : unbiased(value, a.accumulator[0]);
    return (float)(before + running_factor(a, 1.0) * (now - before));
}

static __global__ void commit(running_stats a) {
    for (int64_t i = threadIdx.x; i < a.channels; i += BLOCK) {
        const float mean = outcome(a, 0, i), variance = outcome(a, 1, i);
        a.mean[i] = mean;
        a.variance[i] = variance;
    }
    __syncthreads();
    if (threadIdx.x > 0) return;
    const int32_t more = a.deferred ? 1 : (int32_t)a.accumulator[1];
    *a.tracked = *a.tracked > INT32_MAX - more ? INT32_MAX : *a.tracked + more;
}

__device__ static inline bool is_finite(float x) {
    return (__float_as_uint(x) & 0x7f800000u) != 0x7f800000u;
}

static __global__ void check_commit(running_stats a, int64_t *index) {
    __shared__ int first[BLOCK]; /* index k of the first state that is not finite; 2: there is
                                  * none */
    const int t = (int)threadIdx.x;
    int mine = 2;
    for (int k = 1; k >= 0; k--) {
        for (int64_t i = t; i < a.channels; i += BLOCK) {
            if (!is_finite(outcome(a, k, i))) mine = k;
        }
    }
    first[t] = mine;
    for (int half = BLOCK / 2; half > 0; half /= 2) {
        __syncthreads();
        if (t < half && first[t + half] < first[t]) first[t] = first[t + half];
    }
    if (t == 0) *index = first[0] == 2 ? -1 : first[0];
}

cudaError_t cgp__cuda_merge(const cgp_kernel_spec *spec, const cgp_kernel_args *args, int n,
                            cudaStream_t stream) {
    return launch(merge, dim3(1), dim3(BLOCK), stream, running_stats_of(spec, args), n);
}

cudaError_t cgp__cuda_commit(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                             cudaStream_t stream) {
    return launch(commit, dim3(1), dim3(BLOCK), stream, running_stats_of(spec, args));
}

cudaError_t cgp__cuda_check_commit(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                                   int64_t *index, cudaStream_t stream) {
    return launch(check_commit, dim3(1), dim3(BLOCK), stream, running_stats_of(spec, args),
                  index);
}
