/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz.h -- what fuzz tests share. With CGP_LIBFUZZER they are targets of that fuzzer, and a property
 * that does not hold is a crash; otherwise they are test programs with mutations of their own. */
#ifndef CGP_TESTS_FUZZ_H
#define CGP_TESTS_FUZZ_H

#include "support.h"

#ifdef CGP_LIBFUZZER
#define REQUIRE(condition)                                                                     \
    do {                                                                                       \
        if (!(condition)) __builtin_trap();                                                    \
    } while (0)
#else
#define REQUIRE(condition) assert_true(condition)

/* 0 .. bound - 1; 0 for none. */
static inline size_t fuzz_below(uint64_t *random, size_t bound) {
    return bound ? (size_t)(test_random(random) % bound) : 0;
}

/* Replace `out` bytes at `at` by `count` others, if that fits in `room`. */
static inline void fuzz_replace(void *bytes, size_t *size, size_t room, size_t at, size_t out,
                                const void *with, size_t count) {
    char *to = bytes;
    if (at + out > *size || *size - out + count > room) return;
    memmove(to + at + count, to + at + out, *size - at - out);
    memcpy(to + at, with, count);
    *size += count - out;
}
#endif

#endif
