/* SPDX-License-Identifier: Apache-2.0 */
/* probe.cu -- see probe.h. Every sum consists of c and 16 products a[k] b[k]. Products of bf16
 * numbers are exact. */
#include "probe.h"

#include "../fakes/cuda/tensor_core_model.h"
#include "backend/cuda/mma.cuh"

enum { A = MMA_M * MMA_K, B = MMA_N * MMA_K, D = MMA_M * MMA_N };

/* --- the multiplication --- */

/* Return elements k and k + 1 of a row. */
__device__ static uint32_t pair_at(const bf16 *row, int k) {
    return (uint32_t)row[k] | (uint32_t)row[k + 1] << 16;
}

/* Each warp multiplies one tile. */
__global__ void multiply(const bf16 *a, const bf16 *b, float *d) {
    const int lane = (int)threadIdx.x, g = lane / 4, t = lane % 4 * 2;
    const bf16 *upper = a + blockIdx.x * A + g * MMA_K, *lower = upper + 8 * MMA_K;
    const bf16 *column = b + blockIdx.x * B + g * MMA_K;
    float *to = d + blockIdx.x * D + g * MMA_N + t;
    const uint32_t of_a[4] = {pair_at(upper, t), pair_at(lower, t), pair_at(upper, t + 8),
                              pair_at(lower, t + 8)};
    const uint32_t of_b[2] = {pair_at(column, t), pair_at(column, t + 8)};
    float sums[4] = {to[0], to[1], to[8 * MMA_N], to[8 * MMA_N + 1]};
    mma(sums, of_a, of_b);
    to[0] = sums[0];
    to[1] = sums[1];
    to[8 * MMA_N] = sums[2];
    to[8 * MMA_N + 1] = sums[3];
}

/* Operands in pinned host memory, which a GPU can read and write. */
struct buffers {
    bf16 *a, *b;
    float *d;
};

static cudaError_t run_tiles(const buffers &at, const uint16_t *a, const uint16_t *b, float *d,
                             int tiles) {
    const size_t n = (size_t)tiles;
    memcpy(at.a, a, n * A * sizeof *a);
    memcpy(at.b, b, n * B * sizeof *b);
    memcpy(at.d, d, n * D * sizeof *d);
    CGP__TRY_CUDA_ERROR(
        launch(multiply, dim3((unsigned)tiles), dim3(32), NULL, at.a, at.b, at.d));
    CGP__TRY_CUDA_ERROR(cudaDeviceSynchronize());
    memcpy(d, at.d, n * D * sizeof *d);
    return cudaSuccess;
}

template <class T> static cudaError_t allocate(T **out, int elements) {
    return cudaHostAlloc((void **)out, (size_t)elements * sizeof(T), cudaHostAllocDefault);
}

cudaError_t probe_multiply(const uint16_t *a, const uint16_t *b, float *d, int tiles) {
    buffers at = {};
    cudaError_t error = allocate(&at.a, tiles * A);
    if (error == cudaSuccess) error = allocate(&at.b, tiles * B);
    if (error == cudaSuccess) error = allocate(&at.d, tiles * D);
    if (error == cudaSuccess) error = run_tiles(at, a, b, d, tiles);
    if (at.d) (void)cudaFreeHost(at.d);
    if (at.b) (void)cudaFreeHost(at.b);
    if (at.a) (void)cudaFreeHost(at.a);
    return error;
}

/* --- chosen operands --- */

/* The operands of one sum, c + the sum of a[k] b[k]. */
struct dot {
    float a[MMA_K], b[MMA_K], c;
};

static uint16_t bf16_of(float x) {
    return (uint16_t)(cgp__tensor_bits(x) >> 16);
}

static cudaError_t sum_of(const dot &x, float *sum) {
    uint16_t a[A] = {}, b[B] = {};
    float d[D] = {x.c};
    for (int k = 0; k < MMA_K; k++) {
        a[k] = bf16_of(x.a[k]);
        b[k] = bf16_of(x.b[k]);
    }
    const cudaError_t error = probe_multiply(a, b, d, 1);
    *sum = d[0];
    return error;
}

/* Set product number `k` to `sign` times 2^-i. */
static void set_power(dot *x, int k, float sign, int i) {
    x->a[k] = ldexpf(sign, -(i / 2));
    x->b[k] = ldexpf(1.0f, -(i - i / 2));
}

/* Find how many products are added at once. c is -1 and product 0 is 1, so they cancel. Product k
 * is 2^-40. It is lost if the tensor core adds it at the same time as c and product 0. */
static cudaError_t find_block(int *block) {
    *block = 0;
    for (int k = MMA_K - 1; k >= 1; k--) {
        dot x = {};
        float sum;
        x.c = -1.0f;
        set_power(&x, 0, 1.0f, 0);
        set_power(&x, k, 1.0f, 40);
        CGP__TRY_CUDA_ERROR(sum_of(x, &sum));
        const bool lost = sum == 0.0f;
        if (lost && *block == 0) *block = k + 1;
        if (!lost && *block != 0) {
            *block = 0; /* product k is added after a later product, so no block size fits */
            return cudaSuccess;
        }
    }
    return cudaSuccess;
}

