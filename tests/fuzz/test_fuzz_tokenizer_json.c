/* SPDX-License-Identifier: Apache-2.0 */
/* test_fuzz_tokenizer_json.c -- damaged tokenizer.json. What is accepted encodes bytes to its own
 * tokens, which decode to them, and encodes a text in two parts as in one. Everything else is
 * refused with the file and a reason, and nothing crashes.
 *
 * As a test it mutates the files of small encodings, 600 times from a seed that is printed. With
 * CGP_LIBFUZZER it is a libFuzzer target (tools/fuzz.sh builds it), whose scratch file stays in
 * /tmp. Its input is the text of tokenizer.json, a zero byte, and a text. The first @ in
 * tokenizer.json stands for the 256 bytes: "..": 0, .. "..": 255. */
#include "bpe.h"
#include "fuzz.h"

#include <unistd.h>

#include <cgpipe/tokenizer.h>

enum { CAPACITY = BPE_JSON + 4096 };

typedef struct input {
    char bytes[CAPACITY];
    size_t size;
} input;

static char directory[64], path[96];

static int make_scratch(void **state) {
    (void)state;
    snprintf(directory, sizeof directory, "/tmp/cgp-fuzz-XXXXXX");
    if (!mkdtemp(directory)) return -1;
    snprintf(path, sizeof path, "%s/tokenizer.json", directory);
    return 0;
}

/* --- the property --- */

static void check_tokens(const cgp_tokenizer *t, const int32_t *ids, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        REQUIRE(ids[i] >= 0 && ids[i] < cgp_tokenizer_vocab_size(t));
}

static void check_accepted(cgp_tokenizer *t, const uint8_t *text, size_t size) {
    cgp_token_list list = {0}, parts = {0};
    char *back = NULL;
    int64_t count = 0, n = 0;
    REQUIRE(cgp_tokenizer_vocab_size(t) >= 256);
    REQUIRE(cgp_tokenizer_encode(t, text, (int64_t)size, &list) == CGP_OK);
    check_tokens(t, list.ids, list.count);
    REQUIRE(cgp_tokenizer_decode(t, list.ids, list.count, &back, &count) == CGP_OK);
    const int64_t at = cgp_tokenizer_split_point(t, text, (int64_t)size);
    REQUIRE(at >= 0 && (at == 0 || at < (int64_t)size));
    REQUIRE(cgp_tokenizer_encode(t, text, at, &parts) == CGP_OK);
    REQUIRE(cgp_tokenizer_encode(t, text + at, (int64_t)size - at, &parts) == CGP_OK);
    REQUIRE(parts.count == list.count);
    for (int64_t i = 0; i < list.count; i++)
        REQUIRE(parts.ids[i] == list.ids[i]);
    const int32_t *prefix = cgp_tokenizer_prefix(t, &n);
    check_tokens(t, prefix, n);
    const int32_t *suffix = cgp_tokenizer_suffix(t, &n);
    check_tokens(t, suffix, n);
    const int32_t end = cgp_tokenizer_end_of_text(t);
    REQUIRE(end >= -1 && end < cgp_tokenizer_vocab_size(t));
    REQUIRE(cgp_tokenizer_token_id(t, "<s>") < cgp_tokenizer_vocab_size(t));
    free(back);
    free(parts.ids);
    free(list.ids);
}

/* Return true if it was accepted. */
static bool try_input(const input *in, const uint8_t *text, size_t size) {
    cgp_tokenizer *t = NULL;
    FILE *file = fopen(path, "wb");
    REQUIRE(file && fwrite(in->bytes, 1, in->size, file) == in->size);
    fclose(file);
    const cgp_status status = cgp_tokenizer_open(&t, path);
    REQUIRE((t != NULL) == (status == CGP_OK));
    if (status == CGP_OK) {
        check_accepted(t, text, size);
        cgp_tokenizer_destroy(t);
        return true;
    }
    REQUIRE(status == CGP_EFORMAT && strstr(cgp_message(), "tokenizer.json: "));
    return false;
}

#ifdef CGP_LIBFUZZER

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

