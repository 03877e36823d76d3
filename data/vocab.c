/* SPDX-License-Identifier: Apache-2.0 */
/* vocab.c -- vocab.json and merges.txt, read strictly.
 *
 *     vocab.json   {"!": 0, ... "\u0120the": 262, ... "<|endoftext|>": 50256}
 *     merges.txt   #version: 0.2
 *                  \u0120 t        rank 0
 *                  \u0120t he      rank 1: makes the token "\u0120the"
 *
 * Tokens of a merge are looked up in the JSON object in their printed form: each byte has one character, so the printed form
 * of a merge is that of both tokens, joined. */
#include "data/vocab.h"

#include "base/base.h"
#include "base/json.h"
#include "data/files.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_BYTES = 1 << 30, /* of a file */
    LINE_BYTES = 4096,   /* the longest line of merges, with its end */
    PRINTABLE = 256      /* the first character that stands for another byte */
};

static const char end_of_text[] = "<|endoftext|>";

/* --- printed tokens --- */

/* The byte that a character stands for, -1 if none. The others, in order: 0 .. 0x20, 0x7f .. 0xa0,
 * 0xad. */
static int byte_of(int character) {
    const int other = character - PRINTABLE;
    if (other >= 68) return -1;
    if (other == 67) return 0xad;
    if (other >= 33) return other - 33 + 0x7f;
    if (other >= 0) return other;
    const bool itself = (character >= 0x21 && character <= 0x7e) || character >= 0xa1;
    return itself && character != 0xad ? character : -1;
}

/* Write the bytes of a token, none if `bytes` is NULL; return their number, -1 if a character stands for none. `text` is UTF-8:
 * a character below U+0144 has at most two bytes. */
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

/* --- vocab.json --- */

static cgp_status not_json(const char *path, const uint8_t *text, int64_t size,
                           const cgp__json_error *error) {
    int64_t line = 1, first = 0;
    if (error->refused != CGP_OK)
        return cgp_fail(error->refused, "%s: %s", path, error->reason);
    if (!error->reason[0]) return cgp__no_memory(path, (size_t)size);
    for (int64_t i = 0; i < size && i < (int64_t)error->byte; i++) {
        if (text[i] != '\n') continue;
        first = i + 1;
        line++;
    }
    return cgp_fail(CGP_EFORMAT, "%s: line %" PRId64 ", byte %" PRId64 ": %s (damaged)", path,
                    line, (int64_t)error->byte - first, error->reason);
}

/* Read the file as a JSON object: *out, owned by the caller, also after a failure. */
static cgp_status read_object(json_t **out, const char *path) {
    uint8_t *text = NULL;
    int64_t size = 0;
    cgp__json_error error;
    cgp_status status = CGP_OK;
    CGP_TRY(cgp__data_file_load(path, "a vocabulary (vocab.json)", MAX_BYTES, &text, &size));
    *out = cgp__json_read((const char *)text, (size_t)size, &error);
    if (!*out)
        status = not_json(path, text, size, &error);
    else if (!json_is_object(*out) || json_object_size(*out) == 0)
        status =
            cgp_fail(CGP_EFORMAT, "%s: line 1: expected an object from tokens to ids, got %s",
                     path, json_is_object(*out) ? "an empty one" : "a list");
    free(text);
    return status;
}

/* Store the length of a token + 1 at the index of its end: 0 is none yet. */
static cgp_status measure_token(cgp__vocab *v, const char *key, const json_t *value,
                                const char *path) {
    const int64_t length = token_bytes(key, NULL), id = json_integer_value(value);
    if (length < 1)
        return cgp_fail(CGP_EFORMAT,
                        "%s: token \"%s\": expected characters that stand for bytes, got %s",
                        path, key, length ? "another (a tokenizer of another kind?)" : "none");
    if (!json_is_integer(value))
        return cgp_fail(CGP_EFORMAT, "%s: token \"%s\": expected an id, got no whole number",
                        path, key);
    if (id < 0 || id >= v->size)
        return cgp_fail(CGP_EFORMAT,
                        "%s: token \"%s\": expected an id below %d, the number of tokens, got "
                        "%" PRId64,
                        path, key, v->size, id);
    if (v->starts[id + 1])
        return cgp_fail(CGP_EFORMAT, "%s: token \"%s\": its id %" PRId64 " is there twice",
                        path, key, id);
    v->starts[id + 1] = length + 1;
    return CGP_OK;
}

/* Find the token of each byte. */
static cgp_status find_bytes(cgp__vocab *v, const char *path) {
    for (int i = 0; i < 256; i++)
        v->of_byte[i] = -1;
    for (int32_t id = 0; id < v->size; id++) {
        if (v->starts[id + 1] - v->starts[id] == 1) v->of_byte[v->bytes[v->starts[id]]] = id;
    }
    for (int i = 0; i < 256; i++) {
        if (v->of_byte[i] < 0)
            return cgp_fail(CGP_EFORMAT,
                            "%s: expected a token for each byte, got none for 0x%02x (a "
                            "tokenizer that is not byte-level, or damaged)",
                            path, (unsigned)i);
    }
    return CGP_OK;
}

