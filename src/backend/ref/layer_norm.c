/* SPDX-License-Identifier: Apache-2.0 */
/* layer_norm.c -- y = (x - mean) rstd weight + bias over rows of C. Reference kernels.
 *
 *     LAYER_NORM  mean = sum(x) / C     RMS_NORM  mean = 0, bias = 0
 *
 *     rstd = 1 / sqrt(sum((x - mean)^2) / C + eps)     h = (x - mean) rstd     g = dy weight
 *     dx = rstd (g - sum(g) / C - h sum(g h) / C)      RMS_NORM: without the sum of g
 *     dweight = sum over rows of dy h                  dbias = sum over rows of dy
 *
 * backward_input needs x, the saved mean (LAYER_NORM) and rstd. It also computes dweight and dbias;
 * there is no backward_weight. The output y is overwritten. The gradient dx may alias dy unless the
 * kernel adds to dx. This works because each row of dy is read for the last time before the same
 * row of dx is written. The first micro-batch overwrites dweight and dbias; later micro-batches add
 * to them. If the sum of squares is not a finite f32, then rstd, y and dx are NaN. */
#include "backend/ref/ref.h"

#include <float.h>
#include <math.h>

static bool is_centred(const cgp_kernel_spec *spec) {
    return spec->op == CGP_OP_LAYER_NORM;
}

/* Return the saved rstd. For LAYER_NORM, saved[0] holds the means and saved[1] holds rstd; for
 * RMS_NORM, saved[0] holds rstd. */
static float *rstd_of(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    return args->saved[is_centred(spec) ? 1 : 0];
}

static double mean_at(const cgp_kernel_spec *spec, const cgp_kernel_args *args, int64_t row) {
    return is_centred(spec) ? (double)args->saved[0][row] : 0.0;
}

static double mean_of(const cgp_kernel_spec *spec, const cgp_kernel_args *args, int64_t row) {
    const int64_t width = spec->attributes.out;
    double sum = 0.0;
    for (int64_t c = 0; c < width; c++)
        sum += cgp__ref_load(spec->type, args->x[0], row * width + c);
    return sum / (double)width;
}

static void norm_forward(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    const int64_t rows = spec->n * spec->attributes.rows, width = spec->attributes.out;
    const bool centred = is_centred(spec);
    for (int64_t row = 0; row < rows; row++) {
        const int64_t at = row * width;
        const double mean = centred ? mean_of(spec, args, row) : 0.0;
        double squares = 0.0;
        for (int64_t c = 0; c < width; c++) {
            const double x = cgp__ref_load(spec->type, args->x[0], at + c);
            squares += (x - mean) * (x - mean);
        }
        const double variance = squares <= FLT_MAX ? squares / (double)width : (double)NAN;
        const double rstd = 1.0 / sqrt(variance + (double)cgp_spec_norm(spec)->eps);
        for (int64_t c = 0; c < width; c++) {
            const double h = (cgp__ref_load(spec->type, args->x[0], at + c) - mean) * rstd;
            cgp__ref_write(spec->type, args->y, at + c,
                           (float)(h * args->param[0][c] + (centred ? args->param[1][c] : 0.0f)));
        }
        if (centred) args->saved[0][row] = (float)mean;
        rstd_of(spec, args)[row] = (float)rstd;
    }
}

/* Return the workspace size in bytes. Backward needs space for the sums of dweight and dbias. */
static int64_t norm_workspace(const cgp_kernel_spec *spec) {
    if (spec->direction != CGP_OP_BACKWARD_INPUT) return 0;
    return 2 * spec->attributes.out * (int64_t)sizeof(double);
}

static void input_row(const cgp_kernel_spec *spec, const cgp_kernel_args *args, int64_t row) {
    const int64_t width = spec->attributes.out, at = row * width;
    const double mean = mean_at(spec, args, row), rstd = rstd_of(spec, args)[row];
    double sum = 0.0, product = 0.0;
    for (int64_t c = 0; c < width; c++) {
        const double g = (double)cgp__ref_load(spec->type, args->dy, at + c) * args->param[0][c];
        sum += g;
        product += g * (cgp__ref_load(spec->type, args->x[0], at + c) - mean) * rstd;
    }
    sum = is_centred(spec) ? sum / (double)width : 0.0;
    product /= (double)width;
    for (int64_t c = 0; c < width; c++) {
        const double g = (double)cgp__ref_load(spec->type, args->dy, at + c) * args->param[0][c];
        const double h = (cgp__ref_load(spec->type, args->x[0], at + c) - mean) * rstd;
        cgp__ref_store(spec->type, args->dx[0], at + c, cgp__ref_adds(spec, 0),
                       rstd * (g - sum - h * product));
    }
}

static void norm_input(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    const int64_t rows = spec->n * spec->attributes.rows, width = spec->attributes.out;
    double *dweight = args->workspace, *dbias = dweight + width;
    for (int64_t c = 0; c < width; c++)
        dweight[c] = dbias[c] = 0.0;
    for (int64_t row = 0; row < rows; row++) {
        const double mean = mean_at(spec, args, row), rstd = rstd_of(spec, args)[row];
        for (int64_t c = 0; c < width; c++) {
            const double dy = cgp__ref_load(spec->type, args->dy, row * width + c);
            const double x = cgp__ref_load(spec->type, args->x[0], row * width + c);
            dweight[c] += dy * ((x - mean) * rstd);
            dbias[c] += dy;
        }
        if (args->dx[0]) input_row(spec, args, row);
    }
    for (int64_t c = 0; c < width; c++) {
        if (args->dparam[0]) cgp__ref_store(CGP_F32, args->dparam[0], c, !args->first, dweight[c]);
        if (is_centred(spec) && args->dparam[1])
            cgp__ref_store(CGP_F32, args->dparam[1], c, !args->first, dbias[c]);
    }
}

const cgp__ref_op cgp__ref_layer_norm = {{norm_forward, norm_input}, norm_workspace};
const cgp__ref_op cgp__ref_rms_norm = {{norm_forward, norm_input}, norm_workspace};
