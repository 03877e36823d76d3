/* SPDX-License-Identifier: Apache-2.0 */
/* shared.c -- dynamic shared memory of a thread block, and asynchronous copies to shared memory.
 *
 * Dynamic shared memory has exactly the number of bytes that the launch requests, between two
 * guards. It is aligned to 16 bytes, but not to 32. It is filled with NaNs before every block, and
 * the guards are checked after every block.
 *
 * An asynchronous copy fills its destination with NaNs at once. The values are copied only when the
 * thread waits for the copy's group, which is the latest time that CUDA allows. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

enum {
    GUARD = 1024,
    ALIGNMENT = 128,
    NAN_BYTE = 0xff, /* two or four such bytes are a NaN */
    GUARD_BYTE = 0xa5,
    MAX_COPIES = 256
};

typedef struct copy {
    void *to;
    const void *from;
    int size, bytes, group;
} copy;

/* The asynchronous copies for which a CUDA thread has not waited yet. `group` is the number of the
 * group that the next copy joins. */
typedef struct copier {
    int group, pending;
    copy copies[MAX_COPIES];
} copier;

/* Dynamic shared memory and pending copies of the block that a host thread runs. */
typedef struct area {
    unsigned char *memory, *begin;
    size_t capacity, bytes;
    copier *copiers[CGP__SHIM_MAX_BLOCK]; /* NULL: the thread has copied nothing */
} area;

static pthread_key_t area_key;
static pthread_once_t area_once = PTHREAD_ONCE_INIT;
static __thread area *mine;

static void destroy_area(void *of) {
    area *a = of;
    for (int i = 0; i < CGP__SHIM_MAX_BLOCK; i++)
        free(a->copiers[i]);
    free(a->memory);
    free(a);
}

static void create_key(void) {
    pthread_key_create(&area_key, destroy_area);
}

static area *get_area(void) {
    if (mine) return mine;
    pthread_once(&area_once, create_key);
    mine = calloc(1, sizeof *mine);
    if (!mine) cgp__shim_die("out of memory");
    pthread_setspecific(area_key, mine);
    return mine;
}

/* --- dynamic shared memory --- */

void cgp__shim_shared_create(size_t bytes) {
    area *a = get_area();
    if (bytes > a->capacity) {
        free(a->memory);
        a->memory = malloc(bytes + 2 * GUARD + ALIGNMENT);
        if (!a->memory) cgp__shim_die("out of memory for shared memory");
        a->capacity = bytes;
    }
    a->bytes = bytes;
    if (bytes == 0) return;
    const uintptr_t at = (uintptr_t)a->memory + GUARD;
    a->begin = a->memory + GUARD + (ALIGNMENT - at % ALIGNMENT) % ALIGNMENT + 16;
}

void cgp__shim_shared_begin(void) {
    const area *a = mine;
    if (a->bytes == 0) return;
    memset(a->begin - GUARD, GUARD_BYTE, GUARD);
    memset(a->begin, NAN_BYTE, a->bytes);
    memset(a->begin + a->bytes, GUARD_BYTE, GUARD);
}

void cgp__shim_shared_end(void) {
    const area *a = mine;
    char why[128];
    for (int i = 0; i < GUARD && a->bytes > 0; i++) {
        const bool before = a->begin[-1 - i] != GUARD_BYTE;
        if (!before && a->begin[a->bytes + (size_t)i] == GUARD_BYTE) continue;
        snprintf(why, sizeof why, "writes %d bytes %s its %zu bytes of dynamic shared memory",
                 i + 1, before ? "before" : "after", a->bytes);
        cgp__shim_die(why);
    }
}

void *cgp__shim_dynamic_shared(void) {
    if (mine->bytes == 0) cgp__shim_die("uses dynamic shared memory, but the launch gives none");
    return mine->begin;
}

