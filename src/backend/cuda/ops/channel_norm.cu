/* SPDX-License-Identifier: Apache-2.0 */
/* channel_norm.cu -- BATCH_NORM (Ioffe and Szegedy 2015, arXiv:1502.03167), INSTANCE_NORM (Ulyanov
 * et al. 2016, arXiv:1607.08022) and GROUP_NORM (Wu and He 2018, arXiv:1803.08494). The first two
 * normalise each channel to mean 0 and variance 1 over all rows of a set; GROUP_NORM normalises
 * several channels together; these channels form a `part`.
 *
 *     a set: the rows of all samples (BATCH_NORM), or of one sample (the others)
 *     y = (x - mean) rstd weight + bias
 *     rstd = 1 / sqrt(variance + eps)        h = (x - mean) rstd
 *     dweight = sum dy h                     dbias = sum dy
 *     dx = weight rstd (dy - dbias / rows - h dweight / rows)
 *     in a part of k elements:    g = dy weight    dx = rstd (g - sum g / k - h sum (g h) / k)
 *
 * Sums are added in the order of `cpu` (ops/channel_norm.c draws the layout). Several rows make one
 * wide row, whose columns are summed separately. Blocks of 32 wide rows are summed in float. Then
 * the blocks of a group, the groups, and the copies of a channel are merged in order, in double
 * (Chan, Golub, LeVeque 1979). The bits of a set's results depend only on that set.
 *
 * The kernels:
 *
 *     sum_groups      makes both sums of each column and group; a thread sums a block, a warp
 *                     merges
 *     make_factors    the sums of each channel and, except for GROUP_NORM, its factors
 *     part_factors    GROUP_NORM: the sums and factors of each part
 *     part_weights    GROUP_NORM: dweight and dbias, over the sets in order
 *     apply           y, or dx, which may share dy's memory */
#include <float.h>

#include "backend/cuda/running_stats.cuh"

constexpr int WIDE = 256;      /* maximum number of elements of a wide row that is made of several
                                * rows */
constexpr int CHUNK = 512;     /* a group has GROUP / min(width, CHUNK) wide rows, rounded up;
                                * `width` is the width of a wide row */
constexpr int GROUP = 131072;  /* approximate number of elements of a group */
constexpr int WARP = 32;       /* number of columns or channels of a thread block */
constexpr int BLOCK_ROWS = 32; /* number of wide rows of a block, which is summed in float */
constexpr int ROW_BLOCKS = 16; /* number of blocks of rows that a thread block sums together */
constexpr int TILE = 32;       /* number of sums that a thread block loads together */
constexpr int LOADERS = 8;     /* number of threads per channel that load sums */
constexpr int APPLY_ROWS = 8;  /* number of wide rows that a thread writes */

enum { SCALE, SHIFT, SLOPE, FACTORS };

/* Sizes that follow from a spec. */
struct layout {
    /* Number of sets, and number of rows in a set. */
    int64_t sets, rows;
    /* Number of wide rows in a set, number of wide rows in a group, and number of groups in a
     * set. */
    int64_t wide, group, groups;
    /* `rest` is the number of elements after the last wide row. */
    int channels, copies, width, rest;
    /* Number of means in a set, and number of channels that share a mean. */
    int parts, each;
};

static layout layout_of(const cgp_kernel_spec *spec) {
    const bool batch = spec->op == CGP_OP_BATCH_NORM;
    const int64_t channels = spec->attributes.out;
    const int64_t rows = spec->attributes.rows * (batch ? spec->n : 1);
    /* A wide row consists of several rows ("copies" of the channels): as many as fit in WIDE with a
     * width that is a multiple of 16, at least one. */
    int64_t min = 16;
    while (min > 1 && min / 2 * channels % 16 == 0)
        min /= 2;
    const int64_t max = WIDE / channels / min * min;
    const int64_t wanted = max > 1 ? max : 1, copies = wanted < rows ? wanted : rows;
    const int64_t width = copies * channels, wide = rows / copies;
    const int64_t group = ceil_div(GROUP, width < CHUNK ? width : CHUNK);
    return {batch ? 1 : spec->n,
            rows,
            wide,
            group,
            ceil_div(wide, group),
            (int)channels,
            (int)copies,
            (int)width,
            (int)(rows % copies * channels),
            (int)(spec->op == CGP_OP_GROUP_NORM ? cgp_spec_norm(spec)->groups : channels),
            (int)(spec->op == CGP_OP_GROUP_NORM ? channels / cgp_spec_norm(spec)->groups : 1)};
}

