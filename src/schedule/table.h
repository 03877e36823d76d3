/* SPDX-License-Identifier: Apache-2.0 */
/* table.h -- the table in a cgp_schedule: a list of actions per device.
 *
 *     generator, csv.c or lists -> recompute.c -> lower.c -> check.c     simulator without times
 *                                                         -> simulate.c  simulator with times
 *                                                         -> draw.c      simulator in ticks
 *
 * The last three check the rules first. */
#ifndef CGP_SRC_SCHEDULE_TABLE_H
#define CGP_SRC_SCHEDULE_TABLE_H

#include <cgpipe/schedule.h>

#include "base/base.h"
#include "schedule/kinds.h"

#define CGP__COMPUTE_KINDS 5 /* F B I W R: the first of cgp_action_kind */
/* largest number of stages x micro-batches: a mistyped number must not take all memory */
#define CGP__SCHEDULE_LIMIT (1 << 24)
#define CGP__ACTION_TEXT 40 /* bytes that hold the text of any action */

struct cgp_schedule {
    char *name;
    int stages, chunks, devices;
    int *device_of;     /* [stages] */
    cgp_action **lists; /* [devices][counts[device]] */
    int *counts;        /* [devices] */
    int *capacity;      /* [devices] capacities of the lists */
    bool incomplete;    /* memory was short: an action was not appended */
    bool lowered;
    cgp_edge *edges; /* [n_edges] in a lowered schedule */
    int n_edges;
};

/* --- table.c --- */

/* Create an empty schedule to append to, with device_of[stages]; NULL: all on device 0 until the
 * caller places them. */
cgp_status cgp__schedule_new(cgp_schedule **out, const char *name, int stages, int chunks,
                             int devices, const int *device_of);

/* Append a copy of an action to the list of its stage's device. If memory is short, leave it out;
 * cgp__schedule_finish() reports that. */
void cgp__append_action(cgp_schedule *schedule, const cgp_action *action);

/* Append a compute action in the same way. Leave it out if its micro-batch is surplus: not below
 * the schedule's number. */
void cgp__append(cgp_schedule *schedule, cgp_action_kind kind, int stage, int microbatch);

/* Copy the edges into a schedule. The schedule's lists have the transfers already, or get them
 * later. */
cgp_status cgp__set_edges(cgp_schedule *schedule, const cgp_edge *edges, int n_edges);

/* Hand over a finished schedule in *out. If `status` is a failure, or memory was short, destroy the
 * schedule and return the failure. */
cgp_status cgp__schedule_finish(cgp_schedule **out, cgp_schedule *schedule, cgp_status status);

/* Replace lists and edges with the lists and edges of a schedule that has the same placement. Takes
 * ownership of `rebuilt`, also after a failure. */
cgp_status cgp__schedule_replace(cgp_schedule *schedule, cgp_schedule *rebuilt);

/* Return CGP_EINVAL if stages x `chunks` is above CGP__SCHEDULE_LIMIT. `chunks` counts the surplus
 * micro-batches too. */
cgp_status cgp__surplus_check(const cgp_schedule *schedule, int64_t chunks);

/* Walks all actions, device by device. Start at {0}; cgp__next() returns false after the last. */
typedef struct cgp__cursor {
    int device, position;
    const cgp_action *action;
} cgp__cursor;

bool cgp__next(const cgp_schedule *schedule, cgp__cursor *at);

/* Return CGP_EINVAL with "schedule: device 1, position 4, 1B0: <rule>". */
cgp_status cgp__wrong_action(const cgp_action *action, int device, int position, const char *rule,
                             ...) CGP_PRINTF(4, 5);

/* Return CGP_EINVAL with the first bad edge. */
cgp_status cgp__edges_check(const cgp_edge *edges, int n_edges, int stages);

/* cgp__has_backward() returns true if the schedule has a B, I or W. cgp__has_kind() returns true if
 * the schedule has an action of `kind`. */
bool cgp__has_backward(const cgp_schedule *schedule);
bool cgp__has_kind(const cgp_schedule *schedule, cgp_action_kind kind);

/* --- freeze.c --- */

/* Find the kind of action that ends a micro-batch on each stage, [stages], freed by the caller. It
 * is F on a stage without backward. It is B or I if all backward actions of the stage are of that
 * kind. Otherwise it is W, but a B ends its micro-batch too. */
cgp_status cgp__stage_ends(const cgp_schedule *schedule, cgp_action_kind **ends);

/* Return true if an action ends its micro-batch on its stage. */
static inline bool cgp__ends(const cgp_action *action, const cgp_action_kind *ends) {
    return action->kind == CGP_ACTION_B || action->kind == ends[action->stage];
}

/* --- lower.c --- */

/* Return the number of gradient edges that the chain of a schedule lacks: one for each of the first
 * stages that have no backward. */
int cgp__chain_starts(const cgp_schedule *schedule);

/* Set the edges of a chain, and insert the transfers between stages of one device. The lists have
 * all other transfers. */
cgp_status cgp__lower_local(cgp_schedule *schedule);

/* Return the position of the backward that an overlapped F runs with, or the action's own position
 * if there is none. */
int cgp__partner(const cgp_schedule *schedule, int device, int position);

/* Return a copy, lowered as a chain if the schedule is not lowered. NULL with a message if memory
 * is short. */
cgp_schedule *cgp__copy_lowered(const cgp_schedule *schedule);

/* --- registry.c --- */

/* True if the schedule of this name is generated for the costs of its stages. */
bool cgp__schedule_needs_costs(const char *name);

/* Set the least and the most in_flight that a schedule takes on n devices. Return false if it has
 * no such option. */
bool cgp__in_flight_range(const char *name, int devices, int *least, int *most);

/* --- derive.c --- */

/* Create a schedule with the compute actions of the first `chunks` micro-batches, in the same order
 * and without overlapped pairs. `schedule` must keep the rules. */
cgp_status cgp__schedule_part(cgp_schedule **out, const cgp_schedule *schedule, int chunks);

/* Create the schedule forward-only on the devices of another schedule, in groups of `group`
 * micro-batches. */
cgp_status cgp__schedule_forward(cgp_schedule **out, const cgp_schedule *schedule, int chunks,
                                 int group);

/* True if the forward passes of each stage, and its backward passes, come in ascending order of
 * micro-batch. */
bool cgp__schedule_ascends(const cgp_schedule *schedule);

/* True if the backward passes of each stage come in ascending order of micro-batch. */
bool cgp__schedule_backward_ascends(const cgp_schedule *schedule);

/* True if no device has a forward after a backward. */
bool cgp__schedule_forward_first(const cgp_schedule *schedule);

#endif
