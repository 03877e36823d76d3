/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors_write.c -- writes named tensors to a safetensors file.
 *
 *     8 bytes   N, little-endian
 *     N bytes   {"__metadata__":{key:value, ...},
 *                name:{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}, ...}
 *               and spaces, so that the data begin at a multiple of 8 bytes
 *     data      tensor after tensor, in header order, without gaps */
#include <cgpipe/checkpoint.h>

#include "base/base.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/file.h"
#include "checkpoint/internal.h"

#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define MAX_HEADER_BYTES 100000000 /* readers refuse more */

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "numbers are written as they are in memory");

struct cgp_safetensors_writer {
    cgp__file *file;
    char *path;
    json_t *header; /* the header, until it is written */
    int64_t due;    /* bytes of data not appended yet */
};

static cgp_status find_bytes(const char *path, const char *name, cgp_dtype type,
                             const cgp_shape *shape, int64_t *bytes) {
    char text[160];
    *bytes = (int64_t)cgp_dtype_bytes(type);
    if (shape->rank < 0 || shape->rank > CGP_MAX_RANK)
        return cgp_fail(CGP_EINVAL, "%s: tensor \"%s\": rank is at most %d, got %d", path, name,
                        CGP_MAX_RANK, shape->rank);
    for (int i = 0; i < shape->rank; i++) {
        if (shape->dims[i] < 0 || __builtin_mul_overflow(*bytes, shape->dims[i], bytes))
            return cgp_fail(CGP_EINVAL, "%s: tensor \"%s\": not a shape of a tensor, got %s", path,
                            name, cgp_shape_text(shape, text, sizeof text));
    }
    return CGP_OK;
}

/* Check that a key is new and UTF-8. */
static cgp_status check_key(const char *path, const char *what, const json_t *object,
                            const char *key) {
    if (!cgp__is_utf8(key))
        return cgp_fail(CGP_EINVAL, "%s: %s \"%s\" is not UTF-8 text", path, what, key);
    if (json_object_get(object, key))
        return cgp_fail(CGP_EINVAL, "%s: %s \"%s\" comes twice", path, what, key);
    return CGP_OK;
}

cgp_status cgp__safetensors_add_metadata(cgp_safetensors_writer *writer,
                                         const char *const *metadata, int count) {
    const char *path = writer->path;
    json_t *object = json_object();
    if (json_object_set_new(writer->header, "__metadata__", object)) /* fails if `object` is NULL */
        return cgp__no_memory(path, 0);
    for (int i = 0; i < count; i++) {
        const char *key = metadata[2 * i], *value = metadata[2 * i + 1];
        if (!key || !value)
            return cgp_fail(CGP_EINVAL, "%s: metadata: expected keys with values, got NULL", path);
        CGP_TRY(check_key(path, "metadata key", object, key));
        if (!cgp__is_utf8(value))
            return cgp_fail(CGP_EINVAL, "%s: metadata of key \"%s\" are not UTF-8 text", path, key);
        if (json_object_set_new(object, key, json_string(value)))
            return cgp__no_memory(path, strlen(key) + strlen(value));
    }
    return CGP_OK;
}

static const char *name_of(cgp_dtype type) {
    static const char *const names[] = {
        [CGP_F32] = "F32", [CGP_I32] = "I32", [CGP_BF16] = "BF16", [CGP_I64] = "I64"};
    return names[type];
}

cgp_status cgp__safetensors_add(cgp_safetensors_writer *writer, const char *name, cgp_dtype type,
                                const cgp_shape *shape) {
    const char *path = writer->path;
    if (!name) return cgp_fail(CGP_EINVAL, "%s: expected a name for each tensor, got NULL", path);
    if (cgp_dtype_bytes(type) == 0)
        return cgp_fail(CGP_EINVAL, "%s: tensor \"%s\": expected an element type, got number %d",
                        path, name, (int)type);
    if (strcmp(name, "__metadata__") == 0)
        return cgp_fail(CGP_EINVAL, "%s: a tensor cannot be called __metadata__", path);
    CGP_TRY(check_key(path, "tensor", writer->header, name));
    const int64_t begin = writer->due;
    int64_t bytes = 0;
    CGP_TRY(find_bytes(path, name, type, shape, &bytes));
    if (__builtin_add_overflow(begin, bytes, &writer->due))
        return cgp_fail(CGP_EINVAL, "%s: tensor \"%s\" ends above %" PRId64 " bytes", path, name,
                        INT64_MAX);
    json_t *sizes = json_array();
    for (int i = 0; i < shape->rank; i++) {
        if (json_array_append_new(sizes, json_integer(shape->dims[i]))) {
            json_decref(sizes);
            return cgp__no_memory(path, 0);
        }
    }
    /* json_pack() with "o" takes ownership of `sizes`, also on failure */
    json_t *entry = json_pack("{s:s, s:o, s:[I, I]}", "dtype", name_of(type), "shape", sizes,
                              "data_offsets", (json_int_t)begin, (json_int_t)writer->due);
    return json_object_set_new(writer->header, name, entry) ? cgp__no_memory(path, 0) : CGP_OK;
}

