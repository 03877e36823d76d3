/* SPDX-License-Identifier: Apache-2.0 */
/* simulator.h -- the discrete-event simulator of a lowered schedule, and the functions that use
 * it. */
#ifndef CGP_SRC_SCHEDULE_SIMULATOR_SIMULATOR_H
#define CGP_SRC_SCHEDULE_SIMULATOR_SIMULATOR_H

#include "schedule/check.h"

/* --- list_order.c: RECV posts a receive, and the action that needs the message waits --- */

/* The order in which devices run their lists. Each RECV runs right before the action that takes its
 * message. */
typedef struct cgp__list_order {
    int devices;
    /* [devices][actions] entry k is the list position of action number k in the order in which the
     * device runs its list; a NULL row: the position is k itself */
    int **at;
    /* [edges] the largest number of receives that are posted and not taken at one time; at least
     * 1 */
    int *posted;
} cgp__list_order;

/* Create the order for a lowered schedule that keeps the rules. Cost: O(actions + stages x
 * chunks). */
cgp_status cgp__list_order_create(cgp__list_order *o, const cgp_schedule *schedule);
void cgp__list_order_release(cgp__list_order *o);

static inline int cgp__list_order_at(const cgp__list_order *o, int device, int k) {
    return o->at[device] ? o->at[device][k] : k;
}

/* Return CGP_EINVAL if an edge has fewer buffers than receives that are posted on it at one
 * time. */
cgp_status cgp__list_order_check_capacity(const cgp__list_order *o, const cgp_schedule *schedule,
                                          const int *capacity);

/* --- simulator.c --- */

/* Times of compute actions. Arrays are borrowed. */
typedef struct cgp__durations {
    const double *action; /* [CGP__COMPUTE_KINDS][stages] */
    /* [CGP__COMPUTE_KINDS][stages] time of an addition of partial sums after an action; NULL: 0 */
    const double *addition;
    int groups; /* number of gradient groups; used if `addition` is not NULL */
} cgp__durations;

/* Return the time of a compute action, including the additions at its end. */
double cgp__duration_of(const cgp__durations *durations, const cgp_schedule *schedule,
                        const cgp_action *action);

/* The settings of a run, which the caller gives. All pointers are borrowed and may be NULL. */
typedef struct cgp__simulation {
    const cgp__durations *duration; /* NULL: nothing takes time */
    /* a measured step whose times replace `duration`; NULL: none */
    const cgp_schedule_timeline *measured;
    const double *latency; /* [edges] latency of a message; NULL: 0 */
    /* [edges] time that a message takes on the edge, or on the receiver if transfers block; NULL:
     * 0 */
    const double *transfer;
    bool blocking;
    const int *capacity;               /* [edges] numbers of buffers; NULL: unbounded */
    double *const *start, *const *end; /* [devices][actions] the run writes the times here, unless
                                        * they are NULL */
} cgp__simulation;

typedef struct cgp__simulated_device {
    int next;     /* number of the device's next action, in the order of list_order.c */
    double clock; /* end of the last action */
    bool waiting; /* true: the device is blocked, and another device will wake it */
} cgp__simulated_device;

typedef struct cgp__simulated_edge {
    int sends, receives; /* numbers of SENDs and RECVs done */
    double link;         /* time at which the link has transmitted its last message */
} cgp__simulated_edge;

typedef struct cgp__simulated_message {
    double arrival;        /* time at which the message of micro-batch k arrives; < 0: it is not
                            * sent yet */
    double sent, received; /* times at which the k-th message, in order of time, was sent and
                            * received */
} cgp__simulated_message;

typedef struct cgp__simulator {
    const cgp_schedule *schedule;
    cgp__simulation set;
    cgp__list_order order;
    /* The members below are the state of the simulation. */
    cgp__simulated_device *devices;
    int *ready, n_ready; /* [devices] a stack */
    cgp__simulated_edge *edges;
    cgp__simulated_message *messages; /* [edges][chunks] */
} cgp__simulator;

cgp_status cgp__simulator_create(cgp__simulator *x, const cgp_schedule *schedule);
void cgp__simulator_release(cgp__simulator *x);

/* Reset the simulator to the state before the first action. The caller's settings stay. */
void cgp__simulator_reset(cgp__simulator *x);

/* Run from the current state. The schedule must keep the rules. Return CGP_EINVAL if devices
 * deadlock; the message describes the cycle of waits. In this case, unless `marks` is NULL,
 * marks[device] is set for each device in the cycle, to the list position of the device's action in
 * the cycle. Cost: O(actions). */
cgp_status cgp__simulator_run(cgp__simulator *x, int *marks);

/* Raise each entry of capacity[edges] to at least the number of receives posted at one time. Then
 * raise entries as little as possible, until the schedule runs to its end. No raised entry can be
 * smaller by one, and none exceeds the least capacity that suffices if all edges have it. If no
 * capacity helps, return CGP_EINVAL; the message describes the cycle of waits. The state and the
 * caller's settings are lost. Cost: O(actions) if nothing is raised, else O(actions x raised edges
 * x log chunks). */
cgp_status cgp__simulator_min_capacity(cgp__simulator *x, int *capacity);

/* --- simulate.c --- */

/* Check the rules, and simulate with one tick per compute action and no time for anything else.
 * Free capacities and the critical path are not computed. */
cgp_status cgp__simulate_ticks(const cgp_schedule *schedule, cgp_schedule_timeline *out);

/* Simulate with messages that take no time. The schedule must keep the rules. */
cgp_status cgp__simulate_durations(const cgp_schedule *schedule, const cgp__durations *durations,
                                   cgp_schedule_timeline *out);

/* Return the sum of the durations of a device's compute actions. */
double cgp__compute_time(const cgp_schedule *schedule, const cgp__durations *durations, int device);

/* --- critical.c --- */

/* Fill in the timeline's `critical` and `critical_path` from its `start` and `end`. For a measured
 * step, `durations` and `costs` are NULL. */
cgp_status cgp__find_critical_path(const cgp_schedule *schedule, const cgp__durations *durations,
                                   const cgp_schedule_costs *costs,
                                   cgp_schedule_timeline *timeline);

#endif
