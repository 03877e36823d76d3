/* SPDX-License-Identifier: Apache-2.0 */
/* detach.c -- y = x, without a gradient. No data moves, since y may have the memory of x. */
#include "op/rules.h"

const cgp__op cgp__op_detach = {
    .op.name = "detach",
    .op.n_inputs = 1,
    .op.infer = cgp__op_infer_elementwise,
    .op.cheap = true,
    .op.overwrites = 1u << 0,
    .dx = CGP__DX_NONE,
};
