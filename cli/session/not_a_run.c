/* SPDX-License-Identifier: Apache-2.0 */
/* not_a_run.c -- see not_a_run.h. */
#include "session/not_a_run.h"

#include "session/entries.h"
#include "session/run_directory.h"
#include "text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* depth of a checkpoint's files in a run: RUN/latest/model.safetensors */
enum { DEEPEST = 2 };

/* Find the last name of a path, without '/' at its end. */
static void find_last(const char *path, size_t *begin, size_t *end) {
    *end = strlen(path);
    while (*end > 1 && path[*end - 1] == '/')
        --*end;
    *begin = *end;
    while (*begin > 0 && path[*begin - 1] != '/')
        --*begin;
}

/* Return the directory above a path: "one" for "one/latest/", ".." for ".", "." for "latest". The
 * caller frees it. */
static char *above(const char *path) {
    size_t begin, end;
    find_last(path, &begin, &end);
    const size_t length = end - begin;
    if (strncmp(path + begin, "..", length) == 0) /* "", "." or ".." */
        return cli_text("%.*s%s..", (int)end, length == 1 ? "" : path, length == 1 ? "" : "/");
    while (begin > 1 && path[begin - 1] == '/')
        begin--;
    return begin > 0 ? cli_text("%.*s", (int)begin, path) : cli_text(".");
}

static bool has(const char *directory, const char *name) {
    char *path = cli_text("%s/%s", directory, name);
    struct stat info;
    const bool found = stat(path, &info) == 0 && S_ISREG(info.st_mode);
    free(path);
    return found;
}

/* Return the step of a checkpoint that the path names: 42 for "one/step-00000042/". -1: none. */
static int64_t step_of(const char *path) {
    char name[64];
    size_t begin, end;
    find_last(path, &begin, &end);
    snprintf(name, sizeof name, "%.*s", (int)(end - begin), path + begin);
    return cli_entry_step(name);
}

/* Return CGP_EIO if the path is inside a run. */
static cgp_status expect_outside_run(const cli_run_directory *directory) {
    char *run = cli_text("%s", directory->path);
    int64_t step = step_of(run);
    bool found = false;
    for (int depth = 0; depth < DEEPEST && !found; depth++) {
        char *next = above(run);
        free(run);
        run = next;
        found = has(run, CLI_RECORD);
        if (!found && step < 0) step = step_of(run);
    }
    char option[80] = "";
    if (found && step >= 0)
        snprintf(option, sizeof option, "; sample and convert take a step by --from-step %" PRId64,
                 step);
    if (found)
        (void)cgp_fail(CGP_EIO, "%s: is a part of the run %s (type %s%s)", directory->path, run,
                       run, option);
    free(run);
    return found ? CGP_EIO : CGP_OK;
}

cgp_status cli_suggest_run(const cli_run_directory *directory) {
    const char *path = directory->path;
    if (has(path, CLI_RECORD)) return CGP_OK;
    CGP_TRY(expect_outside_run(directory));
    if (has(path, "config.json"))
        return cgp_fail(CGP_EIO,
                        "%s: has config.json of published weights, expected the directory of a run "
                        "(cgpipe convert %s RUN makes a run from them)",
                        path, path);
    if (directory->reason == ENOTDIR && cli_ends_with(path, ".safetensors"))
        return cgp_fail(CGP_EIO,
                        "%s: is a file of weights, expected the directory of a run (cgpipe convert "
                        "makes one from published weights; sample RUN --weights FILE takes a file)",
                        path);
    return CGP_OK;
}

cgp_status cli_not_a_run(const cli_run_directory *directory, int reason) {
    CGP_TRY(cli_suggest_run(directory));
    return cgp_fail(CGP_EIO, "%s: cannot be read (%s)", directory->record, strerror(reason));
}
