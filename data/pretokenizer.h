/* SPDX-License-Identifier: Apache-2.0 */
/* pretokenizer.h -- splits a text into words by one of the patterns of published tokenizers. */
#ifndef CGP_SRC_DATA_PRETOKENIZER_H
#define CGP_SRC_DATA_PRETOKENIZER_H

#include "data/unicode.h"

typedef enum cgp__pattern {
    CGP__PATTERN_GPT2,
    CGP__PATTERN_LLAMA3,
    CGP__PATTERN_QWEN2,
    CGP__PATTERN_NONE /* no pattern: the whole text is one word */
} cgp__pattern;

/* Find the pattern whose regular expression is exactly `regex`. Return false if there is none. */
bool cgp__pattern_find(const char *regex, cgp__pattern *pattern);

/* Return the end of the word that begins at `at` < size. The text is well-formed UTF-8. */
int64_t cgp__pretokenizer_next(const cgp__unicode *unicode, cgp__pattern pattern,
                               const uint8_t *text, int64_t size, int64_t at);

#endif
