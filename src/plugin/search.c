/* SPDX-License-Identifier: Apache-2.0 */
/* search.c -- the files that may be plug-ins: `libcgpipe-*.so` in the directories of CGP_PLUGIN_PATH, then in that of the
 * installation. */
#define _GNU_SOURCE /* dladdr(), secure_getenv() */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

#include "base/base.h"
#include "plugin/plugin.h"

#define PREFIX "libcgpipe-"
#define SUFFIX ".so"

/* Names of files, owned. */
typedef struct names {
    char **at;
    int n, capacity;
} names;

static bool is_plugin(const char *name) {
    const size_t length = strlen(name), prefix = strlen(PREFIX), suffix = strlen(SUFFIX);
    return length > prefix + suffix && strncmp(name, PREFIX, prefix) == 0 &&
           strcmp(name + length - suffix, SUFFIX) == 0;
}

static int ascending(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* List the plug-ins in a directory; false without memory. */
static bool list_files(DIR *directory, names *list) {
    for (struct dirent *entry; (entry = readdir(directory));) {
        if (!is_plugin(entry->d_name)) continue;
        if (!cgp__grow(&list->at, &list->capacity, list->n + 1, sizeof *list->at)) return false;
        if (!(list->at[list->n] = cgp__strdup(entry->d_name))) return false;
        list->n++;
    }
    return true;
}

/* Visit the plug-ins of a directory in the order of their names. `given`: the user named it, so it should be there. */
static void search_directory(const char *path, bool given, cgp__plugin_visit *visit) {
    names list = {0};
    DIR *directory = opendir(path);
    if (!directory) {
        if (given)
            cgp_log(CGP_LOG_WARN, "plugin", "CGP_PLUGIN_PATH: %s: %s", path, strerror(errno));
        return;
    }
    if (!list_files(directory, &list))
        cgp_log(CGP_LOG_WARN, "plugin", "%s: out of memory, plug-ins were left out", path);
    closedir(directory);
    qsort(list.at, (size_t)list.n, sizeof *list.at, ascending);
    for (int i = 0; i < list.n; i++) {
        char *file = cgp__format("%s/%s", path, list.at[i]);
        if (file) visit(file);
        free(file);
        free(list.at[i]);
    }
    free(list.at);
}

/* Visit the directories of a list with colons between. */
static void search_list(const char *text, cgp__plugin_visit *visit) {
    for (const char *end;; text = end + 1) {
        end = text + strcspn(text, ":");
        char *path = cgp__format("%.*s", (int)(end - text), text);
        if (path && *path == '/')
            search_directory(path, true, visit);
        else if (path)
            cgp_log(CGP_LOG_WARN, "plugin",
                    "CGP_PLUGIN_PATH: expected absolute directories with colons between, got "
                    "\"%s\" (left out)",
                    path);
        free(path);
        if (!*end) return;
    }
}

/* Return the directory of the shared library that this code is in, with "/cgpipe"; NULL: it is in a program, or was found by a
 * relative path, which may be another file's by now. Owned. */
static char *beside_library(void) {
    Dl_info info;
    static const char here;
    if (!dladdr(&here, &info) || !info.dli_fname || *info.dli_fname != '/') return NULL;
    char *file = realpath(info.dli_fname, NULL), *path = NULL;
    char *name = file ? strrchr(file, '/') : NULL;
    if (name && strncmp(name, "/libcgpipe.so", 13) == 0)
        path = cgp__format("%.*s/cgpipe", (int)(name - file), file);
    free(file);
    return path;
}

void cgp__plugin_search(cgp__plugin_visit *visit) {
    if (getauxval(AT_SECURE)) return; /* a set-user-ID program, say */
    const char *list = secure_getenv("CGP_PLUGIN_PATH");
    if (list && *list) search_list(list, visit);
    char *beside = beside_library();
    search_directory(beside ? beside : CGP_PLUGIN_DIR, false, visit);
    free(beside);
}