/* Sizes, operands and workspace of a run. */
struct channel_norm {
    layout l;
    double *sums;   /* [sets, groups, 2, width] */
    float *factors; /* [sets, FACTORS, channels] */
    const float *weight, *bias;
    float *mean, *rstd;     /* [sets, parts] */
    float *dweight, *dbias; /* NULL: not computed */
    float eps;
    bool first, grouped;
    running_stats stats;
};

static int64_t sums_bytes(const layout *l) {
    return l->sets * l->groups * 2 * l->width * (int64_t)sizeof(double);
}

static int64_t workspace(const cgp_kernel_spec *spec) {
    const layout l = layout_of(spec);
    return sums_bytes(&l) + l.sets * FACTORS * l.channels * (int64_t)sizeof(float);
}

static channel_norm norm_of(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    channel_norm w = {};
    w.l = layout_of(spec);
    w.sums = (double *)args->workspace;
    w.factors = (float *)(void *)((char *)args->workspace + sums_bytes(&w.l));
    w.weight = args->param[0];
    w.bias = args->param[1];
    w.mean = args->saved[0];
    w.rstd = args->saved[1];
    w.dweight = args->dparam[0];
    w.dbias = args->dparam[1];
    w.eps = cgp_spec_norm(spec)->eps;
    w.first = args->first;
    w.grouped = spec->op == CGP_OP_GROUP_NORM;
    w.stats = running_stats_of(spec, args);
    return w;
}

/* --- sums of groups --- */

/* Return the number of wide rows of a group. */
__device__ static inline int64_t group_rows(const layout &l, int64_t group) {
    const int64_t left = l.wide - group * l.group;
    return l.group < left ? l.group : left;
}

/* A block of wide rows in one column: the number of earlier rows in the group, the first element of
 * the block, and its number of rows. */
struct column_block {
    int64_t before, at;
    int rows;
};

/* Return block number `block` of a group; it may have no rows. In the last group, the elements
 * after the wide rows are one more block. */
__device__ static inline column_block block_of(const layout &l, int64_t set, int64_t group,
                                               int64_t block, int column) {
    const int64_t all = group_rows(l, group), begin = block * BLOCK_ROWS;
    const int64_t left = all - begin, before = left > 0 ? begin : all;
    const bool last = left <= 0 && left > -BLOCK_ROWS && group + 1 == l.groups;
    const int full = (int)(left < BLOCK_ROWS ? left : BLOCK_ROWS);
    return {before, set * l.rows * l.channels + (group * l.group + before) * l.width + column,
            column >= l.width ? 0
            : left > 0        ? full
                              : (int)(last && column < l.rest)};
}

/* Return the number of blocks of a group, including a block for the incomplete wide row. */
__device__ static inline int64_t blocks_of(const layout &l, int64_t group) {
    return (group_rows(l, group) + BLOCK_ROWS - 1) / BLOCK_ROWS + 1;
}

/* Forward: the mean, and the sum of squared deviations. Backward: the sums of dy and of dy (x -
 * mean). */
struct sums {
    double first, second;
};

/* Return the mean and the sum of squared deviations of a block. In the code, m is a rounded mean, s
 * the sum of differences from m, and q the sum of their squares. The corrected results are m + s /
 * n and q - s^2 / n. */
template <class T>
__device__ static inline sums moments(const T *x, column_block b, int width) {
    float value[BLOCK_ROWS], sum = 0.0f, s = 0.0f, q = 0.0f;
#pragma unroll
    for (int k = 0; k < BLOCK_ROWS; k++)
        value[k] = k < b.rows ? load(x, b.at + (int64_t)k * width) : 0.0f;
#pragma unroll
    for (int k = 0; k < BLOCK_ROWS; k++)
        sum += value[k];
    const float m = sum / (float)b.rows;
#pragma unroll
    for (int k = 0; k < BLOCK_ROWS; k++) {
        const float d = k < b.rows ? value[k] - m : 0.0f;
        s += d;
        q = fmaf(d, d, q);
    }
    const double offset = (double)s / (double)b.rows;
    return {(double)m + offset, (double)q - (double)s * offset};
}

