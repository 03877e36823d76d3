/* SPDX-License-Identifier: Apache-2.0 */
/* directory.c -- see directory.h. */
#include "directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <locale.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

char test_directory[64];

int test_make_directory(void **state) {
    (void)state;
    snprintf(test_directory, sizeof test_directory, "/tmp/cgp-test-XXXXXX");
    return mkdtemp(test_directory) ? 0 : -1;
}

int test_empty_directory(void) {
    int count = 0;
    DIR *list = opendir(test_directory);
    for (struct dirent *item = readdir(list); item; item = readdir(list)) {
        if (strcmp(item->d_name, ".") == 0 || strcmp(item->d_name, "..") == 0) continue;
        if (unlinkat(dirfd(list), item->d_name, 0))
            unlinkat(dirfd(list), item->d_name, AT_REMOVEDIR);
        count++;
    }
    closedir(list);
    return count;
}

int test_remove_directory(void **state) {
    (void)state;
    test_empty_directory();
    return rmdir(test_directory);
}

int test_empty_before(void **state) {
    (void)state;
    test_empty_directory();
    return 0;
}

const char *test_path_of(const char *name) {
    static char paths[4][400];
    static int turn;
    char *path = paths[turn++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", test_directory, name);
    return path;
}

void test_write_file(const char *path, const void *bytes, size_t count) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
}

int test_read_file(const char *path, char bytes[4096]) {
    FILE *file = fopen(path, "rb");
    if (!file) return -1;
    const int count = (int)fread(bytes, 1, 4096, file);
    fclose(file);
    return count;
}

void test_assert_file(const char *path, const char *expected) {
    char bytes[4096];
    const int count = test_read_file(path, bytes);
    assert_int_equal(count, strlen(expected));
    assert_memory_equal(bytes, expected, (size_t)count);
}

void test_limit_files_to(rlim_t bytes) {
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    signal(SIGXFSZ, bytes == RLIM_INFINITY ? SIG_DFL : SIG_IGN);
}

/* --- locales --- */

const char *test_set_locale(const char *language, const char *charset) {
    char command[400], name[64];
    if (mkdir(test_path_of("locales"), 0700)) return NULL;
    snprintf(name, sizeof name, "%s.%s", language, charset);
    snprintf(command, sizeof command, "localedef -i %s -f %s %s/%s 2> %s", language, charset,
             test_path_of("locales"), name, test_path_of("errors"));
    /* If a locale is incomplete, localedef exits with code 1, but still writes the locale. */
    if (system(command) == -1 || setenv("LOCPATH", test_path_of("locales"), 1)) return NULL;
    return setlocale(LC_ALL, name);
}

const char *test_set_comma_locale(void) {
    static const char *const names[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "ru_RU.UTF-8"};
    for (int i = 0; i < 3; i++) {
        if (setlocale(LC_ALL, names[i])) return names[i];
    }
    return test_set_locale("de_DE", "UTF-8");
}

void test_set_c_locale(void) {
    assert_non_null(setlocale(LC_ALL, "C"));
    assert_int_equal(unsetenv("LOCPATH"), 0);
    char command[300];
    snprintf(command, sizeof command, "rm -rf %s", test_path_of("locales"));
    assert_int_equal(system(command), 0);
}
