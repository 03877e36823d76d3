/* SPDX-License-Identifier: Apache-2.0 */
/* sequences.h -- finds the sequence of a position in a token stream, for text and token files.
 *
 * A *stream* is the tokens of several files, joined. Stream 0 has the training files, and stream 1
 * the validation files, if there are any. */
#ifndef CGP_SRC_DATA_SEQUENCES_H
#define CGP_SRC_DATA_SEQUENCES_H

#include "data/source.h"

/* Words for messages. */
typedef struct cgp__sequence_words {
    const char *name;    /* "text" */
    const char *options; /* "text options" */
    const char *unit;    /* "bytes" */
    const char *more;    /* "a longer text" */
} cgp__sequence_words;

/* The options of a data set of sequences. */
typedef struct cgp__sequence_options {
    const cgp__sequence_words *words;
    cgp_token_options o;         /* for a text, tokens are bytes */
    const char *const *paths[2]; /* paths of each stream; borrowed */
    int n_paths[2];
} cgp__sequence_options;

/* First member of a kind that has sequences. */
typedef struct cgp__sequences {
    cgp_data base;
    double validation_fraction; /* 0 if stream 1 is the validation data */
    bool separate;              /* validation is stream 1, not the end of stream 0 */
} cgp__sequences;

/* Refuse options out of range and streams without a path. Then make a data set of a kind whose
 * open() takes cgp__sequence_options. */
cgp_status cgp__sequences_open(cgp_data **out, const cgp__data_kind *kind,
                               const cgp__sequence_words *words, const cgp_token_options *o,
                               const char *const *paths, int n_paths);

/* Cut streams of tokens[0] and tokens[1] tokens. On entry, `sequences` is all zero except
 * base.kind. */
cgp_status cgp__sequences_cut(cgp__sequences *sequences, const cgp__sequence_options *options,
                              const int64_t tokens[2]);

/* Return the stream of sequence `index` of a split, and set *first to its first token in the
 * stream. A sequence has T + 1 tokens. */
int cgp__sequences_at(const cgp__sequences *sequences, cgp_split split, int64_t index,
                      int64_t *first);

cgp_status cgp__sequences_identify(const cgp__sequences *sequences, cgp__sha256 *hash);

#endif
