/* SPDX-License-Identifier: Apache-2.0 */
/* manifest.c -- reads and writes checkpoint.json:
 *
 *     {
 *      "format": "cgpipe checkpoint",
 *      "version": 1,
 *      "step": 42,                         optimizer updates; the directory's name has it
 *      "dropout_step": 42,                 step of the next mini-batch, for the dropout key
 *      "seed": "18446744073709551615",     text: JSON's numbers end at 2^53 or 2^63
 *      "optimizer": "adamw",
 *      "states": ["exp_avg", "exp_avg_sq"],
 *      "note": "...",
 *      "block_bytes": 1048576,
 *      "shards": 4,                        ranks that wrote it; version 2 only, for 2 or more
 *      "files": [{"name": "weights.safetensors", "bytes": 5242880, "sha256": ["...", ...]}, ...],
 *      "sha256_above": "..."               of all bytes of this text before this line's comma
 *     }
 *
 * All keys of a version are required, and no others are allowed. The last line is a hash of the
 * text above it. If the file and checkpoint.sha256 disagree, that hash shows which of the two is
 * damaged. Every version has this last line. */
#include "checkpoint/internal.h"

#include "base/base.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FORMAT "cgpipe checkpoint"

/* A checkpoint from one process has version 1, which every version of cgpipe reads. */
enum { VERSION_ONE = 1, VERSION_SHARDS = 2 };

#define TAIL ",\n \"sha256_above\": \"%s\"\n}\n"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

enum { TAIL_BYTES = sizeof TAIL - 1 - 2 + 64, DIGEST_DIGITS = 64 };

/* --- writing --- */

json_t *cgp__manifest_entry(const char *name, int64_t bytes, json_t *digests) {
    return json_pack("{s:s, s:I, s:o}", "name", name, "bytes", (json_int_t)bytes, "sha256",
                     digests);
}

static json_t *pack(const cgp__checkpoint_info *info, json_t *files) {
    char seed[24];
    json_t *states = json_array();
    snprintf(seed, sizeof seed, "%" PRIu64, info->seed);
    for (int s = 0; s < info->n_states; s++) {
        if (json_array_append_new(states, json_string(info->states[s]))) {
            json_decref(states);
            return NULL;
        }
    }
    const bool sharded = info->shards > 1;
    json_t *root = json_pack("{s:s, s:i, s:I, s:I, s:s, s:s, s:o, s:s, s:i}", "format", FORMAT,
                             "version", sharded ? VERSION_SHARDS : VERSION_ONE, "step",
                             (json_int_t)info->step, "dropout_step", (json_int_t)info->dropout_step,
                             "seed", seed, "optimizer", info->optimizer, "states", states, "note",
                             info->note, "block_bytes", CGP__BLOCK_BYTES);
    if ((!sharded || !json_object_set_new(root, "shards", json_integer(info->shards))) &&
        !json_object_set(root, "files", files))
        return root;
    json_decref(root);
    return NULL;
}

/* Replace the "\n}" at the end of the JSON text with the line that has the hash. */
static cgp_status close_text(const char *path, char *body, char **text) {
    char hex[DIGEST_DIGITS + 1];
    const size_t length = strlen(body) - 2;
    body[length] = '\0';
    CGP_TRY(cgp__digest(body, length, hex));
    *text = cgp__format("%s" TAIL, body, hex);
    return *text ? CGP_OK : cgp__no_memory(path, length + TAIL_BYTES);
}

cgp_status cgp__checkpoint_check_note(const char *note) {
    return cgp__is_utf8(note) ? CGP_OK : cgp_fail(CGP_EINVAL, "note: is not UTF-8 text");
}

cgp_status cgp__manifest_write(const char *path, const cgp__checkpoint_info *info, json_t *files,
                               char **text) {
    CGP_TRY(cgp__checkpoint_check_note(info->note));
    json_t *root = pack(info, files);
    char *body = root ? cgp__json_text(root, JSON_INDENT(1)) : NULL;
    const cgp_status status =
        body ? close_text(path, body, text) : cgp__no_memory(path, strlen(info->note));
    free(body);
    json_decref(root);
    return status;
}

