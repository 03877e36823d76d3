/* SPDX-License-Identifier: Apache-2.0 */
/* channel_norm.c -- normalises channels to mean 0 and variance 1 over a set of rows. Reference
 * kernels.
 *
 *     BATCH_NORM      one set, all samples    each channel alone     y = h weight + bias
 *     INSTANCE_NORM   one set per sample      each channel alone     y = h
 *     GROUP_NORM      one set per sample      groups of channels     y = h weight + bias
 *
 *     mean = sum(x) / k     variance = sum((x - mean)^2) / k     over k elements
 *     rstd = 1 / sqrt(variance + eps)     h = (x - mean) rstd     g = dy weight
 *     dx = rstd (g - sum(g) / k - h sum(g h) / k)     dweight = sum(dy h)     dbias = sum(dy)
 *
 * Outside training, BATCH_NORM takes mean and variance from its state and saves nothing.
 * backward_input needs x and the saved mean and rstd; dx includes the derivatives through mean and
 * rstd. Each set and group (or channel) has one mean and one rstd. backward_input also computes
 * dweight and dbias; there is no backward_weight. The output y is overwritten. The gradient dx may
 * alias dy unless the kernel adds to dx, because each group of a set is read for the last time
 * before its dx is written. The first micro-batch overwrites dweight and dbias; later micro-batches
 * add to them. If the variance is not a finite f32, then rstd, y and dx are NaN. */
#include "backend/ref/ref.h"
#include "backend/running_stats.h"

#include <float.h>
#include <math.h>

/* A part: elements that share a mean. These are channels c .. c + channels - 1 in all rows of a
 * set. */
typedef struct part {
    int64_t first, step, rows, channels;
    int64_t c;
    /* Index in saved[0] and saved[1]. */
    int64_t index;
} part;

static int64_t sets(const cgp_kernel_spec *spec) {
    return spec->op == CGP_OP_BATCH_NORM ? 1 : spec->n;
}

/* Return the number of parts of a set. */
static int64_t parts(const cgp_kernel_spec *spec) {
    return spec->op == CGP_OP_GROUP_NORM ? cgp_spec_norm(spec)->groups : spec->attributes.out;
}

static part part_of(const cgp_kernel_spec *spec, int64_t index) {
    const int64_t rows = spec->n * spec->attributes.rows / sets(spec);
    const int64_t width = spec->attributes.out, channels = width / parts(spec);
    const int64_t c = index % parts(spec) * channels;
    return (part){index / parts(spec) * rows * width + c, width, rows, channels, c, index};
}

/* Return the offset of element `i` of a part. The element is in row i / channels. */
static int64_t place(const part *at, int64_t i) {
    return at->first + i / at->channels * at->step + i % at->channels;
}

static int64_t elements(const part *at) {
    return at->rows * at->channels;
}

static double load(const cgp_kernel_spec *spec, const void *from, const part *at, int64_t i) {
    return cgp__ref_load(spec->type, from, place(at, i));
}

/* Return the weight (k = 0) or bias (k = 1) of element i. For INSTANCE_NORM, which has neither,
 * return `without`. */
static double parameter(const cgp_kernel_args *args, int k, const part *at, int64_t i,
                        double without) {
    return args->param[k] ? args->param[k][at->c + i % at->channels] : without;
}

/* Return the workspace size in bytes. Forward of BATCH_NORM needs space for the variances in f32.
 * Backward of BATCH_NORM and GROUP_NORM needs space for the sums of dweight and dbias. */
static int64_t channel_norm_workspace(const cgp_kernel_spec *spec) {
    if (spec->op == CGP_OP_BATCH_NORM && spec->direction == CGP_OP_FORWARD)
        return spec->attributes.out * (int64_t)sizeof(float);
    if (spec->op != CGP_OP_INSTANCE_NORM && spec->direction == CGP_OP_BACKWARD_INPUT)
        return 2 * spec->attributes.out * (int64_t)sizeof(double);
    return 0;
}

