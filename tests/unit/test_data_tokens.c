/* SPDX-License-Identifier: Apache-2.0 */
/* test_data_tokens.c -- tests files of uint16 and uint32 tokens: all formats, sequences that cross
 * files, and invalid files. */
#include "directory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cgpipe/data.h>

/* --- short and interrupted reads --- */

static int hurdles; /* while above 0, pread() below shortens or interrupts reads */

/* This function replaces libc's pread(). */
ssize_t pread(int fd, void *bytes, size_t count, off_t offset) {
    if (hurdles > 0 && hurdles++ % 3 == 0) {
        errno = EINTR;
        return -1;
    }
    if (hurdles > 0 && count > 5) count = 5;
    return syscall(SYS_pread64, fd, bytes, count, offset);
}

/* --- files of tokens --- */

enum { HEADER = 256, MAGIC = 20240520 };

/* Write nanoGPT's format: tokens without a header. */
static const char *write_raw(const char *name, const uint16_t *tokens, int n) {
    const char *path = test_path_of(name);
    test_write_file(path, tokens, (size_t)n * 2);
    return path;
}

/* Write llm.c's format: a header with the given fields, which may be wrong, before the tokens. */
static const char *write_stated(const char *name, const uint16_t *tokens, int n, int32_t magic,
                                int32_t version, int32_t stated) {
    const char *path = test_path_of(name);
    const int32_t header[HEADER] = {magic, version, stated};
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(header, 4, HEADER, file), HEADER);
    assert_int_equal(fwrite(tokens, 2, (size_t)n, file), n);
    assert_int_equal(fclose(file), 0);
    return path;
}

static const char *write_shard(const char *name, const uint16_t *tokens, int n) {
    return write_stated(name, tokens, n, MAGIC, 1, n);
}

/* Return an array of the tokens 0, 1, 2 ... */
static const uint16_t *numbers(void) {
    static uint16_t tokens[65536];
    for (int i = 0; i < 65536; i++)
        tokens[i] = (uint16_t)i;
    return tokens;
}

static cgp_token_options options_of(int64_t sequence, double fraction) {
    cgp_token_options options = cgp_token_options_default();
    options.sequence = sequence;
    options.validation_fraction = fraction;
    return options;
}

/* Open files whose concatenated tokens are 0 .. n - 1. Read two passes of training and the
 * validation split. */
static void assert_numbers(const char *const *paths, int n_paths, int n,
                           const cgp_token_options *options) {
    const int64_t length = options->sequence, sequences = (n - 1) / length;
    int32_t *tokens = malloc((size_t)length * 4), *targets = malloc((size_t)length * 4);
    int *visits = calloc((size_t)sequences, sizeof *visits);
    cgp_data *data = NULL;
    assert_ok(cgp_data_tokens(&data, paths, n_paths, options));
    const int64_t n_train = cgp_data_samples(data, CGP_SPLIT_TRAIN);
    const int64_t n_validation = cgp_data_samples(data, CGP_SPLIT_VALIDATION);
    assert_int_equal(n_train + n_validation, sequences);
    for (int64_t i = 0; i < 2 * n_train + n_validation; i++) {
        const bool train = i < 2 * n_train;
        assert_ok(cgp_data_read(data, train ? CGP_SPLIT_TRAIN : CGP_SPLIT_VALIDATION,
                                train ? i : i - 2 * n_train, 1, tokens, targets));
        const int64_t sequence = tokens[0] / length;
        if (!train) assert_int_equal(sequence, i - n_train);
        visits[sequence]++;
        for (int t = 0; t < length; t++) {
            assert_int_equal(tokens[t], sequence * length + t);
            assert_int_equal(targets[t], sequence * length + t + 1);
        }
    }
    for (int64_t w = 0; w < sequences; w++)
        assert_int_equal(visits[w], w < n_train ? 2 : 1);
    cgp_data_destroy(data);
    free(tokens);
    free(targets);
    free(visits);
}

/* --- reading --- */

TEST_CASE(both_formats_give_the_same_tokens) {
    const char *paths[] = {write_raw("raw.bin", numbers(), 1001),
                           write_shard("shard.bin", numbers(), 1001)};
    const cgp_token_options options = options_of(10, 0.1);
    assert_numbers(&paths[0], 1, 1001, &options);
    assert_numbers(&paths[1], 1, 1001, &options);
}

