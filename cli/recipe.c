/* SPDX-License-Identifier: Apache-2.0 */
/* recipe.c -- see recipe.h. */
#include "recipe.h"

#include "options_table.h"

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

static cgp_status refuse(const cli_run_options *s, cli_option_id id, const char *why) {
    if (!cli_given(s, id)) return CGP_OK;
    return cgp_fail(CGP_EINVAL, "--%s: cannot be with %s", cli_options[id].name, why);
}

/* What the recipe is made of cannot be given; other numbers can. */
static cgp_status resolve_imagenet(cli_run_options *s) {
    static const cli_option_id own[] = {CLI_OPTION_OPTIMIZER, CLI_OPTION_LR_SCHEDULE,
                                        CLI_OPTION_WARMUP};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        CGP_TRY(refuse(s, own[i], "--recipe (it has its own)"));
    s->optimizer = "sgd";
    s->nesterov = s->decay_all = true;
    if (!cli_given(s, CLI_OPTION_BATCH) && !s->inherited) s->batch = BASE_BATCH;
    if (isnan(s->momentum)) s->momentum = 0.9;
    if (isnan(s->weight_decay)) s->weight_decay = 1e-4;
    if (isnan(s->lr)) s->lr = BASE_LR * fmax(1, (double)s->batch / BASE_BATCH);
    if (s->epochs == 0) s->epochs = EPOCHS;
    return CGP_OK;
}

cgp_status cli_recipe_resolve(cli_run_options *s) {
    if (s->recipe) CGP_TRY(check_name(s->recipe));
    if (s->recipe) CGP_TRY(resolve_imagenet(s));
    return s->epochs > 0 ? refuse(s, CLI_OPTION_STEPS, "--epochs or --recipe") : CGP_OK;
}

bool cli_recipe_counts_epochs(const cli_run_options *s) {
    return s->epochs > 0;
}

cgp_status cli_recipe_count(cli_run_options *s, int64_t samples) {
    if (samples == INT64_MAX)
        return cgp_fail(CGP_EINVAL, "--epochs: expected data that have an end (--steps N)");
    const int64_t each = samples / s->batch;
    if (each < 1)
        return cgp_fail(CGP_EINVAL,
                        "--batch %" PRId64 ": expected at most the %" PRId64
                        " samples of an epoch",
                        s->batch, samples);
    if (s->epochs > INT64_MAX / each / s->batch)
        return cgp_fail(CGP_EINVAL, "--epochs %" PRId64 ": is too many", s->epochs);
    s->steps = s->epochs * each;
    if (s->recipe && !cli_given(s, CLI_OPTION_EVALUATE_EVERY) && !s->inherited)
        s->evaluate_every = each;
    return CGP_OK;
}

/* So many of 90 epochs, in whole ones. */
static int64_t share(const cli_run_options *s, int64_t of) {
    return (s->epochs * of + EPOCHS / 2) / EPOCHS;
}

void cli_recipe_lr(const cli_run_options *s, cgp_lr_schedule *schedule) {
    static const int64_t milestones[] = {30, 60, 80};
    if (!s->recipe) return;
    const int64_t each = s->steps / s->epochs, rise = share(s, 4);
    *schedule = (cgp_lr_schedule){.kind = CGP_LR_MILESTONES,
                                  .warmup = (rise > 0 ? rise : 1) * each,
                                  .start = fmin(1, BASE_LR / s->lr),
                                  .warmup_interval = each,
                                  .gamma = 0.1};
    for (int i = 0; i < 3; i++) {
        const int64_t at = share(s, milestones[i]) * each;
        const int n = schedule->n_milestones;
        if (at > 0 && (n == 0 || at > schedule->milestones[n - 1]))
            schedule->milestones[schedule->n_milestones++] = at;
    }
}