/* --- reading --- */

static cgp_status check_tail(const char *path, const char *text, size_t length) {
    char hex[DIGEST_DIGITS + 1], tail[TAIL_BYTES + 1];
    const size_t above = length > TAIL_BYTES ? length - TAIL_BYTES : 0;
    CGP_TRY(cgp__digest(text, above, hex));
    snprintf(tail, sizeof tail, TAIL, hex);
    if (above > 0 && memcmp(text + above, tail, TAIL_BYTES) == 0) return CGP_OK;
    return cgp_fail(CGP_EFORMAT,
                    "%s: damaged between byte 0 and %zu (SHA-256 in its last lines differs)", path,
                    length);
}

/* Return the version; 0: the text has no version number. */
static json_int_t version_of(const json_t *root) {
    return json_integer_value(json_object_get(root, "version"));
}

static cgp_status parse_json(cgp__manifest *manifest, const char *path, const char *text,
                             size_t length) {
    cgp__json_error error;
    manifest->root = cgp__json_read(text, length, &error);
    if (!manifest->root && error.refused != CGP_OK)
        return cgp_fail(error.refused, "%s: %s", path, error.reason);
    if (!manifest->root && !error.reason[0]) return cgp__no_memory(path, length);
    if (!manifest->root)
        return cgp_fail(CGP_EFORMAT, "%s: is not JSON (byte %zu: %s)", path, error.byte,
                        error.reason);
    const char *format = json_string_value(json_object_get(manifest->root, "format"));
    if (!format || strcmp(format, FORMAT) != 0)
        return cgp_fail(CGP_EFORMAT, "%s: format: expected \"%s\", got \"%.40s\"", path, FORMAT,
                        format ? format : "");
    const json_int_t version = version_of(manifest->root);
    if (version == VERSION_ONE || version == VERSION_SHARDS) return CGP_OK;
    return cgp_fail(CGP_EFORMAT,
                    "%s: version: expected %d or %d, got %" JSON_INTEGER_FORMAT
                    " (is it from a newer cgpipe?)",
                    path, VERSION_ONE, VERSION_SHARDS, version);
}

/* Accept only the decimal form that pack() writes. */
static cgp_status parse_seed(const char *path, const char *text, uint64_t *seed) {
    char canonical[24];
    errno = 0;
    *seed = strtoull(text, NULL, 10);
    snprintf(canonical, sizeof canonical, "%" PRIu64, *seed);
    if (errno == 0 && strcmp(canonical, text) == 0) return CGP_OK;
    return cgp_fail(CGP_EFORMAT, "%s: seed: expected a decimal number below 2^64, got \"%.40s\"",
                    path, text);
}

static cgp_status parse_states(const char *path, const json_t *states, cgp__checkpoint_info *info) {
    const size_t n = json_array_size(states);
    if (!json_is_array(states) || n > CGP__CHECKPOINT_STATES)
        return cgp_fail(CGP_EFORMAT, "%s: states: expected a list of at most %d names", path,
                        CGP__CHECKPOINT_STATES);
    for (size_t s = 0; s < n; s++) {
        info->states[s] = json_string_value(json_array_get(states, s));
        if (!info->states[s])
            return cgp_fail(CGP_EFORMAT, "%s: states: number %zu is not a text", path, s);
    }
    info->n_states = (int)n;
    return CGP_OK;
}

/* A member of an object. Lists are checked separately. */
typedef struct member {
    const char *key;
    json_type type;
} member;

static cgp_status check_member(const char *path, const char *object_name, const member *wanted,
                               const json_t *value) {
    static const char *const types[] = {
        [JSON_OBJECT] = "object",   [JSON_ARRAY] = "list", [JSON_STRING] = "string",
        [JSON_INTEGER] = "integer", [JSON_REAL] = "real",  [JSON_TRUE] = "true",
        [JSON_FALSE] = "false",     [JSON_NULL] = "null"};
    if (!value)
        return cgp_fail(CGP_EFORMAT, "%s: %s%s: is missing", path, object_name, wanted->key);
    const json_type type = json_typeof(value);
    if (type == wanted->type || wanted->type == JSON_ARRAY) return CGP_OK;
    return cgp_fail(CGP_EFORMAT, "%s: %s%s: expected %s, got %s", path, object_name, wanted->key,
                    types[wanted->type], types[type]);
}