TEST_CASE(sequences_cross_the_joints_of_files) {
    uint64_t random = test_seed();
    for (int round = 0; round < 50; round++) {
        char names[40][32];
        const char *paths[40];
        const int n_paths = test_between(&random, 1, 40);
        int n = 0;
        for (int i = 0; i < n_paths; i++) { /* many files are shorter than a sequence */
            const int count = test_between(&random, 1, i % 4 ? 9 : 90);
            const bool header = test_between(&random, 0, 1);
            snprintf(names[i], sizeof names[i], "%d.bin", i);
            paths[i] = (header ? write_shard : write_raw)(names[i], numbers() + n, count);
            paths[i] = strcpy(malloc(strlen(paths[i]) + 1), paths[i]);
            n += count;
        }
        const int length = test_between(&random, 1, 30);
        const cgp_token_options options = options_of(length, n > 3 * length ? 0.3 : 0);
        if (n > length) assert_numbers(paths, n_paths, n, &options);
        for (int i = 0; i < n_paths; i++)
            free((char *)(uintptr_t)paths[i]);
    }
}

/* The buffer of tokens.c holds 32768 tokens. */
TEST_CASE(sequences_may_be_larger_than_the_buffer) {
    const char *path = write_raw("long.bin", numbers(), 65536);
    for (int64_t length = 32766; length <= 32769; length++) {
        const cgp_token_options options = options_of(length, 0);
        assert_numbers(&path, 1, 65536, &options);
    }
    const cgp_token_options options = options_of(65535, 0);
    assert_numbers(&path, 1, 65536, &options);
}

TEST_CASE(reads_that_are_short_or_interrupted_go_on) {
    const char *paths[] = {write_raw("a.bin", numbers(), 60),
                           write_shard("b.bin", numbers() + 60, 60)};
    const cgp_token_options options = options_of(17, 0.2);
    hurdles = 1;
    assert_numbers(paths, 2, 120, &options);
    assert_true(hurdles > 100);
    hurdles = 0;
}

/* The test reads the end of a sparse file with 4 GiB of tokens. */
TEST_CASE(files_may_be_larger_than_32_bits_count) {
    const int64_t bytes = ((int64_t)1 << 32) + 4096;
    const char *path = write_raw("sparse.bin", numbers(), 100);
    const int fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, numbers() + 1000, 2000, bytes - 2000), 2000);
    assert_int_equal(close(fd), 0);
    cgp_data *data = NULL;
    const cgp_token_options options = options_of(999, 0.001);
    assert_ok(cgp_data_tokens(&data, &path, 1, &options));
    int32_t tokens[999], targets[999];
    const int64_t n = cgp_data_samples(data, CGP_SPLIT_VALIDATION);
    const int64_t last = (bytes / 2 - 1) / 999; /* number of sequences */
    assert_int_equal(n + cgp_data_samples(data, CGP_SPLIT_TRAIN), last);
    assert_ok(cgp_data_read(data, CGP_SPLIT_VALIDATION, n - 1, 1, tokens, targets));
    for (int t = 0; t < 999; t++) {
        const int64_t at = (last - 1) * 999 + t + 1 - (bytes / 2 - 1000);
        assert_int_equal(targets[t], at < 0 ? 0 : 1000 + at);
    }
    cgp_data_destroy(data);
}

TEST_CASE(tokens_are_read_by_position_alone) {
    enum { T = 6, N = 100 };
    uint64_t random = test_seed();
    const char *paths[] = {write_raw("a.bin", numbers(), 111),
                           write_shard("b.bin", numbers() + 111, 111)};
    const cgp_token_options options = options_of(T, 0.2);
    cgp_data *one = NULL, *two = NULL;
    static int32_t tokens[N * T], targets[N * T], again[N * T], next[N * T];
    assert_ok(cgp_data_tokens(&one, paths, 2, &options));
    assert_ok(cgp_data_tokens(&two, paths, 2, &options));
    for (int i = 0; i < N; i++) /* read single samples; a pass has 29 */
        assert_ok(cgp_data_read(one, CGP_SPLIT_TRAIN, i, 1, tokens + i * T, targets + i * T));
    for (int round = 0; round < 100; round++) {
        const int first = test_between(&random, 0, N), count = test_between(&random, 0, N - first);
        assert_ok(cgp_data_read(two, CGP_SPLIT_TRAIN, first, count, again, next));
        assert_memory_equal(again, tokens + first * T, (size_t)count * T * 4);
        assert_memory_equal(next, targets + first * T, (size_t)count * T * 4);
    }
    cgp_data_destroy(one);
    cgp_data_destroy(two);
}

