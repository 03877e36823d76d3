/* SPDX-License-Identifier: Apache-2.0 */
/* add.cu -- y = x[0] + x[1], with an optional fused RELU; dx[0] = dx[1] = dy. The op saves nothing.
 * The output y may share memory with an x[k]; a dx[k] that shares dy's memory needs no work. */
#include "backend/cuda/map.cuh"

template <class T> struct sum_of {
    float slope;
    __device__ float operator()(float a, float b) const {
        return ended<T>(a + b, slope);
    }
};

template <class T>
static cudaError_t forward(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                           cudaStream_t stream) {
    return map((T *)args->y, (const T *)args->x[0], (const T *)args->x[1], elements(spec),
               false, stream, sum_of<T>{spec->attributes.slope});
}

/* Process the last input first. If both inputs are the same value, its gradients must be added from
 * the last use to the first. */
template <class T>
static cudaError_t input(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                         cudaStream_t stream) {
    for (int k = 1; k >= 0; k--)
        CGP__TRY_CUDA_ERROR(pass_dy<T>(spec, args, k, stream));
    return cudaSuccess;
}

const cgp__cuda_op cgp__cuda_add = {{BY_TYPE(forward), BY_TYPE(input), NULL}, NULL};
