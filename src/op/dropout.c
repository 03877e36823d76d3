/* SPDX-License-Identifier: Apache-2.0 */
/* dropout.c -- elements set to zero with probability p, the others times 1 / (1 - p). Backward
 * recomputes the mask and needs nothing. Source: Srivastava et al. 2014. */
#include "op/rules.h"

#include <inttypes.h>

static cgp_status infer(const cgp__attributes *attributes, const cgp__type *inputs,
                        cgp__inferred *out) {
    CGP_TRY(cgp__op_infer_elementwise(&inputs[0], out));
    CGP_TRY(cgp__op_check_probability(attributes->p));
    const int64_t elements = out->attributes.rows * out->attributes.out;
    if (elements > (int64_t)1 << 34) /* the mask's counter is element / 4 in 32 bits */
        return cgp_fail(CGP_EINVAL, "expects a sample of at most 2^34 elements, got %" PRId64,
                        elements);
    out->attributes.p = (float)attributes->p;
    return CGP_OK;
}

/* Per element 2, a comparison and a product, and 25 for a quarter of a Philox block. */
static double flops(const cgp__op_attributes *attributes, cgp__direction direction) {
    const double elements = (double)attributes->rows * (double)attributes->out;
    return direction == CGP__BACKWARD_WEIGHT ? 0.0 : 27.0 * elements;
}

const cgp__op cgp__op_dropout = {
    .name = "dropout",
    .kind = CGP__OP_DROPOUT,
    .n_inputs = 1,
    .infer = infer,
    .cheap = true,
    .overwrites = 1u << 0,
    .dx = CGP__DX_IN_PLACE,
    .flops = flops,
};
