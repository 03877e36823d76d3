/* SPDX-License-Identifier: Apache-2.0 */
/* entries.c -- see entries.h. */
#include "session/entries.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "session/run_directory.h"

#define LISTING "checkpoint.json"                /* list of a checkpoint's files */
#define LARGEST_STEP INT64_C(999999999999999999) /* the library's limit */

DIR *cli_run_directory_list(const cli_run_directory *directory) {
    const int fd = openat(directory->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = fd >= 0 ? fdopendir(fd) : NULL;
    if (!list && fd >= 0) close(fd);
    return list;
}

struct dirent *cli_entry_next(DIR *entries, int *reason) {
    errno = 0;
    struct dirent *entry = readdir(entries);
    *reason = entry ? 0 : errno;
    return entry;
}

int64_t cli_entry_step(const char *name) {
    char plain[32];
    const int64_t step = strncmp(name, "step-", 5) == 0 ? strtoll(name + 5, NULL, 10) : -1;
    snprintf(plain, sizeof plain, "step-%08" PRId64, step);
    return step >= 0 && step <= LARGEST_STEP && strcmp(name, plain) == 0 ? step : -1;
}

static bool is_listed(int directory, const char *step) {
    struct stat info;
    char name[300];
    snprintf(name, sizeof name, "%s/" LISTING, step);
    if (fstatat(directory, step, &info, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISDIR(info.st_mode))
        return false;
    return fstatat(directory, name, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(info.st_mode) &&
           info.st_size > 0;
}

static int64_t newest(const cli_run_directory *directory, bool listed) {
    const bool missing = directory->reason == ENOENT || directory->reason == ENOTDIR;
    if (directory->fd < 0) return missing ? CLI_NO_STEP : CLI_STEP_UNKNOWN;
    DIR *entries = cli_run_directory_list(directory);
    int64_t highest = CLI_NO_STEP;
    int reason = 0;
    if (!entries) return CLI_STEP_UNKNOWN;
    for (struct dirent *entry; (entry = cli_entry_next(entries, &reason));) {
        const int64_t step = cli_entry_step(entry->d_name);
        if (step > highest && (!listed || is_listed(directory->fd, entry->d_name))) highest = step;
    }
    closedir(entries);
    errno = reason;
    return reason ? CLI_STEP_UNKNOWN : highest;
}

int64_t cli_run_directory_newest(const cli_run_directory *directory) {
    return newest(directory, false);
}

int64_t cli_run_directory_newest_listed(const cli_run_directory *directory) {
    return newest(directory, true);
}
