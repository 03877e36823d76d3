/* SPDX-License-Identifier: Apache-2.0 */
/* builder.h -- declares helpers that the source files of the builder share. */
#ifndef CGP_SRC_MODEL_BUILDER_H
#define CGP_SRC_MODEL_BUILDER_H

#include "model/model.h"
#include "op/attributes.h"

#include <stdatomic.h>

/* The name of a parameter of a later op, and the existing parameter to which it is tied. */
typedef struct cgp__tie {
    char *name;
    int parameter;
    bool used;
} cgp__tie;

/* A value kept under a name until it is popped. */
typedef struct cgp__stash {
    /* `space` is "" for the common namespace */
    char *space, *name;
    int value;
    /* layers of the stash and of its pop; -1: before all layers */
    int layer, popped_in;
    bool popped;
} cgp__stash;

/* Kinds of names. A name is unique within its kind. */
typedef enum cgp__names {
    CGP__NAMES_INPUT,
    CGP__NAMES_PARAMETER,
    CGP__NAMES_STATE,
    CGP__NAMES_TIE,
    CGP__NAMES
} cgp__names;

/* State of the builder of a model. */
typedef struct cgp__model_build {
    /* true: a plan was made of the finished model; any thread may set this flag */
    atomic_bool planned;
    int values_capacity, nodes_capacity, params_capacity, states_capacity, layers_capacity,
        inputs_capacity, input_values_capacity, outputs_capacity;
    cgp__tie *ties;
    int n_ties, ties_capacity;
    /* copies of the attributes of ops, which the model frees */
    void **attributes;
    int n_attributes, attributes_capacity;
    /* stashed values, in the order of the calls */
    cgp__stash *stashes;
    int n_stashes, stashes_capacity;
    /* indices of names; used only while the model is built */
    cgp__index names[CGP__NAMES], stash_names;
} cgp__model_build;

static const cgp_value cgp__no_value = {-1};

/* Refuse a NULL pointer, and record the error in the model. */
#define CGP__NEED_STUCK(model, pointer, result)                                                    \
    do {                                                                                           \
        if (!(pointer)) {                                                                          \
            cgp__builder_stick_missing(model, __func__, #pointer);                                 \
            return result;                                                                         \
        }                                                                                          \
    } while (0)
void cgp__builder_stick_missing(cgp_model *model, const char *function, const char *argument);

/* Return true if a name is UTF-8 without control characters, as names in checkpoints must be. If
 * not, record an error in the model. */
bool cgp__builder_takes_name(cgp_model *model, const char *op, const char *name);

/* Return true if n initializations are valid. If not, record an error in the model. */
bool cgp__builder_takes_inits(cgp_model *model, const char *op, const cgp_init *inits, int n);

/* Record an error, with its layer and op, if it is the model's first error. */
void cgp__builder_stick(cgp_model *model, cgp_status status, const char *op, const char *format,
                        ...) CGP_PRINTF(4, 5);

/* Return true if the model is not finished and has no error. */
bool cgp__builder_open(cgp_model *model, const char *op);

/* Add a node of attributes->kind. attributes->n_inputs, if not 0, overrides the op's number of
 * inputs. The node's parameters and state are named after `name`. Return the invalid value on
 * failure. */
cgp_value cgp__builder_add(cgp_model *model, const cgp_value *x, const char *name,
                           const cgp__attributes *attributes);

/* Add a node of any op with n inputs. @param[in] attributes [attribute_bytes] copied. */
cgp_value cgp__builder_add_op(cgp_model *model, cgp_op_kind kind, const cgp_op *op,
                              const cgp_value *x, int n, const char *name, const void *attributes,
                              size_t attribute_bytes);

/* Parameters, states and id of a node of a graph file. The parameters exist already, and the names
 * of the states are complete. */
typedef struct cgp__given {
    const int *params; /* [n_params] Indices. */
    int n_params;
    const char *const *states; /* [n_states] Names. */
    int n_states;
    uint32_t id;
} cgp__given;

/* Like cgp__builder_add_op(), for a node of a graph file. */
cgp_value cgp__builder_add_given(cgp_model *model, cgp_op_kind kind, const cgp_op *op,
                                 const cgp_value *x, int n, const void *attributes,
                                 size_t attribute_bytes, const cgp__given *given);

/* Add a parameter of a graph file; return false on failure. @param[in] name Copied. */
bool cgp__builder_add_parameter(cgp_model *model, const char *name,
                                const cgp_op_parameter *parameter);

/* Add a value of a graph file that no node computes, because its node was removed. */
void cgp__builder_add_unused(cgp_model *model, const cgp_op_type *type);

/* Return true if `weight` is valid for the loss named `op`. If not, record an error in the
 * model. */
bool cgp__builder_takes_weight(cgp_model *model, const char *op, double weight);

/* Make node number `before` a loss: the model's loss includes `weight` times the mean of this loss.
 * Do nothing if there is no such node, because adding it failed. */
void cgp__builder_set_loss(cgp_model *model, int before, double weight);

/* Release the indices of names, which are used only while a model is built. */
void cgp__builder_forget_names(cgp_model *model);

/* Return CGP_EINVAL if a stash has no pop. */
cgp_status cgp__stash_check(const cgp_model *model);

void cgp__stash_release(cgp_model *model);

#endif
