/* SPDX-License-Identifier: Apache-2.0 */
/* vocab.h -- the tokens and merges of a byte-pair encoding. */
#ifndef CGP_SRC_DATA_VOCAB_H
#define CGP_SRC_DATA_VOCAB_H

#include <cgpipe/base.h>

/* left and right merge to `made`; the least rank comes first. */
typedef struct cgp__pair {
    int32_t left, right, made, rank; /* made < 0: a free slot */
} cgp__pair;

typedef struct cgp__vocab {
    int32_t size;
    uint8_t *bytes;  /* of all tokens, in the order of their ids */
    int64_t *starts; /* [size + 1]: token i is bytes[starts[i]] .. bytes[starts[i + 1] - 1] */
    int32_t of_byte[256]; /* the token of one byte */
    int32_t end_of_text;  /* -1: none */
    cgp__pair *pairs;     /* [mask + 1], open addressing, at most half full */
    uint64_t mask;
} cgp__vocab;

/* Read both files (tokenizer.h has the rules). `*vocab` is zero before; release it in any case. */
cgp_status cgp__vocab_read(cgp__vocab *vocab, const char *tokens_path, const char *merges_path);
void cgp__vocab_release(cgp__vocab *vocab);

/* The slot of a pair, or the free one for it. */
static inline cgp__pair *cgp__vocab_slot(const cgp__vocab *v, int32_t left, int32_t right) {
    const uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    uint64_t slot = (key * 0x9E3779B97F4A7C15u) >> 24;
    for (;; slot++) {
        cgp__pair *pair = &v->pairs[slot & v->mask];
        if (pair->made < 0 || (pair->left == left && pair->right == right)) return pair;
    }
}

#endif
