/* SPDX-License-Identifier: Apache-2.0 */
/* op.h -- custom ops: a table of functions, added to a model like the built-in ops.
 *
 *     static cgp_status swish_infer(const void *attributes, const cgp_op_type *inputs, cgp_op_shapes *out) {
 *         out->output = inputs[0];
 *         return CGP_OK;
 *     }
 *     static cgp_status swish_forward(const cgp_op_run *run) {           y = x / (1 + exp(-x))
 *         ...
 *     }
 *     static cgp_status swish_backward_input(const cgp_op_run *run) {    dx from x and dy
 *         ...
 *     }
 *     static const cgp_op swish = {
 *         .struct_size = sizeof(cgp_op), .name = "swish", .n_inputs = 1, .infer = swish_infer,
 *         .forward = swish_forward, .backward_input = swish_backward_input,
 *         .input_needs_x = 1u << 0,                                       backward_input reads x[0]
 *     };
 *     ...
 *     x = cgp_op_apply(model, &swish, &x, NULL, NULL);
 *
 * cgp_op_check() tests that table and functions keep this contract. Then the op runs under every
 * schedule, recompute mode, precision and number of stages, and its memory is planned like that of
 * any other.
 *
 * A function reads and writes the memory of its `cgp_op_run` and no other mutable memory: no static
 * variables, no memory from one call to the next (that is `state`), no allocation (that is
 * `workspace`), no random numbers but cgp_op_random(). Its results are then a function of its
 * operands, bit for bit. All tensors are in host memory, row-major, at multiples of 64 bytes
 * (except inputs of the model, which are where the caller has them), [n, ...] with the n samples of
 * a micro-batch; floats are f32 under every precision of the plan (in bf16 they are widened before
 * a call and rounded after it). Results are uninitialized before a call: y, saved, dx and
 * dparameters are garbage. Gradients are *overwritten*, never added to: where a value has several
 * uses, or a parameter several micro-batches, the library adds.
 *
 * Threads: the functions run on the workers of the devices, several at once for several stages; a
 * C++ function lets no exception out. */
#ifndef CGPIPE_EXT_OP_H
#define CGPIPE_EXT_OP_H

#include <cgpipe/model.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Add a use of an op to a model, in the current layer.
 *
 * @param[in] op          Borrowed, as long as the model: a static table, as a rule.
 * @param[in] inputs      [op->n_inputs] values. Borrowed.
 * @param[in] name        Of its parameters and state, "NAME.SUFFIX"; NULL if it has none. Copied.
 * @param[in] attributes  [op->attribute_bytes] copied; NULL if there are none.
 * @return The output; the invalid value after an error, which sticks (cgpipe/model.h).
 */
CGP_API cgp_value cgp_op_apply(cgp_model *model, const cgp_op *op, const cgp_value *inputs,
                               const char *name, const void *attributes);

/** End a model in a custom loss; like the built-in losses it is in no layer, runs on the last
 *  stage, and has no parameters. The loss of a step is `weight` x the sum over its samples / count.
 *  @param[in] weight > 0 */
CGP_API void cgp_op_apply_loss(cgp_model *model, const cgp_op *op, const cgp_value *inputs,
                               const void *attributes, double weight);

/** Options of cgp_op_check(). */
typedef struct cgp_op_check_options {
    size_t struct_size;
    int64_t samples;  /**< n, >= 1 [3] */
    double low, high; /**< Float inputs and parameters are uniform in [low, high). [-1, 1] */
    double step;      /**< The largest step of a difference, > 0. [1/16] */
    double tolerance; /**< Of a gradient, relative to the largest of its tensor, > 0. [0.002] */
    int elements;     /**< Of each tensor, compared with differences, >= 1. [48] */
    uint64_t seed;    /**< Of inputs, parameters and dy. [0] */
} cgp_op_check_options;

/** The defaults in brackets above, with struct_size set. */
static inline cgp_op_check_options cgp_op_check_options_default(void) {
    cgp_op_check_options options = {
        sizeof(cgp_op_check_options), 3, -1.0, 1.0, 0.0625, 0.002, 48, 0};
    return options;
}

/**
 * Test that an op keeps its contract, on inputs drawn at random; nothing is trained.
 *
 * Gradients of inputs and parameters are compared with central differences (with smaller steps near
 * a kink). Each backward function is repeated with NaN and other numbers in every operand of
 * forward that it does not name, one by one, and with rotated elements in each that it names:
 * operands that are read must be named, and operands that are named must be read. All of y, saved,
 * dx and dparameters is written, and nothing else; the previous contents of results and workspace
 * do not matter; repeated calls give equal bits, also with parallel_for ranges in another order,
 * without `accumulator`, in place where the table allows, with each dx alone, and with the backward
 * functions in either order; fewer samples need no more workspace.
 *
 * @param[in] attributes  As of cgp_op_apply().
 * @param[in] inputs      [op->n_inputs] types; integers are drawn from 0 .. upper_bound - 1, upper_bound > 0. Borrowed.
 * @param[in] options     Borrowed; NULL for the defaults.
 *
 * @retval CGP_EINVAL  The contract is broken, or an argument bad; the message names the function,
 * the operand and the element.
 * @retval CGP_ENOMEM
 *
 * Threads: any. Cost: some forward runs for each element compared.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_op_check(const cgp_op *op, const void *attributes,
                                               const cgp_op_type *inputs,
                                               const cgp_op_check_options *options);

#ifdef __cplusplus
}
#endif
#endif
