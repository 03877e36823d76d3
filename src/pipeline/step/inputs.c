/* SPDX-License-Identifier: Apache-2.0 */
/* inputs.c -- checks the caller's tensors before anything runs. Each rank checks the tensors that
 * its stages read. Then all ranks exchange and compare the number of samples and the settings. The
 * same exchange distributes the counts of the losses, and the constants of the update from rank
 * 0. */
#include "pipeline/step/inputs.h"

#include "pipeline/alive.h"
#include "pipeline/crew.h"
#include "pipeline/pipeline.h"
#include "pipeline/run/agreements.h"
#include "pipeline/run/executor.h"
#include "pipeline/run/gathers.h"
#include "pipeline/step/device_tensors.h"
#include "pipeline/step/settings.h"
#include "pipeline/step/step.h"

#include "model/model.h"
#include "op/attributes.h"
#include "op/op.h"
#include "optim/optim.h"
#include "plan/owners.h"
#include "plan/program/program.h"
#include "plan/setup.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Return true if a tensor has the element type `dtype` and samples of shape `shape`. */
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
        return cgp_fail(
            CGP_EINVAL, "input %s: expected %s of shape [N] x %s, got %s %s", name,
            cgp_dtype_name(type->dtype), cgp_shape_text(&type->shape, expected, sizeof expected),
            cgp_dtype_name(tensor->dtype), cgp_shape_text(&tensor->shape, got, sizeof got));
    const int64_t n = tensor->shape.dims[0];
    if (n < 1 || (*samples > 0 && n != *samples))
        return cgp_fail(
            CGP_EINVAL, "input %s: expected %s%lld samples, got %lld (all inputs have the same N)",
            name, *samples ? "" : ">= ", (long long)(*samples ? *samples : 1), (long long)n);
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
            if (node->inputs[j] != model->input_values[k] || (node->use.op->is_loss && !with_loss))
                continue;
            int64_t upper_bound;
            const int64_t bad =
                cgp__op_find_invalid(node->kind, &node->use, j, tensor->data, count, &upper_bound);
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

/* Check the number of samples before any data is read. A training step may have at most the planned
 * number of samples. No run may have more samples than memory can address. */
static cgp_status check_samples(const cgp_plan *plan, bool training, int64_t samples) {
    const cgp__setup *setup = cgp__plan_setup(plan);
    const cgp_model *model = setup->model;
    int64_t largest = 1; /* number of elements of the largest sample */
    if (training && samples > setup->batch)
        return cgp_fail(CGP_EINVAL, "mini-batch: planned for at most %lld samples, got %lld",
                        (long long)setup->batch, (long long)samples);
    for (int k = 0; k < model->n_inputs; k++)
        largest =
            cgp__max(largest, cgp_shape_count(&model->values[model->input_values[k]].type.shape));
    for (int k = 0; k < model->n_outputs; k++)
        largest = cgp__max(largest, cgp_shape_count(&model->values[model->outputs[k]].type.shape));
    const int64_t most = INT64_MAX / 4 / largest;
    if (samples <= most) return CGP_OK;
    return cgp_fail(CGP_EINVAL, "mini-batch: expected at most %lld samples, got %lld",
                    (long long)most, (long long)samples);
}

/* Check the inputs that the run will read. Set *samples to the number of samples in these
 * inputs. */
static cgp_status check_inputs(const cgp__executor *executor, const cgp_tensor *const *inputs,
                               bool training, bool with_loss, int64_t *samples) {
    const cgp_model *model = executor->model;
    for (int k = 0; k < model->n_inputs; k++) {
        if (cgp__input_is_read(executor, k, with_loss))
            CGP_TRY(check_tensor(model, k, inputs[k], samples));
    }
    CGP_TRY(check_samples(executor->plan, training, *samples));
    for (int k = 0; k < model->n_inputs; k++) {
        if (!cgp__input_is_read(executor, k, with_loss)) continue;
        CGP_TRY(cgp__check_device_input(executor, k, inputs[k]));
        if (inputs[k]->dtype == CGP_I32) CGP_TRY(check_range(model, k, inputs[k], with_loss));
    }
    return CGP_OK;
}

