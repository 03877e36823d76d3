/* SPDX-License-Identifier: Apache-2.0 */
/* table.h -- the table of options, only for this directory and manual.c. */
#ifndef CGPIPE_CLI_OPTIONS_TABLE_H
#define CGPIPE_CLI_OPTIONS_TABLE_H

#include "options/options.h"

/* FLAG has no argument. COUNT is at least 1, WHOLE at least 0, FRACTION below 1. STEPS is in steps
 * or epochs. DEVICE_NAMES is a number or a list of names, NAME*COUNT for repeats. */
typedef enum cli_kind {
    CLI_FLAG,
    CLI_TEXT,
    CLI_COUNT,
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

/* REPORTED: in the JSON of train, bench and plan. ONCE: for one start, not taken by --resume.
 * TYPED: also not allowed in a run file. */
enum { CLI_REPORTED = 1 << 0, CLI_ONCE = 1 << 1, CLI_TYPED = 1 << 2 };

/* An option without a preset is 0, NaN (REAL, FRACTION) or -1 (WHOLE) until it is given. */
typedef struct cli_option {
    const char *name, *argument;
    cli_kind kind;
    size_t offset; /* in cli_run_options */
    unsigned commands, flags;
    const char *preset; /* parsed like an argument; NULL: none */
    const char *help;
} cli_option;

extern const cli_option cli_options[CLI_OPTION_COUNT];

/* Return the default for a command, NULL if there is none. */
const char *cli_option_preset(unsigned command, int id);

/* Return the default as help shows it, NULL if it shows none. */
const char *cli_option_shown_preset(unsigned command, int id);

/* Return the heading of the option's group in help. A group ends at the next group's first option,
 * in the order of cli_option_id. Static. */
const char *cli_option_group(int id);

/* Return the name of the command's option that other programs call `name`; NULL: none. */
const char *cli_option_by_meaning(const char *name, unsigned command);

/* Return the name of the command's option that is nearest to an unknown `name`, by meaning or
 * spelling; NULL: none is near. */
const char *cli_option_nearest(const char *name, unsigned command);

/* Tell whether help of a command lists the option: the command has it, and it matters there. */
bool cli_option_listed(int id, unsigned command);

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

/* Return a description of an option's values for messages: "a number >= 0". Static. */
const char *cli_option_expected(int id);

/* Parse "12" or "4ep". */
bool cli_steps_parse(const char *text, cli_steps *steps);

/* Resolve --devices, and --stages where it follows from it. Fails with CGP_EINVAL. */
CGP_MUST_CHECK cgp_status cli_take_devices(cli_run_options *options);

/* Set an option from JSON, with the same checks; a text is borrowed. Fails with CGP_EINVAL. */
CGP_MUST_CHECK cgp_status cli_option_set_json(cli_run_options *options, int id,
                                              const json_t *value);

/* Parse the argument of an option (NULL for a FLAG). Fails with CGP_EINVAL. */
CGP_MUST_CHECK cgp_status cli_option_set(cli_run_options *options, int id, const char *text);

#endif
