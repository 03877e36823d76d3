/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz.h -- shared by all fuzz tests. With CGP_LIBFUZZER they are libFuzzer targets, and a violated
 * property is a crash. Otherwise they are test programs with their own mutations.
 *
 * A corpus is one file, tests/fuzz/corpus/NAME: each input is its length, 4 bytes little-endian,
 * and its bytes. libFuzzer needs a directory of files. Environment variables make a target write
 * that directory before it starts, or pack it into a corpus (tools/fuzz.sh). */
#ifndef CGP_TESTS_FUZZ_H
#define CGP_TESTS_FUZZ_H

#include "support.h"

#include <dirent.h>
#include <time.h>

#ifdef CGP_LIBFUZZER
#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition)) __builtin_trap();                                                        \
    } while (0)
#else
#define REQUIRE(condition) assert_true(condition)
#endif

/* Copy an input to a block of exactly its size, so that a sanitizer detects a read past the end.
 * Owned. */
static inline void *fuzz_exact(const void *bytes, size_t size) {
    void *copy = malloc(size ? size : 1);
    REQUIRE(copy);
    if (size > 0) memcpy(copy, bytes, size);
    return copy;
}

/* Replace `out` bytes at `at` by `count` others, if the result fits in `capacity`. */
static inline void fuzz_replace(void *bytes, size_t *size, size_t capacity, size_t at, size_t out,
                                const void *with, size_t count) {
    char *to = bytes;
    if (at + out > *size || *size - out + count > capacity) return;
    memmove(to + at + count, to + at + out, *size - at - out);
    memcpy(to + at, with, count);
    *size += count - out;
}

/* --- the corpus --- */

/* Read the next input of a corpus; return false at its end. */
static inline bool fuzz_next(FILE *corpus, void *bytes, size_t capacity, size_t *size) {
    uint8_t length[4];
    if (fread(length, 1, 4, corpus) != 4) return false;
    *size = length[0] | (size_t)length[1] << 8 | (size_t)length[2] << 16 | (size_t)length[3] << 24;
    return *size <= capacity && fread(bytes, 1, *size, corpus) == *size;
}

#ifdef CGP_LIBFUZZER

enum { FUZZ_INPUT = 1 << 16 };

/* Unpack the corpus file FUZZ_CORPUS into the directory FUZZ_INTO. */
static inline void fuzz_unpack(const char *corpus, const char *into) {
    static uint8_t bytes[FUZZ_INPUT];
    size_t size = 0;
    FILE *in = fopen(corpus, "rb");
    for (int i = 0; in && fuzz_next(in, bytes, sizeof bytes, &size); i++) {
        char path[600];
        snprintf(path, sizeof path, "%s/seed-%04d", into, i);
        FILE *out = fopen(path, "wb");
        REQUIRE(out && fwrite(bytes, 1, size, out) == size && fclose(out) == 0);
    }
    if (in) fclose(in);
}

/* Pack the inputs in the directory FUZZ_FROM into the file FUZZ_PACK. */
static inline void fuzz_pack(const char *corpus, const char *from) {
    static uint8_t bytes[FUZZ_INPUT];
    struct dirent **items = NULL;
    const int count = scandir(from, &items, NULL, alphasort);
    FILE *out = fopen(corpus, "wb");
    REQUIRE(out && count >= 0);
    for (int i = 0; i < count; i++) {
        char path[600];
        snprintf(path, sizeof path, "%s/%s", from, items[i]->d_name);
        FILE *in = items[i]->d_name[0] == '.' ? NULL : fopen(path, "rb");
        const size_t size = in ? fread(bytes, 1, sizeof bytes, in) : 0;
        const uint8_t length[4] = {(uint8_t)size, (uint8_t)(size >> 8), (uint8_t)(size >> 16), 0};
        if (size > 0)
            REQUIRE(fwrite(length, 1, 4, out) == 4 && fwrite(bytes, 1, size, out) == size);
        if (in) fclose(in);
        free(items[i]);
    }
    free(items);
    REQUIRE(fclose(out) == 0);
}

int LLVMFuzzerInitialize(int *argc, char ***argv);

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    cgp_log_set_level(CGP_LOG_ERROR);
    if (getenv("FUZZ_PACK")) {
        fuzz_pack(getenv("FUZZ_PACK"), getenv("FUZZ_FROM"));
        exit(0);
    }
    if (getenv("FUZZ_INTO")) fuzz_unpack(getenv("FUZZ_CORPUS"), getenv("FUZZ_INTO"));
    return 0;
}

#else

/* --- mutations --- */

/* Draw a number in 0 .. bound - 1; 0 if bound is 0. */
static inline size_t fuzz_below(uint64_t *random, size_t bound) {
    return bound ? (size_t)(test_random(random) % bound) : 0;
}

