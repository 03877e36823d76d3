/* SPDX-License-Identifier: Apache-2.0 */
/* simulator.h -- the discrete-event simulator of a lowered schedule, and the functions that use
 * it. */
#ifndef CGP_SRC_SCHEDULE_SIMULATOR_SIMULATOR_H
#define CGP_SRC_SCHEDULE_SIMULATOR_SIMULATOR_H

#include "schedule/check.h"

/* --- list_order.c: RECV posts a receive, and the action that needs the message waits --- */

/* The order in which devices run their lists: each RECV right before the action that takes its
 * message. */
typedef struct cgp__list_order {
    int devices;
    /* [devices][actions] the position in the list of the k-th action to run; NULL row: k itself */
    int **at;
    /* [edges] at least 1: the largest number of receives posted and not taken at one time */
    int *posted;
} cgp__list_order;

/* Create the order for a lowered schedule that keeps the rules. Cost: O(actions + stages x
 * chunks). */
cgp_status cgp__list_order_create(cgp__list_order *o, const cgp_schedule *schedule);
void cgp__list_order_release(cgp__list_order *o);

static inline int cgp__list_order_at(const cgp__list_order *o, int device, int k) {
    return o->at[device] ? o->at[device][k] : k;
}

/* Return CGP_EINVAL if an edge has fewer buffers than receives posted on it. */
cgp_status cgp__list_order_check_capacity(const cgp__list_order *o, const cgp_schedule *schedule,
                                          const int *capacity);

/* --- simulator.c --- */

/* Times of compute actions. Arrays are borrowed. */
typedef struct cgp__durations {
    const double *action; /* [CGP__COMPUTE_KINDS][stages] */
    /* [CGP__COMPUTE_KINDS][stages] time of an addition of partial sums after an action; NULL: 0 */
    const double *addition;
    int groups; /* number of gradient groups, if `addition` */
} cgp__durations;

/* Return the time of a compute action, with the additions at its end. */
double cgp__duration_of(const cgp__durations *durations, const cgp_schedule *schedule,
                        const cgp_action *action);

/* The settings of a run, from the caller: all borrowed, NULL allowed. */
typedef struct cgp__simulation {
    const cgp__durations *duration; /* NULL: nothing takes time */
    /* the times of this step replace `duration`; NULL: they do not */
    const cgp_schedule_timeline *measured;
    const double *latency; /* [edges]; NULL: 0 */
    /* [edges] time that a message takes on the edge or, if blocking, on the receiver; NULL: 0 */
    const double *transfer;
    bool blocking;
    const int *capacity;               /* [edges]; NULL: unbounded */
    double *const *start, *const *end; /* [devices][actions] times, written unless NULL */
} cgp__simulation;

typedef struct cgp__simulated_device {
    int next;     /* the next action, by number in the order of list_order.c */
    double clock; /* end of the last action */
    bool waiting; /* the device is blocked, and another device wakes it */
} cgp__simulated_device;

typedef struct cgp__simulated_edge {
    int sends, receives; /* numbers of SENDs and RECVs done */
    double link;         /* time at which the link has transmitted its last message */
} cgp__simulated_edge;

typedef struct cgp__simulated_message {
    double arrival;        /* time at which micro-batch k arrives; < 0: not sent */
    double sent, received; /* times of the k-th message in order of time */
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

/* Return to the state before the first action; keep the caller's settings. */
void cgp__simulator_reset(cgp__simulator *x);

/* Run from the current state. CGP_EINVAL if devices deadlock, with the cycle in the message; unless
 * `marks` is NULL, marks[device] is the position of the device's action that is in the cycle. The
 * schedule must keep the rules. Cost: O(actions). */
cgp_status cgp__simulator_run(cgp__simulator *x, int *marks);

/* Raise capacity[edges] to at least the receives posted at one time, and from there as little as
 * possible until the schedule runs to its end. No raised entry can be smaller by one, and none
 * exceeds the least capacity that suffices if all edges have it. CGP_EINVAL with the cycle if no
 * capacity helps. The state and the caller's settings are lost. Cost: O(actions) if nothing is
 * raised, else O(actions x raised edges x log chunks). */
cgp_status cgp__simulator_min_capacity(cgp__simulator *x, int *capacity);

/* --- simulate.c --- */

/* Simulate with one tick per compute action and 0 for all else; leave out free capacities and the
 * critical path. Checks the rules. */
cgp_status cgp__simulate_ticks(const cgp_schedule *schedule, cgp_schedule_timeline *out);

/* Simulate with messages that take no time. The schedule must keep the rules. */
cgp_status cgp__simulate_durations(const cgp_schedule *schedule, const cgp__durations *durations,
                                   cgp_schedule_timeline *out);

/* Return the sum of the durations of a device's compute actions. */
double cgp__compute_time(const cgp_schedule *schedule, const cgp__durations *durations, int device);

/* --- critical.c --- */

/* Fill in timeline->critical and critical_path from start and end. For a measured step, `durations`
 * and `costs` are NULL. */
cgp_status cgp__find_critical_path(const cgp_schedule *schedule, const cgp__durations *durations,
                                   const cgp_schedule_costs *costs,
                                   cgp_schedule_timeline *timeline);

#endif