TEST_CASE(validation_files_of_tokens_are_separate) {
    const char *path = write_raw("train.bin", numbers(), 41);
    const char *held[] = {write_shard("val.bin", numbers() + 500, 9),
                          write_raw("val2.bin", numbers() + 509, 4)};
    cgp_token_options options = options_of(4, 0.9);
    options.validation_paths = held;
    options.n_validation_paths = 2;
    cgp_data *data = NULL;
    assert_ok(cgp_data_tokens(&data, &path, 1, &options));
    assert_int_equal(cgp_data_samples(data, CGP_SPLIT_TRAIN), 10);
    assert_int_equal(cgp_data_samples(data, CGP_SPLIT_VALIDATION), 3);
    int32_t tokens[40], targets[40];
    assert_ok(cgp_data_read(data, CGP_SPLIT_VALIDATION, 0, 3, tokens, targets));
    for (int t = 0; t < 12; t++) {
        assert_int_equal(tokens[t], 500 + t);
        assert_int_equal(targets[t], 501 + t);
    }
    assert_ok(cgp_data_read(data, CGP_SPLIT_TRAIN, 0, 10, tokens, targets));
    int sum = 0;
    for (int t = 0; t < 40; t++)
        sum += tokens[t];
    assert_int_equal(sum, 39 * 40 / 2);
    cgp_data_destroy(data);
}

/* --- refusals --- */

/* Assert that opening `path` fails with this status, and with a message that begins with the
 * directory, followed by `message`. */
static void assert_refused(const char *path, cgp_status expected, const char *message) {
    char whole[512];
    cgp_data *data = NULL;
    const cgp_token_options options = options_of(4, 0.1);
    assert_status(cgp_data_tokens(&data, &path, 1, &options), expected);
    assert_null(data);
    snprintf(whole, sizeof whole, "%s/%s", test_directory, message);
    assert_string_equal(cgp_message(), whole);
}

/* The test reads a file of llm.c's 4-byte tokens, as used for Llama 3, after a file of 2-byte
 * tokens. */
TEST_CASE(tokens_of_four_bytes_are_read_beside_others) {
    enum { N = 20000, T = N + 2 }; /* more tokens than one read returns */
    static uint32_t tokens[N];
    static int32_t inputs[T], targets[T];
    const uint16_t first[] = {7, 8, 9};
    for (uint32_t i = 0; i < N; i++)
        tokens[i] = 100000 + i;
    const char *paths[] = {
        write_raw("two.bin", first, 3),
        write_stated("four.bin", (const uint16_t *)tokens, 2 * N, 20240801, 7, N)};
    cgp_token_options options = options_of(T, 0);
    cgp_data *data = NULL;
    options.vocab = 100000 + N;
    assert_ok(cgp_data_tokens(&data, paths, 2, &options));
    assert_ok(cgp_data_read(data, CGP_SPLIT_TRAIN, 0, 1, inputs, targets));
    for (int i = 0; i < T; i++) {
        assert_int_equal(inputs[i], i < 3 ? 7 + i : 100000 + i - 3);
        assert_int_equal(targets[i], i < 2 ? 8 + i : 100000 + i - 2);
    }
    cgp_data_destroy(data);
    options.vocab--;
    data = NULL;
    assert_ok(cgp_data_tokens(&data, paths, 2, &options));
    assert_status(cgp_data_read(data, CGP_SPLIT_TRAIN, 0, 1, inputs, targets), CGP_EFORMAT);
    assert_message("four.bin: at byte 81020: expected a token below 119999, got 119999");
    cgp_data_destroy(data);
    const uint16_t *n = numbers();
    assert_refused(write_stated("l.bin", n, 50, 20240801, 1, 25), CGP_EFORMAT,
                   "l.bin: at byte 4: expected version 7 of llm.c's tokens of 4 bytes, got 1");
    assert_refused(write_stated("l.bin", n, 51, 20240801, 7, 25), CGP_EFORMAT,
                   "l.bin: at byte 8: expected a number of tokens that fits 1126 bytes, got "
                   "25, which needs 1124 (a file cut short, or damaged)");
}

