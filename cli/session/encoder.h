/* SPDX-License-Identifier: Apache-2.0 */
/* encoder.h -- convert text files to tokens, and tokens to the bytes of a token file. */
#ifndef CGPIPE_CLI_ENCODER_H
#define CGPIPE_CLI_ENCODER_H

#include <cgpipe/tokenizer.h>

#include <stdio.h>

/* Converts texts of any length. A text is read in pieces that end between two pre-tokens. */
typedef struct cli_encoder {
    cgp_tokenizer *tokenizer; /* borrowed */
    bool special_tokens;      /* put the tokens of the tokenizer's template around each text */
    bool end_of_text;         /* put the token of cgp_tokenizer_end_of_text() after each text */
    /* Takes the tokens of a piece. The tokens are borrowed until the call returns. */
    cgp_status (*take)(void *user, const int32_t *ids, int64_t count);
    void *user;
    int64_t bytes; /* number of bytes read, over all texts */
    /* private: the tokens and the bytes of the current piece */
    cgp_token_list tokens;
    uint8_t *piece;
    size_t capacity;
} cli_encoder;

/* Convert the text of a stream. `name` is for messages. Fails with CGP_EFORMAT if the first bytes
 * belong to another kind of file, with CGP_EIO, or with the status of `take`. */
CGP_MUST_CHECK cgp_status cli_encoder_read(cli_encoder *encoder, FILE *in, const char *name);

/* Convert a text file. */
CGP_MUST_CHECK cgp_status cli_encoder_file(cli_encoder *encoder, const char *path);

void cli_encoder_release(cli_encoder *encoder);

/* A token file in memory: 2 bytes per token or, if the vocabulary exceeds 65,536, the header of
 * llm.c and 4 bytes per token. Release it in any case. */
typedef struct cli_token_file {
    FILE *out;
    char *bytes; /* [size], valid after cli_token_file_end() */
    size_t size, width;
    int64_t count; /* number of tokens */
} cli_token_file;

/* Begin a file of tokens below `vocab`. */
CGP_MUST_CHECK cgp_status cli_token_file_begin(cli_token_file *file, int64_t vocab);

/* Append tokens. */
CGP_MUST_CHECK cgp_status cli_token_file_add(cli_token_file *file, const int32_t *ids,
                                             int64_t count);

/* Complete the header, and set `bytes` and `size`. Fails with CGP_EINVAL if the header has no room
 * for the number of tokens; `name` is for that message. */
CGP_MUST_CHECK cgp_status cli_token_file_end(cli_token_file *file, const char *name);

void cli_token_file_release(cli_token_file *file);

#endif
