/* SPDX-License-Identifier: Apache-2.0 */
/* schedule.h -- inside the schedule room: the table, how one is built, and the engine that
 * executes it.
 *
 *     generator, csv.c or lists -> recompute.c -> lower.c -> check.c     rules, execute.c without time
 *                                                         -> simulate.c  rules, execute.c with time
 *                                                         -> draw.c      rules, execute.c in ticks */
#ifndef CGP_SRC_SCHEDULE_SCHEDULE_H
#define CGP_SRC_SCHEDULE_SCHEDULE_H

#include <cgpipe/schedule.h>

#include "base/base.h"

#define CGP__COMPUTE_KINDS 5          /* F B I W R: the first of cgp_action_kind */
#define CGP__SCHEDULE_LIMIT (1 << 24) /* largest n m: a typing error must not eat all memory */
#define CGP__ACTION_TEXT 40           /* bytes that hold the text of any action */

struct cgp_schedule {
    char *name;
    int stages, chunks, devices;
    int *device_of;     /* [stages] */
    cgp_action **lists; /* [devices][counts[device]] */
    int *counts;        /* [devices] */
    bool lowered;
    cgp_edge *edges; /* [n_edges], once lowered */
    int n_edges;
};

static inline bool cgp__is_transfer(cgp_action_kind kind) {
    return kind >= CGP_ACTION_SEND_F;
}

static inline bool cgp__is_send(cgp_action_kind kind) {
    return kind == CGP_ACTION_SEND_F || kind == CGP_ACTION_SEND_B;
}

static inline bool cgp__is_receive(cgp_action_kind kind) {
    return kind == CGP_ACTION_RECV_F || kind == CGP_ACTION_RECV_B;
}

/* Needs the gradients of later stages, and makes those of earlier ones. */
static inline bool cgp__starts_backward(cgp_action_kind kind) {
    return kind == CGP_ACTION_B || kind == CGP_ACTION_I;
}

/* After it nothing of forward is needed any more. */
static inline bool cgp__ends_backward(cgp_action_kind kind) {
    return kind == CGP_ACTION_B || kind == CGP_ACTION_W;
}

static inline bool cgp__is_gradient(cgp_edge edge) {
    return edge.from > edge.to;
}

/* --- table.c: building tables --- */

/* A table from outside: an importer's, a test's. All borrowed, all copied. */
typedef struct cgp__schedule_table {
    const char *name;
    int stages, chunks, devices;
    const int *device_of;           /* [stages] any placement */
    const cgp_action *const *lists; /* [devices][counts[device]] */
    const int *counts;              /* [devices] */
    bool lowered;                   /* the lists hold the transfers of `edges` */
    const cgp_edge *edges;          /* [n_edges], only if lowered */
    int n_edges;
} cgp__schedule_table;

/* Make a schedule of given lists. CGP_EINVAL if a number is out of range or an action is not
 * on the device of its stage; whether the table makes sense is left to cgp_schedule_check(). */
cgp_status cgp__schedule_from_lists(cgp_schedule **out, const cgp__schedule_table *table);

/* An empty schedule for a generator to fill: v stages on each of the devices, room for
 * `kinds` actions of each micro-batch on each stage. */
cgp_status cgp__schedule_new(cgp_schedule **out, const char *name, int devices, int v,
                             cgp_placement placement, int chunks, int kinds);

/* An empty schedule with the placement of another. */
cgp_status cgp__schedule_like(cgp_schedule **out, const cgp_schedule *other, const char *name,
                              int chunks, int kinds);

/* Append a compute action to the list of its stage's device. A micro-batch that the schedule
 * does not have (surplus) is left out. */
void cgp__append(cgp_schedule *schedule, cgp_action_kind kind, int stage, int microbatch);

/* CGP_EINVAL if so many micro-batches, the surplus ones included, are too many to go through. */
cgp_status cgp__surplus_check(const cgp_schedule *schedule, int64_t chunks);

/* Lists of the given lengths, zeroed; NULL when short. */
cgp_action **cgp__lists_new(int devices, const int *counts);
void cgp__lists_free(cgp_action **lists, int devices);

/* Put other lists in place; both arrays are taken. */
void cgp__schedule_replace(cgp_schedule *schedule, cgp_action **lists, int *counts);