/* Check a tensor against output k. */
static cgp_status check_output(const cgp_model *model, const char *name, int k,
                               const cgp_tensor *tensor, int64_t *samples) {
    const cgp_op_type *type = &model->values[model->outputs[k]].type;
    char expected[128], got[128], what[32];
    if (model->n_outputs > 1)
        snprintf(what, sizeof what, "%s %d", name, k);
    else
        snprintf(what, sizeof what, "%s", name);
    if (!tensor || !tensor->data || tensor->shape.rank < 1 || tensor->shape.rank > CGP_MAX_RANK)
        return cgp_fail(CGP_EINVAL, "%s: is missing", what);
    if (*samples == 0) *samples = tensor->shape.dims[0];
    if (fits(tensor, type->dtype, &type->shape) && tensor->shape.dims[0] == *samples) return CGP_OK;
    return cgp_fail(CGP_EINVAL, "%s: expected %s of shape [%lld] x %s, got %s %s", what,
                    cgp_dtype_name(type->dtype), (long long)*samples,
                    cgp_shape_text(&type->shape, expected, sizeof expected),
                    cgp_dtype_name(tensor->dtype), cgp_shape_text(&tensor->shape, got, sizeof got));
}

cgp_status cgp__inputs_check_outputs(const cgp_pipeline *pipeline, cgp__wanted wanted,
                                     const cgp_tensor *const *tensors, int n, int64_t *samples) {
    const cgp_plan *plan = pipeline->plan;
    const cgp_model *model = pipeline->model;
    const char *name = wanted == CGP__OUTPUT_GRADIENTS ? "gradient" : "output";
    if (model->n_outputs == 0)
        return cgp_fail(CGP_EINVAL, "model %s: has no output (call cgp_model_output)", model->name);
    if (n != model->n_outputs)
        return cgp_fail(CGP_EINVAL, "%ss: the model has %d outputs, got %d", name, model->n_outputs,
                        n);
    for (int k = 0; k < n; k++) {
        const int device = cgp_plan_stage_at(plan, cgp_plan_output_stage(plan, k))->device;
        if (!cgp__plan_is_on(plan, device, pipeline->rank)) continue;
        if (!tensors) return cgp_fail(CGP_EINVAL, "%ss: are missing", name);
        if (wanted == CGP__OUTPUT_GRADIENTS ? !model->values[model->outputs[k]].has_grad
                                            : wanted != CGP__ALL_OUTPUTS && !tensors[k])
            continue;
        CGP_TRY(check_output(model, name, k, tensors[k], samples));
        CGP_TRY(cgp__check_device_output(pipeline->executor, name, k, tensors[k]));
    }
    return CGP_OK;
}

cgp_status cgp__inputs_check_gradients(const cgp_pipeline *pipeline, int64_t samples) {
    const cgp_model *model = pipeline->model;
    const cgp__step *step = pipeline->step;
    char expected[128], got[128];
    for (int k = 0; k < model->n_inputs; k++) {
        const cgp_tensor *tensor = step->input_gradient_list[k];
        const cgp_shape *shape = &model->values[model->input_values[k]].type.shape;
        if (!tensor) continue;
        if (fits(tensor, CGP_F32, shape) && tensor->shape.dims[0] == samples) {
            CGP_TRY(cgp__check_device_gradient(pipeline->executor, k, tensor));
            continue;
        }
        return cgp_fail(
            CGP_EINVAL,
            "gradient of input %s: expected f32 of shape [%lld] x %s, "
            "got %s %s",
            model->inputs[k], (long long)samples, cgp_shape_text(shape, expected, sizeof expected),
            cgp_dtype_name(tensor->dtype), cgp_shape_text(&tensor->shape, got, sizeof got));
    }
    return CGP_OK;
}

void cgp__inputs_zero_gradients(const cgp_pipeline *pipeline) {
    const cgp_plan *plan = pipeline->plan;
    for (int k = 0; k < pipeline->model->n_inputs; k++) {
        const cgp_tensor *tensor = pipeline->step->input_gradient_list[k];
        if (tensor && cgp__plan_results(plan)->input_gradients[k].stage < 0)
            memset(tensor->data, 0, 4 * (size_t)cgp_shape_count(&tensor->shape));
    }
}

static cgp_status check_gradients(const cgp_pipeline *pipeline, const cgp_tensor *const *gradients,
                                  int n_inputs) {
    const cgp_model *model = pipeline->model;
    if (!gradients && n_inputs == 0) return CGP_OK;
    if (pipeline->setup->replicas > 1)
        return cgp_fail(CGP_EINVAL, "gradients of inputs: expected a plan for 1 replica, got %d",
                        pipeline->setup->replicas);
    if (n_inputs != model->n_inputs)
        return cgp_fail(CGP_EINVAL, "gradients: the model has %d inputs, got %d", model->n_inputs,
                        n_inputs);
    if (!gradients) return cgp__missing("cgp_pipeline_set_input_gradients", "gradients");
    for (int k = 0; k < n_inputs; k++) {
        const cgp_tensor *tensor = gradients[k];
        if (!tensor) continue;
        if (!cgp_model_input_has_gradient(model, k))
            return cgp_fail(CGP_EINVAL, "input %s: has no gradient (call cgp_model_input_gradient)",
                            model->inputs[k]);
        if (!tensor->data || tensor->shape.rank < 1 || tensor->shape.rank > CGP_MAX_RANK)
            return cgp_fail(CGP_EINVAL, "gradient of input %s: is missing", model->inputs[k]);
    }
    return CGP_OK;
}

