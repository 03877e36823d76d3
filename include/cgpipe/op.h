/* SPDX-License-Identifier: Apache-2.0 */
/* op.h -- the description of an op, built-in or custom: a table of its shape rule, the operands
 * that each half of backward reads, its state and its cost. How to write one: cgpipe/ext/op.h. */
#ifndef CGPIPE_OP_H
#define CGPIPE_OP_H

#include <cgpipe/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Parameter initialization. The last four go by fan: fan_in is the number of inputs that an output
 *  of the op sums, fan_out the number of outputs that an input goes to. */
typedef enum cgp_init_kind {
    CGP_INIT_ZERO,
    CGP_INIT_ONE,
    CGP_INIT_NORMAL,
    CGP_INIT_UNIFORM,
    /** NORMAL, numbers further than 2 scale from 0 drawn again: TensorFlow's TruncatedNormal,
     *  PyTorch's trunc_normal_() with a = -2 std, b = 2 std. Those that remain have a standard
     *  deviation of 0.88 scale. */
    CGP_INIT_TRUNCATED_NORMAL,
    /** UNIFORM in +- scale sqrt(6 / (fan_in + fan_out)). Source: Glorot and Bengio 2010. */
    CGP_INIT_XAVIER_UNIFORM,
    /** NORMAL of scale sqrt(2 / (fan_in + fan_out)). Source: as above. */
    CGP_INIT_XAVIER_NORMAL,
    /** UNIFORM in +- scale sqrt(3 / fan_in). Source: He et al. 2015, arXiv:1502.01852. */
    CGP_INIT_KAIMING_UNIFORM,
    /** NORMAL of scale / sqrt(fan_in). Source: as above. */
    CGP_INIT_KAIMING_NORMAL
} cgp_init_kind;

typedef struct cgp_init {
    cgp_init_kind kind;
    /** NORMAL, TRUNCATED_NORMAL: standard deviation. UNIFORM: in [-scale, scale). By fan: the gain,
     *  PyTorch's calculate_gain(): 1 in front of no activation, sqrt(2) of a RELU, sqrt(2 / (1 +
     *  a^2)) of one with slope a; nn.Linear and nn.Conv2d begin with KAIMING_UNIFORM of gain 1 /
     *  sqrt(3), weight and bias. >= 0 and finite for every kind. */
    double scale;
} cgp_init;

/** Resolve an initialization by fan to NORMAL or UNIFORM; others are returned as they are. The
 *  library's own ops do so by the layout of their weights; the shape rule of a custom op calls
 *  this. @param[in] fan_in >= 1. @param[in] fan_out >= 1. */
CGP_API cgp_init cgp_init_by_fan(cgp_init init, int64_t fan_in, int64_t fan_out);

/** Frequencies of a rotary embedding for sequences longer than a model was first trained on. */
typedef enum cgp_rotary_scaling {
    CGP_ROTARY_UNSCALED,
    CGP_ROTARY_LINEAR, /**< All are divided. Source: Chen et al. 2023, arXiv:2306.15595. */
    CGP_ROTARY_LLAMA3 /**< Low ones are. Source: Grattafiori et al. 2024, arXiv:2407.21783; the release of Llama 3.1. */
} cgp_rotary_scaling;

/** Limits of one op. */
enum {
    CGP_OP_MAX_INPUTS = 4,
    CGP_OP_MAX_SAVED = 4,
    CGP_OP_MAX_PARAMETERS = 4,
    CGP_OP_MAX_STATE = 4
};

/** Type of a value, of one sample: N is not in it. */
typedef struct cgp_op_type {
    cgp_dtype dtype; /**< CGP_F32 or CGP_I32. */
    cgp_shape shape;
    /** Integers that the graph makes are 0 .. upper_bound - 1; 0: the caller's, which may be
     *  anything. */
    int64_t upper_bound;
    bool whole; /**< A saved value: one for the micro-batch, without a leading n. */
} cgp_op_type;

/** A parameter of an op; it is f32 and named "NAME.SUFFIX", as in cgp_op_apply(). */
typedef struct cgp_op_parameter {
    const char *suffix; /**< "weight". Borrowed, as long as the model. */
    cgp_shape shape;
    cgp_init init;
    bool decays; /**< Weight decay applies, as to weights and not to biases and norms. */
} cgp_op_parameter;

