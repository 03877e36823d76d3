/* SPDX-License-Identifier: Apache-2.0 */
/* table.c -- see table.h. */
#include "options/table.h"

#include <stddef.h>

#define AT(field) offsetof(cli_run_options, field), sizeof(((cli_run_options *)0)->field)
#define TRAIN CLI_TRAIN
#define PLANNED (CLI_TRAIN | CLI_PLAN | CLI_BENCH | CLI_CHECK)
#define SAMPLING (CLI_TRAIN | CLI_SAMPLE)
#define COSTED (PLANNED | CLI_PROFILE)
#define RANKED (SAMPLING | CLI_BENCH | CLI_PROFILE | CLI_CHECK)
#define ALL                                                                                        \
    (COSTED | CLI_SAMPLE | CLI_SCHEDULE | CLI_TOKENIZE | CLI_CONVERT | CLI_CONFIG | CLI_DEVICES |  \
     CLI_DIAGNOSE | CLI_STOP | CLI_SUPERVISE | CLI_NEW | CLI_EXPORT | CLI_COMPARE |                \
     CLI_REPORT_RUN)
#define REPORTED CLI_REPORTED
#define ONCE CLI_ONCE
#define TYPED (CLI_ONCE | CLI_TYPED)
#define FIRST CLI_FIRST

/* Flags for training options that have no effect in some commands. These commands still accept the
 * options, so that they work with command lines and run files of train.
 *
 *     UPDATE    plan only shows the memory of the optimizer, which does not depend on its constants
 *     STEPPED   check makes a single update, with the rate of --lr; a schedule would only scale it
 *     FIXED     bench sets the flag itself */
#define UPDATE (CLI_REPORTED | CLI_IDLE(CLI_PLAN))
#define STEPPED (CLI_REPORTED | CLI_IDLE(CLI_PLAN | CLI_CHECK))
#define FIXED (CLI_REPORTED | CLI_IDLE(CLI_PLAN | CLI_BENCH))

const cli_option cli_options[CLI_OPTION_COUNT] = {
#define OPTION(id, ...) [CLI_OPTION_##id] = {__VA_ARGS__},
#include "options/list.inc"
#undef OPTION
};

/* Defaults that differ between commands. */
static const struct {
    unsigned command;
    cli_option_id option;
    const char *preset;
} command_presets[] = {
    {CLI_BENCH, CLI_OPTION_SCHEDULE, "gpipe"}, {CLI_BENCH, CLI_OPTION_BATCH, "64"},
    {CLI_BENCH, CLI_OPTION_STEPS, "10"},       {CLI_BENCH, CLI_OPTION_OPTIMIZER, "sgd"},
    {CLI_SCHEDULE, CLI_OPTION_STAGES, "4"},    {CLI_PROFILE, CLI_OPTION_BATCH, "8"},
    {CLI_PROFILE, CLI_OPTION_CHUNKS, "1"},     {CLI_SAMPLE, CLI_OPTION_STAGES, NULL},
    {CLI_SUPERVISE, CLI_OPTION_RUN, NULL},     {CLI_SUPERVISE, CLI_OPTION_TIMEOUT, "7200"},
};

const char *cli_option_preset(unsigned command, int id) {
    for (size_t i = 0; i < sizeof command_presets / sizeof command_presets[0]; i++) {
        if (command_presets[i].command == command && (int)command_presets[i].option == id)
            return command_presets[i].preset;
    }
    return cli_options[id].preset;
}
