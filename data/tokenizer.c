/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer.c -- converts text to tokens and back. First, added tokens are taken out (added.c).
 * Then the rest of the text is normalized (nfc.c), and added tokens are taken out again. The text
 * that is left is split into words (pretokenizer.c). A word's tokens come from a cache of recent
 * words, or from merges (bpe.c).
 *
 *     text    The cat\xff sat<|end|>
 *             The| cat             up to a byte that is not UTF-8
 *             \xff                 a token of its own
 *              sat|<|end|>         and on */
#include <cgpipe/tokenizer.h>

#include "data/bpe.h"
#include "data/nfc.h"
#include "data/tokenizer_json.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { CACHE_WORDS = 1 << 15, WORD_BYTES = 30, WORD_TOKENS = 8, ASCII = 128 };

/* A recent word and its tokens. The struct has 64 bytes. */
typedef struct cached_word {
    uint8_t size, count; /* bytes of the word, number of its tokens; size 0: no word */
    uint8_t bytes[WORD_BYTES];
    int32_t ids[WORD_TOKENS];
} cached_word;

struct cgp_tokenizer {
    cgp__tokenizer_parts parts;
    cgp__bpe bpe;
    cgp__nfc nfc;
    uint8_t *prefixed; /* [prefixed_capacity] copy of a text, with a space before the text */
    int64_t prefixed_capacity;
    cached_word *cache; /* [CACHE_WORDS] by hash; a newer word replaces an older one */
    /* cuts[k][b] is true if a text may be cut between byte b and a space (k = 0) or line feed (k =
     * 1). */
    bool cuts[2][ASCII];
};

/* --- create, destroy --- */

/* Find the bytes after which a text may be cut. The comment of cgp_tokenizer_split_point() has the
 * rule. */
static void find_cuts(cgp_tokenizer *t) {
    const cgp__tokenizer_parts *p = &t->parts;
    for (int byte = ' ' + 1; byte < 0x7f; byte++) {
        const int class = cgp__class_of(&p->unicode, (uint32_t)byte);
        const bool sign = !(class & (CGP__LETTER | CGP__NUMBER));
        const bool space = p->pattern != CGP__PATTERN_NONE;
        const bool line = space && !p->prefix_space && (p->pattern == CGP__PATTERN_GPT2 || !sign);
        t->cuts[0][byte] = space && cgp__added_allow_cut(&p->added, (uint8_t)byte, ' ');
        t->cuts[1][byte] = line && cgp__added_allow_cut(&p->added, (uint8_t)byte, '\n');
    }
}

/* If `merges` is NULL, read the tokenizer.json at path `vocab`. Otherwise read the vocab.json at
 * path `vocab` and the merges.txt at path `merges`. */
static cgp_status fill(cgp_tokenizer *t, const char *vocab, const char *merges) {
    CGP_TRY(cgp__unicode_open(&t->parts.unicode));
    if (merges)
        CGP_TRY(cgp__vocab_read(&t->parts.vocab, vocab, merges));
    else
        CGP_TRY(cgp__tokenizer_json_read(&t->parts, vocab));
    find_cuts(t);
    t->cache = cgp__calloc(CACHE_WORDS, sizeof *t->cache);
    return t->cache ? CGP_OK : cgp__no_memory("tokenizer", CACHE_WORDS * sizeof *t->cache);
}

static cgp_status create(cgp_tokenizer **out, const char *vocab, const char *merges) {
    cgp_tokenizer *t = cgp__calloc(1, sizeof *t);
    if (!t) return cgp__no_memory("tokenizer", sizeof *t);
    const cgp_status status = fill(t, vocab, merges);
    if (status == CGP_OK)
        *out = t;
    else
        cgp_tokenizer_destroy(t);
    return status;
}

cgp_status cgp_tokenizer_create(cgp_tokenizer **out, const char *vocab, const char *merges) {
    CGP__NEED(out);
    CGP__NEED(vocab);
    CGP__NEED(merges);
    return create(out, vocab, merges);
}

cgp_status cgp_tokenizer_open(cgp_tokenizer **out, const char *path) {
    CGP__NEED(out);
    CGP__NEED(path);
    return create(out, path, NULL);
}

void cgp_tokenizer_destroy(cgp_tokenizer *t) {
    if (!t) return;
    free(t->cache);
    free(t->prefixed);
    cgp__nfc_release(&t->nfc);
    cgp__bpe_release(&t->bpe);
    cgp__tokenizer_parts_release(&t->parts);
    free(t);
}

