/* SPDX-License-Identifier: Apache-2.0 */
/* windows.h -- which window of which row of tokens a position is: the same for text and tokens.
 *
 * A *row* is the tokens of several files, joined. Row 0 is of the training files; row 1 of the
 * validation files, if there are any. */
#ifndef CGP_SRC_DATA_WINDOWS_H
#define CGP_SRC_DATA_WINDOWS_H

#include "data/order.h"
#include "data/source.h"

/* What the options of text and tokens have in common, and words for messages. */
typedef struct cgp__window_options {
    const char *name;    /* "text" */
    const char *options; /* "text options" */
    const char *unit;    /* "bytes" */
    const char *more;    /* "a longer text" */
    int64_t vocab, sequence;
    double share;
    uint64_t seed;
    const char *const *paths[2]; /* of each row; borrowed */
    int n_paths[2];
} cgp__window_options;

/* First member of a kind that has windows. */
typedef struct cgp__windows {
    cgp_data base;
    cgp__order order; /* of training windows */
    double share;     /* 0 if validation is row 1 */
    bool apart;       /* validation is row 1, not the end of row 0 */
} cgp__windows;

/* Where a window begins. It has T tokens and one more. */
typedef struct cgp__window {
    int row;
    int64_t first;
} cgp__window;

/* Refuse options out of range and rows without a path. */
cgp_status cgp__windows_check(const cgp__window_options *options);

/* Cut rows of that many tokens into windows. `windows` is zero before, but for base.kind. */
cgp_status cgp__windows_cut(cgp__windows *windows, const cgp__window_options *options,
                            const int64_t tokens[2]);

/* The window at a position of a split. Makes the order of the position's pass. */
cgp__window cgp__windows_at(cgp__windows *windows, cgp_split split, int64_t position);

cgp_status cgp__windows_identify(const cgp__windows *windows, cgp__sha256 *hash);

/* Free what cgp__windows_cut made, not `windows` itself. */
void cgp__windows_release(cgp__windows *windows);

#endif
