/* SPDX-License-Identifier: Apache-2.0 */
/* transfer.c -- sends and receives.
 *
 *     SEND_F    acquire a buffer; OUT waits for the receiver's last copy from it; copy; post the
 *               buffer
 *     RECV_F    take the message; IN waits for the sender's copy into the buffer; copy; release the
 *               buffer
 *
 * Within a rank, a buffer is handed over immediately, with an event that is recorded after the
 * copy. Between ranks, a buffer is handed over when the copy is complete (landings.h). A large
 * message between ranks is split into pieces, each with its own link. So the copy of one piece
 * overlaps with the sending of the piece before it.
 *
 * A shared edge (shared_edges.h) also connects two ranks. On a shared edge, the transport's message
 * is only the number of a buffer in the sender's device memory. The sender posts the message
 * immediately after it has recorded the buffer's event. The receiver's device waits for this event,
 * copies from the buffer, and records its own event. Before the sender's device writes to the
 * buffer again, it waits for the receiver's event. */
#include "pipeline/run/transfer.h"

#include "pipeline/run/execute.h"
#include "pipeline/run/executor.h"
#include "pipeline/run/injected_faults.h"
#include "pipeline/run/landings.h"
#include "pipeline/run/link_ends.h"
#include "pipeline/run/queues.h"
#include "pipeline/run/ranks.h"
#include "pipeline/run/shared_edges.h"
#include "pipeline/run/worker.h"
#include "pipeline/team/team.h"
#include "plan/links.h"
#include "plan/messages.h"
#include "plan/program/program.h"
#include "schedule/kinds.h"

#include <string.h>

cgp_status cgp__wait_status(const cgp__worker *worker, const cgp__end *end) {
    char message[1024];
    int rank = -1;
    if (cgp__is_stopped(worker)) return CGP_OK;
    if (end->transport->failures.first(end->communicator, &rank, message, sizeof message) != CGP_OK)
        return cgp_fail(CGP_EPEER, "rank %d: %s", rank, message);
    end->transport->failures.fail(end->communicator, CGP_EPEER, "was stopped");
    return cgp_fail(CGP_EPEER, "rank %d: was stopped", worker->ranks->rank);
}

/* A wait for a message or a buffer has failed, although it had no time limit. Give up the run, and
 * return false. */
static bool fail_with_peer(const cgp__execution *s, const cgp__end *end) {
    cgp__team *team = s->worker->executor->team;
    const cgp_status status = cgp__wait_status(s->worker, end);
    pthread_mutex_lock(&team->lock);
    if (status != CGP_OK) cgp__team_give_up(team, status);
    pthread_mutex_unlock(&team->lock);
    return false;
}

/* Wait for a free buffer (at the sender) or for the message (at the receiver). */
static bool wait_for_buffer(const cgp__execution *s, const cgp__end *end, bool sends,
                            cgp_link_message *out) {
    for (;;) {
        const int64_t patience = cgp__in_flight_patience(s->worker);
        if (sends
                ? end->transport->links.acquire(end->link, patience, out)
                : end->transport->links.take(end->link, s->bound->action.microbatch, patience, out))
            return true;
        if (cgp__is_stopped(s->worker)) return false;
        if (patience == INT64_MAX) return fail_with_peer(s, end);
        if (!cgp__in_flight_retire(s->worker, s->list)) return false;
    }
}

/* Wait for an event of the device at the other end. The queue waits if both devices have the same
 * asynchronous backend; otherwise this thread waits. */
static cgp_status wait_for_event(const cgp__execution *s, const cgp__end *end, cgp_queue queue,
                                 int peer, void *event) {
    const cgp_backend *backend = s->worker->backend;
    const cgp_backend *other = s->worker->executor->workers[peer].backend;
    if (!event) return CGP_OK;
    if (end->shares || (backend->streams && backend == other))
        return backend->streams->event_wait(s->worker->device, queue, event);
    atomic_store(&s->worker->progress.syncs, true);
    (void)other->streams->event_sync(event); /* ignore a failure here, because the other device's
                                              * worker reports it */
    atomic_store(&s->worker->progress.syncs, false);
    return CGP_OK;
}

