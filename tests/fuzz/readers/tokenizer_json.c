/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_json.c -- reads damaged tokenizer.json files. An accepted file encodes bytes to its own
 * tokens, which decode to the same bytes. A text that is split at a split point has the same tokens
 * as the whole text. All other files are refused with a message that states the file's name and a
 * reason. Reading never crashes.
 *
 * The tests mutate the files of small encodings. An input of libFuzzer is the text of
 * tokenizer.json, a zero byte, and a text. The first @ in tokenizer.json stands for the 256
 * single-byte tokens: "..": 0, .. "..": 255. */
#include "bpe.h"
#include "fuzz.h"

#include <cgpipe/tokenizer.h>

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

/* Return true if the file was accepted. */
static bool try_input(const fuzz_input *in, const uint8_t *text, size_t size) {
    cgp_tokenizer *t = NULL;
    fuzz_write("tokenizer.json", in->bytes, in->size);
    const cgp_status status = cgp_tokenizer_open(&t, fuzz_path("tokenizer.json"));
    REQUIRE((t != NULL) == (status == CGP_OK));
    if (status == CGP_OK) {
        check_accepted(t, text, size);
        cgp_tokenizer_destroy(t);
        return true;
    }
    REQUIRE(status == CGP_EFORMAT && strstr(cgp_message(), "tokenizer.json: "));
    return false;
}

static bool take(const uint8_t *bytes, size_t size) {
    static fuzz_input in;
    const uint8_t *end = memchr(bytes, 0, size);
    if (!end || size > FUZZ_CAPACITY / 2) return false;
    const size_t length = (size_t)(end - bytes);
    const uint8_t *at = memchr(bytes, '@', length);
    in.size = 0;
    fuzz_append(&in, bytes, at ? (size_t)(at - bytes) : length);
    if (at) {
        fuzz_append_vocabulary(&in);
        fuzz_append(&in, at + 1, (size_t)(end - at - 1));
    }
    return try_input(&in, end + 1, size - length - 1);
}

/* --- mutations --- */

/* Make the file of an encoding with up to 80 merges. */
static void start(fuzz_input *in, uint64_t *random) {
    static test_bpe bpe;
    char *text = (char *)in->bytes;
    test_bpe_draw(&bpe, random);
    test_bpe_json(&bpe, text);
    in->size = strlen(text);
}

/* Draw a position in the file. Half of the time, the position is outside the vocabulary's 256
 * single-byte tokens. */
static size_t place(const fuzz_input *in, uint64_t *random) {
    const size_t at = fuzz_below(random, in->size + 1);
    return at > 2400 && fuzz_below(random, 2) ? at % 2400 : at;
}

static const char *const *const words = FUZZ_WORDS(
    "true", "false", "null", "{", "}", "[", "]", "\"", ",", "-1", "257", "1e99", "\\u0301", "0.5",
    " ", "\\n", "\"Split\"", "NFC", "\xff", "\\p{L}", "<s>", "</s>", "\"A\"", "ByteLevel", "lstrip",
    "  ", "\"ids\"", "{}", "\"\"", "4294967296", "\xc4\xa0", "e\xcc\x81");

static void mutate(fuzz_input *in, uint64_t *random) {
    const size_t at = place(in, random);
    switch (fuzz_below(random, 5)) {
    case 0:
        fuzz_flip_bit(in, at, random);
        break;
    case 1: /* remove bytes */
        fuzz_replace(in, at, fuzz_below(random, 12), "", 0);
        break;
    case 2:
        fuzz_replace_word(in, at, 6, words, random);
        break;
    case 3: { /* turn a "false" into "true" */
        char *bool_at = strstr((char *)in->bytes + (at < in->size ? at : 0), "false");
        if (bool_at) memcpy(bool_at, "true ", 5);
        break;
    }
    default:
        fuzz_copy_piece(in, at, 40, place(in, random), 8, random);
    }
}

static const char *const *const pieces =
    FUZZ_WORDS("<s>", "</s>", " ", "wo", "e\xcc\x81t", "<m>", "\n", "x");

static bool play(int times, uint64_t *random) {
    static fuzz_input in;
    uint8_t text[200];
    size_t size = 0;
    while (size < sizeof text - 8 && fuzz_below(random, 40) > 0) {
        const char *piece = fuzz_word(pieces, random);
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

const fuzz_reader fuzz_tokenizer_json = {
    .take = take,
    .play = play,
    .mutations = 600,
    .accepted_in = 50,
    .refused_in = 5,
    .valid = 100,
};
