/* SPDX-License-Identifier: Apache-2.0 */
/* backend.h -- a device: memory, copies, and one kernel per (op, direction).
 *
 * `ref` runs plain loops with double sums and is the oracle; `cpu` runs vector kernels. Each backend is one table.
 * A kernel is created once for op attributes and a number of samples, by the thread that runs it, and allocates nothing when
 * it runs: all memory, its workspace included, comes with the call.
 *
 * Operands by op; n samples, R = rows, C = out unless said; all row-major. ids, targets and ARGMAX's y are i32; x, y, dy and
 * dx otherwise of the spec's type, f32 or bf16; saved, param and dparam always f32. Arithmetic is f32 at least: bf16 is
 * widened when it is read and rounded when it is written, also where a kernel adds to a dx.
 *
 *   op             x[0]             x[1]           y        saved                   param
 *   EMBEDDING      ids [n,R] i32    -              [n,R,C]  -                       weight [in,C]
 *   POSITION       [n,R,C]          -              [n,R,C]  -                       weight [R,C]
 *   ADD            [n,R,C]          [n,R,C]        [n,R,C]  -                       -
 *   LINEAR         [n,R,in]         -              [n,R,C]  -                       weight, bias
 *   LAYER_NORM     [n,R,C]          -              [n,R,C]  mean [n,R], rstd [n,R]  weight, bias [C]
 *   elementwise    [n,R,C]          -              [n,R,C]  -                       -
 *   ATTENTION      qkv [n,R,3C]     -              [n,R,C]  lse [n,heads,R]         -
 *   DROPOUT        [n,R,C]          -              [n,R,C]  -                       -
 *   CROSS_ENTROPY  logits [n,R,in]  targets [n,R]  -        lse [n,R]               -
 *   ARGMAX         [n,R,in]         -              [n,R]    -                       -
 *   BCE            logits [n,R,C]   targets, same  -        -                       -
 *   DROPOUT2D      [n,R,C]          -              [n,R,C]  -                       -
 *   FLATTEN        [n,R,C]          -              [n,R,C]  -                       -
 *   CONV2D         [n,H,W,in]       -              [n,R,C]  -                       weight, bias
 *   MAX_POOL       [n,H,W,C]        -              [n,R,C]  -                       -
 *   AVERAGE_POOL   [n,H,W,C]        -              [n,R,C]  -                       -
 *   UPSAMPLE       [n,H,W,C]        -              [n,R,C]  -                       -
 *   PAD            [n,H,W,C]        -              [n,R,C]  -                       -
 *   CONCAT         [n,R,parts[0]]   .. x[3]        [n,R,C]  -                       -
 *   BATCH_NORM     [n,R,C]          -              [n,R,C]  mean [C], rstd [C]      weight, bias [C]
 *   INSTANCE_NORM  [n,R,C]          -              [n,R,C]  mean, rstd [n,C]        -
 *   CUSTOM         as in cgpipe/op.h
 *
 * in is the vocabulary of EMBEDDING, the classes of CROSS_ENTROPY. LINEAR's weight is [C,in], or [in,C] if transposed; its bias
 * is [C], if has_bias. GELU is the erf form, GELU_TANH the one with tanh;
 * ATTENTION is causal. BCE's targets are of the spec's type.
 *
 * Images: R = out_height x out_width. Element (u, v) of the window of output pixel (i, j) is input pixel (i stride_height + u -
 * top, j stride_width + v - left), if it exists: elsewhere CONV2D has zero and the pools have nothing (a window always has a
 * pixel; the first of equals is the maximum, a NaN is larger than all). CONV2D's weight is [kernel_height,kernel_width,in,C].
 * UPSAMPLE's pixel (i, j) is pixel (i / stride_height, j / stride_width); PAD's is (i - top, j - left), or zero. BATCH_NORM's
 * mean and variance are over all samples and rows of the run, INSTANCE_NORM's over the rows of a sample, both per channel.
 *
 * BATCH_NORM's state is its running statistics. In `training` forward collects them in `accumulator` (running_stats.h), if it is
 * not NULL, and commit() moves them to the state. Outside training forward normalises with the state and saves nothing, and
 * backward is not run.
 *
 * Every op has FORWARD; all but EMBEDDING and ARGMAX have BACKWARD_INPUT; EMBEDDING, POSITION, LINEAR and CONV2D have
 * BACKWARD_WEIGHT. There is no other pair.
 *
 * Operands that may share memory: y with x[k] where the op allows it (op.h, `overwrites`); dx[0] with dy where `dx` is in
 * place; the dx[0] of CROSS_ENTROPY and BCE with its x[0]; a dx[k] that is added to with a dx[l], l > k (both inputs are one
 * value: dx is made from the last input to the first). Nothing else overlaps. */
