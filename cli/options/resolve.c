/* SPDX-License-Identifier: Apache-2.0 */
/* resolve.c -- see resolve.h. */
#include "options/resolve.h"

#include "options/epochs.h"
#include "options/groups.h"
#include "options/schedule_file.h"
#include "options/table.h"
#include "options/values.h"
#include "ranks.h"
#include "text.h"

#include <cgpipe/optim.h>

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* the largest number of gradient groups of a plan */
enum { MOST_GROUPS = 1024 };

static bool is(const char *text, const char *name) {
    return strcmp(text, name) == 0;
}

/* --- optimizer --- */

/* The constants of each optimizer and their defaults; NaN: the optimizer has no such constant. */
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

/* Fail with "--alpha: expected --optimizer rmsprop, got adamw". */
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

static cgp_status resolve_optimizer(cli_run_options *options) {
    cgp_optim_kind kind = CGP_OPTIM_SGD;
    CGP_TRY(cgp_optim_kind_parse(&kind, options->optimizer));
    const struct optimizer *optimizer = optimizers;
    while (!is(optimizer->name, options->optimizer))
        optimizer++; /* this loop ends, because the list has all optimizers of the library */
    for (int i = 0; i < CONSTANTS; i++) {
        double *value = cli_option_field(options, constant_ids[i]);
        if (!isnan(*value) && isnan(optimizer->values[i]))
            return not_of(constant_ids[i], i, options->optimizer);
        if (isnan(*value)) *value = optimizer->values[i];
    }
    if (options->nesterov && kind != CGP_OPTIM_SGD)
        return cgp_fail(CGP_EINVAL, "--nesterov: expected --optimizer sgd, got %s",
                        options->optimizer);
    CGP_TRY(cli_groups_check(options));
    if (options->command != CLI_BENCH) return CGP_OK;
    /* bench decays all parameters, as PyTorch does, and uses Nesterov momentum, as torchgpipe
     * does. */
    options->decay_all = true;
    if (kind == CGP_OPTIM_SGD && options->momentum > 0) options->nesterov = true;
    return CGP_OK;
}

/* --- learning rate --- */

static cgp_status lr_needs(cli_option_id id, const char *expected, const char *got) {
    return cgp_fail(CGP_EINVAL, "--%s: expected --lr-schedule %s, got %s", cli_options[id].name,
                    expected, got);
}

static cgp_status resolve_milestones(const cli_run_options *options) {
    const cli_names *list = &options->lr_milestones;
    cli_steps at = {0};
    if (list->count == 0)
        return cgp_fail(CGP_EINVAL, "--lr-schedule milestones: needs --lr-milestones N,..");
    for (int i = 0; i < list->count; i++) {
        if (i < CGP_MAX_MILESTONES && cli_steps_parse(list->values[i], &at) && at.count > 0)
            continue;
        return cgp_fail(CGP_EINVAL,
                        "--lr-milestones: expected at most %d steps or epochs (30ep), each >= "
                        "1, got \"%s\"",
                        CGP_MAX_MILESTONES, list->values[i]);
    }
    return CGP_OK;
}

static cgp_status resolve_lr(cli_run_options *options) {
    cgp_lr_kind kind = CGP_LR_CONSTANT;
    const char *name = options->lr_schedule;
    CGP_TRY(cgp_lr_kind_parse(&kind, name));
    const bool cut = kind == CGP_LR_STEP || kind == CGP_LR_MILESTONES;
    if (kind != CGP_LR_COSINE && !isnan(options->min_lr_ratio))
        return lr_needs(CLI_OPTION_MIN_LR_RATIO, "cosine", name);
    if (kind != CGP_LR_STEP && options->lr_step_size > 0)
        return lr_needs(CLI_OPTION_LR_STEP_SIZE, "step", name);
    if (kind != CGP_LR_MILESTONES && options->lr_milestones.count > 0)
        return lr_needs(CLI_OPTION_LR_MILESTONES, "milestones", name);
    if (!cut && !isnan(options->lr_gamma))
        return lr_needs(CLI_OPTION_LR_GAMMA, "step or milestones", name);
    if (kind == CGP_LR_COSINE && !cli_epochs_option(options) &&
        options->warmup.count >= options->steps)
        return cgp_fail(CGP_EINVAL,
                        "--warmup %lld: expected fewer than the %lld --steps with cosine",
                        (long long)options->warmup.count, (long long)options->steps);
    if (kind == CGP_LR_STEP && options->lr_step_size == 0)
        return cgp_fail(CGP_EINVAL, "--lr-schedule step: needs --lr-step-size N");
    if (kind == CGP_LR_COSINE && isnan(options->min_lr_ratio)) options->min_lr_ratio = 0.1;
    if (kind == CGP_LR_MILESTONES) CGP_TRY(resolve_milestones(options));
    if (cut && isnan(options->lr_gamma)) options->lr_gamma = 0.1;
    return CGP_OK;
}

