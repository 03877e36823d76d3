/* SPDX-License-Identifier: Apache-2.0 */
/* tokens.c -- reads damaged token files. All samples of an accepted file can be read and agree with
 * the file's bytes. All other files are refused, and the message states a position. Reading never
 * crashes. */
#include "fuzz.h"

#include <unistd.h>

#include <cgpipe/data.h>

enum { FILE_BYTES = 4096, HEADER = 1024, MAGIC = 20240520, MAGIC_UINT32 = 20240801 };

static const char *const names[2] = {"0.bin", "1.bin"};

/* --- the property --- */

/* Find the tokens of an accepted file without the library; return the number of tokens. */
static int expected_tokens(const fuzz_input *in, int32_t *tokens) {
    int32_t magic = 0;
    if (in->size >= 4) memcpy(&magic, in->bytes, 4);
    const size_t first = magic == MAGIC || magic == MAGIC_UINT32 ? HEADER : 0;
    const size_t width = magic == MAGIC_UINT32 ? 4 : 2;
    REQUIRE(in->size > first && (in->size - first) % width == 0);
    for (size_t at = first; at < in->size; at += width) {
        uint32_t token = 0;
        for (size_t k = 0; k < width; k++)
            token |= (uint32_t)in->bytes[at + k] << 8 * k;
        tokens[(at - first) / width] = (int32_t)token;
    }
    return (int)((in->size - first) / width);
}

/* Check a sample. It must have T + 1 consecutive expected tokens, starting at a multiple of T. If
 * one of these tokens is out of range, the sample must be refused. */
static void check_sample(cgp_data *data, cgp_split split, int64_t position, const int32_t *expected,
                         int n, bool *visits) {
    const int64_t length = cgp_data_sequence(data), vocab = cgp_data_vocab_size(data);
    const int64_t windows = (n - 1) / length;
    int32_t *tokens = malloc((size_t)length * 4), *targets = malloc((size_t)length * 4);
    const cgp_status status = cgp_data_read(data, split, position, 1, tokens, targets);
    REQUIRE(status == CGP_OK || (status == CGP_EFORMAT && strstr(cgp_message(), ".bin: at byte ")));
    bool found = false;
    for (int64_t w = 0; w < windows && !found; w++) {
        bool low = true;
        for (int64_t t = 0; t <= length; t++)
            low = low && (uint32_t)expected[w * length + t] < (uint64_t)vocab;
        if (visits[w] || low != (status == CGP_OK)) continue;
        found = !low || (memcmp(tokens, expected + w * length, (size_t)length * 4) == 0 &&
                         memcmp(targets, expected + w * length + 1, (size_t)length * 4) == 0);
        visits[w] = found;
    }
    REQUIRE(found);
    free(tokens);
    free(targets);
}

static void check_accepted(cgp_data *data, const fuzz_input in[2]) {
    static int32_t expected[FUZZ_CAPACITY];
    static bool visits[FUZZ_CAPACITY];
    const int64_t n_train = cgp_data_samples(data, CGP_SPLIT_TRAIN);
    const int64_t n_validation = cgp_data_samples(data, CGP_SPLIT_VALIDATION);
    int n = expected_tokens(&in[0], expected);
    n += expected_tokens(&in[1], expected + n);
    REQUIRE(n_train >= 1 && n_train + n_validation == (n - 1) / cgp_data_sequence(data));
    memset(visits, 0, sizeof visits);
    for (int64_t i = 0; i < n_train; i++)
        check_sample(data, CGP_SPLIT_TRAIN, n_train + i, expected, n, visits);
    for (int64_t i = 0; i < n_validation; i++)
        check_sample(data, CGP_SPLIT_VALIDATION, i, expected, n, visits);
}

/* While the second file is open, replace its contents by `size` zeros, and read all samples. Each
 * read must succeed or fail with CGP_EFORMAT. If the file has become too short, a read may also
 * fail with CGP_EIO. */
static void check_cut(cgp_data *data, size_t size) {
    int32_t *tokens = malloc((size_t)cgp_data_sequence(data) * 8);
    int32_t *targets = tokens + cgp_data_sequence(data);
    fuzz_write(names[1], "", 0);
    REQUIRE(truncate(fuzz_path(names[1]), (off_t)size) == 0);
    for (int64_t i = 0; i < cgp_data_samples(data, CGP_SPLIT_TRAIN); i++) {
        const cgp_status status = cgp_data_read(data, CGP_SPLIT_TRAIN, i, 1, tokens, targets);
        REQUIRE(status == CGP_OK || status == CGP_EFORMAT ||
                (status == CGP_EIO && strstr(cgp_message(), "1.bin: became shorter")));
    }
    free(tokens);
}

