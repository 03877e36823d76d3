/* SPDX-License-Identifier: Apache-2.0 */
/* builder.h -- helpers of the builder's files. */
#ifndef CGP_SRC_MODEL_BUILDER_H
#define CGP_SRC_MODEL_BUILDER_H

#include "model/model.h"

static const cgp_value cgp__no_value = {-1};

/* Refuse a NULL pointer, with an error that sticks. */
#define CGP__NEED_STUCK(model, pointer, result)                                                \
    do {                                                                                       \
        if (!(pointer)) {                                                                      \
            cgp__builder_stick_missing(model, __func__, #pointer);                             \
            return result;                                                                     \
        }                                                                                      \
    } while (0)
void cgp__builder_stick_missing(cgp_model *model, const char *function, const char *argument);

/* Return true if a name is UTF-8, as names in checkpoints must be; if not, that sticks. */
bool cgp__builder_takes_name(cgp_model *model, const char *op, const char *name);

/* Return true if n initializations are valid; if not, that sticks. */
bool cgp__builder_takes_inits(cgp_model *model, const char *op, const cgp_init *inits, int n);

/* Record the first error, with its layer and op. */
void cgp__builder_stick(cgp_model *model, cgp_status status, const char *op, const char *format,
                        ...) CGP_PRINTF(4, 5);

/* Return true if the model is neither finished nor has an error. */
bool cgp__builder_open(cgp_model *model, const char *op);

/* Add a node of a built-in kind, or of any op; attributes->n_inputs, if not 0, overrides the op's number of inputs. `name` and
 * `inits` are for its parameters. Return the invalid value on failure. */
cgp_value cgp__builder_add(cgp_model *model, cgp__op_kind kind, const cgp_value *x,
                           const char *name, const cgp__attributes *attributes,
                           const cgp_init *inits);
cgp_value cgp__builder_add_op(cgp_model *model, const cgp__op *op, const cgp_value *x,
                              const char *name, const cgp__attributes *attributes,
                              const cgp_init *inits);

/* Add a loss, `weight` times its mean. */
void cgp__builder_add_loss(cgp_model *model, const cgp__op *op, const cgp_value *x,
                           const cgp__attributes *attributes, double weight);

/* Release the indices of names, used only while a model is built. */
void cgp__builder_forget_names(cgp_model *model);

/* Return CGP_EINVAL if a stash has no pop. */
cgp_status cgp__stash_check(const cgp_model *model);

void cgp__stash_release(cgp_model *model);

#endif
