/* SPDX-License-Identifier: Apache-2.0 */
/* diagnosis_files.c -- see diagnosis_files.h. */
#include "report/diagnosis_files.h"

#include "common.h"
#include "files.h"
#include "session/diagnosis.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RANKS = 1 << 12 };
#define MAX_NUMBER (INT64_C(1) << 53)

/* --- values; an error names the file and the key --- */

/* The object that is read. */
typedef struct place {
    const char *path;
    const json_t *object;
    const char *list; /* it is in, at `index`; NULL: it is the whole file */
    size_t index;
} place;

static cgp_status wrong(const place *at, const char *key, const char *expected) {
    if (!at->list) return cgp_fail(CGP_EFORMAT, "%s: %s: expected %s", at->path, key, expected);
    return cgp_fail(CGP_EFORMAT, "%s: %s[%zu]: %s: expected %s", at->path, at->list, at->index,
                    key, expected);
}

static cgp_status get_whole(const place *at, const char *key, int64_t max, int64_t *out) {
    const json_t *value = json_object_get(at->object, key);
    *out = json_integer_value(value);
    if (json_is_integer(value) && *out >= 0 && *out <= max) return CGP_OK;
    char *expected = cli_text("a whole number from 0 to %lld", (long long)max);
    const cgp_status status = wrong(at, key, expected);
    free(expected);
    return status;
}

/* NaN for null, or where there is no such key. */
static cgp_status get_seconds(const place *at, const char *key, double *out) {
    const json_t *value = json_object_get(at->object, key);
    *out = value && json_is_number(value) ? json_number_value(value) : NAN;
    if (!value || json_is_null(value) || json_is_number(value)) return CGP_OK;
    return wrong(at, key, "seconds or null");
}

static cgp_status get_text(const place *at, const char *key, const char **out) {
    *out = json_string_value(json_object_get(at->object, key));
    return *out ? CGP_OK : wrong(at, key, "a text");
}

/* NULL where there is no such key. */
static cgp_status get_optional_text(const place *at, const char *key, const char **out) {
    *out = NULL;
    return json_object_get(at->object, key) ? get_text(at, key, out) : CGP_OK;
}

static cgp_status get_list(const place *at, const char *key, const json_t **out, size_t *n) {
    *out = json_object_get(at->object, key);
    *n = json_array_size(*out);
    return json_is_array(*out) ? CGP_OK : wrong(at, key, "a list");
}

static place entry(const char *path, const char *key, const json_t *list, size_t i) {
    return (place){path, json_array_get(list, i), key, i};
}

/* --- parts of a file --- */

static cgp_status read_transfer(const place *at, int64_t ranks, cli_diagnosed_device *d) {
    const char *wants = NULL;
    if (!json_object_get(at->object, "edge")) return CGP_OK;
    CGP_TRY(get_whole(at, "edge", MAX_NUMBER, &d->edge));
    CGP_TRY(get_whole(at, "from_stage", MAX_NUMBER, &d->from_stage));
    CGP_TRY(get_whole(at, "to_stage", MAX_NUMBER, &d->to_stage));
    CGP_TRY(get_whole(at, "peer_rank", ranks - 1, &d->peer_rank));
    CGP_TRY(get_text(at, "wants", &wants));
    d->wants_message = strcmp(wants, "message") == 0;
    CGP_TRY(get_optional_text(at, "peer_action", &d->peer_action));
    return d->peer_action ? get_whole(at, "peer_index", MAX_NUMBER, &d->peer_index) : CGP_OK;
}

