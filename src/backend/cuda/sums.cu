/* SPDX-License-Identifier: Apache-2.0 */
/* sums.cu -- sums of buffers, conversions, sums of squares, and the search for nonfinite values.
 *
 * Squares are added in double, in the order that rows.cuh gives for a buffer. */
#include "backend/cuda/map.cuh"
#include "backend/cuda/rows.cuh"

cudaError_t cgp__cuda_add_to(float *to, const float *from, int64_t n, cudaStream_t stream) {
    return map(to, from, from, n, true, stream, first_of{});
}

/* Convert between types. If the types are equal, bytes are copied, so that a NaN keeps its
 * payload. */
cudaError_t cgp__cuda_convert(cgp_dtype to_type, void *to, cgp_dtype from_type,
                              const void *from, int64_t n, cudaStream_t stream) {
    if (to_type == from_type && to_type == CGP_BF16)
        return pass((bf16 *)to, (const bf16 *)from, n, false, stream);
    if (to_type == from_type) /* f32 or i32 */
        return pass((float *)to, (const float *)from, n, false, stream);
    if (to_type == CGP_BF16 && from_type == CGP_F32)
        return map((bf16 *)to, (const float *)from, (const float *)from, n, false, stream,
                   first_of{});
    if (to_type == CGP_F32 && from_type == CGP_BF16)
        return map((float *)to, (const bf16 *)from, (const bf16 *)from, n, false, stream,
                   first_of{});
    return cudaErrorInvalidValue;
}

/* --- sum_squares --- */

/* Sum the squares of a part, in one thread block. */
__global__ void sum_part(double *partial, const float *x, int64_t n) {
    const int64_t begin = (int64_t)blockIdx.x * PART, left = n - begin;
    const double sum = part_sum(
        left < PART ? (int)left : (int)PART, [&](int i) { return x[begin + i]; },
        [](float one) { return (double)one * (double)one; });
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

/* Set *to to the sum of the parts, in order, or add the sum to *to. Runs in one thread block. */
__global__ void add_parts(double *to, const double *partial, int parts, bool first) {
    __shared__ double tile[CGP__CUDA_PARTIALS];
    for (int i = (int)threadIdx.x; i < parts; i += BLOCK)
        tile[i] = partial[i];
    __syncthreads();
    if (threadIdx.x != 0) return;
    double sum = first ? 0.0 : *to;
    for (int i = 0; i < parts; i++)
        sum += tile[i];
    *to = sum;
}

cudaError_t cgp__cuda_sum_squares(const float *x, int64_t n, double *sum, double *partial,
                                  cudaStream_t stream) {
    const int64_t window = (int64_t)CGP__CUDA_PARTIALS * PART;
    if (n == 0) return clear_bytes(sum, (int64_t)sizeof *sum, stream);
    for (int64_t begin = 0; begin < n; begin += window) {
        const int64_t left = n - begin < window ? n - begin : window;
        const int parts = (int)ceil_div(left, PART);
        CGP__TRY_CUDA_ERROR(launch(sum_part, dim3((unsigned)parts), dim3(BLOCK), stream,
                                   partial, x + begin, left));
        CGP__TRY_CUDA_ERROR(
            launch(add_parts, dim3(1), dim3(BLOCK), stream, sum, partial, parts, begin == 0));
    }
    return cudaSuccess;
}

/* --- find_nonfinite --- */

/* Return, in thread 0, the minimum of all threads' indices. */
__device__ static int64_t block_min(int64_t index) {
    __shared__ int64_t least[BLOCK];
    least[threadIdx.x] = index;
    __syncthreads();
    for (unsigned apart = BLOCK / 2; apart > 0; apart /= 2) {
        if (threadIdx.x < apart && least[threadIdx.x + apart] < least[threadIdx.x])
            least[threadIdx.x] = least[threadIdx.x + apart];
        __syncthreads();
    }
    return least[0];
}

/* Find the first value of a part that is not finite; the exponent of infinity and NaN has all bits
 * set. The result is n if all values are finite. */
__global__ void find_in_part(int64_t *partial, const float *x, int64_t n) {
    int64_t found = n;
    FOR_EACH(i, n) {
        const bool finite = (__float_as_uint(x[i]) & 0x7f800000u) != 0x7f800000u;
        found = !finite && i < found ? i : found;
    }
    found = block_min(found);
    if (threadIdx.x == 0) partial[blockIdx.x] = found;
}

__global__ void find_first(int64_t *index, const int64_t *partial, int parts, int64_t n) {
    int64_t found = n;
    for (int i = (int)threadIdx.x; i < parts; i += BLOCK)
        found = partial[i] < found ? partial[i] : found;
    found = block_min(found);
    if (threadIdx.x == 0) *index = found < n ? found : -1;
}

cudaError_t cgp__cuda_find_nonfinite(const float *x, int64_t n, int64_t *index,
                                     int64_t *partial, cudaStream_t stream) {
    const int64_t blocks = ceil_div(n > 0 ? n : 1, 4 * BLOCK);
    const int parts = blocks < CGP__CUDA_PARTIALS ? (int)blocks : (int)CGP__CUDA_PARTIALS;
    CGP__TRY_CUDA_ERROR(
        launch(find_in_part, dim3((unsigned)parts), dim3(BLOCK), stream, partial, x, n));
    return launch(find_first, dim3(1), dim3(BLOCK), stream, index, partial, parts, n);
}
