/* SPDX-License-Identifier: Apache-2.0 */
/* op.h -- the descriptions of the built-in ops, and their uses as the graph and the plan read them.
 *
 * An op, built-in or custom, is a `cgp_op` (cgpipe/op.h): shape rule, operands that backward I and
 * W read, state, cost. The kernels of a built-in op are the backends', one per (kind, direction);
 * its function pointers for them are NULL. B is I, then W. */
#ifndef CGP_SRC_OP_H
#define CGP_SRC_OP_H

#include "backend/backend.h"

/* The attributes of all built-in ops: the arguments of a builder call besides its inputs. Unused
 * fields are zero. */
typedef struct cgp__attributes {
    /* EMBEDDING: vocabulary. LINEAR, CONV2D, CONV_TRANSPOSE2D: out. CACHED_ATTENTION: rows of the
     * cache. */
    int64_t size;
    /* EMBEDDING. */
    int64_t width;
    /* ATTENTION, ROTARY. kv_heads, window: ATTENTION; 0: as many heads; no window. */
    int64_t heads, kv_heads, window;
    /* ROTARY; rotated: 0: all of a head. */
    int64_t rotated, offset, original_length;
    /* GROUP_NORM. */
    int64_t groups;
    /* CROSS_ENTROPY. */
    int64_t ignore;
    /* p: probability of dropout. slope: of RELU; SCALE: the factor. */
    double p, eps, momentum, slope;
    /* ATTENTION; 0: 1 / sqrt(D). */
    double scale;
    /* ROTARY; theta: 0: 10000. */
    double theta, factor, low_freq_factor, high_freq_factor;
    int scaling;
    bool interleaved;
    /* ATTENTION: one input, q, k and v side by side; no key after the query's own. */
    bool fused, causal;
    /* transposed: LINEAR's weight is [in, out] instead of [out, in]. */
    bool bias, transposed;
    /* MATMUL: of each input. */
    bool transpose[2];
    /* Pools: one window, and [C] instead of [1,1,C]. */
    bool global;
    /* CONCAT: the op's n_inputs is its minimum. ATTENTION: fused, 1. ROTARY: without positions, 1.
     * 0: the op's. */
    int n_inputs;
    /* RESHAPE. */
    int rank;
    int64_t dims[CGP_MAX_RANK];
    /* TRANSPOSE; SLICE, MEAN: the first. Below 0: from behind the last. */
    int dim[2];
    /* SLICE. */
    int64_t begin, end;
    /* Height, width. UPSAMPLE: stride. */
    int kernel[2], stride[2];
    /* Top, bottom, left, right. */
    int padding[4];
    /* CONV_TRANSPOSE2D. */
    int output_padding[2];
    /* Of the weight and the bias, as given; norms have their own. */
    cgp_init init[2];
} cgp__attributes;

/* Memory of an input's gradient. */
typedef enum cgp__dx {
    CGP__DX_SEPARATE, /* its own memory */
    CGP__DX_IN_PLACE, /* may overwrite dy */
    CGP__DX_SAME,     /* is dy: nothing is computed */
    CGP__DX_OVER_X,   /* may overwrite x[0] (a loss, over its logits) */
    CGP__DX_NONE,     /* inputs are integers */
} cgp__dx;

/* A built-in op: its description, and what only ours have. */
typedef struct cgp__op {
    cgp_op op;
    cgp__dx dx;
    /* Of the directions, for each element of y (a loss: of x[0]) of one sample; if op.flops is
     * NULL. */
    double flops[CGP_OP_DIRECTIONS];
    /* Windows over an image [H, W, C]. */
    bool image;
    /* A RELU that follows in place may be part of its kernel. */
    bool ends_in_relu;
    /* Integers that equal the attribute `ignore` are valid. */
    bool ignores;
    /* Its kernels prefetch operands of the calls behind it. */
    bool prefetches;
    /* Elements, of the values' type, that forward in prediction keeps from call to call, state[0]
     * of its kernel: in no checkpoint and no step of training. NULL: none. */
    int64_t (*cache)(const cgp_op_node *node);
    /* Change the sizes that follow from the shapes; NULL: right as they are. */
    void (*sizes)(const cgp_op_node *node, cgp_op_attributes *sizes);
} cgp__op;

#define CGP__OP_DECLARE(kind, name) extern const cgp__op cgp__op_##name;
CGP_OPS(CGP__OP_DECLARE)

/* The built-in op of a kind; of CUSTOM, one without any of our properties. */
const cgp__op *cgp__op_find(cgp_op_kind kind);

static inline cgp__dx cgp__op_dx(cgp_op_kind kind, const cgp_op *op) {
    if (kind != CGP_OP_CUSTOM) return cgp__op_find(kind)->dx;
    if (!op->backward_input) return CGP__DX_NONE;
    return !op->dx_in_place ? CGP__DX_SEPARATE : op->is_loss ? CGP__DX_OVER_X : CGP__DX_IN_PLACE;
}

/* Run the shape rule of a use whose op, attributes and inputs are set, and set its shapes, and the
 * sizes for the kernels. The message has what was expected and the actual value. */
cgp_status cgp__op_infer(cgp_op_kind kind, cgp_op_node *node, cgp_op_attributes *sizes);

/* Floating-point operations of a direction that the use has, for one sample. */
double cgp__op_flops(cgp_op_kind kind, const cgp_op_node *node, cgp_op_direction direction);

/* Check `count` integers of input k on the host before a step: the index of the first one out of
 * range, 0 <= data[i] <
 * *upper_bound; -1: none. */
int64_t cgp__op_find_invalid(cgp_op_kind kind, const cgp_op_node *node, int k, const int32_t *data,
                             int64_t count, int64_t *upper_bound);

#endif
