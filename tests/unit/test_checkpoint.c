/* SPDX-License-Identifier: Apache-2.0 */
/* test_checkpoint.c -- tests the checkpoints in a run directory. The tests check which checkpoint a
 * reader finds, and what is in the directory after a failure. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* nftw */
#endif
#include "checkpoints.h"
#include "checkpoint/internal.h"

#include <inttypes.h>
#include <jansson.h>
#include <pthread.h>

static const size_t small[2] = {1000, 24};

static void assert_link(const char *expected) {
    char target[64] = "";
    assert_true(readlink(test_path_of("run/latest"), target, sizeof target - 1) > 0);
    assert_string_equal(target, expected);
}

/* --- written files --- */

TEST_CASE(the_files_are_these_and_sha256sum_agrees) {
    char command[400], bytes[4096];
    const size_t sizes[2] = {1048577, 1048576};
    assert_ok(save_plain(run, 42, 0, "at 7", sizes, 1));
    assert_link("step-00000042");
    assert_int_equal(count_names(run, ""), 2);
    assert_int_equal(count_names(test_path_of("run/step-00000042"), ""), 4);
    snprintf(command, sizeof command,
             "cd %s/latest && sha256sum --quiet -c checkpoint.sha256 && sha256sum "
             "optimizer.safetensors | cut -d' ' -f1 | tr -d '\\n' > %s/sum",
             run, test_directory);
    assert_int_equal(system(command), 0);
    json_t *root = json_load_file(test_path_of("run/latest/checkpoint.json"), 0, NULL);
    const json_t *files = json_object_get(root, "files");
    const json_t *weights = json_object_get(json_array_get(files, 0), "sha256");
    const json_t *optimizer = json_object_get(json_array_get(files, 1), "sha256");
    assert_int_equal(json_integer_value(json_object_get(root, "step")), 42);
    assert_string_equal(json_string_value(json_object_get(root, "seed")), "18446744073709551573");
    assert_int_equal(json_array_size(weights), 2); /* one full block and one of a byte */
    /* the file has one block, so the block's checksum equals the file's */
    assert_int_equal(json_array_size(optimizer), 1);
    assert_int_equal(test_read_file(test_path_of("sum"), bytes), 64);
    assert_memory_equal(json_string_value(json_array_get(optimizer, 0)), bytes, 64);
    json_decref(root);
}

static const cgp__checkpoint_part whole = {0, 1};

TEST_CASE(what_is_said_comes_back) {
    const char *said = "\xe2\x82\xac \"a\"\n{}\\";
    cgp__checkpoint *checkpoint = NULL;
    char *path = NULL, *note = NULL, *expected = NULL;
    int64_t step = 0;
    assert_ok(save_plain(run, 123456789, 0, said, small, 1));
    assert_ok(cgp_checkpoint_find(&path, &step, &note, run));
    expected = cgp__format("%s/step-123456789", run);
    assert_string_equal(path, expected);
    assert_string_equal(note, said);
    assert_int_equal(step, 123456789);
    assert_ok(cgp__checkpoint_open(&checkpoint, path, whole));
    const cgp__checkpoint_info *info = cgp__checkpoint_info_of(checkpoint);
    assert_true(info->seed == UINT64_MAX - 123456789u && info->dropout_step == 123456790);
    assert_string_equal(info->optimizer, "adamw");
    assert_int_equal(info->n_states, 2);
    assert_string_equal(info->states[1], "exp_avg_sq");
    cgp__checkpoint_close(checkpoint);
    cgp__checkpoint_close(NULL);
    free(expected);
    free(note);
    free(path);
    assert_status(save_plain(run, 7, 0, "caf\xe9", small, 1), CGP_EINVAL);
    assert_message("note: is not UTF-8 text");
    assert_int_equal(count_names(run, ""), 2);
}

static cgp_status parse_steps(int64_t step, int64_t dropout_step, cgp__manifest *manifest) {
    const cgp__checkpoint_info info = {
        .step = step, .dropout_step = dropout_step, .optimizer = "sgd", .note = ""};
    json_t *files = json_array();
    char *text = NULL;
    assert_ok(cgp__manifest_write("manifest", &info, files, &text));
    const cgp_status status = cgp__manifest_parse(manifest, "manifest", text, strlen(text));
    free(text);
    json_decref(files);
    return status;
}

