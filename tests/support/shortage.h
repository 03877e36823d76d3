/* SPDX-License-Identifier: Apache-2.0 */
/* shortage.h -- makes one allocation of the library fail, chosen by thread and number.
 *
 *     thread 0: the test's thread    0 1 2 3 ...
 *     thread 1: first worker made    0 1 2 ...
 *     thread 2: ...                  0 1 2 3 4 ...
 *
 * Every call that allocates is counted, separately for each thread. Therefore a thread and a number
 * identify the same call in every run.
 *
 * The linker (--wrap) redirects the calls in wrapped.txt from our objects to shortage.c. Calls
 * inside other libraries are not redirected, but jansson and libcrypto are configured to allocate
 * by functions in shortage.c. */
#ifndef CGP_TESTS_SHORTAGE_H
#define CGP_TESTS_SHORTAGE_H

#include <stdbool.h>
#include <stdint.h>

enum { SHORTAGE_THREADS = 64 };

typedef struct shortage {
    int thread, number; /* the call that fails; none if `thread` is -1 */
    bool lasting;       /* all later calls of all threads fail too */
    const char *only;   /* count only calls of this function; all if NULL */
} shortage;

/* Replace the allocators of jansson and libcrypto. Call this function once, before either library
 * is used. */
void shortage_init(void);

/* Start to count calls, and make the chosen call fail. Counting lasts until shortage_end(). */
void shortage_begin(shortage chosen);
void shortage_end(void);

/* Return the name of the first function that has failed since shortage_begin(), or NULL if none has
 * failed. */
const char *shortage_function(void);

/* Return the number of counted calls of a thread since shortage_begin(). */
int shortage_asked(int thread);

/* The numbers of allocations that exist at a time, by kind. */
typedef struct shortage_alive {
    int64_t blocks, mapped_bytes, streams, threads;
} shortage_alive;
shortage_alive shortage_count_alive(void);

#endif
