/* SPDX-License-Identifier: Apache-2.0 */
/* embedding.cu -- y [N, C] = weight[ids]; dweight[ids] += dy, in the order of rows.
 *
 * Backward sorts the rows by id, and rows with equal ids by row number, with a stable LSD radix
 * sort (Knuth, The Art of Computer Programming 3, 5.2.5) in one thread block. The sort takes
 * O(rows) time for each digit (4 bits) of the largest id. After the sort, all rows of dy with the
 * same id are consecutive. The thread block of the first of these rows adds all of them, in order,
 * to the row of dweight that the id selects. Rows of dweight that no id selects are only cleared,
 * in the first micro-batch. */
#include "backend/cuda/map.cuh"

enum { EMBEDDING_BLOCK = 128, SORTERS = 512, DIGIT_BITS = 4, DIGITS = 1 << DIGIT_BITS };

template <class T>
__global__ void embedding_forward(T *y, const float *weight, const int32_t *ids, int64_t width,
                                  bool packed) {
    constexpr int N = pack_of<T>;
    T *to = y + blockIdx.x * width;
    const float *from = weight + ids[blockIdx.x] * width;
    const int64_t packs = packed ? width / N : 0;
    for (int64_t p = threadIdx.x; p < packs; p += blockDim.x) {
        const pack<float, N> in = ((const pack<float, N> *)from)[p];
        pack<T, N> out;
        for (int k = 0; k < N; k++)
            store(out.at, k, in.at[k]);
        ((pack<T, N> *)to)[p] = out;
    }
    for (int64_t c = packs * N + threadIdx.x; c < width; c += blockDim.x)
        store(to, c, from[c]);
}

template <class T>
static cudaError_t forward(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                           cudaStream_t stream) {
    const int64_t rows = spec->n * spec->attributes.rows, width = spec->attributes.out;
    const bool packed =
        is_aligned(args->y) && is_aligned(args->param[0]) && width % pack_of<T> == 0;
    return launch(embedding_forward<T>, dim3((unsigned)rows), dim3(EMBEDDING_BLOCK), stream,
                  (T *)args->y, args->param[0], (const int32_t *)args->x[0], width, packed);
}

/* An entry of the sorted rows. For the first row of an id, `end` is the end of the id's range; for
 * other rows it is 0. */
struct place {
    int32_t row, end;
};

struct keyed {
    int32_t row, id;
};
static_assert(sizeof(place) == sizeof(keyed), "places replace sorted rows");

/* Return the sum of `value` over the threads before this one. */
__device__ static inline int32_t sum_before(int32_t value) {
    __shared__ int32_t totals[SORTERS / 32];
    const int thread = (int)threadIdx.x, lane = thread % 32;
    int32_t sum = value;
    for (int apart = 1; apart < 32; apart *= 2) {
        const int32_t other = __shfl_sync(0xffffffffu, sum, lane - apart);
        if (lane >= apart) sum += other;
    }
    if (lane == 31) totals[thread / 32] = sum;
    __syncthreads();
    sum -= value;
    for (int warp = 0; warp < thread / 32; warp++)
        sum += totals[warp];
    return sum;
}

/* The counters [digit][thread] of a pass, in shared memory. A gap after every DIGITS counters
 * prevents bank conflicts of the prefix sum. */
struct counters {
    int32_t at[(DIGITS + 1) * SORTERS];
    __device__ int32_t &of(int digit) {
        const int i = digit * SORTERS + (int)threadIdx.x;
        return at[i + i / DIGITS];
    }
};

/* A thread's part of the rows: begin .. end - 1. */
struct part {
    int64_t begin, end;
};

__device__ static inline part own_part(int64_t rows) {
    const int64_t each = (rows + SORTERS - 1) / SORTERS, begin = threadIdx.x * each;
    return {begin < rows ? begin : rows, begin + each < rows ? begin + each : rows};
}

/* Sort stably by the digit of the ids at bit `shift`. Each thread counts and then moves the rows of
 * its part, in order; from(i) is row i. */
template <class From>
__device__ static inline void sort_by_digit(keyed *__restrict__ to, From from, int64_t rows,
                                            int shift, counters &counts) {
    const part own = own_part(rows);
    int32_t *const in_order = counts.at + threadIdx.x * (DIGITS + 1);
    int32_t sum = 0;
    for (int digit = 0; digit < DIGITS; digit++)
        counts.of(digit) = 0;
#pragma unroll 4
    for (int64_t i = own.begin; i < own.end; i++)
        counts.of(from(i).id >> shift & (DIGITS - 1))++;
    __syncthreads();
    for (int k = 0; k < DIGITS; k++)
        sum += in_order[k];
    int32_t next = sum_before(sum);
    for (int k = 0; k < DIGITS; k++) {
        const int32_t count = in_order[k];
        in_order[k] = next;
        next += count;
    }
    __syncthreads();
#pragma unroll 4
    for (int64_t i = own.begin; i < own.end; i++) {
        const keyed row = from(i);
        to[counts.of(row.id >> shift & (DIGITS - 1))++] = row;
    }
    __syncthreads();
}

