/* SPDX-License-Identifier: Apache-2.0 */
/* test_tokenizer.c -- tests GPT-2's byte-pair encoding. The tokens equal the tokens of Hugging
 * Face's tokenizers for 1,000 hard strings (made by tools/reference_tokens.py). The file also tests
 * bytes that are not UTF-8, and damaged files. */
#include "bpe.h"
#include "directory.h"

#include <jansson.h>
#include <unistd.h>

#include <cgpipe/tokenizer.h>

#define VOCAB TEST_DATA "/tokenizer/vocab.json"
#define MERGES TEST_DATA "/tokenizer/merges.txt"

static cgp_tokenizer *reference;
static json_t *strings; /* [[text, [id ..]] ..] */

static int set_up(void **state) {
    json_error_t error;
    assert_ok(cgp_tokenizer_create(&reference, VOCAB, MERGES));
    json_t *root = json_load_file(TEST_DATA "/tokenizer/strings.json", JSON_ALLOW_NUL, &error);
    strings = json_incref(json_object_get(root, "strings"));
    json_decref(root);
    assert_int_equal(json_array_size(strings), 1000);
    return test_make_directory(state);
}

static int tear_down(void **state) {
    json_decref(strings);
    cgp_tokenizer_destroy(reference);
    return test_remove_directory(state);
}

static const char *text_at(size_t i, size_t *size) {
    const json_t *text = json_array_get(json_array_get(strings, i), 0);
    *size = json_string_length(text);
    return json_string_value(text);
}

/* Clear the list, then append the tokens of the text. */
static void encode(cgp_tokenizer *t, const void *bytes, size_t size, cgp_token_list *list) {
    list->count = 0;
    assert_ok(cgp_tokenizer_encode(t, bytes, (int64_t)size, list));
}

static bool same_tokens(const cgp_token_list *got, const int32_t *expected, int64_t n) {
    bool same = got->count == n;
    for (int64_t i = 0; same && i < n; i++)
        same = got->ids[i] == expected[i];
    return same;
}

static void assert_tokens(const cgp_token_list *got, const int32_t *expected, int64_t n) {
    if (same_tokens(got, expected, n)) return;
    for (int64_t i = 0; i < got->count || i < n; i++)
        print_error("token %d: expected %d, got %d\n", (int)i, i < n ? expected[i] : -1,
                    i < got->count ? got->ids[i] : -1);
    fail();
}

/* Assert that decoding the encoded bytes returns the same bytes. */
static void assert_round_trip(cgp_tokenizer *t, const void *bytes, size_t size,
                              cgp_token_list *list) {
    char *back = NULL;
    int64_t count = -1;
    encode(t, bytes, size, list);
    assert_true(list->count <= (int64_t)size);
    assert_ok(cgp_tokenizer_decode(t, list->ids, list->count, &back, &count));
    assert_int_equal(count, size);
    assert_memory_equal(back, bytes, size);
    assert_int_equal(back[count], 0);
    free(back);
}

/* --- the reference --- */

TEST_CASE(tokens_are_those_of_the_reference) {
    cgp_token_list list = {0};
    for (size_t i = 0; i < json_array_size(strings); i++) {
        const json_t *ids = json_array_get(json_array_get(strings, i), 1);
        const size_t n = json_array_size(ids);
        int32_t *expected = calloc(n + 1, sizeof *expected);
        size_t size = 0;
        const char *text = text_at(i, &size);
        for (size_t k = 0; k < n; k++)
            expected[k] = (int32_t)json_integer_value(json_array_get(ids, k));
        encode(reference, text, size, &list);
        if (!same_tokens(&list, expected, (int64_t)n))
            print_error("string %zu, \"%.80s\":\n", i, text);
        assert_tokens(&list, expected, (int64_t)n);
        assert_round_trip(reference, text, size, &list);
        free(expected);
    }
    free(list.ids);
}

TEST_CASE(the_end_of_text_token_is_not_text) {
    static const char text[] = "<|endoftext|>";
    cgp_token_list list = {0};
    char *back = NULL;
    int64_t count = 0;
    const int32_t end = cgp_tokenizer_end_of_text(reference);
    assert_int_equal(cgp_tokenizer_vocab_size(reference), 2257);
    assert_int_equal(end, 2256);
    encode(reference, text, sizeof text - 1, &list);
    for (int64_t i = 0; i < list.count; i++)
        assert_int_not_equal(list.ids[i], end);
    assert_ok(cgp_tokenizer_decode(reference, &end, 1, &back, &count));
    assert_string_equal(back, text);
    free(back);
    free(list.ids);
}

