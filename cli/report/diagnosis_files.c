/* SPDX-License-Identifier: Apache-2.0 */
/* diagnosis_files.c -- see diagnosis_files.h. */
#include "report/diagnosis_files.h"

#include "json_file.h"
#include "session/diagnosis.h"
#include "session/entries.h"
#include "session/not_a_run.h"
#include "session/run_directory.h"
#include "text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* A rank's file contains about 300 bytes for each other rank. In memory, hostile JSON takes up to
 * 60 times its size. */
enum { MAX_RANKS = 1 << 12, LARGEST_FILE = 2 << 20, LARGEST_FILES = 64 << 20 };
#define MAX_NUMBER (INT64_C(1) << 53)

/* --- values --- */

/* Get a number; NaN for null or a missing key. */
static cgp_status get_seconds(const cli_json_place *at, const char *key, double *out) {
    const json_t *value = json_object_get(at->object, key);
    *out = value && json_is_number(value) ? json_number_value(value) : NAN;
    if (!value || json_is_null(value) || json_is_number(value)) return CGP_OK;
    return cli_json_wrong(at, key, "seconds or null");
}

/* Get a text; NULL for a missing key. */
static cgp_status get_optional_text(const cli_json_place *at, const char *key, const char **out) {
    *out = NULL;
    return cli_json_has(at, key) ? cli_json_text_of(at, key, out) : CGP_OK;
}

static cgp_status get_list(const cli_json_place *at, const char *key, const json_t **out,
                           size_t *n) {
    *out = json_object_get(at->object, key);
    *n = json_array_size(*out);
    return json_is_array(*out) ? CGP_OK : cli_json_wrong(at, key, "a list");
}

static cli_json_place entry(const char *path, const char *key, const json_t *list, size_t i) {
    return (cli_json_place){path, key, i, json_array_get(list, i)};
}

/* --- parts of a file --- */

static cgp_status read_transfer(const cli_json_place *at, int64_t ranks, cli_diagnosed_device *d) {
    const char *wants = NULL;
    if (!cli_json_has(at, "edge")) return CGP_OK;
    CGP_TRY(cli_json_whole(at, "edge", 0, MAX_NUMBER, &d->edge));
    CGP_TRY(cli_json_whole(at, "from_stage", 0, MAX_NUMBER, &d->from_stage));
    CGP_TRY(cli_json_whole(at, "to_stage", 0, MAX_NUMBER, &d->to_stage));
    CGP_TRY(cli_json_whole(at, "peer_rank", 0, ranks - 1, &d->peer_rank));
    CGP_TRY(cli_json_text_of(at, "wants", &wants));
    d->wants_message = strcmp(wants, "message") == 0;
    CGP_TRY(get_optional_text(at, "peer_action", &d->peer_action));
    return d->peer_action ? cli_json_whole(at, "peer_index", 0, MAX_NUMBER, &d->peer_index)
                          : CGP_OK;
}

static cgp_status read_device(const cli_json_place *at, int64_t ranks, cli_diagnosed_device *d) {
    d->edge = d->from_stage = d->to_stage = d->peer_rank = d->stage = d->microbatch =
        d->peer_index = -1;
    CGP_TRY(cli_json_whole(at, "device", 0, MAX_NUMBER, &d->device));
    CGP_TRY(cli_json_text_of(at, "state", &d->state));
    CGP_TRY(get_seconds(at, "seconds", &d->seconds));
    CGP_TRY(get_optional_text(at, "action", &d->action));
    CGP_TRY(get_optional_text(at, "layer", &d->layer));
    CGP_TRY(get_optional_text(at, "op", &d->op));
    if (!d->action && strcmp(d->state, "waits") == 0) return cli_json_wrong(at, "action", "a text");
    if (!d->action) return CGP_OK;
    CGP_TRY(cli_json_whole(at, "stage", 0, MAX_NUMBER, &d->stage));
    CGP_TRY(cli_json_whole(at, "microbatch", 0, MAX_NUMBER, &d->microbatch));
    return read_transfer(at, ranks, d);
}

static cgp_status read_known(const cli_json_place *at, cli_known_rank *k) {
    const json_t *left = json_object_get(at->object, "left");
    k->left = json_is_true(left);
    if (!json_is_boolean(left)) return cli_json_wrong(at, "left", "true or false");
    CGP_TRY(get_seconds(at, "heard", &k->age));
    CGP_TRY(get_seconds(at, "agreeing", &k->agreeing));
    CGP_TRY(cli_json_whole(at, "ended", 0, MAX_NUMBER, &k->ended));
    CGP_TRY(cli_json_whole(at, "agreements", 0, MAX_NUMBER, &k->agreements));
    CGP_TRY(cli_json_whole(at, "process", 0, MAX_NUMBER, &k->process));
    return cli_json_text_of(at, "host", &k->host);
}