TEST_CASE(a_wrong_header_is_refused_with_its_offset) {
    const uint16_t *n = numbers();
    assert_refused(write_stated("v.bin", n, 50, MAGIC, 7, 50), CGP_EFORMAT,
                   "v.bin: at byte 4: expected version 1 of llm.c's tokens of 2 bytes, got 7");
    assert_refused(write_stated("n.bin", n, 50, MAGIC, 1, 51), CGP_EFORMAT,
                   "n.bin: at byte 8: expected a number of tokens that fits 1124 bytes, got "
                   "51, which needs 1126 (a file cut short, or damaged)");
    assert_refused(write_stated("n.bin", n, 50, MAGIC, 1, INT32_MAX), CGP_EFORMAT,
                   "n.bin: at byte 8: expected a number of tokens that fits 1124 bytes, got "
                   "2147483647, which needs 4294968318 (a file cut short, or damaged)");
    assert_refused(write_stated("n.bin", n, 50, MAGIC, 1, 49), CGP_EFORMAT,
                   "n.bin: at byte 8: expected a number of tokens that fits 1124 bytes, got "
                   "49, which needs 1122 (a file cut short, or damaged)");
    assert_refused(write_stated("n.bin", n, 50, MAGIC, 1, -1), CGP_EFORMAT,
                   "n.bin: at byte 8: expected at least 1 token, got -1");
    assert_refused(write_stated("n.bin", n, 0, MAGIC, 1, 0), CGP_EFORMAT,
                   "n.bin: at byte 8: expected at least 1 token, got 0");
    const char *cut = write_shard("cut.bin", n, 50);
    assert_int_equal(truncate(cut, 1123), 0);
    assert_refused(cut, CGP_EFORMAT,
                   "cut.bin: at byte 8: expected a number of tokens that fits 1123 bytes, got "
                   "50, which needs 1124 (a file cut short, or damaged)");
    assert_int_equal(truncate(cut, 1023), 0);
    assert_refused(cut, CGP_EFORMAT,
                   "cut.bin: at byte 1023: expected a header of 1024 bytes after llm.c's "
                   "magic, got 1023");
}

TEST_CASE(files_of_llm_c_with_other_contents_are_refused) {
    assert_refused(write_stated("e.bin", numbers(), 50, 20240522, 1, 25), CGP_EFORMAT,
                   "e.bin: at byte 0: expected tokens, not llm.c's evaluation examples, got "
                   "20240522");
}

TEST_CASE(invalid_token_files_are_refused) {
    const char *path = test_path_of("odd.bin");
    test_write_file(path, "abcdefghijk", 11);
    assert_refused(path, CGP_EFORMAT,
                   "odd.bin: at byte 10: expected an even number of bytes, 2 a token, got 11");
    test_write_file(path, "a", 1);
    assert_refused(path, CGP_EFORMAT,
                   "odd.bin: at byte 0: expected an even number of bytes, 2 a token, got 1");
    test_write_file(path, "", 0);
    assert_refused(path, CGP_EINVAL, "odd.bin: is empty, expected tokens of 2 bytes");
    assert_refused(test_path_of("gone.bin"), CGP_EIO, "gone.bin: no such file");
    assert_int_equal(mkdir(test_path_of("directory"), 0700), 0);
    assert_refused(test_path_of("directory"), CGP_EIO,
                   "directory: is a directory, expected a file of tokens");
    assert_int_equal(mkfifo(test_path_of("pipe"), 0600), 0);
    assert_refused(test_path_of("pipe"), CGP_EIO,
                   "pipe: is not a regular file (pipes and devices have no length)");
}