/* --- bytes --- */

/* Return the token that merges `left` and `right`; add the merge if there is none. */
static int merged(test_bpe *bpe, int left, int right) {
    for (int i = 256; i < bpe->n; i++) {
        if (bpe->left[i] == left && bpe->right[i] == right) return i;
    }
    assert_true(test_bpe_merge(bpe, left, right));
    return bpe->n - 1;
}

/* Each byte of an ill-formed sequence is a separate token. The well-formed text before and after
 * the sequence is merged as usual. */
TEST_CASE(bytes_that_are_no_text_are_tokens_of_their_own) {
    static const struct {
        const char *bytes;
        int alone; /* number of bytes in ill-formed sequences */
    } cases[] = {
        {"\x80", 1},
        {"\xff\xfe", 2},
        {"\xc0\xaf", 2}, /* overlong */
        {"\xc1\xbf", 2},
        {"\xe0\x80\xaf", 3}, /* overlong */
        {"\xe0\x9f\xbf", 3},
        {"\xf0\x80\x80\xaf", 4}, /* overlong */
        {"\xf0\x8f\xbf\xbf", 4},
        {"\xed\xa0\x80", 3}, /* surrogates */
        {"\xed\xbf\xbf", 3},
        {"\xf4\x90\x80\x80", 4}, /* above U+10FFFF */
        {"\xf5\x80\x80\x80", 4},
        {"\xe2\x82", 2}, /* a truncated character */
        {"\xf0\x9f\x98", 3},
        {"\xc3", 1},
        {"\xe2\x28\xa1", 2}, /* '(' is well-formed */
        {"\xc3\xa9", 0},
        {"\xc3\xc3\xa9", 1}, /* a stray byte, then a valid letter */
        {"\xed\x9f\xbf", 0}, /* the last character before the surrogates */
        {"\xee\x80\x80", 0},
        {"\xf4\x8f\xbf\xbf", 0}, /* U+10FFFF */
        {"\xf0\x90\x80\x80", 0},
        {"\xe0\xa0\x80", 0},
        {"\xc2\x80", 0},
    };
    test_bpe *bpe = calloc(1, sizeof *bpe);
    char *vocab = calloc(2, BPE_TEXT), *merges = vocab + BPE_TEXT;
    const char *paths[] = {test_path_of("vocab.json"), test_path_of("merges.txt")};
    cgp_tokenizer *t = NULL;
    cgp_token_list list = {0};
    /* The vocabulary contains merges for every case. They would turn the case into one token if all
     * its bytes were in one word. */
    test_bpe_start(bpe);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int whole = 255 - (uint8_t)cases[i].bytes[0];
        for (const char *c = cases[i].bytes + 1; *c; c++)
            whole = merged(bpe, whole, 255 - (uint8_t)*c);
    }
    test_bpe_texts(bpe, vocab, merges);
    test_write_file(paths[0], vocab, strlen(vocab));
    test_write_file(paths[1], merges, strlen(merges));
    assert_ok(cgp_tokenizer_create(&t, paths[0], paths[1]));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const size_t size = strlen(cases[i].bytes);
        int alone = 0;
        assert_round_trip(t, cases[i].bytes, size, &list);
        for (int64_t k = 0; k < list.count; k++)
            alone += list.ids[k] < 128; /* the token of a byte above 0x7f */
        if (alone != cases[i].alone) print_error("case %zu\n", i);
        assert_int_equal(alone, cases[i].alone);
    }
    cgp_tokenizer_destroy(t);
    free(list.ids);
    free(vocab);
    free(bpe);
}

/* Draw random bytes of all lengths, with text between them. */
static size_t draw_bytes(uint64_t *random, uint8_t *bytes, size_t capacity) {
    size_t size = 0;
    while (size < capacity && test_between(random, 0, 12) > 0) {
        size_t count = 0;
        const char *text = text_at((size_t)test_between(random, 0, 999), &count);
        const size_t from = (size_t)test_between(random, 0, (int)count);
        const size_t length = (size_t)test_between(random, 0, 20);
        for (size_t i = from; i < count && i < from + length && size < capacity; i++)
            bytes[size++] = (uint8_t)text[i];
        for (int k = test_between(random, 0, 3); k > 0 && size < capacity; k--)
            bytes[size++] = (uint8_t)test_random(random);
    }
    return size;
}

TEST_CASE(every_sequence_of_bytes_comes_back) {
    uint64_t random = test_seed();
    static uint8_t bytes[400];
    cgp_token_list list = {0};
    for (int i = 0; i < 20000; i++)
        assert_round_trip(reference, bytes, draw_bytes(&random, bytes, sizeof bytes), &list);
    free(list.ids);
}

