/* SPDX-License-Identifier: Apache-2.0 */
/* queues.h -- the actions in flight on the queues of a worker's device. An action in flight is
 * enqueued but not complete. Only the worker calls these functions. If a call returns false or
 * NULL, this or another worker has given up the run, and the action ends early. After that the
 * worker must not touch the caller's memory. */
#ifndef CGP_SRC_PIPELINE_RUN_QUEUES_H
#define CGP_SRC_PIPELINE_RUN_QUEUES_H

#include <cgpipe/ext/backend.h>
#include <cgpipe/ext/transport.h>

#include "base/trace.h"

typedef struct cgp__bound_action cgp__bound_action;
typedef struct cgp__execution cgp__execution;
typedef struct cgp__list cgp__list;
typedef struct cgp__worker cgp__worker;

/* An action in flight. For a synchronous device, only the times are used. Written by the worker. */
typedef struct cgp__in_flight {
    const cgp__bound_action *bound;
    cgp__event event;
    cgp_event *start, *end;
    int64_t pieces; /* total number of staging pieces taken up to the end of this action */
} cgp__in_flight;

/* These functions allocate and free the worker's entries for actions in flight, with their events.
 * Call the second function before the device is destroyed. */
cgp_status cgp__queues_create(cgp__worker *worker);
void cgp__queues_destroy(cgp__worker *worker);

/* Begin a run at action `begin`. All actions before it count as complete. */
void cgp__queues_reset(cgp__worker *worker, int begin);

/* These functions keep track of actions in flight. begin: wait until one more action may be
 * enqueued. start: make the action's queue wait for other queues, and record the action's start.
 * end: record the action's end. retire: add complete actions to the trace. finish: wait for all
 * actions.
 *
 *     begin ... start (calls) end          retire, retire .. finish */
cgp__in_flight *cgp__in_flight_begin(const cgp__execution *execution);
bool cgp__in_flight_start(const cgp__execution *execution, cgp__in_flight *action);
bool cgp__in_flight_end(const cgp__execution *execution, cgp__in_flight *action);
bool cgp__in_flight_retire(cgp__worker *worker, const cgp__list *list);
bool cgp__in_flight_finish(cgp__worker *worker, const cgp__list *list);

/* Return how long the worker may block, in ns. While actions are in flight, the worker must wake
 * from time to time to retire them. */
int64_t cgp__in_flight_patience(const cgp__worker *worker);

/* Give up the run as cgp__fail_in_action() does, but blame the action in which the device failed.
 * On an asynchronous device, that action may be earlier than the current one. */
bool cgp__fail_on_device(const cgp__execution *execution, int call);

/* Return a kernel's tag, which combines the index of the kernel's action in the list and the index
 * of the kernel's call in the program. */
static inline int64_t cgp__tag_of(int action, int call) {
    return (int64_t)action << 32 | call;
}

static inline int cgp__tag_action(int64_t tag) {
    return (int)(tag >> 32);
}

static inline int cgp__tag_call(int64_t tag) {
    return (int)(tag & INT32_MAX);
}

/* Points of synchronization. A test build can disable any one point, to check that a test then
 * fails:
 *
 *     QUEUES     [queue][other queue] a queue waits for another queue
 *     MESSAGE    the receiver waits for the copy into a buffer
 *     BUFFER     the sender waits for the copy from a buffer
 *     AHEAD      the host waits for the oldest action in flight
 *     FORK       the branch waits for COMPUTE
 *     JOIN       COMPUTE waits for the branch before the branch gets another call
 *     END        COMPUTE waits for the branch at the end of an action */
enum {
    CGP__SITE_QUEUES,
    CGP__SITE_MESSAGE = CGP__SITE_QUEUES + CGP_QUEUES * CGP_QUEUES,
    CGP__SITE_BUFFER,
    CGP__SITE_AHEAD,
    CGP__SITE_FORK,
    CGP__SITE_JOIN,
    CGP__SITE_END,
    CGP__SITES
};
#ifdef CGP_TEST_SITES
extern int cgp__site_off; /* disabled point of synchronization; -1: none */
#define CGP__ON(site) (cgp__site_off != (site))
#else
#define CGP__ON(site) true
#endif

#endif
