/* options.h -- the options of the program: one table for parsing, help and JSON.
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
};

typedef enum cli_option_id {
    CLI_OPTION_DATA,
    CLI_OPTION_RUN,
    CLI_OPTION_OVERWRITE,
    CLI_OPTION_VALIDATION,
    CLI_OPTION_INTERVAL,
    CLI_OPTION_MODEL,
    CLI_OPTION_GRID,
    CLI_OPTION_PLAN_ONLY,
    CLI_OPTION_STAGES,
    CLI_OPTION_BALANCE,
    CLI_OPTION_CHUNKS,
    CLI_OPTION_SCHEDULE,
    CLI_OPTION_RECOMPUTE,
    CLI_OPTION_BATCH,
    CLI_OPTION_STEPS,
    CLI_OPTION_SEED,
    CLI_OPTION_DROPOUT,
    CLI_OPTION_OPTIMIZER,
    CLI_OPTION_RATE,
    CLI_OPTION_MOMENTUM,
    CLI_OPTION_NESTEROV,
    CLI_OPTION_WEIGHT_DECAY,
    CLI_OPTION_DEVICES,
    CLI_OPTION_THREADS_PER_DEVICE,
    CLI_OPTION_DEVICE_MEMORY,
    CLI_OPTION_SAMPLE,
    CLI_OPTION_WEIGHTS,
    CLI_OPTION_LENGTH,
    CLI_OPTION_PROMPT,
    CLI_OPTION_TEMPERATURE,
    CLI_OPTION_TOP_K,
    CLI_OPTION_COST_F,
    CLI_OPTION_COST_I,
    CLI_OPTION_COST_W,
    CLI_OPTION_LATENCY,
    CLI_OPTION_JSON,
    CLI_OPTION_HELP,
    CLI_OPTION_COUNT
} cli_option_id;

/* "5,3,3,5" */
typedef struct cli_counts {
    const int *values;
    int count;
} cli_counts;

/* "cpu,cpu", or the paths after --data */
typedef struct cli_names {
    const char *const *values;
    int count;
} cli_names;

#define CLI_OWNED 64

/* What the command line says, defaults filled in. A plain value: a copy may be changed. */
typedef struct cli_settings {
    unsigned command;
    uint64_t given;      /* bit of an option: it was on the command line */
    const char *operand; /* MODEL, RUN or NAME; NULL: missing */

    cli_names data, devices;
    cli_counts balance;
    const char *run, *model, *schedule, *recompute, *optimizer, *weights, *prompt, *json;
    bool overwrite, grid, plan_only, nesterov, help;
    int64_t interval, stages, chunks, batch, steps, seed, threads_per_device, device_memory;
    int64_t sample, length, top_k;
    double validation, dropout, rate, momentum, weight_decay, temperature;
    double cost_f, cost_i, cost_w, latency;

    void *owned[CLI_OWNED]; /* what the lists above point to; freed by cli_settings_release() */
    int n_owned;
} cli_settings;

/* Parse argv[0 .. argc-1], the words after the command. Fails with CGP_EINVAL. */
CGP_MUST_CHECK cgp_status cli_settings_parse(cli_settings *settings, unsigned command, int argc,
                                             char **argv);
void cli_settings_release(cli_settings *settings);

bool cli_given(const cli_settings *settings, cli_option_id id);

/* Write the options of a command to `out`, one a line, with their defaults. */
void cli_options_help(FILE *out, unsigned command);

/* Add every option that the command takes to `object`, named as on the command line with _ for
 * -; what has no value is null. `reported`: only those that a report lists. */
void cli_options_json(json_t *object, const cli_settings *settings, bool reported);

#endif
