/* SPDX-License-Identifier: Apache-2.0 */
/* unicode.h -- classes of characters, and UTF-8. */
#ifndef CGP_SRC_DATA_UNICODE_H
#define CGP_SRC_DATA_UNICODE_H

#include "base/base.h"

/* The classes of characters as in Hugging Face's tokenizers (tools/unicode_tables.py), as bits of
 * one byte. */
typedef enum cgp__character_class {
    CGP__LETTER = 1,   /* \p{L} */
    CGP__NUMBER = 2,   /* \p{N} */
    CGP__SPACE = 4,    /* \s */
    CGP__WORD = 8,     /* \w */
    CGP__UNSTABLE = 16 /* NFC may change the character, or join it to the text before it */
} cgp__character_class;

/* `whole` decomposes into `first` and `second`, or into `first` alone if second is 0. */
typedef struct cgp__decomposition {
    uint32_t whole, first, second;
} cgp__decomposition;

extern const uint32_t cgp__unicode_runs[], cgp__unicode_marks[];
extern const cgp__decomposition cgp__unicode_steps[];
extern const uint16_t cgp__unicode_pairs[];
extern const int32_t cgp__unicode_runs_count, cgp__unicode_marks_count, cgp__unicode_steps_count,
    cgp__unicode_pairs_count;

enum { CGP__BLOCK = 256, CGP__BLOCKS = 0x110000 / CGP__BLOCK };

/* The classes of all characters, in blocks. Neighbouring blocks are stored once if all their
 * characters have the same class. Start from {0}. */
typedef struct cgp__unicode {
    uint8_t *blocks; /* [n][CGP__BLOCK] */
    /* For each 256 code points, the index of their block in `blocks`. */
    uint16_t block[CGP__BLOCKS];
} cgp__unicode;

/* Fill the blocks from the runs. Release `unicode` in any case. */
cgp_status cgp__unicode_open(cgp__unicode *unicode);
void cgp__unicode_release(cgp__unicode *unicode);

static inline int cgp__class_of(const cgp__unicode *unicode, uint32_t character) {
    return unicode
        ->blocks[unicode->block[character / CGP__BLOCK] * CGP__BLOCK + character % CGP__BLOCK];
}

/* Get the character that begins at `text`, which is well-formed UTF-8; return its number of
 * bytes. */
static inline int cgp__utf8_get(const uint8_t *text, uint32_t *character) {
    if (text[0] < 0x80) {
        *character = text[0];
        return 1;
    }
    if (text[0] < 0xe0) {
        *character = (text[0] & 0x1fu) << 6 | (text[1] & 0x3fu);
        return 2;
    }
    if (text[0] < 0xf0) {
        *character = (text[0] & 0xfu) << 12 | (text[1] & 0x3fu) << 6 | (text[2] & 0x3fu);
        return 3;
    }
    *character =
        (text[0] & 7u) << 18 | (text[1] & 0x3fu) << 12 | (text[2] & 0x3fu) << 6 | (text[3] & 0x3fu);
    return 4;
}

/* Write a character, at most 4 bytes; return the number of bytes. */
int cgp__utf8_put(uint8_t *text, uint32_t character);

/* Return the class of the character that begins at `at` < size. Set *end to the end of the
 * character. */
static inline int cgp__class_at(const cgp__unicode *unicode, const uint8_t *text, int64_t at,
                                int64_t *end) {
    uint32_t character = 0;
    *end = at + cgp__utf8_get(text + at, &character);
    return cgp__class_of(unicode, character);
}

#endif
