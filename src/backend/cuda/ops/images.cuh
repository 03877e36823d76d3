/* SPDX-License-Identifier: Apache-2.0 */
/* images.cuh -- images [n, H, W, C], and windows over them.
 *
 * A thread block handles part of one image row. So there are few index divisions, and each is
 * either 32-bit or the same for all threads of the block. */
#ifndef CGP_SRC_CUDA_IMAGES_CUH
#define CGP_SRC_CUDA_IMAGES_CUH

#include "backend/cuda/cuda.cuh"

/* A range of indices begin .. end - 1. */
struct span {
    int begin, end;
};

__device__ static inline int length(span s) {
    return s.end - s.begin;
}

/* Windows over an image in one dimension. */
struct side {
    int stride, front, kernel, pixels, windows;
};

/* The windows of POOL and UPSAMPLE over an image. */
struct image_windows {
    side down, across;
    int channels;
};

static inline image_windows image_windows_of(const cgp_kernel_spec *spec) {
    const cgp_op_windows *g = cgp_spec_windows(spec);
    return {{g->stride_height, g->top, g->kernel_height, g->height, g->out_height},
            {g->stride_width, g->left, g->kernel_width, g->width, g->out_width},
            (int)g->in};
}

/* Return the pixels of window i that lie in the image. */
__device__ static inline span pixels_of(side s, int i) {
    const int begin = i * s.stride - s.front, end = begin + s.kernel;
    return {begin > 0 ? begin : 0, end < s.pixels ? end : s.pixels};
}

/* Return the windows i that contain pixel p: i stride - front <= p < i stride - front + kernel. */
__device__ static inline span windows_of(side s, int p) {
    const int last = p + s.front, first = last - s.kernel + s.stride;
    const int end = last / s.stride + 1;
    return {first < 0 ? 0 : first / s.stride, end < s.windows ? end : s.windows};
}

/* Return the sum over columns of (sum over rows), starting at element `at` of an image. Rows of the
 * image have `width` elements. */
template <class T>
__device__ static inline float window_sum(const T *from, int64_t at, int width, int channels,
                                          span rows, span columns) {
    float sum = 0.0f;
    for (int w = columns.begin; w < columns.end; w++) {
        float down = 0.0f;
        for (int h = rows.begin; h < rows.end; h++)
            down += load(from, at + (int64_t)h * width + w * channels);
        sum += down;
    }
    return sum;
}

/* --- a launch over the rows of images --- */

/* Return the grid for n images of `height` rows with `elements` elements each. */
static inline dim3 row_blocks(int64_t n, int height, int64_t elements) {
    const int64_t parts = ceil_div(elements, BLOCK);
    return dim3((unsigned)(n * height), (unsigned)(parts < 65535 ? parts : 65535));
}

/* Return the size of a thread block for the grid of row_blocks(), in full warps. */
static inline dim3 row_threads(int64_t elements) {
    const int64_t whole = ceil_div(elements, 32) * 32;
    return dim3((unsigned)(whole < BLOCK ? whole : (int64_t)BLOCK));
}

/* Return grids and thread blocks for launches over the windows of n images, and over their
 * pixels. */
static inline dim3 window_blocks(int64_t n, image_windows g) {
    return row_blocks(n, g.down.windows, (int64_t)g.across.windows * g.channels);
}

static inline dim3 window_threads(image_windows g) {
    return row_threads((int64_t)g.across.windows * g.channels);
}

static inline dim3 pixel_blocks(int64_t n, image_windows g) {
    return row_blocks(n, g.down.pixels, (int64_t)g.across.pixels * g.channels);
}

static inline dim3 pixel_threads(image_windows g) {
    return row_threads((int64_t)g.across.pixels * g.channels);
}

/* Grid-stride loop over the elements of the block's row. */
#define FOR_ROW(e, elements)                                                                   \
    for (int e = (int)(blockIdx.y * blockDim.x + threadIdx.x); e < (elements);                 \
         e += (int)(gridDim.y * blockDim.x))

/* Return the offset of row `row` of a sample's image; rows have `width` elements. */
__device__ static inline int64_t row_at(int64_t sample, int height, int row, int width) {
    return (sample * height + row) * width;
}

#endif
