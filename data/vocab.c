/* SPDX-License-Identifier: Apache-2.0 */
/* vocab.c -- reads tokens from a JSON object, and merges from rows of two tokens. Both readers are
 * strict.
 *
 *     {"!": 0, ... "\u0120t": 257, ... "\u0120the": 262}
 *     \u0120 t        rank 0
 *     \u0120t he      rank 1: makes the token "\u0120the"
 *
 * The tokens of a merge are looked up in the JSON object in their printed form. Each byte is
 * printed as one character, so the printed form of a merge joins the printed forms of both
 * tokens. */
#include "data/vocab.h"

#include "base/base.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { PRINTABLE = 256 }; /* the first character that stands for a byte other than its own code */

/* --- printed tokens --- */

/* Return the byte that a character stands for; -1 if it stands for none. PRINTABLE and the
 * characters after it stand for these bytes, in order: 0 .. 0x20, 0x7f .. 0xa0, 0xad. */
static int byte_of(int character) {
    const int other = character - PRINTABLE;
    if (other >= 68) return -1;
    if (other == 67) return 0xad;
    if (other >= 33) return other - 33 + 0x7f;
    if (other >= 0) return other;
    const bool itself = (character >= 0x21 && character <= 0x7e) || character >= 0xa1;
    return itself && character != 0xad ? character : -1;
}

/* Write the bytes of a token to `bytes`, unless `bytes` is NULL. Return the number of bytes; -1 if
 * a character stands for no byte. `text` is UTF-8, in which the characters that stand for bytes
 * (below U+0144) have at most two bytes. */
static int64_t token_bytes(const char *text, uint8_t *bytes) {
    const uint8_t *c = (const uint8_t *)text;
    int64_t n = 0;
    for (; *c; c++, n++) {
        int character = *c;
        if (*c >= 0xe0) return -1;
        if (*c >= 0x80) {
            character = (*c & 0x1f) << 6 | (c[1] & 0x3f);
            c++;
        }
        const int byte = byte_of(character);
        if (byte < 0) return -1;
        if (bytes) bytes[n] = (uint8_t)byte;
    }
    return n;
}

/* --- tokens --- */

/* The texts of the tokens, used while tokens are read. */
typedef struct texts {
    const cgp__vocab_source *source;
    const char **of_id; /* [size] the text of each token, borrowed */
    int32_t n;          /* number of tokens in the JSON object; ids are less than n */
} texts;

static cgp_status take_key(const texts *t, const char *key, const json_t *value) {
    const char *path = t->source->path;
    const int64_t id = json_integer_value(value);
    if (!json_is_integer(value))
        return cgp_fail(CGP_EFORMAT, "%s: token \"%s\": expected an id, got no whole number", path,
                        key);
    if (id < 0 || id >= t->n)
        return cgp_fail(CGP_EFORMAT,
                        "%s: token \"%s\": expected an id below %d, the number of tokens, got "
                        "%" PRId64,
                        path, key, t->n, id);
    if (t->of_id[id])
        return cgp_fail(CGP_EFORMAT, "%s: token \"%s\": its id %" PRId64 " is there twice", path,
                        key, id);
    t->of_id[id] = key;
    return CGP_OK;
}

/* Write the bytes that the characters of an added token's text stand for. If a character stands for
 * no byte, write the text itself. */
static int64_t text_bytes(const char *text, uint8_t *bytes) {
    const int64_t n = token_bytes(text, NULL), own = (int64_t)strlen(text);
    if (n >= 0) return token_bytes(text, bytes);
    if (bytes) memcpy(bytes, text, (size_t)own);
    return own;
}

static cgp_status take_bytes(cgp__vocab *v, const texts *t) {
    for (int32_t id = 0; id < v->size; id++)
        v->starts[id + 1] = v->starts[id] + text_bytes(t->of_id[id], NULL);
    v->bytes = cgp__calloc((size_t)v->starts[v->size] + 1, 1);
    if (!v->bytes) return cgp__no_memory(t->source->path, (size_t)v->starts[v->size] + 1);
    for (int32_t id = 0; id < v->size; id++)
        (void)text_bytes(t->of_id[id], v->bytes + v->starts[id]);
    return CGP_OK;
}

/* Check a token of the JSON object. Each of its characters must stand for a byte, except in an
 * added token. Record tokens of one byte in of_byte, and all tokens in the index if there is
 * one. */
static cgp_status take_token(cgp__vocab *v, const texts *t, const char *key, int32_t id) {
    const int64_t length = token_bytes(key, NULL);
    if (length < 1 && t->of_id[id] != key) return CGP_OK;
    if (length < 1)
        return cgp_fail(
            CGP_EFORMAT, "%s: token \"%s\": expected characters that stand for bytes, got %s",
            t->source->path, key, length ? "another (a tokenizer of another kind?)" : "none");
    const uint8_t *bytes = v->bytes + v->starts[id];
    if (length == 1) v->of_byte[*bytes] = id;
    if (!v->index) return CGP_OK;
    uint64_t slot = cgp__vocab_hash(bytes, length);
    while (v->index[slot & v->index_mask] >= 0)
        slot++;
    v->index[slot & v->index_mask] = id;
    v->longest = cgp__max(v->longest, length);
    return CGP_OK;
}

