/* SPDX-License-Identifier: Apache-2.0 */
/* resolve.c -- options that depend on each other: defaults, and what does not go together. */
#include "options_table.h"

#include "common.h"
#include "recipe.h"
#include "schedule_files.h"
#include "trace.h"

#include <cgpipe/optim.h>

#include <math.h>
#include <string.h>

static bool is(const char *text, const char *name) {
    return strcmp(text, name) == 0;
}

/* --- optimizer --- */

/* The constants of each optimizer and their defaults; NaN: it has none of this name. */
static const cli_option_id constant_ids[] = {
    CLI_OPTION_LR,    CLI_OPTION_WEIGHT_DECAY, CLI_OPTION_MOMENTUM, CLI_OPTION_BETA1,
    CLI_OPTION_BETA2, CLI_OPTION_EPS,          CLI_OPTION_ALPHA,
};
enum { CONSTANTS = sizeof constant_ids / sizeof constant_ids[0] };

static const struct optimizer {
    const char *name;
    double values[CONSTANTS];
} optimizers[] = {
    {"sgd", {1e-2, 1e-4, 0.9, NAN, NAN, NAN, NAN}},
    {"adamw", {1e-3, 1e-2, NAN, 0.9, 0.999, 1e-8, NAN}},
    {"adam", {1e-3, 0, NAN, 0.9, 0.999, 1e-8, NAN}},
    {"rmsprop", {1e-3, 0, 0, NAN, NAN, 1e-8, 0.99}},
};
enum { OPTIMIZERS = sizeof optimizers / sizeof optimizers[0] };

/* "--alpha: expected --optimizer rmsprop, got adamw" */
static cgp_status not_of(cli_option_id id, int constant, const char *optimizer) {
    char names[64] = "";
    for (int i = 0; i < OPTIMIZERS; i++) {
        const size_t used = strlen(names);
        if (!isnan(optimizers[i].values[constant]))
            snprintf(names + used, sizeof names - used, "%s%s", used ? " or " : "",
                     optimizers[i].name);
    }
    return cgp_fail(CGP_EINVAL, "--%s: expected --optimizer %s, got %s", cli_options[id].name,
                    names, optimizer);
}

static cgp_status resolve_optimizer(cli_run_options *s) {
    cgp_optim_kind kind = CGP_OPTIM_SGD;
    CGP_TRY(cgp_optim_kind_parse(&kind, s->optimizer));
    const struct optimizer *optimizer = optimizers;
    while (!is(optimizer->name, s->optimizer))
        optimizer++; /* the library knows the same names */
    for (int i = 0; i < CONSTANTS; i++) {
        double *value = cli_option_field(s, constant_ids[i]);
        if (!isnan(*value) && isnan(optimizer->values[i]))
            return not_of(constant_ids[i], i, s->optimizer);
        if (isnan(*value)) *value = optimizer->values[i];
    }
    if (s->nesterov && kind != CGP_OPTIM_SGD)
        return cgp_fail(CGP_EINVAL, "--nesterov: expected --optimizer sgd, got %s",
                        s->optimizer);
    if (s->command != CLI_BENCH) return CGP_OK;
    /* PyTorch's meaning of weight decay, and torchgpipe's momentum. */
    s->decay_all = true;
    if (kind == CGP_OPTIM_SGD && s->momentum > 0) s->nesterov = true;
    return CGP_OK;
}

/* --- learning rate --- */

static cgp_status lr_needs(cli_option_id id, const char *expected, const char *got) {
    return cgp_fail(CGP_EINVAL, "--%s: expected --lr-schedule %s, got %s", cli_options[id].name,
                    expected, got);
}

static cgp_status resolve_lr(cli_run_options *s) {
    cgp_lr_kind kind = CGP_LR_CONSTANT;
    const char *name = s->lr_schedule;
    CGP_TRY(cgp_lr_kind_parse(&kind, name));
    if (kind == CGP_LR_MILESTONES)
        return cgp_fail(CGP_EINVAL,
                        "--lr-schedule milestones: comes with --recipe (or step, for equal "
                        "intervals)");
    if (kind != CGP_LR_COSINE && !isnan(s->min_lr_ratio))
        return lr_needs(CLI_OPTION_MIN_LR_RATIO, "cosine", name);
    if (kind != CGP_LR_STEP && s->lr_step_size > 0)
        return lr_needs(CLI_OPTION_LR_STEP_SIZE, "step", name);
    if (kind != CGP_LR_STEP && !isnan(s->lr_gamma))
        return lr_needs(CLI_OPTION_LR_GAMMA, "step", name);
    if (kind == CGP_LR_COSINE && s->epochs == 0 && s->warmup >= s->steps)
        return cgp_fail(CGP_EINVAL,
                        "--warmup %lld: expected fewer than the %lld --steps with cosine",
                        (long long)s->warmup, (long long)s->steps);
    if (kind == CGP_LR_STEP && s->lr_step_size == 0)
        return cgp_fail(CGP_EINVAL, "--lr-schedule step: needs --lr-step-size N");
    if (kind == CGP_LR_COSINE && isnan(s->min_lr_ratio)) s->min_lr_ratio = 0.1;
    if (kind == CGP_LR_STEP && isnan(s->lr_gamma)) s->lr_gamma = 0.1;
    return CGP_OK;
}

/* --- traces --- */

