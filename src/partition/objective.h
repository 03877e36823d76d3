/* SPDX-License-Identifier: Apache-2.0 */
/* objective.h -- the value of cuts: excess bytes, the makespan of the simulated step, the bytes of
 * the fullest device, and how uneven devices and stages are. */
#ifndef CGP_SRC_PARTITION_OBJECTIVE_H
#define CGP_SRC_PARTITION_OBJECTIVE_H

#include <cgpipe/schedule.h>

#include "partition/layer_sums.h"
#include "partition/local_search.h"

/* Makes a schedule of compute actions, which can run if each stage waits for its neighbours. */
typedef struct cgp__schedule_source {
    /* cuts: [stages + 1] for a schedule that depends on the layers of stages; NULL: there are no
     * cuts yet. *out is owned by the caller. */
    cgp_status (*make)(void *self, const int *cuts, cgp_schedule **out);
    void *self;
    /* the schedule depends on the cuts */
    bool varies;
} cgp__schedule_source;

typedef struct cgp__ordered_action cgp__ordered_action;

typedef struct cgp__objective {
    const cgp__layer_sums *sums;
    cgp__schedule_source source;
    /* [devices] bytes that a device should not exceed. A smaller excess has priority over a smaller
     * makespan. All 0: memory is the first goal. NULL: no caps. */
    const int64_t *caps;
    int stages, devices, chunks;
    /* [stages] device of each stage */
    int *device_of;
    /* actions in an order in which each comes after all actions that it waits for */
    cgp__ordered_action *order;
    int n, capacity;
    /* [5][stages] number of actions of each kind */
    int *counts;
    /* [stages] largest number of micro-batches between F and the end of backward, and between F or
     * R and the end of backward */
    int *inputs, *saved;
    /* [5][stages] times of actions; [devices] end of the last action, and sums of times */
    int64_t *duration, *clock, *load;
    /* [chunks][stages] times at which F ends, and at which B or I ends */
    int64_t *forward, *backward;
    /* [stages + 1], [..] lists of the stages that F of a stage waits for, and lists for B and I */
    int *first[2], *waits[2];
    /* [layers], [stages][stages] if links are not a chain: the stage of each layer, and linked
     * stages */
    int *stage_of;
    uint8_t *linked;
    int64_t simulations;
} cgp__objective;

/* Create an objective. `sums`, the source and the caps are borrowed. The caller releases it, also
 * after a failure. */
cgp_status cgp__objective_create(cgp__objective *objective, const cgp__layer_sums *sums,
                                 const cgp__schedule_source *source, const int64_t *caps);
void cgp__objective_release(cgp__objective *objective);

/* A cgp__evaluate(); self is the objective. It spends 1 for each action that it simulates, and
 * CGP__GENERATE more if the schedule varies: the measured cost of generating one. */
enum { CGP__GENERATE = 500 };
cgp__evaluate cgp__objective_evaluate;

/* Set bytes[devices] to the estimated bytes of each device. */
void cgp__objective_bytes(const cgp__objective *objective, const int *cuts, int64_t *bytes);

/* Set time[stages] to the time of each stage's actions on a critical path of the cuts. */
cgp_status cgp__objective_critical(cgp__objective *objective, const int *cuts, int64_t *time);

#endif
