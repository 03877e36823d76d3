/* SPDX-License-Identifier: Apache-2.0 */
/* table.h -- the table of options, made from list.inc: name, kind, place in cli_run_options,
 * commands, default and help. */
#ifndef CGPIPE_CLI_OPTIONS_TABLE_H
#define CGPIPE_CLI_OPTIONS_TABLE_H

#include "options/options.h"

/* FLAG has no argument. COUNT is at least 1, WHOLE at least 0, FRACTION below 1. COUNT_OR_AUTO is a
 * COUNT, or CLI_AUTO. STEPS is a number of steps or epochs. DEVICE_NAMES is a number or a list of
 * names, in which NAME*COUNT repeats a name. */
typedef enum cli_kind {
    CLI_FLAG,
    CLI_TEXT,
    CLI_COUNT,
    CLI_COUNT_OR_AUTO,
    CLI_WHOLE,
    CLI_STEPS,
    CLI_BYTES,
    CLI_REAL,
    CLI_FRACTION,
    CLI_COUNTS,
    CLI_BALANCE,
    CLI_NAMES,
    CLI_DEVICE_NAMES,
    CLI_PATHS
} cli_kind;

/* Flags:
 *
 *     REPORTED   in the JSON of train, bench and plan
 *     ONCE       for one start, not taken by --resume
 *     TYPED      also not allowed in a run file
 *     FIRST      a first run of train needs it
 *     IDLE       has no effect in these commands, whose help leaves it out */
enum { CLI_REPORTED = 1 << 0, CLI_ONCE = 1 << 1, CLI_TYPED = 1 << 2, CLI_FIRST = 1 << 3 };
#define CLI_IDLE(commands) ((unsigned)(commands) << 8)

/* An option without a preset is 0, NaN (REAL, FRACTION) or -1 (WHOLE) until it is given. */
typedef struct cli_option {
    const char *name, *argument;
    cli_kind kind;
    size_t offset, size; /* offset and size of the value in cli_run_options */
    unsigned commands, flags;
    const char *preset; /* default, parsed like an argument; NULL: none */
    const char *help;
} cli_option;

extern const cli_option cli_options[CLI_OPTION_COUNT];

/* Return the default for a command, NULL if there is none. */
const char *cli_option_preset(unsigned command, int id);

/* Tell whether a command has the option. */
static inline bool cli_option_taken(int id, unsigned command) {
    return (cli_options[id].commands & command) != 0;
}

static inline void *cli_option_field(cli_run_options *options, int id) {
    return (char *)options + cli_options[id].offset;
}

static inline const void *cli_option_value(const cli_run_options *options, int id) {
    return (const char *)options + cli_options[id].offset;
}

#endif
