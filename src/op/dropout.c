/* SPDX-License-Identifier: Apache-2.0 */
/* dropout.c -- sets elements to zero with probability p and multiplies the others by 1 / (1 - p).
 * Backward recomputes the mask and needs nothing from forward. Source: Srivastava et al. 2014. */
#include "op/rules.h"

#include <inttypes.h>

static cgp_status infer(const void *attributes, const cgp_op_type *inputs, cgp_op_shapes *out) {
    CGP_TRY(cgp__op_infer_elementwise(attributes, inputs, out));
    CGP_TRY(cgp__op_check_probability(((const cgp__attributes *)attributes)->p));
    const int64_t elements = cgp_shape_count(&inputs[0].shape);
    if (elements > (int64_t)1 << 34) /* the counter for the mask is the element's index / 4, in 32
                                      * bits */
        return cgp_fail(CGP_EINVAL, "expects a sample of at most 2^34 elements, got %" PRId64,
                        elements);
    return CGP_OK;
}

/* FLOPs per element: 2 for a comparison and a product, and 25 for a quarter of a Philox block. */
const cgp__op cgp__op_dropout = {
    .op.name = "dropout",
    .op.n_inputs = 1,
    .op.infer = infer,
    .op.cheap = true,
    .op.overwrites = 1u << 0,
    .dx = CGP__DX_IN_PLACE,
    .flops = {27, 27, 0},
};
