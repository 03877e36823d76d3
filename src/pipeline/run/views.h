/* SPDX-License-Identifier: Apache-2.0 */
/* views.h -- what each worker does or waits for, as the team's lock finds it.
 *
 * A worker's progress is its trace: the number of this run's events is the index, in its list, of
 * the action in progress. The trace is read while it grows, up to the last complete event; it has
 * capacity for a whole list, so no event of this run is overwritten. An update, or a sum of
 * gradients, counts as one action of each device.
 *
 * Of the busy workers, some wait for a link, others run. The one that has run longest is to blame;
 * if all wait, the chain of waiting devices is a cycle, or leads to another rank. Every function is
 * called with the lock held. */
#ifndef CGP_SRC_PIPELINE_VIEWS_H
#define CGP_SRC_PIPELINE_VIEWS_H

#include "pipeline/run/run.h"

/* A snapshot of a worker. */
typedef struct cgp__view {
    const cgp__worker *worker;
    bool busy;                      /* has not ended the job */
    const cgp__bound_action *bound; /* in progress; NULL: none, or none of a list */
    bool waits;
    int waits_for;    /* a device */
    int64_t since_ns; /* start of the action in progress, or of the job */
    int64_t written;  /* events of its trace */
    int64_t next;     /* events not in the report yet: those before this one */
} cgp__view;

/* A snapshot; of a worker of another rank without contents. */
cgp__view cgp__view_of(const cgp__worker *worker);

/* Fill views [devices]; false if a worker has ended an action meanwhile. */
bool cgp__views_take(const cgp__executor *executor, cgp__view *views);

/* The device that has run longest; if all wait, the one that has waited longest. NULL: none is
 * busy. */
const cgp__view *cgp__views_culprit(const cgp__view *views, int n);

/* The device whose last event, of those before `next`, ended last; -1: none is left. */
int cgp__views_latest_event(const cgp__view *views, int n);

/* The end of a worker's last action, after `written` events; the job's start if there is none. */
int64_t cgp__last_end(const cgp__worker *worker, int64_t written);

/* The action in progress after `written` events; NULL: none of a list. */
const cgp__bound_action *cgp__action_at(const cgp__worker *worker, int64_t written);

/* The node of the kernel that an action runs; NULL: none, or not known. */
const cgp__node *cgp__view_node(const cgp__view *view);

/* The stage at the other end of a transfer. */
int cgp__peer_of(const cgp_plan *plan, const cgp_action *action);

static inline bool cgp__is_here(const cgp__worker *worker) {
    return cgp__ranks_own(&worker->executor->ranks, worker->index);
}

static inline double cgp__seconds_since(int64_t then_ns, int64_t now_ns) {
    return (double)(now_ns - then_ns) * 1e-9;
}

#endif
