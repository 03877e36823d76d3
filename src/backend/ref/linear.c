/* SPDX-License-Identifier: Apache-2.0 */
/* linear.c -- y = x weight^T + bias. Reference kernels.
 *
 *     y  [n R, out] = x [n R, in] weight[out, in]^T + bias[out]
 *     dx [n R, in]  = dy [n R, out] weight
 *     dweight       = dy^T x            dbias = sum over rows of dy
 *
 * A transposed weight has shape [in, out]; only its two strides differ (`strides`). backward_input
 * needs weight; backward_weight needs x. Neither needs y, so the next op may overwrite y. The
 * kernel overwrites y. It either overwrites dx or adds to it. The first micro-batch overwrites
 * dweight and dbias; later micro-batches add to them. */
#include "backend/ref/ref.h"

/* Element (o, i) of the weight is at o * per_out + i * per_in. */
typedef struct strides {
    int64_t per_out, per_in;
} strides;

static strides weight_strides(const cgp_op_linear *g) {
    return g->transposed ? (strides){1, g->out} : (strides){g->in, 1};
}

static void linear_forward(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    const cgp_op_linear *g = cgp_spec_linear(spec);
    const strides at = weight_strides(g);
    const float *weight = args->param[0];
    for (int64_t row = 0; row < spec->n * g->rows; row++) {
        for (int64_t o = 0; o < g->out; o++) {
            double sum = g->has_bias ? args->param[1][o] : 0.0;
            for (int64_t i = 0; i < g->in; i++)
                sum += (double)cgp__ref_load(spec->type, args->x[0], row * g->in + i) *
                       weight[o * at.per_out + i * at.per_in];
            cgp__ref_write(spec->type, args->y, row * g->out + o, (float)sum);
        }
    }
}

static void linear_input(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    const cgp_op_linear *g = cgp_spec_linear(spec);
    const strides at = weight_strides(g);
    const float *weight = args->param[0];
    for (int64_t row = 0; args->dx[0] && row < spec->n * g->rows; row++) {
        for (int64_t i = 0; i < g->in; i++) {
            double sum = 0.0;
            for (int64_t o = 0; o < g->out; o++)
                sum += (double)cgp__ref_load(spec->type, args->dy, row * g->out + o) *
                       weight[o * at.per_out + i * at.per_in];
            cgp__ref_store(spec->type, args->dx[0], row * g->in + i, cgp__ref_adds(spec, 0), sum);
        }
    }
}

static void linear_weight(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    const cgp_op_linear *g = cgp_spec_linear(spec);
    const strides at = weight_strides(g);
    const int64_t rows = spec->n * g->rows;
    for (int64_t o = 0; args->dparam[0] && o < g->out; o++) {
        for (int64_t i = 0; i < g->in; i++) {
            double sum = 0.0;
            for (int64_t row = 0; row < rows; row++)
                sum += (double)cgp__ref_load(spec->type, args->dy, row * g->out + o) *
                       cgp__ref_load(spec->type, args->x[0], row * g->in + i);
            cgp__ref_store(CGP_F32, args->dparam[0], o * at.per_out + i * at.per_in, !args->first,
                           sum);
        }
    }
    for (int64_t o = 0; g->has_bias && args->dparam[1] && o < g->out; o++) {
        double sum = 0.0;
        for (int64_t row = 0; row < rows; row++)
            sum += cgp__ref_load(spec->type, args->dy, row * g->out + o);
        cgp__ref_store(CGP_F32, args->dparam[1], o, !args->first, sum);
    }
}

const cgp__ref_op cgp__ref_linear = {.run = {linear_forward, linear_input, linear_weight}};
