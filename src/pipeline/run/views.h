/* SPDX-License-Identifier: Apache-2.0 */
/* views.h -- snapshots of what each worker does or waits for.
 *
 * A worker's trace shows its progress: the number of this run's events is the list index of the
 * action in progress. The trace is read while it grows, up to the last complete event. It has room
 * for a whole list, so no event of this run is overwritten. An update or a sum of gradients counts
 * as one action of each device.
 *
 * A busy worker either waits for a link or runs. The worker that has run longest is to blame. If
 * all wait, the chain of waiting devices is a cycle or leads to another rank. Every function is
 * called with the team's lock held. */
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
    bool is_here;                   /* the worker is on this rank */
    bool busy;                      /* the worker has not ended the job */
    const cgp__bound_action *bound; /* action in progress; NULL: no action of a list */
    bool waits;
    int waits_for;    /* device that the worker waits for */
    int64_t since_ns; /* start of the action in progress, or of the job */
    int64_t written;  /* events of the worker's trace */
    int64_t next;     /* events with lower numbers are not in the report yet */
} cgp__view;

/* Take a snapshot of a device's worker; it is empty if the worker is on another rank. */
cgp__view cgp__view_of(const cgp__executor *executor, int device);

/* Fill views [devices]. Return false if a worker has ended an action meanwhile. */
bool cgp__views_take(const cgp__executor *executor, cgp__view *views);

/* Return the device that has run longest or, if all wait, the device that has waited longest. NULL:
 * no device is busy. */
const cgp__view *cgp__views_blamed(const cgp__view *views, int n);

/* Compare the last event before `next` of all devices. Return the device whose event ended last;
 * -1: no device has an event before `next`. */
int cgp__views_latest_event(const cgp__view *views, int n);

/* Return when the last action of a worker ended, if its trace has `written` events. If it has ended
 * no action, return when the job began. */
int64_t cgp__last_end(const cgp__executor *executor, int device, int64_t written);

/* Return the number of actions that have ended on this rank since the pipeline was created. */
int64_t cgp__ended_here(const cgp__executor *executor);

/* Return the action in progress after `written` events; NULL: none, or not from a list. */
const cgp__bound_action *cgp__action_at(const cgp__executor *executor, int device, int64_t written);

/* Return the node of the kernel that an action runs; NULL: none, or not known. */
const cgp__node *cgp__view_node(const cgp__view *view);

/* Return the stage at the other end of a transfer. */
int cgp__peer_of(const cgp_plan *plan, const cgp_action *action);

static inline double cgp__seconds_since(int64_t then_ns, int64_t now_ns) {
    return (double)(now_ns - then_ns) * 1e-9;
}

#endif