/* A training continues to count from the step in the manifest, so this step must be in range. */
TEST_CASE(steps_that_no_directory_can_be_named_by_are_refused) {
    const int64_t max = CGP__MAX_STEP, bad[] = {-1, max + 1, INT64_MAX, INT64_MIN};
    const size_t sizes[2] = {1, 1};
    cgp__manifest manifest;
    assert_ok(parse_steps(max, max, &manifest));
    assert_true(manifest.info.step == max && manifest.info.dropout_step == max);
    cgp__manifest_release(&manifest);
    for (int i = 0; i < 4; i++) {
        assert_status(parse_steps(bad[i], 0, &manifest), CGP_EFORMAT);
        assert_message("manifest: step: expected 0 to 999999999999999999, got ");
        assert_status(parse_steps(0, bad[i], &manifest), CGP_EFORMAT);
        assert_message("manifest: dropout_step: expected 0 to 999999999999999999, got ");
    }
    assert_status(save_plain(run, max + 1, 0, "", sizes, 1), CGP_EINVAL);
    assert_message("no checkpoint beyond step 999999999999999999");
    assert_ok(save_plain(run, max - 1, 0, "", sizes, 1));
    assert_true(found_step(run) == max - 1);
}

TEST_CASE(a_run_a_link_and_a_checkpoint_are_all_found) {
    char before[4096];
    assert_ok(save_plain(run, 1, 0, "", small, 1));
    assert_ok(save_plain(run, 2, 0, "", small, 1));
    assert_int_equal(found_step(run), 2);
    assert_int_equal(found_step(test_path_of("run//")), 2);
    assert_int_equal(found_step(test_path_of("run/latest")), 2);
    assert_int_equal(found_step(test_path_of("run/latest/")), 2);
    assert_int_equal(found_step(test_path_of("run/step-00000001")), 1);
    assert_int_equal(found_step(test_path_of("run/step-00000001/")), 1);
    assert_int_equal(rename(test_path_of("run/step-00000001"), test_path_of("best")), 0);
    assert_int_equal(found_step(test_path_of("best")), 1);
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(run), 0);
    int64_t here = 0, inside = 0;
    const cgp_status status = cgp_checkpoint_find(NULL, &here, NULL, ".");
    const cgp_status other =
        chdir("latest") ? CGP_EIO : cgp_checkpoint_find(NULL, &inside, NULL, ".");
    assert_int_equal(chdir(before), 0);
    assert_true(status == CGP_OK && other == CGP_OK && here == 2 && inside == 2);
    assert_status(cgp_checkpoint_find(NULL, NULL, NULL, test_path_of("no")), CGP_EIO);
    assert_message("/no: no such directory");
    assert_int_equal(mkdir(test_path_of("none"), 0700), 0);
    assert_status(cgp_checkpoint_find(NULL, NULL, NULL, test_path_of("none")), CGP_EIO);
    assert_message("/none: there is no checkpoint here");
}

/* --- keeping and replacing --- */

enum { HIGHEST = 12 };

/* The test saves steps in random order, and compares the directory with a list of expected steps.
 * Saving step s with `keep` = k keeps the k - 1 highest steps below s, and all steps above s. */
TEST_CASE(as_many_are_kept_as_were_asked_for) {
    uint64_t random = test_seed();
    bool there[HIGHEST + 1] = {false};
    for (int round = 0; round < 60; round++) {
        const int step = test_between(&random, 0, HIGHEST), keep = test_between(&random, 0, 4);
        assert_ok(save_plain(run, step, keep, "", small, random));
        there[step] = true;
        for (int s = step - 1, kept = 1; s >= 0; s--) {
            if (there[s] && keep > 0 && kept >= keep) there[s] = false;
            kept += there[s];
        }
        int count = 0;
        for (int s = 0; s <= HIGHEST; s++) {
            char name[40];
            snprintf(name, sizeof name, "run/step-%08d", s);
            assert_int_equal(entry_exists(name), there[s]);
            count += there[s];
        }
        assert_int_equal(count_names(run, ""), count + 1); /* all steps, and `latest` */
        assert_int_equal(found_step(run), step);
    }
}

