/* SPDX-License-Identifier: Apache-2.0 */
/* page.h -- the report of a run: all facts as one JSON object, from which the page, the text and
 * --json are made (docs/reference/report-files.md). */
#ifndef CGPIPE_CLI_PAGE_H
#define CGPIPE_CLI_PAGE_H

#include <cgpipe/base.h>

#include <jansson.h>

typedef struct cli_run_directory cli_run_directory;
typedef struct cli_run_options cli_run_options;
typedef struct cli_session cli_session;

/* The real numbers of a report have this many digits, in the page and in the JSON. */
enum { CLI_PAGE_DIGITS = 6 };

/* Collect the facts about the run `path`. Its model and plan are made again from run.json; --model
 * and --plugin of `options` give the path of a model plug-in. What cannot be found is listed under
 * "missing". The caller owns *data. Fails with CGP_EIO or CGP_EFORMAT if there is no run.json. */
CGP_MUST_CHECK cgp_status cli_page_data(json_t **data, const char *path,
                                        const cli_run_options *options);

/* Return a report, or a list of reports, as the text that --json writes and that the page contains.
 * The caller frees it. NULL, with a message: out of memory. */
char *cli_page_json(json_t *const *runs, int n);

/* Return the page of one run, or of several that are compared. The caller frees it. NULL, with a
 * message: out of memory. */
char *cli_page_html(json_t *const *runs, int n);

/* Return a report as text for a terminal, at most about 60 lines. The caller frees it. NULL, with a
 * message: out of memory. */
char *cli_page_text(json_t *const *runs, int n);

/* Write RUN/report.html for a training that ends in this process, which must still have the lock of
 * the directory. `session` has the model and the plan. `state` and `text` are those of
 * cli_recorder_end(). Rank 0 only. */
CGP_MUST_CHECK cgp_status cli_page_of_training(cli_run_directory *directory,
                                               const cli_session *session, const char *state,
                                               const char *text);

#endif