/* --- devices --- */

cgp_status cli_take_devices(cli_run_options *options) {
    static const char *const cpu[] = {"cpu"};
    cli_names *devices = &options->devices;
    if (!options->given[CLI_OPTION_DEVICES]) return CGP_OK;
    if (devices->count == 1 && strcmp(devices->values[0], "auto") == 0)
        CGP_TRY(cli_find_devices(options));
    const char *first = devices->values[0];
    const bool number = devices->count == 1 && !first[strspn(first, "0123456789")];
    int64_t count = devices->count;
    if (number && !cli_parse_whole(first, 1, INT_MAX, &count))
        return cgp_fail(CGP_EINVAL,
                        "--devices %s: expected a number from 1 to %d, or names (as in "
                        "cpu*3,ref)",
                        first, INT_MAX);
    if (count == 1 && !number) return CGP_OK; /* a single name stands for all devices */
    if (number) *devices = (cli_names){cpu, 1};
    /* `cgpipe profile` runs this many devices at once. */
    if (options->command == CLI_PROFILE) options->stages = count;
    if (!cli_option_taken(CLI_OPTION_STAGES, options->command)) return CGP_OK;
    if (number && options->given[CLI_OPTION_STAGES] && options->stages != count)
        return cgp_fail(CGP_EINVAL,
                        "--devices %lld: expected %lld, one a stage of --stages (leave out one "
                        "of the two)",
                        (long long)count, (long long)options->stages);
    if (options->given[CLI_OPTION_STAGES]) return CGP_OK;
    options->stages = count;
    options->given[CLI_OPTION_STAGES] = options->stages_by_devices = true;
    return CGP_OK;
}

void cli_stages_by_ranks(cli_run_options *options) {
    const bool spread = (options->command & (CLI_TRAIN | CLI_BENCH | CLI_CHECK)) != 0;
    if (!spread || options->given[CLI_OPTION_STAGES] || options->balance.layers.count > 0) return;
    if (cli_schedule_is_file(options->schedule) || is(options->transport, "inproc")) return;
    if (options->replicas == CLI_AUTO) return; /* the replicas follow from the stages */
    const int64_t replicas = options->replicas > 1 ? options->replicas : 1;
    if (cli_ranks_launched() > replicas) options->stages = cli_ranks_launched() / replicas;
}

/* --- traces --- */

cli_trace_format cli_trace_format_of(const char *path) {
    static const char *const ends[] = {
        [CLI_TRACE_JSON] = ".json", [CLI_TRACE_SVG] = ".svg", [CLI_TRACE_TXT] = ".txt"};
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        if (cli_ends_with(path, ends[i])) return (cli_trace_format)i;
    }
    return CLI_TRACE_NONE;
}

static cgp_status resolve_trace(const cli_run_options *options) {
    const char *other = options->grid ? "grid" : options->plan_only ? "plan-only" : NULL;
    const char *needs = options->trace.count > 0 ? "--trace: expected one run to trace"
                        : options->costs_out     ? "--costs-out: expected one run to measure"
                        : options->ops           ? "--ops: expected one run to measure"
                                                 : NULL;
    if (needs && other) return cgp_fail(CGP_EINVAL, "%s, got --%s", needs, other);
    for (int i = 0; i < options->trace.count; i++) {
        if (cli_trace_format_of(options->trace.values[i]) != CLI_TRACE_NONE) continue;
        return cgp_fail(CGP_EINVAL, "--trace %s: expected a name that ends in .json, .svg or .txt",
                        options->trace.values[i]);
    }
    return CGP_OK;
}