static cgp_status read_device(const place *at, int64_t ranks, cli_diagnosed_device *d) {
    d->edge = d->from_stage = d->to_stage = d->peer_rank = d->stage = d->microbatch =
        d->peer_index = -1;
    CGP_TRY(get_whole(at, "device", MAX_NUMBER, &d->device));
    CGP_TRY(get_text(at, "state", &d->state));
    CGP_TRY(get_seconds(at, "seconds", &d->seconds));
    CGP_TRY(get_optional_text(at, "action", &d->action));
    CGP_TRY(get_optional_text(at, "layer", &d->layer));
    CGP_TRY(get_optional_text(at, "op", &d->op));
    if (!d->action && strcmp(d->state, "waits") == 0) return wrong(at, "action", "a text");
    if (!d->action) return CGP_OK;
    CGP_TRY(get_whole(at, "stage", MAX_NUMBER, &d->stage));
    CGP_TRY(get_whole(at, "microbatch", MAX_NUMBER, &d->microbatch));
    return read_transfer(at, ranks, d);
}

static cgp_status read_known(const place *at, cli_known_rank *k) {
    const json_t *left = json_object_get(at->object, "left");
    k->left = json_is_true(left);
    if (!json_is_boolean(left)) return wrong(at, "left", "true or false");
    CGP_TRY(get_seconds(at, "heard", &k->heard));
    CGP_TRY(get_seconds(at, "agreeing", &k->agreeing));
    CGP_TRY(get_whole(at, "ended", MAX_NUMBER, &k->ended));
    CGP_TRY(get_whole(at, "agreements", MAX_NUMBER, &k->agreements));
    CGP_TRY(get_whole(at, "process", MAX_NUMBER, &k->process));
    return get_text(at, "host", &k->host);
}

static cgp_status read_lists(const place *at, int64_t ranks, cli_rank_file *file) {
    const json_t *devices = NULL, *known = NULL, *sent = NULL;
    size_t n_known = 0;
    CGP_TRY(get_list(at, "devices", &devices, &file->n_devices));
    CGP_TRY(get_list(at, "known", &known, &n_known));
    CGP_TRY(get_list(at, "sent", &sent, &file->n_sent));
    if (n_known != (size_t)ranks) return wrong(at, "known", "an entry for each rank");
    file->devices = cli_calloc(file->n_devices, sizeof *file->devices);
    file->known = cli_calloc(n_known, sizeof *file->known);
    file->sent = cli_calloc(file->n_sent, sizeof *file->sent);
    for (size_t i = 0; i < file->n_devices; i++) {
        const place e = entry(at->path, "devices", devices, i);
        CGP_TRY(read_device(&e, ranks, &file->devices[i]));
    }
    for (size_t i = 0; i < n_known; i++) {
        const place e = entry(at->path, "known", known, i);
        CGP_TRY(read_known(&e, &file->known[i]));
    }
    for (size_t i = 0; i < file->n_sent; i++) {
        const place e = entry(at->path, "sent", sent, i);
        CGP_TRY(get_whole(&e, "edge", MAX_NUMBER, &file->sent[i].edge));
        CGP_TRY(get_whole(&e, "microbatch", MAX_NUMBER, &file->sent[i].microbatch));
    }
    return CGP_OK;
}

/* --- files --- */

/* Take a file in that is JSON: its rank's place in `all` must be free. Takes `root` over. */
static cgp_status take(const char *path, json_t *root, cli_diagnosis_files *all) {
    const place at = {path, root, NULL, 0};
    const char *format = NULL;
    int64_t version = 0, rank = 0, ranks = 0;
    cgp_status status = get_text(&at, "format", &format);
    if (status == CGP_OK && strcmp(format, "cgpipe diagnosis") != 0)
        status = wrong(&at, "format", "\"cgpipe diagnosis\"");
    if (status == CGP_OK) status = get_whole(&at, "version", 1, &version);
    if (status == CGP_OK) status = get_whole(&at, "ranks", MAX_RANKS, &ranks);
    if (status == CGP_OK) status = get_whole(&at, "rank", ranks - 1, &rank);
    if (status == CGP_OK && all->ranks > 0 && ranks != all->ranks)
        status = wrong(&at, "ranks", "as many as in the other files");
    if (status == CGP_OK && !all->files) {
        all->ranks = ranks;
        all->files = cli_calloc((size_t)ranks, sizeof *all->files);
    }
    if (status == CGP_OK && all->files[rank].root)
        status = wrong(&at, "rank", "one of its own, not that of another file");
    if (status != CGP_OK) {
        json_decref(root);
        return status;
    }
    cli_rank_file *file = &all->files[rank];
    file->root = root;
    CGP_TRY(get_text(&at, "host", &file->host));
    CGP_TRY(get_whole(&at, "time", INT64_C(1) << 40, &file->time));
    CGP_TRY(get_text(&at, "reason", &file->reason));
    CGP_TRY(get_whole(&at, "process", MAX_NUMBER, &file->process));
    CGP_TRY(get_seconds(&at, "timeout", &file->timeout));
    return read_lists(&at, ranks, file);
}