/** A tensor that an op keeps across steps; it is named "NAME.SUFFIX", saved in checkpoints, and has
 *  no gradient. */
typedef struct cgp_op_state {
    const char *suffix; /**< "running_mean". Borrowed, as long as the model. */
    cgp_dtype dtype;    /**< CGP_F32, or CGP_I32 for a count. */
    cgp_shape shape;
    float begin; /**< Initial value of all elements. */
} cgp_op_state;

/** Result of the shape rule; zero before it runs. */
typedef struct cgp_op_shapes {
    cgp_op_type output; /**< Of a loss: left zero. Integers with `upper_bound` above 0. */
    int n_saved;
    /** f32 values that forward leaves for backward, besides x and y. */
    cgp_op_type saved[CGP_OP_MAX_SAVED];
    int n_parameters;
    cgp_op_parameter parameters[CGP_OP_MAX_PARAMETERS];
    int n_state;
    cgp_op_state state[CGP_OP_MAX_STATE];
    /** Collects, in a step, the changes that `end_of_step` makes to the state. */
    int64_t accumulator_bytes;
} cgp_op_shapes;

typedef struct cgp_op cgp_op;

/** One use of an op in a model; constant. */
typedef struct cgp_op_node {
    const cgp_op *op;
    const void *attributes; /**< The model's copy (in cgp_op_check() the caller's); NULL: none. */
    cgp_op_type inputs[CGP_OP_MAX_INPUTS]; /**< [op->n_inputs] */
    cgp_op_shapes shapes;
} cgp_op_node;

typedef enum cgp_op_direction {
    CGP_OP_FORWARD,
    CGP_OP_BACKWARD_INPUT, /**< dx */
    CGP_OP_BACKWARD_WEIGHT /**< dparameters */
} cgp_op_direction;

/** The operands of one call. Operands that the table does not name are NULL. All Borrowed, for the
 *  call. */
typedef struct cgp_op_run {
    const cgp_op_node *node;
    int64_t n; /**< Samples, >= 1. */
    /** [n, input k], f32 or i32. Backward: those that the table names. */
    const void *x[CGP_OP_MAX_INPUTS];
    /** [n, output]. Written by forward; read by backward if the table names it. */
    void *y;
    /** [n, saved k], or [saved k] if it is `whole`. Forward writes all; backward reads those that
     *  the table names. */
    float *saved[CGP_OP_MAX_SAVED];
    const float *parameters[CGP_OP_MAX_PARAMETERS];
    const float *dy; /**< [n, output]; NULL for a loss. */
    /** [n, input k]. NULL if not wanted (with weight_in_input possibly all); of integers always. */
    float *dx[CGP_OP_MAX_INPUTS];
    float *dparameters[CGP_OP_MAX_PARAMETERS]; /**< Sums over the n samples. */
    void *state[CGP_OP_MAX_STATE];             /**< Read by forward, changed by `end_of_step`. */
    /** accumulator_bytes. Forward adds the step's changes to it; NULL: this run does not count. */
    void *accumulator;
    bool first;       /**< Forward: `accumulator` is garbage; this micro-batch is the first. */
    bool training;    /**< False in evaluation and prediction. */
    void *workspace;  /**< As many bytes as the table's `workspace` returned; garbage. */
    double *loss;     /**< A loss, forward: write the sum over the n samples. */
    float loss_scale; /**< A loss, backward: dx is that of loss_scale times the sum. */
    /** For cgp_op_random() and cgp_op_parallel_for(). */
    const struct cgp__op_context *context;
} cgp_op_run;

/**
 * An op. A plain value, complete in itself; unset fields are zero. The fields are described as a
 * custom op sets them: the functions of a built-in op are the backends'.
 *
 * Backward is two functions, which zero-bubble schedules run apart: backward_input (I) makes dx
 * from dy, backward_weight (W) makes dparameters. The table names the other operands that each of
 * them reads; all others of forward are freed by then, or never made.
 */
struct cgp_op {
    size_t struct_size;     /**< sizeof(cgp_op) */
    const char *name;       /**< In messages. */
    int n_inputs;           /**< 1 to 4. */
    size_t attribute_bytes; /**< Of what cgp_op_apply() copies. 0: none. */
    bool is_loss;           /**< Ends a model: no output, see cgp_op_apply_loss(). */

