/* SPDX-License-Identifier: Apache-2.0 */
/* model.h -- the graph as partition, plan and pipeline read it. Built by builder.c, closed by
 * finish.c, then constant. */
#ifndef CGP_SRC_MODEL_H
#define CGP_SRC_MODEL_H

#include <cgpipe/model.h>

#include "op/op.h"

typedef struct cgp__value_info {
    cgp__type type; /* of one sample */
    int node;       /* that makes it, -1 for an input */
    int input;      /* index of the input, -1 for a node's */
    bool has_grad;  /* f32, depends on a parameter, and what is trained depends on it; known
                       after finish */
} cgp__value_info;

typedef struct cgp__node {
    const cgp__op *op;
    cgp__op_attributes attributes;
    int layer;
    uint32_t id; /* of its random numbers: place in the order of building, whatever was left out
                    later */
    int inputs[CGP__MAX_INPUTS];
    int output; /* value, -1 for a loss */
    int n_inputs, n_saved, n_params, n_state;
    cgp__type saved[CGP__MAX_SAVED];
    int params[CGP__MAX_PARAMS];
    int uses[CGP__MAX_PARAMS]; /* of them, in the model's uses; known after finish */
    int first_state;           /* of its n_state in the model's, in their order */
    int64_t accumulator_bytes;
    double loss_weight; /* of a loss, in the sum of all */
    bool
        requires_grad; /* what is trained depends on it: the losses, or the output of a model without
                     one; known after finish */
} cgp__node;

typedef struct cgp__parameter {
    char *name;
    cgp_shape shape;
    cgp_init init;
    bool decays;           /* where weight decay spares norms and biases: is neither */
    int first_use, n_uses; /* in the model's uses; known after finish */
    bool requires_grad;    /* a node that uses it is; known after finish */
} cgp__parameter;

/* What a node keeps across steps: its state k, `name` = `<node's name>.<suffix>`. */
typedef struct cgp__state {
    char *name;
    cgp__op_state info;
    int node, k; /* known after finish */
} cgp__state;

/* A node that reads a parameter: its params[k]. */
typedef struct cgp__use {
    int parameter, node, k;
} cgp__use;

/* A name that a later op's parameter would get, and the parameter it shares instead. */
typedef struct cgp__tie {
    char *name;
    int parameter;
    bool used;
} cgp__tie;

/* A value kept under a name until it is popped. */
typedef struct cgp__stash {
    char *space, *name; /* "": the common namespace */
    int value;
    int layer, popped_in; /* -1: in front of all layers */
    bool popped;
} cgp__stash;

/* Kinds of things whose names are unique among their kind. */
typedef enum cgp__names {
    CGP__NAMES_INPUT,
    CGP__NAMES_PARAMETER,
    CGP__NAMES_STATE,
    CGP__NAMES_TIE,
    CGP__NAMES
} cgp__names;

struct cgp_model {
    char *name;
    bool finished;
    cgp_status status; /* the first error of the building */
    char *error;

    int n_values, n_nodes, n_params, n_states, n_layers, n_inputs;
    int values_capacity, nodes_capacity, params_capacity, states_capacity, layers_capacity,
        inputs_capacity;
    cgp__value_info *values;
    cgp__node *nodes; /* in order; layers ascend; losses come last */
    cgp__parameter *params;
    cgp__state *states; /* in order of the nodes */
    char **layers;
    char **inputs; /* names */
    int *input_values;
    int input_values_capacity;

    cgp__use *uses; /* by parameter, then in order of the nodes; known after finish */
    int n_uses;
    cgp__tie *ties;
    int n_ties, ties_capacity;
    struct cgp__custom_use **custom; /* uses of ops from outside, [n_custom] */
    int n_custom, custom_capacity;
    cgp__stash *stashes; /* in order of their calls */
    int n_stashes, stashes_capacity;
    cgp__index names[CGP__NAMES], stash_names; /* while it is built */

    int n_losses; /* the last n_losses nodes, once the model is finished */
    int output;   /* value, -1 if none */
};

/* Bytes of a value, or of anything of this type, for n samples. */
int64_t cgp__type_bytes(const cgp__type *type, int64_t n);

/* Elements `first` .. `first + count - 1` of a parameter's start: a function of (seed,
 * parameter, element). */
void cgp__init_fill(const cgp_init *init, uint64_t seed, int parameter, int64_t first,
                    int64_t count, float *out);

/* Node of loss `l`, 0 .. n_losses - 1. The model is finished. */
static inline int cgp__model_loss(const cgp_model *model, int l) {
    return model->n_nodes - model->n_losses + l;
}

/* Tell whether backward of a node has an input half, a weight half. */
bool cgp__node_has_direction(const cgp_model *model, const cgp__node *node,
                             cgp__direction direction);

#endif
