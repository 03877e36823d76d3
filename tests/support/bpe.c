/* SPDX-License-Identifier: Apache-2.0 */
/* bpe.c -- see bpe.h. */
#include "bpe.h"

void test_bpe_start(test_bpe *bpe) {
    memset(bpe, 0, sizeof *bpe);
    bpe->n = 256;
    for (int i = 0; i < 256; i++) {
        bpe->bytes[i][0] = (uint8_t)(255 - i);
        bpe->sizes[i] = 1;
    }
}

bool test_bpe_merge(test_bpe *bpe, int left, int right) {
    const int a = bpe->sizes[left], b = bpe->sizes[right], n = bpe->n;
    if (n == BPE_TOKENS || a + b > BPE_BYTES) return false;
    memcpy(bpe->bytes[n], bpe->bytes[left], (size_t)a);
    memcpy(bpe->bytes[n] + a, bpe->bytes[right], (size_t)b);
    for (int i = 0; i < n; i++) {
        if (bpe->sizes[i] == a + b &&
            memcmp(bpe->bytes[i], bpe->bytes[n], (size_t)(a + b)) == 0)
            return false;
    }
    bpe->sizes[n] = a + b;
    bpe->left[n] = left;
    bpe->right[n] = right;
    bpe->n++;
    return true;
}

/* A token with one character for each byte. */
static char *write_token(char *out, const test_bpe *bpe, int token, bool json) {
    for (int i = 0; i < bpe->sizes[token]; i++) {
        int c = bpe->bytes[token][i], others = 0;
        for (int b = 0; b < c; b++)
            others += b < 0x21 || (b > 0x7e && b < 0xa1) || b == 0xad;
        if (c < 0x21 || (c > 0x7e && c < 0xa1) || c == 0xad) c = 256 + others;
        if (json && (c == '"' || c == '\\')) *out++ = '\\';
        if (c >= 0x80) *out++ = (char)(0xc0 | c >> 6);
        *out++ = (char)(c < 0x80 ? c : 0x80 | (c & 0x3f));
    }
    return out;
}

void test_bpe_texts(const test_bpe *bpe, char vocab[BPE_TEXT], char merges[BPE_TEXT]) {
    char *v = vocab, *m = merges + sprintf(merges, "#version: 0.2\n");
    for (int i = 0; i < bpe->n; i++) {
        v += sprintf(v, i ? ",\n\"" : "{\"");
        v = write_token(v, bpe, i, true);
        v += sprintf(v, "\": %d", i);
        if (i < 256) continue;
        m = write_token(m, bpe, bpe->left[i], false);
        *m++ = ' ';
        m = write_token(m, bpe, bpe->right[i], false);
        *m++ = '\n';
    }
    sprintf(v, "}\n");
    *m = '\0';
    assert_true(v < vocab + BPE_TEXT - 8 && m < merges + BPE_TEXT);
}

static int rank_of(const test_bpe *bpe, int left, int right) {
    for (int i = 256; i < bpe->n; i++) {
        if (bpe->left[i] == left && bpe->right[i] == right) return i;
    }
    return BPE_TOKENS;
}

int test_bpe_encode(const test_bpe *bpe, const uint8_t *word, int size, int32_t *ids) {
    int n = size;
    for (int i = 0; i < n; i++)
        ids[i] = 255 - word[i];
    for (;;) {
        int best = BPE_TOKENS, at = 0;
        for (int i = 0; i + 1 < n; i++) {
            const int rank = rank_of(bpe, ids[i], ids[i + 1]);
            if (rank >= best) continue;
            best = rank;
            at = i;
        }
        if (best == BPE_TOKENS) return n;
        ids[at] = best;
        memmove(ids + at + 1, ids + at + 2, (size_t)(n - at - 2) * sizeof *ids);
        n--;
    }
}
