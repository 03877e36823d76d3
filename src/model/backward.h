/* SPDX-License-Identifier: Apache-2.0 */
/* backward.h -- describes the kernels of a node, and the values that its backward reads, keeps and
 * recomputes. */
#ifndef CGP_SRC_MODEL_BACKWARD_H
#define CGP_SRC_MODEL_BACKWARD_H

#include <cgpipe/ext/ops.h>
#include <cgpipe/model.h>

typedef struct cgp__node cgp__node;

/* Return true if backward of a node may compute a gradient of input k. Targets of built-in losses
 * are constants. */
bool cgp__node_passes(const cgp__node *node, int k);

/* Return a mask of the parameters of a node that are not frozen: bit k for params[k]. */
uint32_t cgp__node_trainable(const cgp_model *model, const cgp__node *node);

/* Return true if I of a node also computes gradients of parameters: the op's table says so, and at
 * least one of the parameters is not frozen. */
bool cgp__node_weight_in_input(const cgp_model *model, const cgp__node *node);

/* Return the FLOPs of a node for one sample, in a direction that the node has. */
double cgp__node_flops(const cgp_model *model, const cgp__node *node, cgp_op_direction direction);

/* Return true if a node has a kernel in this direction. A node always has a forward kernel. It has
 * a kernel for input or weight backward if that kernel computes a gradient. Frozen parameters have
 * no gradient. */
bool cgp__node_has_direction(const cgp_model *model, const cgp__node *node,
                             cgp_op_direction direction);

/* Return a mask of the inputs that backward of a node reads in this direction: bit k for x[k]. Set
 * *y to true if backward reads the result y, else to false. */
uint32_t cgp__node_reads(const cgp_model *model, const cgp__node *node, cgp_op_direction direction,
                         bool *y);

/* Return true if backward in this direction reads the node's own saved[k]. Input backward of an op
 * that may be recomputed keeps all saved values, because the recomputed forward writes them
 * again. */
bool cgp__node_keeps(const cgp_model *model, const cgp__node *node, cgp_op_direction direction,
                     int k);

/* Return true if `+selective` recomputes a node: it is cheap, backward reads its result, and its
 * inputs are available. An input is available if a node before `first_node` computes it, or if
 * backward reads it too. last_read[v] is the last time at which backward reads value v; -1:
 * backward does not read it. */
bool cgp__node_may_recompute(const cgp_model *model, const cgp__node *node, int first_node,
                             const int *last_read);

/* For R: needed[i] is true if R must run node first_node + i, 0 <= i < n. Set needed[] to true for
 * the ancestors of these nodes, too. */
void cgp__mark_ancestors(const cgp_model *model, int first_node, int n, bool *needed);

/* convolution.c: check the value of an option called `name`. @retval CGP_EINVAL The value is not a
 * cgp_convolution. The message is "NAME: expected ...". */
cgp_status cgp__convolution_check(const char *name, cgp_convolution convolution);

/* Return the tile size of a node's kernels: 2 for Winograd's tiles, 0 for direct sums and for ops
 * other than CONV2D (`tile` of cgp_op_windows). */
int32_t cgp__convolution_tile(cgp_convolution convolution, const cgp__node *node);

/* Settings of a device's arithmetic. */
typedef struct cgp__arithmetic {
    /* element type of activations */
    cgp_dtype type;
    cgp_convolution convolution;
    /* True: GEMMs may round f32 operands to TF32. */
    bool tf32;
} cgp__arithmetic;

/* Return the spec of a node's kernel for n samples. */
cgp_kernel_spec cgp__node_kernel(const cgp__node *node, cgp_op_direction direction, int64_t n,
                                 cgp__arithmetic arithmetic);

#endif
