/* SPDX-License-Identifier: Apache-2.0 */
/* process.c -- names processes, so that an entry or lock can be traced to its process even if
 * several hosts and containers use one directory:
 *
 *     HOST-BOOT-NAMESPACE-PID-START
 *     ───────────────────              the place: its processes see each other by their pids
 *
 * BOOT is the kernel's random boot id, and NAMESPACE is the inode of the pid namespace. START is
 * the time at which the process started, in clock ticks since the boot. It distinguishes successive
 * processes with the same pid. If /proc does not show the pid namespace of the calling process, the
 * place is "unknown", because processes of the place cannot be looked up. */
#include "checkpoint/file.h"

#include "base/base.h"

#include <cgpipe/checkpoint.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define NOT_KNOWN "unknown"

typedef struct place {
    char text[CGP_PROCESS_BYTES]; /* the place, with a "-" at its end */
    bool known;
} place;

/* The state of a process in /proc. */
typedef struct process {
    char state;
    long threads;
    unsigned long long start;
} process;

/* --- parts --- */

/* Write the host's name as a part of a file name: "_" replaces each character that is no letter,
 * digit, "." or "-". */
static void name_host(char host[65]) {
    char name[256] = "";
    if (gethostname(name, sizeof name - 1) != 0 || !name[0]) snprintf(name, sizeof name, NOT_KNOWN);
    snprintf(host, 65, "%.64s", name);
    for (char *c = host; *c; c++) {
        const bool kept = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') ||
                          (*c >= '0' && *c <= '9') || *c == '.' || *c == '-';
        if (!kept) *c = '_';
    }
}

/* Read a small file of /proc into `text`. After a failure, `text` is "". */
static void read_text(const char *path, char *text, size_t size) {
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t got = fd >= 0 ? read(fd, text, size - 1) : 0;
    if (fd >= 0) close(fd);
    text[got > 0 ? got : 0] = '\0';
}

/* Write the 32 hex digits of the kernel's boot id, which the kernel writes as
 * "31ff859c-9d53-4dfa-8418-42552d24a9dd\n". */
static void name_boot(char boot[33]) {
    char text[64];
    int used = 0;
    read_text("/proc/sys/kernel/random/boot_id", text, sizeof text);
    for (const char *c = text; *c && *c != '\n' && used < 32; c++) {
        if (*c != '-') boot[used++] = *c;
    }
    boot[used] = '\0';
}

/* Read the target of a process's namespace link, such as "pid:[4026531836]". If it cannot be read,
 * `target` is "". */
static void read_namespace(const char *pid, const char *kind, char target[64]) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%s/ns/%s", pid, kind);
    const ssize_t got = readlink(path, target, 63);
    target[got > 0 ? got : 0] = '\0';
}

/* Return whether /proc exists and shows the processes of this pid namespace, not of an outer
 * namespace. */
static bool is_own_proc(void) {
    char target[32], own[32];
    const ssize_t got = readlink("/proc/self", target, sizeof target - 1);
    target[got > 0 ? got : 0] = '\0';
    snprintf(own, sizeof own, "%ld", (long)getpid());
    return strcmp(target, own) == 0;
}

static place this_place(void) {
    place here;
    char host[65], boot[33], target[64];
    unsigned long long inode = 0;
    name_host(host);
    name_boot(boot);
    read_namespace("self", "pid", target);
    here.known = is_own_proc() && boot[0] && sscanf(target, "pid:[%llu]", &inode) == 1;
    if (here.known)
        snprintf(here.text, sizeof here.text, "%s-%s-%llu-", host, boot, inode);
    else
        snprintf(here.text, sizeof here.text, "%s-" NOT_KNOWN "-" NOT_KNOWN "-", host);
    return here;
}

/* Read state, threads and start: fields 3, 20 and 22 of "PID (NAME) STATE ...". NAME may have
 * spaces and brackets. Return whether they could be read. */
static bool read_process(const char *pid, process *p) {
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%s/stat", pid);
    read_text(path, text, sizeof text);
    const char *at = strrchr(text, ')');
    return at && sscanf(at + 1, " %c%*s%*s%*s%*s%*s%*s%*s%*s%*s%*s%*s%*s%*s%*s%*s%*s%ld%*s%llu",
                        &p->state, &p->threads, &p->start) == 3;
}

/* --- names --- */

bool cgp__process_is_here(const char *name) {
    const place here = this_place();
    return here.known && strncmp(name, here.text, strlen(here.text)) == 0;
}

/* Return whether the pid was reused by another process. Start times are counted in the reader's
 * time namespace. So the function does not compare the start time of a process that is known to be
 * in another time namespace. */
static bool was_given_again(const char *pid, const process *now, unsigned long long start) {
    char own[64], other[64];
    read_namespace("self", "time", own);
    read_namespace(pid, "time", other);
    return (!other[0] || strcmp(own, other) == 0) && start != 0 && now->start != start;
}

cgp_process_state cgp__process_state_of(const char *name) {
    const place here = this_place();
    const size_t length = strlen(here.text);
    char pid[24];
    process now;
    long number = 0;
    unsigned long long start = 0;
    if (!here.known || strncmp(name, here.text, length) != 0) return CGP_PROCESS_UNKNOWN;
    if (sscanf(name + length, "%18ld-%20llu", &number, &start) != 2 || number <= 0)
        return CGP_PROCESS_UNKNOWN;
    if (kill((pid_t)number, 0) != 0 && errno == ESRCH) return CGP_PROCESS_GONE;
    snprintf(pid, sizeof pid, "%ld", number);
    /* the process exists, but cannot be read, for example because it is another user's process */
    if (!read_process(pid, &now)) return CGP_PROCESS_RUNS;
    const bool ended = now.state == 'Z' && now.threads <= 1;
    return ended || was_given_again(pid, &now, start) ? CGP_PROCESS_GONE : CGP_PROCESS_RUNS;
}

cgp_status cgp_process_name(char name[CGP_PROCESS_BYTES]) {
    CGP__NEED(name);
    const place here = this_place();
    process self = {0};
    (void)read_process("self", &self);
    snprintf(name, CGP_PROCESS_BYTES, "%.*s%ld-%llu", CGP_PROCESS_BYTES - 44, here.text,
             (long)getpid(), self.start);
    return CGP_OK;
}

cgp_status cgp_process_find(cgp_process_state *state, const char *name) {
    CGP__NEED(state);
    CGP__NEED(name);
    *state = cgp__process_state_of(name);
    return CGP_OK;
}
