/* SPDX-License-Identifier: Apache-2.0 */
/* windows.cuh -- operands of implicit-GEMM convolutions (cuDNN: Chetlur et al. 2014,
 * arXiv:1410.0759): windows of an image, flipped weights, and pixels of the result.
 *
 * A window is a row: KH segments of KW pixels with `channels` elements each. Windows are not copied
 * (no im2col); the address of an element is computed when the element is read. Pixels outside the
 * image count as zero. */
#ifndef CGP_SRC_CUDA_WINDOWS_CUH
#define CGP_SRC_CUDA_WINDOWS_CUH

#include "backend/cuda/gemm_operands.cuh"

namespace gemm {

/* Divides 0 <= n < 2^31 by a number that is constant in a launch, by means of a multiplication
 * (Granlund and Montgomery 1994). */
struct divisor {
    uint32_t by, factor, shift;

    __device__ int operator()(int n) const {
        return (int)((__umulhi((uint32_t)n, factor) + (uint32_t)n) >> shift);
    }
};

/* Return the divisor for `by`. With shift = ceil(log2 by), n / by = n (2^32 + factor) / 2^(32 +
 * shift), rounded down. */
static inline divisor divisor_of(int64_t by) {
    uint32_t shift = 0;
    while ((int64_t)1 << shift < by)
        shift++;
    const uint64_t factor =
        (((uint64_t)1 << 32) * (((uint64_t)1 << shift) - (uint64_t)by)) / (uint64_t)by;
    return {(uint32_t)by, (uint32_t)factor + 1, shift};
}

/* The position of pixel number n in images of rows x columns. */
struct pixel {
    int image, row, column;
};

__device__ static inline pixel pixel_of(int n, const divisor &rows, const divisor &columns) {
    const int line = columns(n), image = rows(line);
    return {image, line - image * (int)rows.by, n - line * (int)columns.by};
}

/* Windows of an image [n, height, width, channels], one row for each output pixel. */
template <class T> struct windows {
    const T *image;
    int n, height, width, channels;
    int kernel_height, kernel_width, stride_height, stride_width, top, left;
    int dilation_height, dilation_width;
    /* Height and width of an output image, in pixels. */
    int out_height, out_width;
    /* Set by set_windows(): number of windows, and number of elements of a window. */
    int count, length;
    divisor of_height, of_width, of_segment, of_channels;
    /* True: every vector of 16 bytes is aligned and belongs to a single pixel. */
    bool vectors;

    typedef T element;
    /* Position and element offset of the pixel at the window's upper left corner. The pixel may be
     * outside the image. */
    struct row_place {
        int row, column;
        int64_t at;
    };
    /* A tap's pixel, and the offset of an element, both relative to the window's upper left
     * corner. */
    struct column_place {
        int tap_row, tap_column;
        int64_t at;
    };

    __device__ row_place row_of(int window) const {
        const pixel p = pixel_of(window, of_height, of_width);
        const int row = p.row * stride_height - top, column = p.column * stride_width - left;
        const int64_t line = (int64_t)p.image * height + row;
        return {window < count ? row : INT32_MIN / 2, column, (line * width + column) * channels};
    }

    __device__ column_place column_of(int at) const {
        const int u = of_segment(at), rest = at - u * (int)of_segment.by, v = of_channels(rest);
        const int row = u * dilation_height, column = v * dilation_width;
        return {at < length ? row : INT32_MIN / 2, column,
                ((int64_t)row * width + column) * channels + (rest - v * channels)};
    }

    /* Return the address of an element of a window; NULL: it is outside the image. */
    __device__ const T *find(const row_place &p, const column_place &of) const {
        const bool inside = (unsigned)(p.row + of.tap_row) < (unsigned)height &&
                            (unsigned)(p.column + of.tap_column) < (unsigned)width;
        return inside ? image + p.at + of.at : NULL;
    }

    __device__ const T *first() const {
        return image;
    }

    /* Read elements `at` .. `at` + 3 of a window. `at` is a multiple of 4. */
    __device__ quad read(int window, int at) const {
        quad q = {{0.0f, 0.0f, 0.0f, 0.0f}};
        if (window >= count) return q;
        const row_place p = row_of(window);
        for (int i = 0; i < 4 && at + i < length; i++) {
            const T *from = find(p, column_of(at + i));
            if (from && vectors) return load_four(from);
            if (vectors) return q;
            if (from) q.x[i] = load(from, 0);
        }
        return q;
    }
};

template <class T> static inline int64_t segment_of(const windows<T> &w) {
    return (int64_t)w.kernel_width * w.channels;
}

template <class T> static inline void set_windows(windows<T> *w) {
    w->count = w->n * w->out_height * w->out_width;
    w->length = (int)(w->kernel_height * segment_of(*w));
    w->of_height = divisor_of(w->out_height);
    w->of_width = divisor_of(w->out_width);
    w->of_segment = divisor_of(segment_of(*w));
    w->of_channels = divisor_of(w->channels);
    w->vectors = are_vectors(w->image, w->channels);
}

/* Flipped weights. Row `in` has the elements of a weight [KH, KW, in, out] that are multiplied by a
 * window of dy. The elements are in the order of the window: segments of taps, with `out` elements
 * per tap. */
template <class T> struct taps {
    /* Address of the first tap of the first segment. */
    const T *at;
    int64_t out, tap, segment;
    int rows, length;
    divisor of_segment, of_out;
    /* True: every vector of 16 bytes is aligned and belongs to a single tap. */
    bool vectors;

    typedef T element;
    typedef const T *row_place;
    /* Offset of an element from the first element of the row. */
    struct column_place {
        bool inside;
        int64_t at;
    };

    __device__ row_place row_of(int row) const {
        return row < rows ? at + row * out : NULL;
    }
    __device__ column_place column_of(int k) const {
        const int s = of_segment(k), rest = k - s * (int)of_segment.by, t = of_out(rest);
        return {k < length, s * segment + t * tap + (rest - t * (int)out)};
    }
    __device__ const T *find(row_place row, const column_place &of) const {
        return row && of.inside ? row + of.at : NULL;
    }
    __device__ const T *first() const {
        return at;
    }

    __device__ quad read(int row, int at_k) const {
        quad q = {{0.0f, 0.0f, 0.0f, 0.0f}};
        const row_place p = row_of(row);
        for (int i = 0; p && i < 4 && at_k + i < length; i++) {
            const T *from = find(p, column_of(at_k + i));
            if (vectors) return load_four(from);
            q.x[i] = load(from, 0);
        }
        return q;
    }
};

/* Output pixels as rows of c. Strides between images, image rows and pixels are in elements. */
struct pixel_rows {
    int64_t image, line, pixel;
    divisor of_height, of_width;

    __device__ int64_t operator()(int row) const {
        const gemm::pixel p = pixel_of(row, of_height, of_width);
        return p.image * image + p.row * line + p.column * pixel;
    }
};

} // namespace gemm

#endif