static cgp_status check_bytes(const cgp__vocab *v, const char *path) {
    for (int i = 0; i < 256; i++) {
        if (v->of_byte[i] < 0)
            return cgp_fail(CGP_EFORMAT,
                            "%s: expected a token for each byte, got none for 0x%02x (a "
                            "tokenizer that is not byte-level, or damaged)",
                            path, (unsigned)i);
    }
    return CGP_OK;
}

static cgp_status make_index(cgp__vocab *v, const char *path) {
    uint64_t slots = 512;
    while (slots < 2 * (uint64_t)v->size)
        slots *= 2;
    v->index = cgp__calloc(slots, sizeof *v->index);
    if (!v->index) return cgp__no_memory(path, slots * sizeof *v->index);
    memset(v->index, 0xff, slots * sizeof *v->index);
    v->index_mask = slots - 1;
    return CGP_OK;
}

static cgp_status take_texts(cgp__vocab *v, const texts *t) {
    const cgp__vocab_source *source = t->source;
    const char *key = NULL;
    json_t *value = NULL;
    json_object_foreach(source->tokens, key, value) CGP_TRY(take_key(t, key, value));
    for (int32_t i = 0; i < source->n_added; i++)
        t->of_id[source->added[i].id] = source->added[i].text;
    CGP_TRY(take_bytes(v, t));
    memset(v->of_byte, 0xff, sizeof v->of_byte);
    if (source->index) CGP_TRY(make_index(v, source->path));
    json_object_foreach(source->tokens, key, value)
        CGP_TRY(take_token(v, t, key, (int32_t)json_integer_value(value)));
    return check_bytes(v, source->path);
}

cgp_status cgp__vocab_take_tokens(cgp__vocab *v, const cgp__vocab_source *source) {
    const size_t n = json_object_size(source->tokens);
    const char *path = source->path;
    if (n > (size_t)(INT32_MAX - 1 - source->n_new))
        return cgp_fail(CGP_EFORMAT, "%s: expected at most %d tokens, got %zu", path, INT32_MAX - 1,
                        n);
    v->size = (int32_t)n + source->n_new;
    v->starts = cgp__calloc((size_t)v->size + 1, sizeof *v->starts);
    if (!v->starts) return cgp__no_memory(path, ((size_t)v->size + 1) * sizeof *v->starts);
    texts t = {.source = source, .n = (int32_t)n};
    t.of_id = cgp__calloc((size_t)v->size + 1, sizeof *t.of_id);
    if (!t.of_id) return cgp__no_memory(path, ((size_t)v->size + 1) * sizeof *t.of_id);
    const cgp_status status = take_texts(v, &t);
    free((void *)t.of_id);
    return status;
}

int32_t cgp__vocab_find(const cgp__vocab *v, const uint8_t *bytes, int64_t size) {
    if (size > v->longest) return -1;
    for (uint64_t slot = cgp__vocab_hash(bytes, size);; slot++) {
        const int32_t id = v->index[slot & v->index_mask];
        if (id < 0) return -1;
        const int64_t start = v->starts[id];
        if (v->starts[id + 1] - start == size && memcmp(v->bytes + start, bytes, (size_t)size) == 0)
            return id;
    }
}

/* --- merges --- */

static cgp_status bad_row(const cgp__merges *m, const char *reason) {
    return cgp_fail(CGP_EFORMAT, "%s: %s %" PRId64 ": %s", m->path, m->unit, m->number, reason);
}

/* Find the id of a token. */
static cgp_status find_token(const cgp__merges *m, const char *token, int32_t *id) {
    const json_t *found = json_object_get(m->tokens, token);
    if (!found)
        return cgp_fail(CGP_EFORMAT,
                        "%s: %s %" PRId64 ": the vocabulary has no token \"%s\" (damaged, or "
                        "the merges of another tokenizer)",
                        m->path, m->unit, m->number, token);
    *id = (int32_t)json_integer_value(found);
    return CGP_OK;
}

cgp_status cgp__vocab_take_merge(cgp__vocab *v, cgp__merges *m, char *row) {
    cgp__pair pair = {.rank = m->rank++};
    char *space = strchr(row, ' ');
    if (!space || space == row || !space[1] || strchr(space + 1, ' '))
        return bad_row(m, "expected two tokens with a space between (damaged)");
    *space = '\0';
    CGP_TRY(find_token(m, row, &pair.left));
    CGP_TRY(find_token(m, space + 1, &pair.right));
    memmove(space, space + 1, strlen(space + 1) + 1);
    CGP_TRY(find_token(m, row, &pair.made));
    cgp__pair *slot = cgp__vocab_slot(v, pair.left, pair.right);
    if (slot->made >= 0)
        return cgp_fail(CGP_EFORMAT,
                        "%s: %s %" PRId64 ": the merge to \"%s\" is there twice (damaged)", m->path,
                        m->unit, m->number, row);
    *slot = pair;
    return CGP_OK;
}

cgp_status cgp__vocab_make_slots(cgp__vocab *v, int64_t merges, const char *path) {
    uint64_t slots = 16;
    while (slots < 2 * (uint64_t)merges)
        slots *= 2;
    v->pairs = cgp__calloc(slots, sizeof *v->pairs);
    if (!v->pairs) return cgp__no_memory(path, slots * sizeof *v->pairs);
    for (uint64_t i = 0; i < slots; i++)
        v->pairs[i].made = -1;
    v->mask = slots - 1;
    return CGP_OK;
}

void cgp__vocab_release(cgp__vocab *v) {
    free(v->pairs);
    free(v->index);
    free(v->starts);
    free(v->bytes);
    *v = (cgp__vocab){0};
}
