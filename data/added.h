/* SPDX-License-Identifier: Apache-2.0 */
/* added.h -- added tokens of a tokenizer.json: found in a text before it is split into words. */
#ifndef CGP_SRC_DATA_ADDED_H
#define CGP_SRC_DATA_ADDED_H

#include "data/unicode.h"

typedef struct cgp__added_token {
    char *content; /* as in the file. Owned */
    uint8_t *text; /* what is looked for: `content`, by NFC if `normalized`; [size]. Owned */
    int64_t size;  /* at least 1 */
    int32_t id;
    bool single_word, lstrip, rstrip;
    bool normalized; /* looked for in the normalized text */
} cgp__added_token;

/* The tokens, ascending by (normalized, text): each half is searched by itself. {0} in the
 * beginning. */
typedef struct cgp__added {
    cgp__added_token *tokens; /* [n] */
    int32_t n, n_raw;         /* tokens; those that are not normalized */
    bool begins[2][256];      /* raw, normalized: a token begins with the byte */
} cgp__added;

/* Sort the tokens and fill `begins`. Returns two with the same text (`*a`, `*b`), if there are
 * such: false. */
bool cgp__added_sort(cgp__added *added, const cgp__added_token **a, const cgp__added_token **b);
void cgp__added_release(cgp__added *added);

/* The token with this content, NULL if none. */
const cgp__added_token *cgp__added_find(const cgp__added *added, const char *content);

/* A search through a text; the last members are 0 in the beginning. */
typedef struct cgp__added_search {
    const cgp__added *added;
    const cgp__unicode *unicode;
    const uint8_t *text;
    int64_t size;
    bool normalized;    /* which half */
    int64_t at;         /* the search goes on here */
    int64_t taken;      /* text before it is done */
    int64_t spaces_end; /* of the last run of white space that a token took */
} cgp__added_search;

/* Find the next token. The text from `*start` to `*end` is before it; NULL: to the end of the text,
 * and nothing follows. */
const cgp__added_token *cgp__added_next(cgp__added_search *search, int64_t *start, int64_t *end);

/* Tell whether a text may be cut before the byte `next`, a space or line feed, and behind the byte
 * `last`, with no token lost or found on either side. */
bool cgp__added_allow_cut(const cgp__added *added, uint8_t last, uint8_t next);

#endif
