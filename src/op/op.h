/* SPDX-License-Identifier: Apache-2.0 */
/* op.h -- an op as the graph and the plan see it: one table per op.
 *
 * A table has the shape rule, the operands that backward I and W read, the operands that may share memory, and the cost. The
 * kernels are the backend's, one per (kind, direction). B is I, then W. */
#ifndef CGP_SRC_OP_H
#define CGP_SRC_OP_H

#include "backend/backend.h"

/* Type of a value for one sample; the leading dimension N is not in it. */
typedef struct cgp__type {
    cgp_dtype dtype;
    cgp_shape shape;
    /* Integers that the graph makes are 0 .. upper_bound - 1; 0: the caller's, checked on the host. */
    int64_t upper_bound;
    /* One for all samples of a micro-batch; of saved values only. */
    bool whole;
} cgp__type;

/* The arguments of a builder call besides its inputs. Unused fields are zero. */
typedef struct cgp__attributes {
    /* EMBEDDING: vocabulary. LINEAR, CONV2D: out. */
    int64_t size;
    /* EMBEDDING. */
    int64_t width;
    /* ATTENTION. */
    int64_t heads;
    /* CROSS_ENTROPY. */
    int64_t ignore;
    /* p: probability of dropout. */
    double p, eps, momentum, slope;
    /* transposed: LINEAR's weight is [in, out] instead of [out, in]. */
    bool bias, transposed;
    /* Pools: one window, and [C] instead of [1,1,C]. */
    bool global;
    int n_inputs;
    /* CUSTOM: the use to infer. */
    struct cgp__custom_use *custom;
    /* Height, width. UPSAMPLE: stride. */
    int kernel[2], stride[2];
    /* Top, bottom, left, right. */
    int padding[4];
} cgp__attributes;

typedef struct cgp__op_parameter {
    /* "weight" */
    const char *suffix;
    cgp_shape shape;
    /* Neither a bias nor of a norm. */
    bool decays;
} cgp__op_parameter;

/* A tensor that a node keeps across steps, `begin` at first; a count if dtype is CGP_I32. */
typedef struct cgp__op_state {
    /* "running_mean" */
    const char *suffix;
    cgp_dtype dtype;
    cgp_shape shape;
    float begin;
} cgp__op_state;

/* Result of the shape rule. */
typedef struct cgp__inferred {
    cgp__op_attributes attributes;
    /* Not for a loss. */
    cgp__type output;
    int n_saved, n_params, n_state;
    cgp__type saved[CGP__MAX_SAVED];
    cgp__op_parameter params[CGP__MAX_PARAMS];
    cgp__op_state state[CGP__MAX_STATE];
    /* Collects a step's changes to the state. */
    int64_t accumulator_bytes;
} cgp__inferred;

/* Memory of an input's gradient. */
typedef enum cgp__dx {
    CGP__DX_SEPARATE, /* its own memory */
    CGP__DX_IN_PLACE, /* may overwrite dy */
    CGP__DX_SAME,     /* is dy: nothing is computed */
    CGP__DX_OVER_X,   /* may overwrite x[0] (a loss, over its logits) */
    CGP__DX_NONE,     /* inputs are integers */
} cgp__dx;

typedef struct cgp__op {
    const char *name;
    cgp__op_kind kind;
    /* The minimum, if the number varies. */
    int n_inputs;
    bool is_loss;

    /* Check the input types and fill `out` (zeroed before). The message has what was expected and the actual value. */
    cgp_status (*infer)(const cgp__attributes *attributes, const cgp__type *inputs,
                        cgp__inferred *out);

    /* Bit k: backward reads x[k]; saved[k]. true: it reads y. */
    uint32_t input_needs_x, weight_needs_x, input_needs_saved, weight_needs_saved;
    bool input_needs_y, weight_needs_y;

    /* BACKWARD_INPUT makes dparam, too (norms). */
    bool weight_in_input;
    /* Worth recomputing instead of keeping. */
    bool cheap;
    /* Bit k: forward may write y over x[k]. */
    uint32_t overwrites;
    cgp__dx dx;

    /* Floating-point operations of a direction for one sample. */
    double (*flops)(const cgp__op_attributes *attributes, cgp__direction direction);

    /* Check `count` integers of input k on the host before a step; NULL: all are valid. `bad` gets the index of the first one out
     * of range: 0 <= data[i] < *upper_bound. */
    bool (*valid)(const cgp__op_attributes *attributes, int k, const int32_t *data,
                  int64_t count, int64_t *bad, int64_t *upper_bound);

    /* Losses: the number of `count` targets that count. CUSTOM: `count` is the samples. */
    int64_t (*count)(const cgp__op_attributes *attributes, const void *targets, int64_t count);
} cgp__op;

/* The table of a kind. */
const cgp__op *cgp__op_find(cgp__op_kind kind);

extern const cgp__op cgp__op_embedding, cgp__op_position, cgp__op_add, cgp__op_linear,
    cgp__op_layer_norm, cgp__op_gelu, cgp__op_gelu_tanh, cgp__op_attention, cgp__op_dropout,
    cgp__op_cross_entropy, cgp__op_argmax, cgp__op_bce, cgp__op_relu, cgp__op_dropout2d,
    cgp__op_flatten, cgp__op_conv2d, cgp__op_max_pool, cgp__op_average_pool, cgp__op_upsample,
    cgp__op_pad, cgp__op_concat, cgp__op_batch_norm, cgp__op_instance_norm;

#endif
