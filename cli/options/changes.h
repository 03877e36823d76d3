/* SPDX-License-Identifier: Apache-2.0 */
/* changes.h -- compare the stored options of a run. They are stored in run.json (the record), in
 * its list of starts, and in the notes of checkpoints, as JSON made by cli_options_json(). */
#ifndef CGPIPE_CLI_CHANGES_H
#define CGPIPE_CLI_CHANGES_H

#include <cgpipe/base.h>

#include <jansson.h>
#include <stdio.h>

typedef struct cli_run_options cli_run_options;

/* Write a line with the given options that differ from `before`: "changed      --stages 1 -> 2,
 * --seed 0 -> 1". Writes nothing if none differs. */
void cli_options_print_changes(FILE *out, const cli_run_options *options, const json_t *before);

/* Return the values in `now` that differ from `before` or are given on the command line. Owned by
 * the caller. */
json_t *cli_options_changes(const cli_run_options *options, const json_t *before,
                            const json_t *now);

/* Fail with CGP_EINVAL if the options of a `record` differ from `expected`, except those given on
 * the command line. The message names the first difference, and the option that restores the
 * expected value. */
CGP_MUST_CHECK cgp_status cli_options_check(const cli_run_options *options, const json_t *record,
                                            const json_t *expected);

/* Rename the option keys of cgpipe 0.1.0 in an object (rate becomes lr, and so on). If the object
 * already has the current key, that value stays. Replace --recipe by the equivalent options. */
void cli_options_translate(json_t *options);

#endif
