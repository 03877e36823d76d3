/* SPDX-License-Identifier: Apache-2.0 */
/* channel_norm.c -- normalizes channels to mean 0 and variance 1.
 *
 *     BATCH_NORM      [..., C]     one mean per channel, over all samples of a micro-batch and all
 *                                  rows
 *     INSTANCE_NORM   [H, W, C]    one mean per sample and channel, over the pixels
 *     GROUP_NORM      [..., C]     one mean per sample and group of C / groups channels, over the
 *                                  rows
 *
 * BATCH_NORM and GROUP_NORM then scale and shift by weight [C] and bias [C]. Forward saves mean and
 * 1 / standard deviation: per channel of the micro-batch (BATCH_NORM), or per channel
 * (INSTANCE_NORM) or group (GROUP_NORM) of each sample. The weight gradients are small and are
 * computed together with dx. The running statistics of BATCH_NORM change at the end of a step, once
 * per micro-batch in ascending order. If they are deferred, they change once, with the statistics
 * of the whole mini-batch. The running variance is unbiased, as in PyTorch.
 *
 * Source: Ioffe and Szegedy 2015, arXiv:1502.03167; Ulyanov et al. 2016, arXiv:1607.08022; Wu and
 * He 2018, arXiv:1803.08494. Deferred statistics: torchgpipe. */
#include "op/rules.h"

#include "backend/running_stats.h"

#include <inttypes.h>

static cgp_status infer_norm(double eps, const cgp_op_type *inputs, bool whole,
                             cgp_op_shapes *out) {
    CGP_TRY(cgp__op_infer_elementwise(NULL, inputs, out));
    CGP_TRY(cgp__op_check_eps(eps));
    for (int k = 0; k < 2; k++)
        cgp__op_add_saved(out, cgp__op_shape_last(&inputs[0].shape), whole);
    return CGP_OK;
}

static cgp_status infer_batch(const void *attributes, const cgp_op_type *inputs,
                              cgp_op_shapes *out) {
    const cgp__norm_attributes *a = cgp__norm_of(attributes);
    CGP_TRY(infer_norm(a->eps, inputs, true, out));
    const float momentum = (float)a->momentum;
    if (!(momentum <= 1.0f && (momentum >= 0.0f || momentum == -1.0f)))
        return cgp_fail(CGP_EINVAL,
                        "expects a momentum from 0 to 1 (or -1, a cumulative average), got %g",
                        a->momentum);
    cgp__op_add_norm_parameters(out);
    const cgp_shape channels = cgp__op_shape_last(&inputs[0].shape);
    out->n_state = 3;
    out->state[0] = (cgp_op_state){"running_mean", CGP_F32, channels, 0.0f};
    out->state[1] = (cgp_op_state){"running_var", CGP_F32, channels, 1.0f};
    out->state[2] =
        (cgp_op_state){"num_batches_tracked", CGP_I32, cgp_shape_make(1, (int64_t[]){1}), 0.0f};
    out->accumulator_bytes = cgp__running_stats_bytes(channels.dims[0]);
    return CGP_OK;
}

static cgp_status infer_instance(const void *attributes, const cgp_op_type *inputs,
                                 cgp_op_shapes *out) {
    CGP_TRY(cgp__op_check_image(&inputs[0]));
    return infer_norm(cgp__norm_of(attributes)->eps, inputs, false, out);
}

static cgp_status infer_group(const void *attributes, const cgp_op_type *inputs,
                              cgp_op_shapes *out) {
    const cgp__norm_attributes *a = cgp__norm_of(attributes);
    CGP_TRY(cgp__op_infer_elementwise(attributes, inputs, out));
    const int64_t channels = cgp__op_width(&inputs[0].shape);
    if (a->groups < 1 || channels % a->groups != 0)
        return cgp_fail(CGP_EINVAL, "expects groups that divide C = %" PRId64 ", got %" PRId64,
                        channels, a->groups);
    CGP_TRY(cgp__op_check_eps(a->eps));
    for (int k = 0; k < 2; k++)
        cgp__op_add_saved(out, cgp_shape_make(1, &a->groups), false);
    cgp__op_add_norm_parameters(out);
    return CGP_OK;
}

static int64_t log_bytes(const cgp_op_node *node) {
    return cgp__running_stats_entry_bytes(cgp__op_shape_last(&node->inputs[0].shape).dims[0]);
}

/* FLOPs per element. Forward needs 1 for the mean, 3 for the variance and 2 for the result.
 * Backward I needs 4 for the two sums (the normalized x and a multiply-add) and 5 for dx. Work per
 * channel is not counted. */
const cgp__op cgp__op_batch_norm = {
    .op.name = "batch_norm",
    .op.n_inputs = 1,
    .op.infer = infer_batch,
    .op.input_needs_x = 1u << 0,
    .op.input_needs_saved = 1u << 0 | 1u << 1,
    .op.weight_in_input = true,
    .op.cheap = true,
    .dx = CGP__DX_IN_PLACE,
    .flops = {6, 9, 0},
    .ends_in_relu = true,
    .log_bytes = log_bytes,
    .sizes = cgp__op_set_norm,
};

const cgp__op cgp__op_instance_norm = {
    .op.name = "instance_norm",
    .op.n_inputs = 1,
    .op.infer = infer_instance,
    .op.input_needs_x = 1u << 0,
    .op.input_needs_saved = 1u << 0 | 1u << 1,
    .op.cheap = true,
    .dx = CGP__DX_IN_PLACE,
    .flops = {6, 9, 0},
    .ends_in_relu = true,
    .sizes = cgp__op_set_norm,
};

const cgp__op cgp__op_group_norm = {
    .op.name = "group_norm",
    .op.n_inputs = 1,
    .op.infer = infer_group,
    .op.input_needs_x = 1u << 0,
    .op.input_needs_saved = 1u << 0 | 1u << 1,
    .op.weight_in_input = true,
    .op.cheap = true,
    .dx = CGP__DX_IN_PLACE,
    .flops = {6, 9, 0},
    .ends_in_relu = true,
    .sizes = cgp__op_set_norm,
};
