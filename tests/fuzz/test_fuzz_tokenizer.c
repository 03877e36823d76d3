/* SPDX-License-Identifier: Apache-2.0 */
/* test_fuzz_tokenizer.c -- damaged vocab.json and merges.txt. What is accepted encodes bytes to
 * tokens that decode to them. Everything else is refused with file and reason, and nothing crashes.
 *
 * As a test it mutates the files of small encodings, 1500 times from a seed that is printed. With
 * CGP_LIBFUZZER it is a libFuzzer target (tools/fuzz.sh builds it), whose scratch files stay in
 * /tmp. Its input is the text of vocab.json without the 256 bytes, a zero byte, merges.txt, a zero
 * byte, and a text. */
#include "fuzz.h"

#include <fcntl.h>
#include <unistd.h>

#include <cgpipe/tokenizer.h>

enum { CAPACITY = 32768 };

typedef struct input {
    char bytes[CAPACITY];
    size_t size;
} input;

static char directory[64], paths[2][80];

static int make_scratch(void **state) {
    (void)state;
    snprintf(directory, sizeof directory, "/tmp/cgp-fuzz-XXXXXX");
    if (!mkdtemp(directory)) return -1;
    snprintf(paths[0], sizeof paths[0], "%s/vocab.json", directory);
    snprintf(paths[1], sizeof paths[1], "%s/merges.txt", directory);
    return 0;
}

static void write_input(int i, const input *in) {
    FILE *file = fopen(paths[i], "wb");
    REQUIRE(file && fwrite(in->bytes, 1, in->size, file) == in->size);
    fclose(file);
}

/* --- the property --- */

static void check_accepted(cgp_tokenizer *t, const uint8_t *text, size_t size) {
    cgp_token_list list = {0};
    char *back = NULL;
    int64_t count = 0;
    REQUIRE(cgp_tokenizer_vocab_size(t) >= 256);
    REQUIRE(cgp_tokenizer_encode(t, text, (int64_t)size, &list) == CGP_OK);
    for (int64_t i = 0; i < list.count; i++)
        REQUIRE(list.ids[i] >= 0 && list.ids[i] < cgp_tokenizer_vocab_size(t));
    REQUIRE(cgp_tokenizer_decode(t, list.ids, list.count, &back, &count) == CGP_OK);
    REQUIRE(count == (int64_t)size && memcmp(back, text, size) == 0);
    free(back);
    free(list.ids);
}

/* Return true if both were accepted. */
static bool try_inputs(const input in[2], const uint8_t *text, size_t size) {
    cgp_tokenizer *t = NULL;
    write_input(0, &in[0]);
    write_input(1, &in[1]);
    const cgp_status status = cgp_tokenizer_create(&t, paths[0], paths[1]);
    REQUIRE((t != NULL) == (status == CGP_OK));
    if (status == CGP_OK) {
        check_accepted(t, text, size);
        cgp_tokenizer_destroy(t);
        return true;
    }
    REQUIRE(status == CGP_EFORMAT &&
            (strstr(cgp_message(), "vocab.json: ") || strstr(cgp_message(), "merges.txt: line ")));
    return false;
}

#ifdef CGP_LIBFUZZER

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

