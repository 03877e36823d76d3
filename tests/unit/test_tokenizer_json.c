/* SPDX-License-Identifier: Apache-2.0 */
/* test_tokenizer_json.c -- tokenizer.json gives the same tokens and texts as Hugging Face's
 * tokenizers, for 2,000 hard strings (made by tools/reference_tokens.py). The test files contain
 * the parts that occur in files of GPT-2, Llama 3 and Qwen2, and added tokens of all kinds. Invalid
 * files are refused. */
#include "directory.h"

#include <jansson.h>

#include <cgpipe/tokenizer.h>

#define FILES TEST_DATA "/tokenizer_json/"

enum { GPT2, LLAMA3, QWEN2, ADDED, N_FILES, N_STRINGS = 2000 };

static const char *const names[] = {"gpt2", "llama3", "qwen2", "added"};
static cgp_tokenizer *tokenizers[N_FILES];
static json_t *reference; /* strings.json */
static json_t *strings;   /* [[text, ids, ..] ..] */

static const char *file_of(int k) {
    static char path[256];
    snprintf(path, sizeof path, "%s%s.json", FILES, names[k]);
    return path;
}

static int set_up(void **state) {
    json_error_t error;
    for (int k = 0; k < N_FILES; k++)
        assert_ok(cgp_tokenizer_open(&tokenizers[k], file_of(k)));
    reference = json_load_file(FILES "strings.json", JSON_ALLOW_NUL, &error);
    strings = json_object_get(reference, "strings");
    assert_int_equal(json_array_size(strings), N_STRINGS);
    return test_make_directory(state);
}

static int tear_down(void **state) {
    json_decref(reference);
    for (int k = 0; k < N_FILES; k++)
        cgp_tokenizer_destroy(tokenizers[k]);
    return test_remove_directory(state);
}

/* --- texts and ids --- */

static const char *text_of(const json_t *row, size_t i, size_t *size) {
    const json_t *text = json_array_get(row, i);
    assert_true(json_is_string(text));
    *size = json_string_length(text);
    return json_string_value(text);
}

static int32_t digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c == '+' || c == '/') return c == '+' ? 10 : 11;
    return c < 'a' ? c - 'A' + 12 : c - 'a' + 38;
}

/* Read ids of two digits each. */
static void take_ids(const char *digits, cgp_token_list *list) {
    const int64_t n = (int64_t)strlen(digits) / 2;
    list->count = 0;
    if (n > list->capacity) {
        list->ids = realloc(list->ids, (size_t)n * sizeof *list->ids);
        list->capacity = n;
    }
    for (int64_t i = 0; i < n; i++)
        list->ids[list->count++] = digit(digits[2 * i]) * 64 + digit(digits[2 * i + 1]);
}

static bool same_tokens(const cgp_token_list *a, const cgp_token_list *b) {
    return a->count == b->count &&
           (a->count == 0 || memcmp(a->ids, b->ids, (size_t)a->count * sizeof *a->ids) == 0);
}

static void assert_same(const cgp_token_list *got, const cgp_token_list *expected,
                        const char *about, int k, const char *text) {
    if (same_tokens(got, expected)) return;
    print_error("%s: %s.json: \"%.200s\"\n", about, names[k], text);
    for (int64_t i = 0; i < got->count || i < expected->count; i++)
        print_error("token %d: expected %d, got %d\n", (int)i,
                    i < expected->count ? expected->ids[i] : -1, i < got->count ? got->ids[i] : -1);
    fail();
}

static void encode(cgp_tokenizer *t, const void *bytes, size_t size, cgp_token_list *list) {
    list->count = 0;
    assert_ok(cgp_tokenizer_encode(t, bytes, (int64_t)size, list));
}

/* Return true if the text equals the bytes with U+FFFD in place of each ill-formed piece. An
 * ill-formed piece is the longest prefix of a character, or a single byte. */
