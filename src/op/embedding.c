/* SPDX-License-Identifier: Apache-2.0 */
/* embedding.c -- y = weight[ids]: ids [...] i32 -> [..., width]; weight [vocabulary, width]. */
#include "op/rules.h"

#include <inttypes.h>
#include <string.h>

static cgp_status infer(const cgp__attributes *attributes, const cgp__type *inputs,
                        cgp__inferred *out) {
    const int64_t vocab = attributes->size, width = attributes->width;
    memset(out, 0, sizeof *out);
    CGP_TRY(cgp__op_check("ids", &inputs[0], CGP_I32, 0, CGP__MAX_SAMPLE_RANK - 1));
    if (vocab < 1 || width < 1)
        return cgp_fail(CGP_EINVAL,
                        "expects vocabulary and width >= 1, got %" PRId64 " and %" PRId64,
                        vocab, width);
    if (inputs[0].upper_bound > vocab)
        return cgp_fail(CGP_EINVAL,
                        "expects ids below the vocabulary %" PRId64 ", got up to %" PRId64,
                        vocab, inputs[0].upper_bound - 1);
    const int64_t rows = cgp_shape_count(&inputs[0].shape);
    CGP_TRY(cgp__op_check_size("weight", vocab, width));
    CGP_TRY(cgp__op_check_size("output", rows, width));
    out->attributes.rows = rows;
    out->attributes.in = vocab;
    out->attributes.out = width;
    out->output.dtype = CGP_F32;
    out->output.shape = cgp__op_shape_append(&inputs[0].shape, width);
    out->n_params = 1;
    out->params[0].suffix = "weight";
    out->params[0].decays = true;
    out->params[0].shape = cgp_shape_make(2, (int64_t[]){vocab, width});
    return CGP_OK;
}

/* Forward only copies; it counts one per element, like the sum in backward W, so that a
 * layer of an embedding alone is not free to a balance. */
static double flops(const cgp__op_attributes *attributes, cgp__direction direction) {
    const double elements = (double)attributes->rows * (double)attributes->out;
    return direction == CGP__BACKWARD_INPUT ? 0.0 : elements;
}

static bool valid(const cgp__op_attributes *attributes, int k, const int32_t *data,
                  int64_t count, int64_t *bad, int64_t *upper_bound) {
    *upper_bound = attributes->in;
    for (int64_t i = 0; k == 0 && i < count; i++) {
        if (data[i] < 0 || data[i] >= attributes->in) {
            *bad = i;
            return false;
        }
    }
    return true;
}

const cgp__op cgp__op_embedding = {
    .name = "embedding",
    .kind = CGP__OP_EMBEDDING,
    .n_inputs = 1,
    .infer = infer,
    .weight_needs_x = 1u << 0,
    .dx = CGP__DX_NONE,
    .flops = flops,
    .valid = valid,
};
