/* SPDX-License-Identifier: Apache-2.0 */
/* test_checkpoint.c -- the checkpoints in a run directory, which checkpoint a reader finds, and
 * what is in the directory after a failure or a kill. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* nftw */
#endif
#include "checkpoints.h"
#include "checkpoint/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static const size_t small[2] = {1000, 24};

/* --- simulated hosts and locks --- */

static enum { LOCKS_OF_ALL, LOCKS_OF_ONE_HOST, NO_LOCKS } locks;
static const char *host; /* simulated host name; NULL: "here" */

int flock(int fd, int operation) {
    if (locks == LOCKS_OF_ONE_HOST) return 0; /* invisible lock of another host */
    if (locks == LOCKS_OF_ALL) return (int)syscall(SYS_flock, fd, operation);
    errno = ENOLCK;
    return -1;
}

int gethostname(char *name, size_t size) {
    snprintf(name, size, "%s", host ? host : "here");
    return 0;
}

static bool has(const char *name) {
    struct stat info;
    return lstat(test_path_of(name), &info) == 0;
}

static void assert_link(const char *expected) {
    char target[64] = "";
    assert_true(readlink(test_path_of("run/latest"), target, sizeof target - 1) > 0);
    assert_string_equal(target, expected);
}

static int begin(void **state) {
    locks = LOCKS_OF_ALL;
    host = NULL;
    return empty_tree_before(state);
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

/* Training continues to count from the step in a manifest, so the step must be in range. */
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

/* Saves steps in random order, and compares the directory with a list of expected steps. Saving
 * step s with `keep` = k keeps the k - 1 highest steps below s, and all steps above s. */
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
            assert_int_equal(has(name), there[s]);
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
    assert_false(has("run/step-00000005/mine"));
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
    assert_false(has("run/step-00000000"));
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

/* --- cleaning --- */

static pid_t dead_process(void) {
    const pid_t child = fork();
    if (child == 0) _exit(0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    return child;
}

/* Make an entry in the run directory. `kind` 0: a file; 1: a directory with a file and an empty
 * directory; 2: a link; 3: a link that is one minute old. */
static void leave(const char *name, int kind) {
    char path[200];
    snprintf(path, sizeof path, "%s/run/%s", test_directory, name);
    if (kind == 0) test_write_file(path, "x", 1);
    if (kind >= 2) assert_int_equal(symlink("nowhere", path), 0);
    const struct timespec before[2] = {{time(NULL) - 60, 0}, {time(NULL) - 60, 0}};
    if (kind == 3) assert_int_equal(utimensat(AT_FDCWD, path, before, AT_SYMLINK_NOFOLLOW), 0);
    if (kind != 1) return;
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/run/%s/deep", test_directory, name);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/run/%s/weights.safetensors", test_directory, name);
    test_write_file(path, "x", 1);
}

/* Tests temporary names of older versions, which contain no host name. For such names, only the
 * lock shows whether the writing process is alive. */
TEST_CASE(what_the_dead_left_is_deleted_and_nothing_else) {
    char name[CGP_TEMPORARY_BYTES], process[CGP_PROCESS_BYTES];
    const pid_t pids[] = {dead_process(), getpid()}; /* a pid may be reused */
    assert_ok(save_plain(run, 1, 0, "", small, 1));
    for (int p = 0; p < 2; p++) {
        snprintf(name, sizeof name, ".cgpipe-%ld-0.tmp", (long)pids[p]);
        leave(name, 0);
        snprintf(name, sizeof name, ".cgpipe-step-00000001-%ld-1.tmp", (long)pids[p]);
        leave(name, 1);
        snprintf(name, sizeof name, ".cgpipe-latest-%ld-2.tmp", (long)pids[p]);
        leave(name, 3);
        snprintf(name, sizeof name, ".cgpipe-step-00000001-%ld-3.old", (long)pids[p]);
        leave(name, 1);
        snprintf(name, sizeof name, ".cgpipe-step-00000003-%ld-4.gone", (long)pids[p]);
        leave(name, 1);
    }
    snprintf(name, sizeof name, ".cgpipe-latest-%ld-5.tmp", (long)getpid());
    leave(name, 2); /* stays: a new link's writer may still rename it */
    assert_ok(cgp_process_name(process));
    snprintf(name, sizeof name, ".cgpipe-latest-@%s1-6.tmp", process);
    leave(name, 2); /* left by a dead process that had our pid */
    leave(".cgpipe-mine", 0);
    leave("step-00000001.tmp", 1);
    leave("metrics.jsonl", 0);
    assert_ok(cgp_checkpoint_clean(run));
    assert_int_equal(count_names(run, ""), 6); /* four leftovers, one checkpoint, and `latest` */
    assert_true(has("run/.cgpipe-mine") && has("run/step-00000001.tmp/deep") &&
                has("run/metrics.jsonl"));
    assert_int_equal(found_step(run), 1);
    assert_ok(cgp_checkpoint_clean(test_path_of("no")));
    assert_status(cgp_checkpoint_clean(test_path_of("run/metrics.jsonl")), CGP_EIO);
}

TEST_CASE(what_the_living_write_stays) {
    const char *names[] = {"w"};
    const cgp_dtype type = CGP_F32;
    const cgp_shape shape = {.rank = 0};
    cgp__checkpoint_writer *writer = NULL, *other = NULL;
    cgp_safetensors_writer *file = NULL;
    const cgp__checkpoint_info info = {.step = 3, .optimizer = "sgd", .note = ""};
    assert_ok(cgp__checkpoint_create(&writer, run, 3));
    assert_ok(add_random(writer, "a", 10, 1));
    assert_ok(cgp_safetensors_create(&file, test_path_of("run/w.safetensors"), 1, names, &type,
                                     &shape, NULL, 0));
    assert_int_equal(count_names(run, ".cgpipe-"), 2);
    assert_ok(cgp_checkpoint_clean(run));
    const pid_t child = fork();
    if (child == 0) _exit(cgp_checkpoint_clean(run) == CGP_OK ? 0 : 1);
    int result = 0;
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_true(WIFEXITED(result) && WEXITSTATUS(result) == 0);
    assert_ok(cgp__checkpoint_create(&other, run, 3)); /* creating a checkpoint also cleans */
    assert_int_equal(count_names(run, ".cgpipe-"), 3);
    cgp__checkpoint_abandon(other);
    cgp__checkpoint_abandon(NULL);
    assert_ok(cgp_safetensors_append(file, "abcd", 4));
    assert_ok(cgp_safetensors_commit(file));
    assert_ok(cgp__checkpoint_commit(writer, &info, 0));
    assert_int_equal(found_step(run), 3);
    assert_int_equal(count_names(run, ".cgpipe-"), 0);
}

/* Start a process with the host name `name_of_host`. The process begins the checkpoint of step 3,
 * then blocks until it can read a byte from the pipe `told`. */
static pid_t begin_elsewhere(const char *name_of_host, int told[2]) {
    const cgp__checkpoint_info info = {.step = 3, .optimizer = "sgd", .note = ""};
    cgp__checkpoint_writer *writer = NULL;
    int begun[2];
    char byte = 0;
    assert_int_equal(pipe(begun) | pipe(told), 0);
    const pid_t child = fork();
    if (child > 0) {
        close(begun[1]);
        close(told[0]);
        assert_int_equal(read(begun[0], &byte, 1), 1);
        close(begun[0]);
        return child;
    }
    close(told[1]);
    host = name_of_host;
    if (cgp__checkpoint_create(&writer, run, 3) != CGP_OK || write(begun[1], "x", 1) != 1) _exit(1);
    if (read(told[0], &byte, 1) != 1) _exit(2);
    if (add_random(writer, "a", 10, 1) != CGP_OK) _exit(3);
    _exit(cgp__checkpoint_commit(writer, &info, 0) == CGP_OK ? 0 : 4);
}

static void end_elsewhere(pid_t child, const int told[2]) {
    int result = 0;
    assert_int_equal(write(told[1], "x", 1), 1);
    close(told[1]);
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_true(WIFEXITED(result) && WEXITSTATUS(result) == 0);
}

static void kill_elsewhere(pid_t child, const int told[2]) {
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    close(told[1]);
}

/* A lock of another host is not visible on this host. On NFS each host has its own locks, or there
 * are no locks. */
TEST_CASE(what_another_host_writes_stays) {
    int told[2];
    cgp_log_set_level(CGP_LOG_ERROR); /* silence warnings about entries that stay */
    for (int i = 0; i < 2; i++) {
        locks = i == 0 ? LOCKS_OF_ONE_HOST : NO_LOCKS;
        const pid_t child = begin_elsewhere("elsewhere", told);
        assert_ok(save_plain(run, 2, 0, "", small, 1)); /* saving also cleans */
        assert_ok(cgp_checkpoint_clean(run));
        assert_int_equal(count_names(run, ".cgpipe-step-00000003"), 1);
        end_elsewhere(child, told);
        assert_int_equal(found_step(run), 3);
        const pid_t killed = begin_elsewhere("elsewhere", told);
        kill_elsewhere(killed, told); /* the next start on host "elsewhere" deletes the files */
        assert_ok(cgp_checkpoint_clean(run));
        assert_int_equal(count_names(run, ".cgpipe-step-00000003"), 1);
    }
    cgp_log_set_level(CGP_LOG_WARN);
}

/* Two processes in different pid namespaces may have equal pids. A process of another namespace
 * cannot be looked up in this one. */
TEST_CASE(what_another_pid_namespace_writes_stays) {
    int told[2];
    char name[CGP_PROCESS_BYTES], here[64] = "", text[300];
    locks = NO_LOCKS;
    assert_true(readlink("/proc/self/ns/pid", here, sizeof here - 1) > 0);
    const pid_t child = begin_elsewhere(NULL, told);
    kill_elsewhere(child, told);
    assert_ok(cgp_process_name(name));
    snprintf(text, sizeof text, "-%.*s-", (int)strcspn(here + 5, "]"), here + 5);
    char *inode = strstr(name, text);
    assert_non_null(inode);
    inode[1] = inode[1] == '9' ? '1' : '9'; /* another namespace */
    snprintf(text, sizeof text, ".cgpipe-step-00000003-@%s-0.tmp", name);
    leave(text, 1);
    assert_int_equal(count_names(run, ".cgpipe-"), 2);
    cgp_log_set_level(CGP_LOG_ERROR);
    assert_ok(cgp_checkpoint_clean(run));
    cgp_log_set_level(CGP_LOG_WARN);
    assert_int_equal(count_names(run, ".cgpipe-"), 1);
    snprintf(text, sizeof text, "run/.cgpipe-step-00000003-@%s-0.tmp/deep", name);
    assert_true(has(text));
}

TEST_CASE(without_locks_the_process_decides) {
    int told[2];
    locks = NO_LOCKS;
    for (int by_saving = 0; by_saving < 2; by_saving++) {
        const pid_t child = begin_elsewhere(NULL, told);
        assert_ok(cgp_checkpoint_clean(run));
        assert_int_equal(count_names(run, ".cgpipe-"), 1);
        assert_int_equal(kill(child, SIGKILL), 0);
        siginfo_t info; /* waits for the child's end without reaping the child */
        assert_int_equal(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), 0);
        if (by_saving)
            assert_ok(save_plain(run, 2, 0, "", small, 1));
        else
            assert_ok(cgp_checkpoint_clean(run));
        assert_int_equal(count_names(run, ".cgpipe-"), 0);
        assert_int_equal(waitpid(child, NULL, 0), child);
        close(told[1]);
    }
}