/* Copy the parts of a message that lie between bytes `begin` and `end` of the message. `buffer` is
 * the place of byte `begin`. */
static cgp_status copy_parts(const cgp__execution *s, const cgp__edge_plan *edge, bool sends,
                             cgp_place buffer, int64_t begin, int64_t end) {
    const cgp_backend *backend = s->worker->backend;
    const bool saved = s->variant->program != CGP__FORWARD_NOSAVE;
    for (int i = 0; i < edge->n_parts; i++) {
        const cgp__part *part = &edge->parts[i];
        const int64_t bytes = part->sample_bytes * s->variant->samples;
        const int64_t first = cgp__max(part->offset, begin),
                      last = cgp__min(part->offset + bytes, end);
        if (first >= last) continue;
        char *at = cgp__address(s, sends ? part->from[saved] : part->to);
        const cgp_place there = {buffer.device, (char *)buffer.at + (first - begin)};
        const cgp_place here = cgp__device_place(s->worker, at + (first - part->offset));
        CGP_TRY(backend->device.copy(s->worker->device, sends ? CGP_QUEUE_OUT : CGP_QUEUE_IN,
                                     sends ? there : here, sends ? here : there,
                                     (size_t)(last - first)));
        /* transfer_piece() checks this too, and returns false. */
        if (cgp__is_stopped(s->worker)) return CGP_OK;
    }
    return CGP_OK;
}

/* If the edge is shared, set *number to the number of the message's buffer. Also set message->event
 * to the event that the peer recorded after its last use of the buffer. Otherwise set *number to
 * -1. A buffer has the same number in the sender's device memory and in the transport. */
static cgp_status find_shared(const cgp__link_plan *link, const cgp__end *end, bool sends,
                              cgp_link_message *message, int32_t *number) {
    *number = -1;
    if (!end->shares) return CGP_OK;
    if (sends)
        *number = (int32_t)(((char *)message->buffer - end->memory) /
                            (CGP_LINK_HEADER_BYTES + link->bytes));
    else
        memcpy(number, message->buffer, sizeof *number);
    if (*number < 0 || *number >= link->capacity)
        return cgp_fail(CGP_EDEVICE, "message: expected a buffer below %d, got %d", link->capacity,
                        (int)*number);
    message->event = end->shared->peer[*number];
    return CGP_OK;
}

/* Return the place of a link's buffer, which is on a device of the worker's backend or on the
 * host. */
static cgp_place place_of(const cgp__execution *s, const cgp__link_plan *link, bool sends,
                          void *buffer) {
    const bool own = sends || link->receives;
    const bool in_host = sends || !link->receives ? link->in_host : link->receives_in_host;
    const int device = own ? s->worker->index : link->holder;
    if (in_host || s->worker->executor->workers[device].backend != s->worker->backend)
        return cgp__host_place(buffer);
    return (cgp_place){s->worker->executor->workers[device].device, buffer};
}

/* Record the event of a shared buffer, then hand the buffer over. */
static cgp_status hand_over_shared(const cgp__execution *s, const cgp__end *end, bool sends,
                                   int32_t number, cgp_link_message *message) {
    _Static_assert(sizeof number == CGP__SHARED_BYTES, "as planned");
    CGP_TRY(s->worker->backend->streams->event_record(
        s->worker->device, sends ? CGP_QUEUE_OUT : CGP_QUEUE_IN, end->shared->own[number]));
    if (sends) memcpy(message->buffer, &number, sizeof number);
    message->bytes = sizeof number;
    if (sends)
        end->transport->links.post(end->link, message);
    else
        end->transport->links.release(end->link, message);
    return CGP_OK;
}

