/* SPDX-License-Identifier: Apache-2.0 */
/* tokens.c -- reads files of uint16 and uint32 tokens, as streams on disk; sequences.c cuts the
 * streams.
 *
 *     nanoGPT   t t t t t ...                              uint16 from the first byte
 *     llm.c     magic version n 0 ... 0 | t t t t t ...    256 int32, then n tokens: uint16 for
 *                                                          GPT-2, uint32 for Llama 3
 *
 * All numbers are little-endian. A sequence is read on demand, with pread(), in pieces of at most
 * 64 KiB. If a file becomes shorter, a read fails. (If the file were mapped into memory, the access
 * would end the process.)
 *
 *     stream      [ file 0 ][ file 1 ][        file 2        ]
 *     sequence            [ ... ]        pieces end at files, or when the buffer is full */
#include "data/files.h"
#include "data/kinds.h"
#include "data/sequences.h"

#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

enum { PIECE_BYTES = 65536, HEADER_BYTES = 1024 };
enum { MAGIC_UINT16 = 20240520, MAGIC_EVALUATION = 20240522, MAGIC_UINT32 = 20240801 };

typedef struct token_file {
    char *path;
    int fd;
    int64_t bytes, header; /* size of the file; size of its header, before the first token */
    int64_t first, end;    /* the file has tokens `first` .. `end` - 1 of the stream */
    int width;             /* number of bytes in a token: 2 or 4 */
} token_file;

typedef struct token_stream {
    token_file *files;
    int n; /* number of files with open descriptors */
} token_stream;

typedef struct token_data {
    cgp__sequences sequences;
    token_stream streams[2];
    char contents[65]; /* SHA-256 of the size, beginning and end of each file */
    uint8_t piece[PIECE_BYTES];
} token_data;

/* --- reading --- */

/* For bsearch(): compare the position of a token in a stream with the range of a file. */
static int by_range(const void *token, const void *element) {
    const int64_t at = *(const int64_t *)token;
    const token_file *file = element;
    return at < file->first ? -1 : at >= file->end;
}

static int64_t little_endian(const uint8_t *bytes, int width) {
    const int64_t low = bytes[0] | bytes[1] << 8;
    return width == 2 ? low : low | (int64_t)bytes[2] << 16 | (int64_t)bytes[3] << 24;
}

static int64_t token_at(const token_data *data, const token_file *file, int64_t i) {
    return little_endian(data->piece + file->width * i, file->width);
}

/* Read `count` tokens of a file into data->piece. The first is token `at` of the stream. */
static cgp_status read_piece(token_data *data, const token_file *file, int64_t at, int64_t count) {
    const int64_t vocab = data->sequences.base.vocab;
    const int64_t width = file->width, offset = file->header + width * (at - file->first);
    CGP_TRY(cgp__data_file_read(file->path, file->fd, offset, data->piece, width * count));
    for (int64_t i = 0; i < count; i++) {
        if (token_at(data, file, i) >= vocab)
            return cgp_fail(CGP_EFORMAT,
                            "%s: at byte %" PRId64 ": expected a token below %" PRId64
                            ", got %" PRId64
                            " (a larger vocabulary, or files of its own tokenizer)",
                            file->path, offset + width * i, vocab, token_at(data, file, i));
    }
    return CGP_OK;
}

static cgp_status fill(cgp_data *base, cgp_split split, int64_t position, int64_t index,
                       void *input, void *target) {
    int32_t *tokens = input, *targets = target;
    token_data *data = (token_data *)base;
    int64_t at = 0, count = 0;
    (void)position;
    const token_stream *stream =
        &data->streams[cgp__sequences_at(&data->sequences, split, index, &at)];
    const token_file *file = bsearch(&at, stream->files, (size_t)stream->n, sizeof *file, by_range);
    for (int64_t t = 0; t <= base->sequence; t += count, at += count) {
        if (at == file->end) file++;
        count = cgp__min(file->end - at, base->sequence + 1 - t);
        count = cgp__min(count, PIECE_BYTES / file->width);
        CGP_TRY(read_piece(data, file, at, count));
        for (int64_t i = 0; i < count; i++) {
            /* The token fits an int32, because it is below the vocabulary size. */
            const int32_t token = (int32_t)token_at(data, file, i);
            if (tokens && t + i < base->sequence) tokens[t + i] = token;
            if (targets && t + i > 0) targets[t + i - 1] = token;
        }
    }
    return CGP_OK;
}

/* --- opening --- */

static int32_t word(const uint8_t *bytes) {
    return (int32_t)(uint32_t)little_endian(bytes, 4);
}

static cgp_status damaged(const token_file *file, int64_t offset, const char *expected,
                          int64_t value) {
    return cgp_fail(CGP_EFORMAT, "%s: at byte %" PRId64 ": expected %s, got %" PRId64, file->path,
                    offset, expected, value);
}

/* Read a header of llm.c. It has 256 int32 numbers, and three of them are used. */
static cgp_status read_header(const token_file *file, const uint8_t *header, int64_t *count) {
    if (file->bytes < HEADER_BYTES)
        return damaged(file, file->bytes, "a header of 1024 bytes after llm.c's magic",
                       file->bytes);
    const int32_t version = word(header + 4), stated = word(header + 8);
    if (version != (file->width == 2 ? 1 : 7))
        return damaged(file, 4,
                       file->width == 2 ? "version 1 of llm.c's tokens of 2 bytes"
                                        : "version 7 of llm.c's tokens of 4 bytes",
                       version);
    *count = (file->bytes - HEADER_BYTES) / file->width;
    if (stated < 1) return damaged(file, 8, "at least 1 token", stated);
    const int64_t needed = HEADER_BYTES + file->width * (int64_t)stated;
    if (needed == file->bytes) return CGP_OK;
    return cgp_fail(CGP_EFORMAT,
                    "%s: at byte 8: expected a number of tokens that fits %" PRId64
                    " bytes, got %d, which needs %" PRId64 " (a file cut short, or damaged)",
                    file->path, file->bytes, stated, needed);
}