#ifndef CGP_SRC_BACKEND_H
#define CGP_SRC_BACKEND_H

#include <cgpipe/op.h>

#include "base/base.h"

/* The built-in ops, X(KIND, name): CGP__OP_KIND; its description is cgp__op_name (op/), its kernels are cgp__ref_name and
 * cgp__cpu_name. The first list has the elementwise ops of one input, whose backward reads either x or y. */
#define CGP__ELEMENTWISE_OPS(X)                                                                \
    X(GELU, gelu)                                                                              \
    X(GELU_TANH, gelu_tanh)                                                                    \
    X(SILU, silu)                                                                              \
    X(RELU, relu)

#define CGP__OPS(X)                                                                            \
    CGP__ELEMENTWISE_OPS(X)                                                                    \
    X(EMBEDDING, embedding)                                                                    \
    X(POSITION, position)                                                                      \
    X(ADD, add)                                                                                \
    X(LINEAR, linear)                                                                          \
    X(LAYER_NORM, layer_norm)                                                                  \
    X(ATTENTION, attention)                                                                    \
    X(DROPOUT, dropout)                                                                        \
    X(CROSS_ENTROPY, cross_entropy)                                                            \
    X(ARGMAX, argmax)                                                                          \
    X(BCE_WITH_LOGITS, bce_with_logits)                                                        \
    X(DROPOUT2D, dropout2d)                                                                    \
    X(FLATTEN, flatten)                                                                        \
    X(CONV2D, conv2d)                                                                          \
    X(MAX_POOL, max_pool)                                                                      \
    X(AVERAGE_POOL, average_pool)                                                              \
    X(UPSAMPLE, upsample)                                                                      \
    X(PAD, pad)                                                                                \
    X(CONCAT, concat)                                                                          \
    X(BATCH_NORM, batch_norm)                                                                  \
    X(INSTANCE_NORM, instance_norm)

#define CGP__OP_ENUM(kind, name) CGP__OP_##kind,
typedef enum cgp__op_kind {
    CGP__OPS(CGP__OP_ENUM) CGP__OP_KINDS,
    CGP__OP_CUSTOM = CGP__OP_KINDS /* a user's: host.h */
} cgp__op_kind;

enum { CGP__DIRECTIONS = CGP_OP_BACKWARD_WEIGHT + 1 };

/* Operands of forward that a direction of backward reads: bit k of x, of saved; y. */
typedef struct cgp__op_needs {
    uint32_t x, saved;
    bool y;
} cgp__op_needs;

static inline cgp__op_needs cgp__op_needs_of(const cgp_op *op, cgp_op_direction direction) {
    if (direction == CGP_OP_BACKWARD_INPUT)
        return (cgp__op_needs){op->input_needs_x, op->input_needs_saved, op->input_needs_y};
    return (cgp__op_needs){op->weight_needs_x, op->weight_needs_saved, op->weight_needs_y};
}

/* Sizes of an op for one sample, and its constants. Fields that an op has no use for are zero or follow from others, so that equal
 * uses are equal bytes. */
