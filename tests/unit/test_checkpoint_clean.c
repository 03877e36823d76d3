/* SPDX-License-Identifier: Apache-2.0 */
/* test_checkpoint_clean.c -- tests what cleaning a run directory deletes. An entry stays if its
 * writer may still be alive: in this process, in another process, or on another host. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* nftw */
#endif
#include "checkpoints.h"
#include "checkpoint/internal.h"

#include <errno.h>
#include <fcntl.h>
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

static int begin(void **state) {
    locks = LOCKS_OF_ALL;
    host = NULL;
    return empty_tree_before(state);
}

/* --- what is deleted, and what stays --- */

static pid_t dead_process(void) {
    const pid_t child = fork();
    if (child == 0) _exit(0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    return child;
}

/* Make an entry in the run directory. `kind` is 0 for a file, 1 for a directory that contains a
 * file and an empty directory, 2 for a link, or 3 for a link that is one minute old. */
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

/* Most names in this test are temporary names as older versions made them, without a host name. In
 * these cases, only the lock shows whether the writing process is alive. */
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
    assert_true(entry_exists("run/.cgpipe-mine") && entry_exists("run/step-00000001.tmp/deep") &&
                entry_exists("run/metrics.jsonl"));
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
 * cannot be looked up in this namespace. */
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
    assert_true(entry_exists(text));
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
        assert_true(entry_exists("run/.cgpipe-step-00000002-1-2.old"));
        close(lock);
        if (by_finding) assert_int_equal(found_step(run), 2);
        assert_ok(cgp_checkpoint_clean(run));
        assert_int_equal(found_step(run), 2);
        assert_int_equal(count_names(run, ""), 3);
    }
}

/* --- cleaning during writes --- */

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