/* Find the format from the first four bytes, and count the tokens. */
static cgp_status recognise(token_file *file, int64_t *count) {
    uint8_t start[12] = {0};
    const int64_t there = cgp__min(file->bytes, sizeof start);
    CGP_TRY(cgp__data_file_read(file->path, file->fd, 0, start, there));
    const int32_t magic = word(start);
    file->width = magic == MAGIC_UINT32 ? 4 : 2;
    if (magic == MAGIC_EVALUATION)
        return damaged(file, 0, "tokens, not llm.c's evaluation examples", magic);
    if (magic == MAGIC_UINT16 || magic == MAGIC_UINT32) {
        file->header = HEADER_BYTES;
        return read_header(file, start, count);
    }
    CGP_TRY(cgp__data_expect_tokens(file->path, file->fd, file->bytes));
    *count = file->bytes / 2;
    if (file->bytes % 2)
        return damaged(file, file->bytes - 1, "an even number of bytes, 2 a token", file->bytes);
    return CGP_OK;
}

/* Add the file's size and its first and last 64 KiB to the hash. */
static cgp_status add_contents(token_data *data, const token_file *file, cgp__sha256 *hash) {
    const int64_t count = file->bytes < PIECE_BYTES ? file->bytes : PIECE_BYTES;
    CGP_TRY(cgp__data_identify(hash, "bytes %" PRId64 "\n", file->bytes));
    CGP_TRY(cgp__data_file_read(file->path, file->fd, 0, data->piece, count));
    CGP_TRY(cgp__sha256_add(hash, data->piece, (size_t)count));
    CGP_TRY(cgp__data_file_read(file->path, file->fd, file->bytes - count, data->piece, count));
    return cgp__sha256_add(hash, data->piece, (size_t)count);
}

/* Open the next file of a stream. The stream owns the file at once, so that close_tokens() closes
 * the file. */
static cgp_status open_file(token_data *data, token_stream *stream, const char *path,
                            int64_t *total, cgp__sha256 *hash) {
    token_file *file = &stream->files[stream->n];
    int64_t count = 0;
    CGP_TRY(cgp__data_file_open(path, "a file of tokens", &file->fd, &file->bytes));
    stream->n++;
    file->path = cgp__strdup(path);
    if (!file->path) return cgp__no_memory("tokens", 1);
    if (file->bytes == 0)
        return cgp_fail(CGP_EINVAL, "%s: is empty, expected tokens of 2 bytes", path);
    CGP_TRY(recognise(file, &count));
    file->first = *total;
    if (__builtin_add_overflow(*total, count, total))
        return cgp_fail(CGP_EINVAL, "%s: there are more than %" PRId64 " tokens", path, INT64_MAX);
    file->end = *total;
    return add_contents(data, file, hash);
}

static cgp_status open_streams(token_data *data, const cgp__sequence_options *options,
                               cgp__sha256 *hash) {
    int64_t totals[2] = {0, 0};
    for (int k = 0; k < 2; k++) {
        const int n = options->n_paths[k];
        CGP_TRY(cgp__data_identify(hash, "files %d\n", n));
        if (n == 0) continue;
        data->streams[k].files = cgp__calloc((size_t)n, sizeof(token_file));
        if (!data->streams[k].files)
            return cgp__no_memory("tokens", (size_t)n * sizeof(token_file));
        for (int i = 0; i < n; i++)
            CGP_TRY(open_file(data, &data->streams[k], options->paths[k][i], &totals[k], hash));
    }
    CGP_TRY(cgp__sequences_cut(&data->sequences, options, totals));
    return cgp__sha256_finish(hash, data->contents);
}

/* --- identity, open, close --- */

static cgp_status identify(const cgp_data *base, cgp__sha256 *hash) {
    const token_data *data = (const token_data *)base;
    CGP_TRY(cgp__sequences_identify(&data->sequences, hash));
    return cgp__data_identify(hash, "contents %s\n", data->contents);
}

static void close_tokens(cgp_data *base) {
    token_data *data = (token_data *)base;
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < data->streams[k].n; i++) {
            close(data->streams[k].files[i].fd);
            free(data->streams[k].files[i].path);
        }
        free(data->streams[k].files);
    }
}

static cgp_status open_tokens(cgp_data *data, const void *options) {
    cgp__sha256 *hash = NULL;
    CGP_TRY(cgp__sha256_create(&hash));
    const cgp_status status = open_streams((token_data *)data, options, hash);
    cgp__sha256_destroy(hash);
    return status;
}

cgp_status cgp_data_tokens(cgp_data **out, const char *const *paths, int n_paths,
                           const cgp_token_options *options) {
    CGP__NEED(out);
    if (n_paths > 0) CGP__NEED(paths);
    static const cgp__data_kind kind = {.name = "tokens",
                                        .size = sizeof(token_data),
                                        .open = open_tokens,
                                        .fill = fill,
                                        .identify = identify,
                                        .close = close_tokens};
    const cgp_token_options defaults = cgp_token_options_default();
    if (!options) options = &defaults;
    CGP_TRY(cgp__data_check_size(options, sizeof *options, "token options"));
    CGP_TRY(
        cgp__data_check_range("token options", "vocabulary is", "", options->vocab, 1, INT32_MAX));
    static const cgp__sequence_words words = {"tokens", "token options", "tokens", "more tokens"};
    return cgp__sequences_open(out, &kind, &words, options, paths, n_paths);
}