typedef struct cgp__op_attributes {
    /* CUSTOM: one use of it in a model. */
    const cgp_op_node *custom;
    /* Of one sample: the product of all dimensions but the last. */
    int64_t rows;
    /* Width of a row before and after; vocabulary or classes as listed above. */
    int64_t in, out;
    int64_t heads;
    /* CROSS_ENTROPY: the target of rows that do not count. */
    int64_t ignore;
    /* CONCAT: width of each input, 0 behind the last one. */
    int64_t parts[CGP_OP_MAX_INPUTS];
    /* DROPOUT, DROPOUT2D, ATTENTION: probability that an element is set to zero, 0 <= p < 1. */
    float p;
    /* Norms. */
    float eps;
    /* BATCH_NORM: weight of the new value in running statistics; < 0: 1 / steps. */
    float momentum;
    /* RELU: y = slope x below 0. ADD and the channel norms end in a RELU of this slope; 1: in none. */
    float slope;
    /* Images: of the input. */
    int32_t height, width;
    int32_t out_height, out_width;
    int32_t kernel_height, kernel_width;
    int32_t stride_height, stride_width;
    /* Pixels of padding in front of the input; below 0: cropped. */
    int32_t top, left;
    int32_t has_bias;
    /* LINEAR's weight layout: 0: [out, in], y = x weight^T; 1: the transposed layout [in, out], y = x weight. */
    int32_t transposed;
} cgp__op_attributes;

typedef struct cgp__kernel_spec {
    cgp__op_kind op;
    cgp_op_direction direction;
    cgp__op_attributes attributes;
    /* Samples. */
    int64_t n;
    /* Bit k: dx[k] is added to instead of overwritten. */
    uint32_t add;
    /* Of x, y, dy and dx: CGP_F32 or CGP_BF16. */
    cgp_dtype type;
} cgp__kernel_spec;

/* Specs are compared as bytes, so they have no padding. */
_Static_assert(sizeof(cgp__kernel_spec) ==
                   2 * sizeof(cgp__op_kind) + sizeof(cgp__op_attributes) + 16,
               "padding");

/* An entry of a kernel's prefetch list: memory that the kernels after it read, in their order. A backend may ignore the list; it
 * changes no result. */
typedef struct cgp__prefetch {
    const void *at;
    int64_t bytes;
} cgp__prefetch;

#define CGP__MAX_PREFETCH 8

/* The operands of one run. Those that a direction does not read or write may be NULL, and so may a dx[k] that is not wanted. */
typedef struct cgp__kernel_args {
    const void *x[CGP_OP_MAX_INPUTS];
    /* Written by forward, read by backward. */
    void *y;
    float *saved[CGP_OP_MAX_SAVED];
    /* As the op's table lists it. */
    void *state[CGP_OP_MAX_STATE];
    /* Collects the step's changes to the state; NULL: none. */
    void *accumulator;
    const float *param[CGP_OP_MAX_PARAMETERS];
    const void *dy;
    void *dx[CGP_OP_MAX_INPUTS];
    float *dparam[CGP_OP_MAX_PARAMETERS];
    /* As many bytes as the backend's workspace() returned. */
    void *workspace;
    /* dparam, or the accumulator, is overwritten; otherwise added to. */
    bool first;
    /* Dropout is on; BATCH_NORM takes its statistics from x. */
    bool training;
    /* BATCH_NORM: running statistics of whole mini-batches. */
    bool deferred;
    /* CUSTOM: forward is recomputed, for backward. */
    bool recomputing;
    /* Of (seed, step, op). */
    cgp__rng_key key;
    /* Index of the first sample in the mini-batch: dropout's counter. */
    int64_t sample;
    /* Losses, forward: the sum over rows in order, overwritten. */
    double *loss;
    /* Losses, backward: 1 / count of the whole mini-batch. */
    float loss_scale;
    /* LINEAR: at most CGP__MAX_PREFETCH; others: 0. */
    const cgp__prefetch *prefetch;
    int n_prefetch;
} cgp__kernel_args;

/* The dropout rule, the same in every backend. DROPOUT's element (row, column) of a sample is number e = row * out + column of
 * group 0; all elements of DROPOUT2D's channel e are number e of group 0; ATTENTION's probability (head, query, key) is number
 * e = key of group head * rows + query. Element e keeps its value, times 1 / (1 - p), if word e % 4 of Philox(key, {e / 4,
 * group, sample low, sample high}) is >= p * 2^32. */
static inline uint32_t cgp__dropout_threshold(float p) {
    return (uint32_t)((double)p * 4294967296.0);
}

/* Defined by each backend. */
typedef struct cgp__device cgp__device;
typedef struct cgp__kernel cgp__kernel;

/* Items begin .. end - 1 of a parallel_for, begin a multiple of its block; `thread` is 0 for the owner. */
typedef void cgp__range(const void *work, int64_t begin, int64_t end, int thread);

