/* SPDX-License-Identifier: Apache-2.0 */
/* attributes.h -- the attributes of built-in ops in a graph: the arguments of a builder call,
 * except its inputs. As for kernels (cgpipe/ext/ops.h), each family of ops has a struct, which
 * begins with the common fields. Unused fields are zero. */
#ifndef CGP_SRC_OP_ATTRIBUTES_H
#define CGP_SRC_OP_ATTRIBUTES_H

#include <assert.h>

#include <cgpipe/ext/ops.h>

/* The common fields:
 *
 * - n_inputs: number of inputs; 0: the number in the op's table. Fused ATTENTION has 1 input,
 *   ROTARY has 1 without positions, and CROSS_ENTROPY has 2 without weights. CONCAT may have more
 *   inputs than the table;
 * - size: vocabulary of EMBEDDING, `out` of LINEAR, CONV2D and CONV_TRANSPOSE2D, rows of the cache
 *   of CACHED_ATTENTION. width: columns of EMBEDDING;
 * - p: dropout probability. slope: slope of RELU, or factor of SCALE;
 * - bias: true if the op has a bias; sum: true if the loss is a sum, which is not divided by
 *   anything;
 * - init: initialization of the weight and the bias, as the caller gave it; norms do not use it. */
#define CGP__COMMON_ATTRIBUTES                                                                     \
    cgp_op_kind kind;                                                                              \
    int n_inputs;                                                                                  \
    int64_t size, width;                                                                           \
    double p, slope;                                                                               \
    bool bias, sum;                                                                                \
    cgp_init init[2];

typedef struct CGP_OP_STRUCT cgp__linear_attributes {
    CGP__COMMON_ATTRIBUTES
    /* True: the weight is [in, out]. False: it is [out, in]. */
    bool transposed;
} cgp__linear_attributes;

typedef struct CGP_OP_STRUCT cgp__matmul_attributes {
    CGP__COMMON_ATTRIBUTES
    /* transpose[k] is set if input k is stored transposed. */
    bool transpose[2];
} cgp__matmul_attributes;

typedef struct CGP_OP_STRUCT cgp__attention_attributes {
    CGP__COMMON_ATTRIBUTES
    /* `heads`: number of query heads. `kv_heads`: number of key/value heads; 0: as many as `heads`.
     * `window`: number of keys to which a query attends; 0: there is no window. */
    int64_t heads, kv_heads, window;
    /* scale of q k^T; 0: 1 / sqrt(D) */
    double scale;
    /* `fused`: one input has q, k and v side by side. `causal`: a query attends to no key at a
     * later position. */
    bool fused, causal;
} cgp__attention_attributes;

typedef struct CGP_OP_STRUCT cgp__rotary_attributes {
    CGP__COMMON_ATTRIBUTES
    /* If `rotated` is 0, all columns of a head are rotated. */
    int64_t heads, rotated, offset, original_length;
    /* If `theta` is 0, the base is 10000. */
    double theta, factor, low_freq_factor, high_freq_factor;
    int scaling;
    bool interleaved;
} cgp__rotary_attributes;

typedef struct CGP_OP_STRUCT cgp__windows_attributes {
    CGP__COMMON_ATTRIBUTES
    /* For pools: true if one window covers the whole image; the output is then [C] instead of
     * [1,1,C]. */
    bool global;
    /* Kernel and stride, each as height and width. The stride of UPSAMPLE is its scale. */
    int kernel[2], stride[2];
    /* Padding at the top, bottom, left and right. */
    int padding[4];
    /* Only for CONV_TRANSPOSE2D. */
    int output_padding[2];
    /* Only for CONV2D and CONV_TRANSPOSE2D; 0 means 1. */
    int64_t groups;
    int dilation[2];
    /* MEAN: dim[0] is the dimension over which the mean is taken; a negative number counts from the
     * end. */
    int dim[2];
} cgp__windows_attributes;

typedef struct CGP_OP_STRUCT cgp__norm_attributes {
    CGP__COMMON_ATTRIBUTES
    /* Only for GROUP_NORM. */
    int64_t groups;
    double eps;
    /* Only for BATCH_NORM. */
    double momentum;
} cgp__norm_attributes;

typedef struct CGP_OP_STRUCT cgp__cross_entropy_attributes {
    CGP__COMMON_ATTRIBUTES
    int64_t ignore;
    double smoothing;
} cgp__cross_entropy_attributes;

typedef struct CGP_OP_STRUCT cgp__element_loss_attributes {
    CGP__COMMON_ATTRIBUTES
    /* Only for SMOOTH_L1. */
    double beta;
} cgp__element_loss_attributes;

typedef struct CGP_OP_STRUCT cgp__parts_attributes {
    CGP__COMMON_ATTRIBUTES
    /* Only for RESHAPE. */
    int rank;
    int64_t dims[CGP_MAX_RANK];
    /* TRANSPOSE: the two dimensions to exchange. SLICE: dim[0] is the dimension to cut. Negative
     * numbers count from the end. */
    int dim[2];
    /* Only for SLICE. */
    int64_t begin, end;
} cgp__parts_attributes;

typedef struct CGP_OP_STRUCT cgp__function_attributes {
    CGP__COMMON_ATTRIBUTES
    /* The function, a cgp_function. Its first constant is the field `slope`. */
    int function;
    double second;
} cgp__function_attributes;

/* The attributes of any built-in op, as a union; `kind` says which op it is. */
#define CGP__ATTRIBUTES_MEMBER(family, name) cgp__##name##_attributes name;
typedef union cgp__attributes {
    struct {
        CGP__COMMON_ATTRIBUTES
    };
    CGP_OP_FAMILIES(CGP__ATTRIBUTES_MEMBER)
} cgp__attributes;

/* These functions (cgp__linear_of() etc.) return the attributes of an op, which must belong to the
 * function's family. */
#define CGP__ATTRIBUTES_ACCESSOR(family, name)                                                     \
    static inline const cgp__##name##_attributes *cgp__##name##_of(const void *attributes) {       \
        const cgp__attributes *a = (const cgp__attributes *)attributes;                            \
        assert(cgp_op_family_of(a->kind) == CGP_OP_FAMILY_##family);                               \
        return &a->name;                                                                           \
    }
CGP_OP_FAMILIES(CGP__ATTRIBUTES_ACCESSOR)

#endif
