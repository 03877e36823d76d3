/* SPDX-License-Identifier: Apache-2.0 */
/* builder.h -- what the files of the builder share. */
#ifndef CGP_SRC_MODEL_BUILDER_H
#define CGP_SRC_MODEL_BUILDER_H

#include "model/model.h"

static const cgp_value cgp__no_value = {-1};

/* Refuse a pointer that is missing, as an error of the building. */
#define CGP__NEED_STUCK(model, pointer, result)                                                \
    do {                                                                                       \
        if (!(pointer)) {                                                                      \
            cgp__builder_stick_missing(model, __func__, #pointer);                             \
            return result;                                                                     \
        }                                                                                      \
    } while (0)
void cgp__builder_stick_missing(cgp_model *model, const char *function, const char *argument);

/* Tell whether a name is UTF-8, as what is saved under it must be; if not, that sticks. */
bool cgp__builder_takes_name(cgp_model *model, const char *op, const char *name);

/* Tell whether `n` ways to begin are some; if not, that sticks. */
bool cgp__builder_takes_inits(cgp_model *model, const char *op, const cgp_init *inits, int n);

/* Record the first error, with the layer and op it happened in. */
void cgp__builder_stick(cgp_model *model, cgp_status status, const char *op, const char *format,
                        ...) CGP_PRINTF(4, 5);

/* Building is possible: not finished, no error yet. A finished model stays as it is. */
bool cgp__builder_open(cgp_model *model, const char *op);

/* Add a node of the kind, or of the table, over as many values as it, or attributes->n_inputs, says. `name` and `inits` are for its
 * parameters. The invalid value if it cannot be. */
cgp_value cgp__builder_add(cgp_model *model, cgp__op_kind kind, const cgp_value *x,
                           const char *name, const cgp__attributes *attributes,
                           const cgp_init *inits);
cgp_value cgp__builder_add_op(cgp_model *model, const cgp__op *op, const cgp_value *x,
                              const char *name, const cgp__attributes *attributes,
                              const cgp_init *inits);

/* Add a loss, `weight` times its mean. */
void cgp__builder_add_loss(cgp_model *model, const cgp__op *op, const cgp_value *x,
                           const cgp__attributes *attributes, double weight);

/* Release what finds names while a model is built. */
void cgp__builder_forget_names(cgp_model *model);

/* CGP_EINVAL if there is a stash that nobody popped. */
cgp_status cgp__stash_check(const cgp_model *model);

void cgp__stash_release(cgp_model *model);

#endif
