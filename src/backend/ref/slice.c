/* SPDX-License-Identifier: Apache-2.0 */
/* slice.c -- y [R, C] = the C columns of x [R, in] that begin at column parts[0]. Reference
 * kernels. Backward either overwrites dx, with zeros outside these columns, or adds to these
 * columns and leaves the others unchanged. */
#include "backend/ref/ref.h"

static void slice_forward(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    const cgp_op_parts *g = cgp_spec_parts(spec);
    for (int64_t row = 0; row < spec->n * g->rows; row++) {
        for (int64_t c = 0; c < g->out; c++)
            cgp__ref_move(spec, args->y, row * g->out + c, args->x[0],
                          row * g->in + g->parts[0] + c);
    }
}

static void slice_input(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    const cgp_op_parts *g = cgp_spec_parts(spec);
    const bool add = cgp__ref_adds(spec, 0);
    for (int64_t row = 0; args->dx[0] && row < spec->n * g->rows; row++) {
        for (int64_t c = 0; c < g->in; c++) {
            const int64_t from = c - g->parts[0];
            const bool covered = from >= 0 && from < g->out;
            if (!covered && add) continue;
            cgp__ref_store(spec->type, args->dx[0], row * g->in + c, add,
                           covered ? cgp__ref_load(spec->type, args->dy, row * g->out + from)
                                   : 0.0f);
        }
    }
}

const cgp__ref_op cgp__ref_slice = {.run = {slice_forward, slice_input}};
