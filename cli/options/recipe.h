/* SPDX-License-Identifier: Apache-2.0 */
/* recipe.h -- --recipe and --epochs: the run options of a published training, some of which need the size of the data.
 *
 *     imagenet-90    Goyal et al. 2017, arXiv:1706.02677, as torchgpipe's benchmark of ResNet-101's accuracy has it: SGD with
 *                    Nesterov momentum 0.9, weight decay 1e-4 of everything; lr 0.1 max(1, B / 256), from 0.1 up in
 *                    the first 4 of 90 epochs, one stair an epoch, a tenth of it after 30, 60 and 80; validation
 *                    after every epoch. With other --epochs N the same shape, in fractions of N (at least
 *                    one epoch of warm-up). */
#ifndef CGPIPE_CLI_RECIPE_H
#define CGPIPE_CLI_RECIPE_H

#include <cgpipe/cgpipe.h>

#include "options/options.h"

/* Check the name and set the options that are not given, before the others are resolved. */
CGP_MUST_CHECK cgp_status cli_recipe_resolve(cli_run_options *options);

/* Tell whether the number of steps depends on the data. */
bool cli_recipe_counts_epochs(const cli_run_options *options);

/* Set --steps from --epochs of `samples`, in whole mini-batches; the next epoch begins with the rest of a pass. Fails with
 * CGP_EINVAL if the data have no end, or less than one mini-batch. */
CGP_MUST_CHECK cgp_status cli_recipe_count(cli_run_options *options, int64_t samples);

/* Set the learning rate over the steps of a recipe; without one change nothing. After cli_recipe_count(). */
void cli_recipe_lr(const cli_run_options *options, cgp_lr_schedule *schedule);

#endif