static cgp_status write_header(cgp_safetensors_writer *writer) {
    char *text = cgp__json_text(writer->header, JSON_COMPACT);
    if (!text) return cgp__no_memory(writer->path, 0);
    const size_t length = strlen(text);
    const uint64_t rounded = (length + 7) & ~(uint64_t)7;
    if (rounded > MAX_HEADER_BYTES) {
        free(text);
        return cgp_fail(CGP_EINVAL,
                        "%s: header is at most %d bytes, got %" PRIu64 " (fewer or shorter names)",
                        writer->path, MAX_HEADER_BYTES, rounded);
    }
    char *padded = cgp__format("%s%*s", text, (int)(rounded - length), "");
    free(text);
    if (!padded) return cgp__no_memory(writer->path, rounded);
    cgp_status status = cgp__file_write(writer->file, &rounded, sizeof rounded);
    if (status == CGP_OK) status = cgp__file_write(writer->file, padded, rounded);
    free(padded);
    return status;
}

cgp_status cgp__safetensors_begin(cgp_safetensors_writer **out, const char *path) {
    cgp_safetensors_writer *writer = NULL;
    CGP_TRY(CGP__NEW(writer, 1, path));
    writer->path = cgp__strdup(path);
    writer->header = json_object();
    if (!writer->path || !writer->header) {
        cgp_safetensors_abandon(writer);
        return cgp__no_memory(path, strlen(path));
    }
    *out = writer;
    return CGP_OK;
}

cgp_status cgp__safetensors_create_at(cgp_safetensors_writer *writer, int directory,
                                      const char *name) {
    if (directory == AT_FDCWD)
        CGP_TRY(cgp__file_create(&writer->file, writer->path));
    else
        CGP_TRY(cgp__file_create_at(&writer->file, directory, name, writer->path));
    return write_header(writer);
}

cgp_status cgp_safetensors_create(cgp_safetensors_writer **out, const char *path, int count,
                                  const char *const *names, const cgp_dtype *types,
                                  const cgp_shape *shapes, const char *const *metadata,
                                  int n_metadata) {
    CGP__NEED(out);
    CGP__NEED(path);
    if (count > 0) CGP__NEED(names);
    if (count > 0) CGP__NEED(types);
    if (count > 0) CGP__NEED(shapes);
    if (n_metadata > 0) CGP__NEED(metadata);
    if (count < 0 || n_metadata < 0)
        return cgp_fail(CGP_EINVAL, "%s: expected 0 or more tensors and metadata, got %d and %d",
                        path, count, n_metadata);
    cgp_safetensors_writer *writer = NULL;
    CGP_TRY(cgp__safetensors_begin(&writer, path));
    cgp_status status = CGP_OK;
    if (n_metadata > 0) status = cgp__safetensors_add_metadata(writer, metadata, n_metadata);
    for (int i = 0; i < count && status == CGP_OK; i++)
        status = cgp__safetensors_add(writer, names[i], types[i], &shapes[i]);
    if (status == CGP_OK) status = cgp__safetensors_create_at(writer, AT_FDCWD, path);
    if (status == CGP_OK)
        *out = writer;
    else
        cgp_safetensors_abandon(writer);
    return status;
}

cgp_status cgp_safetensors_append(cgp_safetensors_writer *writer, const void *data, size_t bytes) {
    CGP__NEED(writer);
    if (bytes > 0) CGP__NEED(data);
    if (bytes > (uint64_t)writer->due)
        return cgp_fail(CGP_EINVAL, "%s: %" PRId64 " bytes of data are due, got %zu", writer->path,
                        writer->due, bytes);
    CGP_TRY(cgp__file_write(writer->file, data, bytes));
    writer->due -= (int64_t)bytes;
    return CGP_OK;
}

cgp_status cgp_safetensors_commit(cgp_safetensors_writer *writer) {
    CGP__NEED(writer);
    cgp_status status = CGP_OK;
    if (writer->due > 0) {
        status = cgp_fail(
            CGP_ESTATE, "%s: %" PRId64 " bytes of data are missing (cgp_safetensors_append is due)",
            writer->path, writer->due);
    } else {
        status = cgp__file_commit(writer->file);
        writer->file = NULL;
    }
    cgp_safetensors_abandon(writer);
    return status;
}

void cgp_safetensors_abandon(cgp_safetensors_writer *writer) {
    if (!writer) return;
    cgp__file_abandon(writer->file);
    json_decref(writer->header);
    free(writer->path);
    free(writer);
}
