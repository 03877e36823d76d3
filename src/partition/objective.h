/* SPDX-License-Identifier: Apache-2.0 */
/* objective.h -- computes the value of cuts from four numbers: excess bytes, the makespan of the
 * simulated step, the bytes of the fullest device, and the unevenness of devices and stages. */
#ifndef CGP_SRC_PARTITION_OBJECTIVE_H
#define CGP_SRC_PARTITION_OBJECTIVE_H

#include <cgpipe/schedule.h>

#include "partition/layer_sums.h"
#include "partition/local_search.h"

/* A source of schedules. It makes a schedule of compute actions that can run if each stage waits
 * for its neighbours. */
typedef struct cgp__schedule_source {
    /* Make the schedule. `cuts` [stages + 1] is needed if the schedule depends on the layers of
     * stages; NULL: there are no cuts yet. The caller owns *out. */
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
    /* all actions, in an order in which each action comes after all actions that it waits for */
    cgp__ordered_action *order;
    int n, capacity;
    /* [5][stages] number of actions of each kind */
    int *counts;
    /* two arrays [stages]. `inputs`: the largest number of micro-batches between F and the end of
     * backward. `saved`: the same number, but counted from R instead of F if the stage has R. */
    int *inputs, *saved;
    /* [5][stages] times of actions; [devices] end of each device's last action; [devices] sum of
     * each device's times */
    int64_t *duration, *clock, *load;
    /* [chunks][stages] times at which F ends, and at which B or I ends */
    int64_t *forward, *backward;
    /* for F (index 0) and for B or I (index 1): the lists of stages for which each stage waits.
     * `waits` has all lists, one after the other; `first` [stages + 1] has the start of each
     * list. */
    int *first[2], *waits[2];
    /* used if links are not a chain: [layers] the stage of each layer, and [stages][stages] which
     * stages are linked */
    int *stage_of;
    uint8_t *linked;
    int64_t simulations;
} cgp__objective;

/* Create an objective. `sums`, the source and the caps are borrowed. The caller must release the
 * objective, also after a failure. */
cgp_status cgp__objective_create(cgp__objective *objective, const cgp__layer_sums *sums,
                                 const cgp__schedule_source *source, const int64_t *caps);
void cgp__objective_release(cgp__objective *objective);

/* A cgp__evaluate function, whose `self` is the objective. It spends 1 for each action that it
 * simulates. If the schedule varies, it spends CGP__GENERATE more per action, which is the measured
 * cost of generating an action. */
enum { CGP__GENERATE = 500 };
cgp__evaluate cgp__objective_evaluate;

/* Set bytes[devices] to the estimated bytes of each device. */
void cgp__objective_bytes(const cgp__objective *objective, const int *cuts, int64_t *bytes);

/* Set time[stages] to the total time of each stage's actions that lie on a critical path. */
cgp_status cgp__objective_critical(cgp__objective *objective, const int *cuts, int64_t *time);

#endif
