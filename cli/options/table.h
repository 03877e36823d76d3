/* SPDX-License-Identifier: Apache-2.0 */
/* table.h -- the table of options, for this directory and manual.c alone. */
#ifndef CGPIPE_CLI_OPTIONS_TABLE_H
#define CGPIPE_CLI_OPTIONS_TABLE_H

#include "options/options.h"

/* FLAG has no argument, COUNT is at least 1, WHOLE at least 0, FRACTION below 1; STEPS are steps or
 * epochs; DEVICE_NAMES a number or names, each as often as its COUNT says. */
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

/* REPORTED: in the JSON of train, bench and plan. ONCE: of one start, --resume does not take it
 * over. TYPED: nor is it in a run file. */
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

/* Likewise as help shows it, NULL if it shows none. */
const char *cli_option_shown_preset(unsigned command, int id);

/* Return the heading of the option in help: that of the group whose first option comes before it in
 * cli_option_id. Static. */
const char *cli_option_group(int id);

/* Return the name of the option of a command that does what `name` does in other programs; NULL:
 * none. */
const char *cli_option_by_meaning(const char *name, unsigned command);

/* Return the name of the option of a command that an unknown one may have meant, by meaning or by
 * spelling; NULL: none is near. */
const char *cli_option_nearest(const char *name, unsigned command);

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

/* Return what an option takes, for messages: "a number >= 0". Static. */
const char *cli_option_expected(int id);

/* Parse "12" or "4ep". */
bool cli_steps_parse(const char *text, cli_steps *steps);

/* Make --devices 4 what it stands for. Fails with CGP_EINVAL. */
CGP_MUST_CHECK cgp_status cli_take_devices(cli_run_options *options);

/* Set an option from JSON, with the same checks; a text is borrowed. Fails with CGP_EINVAL. */
CGP_MUST_CHECK cgp_status cli_option_set_json(cli_run_options *options, int id,
                                              const json_t *value);

/* Parse the argument of an option (NULL for a FLAG). Fails with CGP_EINVAL. */
CGP_MUST_CHECK cgp_status cli_option_set(cli_run_options *options, int id, const char *text);

#endif