int64_t cgp_tokenizer_vocab_size(const cgp_tokenizer *tokenizer) {
    CGP__NEED_OR(tokenizer, 0);
    return tokenizer->parts.vocab.size;
}

int32_t cgp_tokenizer_end_of_text(const cgp_tokenizer *tokenizer) {
    CGP__NEED_OR(tokenizer, -1);
    return tokenizer->parts.vocab.end_of_text;
}

int32_t cgp_tokenizer_token_id(const cgp_tokenizer *tokenizer, const char *text) {
    CGP__NEED_OR(tokenizer, -1);
    CGP__NEED_OR(text, -1);
    const cgp__vocab *v = &tokenizer->parts.vocab;
    const cgp__added_token *added = cgp__added_find(&tokenizer->parts.added, text);
    const int64_t size = (int64_t)strlen(text);
    if (added) return added->id;
    for (int32_t id = 0; id < v->size; id++) {
        if (v->starts[id + 1] - v->starts[id] == size &&
            memcmp(v->bytes + v->starts[id], text, (size_t)size) == 0)
            return id;
    }
    return -1;
}

const int32_t *cgp_tokenizer_prefix(const cgp_tokenizer *tokenizer, int64_t *count) {
    CGP__NEED_OR(tokenizer, NULL);
    CGP__NEED_OR(count, NULL);
    *count = tokenizer->parts.n_prefix;
    return tokenizer->parts.prefix;
}

const int32_t *cgp_tokenizer_suffix(const cgp_tokenizer *tokenizer, int64_t *count) {
    CGP__NEED_OR(tokenizer, NULL);
    CGP__NEED_OR(count, NULL);
    *count = tokenizer->parts.n_suffix;
    return tokenizer->parts.suffix;
}

/* --- encoding --- */

/* Make room for `more` tokens at the end of the list. */
static cgp_status ensure_capacity(cgp_token_list *tokens, int64_t more) {
    if (tokens->count + more <= tokens->capacity) return CGP_OK;
    const int64_t capacity = cgp__max(cgp__max(2 * tokens->capacity, 256), tokens->count + more);
    int32_t *ids = cgp__calloc((size_t)capacity, sizeof *ids);
    if (!ids) return cgp__no_memory("list of tokens", (size_t)capacity * sizeof *ids);
    if (tokens->count > 0) memcpy(ids, tokens->ids, (size_t)tokens->count * sizeof *ids);
    free(tokens->ids);
    tokens->ids = ids;
    tokens->capacity = capacity;
    return CGP_OK;
}

static cgp_status append(cgp_token_list *tokens, int32_t id) {
    CGP_TRY(ensure_capacity(tokens, 1));
    tokens->ids[tokens->count++] = id;
    return CGP_OK;
}

/* Find the tokens ids[0 .. *count - 1] of a word that is not in the cache. */
static cgp_status merge_word(cgp_tokenizer *t, const uint8_t *word, int64_t size, int32_t *ids,
                             int64_t *count) {
    const cgp__vocab *v = &t->parts.vocab;
    const int32_t whole = t->parts.ignore_merges ? cgp__vocab_find(v, word, size) : -1;
    if (whole < 0) return cgp__bpe_encode(&t->bpe, v, word, size, ids, count);
    ids[0] = whole;
    *count = 1;
    return CGP_OK;
}

static cgp_status encode_word(cgp_tokenizer *t, const uint8_t *word, int64_t size,
                              cgp_token_list *tokens) {
    cached_word *cached =
        size <= WORD_BYTES ? &t->cache[cgp__vocab_hash(word, size) % CACHE_WORDS] : NULL;
    int64_t count = 0;
    CGP_TRY(ensure_capacity(tokens, cgp__max(size, WORD_TOKENS)));
    int32_t *ids = tokens->ids + tokens->count;
    if (cached && cached->size == size && memcmp(cached->bytes, word, (size_t)size) == 0) {
        memcpy(ids, cached->ids, sizeof cached->ids);
        tokens->count += cached->count;
        return CGP_OK;
    }
    CGP_TRY(merge_word(t, word, size, ids, &count));
    if (cached && count <= WORD_TOKENS) {
        cached->size = (uint8_t)size;
        cached->count = (uint8_t)count;
        memcpy(cached->bytes, word, (size_t)size);
        memcpy(cached->ids, ids, (size_t)count * sizeof *ids);
    }
    tokens->count += count;
    return CGP_OK;
}