/* Check that an object has these members and no others. (json_unpack_ex() would allocate memory for
 * this check, and report a wrong error if memory is short.) */
static cgp_status check_members(const char *path, const char *object_name, json_t *object,
                                const member *wanted, size_t n) {
    const char *key = NULL;
    json_t *value = NULL;
    if (!json_is_object(object))
        return cgp_fail(CGP_EFORMAT, "%s: %sis not an object", path, object_name);
    for (size_t i = 0; i < n; i++)
        CGP_TRY(
            check_member(path, object_name, &wanted[i], json_object_get(object, wanted[i].key)));
    json_object_foreach(object, key, value) {
        size_t i = 0;
        while (i < n && strcmp(wanted[i].key, key) != 0)
            i++;
        if (i == n) return cgp_fail(CGP_EFORMAT, "%s: %s%.40s: is unknown", path, object_name, key);
    }
    return CGP_OK;
}

static json_int_t integer_of(const json_t *object, const char *key) {
    return json_integer_value(json_object_get(object, key));
}

static const char *text_of(const json_t *object, const char *key) {
    return json_string_value(json_object_get(object, key));
}

static bool is_plain_name(const char *name) {
    const char *letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    return name[0] && name[0] != '.' && name[strspn(name, letters)] == '\0' && strlen(name) <= 64;
}

static cgp_status check_digests(const char *path, const cgp__manifest_file *file) {
    const int64_t blocks = file->bytes / CGP__BLOCK_BYTES + (file->bytes % CGP__BLOCK_BYTES != 0);
    const int64_t got = (int64_t)json_array_size(file->digests);
    if (!json_is_array(file->digests) || got != blocks)
        return cgp_fail(CGP_EFORMAT,
                        "%s: file %s: %" PRId64 " bytes have %" PRId64 " digests, got %" PRId64,
                        path, file->name, file->bytes, blocks, got);
    for (int64_t b = 0; b < blocks; b++) {
        const char *hex = json_string_value(json_array_get(file->digests, (size_t)b));
        if (!hex || strlen(hex) != DIGEST_DIGITS)
            return cgp_fail(CGP_EFORMAT,
                            "%s: file %s: digest %" PRId64 " is not a text of %d digits", path,
                            file->name, b, DIGEST_DIGITS);
    }
    return CGP_OK;
}

static const member file_members[] = {
    {"name", JSON_STRING}, {"bytes", JSON_INTEGER}, {"sha256", JSON_ARRAY}};

static cgp_status parse_file(cgp__manifest *manifest, const char *path, json_t *json) {
    cgp__manifest_file *file = &manifest->files[manifest->n_files];
    char object_name[40];
    snprintf(object_name, sizeof object_name, "files: number %d: ", manifest->n_files);
    CGP_TRY(check_members(path, object_name, json, file_members, COUNT(file_members)));
    const json_int_t bytes = integer_of(json, "bytes");
    file->name = text_of(json, "name");
    file->digests = json_object_get(json, "sha256");
    if (!is_plain_name(file->name) || strcmp(file->name, CGP__MANIFEST) == 0)
        return cgp_fail(CGP_EFORMAT, "%s: files: \"%.80s\" is not the name of a file here", path,
                        file->name);
    for (int f = 0; f < manifest->n_files; f++) {
        if (strcmp(manifest->files[f].name, file->name) == 0)
            return cgp_fail(CGP_EFORMAT, "%s: files: %s comes twice", path, file->name);
    }
    if (bytes < 0)
        return cgp_fail(CGP_EFORMAT, "%s: file %s: bytes: expected at least 0, got %lld", path,
                        file->name, (long long)bytes);
    file->bytes = bytes;
    manifest->n_files++;
    return check_digests(path, file);
}

