/* SPDX-License-Identifier: Apache-2.0 */
/* added.c -- finds added tokens in a text, as Hugging Face's tokenizers does.
 *
 *     user: <|end|>  x<|end|>        the leftmost match, and the longest there; none inside another
 *           ------- +++              rstrip: takes the white space after it; lstrip: before it
 *                    ^-------        single_word: not next to a word character (\w)
 *
 * Tokens that are not normalized are found in the text. Normalized tokens are found in the rest of
 * the text, after its normalization. A match that single_word forbids is skipped as a whole, so no
 * shorter token inside it is found. */
#include "data/added.h"

#include <stdlib.h>
#include <string.h>

static int compare_texts(const cgp__added_token *a, const cgp__added_token *b) {
    const int order = memcmp(a->text, b->text, (size_t)cgp__min(a->size, b->size));
    return order ? order : (a->size > b->size) - (a->size < b->size);
}

static int by_text(const void *left, const void *right) {
    const cgp__added_token *a = left, *b = right;
    if (a->normalized != b->normalized) return a->normalized ? 1 : -1;
    return compare_texts(a, b);
}

bool cgp__added_sort(cgp__added *added, const cgp__added_token **a, const cgp__added_token **b) {
    if (added->n > 0) qsort(added->tokens, (size_t)added->n, sizeof *added->tokens, by_text);
    for (int32_t i = 0; i < added->n; i++) {
        const cgp__added_token *token = &added->tokens[i];
        added->begins[token->normalized][token->text[0]] = true;
        added->n_raw += !token->normalized;
        if (i == 0 || by_text(token - 1, token) != 0) continue;
        *a = token - 1;
        *b = token;
        return false;
    }
    return true;
}

void cgp__added_release(cgp__added *added) {
    for (int32_t i = 0; i < added->n; i++) {
        free(added->tokens[i].content);
        free(added->tokens[i].text);
    }
    free(added->tokens);
    *added = (cgp__added){0};
}

const cgp__added_token *cgp__added_find(const cgp__added *added, const char *content) {
    for (int32_t i = 0; i < added->n; i++) {
        if (strcmp(added->tokens[i].content, content) == 0) return &added->tokens[i];
    }
    return NULL;
}

/* --- the search --- */

/* Among tokens[low .. high - 1], find the first token whose byte `i` is at least `byte`, and return
 * its index. All these tokens have the same first i bytes, and only the first token may have no
 * byte `i`. */
static int32_t first_from(const cgp__added_token *tokens, int32_t low, int32_t high, int64_t i,
                          int byte) {
    while (low < high) {
        const int32_t middle = low + (high - low) / 2;
        const bool below = tokens[middle].size <= i || tokens[middle].text[i] < byte;
        if (below)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Return the longest token that begins at `at`, or NULL. In the loop, tokens low .. high - 1 begin
 * with the first i bytes of the text at `at`; the range shrinks as i grows. */
static const cgp__added_token *longest_at(const cgp__added_search *s, int64_t at) {
    const cgp__added_token *found = NULL, *tokens = s->added->tokens;
    int32_t low = s->normalized ? s->added->n_raw : 0;
    int32_t high = s->normalized ? s->added->n : s->added->n_raw;
    for (int64_t i = 0; low < high && at + i < s->size; i++) {
        const int byte = s->text[at + i];
        low = first_from(tokens, low, high, i, byte);
        high = first_from(tokens, low, high, i, byte + 1);
        if (low < high && tokens[low].size == i + 1) found = &tokens[low];
    }
    return found;
}

static bool is_word_before(const cgp__added_search *s, int64_t at) {
    int64_t end = 0;
    if (at == 0) return false;
    do
        at--;
    while ((s->text[at] & 0xc0) == 0x80);
    return cgp__class_at(s->unicode, s->text, at, &end) & CGP__WORD;
}

static bool is_word_at(const cgp__added_search *s, int64_t at) {
    int64_t end = 0;
    return at < s->size && cgp__class_at(s->unicode, s->text, at, &end) & CGP__WORD;
}

/* Return where the white space before `at` begins; do not search before `first`. */
static int64_t spaces_start(const cgp__added_search *s, int64_t at, int64_t first) {
    int64_t end = 0;
    while (at > first) {
        int64_t before = at - 1;
        while (before > first && (s->text[before] & 0xc0) == 0x80)
            before--;
        if (!(cgp__class_at(s->unicode, s->text, before, &end) & CGP__SPACE)) break;
        at = before;
    }
    return at;
}

/* Return where the white space that begins at `at` ends. If `at` lies in the run of white space
 * that was scanned last, return the end of that run. So a long run is scanned only once. */
static int64_t spaces_end(cgp__added_search *s, int64_t at) {
    int64_t end = 0;
    if (at < s->spaces_end) return s->spaces_end;
    while (at < s->size && cgp__class_at(s->unicode, s->text, at, &end) & CGP__SPACE)
        at = end;
    s->spaces_end = at;
    return at;
}

const cgp__added_token *cgp__added_next(cgp__added_search *s, int64_t *start, int64_t *end) {
    const bool *begins = s->added->begins[s->normalized];
    *start = s->taken;
    while (s->at < s->size) {
        const cgp__added_token *token = begins[s->text[s->at]] ? longest_at(s, s->at) : NULL;
        if (!token) {
            s->at++;
            continue;
        }
        const int64_t first = s->at, behind = first + token->size;
        s->at = behind;
        if (token->single_word && (is_word_before(s, first) || is_word_at(s, behind))) continue;
        /* A token of white space may begin before `s->taken`, in the white space that the previous
         * token took. */
        *end = token->lstrip ? spaces_start(s, first, cgp__min(s->taken, first)) : first;
        *end = cgp__max(*end, *start);
        s->taken = token->rstrip ? spaces_end(s, behind) : behind;
        return token;
    }
    s->taken = *end = s->size;
    return NULL;
}

bool cgp__added_allow_cut(const cgp__added *added, uint8_t last, uint8_t next) {
    for (int32_t i = 0; i < added->n; i++) {
        const cgp__added_token *token = &added->tokens[i];
        if (token->rstrip && token->text[token->size - 1] == last) return false;
        if (token->single_word && token->text[0] == next) return false;
        for (int64_t k = 1; k < token->size; k++) {
            if (token->text[k - 1] == last && token->text[k] == next) return false;
        }
    }
    return true;
}
