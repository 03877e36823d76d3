/* SPDX-License-Identifier: Apache-2.0 */
/* test_checkpoint_damage.c -- any damage to a checkpoint's files is detected. The message names the
 * file, the damaged bytes, and the last complete checkpoint before the damaged one. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* nftw */
#endif
#include "checkpoints.h"

#include <fcntl.h>

enum { BLOCK = 1048576, FILES = 4, CHECKPOINTS = 3 };

/* Sizes of the two tensor files. The first has two full blocks and a part of a block, and the
 * second has exactly one block. */
static const size_t sizes[2] = {2 * BLOCK + 4321, BLOCK};
static const char *const files[FILES] = {"weights.safetensors", "optimizer.safetensors",
                                         "checkpoint.json", "checkpoint.sha256"};

/* Damage to a file. Bytes `begin` to `end` have changed; if `begin` is -1, the whole file is
 * affected. */
typedef struct damage {
    int file;
    int64_t begin, end;
    char what[100];
} damage;

static const char *file_of(int step, int file) {
    static char paths[4][200];
    static int turn;
    char *path = paths[turn++ % 4];
    snprintf(path, sizeof paths[0], "%s/step-%08d/%s", run, step, files[file]);
    return path;
}

static int64_t size_of(const char *path) {
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    return info.st_size;
}

static void make_run(void) {
    remove_tree(run);
    for (int step = 1; step <= CHECKPOINTS; step++)
        assert_ok(save_plain(run, step, 0, "note", sizes, (uint64_t)step * 100));
}

static int64_t below(uint64_t *random, int64_t bound) {
    return (int64_t)(test_random(random) % (uint64_t)bound);
}

static void flip_bit(const char *path, int64_t at, int bit) {
    unsigned char byte = 0;
    const int fd = open(path, O_RDWR);
    assert_true(fd >= 0 && pread(fd, &byte, 1, at) == 1);
    byte ^= (unsigned char)(1u << bit);
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

static void do_flip(const char *path, damage *done, uint64_t *random) {
    done->begin = below(random, size_of(path));
    done->end = done->begin + 1;
    flip_bit(path, done->begin, test_between(random, 0, 7));
    snprintf(done->what, sizeof done->what, "a bit of byte %lld flipped", (long long)done->begin);
}

/* Truncate the file at a random byte, at the boundary of two blocks, or to 0 bytes. */
static void do_truncate(const char *path, damage *done, uint64_t *random) {
    const int64_t size = size_of(path);
    done->begin = below(random, size);
    if (size > BLOCK && test_between(random, 0, 2) == 0) done->begin = BLOCK;
    if (test_between(random, 0, 5) == 0) done->begin = 0;
    done->end = size;
    assert_int_equal(truncate(path, done->begin), 0);
    snprintf(done->what, sizeof done->what, "cut at %lld", (long long)done->begin);
}

static void do_append(const char *path, damage *done, uint64_t *random) {
    const int count = test_between(random, 1, 100);
    FILE *file = fopen(path, "ab");
    done->begin = size_of(path);
    done->end = done->begin + count;
    for (int i = 0; i < count; i++)
        fputc(test_between(random, 0, 255), file);
    fclose(file);
    snprintf(done->what, sizeof done->what, "%d bytes more", count);
}

/* Write zeros across the boundary of two blocks, as a failing disk may leave them. */
static void do_zero(const char *path, damage *done, uint64_t *random) {
    static const char zeros[5000];
    const int64_t size = size_of(path);
    done->begin = size > BLOCK ? BLOCK - below(random, 4999) - 1 : below(random, size);
    done->end =
        done->begin + (int64_t)sizeof zeros < size ? done->begin + (int64_t)sizeof zeros : size;
    const int fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, zeros, (size_t)(done->end - done->begin), done->begin),
                     done->end - done->begin);
    close(fd);
    snprintf(done->what, sizeof done->what, "zeros from %lld to %lld", (long long)done->begin,
             (long long)done->end);
}

