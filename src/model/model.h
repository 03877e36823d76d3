/* SPDX-License-Identifier: Apache-2.0 */
/* model.h -- declares the graph, which partition, plan and pipeline read. builder.c builds the
 * graph, and finish.c closes it. After that, the graph is constant. */
#ifndef CGP_SRC_MODEL_H
#define CGP_SRC_MODEL_H

#include <cgpipe/ext/ops.h>
#include <cgpipe/model.h>

#include "base/base.h"

typedef struct cgp__value_info {
    /* type of one sample */
    cgp_op_type type;
    /* node that computes the value; -1 for an input */
    int node;
    /* index of the input; -1 for a node's result */
    int input;
    /* index of the output; -1 for a value that is not an output */
    int output;
    /* true for an input whose gradient the caller wants */
    bool wants_grad;
    /* the value is f32, it depends on a trainable parameter or on an input with wants_grad, and a
     * loss (or an output) depends on the value; set by finish */
    bool has_grad;
} cgp__value_info;

typedef struct cgp__node {
    /* op, attributes, types of the inputs, shapes of one sample */
    cgp_op_node use;
    cgp_op_kind kind;
    /* sizes for the kernels */
    cgp_op_attributes sizes;
    int layer;
    /* key of the node's random numbers: its index in the order of building. The key stays the same
     * when other nodes are removed */
    uint32_t id;
    int inputs[CGP_OP_MAX_INPUTS];
    /* value that the node computes; -1 for a loss */
    int output;
    int n_inputs;
    int params[CGP_OP_MAX_PARAMETERS];
    /* index of each param in the model's uses; set by finish */
    int uses[CGP_OP_MAX_PARAMETERS];
    /* index of the node's first state; the model stores the states of a node one after the other */
    int first_state;
    /* weight of a loss in the sum of all losses */
    double loss_weight;
    /* a loss (in a model without losses: an output) depends on the node; set by finish */
    bool requires_grad;
} cgp__node;

typedef struct cgp__parameter {
    char *name;
    cgp_shape shape;
    cgp_init init;
    /* false for norms and biases, which may be exempt from weight decay */
    bool decays;
    /* training does not change the values: there is no gradient and no optimizer state */
    bool frozen;
    /* the parameter's range in the model's uses; set by finish */
    int first_use, n_uses;
    /* true if the parameter is not frozen, and a node that uses the parameter requires a gradient;
     * set by finish */
    bool requires_grad;
} cgp__parameter;

/* State k of a node, kept across steps; `name` = `<node's name>.<suffix>`. */
typedef struct cgp__state {
    char *name;
    cgp_op_state info;
    /* the node, and the index of the state in it; set by finish */
    int node, k;
} cgp__state;

/* A use of a parameter, as params[k] of a node. */
typedef struct cgp__use {
    int parameter, node, k;
} cgp__use;

struct cgp_model {
    char *name;
    bool finished;
    /* the builder's first error */
    cgp_status status;
    char *error;

    int n_values, n_nodes, n_params, n_states, n_layers, n_inputs;
    cgp__value_info *values;
    /* nodes in order of execution; layers ascend; losses come last */
    cgp__node *nodes;
    cgp__parameter *params;
    /* states in the order of their nodes */
    cgp__state *states;
    char **layers;
    /* names of the inputs */
    char **inputs;
    int *input_values;

    /* uses, sorted by parameter, then by node; set by finish */
    cgp__use *uses;
    int n_uses;

    /* the last n_losses nodes, once the model is finished */
    int n_losses;
    /* indices of the output values */
    int *outputs;
    int n_outputs;

    /* The state of the builder (builder.h). It is part of the model's own allocation. */
    struct cgp__model_build *build;
};

/* Return the size in bytes of a tensor of this type with n samples. */
int64_t cgp__type_bytes(const cgp_op_type *type, int64_t n);

/* Initialize elements `first` .. `first + count - 1` of a parameter. Each value depends only on
 * (seed, parameter, element). */
void cgp__init_fill(const cgp_init *init, uint64_t seed, int parameter, int64_t first,
                    int64_t count, float *out);

/* Return the number of elements of a node's cache; 0 if the node has no cache. The elements have
 * the type of the node's values. */
int64_t cgp__node_cache(const cgp__node *node);

/* Return the size in bytes of the statistics that a node's forward logs for a merge over replicas.
 * 0: the node has no accumulator, or its accumulator cannot be merged. */
int64_t cgp__node_log(const cgp__node *node);

/* finish.c: mark the nodes, values and parameters of a finished model that have a gradient.
 * `needed`: [nodes] scratch. */
void cgp__model_mark(cgp_model *model, bool *needed);

/* freeze.c: fail with "WHAT: no parameter of model M matches PATTERN", and the nearest name. */
cgp_status cgp__model_no_match(const cgp_model *model, const char *what, const char *pattern);

/* freeze.c: record that a plan was made of the model. After that, the model refuses to freeze
 * parameters. Threads: any. */
void cgp__model_set_planned(const cgp_model *model);

/* Return the node of loss `l`, 0 .. n_losses - 1, of a finished model. */
static inline int cgp__model_loss(const cgp_model *model, int l) {
    return model->n_nodes - model->n_losses + l;
}

/* Return the node that makes output `k` of a finished model. */
static inline int cgp__model_output_node(const cgp_model *model, int k) {
    return model->values[model->outputs[k]].node;
}

#endif
