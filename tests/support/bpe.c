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

/* The added tokens of a tokenizer.json. */
static const struct {
    const char *content, *options; /* some of: single_word lstrip rstrip normalized special */
} added[BPE_ADDED] = {{"<s>", "special"},          {"</s>", "special rstrip"},
                      {"<m>", "lstrip"},           {"wo", "single_word"},
                      {"e\xcc\x81", "normalized"}, {"\xc3\xa9t", "normalized single_word"}};

/* Write a token in the byte-level alphabet, with one character for each byte. */
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

/* Return true if a token has the same spelling as an added token. (The tokenizers library would
 * then give the token the id of the added token.) */
static bool is_added(const test_bpe *bpe, int token) {
    char text[2 * BPE_BYTES];
    const size_t size = (size_t)(write_token(text, bpe, token, false) - text);
    for (int i = 0; i < BPE_ADDED; i++)
        if (strlen(added[i].content) == size && memcmp(added[i].content, text, size) == 0)
            return true;
    return false;
}

bool test_bpe_merge(test_bpe *bpe, int left, int right) {
    const int a = bpe->sizes[left], b = bpe->sizes[right], n = bpe->n;
    if (n == BPE_TOKENS || a + b > BPE_BYTES) return false;
    memcpy(bpe->bytes[n], bpe->bytes[left], (size_t)a);
    memcpy(bpe->bytes[n] + a, bpe->bytes[right], (size_t)b);
    for (int i = 0; i < n; i++) {
        if (bpe->sizes[i] == a + b &&
            memcmp(bpe->bytes[i], bpe->bytes[n], (size_t)a + (size_t)b) == 0)
            return false;
    }
    bpe->sizes[n] = a + b;
    if (is_added(bpe, n)) return false;
    bpe->left[n] = left;
    bpe->right[n] = right;
    bpe->n++;
    return true;
}

void test_bpe_draw(test_bpe *bpe, uint64_t *random) {
    test_bpe_start(bpe);
    for (int k = test_between(random, 0, 80); k > 0; k--)
        (void)test_bpe_merge(bpe, test_between(random, 0, bpe->n - 1),
                             test_between(random, 0, bpe->n - 1));
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

void test_bpe_json(const test_bpe *bpe, char text[BPE_JSON]) {
    static const char *const options[] = {"single_word", "lstrip", "rstrip", "normalized",
                                          "special"};
    static char vocab[BPE_TEXT], merges[BPE_TEXT];
    char *t = text + sprintf(text, "{\"version\": \"1.0\", \"added_tokens\": [");
    test_bpe_texts(bpe, vocab, merges);
    for (int i = 0; i < BPE_ADDED; i++) {
        t += sprintf(t, "%s{\"id\": %d, \"content\": \"%s\"", i ? ",\n" : "", bpe->n + i,
                     added[i].content);
        for (int k = 0; k < 5; k++)
            t += sprintf(t, ", \"%s\": %s", options[k],
                         strstr(added[i].options, options[k]) ? "true" : "false");
        t += sprintf(t, "}");
    }
    t += sprintf(
        t,
        "],\n\"normalizer\": {\"type\": \"NFC\"},\n\"pre_tokenizer\": {\"type\": \"Sequence\", "
        "\"pretokenizers\": [{\"type\": \"Split\", \"pattern\": {\"Regex\": "
        "\"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}| "
        "?[^\\\\s\\\\p{L}"
        "\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"}, \"behavior\": "
        "\"Isolated\", "
        "\"invert\": false}, {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
        "\"use_regex\": false}]},\n\"post_processor\": {\"type\": \"TemplateProcessing\", "
        "\"single\": [{\"SpecialToken\": {\"id\": \"<s>\"}}, {\"Sequence\": {\"id\": \"A\"}}, "
        "{\"SpecialToken\": {\"id\": \"</s>\"}}], \"special_tokens\": {\"<s>\": {\"ids\": "
        "[%d]}, "
        "\"</s>\": {\"ids\": [%d]}}},\n\"decoder\": {\"type\": \"ByteLevel\", "
        "\"add_prefix_space\": false},\n\"model\": {\"type\": \"BPE\", \"ignore_merges\": "
        "true, "
        "\"vocab\": %s, \"merges\": [",
        bpe->n, bpe->n + 1, vocab);
    for (int i = 256; i < bpe->n; i++) { /* use both spellings of merges alternately */
        t += sprintf(t, i == 256 ? "%s\"" : ",\n%s\"", i % 2 ? "[" : "");
        t = write_token(t, bpe, bpe->left[i], true);
        t += sprintf(t, i % 2 ? "\", \"" : " ");
        t = write_token(t, bpe, bpe->right[i], true);
        t += sprintf(t, i % 2 ? "\"]" : "\"");
    }
    sprintf(t, "]}}\n");
    assert_true(t < text + BPE_JSON - 8);
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
