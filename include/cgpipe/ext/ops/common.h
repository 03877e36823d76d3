/* SPDX-License-Identifier: Apache-2.0 */
/* common.h -- what the built-in ops have in common: fields, types, directions, memory, dropout.
 *
 * The headers beside this one list the operands of each op. All operands are row-major, n is the
 * number of samples, R = rows, and C = out unless noted. ids, targets, positions and the y of
 * ARGMAX are i32. Other x, y, dy and dx have the spec's type, f32 or bf16; saved, param and dparam
 * are always f32. Arithmetic is in f32 or better. bf16 is widened when it is read and rounded when
 * it is written, even when a kernel adds to a dx.
 *
 * Every op has FORWARD; all but EMBEDDING, CACHED_ATTENTION, ARGMAX and DETACH have BACKWARD_INPUT.
 * EMBEDDING, POSITION, LINEAR, CONV2D and CONV_TRANSPOSE2D have BACKWARD_WEIGHT. No other pair of
 * op and direction exists.
 *
 * Only these operands may share memory:
 *
 * - y with x[k], if the op allows it (op.h, `overwrites`);
 * - a dx[k] with dy, if dx is in place (op.h, `dx_in_place`);
 * - the dx[0] of a loss with its x[0];
 * - a dx[k] to which a kernel adds, with a dx[l], l > k, if both inputs are the same value.
 *   (Gradients are made from the last input to the first.)
 *
 * The dropout rule divides the elements of a sample into groups, and gives each element of a group
 * a number. In DROPOUT, element (row, column) has number e = row * out + column in group 0. In
 * DROPOUT2D, all elements of channel e have number e in group 0. In ATTENTION, probability (head,
 * query, key) has number e = key in group head * rows + query. Element e keeps its value, times 1 /
 * (1 - p), if word e % 4 of Philox4x32-10(key, {e / 4, group, sample low, sample high}) is >= p *
 * 2^32. `sample` counts from the beginning of the mini-batch. The function `dropout_key` of
 * cgp_host derives the key from (seed, step, id). Source: Salmon et al. 2011 (Philox). */
#ifndef CGPIPE_EXT_OPS_COMMON_H
#define CGPIPE_EXT_OPS_COMMON_H

#include <cgpipe/op.h>

/** Fields of all ops, with which the struct of each family begins.
 *
 *  - custom: CUSTOM: the use of the op in a model. Borrowed.
 *  - rows: number of rows of one sample, which is the product of all dimensions but the last.
 *  - in, out: width of a row before and after the op; for some ops, the size of the vocabulary or
 *    the number of classes.
 *  - slope: SCALE: y = slope x. RELU: slope below 0. ADD and the channel norms apply a RELU of this
 *    slope at their end; 1: no RELU. FUNCTION and FUNCTION_OF_Y: constant a.
 *  - p: DROPOUT, DROPOUT2D, ATTENTION: probability that an element is set to zero, 0 <= p < 1. */
#define CGP_OP_COMMON                                                                              \
    const cgp_op_node *custom;                                                                     \
    int64_t rows;                                                                                  \
    int64_t in, out;                                                                               \
    float slope, p;

/** Compiler attribute of the structs of families. With it, the common fields may be written through
 *  cgp_op_attributes and read through the struct of the family, or the reverse. Without it, the
 *  aliasing rules of C forbid both. */
#define CGP_OP_STRUCT __attribute__((may_alias))

#endif
