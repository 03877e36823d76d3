/* SPDX-License-Identifier: Apache-2.0 */
/* words.h -- a text cut into words, and a word into tokens. */
#ifndef CGP_SRC_DATA_WORDS_H
#define CGP_SRC_DATA_WORDS_H

#include "data/vocabulary.h"

/* --- cutting --- */

typedef struct cgp__cutter cgp__cutter;

cgp_status cgp__cutter_create(cgp__cutter **out);
void cgp__cutter_destroy(cgp__cutter *cutter); /* accepts NULL */

/* Find where the word that begins at `at` ends: *end > at. The text is well-formed UTF-8. */
cgp_status cgp__cutter_next(cgp__cutter *cutter, const uint8_t *text, int64_t size, int64_t at,
                            int64_t *end);

/* Bytes from the beginning of `text` that are well-formed UTF-8. */
int64_t cgp__utf8_length(const uint8_t *text, int64_t size);

/* --- merging --- */

/* Memory that merging a word needs; {0} in the beginning. */
typedef struct cgp__merger {
    struct cgp__symbol *symbols; /* [room] */
    struct cgp__merge *heap;     /* [3 room] */
    int64_t capacity, waiting;   /* waiting: merges in the heap */
} cgp__merger;

/* Merge a word of 1 <= size <= INT32_MAX bytes: ids[0 .. *count - 1], for which there is room for `size`.
 */
cgp_status cgp__merger_run(cgp__merger *merger, const cgp__vocab *vocab, const uint8_t *word,
                           int64_t size, int32_t *ids, int64_t *count);
void cgp__merger_release(cgp__merger *merger);

#endif
