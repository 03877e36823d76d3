/* folder.c -- see folder.h. */
#include "folder.h"

#include "common.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char *join(const char *folder, const char *name) {
    const size_t size = strlen(folder) + strlen(name) + 2;
    char *path = cli_calloc(size, 1);
    snprintf(path, size, "%s/%s", folder, name);
    return path;
}

void cli_folder_name(cli_folder *folder, const char *path) {
    *folder = (cli_folder){.path = path};
    folder->settings = join(path, "run.json");
    folder->weights = join(path, "weights.safetensors");
    folder->metrics = join(path, "metrics.jsonl");
}

static cgp_status unwritable(const char *path) {
    return cgp_fail(CGP_EIO, "run folder %s: cannot be written (%s)", path, strerror(errno));
}

/* The folder that `path` will be made in. */
static cgp_status check_parent(const char *path) {
    char *parent = strdup(path);
    if (!parent) return cgp_fail(CGP_ENOMEM, "out of memory");
    size_t length = strlen(parent);
    while (length > 1 && parent[length - 1] == '/')
        parent[--length] = '\0';
    char *slash = strrchr(parent, '/');
    if (slash) slash[slash == parent] = '\0'; /* keeps the slash of the root */
    const char *name = slash ? parent : ".";
    cgp_status status = CGP_OK;
    struct stat info;
    if (stat(name, &info) != 0)
        status = cgp_fail(CGP_EIO, "run folder %s: cannot be made (%s: %s)", path, name,
                          strerror(errno));
    else if (!S_ISDIR(info.st_mode))
        status =
            cgp_fail(CGP_EIO, "run folder %s: cannot be made (%s is no folder)", path, name);
    else if (access(name, W_OK | X_OK) != 0)
        status = unwritable(path);
    free(parent);
    return status;
}

cgp_status cli_folder_check(const cli_folder *folder, bool overwrite) {
    struct stat info;
    if (stat(folder->path, &info) != 0) {
        if (errno == ENOENT) return check_parent(folder->path);
        return unwritable(folder->path);
    }
    if (!S_ISDIR(info.st_mode))
        return cgp_fail(CGP_EIO, "run folder %s: is a file, expected a folder", folder->path);
    if (access(folder->path, W_OK | X_OK) != 0) return unwritable(folder->path);
    if (overwrite || access(folder->weights, F_OK) != 0) return CGP_OK;
    return cgp_fail(CGP_EIO, "%s: is there already (--overwrite, or another --run)",
                    folder->weights);
}

cgp_status cli_folder_open(cli_folder *folder) {
    if (mkdir(folder->path, 0777) == 0)
        folder->made = true;
    else if (errno != EEXIST)
        return unwritable(folder->path);
    folder->log = fopen(folder->metrics, "ae");
    return folder->log ? CGP_OK : unwritable(folder->path);
}

cgp_status cli_folder_log(cli_folder *folder, json_t *step) {
    bool good = folder->used || ftruncate(fileno(folder->log), 0) == 0;
    folder->used = true;
    good = good && json_dumpf(step, folder->log, JSON_COMPACT) == 0;
    good = good && fputc('\n', folder->log) != EOF && fflush(folder->log) == 0;
    json_decref(step);
    if (good) return CGP_OK;
    return cgp_fail(CGP_EIO, "%s: cannot be written (%s)", folder->metrics, strerror(errno));
}

cgp_status cli_folder_model(const cli_folder *folder, json_t **settings, const char **model) {
    struct stat info;
    json_error_t error;
    if (stat(folder->path, &info) != 0 && errno == ENOENT)
        return cgp_fail(CGP_EIO, "run folder %s: no such folder", folder->path);
    if (access(folder->settings, R_OK) != 0)
        return cgp_fail(CGP_EIO, "%s: cannot be read (%s)", folder->settings, strerror(errno));
    *settings = json_load_file(folder->settings, 0, &error);
    if (!*settings)
        return cgp_fail(CGP_EFORMAT, "%s: line %d: %s", folder->settings, error.line,
                        error.text);
    *model = json_string_value(json_object_get(*settings, "model"));
    if (*model) return CGP_OK;
    return cgp_fail(CGP_EFORMAT, "%s: expected a text \"model\", got none", folder->settings);
}

void cli_folder_close(cli_folder *folder) {
    if (folder->log) fclose(folder->log);
    if (folder->made && !folder->used) {
        unlink(folder->metrics);
        rmdir(folder->path);
    }
    free(folder->metrics);
    free(folder->weights);
    free(folder->settings);
    *folder = (cli_folder){0};
}
