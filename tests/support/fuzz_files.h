/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_files.h -- one fuzzer input as several files in a directory, separated by lines "=====". */
#ifndef CGP_TESTS_FUZZ_FILES_H
#define CGP_TESTS_FUZZ_FILES_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* nftw, memmem */
#endif
#include "fuzz.h"

#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

#define FUZZ_BETWEEN "\n=====\n"

/* One part of an input. */
typedef struct fuzz_part {
    const uint8_t *bytes;
    size_t size;
} fuzz_part;

/* Split an input into at most `max` parts; return how many there are, at least 1. */
static inline int fuzz_cut(const uint8_t *bytes, size_t size, fuzz_part *parts, int max) {
    const size_t between = strlen(FUZZ_BETWEEN);
    int count = 0;
    while (count < max - 1) {
        const uint8_t *end = size ? memmem(bytes, size, FUZZ_BETWEEN, between) : NULL;
        if (!end) break;
        parts[count++] = (fuzz_part){bytes, (size_t)(end - bytes)};
        size -= (size_t)(end - bytes) + between;
        bytes = end + between;
    }
    parts[count++] = (fuzz_part){bytes, size};
    return count;
}

/* Return the part as a 0-terminated text. Owned. */
static inline char *fuzz_text(const fuzz_part *part) {
    char *text = malloc(part->size + 1);
    REQUIRE(text);
    if (part->size > 0) memcpy(text, part->bytes, part->size);
    text[part->size] = '\0';
    return text;
}

/* --- a directory, in memory if there is a tmpfs --- */

static char fuzz_directory[64];

static inline int fuzz_remove_one(const char *path, const struct stat *info, int type,
                                  struct FTW *walk) {
    (void)info, (void)type;
    return walk->level > 0 ? remove(path) : 0;
}

/* Delete the directory's entries. */
static inline void fuzz_empty(void) {
    nftw(fuzz_directory, fuzz_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static inline int fuzz_make_directory(void **state) {
    (void)state;
    if (*fuzz_directory) return 0;
    snprintf(fuzz_directory, sizeof fuzz_directory, "%s/cgp-fuzz-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    return mkdtemp(fuzz_directory) ? 0 : -1;
}

static inline int fuzz_remove_directory(void **state) {
    (void)state;
    fuzz_empty();
    return rmdir(fuzz_directory);
}

#ifdef CGP_LIBFUZZER
static inline void fuzz_leave_nothing(void) {
    if (*fuzz_directory) (void)fuzz_remove_directory(NULL);
}
#endif

/* Begin an input: create or empty the directory. */
static inline void fuzz_begin(void) {
#ifdef CGP_LIBFUZZER
    if (!*fuzz_directory) {
        REQUIRE(fuzz_make_directory(NULL) == 0);
        atexit(fuzz_leave_nothing);
    }
#endif
    fuzz_empty();
}

/* Return the path of a name in the directory, in one of four buffers used round-robin. */
static inline const char *fuzz_path(const char *name) {
    static char paths[4][400];
    static int turn;
    char *path = paths[turn++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", fuzz_directory, name);
    return path;
}

static inline void fuzz_write(const char *name, const fuzz_part *part) {
    const int fd = open(fuzz_path(name), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0600);
    if (fd < 0) return; /* a directory or a link has that name */
    REQUIRE(write(fd, part->bytes, part->size) == (ssize_t)part->size);
    close(fd);
}

#endif
