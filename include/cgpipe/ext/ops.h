/* SPDX-License-Identifier: Apache-2.0 */
/* ops.h -- the built-in ops, and what a backend gets for each use of an op: its kind, direction,
 * sizes and constants.
 *
 * Each header in cgpipe/ext/ops/ describes a family of ops. It has the operands and formulas of
 * these ops, and the struct of their sizes and constants. ops/common.h has the rules of all ops. */
#ifndef CGPIPE_EXT_OPS_H
#define CGPIPE_EXT_OPS_H

#include <assert.h>

#include <cgpipe/ext/ops/attention.h>
#include <cgpipe/ext/ops/classes.h>
#include <cgpipe/ext/ops/common.h>
#include <cgpipe/ext/ops/elementwise.h>
#include <cgpipe/ext/ops/function.h>
#include <cgpipe/ext/ops/norms.h>
#include <cgpipe/ext/ops/parts.h>
#include <cgpipe/ext/ops/products.h>
#include <cgpipe/ext/ops/rotary.h>
#include <cgpipe/ext/ops/windows.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A list of the built-in ops: X(KIND, name, FAMILY) for the op CGP_OP_KIND. */
#define CGP_OPS(X)                                                                                 \
    CGP_ELEMENTWISE_OPS(X)                                                                         \
    X(EMBEDDING, embedding, PLAIN)                                                                 \
    X(POSITION, position, PLAIN)                                                                   \
    X(ADD, add, PLAIN)                                                                             \
    X(LINEAR, linear, LINEAR)                                                                      \
    X(LAYER_NORM, layer_norm, NORM)                                                                \
    X(ATTENTION, attention, ATTENTION)                                                             \
    X(CACHED_ATTENTION, cached_attention, ATTENTION)                                               \
    X(ROTARY, rotary, ROTARY)                                                                      \
    X(DROPOUT, dropout, PLAIN)                                                                     \
    X(CROSS_ENTROPY, cross_entropy, CROSS_ENTROPY)                                                 \
    X(ARGMAX, argmax, PLAIN)                                                                       \
    X(BCE_WITH_LOGITS, bce_with_logits, ELEMENT_LOSS)                                              \
    X(DROPOUT2D, dropout2d, PLAIN)                                                                 \
    X(RESHAPE, reshape, PARTS)                                                                     \
    X(TRANSPOSE, transpose, PARTS)                                                                 \
    X(SLICE, slice, PARTS)                                                                         \
    X(MATMUL, matmul, MATMUL)                                                                      \
    X(CONV2D, conv2d, WINDOWS)                                                                     \
    X(CONV_TRANSPOSE2D, conv_transpose2d, WINDOWS)                                                 \
    X(MAX_POOL, max_pool, WINDOWS)                                                                 \
    X(AVERAGE_POOL, average_pool, WINDOWS)                                                         \
    X(UPSAMPLE, upsample, WINDOWS)                                                                 \
    X(PAD, pad, WINDOWS)                                                                           \
    X(CONCAT, concat, PARTS)                                                                       \
    X(BATCH_NORM, batch_norm, NORM)                                                                \
    X(INSTANCE_NORM, instance_norm, NORM)                                                          \
    X(RMS_NORM, rms_norm, NORM)                                                                    \
    X(MULTIPLY, multiply, PLAIN)                                                                   \
    X(SUBTRACT, subtract, PLAIN)                                                                   \
    X(SOFTMAX, softmax, PLAIN)                                                                     \
    X(GROUP_NORM, group_norm, NORM)                                                                \
    X(MEAN, mean, WINDOWS)                                                                         \
    X(DETACH, detach, PLAIN)                                                                       \
    X(MSE, mse, ELEMENT_LOSS)                                                                      \
    X(SMOOTH_L1, smooth_l1, ELEMENT_LOSS)                                                          \
    X(FUNCTION, function, FUNCTION)                                                                \
    X(FUNCTION_OF_Y, function_of_y, FUNCTION)                                                      \
    X(LOG_SOFTMAX, log_softmax, PLAIN)                                                             \
    X(WEIGHTED_MEAN, weighted_mean, ELEMENT_LOSS)

#define CGP_OP_ENUM(kind, name, family) CGP_OP_##kind,
typedef enum cgp_op_kind {
    CGP_OPS(CGP_OP_ENUM) CGP_OP_KINDS,
    /** A custom op, computed by functions on the host; see `custom_ops`. */
    CGP_OP_CUSTOM = CGP_OP_KINDS
} cgp_op_kind;
#undef CGP_OP_ENUM

