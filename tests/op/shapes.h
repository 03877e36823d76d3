/* SPDX-License-Identifier: Apache-2.0 */
/* shapes.h -- run an op's shape rule on input types, or expect its message. */
#ifndef CGP_TESTS_OP_SHAPES_H
#define CGP_TESTS_OP_SHAPES_H

#include "op/op.h"
#include "support.h"

static inline cgp__type type_of(cgp_dtype dtype, int rank, const int64_t *dims) {
    return (cgp__type){.dtype = dtype, .shape = cgp_shape_make(rank, dims)};
}

#define DIMS(...)                                                                              \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]) {                   \
        __VA_ARGS__                                                                            \
    }
#define F32(...) type_of(CGP_F32, DIMS(__VA_ARGS__))
#define I32(...) type_of(CGP_I32, DIMS(__VA_ARGS__))
#define SCALAR(dtype) type_of(dtype, 0, NULL)

/* Infer; the attributes are compared by their bytes. */
static inline cgp__inferred infer(cgp__op_kind kind, cgp__attributes attributes,
                                  cgp__type first, cgp__type second) {
    const cgp__type inputs[] = {first, second};
    cgp__inferred out;
    memset(&out, 0xAB, sizeof out); /* infer clears what it does not use */
    assert_ok(cgp__op_find(kind)->infer(&attributes, inputs, &out));
    return out;
}

static inline void refuse(cgp__op_kind kind, cgp__attributes attributes, cgp__type first,
                          cgp__type second, const char *message) {
    const cgp__type inputs[] = {first, second};
    cgp__inferred out = {0};
    assert_status(cgp__op_find(kind)->infer(&attributes, inputs, &out), CGP_EINVAL);
    assert_string_equal(cgp_message(), message);
}

static inline void assert_shape(const cgp_shape *shape, const char *expected) {
    char text[192];
    assert_string_equal(cgp_shape_text(shape, text, sizeof text), expected);
}

static inline void assert_type(const cgp__type *type, const char *expected) {
    assert_int_equal(type->dtype, CGP_F32);
    assert_shape(&type->shape, expected);
}

static inline void assert_attributes(const cgp__inferred *out, cgp__op_attributes expected) {
    assert_memory_equal(&out->attributes, &expected, sizeof expected);
}

static inline void assert_param(const cgp__inferred *out, int k, const char *suffix,
                                const char *shape) {
    assert_true(k < out->n_params);
    assert_string_equal(out->params[k].suffix, suffix);
    assert_shape(&out->params[k].shape, shape);
}

static const cgp__attributes none = {0};

#endif
