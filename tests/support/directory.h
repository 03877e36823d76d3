/* SPDX-License-Identifier: Apache-2.0 */
/* directory.h -- a temporary directory for a test program, and small files in it. */
#ifndef CGP_TESTS_DIRECTORY_H
#define CGP_TESTS_DIRECTORY_H

#include <sys/resource.h>

#include "support.h"

extern char test_directory[64];

/* Set-up and tear-down of a cmocka group make and delete the directory; set-up of a test empties
 * it. */
int test_make_directory(void **state);
int test_remove_directory(void **state);
int test_empty_before(void **state);

/* Delete the directory's entries and return how many there were. */
int test_empty_directory(void);

/* Return the path of `name` in the directory, in one of four buffers used round-robin. */
const char *test_path_of(const char *name);

/* Limit the size of files: write() past `bytes` fails with EFBIG, as it would on a full disk. */
void test_limit_files_to(rlim_t bytes);

void test_write_file(const char *path, const void *bytes, size_t count);

/* Read the first 4096 bytes of a file. Return the number of bytes, -1 if there is no file. */
int test_read_file(const char *path, char bytes[4096]);
void test_assert_file(const char *path, const char *expected);

/* Set a locale that writes 0,5: an installed one, or one made in the directory. Return its name,
 * NULL if there is none. */
const char *test_set_comma_locale(void);
/* Make a locale in the directory and set it: "de_DE", "UTF-8". Return its name, NULL without
 * localedef. */
const char *test_set_locale(const char *language, const char *charset);
void test_set_c_locale(void);

#endif
