/* SPDX-License-Identifier: Apache-2.0 */
/* rules.h -- checks and helpers for shape rules. An error message begins with the expectation; the
 * builder puts layer and op before it. Shapes omit the leading dimension N (samples), so a value
 * has at most 5 dims. */
#ifndef CGP_SRC_OP_RULES_H
#define CGP_SRC_OP_RULES_H

#include "op/attributes.h"
#include "op/op.h"

#define CGP__MAX_SAMPLE_RANK (CGP_MAX_RANK - 1)
/* maximum number of elements of a value or parameter; with this limit, no product of sizes
 * overflows */
#define CGP__MAX_ELEMENTS ((int64_t)1 << 40)

/* Check that `type` has the given dtype, `min` to `max` dims, sizes >= 1, and at most
 * CGP__MAX_ELEMENTS elements. */
cgp_status cgp__op_check(const char *name, const cgp_op_type *type, cgp_dtype dtype, int min,
                         int max);

/* Check that rows x columns is at most CGP__MAX_ELEMENTS; both are >= 1. */
cgp_status cgp__op_check_size(const char *name, int64_t rows, int64_t columns);

/* Check that 0 <= p < 1, also after rounding to f32. */
cgp_status cgp__op_check_probability(double p);

/* Check that eps is finite and above 0, also after rounding to f32. */
cgp_status cgp__op_check_eps(double eps);

/* cgp__op_rows() returns the product of all dims but the last; cgp__op_width() returns the last
 * dim. Both return 1 if there are no dims. */
int64_t cgp__op_rows(const cgp_shape *shape);
int64_t cgp__op_width(const cgp_shape *shape);

/* Return the product of dims begin .. end - 1. */
int64_t cgp__op_product(const cgp_shape *shape, int begin, int end);

/* Set *out to the number of a dim, counted from the first. A negative `dim` counts from the
 * last. */
cgp_status cgp__op_find_dim(int dim, const cgp_shape *shape, int *out);

/* These four functions return a shape without its last dim, a shape of only the last dim, a shape
 * with another last dim, and a shape with one more dim. */
cgp_shape cgp__op_shape_rows(const cgp_shape *shape);
cgp_shape cgp__op_shape_last(const cgp_shape *shape);
cgp_shape cgp__op_shape_width(const cgp_shape *shape, int64_t width);
cgp_shape cgp__op_shape_append(const cgp_shape *shape, int64_t width);

/* The shape rule of an elementwise op whose input 0 is f32. The output has the type of input 0. */
cgp_status cgp__op_infer_elementwise(const void *attributes, const cgp_op_type *inputs,
                                     cgp_op_shapes *out);

/* Check that shapes A and B are equal; otherwise fail with "expects `expected`, got A and B". */
cgp_status cgp__op_check_same(const char *expected, const cgp_op_type *a, const cgp_op_type *b);

/* The first function appends a parameter to an op's shapes. The second appends a saved value, and
 * the third the weight and bias [C] of a norm. */
void cgp__op_add_parameter(cgp_op_shapes *out, const char *suffix, cgp_shape shape, cgp_init init,
                           bool decays);
void cgp__op_add_saved(cgp_op_shapes *out, cgp_shape shape, bool whole);
void cgp__op_add_norm_parameters(cgp_op_shapes *out);

/* Append the weight of an op and, if the op has one, the bias [out]. The fans of the weight
 * determine the initialization of both. */
void cgp__op_add_weight(cgp_op_shapes *out, const cgp__attributes *attributes, cgp_shape weight,
                        int64_t fan_in, int64_t fan_out);

/* images.c: check that `type` is f32 [H, W, C], with sides of at most 2^20 pixels. */
cgp_status cgp__op_check_image(const cgp_op_type *type);

/* Set the output shape [OH, OW, channels] of an op with windows of `kernel` pixels, `stride` apart,
 * over a padded image. If `crops`, padding may be negative. Otherwise padding must be less than the
 * kernel, so that every window has a pixel of the image. */
cgp_status cgp__op_infer_windows(const cgp__windows_attributes *attributes,
                                 const cgp_op_type *image, int64_t channels, bool crops,
                                 cgp_op_shapes *out);

/* Set the output shape [OH, OW, channels] of a transposed convolution. A convolution of this output
 * with the same windows and padding gives an image of the input's size. A side of the output is
 * (side - 1) stride + kernel - padding + output_padding. */
cgp_status cgp__op_infer_transposed(const cgp__windows_attributes *attributes,
                                    const cgp_op_type *image, int64_t channels, cgp_op_shapes *out);

/* Set the sizes for the kernels of an op with windows over an image [H, W, C]. */
void cgp__op_set_windows(const cgp_op_node *node, cgp_op_attributes *sizes);

/* Set the sizes for the kernels of a norm (layer_norm.c). */
void cgp__op_set_norm(const cgp_op_node *node, cgp_op_attributes *sizes);

/* Check that a convolution's number of groups divides the channels of the image and of the
 * output. */
cgp_status cgp__op_check_groups(const cgp__windows_attributes *attributes, int64_t in);

/* Set the sizes for the kernels of a convolution. */
void cgp__op_set_convolution(const cgp_op_node *node, cgp_op_attributes *sizes);

/* Return `number`, which is a number of groups or a dilation, or the default 1 if `number` is 0. */
static inline int64_t cgp__op_or_one(int64_t number) {
    return number ? number : 1;
}

/* Set the output's shape to [height, width, channels]. */
cgp_status cgp__op_set_output(cgp_op_shapes *out, int64_t height, int64_t width, int64_t channels);

#endif
