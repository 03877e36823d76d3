/* SPDX-License-Identifier: Apache-2.0 */
/* op.h -- what the graph and the plan know of an op: one table per op.
 *
 * A table tells how shapes follow, which operands each half of backward reads, what may share
 * memory, what it costs. The kernels themselves are the backend's, one per (kind, direction). B
 * is always the two halves one after the other. */
#ifndef CGP_SRC_OP_H
#define CGP_SRC_OP_H

#include "backend/backend.h"

/* Type of a value for one sample; the leading dimension N is not in it. */
typedef struct cgp__type {
    cgp_dtype dtype;
    cgp_shape shape;
    int64_t
        high;   /* integers that the graph makes are 0 .. high - 1; 0: the caller's, checked on
                     the host */
    bool whole; /* one for all samples of a micro-batch; of saved values only */
} cgp__type;

/* What a builder call says besides its inputs. Unused fields are zero. */
typedef struct cgp__attributes {
    int64_t size;   /* EMBEDDING: vocabulary. LINEAR: out */
    int64_t width;  /* EMBEDDING */
    int64_t heads;  /* ATTENTION */
    int64_t ignore; /* CROSS_ENTROPY */
    double p, eps, momentum, slope;
    bool bias, in_out;
    bool global; /* AVERAGE_POOL: one window, and [C] instead of [1,1,C] */
    int n_inputs;
    struct cgp__custom_use *custom; /* OWN: what is to be inferred */
    int kernel[2], stride[2];       /* height, width. UPSAMPLE: stride */
    int padding[4];                 /* top, bottom, left, right */
} cgp__attributes;

typedef struct cgp__op_parameter {
    const char *suffix; /* "weight" */
    cgp_shape shape;
    bool decays; /* not a bias, nor of a norm */
} cgp__op_parameter;

/* What a node keeps across steps: begins as `begin`, counts if dtype is CGP_I32. */
typedef struct cgp__op_state {
    const char *suffix; /* "running_mean" */
    cgp_dtype dtype;
    cgp_shape shape;
    float begin;
} cgp__op_state;

/* What follows from attributes and input types. */
typedef struct cgp__inferred {
    cgp__op_attributes attributes;
    cgp__type output; /* not for a loss */
    int n_saved, n_params, n_state;
    cgp__type saved[CGP__MAX_SAVED];
    cgp__op_parameter params[CGP__MAX_PARAMS];
    cgp__op_state state[CGP__MAX_STATE];
    int64_t accumulator_bytes; /* to collect what a step changes in the state */
} cgp__inferred;

/* Where the gradient of an input is made. */
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
    int n_inputs; /* the fewest, if there is no one number */
    bool is_loss;

    /* Check the input types and fill `out` (zeroed before). The message says what was expected
     * and what came. */
    cgp_status (*infer)(const cgp__attributes *attributes, const cgp__type *inputs,
                        cgp__inferred *out);

    /* Bit k: backward reads x[k]; saved[k]. Whether it reads y. */
    uint32_t input_needs_x, weight_needs_x, input_needs_saved, weight_needs_saved;
    bool input_needs_y, weight_needs_y;

    bool weight_in_input; /* dparam is made by BACKWARD_INPUT (norms) */
    bool cheap;           /* worth redoing rather than keeping */
    uint32_t overwrites;  /* bit k: forward may write y over x[k] */
    cgp__dx dx;

    /* Floating-point operations of a direction for one sample. */
    double (*flops)(const cgp__op_attributes *attributes, cgp__direction direction);

    /* Check `count` integers of input k on the host before anything runs; NULL: anything goes.
     * `bad` gets the place of the first that is out of range (data[*bad]), `high` the end of
     * the range: 0 <= data[i] < high. */
    bool (*valid)(const cgp__op_attributes *attributes, int k, const int32_t *data,
                  int64_t count, int64_t *bad, int64_t *high);

    /* Losses: how many of `count` targets count. OWN: `count` is the samples. */
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