static void statistics(const cgp_kernel_spec *spec, const cgp_kernel_args *args, const part *at,
                       double *mean, double *variance) {
    double sum = 0.0, squares = 0.0;
    for (int64_t i = 0; i < elements(at); i++)
        sum += load(spec, args->x[0], at, i);
    *mean = sum / (double)elements(at);
    for (int64_t i = 0; i < elements(at); i++) {
        const double difference = load(spec, args->x[0], at, i) - *mean;
        squares += difference * difference;
    }
    *variance = squares / (double)elements(at);
}

static void normalise(const cgp_kernel_spec *spec, const cgp_kernel_args *args, const part *at,
                      double mean, double rstd) {
    for (int64_t i = 0; i < elements(at); i++) {
        const double h = (load(spec, args->x[0], at, i) - mean) * rstd;
        cgp__ref_write(
            spec->type, args->y, place(at, i),
            (float)(h * parameter(args, 0, at, i, 1.0) + parameter(args, 1, at, i, 0.0)));
    }
}

static double reciprocal_deviation(const cgp_kernel_spec *spec, double variance) {
    if (!(variance <= FLT_MAX)) return NAN;
    return 1.0 / sqrt(variance + (double)cgp_spec_norm(spec)->eps);
}

/* Run forward of BATCH_NORM outside training. */
static void forward_fixed(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    const float *mean = args->state[0], *variance = args->state[1];
    for (int64_t c = 0; c < spec->attributes.out; c++) {
        const part at = part_of(spec, c);
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
    for (int64_t index = 0; index < sets(spec) * parts(spec); index++) {
        const part at = part_of(spec, index);
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

static double h_of(const cgp_kernel_spec *spec, const cgp_kernel_args *args, const part *at,
                   int64_t i) {
    const double mean = args->saved[0][at->index], rstd = args->saved[1][at->index];
    return (load(spec, args->x[0], at, i) - mean) * rstd;
}

static void add_weights(const cgp_kernel_spec *spec, const cgp_kernel_args *args, const part *at) {
    double *dweight = args->workspace, *dbias = dweight + spec->attributes.out;
    for (int64_t i = 0; i < elements(at); i++) {
        const double dy = load(spec, args->dy, at, i);
        dweight[at->c + i % at->channels] += dy * h_of(spec, args, at, i);
        dbias[at->c + i % at->channels] += dy;
    }
}

static void input_part(const cgp_kernel_spec *spec, const cgp_kernel_args *args, const part *at) {
    const double rstd = args->saved[1][at->index], count = (double)elements(at);
    double sum = 0.0, product = 0.0;
    for (int64_t i = 0; i < elements(at); i++) {
        const double g = load(spec, args->dy, at, i) * parameter(args, 0, at, i, 1.0);
        sum += g;
        product += g * h_of(spec, args, at, i);
    }
    for (int64_t i = 0; i < elements(at); i++) {
        const double g = load(spec, args->dy, at, i) * parameter(args, 0, at, i, 1.0);
        const double h = h_of(spec, args, at, i);
        cgp__ref_store(spec->type, args->dx[0], place(at, i), cgp__ref_adds(spec, 0),
                       rstd * (g - sum / count - h * product / count));
    }
}

static void channel_norm_input(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    const int64_t width = spec->attributes.out;
    const bool weights = spec->op != CGP_OP_INSTANCE_NORM;
    double *sums = args->workspace;
    for (int64_t i = 0; weights && i < 2 * width; i++)
        sums[i] = 0.0;
    for (int64_t index = 0; index < sets(spec) * parts(spec); index++) {
        const part at = part_of(spec, index);
        if (weights) add_weights(spec, args, &at);
        if (args->dx[0]) input_part(spec, args, &at);
    }
    for (int64_t i = 0; weights && i < 2 * width; i++) {
        if (args->dparam[i / width])
            cgp__ref_store(CGP_F32, args->dparam[i / width], i % width, !args->first, sums[i]);
    }
}

const cgp__ref_op cgp__ref_batch_norm = {{channel_norm_forward, channel_norm_input},
                                         channel_norm_workspace};

const cgp__ref_op cgp__ref_instance_norm = {{channel_norm_forward, channel_norm_input},
                                            channel_norm_workspace};

const cgp__ref_op cgp__ref_group_norm = {{channel_norm_forward, channel_norm_input},
                                         channel_norm_workspace};
