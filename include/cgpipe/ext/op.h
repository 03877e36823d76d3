/* SPDX-License-Identifier: Apache-2.0 */
/* op.h -- custom ops: a table of functions, added to a model like the built-in ops.
 *
 *     static cgp_status swish_infer(const void *attributes, const cgp_op_type *inputs,
 *                                   cgp_op_shapes *out) {
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
 * cgp_op_check() tests that the table and the functions keep the contract below. The op then runs
 * under every schedule, recompute mode, precision and number of stages, and its memory is planned
 * like the memory of any other op.
 *
 * A function reads and writes the memory of its `cgp_op_run` and no other mutable memory. It has no
 * static variables, keeps no memory between calls (use `state`), allocates nothing (use
 * `workspace`), and takes random numbers only from cgp_op_random(). So the bits of its results
 * depend only on its operands.
 *
 * All tensors are in host memory, row-major, [n, ...] with the n samples of a micro-batch. Their
 * addresses are multiples of 64 bytes, except for inputs of the model, which lie where the caller
 * put them. Floats are f32 under every precision of the plan; in bf16 they are widened before a
 * call and rounded after it. The results y, saved, dx and dparameters are uninitialized before a
 * call. A function *overwrites* gradients and never adds to them. If a value has several uses, or a
 * parameter has gradients of several micro-batches, the library adds them up.
 *
 * Threads: the functions run on the workers of the devices. Functions of several stages may run at
 * the same time. A C++ function must not let an exception escape. */
#ifndef CGPIPE_EXT_OP_H
#define CGPIPE_EXT_OP_H

#include <cgpipe/model.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Add a use of an op to a model, in the current layer.
 *
 * @param[in] op          Borrowed for the life of the model; usually a static table.
 * @param[in] inputs      [op->n_inputs] values. Borrowed.
 * @param[in] name        NAME in the names "NAME.SUFFIX" of the op's parameters and state; NULL if
 *                        the op has neither. Copied.
 * @param[in] attributes  [op->attribute_bytes] copied; NULL if there are none.
 * @return The output; an invalid value after an error, which the model keeps (cgpipe/model.h).
 */
CGP_API cgp_value cgp_op_apply(cgp_model *model, const cgp_op *op, const cgp_value *inputs,
                               const char *name, const void *attributes);

/** Add a custom loss to a model. Like a built-in loss, a custom loss belongs to no layer, runs on
 *  the last stage, and has no parameters. The loss of a step is `weight` x (sum over the samples) /
 *  count.
 *  @param[in] weight > 0 */
CGP_API void cgp_op_apply_loss(cgp_model *model, const cgp_op *op, const cgp_value *inputs,
                               const void *attributes, double weight);

/** Options of cgp_op_check(). */
typedef struct cgp_op_check_options {
    size_t struct_size;
    int64_t samples;  /**< n, the number of samples, >= 1 [3] */
    double low, high; /**< Float inputs and parameters are uniform in [low, high). [-1, 1] */
    double step;      /**< Largest step of a difference quotient, > 0. [1/16] */
    double tolerance; /**< Tolerance relative to the largest gradient of a tensor, > 0. [0.002] */
    int elements;     /**< Number of elements of each tensor that are compared with difference
                       *  quotients, >= 1. [48] */
    uint64_t seed;    /**< Seed of inputs, parameters and dy. [0] */
} cgp_op_check_options;

/** Return the defaults given in brackets above, with struct_size set. */
static inline cgp_op_check_options cgp_op_check_options_default(void) {
    cgp_op_check_options options = {
        sizeof(cgp_op_check_options), 3, -1.0, 1.0, 0.0625, 0.002, 48, 0};
    return options;
}

/**
 * Test, on random inputs, that an op keeps its contract. Nothing is trained. The test checks that
 *
 * - gradients of inputs and parameters equal central difference quotients (with smaller steps near
 *   a kink);
 * - backward functions read exactly the operands that the table names. For each operand of forward
 *   that the table does not name, the function runs again with NaN and other numbers in this
 *   operand. For each operand that the table names, it runs again with rotated elements in this
 *   operand;
 * - y, saved, dx and dparameters are written completely, and nothing else is written; previous
 *   contents of results and workspace have no effect;
 * - repeated calls give equal bits. This includes calls with the parallel_for ranges, or the two
 *   backward functions, in another order. It also includes calls without `accumulator`, with only
 *   one dx, or in place if the table allows it;
 * - fewer samples do not need more workspace.
 *
 * @param[in] attributes  As for cgp_op_apply().
 * @param[in] inputs      [op->n_inputs] types; integers are drawn from 0 .. upper_bound - 1,
 *                        upper_bound > 0. Borrowed.
 * @param[in] options     Borrowed; NULL for the defaults.
 *
 * @retval CGP_EINVAL  The contract is broken, or an argument is bad; the message names the
 *                     function, the operand and the element.
 * @retval CGP_ENOMEM
 *
 * Threads: any. Cost: several runs of forward for each element that is compared.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_op_check(const cgp_op *op, const void *attributes,
                                               const cgp_op_type *inputs,
                                               const cgp_op_check_options *options);

#ifdef __cplusplus
}
#endif
#endif
