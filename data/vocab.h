/* SPDX-License-Identifier: Apache-2.0 */
/* vocab.h -- the tokens and merges of a byte-pair encoding. */
#ifndef CGP_SRC_DATA_VOCAB_H
#define CGP_SRC_DATA_VOCAB_H

#include "base/json.h"

#include <string.h>

/* A merge: tokens `left` and `right` become token `made`. The merge with the least rank is applied
 * first. */
typedef struct cgp__pair {
    int32_t left, right, made, rank; /* made < 0: this slot is free */
} cgp__pair;

typedef struct cgp__vocab {
    int32_t size;
    uint8_t *bytes;       /* bytes of all tokens, in the order of their ids */
    int64_t *starts;      /* [size + 1]: token i is bytes[starts[i]] .. bytes[starts[i + 1] - 1] */
    int32_t of_byte[256]; /* of_byte[b] is the token of the single byte b */
    int32_t end_of_text;  /* the token that ends a document; -1: none */
    /* [index_mask + 1] hash table of ids by the tokens' bytes, open addressing; NULL: no index. */
    int32_t *index;
    uint64_t index_mask;
    int64_t longest;  /* size of the longest token in the index */
    cgp__pair *pairs; /* [mask + 1] hash table of merges, open addressing, at most half full */
    uint64_t mask;
} cgp__vocab;

/* The text of an added token, which decoding writes. Borrowed. */
typedef struct cgp__vocab_text {
    const char *text;
    int32_t id;
} cgp__vocab_text;

/* Sources of tokens. All pointers are borrowed. */
typedef struct cgp__vocab_source {
    json_t *tokens; /* object that maps tokens to ids */
    const char *path;
    const cgp__vocab_text *added; /* [n_added]; new tokens get the ids after those in `tokens` */
    int32_t n_added, n_new;       /* n_new: number of new tokens, which `tokens` lacks */
    bool index;                   /* true: make the index of ids by bytes */
} cgp__vocab_source;

enum { CGP__MERGE_BYTES = 4096 }; /* size in bytes of the longest row, with its final 0 */

/* A source of merges. The first members are for messages: "path: line 3: ..." */
typedef struct cgp__merges {
    const char *path, *unit;
    int64_t number;
    const json_t *tokens;
    int32_t rank; /* rank of the next merge */
} cgp__merges;

/* Read vocab.json and merges.txt (tokenizer.h has the rules). `*vocab` must be zero; release it in
 * any case. */
cgp_status cgp__vocab_read(cgp__vocab *vocab, const char *tokens_path, const char *merges_path);
void cgp__vocab_release(cgp__vocab *vocab);

/* Read a file as JSON into *out. The caller owns *out, even after a failure. */
cgp_status cgp__vocab_load_json(json_t **out, const char *path, const char *expected);

/* These functions read a vocabulary in steps: add the tokens, allocate slots for the merges, and
 * add each merge. `row` is "left right"; the call overwrites it. */
cgp_status cgp__vocab_take_tokens(cgp__vocab *vocab, const cgp__vocab_source *source);
cgp_status cgp__vocab_make_slots(cgp__vocab *vocab, int64_t merges, const char *path);
cgp_status cgp__vocab_take_merge(cgp__vocab *vocab, cgp__merges *merges, char *row);

/* Return whether a row is the version line, which is not a merge. */
static inline bool cgp__merge_is_version(const char *row) {
    return strncmp(row, "#version", 8) == 0;
}

/* Look up the token with these bytes in the index; return -1 if there is none. */
int32_t cgp__vocab_find(const cgp__vocab *vocab, const uint8_t *bytes, int64_t size);

/* Hash with FNV-1a. */
static inline uint64_t cgp__vocab_hash(const uint8_t *bytes, int64_t size) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (int64_t i = 0; i < size; i++)
        hash = (hash ^ bytes[i]) * 0x100000001b3u;
    return hash ^ hash >> 32;
}

/* Return the slot that has this pair or, if no slot has it, the free slot for the pair. */
static inline cgp__pair *cgp__vocab_slot(const cgp__vocab *v, int32_t left, int32_t right) {
    const uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    uint64_t slot = (key * 0x9E3779B97F4A7C15u) >> 24;
    for (;; slot++) {
        cgp__pair *pair = &v->pairs[slot & v->mask];
        if (pair->made < 0 || (pair->left == left && pair->right == right)) return pair;
    }
}

#endif