/* Set *out to a copy of a text with a space before it. */
static cgp_status prefix_space(cgp_tokenizer *t, const uint8_t *text, int64_t size,
                               const uint8_t **out) {
    if (size >= t->prefixed_capacity) {
        const int64_t capacity = cgp__max(2 * t->prefixed_capacity, size + 1);
        free(t->prefixed);
        t->prefixed_capacity = 0;
        t->prefixed = cgp__calloc((size_t)capacity, 1);
        if (!t->prefixed) return cgp__no_memory("tokenizer", (size_t)capacity);
        t->prefixed_capacity = capacity;
    }
    t->prefixed[0] = ' ';
    memcpy(t->prefixed + 1, text, (size_t)size);
    *out = t->prefixed;
    return CGP_OK;
}

/* Encode a text without added tokens. */
static cgp_status encode_words(cgp_tokenizer *t, const uint8_t *text, int64_t size,
                               cgp_token_list *tokens) {
    if (size == 0) return CGP_OK;
    if (t->parts.prefix_space && text[0] != ' ') {
        CGP_TRY(prefix_space(t, text, size, &text));
        size++;
    }
    if (size > INT32_MAX) /* NFC makes some texts longer */
        return cgp_fail(CGP_EINVAL,
                        "tokenizer: expected at most %d bytes at a time, got %" PRId64
                        " after normalization (cut the text)",
                        INT32_MAX, size);
    for (int64_t at = 0, end = 0; at < size; at = end) {
        end = cgp__pretokenizer_next(&t->parts.unicode, t->parts.pattern, text, size, at);
        CGP_TRY(encode_word(t, text + at, end - at, tokens));
    }
    return CGP_OK;
}

/* Encode a text that may contain added tokens. First find the added tokens with normalized = false.
 * Then normalize the text between them, and find the added tokens with normalized = true there. */
static cgp_status encode_text(cgp_tokenizer *t, const uint8_t *text, int64_t size, bool normalized,
                              cgp_token_list *tokens) {
    const cgp__tokenizer_parts *p = &t->parts;
    if (p->added.n == 0 && !p->nfc) return encode_words(t, text, size, tokens);
    if (normalized && p->nfc)
        CGP_TRY(cgp__nfc_normalize(&t->nfc, &p->unicode, text, size, &text, &size));
    cgp__added_search search = {.added = &p->added,
                                .unicode = &p->unicode,
                                .text = text,
                                .size = size,
                                .normalized = normalized};
    for (const cgp__added_token *found = NULL;;) {
        int64_t start = 0, end = 0;
        found = cgp__added_next(&search, &start, &end);
        if (normalized)
            CGP_TRY(encode_words(t, text + start, end - start, tokens));
        else
            CGP_TRY(encode_text(t, text + start, end - start, true, tokens));
        if (!found) return CGP_OK;
        CGP_TRY(append(tokens, found->id));
    }
}

/* Return the length of the well-formed UTF-8 at the beginning of a text, in bytes. */
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
        CGP_TRY(encode_text(t, bytes, good, false, tokens));
        if (good == count) break;
        CGP_TRY(append(tokens, t->parts.vocab.of_byte[bytes[good]]));
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

int64_t cgp_tokenizer_split_point(const cgp_tokenizer *tokenizer, const void *bytes,
                                  int64_t count) {
    CGP__NEED_OR(tokenizer, 0);
    if (count > 0) CGP__NEED_OR(bytes, 0);
    const uint8_t *text = bytes;
    for (int64_t at = count - 1; at > 0; at--) {
        if (text[at] != ' ' && text[at] != '\n') continue;
        if (text[at - 1] < ASCII && tokenizer->cuts[text[at] == '\n'][text[at - 1]]) return at;
    }
    return 0;
}

/* --- decoding --- */

cgp_status cgp_tokenizer_decode(const cgp_tokenizer *tokenizer, const int32_t *ids, int64_t n_ids,
                                char **bytes, int64_t *count) {
    CGP__NEED(tokenizer);
    if (n_ids > 0) CGP__NEED(ids);
    CGP__NEED(bytes);
    CGP__NEED(count);
    const cgp__vocab *v = &tokenizer->parts.vocab;
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
