/* SPDX-License-Identifier: Apache-2.0 */
/* embedding.cu -- y [N, C] = weight[ids]; dweight[ids] += dy, in the order of rows.
 *
 * Backward sorts the rows by id, and equal ids by row number: a comparison counting sort (Knuth,
 * The Art of Computer Programming 3, 5.2). A row's place is the number of rows before it in sorted
 * order, so no thread block needs another's result. The thread block of an id's first row owns the
 * id's row of dweight, and adds all rows of the id in order. Rows of dweight without an id are only
 * cleared, in the first micro-batch. */
#include "backend/cuda/map.cuh"

enum { EMBEDDING_BLOCK = 128 };

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
typedef struct place {
    int32_t row, end;
} place;

/* One warp handles one row. It counts the rows with smaller ids, the rows with the same id, and the
 * earlier rows with the same id. */
__global__ void sort_rows(place *places, const int32_t *ids, int32_t rows) {
    const int32_t row = (int32_t)((blockIdx.x * blockDim.x + threadIdx.x) / 32);
    const int32_t id = row < rows ? ids[row] : 0;
    int32_t smaller = 0, before = 0, equal = 0;
    for (int32_t i = threadIdx.x % 32; row < rows && i < rows; i += 32) {
        smaller += ids[i] < id;
        equal += ids[i] == id;
        before += ids[i] == id && i < row;
    }
    for (int apart = 16; apart > 0; apart /= 2) {
        smaller += __shfl_xor_sync(0xffffffffu, smaller, apart);
        equal += __shfl_xor_sync(0xffffffffu, equal, apart);
        before += __shfl_xor_sync(0xffffffffu, before, apart);
    }
    if (row < rows && threadIdx.x % 32 == 0)
        places[smaller + before] = {row, before == 0 ? smaller + equal : 0};
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
    place *places = (place *)args->workspace;
    if (args->first)
        CGP__TRY_CUDA_ERROR(clear_bytes(
            args->dparam[0], spec->attributes.in * width * (int64_t)sizeof(float), stream));
    CGP__TRY_CUDA_ERROR(launch(sort_rows, dim3((unsigned)ceil_div(rows, BLOCK / 32)),
                               dim3(BLOCK), stream, places, ids, rows));
    return launch(embedding_weight<T>,
                  dim3((unsigned)rows, (unsigned)ceil_div(width, EMBEDDING_BLOCK)),
                  dim3(EMBEDDING_BLOCK), stream, args->dparam[0], (const T *)args->dy, ids,
                  places, width, args->first);
}

static int64_t workspace(const cgp_kernel_spec *spec) {
    if (spec->direction != CGP_OP_BACKWARD_WEIGHT) return 0;
    return spec->n * spec->attributes.rows * (int64_t)sizeof(place);
}

const cgp__cuda_op cgp__cuda_embedding = {{BY_TYPE(forward), NULL, BY_TYPE(weight)}, workspace};