/* Open both inputs as one sequence of tokens; return true if the library accepts the files. */
static bool try_inputs(const fuzz_input in[2], int64_t sequence, int64_t vocab) {
    const char *const paths[] = {fuzz_path(names[0]), fuzz_path(names[1])};
    cgp_token_options options = cgp_token_options_default();
    cgp_data *data = NULL;
    char hex[65];
    options.sequence = sequence;
    options.vocab = vocab;
    options.validation_fraction = 0.2;
    for (int i = 0; i < 2; i++)
        fuzz_write(names[i], in[i].bytes, in[i].size);
    const cgp_status status = cgp_data_tokens(&data, paths, 2, &options);
    if (status == CGP_OK) {
        REQUIRE(cgp_data_identity(data, hex) == CGP_OK && strlen(hex) == 64);
        check_accepted(data, in);
        check_cut(data, in[1].size / 2);
        cgp_data_destroy(data);
        return true;
    }
    REQUIRE(!data && cgp_message()[0]);
    REQUIRE((status == CGP_EFORMAT &&
             (strstr(cgp_message(), ".bin: at byte ") || strstr(cgp_message(), ".bin: is "))) ||
            (status == CGP_EINVAL && (strstr(cgp_message(), ".bin: is empty") ||
                                      strstr(cgp_message(), "tokens: needs at least"))));
    return false;
}

static bool take(const uint8_t *bytes, size_t size) {
    static fuzz_input in[2];
    if (size < 2 || size > FILE_BYTES) return false;
    in[0].size = (size - 2) / 2;
    in[1].size = size - 2 - in[0].size;
    memcpy(in[0].bytes, bytes + 2, in[0].size);
    memcpy(in[1].bytes, bytes + 2 + in[0].size, in[1].size);
    return try_inputs(in, 1 + bytes[0] % 64, 65536 - 256 * (int64_t)bytes[1]);
}

/* --- mutations --- */

/* Make a valid file of up to 300 tokens, most of them small. */
static void start(fuzz_input *in, uint64_t *random) {
    const int n = test_between(random, 1, 300);
    size_t width = 2;
    memset(in, 0, sizeof *in);
    if (fuzz_below(random, 2)) {
        const int32_t headers[2][3] = {{MAGIC, 1, n}, {MAGIC_UINT32, 7, n}};
        width = 2 + 2 * fuzz_below(random, 2);
        memcpy(in->bytes, headers[width / 2 - 1], sizeof headers[0]);
        in->size = HEADER;
    }
    for (int i = 0; i < n; i++, in->size += width) {
        const uint32_t token = (uint32_t)fuzz_below(random, 50000);
        for (size_t k = 0; k < width; k++)
            in->bytes[in->size + k] = (uint8_t)(token >> 8 * k);
    }
}

static void mutate(fuzz_input *in, uint64_t *random) {
    static const int32_t words[] = {MAGIC, 20240801, 20240522, 0, 1, 2, -1, INT32_MAX, INT32_MIN};
    switch (fuzz_below(random, 6)) {
    case 0:
        fuzz_flip_bit(in, fuzz_below(random, in->size), random);
        break;
    case 1: /* truncate */
        in->size =
            fuzz_below(random, 2) ? fuzz_below(random, in->size + 1) : in->size - (in->size > 0);
        break;
    case 2: /* append zeros */
        in->size += 1 + fuzz_below(random, 16);
        break;
    case 3: /* change one of the first three words, with or without a header */
        if (in->size >= 12)
            memcpy(in->bytes + 4 * fuzz_below(random, 3), &words[fuzz_below(random, 9)], 4);
        break;
    case 4: /* write a large token */
        if (in->size >= 2) memset(in->bytes + 2 * fuzz_below(random, in->size / 2), 0xff, 2);
        break;
    default: /* change the number of tokens slightly */
        if (in->size >= 12) in->bytes[8] += (uint8_t)(fuzz_below(random, 5) - 2);
    }
}

static void valid_files_are_accepted(void **state) {
    (void)state;
    uint64_t random = test_seed();
    static fuzz_input in[2];
    for (int i = 0; i < 200; i++) {
        start(&in[0], &random);
        start(&in[1], &random);
        assert_true(try_inputs(in, 1, test_between(&random, 1, 65536)) ||
                    strstr(cgp_message(), "needs at least 3 tokens"));
    }
}

static bool play(int times, uint64_t *random) {
    static fuzz_input in[2];
    start(&in[0], random);
    start(&in[1], random);
    for (; times > 0; times--)
        mutate(&in[fuzz_below(random, 2)], random);
    return try_inputs(in, test_between(random, 1, 100),
                      fuzz_below(random, 2) ? 65536 : test_between(random, 1, 65536));
}

static void bytes_at_random_never_crash(void **state) {
    (void)state;
    uint64_t random = test_seed();
    static fuzz_input in[2];
    for (int i = 0; i < 2000; i++) {
        for (int k = 0; k < 2; k++) {
            const int32_t magic = MAGIC;
            fuzz_draw_bytes(&in[k], i % 2 ? 40 : 2000, &random);
            if (in[k].size >= 4 && fuzz_below(&random, 4) == 0) memcpy(in[k].bytes, &magic, 4);
        }
        (void)try_inputs(in, test_between(&random, 1, 20), 65536);
    }
}

const fuzz_reader fuzz_tokens = {
    .take = take,
    .play = play,
    .mutations = 4000,
    .accepted_in = 20,
    .refused_in = 20,
    .tests = {cmocka_unit_test(valid_files_are_accepted),
              cmocka_unit_test(bytes_at_random_never_crash)},
};
