/* SPDX-License-Identifier: Apache-2.0 */
/* test_base.c -- tests messages, growing arrays, nearest names, Philox and SHA-256. */
#include "support.h"

#include <limits.h>
#include <pthread.h>

#include "base/base.h"

/* Names of parameters differ in only a few letters. Each name that was added is found in few steps,
 * and no other name is found. */
TEST_CASE(an_index_finds_each_of_many_entries) {
    enum { ENTRIES = 100000 };
    cgp__index index = {0};
    char name[64];
    int64_t steps = 0;
    for (int i = 0; i < 2 * ENTRIES; i++) {
        snprintf(name, sizeof name, "transformer.h.%d.mlp.c_proj.weight", i);
        const uint64_t hash = cgp__hash(name, strlen(name));
        uint32_t tried = 0;
        assert_int_equal(cgp__index_next(&index, hash, &tried), -1);
        steps += tried;
        if (i % 2 == 0) assert_true(cgp__index_add(&index, hash, i));
    }
    for (int i = 0; i < 2 * ENTRIES; i++) {
        snprintf(name, sizeof name, "transformer.h.%d.mlp.c_proj.weight", i);
        const uint64_t hash = cgp__hash(name, strlen(name));
        uint32_t tried = 0;
        const int found = cgp__index_next(&index, hash, &tried);
        assert_int_equal(found, i % 2 == 0 ? i : -1);
        steps += tried;
        if (found >= 0) assert_int_equal(cgp__index_next(&index, hash, &tried), -1);
    }
    assert_in_range(steps, 4 * ENTRIES, 4 * 3 * ENTRIES);
    cgp__index_release(&index);
}

/* The index returns all entries whose hash is equal; the caller compares their names. */
TEST_CASE(entries_of_one_hash_are_all_found) {
    cgp__index index = {0};
    bool seen[20] = {false};
    uint32_t tried = 0;
    int found;
    assert_int_equal(cgp__index_next(&index, 7, &tried), -1);
    for (int i = 0; i < 20; i++)
        assert_true(cgp__index_add(&index, 7, i) && cgp__index_add(&index, 8 + (uint64_t)i, i));
    tried = 0;
    while ((found = cgp__index_next(&index, 7, &tried)) >= 0) {
        assert_false(seen[found]);
        seen[found] = true;
    }
    for (int i = 0; i < 20; i++)
        assert_true(seen[i]);
    cgp__index_release(&index);
}

TEST_CASE(every_status_has_its_own_name) {
    const char *names[] = {"CGP_OK",    "CGP_EINVAL",  "CGP_ENOMEM", "CGP_ELIMIT",
                           "CGP_EIO",   "CGP_EFORMAT", "CGP_ESTATE", "CGP_EDEVICE",
                           "CGP_EPEER", "CGP_EDIFFERS"};
    for (int i = 0; i < 10; i++)
        assert_string_equal(cgp_status_name((cgp_status)i), names[i]);
    assert_string_equal(cgp_status_name((cgp_status)10), "unknown status");
    assert_string_equal(cgp_status_name((cgp_status)-1), "unknown status");
}

TEST_CASE(a_failure_returns_its_status_and_leaves_its_message) {
    assert_int_equal(cgp_fail(CGP_EIO, "%s: no such file", "corpus.txt"), CGP_EIO);
    assert_string_equal(cgp_message(), "corpus.txt: no such file");
    assert_int_equal(cgp__no_memory("plan", 64), CGP_ENOMEM);
    assert_string_equal(cgp_message(), "plan: out of memory (64 bytes)");
}

TEST_CASE(a_message_can_be_made_of_the_message_before) {
    (void)cgp_fail(CGP_EINVAL, "balance: sums to 5, got 6");
    assert_int_equal(cgp_fail(CGP_EDEVICE, "stage 2: %s", cgp_message()), CGP_EDEVICE);
    assert_string_equal(cgp_message(), "stage 2: balance: sums to 5, got 6");
}

