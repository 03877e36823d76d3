/* SPDX-License-Identifier: Apache-2.0 */
/* published_files.h -- the small files that belong to published weights: config.json, the files of
 * a tokenizer, generation_config.json, chat templates, licences. A run keeps copies of them in
 * RUN/published, so that its tokenizer is known and cgpipe convert writes them again. */
#ifndef CGPIPE_CLI_PUBLISHED_FILES_H
#define CGPIPE_CLI_PUBLISHED_FILES_H

#include <cgpipe/models/spec.h>

#include <jansson.h>

typedef struct cli_run_directory cli_run_directory;

/* Tell whether a directory has the files of a tokenizer that cli_tokenizer_open() reads:
 * tokenizer.json, or vocab.json and merges.txt. */
bool cli_has_tokenizer(const char *directory);

/* Set *path to the path of RUN/published, owned by the caller; NULL: there is no such directory. */
CGP_MUST_CHECK cgp_status cli_run_published(char **path, const cli_run_directory *run);

/* Replace RUN/published by copies of the small files of `directory` and of `tokenizer`, which is a
 * directory or a tokenizer.json. Either may be NULL. With both, the tokenizer's files of
 * `directory` are left out. The run must be locked. If the call fails, the old files stay. */
CGP_MUST_CHECK cgp_status cli_published_keep(const cli_run_directory *run, const char *directory,
                                             const char *tokenizer);

/* Copy the small files of `from`, except config.json, to an open directory `fd`, whose path is
 * `path`. */
CGP_MUST_CHECK cgp_status cli_published_copy(const char *from, int fd, const char *path);

/* Replace the config.json that cgp_huggingface_write() wrote to `directory` for `spec`. The new
 * file is the config.json of `from` with the type of the weights and the class of the model as
 * written. If the run has another dropout, the dropouts are as written too. If config.json of
 * `from` describes another model, nothing changes. */
CGP_MUST_CHECK cgp_status cli_published_config(const char *from, const cgp_model_spec *spec,
                                               const char *directory);

/* Read the token ids at which generated text ends: eos_token_id of generation_config.json or, if
 * there is none, of config.json. *ids is owned by the caller; *count is 0 if there are none. */
CGP_MUST_CHECK cgp_status cli_published_ends(const char *directory, int32_t **ids, int *count);

#endif
