/* SPDX-License-Identifier: Apache-2.0 */
/* running_stats.c -- running statistics, which are kept in double until a step ends
 * (running_stats.h). */
#include "backend/running_stats.h"

#include <math.h>

/* The accumulator, of cgp__running_stats_bytes() bytes. `values` holds means, followed by variances
 * or, if deferred, by sums of squares. */
typedef struct accumulator {
    double rows, batches;
    double values[];
} accumulator;

/* The statistics of a micro-batch. `values` has the means, followed by the biased variances. */
typedef struct entry {
    double rows;
    float values[];
} entry;

int64_t cgp__running_stats_bytes(int64_t channels) {
    return (2 + 2 * channels) * (int64_t)sizeof(double);
}

int64_t cgp__running_stats_entry_bytes(int64_t channels) {
    return (int64_t)sizeof(double) + 2 * channels * (int64_t)sizeof(float);
}

static double factor(const cgp_kernel_spec *spec, double tracked) {
    const float momentum = cgp_spec_norm(spec)->momentum;
    return momentum < 0.0f ? 1.0 / tracked : (double)momentum;
}

static double unbiased(double sum_squares, double rows) {
    return rows > 1.0 ? sum_squares / (rows - 1.0) : 0.0;
}

static void begin(const cgp_kernel_args *args, accumulator *a, int64_t channels) {
    const float *mean = args->state[0], *variance = args->state[1];
    a->rows = a->batches = 0.0;
    for (int64_t i = 0; i < channels; i++) {
        a->values[i] = args->deferred ? 0.0 : mean[i];
        a->values[channels + i] = args->deferred ? 0.0 : variance[i];
    }
}

static entry *entry_of(const cgp_kernel_args *args, int64_t k) {
    return (entry *)(void *)((char *)args->log + k * args->log_bytes);
}

/* Write the statistics of a micro-batch to the next entry of the log. */
static void note(const cgp_kernel_args *args, const float *mean, const float *variance,
                 int64_t channels, double rows) {
    accumulator *a = args->accumulator;
    if (args->first) a->rows = a->batches = 0.0;
    entry *e = entry_of(args, (int64_t)a->batches);
    a->batches += 1.0;
    e->rows = rows;
    for (int64_t i = 0; i < channels; i++) {
        e->values[i] = mean[i];
        e->values[channels + i] = variance[i];
    }
}

void cgp__running_stats_collect(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                                const float *mean, const float *variance, int64_t rows) {
    const int64_t channels = spec->attributes.out;
    const double r = (double)rows;
    accumulator *a = args->accumulator;
    if (args->log) {
        note(args, mean, variance, channels, r);
        return;
    }
    if (args->first) begin(args, a, channels);
    double *means = a->values, *spreads = a->values + channels;
    a->batches += 1.0;
    const double f = factor(spec, *(const int32_t *)args->state[2] + a->batches);
    const double all = a->rows + r;
    for (int64_t i = 0; i < channels; i++) {
        const double difference = mean[i] - means[i], squares = variance[i] * r;
        if (args->deferred) {
            means[i] += difference * r / all;
            spreads[i] += squares + difference * difference * a->rows * r / all;
        } else {
            means[i] += f * difference;
            spreads[i] += f * (unbiased(squares, r) - spreads[i]);
        }
    }
    a->rows = all;
}

void cgp__running_stats_merge(const cgp_kernel_spec *spec, const cgp_kernel_args *args, int n) {
    const int64_t channels = spec->attributes.out;
    cgp_kernel_args plain = *args;
    plain.log = NULL;
    for (int k = 0; k < n; k++) {
        const entry *e = entry_of(args, k);
        cgp__running_stats_collect(spec, &plain, e->values, e->values + channels, (int64_t)e->rows);
        plain.first = false;
    }
}

/* Return the value that a commit writes to channel i of state k. State 0 is the mean, and state 1
 * is the variance. */
static float outcome(const cgp_kernel_spec *spec, const cgp_kernel_args *args, int k, int64_t i) {
    const accumulator *a = args->accumulator;
    const double value = a->values[k * spec->attributes.out + i];
    if (!args->deferred) return (float)value;
    const double before = ((const float *)args->state[k])[i];
    const double f = factor(spec, *(const int32_t *)args->state[2] + 1.0);
    return (float)(before + f * ((k == 0 ? value : unbiased(value, a->rows)) - before));
}

int cgp__running_stats_check(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    if (spec->op == CGP_OP_CUSTOM) return -1;
    for (int k = 0; k < 2; k++) {
        for (int64_t i = 0; i < spec->attributes.out; i++) {
            if (!isfinite(outcome(spec, args, k, i))) return k;
        }
    }
    return -1;
}

void cgp__running_stats_commit(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    const accumulator *a = args->accumulator;
    int32_t *tracked = args->state[2];
    for (int k = 0; k < 2; k++) {
        for (int64_t i = 0; i < spec->attributes.out; i++)
            ((float *)args->state[k])[i] = outcome(spec, args, k, i);
    }
    const int32_t batches = args->deferred ? 1 : (int32_t)a->batches;
    *tracked = *tracked > INT32_MAX - batches ? INT32_MAX : *tracked + batches;
}
