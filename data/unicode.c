/* SPDX-License-Identifier: Apache-2.0 */
/* unicode.c -- makes the classes of characters from runs of equal class, and writes UTF-8. */
#include "data/unicode.h"

#include <stdlib.h>

/* Return the index of the run that contains a character. The search starts at `run`, which must not
 * be after the result. */
static int32_t run_of(uint32_t character, int32_t run) {
    while (run + 1 < cgp__unicode_runs_count && cgp__unicode_runs[run + 1] >> 8 <= character)
        run++;
    return run;
}

/* Assign a number to each block of characters, and return the largest number plus 1. Consecutive
 * blocks that lie entirely in the same run share a number. */
static int32_t number_blocks(cgp__unicode *unicode) {
    /* `before` is the run that contains the whole previous block. */
    int32_t n = 0, before = -1, first = 0;
    for (uint32_t i = 0; i < CGP__BLOCKS; i++) {
        const int32_t run = run_of(i * CGP__BLOCK, first);
        const bool one = run_of((i + 1) * CGP__BLOCK - 1, run) == run;
        if (!one || run != before) n++;
        unicode->block[i] = (uint16_t)(n - 1);
        before = one ? run : -1;
        first = run;
    }
    return n;
}

cgp_status cgp__unicode_open(cgp__unicode *unicode) {
    int32_t run = 0;
    const size_t n = (size_t)number_blocks(unicode);
    unicode->blocks = cgp__calloc(n, CGP__BLOCK);
    if (!unicode->blocks) return cgp__no_memory("tokenizer", n * CGP__BLOCK);
    for (uint32_t i = 0; i < CGP__BLOCKS; i++) {
        if (i > 0 && unicode->block[i] == unicode->block[i - 1]) continue;
        uint8_t *block = unicode->blocks + (ptrdiff_t)unicode->block[i] * CGP__BLOCK;
        for (uint32_t k = 0; k < CGP__BLOCK; k++) {
            run = run_of(i * CGP__BLOCK + k, run);
            block[k] = (uint8_t)cgp__unicode_runs[run];
        }
    }
    return CGP_OK;
}

void cgp__unicode_release(cgp__unicode *unicode) {
    free(unicode->blocks);
    unicode->blocks = NULL;
}

int cgp__utf8_put(uint8_t *text, uint32_t character) {
    if (character < 0x80) {
        text[0] = (uint8_t)character;
        return 1;
    }
    static const uint8_t first[] = {0, 0xc0, 0xe0, 0xf0};
    const int more = character < 0x800 ? 1 : character < 0x10000 ? 2 : 3;
    text[0] = (uint8_t)(first[more] | character >> 6 * more);
    for (int i = 1; i <= more; i++)
        text[i] = (uint8_t)(0x80 | (character >> 6 * (more - i) & 0x3f));
    return 1 + more;
}
