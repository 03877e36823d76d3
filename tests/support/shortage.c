/* SPDX-License-Identifier: Apache-2.0 */
/* shortage.c -- see shortage.h.
 *
 * Every function in wrapped.txt has a __wrap_ function in this file. If one is missing, the linker
 * fails. */
#define _GNU_SOURCE
#include "shortage.h"

#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <openssl/crypto.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* The call that must fail. This variable need not be atomic, because it is only set while no other
 * thread runs. */
static shortage chosen;
static atomic_bool counting;
static _Atomic(const char *) failed;
static atomic_int asked[SHORTAGE_THREADS], threads_made;
static _Thread_local int self; /* this thread's number */

static atomic_llong blocks, mapped, streams, threads;

/* Count a call; return true if it must fail. */
static bool denied(const char *function) {
    if (!atomic_load(&counting)) return false;
    if (chosen.only && strcmp(chosen.only, function) != 0) return false;
    const int number = atomic_fetch_add(&asked[self], 1);
    const bool met = self == chosen.thread && number == chosen.number;
    if (met && !atomic_load(&failed)) atomic_store(&failed, function);
    return met || (chosen.lasting && atomic_load(&failed));
}

void shortage_begin(shortage what) {
    chosen = what;
    atomic_store(&failed, NULL);
    atomic_store(&threads_made, 0);
    for (int t = 0; t < SHORTAGE_THREADS; t++)
        atomic_store(&asked[t], 0);
    atomic_store(&counting, true);
}

void shortage_end(void) {
    atomic_store(&counting, false);
}

const char *shortage_function(void) {
    return atomic_load(&failed);
}

int shortage_asked(int thread) {
    return atomic_load(&asked[thread]);
}

shortage_alive shortage_count_alive(void) {
    return (shortage_alive){atomic_load(&blocks), atomic_load(&mapped), atomic_load(&streams),
                            atomic_load(&threads)};
}

/* --- the C library --- */

/* Wrap a function that returns a pointer. The wrapper returns NULL with ENOMEM if the call must
 * fail. Otherwise it counts one more object of `kind`. */
#define POINTER(type, function, kind, parameters, ...)                                             \
    type __real_##function parameters;                                                             \
    type __wrap_##function parameters;                                                             \
    type __wrap_##function parameters {                                                            \
        type made = NULL;                                                                          \
        if (denied(#function))                                                                     \
            errno = ENOMEM;                                                                        \
        else                                                                                       \
            made = __real_##function(__VA_ARGS__);                                                 \
        if (made) atomic_fetch_add(&(kind), 1);                                                    \
        return made;                                                                               \
    }

POINTER(void *, calloc, blocks, (size_t count, size_t bytes), count, bytes)
POINTER(void *, malloc, blocks, (size_t bytes), bytes)
POINTER(void *, aligned_alloc, blocks, (size_t alignment, size_t bytes), alignment, bytes)
POINTER(char *, strdup, blocks, (const char *text), text)
POINTER(char *, strndup, blocks, (const char *text, size_t bytes), text, bytes)
POINTER(char *, realpath, blocks, (const char *path, char *out), path, out)
POINTER(FILE *, fopen, streams, (const char *path, const char *mode), path, mode)
POINTER(FILE *, fdopen, streams, (int fd, const char *mode), fd, mode)
POINTER(DIR *, opendir, streams, (const char *path), path)
POINTER(DIR *, fdopendir, streams, (int fd), fd)

/* Wrap a function that frees an object of `kind`: the wrapper counts one object less. */
#define END(type, result, function, kind)                                                          \
    result __real_##function(type thing);                                                          \
    result __wrap_##function(type thing);                                                          \
    result __wrap_##function(type thing) {                                                         \
        if (thing) atomic_fetch_sub(&(kind), 1);                                                   \
        return __real_##function(thing);                                                           \
    }

END(void *, void, free, blocks)
END(FILE *, int, fclose, streams)
END(DIR *, int, closedir, streams)

void *__real_realloc(void *old, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes) {
    if (denied("realloc")) {
        errno = ENOMEM;
        return NULL;
    }
    void *made = __real_realloc(old, bytes);
    if (made && !old) atomic_fetch_add(&blocks, 1);
    return made;
}

