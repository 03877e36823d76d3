/* SPDX-License-Identifier: Apache-2.0 */
/* options.h -- the run options of the program: one table for parsing, help and JSON.
 *
 * An option means the same in every command that takes it; only its default may differ. */
#ifndef CGPIPE_CLI_OPTIONS_H
#define CGPIPE_CLI_OPTIONS_H

#include <cgpipe/base.h>

#include <jansson.h>
#include <stdio.h>

/* Commands, as bits: an option lists those that take it. */
enum {
    CLI_TRAIN = 1 << 0,
    CLI_SAMPLE = 1 << 1,
    CLI_PLAN = 1 << 2,
    CLI_BENCH = 1 << 3,
    CLI_SCHEDULE = 1 << 4,
    CLI_PROFILE = 1 << 5,
    CLI_CHECK = 1 << 6,
    CLI_TOKENIZE = 1 << 7,
    CLI_CONVERT = 1 << 8,
    CLI_CONFIG = 1 << 9,
    CLI_DEVICES = 1 << 10,
    CLI_DIAGNOSE = 1 << 11,
    CLI_STOP = 1 << 12,
    CLI_SUPERVISE = 1 << 13,
    CLI_NEW = 1 << 14,
    CLI_EXPORT = 1 << 15,
};

typedef enum cli_option_id {
    CLI_OPTION_DATA,
    CLI_OPTION_VALIDATION,
    CLI_OPTION_PLAIN,
    CLI_OPTION_STRICT,
    CLI_OPTION_WORKERS,
    CLI_OPTION_RUN,
    CLI_OPTION_CONFIG,
    CLI_OPTION_OVERWRITE,
    CLI_OPTION_RESUME,
    CLI_OPTION_FROM_STEP,
    CLI_OPTION_NEW_DATA,
    CLI_OPTION_NEW_MODEL,
    CLI_OPTION_SAVE_EVERY,
    CLI_OPTION_KEEP,
    CLI_OPTION_MINUTES,
    CLI_OPTION_EVALUATE_EVERY,
    CLI_OPTION_TIMEOUT,
    CLI_OPTION_INTERVAL,
    CLI_OPTION_WAIT,
    CLI_OPTION_RANKS,
    CLI_OPTION_RESTARTS,
    CLI_OPTION_BACKOFF,
    CLI_OPTION_GRACE,
    CLI_OPTION_MODEL,
    CLI_OPTION_PLUGIN,
    CLI_OPTION_GRID,
    CLI_OPTION_PLAN_ONLY,
    CLI_OPTION_STAGES,
    CLI_OPTION_BALANCE,
    CLI_OPTION_COSTS,
    CLI_OPTION_COSTS_OUT,
    CLI_OPTION_OPS,
    CLI_OPTION_CLUSTER,
    CLI_OPTION_CHUNKS,
    CLI_OPTION_SCHEDULE,
    CLI_OPTION_VIRTUAL,
    CLI_OPTION_GROUP,
    CLI_OPTION_RECOMPUTE,
    CLI_OPTION_PRECISION,
    CLI_OPTION_CONVOLUTION,
    CLI_OPTION_DEFERRED_BATCH_NORM,
    CLI_OPTION_BATCH,
    CLI_OPTION_STEPS,
    CLI_OPTION_EPOCHS,
    CLI_OPTION_SEED,
    CLI_OPTION_DROPOUT,
    CLI_OPTION_OPTIMIZER,
    CLI_OPTION_LR,
    CLI_OPTION_LR_BATCH,
    CLI_OPTION_WARMUP,
    CLI_OPTION_WARMUP_START,
    CLI_OPTION_WARMUP_INTERVAL,
    CLI_OPTION_LR_SCHEDULE,
    CLI_OPTION_MIN_LR_RATIO,
    CLI_OPTION_LR_STEP_SIZE,
    CLI_OPTION_LR_MILESTONES,
    CLI_OPTION_LR_GAMMA,
    CLI_OPTION_MOMENTUM,
    CLI_OPTION_NESTEROV,
    CLI_OPTION_BETA1,
    CLI_OPTION_BETA2,
    CLI_OPTION_ALPHA,
    CLI_OPTION_EPS,
    CLI_OPTION_WEIGHT_DECAY,
    CLI_OPTION_DECAY_ALL,
    CLI_OPTION_CLIP,
    CLI_OPTION_DEVICES,
    CLI_OPTION_TRANSPORT,
    CLI_OPTION_VERIFY_MESSAGES,
    CLI_OPTION_THREADS_PER_DEVICE,
    CLI_OPTION_MEMORY_LIMIT,
    CLI_OPTION_SAMPLE,
    CLI_OPTION_WEIGHTS,
    CLI_OPTION_LENGTH,
    CLI_OPTION_PROMPT,
    CLI_OPTION_TEMPERATURE,
    CLI_OPTION_TOP_K,
    CLI_OPTION_TOKENIZER,
    CLI_OPTION_DECODE,
    CLI_OPTION_END_OF_TEXT,
    CLI_OPTION_ADD_SPECIAL_TOKENS,
    CLI_OPTION_LIST,
    CLI_OPTION_CHECK,
    CLI_OPTION_COMPARE,
    CLI_OPTION_COST_F,
    CLI_OPTION_COST_I,
    CLI_OPTION_COST_W,
    CLI_OPTION_LATENCY,
    CLI_OPTION_TRANSFER,
    CLI_OPTION_MESSAGE_BYTES,
    CLI_OPTION_BLOCKING,
    CLI_OPTION_REPEATS,
    CLI_OPTION_PEAK,
    CLI_OPTION_CSV,
    CLI_OPTION_CSV_TRANSFERS,
    CLI_OPTION_SVG,
    CLI_OPTION_TRACE_JSON,
    CLI_OPTION_TRACE,
    CLI_OPTION_OUT,
    CLI_OPTION_JSON,
    CLI_OPTION_VERBOSE,
    CLI_OPTION_QUIET,
    CLI_OPTION_HELP,
    CLI_OPTION_COUNT
} cli_option_id;