/* If a byte neither begins nor continues a character, it separates the texts a and b around it:
 * tokens(a + byte + b) is tokens(a), token(byte), tokens(b). */
TEST_CASE(a_byte_that_is_no_text_ends_the_text_before_it) {
    uint64_t random = test_seed();
    static uint8_t bytes[801];
    cgp_token_list whole = {0}, parts = {0};
    for (int i = 0; i < 5000; i++) {
        const size_t a = draw_bytes(&random, bytes, 400);
        bytes[a] = (uint8_t)test_between(&random, 0xf5, 0xff);
        const size_t b = draw_bytes(&random, bytes + a + 1, 400);
        encode(reference, bytes, a + 1 + b, &whole);
        encode(reference, bytes, a, &parts);
        assert_ok(cgp_tokenizer_encode(reference, bytes + a, 1, &parts));
        assert_ok(cgp_tokenizer_encode(reference, bytes + a + 1, (int64_t)b, &parts));
        assert_tokens(&whole, parts.ids, parts.count);
    }
    free(whole.ids);
    free(parts.ids);
}

TEST_CASE(texts_may_be_split_at_the_split_point) {
    uint64_t random = test_seed();
    static uint8_t bytes[800];
    cgp_token_list whole = {0}, parts = {0};
    int cuts = 0;
    for (int i = 0; i < 20000; i++) {
        const size_t size = draw_bytes(&random, bytes, sizeof bytes);
        const int64_t first = test_between(&random, 0, (int)size); /* length of the prefix */
        const int64_t at = cgp_tokenizer_split_point(reference, bytes, first);
        assert_in_range(at, 0, first);
        cuts += at > 0;
        encode(reference, bytes, size, &whole);
        encode(reference, bytes, (size_t)at, &parts);
        assert_ok(cgp_tokenizer_encode(reference, bytes + at, (int64_t)size - at, &parts));
        assert_tokens(&whole, parts.ids, parts.count);
    }
    assert_true(cuts > 2000);
    assert_int_equal(cgp_tokenizer_split_point(reference, "a b c", 5), 3);
    assert_int_equal(cgp_tokenizer_split_point(reference, "a  ", 3), 1);
    assert_int_equal(cgp_tokenizer_split_point(reference, "ab", 2), 0);
    assert_int_equal(cgp_tokenizer_split_point(reference, "", 0), 0);
    free(whole.ids);
    free(parts.ids);
}

/* --- merges --- */

/* Draw random merges. Compare the tokens of words with the tokens from a slow implementation of the
 * merge rule. */
TEST_CASE(merges_are_those_of_the_rule) {
    uint64_t random = test_seed();
    test_bpe *bpe = calloc(1, sizeof *bpe);
    char *vocab = calloc(2, BPE_TEXT), *merges = vocab + BPE_TEXT;
    cgp_token_list list = {0};
    for (int i = 0; i < 60; i++) {
        const char *paths[] = {test_path_of("vocab.json"), test_path_of("merges.txt")};
        const int letters = test_between(&random, 1, 5), wanted = test_between(&random, 0, 60);
        cgp_tokenizer *t = NULL;
        test_bpe_start(bpe);
        for (int k = 0; k < wanted; k++) {
            int sides[2];
            for (int s = 0; s < 2; s++)
                sides[s] = bpe->n > 256 && test_between(&random, 0, 1)
                               ? test_between(&random, 256, bpe->n - 1)
                               : 255 - 'a' - test_between(&random, 0, letters - 1);
            (void)test_bpe_merge(bpe, sides[0], sides[1]);
        }
        test_bpe_texts(bpe, vocab, merges);
        test_write_file(paths[0], vocab, strlen(vocab));
        test_write_file(paths[1], merges, strlen(merges));
        assert_ok(cgp_tokenizer_create(&t, paths[0], paths[1]));
        assert_int_equal(cgp_tokenizer_vocab_size(t), bpe->n);
        assert_int_equal(cgp_tokenizer_end_of_text(t), -1);
        for (int k = 0; k < 300; k++) {
            uint8_t word[90];
            int32_t expected[90];
            const int size = test_between(&random, 1, k % 2 ? 8 : 90);
            for (int c = 0; c < size; c++)
                word[c] = (uint8_t)('a' + test_between(&random, 0, letters - 1));
            const int n = test_bpe_encode(bpe, word, size, expected);
            encode(t, word, (size_t)size, &list);
            assert_tokens(&list, expected, n);
        }
        cgp_tokenizer_destroy(t);
    }
    free(list.ids);
    free(vocab);
    free(bpe);
}

