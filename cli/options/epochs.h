/* SPDX-License-Identifier: Apache-2.0 */
/* epochs.h -- options that count in epochs ("4ep"), which need the size of the data. */
#ifndef CGPIPE_CLI_EPOCHS_H
#define CGPIPE_CLI_EPOCHS_H

#include <cgpipe/optim.h>

#include "options/options.h"

/* Return the name of the first option that counts in epochs; NULL: the data do not matter. */
const char *cli_epochs_option(const cli_run_options *options);

/* How far a run is when it is resumed; all 0: a new run. */
typedef struct cli_progress {
    int64_t steps, samples; /* updates, and training samples that they have seen */
} cli_progress;

/* Set the steps of an epoch, and --steps from --epochs: of `samples`, in whole mini-batches; the
 * next epoch begins with the rest of a pass. What a run has `done` counts by its samples, so that
 * steps with another --batch are as much of an epoch as they have seen. Fails with CGP_EINVAL if
 * the data have no end, or less than one mini-batch. */
CGP_MUST_CHECK cgp_status cli_epochs_count(cli_run_options *options, int64_t samples,
                                           cli_progress done);

/* Return the step at which so many steps or epochs of the run end, at least 0; after
 * cli_epochs_count() where they are epochs. */
int64_t cli_steps_end(const cli_run_options *options, cli_steps steps);

/* Tell whether `step` ends one of the intervals of so many steps or epochs, of which 0 are none. */
bool cli_steps_due(const cli_run_options *options, cli_steps interval, int64_t step);

/* Return the learning rate after the warm-up: --lr, for --batch. */
double cli_lr_of(const cli_run_options *options);

/* Return the learning rate over the steps; constant where epochs are not counted, as in a plan. */
cgp_lr_schedule cli_lr_schedule_of(const cli_run_options *options);

#endif
