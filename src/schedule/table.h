/* SPDX-License-Identifier: Apache-2.0 */
/* table.h -- the table in a cgp_schedule, which has a list of actions for each device. The modules
 * use it in this order:
 *
 *     generator, csv.c or lists -> recompute.c -> lower.c -> check.c     simulator without times
 *                                                         -> simulate.c  simulator with times
 *                                                         -> draw.c      simulator in ticks
 *
 * simulate.c and draw.c also check the rules first. */
#ifndef CGP_SRC_SCHEDULE_TABLE_H
#define CGP_SRC_SCHEDULE_TABLE_H

#include <cgpipe/schedule.h>

#include "base/base.h"
#include "schedule/kinds.h"

#define CGP__COMPUTE_KINDS 5 /* F, B, I, W and R, which come first in cgp_action_kind */
/* largest number of stages x micro-batches; the limit keeps a mistyped number from taking all
 * memory */
#define CGP__SCHEDULE_LIMIT (1 << 24)
#define CGP__ACTION_TEXT 40 /* number of bytes that suffice for the text of any action */

struct cgp_schedule {
    char *name;
    int stages, chunks, devices;
    int *device_of;     /* [stages] */
    cgp_action **lists; /* [devices][counts[device]] */
    int *counts;        /* [devices] */
    int *capacity;      /* [devices] capacities of the lists */
    bool incomplete;    /* true: memory was short, and an action was not appended */
    bool lowered;
    cgp_edge *edges; /* [n_edges] edges; only a lowered schedule has them */
    int n_edges;
};

/* --- table.c --- */

/* Create an empty schedule, to which actions can be appended. device_of: [stages] device of each
 * stage; NULL: all stages are on device 0 until the caller places them. */
cgp_status cgp__schedule_new(cgp_schedule **out, const char *name, int stages, int chunks,
                             int devices, const int *device_of);

/* Append a copy of an action to the list of its stage's device. If memory is short, the action is
 * left out, and cgp__schedule_finish() reports the failure. */
void cgp__append_action(cgp_schedule *schedule, const cgp_action *action);

/* Append a compute action, as cgp__append_action() does. Leave it out if its micro-batch is
 * surplus, that is, not below the schedule's number of micro-batches. */
void cgp__append(cgp_schedule *schedule, cgp_action_kind kind, int stage, int microbatch);

/* Copy edges into a schedule. The schedule's lists have the transfers on these edges already, or
 * get them later. */
cgp_status cgp__set_edges(cgp_schedule *schedule, const cgp_edge *edges, int n_edges);

/* Finish a schedule and set *out to it. If `status` is a failure, or memory was short, destroy the
 * schedule and return the failure. */
cgp_status cgp__schedule_finish(cgp_schedule **out, cgp_schedule *schedule, cgp_status status);

/* Replace the lists and edges of a schedule with the lists and edges of `rebuilt`, which has the
 * same placement. This function takes ownership of `rebuilt`, even if it fails. */
cgp_status cgp__schedule_replace(cgp_schedule *schedule, cgp_schedule *rebuilt);

/* Return CGP_EINVAL if stages x `chunks` is above CGP__SCHEDULE_LIMIT. `chunks` counts the surplus
 * micro-batches too. */
cgp_status cgp__surplus_check(const cgp_schedule *schedule, int64_t chunks);

/* A cursor that walks all actions, device by device. It starts as {0}; cgp__next() returns false
 * after the last action. */
typedef struct cgp__cursor {
    int device, position;
    const cgp_action *action;
} cgp__cursor;

bool cgp__next(const cgp_schedule *schedule, cgp__cursor *at);

/* Return CGP_EINVAL with a message such as "schedule: device 1, position 4, 1B0: <rule>". */
cgp_status cgp__wrong_action(const cgp_action *action, int device, int position, const char *rule,
                             ...) CGP_PRINTF(4, 5);

/* Check edges. @retval CGP_EINVAL The message has the first bad edge. */
cgp_status cgp__edges_check(const cgp_edge *edges, int n_edges, int stages);

/* cgp__has_backward() returns true if the schedule has a B, I or W. cgp__has_kind() returns true if
 * the schedule has an action of `kind`. */
bool cgp__has_backward(const cgp_schedule *schedule);
bool cgp__has_kind(const cgp_schedule *schedule, cgp_action_kind kind);

/* --- freeze.c --- */

/* For each stage, find the kind of action that ends a micro-batch. The caller frees the result,
 * (*ends)[stages]. The kind is F on a stage without backward. It is B or I if all backward actions
 * of the stage are of that kind. Otherwise it is W, but a B also ends its micro-batch. */
cgp_status cgp__stage_ends(const cgp_schedule *schedule, cgp_action_kind **ends);

/* Return true if an action ends its micro-batch on its stage. */
static inline bool cgp__ends(const cgp_action *action, const cgp_action_kind *ends) {
    return action->kind == CGP_ACTION_B || action->kind == ends[action->stage];
}

/* --- lower.c --- */

/* Return the number of gradient edges that the chain of a schedule lacks. If the first stages have
 * no backward, the chain lacks one gradient edge for each of these stages. */
int cgp__chain_starts(const cgp_schedule *schedule);

/* Set the edges of a chain, and insert the transfers between stages of one device. The lists must
 * have all other transfers already. */
cgp_status cgp__lower_local(cgp_schedule *schedule);

/* Return the list position of the backward with which an overlapped F runs. For any other action,
 * return the action's own position. */
int cgp__partner(const cgp_schedule *schedule, int device, int position);

/* Return a copy of a schedule. If the schedule is not lowered, the copy is lowered as a chain.
 * Return NULL, with a message, if memory is short. */
cgp_schedule *cgp__copy_lowered(const cgp_schedule *schedule);

/* --- registry.c --- */

/* Return true if the generator of the schedule of this name takes the costs of the stages into
 * account. */
bool cgp__schedule_needs_costs(const char *name);

/* Set the least and the largest value of the option in_flight that a schedule accepts on n devices.
 * Return false if the schedule has no such option. */
bool cgp__in_flight_range(const char *name, int devices, int *least, int *most);

/* --- derive.c --- */

/* Create a schedule with the compute actions of the first `chunks` micro-batches, in the same order
 * and without overlapped pairs. `schedule` must keep the rules. */
cgp_status cgp__schedule_part(cgp_schedule **out, const cgp_schedule *schedule, int chunks);

/* Create the schedule `forward-only` on the devices of another schedule, in groups of `group`
 * micro-batches. */
cgp_status cgp__schedule_forward(cgp_schedule **out, const cgp_schedule *schedule, int chunks,
                                 int group);

/* Return true if, on each stage, both the forward passes and the backward passes come in ascending
 * order of micro-batches. */
bool cgp__schedule_ascends(const cgp_schedule *schedule);

/* Return true if the backward passes of each stage come in ascending order of micro-batches. */
bool cgp__schedule_backward_ascends(const cgp_schedule *schedule);

/* Return true if no device has a forward after a backward. */
bool cgp__schedule_forward_first(const cgp_schedule *schedule);

#endif
