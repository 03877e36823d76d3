/* SPDX-License-Identifier: Apache-2.0 */
/* resign.h -- updates the manifest of a checkpoint after a test has changed the checkpoint's
 * files. */
#ifndef CGP_TESTS_RESIGN_H
#define CGP_TESTS_RESIGN_H

#include "checkpoints.h"

#include "checkpoint/internal.h"

/* Read a JSON file in a checkpoint's directory. The caller owns the result. */
static inline json_t *read_json(const char *directory, const char *name) {
    const cgp__path_text path = cgp__path_text_of(directory, name);
    json_t *root = json_load_file(path.text, 0, NULL);
    assert_non_null(root);
    return root;
}

/* Write JSON to a file in a checkpoint's directory, and release the JSON. */
static inline void write_json(const char *directory, const char *name, json_t *root) {
    const cgp__path_text path = cgp__path_text_of(directory, name);
    assert_int_equal(json_dump_file(root, path.text, JSON_INDENT(1)), 0);
    json_decref(root);
}

/* Update a file's size and digests in the manifest. */
static inline void measure(const char *directory, json_t *entry) {
    const char *name = json_string_value(json_object_get(entry, "name"));
    const cgp__path_text path = cgp__path_text_of(directory, name);
    json_t *digests = NULL;
    int64_t bytes = 0;
    cgp__file_reader file;
    assert_ok(cgp__file_reader_open(&file, AT_FDCWD, path.text, path.text, "a file", CGP_EIO));
    assert_ok(cgp__blocks_digest(&file, path.text, &bytes, &digests));
    cgp__file_reader_close(&file);
    json_object_set_new(entry, "bytes", json_integer(bytes));
    json_object_set_new(entry, "sha256", digests);
}

/* Update the manifest `root` for the current files. Write the manifest and its checksum, and
 * release `root`. */
static inline void resign_as(const char *directory, json_t *root) {
    json_t *files = json_object_get(root, "files");
    char hex[65], sum[128];
    for (size_t f = 0; f < json_array_size(files); f++)
        measure(directory, json_array_get(files, f));
    json_object_del(root, "sha256_above");
    char *body = json_dumps(root, JSON_INDENT(1));
    body[strlen(body) - 2] = '\0';
    assert_ok(cgp__digest(body, strlen(body), hex));
    char *text = cgp__format("%s,\n \"sha256_above\": \"%s\"\n}\n", body, hex);
    test_write_file(cgp__path_text_of(directory, CGP__MANIFEST).text, text, strlen(text));
    assert_ok(cgp__digest(text, strlen(text), hex));
    snprintf(sum, sizeof sum, CGP__SUM_LINE, hex);
    test_write_file(cgp__path_text_of(directory, CGP__MANIFEST_SUM).text, sum, strlen(sum));
    free(text);
    free(body);
    json_decref(root);
}

static inline void resign(const char *directory) {
    resign_as(directory, read_json(directory, CGP__MANIFEST));
}

#endif
