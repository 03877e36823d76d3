/* SPDX-License-Identifier: Apache-2.0 */
/* fibers.c -- schedules the CUDA threads of a block on one host thread. */
#include "fibers.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"
#include "switch.h"

__thread cgp__shim_index cgp__shim_threadIdx, cgp__shim_blockIdx, cgp__shim_blockDim,
    cgp__shim_gridDim;

typedef enum thread_state { NEW, READY, AT_BLOCK, AT_WARP, DONE } thread_state;

/* A CUDA thread. When it exchanges words, it uses two slots alternately. It writes a slot again
 * only after one more barrier, when all lanes have read the slot's words. */
typedef struct thread {
    cgp__shim_stack *on; /* stack of the thread's fiber; NULL if NEW or DONE */
    cgp__shim_index index;
    thread_state state;
    unsigned exchanges;
} thread;

/* The thread block that a host thread is running. */
typedef struct team {
    thread threads[CGP__SHIM_MAX_BLOCK];
    cgp__shim_words slots[2][CGP__SHIM_MAX_BLOCK];
    uint32_t blocks;                 /* number of blocks that have run */
    int permutation[CGP__SHIM_WARP]; /* order of threads of the running warp */
    int n;
    int warp, turns; /* the running warp, and the warp's number of threads */
    int next;        /* index in `permutation` of the next thread */
    int current;     /* number of the running thread */
    cgp__shim_thread *run;
    const void *arguments;
    cgp__shim_order order;
    uint64_t random;
    cgp__shim_stack host; /* stack of the host thread */
    cgp__shim_stack *idle;
} team;

static pthread_key_t team_key;
static pthread_once_t team_once = PTHREAD_ONCE_INIT;
static __thread team *mine;

static void destroy_team(void *of) {
    team *t = of;
    while (t->idle) {
        cgp__shim_stack *stack = t->idle;
        t->idle = stack->next;
        cgp__shim_stack_destroy(stack);
    }
    free(t);
}

static void create_key(void) {
    pthread_key_create(&team_key, destroy_team);
}

void cgp__shim_die(const char *why) {
    fprintf(stderr, "cuda-host: block (%u, %u, %u): %s\n", cgp__shim_blockIdx.x,
            cgp__shim_blockIdx.y, cgp__shim_blockIdx.z, why);
    abort();
}

static team *get_team(void) {
    if (mine) return mine;
    pthread_once(&team_once, create_key);
    mine = calloc(1, sizeof *mine);
    if (!mine) cgp__shim_die("out of memory");
    pthread_setspecific(team_key, mine);
    return mine;
}

/* --- scheduling --- */

