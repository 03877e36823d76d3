/* SPDX-License-Identifier: Apache-2.0 */
/* op.h -- ops of your own: a table of functions, added to a model like the library's.
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
 * cgp_op_check() tells whether table and functions keep what is said here. Then the op runs under every schedule, recompute
 * mode, precision and number of stages, and its memory is planned as that of any other.
 *
 * What a function may do. It reads and writes the memory of its `cgp_op_run` and nothing else that changes: no static
 * variables, no memory of its own from one call to the next (that is `state`), no allocation (that is `workspace`), no random
 * numbers but cgp_op_random(). Its results are then a function of its operands, bit for bit. All tensors lie in host memory,
 * row-major, at multiples of 64 bytes (but inputs of the model, which may lie where the caller has them), [n, ...] with
 * the n samples of a micro-batch; floats are f32 whatever the
 * precision of the plan (in bf16 they are widened before a call and rounded behind it). Nothing written is read before: y,
 * saved, dx and dparameters come as garbage. Gradients are *written*, never added to: where a value has several uses, or a
 * parameter several micro-batches, the library adds.
 *
 * Threads: the functions run on the workers of the devices, several at once for several stages; a C++ function lets no
 * exception out. */
#ifndef CGPIPE_EXT_OP_H
#define CGPIPE_EXT_OP_H

#include <cgpipe/model.h>