cgp_status cgp_pipeline_set_input_gradients(cgp_pipeline *pipeline,
                                            const cgp_tensor *const *gradients, int n_inputs) {
    CGP__PIPELINE(pipeline);
    CGP__ON_ALL_REPLICAS(pipeline, .kind = CGP__REQUEST_SET_INPUT_GRADIENTS, .in = gradients,
                         .of = n_inputs);
    cgp__step *step = pipeline->step;
    CGP_TRY(cgp__ranks_agree(pipeline->ranks, check_gradients(pipeline, gradients, n_inputs)));
    for (int k = 0; k < pipeline->model->n_inputs; k++) {
        const cgp_tensor *tensor = gradients ? gradients[k] : NULL;
        if (tensor) step->input_gradients[k] = *tensor;
        step->input_gradient_list[k] = tensor ? &step->input_gradients[k] : NULL;
    }
    return CGP_OK;
}

/* Return the index of the model input that holds the targets of a loss; -1: the graph computes the
 * targets, or the loss has no targets. */
static int targets_of(const cgp_model *model, const cgp__node *loss) {
    return loss->n_inputs > 1 ? model->values[loss->inputs[1]].input : -1;
}

/* Count the targets of a loss. If no model input holds the targets, derive the count from the
 * number of samples. */
static cgp_status count_loss(const cgp_model *model, const cgp__node *loss,
                             const cgp__run_context *context, int64_t samples, int64_t *count) {
    const cgp_op *op = loss->use.op;
    const int input = targets_of(model, loss);
    const void *targets = input < 0 ? NULL : context->inputs[input]->data;
    *count = op->count ? op->count(&loss->use, targets, samples) : samples;
    if (*count > 0 || (*count == 0 && context->may_count_nothing)) return CGP_OK;
    if (loss->kind == CGP_OP_CUSTOM || input < 0)
        return cgp_fail(CGP_EINVAL, "loss %s: expected a count above 0 of %lld samples, got %lld",
                        op->name, (long long)samples, (long long)*count);
    return cgp_fail(CGP_EINVAL, "input %s: the loss counts nothing, all %lld targets are ignored",
                    model->inputs[input],
                    (long long)cgp_shape_count(&context->inputs[input]->shape));
}

bool cgp__inputs_has_targets(const cgp_pipeline *pipeline) {
    return pipeline->model->n_losses > 0 && pipeline->step->accumulation.targets[0] > 0;
}

/* Set the divisor of a loss that counts `count` targets. The divisor is 1 for a summed loss. It is
 * the sum of the weights if the op divides by this sum. Otherwise it is the count. */
static cgp_status divide_loss(const cgp_model *model, const cgp__node *loss,
                              const cgp__run_context *context, int64_t samples, int64_t count,
                              double *divisor) {
    const cgp__op *op = cgp__op_find(loss->kind);
    *divisor = (double)count;
    if (loss->kind == CGP_OP_CUSTOM) return CGP_OK;
    if (((const cgp__attributes *)loss->use.attributes)->sum) {
        *divisor = 1;
        return CGP_OK;
    }
    if (!op->sum_weights || loss->n_inputs < 3) return CGP_OK;
    const int targets = targets_of(model, loss), weights = model->values[loss->inputs[2]].input;
    *divisor = op->sum_weights(&loss->use, targets < 0 ? NULL : context->inputs[targets]->data,
                               context->inputs[weights]->data, samples);
    if ((*divisor > 0 && isfinite(*divisor)) || (count == 0 && context->may_count_nothing))
        return CGP_OK;
    return cgp_fail(CGP_EINVAL, "input %s: expected weights with a sum above 0, got %g",
                    model->inputs[weights], *divisor);
}

/* Count the targets of each loss that runs on this rank and whose targets are a model input. Set
 * all other counts to 0. */
