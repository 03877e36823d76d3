/* SPDX-License-Identifier: Apache-2.0 */
/* record.h -- run.json: what a run is, so that it can go on without being told again:
 *
 *     model      its text, all sizes written out
 *     options    the value of every option that --resume takes over
 *     versions   of cgpipe and of what it ran on
 *     devices    their names
 *     starts     a list: step and date of each start, the options given, those that it changed, the devices
 *
 * A checkpoint's note holds model and options as well, and how many starts there were (cli_record_note()): what somebody edits
 * here afterwards is found, and what a later start was given is not taken for that. */
#ifndef CGPIPE_CLI_RECORD_H
#define CGPIPE_CLI_RECORD_H

#include <jansson.h>

#include "session/run_directory.h"
#include "session/session.h"

/* Read run.json. `*record` is the caller's. */
CGP_MUST_CHECK cgp_status cli_record_read(const cli_run_directory *directory, json_t **record);

/* Parse a checkpoint's note. The caller owns it; NULL: it is no JSON, or too large for cgpipe's. */
json_t *cli_note_read(const char *text);

/* Return its model, borrowed from the record. */
const char *cli_record_model(const json_t *record);

/* How often it was started: 0 for weights that were converted. */
int cli_record_starts(const json_t *record);

/* Write it for a start from `step`; `before` is the record so far, NULL if there is none. *written: the new one, owned by the
 * caller. */
CGP_MUST_CHECK cgp_status cli_record_write(const cli_run_directory *directory,
                                           const json_t *before, const cli_session *session,
                                           int64_t step, json_t **written);

/* Add what the record says of the options to a checkpoint's note. */
void cli_record_note(json_t *note, const json_t *record);

/* Refuse a record that was edited since the checkpoint with this note. *checked: false if that cannot be told, as an older
 * cgpipe wrote one of the two. */
CGP_MUST_CHECK cgp_status cli_record_check(const cli_run_directory *directory,
                                           const json_t *record, const json_t *note,
                                           const cli_run_options *options, bool *checked);

/* Write it for weights of a model that nothing was trained with yet. `dropout` 0: that is left to --dropout. */
CGP_MUST_CHECK cgp_status cli_record_write_converted(const cli_run_directory *directory,
                                                     const char *model_spec, double dropout);

#endif
