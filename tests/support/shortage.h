/* SPDX-License-Identifier: Apache-2.0 */
/* shortage.h -- lets an allocation of the library fail, chosen by thread and number.
 *
 *     thread 0: the test's own       0 1 2 3 ...          every call that asks for memory, in the
 *     thread 1: first worker made    0 1 2 ...            order of its thread; so a place names
 *     thread 2: ...                  0 1 2 3 4 ...        the same call in every run
 *
 * The linker leads the calls in wrapped.txt to shortage.c (--wrap): those of our objects, not
 * those of the libraries they use. Jansson and libcrypto are given our functions. */
#ifndef CGP_TESTS_SHORTAGE_H
#define CGP_TESTS_SHORTAGE_H

#include <stdbool.h>
#include <stdint.h>

enum { SHORTAGE_THREADS = 64 };

typedef struct shortage {
    int thread, number; /* the call that fails; thread -1: none */
    bool lasting;       /* all later ones of all threads too */
    const char *only;   /* count calls of this function alone; NULL: all */
} shortage;

/* Take jansson's and libcrypto's allocations. Once, before either is used. */
void shortage_init(void);

/* From here on calls are counted, and the chosen one fails; until shortage_end(). */
void shortage_begin(shortage chosen);
void shortage_end(void);

/* The function that failed first since shortage_begin(), NULL if none did. */
const char *shortage_function(void);

/* Calls that asked for memory since shortage_begin(), by thread. */
int shortage_asked(int thread);

/* Live allocations, by kind. */
typedef struct shortage_alive {
    int64_t blocks, mapped_bytes, streams, threads;
} shortage_alive;
shortage_alive shortage_count_alive(void);

#endif