static bool reads_as(const char *bytes, int64_t count, const char *text, size_t size) {
    const uint8_t *b = (const uint8_t *)bytes;
    size_t used = 0;
    for (int64_t at = 0; at < count;) {
        const int first = b[at];
        int more = first < 0x80 ? 0 : first < 0xe0 ? 1 : first < 0xf0 ? 2 : 3, there = 0;
        bool good = first < 0x80 || (first >= 0xc2 && first <= 0xf4);
        for (; good && there < more && at + 1 + there < count; there++) {
            const int c = b[at + 1 + there];
            const int low = there > 0 ? 0x80 : first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
            const int high = there > 0 ? 0xbf : first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
            if (c < low || c > high) break;
        }
        good = good && there == more;
        const char *read = good ? bytes + at : "\xef\xbf\xbd";
        const size_t length = good ? (size_t)more + 1 : 3;
        if (used + length > size || memcmp(text + used, read, length) != 0) return false;
        used += length;
        at += 1 + there;
    }
    return used == size;
}

static void assert_decoded(int k, const cgp_token_list *list, const char *text, size_t size) {
    char *back = NULL;
    int64_t count = 0;
    assert_ok(cgp_tokenizer_decode(tokenizers[k], list->ids, list->count, &back, &count));
    if (!reads_as(back, count, text, size)) {
        print_error("%s.json: expected \"%.200s\", got \"%.200s\"\n", names[k], text, back);
        fail();
    }
    free(back);
}

/* --- the reference --- */

TEST_CASE(tokens_are_those_of_tokenizers) {
    cgp_token_list got = {0}, expected = {0};
    for (size_t i = 0; i < N_STRINGS; i++) {
        size_t size = 0, digits = 0;
        const json_t *row = json_array_get(strings, i);
        const char *text = text_of(row, 0, &size);
        for (int k = 0; k < N_FILES; k++) {
            take_ids(text_of(row, (size_t)k + 1, &digits), &expected);
            encode(tokenizers[k], text, size, &got);
            assert_same(&got, &expected, "string", k, text);
        }
    }
    free(got.ids);
    free(expected.ids);
}

TEST_CASE(decoded_texts_are_those_of_tokenizers) {
    static bool is_other[N_FILES][N_STRINGS];
    cgp_token_list list = {0};
    const json_t *others = json_object_get(reference, "decoded");
    size_t size = 0, digits = 0;
    for (size_t i = 0; i < json_array_size(others); i++) {
        const json_t *other = json_array_get(others, i);
        const int k = (int)json_integer_value(json_array_get(other, 0));
        const int64_t of = json_integer_value(json_array_get(other, 1));
        const char *text = text_of(other, 2, &size);
        take_ids(text_of(json_array_get(strings, (size_t)of), (size_t)k + 1, &digits), &list);
        assert_decoded(k, &list, text, size);
        is_other[k][of] = true;
    }
    for (size_t i = 0; i < N_STRINGS; i++) {
        const json_t *row = json_array_get(strings, i);
        const char *text = text_of(row, 0, &size);
        for (int k = 0; k < N_FILES; k++) {
            if (is_other[k][i]) continue;
            take_ids(text_of(row, (size_t)k + 1, &digits), &list);
            assert_decoded(k, &list, text, size);
        }
    }
    free(list.ids);
}

TEST_CASE(random_ids_are_decoded_as_by_tokenizers) {
    cgp_token_list list = {0};
    const json_t *rows = json_object_get(reference, "tokens");
    assert_int_equal(json_array_size(rows), 60 * N_FILES);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        size_t size = 0, digits = 0;
        take_ids(text_of(row, 1, &digits), &list);
        const char *text = text_of(row, 2, &size);
        assert_decoded((int)json_integer_value(json_array_get(row, 0)), &list, text, size);
    }
    free(list.ids);
}

/* --- tokens by name, templates --- */

static void assert_template(int k, const char *const *prefix, const char *const *suffix) {
    const char *const *sides[] = {prefix, suffix};
    for (int s = 0; s < 2; s++) {
        int64_t count = -1, n = 0;
        const int32_t *ids = s ? cgp_tokenizer_suffix(tokenizers[k], &count)
                               : cgp_tokenizer_prefix(tokenizers[k], &count);
        for (; sides[s][n]; n++) {
            assert_true(n < count);
            assert_int_equal(ids[n], cgp_tokenizer_token_id(tokenizers[k], sides[s][n]));
        }
        assert_int_equal(count, n);
    }
}

