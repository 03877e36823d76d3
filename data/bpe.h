/* SPDX-License-Identifier: Apache-2.0 */
/* bpe.h -- merges the bytes of a word into tokens. */
#ifndef CGP_SRC_DATA_BPE_H
#define CGP_SRC_DATA_BPE_H

#include "data/vocab.h"

/* Memory for merging a word. Start from {0}. */
typedef struct cgp__bpe {
    struct cgp__symbol *symbols; /* [capacity] */
    struct cgp__merge *heap;     /* [3 capacity] */
    int64_t capacity;            /* size in bytes of the largest word that fits */
    int64_t n_heap;              /* number of merges in the heap */
} cgp__bpe;

/* Encode a word of `size` bytes, 1 <= size <= INT32_MAX, into ids[0 .. *count - 1]. `ids` has room
 * for `size` ids. */
cgp_status cgp__bpe_encode(cgp__bpe *bpe, const cgp__vocab *vocab, const uint8_t *word,
                           int64_t size, int32_t *ids, int64_t *count);
void cgp__bpe_release(cgp__bpe *bpe);

#endif
