/* SPDX-License-Identifier: Apache-2.0 */
/* op.h -- the description of an op, built-in or custom. It is a table with the shape rule, the
 * operands that each half of backward reads, the state and the cost of the op. cgpipe/ext/op.h
 * shows how to write an op. */
#ifndef CGPIPE_OP_H
#define CGPIPE_OP_H

#include <cgpipe/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Parameter initialization. The last four kinds depend on fans: fan_in is the number of inputs
 *  that contribute to one output, fan_out the number of outputs that one input contributes to. */
typedef enum cgp_init_kind {
    CGP_INIT_ZERO,
    CGP_INIT_ONE,
    CGP_INIT_NORMAL,
    CGP_INIT_UNIFORM,
    /** NORMAL, but a number whose distance from 0 is more than 2 x scale is drawn again. This is
     *  TensorFlow's TruncatedNormal, and PyTorch's trunc_normal_() with a = -2 std, b = 2 std. The
     *  result has a standard deviation of 0.88 scale. */
    CGP_INIT_TRUNCATED_NORMAL,
    /** UNIFORM in +- scale sqrt(6 / (fan_in + fan_out)). Source: Glorot and Bengio 2010. */
    CGP_INIT_XAVIER_UNIFORM,
    /** NORMAL of scale sqrt(2 / (fan_in + fan_out)). Source: Glorot and Bengio 2010. */
    CGP_INIT_XAVIER_NORMAL,
    /** UNIFORM in +- scale sqrt(3 / fan_in). Source: He et al. 2015, arXiv:1502.01852. */
    CGP_INIT_KAIMING_UNIFORM,
    /** NORMAL of scale / sqrt(fan_in). Source: He et al. 2015, arXiv:1502.01852. */
    CGP_INIT_KAIMING_NORMAL
} cgp_init_kind;

typedef struct cgp_init {
    cgp_init_kind kind;
    /** NORMAL, TRUNCATED_NORMAL: the standard deviation. UNIFORM: the range is [-scale, scale).
     *  Kinds that depend on fans: the gain, as PyTorch's calculate_gain() returns it: 1 for no
     *  activation, sqrt(2) for RELU, sqrt(2 / (1 + a^2)) for a leaky ReLU of slope `a`. PyTorch's
     *  nn.Linear and nn.Conv2d initialize weight and bias with KAIMING_UNIFORM and gain 1 /
     *  sqrt(3). For every kind, the scale is >= 0 and finite. */
    double scale;
} cgp_init;

/** Convert an initialization that depends on fans to NORMAL or UNIFORM. Any other initialization is
 *  returned unchanged. The built-in ops take the fans from the layout of their weights; the shape
 *  rule of a custom op calls this function. @param[in] fan_in >= 1. @param[in] fan_out >= 1. */
CGP_API cgp_init cgp_init_by_fan(cgp_init init, int64_t fan_in, int64_t fan_out);

/** Scaling of rotary frequencies, for sequences longer than those on which the model was first
 *  trained. */
typedef enum cgp_rotary_scaling {
    CGP_ROTARY_UNSCALED,
    /** All frequencies are divided by the factor. Source: Chen et al. 2023, arXiv:2306.15595. */
    CGP_ROTARY_LINEAR,
    /** Low frequencies are divided. Source: Grattafiori et al. 2024, arXiv:2407.21783; the release
     *  of Llama 3.1. */
    CGP_ROTARY_LLAMA3
} cgp_rotary_scaling;

/** An elementwise function of x with constants `a` and `b`. A function ignores a constant that its
 *  formula does not name. Limits and the threshold of SOFTPLUS may be infinite; values beyond the
 *  range of f32 count as infinite. All other constants must be finite in f32.
 *  cgpipe/ext/ops/function.h has the formulas and the gradients. */
