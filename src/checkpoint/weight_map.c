/* SPDX-License-Identifier: Apache-2.0 */
/* weight_map.c -- reads and writes the index of shards, in the format of Hugging Face's libraries:
 *
 *     {
 *      "metadata": {"total_size": 548090880},       bytes of all tensors
 *      "weight_map": {"transformer.wte.weight": "model-00001-of-00002.safetensors", ...}
 *     }
 *
 * A reader finds the shard of a tensor by opening the shards. The index must name the same
 * shard. */
#include "checkpoint/internal.h"

#include "base/base.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct cgp__weight_map {
    json_t *files; /* the file of each tensor */
    int64_t bytes;
};

cgp_status cgp__weight_map_create(cgp__weight_map **out) {
    cgp__weight_map *map = NULL;
    CGP_TRY(CGP__NEW(map, 1, CGP__INDEX));
    map->files = json_object();
    if (map->files) {
        *out = map;
        return CGP_OK;
    }
    free(map);
    return cgp__no_memory(CGP__INDEX, sizeof *map);
}

void cgp__weight_map_destroy(cgp__weight_map *map) {
    if (!map) return;
    json_decref(map->files);
    free(map);
}

cgp_status cgp__weight_map_add(cgp__weight_map *map, const char *tensor, const char *file,
                               size_t bytes) {
    if (json_object_set_new(map->files, tensor, json_string(file)))
        return cgp__no_memory(CGP__INDEX, strlen(tensor) + strlen(file));
    map->bytes += (int64_t)bytes;
    return CGP_OK;
}

cgp_status cgp__weight_map_write(const cgp__weight_map *map, cgp__checkpoint_writer *writer) {
    const cgp__path_text path = cgp__checkpoint_file(writer, CGP__INDEX);
    json_t *root = json_pack("{s:{s:I}, s:O}", "metadata", "total_size", (json_int_t)map->bytes,
                             "weight_map", map->files);
    char *text = root ? cgp__json_text(root, JSON_INDENT(1)) : NULL;
    cgp_status status = text ? cgp_file_replace_at(cgp__checkpoint_directory(writer), CGP__INDEX,
                                                   path.text, text, strlen(text))
                             : cgp__no_memory(path.text, json_object_size(map->files));
    if (status == CGP_OK) status = cgp__checkpoint_add(writer, CGP__INDEX);
    free(text);
    json_decref(root);
    return status;
}

/* --- reading --- */

static cgp_status read_index(const cgp__checkpoint *checkpoint, const char *path, json_t **root) {
    cgp__json_error error;
    char *text = NULL;
    size_t length = 0;
    cgp_status status = cgp__checkpoint_text(checkpoint, CGP__INDEX, &text, &length);
    if (status == CGP_OK) {
        *root = cgp__json_read(text, length, &error);
        if (!*root && error.refused != CGP_OK)
            status = cgp_fail(error.refused, "%s: %s", path, error.reason);
        else if (!*root && !error.reason[0])
            status = cgp__no_memory(path, length);
        else if (!*root)
            status = cgp_fail(CGP_EFORMAT, "%s: is not JSON (byte %zu: %s)", path, error.byte,
                              error.reason);
    }
    free(text);
    return status;
}

/* Check that each tensor has the same file in `expected` and in `got`; both are objects. */
static cgp_status compare(const char *path, json_t *expected, json_t *got) {
    const char *tensor = NULL;
    json_t *value = NULL;
    json_object_foreach(expected, tensor, value) {
        const char *file = json_string_value(json_object_get(got, tensor));
        if (!file || strcmp(file, json_string_value(value)) != 0)
            return cgp_fail(CGP_EFORMAT,
                            "%s: weight_map: \"%.200s\": expected %s, which has it, got %.80s",
                            path, tensor, json_string_value(value), file ? file : "no file");
    }
    json_object_foreach(got, tensor, value) {
        if (!json_object_get(expected, tensor))
            return cgp_fail(CGP_EFORMAT, "%s: weight_map: \"%.200s\" is in no file", path, tensor);
    }
    return CGP_OK;
}

static cgp_status check_root(const cgp__weight_map *map, const char *path, const json_t *root) {
    json_t *files = json_object_get(root, "weight_map");
    const json_t *bytes = json_object_get(json_object_get(root, "metadata"), "total_size");
    if (!json_is_object(files))
        return cgp_fail(CGP_EFORMAT, "%s: weight_map: expected names with their files", path);
    CGP_TRY(compare(path, map->files, files));
    if (json_is_integer(bytes) && json_integer_value(bytes) == map->bytes) return CGP_OK;
    return cgp_fail(CGP_EFORMAT,
                    "%s: metadata: total_size: expected %" PRId64 ", got %" JSON_INTEGER_FORMAT,
                    path, map->bytes, json_integer_value(bytes));
}

cgp_status cgp__weight_map_check(const cgp__weight_map *map, const cgp__checkpoint *checkpoint) {
    const cgp__path_text path = cgp__path_text_of(cgp__checkpoint_path(checkpoint), CGP__INDEX);
    json_t *root = NULL;
    cgp_status status = read_index(checkpoint, path.text, &root);
    if (status == CGP_OK) status = check_root(map, path.text, root);
    json_decref(root);
    return status;
}