TEST_CASE(templates_have_their_tokens) {
    static const char *const none[] = {NULL}, *const begin[] = {"<|begin_of_text|>", NULL};
    static const char *const start[] = {"<s>", NULL}, *const ends[] = {"</s>", "</s>", NULL};
    assert_template(GPT2, none, none);
    assert_template(LLAMA3, begin, none);
    assert_template(QWEN2, none, none);
    assert_template(ADDED, start, ends);
}

TEST_CASE(tokens_are_found_by_name) {
    static const struct {
        int file;
        const char *text;
        int32_t id; /* -1: no such token; -2: any id */
    } cases[] = {
        {GPT2, "<|endoftext|>", 856},
        {LLAMA3, "<|eot_id|>", 1161},
        {LLAMA3, "<|endoftext|>", -1},
        {QWEN2, "<|im_end|>", 1158},
        {QWEN2, "<tool_call>", 1159},
        {ADDED, "  ", -2},
        {ADDED, "\xc3\xa9", -2},
        {GPT2, " the", -2},
        {GPT2, "no token of this text", -1},
        {GPT2, "", -1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const int32_t id = cgp_tokenizer_token_id(tokenizers[cases[i].file], cases[i].text);
        if (cases[i].id == -2)
            assert_in_range(id, 0, cgp_tokenizer_vocab_size(tokenizers[cases[i].file]) - 1);
        else
            assert_int_equal(id, cases[i].id);
    }
    assert_int_equal(cgp_tokenizer_end_of_text(tokenizers[GPT2]), 856);
    assert_int_equal(cgp_tokenizer_end_of_text(tokenizers[LLAMA3]), 1157);
    assert_int_equal(cgp_tokenizer_end_of_text(tokenizers[QWEN2]), 1156);
    assert_int_equal(cgp_tokenizer_end_of_text(tokenizers[ADDED]), -1);
    assert_int_equal(cgp_tokenizer_vocab_size(tokenizers[LLAMA3]), 1162);
}

/* --- bytes, cuts, long texts --- */

/* Draw pieces of the strings, with random bytes between them. */
static size_t draw_bytes(uint64_t *random, char *bytes, size_t capacity, bool broken) {
    size_t size = 0;
    while (size < capacity && test_between(random, 0, 12) > 0) {
        size_t count = 0;
        const json_t *row = json_array_get(strings, (size_t)test_between(random, 0, 1999));
        const char *text = text_of(row, 0, &count);
        count = count > 60 ? 0 : count;
        if (size + count > capacity) break;
        memcpy(bytes + size, text, count);
        size += count;
        for (int n = broken ? test_between(random, 0, 2) : 0; n > 0 && size < capacity; n--)
            bytes[size++] = (char)test_random(random);
        if (size < capacity && test_between(random, 0, 1))
            bytes[size++] = " \nx"[test_between(random, 0, 2)];
    }
    return size;
}

/* If a byte neither begins nor continues a character, it separates the texts a and b around it:
 * tokens(a + byte + b) is tokens(a), token(byte), tokens(b). */
TEST_CASE(a_byte_that_is_no_text_ends_the_text_before_it) {
    uint64_t random = test_seed();
    static char bytes[401];
    cgp_token_list whole = {0}, parts = {0};
    for (int i = 0; i < test_scaled(2000); i++) {
        cgp_tokenizer *t = tokenizers[i % N_FILES];
        const size_t a = draw_bytes(&random, bytes, 200, true);
        bytes[a] = (char)test_between(&random, 0xf5, 0xff);
        const size_t b = draw_bytes(&random, bytes + a + 1, 200, true);
        encode(t, bytes, a + 1 + b, &whole);
        encode(t, bytes, a, &parts);
        assert_ok(cgp_tokenizer_encode(t, bytes + a, 1, &parts));
        assert_ok(cgp_tokenizer_encode(t, bytes + a + 1, (int64_t)b, &parts));
        assert_same(&whole, &parts, "bytes", i % N_FILES, bytes);
    }
    free(whole.ids);
    free(parts.ids);
}

TEST_CASE(texts_may_be_split_at_the_split_point) {
    uint64_t random = test_seed();
    static char bytes[400];
    cgp_token_list whole = {0}, parts = {0};
    int cuts[N_FILES] = {0};
    const int times = test_scaled(8000);
    for (int i = 0; i < times; i++) {
        const int k = i % N_FILES;
        const size_t size = draw_bytes(&random, bytes, sizeof bytes, i % 3 == 0);
        const int64_t first = test_between(&random, 0, (int)size); /* length of the prefix */
        const int64_t at = cgp_tokenizer_split_point(tokenizers[k], bytes, first);
        assert_in_range(at, 0, first);
        cuts[k] += at > 0;
        encode(tokenizers[k], bytes, size, &whole);
        encode(tokenizers[k], bytes, (size_t)at, &parts);
        assert_ok(cgp_tokenizer_encode(tokenizers[k], bytes + at, (int64_t)size - at, &parts));
        assert_same(&whole, &parts, "split", k, bytes);
    }
    for (int k = 0; k < N_FILES; k++)
        assert_true(cuts[k] > times / 50);
    assert_int_equal(cgp_tokenizer_split_point(tokenizers[GPT2], "a!\nb", 4), 2);
    assert_int_equal(cgp_tokenizer_split_point(tokenizers[LLAMA3], "a!\nb", 4), 0);
    assert_int_equal(cgp_tokenizer_split_point(tokenizers[LLAMA3], "ab\nb", 4), 2);
    assert_int_equal(cgp_tokenizer_split_point(tokenizers[LLAMA3], "ab b", 4), 2);
    assert_int_equal(cgp_tokenizer_split_point(tokenizers[ADDED], "a\nb", 3), 0);
    free(whole.ids);
    free(parts.ids);
}

/* Encoding half a million equal characters does not take quadratic time, for any character.
 * Quadratic time would be hours. */
TEST_CASE(long_runs_take_no_longer_a_byte) {
    enum { LONG = 1 << 19 };
    static const char *const kinds[] = {
        "a",        "7", "=",   " ",   "\n",   "\xcc\x81", "\r\n", "\xcc\x81\xcc\xa3",
        "\xc3\xa9", "<", "  x", " \n", "<s> ", "e\xcc\x81"};
    char *text = malloc(LONG + 1), *back = NULL;
    cgp_token_list list = {0};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        const size_t length = strlen(kinds[i]), size = LONG / length * length;
        int64_t count = 0;
        for (size_t at = 0; at < size; at += length)
            memcpy(text + at, kinds[i], length);
        text[size] = 'x';
        for (int k = 0; k < N_FILES; k++) {
            encode(tokenizers[k], text, size + 1, &list);
            if (k > LLAMA3) continue;
            assert_ok(cgp_tokenizer_decode(tokenizers[k], list.ids, list.count, &back, &count));
            assert_int_equal(count, size + 1);
            assert_memory_equal(back, text, size + 1);
            free(back);
        }
    }
    free(list.ids);
    free(text);
}