static cgp_status resolve_trace(const cli_run_options *s) {
    const bool one = !s->grid && !s->plan_only;
    if (s->trace.count > 0 && !one)
        return cgp_fail(CGP_EINVAL, "--trace: expected one run to trace, got --%s",
                        s->grid ? "grid" : "plan-only");
    if (s->costs_out && !one)
        return cgp_fail(CGP_EINVAL, "--costs-out: expected one run to measure, got --%s",
                        s->grid ? "grid" : "plan-only");
    return cli_trace_check_names(s);
}

/* The file says what the step was. */
static cgp_status resolve_compare(const cli_run_options *s) {
    if (!s->compare) return CGP_OK;
    if (s->operand)
        return cgp_fail(CGP_EINVAL, "--compare: expected no NAME beside the file, got %s",
                        s->operand);
    for (int id = 0; id < CLI_OPTION_COUNT; id++) {
        const bool fits =
            id == CLI_OPTION_COMPARE || id == CLI_OPTION_SVG || id == CLI_OPTION_JSON;
        if (cli_given(s, (cli_option_id)id) && !fits)
            return cgp_fail(CGP_EINVAL, "--%s: cannot be with --compare (leave out one)",
                            cli_options[id].name);
    }
    return CGP_OK;
}

/* --- all --- */

/* A file says how many devices and micro-batches its schedule has. */
static cgp_status resolve_table(cli_run_options *s) {
    cgp_schedule *table = NULL;
    CGP_TRY(cli_schedule_read(&table, s->schedule));
    const int devices = cgp_schedule_devices(table), chunks = cgp_schedule_chunks(table);
    cgp_schedule_destroy(table);
    if (s->grid || s->virtual_stages > 0 || s->group > 0)
        return cgp_fail(CGP_EINVAL, "--%s: expected --schedule NAME, got %s",
                        s->grid                 ? "grid"
                        : s->virtual_stages > 0 ? "virtual"
                                                : "group",
                        s->schedule);
    if ((cli_given(s, CLI_OPTION_STAGES) && s->stages != devices) ||
        (cli_given(s, CLI_OPTION_CHUNKS) && s->chunks != chunks))
        return cgp_fail(
            CGP_EINVAL,
            "--schedule %s: has %d devices and %d micro-batches (leave out --stages "
            "and --chunks)",
            s->schedule, devices, chunks);
    s->stages = devices;
    s->chunks = chunks;
    return CGP_OK;
}

/* Numbers for a balance say how many stages there are, unless --stages does. */
static cgp_status resolve_stages(cli_run_options *s) {
    /* A run that goes on with another schedule leaves the shape of its old one. */
    const bool changed = s->inherited && cli_given(s, CLI_OPTION_SCHEDULE);
    if (changed && !cli_given(s, CLI_OPTION_VIRTUAL)) s->virtual_stages = 0;
    if (changed && !cli_given(s, CLI_OPTION_GROUP)) s->group = 0;
    if (cli_schedule_is_file(s->schedule)) return resolve_table(s);
    const cgp_schedule_info *info = cgp_schedule_info_find(s->schedule);
    const int count = s->balance.layers.count;
    if (s->virtual_stages == 0) s->virtual_stages = info ? info->virtual_stages : 1;
    if (count >= s->virtual_stages && !cli_given(s, CLI_OPTION_STAGES))
        s->stages = count / s->virtual_stages;
    return CGP_OK;
}

static cgp_status resolve_balance(const cli_run_options *s) {
    const bool by_time = s->balance.by && is(s->balance.by, "time");
    if (s->costs && !by_time && s->command == CLI_TRAIN)
        return cgp_fail(CGP_EINVAL, "--costs: expected --balance time");
    return CGP_OK;
}

/* What is written as a number is a share, anything else a path. */
static cgp_status resolve_validation(cli_run_options *s) {
    const char *text = s->validation;
    s->validation_fraction = NAN;
    if (text[strspn(text, "0123456789.eE+-")]) return CGP_OK;
    if (cli_parse_real(text, 0, 1, &s->validation_fraction)) return CGP_OK;
    return cgp_fail(
        CGP_EINVAL,
        "--validation %s: expected a number >= 0 and < 1, or a file or directory, got "
        "\"%s\"",
        text, text);
}

static cgp_status resolve_start(const cli_run_options *s) {
    if (s->resume && s->overwrite)
        return cgp_fail(CGP_EINVAL, "--overwrite: cannot be with --resume (leave out one)");
    if (!s->resume && s->new_data) return cgp_fail(CGP_EINVAL, "--new-data: expected --resume");
    if (!s->resume && s->from_step >= 0)
        return cgp_fail(CGP_EINVAL, "--from-step: expected --resume");
    return CGP_OK;
}

cgp_status cli_run_options_resolve(cli_run_options *s) {
    if (s->quiet && s->verbose)
        return cgp_fail(CGP_EINVAL, "--quiet: cannot be with --verbose (leave out one)");
    if (s->command == CLI_TRAIN) CGP_TRY(cli_recipe_resolve(s));
    CGP_TRY(resolve_trace(s));
    CGP_TRY(resolve_compare(s));
    if (s->chunks == 0) s->chunks = s->batch == 0 || s->batch > 8 ? 8 : s->batch;
    if (s->command == CLI_TRAIN) CGP_TRY(resolve_start(s));
    if (s->command == CLI_TRAIN) CGP_TRY(resolve_validation(s));
    if (!cli_option_taken(CLI_OPTION_OPTIMIZER, s->command)) return CGP_OK;
    CGP_TRY(resolve_stages(s));
    CGP_TRY(resolve_balance(s));
    CGP_TRY(resolve_optimizer(s));
    return resolve_lr(s);
}
