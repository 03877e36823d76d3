/* SPDX-License-Identifier: Apache-2.0 */
/* pretokenizer.c -- matches the patterns for words without an engine for regular expressions.
 *
 *     text       It's  1234 words!\n\n x
 *     GPT-2      It|'s| | 1234| words|!|\n\n| x
 *     Llama 3    It|'s| | |123|4| words|!\n\n| x        up to 3 digits, line ends after signs
 *     Qwen2      It|'s| | |1|2|3|4| words|!\n\n| x      single digits
 *
 * A match can begin at every character, so matches lie end to end. The alternatives of a pattern
 * begin with different classes of characters (L letter, N number, S white space, O all others), or
 * the next character decides between them. So a word is found in one pass over its characters. Only
 * a run of white space may be scanned twice, to find its end. An engine for regular expressions
 * would use another version of Unicode, and its limit on steps would fail on long runs. */
#include "data/pretokenizer.h"

#include <string.h>

#define CONTRACTIONS "'s|'t|'re|'ve|'m|'ll|'d"
#define SPACE_RUNS "\\s+(?!\\S)|\\s+"
#define NEWER(numbers)                                                                             \
    "(?i:" CONTRACTIONS ")|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" numbers                                 \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|" SPACE_RUNS

static const char *const regexes[] = {
    [CGP__PATTERN_GPT2] = CONTRACTIONS "| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|" SPACE_RUNS,
    [CGP__PATTERN_LLAMA3] = NEWER("\\p{N}{1,3}"),
    [CGP__PATTERN_QWEN2] = NEWER("\\p{N}"),
};

enum { KINDS = CGP__LETTER | CGP__NUMBER | CGP__SPACE };

/* A text, and the classes of its characters. */
typedef struct words {
    const cgp__unicode *unicode;
    const uint8_t *text;
    int64_t size;
} words;

bool cgp__pattern_find(const char *regex, cgp__pattern *pattern) {
    for (size_t i = 0; i < sizeof regexes / sizeof regexes[0]; i++) {
        if (strcmp(regex, regexes[i]) != 0) continue;
        *pattern = (cgp__pattern)i;
        return true;
    }
    return false;
}

/* Return the class of the character at `at`: letter, number, white space, or 0 for any other. Set
 * *end to the end of the character. Return -1 at the end of the text. */
static int kind_at(const words *w, int64_t at, int64_t *end) {
    *end = at;
    return at < w->size ? cgp__class_at(w->unicode, w->text, at, end) & KINDS : -1;
}

/* Return the end of a run of characters of one class. A run has at most `max` characters. */
static int64_t run_end(const words *w, int64_t at, int kind, int64_t max) {
    int64_t end = 0;
    for (; max > 0 && kind_at(w, at, &end) == kind; max--)
        at = end;
    return at;
}

static bool is_line_end(uint8_t byte) {
    return byte == '\r' || byte == '\n';
}

/* Return the end of a contraction that begins with the apostrophe at `at`, or `at` if there is
 * none. (?i) also folds U+017F, the long s, to s. */
static int64_t contraction_end(const words *w, int64_t at, bool any_case) {
    const int64_t left = w->size - at;
    const uint8_t *c = w->text + at;
    if (left < 2) return at;
    const uint8_t fold = any_case ? 0x20 : 0;
    const int first = c[1] | fold, second = left > 2 ? c[2] | fold : 0;
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return at + 2;
    if ((first == 'r' || first == 'v') && second == 'e') return at + 3;
    if (first == 'l' && second == 'l') return at + 3;
    if (any_case && left > 2 && c[1] == 0xc5 && c[2] == 0xbf) return at + 3;
    return at;
}

/* Match \s+(?!\S)|\s+. If `lines` is true, try \s*[\r\n]+ first: this match ends after the last
 * line end in the run of white space, if there is a line end. Otherwise, if the run ends the text
 * or has one character, the match takes the whole run. In all other cases, the last character of
 * the run is left to the next word. */
static int64_t spaces_end(const words *w, int64_t at, bool lines) {
    int64_t last = at, lines_end = at, end = at, next = 0;
    while (kind_at(w, end, &next) == CGP__SPACE) {
        last = end;
        end = next;
        if (is_line_end(w->text[last])) lines_end = end;
    }
    if (lines && lines_end > at) return lines_end;
    return end < w->size && last > at ? last : end;
}

static int64_t gpt2_next(const words *w, int64_t at) {
    int64_t end = 0, start = at;
    if (w->text[at] == '\'') {
        end = contraction_end(w, at, false);
        if (end > at) return end;
    }
    int kind = kind_at(w, at, &end);
    if (w->text[at] == ' ') {
        start = end;
        kind = kind_at(w, start, &end);
    }
    if (kind == CGP__SPACE || kind < 0) return spaces_end(w, at, false);
    return run_end(w, end, kind, INT64_MAX);
}

static int64_t newer_next(const words *w, int64_t at, int64_t digits) {
    int64_t end = 0, second = 0;
    if (w->text[at] == '\'') {
        end = contraction_end(w, at, true);
        if (end > at) return end;
    }
    int kind = kind_at(w, at, &end);
    if (kind == CGP__LETTER) return run_end(w, end, CGP__LETTER, INT64_MAX);
    if (kind == CGP__NUMBER) return run_end(w, end, CGP__NUMBER, digits - 1);
    const int next = kind_at(w, end, &second);
    if (next == CGP__LETTER && !is_line_end(w->text[at]))
        return run_end(w, second, CGP__LETTER, INT64_MAX);
    if (kind == CGP__SPACE && (w->text[at] != ' ' || next != 0)) return spaces_end(w, at, true);
    end = run_end(w, end, 0, INT64_MAX);
    while (end < w->size && is_line_end(w->text[end]))
        end++;
    return end;
}

int64_t cgp__pretokenizer_next(const cgp__unicode *unicode, cgp__pattern pattern,
                               const uint8_t *text, int64_t size, int64_t at) {
    const words w = {unicode, text, size};
    switch (pattern) {
    case CGP__PATTERN_GPT2:
        return gpt2_next(&w, at);
    case CGP__PATTERN_LLAMA3:
        return newer_next(&w, at, 3);
    case CGP__PATTERN_QWEN2:
        return newer_next(&w, at, 1);
    default:
        return size;
    }
}
