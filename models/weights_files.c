/* SPDX-License-Identifier: Apache-2.0 */
/* weights_files.c -- opens the files of published weights, see weights_files.h. The index of
 * weights in several files is:
 *
 *     {"metadata": {"total_size": 548090880},
 *      "weight_map": {"transformer.wte.weight": "model-00001-of-00002.safetensors", ...}} */
#include "weights_files.h"

#include "base/json.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SINGLE "model.safetensors"
#define INDEX "model.safetensors.index.json"
/* Largest size of an index in bytes, enough for about 100,000 names. Parsing a malicious text takes
 * up to 150 times its size in memory. */
#define LARGEST_INDEX 16000000
#define MAX_FILES 4096

/* --- names, memory, JSON --- */

char *cgp__path_in(const char *directory, const char *name) {
    const size_t size = strlen(directory) + strlen(name) + 2;
    char *path = malloc(size);
    if (path) snprintf(path, size, "%s/%s", directory, name);
    return path;
}

cgp_status cgp__short_of_memory(const char *what) {
    return cgp_fail(CGP_ENOMEM, "%s: out of memory", what);
}

static cgp_status unreadable(const char *path) {
    return cgp_fail(CGP_EIO, "%s: cannot be read (%s)", path, strerror(errno));
}

static cgp_status read_bytes(int fd, const char *path, char *bytes, size_t size) {
    for (size_t at = 0; at < size;) {
        const ssize_t got = read(fd, bytes + at, size - at);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return unreadable(path);
        if (got == 0) return cgp_fail(CGP_EIO, "%s: became shorter while it was read", path);
        at += (size_t)got;
    }
    return CGP_OK;
}

/* Read a whole file. *text is owned by the caller, also after a failure. */
static cgp_status read_text(const char *path, size_t max, char **text, size_t *size) {
    struct stat info;
    cgp_status status = CGP_OK;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* do not block on a pipe */
    if (fd < 0) return unreadable(path);
    const bool found = fstat(fd, &info) == 0;
    *size = found ? (size_t)info.st_size : 0;
    if (!found)
        status = unreadable(path);
    else if (!S_ISREG(info.st_mode))
        status = cgp_fail(CGP_EIO, "%s: expected a file, got something else", path);
    else if (*size > max)
        status = cgp_fail(CGP_EFORMAT, "%s: expected at most %zu bytes, got %zu", path, max, *size);
    else if (!(*text = malloc(*size + 1)))
        status = cgp__short_of_memory(path);
    else
        status = read_bytes(fd, path, *text, *size);
    close(fd);
    return status;
}

static cgp_status not_json(const char *path, const cgp__json_error *error) {
    if (error->refused != CGP_OK) return cgp_fail(error->refused, "%s: %s", path, error->reason);
    if (!error->reason[0]) return cgp__short_of_memory(path);
    return cgp_fail(CGP_EFORMAT, "%s: is not JSON (byte %zu: %s)", path, error->byte,
                    error->reason);
}

cgp_status cgp__json_open(json_t **out, const char *path, size_t max) {
    char *text = NULL;
    size_t size = 0;
    cgp__json_error error;
    cgp_status status = read_text(path, max, &text, &size);
    if (status == CGP_OK) *out = cgp__json_read(text, size, &error);
    if (status == CGP_OK && !*out) status = not_json(path, &error);
    free(text);
    if (status != CGP_OK || json_is_object(*out)) return status;
    return cgp_fail(CGP_EFORMAT, "%s: expected a JSON object, got a list", path);
}

const char *cgp__json_show(const json_t *value, char *text, size_t size) {
    char *all = cgp__json_text(value, JSON_ENCODE_ANY | JSON_COMPACT);
    snprintf(text, size, "%s", all ? all : "a value");
    free(all);
    return text;
}

/* --- files --- */

/* Open a file in a directory, or at a path if `directory` is NULL. The list owns the file
 * immediately. */
static cgp_status add_file(cgp__weights_files *f, const char *directory, const char *name) {
    cgp__weights_file *files = realloc(f->files, ((size_t)f->count + 1) * sizeof *files);
    if (!files) return cgp__short_of_memory(SINGLE);
    f->files = files;
    cgp__weights_file *file = &files[f->count];
    *file = (cgp__weights_file){.path = directory ? cgp__path_in(directory, name) : strdup(name)};
    if (!file->path) return cgp__short_of_memory(SINGLE);
    f->count++;
    return cgp_safetensors_open(&file->tensors, file->path);
}

/* --- the index --- */

static bool is_plain_name(const char *name) {
    return *name && strcmp(name, ".") != 0 && strcmp(name, "..") != 0 && !strchr(name, '/') &&
           strlen(name) <= 255;
}

/* State of reading an index. `numbers` maps the name of each open file to its number. */
typedef struct index_file {
    const char *directory, *path;
    json_t *numbers;
} index_file;

