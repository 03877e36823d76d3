/* SPDX-License-Identifier: Apache-2.0 */
/* op.h -- the descriptions of the built-in ops and of their uses, for the graph and the plan.
 *
 * An op, built-in or custom, is a `cgp_op` (cgpipe/op.h). It describes the shape rule, the operands
 * that backward I and W read, the state, and the cost. Each backend has the kernels of the built-in
 * ops, one per (kind, direction). So the function pointers for these directions are NULL in a
 * built-in op. Action B runs I, then W. */
#ifndef CGP_SRC_OP_H
#define CGP_SRC_OP_H

#include <cgpipe/ext/ops.h>

/* The memory to which backward writes the gradient of an input. */
typedef enum cgp__dx {
    CGP__DX_SEPARATE, /* dx has its own memory */
    CGP__DX_IN_PLACE, /* dx may overwrite dy */
    CGP__DX_SAME,     /* dx is dy itself, so nothing is computed */
    CGP__DX_OVER_X,   /* dx may overwrite x[0], for example the logits of a loss */
    CGP__DX_NONE,     /* the op passes no gradient to the input */
} cgp__dx;

/* A built-in op: its description, and properties that only built-in ops have. */
typedef struct cgp__op {
    cgp_op op;
    cgp__dx dx;
    /* FLOPs of each direction, per element of y (for a loss: of x[0]) in one sample; used if
     * op.flops is NULL. */
    double flops[CGP_OP_DIRECTIONS];
    /* The op's kernel may include an in-place RELU that follows the op. */
    bool ends_in_relu;
    /* Integers that equal the attribute `ignore` are valid, too. */
    bool ignores;
    /* True: parameter 0 is a weight, and parameter 1, if there is one, is a bias. The gradient of
     * the bias reads only dy. */
    bool bias_reads_dy;
    /* The op's kernels prefetch operands of the next calls. */
    bool prefetches;
    /* Return the number of elements of the op's cache. In prediction, forward keeps the cache from
     * call to call, as state[0] of its kernel. The elements have the type of the op's values.
     * Training and checkpoints have no cache. A NULL function: the op has no cache. */
    int64_t (*cache)(const cgp_op_node *node);
    /* Return the size in bytes of the statistics of one micro-batch. A merge updates the
     * accumulator from these statistics. A NULL function: the op's accumulator cannot be merged. */
    int64_t (*log_bytes)(const cgp_op_node *node);
    /* For a loss: return the sum of the weights (input 2) of all targets that are not ignored, over
     * n samples. The mean divides by this sum. A NULL function: the loss has no weights. */
    double (*sum_weights)(const cgp_op_node *node, const void *targets, const float *weights,
                          int64_t n);
    /* Set the sizes that only the op's family has, and correct the common sizes where this op
     * differs from most ops. NULL: there is nothing to set. */
    void (*sizes)(const cgp_op_node *node, cgp_op_attributes *sizes);
} cgp__op;

#define CGP__OP_DECLARE(kind, name, family) extern const cgp__op cgp__op_##name;
CGP_OPS(CGP__OP_DECLARE)

/* Return the built-in op of a kind; for CUSTOM, an op without any built-in property. */
const cgp__op *cgp__op_find(cgp_op_kind kind);

/* Return where backward of an op writes the gradients of its inputs (cgp__dx). */
cgp__dx cgp__op_dx(cgp_op_kind kind, const cgp_op *op);

/* Run the shape rule of `node`, whose op, attributes and inputs are set. Set the shapes of `node`,
 * and the sizes for the kernels. A failure's message has the expected and the actual value. */
cgp_status cgp__op_infer(cgp_op_kind kind, cgp_op_node *node, cgp_op_attributes *sizes);

/* Return the FLOPs of one use of an op in a direction, for one sample. The use must have this
 * direction. */
double cgp__op_flops(cgp_op_kind kind, const cgp_op_node *node, cgp_op_direction direction);

/* Before a step, check `count` integers of input k in host memory. Return the index of the first
 * integer outside 0 .. *upper_bound - 1; -1: there is none. */
int64_t cgp__op_find_invalid(cgp_op_kind kind, const cgp_op_node *node, int k, const int32_t *data,
                             int64_t count, int64_t *upper_bound);

#endif
