/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors_read.c -- reads a safetensors file; safetensors_write.c shows the layout.
 *
 * Nothing in the file is trusted. Once the file is open, the following holds:
 *
 * - Names are unique, and every type is known.
 * - Every shape has rank at most CGP_MAX_RANK and sizes of at least 0. The number of bits of a
 *   tensor fits an int64_t.
 * - Every range of bytes has the length that its type and shape need.
 * - Sorted by offset, the ranges follow each other from the first byte of data to the end of the
 *   file.
 *
 * Messages about damage give a byte of the file: byte 0 if the header's length is wrong, byte 8 if
 * the header is wrong, or else a position in the data. */
#include <cgpipe/checkpoint.h>

#include "base/limits.h"
#include "checkpoint/file.h"
#include "checkpoint/internal.h"
#include "base/bf16.h"
#include "base/f16.h"

#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LENGTH_BYTES 8
#define MAX_HEADER_BYTES 100000000 /* the format's own limit */

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "numbers are read as they are in the file");

typedef struct entry {
    const char *name; /* points into `header` */
    const char *type; /* points into `known_types` */
    cgp_shape shape;
    int64_t begin, end; /* byte offsets from the first byte of data */
    int position;       /* position in the header */
} entry;

struct cgp_safetensors {
    char *path;
    const cgp__file_reader *reader; /* `own`, or the caller's reader */
    cgp__file_reader own;
    int64_t file_bytes;
    int64_t data_start; /* offset of the first byte of data in the file */
    json_t *header;     /* owns names and metadata; once the file is open, maps a name to its
                         * index */
    entry *entries;     /* tensors in the order of their offsets */
    int count;
};

/* All types of the format. Another type counts as damage: its size cannot be checked. */
static const struct {
    const char *name;
    int bits;
} known_types[] = {
    {"F32", 32},    {"I32", 32},    {"F64", 64},        {"F16", 16},        {"BF16", 16},
    {"I64", 64},    {"I16", 16},    {"I8", 8},          {"U64", 64},        {"U32", 32},
    {"U16", 16},    {"U8", 8},      {"BOOL", 8},        {"C64", 64},        {"F8_E4M3", 8},
    {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"F6_E2M3", 6},
    {"F6_E3M2", 6}, {"F4", 4},
};

/* Report damage at a byte. `tensor` is the damaged tensor; NULL: no tensor. Messages cut names at
 * 100 bytes. */
static cgp_status damaged(const cgp_safetensors *file, int64_t byte, const entry *tensor,
                          const char *format, ...) CGP_PRINTF(4, 5);

static cgp_status damaged(const cgp_safetensors *file, int64_t byte, const entry *tensor,
                          const char *format, ...) {
    char reason[512];
    va_list args;
    va_start(args, format);
    vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    return cgp_fail(CGP_EFORMAT, "%s: at byte %" PRId64 ": %s%.100s%s%s", file->path, byte,
                    tensor ? "tensor \"" : "", tensor ? tensor->name : "", tensor ? "\": " : "",
                    reason);
}

/* --- one entry of the header --- */

static cgp_status parse_type(const cgp_safetensors *file, entry *tensor, const json_t *json,
                             int64_t *bits) {
    const char *type = json_string_value(json);
    if (!type) return damaged(file, LENGTH_BYTES, tensor, "dtype is missing or not a string");
    for (size_t i = 0; i < sizeof known_types / sizeof known_types[0]; i++) {
        if (strcmp(type, known_types[i].name) == 0) {
            tensor->type = known_types[i].name;
            *bits = known_types[i].bits;
            return CGP_OK;
        }
    }
    return damaged(file, LENGTH_BYTES, tensor, "no dtype of the format, got \"%.20s\"", type);
}

/* Multiply *bits, which holds the bits of one element, by the sizes of the shape. In the overflow
 * check, sizes of 0 count as 1, so that every later product of sizes (a stride) fits too. */
static cgp_status parse_shape(const cgp_safetensors *file, entry *tensor, const json_t *json,
                              int64_t *bits) {
    if (!json_is_array(json))
        return damaged(file, LENGTH_BYTES, tensor, "shape is missing or not a list");
    const size_t rank = json_array_size(json);
    if (rank > CGP_MAX_RANK)
        return damaged(file, LENGTH_BYTES, tensor, "rank is at most %d here, got %zu", CGP_MAX_RANK,
                       rank);
    bool empty = false;
    for (size_t i = 0; i < rank; i++) {
        const json_t *item = json_array_get(json, i);
        const int64_t size = json_is_integer(item) ? json_integer_value(item) : -1;
        if (size < 0)
            return damaged(file, LENGTH_BYTES, tensor,
                           "size %zu of its shape is not an integer of at least 0", i);
        empty = empty || size == 0;
        if (__builtin_mul_overflow(*bits, size ? size : 1, bits))
            return damaged(file, LENGTH_BYTES, tensor, "shape overflows");
        tensor->shape.dims[i] = size;
    }
    tensor->shape.rank = (int)rank;
    if (empty) *bits = 0;
    return CGP_OK;
}

