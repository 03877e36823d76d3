/* SPDX-License-Identifier: Apache-2.0 */
/* channel_norm.c -- each channel to mean 0 and variance 1. BATCH_NORM: over all samples of a micro-batch and all rows,
 * then scaled and shifted: [..., C] -> [..., C]; weight [C], bias [C]. INSTANCE_NORM: over the pixels of each sample, [H, W, C].
 *
 * Saves mean and 1 / standard deviation, one per micro-batch or one per sample; the small weight gradients come with dx.
 * BATCH_NORM's running statistics change at the end of a step: by each micro-batch in ascending order, or, deferred, once by
 * those of the whole mini-batch; their variance is unbiased, as in PyTorch.
 *
 * Source: Ioffe and Szegedy 2015, arXiv:1502.03167; Ulyanov et al. 2016, arXiv:1607.08022. Deferred: torchgpipe. */
#include "op/rules.h"

#include "backend/running_stats.h"

static cgp_status infer_norm(const cgp__attributes *attributes, const cgp__type *inputs,
                             cgp__inferred *out) {
    CGP_TRY(cgp__op_infer_elementwise(&inputs[0], out));
    CGP_TRY(cgp__op_check_eps(attributes->eps));
    out->attributes.eps = (float)attributes->eps;
    out->attributes.slope = 1.0f;
    out->n_saved = 2;
    for (int k = 0; k < 2; k++) {
        out->saved[k].dtype = CGP_F32;
        out->saved[k].shape = cgp_shape_make(1, &out->attributes.out);
    }
    return CGP_OK;
}

static cgp_status infer_batch(const cgp__attributes *attributes, const cgp__type *inputs,
                              cgp__inferred *out) {
    static const char *const suffixes[] = {"weight", "bias"};
    CGP_TRY(infer_norm(attributes, inputs, out));
    const float momentum = (float)attributes->momentum;
    if (!(momentum <= 1.0f && (momentum >= 0.0f || momentum == -1.0f)))
        return cgp_fail(CGP_EINVAL,
                        "expects a momentum from 0 to 1 (or -1, a cumulative average), got %g",
                        attributes->momentum);
    out->attributes.momentum = momentum;
    const cgp_shape channels = cgp_shape_make(1, &out->attributes.out);
    out->n_params = 2;
    for (int k = 0; k < 2; k++) {
        out->saved[k].whole = true;
        out->params[k].suffix = suffixes[k];
        out->params[k].shape = channels;
    }
    out->n_state = 3;
    out->state[0] = (cgp__op_state){"running_mean", CGP_F32, channels, 0.0f};
    out->state[1] = (cgp__op_state){"running_var", CGP_F32, channels, 1.0f};
    out->state[2] = (cgp__op_state){"num_batches_tracked", CGP_I32,
                                    cgp_shape_make(1, (int64_t[]){1}), 0.0f};
    out->accumulator_bytes = cgp__running_stats_bytes(out->attributes.out);
    return CGP_OK;
}

static cgp_status infer_instance(const cgp__attributes *attributes, const cgp__type *inputs,
                                 cgp__inferred *out) {
    CGP_TRY(cgp__op_check_image(&inputs[0]));
    return infer_norm(attributes, inputs, out);
}

/* Per element: forward, 1 for the mean, 3 for the variance, 2 for the result. Backward I: 4 for the two sums (h and a
 * multiply-add), 5 for dx. Once a channel is not counted. */
static double flops(const cgp__op_attributes *attributes, cgp__direction direction) {
    const double elements = (double)attributes->rows * (double)attributes->out;
    const double each[CGP__DIRECTIONS] = {6.0, 9.0, 0.0};
    return each[direction] * elements;
}

const cgp__op cgp__op_batch_norm = {
    .name = "batch_norm",
    .kind = CGP__OP_BATCH_NORM,
    .n_inputs = 1,
    .infer = infer_batch,
    .input_needs_x = 1u << 0,
    .input_needs_saved = 1u << 0 | 1u << 1,
    .weight_in_input = true,
    .cheap = true,
    .dx = CGP__DX_IN_PLACE,
    .flops = flops,
};

const cgp__op cgp__op_instance_norm = {
    .name = "instance_norm",
    .kind = CGP__OP_INSTANCE_NORM,
    .n_inputs = 1,
    .infer = infer_instance,
    .input_needs_x = 1u << 0,
    .input_needs_saved = 1u << 0 | 1u << 1,
    .cheap = true,
    .dx = CGP__DX_IN_PLACE,
    .flops = flops,
};