static void do_delete(const char *path, damage *done, uint64_t *random) {
    done->begin = -1;
    if (test_between(random, 0, 2) == 0) { /* replace the file by a directory or a pipe */
        assert_int_equal(unlink(path), 0);
        assert_int_equal(test_between(random, 0, 1) ? mkdir(path, 0700) : mkfifo(path, 0600), 0);
        snprintf(done->what, sizeof done->what, "no file any more");
        return;
    }
    assert_int_equal(unlink(path), 0);
    snprintf(done->what, sizeof done->what, "deleted");
}

/* Replace a file by the same file of an earlier checkpoint. */
static void do_replace(const char *path, damage *done, uint64_t *random) {
    (void)random;
    assert_int_equal(unlink(path), 0);
    assert_int_equal(link(file_of(1, done->file), path), 0);
    done->begin = -1;
    snprintf(done->what, sizeof done->what, "that of another checkpoint");
}

typedef void do_damage(const char *path, damage *done, uint64_t *random);
static do_damage *const damages[] = {do_flip, do_truncate, do_append,
                                     do_zero, do_delete,   do_replace};

/* Return true if the range of bytes in the message contains the first damaged byte. A message
 * without a range is correct only for damage to the whole file or to file 2. */
static bool names_place(const char *message, const damage *done) {
    long long begin = 0, end = 0;
    const char *text = strstr(message, "damaged between byte ");
    if (!text) return done->begin < 0 || done->file == 2;
    if (sscanf(text, "damaged between byte %lld and %lld", &begin, &end) != 2) return false;
    if (done->begin < 0) return true;
    /* for a truncated file, which has no damaged bytes, `begin` is the new end of the file */
    return begin <= done->begin && done->begin <= end && end - begin <= BLOCK;
}

static void assert_found(const char *directory, const damage *done, int offered) {
    char expected[256], offer[300];
    int64_t step = 0;
    snprintf(expected, sizeof expected, "%s/step-%08d/%s: ", run, CHECKPOINTS, files[done->file]);
    snprintf(offer, sizeof offer, "; step-%08d is whole (load %s/step-%08d)", offered, run,
             offered);
    if (offered == 0) snprintf(offer, sizeof offer, "; there is no whole checkpoint before it");
    const cgp_status status = cgp_checkpoint_find(NULL, &step, NULL, directory);
    const char *message = cgp_message();
    if (status == CGP_EFORMAT && strncmp(message, expected, strlen(expected)) == 0 &&
        names_place(message, done) && strlen(message) > strlen(offer) &&
        strcmp(message + strlen(message) - strlen(offer), offer) == 0)
        return;
    print_error("%s, %s: %s \"%s\", expected \"%s...%s\"\n", files[done->file], done->what,
                cgp_status_name(status), message, expected, offer);
    fail();
}

/* Damage files of some lower checkpoints too; return the step of the highest intact checkpoint. */
static int damage_lower(uint64_t *random) {
    int offered = CHECKPOINTS - 1;
    while (offered > 0 && test_between(random, 0, 2) == 0) {
        damage done = {.file = test_between(random, 0, FILES - 1)};
        do_flip(file_of(offered, done.file), &done, random);
        offered--;
    }
    return offered;
}

TEST_CASE(every_damage_of_every_file_is_found_with_its_place) {
    uint64_t random = test_seed();
    char step[200];
    int cases = 0;
    cgp_log_set_level(CGP_LOG_ERROR);
    snprintf(step, sizeof step, "%s/step-%08d", run, CHECKPOINTS);
    for (size_t kind = 0; kind < sizeof damages / sizeof damages[0]; kind++) {
        for (int file = 0; file < FILES; file++) {
            const int rounds = damages[kind] == do_flip || damages[kind] == do_truncate ? 8 : 2;
            for (int round = 0; round < rounds; round++, cases++) {
                damage done = {.file = file};
                make_run();
                damages[kind](file_of(CHECKPOINTS, file), &done, &random);
                /* do_replace() links to a file of the first checkpoint. Leave the lower checkpoints
                 * intact in this case, because damage to a linked file would change both
                 * checkpoints */
                const int offered = damages[kind] == do_replace ? 2 : damage_lower(&random);
                assert_found(run, &done, offered);
                assert_found(step, &done, offered);
            }
        }
    }
    cgp_log_set_level(CGP_LOG_WARN);
    print_message("%d damages were found\n", cases);
}