/* Encoding a word of a million equal bytes does not take quadratic time, for any value of the
 * byte. */
TEST_CASE(long_words_take_no_longer_a_byte) {
    enum { LONG = 1 << 20 };
    static const char kinds[] = "a7= \n\t";
    char *text = malloc(LONG + 1);
    cgp_token_list list = {0};
    for (const char *kind = kinds; *kind; kind++) {
        memset(text, *kind, LONG);
        text[LONG] = 'x';
        assert_round_trip(reference, text, LONG, &list);
        assert_round_trip(reference, text, LONG + 1, &list);
    }
    for (int i = 0; i < LONG; i++)
        text[i] = (char)('a' + i * 7 % 26);
    assert_round_trip(reference, text, LONG, &list);
    memset(text, 0xff, LONG);
    assert_round_trip(reference, text, LONG, &list);
    free(list.ids);
    free(text);
}

/* --- use --- */

TEST_CASE(a_list_keeps_its_tokens) {
    cgp_token_list list = {0}, once = {0};
    char *back = NULL;
    int64_t count = 0;
    encode(reference, "one", 3, &list);
    encode(reference, "one", 3, &once);
    assert_status(cgp_tokenizer_encode(reference, "x", -1, &list), CGP_EINVAL);
    assert_status(cgp_tokenizer_encode(reference, "x", (int64_t)INT32_MAX + 1, &list), CGP_EINVAL);
    assert_message("tokenizer: expected from 0 to 2147483647 bytes at a time, got 2147483648");
    assert_tokens(&list, once.ids, once.count);
    const int32_t bad[][2] = {{5, 2257}, {5, -1}};
    for (int i = 0; i < 2; i++)
        assert_status(cgp_tokenizer_decode(reference, bad[i], 2, &back, &count), CGP_EINVAL);
    assert_message("tokenizer: token 1: expected an id from 0 to 2256, got -1");
    assert_null(back);
    assert_ok(cgp_tokenizer_decode(reference, NULL, 0, &back, &count));
    assert_int_equal(count, 0);
    assert_string_equal(back, "");
    free(back);
    free(list.ids);
    free(once.ids);
    cgp_tokenizer_destroy(NULL);
}

/* --- damage --- */

/* Damage to a file. The text `what` (NULL: the whole text) is replaced by `with`. The error message
 * must contain `message`. */
typedef struct damage {
    int file; /* 0: vocab.json, 1: merges.txt */
    const char *what, *with, *message;
} damage;

static const damage damages[] = {
    {0, NULL, "", "vocab.json: line 1, byte 0: "},
    {0, NULL, "[]", "vocab.json: line 1: expected an object from tokens to ids, got a list"},
    {0, NULL, "{}", "vocab.json: line 1: expected an object from tokens to ids, got an empty"},
    {0, NULL, "{\"a\": 0}", "vocab.json: expected a token for each byte, got none for 0x00"},
    {0, ": 257}", ": 257", "vocab.json: line 259, byte "},
    {0, "\"b\": 157,", "\"b\": 157", "vocab.json: line 159, byte "},
    {0, "\"b\": 157", "\"c\": 157", "vocab.json: line "},
    {0, "\"b\": 157", "\"b\": 156", "vocab.json: token \"b\": its id 156 is there twice"},
    {0, "\"b\": 157", "\"b\": 158", "vocab.json: token \"a\": its id 158 is there twice"},
    {0, "\"b\": 157", "\"b\": -1", "token \"b\": expected an id below 258, the number of tokens"},
    {0, "\"b\": 157", "\"b\": 258", "token \"b\": expected an id below 258, the number of "},
    {0, "\"b\": 157", "\"b\": 4294967296", "token \"b\": expected an id below 258"},
    {0, "\"b\": 157", "\"b\": 157.0", "token \"b\": expected an id, got no whole number"},
    {0, "\"b\": 157", "\"b\": \"157\"", "token \"b\": expected an id, got no whole number"},
    {0, "\"b\": 157", "\"\": 157", "token \"\": expected characters that stand for bytes, got"},
    {0, "\"b\": 157", "\"b b\": 157", "token \"b b\": expected characters that stand for bytes"},
    {0, "\"b\": 157", "\"\xe4\xb8\xad\": 157", "expected characters that stand for bytes, got"},
    {0, "\"b\": 157", "\"\xc5\x84\": 157", "expected characters that stand for bytes, got ano"},
    {0, "\"b\": 157", "\"b\xff\": 157", "vocab.json: line "},
    {0, "\"b\": 157", "\"bbb\": 157", "vocab.json: expected a token for each byte, got none f"},
    {1, "a b\n", "a b", NULL}, /* the last line may lack its newline */
    {1, "a b\n", "a b\r\n", NULL},
    {1, "a b\n", "#version: 7\na b\n", NULL},
    {1, NULL, "", NULL},
    {1, "a b\n", "a b\n\n", "merges.txt: line 4: expected two tokens with a space between"},
    {1, "a b\n", "ab\n", "merges.txt: line 3: expected two tokens with a space between"},
    {1, "a b\n", " ab\n", "merges.txt: line 3: expected two tokens with a space between"},
    {1, "a b\n", "ab \n", "merges.txt: line 3: expected two tokens with a space between"},
    {1, "a b\n", "a b c\n", "merges.txt: line 3: expected two tokens with a space between"},
    {1, "a b\n", "a  b\n", "merges.txt: line 3: expected two tokens with a space between"},
    {1, "a b\n", "a c\n", "merges.txt: line 3: the vocabulary has no token \"ac\""},
    {1, "a b\n", "abc b\n", "merges.txt: line 3: the vocabulary has no token \"abc\""},
    {1, "a b\n", "a \xff\n", "merges.txt: line 3: the vocabulary has no token"},
    {1, "a b\n", "c d\n", "merges.txt: line 3: the merge to \"cd\" is there twice"},
};