typedef enum cgp__update_rule {
    CGP__UPDATE_SGD,
    CGP__UPDATE_ADAMW,
    CGP__UPDATE_ADAM,
    CGP__UPDATE_RMSPROP
} cgp__update_rule;

/* One optimizer update of one parameter, elementwise. Formulas: optim/optim.c. */
typedef struct cgp__update {
    cgp__update_rule rule;
    int64_t n;
    float *param;
    const float *grad;
    /* SGD: momentum buffer or NULL. ADAM, ADAMW: first and second moment. RMSPROP: mean square; momentum buffer or NULL. */
    float *state[2];
    /* Constants in double: 1 - 0.999f would be off by 5e-5. */
    double lr, weight_decay;
    /* SGD, RMSPROP. */
    double momentum;
    bool nesterov;
    /* ADAM, ADAMW; eps: RMSPROP too. */
    double beta1, beta2, eps;
    /* ADAM, ADAMW: 1 - beta1^t; sqrt(1 - beta2^t). */
    double correction1, correction2_sqrt;
    /* RMSPROP. */
    double alpha;
    /* Multiplies the gradient first. */
    double gradient_scale;
} cgp__update;

typedef struct cgp__backend {
    const char *name;
    /* ADD and the channel norms take a slope other than 1; the bits are those of two kernels. */
    bool fuses;

    /* A device belongs to the thread that creates it, which is pinned to `core`, unless that is -1. */
    cgp_status (*device_create)(cgp__device **out, int threads, int core);
    void (*device_destroy)(cgp__device *device);

    /* Zeroed memory at a multiple of CGP__ALIGN, resident on return. */
    cgp_status (*memory_create)(cgp__device *device, size_t bytes, void **out);
    void (*memory_destroy)(cgp__device *device, void *memory, size_t bytes);

    /* Copies: within a device, from host memory, to host memory. */
    void (*copy)(cgp__device *device, void *to, const void *from, size_t bytes);

    /* Copy n elements within a device, or from or to host memory, from one type to another; i32 stays i32. */
    void (*convert)(cgp__device *device, cgp_dtype to_type, void *to, cgp_dtype from_type,
                    const void *from, int64_t n);

    /* Bytes of workspace of a kernel on a device of `threads` threads; needs no device. Fewer samples never need more. */
    cgp_status (*workspace)(const cgp__kernel_spec *spec, int threads, int64_t *bytes);

    cgp_status (*kernel_create)(cgp__device *device, const cgp__kernel_spec *spec,
                                cgp__kernel **out);
    cgp_status (*kernel_run)(cgp__kernel *kernel, const cgp__kernel_args *args);
    void (*kernel_destroy)(cgp__kernel *kernel);

    /* The end of a step: move args->accumulator to args->state. */
    void (*commit)(cgp__device *device, const cgp__kernel_spec *spec,
                   const cgp__kernel_args *args);

    /* Index of the first state to which commit() would write a number that is not finite; -1: none, or a custom op. */
    int (*check_commit)(cgp__device *device, const cgp__kernel_spec *spec,
                        const cgp__kernel_args *args);

    void (*update)(cgp__device *device, const cgp__update *update);

    /* to[i] += from[i]. */
    void (*add)(cgp__device *device, float *to, const float *from, int64_t n);

    /* The sum of x[i]^2, in double; a function of the values and n alone. */
    double (*sum_squares)(cgp__device *device, const float *x, int64_t n);

    /* The first i with x[i] infinite or NaN; -1: all n are finite. */
    int64_t (*find_nonfinite)(cgp__device *device, const float *x, int64_t n);
} cgp__backend;

extern const cgp__backend cgp__backend_ref;
extern const cgp__backend cgp__backend_cpu;

/* The spec is of one of CGP__OPS, a direction, and 1 or more samples and rows. @retval CGP_EINVAL "BACKEND: expects ..." */
cgp_status cgp__kernel_check(const char *backend, const cgp__kernel_spec *spec);
/* CGP_EINVAL: the op of a checked spec has no kernel in its direction. */
cgp_status cgp__kernel_missing(const char *backend, const cgp__kernel_spec *spec);

/* The backend of a device name ("cpu", "ref"). @retval CGP_EINVAL with the nearest name. */
cgp_status cgp__backend_find(const char *name, const cgp__backend **out);

#endif