/* Return the sums of dy and of dy (x - mean) over a block. */
template <class T>
__device__ static inline sums products(const T *x, const T *dy, float mean, column_block b,
                                       int width) {
    float s = 0.0f, p = 0.0f;
#pragma unroll
    for (int k = 0; k < BLOCK_ROWS; k++) {
        const int64_t at = b.at + (int64_t)k * width;
        const float d = k < b.rows ? load(dy, at) : 0.0f;
        const float in = k < b.rows ? load(x, at) - mean : 0.0f;
        s += d;
        p = fmaf(d, in, p);
    }
    return {(double)s, (double)p};
}

/* Merge the sums of further rows into the sums of `before` rows. `fraction` is the number of
 * further rows divided by the number of all rows. */
template <bool BACKWARD>
__device__ static inline void merge(sums *to, sums more, double before, double fraction) {
    if (before == 0.0) {
        *to = more;
    } else if (BACKWARD) {
        to->first += more.first;
        to->second += more.second;
    } else {
        const double d = more.first - to->first;
        to->first += d * fraction;
        to->second += more.second + d * d * (before * fraction);
    }
}

template <class T, bool BACKWARD>
static __global__ void __launch_bounds__(WARP *ROW_BLOCKS)
    sum_groups(channel_norm w, const T *x, const T *dy) {
    __shared__ sums part[ROW_BLOCKS][WARP];
    /* The fraction of each block; 0: the block has no rows. */
    __shared__ double fraction[ROW_BLOCKS][WARP];
    const layout &l = w.l;
    const int lane = (int)threadIdx.x, own = (int)threadIdx.y;
    const int column = (int)blockIdx.y * WARP + lane;
    const int64_t set = blockIdx.x / l.groups, group = blockIdx.x % l.groups;
    const float *mean = w.mean + set * l.parts + column % l.channels / l.each;
    sums total = {0.0, 0.0};
    for (int64_t block = 0; block < blocks_of(l, group); block += ROW_BLOCKS) {
        const column_block b = block_of(l, set, group, block + own, column);
        fraction[own][lane] =
            b.rows == 0 ? 0.0 : (double)b.rows / ((double)b.before + (double)b.rows);
        if (b.rows > 0)
            part[own][lane] =
                BACKWARD ? products(x, dy, *mean, b, l.width) : moments(x, b, l.width);
        __syncthreads();
        for (int k = 0; k < ROW_BLOCKS && own == 0 && fraction[k][lane] > 0.0; k++) {
            const int64_t before = block_of(l, set, group, block + k, column).before;
            merge<BACKWARD>(&total, part[k][lane], (double)before, fraction[k][lane]);
        }
        __syncthreads();
    }
    if (own > 0 || column >= l.width) return;
    double *to = w.sums + (int64_t)blockIdx.x * 2 * l.width + column;
    to[0] = total.first;
    to[l.width] = total.second;
}

/* --- factors --- */

/* Return rstd. If the variance or one of its sums of squares overflows f32, return NaN, because 1 /
 * infinity would hide the overflow. */
__device__ static inline double reciprocal_deviation(const channel_norm &w, double variance) {
    if (!(variance <= FLT_MAX)) return NAN;
    return 1.0 / sqrt(variance + (double)w.eps);
}

/* Set a channel's forward factors. The shift compensates for the rounding of the mean to float. */
__device__ static inline void set_factors(const channel_norm &w, int64_t set, int c,
                                          double mean, double variance) {
    const double scale =
        reciprocal_deviation(w, variance) * (double)(w.weight ? w.weight[c] : 1.0f);
    const double lost = (double)(float)mean - mean;
    float *to = w.factors + set * FACTORS * w.l.channels + c;
    to[SCALE * w.l.channels] = (float)scale;
    to[SHIFT * w.l.channels] = (float)((double)(w.bias ? w.bias[c] : 0.0f) + lost * scale);
}