static void replace(char text[BPE_TEXT], const char *what, const char *with) {
    char *at = what ? strstr(text, what) : text;
    assert_non_null(at);
    const size_t length = what ? strlen(what) : strlen(text);
    memmove(at + strlen(with), at + length, strlen(at + length) + 1);
    memcpy(at, with, strlen(with));
}

TEST_CASE(damaged_files_are_refused_with_file_line_and_reason) {
    test_bpe *bpe = calloc(1, sizeof *bpe);
    char *texts[] = {calloc(1, BPE_TEXT), calloc(1, BPE_TEXT)};
    test_bpe_start(bpe);
    assert_true(test_bpe_merge(bpe, 255 - 'c', 255 - 'd'));
    assert_true(test_bpe_merge(bpe, 255 - 'a', 255 - 'b'));
    for (size_t i = 0; i < sizeof damages / sizeof damages[0]; i++) {
        const char *paths[] = {test_path_of("vocab.json"), test_path_of("merges.txt")};
        cgp_tokenizer *t = NULL;
        test_bpe_texts(bpe, texts[0], texts[1]);
        /* replaces the first match; each `what` occurs only once */
        replace(texts[damages[i].file], damages[i].what, damages[i].with);
        for (int k = 0; k < 2; k++)
            test_write_file(paths[k], texts[k], strlen(texts[k]));
        const cgp_status expected = damages[i].message ? CGP_EFORMAT : CGP_OK;
        if (expected != CGP_OK) print_message("damage %zu\n", i);
        assert_status(cgp_tokenizer_create(&t, paths[0], paths[1]), expected);
        if (damages[i].message) assert_message(damages[i].message);
        assert_true((t != NULL) == (expected == CGP_OK));
        cgp_tokenizer_destroy(t);
    }
    free(texts[0]);
    free(texts[1]);
    free(bpe);
}

/* Test a merges file with bytes that are not text, and with a very long line without a newline. */
TEST_CASE(merges_that_are_no_text_are_refused) {
    const char *path = test_path_of("merges.txt");
    static char line[5000];
    cgp_tokenizer *t = NULL;
    test_write_file(path, "#version: 0.2\na\0b\n", 18);
    assert_status(cgp_tokenizer_create(&t, VOCAB, path), CGP_EFORMAT);
    assert_message("merges.txt: line 2: expected two tokens, got a zero byte");
    memset(line, 'a', sizeof line);
    test_write_file(path, line, sizeof line);
    assert_status(cgp_tokenizer_create(&t, VOCAB, path), CGP_EFORMAT);
    assert_message("merges.txt: line 1: expected at most 4095 bytes, got more");
    assert_status(cgp_tokenizer_create(&t, VOCAB, "/nowhere/merges.txt"), CGP_EIO);
    assert_message("/nowhere/merges.txt: no such file");
    assert_status(cgp_tokenizer_create(&t, test_directory, MERGES), CGP_EIO);
    assert_message("is a directory, expected a vocabulary (vocab.json)");
    assert_null(t);
}

TEST_GROUP(.set_up = set_up, .tear_down = tear_down);
