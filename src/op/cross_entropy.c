/* SPDX-License-Identifier: Apache-2.0 */
/* cross_entropy.c -- softmax and cross-entropy: logits [..., classes], targets [...] i32 in
 * 0..classes-1 or `ignore`. Saves the log of each row's sum of exponentials; dx may overwrite
 * the logits. */
#include "op/rules.h"

#include <inttypes.h>
#include <string.h>

/* The leading dims of the logits; or [1] for logits of one row, [classes]. */
static cgp_status check_targets(const cgp__type *logits, const cgp__type *targets) {
    char first[192], second[192], third[192];
    const cgp_shape rows = cgp__op_shape_rows(&logits->shape);
    const cgp_shape one = cgp_shape_make(1, (int64_t[]){1});
    CGP_TRY(cgp__op_check("targets", targets, CGP_I32, 0, CGP__MAX_SAMPLE_RANK));
    if (cgp_shape_equal(&targets->shape, &rows)) return CGP_OK;
    if (rows.rank == 0 && cgp_shape_equal(&targets->shape, &one)) return CGP_OK;
    return cgp_fail(CGP_EINVAL, "expects targets %s for logits %s, got %s",
                    cgp_shape_text(rows.rank == 0 ? &one : &rows, first, sizeof first),
                    cgp_shape_text(&logits->shape, second, sizeof second),
                    cgp_shape_text(&targets->shape, third, sizeof third));
}

static cgp_status infer(const cgp__attributes *attributes, const cgp__type *inputs,
                        cgp__inferred *out) {
    const cgp_shape *logits = &inputs[0].shape;
    memset(out, 0, sizeof *out);
    CGP_TRY(cgp__op_check("logits", &inputs[0], CGP_F32, 1, CGP__MAX_SAMPLE_RANK));
    CGP_TRY(check_targets(&inputs[0], &inputs[1]));
    if (inputs[1].upper_bound > cgp__op_width(logits))
        return cgp_fail(CGP_EINVAL,
                        "expects targets below the %" PRId64 " classes, got up to %" PRId64,
                        cgp__op_width(logits), inputs[1].upper_bound - 1);
    if (attributes->ignore >= 0 && attributes->ignore < inputs[1].upper_bound)
        return cgp_fail(CGP_EINVAL,
                        "expects an ignored target that the graph never makes, got %" PRId64
                        " (it makes 0 to %" PRId64 ")",
                        attributes->ignore, inputs[1].upper_bound - 1);
    out->attributes.rows = cgp__op_rows(logits);
    out->attributes.in = cgp__op_width(logits);
    out->attributes.ignore = attributes->ignore;
    out->n_saved = 1;
    out->saved[0].dtype = CGP_F32;
    out->saved[0].shape = cgp__op_shape_rows(logits);
    return CGP_OK;
}

/* Per logit: forward, a maximum, a difference, an exp (10) and a sum; backward I, a difference,
 * an exp and a product. */
static double flops(const cgp__op_attributes *attributes, cgp__direction direction) {
    const double elements = (double)attributes->rows * (double)attributes->in;
    const double each[CGP__DIRECTIONS] = {13.0, 12.0, 0.0};
    return each[direction] * elements;
}

static bool valid(const cgp__op_attributes *attributes, int k, const int32_t *data,
                  int64_t count, int64_t *bad, int64_t *upper_bound) {
    *upper_bound = attributes->in;
    for (int64_t i = 0; k == 1 && i < count; i++) {
        if (data[i] != attributes->ignore && (data[i] < 0 || data[i] >= attributes->in)) {
            *bad = i;
            return false;
        }
    }
    return true;
}

static int64_t count_targets(const cgp__op_attributes *attributes, const void *targets,
                             int64_t count) {
    const int32_t *ids = targets;
    int64_t counted = 0;
    for (int64_t i = 0; i < count; i++)
        counted += ids[i] != attributes->ignore;
    return counted;
}

const cgp__op cgp__op_cross_entropy = {
    .name = "cross_entropy",
    .kind = CGP__OP_CROSS_ENTROPY,
    .n_inputs = 2,
    .is_loss = true,
    .infer = infer,
    .input_needs_x = 1u << 0 | 1u << 1,
    .input_needs_saved = 1u << 0,
    .dx = CGP__DX_OVER_X,
    .flops = flops,
    .valid = valid,
    .count = count_targets,
};
