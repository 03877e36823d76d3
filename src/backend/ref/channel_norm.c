/* SPDX-License-Identifier: Apache-2.0 */
/* channel_norm.c -- each channel to mean 0 and variance 1 over a group of rows, reference kernels.
 *
 *     BATCH_NORM      one group, all samples     h = (x - mean) rstd     y = h weight + bias
 *     INSTANCE_NORM   one per sample                                     y = h
 *
 *     mean = sum(x) / r     variance = sum((x - mean)^2) / r     rstd = 1 / sqrt(variance + eps)     r rows a group
 *     dx = rstd weight (dy - sum(dy) / r - h sum(dy h) / r)      dweight = sum(dy h)     dbias = sum(dy)
 *
 * Outside training BATCH_NORM takes mean and variance from its state and saves nothing. backward_input needs x and the saved
 * mean and rstd, one of each per group and channel, and differentiates through them; it makes dweight and dbias as well, there
 * is no backward_weight. y is overwritten. dx may be dy unless it is added to: each channel of a group is read for
 * the last time before dx is written. dweight and dbias are written by the first micro-batch and added to by the
 * others. */
#include "backend/ref/ref.h"
#include "backend/running_stats.h"

#include <math.h>

/* One channel of one group: its elements are first, first + step, ... */
typedef struct channel {
    int64_t first, step, rows;
    /* Index among channels, and in saved. */
    int64_t c, index;
} channel;

static int64_t groups(const cgp_kernel_spec *spec) {
    return spec->op == CGP_OP_BATCH_NORM ? 1 : spec->n;
}

static channel channel_of(const cgp_kernel_spec *spec, int64_t index) {
    const int64_t rows = spec->n * spec->attributes.rows / groups(spec);
    const int64_t width = spec->attributes.out, c = index % width;
    return (channel){index / width * rows * width + c, width, rows, c, index};
}

static double load(const cgp_kernel_spec *spec, const void *from, const channel *at,
                   int64_t row) {
    return cgp__ref_load(spec->type, from, at->first + row * at->step);
}

/* Of BATCH_NORM's weight or bias; another norm has none. */
static double parameter(const cgp_kernel_args *args, int k, const channel *at, double without) {
    return args->param[k] ? args->param[k][at->c] : without;
}

/* BATCH_NORM forward: the variances, in f32. */
static int64_t channel_norm_workspace(const cgp_kernel_spec *spec) {
    if (spec->op != CGP_OP_BATCH_NORM || spec->direction != CGP_OP_FORWARD) return 0;
    return spec->attributes.out * (int64_t)sizeof(float);
}

static void statistics(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                       const channel *at, double *mean, double *variance) {
    double sum = 0.0, squares = 0.0;
    for (int64_t row = 0; row < at->rows; row++)
        sum += load(spec, args->x[0], at, row);
    *mean = sum / (double)at->rows;
    for (int64_t row = 0; row < at->rows; row++) {
        const double difference = load(spec, args->x[0], at, row) - *mean;
        squares += difference * difference;
    }
    *variance = squares / (double)at->rows;
}

static void normalise(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                      const channel *at, double mean, double rstd) {
    const double weight = parameter(args, 0, at, 1.0), bias = parameter(args, 1, at, 0.0);
    for (int64_t row = 0; row < at->rows; row++) {
        const double h = (load(spec, args->x[0], at, row) - mean) * rstd;
        cgp__ref_write(spec->type, args->y, at->first + row * at->step,
                       (float)(h * weight + bias));
    }
}

static double reciprocal_deviation(const cgp_kernel_spec *spec, double variance) {
    return 1.0 / sqrt(variance + (double)spec->attributes.eps);
}

/* BATCH_NORM outside training */
static void forward_fixed(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    const float *mean = args->state[0], *variance = args->state[1];
    for (int64_t c = 0; c < spec->attributes.out; c++) {
        const channel at = channel_of(spec, c);
        normalise(spec, args, &at, mean[c], reciprocal_deviation(spec, variance[c]));
    }
}

static void channel_norm_forward(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    const bool batch = spec->op == CGP_OP_BATCH_NORM;
    float *variances = args->workspace;
    if (batch && !args->training) {
        forward_fixed(spec, args);
        return;
    }
    for (int64_t index = 0; index < groups(spec) * spec->attributes.out; index++) {
        const channel at = channel_of(spec, index);
        double mean, variance;
        statistics(spec, args, &at, &mean, &variance);
        const double rstd = reciprocal_deviation(spec, variance);
        normalise(spec, args, &at, mean, rstd);
        args->saved[0][index] = (float)mean;
        args->saved[1][index] = (float)rstd;
        if (batch) variances[index] = (float)variance;
    }
    if (batch && args->accumulator)
        cgp__running_stats_collect(spec, args, args->saved[0], variances,
                                   spec->n * spec->attributes.rows);
}

/* The sums of a channel of a group: of dy, of dy h. */
static void sum_channel(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                        const channel *at, double *sum, double *product) {
    const double mean = args->saved[0][at->index], rstd = args->saved[1][at->index];
    *sum = *product = 0.0;
    for (int64_t row = 0; row < at->rows; row++) {
        const double dy = load(spec, args->dy, at, row);
        *sum += dy;
        *product += dy * (load(spec, args->x[0], at, row) - mean) * rstd;
    }
}

static void input_channel(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                          const channel *at, double sum, double product) {
    const double mean = args->saved[0][at->index], rstd = args->saved[1][at->index];
    const double weight = parameter(args, 0, at, 1.0), rows = (double)at->rows;
    for (int64_t row = 0; row < at->rows; row++) {
        const double h = (load(spec, args->x[0], at, row) - mean) * rstd;
        const double g = load(spec, args->dy, at, row) - sum / rows - h * product / rows;
        cgp__ref_store(spec->type, args->dx[0], at->first + row * at->step,
                       cgp__ref_adds(spec, 0), rstd * weight * g);
    }
}

static void channel_norm_input(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    for (int64_t index = 0; index < groups(spec) * spec->attributes.out; index++) {
        const channel at = channel_of(spec, index);
        double sum, product;
        sum_channel(spec, args, &at, &sum, &product);
        if (args->dx[0]) input_channel(spec, args, &at, sum, product);
        if (spec->op != CGP_OP_BATCH_NORM) continue;
        cgp__ref_store(CGP_F32, args->dparam[0], at.c, !args->first, product);
        cgp__ref_store(CGP_F32, args->dparam[1], at.c, !args->first, sum);
    }
}

const cgp__ref_op cgp__ref_batch_norm = {{channel_norm_forward, channel_norm_input},
                                         channel_norm_workspace};

const cgp__ref_op cgp__ref_instance_norm = {{channel_norm_forward, channel_norm_input},
                                            channel_norm_workspace};
