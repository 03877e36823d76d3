/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz.h -- fuzz tests for readers of files and texts. Each reader has properties that must hold
 * for any input. A reader is a fuzz_reader in readers/NAME.c. One driver, test_fuzz.c, turns a
 * reader into
 *
 *     a test             test_fuzz NAME, with mutations of its own inputs and those of the corpus
 *     a libFuzzer target with -DCGP_LIBFUZZER: a violated property is a crash (tools/fuzz.sh)
 *
 * A corpus is one file, corpus/NAME. For each input, it contains the input's length (4 bytes,
 * little-endian), followed by the input's bytes. */
#ifndef CGP_TESTS_FUZZ_H
#define CGP_TESTS_FUZZ_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* readers call memmem() */
#endif
#include "support.h"

#include <cgpipe/plan.h>

#ifdef CGP_LIBFUZZER
#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition)) __builtin_trap();                                                        \
    } while (0)
#else
#define REQUIRE(condition) assert_true(condition)
#endif

enum { FUZZ_CAPACITY = 1 << 16 };

typedef struct fuzz_input {
    uint8_t bytes[FUZZ_CAPACITY];
    size_t size;
} fuzz_input;

/* Read an input and check its properties; return true if it was accepted. */
typedef bool fuzz_take(const uint8_t *bytes, size_t size);

typedef struct fuzz_reader {
    fuzz_take *take;
    const char *const *words; /* inserted by mutations; NULL-terminated */
    /* Draw a valid input, mutate it `times` times, and call take() with it. If `play` is NULL,
     * inputs of the corpus are mutated instead. This takes at most 5 seconds, because sanitizers
     * are slow. */
    bool (*play)(int times, uint64_t *random);
    int mutations; /* number of mutated inputs; 0 if only `tests` mutate inputs */
    /* At least 1 in `accepted_in` mutated inputs must be accepted, and at least 1 in `refused_in`
     * must be refused. For both members, 0 means 200. */
    int accepted_in, refused_in;
    int valid;  /* number of inputs that are played without mutations; all must be accepted */
    int corpus; /* minimum number of accepted inputs of the corpus */
    struct CMUnitTest tests[8];  /* more tests */
    int (*set_up)(void **state); /* called once; optional */
    int (*tear_down)(void **state);
} fuzz_reader;

#define FUZZ_WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* Words for mutations of JSON inputs. */
#define FUZZ_JSON                                                                                  \
    "{", "}", "[", "]", ",", ":", "\"", "null", "true", "1e999", "-1", "0.5", "{}", "[[[[[[",      \
        "\\u0000", "2147483648", "9223372036854775807", "\xff"

/* --- inputs --- */

/* Copy an input to a block of exactly the input's size, so that a sanitizer detects a read past the
 * end. The caller owns the copy. */
void *fuzz_exact(const void *bytes, size_t size);

/* Call `take` with a copy made by fuzz_exact(). */
bool fuzz_take_exact(fuzz_take *take, const void *bytes, size_t size);

/* Copy an input as a text that ends with a 0. The caller owns the copy. */
char *fuzz_text(const uint8_t *bytes, size_t size);

/* Draw a number from 0 to bound - 1; return 0 if bound is 0. */
size_t fuzz_below(uint64_t *random, size_t bound);
const char *fuzz_word(const char *const *words, uint64_t *random);

/* Set the input to fewer than `bound` random bytes. */
void fuzz_draw_bytes(fuzz_input *in, size_t bound, uint64_t *random);

void fuzz_append(fuzz_input *in, const void *bytes, size_t count);
/* Append JSON for the 256 single-byte tokens of a tokenizer's vocabulary: "..":0, .. "..":255. */
void fuzz_append_vocabulary(fuzz_input *in);
/* Replace `out` bytes at offset `at` by the `count` bytes of `with`, if the result fits. */
void fuzz_replace(fuzz_input *in, size_t at, size_t out, const void *with, size_t count);
/* Replace fewer than `out` bytes at offset `at` by one of `words`. */
void fuzz_replace_word(fuzz_input *in, size_t at, size_t out, const char *const *words,
                       uint64_t *random);
/* Replace fewer than `out` bytes at offset `to` by a copy of fewer than `bound` bytes at offset
 * `from`. */
void fuzz_copy_piece(fuzz_input *in, size_t from, size_t bound, size_t to, size_t out,
                     uint64_t *random);
void fuzz_flip_bit(fuzz_input *in, size_t at, uint64_t *random);

/* Call `take` with each input of a corpus; return how many inputs it accepted. */
int fuzz_corpus(const char *name, fuzz_take *take);

/* Make a plan with these options. Assert that no size of the plan overflowed, or that the plan was
 * refused with a message. */
void fuzz_check_plan(const cgp_model *model, const cgp_plan_options *options);

/* --- an input as several files (files.c) --- */

/* A line that separates the parts of an input. */
#define FUZZ_BETWEEN "\n=====\n"

/* One part of an input. */
typedef struct fuzz_part {
    const uint8_t *bytes;
    size_t size;
} fuzz_part;

/* Split an input into at most `max` parts; return the number of parts, which is at least 1. */
int fuzz_cut(const uint8_t *bytes, size_t size, fuzz_part *parts, int max);

/* A directory that the driver creates and deletes. It is in memory if the machine has a tmpfs. */
extern char fuzz_directory[64];
int fuzz_make_directory(void);
int fuzz_remove_directory(void);

/* Delete the entries of fuzz_directory. */
void fuzz_empty(void);

/* Return the path of `name` in fuzz_directory, in one of four buffers used round-robin. */
const char *fuzz_path(const char *name);

/* Write a file in fuzz_directory, unless a directory or a link has that name. */
void fuzz_write(const char *name, const void *bytes, size_t size);

#endif