typedef enum cgp_function {
    CGP_FUNCTION_HARDTANH, /**< x clamped to [a, b]; no gradient at the limits. */
    CGP_FUNCTION_SQRT,
    CGP_FUNCTION_RSQRT, /**< 1 / sqrt(x). */
    CGP_FUNCTION_RECIPROCAL,
    CGP_FUNCTION_EXP,
    CGP_FUNCTION_CLAMP,       /**< x clamped to [a, b]; a gradient of 1 at the limits. */
    CGP_FUNCTION_HARDSIGMOID, /**< (x + 3) / 6 clamped to [0, 1]. */
    CGP_FUNCTION_HARDSWISH,   /**< x times HARDSIGMOID. Source: Howard 2019, arXiv:1905.02244. */
    CGP_FUNCTION_ABS,
    CGP_FUNCTION_LOG,
    CGP_FUNCTION_ELU,      /**< x if x >= 0, else a * (exp(b * x) - 1); b > 0. Source: Clevert 2015,
                            *   arXiv:1511.07289. With b = 1 / a, this is CELU: Barron 2017,
                            *   arXiv:1704.07483. */
    CGP_FUNCTION_SOFTPLUS, /**< log(1 + exp(a x)) / a, or x if a x > b; a > 0. */
    CGP_FUNCTION_MISH,     /**< x tanh(log(1 + exp(x))). Source: Misra 2019, arXiv:1908.08681. */
    CGP_FUNCTION_BCE_ONE,  /**< Binary cross-entropy of a probability x with the target 1: -log(x),
                            *   at most 100. */
    CGP_FUNCTION_BCE_ZERO, /**< Binary cross-entropy of a probability x with the target 0: -log(1 -
                            *   x), at most 100. */
    CGP_FUNCTIONS
} cgp_function;

/** Maximum numbers for one op. */
enum {
    CGP_OP_MAX_INPUTS = 4,
    CGP_OP_MAX_SAVED = 4,
    CGP_OP_MAX_PARAMETERS = 4,
    CGP_OP_MAX_STATE = 4
};

/** Type of a value of one sample, without the leading N. */
typedef struct cgp_op_type {
    cgp_dtype dtype; /**< CGP_F32 or CGP_I32. */
    cgp_shape shape;
    /** For integers that the graph computes: they are in 0 .. upper_bound - 1. 0: the integers come
     *  from the caller, and may have any value. */
    int64_t upper_bound;
    bool whole; /**< Only for saved values. True: there is one value for the whole micro-batch, so
                 *   its shape has no n. */
} cgp_op_type;

/** A parameter of an op; it is f32 and named "NAME.SUFFIX", as in cgp_op_apply(). */
typedef struct cgp_op_parameter {
    const char *suffix; /**< The SUFFIX, such as "weight". Borrowed for the life of the model. */
    cgp_shape shape;
    cgp_init init;
    bool decays; /**< Weight decay applies (to weights, but not to biases and norms). */
} cgp_op_parameter;

/** A tensor that an op keeps across steps; it is named "NAME.SUFFIX", saved in checkpoints, and has
 *  no gradient. */
typedef struct cgp_op_state {
    /** The SUFFIX, such as "running_mean". Borrowed for the life of the model. */
    const char *suffix;
    cgp_dtype dtype; /**< Type: CGP_F32, or CGP_I32 for a count. */
    cgp_shape shape;
    float begin; /**< Initial value of all elements. */
} cgp_op_state;

/** Result of the shape rule; all fields are zero before the rule runs. */
typedef struct cgp_op_shapes {
    /** Type of the output; a loss leaves it zero. An integer output needs an `upper_bound` above
     *  0. */
    cgp_op_type output;
    int n_saved;
    /** f32 values that forward leaves for backward, in addition to x and y. */
    cgp_op_type saved[CGP_OP_MAX_SAVED];
    int n_parameters;
    cgp_op_parameter parameters[CGP_OP_MAX_PARAMETERS];
    int n_state;
    cgp_op_state state[CGP_OP_MAX_STATE];
    /** Size of the accumulator. During a step, the accumulator collects the changes that
     *  `end_of_step` makes to the state. */
    int64_t accumulator_bytes;
} cgp_op_shapes;

typedef struct cgp_op cgp_op;

/** One use of an op in a model. It never changes. */
typedef struct cgp_op_node {
    const cgp_op *op;
    /** The model's copy of the attributes; in cgp_op_check(), the caller's attributes. NULL: there
     *  are no attributes. */
    const void *attributes;
    cgp_op_type inputs[CGP_OP_MAX_INPUTS]; /**< [op->n_inputs] */
    cgp_op_shapes shapes;
} cgp_op_node;

