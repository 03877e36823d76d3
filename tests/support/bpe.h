/* SPDX-License-Identifier: Apache-2.0 */
/* bpe.h -- a byte-pair encoding for tests, and its files. */
#ifndef CGP_TESTS_BPE_H
#define CGP_TESTS_BPE_H

#include "support.h"

enum { BPE_TOKENS = 400, BPE_BYTES = 24, BPE_TEXT = 16384 };

/* Tokens 0 to 255 are single bytes, in an order that the test chooses. Merge number k makes token
 * 256 + k. */
typedef struct test_bpe {
    int n;
    uint8_t bytes[BPE_TOKENS][BPE_BYTES];
    int sizes[BPE_TOKENS];
    int left[BPE_TOKENS], right[BPE_TOKENS]; /* the two parts of a merged token (256 and up) */
} test_bpe;

/* Initialize an encoding with single-byte tokens only: token i is byte 255 - i. */
void test_bpe_start(test_bpe *bpe);

/* Add a merge of two tokens. If the merged token exists already, is an added token of
 * test_bpe_json(), or is too long, return false and add nothing. */
bool test_bpe_merge(test_bpe *bpe, int left, int right);

/* Initialize an encoding, and add up to 80 merges of random tokens. */
void test_bpe_draw(test_bpe *bpe, uint64_t *random);

/* Write vocab.json and merges.txt as texts. */
void test_bpe_texts(const test_bpe *bpe, char vocab[BPE_TEXT], char merges[BPE_TEXT]);

/* Write tokenizer.json as a text. It has Qwen2's pattern, NFC, ignore_merges, and six added tokens
 * with the highest ids. A template adds the first two of these added tokens to a text. */
enum { BPE_JSON = 3 * BPE_TEXT, BPE_ADDED = 6 };
void test_bpe_json(const test_bpe *bpe, char text[BPE_JSON]);

/* Encode a word by a slow, simple method. Repeatedly find the first merge in the list that can be
 * applied to the word, and apply it at its leftmost position. Return the number of tokens. */
int test_bpe_encode(const test_bpe *bpe, const uint8_t *word, int size, int32_t *ids);

#endif
