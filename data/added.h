/* SPDX-License-Identifier: Apache-2.0 */
/* added.h -- added tokens of a tokenizer.json, found in a text before it is split into words. */
#ifndef CGP_SRC_DATA_ADDED_H
#define CGP_SRC_DATA_ADDED_H

#include "data/unicode.h"

typedef struct cgp__added_token {
    char *content; /* the token's text in the file, owned */
    uint8_t *text; /* [size] the text to find, owned; it is `content`, in NFC if `normalized` is
                    * true */
    int64_t size;  /* number of bytes in `text`, at least 1 */
    int32_t id;
    bool single_word, lstrip, rstrip;
    bool normalized; /* true: the token is found in normalized text */
} cgp__added_token;

/* The added tokens, sorted by (normalized, text), because normalized tokens are searched separately
 * from the other tokens. Start from {0}. */
typedef struct cgp__added {
    cgp__added_token *tokens; /* [n] */
    int32_t n, n_raw;         /* number of all tokens; number of tokens that are not normalized */
    bool begins[2][256];      /* begins[normalized][b]: some token begins with byte b */
} cgp__added;

/* Sort the tokens and fill `begins`. If two tokens have the same text, return false and set *a and
 * *b to these tokens. */
bool cgp__added_sort(cgp__added *added, const cgp__added_token **a, const cgp__added_token **b);
void cgp__added_release(cgp__added *added);

/* Return the token with this content, or NULL. */
const cgp__added_token *cgp__added_find(const cgp__added *added, const char *content);

/* A search through a text. The last three members start at 0. */
typedef struct cgp__added_search {
    const cgp__added *added;
    const cgp__unicode *unicode;
    const uint8_t *text;
    int64_t size;
    bool normalized;    /* true: search for normalized tokens; false: for all other tokens */
    int64_t at;         /* offset at which the search continues */
    int64_t taken;      /* the text before this offset has been returned */
    int64_t spaces_end; /* end of the run of white space that was scanned last */
} cgp__added_search;

/* Return the next token, and set `*start` and `*end` to the bounds of the text before the token. If
 * there is no token, return NULL and set `*end` to the end of the text. */
const cgp__added_token *cgp__added_next(cgp__added_search *search, int64_t *start, int64_t *end);

/* Return whether a text may be cut between byte `last` and byte `next`, which is a space or a line
 * feed. A cut is allowed if the two parts have exactly the added tokens of the whole text. */
bool cgp__added_allow_cut(const cgp__added *added, uint8_t last, uint8_t next);

#endif
