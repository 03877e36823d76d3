/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer.c -- text to tokens and back: pre-tokenization (pretokenizer.c), then each word from a cache of recent words or
 * by merges (bpe.c).
 *
 *     text    The cat\xff sat
 *             The| cat             up to a byte that is not UTF-8
 *             \xff                 a token of its own
 *              sat                 and on */
#include <cgpipe/tokenizer.h>

#include "base/base.h"
#include "data/bpe.h"
#include "data/pretokenizer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { CACHE_WORDS = 1 << 15, WORD_BYTES = 30, WORD_TOKENS = 8 };

/* A recent word and its tokens: 64 bytes. */
typedef struct cached_word {
    uint8_t size, count; /* size 0: none */
    uint8_t bytes[WORD_BYTES];
    int32_t ids[WORD_TOKENS];
} cached_word;

struct cgp_tokenizer {
    cgp__vocab vocab;
    cgp__pretokenizer pretokenizer;
    cgp__bpe bpe;
    cached_word *cache; /* [CACHE_WORDS] by hash; a newer word replaces an older one */
};

/* --- life --- */

static cgp_status fill(cgp_tokenizer *t, const char *vocab, const char *merges) {
    CGP_TRY(cgp__vocab_read(&t->vocab, vocab, merges));
    CGP_TRY(cgp__pretokenizer_open(&t->pretokenizer));
    t->cache = cgp__calloc(CACHE_WORDS, sizeof *t->cache);
    return t->cache ? CGP_OK : cgp__no_memory("tokenizer", CACHE_WORDS * sizeof *t->cache);
}

cgp_status cgp_tokenizer_create(cgp_tokenizer **out, const char *vocab, const char *merges) {
    CGP__NEED(out);
    CGP__NEED(vocab);
    CGP__NEED(merges);
    cgp_tokenizer *t = cgp__calloc(1, sizeof *t);
    if (!t) return cgp__no_memory("tokenizer", sizeof *t);
    const cgp_status status = fill(t, vocab, merges);
    if (status == CGP_OK)
        *out = t;
    else
        cgp_tokenizer_destroy(t);
    return status;
}

void cgp_tokenizer_destroy(cgp_tokenizer *t) {
    if (!t) return;
    free(t->cache);
    cgp__bpe_release(&t->bpe);
    cgp__pretokenizer_release(&t->pretokenizer);
    cgp__vocab_release(&t->vocab);
    free(t);
}

int64_t cgp_tokenizer_vocab_size(const cgp_tokenizer *tokenizer) {
    CGP__NEED_OR(tokenizer, 0);
    return tokenizer->vocab.size;
}

int32_t cgp_tokenizer_end_of_text(const cgp_tokenizer *tokenizer) {
    CGP__NEED_OR(tokenizer, -1);
    return tokenizer->vocab.end_of_text;
}

/* --- encoding --- */

/* Make capacity for `more` tokens at the end of the list. */
static cgp_status ensure_capacity(cgp_token_list *tokens, int64_t more) {
    if (tokens->count + more <= tokens->capacity) return CGP_OK;
    const int64_t capacity =
        cgp__max(cgp__max(2 * tokens->capacity, 256), tokens->count + more);
    int32_t *ids = cgp__calloc((size_t)capacity, sizeof *ids);
    if (!ids) return cgp__no_memory("list of tokens", (size_t)capacity * sizeof *ids);
    if (tokens->count > 0) memcpy(ids, tokens->ids, (size_t)tokens->count * sizeof *ids);
    free(tokens->ids);
    tokens->ids = ids;
    tokens->capacity = capacity;
    return CGP_OK;
}

/* The cache entry of a word, by FNV-1a. */
static cached_word *cache_slot(cgp_tokenizer *t, const uint8_t *word, int64_t size) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (int64_t i = 0; i < size; i++)
        hash = (hash ^ word[i]) * 0x100000001b3u;
    return &t->cache[(hash ^ hash >> 32) % CACHE_WORDS];
}

