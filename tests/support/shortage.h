/* SPDX-License-Identifier: Apache-2.0 */
/* shortage.h -- makes one allocation of the library fail, chosen by thread and number.
 *
 *     thread 0: the test's own       0 1 2 3 ...
 *     thread 1: first worker made    0 1 2 ...
 *     thread 2: ...                  0 1 2 3 4 ...
 *
 * Every call that allocates is counted, separately for each thread. So a thread and a number
 * identify the same call in every run.
 *
 * The linker (--wrap) redirects the calls in wrapped.txt from our objects to shortage.c. Calls
 * inside other libraries are untouched, but jansson and libcrypto use our functions. */
#ifndef CGP_TESTS_SHORTAGE_H
#define CGP_TESTS_SHORTAGE_H

#include <stdbool.h>
#include <stdint.h>

enum { SHORTAGE_THREADS = 64 };

typedef struct shortage {
    int thread, number; /* the call that fails; thread -1: none */
    bool lasting;       /* all later calls of all threads fail too */
    const char *only;   /* count only calls of this function; NULL: all */
} shortage;

/* Replace the allocators of jansson and libcrypto. Call it once, before either is used. */
void shortage_init(void);

/* Start to count calls; the chosen one fails. Lasts until shortage_end(). */
void shortage_begin(shortage chosen);
void shortage_end(void);

/* Return the first function that failed since shortage_begin(); NULL if none did. */
const char *shortage_function(void);

/* Return how often a thread asked for memory since shortage_begin(). */
int shortage_asked(int thread);

/* Counts of live allocations. */
typedef struct shortage_alive {
    int64_t blocks, mapped_bytes, streams, threads;
} shortage_alive;
shortage_alive shortage_count_alive(void);

#endif
