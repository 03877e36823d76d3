/* SPDX-License-Identifier: Apache-2.0 */
/* text.c -- text files as rows of bytes in memory; windows.c cuts them. */
#include "base/base.h"
#include "data/files.h"
#include "data/windows.h"

#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

/* The bytes of several files, joined. */
typedef struct text_row {
    cgp__data_files files;
    int64_t *sizes; /* [files.n] */
    uint8_t *bytes; /* [total] */
    int64_t total;
} text_row;

typedef struct text_data {
    cgp__windows windows;
    text_row rows[2];
} text_data;

static cgp_status fill(cgp_data *data, cgp_split split, int64_t position, void *input,
                       void *target) {
    text_data *text = (text_data *)data;
    int32_t *tokens = input, *targets = target;
    const cgp__window window = cgp__windows_at(&text->windows, split, position);
    const uint8_t *bytes = text->rows[window.row].bytes + window.first;
    for (int64_t t = 0; t < data->sequence; t++) {
        tokens[t] = bytes[t];
        targets[t] = bytes[t + 1];
    }
    return CGP_OK;
}

static cgp_status identify(const cgp_data *data, cgp__sha256 *hash) {
    const text_data *text = (const text_data *)data;
    CGP_TRY(cgp__windows_identify(&text->windows, hash));
    for (int r = 0; r < 2; r++) {
        const text_row *row = &text->rows[r];
        CGP_TRY(cgp__data_identify(hash, "files %d\n", row->files.n));
        for (int i = 0; i < row->files.n; i++)
            CGP_TRY(cgp__data_identify(hash, "bytes %" PRId64 "\n", row->sizes[i]));
        if (row->total > 0) CGP_TRY(cgp__sha256_add(hash, row->bytes, (size_t)row->total));
    }
    return CGP_OK;
}

static void destroy(cgp_data *data) {
    text_data *text = (text_data *)data;
    for (int r = 0; r < 2; r++) {
        cgp__data_files_release(&text->rows[r].files);
        free(text->rows[r].sizes);
        free(text->rows[r].bytes);
    }
    cgp__windows_release(&text->windows);
    free(text);
}

/* --- loading --- */

/* Sizes of all files, so that the row is allocated once. */
static cgp_status measure(text_row *row, const cgp__window_options *options, int r) {
    CGP_TRY(cgp__data_files_find(&row->files, options->paths[r], options->n_paths[r]));
    const size_t n = (size_t)row->files.n;
    row->sizes = cgp__calloc(n, sizeof *row->sizes);
    if (!row->sizes) return cgp__no_memory("text", n * sizeof *row->sizes);
    for (int i = 0; i < row->files.n; i++) {
        const char *path = row->files.items[i];
        int fd = -1;
        CGP_TRY(cgp__data_file_open(path, "a text file", &fd, &row->sizes[i]));
        close(fd);
        if (row->sizes[i] == 0)
            return cgp_fail(CGP_EINVAL,
                            "%s: is empty (a text needs at least T + 1 = %" PRId64 " bytes)",
                            path, options->sequence + 1);
        if (__builtin_add_overflow(row->total, row->sizes[i], &row->total))
            return cgp_fail(CGP_EINVAL, "%s: the text is longer than %" PRId64 " bytes", path,
                            INT64_MAX);
    }
    return CGP_OK;
}

static cgp_status read_file(const char *path, uint8_t *bytes, int64_t size) {
    int fd = -1;
    int64_t now = 0;
    CGP_TRY(cgp__data_file_open(path, "a text file", &fd, &now));
    const cgp_status status = cgp__data_file_read(path, fd, 0, bytes, size);
    close(fd);
    return status;
}

static cgp_status load(text_row *row) {
    row->bytes = cgp__calloc((size_t)row->total, 1);
    if (!row->bytes) return cgp__no_memory("text", (size_t)row->total);
    uint8_t *end = row->bytes;
    for (int i = 0; i < row->files.n; i++) {
        CGP_TRY(read_file(row->files.items[i], end, row->sizes[i]));
        end += row->sizes[i];
    }
    return CGP_OK;
}

static cgp_status open_text(text_data *text, const cgp__window_options *options) {
    text_row *rows = text->rows;
    const int n_rows = options->n_paths[1] > 0 ? 2 : 1;
    for (int r = 0; r < n_rows; r++)
        CGP_TRY(measure(&rows[r], options, r));
    CGP_TRY(
        cgp__windows_cut(&text->windows, options, (int64_t[2]){rows[0].total, rows[1].total}));
    for (int r = 0; r < n_rows; r++)
        CGP_TRY(load(&rows[r]));
    return CGP_OK;
}

cgp_status cgp_data_text(cgp_data **out, const char *const *paths, int n_paths,
                         const cgp_text_options *options) {
    CGP__NEED(out);
    if (n_paths > 0) CGP__NEED(paths);
    static const cgp__data_kind kind = {
        .name = "text", .fill = fill, .identify = identify, .destroy = destroy};
    const cgp_text_options defaults = cgp_text_options_default();
    if (!options) options = &defaults;
    if (options->struct_size != sizeof *options)
        return cgp_fail(CGP_EINVAL,
                        "text options: expected struct_size %zu, got %zu (start from "
                        "cgp_text_options_default())",
                        sizeof *options, options->struct_size);
    const cgp__window_options common = {
        .name = "text",
        .options = "text options",
        .unit = "bytes",
        .more = "a longer text",
        .vocab = 256,
        .sequence = options->sequence,
        .share = options->validation_fraction,
        .seed = options->seed,
        .paths = {paths, options->validation_paths},
        .n_paths = {n_paths, options->n_validation_paths},
    };
    CGP_TRY(cgp__windows_check(&common));
    text_data *text = cgp__calloc(1, sizeof *text);
    if (!text) return cgp__no_memory("text", sizeof *text);
    text->windows.base.kind = &kind;
    const cgp_status status = open_text(text, &common);
    if (status == CGP_OK)
        *out = &text->windows.base;
    else
        destroy(&text->windows.base);
    return status;
}