static cgp_status encode_word(cgp_tokenizer *t, const uint8_t *word, int64_t size,
                              cgp_token_list *tokens) {
    cached_word *cached = size <= WORD_BYTES ? cache_slot(t, word, size) : NULL;
    int64_t count = 0;
    CGP_TRY(ensure_capacity(tokens, cgp__max(size, WORD_TOKENS)));
    int32_t *ids = tokens->ids + tokens->count;
    if (cached && cached->size == size && memcmp(cached->bytes, word, (size_t)size) == 0) {
        memcpy(ids, cached->ids, sizeof cached->ids);
        tokens->count += cached->count;
        return CGP_OK;
    }
    CGP_TRY(cgp__bpe_encode(&t->bpe, &t->vocab, word, size, ids, &count));
    if (cached && count <= WORD_TOKENS) {
        cached->size = (uint8_t)size;
        cached->count = (uint8_t)count;
        memcpy(cached->bytes, word, (size_t)size);
        memcpy(cached->ids, ids, (size_t)count * sizeof *ids);
    }
    tokens->count += count;
    return CGP_OK;
}

/* The length of the well-formed UTF-8 at the beginning of a text, in bytes. */
static int64_t utf8_length(const uint8_t *text, int64_t size) {
    int64_t at = 0, length = 1;
    for (; at < size && length > 0; at += length)
        length = text[at] < 0x80 ? 1 : cgp__utf8_character(text + at, size - at);
    return at;
}

static cgp_status encode(cgp_tokenizer *t, const uint8_t *bytes, int64_t count,
                         cgp_token_list *tokens) {
    while (count > 0) {
        const int64_t good = utf8_length(bytes, count);
        for (int64_t at = 0, end = 0; at < good; at = end) {
            CGP_TRY(cgp__pretokenizer_next(&t->pretokenizer, bytes, good, at, &end));
            CGP_TRY(encode_word(t, bytes + at, end - at, tokens));
        }
        if (good == count) break;
        CGP_TRY(ensure_capacity(tokens, 1));
        tokens->ids[tokens->count++] = t->vocab.of_byte[bytes[good]];
        bytes += good + 1;
        count -= good + 1;
    }
    return CGP_OK;
}

cgp_status cgp_tokenizer_encode(cgp_tokenizer *tokenizer, const void *bytes, int64_t count,
                                cgp_token_list *tokens) {
    CGP__NEED(tokenizer);
    if (count > 0) CGP__NEED(bytes);
    CGP__NEED(tokens);
    const int64_t before = tokens->count;
    if (count < 0 || count > INT32_MAX)
        return cgp_fail(CGP_EINVAL,
                        "tokenizer: expected from 0 to %d bytes at a time, got %" PRId64
                        " (cut the text)",
                        INT32_MAX, count);
    const cgp_status status = encode(tokenizer, bytes, count, tokens);
    if (status != CGP_OK) tokens->count = before;
    return status;
}

int64_t cgp_tokenizer_split_point(const void *bytes, int64_t count) {
    if (count > 0) CGP__NEED_OR(bytes, 0);
    const uint8_t *text = bytes;
    for (int64_t at = count - 1; at > 0; at--) {
        const bool space = text[at] == ' ' || text[at] == '\n';
        if (space && text[at - 1] > ' ' && text[at - 1] < 0x7f) return at;
    }
    return 0;
}

/* --- decoding --- */

cgp_status cgp_tokenizer_decode(const cgp_tokenizer *tokenizer, const int32_t *ids,
                                int64_t n_ids, char **bytes, int64_t *count) {
    CGP__NEED(tokenizer);
    if (n_ids > 0) CGP__NEED(ids);
    CGP__NEED(bytes);
    CGP__NEED(count);
    const cgp__vocab *v = &tokenizer->vocab;
    int64_t size = 0;
    for (int64_t i = 0; i < n_ids; i++) {
        if (ids[i] < 0 || ids[i] >= v->size)
            return cgp_fail(CGP_EINVAL,
                            "tokenizer: token %" PRId64
                            ": expected an id from 0 to %d, got %" PRId32
                            " (of another tokenizer?)",
                            i, v->size - 1, ids[i]);
        size += v->starts[ids[i] + 1] - v->starts[ids[i]];
    }
    char *text = cgp__calloc((size_t)size + 1, 1), *end = text;
    if (!text) return cgp__no_memory("tokenizer", (size_t)size + 1);
    for (int64_t i = 0; i < n_ids; i++) {
        const int64_t start = v->starts[ids[i]], length = v->starts[ids[i] + 1] - start;
        memcpy(end, v->bytes + start, (size_t)length);
        end += length;
    }
    *bytes = text;
    *count = size;
    return CGP_OK;
}
