/* SPDX-License-Identifier: Apache-2.0 */
/* test_checkpoint_links.c -- tests symbolic links in a run directory and in a checkpoint. No file
 * outside the run directory is read, replaced or deleted through a link. The run directory itself
 * may be a link. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* nftw */
#endif
#include "checkpoints.h"

static const size_t small[2] = {100, 50};

/* Make a directory with a file outside the run, and a link to this directory in the run. */
static void link_out(const char *name) {
    if (mkdir(test_path_of("thesis"), 0700) == 0)
        test_write_file(test_path_of("thesis/chapter-1"), "years of work", 13);
    char path[300];
    snprintf(path, sizeof path, "%s/%s", run, name);
    assert_int_equal(symlink("../thesis", path), 0);
}

static void assert_thesis(void) {
    assert_int_equal(count_names(test_path_of("thesis"), ""), 1);
    test_assert_file(test_path_of("thesis/chapter-1"), "years of work");
}

static bool is_link(const char *name) {
    struct stat info;
    return lstat(test_path_of(name), &info) == 0 && S_ISLNK(info.st_mode);
}

static cgp_status save(int64_t step, int keep) {
    return save_plain(run, step, keep, "", small, 1);
}

TEST_CASE(a_link_with_the_name_of_a_step_is_no_checkpoint) {
    assert_ok(save(1, 0));
    assert_ok(save(2, 0));
    link_out("step-00000009");
    assert_int_equal(found_step(run), 2);
    assert_int_equal(unlink(test_path_of("run/latest")), 0);
    cgp_log_set_level(CGP_LOG_ERROR);
    assert_int_equal(found_step(run), 2);
    cgp_log_set_level(CGP_LOG_WARN);
    assert_status(cgp_checkpoint_find(NULL, NULL, NULL, test_path_of("run/step-00000009")),
                  CGP_EFORMAT);
    assert_message("/run/step-00000009: is a link, expected the directory of a checkpoint; "
                   "step-00000002 is whole (load ");
    assert_int_equal(symlink("step-00000001", test_path_of("run/step-00000003")), 0);
    assert_status(cgp_checkpoint_find(NULL, NULL, NULL, test_path_of("run/step-00000003")),
                  CGP_EFORMAT);
    /* the path of a checkpoint may itself be a link */
    assert_int_equal(symlink("run/step-00000001", test_path_of("best")), 0);
    assert_int_equal(found_step(test_path_of("best")), 1);
    assert_thesis();
}

TEST_CASE(a_link_gives_place_to_a_checkpoint_and_is_not_counted) {
    assert_ok(save(1, 0));
    assert_ok(save(2, 0));
    link_out("step-00000003");
    link_out("step-00000005");
    assert_ok(save(3, 0)); /* replaces the link */
    assert_false(is_link("run/step-00000003"));
    assert_int_equal(found_step(run), 3);
    assert_ok(save(6, 2)); /* keeps 3 and 6; the link is not a checkpoint, so it stays */
    assert_int_equal(count_names(run, "step-"), 3);
    assert_true(is_link("run/step-00000005"));
    assert_thesis();
}

TEST_CASE(latest_leads_to_a_checkpoint_of_its_run_alone) {
    static const char *const targets[] = {"../other/step-00000007",
                                          "../other",
                                          "./step-00000001",
                                          "step-1",
                                          "step-00000001/",
                                          "/",
                                          "..",
                                          "latest"};
    assert_ok(save(1, 0));
    assert_ok(save_plain(test_path_of("other"), 7, 0, "", small, 1));
    for (int i = 0; i < 8; i++) {
        assert_int_equal(unlink(test_path_of("run/latest")), 0);
        assert_int_equal(symlink(targets[i], test_path_of("run/latest")), 0);
        assert_status(cgp_checkpoint_find(NULL, NULL, NULL, run), CGP_EFORMAT);
        assert_message("/run/latest: leads to ");
    }
    assert_ok(save(2, 0));
    assert_int_equal(found_step(run), 2);
    assert_int_equal(unlink(test_path_of("run/latest")), 0);
    assert_int_equal(symlink("step-00000009", test_path_of("run/latest")), 0);
    link_out("step-00000009");
    assert_status(cgp_checkpoint_find(NULL, NULL, NULL, run), CGP_EFORMAT);
    assert_message("/run/step-00000009: is a link");
    assert_int_equal(found_step(test_path_of("other")), 7);
    assert_thesis();
}

/* If a program follows links when it copies a run, `latest` becomes a directory in the copy. */
TEST_CASE(a_directory_called_latest_is_read) {
    assert_ok(save(4, 0));
    assert_int_equal(unlink(test_path_of("run/latest")), 0);
    assert_int_equal(rename(test_path_of("run/step-00000004"), test_path_of("run/latest")), 0);
    assert_int_equal(found_step(run), 4);
}

TEST_CASE(links_in_a_checkpoint_are_damage) {
    static const char *const names[] = {"checkpoint.json", "checkpoint.sha256",
                                        "weights.safetensors", "optimizer.safetensors"};
    char path[300], expected[300];
    cgp_log_set_level(CGP_LOG_ERROR);
    for (int f = 0; f < 4; f++) {
        for (int kind = 0; kind < 2; kind++) { /* replace the file by a link or a pipe */
            assert_ok(save(1, 0));
            assert_ok(save(2, 0));
            snprintf(path, sizeof path, "%s/step-00000002/%s", run, names[f]);
            if (kind == 0) {
                assert_int_equal(rename(path, test_path_of("moved")), 0);
                assert_int_equal(symlink("../../moved", path), 0);
            } else {
                assert_int_equal(unlink(path), 0);
                assert_int_equal(mkfifo(path, 0600), 0);
            }
            assert_status(cgp_checkpoint_find(NULL, NULL, NULL, run), CGP_EFORMAT);
            snprintf(expected, sizeof expected,
                     "/run/step-00000002/%s: is %s, expected a file of the checkpoint; "
                     "step-00000001 is whole (load ",
                     names[f], kind == 0 ? "a link" : "not a regular file");
            assert_message(expected);
        }
    }
    cgp_log_set_level(CGP_LOG_WARN);
}

