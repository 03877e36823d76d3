/* SPDX-License-Identifier: Apache-2.0 */
/* encoder.c -- see encoder.h. */
#include "session/encoder.h"

#include "files.h"
#include "text.h"

#include <cgpipe/data.h>

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 1 << 20, LLM_C_HEADER = 1024 };
enum { LLM_C_MAGIC_UINT32 = 20240801, LLM_C_VERSION_UINT32 = 7 };

/* --- text to tokens --- */

static cgp_status pass(cli_encoder *e, const int32_t *ids, int64_t count) {
    return count > 0 ? e->take(e->user, ids, count) : CGP_OK;
}

/* If requested, pass on the tokens that the tokenizer's template puts before or after a text. */
static cgp_status pass_template(cli_encoder *e,
                                const int32_t *(*side)(const cgp_tokenizer *, int64_t *)) {
    int64_t count = 0;
    const int32_t *ids = side(e->tokenizer, &count);
    return e->special_tokens ? pass(e, ids, count) : CGP_OK;
}

static void grow_piece(cli_encoder *e, size_t used) {
    const size_t capacity = e->capacity ? 2 * e->capacity : PIECE;
    uint8_t *grown = cli_calloc(capacity, 1);
    if (used > 0) memcpy(grown, e->piece, used);
    free(e->piece);
    e->piece = grown;
    e->capacity = capacity;
}

static cgp_status unreadable(const char *name) {
    return cgp_fail(CGP_EIO, "%s: cannot be read (%s)", name, strerror(errno));
}

cgp_status cli_encoder_read(cli_encoder *e, FILE *in, const char *name) {
    size_t used = 0;
    CGP_TRY(pass_template(e, cgp_tokenizer_prefix));
    for (bool end = false, first = true; !end; first = false) {
        if (used == e->capacity) grow_piece(e, used);
        used += fread(e->piece + used, 1, e->capacity - used, in);
        if (ferror(in)) return unreadable(name);
        if (first) CGP_TRY(cgp_data_check_text(name, e->piece, (int64_t)used));
        end = used < e->capacity;
        const size_t cut =
            end ? used : (size_t)cgp_tokenizer_split_point(e->tokenizer, e->piece, (int64_t)used);
        e->tokens.count = 0;
        CGP_TRY(cgp_tokenizer_encode(e->tokenizer, e->piece, (int64_t)cut, &e->tokens));
        CGP_TRY(pass(e, e->tokens.ids, e->tokens.count));
        memmove(e->piece, e->piece + cut, used - cut);
        used -= cut;
        e->bytes += (int64_t)cut;
    }
    CGP_TRY(pass_template(e, cgp_tokenizer_suffix));
    const int32_t last = cgp_tokenizer_end_of_text(e->tokenizer);
    return e->end_of_text ? pass(e, &last, 1) : CGP_OK;
}

cgp_status cli_encoder_file(cli_encoder *e, const char *path) {
    FILE *in = NULL;
    CGP_TRY(cli_file_open(path, &in));
    const cgp_status status = cli_encoder_read(e, in, path);
    fclose(in);
    return status;
}

void cli_encoder_release(cli_encoder *e) {
    free(e->tokens.ids);
    free(e->piece);
    e->tokens = (cgp_token_list){0};
    e->piece = NULL;
}

/* --- tokens to a file --- */

/* Write the `width` lowest bytes of a number, little-endian. */
static void write_word(FILE *out, uint32_t word, size_t width) {
    const uint8_t bytes[4] = {(uint8_t)word, (uint8_t)(word >> 8), (uint8_t)(word >> 16),
                              (uint8_t)(word >> 24)};
    fwrite(bytes, width, 1, out);
}

static cgp_status no_memory(void) {
    return cgp_fail(CGP_ENOMEM, "tokens: out of memory");
}

/* The number of tokens in the header is written at the end. */
cgp_status cli_token_file_begin(cli_token_file *f, int64_t vocab) {
    *f = (cli_token_file){.width = vocab > 65536 ? 4 : 2};
    f->out = open_memstream(&f->bytes, &f->size);
    if (!f->out) return no_memory();
    if (f->width == 2) return CGP_OK;
    write_word(f->out, LLM_C_MAGIC_UINT32, 4);
    write_word(f->out, LLM_C_VERSION_UINT32, 4);
    for (int i = 2; i < LLM_C_HEADER / 4; i++)
        write_word(f->out, 0, 4);
    return CGP_OK;
}

cgp_status cli_token_file_add(cli_token_file *f, const int32_t *ids, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        write_word(f->out, (uint32_t)ids[i], f->width);
    f->count += count;
    return ferror(f->out) ? no_memory() : CGP_OK;
}

cgp_status cli_token_file_end(cli_token_file *f, const char *name) {
    if (fflush(f->out) != 0) return no_memory();
    if (f->width == 2) return CGP_OK;
    if (f->count > INT32_MAX)
        return cgp_fail(CGP_EINVAL,
                        "%s: expected at most %d tokens, as llm.c's header has their number in 4 "
                        "bytes, got %" PRId64 " (several files)",
                        name, INT32_MAX, f->count);
    for (int i = 0; i < 4; i++)
        f->bytes[8 + i] = (char)(f->count >> 8 * i);
    return CGP_OK;
}

void cli_token_file_release(cli_token_file *f) {
    if (f->out) fclose(f->out);
    free(f->bytes);
    *f = (cli_token_file){0};
}