/* Products 0 and 1 are size^2 and -size^2, so they cancel. Product 2 is 2^-i. `*last` gets the
 * largest i for which product 2 is not lost. */
static cudaError_t find_last(float size, int *last) {
    *last = -1;
    for (int i = 1; i < 60; i++) {
        dot x = {};
        float sum;
        x.a[0] = x.b[0] = x.b[1] = size;
        x.a[1] = -size;
        set_power(&x, 2, 1.0f, i);
        CGP__TRY_CUDA_ERROR(sum_of(x, &sum));
        if (sum == ldexpf(1.0f, -i)) *last = i;
    }
    return cudaSuccess;
}

/* Compute a sum whose exact value is sign * (4 + 3 * 2^-23). Its magnitude is three quarters of a
 * unit in the last place above 4, so the result shows how the tensor core rounds. */
static cudaError_t sum_between(float sign, float *sum) {
    dot x = {};
    x.c = sign * (1.0f + 0x3p-23f);
    for (int k = 0; k < 3; k++)
        set_power(&x, k, sign, 0);
    return sum_of(x, sum);
}

static cudaError_t find_rounding(probe_rounding *rounding) {
    float up, down;
    CGP__TRY_CUDA_ERROR(sum_between(1.0f, &up));
    CGP__TRY_CUDA_ERROR(sum_between(-1.0f, &down));
    *rounding = up == 4.0f && down == -4.0f                           ? PROBE_TRUNCATE
                : up == 4.0f + 0x1p-21f && down == -(4.0f + 0x1p-21f) ? PROBE_NEAREST
                                                                      : PROBE_OTHER;
    return cudaSuccess;
}

/* --- random operands --- */

static uint64_t random_of(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u; /* splitmix64 (Steele, Lea and Flood 2014) */
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Return the bits of a random float: 0, or a number of either sign whose exponent is between
 * `-apart` and `apart`. */
static uint32_t random_bits(uint64_t *state, int apart) {
    const uint64_t word = random_of(state);
    const uint32_t exponent =
        (uint32_t)(127 - apart) + (uint32_t)(word >> 40) % (2 * apart + 1);
    return word % 16 == 0 ? 0 : ((uint32_t)word & 0x807fffffu) | exponent << 23;
}

enum { TILES = 128, MAX_APART = 24 };

struct random_tiles {
    uint16_t a[TILES * A], b[TILES * B];
    float c[TILES * D], d[TILES * D];
};

static void fill(random_tiles *x) {
    uint64_t state = 1;
    for (int i = 0; i < TILES * A; i++)
        x->a[i] = (uint16_t)(random_bits(&state, i / A % MAX_APART) >> 16);
    for (int i = 0; i < TILES * B; i++)
        x->b[i] = (uint16_t)(random_bits(&state, i / B % MAX_APART) >> 16);
    for (int i = 0; i < TILES * D; i++)
        x->c[i] = cgp__tensor_float(random_bits(&state, i / D % MAX_APART));
    memcpy(x->d, x->c, sizeof x->c);
}

static float model_of(const cgp__tensor_core *core, const random_tiles &x, int i) {
    cgp__tensor_factors a, b;
    cgp__tensor_decode(&a, x.a + i / MMA_N * MMA_K);
    cgp__tensor_decode(&b, x.b + (i / D * MMA_N + i % MMA_N) * MMA_K);
    return cgp__tensor_sum(core, x.c[i], &a, &b);
}

static cudaError_t compare(const cgp__tensor_core *core, probe_result *result) {
    static random_tiles x;
    fill(&x);
    CGP__TRY_CUDA_ERROR(probe_multiply(x.a, x.b, x.d, TILES));
    result->outputs = TILES * D;
    result->different = 0;
    for (int i = 0; i < TILES * D; i++)
        result->different += cgp__tensor_bits(x.d[i]) != cgp__tensor_bits(model_of(core, x, i));
    return cudaSuccess;
}

cudaError_t probe_find(probe_result *result) {
    int last, last_of_larger;
    *result = {};
    CGP__TRY_CUDA_ERROR(find_block(&result->block));
    CGP__TRY_CUDA_ERROR(find_last(1.0f, &last));
    CGP__TRY_CUDA_ERROR(find_last(1.5f, &last_of_larger));
    CGP__TRY_CUDA_ERROR(find_rounding(&result->rounding));
    result->extra = last < 0 ? -1 : last - 23;
    result->normalized = last_of_larger != last;
    cgp__tensor_core core = {result->block, result->extra, result->rounding == PROBE_NEAREST};
    const bool valid = (core.block == 4 || core.block == 8 || core.block == 16) &&
                       core.extra >= 0 && core.extra <= CGP__TENSOR_MAX_EXTRA;
    if (!valid) core = CGP__TENSOR_CORE_DEFAULT;
    return compare(&core, result);
}
