/* SPDX-License-Identifier: Apache-2.0 */
/* search.c -- finds the files `libcgpipe-*.so`, which may be plug-ins. It searches three places:
 * the directories in CGP_PLUGIN_PATH; `cgpipe` and `plugins` beside the program; `cgpipe` and
 * `plugins` beside the shared library. If the library is static, the third place is the
 * installation's plug-in directory. */
#define _GNU_SOURCE /* dladdr(), secure_getenv() */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "plugin/plugin.h"

#ifndef CGP_PROGRAM_FILE
#define CGP_PROGRAM_FILE "/proc/self/exe"
#endif

/* A list of file names, which owns the strings. */
typedef struct names {
    char **at;
    int n, capacity;
} names;

static bool is_plugin(const char *name) {
    const size_t length = strlen(name), prefix = strlen(CGP__PLUGIN_PREFIX),
                 suffix = strlen(CGP__PLUGIN_SUFFIX);
    return length > prefix + suffix && strncmp(name, CGP__PLUGIN_PREFIX, prefix) == 0 &&
           strcmp(name + length - suffix, CGP__PLUGIN_SUFFIX) == 0;
}

static int ascending(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* List the plug-ins in a directory. Return false if memory runs out. */
static bool list_files(DIR *directory, names *list) {
    for (struct dirent *entry; (entry = readdir(directory));) {
        if (!is_plugin(entry->d_name)) continue;
        if (!cgp__grow(&list->at, &list->capacity, list->n + 1, sizeof *list->at)) return false;
        if (!(list->at[list->n] = cgp__strdup(entry->d_name))) return false;
        list->n++;
    }
    return true;
}

/* A search: the function to call for each file, and the searched directories so far, separated by
 * ", ". */
typedef struct search {
    cgp__plugin_visit *visit;
    char *places;
    size_t size, used;
} search;

static void note_place(search *s, const char *path) {
    if (s->used >= s->size) return;
    const char *between = s->used > 0 ? ", " : "";
    const size_t left = s->size - s->used, length = strlen(between) + strlen(path);
    if (length + sizeof ", ..." <= left)
        s->used += (size_t)snprintf(s->places + s->used, left, "%s%s", between, path);
    else if (snprintf(s->places + s->used, left, "%s...", between) > 0)
        s->used = s->size;
}

/* Visit the plug-ins of an open directory in the order of their names. Close the directory. */
static void visit_files(const search *s, DIR *directory, const char *path) {
    names list = {0};
    if (!list_files(directory, &list))
        cgp_log(CGP_LOG_WARN, "plugin", "%s: out of memory, plug-ins were left out", path);
    closedir(directory);
    if (list.n > 1) qsort(list.at, (size_t)list.n, sizeof *list.at, ascending);
    for (int i = 0; i < list.n; i++) {
        char *file = cgp__format("%s/%s", path, list.at[i]);
        if (file) s->visit(file);
        free(file);
        free(list.at[i]);
    }
    free(list.at);
}

/* --- the directories that the user names --- */

/* Search the directories of a colon-separated list. */
static void search_list(search *s, const char *text) {
    for (const char *end;; text = end + 1) {
        end = text + strcspn(text, ":");
        char *path = cgp__format("%.*s", (int)(end - text), text);
        DIR *directory = path && *path == '/' ? opendir(path) : NULL;
        if (path && *path != '/')
            cgp_log(CGP_LOG_WARN, "plugin",
                    "CGP_PLUGIN_PATH: expected absolute directories with colons between, got "
                    "\"%s\" (left out)",
                    path);
        else if (path && !directory)
            cgp_log(CGP_LOG_WARN, "plugin", "CGP_PLUGIN_PATH: %s: %s", path, strerror(errno));
        if (path && *path == '/') note_place(s, path);
        if (directory) visit_files(s, directory, path);
        free(path);
        if (!*end) return;
    }
}

/* --- the directories beside program and library --- */

/* Return true if a file does not exist, or is owned by root, the user or `owner`. If the file is a
 * link, the target must be owned in the same way. (In /tmp, anyone can create a directory beside a
 * program.) */
static bool is_trusted(const char *path, uid_t owner) {
    struct stat link, target;
    if (lstat(path, &link) != 0 || stat(path, &target) != 0) return true;
    const uid_t user = geteuid();
    return (link.st_uid == 0 || link.st_uid == user || link.st_uid == owner) &&
           (target.st_uid == 0 || target.st_uid == user || target.st_uid == owner);
}

/* Search a directory, if it exists. */
static void search_place(search *s, const char *path) {
    DIR *directory = opendir(path);
    if (!directory && errno == ENOTDIR) return; /* the path is a file, such as `cgpipe` */
    note_place(s, path);
    if (directory) visit_files(s, directory, path);
}

/* Search `cgpipe` and `plugins` in the directory of `file`. If `file` is NULL, do nothing. */
static void search_beside(search *s, const char *file) {
    static const char *const directories[] = {"cgpipe", "plugins"};
    struct stat status;
    if (!file || stat(file, &status) != 0) return;
    const int length = (int)(strrchr(file, '/') - file);
    for (int i = 0; i < 2; i++) {
        char *path = cgp__format("%.*s/%s", length, file, directories[i]);
        if (path && is_trusted(path, status.st_uid))
            search_place(s, path);
        else if (path)
            cgp_log(CGP_LOG_WARN, "plugin",
                    "%s: belongs to another user (left out; CGP_PLUGIN_PATH may name it)", path);
        free(path);
    }
}

/* Return the path of the shared library that contains this code; the caller frees the path. Return
 * NULL if the code is not in libcgpipe.so, for example because it is linked into a program. Also
 * return NULL if the path is relative, because the working directory may have changed. */
static char *library_file(void) {
    Dl_info info;
    static const char here;
    if (!dladdr(&here, &info) || !info.dli_fname || *info.dli_fname != '/') return NULL;
    char *file = realpath(info.dli_fname, NULL);
    const char *name = file ? strrchr(file, '/') : NULL;
    if (name && strncmp(name, "/libcgpipe.so", 13) == 0) return file;
    free(file);
    return NULL;
}

/* Return true if two files are in the same directory. */
static bool is_beside(const char *a, const char *b) {
    const ptrdiff_t length = strrchr(a, '/') - a;
    return strrchr(b, '/') - b == length && strncmp(a, b, (size_t)length) == 0;
}

bool cgp__plugin_search(cgp__plugin_visit *visit, char *places, size_t size) {
    search s = {.visit = visit, .places = places, .size = size};
    if (getauxval(AT_SECURE)) return false; /* set-user-ID program or similar */
    const char *list = secure_getenv("CGP_PLUGIN_PATH");
    char *program = realpath(CGP_PROGRAM_FILE, NULL), *library = library_file();
    if (list && *list) search_list(&s, list);
    search_beside(&s, program);
    if (!library)
        search_place(&s, CGP_PLUGIN_DIR);
    else if (!program || !is_beside(program, library))
        search_beside(&s, library);
    free(program);
    free(library);
    return true;
}