int __real_posix_memalign(void **out, size_t alignment, size_t bytes);
int __wrap_posix_memalign(void **out, size_t alignment, size_t bytes);
int __wrap_posix_memalign(void **out, size_t alignment, size_t bytes) {
    if (denied("posix_memalign")) return ENOMEM;
    const int error = __real_posix_memalign(out, alignment, bytes);
    if (!error) atomic_fetch_add(&blocks, 1);
    return error;
}

/* readdir() returns NULL for an error and for the end of a directory. Only errno distinguishes the
 * two. */
struct dirent *__real_readdir(DIR *list);
struct dirent *__wrap_readdir(DIR *list);
struct dirent *__wrap_readdir(DIR *list) {
    if (denied("readdir")) {
        errno = ENOMEM;
        return NULL;
    }
    return __real_readdir(list);
}

/* open_memstream() creates two objects, a stream and the stream's text, and both are counted. */
FILE *__real_open_memstream(char **text, size_t *size);
FILE *__wrap_open_memstream(char **text, size_t *size);
FILE *__wrap_open_memstream(char **text, size_t *size) {
    if (denied("open_memstream")) {
        errno = ENOMEM;
        return NULL;
    }
    FILE *file = __real_open_memstream(text, size);
    if (file) atomic_fetch_add(&blocks, 1);
    if (file) atomic_fetch_add(&streams, 1);
    return file;
}

void *__real_mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset) {
    if (denied("mmap")) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    void *made = __real_mmap(at, bytes, protection, flags, fd, offset);
    if (made != MAP_FAILED) atomic_fetch_add(&mapped, (long long)bytes);
    return made;
}

int __real_munmap(void *at, size_t bytes);
int __wrap_munmap(void *at, size_t bytes);
int __wrap_munmap(void *at, size_t bytes) {
    atomic_fetch_sub(&mapped, (long long)bytes);
    return __real_munmap(at, bytes);
}

/* Skip the sync: these tests make thousands of calls, and do not test power failures. */
int __wrap_fsync(int fd);
int __wrap_fsync(int fd) {
    (void)fd;
    return 0;
}

/* --- threads, numbered in creation order --- */

typedef struct start {
    void *(*function)(void *);
    void *argument;
    int number;
} start;

static void *run_thread(void *given) {
    const start begin = *(start *)given;
    __real_free(given);
    self = begin.number;
    void *result = begin.function(begin.argument);
    atomic_fetch_sub(&threads, 1);
    return result;
}

int __real_pthread_create(pthread_t *out, const pthread_attr_t *attributes,
                          void *(*function)(void *), void *argument);
int __wrap_pthread_create(pthread_t *out, const pthread_attr_t *attributes,
                          void *(*function)(void *), void *argument);
int __wrap_pthread_create(pthread_t *out, const pthread_attr_t *attributes,
                          void *(*function)(void *), void *argument) {
    if (denied("pthread_create")) return EAGAIN;
    start *begin = __real_malloc(sizeof *begin);
    if (!begin) return EAGAIN;
    *begin = (start){function, argument, 1 + atomic_fetch_add(&threads_made, 1)};
    if (begin->number >= SHORTAGE_THREADS) abort();
    atomic_fetch_add(&threads, 1);
    const int error = __real_pthread_create(out, attributes, run_thread, begin);
    if (error) {
        atomic_fetch_sub(&threads, 1);
        __real_free(begin);
    }
    return error;
}

/* --- jansson and libcrypto, through the hooks that they offer --- */

static void *json_take(size_t bytes) {
    void *made = denied("jansson") ? NULL : __real_malloc(bytes);
    if (made) atomic_fetch_add(&blocks, 1);
    return made;
}

/* Live blocks of libcrypto are not counted, because libcrypto keeps some of them. */
static void *crypto_take(size_t bytes, const char *file, int line) {
    (void)file, (void)line;
    return denied("libcrypto") ? NULL : __real_malloc(bytes);
}

static void *crypto_retake(void *old, size_t bytes, const char *file, int line) {
    (void)file, (void)line;
    return denied("libcrypto") ? NULL : __real_realloc(old, bytes);
}

static void crypto_give(void *block, const char *file, int line) {
    (void)file, (void)line;
    __real_free(block);
}

void shortage_init(void) {
    json_set_alloc_funcs(json_take, __wrap_free);
    if (!CRYPTO_set_mem_functions(crypto_take, crypto_retake, crypto_give)) {
        fprintf(stderr, "shortage: libcrypto has allocated already\n");
        abort();
    }
}