/* A list of numbers, "5,3,3,5". */
typedef struct cli_counts {
    const int *values;
    int count;
} cli_counts;

/* A balance, "5,3,3,5", or the rule that finds it: then `layers` is empty and `by` is "flops",
 * "time" or "size". With neither: by flops. */
typedef struct cli_balance {
    cli_counts layers;
    const char *by;
} cli_balance;

/* A list of names: "cpu,cpu" of --devices (repeats expanded), the paths of --data, or tokenize's
 * files. */
typedef struct cli_names {
    const char *const *values;
    int count;
} cli_names;

/* A number of updates, or of epochs: "4ep". -1: not given. */
typedef struct cli_steps {
    int64_t count;
    bool epochs;
} cli_steps;

#define CLI_OWNED 64

/* The command line with defaults filled in. A plain value: a copy may be changed. */
typedef struct cli_run_options {
    unsigned command;
    bool given[CLI_OPTION_COUNT]; /* on the command line, or in the run file */
    bool stages_by_devices;       /* --devices determines the number of stages */
    const char *operand;          /* MODEL, RUN, NAME or FROM; NULL: missing */
    /* The run file or run.json that names MODEL; NULL: the command line. */
    const char *operand_source;
    const char *target; /* TO of convert, NAME of new model; NULL: missing */
    cli_names words;    /* COMMAND of supervise */

    cli_names data, devices, trace, lr_milestones;
    cli_balance balance;
    cli_counts ranks;
    const char *run, *model, *plugin, *schedule, *recompute, *precision, *convolution, *weights,
        *prompt, *json;
    const char *validation, *optimizer, *lr_schedule, *costs, *costs_out, *cluster, *config;
    const char *transport, *check, *compare, *svg, *trace_json, *tokenizer, *out;
    bool overwrite, resume, new_data, new_model, plain, strict, grid, plan_only, ops, nesterov,
        decay_all, help, verbose, quiet, wait;
    bool deferred_batch_norm, decode, end_of_text, add_special_tokens, verify_messages;
    int64_t interval, stages, chunks, batch, steps, seed, threads_per_device, memory_limit,
        message_bytes;
    cli_steps save_every, evaluate_every, warmup, warmup_interval;
    int64_t from_step, keep, restarts, lr_step_size, lr_batch, epochs;
    int64_t epoch_steps; /* 0: not counted (epochs.h) */
    int64_t epoch_shift; /* step at which epoch 0 would begin if all steps had used --batch */
    int64_t sample, length, top_k, workers, virtual_stages, group, repeats;
    double dropout, lr, warmup_start, min_lr_ratio, lr_gamma, momentum, beta1, beta2, alpha, eps;
    double weight_decay, clip, minutes, timeout, backoff, grace, temperature;
    double cost_f, cost_i, cost_w, latency, transfer, peak;
    bool list, blocking, csv, csv_transfers;
    double validation_fraction; /* NaN: `validation` is a path */

    /* Memory that the lists above point to; freed by cli_run_options_release(). */
    void *owned[CLI_OWNED];
    int n_owned;
    json_t *file; /* of --config; freed likewise */
} cli_run_options;