/* Hand over a message's buffer, either now or when its copy is complete. */
static cgp_status hand_over(const cgp__execution *s, const cgp__end *end, bool sends,
                            int32_t shared, cgp_link_message *message) {
    const cgp_backend_streams *streams = s->worker->backend->streams;
    message->event = NULL;
    if (shared >= 0) return hand_over_shared(s, end, sends, shared, message);
    if (streams && end->transport->copies) return cgp__landings_add(s->worker, sends, end, message);
    if (streams) {
        const int64_t i = ((char *)message->buffer - end->memory) / message->bytes;
        CGP_TRY(streams->event_record(s->worker->device, sends ? CGP_QUEUE_OUT : CGP_QUEUE_IN,
                                      end->events[i]));
        message->event = end->events[i];
    }
    if (sends)
        end->transport->links.post(end->link, message);
    else
        end->transport->links.release(end->link, message);
    return CGP_OK;
}

/* Record the times of the message's first piece, and start the action. */
static bool start(const cgp__execution *s, cgp__in_flight *action, int64_t released_ns,
                  int64_t ready_ns) {
    action->event.released_ns = released_ns;
    action->event.ready_ns = ready_ns;
    return cgp__in_flight_start(s, action);
}

/* Send or receive piece k of a message; a message in a shared buffer has one piece. */
static bool transfer_piece(const cgp__execution *s, cgp__in_flight *action, int k) {
    const cgp__edge_plan *edge = cgp__plan_edge(s->plan, s->bound->action.edge);
    const bool sends = cgp__is_send(s->bound->action.kind);
    const int l = cgp__plan_piece(s->plan, s->bound->action.edge, k);
    const cgp__end *end = &s->worker->executor->ends[2 * l + (sends ? 0 : 1)];
    const cgp__link_plan *link = &cgp__plan_links(s->plan)->list[l];
    const cgp_queue queue = sends ? CGP_QUEUE_OUT : CGP_QUEUE_IN;
    const cgp_backend_streams *streams = s->worker->backend->streams;
    const int64_t begin = k * cgp__plan_piece_bytes(s->plan, s->bound->action.edge),
                  bytes = end->shares ? link->message_bytes : link->bytes;
    cgp_link_message message = {.buffer = NULL};
    int32_t shared = -1;
    if (!wait_for_buffer(s, end, sends, &message)) return false;
    if (find_shared(link, end, sends, &message, &shared) != CGP_OK)
        return cgp__fail_on_device(s, -1);
    const int64_t released_ns = message.released_ns, ready_ns = cgp__now_ns();
    message.microbatch = s->bound->action.microbatch;
    message.bytes = bytes;
    if (CGP__ON(sends ? CGP__SITE_BUFFER : CGP__SITE_MESSAGE) &&
        wait_for_event(s, end, queue, sends ? link->to : link->from, message.event) != CGP_OK)
        return cgp__fail_on_device(s, -1);
    if (cgp__is_stopped(s->worker)) return false; /* after a timeout, the plan may be freed */
    if (k == 0 && !start(s, action, released_ns, ready_ns)) return false;
    const cgp_place buffer =
        shared < 0 ? place_of(s, link, sends, message.buffer)
                   : cgp__device_place(s->worker, end->shared->memory + shared * bytes);
    if (sends && streams && buffer.device &&
        streams->discard(s->worker->device, queue, buffer.at, (size_t)bytes) != CGP_OK)
        return cgp__fail_on_device(s, -1);
    if (copy_parts(s, edge, sends, buffer, begin, begin + bytes) != CGP_OK)
        return cgp__fail_on_device(s, -1);
    if (cgp__is_stopped(s->worker)) return false;
    if (sends && k == 0)
        cgp__injected_faults_of_message(s->worker->executor, &s->bound->action, &message);
    return hand_over(s, end, sends, shared, &message) == CGP_OK || cgp__fail_on_device(s, -1);
}

bool cgp__transfer(const cgp__execution *s, cgp__in_flight *action) {
    const int edge = s->bound->action.edge;
    const int side = cgp__is_send(s->bound->action.kind) ? 0 : 1;
    const bool shares = s->worker->executor->ends[2 * edge + side].shares;
    const int pieces = shares ? 1 : cgp__plan_links(s->plan)->list[edge].pieces;
    for (int k = 0; k < pieces; k++)
        if (!transfer_piece(s, action, k)) return false;
    return true;
}
