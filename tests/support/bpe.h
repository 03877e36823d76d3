/* SPDX-License-Identifier: Apache-2.0 */
/* bpe.h -- a byte-pair encoding for tests, and its files. */
#ifndef CGP_TESTS_BPE_H
#define CGP_TESTS_BPE_H

#include "support.h"

enum { BPE_TOKENS = 400, BPE_BYTES = 24, BPE_TEXT = 16384 };

/* Tokens 0 .. 255 are the bytes, in an order that the test chooses. Merge k makes token 256 + k. */
typedef struct test_bpe {
    int n;
    uint8_t bytes[BPE_TOKENS][BPE_BYTES];
    int sizes[BPE_TOKENS];
    int left[BPE_TOKENS], right[BPE_TOKENS]; /* the two parts of a merged token (256 and up) */
} test_bpe;

/* Start with single bytes: token i is byte 255 - i. */
void test_bpe_start(test_bpe *bpe);

/* Add a merge of two tokens. Return false and add nothing if the result exists already, is an added
 * token of test_bpe_json(), or is too long. */
bool test_bpe_merge(test_bpe *bpe, int left, int right);

/* Start, and add up to 80 merges of random tokens. */
void test_bpe_draw(test_bpe *bpe, uint64_t *random);

/* Write vocab.json and merges.txt as texts. */
void test_bpe_texts(const test_bpe *bpe, char vocab[BPE_TEXT], char merges[BPE_TEXT]);

/* Write tokenizer.json as a text: Qwen2's pattern, NFC, ignore_merges, six added tokens whose ids
 * follow the others, and a template of the first two. */
enum { BPE_JSON = 3 * BPE_TEXT, BPE_ADDED = 6 };
void test_bpe_json(const test_bpe *bpe, char text[BPE_JSON]);

/* Encode a word the slow way: repeatedly apply the leftmost occurrence of the first merge that
 * applies. Return the number of tokens. */
int test_bpe_encode(const test_bpe *bpe, const uint8_t *word, int size, int32_t *ids);

#endif
