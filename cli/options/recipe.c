/* SPDX-License-Identifier: Apache-2.0 */
/* recipe.c -- see recipe.h. */
#include "options/recipe.h"

#include "options/table.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define EPOCHS 90
#define BASE_LR 0.1
#define BASE_BATCH 256

static const char *const names[] = {"imagenet-90"};

static cgp_status check_name(const char *name) {
    if (strcmp(name, names[0]) == 0) return CGP_OK;
    const char *near = cgp_nearest(name, names, 1);
    return cgp_fail(CGP_EINVAL, "--recipe %s: expected imagenet-90%s", name,
                    near ? " (did you mean imagenet-90?)" : "");
}

static cgp_status refuse(const cli_run_options *options, cli_option_id id, const char *why) {
    if (!cli_option_given(options, id)) return CGP_OK;
    return cgp_fail(CGP_EINVAL, "--%s: cannot be with %s", cli_options[id].name, why);
}

/* The options that make the recipe cannot be given; its numbers can. */
static cgp_status resolve_imagenet(cli_run_options *options) {
    static const cli_option_id fixed[] = {CLI_OPTION_OPTIMIZER, CLI_OPTION_LR_SCHEDULE,
                                          CLI_OPTION_WARMUP};
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        CGP_TRY(refuse(options, fixed[i], "--recipe (it has its own)"));
    options->optimizer = "sgd";
    options->nesterov = options->decay_all = true;
    if (!cli_option_given(options, CLI_OPTION_BATCH) && !options->inherited)
        options->batch = BASE_BATCH;
    if (isnan(options->momentum)) options->momentum = 0.9;
    if (isnan(options->weight_decay)) options->weight_decay = 1e-4;
    if (isnan(options->lr))
        options->lr = BASE_LR * fmax(1, (double)options->batch / BASE_BATCH);
    if (options->epochs == 0) options->epochs = EPOCHS;
    return CGP_OK;
}

cgp_status cli_recipe_resolve(cli_run_options *options) {
    if (options->recipe) CGP_TRY(check_name(options->recipe));
    if (options->recipe) CGP_TRY(resolve_imagenet(options));
    return options->epochs > 0 ? refuse(options, CLI_OPTION_STEPS, "--epochs or --recipe")
                               : CGP_OK;
}

bool cli_recipe_counts_epochs(const cli_run_options *options) {
    return options->epochs > 0;
}

cgp_status cli_recipe_count(cli_run_options *options, int64_t samples) {
    if (samples == INT64_MAX)
        return cgp_fail(CGP_EINVAL, "--epochs: expected data that have an end (--steps N)");
    const int64_t each = samples / options->batch;
    if (each < 1)
        return cgp_fail(CGP_EINVAL,
                        "--batch %" PRId64 ": expected at most the %" PRId64
                        " samples of an epoch",
                        options->batch, samples);
    if (options->epochs > INT64_MAX / each / options->batch)
        return cgp_fail(CGP_EINVAL, "--epochs %" PRId64 ": is too many", options->epochs);
    options->steps = options->epochs * each;
    if (options->recipe && !cli_option_given(options, CLI_OPTION_EVALUATE_EVERY) &&
        !options->inherited)
        options->evaluate_every = each;
    return CGP_OK;
}

/* Scale epochs of the recipe's 90 to --epochs, rounded. */
static int64_t scale(const cli_run_options *options, int64_t of) {
    return (options->epochs * of + EPOCHS / 2) / EPOCHS;
}

void cli_recipe_lr(const cli_run_options *options, cgp_lr_schedule *schedule) {
    static const int64_t milestones[] = {30, 60, 80};
    if (!options->recipe) return;
    const int64_t each = options->steps / options->epochs, rise = scale(options, 4);
    *schedule = (cgp_lr_schedule){.kind = CGP_LR_MILESTONES,
                                  .warmup = (rise > 0 ? rise : 1) * each,
                                  .start = fmin(1, BASE_LR / options->lr),
                                  .warmup_interval = each,
                                  .gamma = 0.1};
    for (int i = 0; i < 3; i++) {
        const int64_t at = scale(options, milestones[i]) * each;
        const int n = schedule->n_milestones;
        if (at > 0 && (n == 0 || at > schedule->milestones[n - 1]))
            schedule->milestones[schedule->n_milestones++] = at;
    }
}
