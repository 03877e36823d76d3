/* SPDX-License-Identifier: Apache-2.0 */
/* embedding.c -- y = weight[ids]. Reference kernels.
 *
 *     y       [n, R, C] = weight[ids]                    weight [vocabulary, C]
 *     dweight [v]       = sum of the dy rows whose id is v
 *
 * backward_weight needs ids. There is no dx, because ids are integers. The output y is overwritten.
 * The first micro-batch overwrites all of dweight, including rows that no id selects. Later
 * micro-batches add to dweight. */
#include "backend/ref/ref.h"

static void embedding_forward(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    const int64_t rows = spec->n * spec->attributes.rows, width = spec->attributes.out;
    const int32_t *ids = args->x[0];
    for (int64_t row = 0; row < rows; row++) {
        for (int64_t c = 0; c < width; c++)
            cgp__ref_write(spec->type, args->y, row * width + c,
                           args->param[0][ids[row] * width + c]);
    }
}

/* Return the workspace size in bytes. backward_weight needs space for the sums of one row of
 * dweight. */
static int64_t embedding_workspace(const cgp_kernel_spec *spec) {
    if (spec->direction != CGP_OP_BACKWARD_WEIGHT) return 0;
    return spec->attributes.out * (int64_t)sizeof(double);
}

static void embedding_weight(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    const int64_t rows = spec->n * spec->attributes.rows, width = spec->attributes.out;
    const int32_t *ids = args->x[0];
    double *sum = args->workspace;
    for (int64_t v = 0; v < spec->attributes.in; v++) {
        for (int64_t c = 0; c < width; c++)
            sum[c] = 0.0;
        for (int64_t row = 0; row < rows; row++) {
            for (int64_t c = 0; ids[row] == v && c < width; c++)
                sum[c] += cgp__ref_load(spec->type, args->dy, row * width + c);
        }
        for (int64_t c = 0; c < width; c++)
            cgp__ref_store(CGP_F32, args->dparam[0], v * width + c, !args->first, sum[c]);
    }
}

const cgp__ref_op cgp__ref_embedding = {{embedding_forward, NULL, embedding_weight},
                                        embedding_workspace};