/* Write the 256 bytes, as {"..": 0, .. "..": 255; the input continues after them. */
static void start(input *in) {
    int others = 256;
    in->size = 0;
    for (int b = 0; b < 256; b++) {
        const bool itself = (b > 0x20 && b < 0x7f) || (b > 0xa0 && b != 0xad);
        const int c = itself ? b : others++;
        in->size += (size_t)sprintf(in->bytes + in->size, "%s\"\\u%04x\":%d", b ? "," : "{", c, b);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    static input in[2];
    if (!directory[0] && make_scratch(NULL)) __builtin_trap();
    const uint8_t *first = memchr(bytes, 0, size);
    const uint8_t *second = first ? memchr(first + 1, 0, size - (size_t)(first + 1 - bytes)) : NULL;
    if (!second || size > CAPACITY / 2) return 0;
    start(&in[0]);
    memcpy(in[0].bytes + in[0].size, bytes, (size_t)(first - bytes));
    in[0].size += (size_t)(first - bytes);
    in[1].size = (size_t)(second - first - 1);
    memcpy(in[1].bytes, first + 1, in[1].size);
    (void)try_inputs(in, second + 1, size - (size_t)(second + 1 - bytes));
    return 0;
}

#else

#include "bpe.h"

enum { MUTATIONS = 1500 };

/* --- the driver --- */

static int remove_scratch(void **state) {
    (void)state;
    unlink(paths[0]);
    unlink(paths[1]);
    return rmdir(directory);
}

/* Make the files of an encoding with up to 80 merges. */
static void start(input in[2], uint64_t *random) {
    static test_bpe bpe;
    test_bpe_start(&bpe);
    for (int k = test_between(random, 0, 80); k > 0; k--)
        (void)test_bpe_merge(&bpe, (int)fuzz_below(random, (size_t)bpe.n),
                             (int)fuzz_below(random, (size_t)bpe.n));
    test_bpe_texts(&bpe, in[0].bytes, in[1].bytes);
    in[0].size = strlen(in[0].bytes);
    in[1].size = strlen(in[1].bytes);
}

static void mutate(input *in, uint64_t *random) {
    static const char *const words[] = {
        " ",   "\n",  "\"", "\\",    "\r\n",  "#version", "{",       "}",
        ": 0", ", ",  "a",  "\xff",  "null",  "-1",       "1e99",    "4294967296",
        "[",   "0.5", "\t", "\"a\"", "a b\n", "\xc4\xa0", "\\u0000", "\xf0\x9f\x98\x80"};
    const size_t at = fuzz_below(random, in->size + 1);
    const char *word = words[fuzz_below(random, sizeof words / sizeof words[0])];
    switch (fuzz_below(random, 5)) {
    case 0: /* flip a bit */
        if (at < in->size) in->bytes[at] ^= (char)(1 << fuzz_below(random, 8));
        break;
    case 1: /* cut off the end */
        in->size = at;
        break;
    case 2: /* remove bytes */
        fuzz_replace(in->bytes, &in->size, CAPACITY, at, fuzz_below(random, 12), "", 0);
        break;
    case 3: /* replace bytes */
        fuzz_replace(in->bytes, &in->size, CAPACITY, at, fuzz_below(random, 4), word, strlen(word));
        break;
    default: { /* copy a piece of the file */
        char piece[40];
        const size_t length = fuzz_below(random, sizeof piece);
        if (at + length > in->size) break;
        memcpy(piece, in->bytes + at, length);
        fuzz_replace(in->bytes, &in->size, CAPACITY, fuzz_below(random, in->size + 1),
                     fuzz_below(random, 8), piece, length);
    }
    }
}

static bool play(int times, uint64_t *random) {
    static input in[2];
    uint8_t text[200];
    const size_t size = fuzz_below(random, sizeof text);
    for (size_t i = 0; i < size; i++)
        text[i] = (uint8_t)(test_random(random) >> (fuzz_below(random, 2) ? 0 : 57));
    start(in, random);
    for (; times > 0; times--)
        mutate(&in[fuzz_below(random, 2)], random);
    return try_inputs(in, text, size);
}

static void valid_files_are_accepted(void **state) {
    (void)state;
    uint64_t random = test_seed();
    for (int i = 0; i < 200; i++)
        assert_true(play(0, &random));
}

static void mutated_files_are_refused_or_true(void **state) {
    (void)state;
    uint64_t random = test_seed();
    int accepted = 0;
    for (int i = 0; i < MUTATIONS; i++)
        accepted += play(test_between(&random, 1, 3), &random);
    print_message("%d of %d mutated files were accepted\n", accepted, MUTATIONS);
    /* both outcomes occur */
    assert_in_range(accepted, MUTATIONS / 50, MUTATIONS - MUTATIONS / 5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(valid_files_are_accepted),
        cmocka_unit_test(mutated_files_are_refused_or_true),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}

#endif