__device__ static inline void end_forward(const channel_norm &w, int64_t set, int c, sums of) {
    const int64_t at = set * w.l.channels + c;
    /* rounding may make the sum negative */
    const double variance = of.second < 0.0 ? 0.0 : of.second / (double)w.l.rows;
    set_factors(w, set, c, of.first, variance);
    w.mean[at] = (float)of.first;
    w.rstd[at] = (float)reciprocal_deviation(w, variance);
    if (w.stats.accumulator)
        collect(w.stats, c, (float)of.first, (float)variance, (double)w.l.rows);
}

__device__ static inline void end_backward(const channel_norm &w, int64_t set, int c, sums of) {
    const float rstd = w.rstd[set * w.l.channels + c];
    const double r = (double)rstd, rows = (double)w.l.rows;
    float *to = w.factors + set * FACTORS * w.l.channels + c;
    to[SCALE * w.l.channels] = w.weight ? rstd * w.weight[c] : rstd;
    to[SHIFT * w.l.channels] = (float)(of.first / rows);
    to[SLOPE * w.l.channels] = (float)(-r * r * of.second / rows);
    if (w.dweight) put(w.dweight, c, !w.first, (float)(of.second * r));
    if (w.dbias) put(w.dbias, c, !w.first, (float)of.first);
}

/* Return the address at which a channel's total sums are stored. They overwrite the sums of the
 * channel's first copy in the first group, which no other thread reads. */
__device__ static inline double *kept_sums(const channel_norm &w, int64_t set, int c) {
    return w.sums + set * w.l.groups * 2 * w.l.width + c;
}

__device__ static inline void keep_sums(const channel_norm &w, int64_t set, int c, sums of) {
    double *to = kept_sums(w, set, c);
    to[0] = of.first;
    to[w.l.width] = of.second;
}

/* Entry e of a channel's sums belongs to one copy in one group. Entries are numbered by group, then
 * by copy. */
struct entry {
    int64_t at;
    double before, rows;
};

__device__ static inline entry entry_of(const channel_norm &w, int64_t set, int64_t e, int c) {
    const layout &l = w.l;
    const int64_t group = e / l.copies, copy = e % l.copies, rows = group_rows(l, group);
    const int64_t longer = group + 1 == l.groups ? l.rest / l.channels : 0; /* number of copies with
                                                                             * one more row */
    return {
        (set * l.groups + group) * 2 * l.width + copy * l.channels + c,
        (double)(group * l.group * l.copies + copy * rows + (copy < longer ? copy : longer)),
        (double)(rows + (copy < longer))};
}

template <bool BACKWARD> static __global__ void make_factors(channel_norm w) {
    __shared__ sums part[TILE][WARP];
    __shared__ double before[TILE], fraction[TILE];
    const layout &l = w.l;
    const int64_t chunks = (l.channels + WARP - 1) / WARP, entries = l.groups * l.copies;
    const int64_t set = blockIdx.x / chunks;
    const int lane = (int)threadIdx.x, c = (int)(blockIdx.x % chunks) * WARP + lane;
    const bool merges = threadIdx.y == 0 && c < l.channels;
    sums total = {0.0, 0.0};
    for (int64_t first = 0; first < entries; first += TILE) {
        const int count = (int)(entries - first < TILE ? entries - first : TILE);
        for (int k = (int)threadIdx.y; k < count; k += LOADERS) {
            const entry e = entry_of(w, set, first + k, c);
            if (c < l.channels) part[k][lane] = {w.sums[e.at], w.sums[e.at + l.width]};
            if (lane > 0) continue;
            before[k] = e.before;
            fraction[k] = e.rows / (e.before + e.rows);
        }
        __syncthreads();
        for (int k = 0; merges && k < count; k++)
            merge<BACKWARD>(&total, part[k][lane], before[k], fraction[k]);
        __syncthreads();
    }
    if (!merges) return;
    if (w.grouped)
        keep_sums(w, set, c, total);
    else if (BACKWARD)
        end_backward(w, set, c, total);
    else
        end_forward(w, set, c, total);
}

/* --- factors of parts: GROUP_NORM --- */

