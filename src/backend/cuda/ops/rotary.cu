/* SPDX-License-Identifier: Apache-2.0 */
/* rotary.cu -- rotary position embedding (Su et al. 2021, arXiv:2104.09864). It rotates pairs (a,
 * b) of columns by an angle per row: y_a = a cos - b sin, y_b = b cos + a sin. The gradient is dy
 * rotated back. Cosine and sine are computed by the same operations as in the cpu kernel, in
 * double, and are rounded once.
 *
 * A thread handles one pair at one position, or one column that is not rotated, in every head of a
 * sample. The output y may share x's memory, and dx may share dy's memory. */
#include "backend/cuda/cuda.cuh"
#include "backend/rotary.h"

#include <string.h>

/* Kernel arguments, including the frequencies. */
template <class T> struct rotary {
    T *to;
    const T *from;
    /* [n, rows] positions; NULL: a row's position is its number. */
    const int32_t *positions;
    int64_t n, rows, heads, width, rotated, offset;
    /* Sign of the angles: 1 in forward, -1 in backward. */
    float sign;
    bool interleaved, add;
    float frequencies[CGP__ROTARY_PAIRS];
};

struct angle {
    float cosine, sine;
};

/* Return c[0] + z c[1] + ... */
__device__ static inline double polynomial(double z, const double *c) {
    double sum = c[5];
    for (int i = 4; i >= 0; i--)
        sum = fma(sum, z, c[i]);
    return sum;
}

/* Return the cosine and sine of an angle:
 *
 *     n = round(angle 2 / pi)      r = angle - n pi / 2, |r| <= pi / 4, in two parts of pi / 2
 *     sin r = r + r^3 S(r^2)      cos r = 1 - r^2 / 2 + r^4 C(r^2)
 *
 * The addition of 1.5 2^52 rounds n and leaves n in the low bits of the sum. */
__device__ static inline angle angle_of(float angle) {
    const double s[] = {-1.0 / 6,     1.0 / 120,       -1.0 / 5040,
                        1.0 / 362880, -1.0 / 39916800, 1.0 / 6227020800},
                 c[] = {1.0 / 24,       -1.0 / 720,      1.0 / 40320,
                        -1.0 / 3628800, 1.0 / 479001600, -1.0 / 87178291200};
    const double x = (double)angle;
    const double shifted = fma(x, 0x1.45f306dc9c883p-1, 0x1.8p52), whole = shifted - 0x1.8p52;
    uint64_t n;
    memcpy(&n, &shifted, sizeof n);
    double r = fma(whole, -0x1.921fb54442d18p0, x);
    r = fma(whole, -0x1.1a62633145c07p-54, r);
    const double z = r * r, sine = fma(r * z, polynomial(z, s), r);
    const double cosine = fma(z * z, polynomial(z, c), fma(z, -0.5, 1.0));
    const double a = n & 1 ? cosine : sine, b = n & 1 ? sine : cosine;
    return {(float)((n + 1) & 2 ? -b : b), (float)(n & 2 ? -a : a)};
}

template <class T>
__device__ static inline void rotate_pair(const rotary<T> &a, int64_t one, int64_t other,
                                          angle by) {
    const float x = load(a.from, one), y = load(a.from, other);
    put(a.to, one, a.add, x * by.cosine - y * by.sine);
    put(a.to, other, a.add, y * by.cosine + x * by.sine);
}

template <class T> __global__ void rotary_rows(rotary<T> a) {
    const int64_t half = a.rotated / 2, each = a.width - half;
    for (int64_t sample = blockIdx.y; sample < a.n; sample += gridDim.y) {
        FOR_EACH(i, a.rows * each) {
            const int64_t row = i / each, pair = i % each;
            const int64_t at = (sample * a.rows + row) * a.heads * a.width;
            if (pair >= half) { /* this thread handles a column that is not rotated */
                for (int64_t h = 0; h < a.heads; h++)
                    put(a.to, at + h * a.width + half + pair, a.add,
                        load(a.from, at + h * a.width + half + pair));
                continue;
            }
            const int64_t at_row = a.positions ? a.positions[sample * a.rows + row] : row;
            const float position = a.sign * (float)(a.offset + at_row);
            const angle by = angle_of(position * a.frequencies[pair]);
            const int64_t one = a.interleaved ? 2 * pair : pair;
            const int64_t other = one + (a.interleaved ? 1 : half);
            for (int64_t h = 0; h < a.heads; h++)
                rotate_pair(a, at + h * a.width + one, at + h * a.width + other, by);
        }
    }
}

template <class T>
static cudaError_t run(const cgp_kernel_spec *spec, const void *positions, T *to, const T *from,
                       float sign, bool add, cudaStream_t stream) {
    const cgp_op_rotary *g = cgp_spec_rotary(spec);
    const int64_t width = g->out / g->heads;
    rotary<T> a = {};
    a.to = to;
    a.from = from;
    a.positions = (const int32_t *)positions;
    a.n = spec->n;
    a.rows = g->rows;
    a.heads = g->heads;
    a.width = width;
    a.rotated = g->rotated;
    a.offset = g->offset;
    a.sign = sign;
    a.interleaved = g->interleaved != 0;
    a.add = add;
    cgp__rotary_frequencies(g, a.frequencies);
    return launch(rotary_rows<T>,
                  dim3(blocks_for(g->rows * (width - g->rotated / 2)).x,
                       (unsigned)(spec->n < 65535 ? spec->n : 65535)),
                  dim3(BLOCK), stream, a);
}

template <class T>
static cudaError_t forward(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                           cudaStream_t stream) {
    return run(spec, args->x[1], (T *)args->y, (const T *)args->x[0], 1.0f, false, stream);
}

template <class T>
static cudaError_t input(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                         cudaStream_t stream) {
    if (!args->dx[0]) return cudaSuccess;
    return run(spec, args->x[1], (T *)args->dx[0], (const T *)args->dy, -1.0f, adds(spec, 0),
               stream);
}

const cgp__cuda_op cgp__cuda_rotary = {{BY_TYPE(forward), BY_TYPE(input), NULL}, NULL};
