/* SPDX-License-Identifier: Apache-2.0 */
/* text.c -- reads text files into streams of bytes in memory; sequences.c cuts the streams. */
#include "data/files.h"
#include "data/kinds.h"
#include "data/sequences.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The bytes of several files, joined. */
typedef struct text_stream {
    cgp__data_files files;
    int64_t *sizes; /* [files.n] */
    uint8_t *bytes; /* [total] */
    int64_t total;
} text_stream;

typedef struct text_data {
    cgp__sequences sequences;
    text_stream streams[2];
} text_data;

static cgp_status fill(cgp_data *data, cgp_split split, int64_t position, int64_t index,
                       void *input, void *target) {
    const text_data *text = (const text_data *)data;
    int32_t *tokens = input, *targets = target;
    int64_t first = 0;
    (void)position;
    const int stream = cgp__sequences_at(&text->sequences, split, index, &first);
    const uint8_t *bytes = text->streams[stream].bytes + first;
    for (int64_t t = 0; t < data->sequence; t++) {
        if (tokens) tokens[t] = bytes[t];
        if (targets) targets[t] = bytes[t + 1];
    }
    return CGP_OK;
}

static cgp_status identify(const cgp_data *data, cgp__sha256 *hash) {
    const text_data *text = (const text_data *)data;
    CGP_TRY(cgp__sequences_identify(&text->sequences, hash));
    for (int k = 0; k < 2; k++) {
        const text_stream *stream = &text->streams[k];
        CGP_TRY(cgp__data_identify(hash, "files %d\n", stream->files.n));
        for (int i = 0; i < stream->files.n; i++)
            CGP_TRY(cgp__data_identify(hash, "bytes %" PRId64 "\n", stream->sizes[i]));
        if (stream->total > 0) CGP_TRY(cgp__sha256_add(hash, stream->bytes, (size_t)stream->total));
    }
    return CGP_OK;
}

static void close_text(cgp_data *data) {
    text_data *text = (text_data *)data;
    for (int k = 0; k < 2; k++) {
        cgp__data_files_release(&text->streams[k].files);
        free(text->streams[k].sizes);
        free(text->streams[k].bytes);
    }
}

/* --- loading --- */

/* Refuse a .bin file in a directory, because token files have such names: nanoGPT's train.bin and
 * val.bin, and the shards of llm.c. */
static cgp_status refuse_token_files(const cgp__data_files *files, const char *const *paths,
                                     int n_paths) {
    for (int i = 0; i < files->n; i++) {
        const char *path = files->items[i];
        const size_t length = strlen(path);
        bool named = false;
        for (int p = 0; p < n_paths; p++)
            named = named || strcmp(paths[p], path) == 0;
        if (named || length < 4 || strcmp(path + length - 4, ".bin") != 0) continue;
        const bool train = length > 9 && strcmp(path + length - 10, "/train.bin") == 0;
        return cgp_fail(CGP_EINVAL,
                        "%s: is a token file by its name, expected text in a directory (--data "
                        "%s%s%.*s%s)",
                        path, path, train ? " --validation " : "", train ? (int)length - 9 : 0,
                        path, train ? "val.bin" : "");
    }
    return CGP_OK;
}

/* Open a file, and refuse it if it is not text. */
static cgp_status open_text_file(const char *path, int *fd, int64_t *bytes) {
    CGP_TRY(cgp__data_file_open(path, "a text file", fd, bytes));
    const cgp_status status = cgp__data_expect_text(path, *fd, *bytes);
    if (status != CGP_OK) close(*fd);
    return status;
}

/* Find the sizes of all files, so that the stream is allocated once. */
static cgp_status measure(text_stream *stream, const cgp__sequence_options *options, int k) {
    CGP_TRY(cgp__data_files_find(&stream->files, options->paths[k], options->n_paths[k]));
    CGP_TRY(refuse_token_files(&stream->files, options->paths[k], options->n_paths[k]));
    const size_t n = (size_t)stream->files.n;
    stream->sizes = cgp__calloc(n, sizeof *stream->sizes);
    if (!stream->sizes) return cgp__no_memory("text", n * sizeof *stream->sizes);
    for (int i = 0; i < stream->files.n; i++) {
        const char *path = stream->files.items[i];
        int fd = -1;
        CGP_TRY(open_text_file(path, &fd, &stream->sizes[i]));
        close(fd);
        if (stream->sizes[i] == 0)
            return cgp_fail(CGP_EINVAL,
                            "%s: is empty (a text needs at least T + 1 = %" PRId64 " bytes)", path,
                            options->o.sequence + 1);
        if (__builtin_add_overflow(stream->total, stream->sizes[i], &stream->total))
            return cgp_fail(CGP_EINVAL, "%s: the text is longer than %" PRId64 " bytes", path,
                            INT64_MAX);
    }
    return CGP_OK;
}