#ifdef __cplusplus
extern "C" {
#endif

/** How much of each kind an op may have. */
enum {
    CGP_OP_MAX_INPUTS = 4,
    CGP_OP_MAX_SAVED = 4,
    CGP_OP_MAX_PARAMETERS = 4,
    CGP_OP_MAX_STATE = 4
};

/** A value as ops see it: of one sample, N is not in it. */
typedef struct cgp_op_type {
    cgp_dtype dtype; /**< CGP_F32 or CGP_I32. */
    cgp_shape shape;
    int64_t
        high; /**< Integers that the graph makes are 0 .. high - 1; 0 for the caller's, which may be anything. */
} cgp_op_type;

/** A parameter of an op; it is f32 and named "NAME.SUFFIX", as in cgp_op_apply(). */
typedef struct cgp_op_parameter {
    const char *suffix; /**< "weight". Borrowed, as long as the model. */
    cgp_shape shape;
    cgp_init init;
    bool decays; /**< Weight decay takes it where it spares biases and norms. */
} cgp_op_parameter;

/** What an op keeps across steps; it is named "NAME.SUFFIX", saved in checkpoints, and no gradient goes to it. */
typedef struct cgp_op_state {
    const char *suffix; /**< "running_mean". Borrowed, as long as the model. */
    cgp_dtype dtype;    /**< CGP_F32, or CGP_I32 for a count. */
    cgp_shape shape;
    float begin; /**< What all elements begin as. */
} cgp_op_state;

/** What the shape rule finds out; zero before it runs. */
typedef struct cgp_op_shapes {
    cgp_op_type output; /**< Of a loss: left zero. Integers with `high` above 0. */
    int n_saved;
    cgp_op_type
        saved[CGP_OP_MAX_SAVED]; /**< f32 that forward leaves for backward, besides x and y. */
    int n_parameters;
    cgp_op_parameter parameters[CGP_OP_MAX_PARAMETERS];
    int n_state;
    cgp_op_state state[CGP_OP_MAX_STATE];
    int64_t
        accumulator_bytes; /**< To collect, in a step, what `end_of_step` puts into the state. */
} cgp_op_shapes;

typedef struct cgp_op cgp_op;

/** One use of an op in a model; constant. */
typedef struct cgp_op_node {
    const cgp_op *op;
    const void *attributes; /**< The copy that the model keeps; NULL if there are none. */
    cgp_op_type inputs[CGP_OP_MAX_INPUTS]; /**< op->n_inputs of them. */
    cgp_op_shapes shapes;
} cgp_op_node;

typedef enum cgp_op_direction {
    CGP_OP_FORWARD,
    CGP_OP_BACKWARD_INPUT, /**< dx */
    CGP_OP_BACKWARD_WEIGHT /**< dparameters */
} cgp_op_direction;

/** The operands of one call. Those that the table does not ask for are NULL. All Borrowed, for the call. */
typedef struct cgp_op_run {
    const cgp_op_node *node;
    int64_t n; /**< Samples, >= 1. */
    const void *x
        [CGP_OP_MAX_INPUTS]; /**< [n, input k], f32 or i32. Backward: those that the table names. */
    void *y; /**< [n, output]. Forward writes it; backward reads it if the table says so. */
    float *saved
        [CGP_OP_MAX_SAVED]; /**< [n, saved k]. Forward writes all; backward reads those that the table names. */
    const float *parameters[CGP_OP_MAX_PARAMETERS];
    const float *dy; /**< [n, output]; NULL for a loss. */
    float *dx
        [CGP_OP_MAX_INPUTS]; /**< [n, input k]. NULL where nobody wants it (with weight_in_input perhaps all); of integers always. */
    float *dparameters[CGP_OP_MAX_PARAMETERS]; /**< Sums over the n samples. */
    void *state[CGP_OP_MAX_STATE]; /**< Forward reads it, `end_of_step` changes it. */
    void *
        accumulator; /**< accumulator_bytes. Forward adds to it what the step will change; NULL: this run does not count. */
    bool first;    /**< Forward: `pending` is garbage yet, and begins with this micro-batch. */
    bool training; /**< False in evaluation and prediction. */
    void *workspace;  /**< As many bytes as the table's `workspace` asked for; garbage. */
    double *loss;     /**< A loss, forward: write the sum over the n samples. */
    float loss_scale; /**< A loss, backward: dx is that of loss_scale times the sum. */
    const struct cgp__op_context
        *context; /**< For cgp_op_random() and cgp_op_parallel_for(). */
} cgp_op_run;

/**
 * An op: what the library has to know, and what it runs. A plain value, complete in itself; what is not named is zero.
 *
 * Backward comes in two halves, run apart from each other under zero-bubble schedules: backward_input makes dx from dy,
 * backward_weight makes dparameters. Each lists what else it reads; all other operands of forward are gone by then, or
 * never made.
 */
struct cgp_op {
    size_t struct_size;     /**< sizeof(cgp_op) */
    const char *name;       /**< In messages. */
    int n_inputs;           /**< 1 to 4. */
    size_t attribute_bytes; /**< Of what cgp_op_apply() copies. 0: none. */
    bool is_loss;           /**< Ends a model: no output, see cgp_op_apply_loss(). */

    /** Check the inputs, and fill `out`. The message of cgp_fail() says what was expected and what came; layer and
     *  op are put in front. The same answer for the same question. */
    cgp_status (*infer)(const void *attributes, const cgp_op_type *inputs, cgp_op_shapes *out);

    uint32_t input_needs_x;      /**< Bit k: backward_input reads x[k]. */
    uint32_t input_needs_saved;  /**< Bit k: backward_input reads saved[k]. */
    bool input_needs_y;          /**< backward_input reads y. */
    uint32_t weight_needs_x;     /**< Bit k: backward_weight reads x[k]. */
    uint32_t weight_needs_saved; /**< Bit k: backward_weight reads saved[k]. */
    bool weight_needs_y;         /**< backward_weight reads y. */

    bool
        weight_in_input; /**< backward_input makes dparameters too (small ones, as of norms); no backward_weight. */
    bool cheap; /**< Worth running forward again rather than keeping y (`+selective`). */
    uint32_t overwrites; /**< Bit k: forward may write y over x[k] (of y's type and size). */
    bool
        dx_in_place; /**< backward_input may write dx over dy, if of one size; a loss, dx[k] over x[k]. */

    cgp_status (*forward)(const cgp_op_run *run);
    cgp_status (*backward_input)(
        const cgp_op_run *run); /**< NULL: no gradient passes through. */
    cgp_status (*backward_weight)(
        const cgp_op_run *run); /**< NULL: no parameters, or weight_in_input. */

    /** Move what forward collected in run->pending to run->state, on the device's worker when a step has succeeded and
     *  its numbers are finite (see cgp_pipeline_step()). Only node, state and pending are there. NULL: no state, or one that never changes. */
    void (*end_of_step)(const cgp_op_run *run);

    /** Bytes of workspace for n samples on a device with so many threads; fewer samples never need more. NULL: none. */
    int64_t (*workspace)(const cgp_op_node *node, cgp_op_direction direction, int64_t n,
                         int threads);

    /** Floating-point operations for one sample; what balances and simulated times are made of. NULL: one for each
     *  element that the direction reads or writes. */
    double (*flops)(const cgp_op_node *node, cgp_op_direction direction);

    /** A loss: what the sum over a mini-batch is divided by, e.g. the targets that count. `targets` [n, input 1]: NULL if there
     *  is no input 1 or if the graph makes it. NULL: the samples, n. */
    int64_t (*count)(const cgp_op_node *node, const void *targets, int64_t n);

    /** The highest integer that input k may have, + 1: the caller's integers outside of 0 .. high - 1 are refused
     *  before anything runs. NULL, or 0: any will do. */
    int64_t (*high)(const cgp_op_node *node, int k);
};

/**
 * Add a use of an op to a model, in the layer that was begun last.
 *
 * @param[in] op          Borrowed, as long as the model: a static table, as a rule.
 * @param[in] inputs      [op->n_inputs] values. Borrowed.
 * @param[in] name        Of its parameters and state, "NAME.SUFFIX"; NULL if it has none. Copied.
 * @param[in] attributes  [op->attribute_bytes] copied; NULL if there are none.
 * @return The output; the invalid value after an error, which sticks (cgpipe/model.h).
 */
CGP_API cgp_value cgp_op_apply(cgp_model *model, const cgp_op *op, const cgp_value *inputs,
                               const char *name, const void *attributes);

/** End a model in a loss of your own; as the library's losses it is in no layer, runs on the last stage, and has no
 *  parameters. The loss of a step is `weight` x the sum over its samples / count. @param[in] weight > 0 */
CGP_API void cgp_op_apply_loss(cgp_model *model, const cgp_op *op, const cgp_value *inputs,
                               const void *attributes, double weight);

/** Make uniform numbers in [0, 1), a function of (seed, step, op, sample, element) alone: the same when forward runs again,
 *  in backward, and in every layout. @param[in] sample 0 .. run->n - 1. @param[out] out [count], of the elements from `first`
 *  on. Threads: any part of the call. */
CGP_API void cgp_op_random(const cgp_op_run *run, int64_t sample, int64_t first, int64_t count,
                           float *out);

/** Items begin .. end - 1 of cgp_op_parallel_for(), on thread 0 .. threads - 1 of the device. */
typedef void cgp_op_range(const cgp_op_run *run, void *work, int64_t begin, int64_t end,
                          int thread);

/** Share items among the threads of the device, and wait for all of them. A part begins at a multiple of `block`, may run at
 *  any time, and writes nothing that another reads or writes; then bits do not depend on the threads. Called from a part, all
 *  items run at once on the part's thread.
 *  @param[in] work Borrowed; handed on. */
CGP_API void cgp_op_parallel_for(const cgp_op_run *run, int64_t items, int64_t block,
                                 cgp_op_range *part, void *work);

/** Tell whether the op that calls this runs forward again, for backward: then it counts nothing and prints nothing a second time.
 *  false outside of an op's forward. Threads: of the op's own thread. */
CGP_API bool cgp_is_recomputing(void);

/** How cgp_op_check() tries an op. */
typedef struct cgp_op_check_options {
    size_t struct_size;
    int64_t samples;  /**< n, >= 1 [3] */
    double low, high; /**< Float inputs and parameters are uniform in [low, high). [-1, 1] */
    double step;      /**< The largest step of a difference, > 0. [1/16] */
    double tolerance; /**< Of a gradient, relative to the largest of its tensor, > 0. [0.002] */
    int elements;     /**< Of each tensor, tried by differences, >= 1. [48] */
    uint64_t seed;    /**< Of inputs, parameters and dy. [0] */
} cgp_op_check_options;

/** The defaults in brackets above, with struct_size set. */
static inline cgp_op_check_options cgp_op_check_options_default(void) {
    cgp_op_check_options options = {
        sizeof(cgp_op_check_options), 3, -1.0, 1.0, 0.0625, 0.002, 48, 0};
    return options;
}

/**
 * Try whether an op keeps its contract, on inputs drawn at random; nothing is trained.
 *
 * Gradients of inputs and parameters are compared with central differences (smaller steps are tried where the op has a kink
 * nearby). Each half of backward runs again with every operand of forward that it does not name full of NaN and of other numbers, one by
 * one, and with the elements of each that it does name moved to other places: what is read must be named, and what is named must be
 * read. And: all of y, saved, dx and dparameters is
 * written, and nothing else; what lay there, and in the workspace, does not matter; the same call gives the same bits, also with
 * shared items in another order, without `pending`, in place where the table allows, with each dx alone; the halves give
 * the same in either order; fewer samples need no more workspace.
 *
 * @param[in] attributes  As of cgp_op_apply().
 * @param[in] inputs      [op->n_inputs] types; integers are drawn from 0 .. high - 1, so `high` is above 0. Borrowed.
 * @param[in] options     Borrowed; NULL for the defaults.
 *
 * @retval CGP_EINVAL  The contract is broken, or an argument bad; the message names the function, the operand and the element.
 * @retval CGP_ENOMEM
 *
 * Threads: any. Cost: some forward runs for each element tried.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_op_check(const cgp_op *op, const void *attributes,
                                               const cgp_op_type *inputs,
                                               const cgp_op_check_options *options);

#ifdef __cplusplus
}
#endif
#endif
