/* SPDX-License-Identifier: Apache-2.0 */
/* loopback_network.h -- inside loopback: ranks, links, and the lanes between them.
 *
 * One lock is over the network and all its ranks: it is slow by intention. Without another remark a
 * function is called with the lock held. */
#ifndef CGP_TESTS_LOOPBACK_NETWORK_H
#define CGP_TESTS_LOOPBACK_NETWORK_H

#include "loopback.h"

#include <pthread.h>

enum { FREE = -1, HELD = -2, AWAY = -3 }; /* of a buffer; or the micro-batch that arrived in it */
enum { POISON = 0xFF };                   /* NaN in every floating-point type */
enum { TEXT_BYTES = 1024 };

/* A message or a release on its way, with storage of its own. */
typedef struct item {
    struct item *next;
    int64_t due_ns, late_ns;
    int slot; /* the sender's buffer */
    int number; /* the micro-batch; of an agreement, true: gather; of a failure, its status, and in slot the rank */
    size_t bytes;
    bool fails, lost;
    char storage[];
} item;

typedef struct lane {
    item *first, *last; /* only the first is ever delivered */
    item *spare;
    uint64_t random;
} lane;

typedef struct edge {
    struct edge *next;
    int number;
    cgp_link *ends[2]; /* receiver, sender; NULL: not open */
    bool opened[2];    /* open now or before */
    lane lanes[2];     /* releases, messages: by the end that fills it */
} edge;

typedef struct network {
    pthread_mutex_t lock;
    pthread_cond_t filled;
    pthread_t thread;
    bool ends;
    int n, living;
    uint64_t seed;
    edge *edges;
    lane *pairs;              /* [from][to] agreements and failures */
    cgp_communicator **ranks; /* [n] NULL: destroyed */
} network;

typedef struct failed {
    cgp_status status; /* CGP_OK: none */
    int rank;
    char message[TEXT_BYTES];
} failed;

struct cgp_communicator {
    network *net;
    int rank;
    bool ended;    /* stopped, here or by a failure */
    bool agreeing; /* in barrier or gather */
    failed own, other;
    pthread_cond_t changed;
    int64_t timeout_ns, next_beat_ns; /* 0: it does not watch */
    bool mute;                        /* sends no beats, as if it had been stopped */
    int64_t drowsy_ns;                /* a wait returns so much later after the end */
    cgp_beat mine, *known;            /* [n] */
    item *inbox[];                    /* [n] agreements that came from each rank, first to last */
};

typedef struct buffer {
    int state;
    int sender_slot; /* of a message */
    int64_t bytes;
    int64_t released_ns;
} buffer;

struct cgp_link {
    cgp_communicator *communicator;
    edge *edge;
    cgp_link_options options;
    bool waits;
    pthread_cond_t changed;
    buffer buffers[]; /* [capacity] */
};

/* Print "loopback: rank %d, edge %d: ..." and end the process; -1: none. */
_Noreturn void loopback_broken(int rank, int number, const char *format, ...) CGP_PRINTF(3, 4);

/* A condition for loopback_wait_until. */
void loopback_init_condition(pthread_cond_t *condition);

/* Block until the condition is signalled; false: the deadline, by cgp__now_ns(), is over.
 * INT64_MAX: no deadline. */
bool loopback_wait_until(pthread_cond_t *condition, pthread_mutex_t *lock, int64_t deadline_ns);

/* NULL when short of memory. */
item *loopback_create_item(size_t bytes);
void loopback_free_items(item *first);

/* Give a lane `count` spare items of `bytes` each. @retval CGP_ENOMEM */
cgp_status loopback_reserve(lane *l, int count, size_t bytes);
item *loopback_take_spare(lane *l);
void loopback_clear_lane(lane *l);

/* Add an item to a lane, which owns it from now on. It is delivered after a random delay, and after
 * those before it. */
void loopback_send(network *net, lane *l, item *sent);

/* The first buffer in a state; -1: none. */
int loopback_find_buffer(const cgp_link *link, int state);
char *loopback_buffer_at(const cgp_link *link, int i);

/* Wake all that wait on a rank, now and later. */
void loopback_end_waits(cgp_communicator *communicator);

/* Let a rank's failure, or that of the silent rank `culprit` which it has found, travel to all
 * others. */
void loopback_send_failure(cgp_communicator *from, int culprit, cgp_status status,
                           const char *message);

/* Let all others know what a rank's beats say. */
void loopback_send_beat(cgp_communicator *from);

/* The network's thread: deliver what is due until net->ends. Takes the lock itself. */
void *loopback_run_network(void *network);

#endif