/* Check --compare: its file determines the step, so only output options may be given with it. */
static cgp_status resolve_compare(const cli_run_options *options) {
    if (!options->compare) return CGP_OK;
    if (options->operand)
        return cgp_fail(CGP_EINVAL, "--compare: expected no NAME beside the file, got %s",
                        options->operand);
    for (int id = 0; id < CLI_OPTION_COUNT; id++) {
        const bool fits = id == CLI_OPTION_COMPARE || id == CLI_OPTION_SVG || id == CLI_OPTION_JSON;
        if (options->given[id] && !fits)
            return cgp_fail(CGP_EINVAL, "--%s: cannot be with --compare (leave out one)",
                            cli_options[id].name);
    }
    return CGP_OK;
}

/* --- replicas --- */

int64_t cli_most_replicas(const cli_run_options *options) {
    const int64_t groups = options->gradient_groups > 0 ? options->gradient_groups : MOST_GROUPS;
    int64_t replicas = 1;
    while (2 * replicas <= groups && options->stages % (2 * replicas) == 0)
        replicas *= 2;
    return replicas;
}

/* Tell whether `cgpipe plan --search` chooses the number of replicas. Then `stages` is the number
 * of all devices. */
static bool searches_replicas(const cli_run_options *options) {
    return options->command == CLI_PLAN && options->search && options->replicas == CLI_AUTO;
}

/* Check the options of a search for the number of replicas. The search divides equal devices among
 * the replicas, so no option may fix the number of stages. */
static cgp_status check_searched_replicas(const cli_run_options *options) {
    const cli_names *devices = &options->devices;
    if (cli_schedule_is_file(options->schedule))
        return cgp_fail(CGP_EINVAL,
                        "--replicas auto: expected --schedule NAME, as %s has the devices of one "
                        "replica (or give --replicas R)",
                        options->schedule);
    if (options->balance.layers.count > 0)
        return cgp_fail(CGP_EINVAL, "--replicas auto: cannot be with numbers of --balance, which "
                                    "fix the number of stages (leave out one)");
    if (!options->stages_by_devices)
        return cgp_fail(CGP_EINVAL,
                        "--replicas auto: expected --devices N, the number of all devices%s",
                        options->given[CLI_OPTION_STAGES] ? ", and no --stages" : "");
    for (int d = 1; d < devices->count; d++) {
        if (!is(devices->values[d], devices->values[0]))
            return cgp_fail(CGP_EINVAL,
                            "--replicas auto: expected equal --devices (as in %s*%d), got %s and "
                            "%s",
                            devices->values[0], devices->count, devices->values[0],
                            devices->values[d]);
    }
    return CGP_OK;
}

/* For --replicas auto: use all processes. Each replica takes `devices` processes, one per
 * device. */
static cgp_status find_replicas(cli_run_options *options, int64_t devices) {
    if (options->replicas != CLI_AUTO) return CGP_OK;
    if (searches_replicas(options)) return check_searched_replicas(options);
    if (options->command == CLI_PLAN)
        return cgp_fail(CGP_EINVAL, "--replicas auto: expected --search, or a number");
    if (!(options->command & (CLI_TRAIN | CLI_BENCH)))
        return cgp_fail(CGP_EINVAL, "--replicas auto: expected a number (cgpipe train and cgpipe "
                                    "bench run replicas in their processes)");
    const int64_t n = is(options->transport, "inproc") ? 1 : cli_ranks_launched();
    const int64_t groups = options->gradient_groups > 0 ? options->gradient_groups : INT_MAX;
    options->replicas = 1;
    while (2 * options->replicas <= groups && 2 * options->replicas * devices <= n)
        options->replicas *= 2;
    if (n <= devices || options->replicas * devices == n) return CGP_OK;
    char limit[64] = "";
    if (groups < INT_MAX)
        snprintf(limit, sizeof limit, ", at most the %lld gradient groups", (long long)groups);
    return cgp_fail(CGP_EINVAL,
                    "--replicas auto: expected %lld process%s for each replica, and a power of two "
                    "of replicas%s, got %lld processes (mpirun -n %lld cgpipe train ...)",
                    (long long)devices, devices > 1 ? "es" : "", limit, (long long)n,
                    (long long)options->replicas * (long long)devices);
}

/* --- all --- */

/* Take the numbers of devices and micro-batches from a schedule file. If there are R replicas, the
 * file is the schedule of one replica, with ceil(M / R) micro-batches. */
