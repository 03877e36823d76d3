/* SPDX-License-Identifier: Apache-2.0 */
/* json.h -- the values of options as JSON, and back. */
#ifndef CGPIPE_CLI_OPTIONS_JSON_H
#define CGPIPE_CLI_OPTIONS_JSON_H

#include <cgpipe/base.h>

#include <jansson.h>

typedef struct cli_run_options cli_run_options;

/* Write the option's JSON key to `key` and return it. The key is the option's name with _ in place
 * of -. */
const char *cli_option_key(int id, char key[32]);

/* Return the option's value in an object made by cli_options_json(), borrowed; NULL: none. */
json_t *cli_option_in(const json_t *object, int id);

/* Return the value of an option as JSON, or null if the option has no value. Owned by the
 * caller. */
json_t *cli_option_json(const cli_run_options *options, int id);

/* Set an option, with the checks of the command line. Texts and paths are borrowed from `value`.
 * Fails with CGP_EINVAL. */
CGP_MUST_CHECK cgp_status cli_option_set_json(cli_run_options *options, int id,
                                              const json_t *value);

/* The options that cli_options_json() lists. */
typedef enum cli_listing {
    CLI_LIST_REPORTED, /* options that the report of a command lists */
    CLI_LIST_RUN,      /* options that --resume takes from the run */
    CLI_LIST_GIVEN,    /* options given on the command line or in the run file */
} cli_listing;

/* Add the values of options to `object`. */
void cli_options_json(json_t *object, const cli_run_options *options, cli_listing listing);

/* Fail with CGP_EINVAL if a text that is given and stored in a run's record is not UTF-8, because
 * the record is JSON. */
CGP_MUST_CHECK cgp_status cli_options_expect_utf8(const cli_run_options *options);

#endif
