/* SPDX-License-Identifier: Apache-2.0 */
/* test_data.c -- tests properties of token streams. The tests check which sequences a pass visits,
 * in which order, and with which targets. */
#include "support.h"

#include <dirent.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cgpipe/data.h>

/* --- files in the test's directory --- */

static char directory[64];

static int make_directory(void **state) {
    (void)state;
    snprintf(directory, sizeof directory, "/tmp/cgp-data-XXXXXX");
    return mkdtemp(directory) ? 0 : -1;
}

static int remove_directory(void **state) {
    (void)state;
    DIR *list = opendir(directory);
    for (struct dirent *item = readdir(list); item; item = readdir(list)) {
        if (item->d_name[0] != '.') unlinkat(dirfd(list), item->d_name, 0);
    }
    closedir(list);
    return rmdir(directory);
}

/* Return the path of `name` in the directory, in one of four buffers used round-robin. */
static const char *path_of(const char *name) {
    static char paths[4][128];
    static int turn;
    char *path = paths[turn++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", directory, name);
    return path;
}

static const char *write_file(const char *name, const uint8_t *bytes, size_t count) {
    const char *path = path_of(name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
    return path;
}

/* A text of `n` sequences of T >= 3 bytes, plus one byte. Each sequence begins with the sequence's
 * number. */
typedef struct numbered {
    int64_t n, length;
    uint8_t *bytes;
    cgp_data *data;
    int32_t *tokens, *targets; /* [n, T] */
} numbered;

static numbered numbered_text(int64_t n, int64_t length, double fraction, uint64_t seed) {
    numbered text = {.n = n, .length = length};
    const size_t count = (size_t)(n * length + 1);
    uint64_t random = seed;
    text.bytes = malloc(count);
    for (size_t i = 0; i < count; i++)
        text.bytes[i] = (uint8_t)test_random(&random);
    for (int64_t w = 0; w < n; w++) {
        text.bytes[w * length] = (uint8_t)w;
        text.bytes[w * length + 1] = (uint8_t)(w >> 8);
    }
    const char *path = write_file("numbered.txt", text.bytes, count);
    cgp_text_options options = cgp_text_options_default();
    options.sequence = length;
    options.validation_fraction = fraction;
    options.seed = seed;
    assert_ok(cgp_data_text(&text.data, &path, 1, &options));
    text.tokens = malloc((size_t)(n * length) * sizeof *text.tokens);
    text.targets = malloc((size_t)(n * length) * sizeof *text.targets);
    return text;
}

static void release(numbered *text) {
    cgp_data_destroy(text->data);
    free(text->bytes);
    free(text->tokens);
    free(text->targets);
}

/* Check all bytes and targets of sequence `sample` of the batch, and return the number in the
 * sequence's first bytes. */
static int64_t sequence_at(const numbered *text, int64_t sample) {
    const int32_t *tokens = text->tokens + sample * text->length;
    const int32_t *targets = text->targets + sample * text->length;
    const int64_t sequence = tokens[0] + 256 * tokens[1];
    assert_in_range(sequence, 0, text->n - 1);
    for (int64_t t = 0; t < text->length; t++) {
        assert_int_equal(tokens[t], text->bytes[sequence * text->length + t]);
        assert_int_equal(targets[t], text->bytes[sequence * text->length + t + 1]);
    }
    return sequence;
}

/* Read the sequences of training pass `pass`, in order. */
static void read_pass(numbered *text, int64_t pass, int64_t *sequences) {
    const int64_t n = cgp_data_samples(text->data, CGP_SPLIT_TRAIN);
    assert_ok(cgp_data_read(text->data, CGP_SPLIT_TRAIN, pass * n, n, text->tokens, text->targets));
    for (int64_t i = 0; i < n; i++)
        sequences[i] = sequence_at(text, i);
}

/* --- properties of a text --- */

TEST_CASE(every_training_sequence_is_visited_once_in_each_pass) {
    uint64_t random = test_seed();
    for (int round = 0; round < 30; round++) {
        const int n = test_between(&random, 2, 400);
        numbered text = numbered_text(n, test_between(&random, 3, 9),
                                      test_between(&random, 0, 50) / 100.0, test_random(&random));
        const int64_t n_train = cgp_data_samples(text.data, CGP_SPLIT_TRAIN);
        const int64_t n_validation = cgp_data_samples(text.data, CGP_SPLIT_VALIDATION);
        assert_int_equal(n_train + n_validation, n);
        int64_t sequences[400];
        for (int64_t pass = 0; pass < 4; pass++) {
            int visits[400] = {0};
            read_pass(&text, pass, sequences);
            for (int64_t i = 0; i < n_train; i++)
                visits[sequences[i]]++;
            for (int64_t w = 0; w < n; w++)
                assert_int_equal(visits[w], w < n_train); /* no validation sequence is visited */
        }
        release(&text);
    }
}

TEST_CASE(validation_is_the_end_of_the_text_in_order) {
    numbered text = numbered_text(40, 5, 0.3, 7);
    assert_int_equal(cgp_data_samples(text.data, CGP_SPLIT_VALIDATION), 12);
    assert_ok(cgp_data_read(text.data, CGP_SPLIT_VALIDATION, 0, 12, text.tokens, text.targets));
    for (int64_t i = 0; i < 12; i++)
        assert_int_equal(sequence_at(&text, i), 28 + i);
    assert_ok(cgp_data_read(text.data, CGP_SPLIT_VALIDATION, 11, 1, text.tokens, text.targets));
    assert_int_equal(sequence_at(&text, 0), 39);
    release(&text);
}

static int differences(const int64_t *a, const int64_t *b, int n) {
    int count = 0;
    for (int i = 0; i < n; i++)
        count += a[i] != b[i];
    return count;
}

TEST_CASE(passes_and_seeds_have_different_permutations) {
    numbered text = numbered_text(200, 3, 0, 1), other = numbered_text(200, 3, 0, 2);
    int64_t first[200], second[200], third[200], of_other[200], sorted[200];
    read_pass(&text, 0, first);
    read_pass(&text, 1, second);
    read_pass(&text, 1000000, third);
    read_pass(&other, 0, of_other);
    for (int i = 0; i < 200; i++)
        sorted[i] = i;
    /* Two random permutations of 200 items agree in one position on average, and almost never in 50
     * positions. */
    assert_true(differences(first, sorted, 200) > 150);
    assert_true(differences(first, second, 200) > 150);
    assert_true(differences(first, third, 200) > 150);
    assert_true(differences(second, third, 200) > 150);
    assert_true(differences(first, of_other, 200) > 150);
    assert_true(differences(second, of_other, 200) > 150);
    release(&text);
    release(&other);
}

/* The test counts all 24 permutations of 4 sequences, over 24000 passes of one seed. Chi-square
 * with 23 degrees of freedom exceeds 60 once in 30000 draws. The seed is fixed, so the test always
 * has the same result. */
TEST_CASE(all_permutations_are_equally_likely) {
    numbered text = numbered_text(4, 3, 0, 99);
    int counts[256] = {0};
    for (int64_t pass = 0; pass < 24000; pass++) {
        int64_t w[4];
        read_pass(&text, pass, w);
        counts[w[0] | w[1] << 2 | w[2] << 4 | w[3] << 6]++;
    }
    double chi_square = 0;
    int orders = 0;
    for (int i = 0; i < 256; i++) {
        orders += counts[i] > 0;
        chi_square += counts[i] ? (counts[i] - 1000.0) * (counts[i] - 1000.0) / 1000.0 : 0;
    }
    assert_int_equal(orders, 24);
    assert_true(chi_square < 60);
    release(&text);
}

TEST_CASE(a_batch_depends_on_its_position_alone) {
    uint64_t random = test_seed();
    const int n = 50, length = 4, total = 170; /* covers more than three passes */
    numbered text = numbered_text(n, length, 0.1, test_random(&random));
    int32_t *tokens = calloc((size_t)total * length, sizeof *tokens);
    int32_t *targets = calloc((size_t)total * length, sizeof *targets);
    assert_ok(cgp_data_read(text.data, CGP_SPLIT_TRAIN, 0, total, tokens, targets));
    for (int round = 0; round < 200; round++) {
        const int first = test_between(&random, 0, total), max = total - first;
        const int count = test_between(&random, 0, max < n ? max : n);
        const size_t bytes = (size_t)count * length * sizeof *tokens;
        assert_ok(
            cgp_data_read(text.data, CGP_SPLIT_TRAIN, first, count, text.tokens, text.targets));
        assert_memory_equal(text.tokens, tokens + first * length, bytes);
        assert_memory_equal(text.targets, targets + first * length, bytes);
    }
    free(tokens);
    free(targets);
    release(&text);
}

TEST_CASE(a_new_data_set_of_the_same_seed_starts_anywhere) {
    numbered one = numbered_text(60, 4, 0.1, 5), two = numbered_text(60, 4, 0.1, 5);
    for (int64_t first = 0; first < 150; first += 10)
        assert_ok(cgp_data_read(one.data, CGP_SPLIT_TRAIN, first, 10, one.tokens, one.targets));
    assert_ok(cgp_data_read(two.data, CGP_SPLIT_TRAIN, 140, 10, two.tokens, two.targets));
    assert_memory_equal(one.tokens, two.tokens, 10 * 4 * sizeof *one.tokens);
    release(&one);
    release(&two);
}

TEST_CASE(the_next_token_is_found_across_the_joints_of_files) {
    const char *pieces[] = {"abcdefg", "h", "ijkl",
                            "mnopqrstu"}; /* files end inside and between sequences */
    const char *paths[4], *names[] = {"a.txt", "b.txt", "c.txt", "d.txt"};
    for (int i = 0; i < 4; i++)
        paths[i] = write_file(names[i], (const uint8_t *)pieces[i], strlen(pieces[i]));
    cgp_text_options options = cgp_text_options_default();
    options.sequence = 4;
    options.validation_fraction = 0.75; /* 4 of 5 sequences are validation, read in order */
    cgp_data *data = NULL;
    assert_ok(cgp_data_text(&data, paths, 4, &options));
    int32_t tokens[16], targets[16];
    assert_int_equal(cgp_data_samples(data, CGP_SPLIT_VALIDATION), 4);
    assert_ok(cgp_data_read(data, CGP_SPLIT_VALIDATION, 0, 4, tokens, targets));
    for (int i = 0; i < 16; i++) {
        assert_int_equal(tokens[i], 'e' + i);
        assert_int_equal(targets[i], 'f' + i);
    }
    assert_ok(cgp_data_read(data, CGP_SPLIT_TRAIN, 0, 1, tokens, targets));
    assert_int_equal(tokens[0], 'a');
    assert_int_equal(targets[3], 'e');
    cgp_data_destroy(data);
}

TEST_CASE(bytes_above_127_are_tokens_above_127) {
    const uint8_t bytes[] = {250, 251, 252, 253, 254, 255};
    const char *path = write_file("high.txt", bytes, sizeof bytes);
    cgp_text_options options = cgp_text_options_default();
    options.sequence = 5;
    options.validation_fraction = 0;
    cgp_data *data = NULL;
    int32_t tokens[5], targets[5];
    assert_ok(cgp_data_text(&data, &path, 1, &options));
    assert_ok(cgp_data_read(data, CGP_SPLIT_TRAIN, 3, 1, tokens, targets));
    assert_int_equal(tokens[0], 250);
    assert_int_equal(targets[4], 255);
    assert_int_equal(cgp_data_vocab_size(data), 256);
    assert_int_equal(cgp_data_sequence(data), 5);
    cgp_data_destroy(data);
}

TEST_CASE(the_validation_fraction_is_rounded_up) {
    const struct {
        int64_t sequences;
        double fraction;
        int64_t validation;
    } cases[] = {{30, 0.1, 3},   {31, 0.1, 4}, {100, 0.07, 7}, {100, 0.29, 29},
                 {100, 1e-9, 1}, {100, 0, 0},  {4, 0.75, 3}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        numbered text = numbered_text(cases[i].sequences, 3, cases[i].fraction, 0);
        assert_int_equal(cgp_data_samples(text.data, CGP_SPLIT_VALIDATION), cases[i].validation);
        assert_int_equal(cgp_data_samples(text.data, CGP_SPLIT_TRAIN),
                         cases[i].sequences - cases[i].validation);
        release(&text);
    }
}

/* --- refusals --- */

/* Open one file of `count` bytes. */
static cgp_status open_text(int64_t count, int64_t length, double fraction) {
    uint8_t *bytes = calloc((size_t)count + 1, 1);
    const char *path = write_file("sized.txt", bytes, (size_t)count);
    cgp_text_options options = cgp_text_options_default();
    options.sequence = length;
    options.validation_fraction = fraction;
    cgp_data *data = NULL;
    const cgp_status status = cgp_data_text(&data, &path, 1, &options);
    assert_true((status == CGP_OK) == (data != NULL));
    cgp_data_destroy(data);
    free(bytes);
    return status;
}

TEST_CASE(a_text_one_byte_too_short_is_refused_with_the_bytes_needed) {
    const struct {
        int64_t length;
        double fraction;
        int64_t need;
    } cases[] = {{128, 0.1, 257}, {128, 0, 129},   {1, 0, 2},
                 {10, 0.9, 101},  {10, 0.95, 201}, {7, 0.5, 15}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char part[64];
        snprintf(part, sizeof part, "sized.txt: needs at least %" PRId64 " bytes", cases[i].need);
        assert_status(open_text(cases[i].need - 1, cases[i].length, cases[i].fraction), CGP_EINVAL);
        assert_message(part);
        assert_ok(open_text(cases[i].need, cases[i].length, cases[i].fraction));
    }
    assert_status(open_text(10, INT32_MAX, 0.1), CGP_EINVAL);
    assert_message("needs at least 4294967295 bytes");
    assert_status(open_text(10, INT32_MAX, 0.99999999999999989),
                  CGP_EINVAL); /* does not fit in 63 bits */
    assert_message("needs at least");
}

static cgp_status open_path(const char *path) {
    cgp_data *data = NULL;
    const char *paths[] = {write_file("good.txt", (const uint8_t *)"good", 4), path};
    const cgp_status status = cgp_data_text(&data, paths, 2, NULL);
    assert_null(data);
    return status;
}

TEST_CASE(a_file_that_cannot_be_read_is_named) {
    char part[128];
    const char *missing = path_of("missing.txt");
    assert_status(open_path(missing), CGP_EIO);
    snprintf(part, sizeof part, "%s: no such file", missing);
    assert_string_equal(cgp_message(), part);
    const char *empty = write_file("empty.txt", (const uint8_t *)"", 0);
    assert_status(open_path(empty), CGP_EINVAL);
    snprintf(part, sizeof part, "%s: is empty (a text needs at least T + 1 = 129 bytes)", empty);
    assert_string_equal(cgp_message(), part);
    const char *pipe_path = path_of("pipe");
    assert_int_equal(mkfifo(pipe_path, 0600), 0);
    assert_status(open_path(pipe_path), CGP_EIO); /* opening must not wait for a writer */
    assert_message("pipe: is not a regular file");
    const char *file_as_directory = path_of("good.txt/x");
    assert_status(open_path(file_as_directory), CGP_EIO);
    assert_message("good.txt/x: cannot be read (");
}

TEST_CASE(a_file_without_permission_is_named) {
    const char *secret = write_file("secret.txt", (const uint8_t *)"secret", 6);
    assert_int_equal(chmod(secret, 0), 0);
    const bool root = geteuid() == 0;
    if (root && (chmod(directory, 0755) || seteuid(65534)))
        skip(); /* root can read every file, and is not always allowed to change its user */
    cgp_data *data = NULL;
    const cgp_status status = cgp_data_text(&data, &secret, 1, NULL);
    if (root) assert_int_equal(seteuid(0), 0);
    assert_status(status, CGP_EIO);
    assert_message("secret.txt: cannot be read (Permission denied)");
}

static cgp_status open_with(cgp_text_options options) {
    cgp_data *data = NULL;
    const char *path = path_of("unused.txt");
    return cgp_data_text(&data, &path, 1, &options);
}

TEST_CASE(bad_options_are_named_with_their_value) {
    cgp_text_options options = cgp_text_options_default();
    options.sequence = 0;
    assert_status(open_with(options), CGP_EINVAL);
    assert_message("sequence is between 1 and 2147483647, got 0");
    const double fractions[] = {-0.1, 1, 2, NAN, INFINITY};
    for (int i = 0; i < 5; i++) {
        options = cgp_text_options_default();
        options.validation_fraction = fractions[i];
        assert_status(open_with(options), CGP_EINVAL);
        assert_message("validation_fraction is at least 0 and below 1, got ");
    }
    options = cgp_text_options_default();
    options.struct_size = 0;
    assert_status(open_with(options), CGP_EINVAL);
    assert_message("struct_size");
    cgp_data *data = NULL;
    assert_status(cgp_data_text(&data, NULL, 0, NULL), CGP_EINVAL);
    assert_string_equal(cgp_message(), "text: needs at least one file, got 0");
    options = cgp_text_options_default();
    options.n_validation_paths = 2;
    assert_status(open_with(options), CGP_EINVAL);
    assert_string_equal(cgp_message(), "text options: validation_paths has n_validation_paths "
                                       ">= 0 entries, got NULL and 2");
    options.validation_paths = (const char *const[]){"a"};
    options.n_validation_paths = -1;
    assert_status(open_with(options), CGP_EINVAL);
    assert_message("got a list and -1");
}

static cgp_status read_range(cgp_data *data, cgp_split split, int64_t first, int64_t count) {
    int32_t tokens[64], targets[64];
    return cgp_data_read(data, split, first, count, tokens, targets);
}

TEST_CASE(validation_ends_and_training_does_not) {
    numbered text = numbered_text(10, 3, 0.2, 3), no_validation = numbered_text(10, 3, 0, 3);
    cgp_data *data = text.data;
    assert_ok(read_range(data, CGP_SPLIT_VALIDATION, 1, 1));
    assert_ok(read_range(data, CGP_SPLIT_VALIDATION, 2, 0));
    assert_status(read_range(data, CGP_SPLIT_VALIDATION, 1, 2), CGP_EINVAL);
    assert_message("validation data: has 2 samples, got position 1 and count 2");
    assert_status(read_range(data, CGP_SPLIT_VALIDATION, INT64_MAX, INT64_MAX), CGP_EINVAL);
    assert_status(read_range(data, CGP_SPLIT_VALIDATION, -1, 1), CGP_EINVAL);
    assert_status(read_range(data, CGP_SPLIT_TRAIN, 0, -1), CGP_EINVAL);
    assert_message("training data: position and count are at least 0, got 0 and -1");
    assert_ok(read_range(data, CGP_SPLIT_TRAIN, INT64_MAX - 4, 4));
    assert_status(read_range(data, CGP_SPLIT_TRAIN, INT64_MAX - 4, 5), CGP_EINVAL);
    assert_status(read_range(data, (cgp_split)7, 0, 1), CGP_EINVAL);
    assert_status(read_range(no_validation.data, CGP_SPLIT_VALIDATION, 0, 1), CGP_EINVAL);
    assert_message("has 0 samples");
    release(&text);
    release(&no_validation);
}

/* --- random tokens --- */

enum { VOCAB = 37, LENGTH = 50, SAMPLES = 740 }; /* 37000 draws, 1000 of each token */

static cgp_data *noise(uint64_t seed) {
    cgp_data *data = NULL;
    assert_ok(cgp_data_random(&data, VOCAB, LENGTH, seed));
    return data;
}

/* Chi-square with 36 degrees of freedom exceeds 85 once in 150000 draws. The seed is fixed, so the
 * test always has the same result. */
static void assert_uniform(const int32_t *values) {
    int counts[VOCAB] = {0};
    double chi_square = 0;
    for (int i = 0; i < SAMPLES * LENGTH; i++) {
        assert_in_range(values[i], 0, VOCAB - 1);
        counts[values[i]]++;
    }
    for (int v = 0; v < VOCAB; v++)
        chi_square += (counts[v] - 1000.0) * (counts[v] - 1000.0) / 1000.0;
    assert_true(chi_square < 85);
}

static int equal_values(const int32_t *a, const int32_t *b) {
    int count = 0;
    for (int i = 0; i < SAMPLES * LENGTH; i++)
        count += a[i] == b[i];
    return count;
}

TEST_CASE(random_tokens_are_uniform_and_their_streams_apart) {
    enum { STREAMS = 6 };
    static int32_t streams[STREAMS][SAMPLES * LENGTH];
    cgp_data *data = noise(11), *other = noise(12);
    assert_ok(cgp_data_read(data, CGP_SPLIT_TRAIN, 0, SAMPLES, streams[0], streams[1]));
    assert_ok(cgp_data_read(data, CGP_SPLIT_VALIDATION, 0, SAMPLES, streams[2], streams[3]));
    assert_ok(cgp_data_read(other, CGP_SPLIT_TRAIN, 0, SAMPLES, streams[4], streams[5]));
    for (int i = 0; i < STREAMS; i++) {
        assert_uniform(streams[i]);
        /* Two independent streams agree in 1000 of 37000 positions on average, with a standard
         * deviation of 31. */
        for (int j = 0; j < i; j++)
            assert_in_range(equal_values(streams[i], streams[j]), 800, 1200);
    }
    assert_true(memcmp(streams[0], streams[0] + LENGTH, LENGTH * sizeof(int32_t)) !=
                0); /* the first two samples differ */
    cgp_data_destroy(data);
    cgp_data_destroy(other);
}

TEST_CASE(random_samples_depend_on_seed_and_position_alone) {
    uint64_t random = test_seed();
    const uint64_t seed = test_random(&random);
    cgp_data *one = noise(seed), *two = noise(seed);
    int32_t whole[2][8 * LENGTH], part[2][8 * LENGTH];
    const int64_t starts[] = {0, 1000, (int64_t)1 << 40, INT64_MAX - 8};
    for (int i = 0; i < 4; i++) {
        assert_ok(cgp_data_read(one, CGP_SPLIT_TRAIN, starts[i], 8, whole[0], whole[1]));
        assert_ok(cgp_data_read(two, CGP_SPLIT_TRAIN, starts[i] + 3, 5, part[0], part[1]));
        assert_memory_equal(part[0], whole[0] + 3 * LENGTH, 5 * LENGTH * sizeof(int32_t));
        assert_memory_equal(part[1], whole[1] + 3 * LENGTH, 5 * LENGTH * sizeof(int32_t));
    }
    assert_int_equal(cgp_data_samples(one, CGP_SPLIT_TRAIN), INT64_MAX);
    assert_int_equal(cgp_data_samples(one, CGP_SPLIT_VALIDATION), INT64_MAX);
    assert_int_equal(cgp_data_vocab_size(one), VOCAB);
    assert_int_equal(cgp_data_sequence(one), LENGTH);
    cgp_data_destroy(one);
    cgp_data_destroy(two);
}

TEST_CASE(random_data_refuse_invalid_sizes) {
    cgp_data *data = NULL;
    assert_status(cgp_data_random(&data, 0, 5, 0), CGP_EINVAL);
    assert_message("vocabulary is between 1 and 2147483647, got 0");
    assert_status(cgp_data_random(&data, (int64_t)INT32_MAX + 1, 5, 0), CGP_EINVAL);
    assert_status(cgp_data_random(&data, 5, 0, 0), CGP_EINVAL);
    assert_message("sequence is between 1 and 2147483647, got 0");
    assert_null(data);
    cgp_data_destroy(NULL);
}

TEST_GROUP(.set_up = make_directory, .tear_down = remove_directory);
