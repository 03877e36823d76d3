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
    const char *name;    /* the data set, such as "text" */
    const char *options; /* its options, such as "text options" */
    const char *unit;    /* the unit of a stream, such as "bytes" */
    const char *more;    /* what the user should give instead, such as "a longer text" */
} cgp__sequence_words;

/* The options of a data set of sequences. */
typedef struct cgp__sequence_options {
    const cgp__sequence_words *words;
    cgp_token_options o;         /* options of token files; for a text, each byte is a token */
    const char *const *paths[2]; /* paths of each stream; borrowed */
    int n_paths[2];
} cgp__sequence_options;

/* Every kind of data set that has sequences has this struct as its first member. */
typedef struct cgp__sequences {
    cgp_data base;
    /* Fraction of the sequences that are for validation; 0 if stream 1 is the validation data. */
    double validation_fraction;
    bool separate; /* true: validation uses stream 1; false: it uses the end of stream 0 */
} cgp__sequences;

/* Refuse options out of range and streams without a path. Then make a data set of a kind whose
 * open() takes cgp__sequence_options. */
cgp_status cgp__sequences_open(cgp_data **out, const cgp__data_kind *kind,
                               const cgp__sequence_words *words, const cgp_token_options *o,
                               const char *const *paths, int n_paths);

/* Cut the streams, which have tokens[0] and tokens[1] tokens, into sequences. On entry, `sequences`
 * is all zero except base.kind. */
cgp_status cgp__sequences_cut(cgp__sequences *sequences, const cgp__sequence_options *options,
                              const int64_t tokens[2]);

/* Return the stream that has sequence `index` of a split. Set *first to the position of the
 * sequence's first token in the stream. A sequence has T + 1 tokens. */
int cgp__sequences_at(const cgp__sequences *sequences, cgp_split split, int64_t index,
                      int64_t *first);

cgp_status cgp__sequences_identify(const cgp__sequences *sequences, cgp__sha256 *hash);

#endif
