/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer.c -- reads damaged vocab.json and merges.txt files. Accepted files encode bytes as
 * tokens that decode to the same bytes. All other files are refused with a message that states the
 * file's name and a reason. Reading never crashes.
 *
 * The tests mutate the files of small encodings. An input of libFuzzer is the text of vocab.json
 * without the 256 single-byte tokens, a zero byte, merges.txt, a zero byte, and a text. */
#include "bpe.h"
#include "fuzz.h"

#include <cgpipe/tokenizer.h>

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

/* Return true if both files were accepted. */
static bool try_inputs(const fuzz_input in[2], const uint8_t *text, size_t size) {
    cgp_tokenizer *t = NULL;
    fuzz_write("vocab.json", in[0].bytes, in[0].size);
    fuzz_write("merges.txt", in[1].bytes, in[1].size);
    const cgp_status status =
        cgp_tokenizer_create(&t, fuzz_path("vocab.json"), fuzz_path("merges.txt"));
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

static bool take(const uint8_t *bytes, size_t size) {
    static fuzz_input in[2];
    const uint8_t *first = memchr(bytes, 0, size);
    const uint8_t *second = first ? memchr(first + 1, 0, size - (size_t)(first + 1 - bytes)) : NULL;
    if (!second || size > FUZZ_CAPACITY / 2) return false;
    in[0].size = in[1].size = 0;
    fuzz_append(&in[0], "{", 1);
    fuzz_append_vocabulary(&in[0]);
    fuzz_append(&in[0], bytes, (size_t)(first - bytes));
    fuzz_append(&in[1], first + 1, (size_t)(second - first - 1));
    return try_inputs(in, second + 1, size - (size_t)(second + 1 - bytes));
}

/* --- mutations --- */

/* Make the files of an encoding with up to 80 merges. */
static void start(fuzz_input in[2], uint64_t *random) {
    static test_bpe bpe;
    char *vocab = (char *)in[0].bytes, *merges = (char *)in[1].bytes;
    test_bpe_draw(&bpe, random);
    test_bpe_texts(&bpe, vocab, merges);
    in[0].size = strlen(vocab);
    in[1].size = strlen(merges);
}

static const char *const *const words =
    FUZZ_WORDS(" ", "\n", "\"", "\\", "\r\n", "#version", "{", "}", ": 0", ", ", "a", "\xff",
               "null", "-1", "1e99", "4294967296", "[", "0.5", "\t", "\"a\"", "a b\n", "\xc4\xa0",
               "\\u0000", "\xf0\x9f\x98\x80");

static void mutate(fuzz_input *in, uint64_t *random) {
    const size_t at = fuzz_below(random, in->size + 1);
    switch (fuzz_below(random, 5)) {
    case 0:
        fuzz_flip_bit(in, at, random);
        break;
    case 1: /* truncate */
        in->size = at;
        break;
    case 2: /* remove bytes */
        fuzz_replace(in, at, fuzz_below(random, 12), "", 0);
        break;
    case 3:
        fuzz_replace_word(in, at, 4, words, random);
        break;
    default:
        fuzz_copy_piece(in, at, 40, fuzz_below(random, in->size + 1), 8, random);
    }
}

static bool play(int times, uint64_t *random) {
    static fuzz_input in[2];
    uint8_t text[200];
    const size_t size = fuzz_below(random, sizeof text);
    for (size_t i = 0; i < size; i++)
        text[i] = (uint8_t)(test_random(random) >> (fuzz_below(random, 2) ? 0 : 57));
    start(in, random);
    for (; times > 0; times--)
        mutate(&in[fuzz_below(random, 2)], random);
    return try_inputs(in, text, size);
}

const fuzz_reader fuzz_tokenizer = {
    .take = take,
    .play = play,
    .mutations = 1500,
    .accepted_in = 50,
    .refused_in = 5,
    .valid = 200,
};