/* Return the next number of splitmix64 (Steele, Lea and Flood 2014). */
uint64_t cgp__shim_random(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static int count(const team *t, int begin, int end, thread_state state) {
    int n = 0;
    for (int i = begin; i < end; i++)
        n += t->threads[i].state == state;
    return n;
}

static int end_of_warp(const team *t, int warp) {
    const int end = (warp + 1) * CGP__SHIM_WARP;
    return end < t->n ? end : t->n;
}

/* Return whether a warp can run. It can run if all its threads are new, if all are released from a
 * barrier of the block, or if all wait at a barrier of the warp. */
static bool may_run(const team *t, int warp) {
    const int begin = warp * CGP__SHIM_WARP, end = end_of_warp(t, warp);
    const thread_state state = t->threads[begin].state;
    if (state == AT_BLOCK || state == DONE) return false;
    for (int i = begin + 1; i < end; i++) {
        if (t->threads[i].state != state) return false;
    }
    return true;
}

/* Return a warp that may run, or -1 if there is none. A warp normally runs until it reaches a
 * barrier of the block, so that warps are as far apart as possible. If the order is shuffled,
 * another warp may continue earlier. */
static int pick_warp(team *t) {
    const int warps = (t->n + CGP__SHIM_WARP - 1) / CGP__SHIM_WARP;
    int picked = -1;
    uint64_t found = 0;
    if (t->order == CGP__SHIM_SHUFFLED && t->warp < warps && may_run(t, t->warp) &&
        cgp__shim_random(&t->random) % 16 > 0)
        return t->warp;
    for (int i = 0; i < warps; i++) {
        const int warp = t->order == CGP__SHIM_DESCENDING ? warps - 1 - i : i;
        if (!may_run(t, warp)) continue;
        if (t->order != CGP__SHIM_SHUFFLED) return warp;
        if (cgp__shim_random(&t->random) % ++found == 0) picked = warp;
    }
    return picked;
}

/* Set the order in which the threads of a warp run. */
static void set_turns(team *t, int warp) {
    const int begin = warp * CGP__SHIM_WARP, n = end_of_warp(t, warp) - begin;
    t->warp = warp;
    t->next = 0;
    t->turns = n;
    for (int i = 0; i < n; i++) {
        t->permutation[i] = begin + (t->order == CGP__SHIM_DESCENDING ? n - 1 - i : i);
        if (t->threads[begin + i].state == AT_WARP) t->threads[begin + i].state = READY;
    }
    for (int i = n - 1; i > 0 && t->order == CGP__SHIM_SHUFFLED; i--) {
        const int j = (int)(cgp__shim_random(&t->random) % (uint64_t)(i + 1)),
                  swapped = t->permutation[i];
        t->permutation[i] = t->permutation[j];
        t->permutation[j] = swapped;
    }
}

static void die_waiting(const team *t) {
    char why[256];
    int first = 0;
    while (t->threads[first].state != AT_BLOCK && t->threads[first].state != AT_WARP)
        first++;
    snprintf(why, sizeof why,
             "thread %d waits for a barrier that others never reach: of %d threads %d wait in "
             "__syncthreads(), %d for their warp, %d have ended",
             first, t->n, count(t, 0, t->n, AT_BLOCK), count(t, 0, t->n, AT_WARP),
             count(t, 0, t->n, DONE));
    cgp__shim_die(why);
}

/* Return the next thread to run, or -1 if all threads are done. */
static int next_thread(team *t) {
    for (;;) {
        while (t->next < t->turns) {
            const int i = t->permutation[t->next++];
            if (t->threads[i].state <= READY) return i;
        }
        const int warp = pick_warp(t);
        if (warp >= 0) {
            set_turns(t, warp);
        } else if (count(t, 0, t->n, AT_BLOCK) == t->n) {
            for (int i = 0; i < t->n; i++)
                t->threads[i].state = READY;
        } else if (count(t, 0, t->n, DONE) == t->n) {
            return -1;
        } else {
            die_waiting(t);
        }
    }
}

/* --- fibers --- */

static void run_thread(team *t, int i, cgp__shim_stack *on) {
    thread *of = &t->threads[i];
    t->current = i;
    of->on = on;
    cgp__shim_threadIdx = of->index;
    t->run(t->arguments);
    cgp__shim_copy_end();
    of->on = NULL;
    of->state = DONE;
}

static void resume(team *t, cgp__shim_stack *from, int i) {
    t->current = i;
    cgp__shim_threadIdx = t->threads[i].index;
    cgp__shim_switch_to(from, t->threads[i].on);
}

/* Main function of a fiber: run new threads, one after the other. When the next thread already has
 * a fiber, this fiber enters the list of idle fibers until it is needed. */
static void fiber(void *of) {
    cgp__shim_stack *self = of;
    for (;;) {
        team *t = mine;
        int i = next_thread(t);
        while (i >= 0 && t->threads[i].state == NEW) {
            run_thread(t, i, self);
            i = next_thread(t);
        }
        self->next = t->idle;
        t->idle = self;
        if (i >= 0)
            resume(t, self, i);
        else
            cgp__shim_switch_to(self, &t->host);
    }
}

/* Switch from any stack to an idle fiber, which picks the next thread. */
static void switch_to_idle(team *t, cgp__shim_stack *from) {
    cgp__shim_stack *to = t->idle;
    if (to)
        t->idle = to->next;
    else
        to = cgp__shim_stack_create(fiber);
    if (!to) cgp__shim_die("out of memory for a fiber's stack");
    cgp__shim_switch_to(from, to);
}

static void wait_at(team *t, thread_state state) {
    thread *self = &t->threads[t->current];
    self->state = state;
    const int i = next_thread(t);
    if (t->threads[i].state == NEW) {
        t->next--; /* the idle fiber will pick thread i */
        switch_to_idle(t, self->on);
    } else if (&t->threads[i] != self) {
        resume(t, self->on, i);
    }
}

void cgp__shim_sync_block(void) {
    wait_at(mine, AT_BLOCK);
}

static void check_mask(const team *t, unsigned mask) {
    const int begin = t->current / CGP__SHIM_WARP * CGP__SHIM_WARP;
    const int lanes = t->n - begin < CGP__SHIM_WARP ? t->n - begin : CGP__SHIM_WARP;
    const unsigned all = lanes == CGP__SHIM_WARP ? 0xffffffffu : (1u << lanes) - 1;
    if ((mask & all) != all) cgp__shim_die("a mask without some of the warp's threads");
}

void cgp__shim_sync_warp(unsigned mask) {
    check_mask(mine, mask);
    wait_at(mine, AT_WARP);
}

unsigned cgp__shim_lane(void) {
    return (unsigned)mine->current % CGP__SHIM_WARP;
}

int cgp__shim_thread_number(void) {
    return mine->current;
}

/* Store words for the other lanes, and wait for the warp. Return the words of all threads of the
 * block. */
static const cgp__shim_words *deposit(team *t, const uint64_t *words, int n, unsigned mask) {
    cgp__shim_words *slots = t->slots[t->threads[t->current].exchanges++ & 1];
    memcpy(slots[t->current], words, (size_t)n * sizeof *words);
    cgp__shim_sync_warp(mask);
    return slots;
}

uint64_t cgp__shim_shuffle(unsigned mask, uint64_t value, unsigned from) {
    team *t = mine;
    const cgp__shim_words *words = deposit(t, &value, 1, mask);
    const int of = t->current / CGP__SHIM_WARP * CGP__SHIM_WARP + (int)from;
    if (from >= CGP__SHIM_WARP) return value;
    if (of >= t->n) cgp__shim_die("a shuffle from a lane without a thread");
    return words[of][0];
}

cgp__shim_exchanged cgp__shim_exchange(const cgp__shim_words words) {
    team *t = mine;
    const int lane = t->current % CGP__SHIM_WARP, begin = t->current - lane;
    const uint64_t number = (uint64_t)t->blocks << 32 | t->threads[t->current].exchanges;
    if (begin + CGP__SHIM_WARP > t->n) cgp__shim_die("a warp without all of its 32 threads");
    const cgp__shim_words *all = deposit(t, words, CGP__SHIM_WORDS, 0xffffffffu);
    return (cgp__shim_exchanged){all + begin, number, begin / CGP__SHIM_WARP, lane};
}

/* --- blocks --- */

static void run_block(team *t) {
    for (int i = 0; i < t->n; i++) {
        t->threads[i].state = NEW;
        t->threads[i].exchanges = 0;
    }
    t->blocks++;
    t->next = t->turns = t->warp = 0;
    cgp__shim_shared_begin();
    switch_to_idle(t, &t->host);
    cgp__shim_shared_end();
}

/* Return the number of the block that runs in position `i`. To shuffle blocks, any bijection of the
 * block numbers is enough. */
static uint64_t block_at(const team *t, uint64_t i, uint64_t blocks, uint64_t offset) {
    if (t->order == CGP__SHIM_DESCENDING) return blocks - 1 - i;
    if (t->order == CGP__SHIM_ASCENDING) return i;
    const uint64_t half = (blocks + 1) / 2; /* even blocks, then odd blocks, rotated */
    const uint64_t at = (i + offset) % blocks;
    return at < half ? 2 * at : 2 * (at - half) + 1;
}

void cgp__shim_run_grid(dim3 grid, dim3 block, cgp__shim_order order, uint64_t seed,
                        cgp__shim_thread *run, size_t shared, const void *arguments) {
    team *t = get_team();
    cgp__shim_shared_create(shared);
    t->n = (int)(block.x * block.y * block.z);
    t->run = run;
    t->arguments = arguments;
    t->order = order;
    t->random = seed;
    for (int i = 0; i < t->n; i++) {
        const unsigned k = (unsigned)i;
        t->threads[i].index =
            (cgp__shim_index){k % block.x, k / block.x % block.y, k / block.x / block.y};
    }
    cgp__shim_blockDim = (cgp__shim_index){block.x, block.y, block.z};
    cgp__shim_gridDim = (cgp__shim_index){grid.x, grid.y, grid.z};
    const uint64_t blocks = (uint64_t)grid.x * grid.y * grid.z;
    const uint64_t offset = cgp__shim_random(&t->random) % blocks;
    for (uint64_t i = 0; i < blocks; i++) {
        const uint64_t at = block_at(t, i, blocks, offset);
        cgp__shim_blockIdx =
            (cgp__shim_index){(unsigned)(at % grid.x), (unsigned)(at / grid.x % grid.y),
                              (unsigned)(at / grid.x / grid.y)};
        run_block(t);
    }
}

cgp__shim_order cgp__shim_environment_order(void) {
    const char *order = getenv("CGP_CUDA_HOST_ORDER");
    if (!order || strcmp(order, "ascending") == 0) return CGP__SHIM_ASCENDING;
    if (strcmp(order, "descending") == 0) return CGP__SHIM_DESCENDING;
    if (strcmp(order, "shuffled") == 0) return CGP__SHIM_SHUFFLED;
    fprintf(stderr,
            "cuda-host: CGP_CUDA_HOST_ORDER: expected ascending, descending or shuffled, got "
            "%s\n",
            order);
    abort();
}
