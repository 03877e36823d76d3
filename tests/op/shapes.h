/* SPDX-License-Identifier: Apache-2.0 */
/* shapes.h -- functions that run an op's shape rule on input types, and check the result or the
 * error message. */
#ifndef CGP_TESTS_OP_SHAPES_H
#define CGP_TESTS_OP_SHAPES_H

#include "op/attributes.h"
#include "op/op.h"
#include "support.h"

static inline cgp_op_type type_of(cgp_dtype dtype, int rank, const int64_t *dims) {
    return (cgp_op_type){.dtype = dtype, .shape = cgp_shape_make(rank, dims)};
}

#define DIMS(...)                                                                                  \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]) {                       \
        __VA_ARGS__                                                                                \
    }
#define F32(...) type_of(CGP_F32, DIMS(__VA_ARGS__))
#define I32(...) type_of(CGP_I32, DIMS(__VA_ARGS__))
#define SCALAR(dtype) type_of(dtype, 0, NULL)

/* The result of a shape rule: the shapes of an op, and the sizes that the op's kernels get. */
typedef struct inferred {
    cgp_op_kind kind;
    cgp_op_shapes shapes;
    cgp_op_attributes sizes;
} inferred;

/* `inputs` is an array of 3 types. */
static inline cgp_status try_infer(cgp_op_kind kind, const cgp__attributes *attributes,
                                   const cgp_op_type *inputs, inferred *out) {
    cgp__attributes given = *attributes;
    cgp_op_node node = {.op = &cgp__op_find(kind)->op,
                        .attributes = &given,
                        .inputs = {inputs[0], inputs[1], inputs[2]}};
    given.kind = out->kind = kind;
    memset(&out->sizes, 0xAB, sizeof out->sizes); /* shows fields that the rule leaves unset */
    const cgp_status status = cgp__op_infer(kind, &node, &out->sizes);
    out->shapes = node.shapes;
    return status;
}

static inline inferred infer3(cgp_op_kind kind, cgp__attributes attributes, cgp_op_type first,
                              cgp_op_type second, cgp_op_type third) {
    inferred out;
    assert_ok(try_infer(kind, &attributes, (cgp_op_type[]){first, second, third}, &out));
    return out;
}

static inline inferred infer(cgp_op_kind kind, cgp__attributes attributes, cgp_op_type first,
                             cgp_op_type second) {
    return infer3(kind, attributes, first, second, (cgp_op_type){.dtype = CGP_F32});
}

static inline void refuse3(cgp_op_kind kind, cgp__attributes attributes, cgp_op_type first,
                           cgp_op_type second, cgp_op_type third, const char *message) {
    inferred out;
    assert_status(try_infer(kind, &attributes, (cgp_op_type[]){first, second, third}, &out),
                  CGP_EINVAL);
    assert_string_equal(cgp_message(), message);
}

static inline void refuse(cgp_op_kind kind, cgp__attributes attributes, cgp_op_type first,
                          cgp_op_type second, const char *message) {
    refuse3(kind, attributes, first, second, (cgp_op_type){.dtype = CGP_F32}, message);
}

/* Return the FLOPs of one sample of an op in one direction. */
static inline double flops_of3(cgp_op_kind kind, cgp_op_direction direction,
                               cgp__attributes attributes, cgp_op_type first, cgp_op_type second,
                               cgp_op_type third) {
    cgp_op_node node = {
        .op = &cgp__op_find(kind)->op, .attributes = &attributes, .inputs = {first, second, third}};
    cgp_op_attributes sizes;
    attributes.kind = kind;
    assert_ok(cgp__op_infer(kind, &node, &sizes));
    return cgp__op_flops(kind, &node, direction);
}

static inline double flops_of(cgp_op_kind kind, cgp_op_direction direction,
                              cgp__attributes attributes, cgp_op_type first, cgp_op_type second) {
    return flops_of3(kind, direction, attributes, first, second, (cgp_op_type){.dtype = CGP_F32});
}

static inline void assert_shape(const cgp_shape *shape, const char *expected) {
    char text[192];
    assert_string_equal(cgp_shape_text(shape, text, sizeof text), expected);
}

static inline void assert_type(const cgp_op_type *type, const char *expected) {
    assert_int_equal(type->dtype, CGP_F32);
    assert_shape(&type->shape, expected);
}

/* Check the attributes. All bytes of the union after the struct of the op's family must be zero. */
static inline void assert_attributes(const inferred *out, cgp_op_attributes expected) {
#define SIZE(family, name) sizeof(cgp_op_##name),
    static const size_t sizes[] = {CGP_OP_FAMILIES(SIZE) offsetof(cgp_op_cross_entropy, ignore)};
    const size_t size = sizes[cgp_op_family_of(out->kind)];
    const char *bytes = (const char *)&out->sizes;
    assert_memory_equal(bytes, &expected, size);
    for (size_t i = size; i < sizeof out->sizes; i++)
        assert_int_equal(bytes[i], 0);
}

static inline void assert_param(const inferred *out, int k, const char *suffix, const char *shape) {
    assert_true(k < out->shapes.n_parameters);
    assert_string_equal(out->shapes.parameters[k].suffix, suffix);
    assert_shape(&out->shapes.parameters[k].shape, shape);
}

static const cgp__attributes none = {.size = 0};

#endif
