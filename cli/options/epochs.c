/* SPDX-License-Identifier: Apache-2.0 */
/* epochs.c -- see epochs.h. */
#include "options/epochs.h"

#include "options/table.h"
#include "options/values.h"

#include <inttypes.h>
#include <math.h>

const char *cli_epochs_option(const cli_run_options *options) {
    if (options->epochs > 0) return cli_options[CLI_OPTION_EPOCHS].name;
    for (int id = 0; id < CLI_OPTION_COUNT; id++) {
        if (cli_options[id].kind != CLI_STEPS) continue;
        const cli_steps *steps = cli_option_value(options, id);
        if (steps->epochs) return cli_options[id].name;
    }
    for (int i = 0; i < options->lr_milestones.count; i++) {
        cli_steps at;
        if (cli_steps_parse(options->lr_milestones.values[i], &at) && at.epochs)
            return cli_options[CLI_OPTION_LR_MILESTONES].name;
    }
    return NULL;
}

/* Convert a number of steps or epochs to steps, at most INT64_MAX. */
static int64_t steps_of(const cli_run_options *options, cli_steps steps) {
    int64_t count = steps.count;
    const bool never = steps.epochs && __builtin_mul_overflow(count, options->epoch_steps, &count);
    return never ? INT64_MAX : count;
}

/* Return the step, at least 0, at which a given number of steps or epochs of the run ends. */
static int64_t steps_end(const cli_run_options *options, cli_steps steps) {
    int64_t end = steps_of(options, steps);
    if (!steps.epochs || steps.count == 0) return end;
    if (__builtin_add_overflow(end, options->epoch_shift, &end)) return INT64_MAX;
    return end > 0 ? end : 0;
}

/* Convert the samples seen to steps of the current --batch, rounded up, so that --epochs does not
 * run a step too many. */
cgp_status cli_epochs_count(cli_run_options *options, int64_t samples, cli_progress done) {
    const int64_t batch = options->batch;
    if (samples == INT64_MAX)
        return cgp_fail(CGP_EINVAL, "--%s: expected data that have an end (%s)",
                        cli_epochs_option(options),
                        options->epochs > 0 ? "--steps N" : "steps instead of epochs");
    options->epoch_steps = samples / batch;
    if (options->epoch_steps < 1)
        return cgp_fail(CGP_EINVAL,
                        "--batch %" PRId64 ": expected at most the %" PRId64 " samples of an epoch",
                        batch, samples);
    if (options->epochs > INT64_MAX / options->epoch_steps / batch)
        return cgp_fail(CGP_EINVAL, "--epochs %" PRId64 ": is too many", options->epochs);
    options->epoch_shift = done.steps - (done.samples / batch + (done.samples % batch > 0));
    const int64_t end = steps_end(options, (cli_steps){options->epochs, true});
    if (options->epochs > 0) options->steps = end > 0 ? end : 1;
    return CGP_OK;
}

bool cli_steps_due(const cli_run_options *options, cli_steps interval, int64_t step) {
    const int64_t every = steps_of(options, interval);
    if (every <= 0) return false;
    return (step - (interval.epochs ? options->epoch_shift : 0)) % every == 0;
}

double cli_lr_scale(const cli_run_options *options) {
    if (options->lr_batch == 0) return 1;
    return fmax(1, (double)options->batch / (double)options->lr_batch);
}

double cli_lr_of(const cli_run_options *options) {
    return options->lr * cli_lr_scale(options);
}

double cli_or_zero(double value) {
    return isnan(value) ? 0 : value;
}

cgp_lr_schedule cli_lr_schedule_of(const cli_run_options *options) {
    cgp_lr_schedule schedule = {.warmup = steps_end(options, options->warmup),
                                .steps = options->steps,
                                .min_ratio = cli_or_zero(options->min_lr_ratio),
                                .step_size = options->lr_step_size,
                                .gamma = cli_or_zero(options->lr_gamma)};
    if (options->epoch_steps == 0 && cli_epochs_option(options)) return (cgp_lr_schedule){0};
    /* resolve.c has checked the name. */
    (void)!cgp_lr_kind_parse(&schedule.kind, options->lr_schedule);
    if (!isnan(options->warmup_start))
        schedule.start = fmin(1, options->warmup_start / cli_lr_of(options));
    if (options->warmup_interval.count > 0)
        schedule.warmup_interval = steps_of(options, options->warmup_interval);
    for (int i = 0; i < options->lr_milestones.count; i++) {
        cli_steps at = {0};
        (void)cli_steps_parse(options->lr_milestones.values[i], &at);
        schedule.milestones[i] = steps_end(options, at);
        /* After steps with a larger --batch, a milestone may lie before step 1. Keep the milestones
         * ascending, from step 1. */
        if (at.epochs && schedule.milestones[i] <= i) schedule.milestones[i] = i + 1;
        schedule.n_milestones = i + 1;
    }
    return schedule;
}
