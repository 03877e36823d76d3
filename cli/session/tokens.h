/* SPDX-License-Identifier: Apache-2.0 */
/* tokens.h -- the tokens of a training's text, kept in the run's directory:
 *
 *     RUN/tokens/train.bin        tokens of --data
 *     RUN/tokens/validation.bin   tokens of --validation, if that is a path
 *     RUN/tokens/tokens.json      what they were made from: digests of the texts and of the
 *                                 tokenizer; and digests of the two files
 *
 * A later start with the same texts and the same tokenizer uses the files again. tokens.json is
 * written last, and each file appears whole or not at all. So the files of a killed process are
 * made again. */
#ifndef CGPIPE_CLI_TOKENS_H
#define CGPIPE_CLI_TOKENS_H

#include <cgpipe/tokenizer.h>

typedef struct cli_run_directory cli_run_directory;
typedef struct cli_run_options cli_run_options;

#define CLI_TOKENS "tokens"

typedef struct cli_tokens {
    char *paths[2];       /* token files of training and validation; NULL: none */
    int64_t count, bytes; /* number of tokens, and of bytes of text, in both files together */
    bool made;            /* this process made the directory RUN/tokens */
    bool reused;          /* the files were there already */
    bool stopped;         /* a signal came; there are no files */
} cli_tokens;

/* Convert the text of --data and --validation to tokens, unless the run's directory has these
 * tokens. `path` is the path of the tokenizer. The run must be locked. Fails with CGP_EINVAL if a
 * text is empty, with CGP_EFORMAT if a file is not text, and with CGP_EIO. Release *tokens in any
 * case. */
CGP_MUST_CHECK cgp_status cli_tokens_make(cli_tokens *tokens, const cli_run_directory *run,
                                          const cli_run_options *options, cgp_tokenizer *tokenizer,
                                          const char *path);

/* Set the paths of the token files, which another rank has made. `validation`: there is a separate
 * file for validation. */
void cli_tokens_set_paths(cli_tokens *tokens, const cli_run_directory *run, bool validation);

void cli_tokens_release(cli_tokens *tokens);

/* Fail with CGP_EINVAL if a tokenizer has more tokens than a model's vocabulary. `path` is the path
 * of the tokenizer. */
CGP_MUST_CHECK cgp_status cli_tokens_fit(int64_t tokens, int64_t vocab, const char *path);

/* Set *digest to the digests of a tokenizer's files, joined by spaces. Owned by the caller. */
CGP_MUST_CHECK cgp_status cli_tokenizer_digest(char **digest, const char *path);

#endif
