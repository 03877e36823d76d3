/* SPDX-License-Identifier: Apache-2.0 */
/* published.h -- read the config.json beside published weights, and the files of a tokenizer.
 * config.json is needed because weight shapes determine neither the number of heads nor the form of
 * GELU. */
#ifndef CGPIPE_CLI_PUBLISHED_H
#define CGPIPE_CLI_PUBLISHED_H

#include <cgpipe/tokenizer.h>

#include "session/model.h"

/* Return the directory of weights: `path` itself, or the directory of the file `path`. Owned by the
 * caller. */
char *cli_published_directory(const char *path);

/* Write the spec of the GPT-2 that config.json in the directory of `path` describes; "" if there is
 * no config.json. */
CGP_MUST_CHECK cgp_status cli_published_model(const char *path, char text[CLI_MODEL_SPEC]);

#define CLI_DROPOUTS_TEXT 128

/* Tell whether the dropouts in a directory's config.json differ. If they do, `text` is "resid_pdrop
 * 0.1, embd_pdrop 0.1, attn_pdrop 0". cgp_huggingface_read() must have accepted the file as a GPT-2
 * or a ViT. */
bool cli_published_dropouts_differ(const char *directory, cgp_model_kind kind,
                                   char text[CLI_DROPOUTS_TEXT]);

/* Read a tokenizer.json file. For a directory, read its tokenizer.json or, if it has none, its
 * vocab.json and merges.txt. */
CGP_MUST_CHECK cgp_status cli_tokenizer_open(cgp_tokenizer **out, const char *path);

/* Fail with CGP_EFORMAT if a tokenizer has no token for --end-of-text. `path` is the path of the
 * tokenizer. */
CGP_MUST_CHECK cgp_status cli_expect_end_of_text(const cgp_tokenizer *tokenizer, const char *path);

#endif