static cgp_status parse_offsets(const cgp_safetensors *file, entry *tensor, const json_t *json) {
    const json_t *begin = json_array_get(json, 0), *end = json_array_get(json, 1);
    if (json_array_size(json) != 2 || !json_is_integer(begin) || !json_is_integer(end))
        return damaged(file, LENGTH_BYTES, tensor, "data_offsets are missing or not two integers");
    tensor->begin = json_integer_value(begin);
    tensor->end = json_integer_value(end);
    if (tensor->begin < 0 || tensor->end < tensor->begin)
        return damaged(file, LENGTH_BYTES, tensor,
                       "data_offsets are no range, got %" PRId64 " to %" PRId64, tensor->begin,
                       tensor->end);
    const int64_t data_bytes = file->file_bytes - file->data_start;
    if (tensor->end > data_bytes)
        return damaged(file, file->file_bytes, NULL,
                       "file ends early: tensor \"%.100s\" needs data to %" PRId64 ", got %" PRId64
                       " bytes",
                       tensor->name, tensor->end, data_bytes);
    return CGP_OK;
}

static cgp_status parse_entry(const cgp_safetensors *file, entry *tensor, const json_t *json) {
    int64_t bits = 0;
    if (!json_is_object(json)) return damaged(file, LENGTH_BYTES, tensor, "is not a JSON object");
    CGP_TRY(parse_type(file, tensor, json_object_get(json, "dtype"), &bits));
    CGP_TRY(parse_shape(file, tensor, json_object_get(json, "shape"), &bits));
    CGP_TRY(parse_offsets(file, tensor, json_object_get(json, "data_offsets")));
    if (bits % 8)
        return damaged(file, LENGTH_BYTES, tensor, "%" PRId64 " bits are not whole bytes", bits);
    if (tensor->end - tensor->begin != bits / 8)
        return damaged(file, file->data_start + tensor->begin, tensor,
                       "type and shape need %" PRId64 " bytes, data_offsets give %" PRId64,
                       bits / 8, tensor->end - tensor->begin);
    return CGP_OK;
}

/* --- the header --- */

static cgp_status read_bytes(const cgp_safetensors *file, int64_t byte, void *data, size_t bytes) {
    size_t got = 0;
    CGP_TRY(cgp__file_reader_read(file->reader, file->path, byte, data, bytes, &got));
    if (got == bytes) return CGP_OK;
    return damaged(file, byte + (int64_t)got, NULL, "file ends early: %zu more bytes expected",
                   bytes - got);
}

static cgp_status parse_json(cgp_safetensors *file, const char *text, size_t length) {
    cgp__json_error error;
    if (length == 0 || text[0] != '{')
        return damaged(file, LENGTH_BYTES, NULL,
                       "header is not a JSON object, which begins with {");
    file->header = cgp__json_read(text, length, &error);
    if (file->header) return CGP_OK;
    if (error.refused == CGP_EFORMAT)
        return damaged(file, LENGTH_BYTES, NULL, "header: %s", error.reason);
    if (error.refused != CGP_OK) return cgp_fail(error.refused, "%s: %s", file->path, error.reason);
    if (!error.reason[0]) return cgp__no_memory(file->path, length);
    return damaged(file, LENGTH_BYTES, NULL, "header is not JSON (byte %zu: %s)",
                   LENGTH_BYTES + error.byte, error.reason);
}

static cgp_status read_header(cgp_safetensors *file) {
    uint64_t length = 0;
    if (file->file_bytes < LENGTH_BYTES)
        return damaged(file, 0, NULL,
                       "file ends early: the header's length takes %d bytes, got %" PRId64,
                       LENGTH_BYTES, file->file_bytes);
    CGP_TRY(read_bytes(file, 0, &length, LENGTH_BYTES));
    if (length > MAX_HEADER_BYTES)
        return damaged(file, 0, NULL,
                       "header is at most %d bytes, got %" PRIu64 " (is it a safetensors file?)",
                       MAX_HEADER_BYTES, length);
    int64_t max = 0;
    CGP_TRY(cgp__limit_get(CGP__LIMIT_HEADER, &max));
    if (length > (uint64_t)max)
        return damaged(file, 0, NULL,
                       "expected a header of at most %" PRId64 " bytes, got %" PRIu64 "%s", max,
                       length, cgp__limit_hint(CGP__LIMIT_HEADER));
    if (length > (uint64_t)(file->file_bytes - LENGTH_BYTES))
        return damaged(file, 0, NULL,
                       "file ends early: the header takes %" PRIu64 " bytes, got %" PRId64, length,
                       file->file_bytes - LENGTH_BYTES);
    file->data_start = LENGTH_BYTES + (int64_t)length;
    char *text = NULL;
    CGP_TRY(CGP__NEW(text, length, file->path));
    cgp_status status = read_bytes(file, LENGTH_BYTES, text, length);
    if (status == CGP_OK) status = parse_json(file, text, length);
    free(text);
    return status;
}

