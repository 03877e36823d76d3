/* SPDX-License-Identifier: Apache-2.0 */
/* nfc.c -- normalizes text to Unicode's normalization form C (UAX #15): it decomposes characters,
 * puts marks in order, and composes characters.
 *
 *     a b e \u0323 \u0301 c        stable | segment: from the stable character before an unstable
 *                                  one up to the next stable one
 *         e \u0301 \u0323          decomposed, marks by combining class: 220, 230
 *         \u1eb9 \u0301            the first two compose; \u1eb9 and \u0301 do not
 *
 * A character is stable if NFC never changes it nor joins it to the text before it. Stable text,
 * which is nearly all text, is skipped. The tables are the tables of Hugging Face's tokenizers
 * (unicode.h). A library with a newer version of Unicode would reorder marks that the library
 * tokenizers leaves in place. Every step is linear, even for a million marks on one letter. */
#include "data/nfc.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Hangul syllables are computed: The Unicode Standard, section 3.12. */
enum {
    S_FIRST = 0xac00,
    L_FIRST = 0x1100,
    V_FIRST = 0x1161,
    T_FIRST = 0x11a7,
    L_COUNT = 19,
    V_COUNT = 21,
    T_COUNT = 28,
    S_COUNT = L_COUNT * V_COUNT * T_COUNT
};
enum { MAX_STEPS = 4, MAX_GROWTH = 3 /* factor, in UTF-8 bytes */, CLASSES = 256, INSERTED = 16 };

/* --- tables --- */

/* Return the combining class of a character. */
static int mark_class(uint32_t character) {
    int32_t low = 0, high = cgp__unicode_marks_count - 1;
    while (low < high) {
        const int32_t middle = (low + high + 1) / 2;
        if (cgp__unicode_marks[middle] >> 8 <= character)
            low = middle;
        else
            high = middle - 1;
    }
    return (int)(cgp__unicode_marks[low] & 0xff);
}

static int by_whole(const void *character, const void *element) {
    const uint32_t c = *(const uint32_t *)character;
    const cgp__decomposition *step = element;
    return c < step->whole ? -1 : c > step->whole;
}

static int by_pair(const void *pair, const void *element) {
    const cgp__decomposition *p = pair, *step = &cgp__unicode_steps[*(const uint16_t *)element];
    if (p->first != step->first) return p->first < step->first ? -1 : 1;
    return p->second < step->second ? -1 : p->second > step->second;
}

/* Return the character to which a pair composes, or 0. */
static uint32_t composed(uint32_t first, uint32_t second) {
    const uint32_t l = first - L_FIRST, v = second - V_FIRST;
    const uint32_t s = first - S_FIRST, t = second - T_FIRST;
    if (l < L_COUNT && v < V_COUNT) return S_FIRST + (l * V_COUNT + v) * T_COUNT;
    if (s < S_COUNT && s % T_COUNT == 0 && t > 0 && t < T_COUNT) return first + t;
    const cgp__decomposition pair = {0, first, second};
    const uint16_t *found = bsearch(&pair, cgp__unicode_pairs, (size_t)cgp__unicode_pairs_count,
                                    sizeof cgp__unicode_pairs[0], by_pair);
    return found ? cgp__unicode_steps[*found].whole : 0;
}

/* Write the decomposition of a character, at most MAX_STEPS characters; return their number. */
static int decompose(uint32_t character, uint32_t *out) {
    uint32_t rest[MAX_STEPS]; /* second characters of the pairs; the last one is written first */
    int n_rest = 0, n = 0;
    const uint32_t s = character - S_FIRST;
    if (s < S_COUNT) {
        out[0] = L_FIRST + s / (V_COUNT * T_COUNT);
        out[1] = V_FIRST + s % (V_COUNT * T_COUNT) / T_COUNT;
        out[2] = T_FIRST + s % T_COUNT;
        return s % T_COUNT ? 3 : 2;
    }
    for (;;) {
        const cgp__decomposition *step =
            bsearch(&character, cgp__unicode_steps, (size_t)cgp__unicode_steps_count, sizeof *step,
                    by_whole);
        if (!step) break;
        if (step->second) rest[n_rest++] = step->second;
        character = step->first;
    }
    out[n++] = character;
    while (n_rest > 0)
        out[n++] = rest[--n_rest];
    return n;
}

/* --- a segment --- */

static cgp_status ensure_characters(cgp__nfc *nfc, int64_t n) {
    if (n <= nfc->n_characters) return CGP_OK;
    const int64_t count = cgp__max(2 * nfc->n_characters, n);
    free(nfc->characters);
    nfc->n_characters = 0;
    nfc->characters = cgp__calloc((size_t)count, 2 * sizeof *nfc->characters);
    if (!nfc->characters)
        return cgp__no_memory("tokenizer: marks", (size_t)count * 2 * sizeof *nfc->characters);
    nfc->n_characters = count;
    return CGP_OK;
}

/* Sort a run of marks by class, stably: short runs by insertion sort, long runs by counting sort
 * into `other`. */
