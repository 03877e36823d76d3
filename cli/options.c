/* SPDX-License-Identifier: Apache-2.0 */
/* options.c -- the words of the command line, and help. */
#include "options_table.h"

#include "common.h"

#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

bool cli_given(const cli_run_options *options, cli_option_id id) {
    return options->given[id];
}

void *cli_run_options_keep(cli_run_options *options, void *memory) {
    if (options->n_owned == CLI_OWNED) abort(); /* lists leave room before they ask for it */
    options->owned[options->n_owned++] = memory;
    return memory;
}

/* --- parsing --- */

static cgp_status set_presets(cli_run_options *options) {
    for (int id = 0; id < CLI_OPTION_COUNT; id++) {
        const cli_kind kind = cli_options[id].kind;
        if (kind == CLI_REAL || kind == CLI_FRACTION)
            *(double *)cli_option_field(options, id) = NAN;
        if (kind == CLI_WHOLE) *(int64_t *)cli_option_field(options, id) = -1;
        const char *preset = cli_option_preset(options->command, id);
        if (preset && cli_option_taken(id, options->command))
            CGP_TRY(cli_option_set(options, id, preset));
    }
    return CGP_OK;
}

/* The option as it was written, without "=value". */
static cgp_status unknown_option(const cli_run_options *options, const char *word) {
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(word, "="), word);
    const char *near = name[1] == '-' ? cli_option_nearest(name + 2, options->command) : NULL;
    return cgp_fail(CGP_EINVAL, "%s: unknown option%s%s%s", name,
                    near ? " (did you mean --" : "", near ? near : "", near ? "?)" : "");
}

/* A word that is no option: the operand, the model of `bench memory`, the target of convert, one
 * more path after --data, or one of the files of tokenize. */
static cgp_status take_word(cli_run_options *options, const char *word, bool after_data) {
    if (after_data || options->command == CLI_TOKENIZE)
        return cli_option_set(options, CLI_OPTION_DATA, word);
    const bool takes_model = options->command == CLI_BENCH && options->operand &&
                             strcmp(options->operand, "memory") == 0;
    const bool takes_target = options->command == CLI_CONVERT && options->operand;
    const char **second = takes_model    ? &options->model
                          : takes_target ? &options->target
                                         : NULL;
    if (second && !*second) {
        *second = word;
        return CGP_OK;
    }
    if (options->operand)
        return cgp_fail(CGP_EINVAL, "%s: unexpected word after %s", word, options->operand);
    options->operand = word;
    return CGP_OK;
}

static cgp_status parse_words(cli_run_options *options, int argc, char **argv) {
    struct option longs[CLI_OPTION_COUNT + 1] = {{0}};
    int count = 0;
    for (int id = 0; id < CLI_OPTION_COUNT; id++) {
        const int takes = cli_options[id].argument ? required_argument : no_argument;
        if (cli_option_taken(id, options->command))
            longs[count++] = (struct option){cli_options[id].name, takes, NULL, 256 + id};
    }
    bool after_data = false;
    opterr = 0;
    for (optind = 0;
         ;) { /* not 1: nothing is left of a command line that was refused half-way */
        /* '-': words come in their order, as option 1; ':': a missing value is told apart; -h. */
        const int found = getopt_long(argc, argv, "-:h", longs, NULL);
        if (found == -1) break;
        if (found == 1) {
            CGP_TRY(take_word(options, optarg, after_data));
            continue;
        }
        if (found == 'h') options->help = true;
        if (found == 'h') continue;
        if (found == ':') return cgp_fail(CGP_EINVAL, "%s: needs a value", argv[optind - 1]);
        if (found == '?' && optopt >= 256)
            return cgp_fail(CGP_EINVAL, "--%s: takes no value", cli_options[optopt - 256].name);
        if (found == '?' && optopt) return cgp_fail(CGP_EINVAL, "-%c: unknown option", optopt);
        if (found == '?') return unknown_option(options, argv[optind - 1]);
        after_data = found - 256 == CLI_OPTION_DATA;
        options->given[found - 256] = true;
        CGP_TRY(cli_option_set(options, found - 256, optarg));
    }
    for (; optind < argc; optind++)
        CGP_TRY(take_word(options, argv[optind], after_data));
    return CGP_OK;
}

cgp_status cli_run_options_parse(cli_run_options *options, unsigned command, int argc,
                                 char **argv) {
    *options = (cli_run_options){.command = command};
    const char **paths =
        cli_run_options_keep(options, cli_calloc((size_t)argc + 1, sizeof *paths));
    options->data.values = paths;
    CGP_TRY(set_presets(options));
    CGP_TRY(parse_words(options, argc, argv));
    if (options->help || options->resume) return CGP_OK;
    return cli_run_options_resolve(options);
}

void cli_run_options_release(cli_run_options *options) {
    for (int i = 0; i < options->n_owned; i++)
        free(options->owned[i]);
    options->n_owned = 0;
}

/* --- help --- */

void cli_options_help(FILE *out, unsigned command) {
    const char *group = NULL;
    for (int id = 0; id < CLI_OPTION_COUNT; id++) {
        if (!cli_option_taken(id, command)) continue;
        const char *preset = cli_option_shown_preset(command, id);
        char left[40];
        if (cli_option_group(id) != group)
            fprintf(out, "%s%s:\n", group ? "\n" : "", cli_option_group(id));
        group = cli_option_group(id);
        snprintf(left, sizeof left, "--%s %s", cli_options[id].name,
                 cli_options[id].argument ? cli_options[id].argument : "");
        fprintf(out, "  %-24s %s", left, cli_options[id].help);
        if (preset) fprintf(out, " [%s]", preset);
        fputc('\n', out);
    }
}
