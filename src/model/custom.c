/* SPDX-License-Identifier: Apache-2.0 */
/* custom.c -- the builder's calls for custom ops (cgpipe/ext/op.h). */
#include "model/builder.h"
#include "op/custom/custom.h"

#include <stdlib.h>

/* Make a use of an op, owned by the model; NULL on failure, which sticks. */
static cgp__custom_use *new_use(cgp_model *model, const cgp_op *op, const void *attributes) {
    cgp__custom_use *use = NULL;
    const char *name = op->name ? op->name : "custom op";
    if (!cgp__builder_open(model, name)) return NULL;
    const cgp_status status = cgp__grow(&model->custom, &model->custom_capacity,
                                        model->n_custom + 1, sizeof *model->custom)
                                  ? cgp__custom_create(&use, op, attributes)
                                  : cgp__no_memory("model", sizeof *model->custom);
    if (status != CGP_OK) {
        cgp__builder_stick(model, status, name, "%s", cgp_message());
        return NULL;
    }
    model->custom[model->n_custom++] = use;
    return use;
}

cgp_value cgp_op_apply(cgp_model *model, const cgp_op *op, const cgp_value *inputs,
                       const char *name, const void *attributes) {
    CGP__NEED_OR(model, cgp__no_value);
    CGP__NEED_STUCK(model, op, cgp__no_value);
    CGP__NEED_STUCK(model, inputs, cgp__no_value);
    cgp__custom_use *use = new_use(model, op, attributes);
    if (!use) return cgp__no_value;
    const cgp__attributes given = {.custom = use};
    if (!op->is_loss)
        return cgp__builder_add_op(model, &use->table, inputs, name, &given, NULL);
    cgp__builder_stick(model, CGP_EINVAL, op->name,
                       "is a loss and has no result (call cgp_op_apply_loss)");
    return cgp__no_value;
}

void cgp_op_apply_loss(cgp_model *model, const cgp_op *op, const cgp_value *inputs,
                       const void *attributes, double weight) {
    CGP__NEED_OR(model, );
    CGP__NEED_STUCK(model, op, );
    CGP__NEED_STUCK(model, inputs, );
    cgp__custom_use *use = new_use(model, op, attributes);
    if (!use) return;
    const cgp__attributes given = {.custom = use};
    if (op->is_loss)
        cgp__builder_add_loss(model, &use->table, inputs, &given, weight);
    else
        cgp__builder_stick(model, CGP_EINVAL, op->name,
                           "is no loss (is_loss in its table; cgp_op_apply adds an op)");
}