TEST_CASE(a_step_saved_again_is_replaced) {
    char *note = NULL;
    assert_ok(save_plain(run, 5, 0, "first", small, 1));
    test_write_file(test_path_of("run/step-00000005/mine"), "x", 1);
    assert_ok(save_plain(run, 5, 0, "second", small, 2));
    assert_ok(cgp_checkpoint_find(NULL, NULL, &note, run));
    assert_string_equal(note, "second");
    free(note);
    assert_false(entry_exists("run/step-00000005/mine"));
    assert_int_equal(count_names(run, ""), 2);
}

TEST_CASE(a_reader_keeps_what_it_has_opened) {
    const char *names[] = {"w"};
    const cgp_dtype type = CGP_F32;
    const cgp_shape shape = {.rank = 0};
    const cgp__checkpoint_info info = {.optimizer = "sgd", .note = ""};
    cgp__checkpoint_writer *writer = NULL;
    cgp__checkpoint *checkpoint = NULL;
    cgp_safetensors_writer *file = NULL;
    cgp_safetensors *tensors = NULL;
    float value = 1.5f, got = 0;
    assert_ok(cgp__checkpoint_create(&writer, run, 0));
    const cgp__path_text path = cgp__checkpoint_file(writer, "w.safetensors");
    assert_ok(cgp_safetensors_create(&file, path.text, 1, names, &type, &shape, NULL, 0));
    assert_ok(cgp_safetensors_append(file, &value, 4));
    assert_ok(cgp_safetensors_commit(file));
    assert_ok(cgp__checkpoint_add(writer, "w.safetensors"));
    assert_ok(cgp__checkpoint_commit(writer, &info, 0));
    assert_ok(cgp__checkpoint_open(&checkpoint, run, whole));
    assert_ok(save_plain(run, 1, 1, "", small, 1));
    assert_false(entry_exists("run/step-00000000"));
    assert_ok(cgp__checkpoint_tensors(checkpoint, "w.safetensors", &tensors));
    assert_status(cgp__checkpoint_tensors(checkpoint, "v.safetensors", &tensors), CGP_EFORMAT);
    assert_message("checkpoint.json: has no file v.safetensors");
    assert_ok(cgp_safetensors_read(tensors, 0, &got));
    assert_true(got == 1.5f);
    cgp_safetensors_close(tensors);
    cgp__checkpoint_close(checkpoint);
}

/* Save a checkpoint whose files have one number each. */
static void save_numbers(int files) {
    const char *names[] = {"w"};
    const cgp_dtype type = CGP_F32;
    const cgp_shape shape = {.rank = 0};
    const cgp__checkpoint_info info = {.optimizer = "sgd", .note = ""};
    cgp__checkpoint_writer *writer = NULL;
    assert_ok(cgp__checkpoint_create(&writer, run, 0));
    for (int f = 0; f < files; f++) {
        cgp_safetensors_writer *file = NULL;
        const float value = (float)f;
        char name[32];
        snprintf(name, sizeof name, "%d.safetensors", f);
        const cgp__path_text path = cgp__checkpoint_file(writer, name);
        assert_ok(cgp_safetensors_create(&file, path.text, 1, names, &type, &shape, NULL, 0));
        assert_ok(cgp_safetensors_append(file, &value, 4));
        assert_ok(cgp_safetensors_commit(file));
        assert_ok(cgp__checkpoint_add(writer, name));
    }
    assert_ok(cgp__checkpoint_commit(writer, &info, 0));
}

/* Change a file of the checkpoint. `how` selects the change: replace the file by a copy with the
 * same time, write to the file, or delete the file. */
static void change_file(const char *path, int how) {
    char bytes[4096];
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, info.st_mtim};
    if (how == 0) assert_ok(cgp_file_replace(path, bytes, test_read_file(path, bytes)));
    if (how == 1) times[1].tv_sec++;
    if (how < 2) assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    if (how == 2) assert_int_equal(unlink(path), 0);
}