/* Pids are reused. A later process with the same pid has a different start time. */
TEST_CASE(a_process_is_more_than_its_pid) {
    cgp_process_state found;
    char name[CGP_PROCESS_BYTES], other[CGP_PROCESS_BYTES + 8];
    assert_ok(cgp_process_name(name));
    assert_ok(cgp_process_find(&found, name));
    assert_int_equal(found, CGP_PROCESS_RUNS);
    snprintf(other, sizeof other, "%s1", name);
    assert_ok(cgp_process_find(&found, other));
    assert_int_equal(found, CGP_PROCESS_GONE);
    snprintf(other, sizeof other, "t%s", name);
    for (size_t i = 0; i < 4; i++) {
        const char *const strange[] = {other, "", "here", "here-unknown-unknown-1-1"};
        assert_ok(cgp_process_find(&found, strange[i]));
        assert_int_equal(found, CGP_PROCESS_UNKNOWN);
    }
}

TEST_CASE(a_temporary_directory_lives_as_long_as_its_process) {
    char name[CGP_TEMPORARY_BYTES];
    int fd = -1;
    assert_ok(save_plain(run, 1, 0, "", small, 1));
    const int directory = open(run, O_RDONLY | O_DIRECTORY);
    assert_ok(cgp_temporary_directory(directory, "mine", run, name, &fd));
    assert_ok(cgp_checkpoint_clean(run));
    assert_int_equal(count_names(run, ".cgpipe-mine"), 1);
    close(fd); /* releases the lock, as if the process had ended */
    assert_ok(cgp_checkpoint_clean(run));
    assert_int_equal(count_names(run, ".cgpipe-"), 0);
    assert_status(cgp_temporary_directory(directory, "../mine", run, name, &fd), CGP_EINVAL);
    assert_message("expected a word of at most 32 letters, got \"../mine\"");
    close(directory);
}

