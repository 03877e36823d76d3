/* SPDX-License-Identifier: Apache-2.0 */
/* test_file_replace.c -- cgp_file_replace() and the safetensors writer replace a file
 * atomically. */
#include "directory.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cgpipe/checkpoint.h>

static cgp_status create(cgp_safetensors_writer **writer, const char *path, int count,
                         const char *const *names, int64_t size) {
    const cgp_dtype types[2] = {CGP_F32, CGP_F32};
    const cgp_shape shapes[2] = {cgp_shape_make(1, &size), cgp_shape_make(1, &size)};
    return cgp_safetensors_create(writer, path, count, names, types, shapes, NULL, 0);
}

TEST_CASE(the_old_file_stands_until_commit) {
    const char *path = test_path_of("w.safetensors"), *names[] = {"w"};
    cgp_safetensors_writer *writer = NULL;
    cgp_safetensors *file = NULL;
    assert_ok(cgp_file_replace(path, "old", 3));
    assert_ok(create(&writer, path, 1, names, 1));
    assert_ok(cgp_safetensors_append(writer, "abcd", 4));
    test_assert_file(path, "old");
    assert_ok(cgp_safetensors_commit(writer));
    assert_ok(cgp_safetensors_open(&file, path));
    cgp_safetensors_close(file);
    assert_int_equal(test_empty_directory(), 1);
}

TEST_CASE(a_writer_given_up_leaves_the_old_file_and_nothing_else) {
    const char *path = test_path_of("w.safetensors"), *names[] = {"w"};
    cgp_safetensors_writer *writer = NULL;
    assert_ok(cgp_file_replace(path, "old", 3));
    assert_ok(create(&writer, path, 1, names, 1));
    assert_ok(cgp_safetensors_append(writer, "ab", 2));
    assert_status(cgp_safetensors_commit(writer), CGP_ESTATE);
    assert_message("w.safetensors: 2 bytes of data are missing (cgp_safetensors_append is due)");
    assert_ok(create(&writer, path, 1, names, 1));
    cgp_safetensors_abandon(writer);
    cgp_safetensors_abandon(NULL);
    test_assert_file(path, "old");
    assert_int_equal(test_empty_directory(), 1);
}

TEST_CASE(a_failed_write_leaves_the_old_file_and_nothing_else) {
    const char *path = test_path_of("w.safetensors"), *names[] = {"w"};
    char data[4000] = {0};
    cgp_safetensors_writer *writer = NULL;
    assert_ok(cgp_file_replace(path, "old", 3));
    test_limit_files_to(1000);
    const cgp_status replaced = cgp_file_replace(path, data, sizeof data);
    char message[256];
    snprintf(message, sizeof message, "%s", cgp_message());
    const cgp_status created = create(&writer, path, 1, names, 1000);
    const cgp_status appended = cgp_safetensors_append(writer, data, sizeof data);
    test_limit_files_to(10);
    cgp_safetensors_writer *none = NULL;
    const cgp_status no_header = create(&none, path, 1, names, 1000);
    test_limit_files_to(RLIM_INFINITY);
    assert_status(replaced, CGP_EIO);
    assert_non_null(strstr(message, "w.safetensors: cannot be written (File too large)"));
    assert_status(created, CGP_OK);
    assert_status(appended, CGP_EIO);
    /* The size limit has been removed again, but the failed write may have written a part of the
     * data. Therefore the writer must stay in the failed state. */
    assert_status(cgp_safetensors_append(writer, data, sizeof data), CGP_EIO);
    assert_message("w.safetensors: an earlier write failed");
    assert_status(cgp_safetensors_commit(writer), CGP_ESTATE);
    assert_status(no_header, CGP_EIO);
    assert_null(none);
    test_assert_file(path, "old");
    assert_int_equal(test_empty_directory(), 1);
}

TEST_CASE(a_failed_rename_leaves_no_temporary_file) {
    const char *path = test_path_of("w.safetensors"), *names[] = {"w"};
    cgp_safetensors_writer *writer = NULL;
    assert_ok(create(&writer, path, 1, names, 1));
    assert_ok(cgp_safetensors_append(writer, "abcd", 4));
    assert_int_equal(mkdir(path, 0700), 0); /* a directory takes the file's name */
    assert_status(cgp_safetensors_commit(writer), CGP_EIO);
    assert_message("w.safetensors: cannot be replaced (Is a directory)");
    assert_int_equal(test_empty_directory(), 1);
}

TEST_CASE(a_directory_that_is_missing_or_not_writable_is_named) {
    char expected[256];
    const char *names[] = {"w"}, *missing = test_path_of("no/w.safetensors"),
               *path = test_path_of("w.safetensors");
    cgp_safetensors_writer *writer = NULL;
    assert_status(create(&writer, missing, 1, names, 1), CGP_EIO);
    snprintf(expected, sizeof expected, "%s: no such directory %s/no", missing, test_directory);
    assert_string_equal(cgp_message(), expected);
    assert_ok(cgp_file_replace(path, "old", 3));
    const bool root = geteuid() == 0;
    assert_int_equal(chmod(test_directory, 0555), 0);
    if (root && seteuid(65534))
        skip(); /* root can write everywhere, and is not always allowed to change its user */
    const cgp_status status = create(&writer, path, 1, names, 1);
    if (root) assert_int_equal(seteuid(0), 0);
    assert_int_equal(chmod(test_directory, 0700), 0);
    assert_status(status, CGP_EIO);
    snprintf(expected, sizeof expected, "%s: cannot write in directory %s (Permission denied)",
             path, test_directory);
    assert_string_equal(cgp_message(), expected);
    assert_null(writer);
    test_assert_file(path, "old");
    assert_int_equal(test_empty_directory(), 1);
}

