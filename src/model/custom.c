/* SPDX-License-Identifier: Apache-2.0 */
/* custom.c -- implements the builder's calls for custom ops (cgpipe/ext/op.h). */
#include "model/builder.h"
#include "op/custom/custom.h"

/* Return true if the model is open and the op's table is valid. */
static bool takes(cgp_model *model, const cgp_op *op, const void *attributes) {
    const char *name = op->name ? op->name : "custom op";
    if (!cgp__builder_open(model, name)) return false;
    const cgp_status status = cgp__custom_check(op, attributes);
    if (status != CGP_OK) cgp__builder_stick(model, status, name, "%s", cgp_message());
    return status == CGP_OK;
}

static cgp_value add(cgp_model *model, const cgp_op *op, const cgp_value *inputs, const char *name,
                     const void *attributes) {
    return cgp__builder_add_op(model, CGP_OP_CUSTOM, op, inputs, op->n_inputs, name, attributes,
                               op->attribute_bytes);
}

cgp_value cgp_op_apply(cgp_model *model, const cgp_op *op, const cgp_value *inputs,
                       const char *name, const void *attributes) {
    CGP__NEED_OR(model, cgp__no_value);
    CGP__NEED_STUCK(model, op, cgp__no_value);
    CGP__NEED_STUCK(model, inputs, cgp__no_value);
    if (!takes(model, op, attributes)) return cgp__no_value;
    if (!op->is_loss) return add(model, op, inputs, name, attributes);
    cgp__builder_stick(model, CGP_EINVAL, op->name,
                       "is a loss and has no result (call cgp_op_apply_loss)");
    return cgp__no_value;
}

void cgp_op_apply_loss(cgp_model *model, const cgp_op *op, const cgp_value *inputs,
                       const void *attributes, double weight) {
    CGP__NEED_OR(model, );
    CGP__NEED_STUCK(model, op, );
    CGP__NEED_STUCK(model, inputs, );
    if (!takes(model, op, attributes)) return;
    if (!op->is_loss) {
        cgp__builder_stick(model, CGP_EINVAL, op->name,
                           "is no loss (is_loss in its table; cgp_op_apply adds an op)");
        return;
    }
    if (!cgp__builder_takes_weight(model, op->name, weight)) return;
    const int before = model->n_nodes;
    (void)add(model, op, inputs, NULL, attributes);
    cgp__builder_set_loss(model, before, weight);
}