enum { CGP_OP_DIRECTIONS = CGP_OP_BACKWARD_WEIGHT + 1 };

/** The families of ops that have a struct: X(FAMILY, name), where the struct is called "cgp_op_"
 *  and the name. PLAIN is the family of all other ops and of CUSTOM; it has only the common
 *  fields. */
#define CGP_OP_FAMILIES(X)                                                                         \
    X(LINEAR, linear)                                                                              \
    X(MATMUL, matmul)                                                                              \
    X(ATTENTION, attention)                                                                        \
    X(ROTARY, rotary)                                                                              \
    X(WINDOWS, windows)                                                                            \
    X(NORM, norm)                                                                                  \
    X(CROSS_ENTROPY, cross_entropy)                                                                \
    X(ELEMENT_LOSS, element_loss)                                                                  \
    X(PARTS, parts)                                                                                \
    X(FUNCTION, function)

#define CGP_OP_FAMILY_ENUM(family, name) CGP_OP_FAMILY_##family,
typedef enum cgp_op_family {
    CGP_OP_FAMILIES(CGP_OP_FAMILY_ENUM) CGP_OP_FAMILY_PLAIN
} cgp_op_family;
#undef CGP_OP_FAMILY_ENUM

#define CGP_OP_NAME(kind, name, family) #name,
/** Return the name of an op, such as "layer_norm"; "custom" if it is not built in. */
static inline const char *cgp_op_name(cgp_op_kind kind) {
    static const char *const names[] = {CGP_OPS(CGP_OP_NAME)};
    return kind < CGP_OP_KINDS ? names[kind] : "custom";
}
#undef CGP_OP_NAME

#define CGP_OP_FAMILY(kind, name, family) CGP_OP_FAMILY_##family,
/** Return the family of an op; PLAIN if it is not built in. */
static inline cgp_op_family cgp_op_family_of(cgp_op_kind kind) {
    static const cgp_op_family families[] = {CGP_OPS(CGP_OP_FAMILY)};
    return kind < CGP_OP_KINDS ? families[kind] : CGP_OP_FAMILY_PLAIN;
}
#undef CGP_OP_FAMILY

#define CGP_OP_MEMBER(family, name) cgp_op_##name name;
/** Sizes of an op for one sample, and constants of the op. A family without a struct uses only the
 *  common fields; the struct of any other family begins with the common fields. Fields that an op
 *  does not use are zero or follow from other fields, and all bytes after the struct are zero. So
 *  equal uses of an op have equal bytes. No struct has padding. */
typedef union cgp_op_attributes {
    __extension__ struct { CGP_OP_COMMON };
    CGP_OP_FAMILIES(CGP_OP_MEMBER)
} cgp_op_attributes;
#undef CGP_OP_MEMBER

/** Description of a kernel. Specs are compared as bytes, so they have no padding. */
typedef struct cgp_kernel_spec {
    cgp_op_kind op;
    cgp_op_direction direction;
    cgp_op_attributes attributes;
    /** Number of samples. */
    int64_t n;
    /** If bit k is set, the kernel adds to dx[k] instead of overwriting it. */
    uint16_t add;
    /** 1: matrix products and convolutions may round f32 operands to TF32 (10 bits of fraction);
     *  allowed only for type CGP_F32 on a backend with `tf32`. 0: they do not round operands. */
    uint16_t tf32;
    /** Type of x, y, dy and dx: CGP_F32 or CGP_BF16. */
    cgp_dtype type;
} cgp_kernel_spec;

/* cgp_spec_linear() etc.: return the attributes of a spec. The spec's op must be of the family in
 * the function's name, which is asserted unless NDEBUG is defined. */
#define CGP_OP_ACCESSOR(family, name)                                                              \
    static inline const cgp_op_##name *cgp_spec_##name(const cgp_kernel_spec *spec) {              \
        assert(cgp_op_family_of(spec->op) == CGP_OP_FAMILY_##family);                              \
        return &spec->attributes.name;                                                             \
    }
CGP_OP_FAMILIES(CGP_OP_ACCESSOR)
#undef CGP_OP_ACCESSOR

#ifdef __cplusplus
}
#endif
#endif