typedef enum cgp_op_direction {
    CGP_OP_FORWARD,
    CGP_OP_BACKWARD_INPUT, /**< dx */
    CGP_OP_BACKWARD_WEIGHT /**< dparameters */
} cgp_op_direction;

/** The operands of one call. Operands that the op's table does not name are NULL. All operands are
 *  borrowed for the call. */
typedef struct cgp_op_run {
    const cgp_op_node *node;
    int64_t n; /**< Samples, >= 1. */
    /** [n, input k] inputs, f32 or i32. Backward gets only the inputs that the table names. */
    const void *x[CGP_OP_MAX_INPUTS];
    /** [n, output] The result. Written by forward; read by backward if the table names it. */
    void *y;
    /** The saved values of a node. Value k has shape [n, saved k], or [saved k] if it is marked as
     *  `whole`. Forward writes all saved values; backward reads the values that the table names. */
    float *saved[CGP_OP_MAX_SAVED];
    const float *parameters[CGP_OP_MAX_PARAMETERS];
    const float *dy; /**< [n, output] gradient of y; NULL for a loss. */
    /** [n, input k] gradient of input k. NULL if the gradient is not wanted, and always for
     *  integers. If weight_in_input is set, all may be NULL. */
    float *dx[CGP_OP_MAX_INPUTS];
    float *dparameters[CGP_OP_MAX_PARAMETERS]; /**< Gradients, summed over the n samples. */
    /** State: forward reads it, `end_of_step` changes it. */
    void *state[CGP_OP_MAX_STATE];
    /** [accumulator_bytes] Forward adds the step's changes of the state to the accumulator. NULL:
     *  the changes are dropped. */
    void *accumulator;
    /** For forward: true if this is the first micro-batch of the step, so that `accumulator` is
     *  uninitialized. */
    bool first;
    bool training;    /**< False in evaluation and prediction. */
    void *workspace;  /**< Scratch memory, uninitialized. It has as many bytes as the table's
                       *  `workspace` returned. */
    double *loss;     /**< For a loss: forward writes the sum over the n samples to *loss. */
    float loss_scale; /**< For a loss: in backward, dx is the gradient of loss_scale x the sum. */
    /** For cgp_op_random() and cgp_op_parallel_for(). */
    const struct cgp__op_context *context;
} cgp_op_run;

/**
 * An op: a plain value, in which unset fields are zero. The comments describe how a custom op sets
 * the fields. The functions of built-in ops are in the backends.
 *
 * Backward is two functions, which zero-bubble schedules run separately: backward_input (I) makes
 * dx from dy, and backward_weight (W) makes dparameters. The table names the other operands that
 * each of them reads. All other operands of forward are freed before backward, or were never
 * stored.
 */
struct cgp_op {
    size_t struct_size; /**< sizeof(cgp_op) */
    const char *name;   /**< The name in messages. */
    int n_inputs;       /**< 1 to 4. */
    /** Size of the attributes that cgp_op_apply() copies. 0: no attributes. */
    size_t attribute_bytes;
    bool is_loss; /**< True: the op is a loss, which ends a model and has no output; see
                   *  cgp_op_apply_loss(). */

    /** Check the inputs, and fill `out`. The message of cgp_fail() has the expected and the actual
     *  value; the library prefixes it with layer and op. The function must be deterministic. */
    cgp_status (*infer)(const void *attributes, const cgp_op_type *inputs, cgp_op_shapes *out);

    uint32_t input_needs_x;      /**< If bit k is set, backward_input reads x[k]. */
    uint32_t input_needs_saved;  /**< If bit k is set, backward_input reads saved[k]. */
    bool input_needs_y;          /**< backward_input reads y. */
    uint32_t weight_needs_x;     /**< If bit k is set, backward_weight reads x[k]. */
    uint32_t weight_needs_saved; /**< If bit k is set, backward_weight reads saved[k]. */
    bool weight_needs_y;         /**< backward_weight reads y. */