/* --- files --- */

/* Load the reference's file number `k`. The caller owns the result. */
static json_t *load(int k) {
    json_error_t error;
    json_t *root = json_load_file(file_of(k), 0, &error);
    assert_non_null(root);
    return root;
}

/* Write a JSON text as tokenizer.json and open it. `out` gets a tokenizer only if the status is
 * CGP_OK. */
static cgp_status open_json(const json_t *root, cgp_tokenizer **out) {
    const char *path = test_path_of("tokenizer.json");
    char *text = json_dumps(root, JSON_COMPACT);
    test_write_file(path, text, strlen(text));
    free(text);
    *out = NULL;
    const cgp_status status = cgp_tokenizer_open(out, path);
    assert_true((*out != NULL) == (status == CGP_OK));
    return status;
}

/* Return the value at a path such as "model.merges.0". `parent` gets the JSON object or array that
 * contains the value, and `key` gets the value's key or index there. */
static json_t *find(json_t *root, const char *path, json_t **parent, char key[64]) {
    json_t *value = root;
    while (*path) {
        const size_t length = strcspn(path, ".");
        snprintf(key, 64, "%.*s", (int)length, path);
        *parent = value;
        value = json_is_array(value) ? json_array_get(value, (size_t)atoi(key))
                                     : json_object_get(value, key);
        path += length + (path[length] == '.');
    }
    return value;
}

