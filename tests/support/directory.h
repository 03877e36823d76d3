/* SPDX-License-Identifier: Apache-2.0 */
/* directory.h -- a temporary directory for a test program, and small files in it. */
#ifndef CGP_TESTS_DIRECTORY_H
#define CGP_TESTS_DIRECTORY_H

#include <sys/resource.h>

#include "support.h"

extern char test_directory[64];

/* Functions for a cmocka group. The group's set-up makes the directory, and the group's tear-down
 * deletes it. A test's set-up empties the directory. */
int test_make_directory(void **state);
int test_remove_directory(void **state);
int test_empty_before(void **state);

/* Delete the directory's entries, and return how many entries there were. */
int test_empty_directory(void);

/* Return the path of `name` in the directory, in one of four buffers used round-robin. */
const char *test_path_of(const char *name);

/* Limit the size of files. A write() past `bytes` fails with EFBIG. Tests use this error in place
 * of the error of a full disk. */
void test_limit_files_to(rlim_t bytes);

void test_write_file(const char *path, const void *bytes, size_t count);

/* Read the first 4096 bytes of a file. Return the number of bytes read, or -1 if there is no such
 * file. */
int test_read_file(const char *path, char bytes[4096]);
void test_assert_file(const char *path, const char *expected);

/* Set a locale with a decimal comma (0,5). If no such locale is installed, make one in the
 * directory. Return the locale's name, or NULL if there is none. */
const char *test_set_comma_locale(void);
/* Make a locale in the directory and set it, for example with "de_DE" and "UTF-8". Return the
 * locale's name, or NULL if localedef is missing. */
const char *test_set_locale(const char *language, const char *charset);
void test_set_c_locale(void);

#endif