    /** True: backward_input also computes dparameters, and there is no backward_weight. This is
     *  meant for small parameters, such as the parameters of a norm. */
    bool weight_in_input;
    bool cheap;          /**< True: recomputing y is cheap enough that `+selective` modes do not
                          *  save it. */
    uint32_t overwrites; /**< If bit k is set, forward may write y over x[k]; both have the same
                          *   type and size. */
    /** backward_input may write dx over dy if their sizes are equal; a loss may write dx[k] over
     *  x[k]. */
    bool dx_in_place;

    cgp_status (*forward)(const cgp_op_run *run);
    /** Make dx from dy. NULL: no gradient passes through the op. */
    cgp_status (*backward_input)(const cgp_op_run *run);
    /** Make dparameters. NULL: the op has no parameters, or weight_in_input is set. */
    cgp_status (*backward_weight)(const cgp_op_run *run);

    /** Apply run->accumulator to run->state. The function runs on the device's worker, after a step
     *  that succeeded with finite numbers (see cgp_pipeline_step()). Only `node`, `state` and
     *  `accumulator` of `run` are set. NULL: the op has no state, or its state never changes. */
    void (*end_of_step)(const cgp_op_run *run);

    /** Return the workspace size in bytes for n samples on a device with `threads` threads. Fewer
     *  samples never need more workspace. NULL: the op needs no workspace. */
    int64_t (*workspace)(const cgp_op_node *node, cgp_op_direction direction, int64_t n,
                         int threads);

    /** Return the number of floating-point operations for one sample, for balances and simulated
     *  times. NULL: one operation for each element that the direction reads or writes. */
    double (*flops)(const cgp_op_node *node, cgp_op_direction direction);

    /** For a loss: return the divisor of the sum over a mini-batch, e.g. the number of targets that
     *  are not ignored. `targets` [n, input 1] is NULL if there is no input 1, or if the graph
     *  computes it. A NULL function: the divisor is n. */
    int64_t (*count)(const cgp_op_node *node, const void *targets, int64_t n);

    /** Return the bound of the caller's integers in input k, e.g. the number of classes. Before a
     *  step, integers outside 0 .. upper_bound - 1 are refused. A NULL function, or a bound of 0:
     *  all integers are valid. */
    int64_t (*upper_bound)(const cgp_op_node *node, int k);

    /** Must be NULL; reserved for kernels on devices that cannot call host functions. */
    const void *device;

    /** Return the number of bytes that forward of n samples allocates by itself, outside the plan,
     *  and keeps until the matching backward; -1: not known. Training plans count these bytes for
     *  the micro-batches in flight (cgp_plan_device.outside_bytes). A memory limit applies to the
     *  plan with these bytes included. If the number of bytes is not known, a plan with a memory
     *  limit is refused. A NULL function: forward allocates nothing. */
    int64_t (*outside_bytes)(const cgp_op_node *node, int64_t n);
};

/* --- functions for ops to call --- */

/** Write uniform random numbers in [0, 1). They depend only on (seed, step, op, sample, element).
 *  So forward, recomputation and backward get the same numbers, in every layout. @param[in] sample
 *  0 .. run->n - 1. @param[out] out [count] numbers of `count` elements, starting at `first`.
 *  Threads: any thread of the call. */
CGP_API void cgp_op_random(const cgp_op_run *run, int64_t sample, int64_t first, int64_t count,
                           float *out);

/** A function that processes items begin .. end - 1 of cgp_op_parallel_for(), on one of the
 *  device's threads 0 .. threads - 1. */
typedef void cgp_op_range(const cgp_op_run *run, void *work, int64_t begin, int64_t end,
                          int thread);

/** Run items on the threads of the device, and wait for all of them. A range begins at a multiple
 *  of `block` and may run at any time. A range must not write what another range reads or writes,
 *  so that the bits do not depend on the number of threads. A nested call runs all items on the
 *  calling thread.
 *  @param[in] work Borrowed; passed to each range. */
CGP_API void cgp_op_parallel_for(const cgp_op_run *run, int64_t items, int64_t block,
                                 cgp_op_range *range, void *work);

/** Return true inside a forward that is recomputed for backward. Such a forward should not count or
 *  print anything a second time. Returns false outside an op's forward. Threads: the threads that
 *  run the op. */
CGP_API bool cgp_is_recomputing(void);

#ifdef __cplusplus
}
#endif
#endif