static void order_run(uint32_t *marks, uint32_t *other, int64_t n) {
    int64_t starts[CLASSES + 1] = {0};
    if (n <= INSERTED) {
        for (int64_t i = 1; i < n; i++) {
            const uint32_t mark = marks[i];
            int64_t at = i;
            for (; at > 0 && mark_class(marks[at - 1]) > mark_class(mark); at--)
                marks[at] = marks[at - 1];
            marks[at] = mark;
        }
        return;
    }
    for (int64_t i = 0; i < n; i++)
        starts[mark_class(marks[i]) + 1]++;
    for (int i = 0; i < CLASSES; i++)
        starts[i + 1] += starts[i];
    for (int64_t i = 0; i < n; i++)
        other[starts[mark_class(marks[i])]++] = marks[i];
    memcpy(marks, other, (size_t)n * sizeof *marks);
}

static void order_marks(uint32_t *c, uint32_t *other, int64_t n) {
    for (int64_t start = 0, end = 0; start < n; start = end) {
        while (end < n && mark_class(c[end]) != 0)
            end++;
        if (end > start + 1) order_run(c + start, other, end - start);
        end += end == start;
    }
}

/* Compose in place; return how many characters are left. A mark composes with the last starter
 * unless a mark of the same or a higher class stands between them. A starter composes with the last
 * starter only if nothing stands between them. */
static int64_t compose(uint32_t *c, int64_t n) {
    int64_t count = 0, starter = -1;
    /* Combining class of the last character that stays; -1: this character is a starter. */
    int last = -1;
    for (int64_t i = 0; i < n; i++) {
        const int class = mark_class(c[i]);
        const uint32_t whole = starter >= 0 && last < class ? composed(c[starter], c[i]) : 0;
        if (whole) {
            c[starter] = whole;
            continue;
        }
        if (class == 0) starter = count;
        last = class == 0 ? -1 : class;
        c[count++] = c[i];
    }
    return count;
}

/* Append the normalized segment text[0 .. size - 1] to the result at *used. */
static cgp_status append_segment(cgp__nfc *nfc, const uint8_t *text, int64_t size, int64_t *used) {
    int64_t n = 0;
    /* Unstable characters have 2 bytes or more. */
    CGP_TRY(ensure_characters(nfc, size / 2 * MAX_STEPS + MAX_STEPS));
    uint32_t *c = nfc->characters;
    for (int64_t at = 0; at < size;) {
        uint32_t character = 0;
        at += cgp__utf8_get(text + at, &character);
        n += decompose(character, c + n);
    }
    order_marks(c, c + nfc->n_characters, n);
    n = compose(c, n);
    for (int64_t i = 0; i < n; i++)
        *used += cgp__utf8_put(nfc->text + *used, c[i]);
    return CGP_OK;
}

/* --- a text --- */

static cgp_status ensure_text(cgp__nfc *nfc, int64_t size) {
    if (size <= nfc->capacity) return CGP_OK;
    const int64_t capacity = cgp__max(2 * nfc->capacity, size);
    free(nfc->text);
    nfc->capacity = 0;
    nfc->text = cgp__calloc((size_t)capacity, 1);
    if (!nfc->text) return cgp__no_memory("tokenizer: NFC", (size_t)capacity);
    nfc->capacity = capacity;
    return CGP_OK;
}

/* Find the first unstable character at or after `at`. Set *segment to the beginning of its segment,
 * which is the stable character before it. */
static int64_t find_unstable(const cgp__unicode *unicode, const uint8_t *text, int64_t size,
                             int64_t at, int64_t *segment) {
    int64_t end = 0;
    *segment = at;
    for (; at < size; at = end) {
        if (text[at] < 0x80)
            end = at + 1;
        else if (cgp__class_at(unicode, text, at, &end) & CGP__UNSTABLE)
            break;
        *segment = at;
    }
    return at;
}

static int64_t find_stable(const cgp__unicode *unicode, const uint8_t *text, int64_t size,
                           int64_t at) {
    int64_t end = 0;
    while (at < size && cgp__class_at(unicode, text, at, &end) & CGP__UNSTABLE)
        at = end;
    return at;
}

cgp_status cgp__nfc_normalize(cgp__nfc *nfc, const cgp__unicode *unicode, const uint8_t *text,
                              int64_t size, const uint8_t **out, int64_t *out_size) {
    int64_t used = 0, copied = 0, segment = 0;
    int64_t at = find_unstable(unicode, text, size, 0, &segment);
    *out = text;
    *out_size = size;
    if (at == size) return CGP_OK;
    CGP_TRY(ensure_text(nfc, MAX_GROWTH * size));
    while (at < size) {
        const int64_t end = find_stable(unicode, text, size, at);
        memcpy(nfc->text + used, text + copied, (size_t)(segment - copied));
        used += segment - copied;
        CGP_TRY(append_segment(nfc, text + segment, end - segment, &used));
        copied = end;
        at = find_unstable(unicode, text, size, end, &segment);
    }
    memcpy(nfc->text + used, text + copied, (size_t)(size - copied));
    *out = nfc->text;
    *out_size = used + size - copied;
    return CGP_OK;
}

void cgp__nfc_release(cgp__nfc *nfc) {
    free(nfc->text);
    free(nfc->characters);
    *nfc = (cgp__nfc){0};
}
