/* SPDX-License-Identifier: Apache-2.0 */
/* op_needs.h -- describes the operands of forward that backward reads. */
#ifndef CGP_SRC_BASE_OP_NEEDS_H
#define CGP_SRC_BASE_OP_NEEDS_H

#include <cgpipe/op.h>

/* The operands of forward that a direction of backward reads. Bit k of `x` stands for x[k], and bit
 * k of `saved` for saved[k]. */
typedef struct cgp__op_needs {
    uint32_t x, saved;
    bool y;
} cgp__op_needs;

static inline cgp__op_needs cgp__op_needs_of(const cgp_op *op, cgp_op_direction direction) {
    if (direction == CGP_OP_BACKWARD_INPUT)
        return (cgp__op_needs){op->input_needs_x, op->input_needs_saved, op->input_needs_y};
    return (cgp__op_needs){op->weight_needs_x, op->weight_needs_saved, op->weight_needs_y};
}

#endif
