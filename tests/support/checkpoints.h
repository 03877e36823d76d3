/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoints.h -- makes checkpoints in a run directory without a pipeline, from files with random
 * bytes. */
#ifndef CGP_TESTS_CHECKPOINTS_H
#define CGP_TESTS_CHECKPOINTS_H

#include "directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "checkpoint/checkpoint.h"

static inline int remove_one(const char *path, const struct stat *info, int type,
                             struct FTW *walk) {
    (void)info, (void)type, (void)walk;
    return remove(path);
}

static inline void remove_tree(const char *path) {
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static char run[128]; /* a run directory, which does not exist when a test begins */

static inline int empty_tree_before(void **state) {
    (void)state;
    snprintf(run, sizeof run, "%s/run", test_directory);
    remove_tree(test_directory);
    return mkdir(test_directory, 0700);
}

static inline int remove_tree_after(void **state) {
    (void)state;
    remove_tree(test_directory);
    return 0;
}

/* Return whether an entry of the test's directory exists. A link exists even if its target does
 * not. */
static inline bool entry_exists(const char *name) {
    struct stat info;
    return lstat(test_path_of(name), &info) == 0;
}

/* Count the names in a directory that begin with `prefix`. */
static inline int count_names(const char *directory, const char *prefix) {
    int count = 0;
    DIR *list = opendir(directory);
    if (!list) return 0;
    for (struct dirent *item = readdir(list); item; item = readdir(list))
        count += strncmp(item->d_name, prefix, strlen(prefix)) == 0 &&
                 strcmp(item->d_name, ".") != 0 && strcmp(item->d_name, "..") != 0;
    closedir(list);
    return count;
}

/* Write a file of `bytes` random bytes, drawn with the seed `random`. */
static inline cgp_status write_random(const char *path, size_t bytes, uint64_t random) {
    uint64_t *data = malloc(bytes + 8);
    for (size_t i = 0; i < bytes / 8 + 1; i++)
        data[i] = test_random(&random);
    const cgp_status status = cgp_file_replace(path, data, bytes);
    free(data);
    return status;
}

static inline cgp_status add_random(cgp__checkpoint_writer *writer, const char *name, size_t bytes,
                                    uint64_t random) {
    const cgp__path_text path = cgp__checkpoint_file(writer, name);
    const cgp_status status = write_random(path.text, bytes, random);
    return status == CGP_OK ? cgp__checkpoint_add(writer, name) : status;
}

/* Save a checkpoint of two files with the given sizes. The files have random bytes, drawn with the
 * seed `random`. */
static inline cgp_status save_plain(const char *directory, int64_t step, int keep, const char *note,
                                    const size_t bytes[2], uint64_t random) {
    cgp__checkpoint_writer *writer = NULL;
    const cgp__checkpoint_info info = {.step = step,
                                       .dropout_step = step + 1,
                                       .seed = UINT64_MAX - (uint64_t)step,
                                       .optimizer = "adamw",
                                       .n_states = 2,
                                       .states = {"exp_avg", "exp_avg_sq"},
                                       .note = note};
    CGP_TRY(cgp__checkpoint_create(&writer, directory, step));
    cgp_status status = add_random(writer, "weights.safetensors", bytes[0], random);
    if (status == CGP_OK)
        status = add_random(writer, "optimizer.safetensors", bytes[1], random + 1);
    if (status == CGP_OK) return cgp__checkpoint_commit(writer, &info, keep);
    cgp__checkpoint_abandon(writer);
    return status;
}

/* Allow only `count` more open files than are currently open; -1 restores the limit. */
static inline void leave_descriptors(int count) {
    struct rlimit limit;
    static rlim_t before;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    if (before == 0) before = limit.rlim_cur;
    const int next = open("/dev/null", O_RDONLY);
    limit.rlim_cur = count < 0 ? before : (rlim_t)next + (rlim_t)count;
    if (next >= 0) close(next);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

/* Return the step of the checkpoint that is found in a directory; fail the test if none is
 * found. */
static inline int64_t found_step(const char *directory) {
    int64_t step = -1;
    assert_ok(cgp_checkpoint_find(NULL, &step, NULL, directory));
    return step;
}

#endif