void cgp__shim_check_shared(const void *at, size_t bytes, const char *what) {
    char why[128];
    const area *a = mine;
    const uintptr_t begin = (uintptr_t)at, end = begin + bytes;
    const uintptr_t first = (uintptr_t)a->begin, last = first + a->bytes;
    if (begin % bytes != 0) {
        snprintf(why, sizeof why,
                 "%s: expected a multiple of %zu bytes, got an address %d after one", what, bytes,
                 (int)(begin % bytes));
        cgp__shim_die(why);
    }
    if (a->bytes > 0 && end > first - GUARD && begin < last + GUARD &&
        (begin < first || end > last)) {
        snprintf(why, sizeof why, "%s: reaches outside of %zu bytes of dynamic shared memory", what,
                 a->bytes);
        cgp__shim_die(why);
    }
}

/* --- asynchronous copies --- */

static copier *get_copier(void) {
    copier **c = &mine->copiers[cgp__shim_thread_number()];
    if (!*c) *c = calloc(1, sizeof **c);
    if (!*c) cgp__shim_die("out of memory");
    return *c;
}

void cgp__shim_copy_async(void *to, const void *from, int size, int bytes) {
    copier *c = get_copier();
    cgp__shim_check_shared(to, (size_t)size, "destination of cp.async");
    if ((uintptr_t)from % (uintptr_t)size != 0)
        cgp__shim_die("source of cp.async: expected a multiple of its bytes");
    if (bytes < 0 || bytes > size) cgp__shim_die("cp.async: expected 0 to 4 or 16 bytes");
    if (c->pending == MAX_COPIES) cgp__shim_die("a thread has too many asynchronous copies");
    memset(to, NAN_BYTE, (size_t)size);
    c->copies[c->pending++] = (copy){to, from, size, bytes, c->group};
}

void cgp__shim_copy_commit(void) {
    get_copier()->group++;
}

void cgp__shim_copy_wait(int groups) {
    copier *c = get_copier();
    int left = 0;
    for (int i = 0; i < c->pending; i++) {
        const copy one = c->copies[i];
        if (one.group >= c->group - groups) {
            c->copies[left++] = one;
            continue;
        }
        memset(one.to, 0, (size_t)one.size);
        if (one.bytes > 0) memcpy(one.to, one.from, (size_t)one.bytes);
    }
    c->pending = left;
}

void cgp__shim_copy_end(void) {
    const copier *c = mine->copiers[cgp__shim_thread_number()];
    if (c && c->pending > 0) cgp__shim_die("a thread ends before its asynchronous copies");
}

/* --- the attribute that allows more than 48 KiB --- */

enum { MAX_FUNCTIONS = 256, DEFAULT_SHARED = 48 << 10, MOST_SHARED = 227 << 10 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    const void *function;
    int device;
    size_t bytes;
} allowed[MAX_FUNCTIONS];
static int n_allowed;

/* Return the index of a function's entry for the current device, or n_allowed if the function has
 * no entry. */
static int find_allowed(const void *function) {
    int i = 0;
    while (i < n_allowed &&
           (allowed[i].function != function || allowed[i].device != cgp__shim_current_device()))
        i++;
    return i;
}

bool cgp__shim_shared_allowed(const void *function, size_t bytes) {
    if (bytes <= DEFAULT_SHARED) return true;
    pthread_mutex_lock(&lock);
    const int i = find_allowed(function);
    const bool is = i < n_allowed && bytes <= allowed[i].bytes;
    pthread_mutex_unlock(&lock);
    return is;
}

cudaError_t cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute attribute,
                                 int value) {
    CGP__SHIM_TRY(cgp__shim_enter());
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
        value > MOST_SHARED)
        return cgp__shim_leave(cudaErrorInvalidValue);
    pthread_mutex_lock(&lock);
    const int i = find_allowed(function);
    const bool fits = i < MAX_FUNCTIONS;
    if (fits) {
        allowed[i].function = function;
        allowed[i].device = cgp__shim_current_device();
        allowed[i].bytes = (size_t)value;
        if (i == n_allowed) n_allowed++;
    }
    pthread_mutex_unlock(&lock);
    return cgp__shim_leave(fits ? cudaSuccess : cudaErrorMemoryAllocation);
}
