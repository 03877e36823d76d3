/* SPDX-License-Identifier: Apache-2.0 */
/* base.h -- helpers that every module uses: failures, log, memory, counter-based random numbers,
 * clock, names, SHA-256. */
#ifndef CGP_SRC_BASE_H
#define CGP_SRC_BASE_H

#include <cgpipe/base.h>

#include <pthread.h>
#include <stdio.h>

/* --- arguments: public functions refuse NULL where it has no meaning --- */

/* Set the message "<function>: <argument>: expected a pointer, got NULL" and return CGP_EINVAL. */
cgp_status cgp__missing(const char *function, const char *argument);

#define CGP__NEED(pointer)                                                                         \
    do {                                                                                           \
        if (!(pointer)) return cgp__missing(__func__, #pointer);                                   \
    } while (0)

/* The same check as CGP__NEED(), for functions that return no status. */
#define CGP__NEED_OR(pointer, result)                                                              \
    do {                                                                                           \
        if (!(pointer)) {                                                                          \
            (void)cgp__missing(__func__, #pointer);                                                \
            return result;                                                                         \
        }                                                                                          \
    } while (0)

#define CGP__ALIGN 64 /* bytes; every offset in a plan is a multiple of this */

/* --- memory: zeroed. If a function returns NULL, the caller calls cgp__no_memory() --- */

void *cgp__calloc(size_t count, size_t bytes);
char *cgp__strdup(const char *text);
/* Return a formatted text, which the caller frees; NULL if memory is short. */
char *cgp__format(const char *format, ...) CGP_PRINTF(1, 2);

/* Point `array` at `count` new elements. If memory is short, fail with CGP_ENOMEM and a message
 * about `object`. */
#define CGP__NEW(array, count, object) cgp__new(&(array), (size_t)(count), sizeof *(array), object)
cgp_status cgp__new(void *array, size_t count, size_t bytes, const char *object);

/* Grow *array to a capacity of at least `need` elements of `bytes` bytes each; new elements are
 * zero. Return false if memory is short. Also return false if `need` is INT_MAX, so the caller's n
 * + 1 never overflows. */
bool cgp__grow(void *array, int *capacity, int need, size_t bytes);

/* A hash index. Its entries are numbers >= 0 that the caller chooses. Start from {0}. */
typedef struct cgp__index {
    uint64_t *hashes;
    int *entries;    /* [capacity] 1 + the entry; 0: the place is free */
    int capacity, n; /* capacity: number of places, a power of two or 0; n: number of entries */
} cgp__index;

uint64_t cgp__hash(const void *bytes, size_t n);

/* Return the next entry with this hash; -1 after the last entry. The caller sets *tried to 0 before
 * the first call, and compares the keys of the entries. */
int cgp__index_next(const cgp__index *index, uint64_t hash, uint32_t *tried);

/* Add an entry; return false if memory is short. */
bool cgp__index_add(cgp__index *index, uint64_t hash, int entry);

void cgp__index_release(cgp__index *index);

/* Return the number at the beginning of a system file. Return `otherwise` if the file contains
 * "max" or does not exist. */
int64_t cgp__read_number(const char *path, int64_t otherwise);

/* These three functions return the available memory, in bytes, of the machine, of this process's
 * container, and the smaller of the two. INT64_MAX means unknown or no limit. */
int64_t cgp__machine_available(void);
int64_t cgp__container_available(void);
int64_t cgp__memory_available(void);

/* libm.c: write a digest of the math functions' results, as 16 hex digits. */
void cgp__libm_digest(char hex[17]);

static inline int64_t cgp__min(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static inline int64_t cgp__max(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* Return `a` / `b` rounded up, for `a` >= 0 and `b` > 0. */
static inline int64_t cgp__ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

/* Set the message "<object>: out of memory (<bytes> bytes)" and return CGP_ENOMEM. */
cgp_status cgp__no_memory(const char *object, size_t bytes);

static inline int64_t cgp__align_up(int64_t bytes) {
    return (bytes + CGP__ALIGN - 1) & ~(int64_t)(CGP__ALIGN - 1);
}

/* --- random numbers: Philox4x32-10 (Salmon et al. 2011), no state --- */

typedef struct cgp__rng_key {
    uint32_t k0, k1;
} cgp__rng_key;

/* The purpose of a key. Different purposes have different random numbers for the same seed. */
typedef enum cgp__rng_use {
    CGP__RNG_DROPOUT = 1,
    CGP__RNG_WEIGHTS = 2,
    CGP__RNG_DATA = 3
} cgp__rng_use;

/* Set out[4] to Philox4x32-10 of counter[4] with this key. */
void cgp__philox(uint32_t out[4], const uint32_t counter[4], cgp__rng_key key);

/* Return the key derived from (seed, use, step, id). For dropout, `step` is the number of the step
 * and `id` the id of the op. For weights, `step` is 0 and `id` is the index of the parameter. */
cgp__rng_key cgp__rng_derive(uint64_t seed, cgp__rng_use use, uint64_t step, uint32_t id);

/* Return a uniform integer in [0, `bound`), for `bound` >= 1. It is made from the 64-bit random
 * number at counter `index`, with a bias below 2^-32. */
uint64_t cgp__rng_below(cgp__rng_key key, uint64_t index, uint32_t bound);

/* --- clock: monotonic --- */

int64_t cgp__now_ns(void);

/* Initialize a condition for cgp__wait_until(). */
void cgp__condition_init(pthread_cond_t *condition);

/* Wait for a condition. Return false at the deadline, or if the wait fails. `deadline_ns` is a time
 * of cgp__now_ns(), or INT64_MAX for no deadline. */
bool cgp__wait_until(pthread_cond_t *condition, pthread_mutex_t *lock, int64_t deadline_ns);

/* --- names --- */

/* Set *index to the position of a text among `count` names; a NULL text is read as "". If the text
 * is not one of the names, leave *index unchanged and return CGP_EINVAL with the message
 *     <object>: expected <list>, got "<text>" (did you mean <nearest>?) */
cgp_status cgp__parse_name(int *index, const char *text, const char *object, const char *list,
                           const char *const *names, int count);

/* Return true if a text is UTF-8. */
bool cgp__is_utf8(const char *text);

/* Return the length in bytes of the first UTF-8 character of a text that has `left` >= 1 more
 * bytes; 0 if the bytes are not well-formed UTF-8. */
int cgp__utf8_character(const unsigned char *c, int64_t left);

/* --- texts: written through `file` into memory --- */

typedef struct cgp__text {
    FILE *file;
    char *bytes;
    size_t size;
    const char *name; /* name of the text, for messages; borrowed */
} cgp__text;

cgp_status cgp__text_open(cgp__text *text, const char *name);

/* Close the file. On success, set *out to the text, which the caller frees. If `status` is a
 * failure, or memory was short, free the text and return the failure. */
cgp_status cgp__text_close(cgp__text *text, cgp_status status, char **out);

/* --- SHA-256 (libcrypto) --- */

typedef struct evp_md_ctx_st cgp__sha256; /* EVP_MD_CTX */

cgp_status cgp__sha256_create(cgp__sha256 **out);
cgp_status cgp__sha256_add(cgp__sha256 *hash, const void *data, size_t bytes);
/* After this call the hash can only be restarted or destroyed. */
cgp_status cgp__sha256_finish(cgp__sha256 *hash, char hex[65]);
cgp_status cgp__sha256_finish_bytes(cgp__sha256 *hash, unsigned char digest[32]);
/* Begin another digest with the same memory. */
cgp_status cgp__sha256_restart(cgp__sha256 *hash);
void cgp__sha256_destroy(cgp__sha256 *hash);

#endif