    /** Check the inputs, and fill `out`. The message of cgp_fail() has what was expected and the
     *  actual value; it is prefixed with layer and op. Deterministic. */
    cgp_status (*infer)(const void *attributes, const cgp_op_type *inputs, cgp_op_shapes *out);

    uint32_t input_needs_x;      /**< Bit k: backward_input reads x[k]. */
    uint32_t input_needs_saved;  /**< Bit k: backward_input reads saved[k]. */
    bool input_needs_y;          /**< backward_input reads y. */
    uint32_t weight_needs_x;     /**< Bit k: backward_weight reads x[k]. */
    uint32_t weight_needs_saved; /**< Bit k: backward_weight reads saved[k]. */
    bool weight_needs_y;         /**< backward_weight reads y. */

    /** backward_input makes dparameters too (small ones, as of norms); no backward_weight. */
    bool weight_in_input;
    bool cheap;          /**< Worth recomputing instead of keeping y (`+selective`). */
    uint32_t overwrites; /**< Bit k: forward may write y over x[k] (of y's type and size). */
    /** backward_input may write dx over dy, if of one size; a loss, dx[k] over x[k]. */
    bool dx_in_place;

    cgp_status (*forward)(const cgp_op_run *run);
    /** NULL: no gradient passes through. */
    cgp_status (*backward_input)(const cgp_op_run *run);
    /** NULL: no parameters, or weight_in_input. */
    cgp_status (*backward_weight)(const cgp_op_run *run);

    /** Move run->accumulator to run->state, on the device's worker when a step has succeeded and
     *  its numbers are finite (see cgp_pipeline_step()). Only node, state and accumulator are set.
     *  NULL: no state, or one that never changes. */
    void (*end_of_step)(const cgp_op_run *run);

    /** Bytes of workspace for n samples on a device of `threads` threads; fewer samples never need
     *  more. NULL: none. */
    int64_t (*workspace)(const cgp_op_node *node, cgp_op_direction direction, int64_t n,
                         int threads);

    /** Floating-point operations for one sample, for balances and simulated times. NULL: one for
     *  each element that the direction reads or writes. */
    double (*flops)(const cgp_op_node *node, cgp_op_direction direction);

    /** A loss: the divisor of the sum over a mini-batch, e.g. the number of targets that count.
     *  `targets` [n, input 1]: NULL if there is no input 1 or if the graph makes it. NULL: the
     *  samples, n. */
    int64_t (*count)(const cgp_op_node *node, const void *targets, int64_t n);

    /** The caller's integers of input k are refused before a step unless they are 0 .. upper_bound
     *  - 1, e.g. the number of classes. NULL, or 0: all are valid. */
    int64_t (*upper_bound)(const cgp_op_node *node, int k);

    /** Reserved, for kernels on devices that call no functions of the host: NULL. */
    const void *device;
};

/* --- functions for ops to call --- */

/** Make uniform numbers in [0, 1), a function of (seed, step, op, sample, element) alone: equal in
 *  forward, recomputation, backward, and in every layout. @param[in] sample 0 .. run->n - 1.
 *  @param[out] out [count], of the elements from `first` on. Threads: any of the call. */
CGP_API void cgp_op_random(const cgp_op_run *run, int64_t sample, int64_t first, int64_t count,
                           float *out);

/** Items begin .. end - 1 of cgp_op_parallel_for(), on thread 0 .. threads - 1 of the device. */
typedef void cgp_op_range(const cgp_op_run *run, void *work, int64_t begin, int64_t end,
                          int thread);

/** Run items on the threads of the device, and wait for all of them. A range begins at a multiple
 *  of `block`, may run at any time, and writes nothing that another reads or writes; then bits do
 *  not depend on the threads. A nested call runs all items on the calling thread.
 *  @param[in] work Borrowed; passed to each range. */
CGP_API void cgp_op_parallel_for(const cgp_op_run *run, int64_t items, int64_t block,
                                 cgp_op_range *range, void *work);

/** Return true in a forward that is recomputed for backward, which counts nothing and prints
 *  nothing a second time. false outside of an op's forward. Threads: the op's own. */
CGP_API bool cgp_is_recomputing(void);

#ifdef __cplusplus
}
#endif
#endif