TEST_CASE(two_files_that_changed_places_are_found) {
    char aside[200], message[1024], first[300], second[300];
    for (int a = 0; a < FILES; a++) {
        for (int b = a + 1; b < FILES; b++) {
            make_run();
            snprintf(aside, sizeof aside, "%s/aside", run);
            assert_int_equal(rename(file_of(3, a), aside), 0);
            assert_int_equal(rename(file_of(3, b), file_of(3, a)), 0);
            assert_int_equal(rename(aside, file_of(3, b)), 0);
            assert_status(cgp_checkpoint_find(NULL, NULL, NULL, run), CGP_EFORMAT);
            snprintf(message, sizeof message, "%s", cgp_message());
            snprintf(first, sizeof first, "%s: damaged between byte 0 and ", file_of(3, a));
            snprintf(second, sizeof second, "%s: damaged between byte 0 and ", file_of(3, b));
            assert_true(strncmp(message, first, strlen(first)) == 0 ||
                        strncmp(message, second, strlen(second)) == 0);
            assert_message("; step-00000002 is whole");
        }
    }
}

TEST_CASE(every_damaged_block_is_counted) {
    make_run();
    flip_bit(file_of(3, 0), BLOCK, 0);
    flip_bit(file_of(3, 0), 2 * BLOCK + 4320, 7);
    assert_status(cgp_checkpoint_find(NULL, NULL, NULL, run), CGP_EFORMAT);
    assert_message(
        "weights.safetensors: damaged between byte 1048576 and 2097152 and in 1 more block "
        "(SHA-256 differs); step-00000002 is whole");
    assert_int_equal(truncate(file_of(3, 0), 2 * BLOCK + 5), 0);
    flip_bit(file_of(3, 0), BLOCK, 0); /* restore the bit */
    assert_status(cgp_checkpoint_find(NULL, NULL, NULL, run), CGP_EFORMAT);
    assert_message("weights.safetensors: damaged between byte 2097152 and 2101473 (SHA-256 "
                   "differs; the file has 2097157 bytes, expected 2101473)");
}

/* Three free descriptors (for run, checkpoint and file) are enough to read checkpoint.json. But a
 * complete check of a checkpoint needs four descriptors. */
TEST_CASE(what_could_not_be_looked_for_is_not_denied) {
    static const char *const unknown = "; not all checkpoints before it could be read";
    make_run();
    flip_bit(file_of(3, 2), 7, 0);
    cgp_log_set_level(CGP_LOG_ERROR);
    for (int round = 0; round < 2; round++) { /* with, then without the link `latest` */
        leave_descriptors(3);
        const cgp_status status = cgp_checkpoint_find(NULL, NULL, NULL, run);
        leave_descriptors(-1);
        assert_status(status, CGP_EFORMAT);
        assert_message("step-00000003/checkpoint.json: damaged between byte 0 and ");
        assert_message(unknown);
        if (round == 0) assert_int_equal(unlink(test_path_of("run/latest")), 0);
    }
    cgp_log_set_level(CGP_LOG_WARN);
}

TEST_CASE(every_bit_of_the_small_files_counts) {
    cgp_log_set_level(CGP_LOG_ERROR);
    assert_ok(save_plain(run, 3, 0, "n", (size_t[]){0, 1}, 1)); /* a file may be empty */
    assert_int_equal(found_step(run), 3);
    for (int file = 2; file < FILES; file++) {
        const int64_t size = size_of(file_of(3, file));
        for (int64_t bit = 0; bit < 8 * size; bit++) {
            damage done = {.file = file, .begin = bit / 8, .end = bit / 8 + 1};
            flip_bit(file_of(3, file), bit / 8, (int)(bit % 8));
            assert_found(run, &done, 0);
            flip_bit(file_of(3, file), bit / 8, (int)(bit % 8));
        }
    }
    assert_int_equal(found_step(run), 3);
    cgp_log_set_level(CGP_LOG_WARN);
}

TEST_GROUP(.set_up = test_make_directory, .tear_down = remove_tree_after,
           .before = empty_tree_before);
