/* SPDX-License-Identifier: Apache-2.0 */
/* running_stats.cuh -- running statistics of BATCH_NORM, which are kept in double until the step
 * ends. The formulas and the order of operations are the same as in src/backend/running_stats.c.
 *
 * The accumulator holds, in this order: the numbers of rows and micro-batches collected, the new
 * running mean of every channel, and the variances. If deferred, it holds means and sums of squared
 * deviations of the collected rows instead.
 *
 * With a log, each micro-batch writes the number of its rows, and the mean and the biased variance
 * of every channel, to an entry of the log. The accumulator then only counts the micro-batches. */
#ifndef CGP_SRC_CUDA_RUNNING_STATS_CUH
#define CGP_SRC_CUDA_RUNNING_STATS_CUH

#include "backend/cuda/cuda.cuh"

struct running_stats {
    float *mean, *variance;
    int32_t *tracked;
    double *accumulator; /* NULL: statistics are not collected */
    char *log;           /* NULL: statistics go to the accumulator */
    int64_t log_bytes;   /* distance between two entries in the log, in bytes */
    int64_t channels;
    float momentum;
    bool first, deferred;
};

static inline running_stats running_stats_of(const cgp_kernel_spec *spec,
                                             const cgp_kernel_args *args) {
    return {(float *)args->state[0],
            (float *)args->state[1],
            (int32_t *)args->state[2],
            (double *)args->accumulator,
            (char *)args->log,
            args->log_bytes,
            spec->attributes.out,
            cgp_spec_norm(spec)->momentum,
            args->first,
            args->deferred};
}

__device__ static inline double rows_collected(running_stats a) {
    return a.first ? 0.0 : a.accumulator[0];
}

__device__ static inline double batches_collected(running_stats a) {
    return a.first ? 0.0 : a.accumulator[1];
}

/* Return the weight of a new value in a running statistic. `more` counts the micro-batches (or
 * steps) since `tracked` was written, including the current one. */
__device__ static inline double running_factor(running_stats a, double more) {
    return a.momentum < 0.0f ? 1.0 / ((double)*a.tracked + more) : (double)a.momentum;
}

__device__ static inline double unbiased(double sum_squares, double rows) {
    return rows > 1.0 ? sum_squares / (rows - 1.0) : 0.0;
}

/* Return the values of an entry of the log, which follow its number of rows. */
__device__ static inline float *logged(running_stats a, double k) {
    return (float *)(void *)(a.log + (int64_t)k * a.log_bytes + sizeof(double));
}

/* Accumulate one channel of a micro-batch, or write it to the log; `variance` is biased. */
__device__ static inline void collect(running_stats a, int64_t c, float mean, float variance,
                                      double rows) {
    if (a.log) {
        float *values = logged(a, batches_collected(a));
        values[c] = mean;
        values[a.channels + c] = variance;
        return;
    }
    double *to_mean = a.accumulator + 2 + c, *to_spread = to_mean + a.channels;
    const double before = rows_collected(a), all = before + rows;
    const double factor = running_factor(a, batches_collected(a) + 1.0);
    const double m = !a.first ? *to_mean : a.deferred ? 0.0 : (double)a.mean[c];
    const double s = !a.first ? *to_spread : a.deferred ? 0.0 : (double)a.variance[c];
    const double difference = (double)mean - m, squares = (double)variance * rows;
    *to_mean = m + (a.deferred ? difference * rows / all : factor * difference);
    *to_spread = s + (a.deferred ? squares + difference * difference * before * rows / all
                                 : factor * (unbiased(squares, rows) - s));
}

/* Count a micro-batch, after all its channels are collected. */
__device__ static inline void count_collected(running_stats a, double rows) {
    const double batches = batches_collected(a);
    if (a.log) *(double *)(void *)(a.log + (int64_t)batches * a.log_bytes) = rows;
    a.accumulator[1] = batches + 1.0;
    a.accumulator[0] = rows_collected(a) + rows;
}

#endif