/* CGP_EINVAL with the first bad edge. */
cgp_status cgp__edges_check(const cgp_edge *edges, int n_edges, int stages);

/* 0 -> 1, 1 -> 2 ..., then 1 -> 0, 2 -> 1 ...: 2 x links edges. lower.c */
void cgp__chain_edges(cgp_edge *edges, int links);

/* Put in the transfers of a lowered schedule between stages of one device, where it has none. */
cgp_status cgp__lower_local(cgp_schedule *schedule);

/* The position of the backward that goes with a paired F; that of the action itself if it has none. */
int cgp__partner(const cgp_schedule *schedule, int device, int position);

/* A copy, lowered as a chain if the schedule is not lowered. NULL, with a message, if memory is
 * short. */
cgp_schedule *cgp__copy_lowered(const cgp_schedule *schedule);

/* The kind that cgp_action_text() writes so; false if there is none. */
bool cgp__action_kind(const char *word, size_t length, cgp_action_kind *out);

/* Any B, I or W; any action of a kind. */
bool cgp__has_backward(const cgp_schedule *schedule);
bool cgp__has_kind(const cgp_schedule *schedule, cgp_action_kind kind);

/* --- derive.c: what a plan runs --- */

/* The compute actions of the first so many micro-batches, in their order, none paired. Of a schedule
 * that keeps the rules. */
cgp_status cgp__schedule_part(cgp_schedule **out, const cgp_schedule *schedule, int chunks);

/* forward-only on the devices of another schedule, in groups of so many micro-batches. */
cgp_status cgp__schedule_forward(cgp_schedule **out, const cgp_schedule *schedule, int chunks,
                                 int group);

/* Whether all backward actions of each stage, and all forward ones, come in ascending order of
 * micro-batch. */
bool cgp__schedule_ascends(const cgp_schedule *schedule);

/* --- generators: they append to an empty schedule; options are checked before --- */

typedef cgp_status cgp__generator(cgp_schedule *schedule, const cgp_schedule_options *options);

cgp__generator cgp__generate_gpipe, cgp__generate_forward_only;         /* gpipe.c */
cgp__generator cgp__generate_1f1b, cgp__generate_eager_1f1b;            /* one_f_one_b.c */
cgp__generator cgp__generate_interleaved, cgp__generate_interleaved_zb; /* interleaved.c */
cgp__generator cgp__generate_looped_bfs;                                /* looped_bfs.c */
cgp__generator cgp__generate_zb_h1, cgp__generate_zb_h2;                /* zero_bubble.c */
cgp__generator cgp__generate_zb_1p, cgp__generate_zb_2p;                /* greedy.c */
cgp__generator cgp__generate_zb_v;                                      /* zb_v.c */
cgp__generator cgp__generate_v_half, cgp__generate_v_min;               /* v_block.c */
cgp__generator cgp__generate_dualpipe_v;                                /* dualpipe_v.c */

/* A device with two stages in a V, one of the way down (chunk 0) and one of the way back (1), and
 * the next micro-batch of each. v_hand.c */
typedef struct cgp__v_hand {
    cgp_schedule *schedule;
    int stage[2];                           /* of chunk 0 and 1 */
    int forward[2], backward[2], weight[2]; /* next micro-batch of F; of B or I; of W */
} cgp__v_hand;

cgp__v_hand cgp__v_hand_of(cgp_schedule *schedule, int device);

/* Append actions so many times: "F1 I1 W1" is the next F, I and W of chunk 1, "F0&B1" a pair. */
void cgp__v_put(cgp__v_hand *hand, int times, const char *actions);

/* --- check.c --- */

/* Where a schedule is wrong: actions by device and position; behind the last of a device, what is
 * missing there. fault.c */
typedef struct cgp__fault {
    int *position; /* [devices] -1: nothing wrong */
} cgp__fault;

void cgp__fault_add(cgp__fault *fault, int device, int position);

/* Everything that cgp_schedule_check() proves but deadlock freedom. The engine relies on it.
 * Fills in `fault` unless NULL. CGP_ESTATE: not lowered. */
cgp_status cgp__rules_check(const cgp_schedule *schedule, cgp__fault *fault);

/* CGP_EINVAL unless all are finite and 0 or more; NULL has none. simulate.c */
cgp_status cgp__cost_check(const char *what, const double *costs, int count);