/* On a file system without RENAME_EXCHANGE, a checkpoint is replaced by two renames. A kill between
 * the renames leaves the old checkpoint under a temporary name. */
TEST_CASE(a_replaced_checkpoint_is_put_back_if_none_took_its_place) {
    const char *old = test_path_of("run/.cgpipe-step-00000002-1-2.old");
    assert_ok(save_plain(run, 1, 0, "", small, 1));
    assert_ok(save_plain(run, 2, 0, "", small, 1));
    for (int by_finding = 0; by_finding < 2; by_finding++) {
        leave(".cgpipe-step-00000002-1-1.tmp", 1);
        assert_int_equal(rename(test_path_of("run/step-00000002"), old), 0);
        const int lock = open(old, O_RDONLY); /* as if the writer were alive */
        assert_true(lock >= 0 && flock(lock, LOCK_EX) == 0);
        cgp_log_set_level(CGP_LOG_ERROR);
        assert_int_equal(found_step(run), 1);
        cgp_log_set_level(CGP_LOG_WARN);
        assert_true(has("run/.cgpipe-step-00000002-1-2.old"));
        close(lock);
        if (by_finding) assert_int_equal(found_step(run), 2);
        assert_ok(cgp_checkpoint_clean(run));
        assert_int_equal(found_step(run), 2);
        assert_int_equal(count_names(run, ""), 3);
    }
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
            assert_int_equal(has("run"), again);
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
    /* root can write everywhere, so become another user; skip the test if that is not allowed */
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
    assert_false(has("run"));
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

static atomic_bool quit;

static void *clean_often(void *failed) {
    while (!atomic_load(&quit)) {
        if (cgp_checkpoint_clean(run) != CGP_OK) return failed;
    }
    return NULL;
}

TEST_CASE(cleaning_does_not_disturb_a_writer) {
    pthread_t thread;
    void *failed = NULL;
    const char *path = test_path_of("run/metrics.jsonl");
    atomic_store(&quit, false);
    assert_ok(save_plain(run, 1, 1, "", small, 1));
    assert_int_equal(pthread_create(&thread, NULL, clean_often, &failed), 0);
    for (int step = 2; step < 150; step++) {
        assert_ok(save_plain(run, step / 2, 2, "", small, (uint64_t)step));
        assert_ok(cgp_file_replace(path, "x", 1));
        assert_int_equal(found_step(run), step / 2);
    }
    atomic_store(&quit, true);
    assert_int_equal(pthread_join(thread, &failed), 0);
    assert_null(failed);
    assert_int_equal(count_names(run, ""), 4);
}

TEST_GROUP(.set_up = test_make_directory, .tear_down = remove_tree_after, .before = begin);
