/* SPDX-License-Identifier: Apache-2.0 */
/* recipe.h -- --recipe and --epochs: settings that a published training has, some of them known only once the data are.
 *
 *     imagenet-90    Goyal et al. 2017, arXiv:1706.02677, as torchgpipe's benchmark of ResNet-101's accuracy has it: SGD with
 *                    Nesterov momentum 0.9, weight decay 1e-4 of everything; rate 0.1 max(1, B / 256), from 0.1 up in
 *                    the first 4 of 90 epochs, one stair an epoch, a tenth of it after 30, 60 and 80; validation
 *                    after every epoch. With other --epochs N the same shape, in shares of N (at least one
 *                    epoch of warm-up). */
#ifndef CGPIPE_CLI_RECIPE_H
#define CGPIPE_CLI_RECIPE_H

#include <cgpipe/cgpipe.h>

#include "options.h"

/* Check the name, and fill in what it says and the command line does not. Before everything else is settled. */
CGP_MUST_CHECK cgp_status cli_recipe_resolve(cli_run_options *options);

/* Whether steps are known only with the data. */
bool cli_recipe_counts_epochs(const cli_run_options *options);

/* Count epochs of so many samples in steps, whole mini-batches; what is left of a pass is the beginning of the next
 * epoch. Fails with CGP_EINVAL if the data have no end, or less than one mini-batch. */
CGP_MUST_CHECK cgp_status cli_recipe_count(cli_run_options *options, int64_t samples);

/* The rate over the steps of a recipe; nothing without one. After cli_recipe_count(). */
void cli_recipe_lr(const cli_run_options *options, cgp_lr_schedule *schedule);

#endif