static cgp_status take_tokens(cgp__vocab *v, json_t *tokens, const char *path) {
    const size_t n = json_object_size(tokens);
    const char *key = NULL;
    json_t *value = NULL;
    if (n > INT32_MAX - 1)
        return cgp_fail(CGP_EFORMAT, "%s: expected at most %d tokens, got %zu", path,
                        INT32_MAX - 1, n);
    v->size = (int32_t)n;
    v->starts = cgp__calloc(n + 1, sizeof *v->starts);
    if (!v->starts) return cgp__no_memory(path, (n + 1) * sizeof *v->starts);
    json_object_foreach(tokens, key, value) CGP_TRY(measure_token(v, key, value, path));
    for (size_t i = 0; i < n; i++)
        v->starts[i + 1] += v->starts[i] - 1; /* n distinct ids below n: each is there */
    v->bytes = cgp__calloc((size_t)v->starts[n], 1);
    if (!v->bytes) return cgp__no_memory(path, (size_t)v->starts[n]);
    json_object_foreach(tokens, key, value)(void)
        token_bytes(key, v->bytes + v->starts[json_integer_value(value)]);
    const json_t *last = json_object_get(tokens, end_of_text);
    v->end_of_text = last ? (int32_t)json_integer_value(last) : -1;
    return find_bytes(v, path);
}

/* --- merges.txt --- */

/* The state of reading merges.txt. */
typedef struct merges {
    const char *path;
    char *text;             /* a 0 behind it */
    int64_t size, at, line; /* line: the number of the one below, from 1 */
    char *row;              /* in the text; its end is 0 */
    const json_t *tokens;
    int32_t rank;
} merges;

static cgp_status bad_line(const merges *m, const char *reason) {
    return cgp_fail(CGP_EFORMAT, "%s: line %" PRId64 ": %s", m->path, m->line, reason);
}

static cgp_status next_row(merges *m) {
    char *row = m->row = m->text + m->at;
    const char *end = memchr(row, '\n', (size_t)(m->size - m->at));
    size_t length = end ? (size_t)(end - row) : (size_t)(m->size - m->at);
    m->at += (int64_t)length + 1;
    m->line++;
    if (length > 0 && row[length - 1] == '\r') length--;
    if (length >= LINE_BYTES)
        return bad_line(m, "expected at most 4095 bytes, got more (damaged)");
    row[length] = '\0';
    if (strlen(m->row) != length)
        return bad_line(m, "expected two tokens, got a zero byte (damaged)");
    return CGP_OK;
}

/* The id of a token, *id. */
static cgp_status find_token(const merges *m, const char *token, int32_t *id) {
    const json_t *found = json_object_get(m->tokens, token);
    if (!found)
        return cgp_fail(CGP_EFORMAT,
                        "%s: line %" PRId64 ": the vocabulary has no token \"%s\" (damaged, or "
                        "the merges of another tokenizer)",
                        m->path, m->line, token);
    *id = (int32_t)json_integer_value(found);
    return CGP_OK;
}

/* Take the row as a merge, the next in rank. */
static cgp_status take_row(cgp__vocab *v, merges *m) {
    cgp__pair pair = {.rank = m->rank++};
    char *space = strchr(m->row, ' ');
    if (!space || space == m->row || !space[1] || strchr(space + 1, ' '))
        return bad_line(m, "expected two tokens with a space between (damaged)");
    *space = '\0';
    CGP_TRY(find_token(m, m->row, &pair.left));
    CGP_TRY(find_token(m, space + 1, &pair.right));
    memmove(space, space + 1, strlen(space + 1) + 1);
    CGP_TRY(find_token(m, m->row, &pair.made));
    cgp__pair *slot = cgp__vocab_slot(v, pair.left, pair.right);
    if (slot->made >= 0)
        return cgp_fail(CGP_EFORMAT,
                        "%s: line %" PRId64 ": the merge to \"%s\" is there twice (damaged)",
                        m->path, m->line, m->row);
    *slot = pair;
    return CGP_OK;
}

/* Allocate twice as many slots as there are lines. */
static cgp_status make_slots(cgp__vocab *v, const merges *m) {
    uint64_t lines = 1, slots = 16;
    for (int64_t i = 0; i < m->size; i++)
        lines += m->text[i] == '\n';
    while (slots < 2 * lines)
        slots *= 2;
    v->pairs = cgp__calloc(slots, sizeof *v->pairs);
    if (!v->pairs) return cgp__no_memory(m->path, slots * sizeof *v->pairs);
    for (uint64_t i = 0; i < slots; i++)
        v->pairs[i].made = -1;
    v->mask = slots - 1;
    return CGP_OK;
}

static cgp_status take_merges(cgp__vocab *v, const json_t *tokens, const char *path) {
    static const char version[] = "#version";
    uint8_t *text = NULL;
    merges m = {.path = path, .tokens = tokens};
    CGP_TRY(cgp__data_file_load(path, "merges (merges.txt)", MAX_BYTES, &text, &m.size));
    m.text = (char *)text;
    cgp_status status = make_slots(v, &m);
    while (status == CGP_OK && m.at < m.size) {
        status = next_row(&m);
        const bool skipped = strncmp(m.row, version, sizeof version - 1) == 0;
        if (status == CGP_OK && !skipped) status = take_row(v, &m);
    }
    free(text);
    return status;
}

/* --- both --- */

cgp_status cgp__vocab_read(cgp__vocab *v, const char *tokens_path, const char *merges_path) {
    json_t *tokens = NULL;
    cgp_status status = read_object(&tokens, tokens_path);
    if (status == CGP_OK) status = take_tokens(v, tokens, tokens_path);
    if (status == CGP_OK) status = take_merges(v, tokens, merges_path);
    json_decref(tokens);
    return status;
}

void cgp__vocab_release(cgp__vocab *v) {
    free(v->pairs);
    free(v->starts);
    free(v->bytes);
    *v = (cgp__vocab){0};
}