TEST_CASE(more_files_than_descriptors_are_read_and_a_changed_one_is_noticed) {
    enum { FILES = 24, SPARE = 8 };
    cgp__checkpoint *checkpoint = NULL;
    cgp_safetensors *tensors[FILES];
    float got = 0;
    save_numbers(FILES);
    leave_descriptors(SPARE);
    assert_ok(cgp__checkpoint_open(&checkpoint, run, whole));
    for (int f = 0; f < FILES; f++) {
        char name[32];
        snprintf(name, sizeof name, "%d.safetensors", f);
        assert_ok(cgp__checkpoint_tensors(checkpoint, name, &tensors[f]));
    }
    for (int f = FILES - 1; f >= 0; f--) {
        assert_ok(cgp_safetensors_read(tensors[f], 0, &got));
        assert_true(got == (float)f);
    }
    for (int how = 0; how < 3; how++) {
        char name[64];
        snprintf(name, sizeof name, "run/latest/%d.safetensors", FILES - 1 - how);
        change_file(test_path_of(name), how);
        assert_status(cgp_safetensors_read(tensors[FILES - 1 - how], 0, &got), CGP_EIO);
        assert_message("was deleted or replaced while it was read (load it again)");
    }
    assert_ok(cgp_safetensors_read(tensors[FILES / 2], 0, &got));
    for (int f = 0; f < FILES; f++)
        cgp_safetensors_close(tensors[f]);
    cgp__checkpoint_close(checkpoint);
    leave_descriptors(-1);
}

TEST_CASE(without_latest_the_newest_whole_one_is_found) {
    const char *latest = test_path_of("run/latest");
    for (int step = 1; step <= 4; step++)
        assert_ok(save_plain(run, step, 0, "", small, 1));
    cgp_log_set_level(CGP_LOG_ERROR);
    assert_int_equal(unlink(latest), 0);
    assert_int_equal(found_step(run), 4);
    assert_int_equal(symlink("step-00000009", latest), 0);
    assert_int_equal(found_step(run), 4);
    assert_int_equal(unlink(test_path_of("run/step-00000004/optimizer.safetensors")), 0);
    assert_int_equal(truncate(test_path_of("run/step-00000003/weights.safetensors"), 999), 0);
    assert_int_equal(found_step(run), 2);
    assert_int_equal(unlink(test_path_of("run/step-00000001/checkpoint.json")), 0);
    assert_int_equal(unlink(test_path_of("run/step-00000002/checkpoint.sha256")), 0);
    assert_status(cgp_checkpoint_find(NULL, NULL, NULL, run), CGP_EFORMAT);
    cgp_log_set_level(CGP_LOG_WARN);
    assert_message("step-00000004/optimizer.safetensors: no such file; there is no whole "
                   "checkpoint before it");
    assert_ok(save_plain(run, 5, 1, "", small, 1)); /* replaces the dangling link */
    assert_link("step-00000005");
}

/* --- failures --- */

TEST_CASE(a_full_disk_leaves_what_was_there) {
    const size_t large[2] = {3000, 5000};
    const rlim_t limits[] = {0, 1000, 3000, 4000, 5000};
    char *note = NULL;
    for (int again = 0; again < 2; again++) { /* save a new step, then replace it */
        for (int i = 0; i < 4 + again; i++) {
            test_limit_files_to(i < 4 ? limits[i] : 10);
            const cgp_status status = save_plain(run, 1, 0, "new", large, 1);
            test_limit_files_to(RLIM_INFINITY);
            assert_status(status, CGP_EIO);
            assert_message("cannot be written (File too large)");
            assert_int_equal(count_names(run, ""), again ? 2 : 0);
            assert_int_equal(entry_exists("run"), again);
        }
        if (again == 0) assert_ok(save_plain(run, 1, 0, "old", large, 1));
    }
    test_limit_files_to(400); /* the tensor files fit, but the manifest does not */
    const cgp_status status = save_plain(run, 1, 0, "new", (size_t[]){10, 10}, 1);
    test_limit_files_to(RLIM_INFINITY);
    assert_status(status, CGP_EIO);
    assert_message("checkpoint.json: cannot be written (File too large)");
    assert_ok(cgp_checkpoint_find(NULL, NULL, &note, run));
    assert_string_equal(note, "old");
    free(note);
}