static cgp_status count_inputs(const cgp_pipeline *pipeline, const cgp__run_context *context,
                               int64_t samples, int64_t *counts, double *divisors) {
    const cgp_plan *plan = pipeline->plan;
    const cgp_model *model = pipeline->model;
    for (int l = 0; l < model->n_losses; l++) {
        const int i = cgp__model_loss(model, l);
        counts[l] = 0;
        if (targets_of(model, &model->nodes[i]) >= 0 &&
            cgp__plan_is_on(plan, cgp__plan_device_of(plan, i), pipeline->rank))
            CGP_TRY(count_loss(model, &model->nodes[i], context, samples, &counts[l]));
        divisors[l] = 0;
        if (cgp__plan_is_on(plan, cgp__plan_device_of(plan, i), pipeline->rank))
            CGP_TRY(
                divide_loss(model, &model->nodes[i], context, samples, counts[l], &divisors[l]));
    }
    return CGP_OK;
}

const cgp_tensor *const *cgp__inputs_or_none(const cgp__step *step,
                                             const cgp_tensor *const *inputs) {
    return inputs ? inputs : step->no_inputs;
}

/* A rank's part of the exchange. In memory, the rank's loss counts, its loss divisors and its
 * settings follow this struct. */
typedef struct part {
    int64_t status;
    int64_t samples; /* samples in the rank's inputs; 0: the rank reads no inputs */
    int64_t output;  /* samples in the rank's outputs; 0: the rank has no outputs */
    cgp_update_values update;
    double lr_factor;
    char message[480];
} part;

size_t cgp__inputs_part_bytes(const cgp__setup *setup) {
    const int words = 2 * setup->model->n_losses + cgp__settings_words(setup);
    return sizeof(part) + sizeof(int64_t) * (size_t)words;
}

static part *part_at(const cgp_pipeline *pipeline, int rank) {
    const size_t bytes = cgp__inputs_part_bytes(pipeline->setup);
    return (part *)(void *)(pipeline->step->parts + (size_t)rank * bytes);
}

static int64_t *counts_of(part *p) {
    return (int64_t *)(p + 1);
}

static double *divisors_of(const cgp_pipeline *pipeline, part *p) {
    return (double *)(void *)(counts_of(p) + pipeline->model->n_losses);
}

static int64_t *settings_of(const cgp_pipeline *pipeline, int rank) {
    return counts_of(part_at(pipeline, rank)) + 2 * pipeline->model->n_losses;
}

static cgp_status check_here(const cgp_pipeline *pipeline, const cgp__run_context *context,
                             int n_inputs, part *mine) {
    const cgp_plan *plan = pipeline->plan;
    const bool with_loss = context->training || context->with_loss;
    if (n_inputs != pipeline->model->n_inputs)
        return cgp_fail(CGP_EINVAL, "inputs: the model has %d, got %d", pipeline->model->n_inputs,
                        n_inputs);
    CGP_TRY(check_inputs(pipeline->executor, context->inputs, context->training, with_loss,
                         &mine->samples));
    if (mine->samples == 0 && pipeline->n_ranks == 1)
        return cgp_fail(CGP_EINVAL, "inputs: none is read by the model");
    if (context->training && context->with_loss && mine->samples > 0)
        CGP_TRY(cgp__inputs_check_gradients(pipeline, mine->samples));
    if (context->with_loss)
        CGP_TRY(count_inputs(pipeline, context, mine->samples, counts_of(mine),
                             divisors_of(pipeline, mine)));
    if (context->with_loss) return CGP_OK;
    int64_t n = mine->samples;
    CGP_TRY(cgp__inputs_check_outputs(pipeline,
                                      context->training ? CGP__ALL_OUTPUTS : CGP__SOME_OUTPUTS,
                                      context->outputs, context->n_outputs, &n));
    CGP_TRY(check_samples(plan, context->training, n));
    if (mine->samples == 0) mine->output = n;
    return CGP_OK;
}

/* Compare the parts of all ranks. The result is the same on all ranks. */
static cgp_status agree(const cgp_pipeline *pipeline, bool training, int64_t *samples) {
    const int n = pipeline->n_ranks;
    const part *own = part_at(pipeline, pipeline->rank);
    if (own->status != CGP_OK) return cgp_fail((cgp_status)own->status, "%s", own->message);
    for (int r = 0; r < n; r++) {
        const part *p = part_at(pipeline, r);
        if (p->status != CGP_OK)
            return cgp_fail((cgp_status)p->status, "rank %d: %.470s", r, p->message);
        if (*samples == 0) *samples = p->samples;
    }
    for (int r = 0; r < n; r++) {
        const part *p = part_at(pipeline, r);
        const int64_t got = p->samples && p->samples != *samples ? p->samples : p->output;
        if (got && got != *samples)
            return cgp_fail(CGP_EINVAL,
                            "mini-batch: expected the same N on all ranks, got %lld on rank %d, "
                            "%lld before it",
                            (long long)got, r, (long long)*samples);
    }
    if (*samples == 0) return cgp_fail(CGP_EINVAL, "inputs: none is read by the model");
    for (int r = 1; r < n && training; r++)
        CGP_TRY(cgp__settings_compare(pipeline->setup, r, settings_of(pipeline, r),
                                      settings_of(pipeline, 0)));
    return CGP_OK;
}