/* Every compute action one tick, nothing else any time; without free capacities and critical
 * path. The rules are checked. simulate.c */
cgp_status cgp__simulate_ticks(const cgp_schedule *schedule, cgp_schedule_timeline *out);

/* The rules are checked; `duration` as below; messages take no time. simulate.c */
cgp_status cgp__simulate_durations(const cgp_schedule *schedule, const double *duration,
                                   cgp_schedule_timeline *out);

/* Fill in timeline->critical and critical_path from start and end. `duration` as below. NULL, and
 * `costs` too: of a measured step. critical.c */
cgp_status cgp__find_critical_path(const cgp_schedule *schedule, const double *duration,
                                   const cgp_schedule_costs *costs,
                                   cgp_schedule_timeline *timeline);

/* --- list_order.c: RECV posts a receive, and the action that needs the message waits --- */

/* The order in which devices do their lists, each RECV right before the action that takes its
 * message. */
typedef struct cgp__list_order {
    int devices;
    /* [devices][actions] the position in the list of the k-th action to be done; NULL: the k-th itself */
    int **at;
    /* [edges] at least 1: the largest number of receives that are posted and not taken at one time */
    int *posted;
} cgp__list_order;

/* Of a lowered schedule that keeps the rules. Cost: O(actions + stages x chunks). */
cgp_status cgp__list_order_create(cgp__list_order *o, const cgp_schedule *schedule);
void cgp__list_order_release(cgp__list_order *o);

static inline int cgp__list_order_at(const cgp__list_order *o, int device, int k) {
    return o->at[device] ? o->at[device][k] : k;
}

/* CGP_EINVAL if an edge has not as many buffers as receives are posted on it. */
cgp_status cgp__list_order_check_capacity(const cgp__list_order *o,
                                          const cgp_schedule *schedule, const int *capacity);

/* --- execute.c: the one engine --- */

typedef struct cgp__execution {
    const cgp_schedule *schedule;
    /* What the caller sets, all borrowed, NULL allowed. */
    const double *duration; /* [CGP__COMPUTE_KINDS][stages]; NULL: nothing takes time */
    const cgp_schedule_timeline *measured; /* then each as long as it took there; NULL: none */
    const double *latency;                 /* [edges]; NULL: 0 */
    const double *transfer; /* [edges] on the edge, or on the receiver if blocking; NULL: 0 */
    bool blocking;
    const int *capacity;               /* [edges]; NULL: unbounded */
    double *const *start, *const *end; /* [devices][actions], written unless NULL */
    cgp__list_order order;             /* in which each list is done */
    /* Where it stands. */
    int *next;               /* [devices] the next action, by number in that order */
    double *clock;           /* [devices] end of the last one */
    bool *waiting;           /* [devices] blocked, to be woken */
    int *ready, n_ready;     /* [devices] a stack */
    int *sends, *receives;   /* [edges] how many were done */
    double *arrival;         /* [edges][chunks] by micro-batch: may be taken; < 0: not sent */
    double *sent, *received; /* [edges][chunks] by count: when the k-th was sent, taken */
    double *link;            /* [edges] the last message has left */
} cgp__execution;

cgp_status cgp__execution_create(cgp__execution *x, const cgp_schedule *schedule);
void cgp__execution_release(cgp__execution *x);

/* Back to before the first action; what the caller set stays. */
void cgp__execution_rewind(cgp__execution *x);

/* Execute on from where it stands. Return false if devices wait for each other for ever.
 * Needs a table that keeps the rules. Cost: O(actions). */
bool cgp__execution_run(cgp__execution *x);

/* After a run that returned false: where the devices stand that wait for each other. */
void cgp__execution_cycle(const cgp__execution *x, cgp__fault *fault);

/* After a run that returned false: CGP_EINVAL with the cycle in the message. */
cgp_status cgp__execution_deadlock(const cgp__execution *x);

/* Raise capacity[edges] by as little as lets the schedule run to its end (but not below what is
 * posted at one time): what was raised cannot be smaller by one, and is no larger than one capacity for all edges would have to
 * be. CGP_EINVAL with the cycle if no capacity helps. Forgets where `x` stands and what the
 * caller had set. Cost: O(actions) if nothing is raised, else O(actions x raised edges x log
 * chunks). */
cgp_status cgp__execution_min_capacity(cgp__execution *x, int *capacity);

#endif