/* Replace the value at a path by the JSON text `with`; if `with` is NULL, delete the value. */
static void edit(json_t *root, const char *path, const char *with) {
    char key[64];
    json_t *parent = NULL;
    json_error_t error;
    json_t *value = with ? json_loads(with, JSON_DECODE_ANY, &error) : NULL;
    assert_true(value || !with);
    (void)find(root, path, &parent, key);
    if (!with)
        assert_int_equal(json_object_del(parent, key), 0);
    else if (json_is_array(parent))
        assert_int_equal(json_array_set_new(parent, (size_t)atoi(key), value), 0);
    else
        assert_int_equal(json_object_set_new(parent, key, value), 0);
}

/* Files that differ only in their spelling give equal tokenizers. */
TEST_CASE(files_may_be_spelled_otherwise) {
    static const struct {
        int file;
        const char *path, *with;
    } cases[] = {
        {GPT2, "model.type", NULL},
        {GPT2, "model.dropout", "0.0"},
        {GPT2, "model.dropout", NULL},
        {GPT2, "model.unk_token", "\"\""},
        {GPT2, "model.continuing_subword_prefix", "\"\""},
        {GPT2, "model.end_of_word_suffix", "\"\""},
        {GPT2, "model.byte_fallback", NULL},
        {GPT2, "model.ignore_merges", NULL},
        {GPT2, "model.fuse_unk", NULL},
        {GPT2, "pre_tokenizer.use_regex", NULL},
        {GPT2, "post_processor", "null"},
        {GPT2, "truncation", NULL},
        {GPT2, "padding", NULL},
        {GPT2, "truncation", "{\"max_length\":4,\"strategy\":\"LongestFirst\",\"stride\":0}"},
        {GPT2, "padding", "{\"strategy\":\"BatchLongest\",\"pad_id\":0}"},
        {QWEN2, "post_processor", NULL},
        {LLAMA3, "normalizer", NULL},
        {GPT2, "pre_tokenizer",
         "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":"
         "\"'s|'t|'re|'ve|'m|'ll|'d| ?\\\\p{L}+| ?\\\\p{N}+| ?[^\\\\s\\\\p{L}\\\\p{N}]+|"
         "\\\\s+(?!\\\\S)|\\\\s+\"},\"behavior\":\"Isolated\",\"invert\":false},{\"type\":"
         "\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}]}"},
    };
    cgp_token_list got = {0}, expected = {0};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_t *root = load(cases[i].file);
        cgp_tokenizer *t = NULL;
        edit(root, cases[i].path, cases[i].with);
        assert_ok(open_json(root, &t));
        for (size_t k = 0; k < N_STRINGS; k += 20) {
            size_t size = 0;
            const char *text = text_of(json_array_get(strings, k), 0, &size);
            encode(t, text, size, &got);
            encode(tokenizers[cases[i].file], text, size, &expected);
            assert_same(&got, &expected, cases[i].path, cases[i].file, text);
        }
        cgp_tokenizer_destroy(t);
        json_decref(root);
    }
    free(got.ids);
    free(expected.ids);
}