/* Append the 256 bytes. */
static void append_bytes(input *in) {
    int others = 256;
    for (int b = 0; b < 256; b++) {
        const bool itself = (b > 0x20 && b < 0x7f) || (b > 0xa0 && b != 0xad);
        const int c = itself ? b : others++;
        in->size += (size_t)sprintf(in->bytes + in->size, "%s\"\\u%04x\":%d", b ? "," : "", c, b);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    static input in;
    if (!directory[0] && make_scratch(NULL)) __builtin_trap();
    const uint8_t *end = memchr(bytes, 0, size);
    if (!end || size > CAPACITY / 2) return 0;
    const size_t length = (size_t)(end - bytes);
    const uint8_t *at = memchr(bytes, '@', length);
    in.size = at ? (size_t)(at - bytes) : length;
    memcpy(in.bytes, bytes, in.size);
    if (at) {
        append_bytes(&in);
        memcpy(in.bytes + in.size, at + 1, (size_t)(end - at - 1));
        in.size += (size_t)(end - at - 1);
    }
    (void)try_input(&in, end + 1, size - length - 1);
    return 0;
}

#else

enum { MUTATIONS = 600 };

/* --- the driver --- */

static int remove_scratch(void **state) {
    (void)state;
    unlink(path);
    return rmdir(directory);
}

/* Make the file of an encoding with up to 80 merges. */
static void start(input *in, uint64_t *random) {
    static test_bpe bpe;
    test_bpe_start(&bpe);
    for (int k = test_between(random, 0, 80); k > 0; k--)
        (void)test_bpe_merge(&bpe, (int)fuzz_below(random, (size_t)bpe.n),
                             (int)fuzz_below(random, (size_t)bpe.n));
    test_bpe_json(&bpe, in->bytes);
    in->size = strlen(in->bytes);
}

/* Draw a position in the file, half of the time outside the 256 bytes of the vocabulary. */
static size_t place(const input *in, uint64_t *random) {
    const size_t at = fuzz_below(random, in->size + 1);
    return at > 2400 && fuzz_below(random, 2) ? at % 2400 : at;
}

static void mutate(input *in, uint64_t *random) {
    static const char *const words[] = {
        "true", "false",      "null",      "{",        "}",    "[",       "]",
        "\"",   ",",          "-1",        "257",      "1e99", "\\u0301", "0.5",
        " ",    "\\n",        "\"Split\"", "NFC",      "\xff", "\\p{L}",  "<s>",
        "</s>", "\"A\"",      "ByteLevel", "lstrip",   "  ",   "\"ids\"", "{}",
        "\"\"", "4294967296", "\xc4\xa0",  "e\xcc\x81"};
    const size_t at = place(in, random);
    const char *word = words[fuzz_below(random, sizeof words / sizeof words[0])];
    switch (fuzz_below(random, 5)) {
    case 0: /* flip a bit */
        if (at < in->size) in->bytes[at] ^= (char)(1 << fuzz_below(random, 8));
        break;
    case 1: /* remove bytes */
        fuzz_replace(in->bytes, &in->size, CAPACITY, at, fuzz_below(random, 12), "", 0);
        break;
    case 2: /* replace bytes */
        fuzz_replace(in->bytes, &in->size, CAPACITY, at, fuzz_below(random, 6), word, strlen(word));
        break;
    case 3: { /* turn a "false" into "true" */
        char *bool_at = strstr(in->bytes + (at < in->size ? at : 0), "false");
        if (bool_at) memcpy(bool_at, "true ", 5);
        break;
    }
    default: { /* copy a piece of the file */
        char piece[40];
        const size_t length = fuzz_below(random, sizeof piece);
        if (at + length > in->size) break;
        memcpy(piece, in->bytes + at, length);
        fuzz_replace(in->bytes, &in->size, CAPACITY, place(in, random), fuzz_below(random, 8),
                     piece, length);
    }
    }
}

static bool play(int times, uint64_t *random) {
    static const char *const pieces[] = {"<s>", "</s>", " ", "wo", "e\xcc\x81t", "<m>", "\n", "x"};
    static input in;
    uint8_t text[200];
    size_t size = 0;
    while (size < sizeof text - 8 && fuzz_below(random, 40) > 0) {
        const char *piece = pieces[fuzz_below(random, sizeof pieces / sizeof pieces[0])];
        memcpy(text + size, piece, strlen(piece));
        size += strlen(piece);
        if (fuzz_below(random, 3) == 0) text[size++] = (uint8_t)test_random(random);
    }
    memset(in.bytes, 0, sizeof in.bytes);
    start(&in, random);
    for (; times > 0; times--)
        mutate(&in, random);
    return try_input(&in, text, size);
}

static void valid_files_are_accepted(void **state) {
    (void)state;
    uint64_t random = test_seed();
    for (int i = 0; i < 100; i++)
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
