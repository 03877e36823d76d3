/* SPDX-License-Identifier: Apache-2.0 */
/* search.h -- find values for the options of a plan that are not given. It serves plan --search,
 * and trainings whose default plan does not fit into memory. */
#ifndef CGPIPE_CLI_SEARCH_H
#define CGPIPE_CLI_SEARCH_H

#include <cgpipe/planner.h>

typedef struct cli_run_options cli_run_options;
typedef struct cli_session cli_session;

/* Size in bytes of a buffer for the text of cli_search_schedule(). */
enum { CLI_SCHEDULE_TEXT = 40 };

/* Return what the search may change: the options that are not given. The number of micro-batches is
 * searched only if `chunks` is true, because this number changes the bits of a step and the
 * statistics of batch norms. */
cgp_search_options cli_search_options(const cli_session *session, bool chunks);

/* Limit the memory of each device to the memory that the file of --cluster states, as
 * --memory-limit or --devices would. Limits that are given stay. `options` are the session's
 * options. */
CGP_MUST_CHECK cgp_status cli_search_limits(cli_session *session, cli_run_options *options);

/* Search for plans of the session's model, with the costs of --costs. See cgp_plan_search(). If the
 * costs are those of another model, print a warning unless *warned is set, and set it. Release
 * *found in any case. */
CGP_MUST_CHECK cgp_status cli_search(cli_session *session, cgp_search_options *search,
                                     cgp_search_result *found, bool *warned);

/* Set the options that a choice determines. The options own the memory of these values. */
void cli_search_take(cli_run_options *options, const cgp_search_choice *choice);

/* Write the schedule of a choice to `text`, with the number of micro-batches in flight if the
 * choice has one: "v-flex 6". Return `text`. */
const char *cli_search_schedule(const cgp_search_choice *choice, char text[CLI_SCHEDULE_TEXT]);

/* Return the options of a choice as words: " --schedule zb-v --chunks 4 ...". The caller frees
 * them. */
char *cli_search_words(const cli_run_options *options, const cgp_search_choice *choice);

/* Return the cgpipe train command for a choice, with the memory limit `limit` (0: no limit). For a
 * table of layers, return a cgpipe plan command. Freed by the caller. */
char *cli_search_command(const cli_session *session, const cgp_search_choice *choice,
                         int64_t limit);

/* Append a command whose plan fits into memory to the message of CGP_ELIMIT. Return CGP_ELIMIT. */
CGP_MUST_CHECK cgp_status cli_search_add_least(const cli_session *session,
                                               const cgp_search_result *found);

#endif
