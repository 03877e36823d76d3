/* SPDX-License-Identifier: Apache-2.0 */
/* loopback_network.h -- internals of the loopback transport: ranks, links, and the lanes between
 * ranks.
 *
 * One lock guards the network and all its ranks. The network is slow on purpose. Unless a comment
 * says otherwise, functions are called with the lock held. */
#ifndef CGP_TESTS_FAKES_LOOPBACK_NETWORK_H
#define CGP_TESTS_FAKES_LOOPBACK_NETWORK_H

#include "loopback.h"

#include <pthread.h>

enum { FREE = -1, HELD = -2, AWAY = -3 }; /* buffer states; others are micro-batches */
enum { POISON = 0xFF };                   /* this byte, repeated, is a NaN of any type */
enum { TEXT_BYTES = 1024 };

/* A message or a release in flight, with its own storage. */
typedef struct item {
    struct item *next;
    int64_t due_ns, late_ns;
    int slot;   /* index of the sender's buffer; in a failure, the failed rank */
    int number; /* a message's micro-batch, a failure's status, or 1 for a gather */
    size_t bytes;
    bool fails, lost;
    char storage[];
} item;

/* A queue of items that the network delivers in order. */
typedef struct lane {
    item *first, *last; /* `first` is delivered next */
    item *spare;
    uint64_t random;
} lane;

/* An edge, which exists while one of its ends is open. */
typedef struct edge {
    struct edge *next;
    int number;
    cgp_link *ends[2]; /* receiver, sender; NULL if not open */
    bool opened[2];    /* whether each end is or was open */
    lane lanes[2];     /* [0]: releases, from the receiver; [1]: messages, from the sender */
} edge;

typedef struct network {
    pthread_mutex_t lock;
    pthread_cond_t filled;
    pthread_t thread;
    bool ends;
    int n, living;
    uint64_t seed;
    edge *edges;
    lane *pairs;              /* [from][to] lanes of agreements and failures */
    cgp_communicator **ranks; /* [n] NULL if destroyed */
} network;

/* The failure of a rank. */
typedef struct failed {
    cgp_status status; /* CGP_OK if there is none */
    int rank;
    char message[TEXT_BYTES];
} failed;

struct cgp_communicator {
    network *net;
    int rank;
    bool ended;    /* the rank was stopped by its caller or by a failure */
    bool agreeing; /* a barrier or gather is in progress */
    failed own, other;
    pthread_cond_t changed;
    int64_t timeout_ns, next_heartbeat_ns; /* 0: no heartbeats */
    bool mute;                             /* send no heartbeats, like a stopped process */
    int64_t wakeup_delay_ns;     /* delay before a wait returns after the rank has ended */
    cgp_rank_state mine, *known; /* [n] */
    item *inbox[];               /* [n] lists of agreements received, oldest first */
};

typedef struct buffer {
    int state;
    int sender_slot; /* index of the message's buffer at the sender */
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

/* Print "loopback: rank %d, edge %d: ..." and abort; an edge of -1 is not printed. */
_Noreturn void loopback_broken(int rank, int number, const char *format, ...) CGP_PRINTF(3, 4);

/* Create an item with storage of `bytes` bytes; return NULL if out of memory. */
item *loopback_create_item(size_t bytes);
void loopback_free_items(item *first);

/* Give a lane `count` spare items with storage of `bytes` bytes each. @retval CGP_ENOMEM */
cgp_status loopback_reserve(lane *l, int count, size_t bytes);
item *loopback_take_spare(lane *l);
void loopback_clear_lane(lane *l);

/* Add an item to a lane, which takes ownership. The item is delivered after a random delay, and
 * after the items ahead of it. */
void loopback_send(network *net, lane *l, item *sent);

/* Return the index of the first buffer that has state `state`; -1 if there is none. */
int loopback_find_buffer(const cgp_link *link, int state);
char *loopback_buffer_at(const cgp_link *link, int i);

/* Wake all threads that wait in calls of a rank. Later waits of this rank return at once. */
void loopback_end_waits(cgp_communicator *communicator);

/* Send the failure of `rank` from one rank to all other ranks. `rank` is the sender itself, or a
 * silent rank that the sender has found. */
void loopback_send_failure(cgp_communicator *from, int rank, cgp_status status,
                           const char *message);

/* Send a rank's heartbeat to all other ranks. */
void loopback_send_heartbeat(cgp_communicator *from);

/* Main function of the network's thread: deliver items that are due until net->ends is true. Unlike
 * the other functions of this header, this function takes the lock itself. */
void *loopback_run_network(void *network);

#endif