/* Check that all replicas have counted the same targets, because each replica gets the whole
 * mini-batch. `rank` is the rank of the loss in replica 0. */
static cgp_status compare_replicas(const cgp_pipeline *pipeline, int loss, int rank) {
    part *first = part_at(pipeline, rank);
    for (int r = rank + pipeline->setup->ranks; r < pipeline->n_ranks;
         r += pipeline->setup->ranks) {
        part *other = part_at(pipeline, r);
        if (counts_of(other)[loss] == counts_of(first)[loss] &&
            divisors_of(pipeline, other)[loss] == divisors_of(pipeline, first)[loss])
            continue;
        return cgp_fail(CGP_EINVAL,
                        "targets: expected the same mini-batch on all replicas, got %lld targets "
                        "on rank %d, %lld on rank %d",
                        (long long)counts_of(other)[loss], r, (long long)counts_of(first)[loss],
                        rank);
    }
    return CGP_OK;
}

/* Set the counts, divisors and scales of all losses. If a model input holds the targets, the rank
 * of the loss has counted them. All other counts follow from the number of samples. */
static cgp_status take_counts(const cgp_pipeline *pipeline, const cgp__run_context *context,
                              int64_t samples) {
    const cgp_plan *plan = pipeline->plan;
    cgp__step *step = pipeline->step;
    for (int l = 0; l < pipeline->model->n_losses; l++) {
        const int i = cgp__model_loss(pipeline->model, l);
        const int rank = cgp_plan_device_at(plan, cgp__plan_device_of(plan, i))->rank;
        const cgp__node *loss = &pipeline->model->nodes[i];
        part *p = part_at(pipeline, rank);
        int64_t count = counts_of(p)[l];
        double divisor = divisors_of(pipeline, p)[l];
        if (targets_of(pipeline->model, loss) < 0) {
            CGP_TRY(count_loss(pipeline->model, loss, context, samples, &count));
            if (divisor == 0) divisor = (double)count;
        }
        CGP_TRY(compare_replicas(pipeline, l, rank));
        step->loss_counts[l] = count;
        step->loss_divisors[l] = context->training && cgp__inputs_has_targets(pipeline)
                                     ? (double)step->accumulation.targets[l]
                                     : divisor;
        step->loss_scales[l] = (float)(loss->loss_weight / step->loss_divisors[l]);
    }
    return CGP_OK;
}

cgp_status cgp__inputs_check(cgp_pipeline *pipeline, const cgp__run_context *context, int n_inputs,
                             int64_t *samples) {
    cgp__step *step = pipeline->step;
    part *mine = part_at(pipeline, pipeline->rank);
    *mine = (part){.status = CGP_OK};
    if (context->training) {
        const cgp_optim *optim = &pipeline->setup->optim;
        mine->update = cgp__optim_values(optim, step->shared->updates + 1);
        mine->lr_factor = cgp__lr_factor(&optim->schedule, step->shared->updates + 1);
    }
    cgp__settings_write(pipeline, settings_of(pipeline, pipeline->rank));
    const cgp_status status = check_here(pipeline, context, n_inputs, mine);
    if (status != CGP_OK && pipeline->n_ranks == 1) return status;
    mine->status = status;
    if (status != CGP_OK) snprintf(mine->message, sizeof mine->message, "%.470s", cgp_message());
    CGP_TRY(
        cgp__ranks_share(pipeline->ranks, step->parts, cgp__inputs_part_bytes(pipeline->setup)));
    CGP_TRY(agree(pipeline, context->training, samples));
    if (context->training) {
        step->update_values[0] = part_at(pipeline, 0)->update;
        step->lr_factor = part_at(pipeline, 0)->lr_factor;
    }
    return context->with_loss ? take_counts(pipeline, context, *samples) : CGP_OK;
}

bool cgp_pipeline_reads(const cgp_pipeline *pipeline, int input) {
    CGP__PIPELINE_OR(pipeline, false);
    return input >= 0 && input < pipeline->model->n_inputs &&
           cgp__input_is_read(pipeline->executor, input, true);
}
