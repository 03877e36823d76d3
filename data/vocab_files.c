/* SPDX-License-Identifier: Apache-2.0 */
/* vocab_files.c -- reads vocab.json and merges.txt.
 *
 *     vocab.json   {"!": 0, ... "\u0120the": 262, ... "<|endoftext|>": 50256}
 *     merges.txt   #version: 0.2
 *                  \u0120 t        rank 0
 *                  \u0120t he      rank 1 */
#include "base/base.h"
#include "base/json.h"
#include "data/files.h"
#include "data/vocab.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BYTES = 1 << 30 }; /* largest size of a file */

/* --- JSON --- */

static cgp_status not_json(const char *path, const uint8_t *text, int64_t size,
                           const cgp__json_error *error) {
    int64_t line = 1, first = 0;
    if (error->refused != CGP_OK) return cgp_fail(error->refused, "%s: %s", path, error->reason);
    if (!error->reason[0]) return cgp__no_memory(path, (size_t)size);
    for (int64_t i = 0; i < size && i < (int64_t)error->byte; i++) {
        if (text[i] != '\n') continue;
        first = i + 1;
        line++;
    }
    return cgp_fail(CGP_EFORMAT, "%s: line %" PRId64 ", byte %" PRId64 ": %s (damaged)", path, line,
                    (int64_t)error->byte - first, error->reason);
}

cgp_status cgp__vocab_load_json(json_t **out, const char *path, const char *expected) {
    uint8_t *text = NULL;
    int64_t size = 0;
    cgp__json_error error;
    cgp_status status = CGP_OK;
    CGP_TRY(cgp__data_file_load(path, expected, MAX_BYTES, &text, &size));
    *out = cgp__json_read((const char *)text, (size_t)size, &error);
    if (!*out) status = not_json(path, text, size, &error);
    free(text);
    return status;
}

static cgp_status take_vocab(cgp__vocab *v, json_t *tokens, const char *path) {
    const cgp__vocab_source source = {.tokens = tokens, .path = path};
    if (!json_is_object(tokens) || json_object_size(tokens) == 0)
        return cgp_fail(CGP_EFORMAT, "%s: line 1: expected an object from tokens to ids, got %s",
                        path, json_is_object(tokens) ? "an empty one" : "a list");
    CGP_TRY(cgp__vocab_take_tokens(v, &source));
    const json_t *last = json_object_get(tokens, "<|endoftext|>");
    v->end_of_text = last ? (int32_t)json_integer_value(last) : -1;
    return CGP_OK;
}

/* --- merges.txt --- */

/* A text that is read row by row. */
typedef struct rows {
    char *text; /* the whole text, NUL-terminated */
    int64_t size, at;
    char *row; /* the current row in `text`, NUL-terminated */
} rows;

static cgp_status bad_line(const cgp__merges *m, const char *reason) {
    return cgp_fail(CGP_EFORMAT, "%s: line %" PRId64 ": %s", m->path, m->number, reason);
}

static cgp_status next_row(rows *r, cgp__merges *m) {
    char *row = r->row = r->text + r->at;
    const char *end = memchr(row, '\n', (size_t)(r->size - r->at));
    size_t length = end ? (size_t)(end - row) : (size_t)(r->size - r->at);
    r->at += (int64_t)length + 1;
    m->number++;
    if (length > 0 && row[length - 1] == '\r') length--;
    if (length >= CGP__MERGE_BYTES)
        return bad_line(m, "expected at most 4095 bytes, got more (damaged)");
    row[length] = '\0';
    if (strlen(row) != length) return bad_line(m, "expected two tokens, got a zero byte (damaged)");
    return CGP_OK;
}

static int64_t count_lines(const rows *r) {
    int64_t lines = 1;
    for (int64_t i = 0; i < r->size; i++)
        lines += r->text[i] == '\n';
    return lines;
}

static cgp_status take_merges(cgp__vocab *v, const json_t *tokens, const char *path) {
    uint8_t *text = NULL;
    rows r = {0};
    cgp__merges m = {.path = path, .unit = "line", .tokens = tokens};
    CGP_TRY(cgp__data_file_load(path, "merges (merges.txt)", MAX_BYTES, &text, &r.size));
    r.text = (char *)text;
    cgp_status status = cgp__vocab_make_slots(v, count_lines(&r), path);
    while (status == CGP_OK && r.at < r.size) {
        status = next_row(&r, &m);
        if (status == CGP_OK && !cgp__merge_is_version(r.row))
            status = cgp__vocab_take_merge(v, &m, r.row);
    }
    free(text);
    return status;
}

/* --- both --- */

cgp_status cgp__vocab_read(cgp__vocab *v, const char *tokens_path, const char *merges_path) {
    json_t *tokens = NULL;
    cgp_status status = cgp__vocab_load_json(&tokens, tokens_path, "a vocabulary (vocab.json)");
    if (status == CGP_OK) status = take_vocab(v, tokens, tokens_path);
    if (status == CGP_OK) status = take_merges(v, tokens, merges_path);
    json_decref(tokens);
    return status;
}