/* Parse argv[0 .. argc-1], the arguments after the command, and resolve them. With --resume the
 * caller resolves them: cli_run_options_inherit(), then cli_run_options_resolve(). Fails with
 * CGP_EINVAL. */
CGP_MUST_CHECK cgp_status cli_run_options_parse(cli_run_options *run_options, unsigned command,
                                                int argc, char **argv);

/* Take every option that is not given from `options`, as made by cli_options_json(). `options`
 * stays borrowed. Fails with CGP_EFORMAT. */
CGP_MUST_CHECK cgp_status cli_run_options_inherit(cli_run_options *run_options,
                                                  const json_t *options);

/* Take every option that is not given and that the command has from `options` of a run file, with
 * the keys of cli_options_json(). They then count as given. `options` stays borrowed. Fails with
 * CGP_EINVAL. */
CGP_MUST_CHECK cgp_status cli_run_options_add(cli_run_options *run_options, const json_t *options);

/* Fill in the defaults that depend on other options. Fails with CGP_EINVAL. */
CGP_MUST_CHECK cgp_status cli_run_options_resolve(cli_run_options *run_options);

void cli_run_options_release(cli_run_options *run_options);

/* Keep memory until cli_run_options_release(). Returns it. */
void *cli_run_options_keep(cli_run_options *run_options, void *memory);

bool cli_option_given(const cli_run_options *run_options, cli_option_id id);

/* Return the name of the option that gives `id`: its own, or "devices" for --stages if --devices
 * determines it. NULL: it is not given. */
const char *cli_option_given_as(const cli_run_options *run_options, cli_option_id id);

/* Write the help on a command's options to `out`, in groups, with their defaults. `brief`: for
 * train, list only the options of a first run. */
void cli_options_help(FILE *out, unsigned command, bool brief);

/* The options that cli_options_json() lists. */
typedef enum cli_listing {
    CLI_LIST_REPORTED, /* for a report */
    CLI_LIST_RUN,      /* taken by --resume */
    CLI_LIST_GIVEN,    /* given on the command line */
} cli_listing;

/* Add the values of options to `object`, named as on the command line with _ for -; an option
 * without a value is null. */
void cli_options_json(json_t *object, const cli_run_options *run_options, cli_listing listing);

/* Fail with CGP_EINVAL if a given text that goes into a run's record, which is JSON, is not
 * UTF-8. */
CGP_MUST_CHECK cgp_status cli_options_expect_utf8(const cli_run_options *run_options);

/* Write a line with the given options that differ from `before`, as made by cli_options_json():
 * "changed      --stages 1 -> 2, --seed 0 -> 1". Writes nothing if none differs. */
void cli_options_print_changes(FILE *out, const cli_run_options *run_options, const json_t *before);

/* Return the values in `now` that differ from `before` or are on the command line. Both are as made
 * by cli_options_json(). */
json_t *cli_options_changes(const cli_run_options *run_options, const json_t *before,
                            const json_t *now);

/* Fail with CGP_EINVAL if `options` of a run differ from `expected`, except those given on the
 * command line. The message names the first one and the option that sets the value. */
CGP_MUST_CHECK cgp_status cli_options_check(const cli_run_options *run_options,
                                            const json_t *options, const json_t *expected);

/* Rename the option keys of cgpipe 0.1.0 in an object (rate becomes lr, and so on). A current key
 * that is there already stays. Replace --recipe by the equivalent options. */
void cli_options_translate(json_t *options);

/* Write the option's JSON key to `key` and return it. */
const char *cli_option_key(cli_option_id id, char key[32]);

/* The formats of --trace, by a file's suffix: .json, .svg, .txt; NONE: another suffix. */
typedef enum cli_trace_format {
    CLI_TRACE_NONE = -1,
    CLI_TRACE_JSON,
    CLI_TRACE_SVG,
    CLI_TRACE_TXT
} cli_trace_format;

cli_trace_format cli_trace_format_of(const char *path);

#endif