static cgp_status parse_files(cgp__manifest *manifest, const char *path, const json_t *files) {
    const size_t n = json_array_size(files);
    if (!json_is_array(files) || n > CGP__CHECKPOINT_FILES)
        return cgp_fail(CGP_EFORMAT, "%s: files: expected a list of at most %d", path,
                        CGP__CHECKPOINT_FILES);
    CGP_TRY(CGP__NEW(manifest->files, n, path));
    for (size_t f = 0; f < n; f++)
        CGP_TRY(parse_file(manifest, path, json_array_get(files, f)));
    return CGP_OK;
}

/* Parse a count of steps from which training continues. */
static cgp_status parse_step(const char *path, const json_t *root, const char *key, int64_t *out) {
    const json_int_t value = integer_of(root, key);
    if (value < 0 || value > CGP__MAX_STEP)
        return cgp_fail(CGP_EFORMAT, "%s: %s: expected 0 to %" PRId64 ", got %lld", path, key,
                        CGP__MAX_STEP, (long long)value);
    *out = value;
    return CGP_OK;
}

static cgp_status parse_shards(const char *path, const json_t *root, int *shards) {
    const json_int_t n = version_of(root) == VERSION_ONE ? 1 : integer_of(root, "shards");
    if (version_of(root) != VERSION_ONE && (n < 2 || n > CGP__CHECKPOINT_SHARDS))
        return cgp_fail(CGP_EFORMAT, "%s: shards: expected 2 to %d, got %lld", path,
                        CGP__CHECKPOINT_SHARDS, (long long)n);
    *shards = (int)n;
    return CGP_OK;
}

/* The last member is for version 2 only. */
static const member members[] = {
    {"format", JSON_STRING},        {"version", JSON_INTEGER},     {"step", JSON_INTEGER},
    {"dropout_step", JSON_INTEGER}, {"seed", JSON_STRING},         {"optimizer", JSON_STRING},
    {"states", JSON_ARRAY},         {"note", JSON_STRING},         {"block_bytes", JSON_INTEGER},
    {"files", JSON_ARRAY},          {"sha256_above", JSON_STRING}, {"shards", JSON_INTEGER}};

static cgp_status parse_fields(cgp__manifest *manifest, const char *path) {
    cgp__checkpoint_info *info = &manifest->info;
    json_t *root = manifest->root;
    CGP_TRY(
        check_members(path, "", root, members, COUNT(members) - (version_of(root) == VERSION_ONE)));
    const json_int_t block_bytes = integer_of(root, "block_bytes");
    info->optimizer = text_of(root, "optimizer");
    info->note = text_of(root, "note");
    CGP_TRY(parse_step(path, root, "step", &info->step));
    CGP_TRY(parse_step(path, root, "dropout_step", &info->dropout_step));
    if (block_bytes != CGP__BLOCK_BYTES)
        return cgp_fail(CGP_EFORMAT, "%s: block_bytes: expected %d, got %lld", path,
                        CGP__BLOCK_BYTES, (long long)block_bytes);
    CGP_TRY(parse_seed(path, text_of(root, "seed"), &info->seed));
    CGP_TRY(parse_states(path, json_object_get(root, "states"), info));
    CGP_TRY(parse_shards(path, root, &info->shards));
    return parse_files(manifest, path, json_object_get(root, "files"));
}

cgp_status cgp__manifest_parse(cgp__manifest *manifest, const char *path, const char *text,
                               size_t length) {
    memset(manifest, 0, sizeof *manifest);
    cgp_status status = check_tail(path, text, length);
    if (status == CGP_OK) status = parse_json(manifest, path, text, length);
    if (status == CGP_OK) status = parse_fields(manifest, path);
    if (status != CGP_OK) cgp__manifest_release(manifest);
    return status;
}

void cgp__manifest_release(cgp__manifest *manifest) {
    json_decref(manifest->root);
    free(manifest->files);
    memset(manifest, 0, sizeof *manifest);
}