/* Return the number of a file; -1 if the file is not open. */
static int number_of(const index_file *index, const char *name) {
    const json_t *number = json_object_get(index->numbers, name);
    return number ? (int)json_integer_value(number) : -1;
}

/* Read one entry of the map, and open its file unless an earlier entry has opened it. */
static cgp_status take_entry(cgp__weights_files *f, const index_file *index, const char *tensor,
                             const json_t *value) {
    const char *path = index->path;
    char got[80];
    const char *name = json_string_value(value);
    if (!name || !is_plain_name(name))
        return cgp_fail(CGP_EFORMAT,
                        "%s: weight_map: %.100s: expected the name of a file in its directory, got "
                        "%s",
                        path, tensor, cgp__json_show(value, got, sizeof got));
    int at = number_of(index, name);
    if (at < 0 && f->count == MAX_FILES)
        return cgp_fail(CGP_EFORMAT, "%s: weight_map: expected at most %d files", path, MAX_FILES);
    if (at < 0) {
        CGP_TRY(add_file(f, index->directory, name));
        at = f->count - 1;
        if (json_object_set_new(index->numbers, name, json_integer(at)) != 0)
            return cgp__short_of_memory(path);
    }
    if (cgp_safetensors_find(f->files[at].tensors, tensor) >= 0) return CGP_OK;
    return cgp_fail(CGP_EFORMAT, "%s: weight_map: %.100s is not in %s", path, tensor, name);
}

/* Check that the map assigns every tensor of a file to that file, so that no tensor occurs
 * twice. */
static cgp_status check_files(const cgp__weights_files *f, const index_file *index,
                              const json_t *map) {
    for (int i = 0; i < f->count; i++) {
        const cgp_safetensors *tensors = f->files[i].tensors;
        for (int t = 0; t < cgp_safetensors_count(tensors); t++) {
            const char *tensor = cgp_safetensors_name(tensors, t);
            const char *name = json_string_value(json_object_get(map, tensor));
            if (!name)
                return cgp_fail(CGP_EFORMAT, "%s: %.100s: is not in the weight_map of %s",
                                f->files[i].path, tensor, index->path);
            if (number_of(index, name) != i)
                return cgp_fail(CGP_EFORMAT, "%s: %.100s: is there twice, here and in %s",
                                f->files[i].path, tensor, name);
        }
    }
    return CGP_OK;
}

static cgp_status take_map(cgp__weights_files *f, const index_file *index, json_t *map) {
    json_t *value = NULL;
    const char *tensor = NULL;
    char got[80];
    if (!index->numbers) return cgp__short_of_memory(index->path);
    if (!json_is_object(map) || json_object_size(map) == 0)
        return cgp_fail(CGP_EFORMAT, "%s: weight_map: expected names with their files, got %s",
                        index->path, map ? cgp__json_show(map, got, sizeof got) : "none");
    json_object_foreach(map, tensor, value) {
        CGP_TRY(take_entry(f, index, tensor, value));
    }
    return check_files(f, index, map);
}

static cgp_status open_index(cgp__weights_files *f, const char *directory, const char *path) {
    json_t *root = NULL;
    const index_file index = {directory, path, json_object()};
    cgp_status status = cgp__json_open(&root, path, LARGEST_INDEX);
    if (status == CGP_OK) status = take_map(f, &index, json_object_get(root, "weight_map"));
    json_decref(index.numbers);
    json_decref(root);
    return status;
}

/* --- a directory --- */

static bool is_there(const char *path) {
    struct stat info;
    return lstat(path, &info) == 0;
}

static cgp_status none_there(const char *directory) {
    char *other = cgp__path_in(directory, "pytorch_model.bin");
    const bool pickled = other && is_there(other);
    free(other);
    return cgp_fail(CGP_EIO, "%s: expected " SINGLE " or " INDEX ", got %s", directory,
                    pickled ? "pytorch_model.bin (in Python, "
                              "save_pretrained(.., safe_serialization=True) writes the first)"
                            : "neither");
}

static cgp_status open_directory(cgp__weights_files *f, const char *directory) {
    char *single = cgp__path_in(directory, SINGLE), *index = cgp__path_in(directory, INDEX);
    cgp_status status = CGP_OK;
    if (!single || !index)
        status = cgp__short_of_memory(directory);
    else if (is_there(single))
        status = add_file(f, NULL, single);
    else if (is_there(index))
        status = open_index(f, directory, index);
    else
        status = none_there(directory);
    free(index);
    free(single);
    return status;
}

cgp_status cgp__weights_files_open(cgp__weights_files *files, const char *path) {
    struct stat info;
    *files = (cgp__weights_files){0};
    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode)) return open_directory(files, path);
    return add_file(files, NULL, path);
}

void cgp__weights_files_close(cgp__weights_files *files) {
    for (int i = 0; i < files->count; i++) {
        cgp_safetensors_close(files->files[i].tensors);
        free(files->files[i].path);
    }
    free(files->files);
    *files = (cgp__weights_files){0};
}
