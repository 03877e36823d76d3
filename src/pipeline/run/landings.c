/* SPDX-License-Identifier: Apache-2.0 */
/* landings.c -- implements landings.h. A queue completes its copies in order. So each of the queues
 * IN and OUT has a ring of messages, and only the oldest message of a ring is checked. */
#include "pipeline/run/landings.h"

#include "base/base.h"
#include "pipeline/run/link_ends.h"
#include "pipeline/run/ranks.h"
#include "pipeline/run/worker.h"
#include "plan/links.h"
#include "plan/list.h"

#include <stdlib.h>

typedef struct landing {
    cgp_event *event;
    const cgp__end *end;
    cgp_link_message message;
} landing;

/* A ring of messages. Messages first .. next - 1 are pending. */
typedef struct ring {
    landing *list; /* [capacity] */
    int64_t first, next;
    int capacity;
} ring;

struct cgp__landings {
    ring rings[2]; /* rings[0]: receives, on queue IN; rings[1]: sends, on queue OUT */
};

/* Return the largest number of pieces of a message that this device sends or receives. */
static int most_pieces(const cgp__worker *worker) {
    const cgp__links *links = cgp__plan_links(worker->plan);
    int most = 0;
    for (int l = 0; l < links->n; l++) {
        const cgp__link_plan *link = &links->list[l];
        if (link->receives && (link->from == worker->index || link->to == worker->index) &&
            link->pieces > most)
            most = link->pieces;
    }
    return most;
}

cgp_status cgp__landings_create(cgp__worker *worker) {
    const cgp_backend_streams *streams = worker->backend->streams;
    const int capacity = 2 * CGP__AHEAD * most_pieces(worker);
    if (!streams || capacity == 0) return CGP_OK;
    CGP_TRY(CGP__NEW(worker->landings, 1, "worker"));
    for (int k = 0; k < 2; k++) {
        ring *r = &worker->landings->rings[k];
        CGP_TRY(CGP__NEW(r->list, capacity, "worker"));
        r->capacity = capacity;
        for (int i = 0; i < capacity; i++)
            CGP_TRY(streams->event_create(worker->device, &r->list[i].event));
    }
    return CGP_OK;
}

void cgp__landings_destroy(cgp__worker *worker) {
    for (int k = 0; k < 2 && worker->landings; k++) {
        ring *r = &worker->landings->rings[k];
        for (int i = 0; i < r->capacity; i++)
            if (r->list[i].event) worker->backend->streams->event_destroy(r->list[i].event);
        free(r->list);
    }
    free(worker->landings);
    worker->landings = NULL;
}

cgp_status cgp__landings_add(cgp__worker *worker, bool sends, const cgp__end *end,
                             const cgp_link_message *message) {
    ring *r = &worker->landings->rings[sends];
    if (r->next - r->first == r->capacity)
        return cgp_fail(CGP_ESTATE, "messages: expected at most %d pending, got more", r->capacity);
    landing *l = &r->list[r->next % r->capacity];
    CGP_TRY(worker->backend->streams->event_record(worker->device,
                                                   sends ? CGP_QUEUE_OUT : CGP_QUEUE_IN, l->event));
    l->end = end;
    l->message = *message;
    r->next++;
    return CGP_OK;
}

void cgp__landings_check(const cgp__worker *worker) {
    for (int k = 0; k < 2 && worker->landings; k++) {
        ring *r = &worker->landings->rings[k];
        while (r->first < r->next) {
            const landing *l = &r->list[r->first % r->capacity];
            bool done = false;
            if (worker->backend->streams->event_done(l->event, &done) != CGP_OK || !done ||
                cgp__is_stopped(worker))
                break; /* a failure of the device is reported when the action in flight is
                        * retired */
            r->first++;
            if (k == 1)
                l->end->transport->links.post(l->end->link, &l->message);
            else
                l->end->transport->links.release(l->end->link, &l->message);
        }
    }
}

bool cgp__landings_pending(const cgp__worker *worker) {
    const struct cgp__landings *l = worker->landings;
    return l && (l->rings[0].first < l->rings[0].next || l->rings[1].first < l->rings[1].next);
}

void cgp__landings_drop(cgp__worker *worker) {
    for (int k = 0; k < 2 && worker->landings; k++)
        worker->landings->rings[k].first = worker->landings->rings[k].next;
}