/* One thread handles one part of a set. It merges the moments of the part's channels in order. All
 * of these channels have the same number of rows. */
static __global__ void part_factors(channel_norm w) {
    const layout &l = w.l;
    FOR_EACH(index, l.sets * l.parts) {
        const int64_t set = index / l.parts;
        const int first = (int)(index % l.parts) * l.each;
        sums of = {0.0, 0.0};
        for (int k = 0; k < l.each; k++) {
            const double *from = kept_sums(w, set, first + k);
            merge<false>(&of, {from[0], from[l.width]}, (double)(k * l.rows),
                         1.0 / (double)(k + 1));
        }
        /* rounding may make the sum negative */
        const double variance = of.second < 0.0 ? 0.0 : of.second / (double)(l.rows * l.each);
        for (int k = 0; k < l.each; k++)
            set_factors(w, set, first + k, of.first, variance);
        w.mean[index] = (float)of.first;
        w.rstd[index] = (float)reciprocal_deviation(w, variance);
    }
}

static __global__ void part_factors_back(channel_norm w) {
    const layout &l = w.l;
    FOR_EACH(index, l.sets * l.parts) {
        const int64_t set = index / l.parts;
        const int first = (int)(index % l.parts) * l.each;
        const double r = (double)w.rstd[index], count = (double)(l.rows * l.each);
        float *to = w.factors + set * FACTORS * l.channels + first;
        double g = 0.0, gh = 0.0;
        for (int k = 0; k < l.each; k++) {
            const double *from = kept_sums(w, set, first + k);
            g += (double)w.weight[first + k] * from[0];
            gh += (double)w.weight[first + k] * from[l.width];
        }
        for (int k = 0; k < l.each; k++) {
            to[SCALE * l.channels + k] = (float)(r * (double)w.weight[first + k]);
            to[SHIFT * l.channels + k] = (float)(r * g / count);
            to[SLOPE * l.channels + k] = (float)(-r * r * r * gh / count);
        }
    }
}

static __global__ void part_weights(channel_norm w) {
    const layout &l = w.l;
    FOR_EACH(c, (int64_t)l.channels) {
        sums of = {0.0, 0.0};
        for (int64_t set = 0; set < l.sets; set++) {
            const double *from = kept_sums(w, set, (int)c);
            const double r = (double)w.rstd[set * l.parts + c / l.each];
            merge<true>(&of, {from[0], from[l.width] * r}, (double)set, 0.0);
        }
        if (w.dweight) put(w.dweight, c, !w.first, (float)of.second);
        if (w.dbias) put(w.dbias, c, !w.first, (float)of.first);
    }
}

/* --- evaluation --- */

/* Set the factors from the running statistics. */
static __global__ void fixed_factors(channel_norm w) {
    const int c = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (c < w.l.channels)
        set_factors(w, 0, c, (double)w.stats.mean[c], (double)w.stats.variance[c]);
}

/* --- y or dx --- */

template <class T, bool BACKWARD>
static __global__ void apply(channel_norm w, T *to, const T *x, const T *dy, float relu,
                             bool add) {
    const layout &l = w.l;
    const int column = (int)(blockIdx.y * blockDim.x + threadIdx.x), c = column % l.channels;
    const int64_t blocks = l.wide / APPLY_ROWS + 1, set = blockIdx.x / blocks;
    const int64_t first = blockIdx.x % blocks * APPLY_ROWS;
    const int64_t left = l.wide + (column < l.rest) - first;
    const int64_t at = set * l.rows * l.channels + first * l.width + column;
    const float *factors = w.factors + set * FACTORS * l.channels + c;
    if (!BACKWARD && w.stats.accumulator && blockIdx.x + blockIdx.y + threadIdx.x == 0)
        count_collected(w.stats, (double)l.rows);
    if (column >= l.width) return;
    const float mean = w.mean[set * l.parts + c / l.each], scale = factors[SCALE * l.channels];
    const float shift = factors[SHIFT * l.channels];
    const float slope = BACKWARD ? factors[SLOPE * l.channels] : 0.0f;
    float out[APPLY_ROWS];
#pragma unroll
    for (int k = 0; k < APPLY_ROWS; k++) {
        const int64_t i = at + (int64_t)k * l.width;
        const float d = k < left ? load(x, i) - mean : 0.0f;
        const float in = BACKWARD && k < left ? load(dy, i) : 0.0f;
        out[k] = !BACKWARD   ? fmaf(d, scale, shift)
                 : w.grouped ? fmaf(d, slope, fmaf(in, scale, -shift))
                             : fmaf(d, slope, in - shift) * scale;
    }
#pragma unroll
    for (int k = 0; k < APPLY_ROWS; k++) {
        if (!BACKWARD) out[k] = ended<T>(out[k], relu);
        if (k < left) put(to, at + (int64_t)k * l.width, add, out[k]);
    }
}

