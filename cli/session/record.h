/* SPDX-License-Identifier: Apache-2.0 */
/* record.h -- run.json, from which --resume takes a run's options:
 *
 *     model      its text, all sizes written out; of a file without its directory
 *     model_sha256   of the file, if the model is of one
 *     model_path     of a graph file; a plug-in's path is given at each start
 *     options    the value of every option that --resume takes over
 *     versions   of cgpipe, the compiler, jansson and the system; the instruction set and a digest of libm, where a pipeline ran
 *     devices    their names
 *     plugins    name, version and SHA-256 of each plug-in that has one of the devices, or the transport; not there: none
 *     starts     a list: step and date of each start, the host of rank 0, the options given, those that it changed, the devices and plug-ins,
 *                and `fault`, its CGP_FAULT
 *
 * A checkpoint's note has model and options as well, and the number of starts (cli_record_note()):
 * so a later edit of run.json is found, and an option that a later start changed is no edit. */
#ifndef CGPIPE_CLI_RECORD_H
#define CGPIPE_CLI_RECORD_H

#include <jansson.h>

#include "session/run_directory.h"
#include "session/session.h"

/* Read run.json. The caller owns *record. */
CGP_MUST_CHECK cgp_status cli_record_read(const cli_run_directory *directory, json_t **record);

/* Parse a checkpoint's note. The caller owns it; NULL: it is no JSON, or too large for cgpipe's. */
json_t *cli_note_read(const char *text);

/* Return the model of a record or note, borrowed from it. */
const char *cli_record_model(const json_t *record);

/* Add the SHA-256 of the model's file to a record or a note, if it is of one. */
void cli_record_file(json_t *object, const cli_model *model);

/* Return MODEL as it was given, with the run's keys where it names a plug-in without any. Owned. */
char *cli_record_keys(const json_t *record, const char *given);

/* Refuse another model than the record's, `given` in messages, and another file, unless that is a
 * `new_model`. */
CGP_MUST_CHECK cgp_status cli_record_check_model(const json_t *record, const cli_model *model,
                                                 const char *model_spec, const char *given,
                                                 bool new_model);

/* Find the model of a run: its own, or, where that is of a file, the one that --model gives.
 * `plugin`: --plugin. */
CGP_MUST_CHECK cgp_status cli_record_find_model(cli_model *model,
                                                const cli_run_directory *directory,
                                                const json_t *record, const char *given,
                                                const char *plugin);

/* Return MODEL of a run for a start that gives none: its model, or the path of its graph file.
 * Borrowed from the record. */
const char *cli_record_path(const json_t *record);

/* Return the number of starts: 0 for converted weights. */
int cli_record_starts(const json_t *record);

/* Return the host of the last start, borrowed from the record; NULL: there is none, or an older
 * cgpipe made it. */
const char *cli_record_host(const json_t *record);

/* Write run.json for a start from `step`; `before` is the record so far, NULL if there is none. The
 * caller owns *written, the new one. */
CGP_MUST_CHECK cgp_status cli_record_write(const cli_run_directory *directory, const json_t *before,
                                           const cli_session *session, int64_t step,
                                           json_t **written);

/* Return name, version and SHA-256 of the plug-ins that a run takes. NULL: it takes none. Owned. */
json_t *cli_record_plugins(const cli_session *session);

/* Add the record's options and number of starts to a checkpoint's note. */
void cli_record_note(json_t *note, const json_t *record);

/* Refuse a record that was edited since the checkpoint with this note. *checked: false if an older
 * cgpipe wrote one of the two, so that edits cannot be found. */
CGP_MUST_CHECK cgp_status cli_record_check(const cli_run_directory *directory, const json_t *record,
                                           const json_t *note, const cli_run_options *options,
                                           bool *checked);

/* Write run.json for converted weights, without training so far. `dropout` 0: --dropout determines
 * it. */
CGP_MUST_CHECK cgp_status cli_record_write_converted(const cli_run_directory *directory,
                                                     const cli_model *model, const char *model_spec,
                                                     double dropout);

#endif
