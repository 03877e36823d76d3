/* SPDX-License-Identifier: Apache-2.0 */
/* processes.c -- see processes.h. Not every kernel lists a process's children, but /proc has the
 * parent of every process. */
#include "processes.h"

#include "text.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct process {
    pid_t pid, parent;
    char state; /* Z: zombie, not yet reaped by its parent */
    int status; /* status of a zombie, as from waitpid() */
    bool descends;
} process;

typedef struct process_list {
    process *all;
    size_t count, capacity;
} process_list;

/* --- /proc --- */

/* Parse /proc/PID/stat, "PID (NAME) STATE PARENT ..", whose 52nd field is the status. NAME may
 * contain spaces and brackets. */
static bool parse(const char *text, process *p) {
    enum { STATE = 3, STATUS = 52 };
    const char *at = strrchr(text, ')');
    int parent = 0;
    if (!at || sscanf(at + 1, " %c %d", &p->state, &parent) != 2) return false;
    p->parent = (pid_t)parent;
    for (int field = STATE - 1; field < STATUS && at; field++)
        at = strchr(at + 1, ' ');
    p->status = at ? atoi(at + 1) : 0;
    return true;
}

/* Read the process whose directory in /proc is `name`. Return false if the process does not exist,
 * for example because it has ended in the meantime. */
static bool read_process(const char *name, process *p) {
    char path[64], text[2048];
    int64_t pid = 0;
    if (!cli_parse_whole(name, 1, 1 << 30, &pid)) return false;
    snprintf(path, sizeof path, "/proc/%s/stat", name);
    FILE *file = fopen(path, "re");
    if (!file) return false;
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    *p = (process){.pid = (pid_t)pid};
    return parse(text, p);
}

static void add(process_list *list, process p) {
    if (list->count == list->capacity) {
        const size_t capacity = list->capacity ? 2 * list->capacity : 256;
        process *grown = cli_calloc(capacity, sizeof *grown);
        if (list->count > 0) memcpy(grown, list->all, list->count * sizeof *grown);
        free(list->all);
        list->all = grown;
        list->capacity = capacity;
    }
    list->all[list->count++] = p;
}

/* --- descendants --- */

/* Mark the children of this process, then the children of each marked process. */
static void mark(process_list *list) {
    pid_t *family = cli_calloc(list->count + 1, sizeof *family);
    size_t size = 1;
    family[0] = getpid();
    for (size_t head = 0; head < size; head++) {
        for (size_t i = 0; i < list->count; i++) {
            process *p = &list->all[i];
            if (p->descends || p->parent != family[head]) continue;
            p->descends = true;
            family[size++] = p->pid;
        }
    }
    free(family);
}

/* Return all processes, and mark the descendants of this process. The caller frees `all`. */
static process_list read_all(void) {
    process_list list = {0};
    process p;
    DIR *entries = opendir("/proc");
    for (struct dirent *entry; entries && (entry = readdir(entries));) {
        if (read_process(entry->d_name, &p)) add(&list, p);
    }
    if (entries) closedir(entries);
    mark(&list);
    return list;
}

bool cli_processes_seen(void) {
    char text[32] = "", own[32];
    const ssize_t got = readlink("/proc/self", text, sizeof text - 1);
    snprintf(own, sizeof own, "%ld", (long)getpid());
    return got > 0 && strcmp(text, own) == 0;
}

bool cli_processes_signal(int number) {
    if (!cli_processes_seen()) return false;
    process_list list = read_all();
    for (size_t i = 0; i < list.count; i++) {
        if (list.all[i].descends) (void)kill(list.all[i].pid, number);
    }
    free(list.all);
    return true;
}

bool cli_processes_failed(void) {
    if (!cli_processes_seen()) return false;
    process_list list = read_all();
    bool failed = false;
    for (size_t i = 0; i < list.count; i++) {
        const process *p = &list.all[i];
        failed |= p->descends && p->parent != getpid() && p->state == 'Z' && p->status != 0;
    }
    free(list.all);
    return failed;
}
