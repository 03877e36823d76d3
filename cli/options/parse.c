/* SPDX-License-Identifier: Apache-2.0 */
/* parse.c -- see parse.h. */
#include "options/parse.h"

#include "options/json.h"
#include "options/near.h"
#include "options/plan_file.h"
#include "options/resolve.h"
#include "options/run_file.h"
#include "options/table.h"
#include "options/values.h"
#include "text.h"

#include <cgpipe/models/spec.h>

#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

cgp_status cli_run_options_preset(cli_run_options *options) {
    for (int id = 0; id < CLI_OPTION_COUNT; id++) {
        const cli_kind kind = cli_options[id].kind;
        if (kind == CLI_REAL || kind == CLI_FRACTION)
            *(double *)cli_option_field(options, id) = NAN;
        if (kind == CLI_WHOLE) *(int64_t *)cli_option_field(options, id) = -1;
        if (kind == CLI_STEPS) ((cli_steps *)cli_option_field(options, id))->count = -1;
        const char *preset = cli_option_preset(options->command, id);
        if (preset && cli_option_taken(id, options->command))
            CGP_TRY(cli_option_set(options, id, preset));
    }
    return CGP_OK;
}

/* Copy the option as the user wrote it, without "=value". */
static void written_name(char name[64], const char *argument) {
    snprintf(name, 64, "%.*s", (int)strcspn(argument, "="), argument);
}

static cgp_status unknown_option(const cli_run_options *options, const char *argument) {
    char name[64];
    written_name(name, argument);
    const char *near = name[1] == '-' ? cli_option_nearest(name + 2, options->command) : NULL;
    return cgp_fail(CGP_EINVAL, "%s: unknown option%s%s%s", name, near ? " (did you mean --" : "",
                    near ? near : "", near ? "?)" : "");
}

/* getopt_long() accepts abbreviations. Refuse an abbreviation that is an option of another program
 * (--min-lr, --device). In that program it may mean something else, such as an absolute value or an
 * index. */
static cgp_status check_abbreviation(const cli_run_options *options, int id, const char *argument) {
    char name[64];
    written_name(name, argument);
    if (strcmp(name + 2, cli_options[id].name) == 0) return CGP_OK;
    if (!cli_option_by_meaning(name + 2, options->command)) return CGP_OK;
    return unknown_option(options, argument);
}

/* Take an argument that is not an option. It is the operand, the target of convert or new, the
 * second run of compare, another path after --data, or a file of tokenize. */
static cgp_status take_argument(cli_run_options *options, const char *argument, bool after_data) {
    if (options->command == CLI_SUPERVISE)
        return cgp_fail(CGP_EINVAL, "%s: expected -- before the command (-- %s ...)", argument,
                        argument);
    if (after_data || options->command == CLI_TOKENIZE)
        return cli_option_set(options, CLI_OPTION_DATA, argument);
    if (options->command & (CLI_CONVERT | CLI_NEW | CLI_COMPARE | CLI_REPORT_RUN) &&
        options->operand && !options->target) {
        options->target = argument;
        return CGP_OK;
    }
    if (options->operand)
        return cgp_fail(CGP_EINVAL, "%s: unexpected argument after %s", argument, options->operand);
    options->operand = argument;
    return CGP_OK;
}

static cgp_status parse_arguments(cli_run_options *options, int argc, char **argv) {
    struct option longs[CLI_OPTION_COUNT + 1] = {{0}};
    int count = 0;
    for (int id = 0; id < CLI_OPTION_COUNT; id++) {
        const int takes = cli_options[id].argument ? required_argument : no_argument;
        if (cli_option_taken(id, options->command))
            longs[count++] = (struct option){cli_options[id].name, takes, NULL, 256 + id};
    }
    bool after_data = false;
    opterr = 0;
    /* 0 resets getopt completely, even after a command line that was refused half-way; 1 does
     * not. */
    for (optind = 0;;) {
        const int at = optind > 0 ? optind : 1;
        /* '-': return other arguments in order, as option 1. ':': a missing value has its own
         * code. */
        int found = getopt_long(argc, argv, "-:ho:", longs, NULL);
        if (found == -1) break;
        if (found == 1) {
            CGP_TRY(take_argument(options, optarg, after_data));
            continue;
        }
        if (found == 'h') options->help = true;
        if (found == 'h') continue;
        if (found == 'o' && !cli_option_taken(CLI_OPTION_OUT, options->command))
            return cgp_fail(CGP_EINVAL, "-o: unknown option");
        if (found == 'o') found = 256 + CLI_OPTION_OUT;
        if (found == ':') return cgp_fail(CGP_EINVAL, "%s: needs a value", argv[optind - 1]);
        if (found == '?' && optopt >= 256)
            return cgp_fail(CGP_EINVAL, "--%s: takes no value", cli_options[optopt - 256].name);
        if (found == '?' && optopt) return cgp_fail(CGP_EINVAL, "-%c: unknown option", optopt);
        if (found == '?') return unknown_option(options, argv[optind - 1]);
        if (argv[at][1] == '-') CGP_TRY(check_abbreviation(options, found - 256, argv[at]));
        after_data = found - 256 == CLI_OPTION_DATA;
        options->given[found - 256] = true;
        CGP_TRY(cli_option_set(options, found - 256, optarg));
    }
    if (options->command == CLI_SUPERVISE) { /* the words after "--" */
        options->words = (cli_names){(const char *const *)argv + optind, argc - optind};
        return CGP_OK;
    }
    for (; optind < argc; optind++)
        CGP_TRY(take_argument(options, argv[optind], after_data));
    return CGP_OK;
}

