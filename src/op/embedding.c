/* SPDX-License-Identifier: Apache-2.0 */
/* embedding.c -- y = weight[ids]: ids [...] i32 -> [..., width]; weight [vocabulary, width]. */
#include "op/rules.h"

#include <inttypes.h>

static cgp_status infer(const void *attributes, const cgp_op_type *inputs, cgp_op_shapes *out) {
    const cgp__attributes *a = attributes;
    CGP_TRY(cgp__op_check("ids", &inputs[0], CGP_I32, 0, CGP__MAX_SAMPLE_RANK - 1));
    if (a->size < 1 || a->width < 1)
        return cgp_fail(CGP_EINVAL,
                        "expects vocabulary and width >= 1, got %" PRId64 " and %" PRId64, a->size,
                        a->width);
    if (inputs[0].upper_bound > a->size)
        return cgp_fail(CGP_EINVAL,
                        "expects ids below the vocabulary %" PRId64 ", got up to %" PRId64, a->size,
                        inputs[0].upper_bound - 1);
    CGP_TRY(cgp__op_check_size("weight", a->size, a->width));
    CGP_TRY(cgp__op_check_size("output", cgp_shape_count(&inputs[0].shape), a->width));
    out->output.shape = cgp__op_shape_append(&inputs[0].shape, a->width);
    cgp__op_add_parameter(out, "weight", cgp_shape_make(2, (int64_t[]){a->size, a->width}),
                          cgp_init_by_fan(a->init[0], a->width, a->size), true);
    return CGP_OK;
}

static int64_t upper_bound(const cgp_op_node *node, int k) {
    (void)k;
    return ((const cgp__attributes *)node->attributes)->size;
}

static void set_sizes(const cgp_op_node *node, cgp_op_attributes *sizes) {
    sizes->in = upper_bound(node, 0);
}

/* Forward only copies. Nevertheless it counts as one FLOP per element, like the sum in backward W.
 * So a layer that has only an embedding has a cost when layers are balanced. */
const cgp__op cgp__op_embedding = {
    .op.name = "embedding",
    .op.n_inputs = 1,
    .op.infer = infer,
    .op.weight_needs_x = 1u << 0,
    .op.upper_bound = upper_bound,
    .dx = CGP__DX_NONE,
    .flops = {1, 0, 1},
    .sizes = set_sizes,
};
