/* SPDX-License-Identifier: Apache-2.0 */
/* concat.c -- y[row] is the concatenation of x[0][row], x[1][row], ...; dx[k][row] is the part of
 * dy[row] that corresponds to x[k][row]. Reference kernels.
 *
 * Backward needs nothing from forward. */
#include "backend/ref/ref.h"

static void concat_forward(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    const cgp_op_parts *g = cgp_spec_parts(spec);
    int64_t first = 0;
    for (int k = 0; k < CGP_OP_MAX_INPUTS; first += g->parts[k++]) {
        for (int64_t e = 0; e < spec->n * g->rows * g->parts[k]; e++)
            cgp__ref_move(spec, args->y, e / g->parts[k] * g->out + first + e % g->parts[k],
                          args->x[k], e);
    }
}

/* Process the last input first, as in cgp__ref_pass_dy(). */
static void concat_input(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    const cgp_op_parts *g = cgp_spec_parts(spec);
    int64_t first = g->out;
    for (int k = CGP_OP_MAX_INPUTS - 1; k >= 0; k--) {
        first -= g->parts[k];
        for (int64_t e = 0; args->dx[k] && e < spec->n * g->rows * g->parts[k]; e++) {
            const int64_t from = e / g->parts[k] * g->out + first + e % g->parts[k];
            cgp__ref_store(spec->type, args->dx[k], e, cgp__ref_adds(spec, k),
                           cgp__ref_load(spec->type, args->dy, from));
        }
    }
}

const cgp__ref_op cgp__ref_concat = {.run = {concat_forward, concat_input}};