/* Without a pattern, the whole text is one word. */
TEST_CASE(without_use_regex_a_text_is_one_word) {
    json_t *root = load(GPT2), *model = json_object_get(root, "model");
    json_t *vocab = json_object_get(model, "vocab");
    cgp_tokenizer *t = NULL;
    cgp_token_list list = {0};
    edit(root, "pre_tokenizer.use_regex", "false");
    json_object_set_new(vocab, "a\xc4\xa0", json_integer((json_int_t)json_object_size(vocab)));
    json_array_append_new(json_object_get(model, "merges"), json_string("a \xc4\xa0"));
    edit(root, "added_tokens", "[]");
    assert_ok(open_json(root, &t));
    encode(t, "qa q", 4, &list);
    assert_int_equal(list.count, 3);
    assert_int_equal(list.ids[1], cgp_tokenizer_token_id(t, "a "));
    assert_int_equal(cgp_tokenizer_split_point(t, "aaa a", 5), 0);
    cgp_tokenizer_destroy(t);
    json_decref(root);
    free(list.ids);
}

/* --- refusals --- */

typedef struct refusal {
    int file;
    const char *path, *with, *message;
} refusal;

#define SEQUENCE "pre_tokenizer.pretokenizers"
#define TEMPLATE "post_processor.processors.1"

