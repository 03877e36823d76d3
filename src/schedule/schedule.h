/* schedule.h -- inside the schedule room: the table, how one is built, and the engine that
 * executes it.
 *
 *     generator or lists -> recompute.c -> lower.c -> check.c     rules, execute.c without time
 *                                                  -> simulate.c  rules, execute.c with time
 *                                                  -> draw.c      rules, execute.c in ticks */
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

/* A schedule with stage j on device j and room for `per_chunk` x chunks actions on each
 * device, for a generator to fill. */
cgp_status cgp__schedule_new(cgp_schedule **out, const char *name, int stages, int chunks,
                             int per_chunk);

/* Lists of the given lengths, zeroed; NULL when short. */
cgp_action **cgp__lists_new(int devices, const int *counts);
void cgp__lists_free(cgp_action **lists, int devices);

/* Put other lists in place; both arrays are taken. */
void cgp__schedule_replace(cgp_schedule *schedule, cgp_action **lists, int *counts);

/* CGP_EINVAL with the first bad edge. */
cgp_status cgp__edges_check(const cgp_edge *edges, int n_edges, int stages);

/* Any B, I or W. */
bool cgp__has_backward(const cgp_schedule *schedule);

/* --- check.c --- */

/* Everything that cgp_schedule_check() proves but deadlock freedom. The engine relies on it.
 * CGP_ESTATE: not lowered. */
cgp_status cgp__rules_check(const cgp_schedule *schedule);

/* --- execute.c: the one engine --- */

typedef struct cgp__execution {
    const cgp_schedule *schedule;
    /* What the caller sets, all borrowed, NULL allowed. */
    const double *duration; /* [CGP__COMPUTE_KINDS][stages]; NULL: nothing takes time */
    const double *latency;  /* [edges]; NULL: 0 */
    const int *capacity;    /* [edges]; NULL: unbounded */
    double *const *start, *const *end; /* [devices][actions], written unless NULL */
    /* Where it stands. */
    int *next;               /* [devices] position of the next action */
    double *clock;           /* [devices] end of the last one */
    bool *waiting;           /* [devices] blocked, to be woken */
    int *ready, n_ready;     /* [devices] a stack */
    int *sends, *receives;   /* [edges] how many were done */
    double *arrival;         /* [edges][chunks] by micro-batch: RECV may end; < 0: not sent */
    double *sent, *received; /* [edges][chunks] by count: when the k-th was done */
} cgp__execution;

cgp_status cgp__execution_create(cgp__execution *x, const cgp_schedule *schedule);
void cgp__execution_release(cgp__execution *x);

/* Back to before the first action; what the caller set stays. */
void cgp__execution_rewind(cgp__execution *x);

/* Execute on from where it stands. Return false if devices wait for each other for ever.
 * Needs a table that keeps the rules. Cost: O(actions). */
bool cgp__execution_run(cgp__execution *x);

/* After a run that returned false: CGP_EINVAL with the cycle in the message. */
cgp_status cgp__execution_deadlock(const cgp__execution *x);

/* Raise capacity[edges] by as little as lets the schedule run to its end: what was raised
 * cannot be smaller by one, and is no larger than one capacity for all edges would have to
 * be. CGP_EINVAL with the cycle if no capacity helps. Forgets where `x` stands and what the
 * caller had set. Cost: O(actions) if nothing is raised, else O(actions x raised edges x log
 * chunks). */
cgp_status cgp__execution_least_capacity(cgp__execution *x, int *capacity);

#endif
