/* SPDX-License-Identifier: Apache-2.0 */
/* device.h -- CUDA C++ for the host compiler. It replaces nvcc's headers when the kernels are
 * compiled for `cuda-host`.
 *
 * Static shared memory is thread-local static memory of the host thread that runs the block. It is
 * not cleared between blocks. Dynamic shared memory is in shared.c. */
#ifndef CGP_TESTS_FAKES_CUDA_DEVICE_H
#define CGP_TESTS_FAKES_CUDA_DEVICE_H

#include <math.h>
#include <string.h>

#include <tuple>
#include <type_traits>

#include "fibers.h"
#include "runtime.h"

#define __global__
#define __device__
#define __host__
#define __constant__
#define __shared__ static thread_local
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))

#define threadIdx cgp__shim_threadIdx
#define blockIdx cgp__shim_blockIdx
#define blockDim cgp__shim_blockDim
#define gridDim cgp__shim_gridDim
static const int warpSize = CGP__SHIM_WARP;

/* --- vectors --- */

struct __align__(8) float2 {
    float x, y;
};
struct __align__(16) float4 {
    float x, y, z, w;
};
struct __align__(8) int2 {
    int x, y;
};
struct __align__(16) int4 {
    int x, y, z, w;
};
struct __align__(8) uint2 {
    unsigned x, y;
};
struct __align__(16) uint4 {
    unsigned x, y, z, w;
};
struct __align__(4) ushort2 {
    unsigned short x, y;
};
struct __align__(8) ushort4 {
    unsigned short x, y, z, w;
};
struct __align__(16) double2 {
    double x, y;
};

static inline float2 make_float2(float x, float y) {
    return {x, y};
}
static inline float4 make_float4(float x, float y, float z, float w) {
    return {x, y, z, w};
}
static inline int2 make_int2(int x, int y) {
    return {x, y};
}
static inline int4 make_int4(int x, int y, int z, int w) {
    return {x, y, z, w};
}
static inline uint2 make_uint2(unsigned x, unsigned y) {
    return {x, y};
}
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) {
    return {x, y, z, w};
}
static inline ushort2 make_ushort2(unsigned short x, unsigned short y) {
    return {x, y};
}
static inline ushort4 make_ushort4(unsigned short x, unsigned short y, unsigned short z,
                                   unsigned short w) {
    return {x, y, z, w};
}
static inline double2 make_double2(double x, double y) {
    return {x, y};
}

/* --- barriers and shuffles --- */

static inline void __syncthreads() {
    cgp__shim_sync_block();
}
static inline void __syncwarp(unsigned mask = 0xffffffffu) {
    cgp__shim_sync_warp(mask);
}

template <class T> static inline T cgp__shim_shuffle_of(unsigned mask, T value, unsigned from) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "what CUDA shuffles");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    bits = cgp__shim_shuffle(mask, bits, from);
    memcpy(&value, &bits, sizeof value);
    return value;
}

template <class T> static inline T __shfl_sync(unsigned mask, T value, int from) {
    return cgp__shim_shuffle_of(mask, value, (unsigned)from % CGP__SHIM_WARP);
}

template <class T> static inline T __shfl_xor_sync(unsigned mask, T value, int lanes) {
    return cgp__shim_shuffle_of(mask, value, cgp__shim_lane() ^ (unsigned)lanes);
}

template <class T> static inline T __shfl_down_sync(unsigned mask, T value, unsigned lanes) {
    return cgp__shim_shuffle_of(mask, value, cgp__shim_lane() + lanes);
}

/* --- atomics: one host thread runs all blocks of a launch, one after the other --- */

static inline unsigned atomicInc(unsigned *at, unsigned last) {
    const unsigned before = *at;
    *at = before >= last ? 0 : before + 1;
    return before;
}

static inline void __threadfence() {
}
static inline void __nanosleep(unsigned) {
}

/* --- arithmetic --- */

template <class To, class From> static inline To cgp__shim_cast(From from) {
    static_assert(sizeof(To) == sizeof(From), "a bit cast");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}

static inline unsigned __float_as_uint(float x) {
    return cgp__shim_cast<unsigned>(x);
}
static inline int __float_as_int(float x) {
    return cgp__shim_cast<int>(x);
}
static inline float __uint_as_float(unsigned x) {
    return cgp__shim_cast<float>(x);
}
static inline float __int_as_float(int x) {
    return cgp__shim_cast<float>(x);
}
static inline long long __double_as_longlong(double x) {
    return cgp__shim_cast<long long>(x);
}
static inline double __longlong_as_double(long long x) {
    return cgp__shim_cast<double>(x);
}
static inline unsigned __umulhi(unsigned a, unsigned b) {
    return (unsigned)(((uint64_t)a * b) >> 32);
}

template <class T> static inline T __ldg(const T *at) {
    return *at;
}

static inline float max(float a, float b) {
    return fmaxf(a, b);
}
static inline float min(float a, float b) {
    return fminf(a, b);
}
template <class A, class B> static inline std::common_type_t<A, B> max(A a, B b) {
    static_assert(std::is_integral_v<A> && std::is_integral_v<B>, "integers");
    return a > b ? a : b;
}
template <class A, class B> static inline std::common_type_t<A, B> min(A a, B b) {
    static_assert(std::is_integral_v<A> && std::is_integral_v<B>, "integers");
    return a < b ? a : b;
}

/* --- launches --- */

template <class... P> struct cgp__shim_call {
    void (*kernel)(P...);
    std::tuple<P...> arguments;
    static void thread(const void *at) {
        const cgp__shim_call *call = static_cast<const cgp__shim_call *>(at);
        std::apply(call->kernel, call->arguments);
    }
};

/* Launch a kernel like CUDA's kernel<<<grid, block, shared, stream>>>(arguments). */
template <class... P>
static inline cudaError_t cgp__shim_launch_kernel(void (*kernel)(P...), dim3 grid, dim3 block,
                                                  int64_t shared, cudaStream_t stream,
                                                  P... arguments) {
    static_assert((std::is_trivially_copyable_v<P> && ...), "arguments are copied as bytes");
    const cgp__shim_call<P...> call = {kernel, std::tuple<P...>(arguments...)};
    const cgp__shim_kernel of = {reinterpret_cast<const void *>(kernel),
                                 cgp__shim_call<P...>::thread, (size_t)shared};
    return cgp__shim_launch(stream, grid, block, &of, &call, sizeof call);
}

#endif