static cgp_status check_metadata(const cgp_safetensors *file, json_t *metadata) {
    const char *key = NULL;
    json_t *value = NULL;
    if (!json_is_object(metadata))
        return damaged(file, LENGTH_BYTES, NULL, "__metadata__ is not a JSON object");
    json_object_foreach(metadata, key, value) {
        if (!json_is_string(value))
            return damaged(file, LENGTH_BYTES, NULL,
                           "__metadata__ of key \"%.100s\" is not a string", key);
    }
    return CGP_OK;
}

static cgp_status parse_entries(cgp_safetensors *file) {
    const char *name = NULL;
    json_t *json = NULL;
    const size_t max = json_object_size(file->header);
    CGP_TRY(CGP__NEW(file->entries, max, file->path));
    json_object_foreach(file->header, name, json) {
        if (strcmp(name, "__metadata__") == 0) {
            CGP_TRY(check_metadata(file, json));
            continue;
        }
        entry *tensor = &file->entries[file->count];
        tensor->name = name;
        tensor->position = file->count++;
        CGP_TRY(parse_entry(file, tensor, json));
    }
    return CGP_OK;
}

/* Compare two tensors by offset. An empty tensor comes before a tensor that begins at the same
 * offset; several empty tensors keep their header order. */
static int by_offset(const void *left, const void *right) {
    const entry *a = left, *b = right;
    if (a->begin != b->begin) return a->begin < b->begin ? -1 : 1;
    if (a->end != b->end) return a->end < b->end ? -1 : 1;
    return a->position < b->position ? -1 : a->position > b->position;
}

/* Sort the entries, and store the index of each name. Entries do not move after this. */
static cgp_status sort_entries(cgp_safetensors *file) {
    qsort(file->entries, (size_t)file->count, sizeof *file->entries, by_offset);
    for (int i = 0; i < file->count; i++) {
        void *at = json_object_key_to_iter(file->entries[i].name);
        if (json_object_iter_set_new(file->header, at, json_integer(i)))
            return cgp__no_memory(file->path, 0);
    }
    return CGP_OK;
}

static cgp_status check_layout(const cgp_safetensors *file) {
    int64_t end = 0;
    for (int i = 0; i < file->count; i++) {
        const entry *tensor = &file->entries[i];
        const int64_t byte = file->data_start + tensor->begin;
        if (tensor->begin < end)
            return damaged(file, byte, NULL, "tensor \"%.100s\" overlaps \"%.100s\"", tensor->name,
                           file->entries[i - 1].name);
        if (tensor->begin > end)
            return damaged(file, file->data_start + end, NULL,
                           "%" PRId64 " bytes before tensor \"%.100s\" belong to none",
                           tensor->begin - end, tensor->name);
        end = tensor->end;
    }
    const int64_t left = file->file_bytes - file->data_start - end;
    if (left > 0)
        return damaged(file, file->data_start + end, NULL,
                       "%" PRId64 " bytes after the last tensor belong to none", left);
    return CGP_OK;
}

/* --- open and close --- */

/* Check the file of `reader`; if `reader` is NULL, check the file of `file->own`. Free everything
 * on failure. */
static cgp_status finish_open(cgp_safetensors **out, cgp_safetensors *file,
                              const cgp__file_reader *reader, cgp_status status) {
    file->reader = reader ? reader : &file->own;
    file->file_bytes = file->reader->bytes;
    if (status == CGP_OK) status = read_header(file);
    if (status == CGP_OK) status = parse_entries(file);
    if (status == CGP_OK) status = sort_entries(file);
    if (status == CGP_OK) status = check_layout(file);
    if (status == CGP_OK)
        *out = file;
    else
        cgp_safetensors_close(file);
    return status;
}

static cgp_status new_file(cgp_safetensors **file, const char *path) {
    CGP_TRY(CGP__NEW(*file, 1, path));
    (*file)->own.fd = -1;
    (*file)->path = cgp__strdup(path);
    return (*file)->path ? CGP_OK : cgp__no_memory(path, strlen(path) + 1);
}

cgp_status cgp__safetensors_open_on(cgp_safetensors **out, const char *path,
                                    const cgp__file_reader *reader) {
    cgp_safetensors *file = NULL;
    const cgp_status status = new_file(&file, path);
    return file ? finish_open(out, file, reader, status) : status;
}