TEST_CASE(only_regular_files_are_replaced) {
    struct stat info;
    assert_status(cgp_file_replace(test_directory, "x", 1), CGP_EIO);
    assert_message("is a directory, expected a file to replace");
    /* Do not use /dev/null in this test, because a broken library would replace it for the whole
     * machine. */
    const char *pipe_path = test_path_of("pipe");
    assert_int_equal(mkfifo(pipe_path, 0600), 0);
    assert_status(cgp_file_replace(pipe_path, "x", 1), CGP_EIO);
    assert_message("pipe: is not a regular file, so it cannot be replaced");
    assert_true(stat(pipe_path, &info) == 0 && S_ISFIFO(info.st_mode));
    assert_status(cgp_file_replace("", "x", 1), CGP_EIO);
    assert_status(cgp_file_replace(test_path_of("new/"), "x", 1), CGP_EIO);
    assert_message("new/: is not the name of a file");
    assert_int_equal(test_empty_directory(), 1);
}

TEST_CASE(a_link_stays_and_its_file_is_replaced) {
    const char *real = test_path_of("real"), *link_path = test_path_of("link"),
               *broken = test_path_of("broken");
    struct stat info;
    assert_ok(cgp_file_replace(real, "old", 3));
    assert_int_equal(symlink("real", link_path), 0);
    assert_int_equal(symlink("nowhere", broken), 0);
    assert_ok(cgp_file_replace(link_path, "new", 3));
    assert_true(lstat(link_path, &info) == 0 && S_ISLNK(info.st_mode));
    test_assert_file(real, "new");
    assert_status(cgp_file_replace(broken, "new", 3), CGP_EIO);
    assert_message("broken: is a link that leads nowhere");
    assert_int_equal(test_empty_directory(), 3);
}

TEST_CASE(the_longest_names_and_names_without_directory_work) {
    char name[256] = {0}, before[4096];
    memset(name, 'n', 255);
    const char *path = test_path_of(name);
    assert_ok(cgp_file_replace(path, "long", 4));
    test_assert_file(path, "long");
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(test_directory), 0);
    const cgp_status status = cgp_file_replace("plain", "", 0);
    assert_int_equal(chdir(before), 0);
    assert_status(status, CGP_OK);
    test_assert_file(test_path_of("plain"), "");
    assert_int_equal(test_empty_directory(), 2);
}

/* On a host without /proc, cgp_process_name() may return the same name for two processes. Even
 * then, a process does not overwrite temporary files of another process. */
TEST_CASE(temporary_files_of_others_are_not_touched) {
    char process[CGP_PROCESS_BYTES], name[CGP_TEMPORARY_BYTES];
    assert_ok(cgp_process_name(process));
    for (int i = 0; i < 500; i++) { /* more names than this program has used */
        snprintf(name, sizeof name, ".cgpipe-file-@%s-%d.tmp", process, i);
        test_write_file(test_path_of(name), "theirs", 6);
    }
    assert_ok(cgp_file_replace(test_path_of("ours"), "ours", 4));
    for (int i = 0; i < 500; i++) {
        snprintf(name, sizeof name, ".cgpipe-file-@%s-%d.tmp", process, i);
        test_assert_file(test_path_of(name), "theirs");
    }
    assert_int_equal(test_empty_directory(), 501);
}

enum { WRITERS = 3, TIMES = 40, PAGE = 4000 };

/* Thread: repeatedly replace the file by a page that consists of one letter. */
static void *replace_often(void *letter) {
    char page[PAGE], path[128];
    snprintf(path, sizeof path, "%s/shared", test_directory);
    memset(page, *(char *)letter, sizeof page);
    for (int i = 0; i < TIMES; i++) {
        if (cgp_file_replace(path, page, sizeof page) != CGP_OK) return letter;
    }
    return NULL;
}

TEST_CASE(writers_at_once_never_show_a_torn_file) {
    pthread_t threads[WRITERS];
    char letters[] = "abc", bytes[4096];
    const char *path = test_path_of("shared");
    assert_null(replace_often(&letters[0]));
    for (int i = 0; i < WRITERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, replace_often, &letters[i]), 0);
    for (int round = 0; round < 300; round++) {
        assert_int_equal(test_read_file(path, bytes), PAGE);
        for (int i = 1; i < PAGE; i++)
            assert_int_equal(bytes[i], bytes[0]);
    }
    for (int i = 0; i < WRITERS; i++) {
        void *failed = NULL;
        assert_int_equal(pthread_join(threads[i], &failed), 0);
        assert_null(failed);
    }
    assert_int_equal(test_empty_directory(), 1);
}

TEST_GROUP(.set_up = test_make_directory, .tear_down = test_remove_directory,
           .before = test_empty_before);
