/* SPDX-License-Identifier: Apache-2.0 */
/* options.h -- the options of a start, as values. table.h has their names, kinds and defaults.
 *
 * An option means the same in every command that takes it; only its default may differ. */
#ifndef CGPIPE_CLI_OPTIONS_H
#define CGPIPE_CLI_OPTIONS_H

#include <cgpipe/base.h>

/* Commands, as bits. The bits of an option say which commands take the option. */
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
    CLI_COMPARE = 1 << 16,
    CLI_REPORT_RUN = 1 << 17,
};

typedef enum cli_option_id {
#define OPTION(id, ...) CLI_OPTION_##id,
#include "options/list.inc"
#undef OPTION
    CLI_OPTION_COUNT
} cli_option_id;

/* A list of numbers, "5,3,3,5". */
typedef struct cli_counts {
    const int *values;
    int count;
} cli_counts;

/* A balance, "5,3,3,5", or the rule that finds the balance. With a rule, `layers` is empty and `by`
 * is "flops", "time" or "size". If neither is given, the rule is "flops". */
typedef struct cli_balance {
    cli_counts layers;
    const char *by;
} cli_balance;

/* A list of names: the devices of --devices, "cpu,cpu" (repeats are expanded), the paths of --data,
 * or the files of tokenize. */
typedef struct cli_names {
    const char *const *values;
    int count;
} cli_names;

/* A number of updates, or a number of epochs ("4ep"); -1: not given. */
typedef struct cli_steps {
    int64_t count;
    bool epochs;
} cli_steps;

/* The model and the devices for which the plan of --plan was made; all NULL: --plan is not
 * given. */
typedef struct cli_planned {
    const char *model;        /* the model's text with all sizes */
    const char *model_sha256; /* digest of the model's file; NULL: a model of the zoo */
    const char *graph_sha256; /* digest of the model's graph */
    cli_names devices;        /* one name per device of a replica */
    int64_t replicas;
    int64_t gradient_groups; /* 0: the file does not have this number */
} cli_planned;

/* the value of an option whose number is found when the options are resolved */
enum { CLI_AUTO = -1 };

/* The command line with defaults filled in. A copy of this struct may be changed. The copy borrows
 * the memory of the original and must not be released. Set the copy's `kept` to NULL before you
 * keep memory with the copy. */
typedef struct cli_run_options {
    unsigned command;
    bool given[CLI_OPTION_COUNT]; /* true: the option is on the command line or in the run file */
    const char *auto_devices;     /* devices that --devices auto found; NULL: not given */
    bool stages_by_devices;       /* --devices determines the number of stages */
    const char *operand;          /* MODEL, RUN, NAME or FROM; NULL: missing */
    /* The run file or run.json that names MODEL; NULL if the command line names MODEL. */
    const char *operand_source;
    const char *target; /* TO of convert, NAME of new model; NULL: missing */
    cli_names words;    /* COMMAND of supervise */
    cli_planned planned;
    double time_factor; /* factor that multiplies layer times, see --calibrate; 0: no factor */

    cli_names data, devices, replay_on, trace, lr_milestones, freeze, parameter_groups;
    cli_balance balance;
    cli_counts ranks;
    const char *run, *model, *plugin, *schedule, *recompute, *precision, *convolution, *weights,
        *prompt, *json;
    const char *validation, *optimizer, *lr_schedule, *costs, *costs_out, *cluster, *config, *plan,
        *plan_out, *calibrate;
    const char *tensorboard;
    const char *transport, *check, *compare, *svg, *trace_json, *tokenizer, *out, *layout;
    bool overwrite, resume, new_data, new_model, plain, strict, grid, plan_only, ops, nesterov,
        decay_all, help, verbose, quiet, wait;
    bool deferred_batch_norm, shard_optimizer, decode, end_of_text, add_special_tokens,
        verify_messages;
    bool search, search_chunks, search_precision, explain, all;
    int64_t choice, interval, stages, chunks, batch, steps, seed, threads_per_device, memory_limit,
        message_bytes;
    cli_steps save_every, evaluate_every, warmup, warmup_interval;
    int64_t digest_every, replay_every;
    int64_t from_step, keep, restarts, lr_step_size, lr_batch, epochs;
    int64_t epoch_steps; /* number of steps in an epoch; 0: not counted yet (epochs.h) */
    int64_t epoch_shift; /* step at which epoch 0 would begin if all steps had used --batch */
    int64_t sample, length, top_k, workers, virtual_stages, group, in_flight, gradient_groups,
        replicas;
    int64_t repeats;
    double dropout, lr, warmup_start, min_lr_ratio, lr_gamma, momentum, beta1, beta2, alpha, eps;
    double weight_decay, clip, minutes, timeout, backoff, grace, temperature;
    double cost_f, cost_i, cost_w, latency, transfer, peak, tflops, efficiency, memory_bandwidth;
    bool list, blocking, csv, csv_transfers, text;
    double validation_fraction; /* NaN: `validation` is a path */

    struct cli_kept *kept; /* list of the memory that the values point to */
} cli_run_options;

/* Take ownership of `memory` until cli_run_options_release(), and return it. */
void *cli_run_options_keep(cli_run_options *options, void *memory);

/* Move all kept memory of `from` to `options`. */
void cli_run_options_keep_all(cli_run_options *options, cli_run_options *from);

void cli_run_options_release(cli_run_options *options);

/* Return the name of the option that gives the value of `id`. That is the option's own name, or
 * "devices" for --stages if --devices determines it. NULL: the value is not given. */
const char *cli_option_given_as(const cli_run_options *options, cli_option_id id);

#endif