/* Return the end of the range of rows that have the same id as row `at`. The function uses binary
 * search. */
__device__ static inline int64_t end_of_id(const keyed *sorted, int64_t at, int64_t rows) {
    const int32_t id = sorted[at].id;
    int64_t inside = at, end = rows;
    while (end - inside > 1) {
        const int64_t middle = inside + (end - inside) / 2;
        if (sorted[middle].id == id)
            inside = middle;
        else
            end = middle;
    }
    return end;
}

/* Sort the rows in `passes` passes, which write alternately to `first` and `second`. The places are
 * written to the one of these arrays that does not hold the sorted rows. */
__global__ void __launch_bounds__(SORTERS)
    sort_rows(keyed *first, keyed *second, const int32_t *ids, int64_t rows, int passes) {
    __shared__ counters counts;
    sort_by_digit(
        first,
        [&](int64_t i) {
            return keyed{(int32_t)i, ids[i]};
        },
        rows, 0, counts);
    keyed *sorted = first, *other = second;
    for (int pass = 1; pass < passes; pass++) {
        const keyed *from = sorted;
        sort_by_digit(
            other, [&](int64_t i) { return from[i]; }, rows, pass * DIGIT_BITS, counts);
        sorted = other;
        other = other == first ? second : first;
    }
    place *places = (place *)(void *)other;
    const part own = own_part(rows);
    int64_t end = own.begin < own.end ? end_of_id(sorted, own.end - 1, rows) : 0;
    for (int64_t i = own.end - 1; i >= own.begin; i--) {
        const int32_t id = sorted[i].id;
        const bool is_first = i == 0 || sorted[i - 1].id != id;
        places[i] = {sorted[i].row, is_first ? (int32_t)end : 0};
        if (is_first) end = i;
    }
}

/* Each thread block handles one place in sorted order and EMBEDDING_BLOCK columns. */
template <class T>
__global__ void embedding_weight(float *dweight, const T *dy, const int32_t *ids,
                                 const place *places, int64_t width, bool first) {
    const int32_t begin = (int32_t)blockIdx.x, end = places[begin].end;
    const int64_t c = (int64_t)blockIdx.y * blockDim.x + threadIdx.x;
    if (end == 0 || c >= width) return;
    float *to = dweight + ids[places[begin].row] * width;
    float sum = first ? 0.0f : to[c];
    for (int32_t i = begin; i < end; i++)
        sum += load(dy, places[i].row * width + c);
    to[c] = sum;
}

template <class T>
static cudaError_t weight(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                          cudaStream_t stream) {
    const int64_t rows = spec->n * spec->attributes.rows, width = spec->attributes.out;
    const int32_t *ids = (const int32_t *)args->x[0];
    keyed *first = (keyed *)args->workspace, *second = first + rows;
    int passes = 1;
    while ((spec->attributes.in - 1) >> passes * DIGIT_BITS > 0)
        passes++;
    if (args->first)
        CGP__TRY_CUDA_ERROR(clear_bytes(
            args->dparam[0], spec->attributes.in * width * (int64_t)sizeof(float), stream));
    CGP__TRY_CUDA_ERROR(
        launch(sort_rows, dim3(1), dim3(SORTERS), stream, first, second, ids, rows, passes));
    const place *places = (const place *)(const void *)(passes % 2 == 1 ? second : first);
    return launch(embedding_weight<T>,
                  dim3((unsigned)rows, (unsigned)ceil_div(width, EMBEDDING_BLOCK)),
                  dim3(EMBEDDING_BLOCK), stream, args->dparam[0], (const T *)args->dy, ids,
                  places, width, args->first);
}

static int64_t workspace(const cgp_kernel_spec *spec) {
    if (spec->direction != CGP_OP_BACKWARD_WEIGHT) return 0;
    return 2 * spec->n * spec->attributes.rows * (int64_t)sizeof(keyed);
}

const cgp__cuda_op cgp__cuda_embedding = {{BY_TYPE(forward), NULL, BY_TYPE(weight)}, workspace};
