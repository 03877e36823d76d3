/* SPDX-License-Identifier: Apache-2.0 */
/* custom.h -- custom ops: one use of such an op in a model. See cgpipe/ext/op.h. */
#ifndef CGP_SRC_OP_CUSTOM_H
#define CGP_SRC_OP_CUSTOM_H

#include <cgpipe/ext/op.h>

#include "op/op.h"

typedef struct cgp__custom_use {
    /* The backends' entry points; the first member, so that the attributes' `custom` is the use. */
    cgp__custom custom;
    cgp__op table;
    /* Complete once the table's `infer` has run. */
    cgp_op_node node;
    max_align_t attributes[];
} cgp__custom_use;

/* Check the table of an op and make a use of it, to be freed with free(). */
cgp_status cgp__custom_create(cgp__custom_use **out, const cgp_op *op, const void *attributes);

/* Parameter initialization of a use, once its shapes are known. */
static inline const cgp_init *cgp__custom_inits(const cgp__custom_use *use,
                                                cgp_init inits[CGP__MAX_PARAMS]) {
    for (int k = 0; k < use->node.shapes.n_parameters; k++)
        inits[k] = use->node.shapes.parameters[k].init;
    return inits;
}

/* run.c: the backends' entry points. */
extern const cgp__custom cgp__custom_functions;

/* The library's side of a call, for cgp_op_random() and cgp_op_parallel_for(). */
struct cgp__op_context {
    const cgp__custom_host *host;
    cgp__rng_key key;
    /* Index of the first one in the mini-batch. */
    int64_t sample;
};

/* The function of a direction. */
static inline cgp_status (*cgp__custom_function(const cgp_op *op,
                                                cgp__direction direction))(const cgp_op_run *) {
    if (direction == CGP__FORWARD) return op->forward;
    return direction == CGP__BACKWARD_INPUT ? op->backward_input : op->backward_weight;
}

/* Operands of forward that a direction of backward names: bit k of x, of saved; y. */
typedef struct cgp__custom_needs {
    uint32_t x, saved;
    bool y;
} cgp__custom_needs;

static inline cgp__custom_needs cgp__custom_needs_of(const cgp_op *op,
                                                     cgp__direction direction) {
    const bool input = direction == CGP__BACKWARD_INPUT;
    const cgp__custom_needs needs = {.x = input ? op->input_needs_x : op->weight_needs_x,
                                     .saved =
                                         input ? op->input_needs_saved : op->weight_needs_saved,
                                     .y = input ? op->input_needs_y : op->weight_needs_y};
    return needs;
}

/* The direction writes dparameters. */
static inline bool cgp__custom_makes_parameters(const cgp_op *op, cgp__direction direction) {
    return direction == CGP__BACKWARD_WEIGHT ||
           (direction == CGP__BACKWARD_INPUT && op->weight_in_input);
}

#endif