/* Call `take` with each input of a corpus; returns how many it accepted. */
static inline int fuzz_corpus(const char *name, size_t capacity,
                              bool (*take)(const uint8_t *, size_t)) {
    char path[600];
    int accepted = 0;
    size_t size = 0;
    uint8_t *bytes = malloc(capacity);
    snprintf(path, sizeof path, "%s/../fuzz/corpus/%s", TEST_DATA, name);
    FILE *corpus = fopen(path, "rb");
    assert_non_null(corpus);
    while (fuzz_next(corpus, bytes, capacity, &size))
        accepted += take(bytes, size);
    assert_true(feof(corpus)); /* all inputs fit into the buffer */
    fclose(corpus);
    free(bytes);
    return accepted;
}

/* A reader that is fuzzed from its corpus, with words to insert in its inputs. */
typedef struct fuzz_reader {
    const char *name;
    bool (*take)(const uint8_t *bytes, size_t size);
    const char *const *words;
    size_t n_words;
    int mutations;
} fuzz_reader;

enum { FUZZ_CAPACITY = 1 << 14, FUZZ_SEEDS = 2048, FUZZ_SECONDS = 5 };

typedef struct fuzz_seeds {
    uint8_t *bytes[FUZZ_SEEDS];
    size_t size[FUZZ_SEEDS], count;
} fuzz_seeds;

static fuzz_seeds fuzz_all;

static inline bool fuzz_keep(const uint8_t *bytes, size_t size) {
    assert_true(fuzz_all.count < FUZZ_SEEDS);
    fuzz_all.bytes[fuzz_all.count] = fuzz_exact(bytes, size);
    fuzz_all.size[fuzz_all.count++] = size;
    return true;
}

static inline void fuzz_mutate(const fuzz_reader *r, uint8_t *bytes, size_t *size,
                               uint64_t *random) {
    const char *word = r->words[fuzz_below(random, r->n_words)];
    const size_t at = fuzz_below(random, *size + 1), other = fuzz_below(random, fuzz_all.count);
    const size_t from = fuzz_below(random, fuzz_all.size[other]);
    size_t digit = at;
    switch (fuzz_below(random, 8)) {
    case 0: /* flip a bit */
        if (at < *size) bytes[at] ^= (uint8_t)(1u << fuzz_below(random, 8));
        break;
    case 1: /* cut off the end */
        *size = at;
        break;
    case 2: /* copy a part of another input */
        fuzz_replace(bytes, size, FUZZ_CAPACITY, at, fuzz_below(random, 9),
                     fuzz_all.bytes[other] + from,
                     fuzz_below(random, fuzz_all.size[other] - from) + 1);
        break;
    case 3: /* replace a digit */
    case 4: /* replace a whole number by a word */
        while (digit < *size && (bytes[digit] < '0' || bytes[digit] > '9'))
            digit++;
        if (digit == *size) break;
        if (fuzz_below(random, 2)) {
            bytes[digit] = (uint8_t)('0' + fuzz_below(random, 10));
            break;
        }
        fuzz_replace(bytes, size, FUZZ_CAPACITY, digit, 1, word, strlen(word));
        break;
    default:
        fuzz_replace(bytes, size, FUZZ_CAPACITY, at,
                     fuzz_below(random, 2) ? 0 : fuzz_below(random, 12), word, strlen(word));
    }
}

/* Run mutated inputs for at most 5 seconds (sanitizers are slow); both outcomes must occur. */
static inline void fuzz_run(const fuzz_reader *r) {
    static uint8_t bytes[FUZZ_CAPACITY];
    uint64_t random = test_seed();
    const time_t start = time(NULL);
    int accepted = 0, tried = 0;
    fuzz_all.count = 0;
    (void)fuzz_corpus(r->name, FUZZ_CAPACITY, fuzz_keep);
    for (; tried < r->mutations && time(NULL) - start < FUZZ_SECONDS; tried++) {
        const size_t seed = fuzz_below(&random, fuzz_all.count);
        size_t size = fuzz_all.size[seed];
        memcpy(bytes, fuzz_all.bytes[seed], size);
        for (int times = test_between(&random, 1, 3); times > 0; times--)
            fuzz_mutate(r, bytes, &size, &random);
        accepted += r->take(bytes, size);
    }
    print_message("%s: %d of %d mutated inputs were accepted\n", r->name, accepted, tried);
    assert_in_range(accepted, tried / 200, tried - tried / 200);
    for (size_t i = 0; i < fuzz_all.count; i++)
        free(fuzz_all.bytes[i]);
}
#endif

#endif