static cgp_status resolve_table(cli_run_options *options) {
    cgp_schedule *table = NULL;
    CGP_TRY(cli_schedule_read(&table, options->schedule));
    const int devices = cgp_schedule_devices(table), chunks = cgp_schedule_chunks(table);
    cgp_schedule_destroy(table);
    CGP_TRY(find_replicas(options, devices));
    const int64_t replicas = options->replicas, given = (options->chunks - 1) / replicas + 1;
    if (options->grid || options->virtual_stages > 0 || options->group > 0 ||
        options->in_flight > 0)
        return cgp_fail(CGP_EINVAL, "--%s: expected --schedule NAME, got %s",
                        options->grid                 ? "grid"
                        : options->virtual_stages > 0 ? "virtual"
                        : options->group > 0          ? "group"
                                                      : "in-flight",
                        options->schedule);
    if ((options->given[CLI_OPTION_STAGES] && options->stages != devices) ||
        (options->given[CLI_OPTION_CHUNKS] && given != chunks))
        return cgp_fail(
            CGP_EINVAL,
            "--schedule %s: has %d devices and %d micro-batches (leave out --%s and --chunks)",
            options->schedule, devices, chunks, options->stages_by_devices ? "devices" : "stages");
    options->stages = devices;
    if (!options->given[CLI_OPTION_CHUNKS]) options->chunks = chunks * replicas;
    return CGP_OK;
}

/* Take the number of stages from a schedule file or, unless --stages is given, from a list of
 * layers in --balance. */
static cgp_status resolve_stages(cli_run_options *options) {
    if (cli_schedule_is_file(options->schedule)) return resolve_table(options);
    const cgp_schedule_info *info = cgp_schedule_info_find(options->schedule);
    const int count = options->balance.layers.count;
    if (options->virtual_stages == 0) options->virtual_stages = info ? info->virtual_stages : 1;
    if (count >= options->virtual_stages && !options->given[CLI_OPTION_STAGES])
        options->stages = count / options->virtual_stages;
    return find_replicas(options, options->stages);
}

/* Check that a trace, which has the planned actions of replica 0, can be made: all replicas run as
 * many micro-batches as planned. */
static cgp_status check_trace(const cli_run_options *options, int64_t replicas) {
    if (options->trace.count == 0 || replicas <= 1) return CGP_OK;
    const int64_t size = (options->batch - 1) / options->chunks + 1,
                  chunks = (options->batch - 1) / size + 1;
    if (chunks % replicas == 0) return CGP_OK;
    return cgp_fail(CGP_EINVAL,
                    "--trace: expected a multiple of %lld micro-batches for as many replicas, got "
                    "%lld (--chunks, or leave out --trace)",
                    (long long)replicas, (long long)chunks);
}

/* Set the number of gradient groups, unless it is given or comes from the resumed run. Refuse
 * commands and options that do not support replicas. If the number of replicas is searched, the
 * groups suffice for the largest number, so all plans have the same bits. */
static cgp_status resolve_replicas(cli_run_options *options) {
    const bool searched = searches_replicas(options);
    const int64_t replicas = searched ? cli_most_replicas(options) : options->replicas;
    const cgp_plan_options plan = {.replicas = (int)replicas, .chunks = (int)options->chunks};
    if (options->gradient_groups == 0)
        options->gradient_groups = cgp_plan_options_gradient_groups(&plan);
    if (replicas > 1 && options->command & CLI_CHECK)
        return cgp_fail(CGP_EINVAL,
                        "--replicas %lld: expected 1 (cgpipe check takes no replicas; "
                        "--gradient-groups makes their bits with 1)",
                        (long long)replicas);
    return check_trace(options, replicas);
}

/* Check options that go with --cluster. The times in a cluster file are seconds, so the other times
 * must be seconds too. */
static cgp_status resolve_cluster(const cli_run_options *options) {
    const bool schedule = options->command == CLI_SCHEDULE;
    if (schedule && !options->cluster && options->message_bytes > 0)
        return cgp_fail(CGP_EINVAL, "--message-bytes: expected --cluster FILE");
    if (!options->cluster) return CGP_OK;
    if (schedule && options->message_bytes == 0)
        return cgp_fail(CGP_EINVAL, "--cluster: needs --message-bytes BYTES");
    if (schedule && (options->given[CLI_OPTION_LATENCY] || options->given[CLI_OPTION_TRANSFER]))
        return cgp_fail(
            CGP_EINVAL,
            "--cluster: cannot be with --latency or --transfer, which it replaces (leave out one)");
    return CGP_OK;
}