cgp_status cgp_safetensors_open(cgp_safetensors **out, const char *path) {
    CGP__NEED(out);
    CGP__NEED(path);
    cgp_safetensors *file = NULL;
    cgp_status status = new_file(&file, path);
    if (status == CGP_OK)
        status =
            cgp__file_reader_open(&file->own, AT_FDCWD, path, path, "a safetensors file", CGP_EIO);
    return file ? finish_open(out, file, NULL, status) : status;
}

void cgp_safetensors_close(cgp_safetensors *file) {
    if (!file) return;
    cgp__file_reader_close(&file->own);
    free(file->entries);
    json_decref(file->header);
    free(file->path);
    free(file);
}

/* --- contents --- */

static const entry *entry_at(const cgp_safetensors *file, int index) {
    return index >= 0 && index < file->count ? &file->entries[index] : NULL;
}

int cgp_safetensors_count(const cgp_safetensors *file) {
    CGP__NEED_OR(file, 0);
    return file->count;
}

const char *cgp_safetensors_name(const cgp_safetensors *file, int index) {
    CGP__NEED_OR(file, NULL);
    const entry *tensor = entry_at(file, index);
    return tensor ? tensor->name : NULL;
}

const char *cgp_safetensors_type(const cgp_safetensors *file, int index) {
    CGP__NEED_OR(file, NULL);
    const entry *tensor = entry_at(file, index);
    return tensor ? tensor->type : NULL;
}

const cgp_shape *cgp_safetensors_shape(const cgp_safetensors *file, int index) {
    CGP__NEED_OR(file, NULL);
    const entry *tensor = entry_at(file, index);
    return tensor ? &tensor->shape : NULL;
}

const char *cgp_safetensors_metadata(const cgp_safetensors *file, const char *key) {
    CGP__NEED_OR(file, NULL);
    CGP__NEED_OR(key, NULL);
    return json_string_value(json_object_get(json_object_get(file->header, "__metadata__"), key));
}

int cgp_safetensors_find(const cgp_safetensors *file, const char *name) {
    CGP__NEED_OR(file, -1);
    CGP__NEED_OR(name, -1);
    const json_t *index = json_object_get(file->header, name);
    return json_is_integer(index) ? (int)json_integer_value(index) : -1;
}

static bool is_type(const entry *tensor, const char *type) {
    return strcmp(tensor->type, type) == 0;
}

static cgp_status no_such_index(const cgp_safetensors *file, int index) {
    return cgp_fail(CGP_EINVAL, "%s: has %d tensors, got index %d", file->path, file->count, index);
}

cgp_status cgp_safetensors_read(cgp_safetensors *file, int index, void *data) {
    CGP__NEED(file);
    CGP__NEED(data);
    const entry *tensor = entry_at(file, index);
    if (!tensor) return no_such_index(file, index);
    if (!is_type(tensor, "F32") && !is_type(tensor, "I32") && !is_type(tensor, "I64"))
        return cgp_fail(CGP_EINVAL,
                        "%s: tensor \"%.100s\": only F32, I32 and I64 can be read, got %s",
                        file->path, tensor->name, tensor->type);
    return read_bytes(file, file->data_start + tensor->begin, data,
                      (size_t)(tensor->end - tensor->begin));
}

/* Widen 16-bit values, which are in the upper half of `data`. In ascending order, every value is
 * read before it is overwritten. */
static void widen(float *data, int64_t count, float (*widened)(uint16_t)) {
    const char *narrow = (const char *)data + 2 * count;
    for (int64_t i = 0; i < count; i++) {
        uint16_t value;
        memcpy(&value, narrow + 2 * i, sizeof value);
        data[i] = widened(value);
    }
}

cgp_status cgp_safetensors_read_f32(cgp_safetensors *file, int index, float *data) {
    CGP__NEED(file);
    CGP__NEED(data);
    const entry *tensor = entry_at(file, index);
    if (!tensor) return no_such_index(file, index);
    if (is_type(tensor, "F32")) return cgp_safetensors_read(file, index, data);
    const bool bf16 = is_type(tensor, "BF16");
    if (!bf16 && !is_type(tensor, "F16"))
        return cgp_fail(CGP_EINVAL, "%s: tensor \"%.100s\": expected F32, F16 or BF16, got %s",
                        file->path, tensor->name, tensor->type);
    const int64_t bytes = tensor->end - tensor->begin;
    CGP_TRY(
        read_bytes(file, file->data_start + tensor->begin, (char *)data + bytes, (size_t)bytes));
    widen(data, bytes / 2, bf16 ? cgp__bf16_to_float : cgp__f16_to_float);
    return CGP_OK;
}
