/* SPDX-License-Identifier: Apache-2.0 */
/* test_data_files.c -- tests texts in directories, separate validation files, and the identity of
 * data sets. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* nftw */
#endif
#include "directory.h"

#include <ftw.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cgpipe/data.h>

/* --- a tree of files in the test's directory --- */

static int delete_entry(const char *path, const struct stat *info, int type, struct FTW *at) {
    (void)info;
    (void)type;
    return at->level > 0 ? remove(path) : 0;
}

/* Delete the directory's contents, including directories; links are not followed. */
static int empty_tree(void **state) {
    (void)state;
    return nftw(test_directory, delete_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static int remove_tree(void **state) {
    return empty_tree(state) || rmdir(test_directory);
}

static void make_directory(const char *name) {
    assert_int_equal(mkdir(test_path_of(name), 0700), 0);
}

static const char *write_text(const char *name, const char *text) {
    const char *path = test_path_of(name);
    test_write_file(path, text, strlen(text));
    return path;
}

static void link_to(const char *target, const char *name) {
    assert_int_equal(symlink(target, test_path_of(name)), 0);
}

/* --- reading with T = 1: all sequences except the first are validation, read in file order --- */

static cgp_text_options in_order(int64_t bytes) {
    cgp_text_options options = cgp_text_options_default();
    options.sequence = 1;
    options.validation_fraction = 1 - 1.0 / (double)(bytes - 1);
    return options;
}

/* Assert that the text of `paths` is `expected`. */
static void assert_text(const char *const *paths, int n_paths, const char *expected) {
    const int64_t bytes = (int64_t)strlen(expected);
    const cgp_text_options options = in_order(bytes);
    int32_t token, target;
    char text[256] = {0};
    cgp_data *data = NULL;
    assert_ok(cgp_data_text(&data, paths, n_paths, &options));
    assert_int_equal(cgp_data_samples(data, CGP_SPLIT_TRAIN), 1);
    assert_ok(cgp_data_read(data, CGP_SPLIT_TRAIN, 0, 1, &token, &target));
    text[0] = (char)token;
    text[1] = (char)target;
    const int64_t n = cgp_data_samples(data, CGP_SPLIT_VALIDATION);
    assert_in_range(n, 0, 250);
    for (int64_t i = 0; i < n; i++) {
        assert_ok(cgp_data_read(data, CGP_SPLIT_VALIDATION, i, 1, &token, &target));
        assert_int_equal(token, text[i + 1]);
        text[i + 2] = (char)target;
    }
    assert_string_equal(text, expected);
    cgp_data_destroy(data);
}

static void assert_refused(const char *path, cgp_status expected, const char *message) {
    char whole[512];
    cgp_data *data = NULL;
    assert_status(cgp_data_text(&data, &path, 1, NULL), expected);
    assert_null(data);
    snprintf(whole, sizeof whole, "%s%s", test_directory, message);
    assert_string_equal(cgp_message(), whole);
}

/* --- directories --- */

/* tree/B  tree/a.txt  tree/a/x  tree/a/y/z  tree/a-b/q  tree/ü
 *
 * In byte order, "B" (42) is before "a" (61). For the character after "a", "-" (2d) is before "."
 * (2e), and "." is before "/" (2f). In a dictionary, "a" is before "B", and punctuation is
 * ignored. */
TEST_CASE(a_directory_is_read_in_byte_order_of_its_paths) {
    make_directory("tree");
    make_directory("tree/a");
    make_directory("tree/a/y");
    make_directory("tree/a-b");
    write_text("tree/\xc3\xbc", "7");
    write_text("tree/a/y/z", "6");
    write_text("tree/a/x", "45");
    write_text("tree/a.txt", "3");
    write_text("tree/a-b/q", "2");
    write_text("tree/B", "1");
    const char *path = test_path_of("tree"), *slashed = test_path_of("tree/");
    assert_text(&path, 1, "1234567");
    assert_text(&slashed, 1, "1234567");
}

TEST_CASE(files_and_directories_are_joined_in_order) {
    make_directory("z");
    make_directory("y");
    write_text("z/2", "cd");
    write_text("z/1", "ab");
    write_text("y/1", "gh");
    const char *paths[] = {test_path_of("z"), write_text("m", "ef"), test_path_of("y")};
    assert_text(paths, 3, "abcdefgh");
}

TEST_CASE(hidden_empty_and_irregular_files_of_a_directory_are_skipped) {
    make_directory("tree");
    make_directory("tree/.git");
    make_directory("tree/nothing");
    write_text("tree/.git/config", "no");
    write_text("tree/.hidden", "no");
    write_text("tree/empty", "");
    write_text("tree/1", "yes");
    write_text("tree/1~", "!");
    assert_int_equal(mkfifo(test_path_of("tree/pipe"), 0600), 0);
    const char *path = test_path_of("tree");
    assert_text(&path, 1, "yes!");
}

TEST_CASE(the_files_of_a_text_are_listed_in_the_order_of_reading) {
    make_directory("tree");
    make_directory("tree/a");
    write_text("tree/a/x", "2");
    write_text("tree/empty", "");
    write_text("tree/B", "1");
    const char *paths[] = {test_path_of("tree"), test_path_of("missing")};
    const char *const expected[] = {"tree/B", "tree/a/x", "missing"};
    char **files = NULL;
    int n = 0;
    assert_ok(cgp_data_text_files(&files, &n, paths, 2));
    assert_int_equal(n, 3);
    for (int i = 0; i < n; i++)
        assert_string_equal(files[i], test_path_of(expected[i]));
    free(files);
    write_text("tree/train.bin", "xx");
    files = NULL;
    paths[0] = test_path_of("tree");
    assert_status(cgp_data_text_files(&files, &n, paths, 1), CGP_EINVAL);
    assert_non_null(strstr(cgp_message(), "is a token file by its name"));
    assert_null(files);
    assert_status(cgp_data_text_files(&files, &n, paths, 0), CGP_EINVAL);
}

/* A hidden directory may be named explicitly. */
TEST_CASE(a_hidden_directory_that_is_named_is_read) {
    make_directory(".tree");
    write_text(".tree/1", "abc");
    const char *path = test_path_of(".tree");
    assert_text(&path, 1, "abc");
}

TEST_CASE(links_to_directories_are_not_followed_and_links_to_files_are) {
    make_directory("tree");
    make_directory("tree/sub");
    make_directory("other");
    write_text("other/far", "far");
    write_text("tree/sub/2", "cd");
    link_to("..", "tree/sub/up");
    link_to("../tree", "tree/self");
    link_to("../other", "tree/aside");
    link_to("../other/far", "tree/1");
    const char *path = test_path_of("tree");
    assert_text(&path, 1, "farcd");
    link_to("tree", "named");
    const char *spec = test_path_of("named"); /* links named explicitly are followed */
    assert_text(&spec, 1, "farcd");
}

TEST_CASE(a_broken_link_is_named) {
    make_directory("tree");
    write_text("tree/1", "abc");
    link_to("gone", "tree/2");
    const char *path = test_path_of("tree");
    assert_refused(path, CGP_EIO, "/tree/2: is a link that leads nowhere (delete it)");
    assert_int_equal(unlink(test_path_of("tree/2")), 0);
    link_to("3", "tree/3");
    assert_refused(path, CGP_EIO, "/tree/3: is a link that leads nowhere (delete it)");
}

TEST_CASE(a_directory_without_a_file_is_refused) {
    make_directory("tree");
    make_directory("tree/a");
    write_text("tree/a/empty", "");
    write_text("tree/.hidden", "abc");
    assert_refused(test_path_of("tree"), CGP_EINVAL,
                   "/tree: has no file to read (hidden and empty files are left out)");
}

TEST_CASE(a_directory_without_permission_is_named) {
    make_directory("tree");
    make_directory("tree/secret");
    write_text("tree/1", "abc");
    assert_int_equal(chmod(test_path_of("tree/secret"), 0), 0);
    const bool root = geteuid() == 0;
    if (root &&
        (chmod(test_directory, 0755) || chmod(test_path_of("tree"), 0755) || seteuid(65534)))
        skip(); /* root can read everything, and may not be allowed to become another user */
    cgp_data *data = NULL;
    const char *path = test_path_of("tree");
    const cgp_status status = cgp_data_text(&data, &path, 1, NULL);
    if (root) assert_int_equal(seteuid(0), 0);
    assert_int_equal(chmod(test_path_of("tree/secret"), 0700), 0);
    assert_status(status, CGP_EIO);
    assert_message("tree/secret: cannot be read (Permission denied)");
}

/* The test makes 150 directories, each inside the previous directory. */
TEST_CASE(a_deep_tree_is_read) {
    char name[320] = "d";
    make_directory(name);
    while (strlen(name) < 300) {
        strcat(name, "/d");
        make_directory(name);
    }
    strcat(name, "/x");
    write_text(name, "deep");
    const char *path = test_path_of("d");
    assert_text(&path, 1, "deep");
}

/* --- separate validation files --- */

/* Read one sample of T = 4. `text` gets its four tokens and its last target. */
static void read_four(cgp_data *data, cgp_split split, int64_t position, char text[6]) {
    int32_t tokens[4], targets[4];
    assert_ok(cgp_data_read(data, split, position, 1, tokens, targets));
    for (int t = 0; t < 4; t++) {
        text[t] = (char)tokens[t];
        if (t > 0) assert_int_equal(targets[t - 1], tokens[t]);
    }
    text[4] = (char)targets[3];
    text[5] = 0;
}

TEST_CASE(validation_files_leave_all_sequences_of_the_others_to_training) {
    make_directory("held");
    write_text("held/2", "TUVW");
    write_text("held/1", "QRS");
    const char *paths[] = {write_text("train.txt", "abcdefghijklmnopq")};
    const char *held[] = {test_path_of("held"), write_text("more.txt", "XY")};
    cgp_text_options options = cgp_text_options_default();
    options.sequence = 4;
    options.validation_fraction = 99; /* an unused fraction is not checked */
    options.validation_paths = held;
    options.n_validation_paths = 2;
    cgp_data *data = NULL;
    assert_ok(cgp_data_text(&data, paths, 1, &options));
    assert_int_equal(cgp_data_samples(data, CGP_SPLIT_TRAIN), 4);
    assert_int_equal(cgp_data_samples(data, CGP_SPLIT_VALIDATION), 2);
    const char *expected[] = {"abcde", "efghi", "ijklm", "mnopq"};
    int visits[4] = {0};
    char text[6];
    for (int i = 0; i < 8; i++) {
        read_four(data, CGP_SPLIT_TRAIN, i, text);
        assert_string_equal(text, expected[(text[0] - 'a') / 4]);
        visits[(text[0] - 'a') / 4]++;
    }
    for (int i = 0; i < 4; i++)
        assert_int_equal(visits[i], 2);
    read_four(data, CGP_SPLIT_VALIDATION, 0, text);
    assert_string_equal(text, "QRSTU");
    read_four(data, CGP_SPLIT_VALIDATION, 1, text);
    assert_string_equal(text, "UVWXY");
    int32_t token[4];
    assert_status(cgp_data_read(data, CGP_SPLIT_VALIDATION, 2, 1, token, token), CGP_EINVAL);
    cgp_data_destroy(data);
}

TEST_CASE(each_text_needs_a_sequence) {
    cgp_text_options options = cgp_text_options_default();
    options.sequence = 4;
    options.n_validation_paths = 1;
    const char *lengths[] = {"abcd", "abcde"};
    for (int i = 0; i < 4; i++) {
        const char *path = write_text("train.txt", lengths[i / 2]);
        const char *held = write_text("held.txt", lengths[i % 2]);
        options.validation_paths = &held;
        cgp_data *data = NULL;
        assert_status(cgp_data_text(&data, &path, 1, &options), i < 3 ? CGP_EINVAL : CGP_OK);
        if (i < 2)
            assert_message("train.txt: needs at least 5 bytes for one training sequence of T = "
                           "4 bytes, got 4 (a smaller T, or a longer text)");
        if (i == 2)
            assert_message("held.txt: needs at least 5 bytes for one validation sequence of T = "
                           "4 bytes, got 4 (a smaller T, or a longer text)");
        cgp_data_destroy(data);
    }
}

TEST_CASE(validation_files_that_cannot_be_read_are_named) {
    const char *path = write_text("train.txt", "abcdefgh");
    const char *held[] = {write_text("empty.txt", ""), test_path_of("missing.txt")};
    cgp_text_options options = cgp_text_options_default();
    options.sequence = 4;
    options.n_validation_paths = 1;
    cgp_data *data = NULL;
    options.validation_paths = &held[0];
    assert_status(cgp_data_text(&data, &path, 1, &options), CGP_EINVAL);
    assert_message("empty.txt: is empty");
    options.validation_paths = &held[1];
    assert_status(cgp_data_text(&data, &path, 1, &options), CGP_EIO);
    assert_message("missing.txt: no such file");
    assert_null(data);
}

/* --- identity --- */

/* The options of a data set; each case changes one of them. */
typedef struct recipe {
    const char *one, *two, *held; /* contents of files; `held`: validation file or NULL */
    const char *names;            /* appended to the files' names */
    int64_t sequence;
    double fraction;
    uint64_t seed;
} recipe;

static const recipe plain = {"abcdefghijk", "lmnopqrstuvw", NULL, "", 4, 0.25, 1};

static void identity_of(const recipe *of, char hex[65]) {
    char names[3][64];
    for (int i = 0; i < 3; i++)
        snprintf(names[i], sizeof names[i], "%d%s", i, of->names);
    const char *paths[] = {write_text(names[0], of->one), write_text(names[1], of->two)};
    const char *held = of->held ? write_text(names[2], of->held) : NULL;
    cgp_text_options options = cgp_text_options_default();
    options.sequence = of->sequence;
    options.validation_fraction = of->fraction;
    options.seed = of->seed;
    options.validation_paths = &held;
    options.n_validation_paths = held != NULL;
    cgp_data *data = NULL;
    assert_ok(cgp_data_text(&data, paths, 2, &options));
    assert_ok(cgp_data_identity(data, hex));
    cgp_data_destroy(data);
}

TEST_CASE(the_identity_changes_with_all_that_determines_the_samples) {
    enum { N = 12 };
    recipe recipes[N];
    char hex[N][65];
    for (int i = 0; i < N; i++)
        recipes[i] = plain;
    recipes[1].one = "abcdefghijK"; /* one bit differs */
    recipes[2].two = "Lmnopqrstuvw";
    recipes[3].two = "lmnopqrstuvW"; /* a byte after the last sequence */
    recipes[4].two = "lmnopqrstuvwx";
    recipes[5].sequence = 3;
    recipes[6].seed = 2;
    recipes[7].fraction = 0.5;
    recipes[8].held = "12345";
    recipes[9].held = "12346";
    recipes[10].one = plain.two; /* the files are swapped */
    recipes[10].two = plain.one;
    recipes[11].one = "abcdefghij"; /* the first file ends earlier */
    recipes[11].two = "klmnopqrstuvw";
    for (int i = 0; i < N; i++) {
        identity_of(&recipes[i], hex[i]);
        assert_int_equal(strspn(hex[i], "0123456789abcdef"), 64);
        assert_int_equal(strlen(hex[i]), 64);
        for (int j = 0; j < i; j++)
            assert_string_not_equal(hex[i], hex[j]);
    }
}

TEST_CASE(the_identity_stays_when_files_move) {
    recipe moved = plain, unused = plain;
    char hex[3][65];
    moved.names = ".moved";
    identity_of(&plain, hex[0]);
    identity_of(&moved, hex[1]);
    assert_string_equal(hex[0], hex[1]);
    unused.held = moved.held = "12345"; /* does not use the fraction */
    unused.fraction = 0.9;
    identity_of(&moved, hex[1]);
    identity_of(&unused, hex[2]);
    assert_string_equal(hex[1], hex[2]);
}

/* The identity must not change, because new versions resume the runs of old versions. The identity
 * is the SHA-256 of
 *
 *     cgpipe data 1, kind text, vocabulary 256, sequence 4, training 3, validation 2, seed 1,
 *     share 3fd0000000000000, apart 0, files 2, bytes 11, bytes 12   (each on its own line)
 *     abcdefghijklmnopqrstuvwfiles 0                       (and a newline) */
TEST_CASE(the_identity_is_this_number) {
    char hex[65];
    identity_of(&plain, hex);
    assert_string_equal(hex, "26a8e497153925dbef04f5b3570c2d93aac05c30928ede9208c9462141c1ff4e");
}

/* The first bytes of a file determine its format. A short text that begins like another format is
 * still a text. */
TEST_CASE(files_of_other_kinds_are_refused) {
    static const struct {
        const char *start, *said;
        size_t bytes;
    } cases[] = {{"\x1f\x8b\x08\0", "is compressed by gzip, expected text (gunzip -c ", 4},
                 {"\x93NUMPY", "is a NumPy array, expected text (python3 -c ", 6},
                 {"PK\3\4", "is a zip archive, expected text (unzip ", 4},
                 {"\xff\xfe", "is text in UTF-16, expected UTF-8 (iconv ", 2},
                 {"BZh9 is a name", NULL, 14},
                 {"PAR1 is a word", NULL, 14},
                 {"PK is a brand", NULL, 13},
                 {"\0\0\0\0\0\0\0\0\0\0\0\0", NULL, 12}};
    cgp_text_options options = cgp_text_options_default();
    options.sequence = 1;
    options.validation_fraction = 0;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *path = test_path_of("file");
        cgp_data *data = NULL;
        test_write_file(path, cases[i].start, cases[i].bytes);
        assert_status(cgp_data_text(&data, &path, 1, &options),
                      cases[i].said ? CGP_EFORMAT : CGP_OK);
        if (cases[i].said) assert_message(cases[i].said);
        cgp_data_destroy(data);
    }
}

TEST_CASE(the_identity_is_the_same_in_every_locale) {
    char hex[2][65], half[8];
    recipe third = plain;
    third.fraction = 1.0 / 3;
    identity_of(&third, hex[0]);
    const char *name = test_set_comma_locale();
    if (!name) print_message("no locale with a decimal comma is installed, nor can one be made\n");
    if (!name) skip();
    snprintf(half, sizeof half, "%.1f", 0.5);
    identity_of(&third, hex[1]);
    test_set_c_locale();
    assert_string_equal(half, "0,5");
    assert_string_equal(hex[0], hex[1]);
}

TEST_CASE(a_directory_and_its_files_are_the_same_data) {
    make_directory("tree");
    const char *files[] = {write_text("tree/1", "abcdef"), write_text("tree/2", "ghijkl")};
    const char *directory = test_path_of("tree");
    cgp_text_options options = cgp_text_options_default();
    options.sequence = 4;
    char hex[2][65];
    for (int i = 0; i < 2; i++) {
        cgp_data *data = NULL;
        assert_ok(cgp_data_text(&data, i ? files : &directory, i ? 2 : 1, &options));
        assert_ok(cgp_data_identity(data, hex[i]));
        cgp_data_destroy(data);
    }
    assert_string_equal(hex[0], hex[1]);
}

TEST_CASE(the_identity_of_random_data_is_its_arguments) {
    const struct {
        int64_t vocab, sequence;
        uint64_t seed;
    } cases[] = {{10, 5, 1}, {10, 5, 1}, {11, 5, 1}, {10, 6, 1}, {10, 5, 2}, {5, 10, 1}};
    char hex[6][65];
    for (int i = 0; i < 6; i++) {
        cgp_data *data = NULL;
        assert_ok(cgp_data_random(&data, cases[i].vocab, cases[i].sequence, cases[i].seed));
        assert_ok(cgp_data_identity(data, hex[i]));
        cgp_data_destroy(data);
    }
    assert_string_equal(hex[0], hex[1]);
    for (int i = 1; i < 6; i++)
        for (int j = 1; j < i; j++)
            assert_string_not_equal(hex[i], hex[j]);
}

TEST_GROUP(.set_up = test_make_directory, .tear_down = remove_tree, .before = empty_tree);