/* Check the options that describe a device which this machine does not have. */
static cgp_status resolve_hardware(const cli_run_options *options) {
    const bool given = options->given[CLI_OPTION_TFLOPS];
    if (given && options->costs)
        return cgp_fail(CGP_EINVAL, "--tflops: cannot be with --costs (leave out one)");
    if (!given &&
        (options->given[CLI_OPTION_EFFICIENCY] || options->given[CLI_OPTION_MEMORY_BANDWIDTH]))
        return cgp_fail(CGP_EINVAL, "--%s: expected --tflops X",
                        options->given[CLI_OPTION_EFFICIENCY] ? "efficiency" : "memory-bandwidth");
    if (given && !(options->tflops > 0 && options->tflops <= 1e6))
        return cgp_fail(CGP_EINVAL, "--tflops %g: expected more than 0, at most 1e6",
                        options->tflops);
    if (given && !(options->efficiency > 0 && options->efficiency <= 1))
        return cgp_fail(CGP_EINVAL, "--efficiency %g: expected more than 0, at most 1",
                        options->efficiency);
    if (options->calibrate && !given && !options->costs && !options->cluster)
        return cgp_fail(CGP_EINVAL,
                        "--calibrate %s: expected --costs, --tflops or --cluster, whose "
                        "layer times it multiplies",
                        options->calibrate);
    return CGP_OK;
}

static cgp_status resolve_balance(const cli_run_options *options) {
    const bool by_time = options->balance.by && is(options->balance.by, "time");
    if (options->costs && !by_time && options->command == CLI_TRAIN)
        return cgp_fail(CGP_EINVAL, "--costs: expected --balance time");
    return CGP_OK;
}

/* Parse --validation: a number is a fraction, anything else a path. */
static cgp_status resolve_validation(cli_run_options *options) {
    const char *text = options->validation;
    options->validation_fraction = NAN;
    if (text[strspn(text, "0123456789.eE+-")]) return CGP_OK;
    if (cli_parse_real(text, 0, 1, &options->validation_fraction)) return CGP_OK;
    return cgp_fail(CGP_EINVAL,
                    "--validation %s: expected a number >= 0 and < 1, or a file or directory, got "
                    "\"%s\"",
                    text, text);
}

static cgp_status resolve_start(const cli_run_options *options) {
    if (options->resume && options->overwrite)
        return cgp_fail(CGP_EINVAL, "--overwrite: cannot be with --resume (leave out one)");
    if (!options->resume && options->new_data)
        return cgp_fail(CGP_EINVAL, "--new-data: expected --resume");
    if (!options->resume && options->from_step >= 0)
        return cgp_fail(CGP_EINVAL, "--from-step: expected --resume");
    return CGP_OK;
}

cgp_status cli_run_options_resolve(cli_run_options *options) {
    if (options->quiet && options->verbose)
        return cgp_fail(CGP_EINVAL, "--quiet: cannot be with --verbose (leave out one)");
    if (options->given[CLI_OPTION_EPOCHS] && options->given[CLI_OPTION_STEPS])
        return cgp_fail(CGP_EINVAL, "--steps: cannot be with --epochs (leave out one)");
    CGP_TRY(resolve_trace(options));
    CGP_TRY(resolve_compare(options));
    CGP_TRY(resolve_cluster(options));
    CGP_TRY(resolve_hardware(options));
    if (options->chunks == 0)
        options->chunks = options->batch == 0 || options->batch > 8 ? 8 : options->batch;
    if (options->command == CLI_TRAIN) CGP_TRY(resolve_start(options));
    if (options->command == CLI_TRAIN) CGP_TRY(resolve_validation(options));
    if (options->command == CLI_PROFILE) return resolve_optimizer(options);
    if (!cli_option_taken(CLI_OPTION_OPTIMIZER, options->command)) return CGP_OK;
    CGP_TRY(resolve_stages(options));
    CGP_TRY(resolve_replicas(options));
    CGP_TRY(resolve_balance(options));
    CGP_TRY(resolve_optimizer(options));
    return resolve_lr(options);
}
