/* SPDX-License-Identifier: Apache-2.0 */
/* rules.h -- checks of the shape rules. Messages begin with the expectation; the builder prefixes layer and op. Shapes are
 * without the leading dimension N, so a value has at most 5 dims. */
#ifndef CGP_SRC_OP_RULES_H
#define CGP_SRC_OP_RULES_H

#include "op/op.h"

#define CGP__MAX_SAMPLE_RANK (CGP_MAX_RANK - 1)
#define CGP__MAX_ELEMENTS ((int64_t)1 << 40) /* of a value or parameter: no product overflows */

/* `type` has the dtype, between min and max dims, sizes >= 1 and at most CGP__MAX_ELEMENTS. */
cgp_status cgp__op_check(const char *name, const cgp__type *type, cgp_dtype dtype, int min,
                         int max);

/* rows x columns is at most CGP__MAX_ELEMENTS; both are >= 1. */
cgp_status cgp__op_check_size(const char *name, int64_t rows, int64_t columns);

/* 0 <= p < 1, as a float too. */
cgp_status cgp__op_check_probability(double p);

/* eps > 0 and finite, as a float too. */
cgp_status cgp__op_check_eps(double eps);

/* Product of all dims but the last; the last dim. Of a checked shape of 1 dim or more. */
int64_t cgp__op_rows(const cgp_shape *shape);
int64_t cgp__op_width(const cgp_shape *shape);

/* The shape without its last dim, with another last dim, with one more dim. */
cgp_shape cgp__op_shape_rows(const cgp_shape *shape);
cgp_shape cgp__op_shape_width(const cgp_shape *shape, int64_t width);
cgp_shape cgp__op_shape_append(const cgp_shape *shape, int64_t width);

/* An elementwise op over f32 input 0: attributes and output. */
cgp_status cgp__op_infer_elementwise(const cgp__type *input, cgp__inferred *out);

/* images.c: `type` is f32 [H, W, C], and its sides fit the attributes. */
cgp_status cgp__op_check_image(const cgp__type *type);

/* Windows of `attributes` over an image: op attributes (out = in) and output [OH, OW, C]. If `crops`, padding may be negative;
 * otherwise every window has a pixel. */
cgp_status cgp__op_infer_windows(const cgp__attributes *attributes, const cgp__type *image,
                                 bool crops, cgp__inferred *out);

/* Set the sides and rows of the attributes, and the output's type with `channels`. */
cgp_status cgp__op_set_output(cgp__inferred *out, int64_t height, int64_t width,
                              int64_t channels);

/* Multiply-adds of windows for one sample, each element of a window once: rows x in x kernel. */
double cgp__op_window_elements(const cgp__op_attributes *attributes);

#endif