TEST_CASE(what_a_deleted_checkpoint_linked_to_stays) {
    assert_ok(save(1, 0));
    link_out("step-00000001/more");
    assert_int_equal(symlink("../../thesis/chapter-1", test_path_of("run/step-00000001/w")), 0);
    assert_ok(save(1, 0)); /* replaces step-00000001 */
    assert_int_equal(count_names(test_path_of("run/step-00000001"), ""), 4);
    link_out("step-00000001/more");
    assert_ok(save(2, 1)); /* deletes step-00000001 */
    assert_int_equal(count_names(run, ""), 2);
    link_out(".cgpipe-step-00000001-1-0.gone");
    link_out(".cgpipe-step-00000001-1-1.old");
    link_out(".cgpipe-step-00000001-1-2.tmp");
    const struct timespec before[2] = {{1, 0}, {1, 0}};
    assert_int_equal(utimensat(AT_FDCWD, test_path_of("run/.cgpipe-step-00000001-1-1.old"), before,
                               AT_SYMLINK_NOFOLLOW),
                     0);
    assert_int_equal(utimensat(AT_FDCWD, test_path_of("run/.cgpipe-step-00000001-1-2.tmp"), before,
                               AT_SYMLINK_NOFOLLOW),
                     0);
    assert_ok(cgp_checkpoint_clean(run)); /* an .old link does not become a checkpoint */
    assert_int_equal(count_names(run, ""), 2);
    assert_thesis();
}

TEST_CASE(the_run_itself_may_be_a_link) {
    assert_int_equal(mkdir(test_path_of("scratch"), 0700), 0);
    assert_int_equal(symlink("scratch", run), 0);
    assert_ok(save(1, 0));
    assert_ok(save(2, 1));
    assert_int_equal(found_step(run), 2);
    assert_int_equal(found_step(test_path_of("run/latest")), 2);
    assert_int_equal(count_names(test_path_of("scratch"), ""), 2);
    assert_ok(cgp_checkpoint_clean(run));
    assert_true(is_link("run"));
}

TEST_CASE(a_file_in_an_open_directory_is_replaced_and_no_link_followed) {
    assert_int_equal(mkdir(run, 0700), 0);
    const int fd = open(run, O_RDONLY | O_DIRECTORY);
    assert_true(fd >= 0);
    assert_ok(cgp_file_replace_at(fd, "record", "run/record", "one", 3));
    assert_ok(cgp_file_replace_at(fd, "record", "run/record", "two", 3));
    /* the run directory moves while it is open */
    assert_int_equal(rename(run, test_path_of("moved")), 0);
    assert_ok(cgp_file_replace_at(fd, "other", "run/other", "", 0));
    test_assert_file(test_path_of("moved/record"), "two");
    test_assert_file(test_path_of("moved/other"), "");
    test_write_file(test_path_of("target"), "mine", 4);
    for (int dangling = 0; dangling < 2; dangling++) {
        assert_int_equal(symlink(dangling ? "../nowhere" : "../target", test_path_of("moved/link")),
                         0);
        assert_status(cgp_file_replace_at(fd, "link", "run/link", "x", 1), CGP_EIO);
        assert_message("run/link: is a link, which is not followed here (put a file there)");
        assert_int_equal(unlink(test_path_of("moved/link")), 0);
    }
    test_assert_file(test_path_of("target"), "mine");
    assert_int_equal(mkdir(test_path_of("moved/dir"), 0700), 0);
    assert_status(cgp_file_replace_at(fd, "dir", "run/dir", "x", 1), CGP_EIO);
    assert_message("run/dir: is a directory, expected a file to replace");
    assert_status(cgp_file_replace_at(fd, "../target", "p", "x", 1), CGP_EINVAL);
    assert_status(cgp_file_replace_at(fd, "", "p", "x", 1), CGP_EINVAL);
    assert_status(cgp_file_replace_at(fd, NULL, "p", "x", 1), CGP_EINVAL);
    assert_status(cgp_file_replace_at(fd, "a", NULL, "x", 1), CGP_EINVAL);
    assert_status(cgp_file_replace_at(fd, "a", "p", NULL, 1), CGP_EINVAL);
    assert_status(cgp_file_replace_at(-1, "a", "p", "x", 1), CGP_EIO);
    assert_int_equal(count_names(test_path_of("moved"), ""), 3);
    close(fd);
}

/* Each file that cannot be deleted is named with the reason; the others are still deleted. */
TEST_CASE(what_cannot_be_deleted_is_named) {
    char path[300];
    assert_ok(save(1, 0));
    const char *gone = "run/.cgpipe-step-00000001-1-0.gone";
    assert_int_equal(rename(test_path_of("run/step-00000001"), test_path_of(gone)), 0);
    snprintf(path, sizeof path, "%s/mine", test_path_of(gone));
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/mine/deep", test_path_of(gone));
    assert_int_equal(mkdir(path, 0700), 0);
    assert_status(cgp_checkpoint_clean(run), CGP_EIO);
    assert_message(
        "/run/.cgpipe-step-00000001-1-0.gone/mine: cannot be deleted (Directory not empty)");
    assert_int_equal(count_names(test_path_of(gone), ""), 1);
}

TEST_GROUP(.set_up = test_make_directory, .tear_down = remove_tree_after,
           .before = empty_tree_before, .after = remove_tree_after);
