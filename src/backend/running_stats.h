/* SPDX-License-Identifier: Apache-2.0 */
/* running_stats.h -- computes running statistics of BATCH_NORM on the host, for all backends.
 *
 *     forward of a micro-batch     collect     accumulator = the next state or, if deferred,
 *                                              the statistics of all micro-batches so far
 *     end of the step              commit      state = accumulator
 *
 * With replicas, each micro-batch writes its statistics to an entry of a log. When all replicas
 * have all entries, a merge collects them in the order of the whole mini-batch.
 *
 * A step that fails leaves the state unchanged. Recomputation collects nothing, so no micro-batch
 * counts twice. A micro-batch has r rows, a mean and a (biased) variance v. f is the momentum or,
 * without momentum, 1 / (batches tracked, including this one):
 *
 *     ordinary    each micro-batch: mean' = mean' + f (mean - mean')
 *                                   var' = var' + f (v r / (r - 1) - var')
 *     deferred    each step: the same, with merged micro-batch statistics (Chan et al. 1979)
 *
 * If a micro-batch has only one row, its variance is 0. */
#ifndef CGP_SRC_BACKEND_RUNNING_STATS_H
#define CGP_SRC_BACKEND_RUNNING_STATS_H

#include <cgpipe/ext/backend.h>

/* Return the size of the accumulator in bytes. The accumulator is an array of doubles. It holds the
 * number of rows and the number of micro-batches collected, then each channel's updated running
 * mean, then each channel's updated running variance. With deferred batch norms, it instead holds
 * each channel's mean over all rows collected, then each channel's sum of squared differences from
 * this mean. */
int64_t cgp__running_stats_bytes(int64_t channels);

/* Return the bytes of an entry of the log: the number of rows in double, the mean of each channel,
 * and its variance. */
int64_t cgp__running_stats_entry_bytes(int64_t channels);

/* Collect the statistics of a micro-batch in the accumulator, or write them to the next entry of
 * args->log. args->state: running_mean [C] f32, running_var [C] f32, num_batches_tracked [1] i32.
 * `variance` is biased. If args->first is set, the accumulator is overwritten. */
void cgp__running_stats_collect(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                                const float *mean, const float *variance, int64_t rows);

/* Collect the first n entries of args->log in the accumulator. */
void cgp__running_stats_merge(const cgp_kernel_spec *spec, const cgp_kernel_args *args, int n);

/* Return the index of the first state, 0 or 1, that a commit would make infinite or NaN. Return -1
 * if there is no such state, or if the op is a custom op. */
int cgp__running_stats_check(const cgp_kernel_spec *spec, const cgp_kernel_args *args);

/* Commit: write the values of the accumulator to the state. */
void cgp__running_stats_commit(const cgp_kernel_spec *spec, const cgp_kernel_args *args);

#endif
