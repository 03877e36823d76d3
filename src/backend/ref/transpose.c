/* SPDX-License-Identifier: Apache-2.0 */
/* transpose.c -- y [a, j, b, i, c] = x [a, i, b, j, c]; axis `a` includes the samples. Backward
 * either overwrites dx or adds to it. Reference kernels. */
#include "backend/ref/ref.h"

/* Return the offset in x of element e of y. */
static int64_t element_of_x(const cgp_op_parts *g, int64_t e) {
    const int64_t c = e % g->parts[3], line = e / g->parts[3];
    const int64_t i = line % g->parts[0], b = line / g->parts[0] % g->parts[1];
    const int64_t j = line / g->parts[0] / g->parts[1] % g->parts[2];
    const int64_t a = line / g->parts[0] / g->parts[1] / g->parts[2];
    return (((a * g->parts[0] + i) * g->parts[1] + b) * g->parts[2] + j) * g->parts[3] + c;
}

static void transpose_forward(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    for (int64_t e = 0; e < cgp__ref_elements(spec); e++)
        cgp__ref_move(spec, args->y, e, args->x[0], element_of_x(cgp_spec_parts(spec), e));
}

static void transpose_input(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    for (int64_t e = 0; args->dx[0] && e < cgp__ref_elements(spec); e++)
        cgp__ref_store(spec->type, args->dx[0], element_of_x(cgp_spec_parts(spec), e),
                       cgp__ref_adds(spec, 0), cgp__ref_load(spec->type, args->dy, e));
}

const cgp__ref_op cgp__ref_transpose = {.run = {transpose_forward, transpose_input}};
