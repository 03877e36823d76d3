/* SPDX-License-Identifier: Apache-2.0 */
/* cuda.cuh -- code that all kernels share: launches, indexing, and loads and stores by element
 * type. */
#ifndef CGP_SRC_CUDA_CUH
#define CGP_SRC_CUDA_CUH

#include "backend/cuda/cuda.h"

/* --- launches, copies and clears; they are counted, to check captured graphs --- */

/* A kernel may have DEFAULT_SHARED bytes of shared memory, or more if the kernel's attribute on the
 * device allows this. A kernel with dynamic shared memory has at most STATIC_SHARED bytes of static
 * shared memory; tests/cuda/test_cuda_nvcc.sh checks this limit. */
enum { DEFAULT_SHARED = 48 << 10, STATIC_SHARED = 1 << 10 };

/* Enqueue a kernel with `shared` bytes of dynamic shared memory; arguments are converted to the
 * types of its parameters. The kernel attribute that allows this size belongs to the current
 * device, so it is set at every launch. A captured graph keeps the attribute. */
template <class... P, class... A>
static inline cudaError_t launch_shared(void (*kernel)(P...), dim3 grid, dim3 block,
                                        int64_t shared, cudaStream_t stream, A... arguments) {
    if (shared > DEFAULT_SHARED - STATIC_SHARED) {
        const cudaError_t error =
            cudaFuncSetAttribute(reinterpret_cast<const void *>(kernel),
                                 cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
        if (error != cudaSuccess) return error;
    }
    cgp__cuda_count_launch();
#ifdef CGP_CUDA_HOST
    return cgp__shim_launch_kernel(kernel, grid, block, shared, stream,
                                   static_cast<P>(arguments)...);
#else
    kernel<<<grid, block, (size_t)shared, stream>>>(static_cast<P>(arguments)...);
    return cudaGetLastError();
#endif
}

/* Enqueue a kernel without dynamic shared memory. */
template <class... P, class... A>
static inline cudaError_t launch(void (*kernel)(P...), dim3 grid, dim3 block,
                                 cudaStream_t stream, A... arguments) {
    return launch_shared(kernel, grid, block, 0, stream, arguments...);
}

/* Declare `name`, a pointer to the dynamic shared memory of the block, aligned to 16 bytes. A
 * static assertion with a text such as "dynamic shared memory of kernel<64>" states the bytes of
 * each instance, for tests/cuda/test_cuda_nvcc.sh. */
#ifdef CGP_CUDA_HOST
#define DYNAMIC_SHARED(type, name)                                                             \
    type *const name = static_cast<type *>(cgp__shim_dynamic_shared())
#else
extern __shared__ __align__(16) unsigned char cgp__dynamic_shared[];
#define DYNAMIC_SHARED(type, name)                                                             \
    type *const name = reinterpret_cast<type *>(cgp__dynamic_shared)
#endif

/* Copy within the device. */
static inline cudaError_t copy_bytes(void *to, const void *from, int64_t bytes,
                                     cudaStream_t stream) {
    cgp__cuda_count_launch();
    return cudaMemcpyAsync(to, from, (size_t)bytes, cudaMemcpyDeviceToDevice, stream);
}

static inline cudaError_t clear_bytes(void *at, int64_t bytes, cudaStream_t stream) {
    cgp__cuda_count_launch();
    return cudaMemsetAsync(at, 0, (size_t)bytes, stream);
}

/* Return from the function if a cudaError_t is not cudaSuccess. For a cgp_status, use
 * CGP__TRY_STATUS. */
#define CGP__TRY_CUDA_ERROR(call)                                                              \
    do {                                                                                       \
        const cudaError_t error_ = (call);                                                     \
        if (error_ != cudaSuccess) return error_;                                              \
    } while (0)

/* Default number of threads in a block. */
enum { BLOCK = 256 };

static inline int64_t ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

/* Return a grid for n elements. A thread may get several elements, because kernels use grid-stride
 * loops. */
static inline dim3 blocks_for(int64_t n) {
    const int64_t blocks = ceil_div(n, BLOCK);
    return dim3((unsigned)(blocks < 1 ? 1 : blocks > 65535 ? 65535 : blocks));
}

/* Grid-stride loop over n elements, for a one-dimensional grid. */
#define FOR_EACH(i, n)                                                                         \
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < (n);                  \
         i += (int64_t)gridDim.x * blockDim.x)

/* --- element types: float, or bf16 stored as its uint16_t bits --- */

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

/* Round `value` to the nearest bf16, ties to even, and store it; a NaN stays a NaN. */
__device__ static inline void store(bf16 *to, int64_t i, float value) {
    const uint32_t bits = __float_as_uint(value);
    const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
    to[i] = (bf16)(nan ? (bits >> 16) | 0x40u : (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

/* Set to[i] to `value`. If `add` is set, add `value` to to[i] instead. */
template <class T> __device__ static inline void put(T *to, int64_t i, bool add, float value) {
    store(to, i, add ? load(to, i) + value : value);
}

/* Round a value as a store to T would. */
template <class T> __device__ static inline float rounded(float value) {
    T element;
    store(&element, 0, value);
    return load(&element, 0);
}

/* RELU: return `value` if `sign` > 0 or is a NaN, otherwise slope times `value`. If slope is 0, the
 * result is 0, even for an infinity. */
__device__ static inline float rectified(float sign, float value, float slope) {
    return sign <= 0.0f ? (slope > 0.0f ? value * slope : 0.0f) : value;
}

/* Return the result of an op with a fused RELU (slope 1: no RELU). It is bit-identical to the
 * result of two separate kernels. */
template <class T> __device__ static inline float ended(float value, float slope) {
    const float x = rounded<T>(value);
    return slope == 1.0f ? value : rectified(x, x, slope);
}

/* Return bit k of spec->add. */
static inline bool adds(const cgp_kernel_spec *spec, int k) {
    return ((spec->add >> k) & 1) != 0;
}

/* Call the instance for the spec's element type. */
template <cgp__cuda_run *of_float, cgp__cuda_run *of_bf16>
static cudaError_t by_type(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                           cudaStream_t stream) {
    return spec->type == CGP_BF16 ? of_bf16(spec, args, stream) : of_float(spec, args, stream);
}

#define BY_TYPE(run) by_type<run<float>, run<bf16>>

/* Return the number of elements of y. */
static inline int64_t elements(const cgp_kernel_spec *spec) {
    return spec->n * spec->attributes.rows * spec->attributes.out;
}

#endif