TEST_CASE(too_few_tokens_are_refused_with_the_number_needed) {
    const cgp_token_options options = options_of(4, 0);
    const char *paths[] = {write_raw("a.bin", numbers(), 2), write_raw("b.bin", numbers(), 2)};
    cgp_data *data = NULL;
    assert_refused(paths[0], CGP_EINVAL,
                   "a.bin: needs at least 9 tokens for one training sequence and a "
                   "validation fraction of T = 4 tokens, got 2 (a smaller T, or more tokens)");
    assert_status(cgp_data_tokens(&data, paths, 2, &options), CGP_EINVAL);
    assert_string_equal(cgp_message(), "tokens: needs at least 5 tokens for one training sequence "
                                       "of T = 4 tokens, got 4 (a smaller T, or more tokens)");
    assert_null(data);
}

TEST_CASE(a_token_above_the_vocab_is_refused_with_its_offset) {
    const uint16_t tokens[] = {1, 2, 3, 4, 9, 8, 7, 10, 5};
    const char *paths[] = {write_raw("raw.bin", tokens, 9), write_shard("shard.bin", tokens, 9)};
    cgp_token_options options = options_of(4, 0.5);
    int32_t t[4], u[4];
    for (int i = 0; i < 2; i++) {
        cgp_data *data = NULL;
        options.vocab = 10;
        assert_ok(cgp_data_tokens(&data, &paths[i], 1, &options));
        assert_int_equal(cgp_data_vocab_size(data), 10);
        assert_ok(cgp_data_read(data, CGP_SPLIT_TRAIN, 0, 1, t, u));
        assert_status(cgp_data_read(data, CGP_SPLIT_VALIDATION, 0, 1, t, u), CGP_EFORMAT);
        assert_message(i ? "shard.bin: at byte 1038: expected a token below 10, got 10 (a larger "
                           "vocabulary, or files of its own tokenizer)"
                         : "raw.bin: at byte 14: expected a token below 10, got 10 (a larger "
                           "vocabulary, or files of its own tokenizer)");
        /* the data set is still usable */
        assert_ok(cgp_data_read(data, CGP_SPLIT_TRAIN, 0, 1, t, u));
        cgp_data_destroy(data);
    }
}

TEST_CASE(a_file_that_becomes_shorter_is_named) {
    const char *paths[] = {write_raw("a.bin", numbers(), 100),
                           write_raw("b.bin", numbers() + 100, 101)};
    const cgp_token_options options = options_of(4, 0.5);
    int32_t tokens[4], targets[4];
    cgp_data *data = NULL;
    assert_ok(cgp_data_tokens(&data, paths, 2, &options));
    assert_int_equal(truncate(paths[1], 195), 0);
    assert_ok(cgp_data_read(data, CGP_SPLIT_VALIDATION, 23, 1, tokens, targets));
    assert_status(cgp_data_read(data, CGP_SPLIT_VALIDATION, 24, 1, tokens, targets), CGP_EIO);
    assert_message("b.bin: became shorter while it was read, expected at least 202 bytes, got "
                   "195");
    assert_int_equal(unlink(paths[1]), 0); /* the data set keeps the file open */
    assert_ok(cgp_data_read(data, CGP_SPLIT_VALIDATION, 23, 1, tokens, targets));
    cgp_data_destroy(data);
}

static cgp_status open_with(cgp_token_options options) {
    cgp_data *data = NULL;
    const char *path = test_path_of("unused.bin");
    return cgp_data_tokens(&data, &path, 1, &options);
}

TEST_CASE(bad_options_are_named_with_their_value) {
    cgp_token_options options = options_of(0, 0.1);
    assert_status(open_with(options), CGP_EINVAL);
    assert_message("token options: sequence is between 1 and 2147483647, got 0");
    options = options_of(4, 1);
    assert_status(open_with(options), CGP_EINVAL);
    assert_message("token options: validation_fraction is at least 0 and below 1, got 1");
    const int64_t vocabularies[] = {0, (int64_t)INT32_MAX + 1};
    for (int i = 0; i < 2; i++) {
        options = options_of(4, 0.1);
        options.vocab = vocabularies[i];
        assert_status(open_with(options), CGP_EINVAL);
        assert_message("token options: vocabulary is between 1 and 2147483647, got ");
    }
    options = options_of(4, 0.1);
    options.struct_size = 8;
    assert_status(open_with(options), CGP_EINVAL);
    assert_message("start from cgp_token_options_default()");
    cgp_data *data = NULL;
    assert_status(cgp_data_tokens(&data, NULL, 0, NULL), CGP_EINVAL);
    assert_string_equal(cgp_message(), "tokens: needs at least one file, got 0");
}

