/* SPDX-License-Identifier: Apache-2.0 */
/* directory.h -- a temporary directory of a test program's own, and small files in it. */
#ifndef CGP_TESTS_DIRECTORY_H
#define CGP_TESTS_DIRECTORY_H

#include <sys/resource.h>

#include "support.h"

extern char test_directory[64];

/* cmocka's set-up and tear-down of a group: make the directory, delete it; set-up of a test: empty
 * it. */
int test_make_directory(void **state);
int test_remove_directory(void **state);
int test_empty_before(void **state);

/* Delete what is in the directory and return how many entries that were. */
int test_empty_directory(void);

/* The path of `name` in the directory; one of four buffers in turn. */
const char *test_path_of(const char *name);

/* Files end at `bytes` from now on: write() fails with EFBIG, as it would on a full disk. */
void test_limit_files_to(rlim_t bytes);

void test_write_file(const char *path, const void *bytes, size_t count);

/* The first 4096 bytes of a file; returns how many there are, -1 if there is no file. */
int test_read_file(const char *path, char bytes[4096]);
void test_assert_file(const char *path, const char *expected);

/* Set some locale that writes 0,5: an installed one, or one made in the directory. Its name; NULL:
 * there is none. */
const char *test_set_comma_locale(void);
/* Make a locale in the directory and set it: "de_DE", "UTF-8". Its name; NULL: there is no
 * localedef. */
const char *test_set_locale(const char *language, const char *charset);
void test_set_c_locale(void);

#endif