static cgp_status read_lists(const cli_json_place *at, int64_t ranks, cli_rank_file *file) {
    const json_t *devices = NULL, *known = NULL, *sent = NULL;
    size_t n_known = 0;
    CGP_TRY(get_list(at, "devices", &devices, &file->n_devices));
    CGP_TRY(get_list(at, "known", &known, &n_known));
    CGP_TRY(get_list(at, "sent", &sent, &file->n_sent));
    if (n_known != (size_t)ranks) return cli_json_wrong(at, "known", "an entry for each rank");
    file->devices = cli_calloc(file->n_devices, sizeof *file->devices);
    file->known = cli_calloc(n_known, sizeof *file->known);
    file->sent = cli_calloc(file->n_sent, sizeof *file->sent);
    for (size_t i = 0; i < file->n_devices; i++) {
        const cli_json_place e = entry(at->path, "devices", devices, i);
        CGP_TRY(read_device(&e, ranks, &file->devices[i]));
    }
    for (size_t i = 0; i < n_known; i++) {
        const cli_json_place e = entry(at->path, "known", known, i);
        CGP_TRY(read_known(&e, &file->known[i]));
    }
    for (size_t i = 0; i < file->n_sent; i++) {
        const cli_json_place e = entry(at->path, "sent", sent, i);
        CGP_TRY(cli_json_whole(&e, "edge", 0, MAX_NUMBER, &file->sent[i].edge));
        CGP_TRY(cli_json_whole(&e, "microbatch", 0, MAX_NUMBER, &file->sent[i].microbatch));
    }
    return CGP_OK;
}

/* --- files --- */

/* Check the JSON of a file and put it into `all`. Refuse it if `all` already has a file of the same
 * rank. Takes ownership of `root`. */
static cgp_status take(const char *path, json_t *root, cli_diagnosis_files *all) {
    const cli_json_place at = {path, NULL, 0, root};
    const char *format = NULL;
    int64_t version = 0, rank = 0, ranks = 0;
    cgp_status status = cli_json_text_of(&at, "format", &format);
    if (status == CGP_OK && strcmp(format, "cgpipe diagnosis") != 0)
        status = cli_json_wrong(&at, "format", "\"cgpipe diagnosis\"");
    if (status == CGP_OK) status = cli_json_whole(&at, "version", 0, 1, &version);
    if (status == CGP_OK) status = cli_json_whole(&at, "ranks", 0, MAX_RANKS, &ranks);
    if (status == CGP_OK) status = cli_json_whole(&at, "rank", 0, ranks - 1, &rank);
    if (status == CGP_OK && all->ranks > 0 && ranks != all->ranks)
        status = cli_json_wrong(&at, "ranks", "as many as in the other files");
    if (status == CGP_OK && !all->files) {
        all->ranks = ranks;
        all->files = cli_calloc((size_t)ranks, sizeof *all->files);
    }
    if (status == CGP_OK && all->files[rank].root)
        status = cli_json_wrong(&at, "rank", "one of its own, not that of another file");
    if (status != CGP_OK) {
        json_decref(root);
        return status;
    }
    cli_rank_file *file = &all->files[rank];
    file->root = root;
    CGP_TRY(cli_json_text_of(&at, "host", &file->host));
    CGP_TRY(cli_json_whole(&at, "time", 0, INT64_C(1) << 40, &file->time));
    CGP_TRY(cli_json_text_of(&at, "reason", &file->reason));
    CGP_TRY(cli_json_whole(&at, "process", 0, MAX_NUMBER, &file->process));
    CGP_TRY(get_seconds(&at, "timeout", &file->timeout));
    return read_lists(&at, ranks, file);
}

/* Tell whether a name belongs to a rank's file; a half-written file has another name. */
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

/* Set `ended`. If the reason of a file has the form "rank 2: silent for ..", set `silent` to that
 * rank. */
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

/* Read a file, unless it was deleted meanwhile. *left is the maximum total size in bytes of this
 * file and all further files. */
static cgp_status read_file(const cli_run_directory *place, const char *name, size_t *left,
                            cli_diagnosis_files *all) {
    struct stat info;
    json_t *root = NULL;
    int fd = -1;
    CGP_TRY(cli_run_directory_open(place, name, O_RDONLY, &fd));
    if (fd < 0) return CGP_OK;
    const size_t size = fstat(fd, &info) == 0 ? (size_t)info.st_size : 0;
    char *path = cli_text("%s/%s", place->path, name);
    cgp_status status = cli_json_read_open(fd, path, LARGEST_FILE, &root);
    if (status == CGP_OK) status = take(path, root, all);
    if (status == CGP_OK && size > *left)
        status = cgp_fail(CGP_EFORMAT, "%s: expected at most %d bytes in all files, got more",
                          place->path, LARGEST_FILES);
    *left -= size;
    free(path);
    return status;
}

static cgp_status read_files(const cli_run_directory *place, cli_diagnosis_files *files) {
    DIR *entries = place->fd >= 0 ? cli_run_directory_list(place) : NULL;
    size_t left = LARGEST_FILES;
    cgp_status status = CGP_OK;
    if (!entries)
        return cgp_fail(CGP_EIO,
                        "%s: cannot be read (%s); ranks leave files there when a run hangs or "
                        "one of them is lost",
                        place->path, strerror(place->fd < 0 ? place->reason : errno));
    for (const struct dirent *e; status == CGP_OK && (e = readdir(entries));) {
        if (is_file(e->d_name)) status = read_file(place, e->d_name, &left, files);
    }
    closedir(entries);
    if (status == CGP_OK && files->ranks == 0)
        status = cgp_fail(CGP_EIO, "%s: has no file of a rank", place->path);
    return status;
}

cgp_status cli_diagnosis_files_read(const char *run, cli_diagnosis_files *files) {
    cli_run_directory directory, place;
    *files = (cli_diagnosis_files){.silent = -1};
    cli_run_directory_name(&directory, run);
    cli_run_directory_enter(&place, &directory, CLI_DIAGNOSIS);
    cgp_status status = place.fd < 0 ? cli_suggest_run(&directory) : CGP_OK;
    if (status == CGP_OK) status = read_files(&place, files);
    if (status == CGP_OK) look_at_reasons(files);
    cli_run_directory_close(&place);
    cli_run_directory_close(&directory);
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
