/* SPDX-License-Identifier: Apache-2.0 */
/* simulator.h -- the discrete-event simulator of a lowered schedule, and what is found by it. */
#ifndef CGP_SRC_SCHEDULE_SIMULATOR_SIMULATOR_H
#define CGP_SRC_SCHEDULE_SIMULATOR_SIMULATOR_H

#include "schedule/check.h"

/* --- list_order.c: RECV posts a receive, and the action that needs the message waits --- */

/* The order in which devices run their lists, each RECV right before the action that takes its
 * message. */
typedef struct cgp__list_order {
    int devices;
    /* [devices][actions] the position in the list of the k-th action to run; NULL: the k-th itself
     * */
    int **at;
    /* [edges] at least 1: the largest number of receives that are posted and not taken at one time
     * */
    int *posted;
} cgp__list_order;

/* Of a lowered schedule that keeps the rules. Cost: O(actions + stages x chunks). */
cgp_status cgp__list_order_create(cgp__list_order *o, const cgp_schedule *schedule);
void cgp__list_order_release(cgp__list_order *o);

static inline int cgp__list_order_at(const cgp__list_order *o, int device, int k) {
    return o->at[device] ? o->at[device][k] : k;
}

/* CGP_EINVAL if an edge has fewer buffers than receives are posted on it. */
cgp_status cgp__list_order_check_capacity(const cgp__list_order *o, const cgp_schedule *schedule,
                                          const int *capacity);

/* --- simulator.c --- */

/* How to run: set by the caller, all borrowed, NULL allowed. */
typedef struct cgp__simulation {
    const double *duration; /* [CGP__COMPUTE_KINDS][stages]; NULL: nothing takes time */
    const cgp_schedule_timeline *measured; /* then each action takes its time there; NULL: none */
    const double *latency;                 /* [edges]; NULL: 0 */
    const double *transfer; /* [edges] on the edge, or on the receiver if blocking; NULL: 0 */
    bool blocking;
    const int *capacity;               /* [edges]; NULL: unbounded */
    double *const *start, *const *end; /* [devices][actions], written unless NULL */
} cgp__simulation;

typedef struct cgp__simulated_device {
    int next;     /* the next action, by number in the order of list_order.c */
    double clock; /* end of the last one */
    bool waiting; /* blocked, to be woken */
} cgp__simulated_device;

typedef struct cgp__simulated_edge {
    int sends, receives; /* how many are done */
    double link;         /* the last message has left */
} cgp__simulated_edge;

typedef struct cgp__simulated_message {
    double arrival;        /* of the k-th micro-batch: may be taken; < 0: not sent */
    double sent, received; /* when the k-th in order of time was sent, taken */
} cgp__simulated_message;

typedef struct cgp__simulator {
    const cgp_schedule *schedule;
    cgp__simulation set;
    cgp__list_order order;
    /* The state. */
    cgp__simulated_device *devices;
    int *ready, n_ready; /* [devices] a stack */
    cgp__simulated_edge *edges;
    cgp__simulated_message *messages; /* [edges][chunks] */
} cgp__simulator;

cgp_status cgp__simulator_create(cgp__simulator *x, const cgp_schedule *schedule);
void cgp__simulator_release(cgp__simulator *x);

/* Go back to before the first action; the caller's settings stay. */
void cgp__simulator_reset(cgp__simulator *x);

/* Run on from the current state. CGP_EINVAL if devices wait for each other for ever, with the cycle
 * in the message; unless NULL, marks[device] is the position of its action in the cycle. The
 * schedule keeps the rules. Cost: O(actions). */
cgp_status cgp__simulator_run(cgp__simulator *x, int *marks);

/* Raise capacity[edges] by as little as lets the schedule run to its end, and not below the
 * receives posted at one time: no raised entry can be smaller by one, and none is larger than one
 * capacity for all edges would have to be. CGP_EINVAL with the cycle if no capacity helps. Loses
 * the state and the caller's settings. Cost: O(actions) if nothing is raised, else O(actions x
 * raised edges x log chunks). */
cgp_status cgp__simulator_min_capacity(cgp__simulator *x, int *capacity);

/* --- simulate.c --- */

/* Every compute action one tick, nothing else any time; without free capacities and critical path.
 * Checks the rules. */
cgp_status cgp__simulate_ticks(const cgp_schedule *schedule, cgp_schedule_timeline *out);

/* Messages take no time; `duration` [CGP__COMPUTE_KINDS][stages]. The schedule keeps the rules. */
cgp_status cgp__simulate_durations(const cgp_schedule *schedule, const double *duration,
                                   cgp_schedule_timeline *out);

/* The sum of a device's compute actions. */
double cgp__compute_time(const cgp_schedule *schedule, const double *duration, int device);

/* --- critical.c --- */

/* Fill in timeline->critical and critical_path from start and end. Of a measured step `duration`
 * and `costs` are NULL. */
cgp_status cgp__find_critical_path(const cgp_schedule *schedule, const double *duration,
                                   const cgp_schedule_costs *costs,
                                   cgp_schedule_timeline *timeline);

#endif
