/* SPDX-License-Identifier: Apache-2.0 */
/* record.h -- run.json, from which --resume takes a run's options:
 *
 *     model          text of the model with all sizes; for a file, without the file's directory
 *     model_sha256   digest of the model's file, if the model has a file
 *     model_path     path of a graph file; the path of a plug-in is given at each start
 *     weights_from   MODEL of the first start, if it was a directory of published weights
 *     options        value of every option that --resume takes over
 *     versions       versions of cgpipe, the compiler, jansson and the system; if a pipeline ran,
 *                    also the instruction set and a digest of libm
 *     devices        names of the devices
 *     plugins        name, version, SHA-256 of each plug-in that provides a device or the transport
 *     starts         list of the starts: step, date, host of rank 0, options given, options
 *                    changed, devices, plug-ins, and `fault`, the start's CGP_FAULT
 *
 * A checkpoint's note also has model, options and the number of starts (cli_record_note()). With
 * them, an edit of run.json is detected. A change that a later start made does not count as an
 * edit: the list of starts has it. */
#ifndef CGPIPE_CLI_RECORD_H
#define CGPIPE_CLI_RECORD_H

#include <cgpipe/base.h>

#include <jansson.h>

typedef struct cli_model cli_model;
typedef struct cli_run_directory cli_run_directory;
typedef struct cli_run_options cli_run_options;
typedef struct cli_session cli_session;

/* Read run.json. The caller owns *record. */
CGP_MUST_CHECK cgp_status cli_record_read(const cli_run_directory *directory, json_t **record);

/* Parse a checkpoint's note. The caller owns it; NULL: the note is not JSON, or too large to be a
 * note of cgpipe. */
json_t *cli_note_read(const char *text);

/* Return the model of a record or note, borrowed from it. */
const char *cli_record_model(const json_t *record);

/* Add the SHA-256 of the model's file, if it has one, to a record or a note. */
void cli_record_file(json_t *object, const cli_model *model);

/* Return MODEL as given. If MODEL is a plug-in without keys, append the keys from the run's record.
 * Owned by the caller. */
char *cli_record_keys(const json_t *record, const char *given);

/* Fail if the model differs from the record's model. Unless `new_model` is true, also fail if the
 * model's file differs from the record's file. Messages call the model `given`. */
CGP_MUST_CHECK cgp_status cli_record_check_model(const json_t *record, const cli_model *model,
                                                 const char *model_spec, const char *given,
                                                 bool new_model);

/* Find the model of a run. If the run's model is a file, --model gives its path. `plugin` is the
 * value of --plugin. */
CGP_MUST_CHECK cgp_status cli_record_find_model(cli_model *model,
                                                const cli_run_directory *directory,
                                                const json_t *record, const char *given,
                                                const char *plugin);

/* Return a run's MODEL, for a start whose command line has no MODEL: the record's model, or the
 * path of its graph file. Borrowed from the record. */
const char *cli_record_path(const json_t *record);

/* Return the directory of published weights from which the run began, with keys as in MODEL.
 * Borrowed from the record; NULL: none, or `record` is NULL. */
const char *cli_record_weights(const json_t *record);

/* Return how often the run was started or resumed; 0 for a run made from converted weights. */
int cli_record_starts(const json_t *record);

/* Return the host of the last start, borrowed from the record; NULL: there is none, or an older
 * cgpipe made it. */
const char *cli_record_host(const json_t *record);

/* Write run.json for a start from `step`. `before` is the record so far, or NULL. The caller owns
 * *written, the new record. */
CGP_MUST_CHECK cgp_status cli_record_write(const cli_run_directory *directory, const json_t *before,
                                           const cli_session *session, int64_t step,
                                           json_t **written);

/* Return name, version and SHA-256 of the plug-ins that a run uses, owned by the caller. NULL: it
 * uses none. */
json_t *cli_record_plugins(const cli_session *session);

/* Add the record's options and number of starts to a checkpoint's note. */
void cli_record_note(json_t *note, const json_t *record);

/* Fail if the record was edited after the checkpoint with this note. Sets *checked to false if an
 * older cgpipe wrote the record or the note, because edits cannot be detected then. */
CGP_MUST_CHECK cgp_status cli_record_check(const cli_run_directory *directory, const json_t *record,
                                           const json_t *note, const cli_run_options *options,
                                           bool *checked);

/* Write run.json for converted weights, which have no starts. If `dropout` is 0, --dropout sets it
 * later. */
CGP_MUST_CHECK cgp_status cli_record_write_converted(const cli_run_directory *directory,
                                                     const cli_model *model, const char *model_spec,
                                                     double dropout);

#endif