static const refusal refusals[] = {
    {GPT2, "model", "null", "model: expected an object (is it a tokenizer.json?), got null"},
    {GPT2, "model.type", "\"Unigram\"",
     "model: expected BPE (SentencePiece's Unigram, WordPiece and WordLevel are not "
     "supported), "
     "got \"Unigram\""},
    {GPT2, "model.type", "\"WordPiece\"", "not supported), got \"WordPiece\""},
    {GPT2, "model.merges", NULL, "model.merges: expected a list, got nothing"},
    {GPT2, "model.byte_fallback", "true",
     "model.byte_fallback: expected false, got true (it is SentencePiece's, which"},
    {GPT2, "model.dropout", "0.1", "model.dropout: expected null, got 0.1 (it is for training"},
    {GPT2, "model.unk_token", "3", "model.unk_token: expected null or a token, got 3"},
    {GPT2, "model.end_of_word_suffix", "\"</w>\"",
     "model.end_of_word_suffix: expected null, got \"</w>\" (only byte-level BPE"},
    {GPT2, "model.continuing_subword_prefix", "\"##\"", "expected null, got \"##\""},
    {GPT2, "model.ignore_merges", "1", "model.ignore_merges: expected true or false, got 1"},
    {GPT2, "model.fuse_unk", "\"\"", "model.fuse_unk: expected true or false, got \"\""},
    {GPT2, "model.new_key", "1", "model: unknown key \"new_key\""},
    {GPT2, "model.vocab", "[]", "model.vocab: expected an object from tokens to ids, got a li"},
    {GPT2, "model.vocab", "{}", "\"<|endoftext|>\": expected the id 0, which tokenizers gives it"},
    {GPT2, "model.vocab.a", NULL, "\"<|endoftext|>\": expected the id 855, which tokenizers gives"},
    {GPT2, "model.vocab.a", "\"64\"", "token \"a\": expected an id, got no whole number"},
    {GPT2, "model.vocab.a", "856", "token \"a\": expected an id below 856, the number of tok"},
    {GPT2, "model.vocab.a", "65", "its id 65 is there twice"},
    {GPT2, "model.merges.0", "\"ab\"", "merge 1: expected two tokens with a space between"},
    {GPT2, "model.merges.0", "[\"a\"]", "model.merges[0]: expected \"left right\" or [\"left\","},
    {GPT2, "model.merges.0", "[\"a\",1]", "model.merges[0]: expected \"left right\" or"},
    {GPT2, "model.merges.0", "[\"a \",\"b\"]", "merge 1: expected two tokens with a space betw"},
    {GPT2, "model.merges.0", "1", "model.merges[0]: expected \"left right\" or"},
    {GPT2, "model.merges.0", "\"! !\"", "merge 1: the vocabulary has no token \"!!\""},
    {GPT2, "version", "\"2.0\"", "version: expected 1.0, got \"2.0\""},
    {GPT2, "truncation", "1", "truncation: expected null or an object, got "},
    {GPT2, "padding", "[]", "padding: expected null or an object, got "},
    {GPT2, "extra", "1", "the file: unknown key \"extra\""},
    {GPT2, "normalizer", "{\"type\":\"NFKC\"}",
     "normalizer: expected null or NFC (GPT-2, Llama 3, Qwen2), got \"NFKC\""},
    {GPT2, "normalizer", "7", "normalizer: expected null or NFC (GPT-2, Llama 3, Qwen2), got 7"},
    {QWEN2, "normalizer.form", "1", "normalizer: unknown key \"form\""},
    {GPT2, "pre_tokenizer", "{\"type\":\"Metaspace\"}",
     "pre_tokenizer: expected ByteLevel, alone "
     "or behind Split (SentencePiece's Metaspace and others are not supported), got "
     "\"Metaspace\""},
    {GPT2, "pre_tokenizer", "null", "not supported), got null"},
    {GPT2, "pre_tokenizer.add_prefix_space", NULL,
     "pre_tokenizer.add_prefix_space: expected true or false, got nothing"},
    {GPT2, "pre_tokenizer.use_regex", "0", "pre_tokenizer.use_regex: expected true or false, g"},
    {LLAMA3, SEQUENCE, "[]", SEQUENCE ": expected a list of Split and ByteLevel, got a list"},
    {LLAMA3, SEQUENCE ".0.type", "\"Digits\"",
     SEQUENCE "[0]: expected Split, by a regular expression, before ByteLevel, got \"Digits\""},
    {LLAMA3, SEQUENCE ".0.invert", "true", SEQUENCE "[0].invert: expected false, got true"},
    {LLAMA3, SEQUENCE ".0.behavior", "\"Removed\"",
     SEQUENCE "[0].behavior: expected Isolated, got \"Removed\""},
    {LLAMA3, SEQUENCE ".0.pattern", "{\"String\":\" \"}",
     SEQUENCE "[0].pattern: unknown key \"String\""},
    {LLAMA3, SEQUENCE ".0.pattern.Regex", "\"\\\\s+\"",
     "pattern.Regex: expected the pattern of GPT-2, Llama 3 or Qwen2, to the letter, got "
     "\"\\s+\""},
    {LLAMA3, SEQUENCE ".1.type", "\"Digits\"", SEQUENCE "[1]: expected ByteLevel behind Split"},
    {LLAMA3, SEQUENCE ".1.use_regex", "true",
     SEQUENCE "[1].use_regex: expected false behind Split, got true"},
    {LLAMA3, SEQUENCE ".1.add_prefix_space", "true",
     SEQUENCE "[1].add_prefix_space: expected false behind Split, got true"},
    {GPT2, "decoder", "null", "decoder: expected ByteLevel, got null"},
    {GPT2, "decoder.type", "\"WordPiece\"", "decoder: expected ByteLevel, got \"WordPiece\""},
    {GPT2, "added_tokens", "7", "added_tokens: expected a list, got 7"},
    {GPT2, "added_tokens.0", "7", "added_tokens[0]: expected an object, got 7"},
    {GPT2, "added_tokens.0.new", "7", "added_tokens[0]: unknown key \"new\""},
    {GPT2, "added_tokens.0.content", "\"\"",
     "added_tokens[0]: expected a content of 1 to 4096 bytes, got \"\""},
    {GPT2, "added_tokens.0.lstrip", NULL, "added_tokens[0].lstrip: expected true or false, got n"},
    {GPT2, "added_tokens.0.id", "857",
     "added token \"<|endoftext|>\": expected the id 856, which tokenizers gives it, got 857"},
    {GPT2, "added_tokens.0.content", "\"a\"",
     "added token \"a\": expected the id 64, which tokenizers gives it, got 856"},
    {LLAMA3, "added_tokens.1.content", "\"<|begin_of_text|>\"",
     "added tokens \"<|begin_of_text|>\" and \"<|begin_of_text|>\": expected different texts"},
    {ADDED, "added_tokens.7.content", "\"\\u00e9t\"",
     "expected different texts, by the normalizer"},
    {LLAMA3, TEMPLATE ".type", "\"BertProcessing\"",
     "post_processor.processors[1]: expected null, ByteLevel, TemplateProcessing or a Sequence "
     "of these, got \"BertProcessing\""},
    {LLAMA3, "post_processor.processors", "7", "post_processor.processors: expected a list, g"},
    {LLAMA3, TEMPLATE ".single", "[]",
     "post_processor.single: expected a list with the Sequence A, got a list"},
    {LLAMA3, TEMPLATE ".single.1.Sequence.id", "\"B\"",
     "post_processor.single[1]: expected a SpecialToken, or once the Sequence A, got an "
     "object"},
    {LLAMA3, TEMPLATE ".single.0", "{}", "post_processor.single[0]: expected a SpecialToken"},
    {LLAMA3, TEMPLATE ".special_tokens", "{}",
     "post_processor.special_tokens[\"<|begin_of_text|>\"].ids: expected a list of ids, got "
     "noth"},
    {LLAMA3, TEMPLATE ".special_tokens.<|begin_of_text|>.ids.0", "1162",
     ".ids: expected ids of the vocabulary, got 1162"},
    {LLAMA3, TEMPLATE ".special_tokens.<|begin_of_text|>.ids.0", "-1",
     ".ids: expected ids of the vocabulary, got -1"},
};