/* --- launches --- */

template <class T, bool BACKWARD>
static cudaError_t statistics(const channel_norm &w, const void *x, const void *dy,
                              cudaStream_t stream) {
    const layout &l = w.l;
    const dim3 grid((unsigned)(l.sets * l.groups), (unsigned)ceil_div(l.width, WARP));
    CGP__TRY_CUDA_ERROR(launch(sum_groups<T, BACKWARD>, grid, dim3(WARP, ROW_BLOCKS), stream, w,
                               (const T *)x, (const T *)dy));
    CGP__TRY_CUDA_ERROR(launch(make_factors<BACKWARD>,
                               dim3((unsigned)(l.sets * ceil_div(l.channels, WARP))),
                               dim3(WARP, LOADERS), stream, w));
    if (!w.grouped) return cudaSuccess;
    const dim3 parts = blocks_for(l.sets * l.parts);
    CGP__TRY_CUDA_ERROR(
        launch(BACKWARD ? part_factors_back : part_factors, parts, dim3(BLOCK), stream, w));
    return BACKWARD ? launch(part_weights, blocks_for(l.channels), dim3(BLOCK), stream, w)
                    : cudaSuccess;
}

template <class T, bool BACKWARD>
static cudaError_t apply_all(const channel_norm &w, void *to, const void *x, const void *dy,
                             float relu, bool add, cudaStream_t stream) {
    const layout &l = w.l;
    const dim3 grid((unsigned)(l.sets * (l.wide / APPLY_ROWS + 1)),
                    (unsigned)ceil_div(l.width, BLOCK));
    const int64_t columns = ceil_div(ceil_div(l.width, grid.y), WARP) * WARP;
    return launch(apply<T, BACKWARD>, grid, dim3((unsigned)columns), stream, w, (T *)to,
                  (const T *)x, (const T *)dy, relu, add);
}

template <class T>
static cudaError_t forward(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                           cudaStream_t stream) {
    const bool fixed = spec->op == CGP_OP_BATCH_NORM && !args->training;
    channel_norm w = norm_of(spec, args);
    if (fixed) {
        w.mean = w.stats.mean;
        w.stats.accumulator = NULL;
        CGP__TRY_CUDA_ERROR(
            launch(fixed_factors, blocks_for(w.l.channels), dim3(BLOCK), stream, w));
    } else {
        CGP__TRY_CUDA_ERROR((statistics<T, false>(w, args->x[0], NULL, stream)));
    }
    return apply_all<T, false>(w, args->y, args->x[0], NULL, spec->attributes.slope, false,
                               stream);
}

template <class T>
static cudaError_t backward(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                            cudaStream_t stream) {
    const channel_norm w = norm_of(spec, args);
    CGP__TRY_CUDA_ERROR((statistics<T, true>(w, args->x[0], args->dy, stream)));
    if (!args->dx[0]) return cudaSuccess;
    return apply_all<T, true>(w, args->dx[0], args->x[0], args->dy, 1.0f, adds(spec, 0),
                              stream);
}

const cgp__cuda_op cgp__cuda_batch_norm = {{BY_TYPE(forward), BY_TYPE(backward)}, workspace};

const cgp__cuda_op cgp__cuda_instance_norm = {{BY_TYPE(forward), BY_TYPE(backward)}, workspace};

const cgp__cuda_op cgp__cuda_group_norm = {{BY_TYPE(forward), BY_TYPE(backward)}, workspace};
