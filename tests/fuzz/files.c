/* SPDX-License-Identifier: Apache-2.0 */
/* files.c -- writes one fuzzer input as several files in a directory (fuzz.h). */
#include "fuzz.h"

#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

char fuzz_directory[64];

int fuzz_cut(const uint8_t *bytes, size_t size, fuzz_part *parts, int max) {
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

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *walk) {
    (void)info, (void)type;
    return walk->level > 0 ? remove(path) : 0;
}

void fuzz_empty(void) {
    nftw(fuzz_directory, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

int fuzz_make_directory(void) {
    snprintf(fuzz_directory, sizeof fuzz_directory, "%s/cgp-fuzz-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    return mkdtemp(fuzz_directory) ? 0 : -1;
}

int fuzz_remove_directory(void) {
    fuzz_empty();
    return rmdir(fuzz_directory);
}

const char *fuzz_path(const char *name) {
    static char paths[4][400];
    static int turn;
    char *path = paths[turn++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", fuzz_directory, name);
    return path;
}

void fuzz_write(const char *name, const void *bytes, size_t size) {
    const int fd = open(fuzz_path(name), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0600);
    if (fd < 0) return;
    REQUIRE(write(fd, bytes, size) == (ssize_t)size);
    close(fd);
}
