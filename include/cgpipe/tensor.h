/* SPDX-License-Identifier: Apache-2.0 */
/* tensor.h -- element types, shapes and views of host memory. These functions do no arithmetic. */
#ifndef CGPIPE_TENSOR_H
#define CGPIPE_TENSOR_H

#include <cgpipe/base.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CGP_MAX_RANK 6

/** Element types. Integers have no gradient. bf16 is the upper half of an f32: sign, 8 bits of
 *  exponent, 7 of fraction. A device may store values as bf16 (see cgp_precision); inputs and
 *  outputs are f32 or i32. i64 occurs in files only. */
typedef enum cgp_dtype { CGP_F32, CGP_I32, CGP_BF16, CGP_I64 } cgp_dtype;

/** Sizes in layout order; the last dimension is contiguous. A shape of rank 0 has one element. */
typedef struct cgp_shape {
    int rank;
    int64_t dims[CGP_MAX_RANK];
} cgp_shape;

/** A view of a dense row-major array in host memory or, where a function says so, in memory of a
 *  device. */
typedef struct cgp_tensor {
    cgp_dtype dtype;
    cgp_shape shape;
    void *data; /**< Borrowed. */
} cgp_tensor;

/** Return the number of bytes per element; 0 for an unknown type. Threads: any. */
CGP_API size_t cgp_dtype_bytes(cgp_dtype dtype);

/** Return "f32", "i32", "bf16" or "i64". The string is static. Threads: any. */
CGP_API const char *cgp_dtype_name(cgp_dtype dtype);

/** Make a shape from its sizes. The rank of the result is -1 if `rank` is not 0 to CGP_MAX_RANK.
 *  Threads: any. */
CGP_API cgp_shape cgp_shape_make(int rank, const int64_t *dims);

/** Return the number of elements; 1 for rank 0, 0 for a rank out of range. Threads: any. */
CGP_API int64_t cgp_shape_count(const cgp_shape *shape);

/** Return true if the ranks and all sizes are equal. Threads: any. */
CGP_API bool cgp_shape_equal(const cgp_shape *a, const cgp_shape *b);

/** Write a shape as "[4, 128, 768]" to `text`, a buffer of `size` bytes; a text that does not fit
 *  is cut. Returns `text`. Threads: any. */
CGP_API char *cgp_shape_text(const cgp_shape *shape, char *text, size_t size);

#ifdef __cplusplus
}
#endif
#endif