TEST_CASE(a_directory_that_cannot_be_is_named) {
    test_write_file(test_path_of("file"), "old", 3);
    assert_status(save_plain(test_path_of("file"), 1, 0, "", small, 1), CGP_EIO);
    assert_message("/file: is not a directory, expected that of a run");
    test_assert_file(test_path_of("file"), "old");
    assert_status(save_plain(test_path_of("no/run"), 1, 0, "", small, 1), CGP_EIO);
    assert_message("/no/run: cannot be made: the directory that it is to be in is missing");
    assert_status(save_plain(test_path_of("file/run"), 1, 0, "", small, 1), CGP_EIO);
    assert_int_equal(mkdir(test_path_of("run"), 0700), 0);
    assert_int_equal(mkdir(test_path_of("run/latest"), 0700), 0);
    assert_status(save_plain(test_path_of("run"), 1, 0, "", small, 1), CGP_EIO);
    assert_message("/run/latest: expected a link to a checkpoint, got a directory");
    assert_int_equal(count_names(test_path_of("run"), ""), 1);
    assert_int_equal(rmdir(test_path_of("run/latest")), 0);
    const bool root = geteuid() == 0;
    assert_int_equal(chmod(test_path_of("run"), 0555), 0);
    assert_int_equal(chmod(test_directory, 0755), 0);
    /* root can write everywhere, so become another user; if that is not allowed, skip the test */
    if (root && seteuid(65534)) skip();
    const cgp_status status = save_plain(test_path_of("run"), 1, 0, "", small, 1);
    if (root) assert_int_equal(seteuid(0), 0);
    assert_status(status, CGP_EIO);
    assert_message("/run: cannot be written to (Permission denied)");
    assert_int_equal(count_names(test_path_of("run"), ""), 0);
}

TEST_CASE(a_directory_that_cannot_be_opened_is_not_left_behind) {
    assert_ok(save_plain(run, 1, 0, "", small, 1));
    cgp_log_set_level(CGP_LOG_ERROR);
    leave_descriptors(0);
    const cgp_status status = save_plain(run, 2, 0, "", small, 1);
    leave_descriptors(-1);
    cgp_log_set_level(CGP_LOG_WARN);
    assert_status(status, CGP_EIO);
    assert_message("/run: cannot be written to (Too many open files)");
    assert_int_equal(count_names(run, ""), 2);
    assert_ok(save_plain(run, 2, 0, "", small, 1));
}

TEST_CASE(a_writer_given_up_leaves_nothing) {
    cgp__checkpoint_writer *writer = NULL;
    assert_ok(cgp__checkpoint_create(&writer, run, 1));
    assert_ok(add_random(writer, "a", 10, 1));
    assert_status(cgp__checkpoint_add(writer, "b"), CGP_EIO);
    assert_message("/b: no such file");
    cgp__checkpoint_abandon(writer);
    assert_message("/b: no such file"); /* the earlier failure's message */
    assert_false(entry_exists("run"));
}

/* --- readers during writes --- */

static void *save_often(void *failed) {
    /* one file is large, so a save is likely to delete that file while a reader reads it */
    const size_t bytes[2] = {2000000, 24};
    for (int step = 2; step < 60; step++) {
        /* save each step twice, and keep only one */
        if (save_plain(run, step / 2, 1, "", bytes, (uint64_t)step) != CGP_OK) return failed;
    }
    return NULL;
}

TEST_CASE(a_reader_beside_a_writer_always_finds_a_whole_one) {
    pthread_t thread;
    void *failed = NULL;
    int64_t highest = 1;
    int finds = 0;
    assert_ok(save_plain(run, 1, 1, "", small, 1));
    assert_int_equal(pthread_create(&thread, NULL, save_often, &highest), 0);
    while (highest < 29) {
        const int64_t step = found_step(run);
        assert_true(step >= highest && step < 30);
        highest = step;
        finds++;
    }
    assert_int_equal(pthread_join(thread, &failed), 0);
    assert_null(failed);
    print_message("%d checkpoints were found beside a writer\n", finds);
}

TEST_GROUP(.set_up = test_make_directory, .tear_down = remove_tree_after,
           .before = empty_tree_before);
