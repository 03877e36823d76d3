/* SPDX-License-Identifier: Apache-2.0 */
/* pretokenizer.c -- GPT-2's pattern for words, matched by PCRE2.
 *
 *     It's  two   words\n      It|'s|  two|  | words|\n        one space belongs to the word after it
 *
 * Every character begins a match, so matches lie end to end. \s is spelled out: PCRE2's has U+180E too, which Unicode no
 * longer counts as a space. */
#include "data/pretokenizer.h"

#include "base/base.h"

#include <stdlib.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#define SPACES                                                                                 \
    "\\t-\\r \\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}"   \
    "\\x{3000}"

static const char pattern[] = "'s|'t|'re|'ve|'m|'ll|'d"
                              "| ?\\p{L}+"
                              "| ?\\p{N}+"
                              "| ?[^" SPACES "\\p{L}\\p{N}]+"
                              "|[" SPACES "]+(?![^" SPACES "])"
                              "|[" SPACES "]+";

static void *allocate(size_t bytes, void *unused) {
    (void)unused;
    return cgp__calloc(bytes, 1);
}

static void deallocate(void *memory, void *unused) {
    (void)unused;
    free(memory);
}

cgp_status cgp__pretokenizer_open(cgp__pretokenizer *pretokenizer) {
    int error = 0;
    size_t at = 0;
    pretokenizer->memory = pcre2_general_context_create(allocate, deallocate, NULL);
    if (!pretokenizer->memory) return cgp__no_memory("tokenizer", 1);
    pcre2_compile_context *context = pcre2_compile_context_create(pretokenizer->memory);
    if (!context) return cgp__no_memory("tokenizer", 1);
    pretokenizer->code =
        pcre2_compile((PCRE2_SPTR)pattern, sizeof pattern - 1,
                      PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED, &error, &at, context);
    pcre2_compile_context_free(context);
    if (!pretokenizer->code) return cgp__no_memory("tokenizer", sizeof pattern);
    /* If this fails, the pattern is interpreted. */
    (void)pcre2_jit_compile(pretokenizer->code, PCRE2_JIT_COMPLETE);
    pretokenizer->match = pcre2_match_data_create(1, pretokenizer->memory);
    return pretokenizer->match ? CGP_OK : cgp__no_memory("tokenizer", 1);
}

void cgp__pretokenizer_release(cgp__pretokenizer *pretokenizer) {
    pcre2_match_data_free(pretokenizer->match);
    pcre2_code_free(pretokenizer->code);
    pcre2_general_context_free(pretokenizer->memory);
}

cgp_status cgp__pretokenizer_next(const cgp__pretokenizer *pretokenizer, const uint8_t *text,
                                  int64_t size, int64_t at, int64_t *end) {
    const int found = pcre2_match(pretokenizer->code, text, (size_t)size, (size_t)at,
                                  PCRE2_NO_UTF_CHECK, pretokenizer->match, NULL);
    if (found < 1) return cgp__no_memory("tokenizer: the next word", (size_t)(size - at));
    *end = (int64_t)pcre2_get_ovector_pointer(pretokenizer->match)[1];
    return CGP_OK;
}