static int open_descriptors(void) {
    int count = 0;
    DIR *list = opendir("/proc/self/fd");
    assert_non_null(list);
    while (readdir(list))
        count++;
    closedir(list);
    return count;
}

TEST_CASE(too_many_files_are_refused_and_none_stays_open) {
    const char *paths[64];
    for (int i = 0; i < 64; i++)
        paths[i] = i ? paths[0] : write_raw("a.bin", numbers(), 100);
    struct rlimit limit, less;
    const cgp_token_options options = options_of(4, 0.1);
    cgp_data *data = NULL;
    const int before = open_descriptors();
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    less = (struct rlimit){(rlim_t)before + 30, limit.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &less), 0);
    const cgp_status status = cgp_data_tokens(&data, paths, 64, &options);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_status(status, CGP_EIO);
    assert_message("a.bin: cannot be opened, too many files are open (raise ulimit -n: each "
                   "token file stays open)");
    assert_int_equal(open_descriptors(), before);
    assert_ok(cgp_data_tokens(&data, paths, 64, &options));
    cgp_data_destroy(data);
    assert_int_equal(open_descriptors(), before);
}

/* --- identity --- */

static void identity_of(const char *path, const cgp_token_options *options, char hex[65]) {
    cgp_data *data = NULL;
    assert_ok(cgp_data_tokens(&data, &path, 1, options));
    assert_ok(cgp_data_identity(data, hex));
    cgp_data_destroy(data);
}

/* Add 1 to the byte at an offset. */
static void change_byte(const char *path, int64_t offset) {
    const int fd = open(path, O_RDWR);
    uint8_t byte = 0;
    assert_int_equal(pread(fd, &byte, 1, offset), 1);
    byte++;
    assert_int_equal(pwrite(fd, &byte, 1, offset), 1);
    assert_int_equal(close(fd), 0);
}

TEST_CASE(the_identity_sees_size_and_ends_of_a_file) {
    enum { N = 100000 };
    static uint16_t tokens[N];
    const cgp_token_options options = options_of(1000, 0.1);
    /* The file is 200000 bytes long. The identity covers the first and the last 65536 bytes, but
     * not the bytes between. */
    const int64_t seen[] = {0, 65535, 2 * N - 65536, 2 * N - 1};
    const int64_t unseen[] = {65536, 2 * N - 65537};
    char hex[2][65];
    identity_of(write_raw("a.bin", tokens, N), &options, hex[0]);
    for (int i = 0; i < 4; i++) {
        const char *path = write_raw("a.bin", tokens, N);
        change_byte(path, seen[i]);
        identity_of(path, &options, hex[1]);
        assert_string_not_equal(hex[0], hex[1]);
    }
    for (int i = 0; i < 2; i++) {
        const char *path = write_raw("a.bin", tokens, N);
        change_byte(path, unseen[i]);
        identity_of(path, &options, hex[1]);
        assert_string_equal(hex[0], hex[1]);
    }
    identity_of(write_raw("a.bin", tokens, N - 1), &options, hex[1]);
    assert_string_not_equal(hex[0], hex[1]);
    identity_of(write_raw("moved.bin", tokens, N), &options, hex[1]);
    assert_string_equal(hex[0], hex[1]);
}

TEST_CASE(the_identity_of_tokens_changes_with_the_options) {
    enum { N = 6 };
    const char *path = write_raw("a.bin", numbers(), 1000), *held = path;
    cgp_token_options options[N];
    char hex[N][65];
    for (int i = 0; i < N; i++)
        options[i] = options_of(10, 0.1);
    options[1].sequence = 11;
    options[2].vocab = 1000;
    options[3].seed = 1;
    options[4].validation_fraction = 0.2;
    options[5].validation_paths = &held;
    options[5].n_validation_paths = 1;
    for (int i = 0; i < N; i++) {
        identity_of(path, &options[i], hex[i]);
        for (int j = 0; j < i; j++)
            assert_string_not_equal(hex[i], hex[j]);
    }
}

TEST_GROUP(.set_up = test_make_directory, .tear_down = test_remove_directory,
           .before = test_empty_before);