TEST_CASE(what_is_not_understood_is_refused_by_name) {
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        json_t *root = load(refusals[i].file);
        cgp_tokenizer *t = NULL;
        edit(root, refusals[i].path, refusals[i].with);
        const cgp_status status = open_json(root, &t);
        if (status != CGP_EFORMAT) print_error("%s\n", refusals[i].message);
        assert_status(status, CGP_EFORMAT);
        assert_message("tokenizer.json: ");
        assert_message(refusals[i].message);
        json_decref(root);
    }
}

/* A token with characters outside the byte-level alphabet must be an added token; otherwise the
 * file is refused. */
TEST_CASE(vocabularies_that_are_not_byte_level_are_refused) {
    json_t *root = load(GPT2);
    cgp_tokenizer *t = NULL;
    edit(root, "model.vocab.a b", "856");
    edit(root, "added_tokens.0.content", "\"a b\"");
    assert_ok(open_json(root, &t));
    assert_int_equal(cgp_tokenizer_token_id(t, "a b"), 856);
    cgp_tokenizer_destroy(t);
    edit(root, "added_tokens", "[]");
    assert_status(open_json(root, &t), CGP_EFORMAT);
    assert_message("token \"a b\": expected characters that stand for bytes, got another");
    edit(root, "model.vocab.a b", NULL);
    edit(root, "model.vocab.a", NULL);
    edit(root, "model.vocab.new", "64");
    assert_status(open_json(root, &t), CGP_EFORMAT);
    assert_message("expected a token for each byte, got none for 0x61");
    json_decref(root);
}

TEST_CASE(files_that_are_no_tokenizers_are_refused) {
    cgp_tokenizer *t = NULL;
    const char *path = test_path_of("tokenizer.json");
    assert_status(cgp_tokenizer_open(&t, "/nowhere/tokenizer.json"), CGP_EIO);
    assert_message("/nowhere/tokenizer.json: no such file");
    assert_status(cgp_tokenizer_open(&t, test_directory), CGP_EIO);
    assert_message("is a directory, expected a tokenizer (tokenizer.json)");
    test_write_file(path, "{\"model\": {\n\"a\": }", 18);
    assert_status(cgp_tokenizer_open(&t, path), CGP_EFORMAT);
    assert_message("tokenizer.json: line 2, byte ");
    test_write_file(path, "[]", 2);
    assert_status(cgp_tokenizer_open(&t, path), CGP_EFORMAT);
    assert_message("model: expected an object (is it a tokenizer.json?), got nothing");
    assert_status(cgp_tokenizer_open(&t, TEST_DATA "/tokenizer/vocab.json"), CGP_EFORMAT);
    assert_message("model: expected an object (is it a tokenizer.json?), got 374");
    assert_null(t);
}

TEST_GROUP(.set_up = set_up, .tear_down = tear_down);