static cgp_status load(text_stream *stream) {
    stream->bytes = cgp__calloc((size_t)stream->total, 1);
    if (!stream->bytes) return cgp__no_memory("text", (size_t)stream->total);
    uint8_t *end = stream->bytes;
    for (int i = 0; i < stream->files.n; i++) {
        const char *path = stream->files.items[i];
        int fd = -1;
        int64_t now = 0;
        CGP_TRY(cgp__data_file_open(path, "a text file", &fd, &now));
        const cgp_status status = cgp__data_file_read(path, fd, 0, end, stream->sizes[i]);
        close(fd);
        CGP_TRY(status);
        end += stream->sizes[i];
    }
    return CGP_OK;
}

static cgp_status open_text(cgp_data *data, const void *o) {
    text_data *text = (text_data *)data;
    text_stream *streams = text->streams;
    const cgp__sequence_options *options = o;
    const int n_streams = options->n_paths[1] > 0 ? 2 : 1;
    for (int k = 0; k < n_streams; k++)
        CGP_TRY(measure(&streams[k], options, k));
    CGP_TRY(cgp__sequences_cut(&text->sequences, options,
                               (int64_t[2]){streams[0].total, streams[1].total}));
    for (int k = 0; k < n_streams; k++)
        CGP_TRY(load(&streams[k]));
    return CGP_OK;
}

cgp_status cgp_data_text(cgp_data **out, const char *const *paths, int n_paths,
                         const cgp_text_options *options) {
    CGP__NEED(out);
    if (n_paths > 0) CGP__NEED(paths);
    static const cgp__data_kind kind = {.name = "text",
                                        .size = sizeof(text_data),
                                        .open = open_text,
                                        .fill = fill,
                                        .identify = identify,
                                        .close = close_text};
    const cgp_text_options defaults = cgp_text_options_default();
    if (!options) options = &defaults;
    CGP_TRY(cgp__data_check_size(options, sizeof *options, "text options"));
    static const cgp__sequence_words words = {"text", "text options", "bytes", "a longer text"};
    const cgp_token_options as_tokens = {.sequence = options->sequence,
                                         .vocab = 256,
                                         .validation_fraction = options->validation_fraction,
                                         .validation_paths = options->validation_paths,
                                         .n_validation_paths = options->n_validation_paths,
                                         .seed = options->seed};
    return cgp__sequences_open(out, &kind, &words, &as_tokens, paths, n_paths);
}

/* --- names --- */

/* Copy the names into one block: the pointers, then the characters. */
static cgp_status copy_names(char ***out, const cgp__data_files *files) {
    const size_t pointers = (size_t)files->n * sizeof(char *);
    size_t size = pointers;
    for (int i = 0; i < files->n; i++)
        size += strlen(files->items[i]) + 1;
    char **names = cgp__calloc(size, 1);
    if (!names) return cgp__no_memory("list of files", size);
    char *end = (char *)names + pointers;
    for (int i = 0; i < files->n; i++) {
        const size_t bytes = strlen(files->items[i]) + 1;
        names[i] = memcpy(end, files->items[i], bytes);
        end += bytes;
    }
    *out = names;
    return CGP_OK;
}

cgp_status cgp_data_text_files(char ***files, int *n_files, const char *const *paths, int n_paths) {
    CGP__NEED(files);
    CGP__NEED(n_files);
    if (n_paths < 1) return cgp_fail(CGP_EINVAL, "data: expected at least 1 path, got %d", n_paths);
    CGP__NEED(paths);
    cgp__data_files found = {0};
    cgp_status status = cgp__data_files_find(&found, paths, n_paths);
    if (status == CGP_OK) status = refuse_token_files(&found, paths, n_paths);
    if (status == CGP_OK) status = copy_names(files, &found);
    if (status == CGP_OK) *n_files = found.n;
    cgp__data_files_release(&found);
    return status;
}
