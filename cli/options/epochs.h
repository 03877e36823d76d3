/* SPDX-License-Identifier: Apache-2.0 */
/* epochs.h -- options that count in epochs ("4ep"), which need the size of the data. */
#ifndef CGPIPE_CLI_EPOCHS_H
#define CGPIPE_CLI_EPOCHS_H

#include <cgpipe/optim.h>

#include "options/options.h"

/* Return the name of the first option that counts in epochs; NULL: no option does. */
const char *cli_epochs_option(const cli_run_options *options);

/* Progress of a run when it is resumed; all 0: a new run. */
typedef struct cli_progress {
    int64_t steps, samples; /* number of updates, and number of samples used by these updates */
} cli_progress;

/* Set the steps of an epoch and, from --epochs, --steps. An epoch has as many whole mini-batches as
 * fit into `samples`; the remaining samples begin the next epoch. The progress of a run (`done`) is
 * counted in samples, not in steps, because --batch may have changed. Fails with CGP_EINVAL if the
 * data is endless or smaller than a mini-batch. */
CGP_MUST_CHECK cgp_status cli_epochs_count(cli_run_options *options, int64_t samples,
                                           cli_progress done);

/* Tell whether `step` ends an interval, given in steps or epochs. Interval 0: never. */
bool cli_steps_due(const cli_run_options *options, cli_steps interval, int64_t step);

/* Return the value of a real option, or 0 if the option has no value (NaN). */
double cli_or_zero(double value);

/* Return the factor by which --lr-batch scales learning rates to --batch. */
double cli_lr_scale(const cli_run_options *options);

/* Return the learning rate after the warm-up: --lr, scaled to --batch if --lr-batch is given. */
double cli_lr_of(const cli_run_options *options);

/* Return the learning rate schedule over steps; it is constant if epochs have not been counted, as
 * in a plan. */
cgp_lr_schedule cli_lr_schedule_of(const cli_run_options *options);

#endif