/* Take the value of train's option --model as MODEL. */
static cgp_status take_model(cli_run_options *options) {
    if (options->command != CLI_TRAIN || !options->model) return CGP_OK;
    if (options->operand)
        return cgp_fail(CGP_EINVAL, "--model %s: MODEL is %s already (leave out one)",
                        options->model, options->operand);
    options->operand = options->model;
    return CGP_OK;
}

/* Tell whether a text is the path of a model plug-in, "./mine.so:width=64". */
static bool is_plugin(const char *text) {
    const size_t length = strcspn(text, ":");
    return length > 3 && strncmp(text + length - 3, ".so", 3) == 0 && memchr(text, '/', length);
}

/* Tell whether a text names a directory with config.json, maybe with keys after it. */
static bool is_published(const char *text) {
    const char *colon = strrchr(text, ':');
    char *whole = cli_text("%s/config.json", text);
    char *part = cli_text("%.*s/config.json", colon ? (int)(colon - text) : 0, text);
    const bool found = access(whole, F_OK) == 0 || (colon && access(part, F_OK) == 0);
    free(part);
    free(whole);
    return found;
}

/* If MODEL is missing, it may be the last value of --data, because --data takes all arguments that
 * follow. If that value parses as MODEL, take it as MODEL. A resumed run has a model already, so an
 * existing path stays a value of --data. */
static void find_model(cli_run_options *options) {
    cgp_model_spec spec = cgp_model_spec_default();
    if (options->command != CLI_TRAIN || options->operand || options->data.count == 0) return;
    const char *last = options->data.values[options->data.count - 1];
    if (options->resume && !is_plugin(last) && access(last, F_OK) == 0) return;
    char kind[32]; /* the keys are not parsed: a wrong key, as in "gpt2:layrs=2", fails later */
    snprintf(kind, sizeof kind, "%.*s", (int)strcspn(last, ":"), last);
    const bool directory = options->data.count > 1 && is_published(last);
    if (!is_plugin(last) && !directory && cgp_model_spec_parse(&spec, kind) != CGP_OK) return;
    options->operand = last;
    options->data.count--;
    if (options->data.count == 0) options->given[CLI_OPTION_DATA] = false;
}

/* Read --plan, then --config. --config sets only options that neither the command line nor the plan
 * sets. */
static cgp_status read_files(cli_run_options *options) {
    if (options->plan) CGP_TRY(cli_plan_file_read(options));
    if (options->config) CGP_TRY(cli_run_file_read(options));
    if (!options->plan || options->operand) return CGP_OK;
    return cgp_fail(CGP_EINVAL,
                    "--plan %s: is for the file %s, whose path the plan does not have (give MODEL "
                    "on the command line)",
                    options->plan, options->planned.model);
}

cgp_status cli_run_options_parse(cli_run_options *options, unsigned command, int argc,
                                 char **argv) {
    *options = (cli_run_options){.command = command};
    const char **paths = cli_run_options_keep(options, cli_calloc((size_t)argc + 1, sizeof *paths));
    options->data.values = paths;
    CGP_TRY(cli_run_options_preset(options));
    CGP_TRY(parse_arguments(options, argc, argv));
    if (options->help) return CGP_OK;
    CGP_TRY(take_model(options));
    find_model(options);
    if (command == CLI_TRAIN) CGP_TRY(cli_options_expect_utf8(options));
    CGP_TRY(cli_take_devices(options));
    CGP_TRY(read_files(options));
    if (options->resume) return CGP_OK;
    cli_stages_by_ranks(options);
    return cli_run_options_resolve(options);
}
