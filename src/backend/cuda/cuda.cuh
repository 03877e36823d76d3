/* SPDX-License-Identifier: Apache-2.0 */
/* cuda.cuh -- what kernels share: launches, loads and stores by type, sums of a block, random
 * numbers. */
#ifndef CGP_SRC_CUDA_CUH
#define CGP_SRC_CUDA_CUH

#include "backend/cuda/cuda.h"

#ifdef CGP_CUDA_HOST
#include "backend/cuda/host/device.h" /* __global__, threadIdx, __syncthreads ... for the host's compiler */
#endif

/* --- all that kernels' runs enqueue: counted, so that what is missing from a recording is noticed
 * --- */

/* Enqueue a kernel; arguments are converted to the types of its parameters. */
template <class... P, class... A>
static inline cudaError_t launch(void (*kernel)(P...), dim3 grid, dim3 block,
                                 cudaStream_t stream, A... arguments) {
    cgp__cuda_count_launch();
#ifdef CGP_CUDA_HOST
    return cgp__shim_launch_kernel(kernel, grid, block, stream, static_cast<P>(arguments)...);
#else
    kernel<<<grid, block, 0, stream>>>(static_cast<P>(arguments)...);
    return cudaGetLastError();
#endif
}

/* Within the device. */
static inline cudaError_t copy_bytes(void *to, const void *from, int64_t bytes,
                                     cudaStream_t stream) {
    cgp__cuda_count_launch();
    return cudaMemcpyAsync(to, from, (size_t)bytes, cudaMemcpyDeviceToDevice, stream);
}

static inline cudaError_t clear_bytes(void *at, int64_t bytes, cudaStream_t stream) {
    cgp__cuda_count_launch();
    return cudaMemsetAsync(at, 0, (size_t)bytes, stream);
}

#define CGP__TRY_CUDA(call)                                                                    \
    do {                                                                                       \
        const cudaError_t error_ = (call);                                                     \
        if (error_ != cudaSuccess) return error_;                                              \
    } while (0)

/* Threads of a block where nothing speaks for another number. */
enum { BLOCK = 256 };

static inline int64_t ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

/* Blocks for n elements, one or more a thread; kernels stride over the rest. */
static inline dim3 blocks_for(int64_t n) {
    const int64_t blocks = ceil_div(n, BLOCK);
    return dim3((unsigned)(blocks < 1 ? 1 : blocks > 65535 ? 65535 : blocks));
}

/* The loop of a thread over n elements of a grid of one dimension. */
#define FOR_EACH(i, n)                                                                         \
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < (n);                  \
         i += (int64_t)gridDim.x * blockDim.x)

/* --- elements of a type: float, or bf16 as the uint16_t of its bits --- */

typedef uint16_t bf16;

__device__ static inline float load(const float *from, int64_t i) {
    return from[i];
}

__device__ static inline float load(const bf16 *from, int64_t i) {
    return __uint_as_float((uint32_t)from[i] << 16);
}

__device__ static inline void store(float *to, int64_t i, float value) {
    to[i] = value;
}

/* Rounded to nearest, ties to even; a NaN stays one. */
__device__ static inline void store(bf16 *to, int64_t i, float value) {
    const uint32_t bits = __float_as_uint(value);
    const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
    to[i] = (bf16)(nan ? (bits >> 16) | 0x40u : (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

/* to[i] = or += value */
template <class T> __device__ static inline void put(T *to, int64_t i, bool add, float value) {
    store(to, i, add ? load(to, i) + value : value);
}

/* Rounded as in memory. */
template <class T> __device__ static inline float rounded(float value) {
    T element;
    store(&element, 0, value);
    return load(&element, 0);
}

/* RELU: value where sign > 0, or is a NaN; elsewhere slope value, and 0 of an infinity if the slope
 * is 0. */
__device__ static inline float rectified(float sign, float value, float slope) {
    return sign <= 0.0f ? (slope > 0.0f ? value * slope : 0.0f) : value;
}

/* The end of an op that may end in a RELU, with the bits of two kernels. */
template <class T> __device__ static inline float ended(float value, float slope) {
    const float x = rounded<T>(value);
    return slope == 1.0f ? value : rectified(x, x, slope);
}

/* Bit k of spec->add. */
static inline bool adds(const cgp_kernel_spec *spec, int k) {
    return ((spec->add >> k) & 1) != 0;
}

/* A run of two: by the type of the spec. */
template <cgp__cuda_run *of_float, cgp__cuda_run *of_bf16>
static cudaError_t by_type(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                           cudaStream_t stream) {
    return spec->type == CGP_BF16 ? of_bf16(spec, args, stream) : of_float(spec, args, stream);
}

#define BY_TYPE(run) by_type<run<float>, run<bf16>>

/* Elements of y. */
static inline int64_t elements(const cgp_kernel_spec *spec) {
    return spec->n * spec->attributes.rows * spec->attributes.out;
}

#endif