TEST_CASE(a_message_that_is_too_long_is_cut) {
    char text[5000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    for (int i = 0; i < 3; i++)
        (void)cgp_fail(CGP_EINVAL, "%s%s", text, cgp_message());
    assert_in_range(strlen(cgp_message()), 500, 4999);
}

static void *fail_elsewhere(void *seen) {
    *(bool *)seen = cgp_message()[0] != '\0'; /* a new thread starts with no message */
    (void)cgp_fail(CGP_EIO, "theirs");
    return strcmp(cgp_message(), "theirs") == 0 ? NULL : seen;
}

TEST_CASE(each_thread_has_its_own_message) {
    bool seen = true;
    void *failed = NULL;
    pthread_t thread;
    (void)cgp_fail(CGP_EINVAL, "ours");
    assert_int_equal(pthread_create(&thread, NULL, fail_elsewhere, &seen), 0);
    assert_int_equal(pthread_join(thread, &failed), 0);
    assert_false(seen);
    assert_null(failed);
    assert_string_equal(cgp_message(), "ours");
}

static cgp_status pass_on(cgp_status status, bool *went_on) {
    CGP_TRY(status);
    *went_on = true;
    return CGP_OK;
}

TEST_CASE(try_passes_a_failure_on_and_nothing_else) {
    bool went_on = false;
    assert_int_equal(pass_on(CGP_EFORMAT, &went_on), CGP_EFORMAT);
    assert_false(went_on);
    assert_int_equal(pass_on(CGP_OK, &went_on), CGP_OK);
    assert_true(went_on);
}

TEST_CASE(a_grown_array_keeps_its_elements_and_zeroes_the_rest) {
    int64_t *array = NULL;
    int capacity = 0;
    for (int need = 1; need <= 1000; need += 37) {
        const int before = capacity;
        assert_true(cgp__grow(&array, &capacity, need, sizeof *array));
        assert_true(capacity >= need);
        for (int i = 0; i < before; i++)
            assert_int_equal(array[i], i + 1);
        for (int i = before; i < capacity; i++) {
            assert_int_equal(array[i], 0);
            array[i] = i + 1;
        }
    }
    const int64_t *same = array;
    assert_true(cgp__grow(&array, &capacity, capacity, sizeof *array)); /* no growth needed */
    assert_ptr_equal(array, same);
    free(array);
}

/* If an array has more than 2^30 elements, doubling its capacity would overflow int. The test
 * allocates 2 GiB without touching the memory. The allocation may fail. */
TEST_CASE(arrays_of_more_than_2_30_elements_grow_or_are_refused) {
    char *array = NULL;
    int capacity = 0;
    const bool grown = cgp__grow(&array, &capacity, (1 << 30) + 1, 1);
    assert_int_equal(capacity, grown ? INT_MAX - 1 : 0);
    assert_int_equal(array != NULL, grown);
    assert_false(cgp__grow(&array, &capacity, INT_MAX, 1)); /* otherwise n + 1 could overflow */
    assert_int_equal(capacity, grown ? INT_MAX - 1 : 0);
    free(array);
}

TEST_CASE(allocated_memory_is_zero_and_never_null_for_nothing) {
    unsigned char *bytes = cgp__calloc(1000, 1);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(bytes[i], 0);
    free(bytes);
    void *nothing = cgp__calloc(0, 8);
    assert_non_null(nothing);
    free(nothing);
}

TEST_CASE(texts_are_copied_and_formatted) {
    char *copy = cgp__strdup("wte.weight"), *made = cgp__format("h.%d.%s", 11, copy);
    assert_string_equal(made, "h.11.wte.weight");
    copy[0] = 'x';
    assert_string_equal(made, "h.11.wte.weight");
    free(copy);
    free(made);
}

TEST_CASE(sizes_align_upward_to_64) {
    assert_int_equal(cgp__align_up(0), 0);
    assert_int_equal(cgp__align_up(1), 64);
    assert_int_equal(cgp__align_up(64), 64);
    assert_int_equal(cgp__align_up(65), 128);
    assert_int_equal(cgp__align_up(((int64_t)1 << 40) + 1), ((int64_t)1 << 40) + 64);
}

TEST_CASE(the_nearest_name_is_near) {
    const char *names[] = {"--schedule", "--stages", "--steps", "--chunks", "--balance"};
    assert_string_equal(cgp_nearest("--shedule", names, 5), "--schedule");
    assert_string_equal(cgp_nearest("--step", names, 5), "--steps");
    assert_string_equal(cgp_nearest("--balanced", names, 5), "--balance");
    assert_string_equal(cgp_nearest("--chunks", names, 5), "--chunks");
    assert_string_equal(cgp_nearest("--STAGES", names, 5), "--stages");
    assert_string_equal(cgp_nearest("--satges", names, 5), "--stages");
    assert_null(cgp_nearest("--completely-different", names, 5));
    assert_null(cgp_nearest("zzzzzz", names, 5));
    assert_null(cgp_nearest("--steps", names, 0));
    char longer[200] = {0};
    memset(longer, 'a', sizeof longer - 1);
    assert_null(cgp_nearest(longer, names, 5));
}

/* "Near" is relative to the length: at most a third of the longer word may differ. */
TEST_CASE(another_word_is_not_near) {
    const char *commands[] = {"train", "sample", "plan", "check", "bench", "L", "gpt2"};
    assert_null(cgp_nearest("version", commands, 7));
    assert_null(cgp_nearest("resume", commands, 7));
    assert_null(cgp_nearest("trace", commands, 7));
    assert_null(cgp_nearest("play", commands + 3, 4));
    assert_null(cgp_nearest("x", commands, 7));
    assert_null(cgp_nearest("", commands, 7));
    assert_string_equal(cgp_nearest("l", commands, 7), "L");
    assert_string_equal(cgp_nearest("gpt", commands, 7), "gpt2");
    assert_string_equal(cgp_nearest("trian", commands, 7), "train");
    assert_string_equal(cgp_nearest("smaple", commands, 7), "sample");
}

TEST_CASE(bytes_are_in_the_unit_that_fits) {
    static const struct {
        int64_t bytes;
        const char *text;
    } cases[] = {
        {0, "0 B"},
        {1, "1 B"},
        {1023, "1023 B"},
        {1024, "1.00 KiB"},
        {743872, "726.4 KiB"},
        {102394, "99.99 KiB"},
        {102395, "100.0 KiB"},
        {((int64_t)1 << 20) - 1, "1.00 MiB"},
        {(int64_t)1023 << 20, "1023.0 MiB"},
        {2727059456, "2.54 GiB"},
        {((int64_t)1 << 40) - 1, "1.00 TiB"},
        {(int64_t)3 << 40, "3.00 TiB"},
        {(int64_t)1 << 60, "1048576.0 TiB"},
    };
    char text[32], cut[4];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_string_equal(cgp_bytes_text(cases[i].bytes, text, sizeof text), cases[i].text);
    assert_string_equal(cgp_bytes_text(1024, cut, sizeof cut), "1.0");
    assert_null(cgp_bytes_text(1024, NULL, 0));
}

/* The expected numbers are the known answers of Random123 (kat_vectors). */
TEST_CASE(philox_gives_the_published_numbers) {
    const struct {
        uint32_t counter[4];
        cgp__rng_key key;
        uint32_t expected[4];
    } cases[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (int i = 0; i < 3; i++) {
        uint32_t out[4];
        cgp__philox(out, cases[i].counter, cases[i].key);
        assert_memory_equal(out, cases[i].expected, sizeof out);
    }
}

TEST_CASE(keys_differ_in_every_part) {
    const cgp__rng_key keys[] = {
        cgp__rng_derive(1, CGP__RNG_DATA, 2, 3),
        cgp__rng_derive(1 + ((uint64_t)1 << 32), CGP__RNG_DATA, 2, 3),
        cgp__rng_derive(2, CGP__RNG_DATA, 2, 3),
        cgp__rng_derive(1, CGP__RNG_DATA, 2 + ((uint64_t)1 << 32), 3),
        cgp__rng_derive(1, CGP__RNG_DATA, 3, 3),
        cgp__rng_derive(1, CGP__RNG_DATA, 2, 4),
        cgp__rng_derive(1, CGP__RNG_WEIGHTS, 2, 3),
        cgp__rng_derive(1, CGP__RNG_DROPOUT, 2, 3),
    };
    for (int i = 0; i < 8; i++) {
        for (int j = 0; j < i; j++)
            assert_true(keys[i].k0 != keys[j].k0 || keys[i].k1 != keys[j].k1);
    }
}

TEST_CASE(draws_stay_below_their_bound_and_reach_all_of_it) {
    const cgp__rng_key key = cgp__rng_derive(5, CGP__RNG_DATA, 0, 0);
    int counts[10] = {0};
    for (uint64_t i = 0; i < 10000; i++) {
        assert_int_equal(cgp__rng_below(key, i, 1), 0);
        assert_true(cgp__rng_below(key, i, UINT32_MAX) < UINT32_MAX);
        counts[cgp__rng_below(key, i, 10)]++;
    }
    for (int i = 0; i < 10; i++)
        assert_in_range(counts[i], 850, 1150); /* 1000 expected, deviation 30; the seed is fixed */
}

TEST_CASE(the_clock_does_not_go_back) {
    int64_t before = cgp__now_ns();
    for (int i = 0; i < 1000; i++) {
        const int64_t now = cgp__now_ns();
        assert_true(now >= before);
        before = now;
    }
}

static void assert_sha256(const char *piece, int times, const char *expected) {
    cgp__sha256 *hash = NULL;
    char hex[65];
    assert_ok(cgp__sha256_create(&hash));
    for (int i = 0; i < times; i++)
        assert_ok(cgp__sha256_add(hash, piece, strlen(piece)));
    assert_ok(cgp__sha256_finish(hash, hex));
    assert_string_equal(hex, expected);
    cgp__sha256_destroy(hash);
}

/* The expected digests are in FIPS 180-2, appendix B. The last input is one million letters 'a',
 * hashed in pieces. */
TEST_CASE(sha256_gives_the_published_digests) {
    assert_sha256("", 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    assert_sha256("abc", 1, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 1,
                  "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    assert_sha256("aaaaaaaaaa", 100000,
                  "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    cgp__sha256_destroy(NULL);
}

/* The cases are escape sequences, line ends, C1 controls, and bytes that are not UTF-8. */
TEST_CASE(messages_have_no_control_characters) {
    static const char *const cases[][2] = {
        {"plain", "plain"},
        {"a\033[2Jb\n\r\t\177", "a\\x1b[2Jb\\x0a\\x0d\\x09\\x7f"},
        {"caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"},
        {"\xc2\x9b"
         "31m",
         "\\xc2\\x9b31m"},
        {"caf\xe9", "caf\\xe9"},
        {"\xc0\xaf\xed\xa0\x80\xf4\x90\x80\x80", "\\xc0\\xaf\\xed\\xa0\\x80\\xf4\\x90\\x80\\x80"},
        {"cut \xe2\x82", "cut \\xe2\\x82"},
        {"\\x1b stays", "\\x1b stays"}};
    char shown[64];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        (void)cgp_fail(CGP_EINVAL, "%s", cases[i][0]);
        assert_string_equal(cgp_message(), cases[i][1]);
        (void)cgp_fail(CGP_EINVAL, "%s", cgp_message()); /* escaping twice changes nothing */
        assert_string_equal(cgp_message(), cases[i][1]);
    }
    assert_string_equal(cgp_escape("ab\033c", shown, 6), "ab"); /* never cuts an escape */
    assert_string_equal(cgp_escape("ab\033c", shown, 7), "ab\\x1b");
    assert_string_equal(cgp_escape("\xe2\x82\xac", shown, 3), "");
    shown[0] = 'x';
    (void)cgp_escape("ab", shown, 0);
    assert_int_equal(shown[0], 'x');
}
