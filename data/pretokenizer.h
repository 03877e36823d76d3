/* SPDX-License-Identifier: Apache-2.0 */
/* pretokenizer.h -- splits a text into words. */
#ifndef CGP_SRC_DATA_PRETOKENIZER_H
#define CGP_SRC_DATA_PRETOKENIZER_H

#include <cgpipe/base.h>

/* Objects of PCRE2; {0} in the beginning. */
typedef struct cgp__pretokenizer {
    struct pcre2_real_general_context_8 *memory;
    struct pcre2_real_code_8 *code;
    struct pcre2_real_match_data_8 *match;
} cgp__pretokenizer;

/* Compile the pattern. Release it also after a failure. */
cgp_status cgp__pretokenizer_open(cgp__pretokenizer *pretokenizer);
void cgp__pretokenizer_release(cgp__pretokenizer *pretokenizer);

/* Find the end of the word that begins at `at`: *end > at. The text is well-formed UTF-8. */
cgp_status cgp__pretokenizer_next(const cgp__pretokenizer *pretokenizer, const uint8_t *text,
                                  int64_t size, int64_t at, int64_t *end);

#endif
