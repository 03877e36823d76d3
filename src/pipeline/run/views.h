/* SPDX-License-Identifier: Apache-2.0 */
/* views.h -- views. A view is a snapshot of one worker: the action that it runs, or the device for
 * which it waits.
 *
 * A worker's trace shows the worker's progress: the number of this run's events equals the list
 * index of the action in progress. The trace is read while it grows, up to the last complete event.
 * It has room for a whole action list, so no event of this run is overwritten. An update or a sum
 * of gradients counts as one action of each device.
 *
 * A busy worker either waits for a link or runs an action. The worker that has run its action
 * longest is blamed for the hang. If all workers wait, the chain of waiting devices is a cycle or
 * leads to another rank. Call every function with the team's lock held. */
#ifndef CGP_SRC_PIPELINE_VIEWS_H
#define CGP_SRC_PIPELINE_VIEWS_H

#include <cgpipe/plan.h>

#include "base/base.h"

typedef struct cgp__bound_action cgp__bound_action;
typedef struct cgp__executor cgp__executor;
typedef struct cgp__node cgp__node;

/* A snapshot of a worker. */
typedef struct cgp__view {
    const cgp__executor *executor;
    int device;
    bool is_here;                   /* set if the worker is on this rank */
    bool busy;                      /* set if the worker has not ended its job */
    const cgp__bound_action *bound; /* action in progress; NULL: the worker runs no action of a
                                     * list */
    bool waits;
    int waits_for;    /* if `waits`: the device for which the worker waits */
    int64_t since_ns; /* start of the action in progress, or of the job */
    int64_t written;  /* number of events in the worker's trace */
    int64_t next;     /* number of events that are not yet in the report; the report takes the
                       * latest events first */
} cgp__view;

/* Take a snapshot of a device's worker. If the worker is on another rank, the snapshot is empty. */
cgp__view cgp__view_of(const cgp__executor *executor, int device);

/* Take snapshots of all workers: fill views [devices]. Return false if a worker has ended an action
 * while the snapshots were taken. */
bool cgp__views_take(const cgp__executor *executor, cgp__view *views);

/* Return the view of the device that has run its action longest or, if all devices wait, of the
 * device that has waited longest. NULL: no device is busy. */
const cgp__view *cgp__views_blamed(const cgp__view *views, int n);

/* For each device, take the last event before index `next` of the device's view. Return the device
 * for which this event ended latest; -1: there is no such event. */
int cgp__views_latest_event(const cgp__view *views, int n);

/* Return the end time of a worker's last action, given that its trace has `written` events. If no
 * action has ended, return the start time of the job. */
int64_t cgp__last_end(const cgp__executor *executor, int device, int64_t written);

/* Return the number of actions that have ended on this rank since the pipeline was created. */
int64_t cgp__ended_here(const cgp__executor *executor);

/* Return the action in progress after `written` events; NULL: the worker runs no action of an
 * action list. */
const cgp__bound_action *cgp__action_at(const cgp__executor *executor, int device, int64_t written);

/* Return the node whose kernel is currently running in the view's action; NULL if no kernel is
 * running or the node is unknown. */
const cgp__node *cgp__view_node(const cgp__view *view);

/* Return the stage at the other end of a transfer. */
int cgp__peer_of(const cgp_plan *plan, const cgp_action *action);

static inline double cgp__seconds_since(int64_t then_ns, int64_t now_ns) {
    return (double)(now_ns - then_ns) * 1e-9;
}

#endif