static cgp_status read_file(const char *path, cli_diagnosis_files *all) {
    char *bytes = NULL;
    size_t size = 0;
    json_error_t error;
    CGP_TRY(cli_file_read(path, &bytes, &size));
    json_t *root = json_loadb(bytes, size, JSON_REJECT_DUPLICATES, &error);
    free(bytes);
    if (!root) return cgp_fail(CGP_EFORMAT, "%s: is no JSON (%s)", path, error.text);
    return take(path, root, all);
}

/* Tell whether a name is that of a rank's file, not of one half written. */
static bool is_file(const char *name) {
    return strncmp(name, "rank-", 5) == 0 && cli_ends_with(name, ".json");
}

static bool is_late(const cli_rank_file *file) {
    return strcmp(file->reason, "late") == 0;
}

bool cli_diagnosis_has(const cli_diagnosis_files *all, int64_t rank) {
    const cli_rank_file *file = &all->files[rank];
    return file->root && rank != all->silent && (!is_late(file) || !all->ended);
}

/* Look what the reasons say: "rank 2: silent for ..". */
static void look_at_reasons(cli_diagnosis_files *all) {
    for (int64_t r = 0; r < all->ranks; r++) {
        const cli_rank_file *file = &all->files[r];
        long long rank = -1;
        int end = 0;
        if (!file->root) continue;
        all->ended |= !is_late(file);
        if (sscanf(file->reason, "rank %7lld: silent for %n", &rank, &end) == 1 && end > 0 &&
            rank >= 0 && rank < all->ranks && rank != r)
            all->silent = rank;
    }
}

cgp_status cli_diagnosis_files_read(const char *run, cli_diagnosis_files *files) {
    char *directory = cli_text("%s/" CLI_DIAGNOSIS, run);
    cgp_status status = CGP_OK;
    *files = (cli_diagnosis_files){.silent = -1};
    DIR *entries = opendir(directory);
    if (!entries)
        status =
            cgp_fail(CGP_EIO,
                     "%s: cannot be read (%s); ranks leave files there when a run hangs or "
                     "one of them is lost",
                     directory, strerror(errno));
    for (const struct dirent *e; status == CGP_OK && (e = readdir(entries));) {
        char *path = cli_text("%s/%s", directory, e->d_name);
        if (is_file(e->d_name)) status = read_file(path, files);
        free(path);
    }
    if (entries) closedir(entries);
    if (status == CGP_OK && files->ranks == 0)
        status = cgp_fail(CGP_EIO, "%s: has no file of a rank", directory);
    if (status == CGP_OK) look_at_reasons(files);
    free(directory);
    return status;
}

void cli_diagnosis_files_release(cli_diagnosis_files *files) {
    for (int64_t r = 0; files->files && r < files->ranks; r++) {
        json_decref(files->files[r].root);
        free(files->files[r].devices);
        free(files->files[r].known);
        free(files->files[r].sent);
    }
    free(files->files);
    *files = (cli_diagnosis_files){.silent = -1};
}
