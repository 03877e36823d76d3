/* SPDX-License-Identifier: Apache-2.0 */
/* inputs.c -- check the caller's tensors before anything runs. */
#include "pipeline/step/step.h"

/* Return whether a tensor has this element type and samples of this shape. */
static bool fits(const cgp_tensor *tensor, cgp_dtype dtype, const cgp_shape *shape) {
    bool same = tensor->dtype == dtype && tensor->shape.rank == shape->rank + 1;
    for (int i = 0; same && i < shape->rank; i++)
        same = tensor->shape.dims[i + 1] == shape->dims[i];
    return same;
}

static cgp_status check_tensor(const cgp_model *model, int k, const cgp_tensor *tensor,
                               int64_t *samples) {
    const cgp_op_type *type = &model->values[model->input_values[k]].type;
    const char *name = model->inputs[k];
    char expected[128], got[128];
    if (!tensor || !tensor->data || tensor->shape.rank < 0 || tensor->shape.rank > CGP_MAX_RANK)
        return cgp_fail(CGP_EINVAL, "input %s: is missing", name);
    if (!fits(tensor, type->dtype, &type->shape))
        return cgp_fail(CGP_EINVAL, "input %s: expected %s of shape [N] x %s, got %s %s", name,
                        cgp_dtype_name(type->dtype),
                        cgp_shape_text(&type->shape, expected, sizeof expected),
                        cgp_dtype_name(tensor->dtype),
                        cgp_shape_text(&tensor->shape, got, sizeof got));
    const int64_t n = tensor->shape.dims[0];
    if (n < 1 || (*samples > 0 && n != *samples))
        return cgp_fail(
            CGP_EINVAL,
            "input %s: expected %s%lld samples, got %lld (all inputs have the same N)", name,
            *samples ? "" : ">= ", (long long)(*samples ? *samples : 1), (long long)n);
    *samples = n;
    return CGP_OK;
}

/* Check the integers that a node of the model uses as indices. */
static cgp_status check_range(const cgp_model *model, int k, const cgp_tensor *tensor,
                              bool with_loss) {
    const int64_t count = cgp_shape_count(&tensor->shape);
    for (int i = 0; i < model->n_nodes; i++) {
        const cgp__node *node = &model->nodes[i];
        for (int j = 0; j < node->n_inputs; j++) {
            if (node->inputs[j] != model->input_values[k] ||
                (node->use.op->is_loss && !with_loss))
                continue;
            int64_t upper_bound;
            const int64_t bad = cgp__op_find_invalid(node->kind, &node->use, j, tensor->data,
                                                     count, &upper_bound);
            if (bad < 0) continue;
            const int64_t row = count / tensor->shape.dims[0];
            return cgp_fail(CGP_EINVAL,
                            "input %s: sample %lld, element %lld is %d, expected 0 to %lld%s "
                            "(layer %s, %s)",
                            model->inputs[k], (long long)(bad / row), (long long)(bad % row),
                            ((const int32_t *)tensor->data)[bad], (long long)upper_bound - 1,
                            cgp__op_find(node->kind)->ignores ? " or the ignored one" : "",
                            model->layers[node->layer], node->use.op->name);
        }
    }
    return CGP_OK;
}

/* Check the inputs that the run will read: *samples is the number of theirs. */
static cgp_status check_inputs(const cgp_model *model, const cgp_tensor *const *inputs,
                               bool with_loss, int64_t *samples) {
    for (int k = 0; k < model->n_inputs; k++) {
        if (cgp__input_is_read(model, k, with_loss))
            CGP_TRY(check_tensor(model, k, inputs[k], samples));
    }
    for (int k = 0; k < model->n_inputs; k++) {
        if (cgp__input_is_read(model, k, with_loss) && inputs[k]->dtype == CGP_I32)
            CGP_TRY(check_range(model, k, inputs[k], with_loss));
    }
    if (*samples == 0) return cgp_fail(CGP_EINVAL, "inputs: none is read by the model");
    return CGP_OK;
}

cgp_status cgp__inputs_check_output(const cgp_model *model, const char *name,
                                    const cgp_tensor *tensor, int64_t samples) {
    const cgp_shape wanted = cgp_model_output_shape(model);
    const cgp_dtype type = cgp_model_output_dtype(model);
    if (wanted.rank < 0)
        return cgp_fail(CGP_EINVAL, "model %s: has no output (call cgp_model_output)",
                        model->name);
    if (!tensor || !tensor->data) return cgp_fail(CGP_EINVAL, "%s: is missing", name);
    if (fits(tensor, type, &wanted) && tensor->shape.dims[0] == samples) return CGP_OK;
    char expected[128], got[128];
    return cgp_fail(CGP_EINVAL, "%s: expected %s of shape [%lld] x %s, got %s %s", name,
                    cgp_dtype_name(type), (long long)samples,
                    cgp_shape_text(&wanted, expected, sizeof expected),
                    cgp_dtype_name(tensor->dtype),
                    cgp_shape_text(&tensor->shape, got, sizeof got));
}

/* Count the targets of a loss, those that the graph makes without a look at them. */
static cgp_status count_loss(const cgp_model *model, const cgp__node *loss,
                             const cgp_tensor *const *inputs, int64_t samples, int64_t *count) {
    const cgp_op *op = loss->use.op;
    const int input = loss->n_inputs > 1 ? model->values[loss->inputs[1]].input : -1;
    const void *targets = input < 0 ? NULL : inputs[input]->data;
    *count = op->count ? op->count(&loss->use, targets, samples) : samples;
    if (*count > 0) return CGP_OK;
    if (loss->kind == CGP_OP_CUSTOM)
        return cgp_fail(CGP_EINVAL,
                        "loss %s: expected a count above 0 of %lld samples, got %lld", op->name,
                        (long long)samples, (long long)*count);
    return cgp_fail(CGP_EINVAL,
                    "input %s: the loss counts nothing, all %lld targets are ignored",
                    model->inputs[input], (long long)cgp_shape_count(&inputs[input]->shape));
}

static cgp_status count_losses(cgp__step *step, const cgp_tensor *const *inputs,
                               int64_t samples) {
    const cgp_model *model = step->executor->plan->model;
    for (int l = 0; l < model->n_losses; l++) {
        const cgp__node *loss = &model->nodes[cgp__model_loss(model, l)];
        int64_t *count = &step->loss_counts[l];
        CGP_TRY(count_loss(model, loss, inputs, samples, count));
        step->loss_scales[l] = (float)(loss->loss_weight / (double)*count);
    }
    return CGP_OK;
}

cgp_status cgp__inputs_check(cgp__step *step, const cgp__run_context *context, int n_inputs,
                             int64_t *samples) {
    const cgp_plan *plan = step->executor->plan;
    const cgp_model *model = plan->model;
    const bool with_loss = context->training || context->with_loss;
    if (context->output && model->output < 0)
        return cgp__inputs_check_output(model, "output", context->output, 0);
    if (n_inputs != model->n_inputs)
        return cgp_fail(CGP_EINVAL, "inputs: the model has %d, got %d", model->n_inputs,
                        n_inputs);
    CGP_TRY(check_inputs(model, context->inputs, with_loss, samples));
    if (context->training && *samples > plan->batch)
        return cgp_fail(CGP_EINVAL, "mini-batch: planned for at most %lld samples, got %lld",
                        (long long)plan->batch, (long long)*samples);
    if (context->with_loss) CGP_TRY(count_losses(step, context->inputs, *samples));
    if (!context->output) return CGP_OK;
    return cgp__inputs_check_output(model, "output", context->output, *samples);
}
