/* SPDX-License-Identifier: Apache-2.0 */
/* loopback.c -- see loopback.h: communicators, links, messages, agreements. */
#include "loopback.h"

#include "loopback_network.h"
#include "support.h"
#include "transport/transport.h"

#include <inttypes.h>
#include <unistd.h>

/* --- communicators --- */

static void destroy_network(network *net) {
    for (int p = 0; net->pairs && p < net->n * net->n; p++)
        loopback_clear_lane(&net->pairs[p]);
    for (int r = 0; net->ranks && r < net->n; r++) {
        if (net->ranks[r]) free(net->ranks[r]->known);
        free(net->ranks[r]);
    }
    pthread_cond_destroy(&net->filled);
    pthread_mutex_destroy(&net->lock);
    free(net->ranks);
    free(net->pairs);
    free(net);
}

static cgp_status create_ranks(network *net) {
    CGP_TRY(CGP__NEW(net->pairs, net->n * net->n, "loopback"));
    CGP_TRY(CGP__NEW(net->ranks, net->n, "loopback"));
    for (int p = 0; p < net->n * net->n; p++) {
        net->pairs[p].random = test_random(&net->seed);
        /* reserve an item, so that sending a failure needs no memory */
        CGP_TRY(loopback_reserve(&net->pairs[p], 1, TEXT_BYTES));
    }
    for (int r = 0; r < net->n; r++) {
        const size_t size = sizeof(cgp_communicator) + (size_t)net->n * sizeof(item *);
        cgp_communicator *communicator = cgp__calloc(1, size);
        if (!communicator) return cgp__no_memory("loopback", size);
        communicator->net = net;
        communicator->rank = r;
        communicator->mine.process = getpid();
        communicator->known = cgp__calloc((size_t)net->n, sizeof(cgp_rank_state));
        cgp__condition_init(&communicator->changed);
        net->ranks[r] = communicator;
        if (!communicator->known) return cgp__no_memory("loopback", sizeof(cgp_rank_state));
    }
    return CGP_OK;
}

cgp_status loopback_create(int n, uint64_t seed, cgp_communicator **out) {
    network *net = NULL;
    CGP_TRY(CGP__NEW(net, 1, "loopback"));
    net->n = net->living = n;
    net->seed = seed;
    pthread_mutex_init(&net->lock, NULL);
    cgp__condition_init(&net->filled);
    cgp_status status = create_ranks(net);
    if (status == CGP_OK && pthread_create(&net->thread, NULL, loopback_run_network, net) != 0)
        status = cgp_fail(CGP_ENOMEM, "loopback: expected a thread, got none");
    if (status != CGP_OK) {
        destroy_network(net);
        return status;
    }
    memcpy(out, net->ranks, (size_t)n * sizeof *out);
    return CGP_OK;
}

static cgp_status communicator_create(const void *handle, cgp_communicator **out) {
    (void)handle, (void)out;
    return cgp_fail(CGP_EINVAL, "loopback: expected loopback_create(), which makes all ranks");
}

static void communicator_destroy(cgp_communicator *communicator) {
    if (!communicator) return;
    network *net = communicator->net;
    pthread_mutex_lock(&net->lock);
    for (const edge *e = net->edges; e; e = e->next) {
        for (int end = 0; end < 2; end++) {
            if (e->ends[end] && e->ends[end]->communicator == communicator)
                loopback_broken(communicator->rank, e->number, "is open as its rank is destroyed");
        }
    }
    communicator->mine.left = true;
    loopback_send_heartbeat(communicator);
    net->ranks[communicator->rank] = NULL;
    net->ends = --net->living == 0;
    const bool last = net->ends;
    pthread_cond_signal(&net->filled);
    for (int r = 0; r < net->n; r++)
        loopback_free_items(communicator->inbox[r]);
    pthread_mutex_unlock(&net->lock);
    pthread_cond_destroy(&communicator->changed);
    free(communicator->known);
    free(communicator);
    if (!last) return;
    pthread_join(net->thread, NULL);
    destroy_network(net);
}

static int rank_of(const cgp_communicator *communicator) {
    return communicator->rank;
}

static int ranks_of(const cgp_communicator *communicator) {
    return communicator->net->n;
}

/* --- links --- */

static cgp_status edge_for(network *net, int number, edge **out) {
    for (edge *e = net->edges; e; e = e->next) {
        if (e->number == number) {
            *out = e;
            return CGP_OK;
        }
    }
    edge *created = NULL;
    CGP_TRY(CGP__NEW(created, 1, "loopback"));
    created->number = number;
    for (int i = 0; i < 2; i++)
        created->lanes[i].random = test_random(&net->seed);
    created->next = net->edges;
    net->edges = created;
    *out = created;
    return CGP_OK;
}

static void drop_if_closed(network *net, edge *e) {
    if (e->ends[false] || e->ends[true]) return;
    edge **at = &net->edges;
    while (*at != e)
        at = &(*at)->next;
    *at = e->next;
    loopback_clear_lane(&e->lanes[0]);
    loopback_clear_lane(&e->lanes[1]);
    free(e);
}

/* Check that the options at both ends of an edge agree. (Ranks in separate processes could not
 * check this.) */
static void check_other_end(const cgp_link *link, const cgp_link *other) {
    const int rank = link->communicator->rank;
    const int number = link->edge->number;
    if (!other) return;
    if (link->options.peer != other->communicator->rank || other->options.peer != rank)
        loopback_broken(rank, number, "expected each other's rank as peer, got %d and %d",
                        link->options.peer, other->options.peer);
    if (link->options.capacity != other->options.capacity ||
        link->options.bytes != other->options.bytes)
        loopback_broken(rank, number,
                        "expected the other end's %d buffers of %" PRId64
                        " bytes, got %d of %" PRId64,
                        other->options.capacity, other->options.bytes, link->options.capacity,
                        link->options.bytes);
}

/* Open one end of an edge; called with the lock held. */
static cgp_status open_end(cgp_communicator *communicator, cgp_link *link) {
    const cgp_link_options *options = &link->options;
    network *net = communicator->net;
    edge *e = NULL;
    CGP_TRY(edge_for(net, options->edge, &e));
    if (e->opened[options->sends])
        return cgp_fail(CGP_EINVAL, "loopback, edge %d: expected one %s, got another", e->number,
                        options->sends ? "sender" : "receiver");
    const cgp_status status = loopback_reserve(&e->lanes[options->sends], options->capacity,
                                               options->sends ? (size_t)options->bytes : 0);
    if (status != CGP_OK) {
        drop_if_closed(net, e);
        return status;
    }
    link->edge = e;
    check_other_end(link, e->ends[!options->sends]);
    e->ends[options->sends] = link;
    e->opened[options->sends] = true;
    memset(options->memory, POISON,
           (size_t)(options->capacity * (options->bytes + CGP_LINK_HEADER_BYTES)));
    return CGP_OK;
}

static cgp_status link_open(cgp_communicator *communicator, const cgp_link_options *options,
                            cgp_link **out) {
    network *net = communicator->net;
    CGP_TRY(cgp__link_check(&loopback, options, net->n));
    const size_t size = sizeof(cgp_link) + (size_t)options->capacity * sizeof(buffer);
    cgp_link *link = cgp__calloc(1, size);
    if (!link) return cgp__no_memory("loopback", size);
    link->communicator = communicator;
    link->options = *options;
    cgp__condition_init(&link->changed);
    for (int i = 0; i < options->capacity; i++)
        link->buffers[i].state = FREE;
    pthread_mutex_lock(&net->lock);
    const cgp_status status = open_end(communicator, link);
    pthread_mutex_unlock(&net->lock);
    if (status == CGP_OK)
        *out = link;
    else
        free(link);
    return status;
}

static void link_close(cgp_link *link) {
    if (!link) return;
    network *net = link->communicator->net;
    pthread_mutex_lock(&net->lock);
    if (link->waits)
        loopback_broken(link->communicator->rank, link->edge->number,
                        "is closed as a thread waits");
    link->edge->ends[link->options.sends] = NULL;
    drop_if_closed(net, link->edge);
    pthread_mutex_unlock(&net->lock);
    pthread_cond_destroy(&link->changed);
    free(link);
}

/* --- messages --- */

static void check_use(const cgp_link *link, bool sends, const char *call) {
    const int rank = link->communicator->rank;
    const int number = link->edge->number;
    if (link->options.sends != sends)
        loopback_broken(rank, number, "%s: expected the %s's end, got the other", call,
                        sends ? "sender" : "receiver");
    if (!link->edge->opened[!sends])
        loopback_broken(rank, number, "%s: unknown to rank %d", call, link->options.peer);
    if (link->waits) loopback_broken(rank, number, "%s: another thread waits already", call);
}

static bool hold(cgp_link *link, const char *call, int state, int64_t timeout_ns,
                 cgp_link_message *out) {
    const int64_t now = cgp__now_ns();
    const int64_t deadline = now + cgp__min(timeout_ns, INT64_MAX - now);
    cgp_communicator *communicator = link->communicator;
    int i = -1;
    pthread_mutex_lock(&communicator->net->lock);
    check_use(link, state == FREE, call);
    bool waits = timeout_ns > 0;
    while (!communicator->ended && (i = loopback_find_buffer(link, state)) < 0 && waits) {
        link->waits = true;
        waits = cgp__wait_until(&link->changed, &communicator->net->lock, deadline);
    }
    link->waits = false;
    if (communicator->ended && communicator->wakeup_delay_ns > 0)
        (void)cgp__wait_until(&link->changed, &communicator->net->lock,
                              cgp__now_ns() + communicator->wakeup_delay_ns);
    if (i >= 0) {
        buffer *b = &link->buffers[i];
        b->state = HELD;
        *out = (cgp_link_message){.buffer = loopback_buffer_at(link, i),
                                  .microbatch = state,
                                  .bytes = b->bytes,
                                  .released_ns = b->released_ns};
    }
    pthread_mutex_unlock(&communicator->net->lock);
    return i >= 0;
}

static bool acquire(cgp_link *link, int64_t timeout_ns, cgp_link_message *out) {
    return hold(link, "acquire", FREE, timeout_ns, out);
}

static bool take(cgp_link *link, int microbatch, int64_t timeout_ns, cgp_link_message *out) {
    if (microbatch < 0)
        loopback_broken(link->communicator->rank, link->edge->number,
                        "take: expected a micro-batch >= 0, got %d", microbatch);
    return hold(link, "take", microbatch, timeout_ns, out);
}

/* Return the index of a message's buffer; abort unless the caller holds that buffer. */
static int held_buffer(const cgp_link *link, const cgp_link_message *message, const char *call) {
    const int rank = link->communicator->rank;
    const int number = link->edge->number;
    for (int i = 0; i < link->options.capacity; i++) {
        if (message->buffer != loopback_buffer_at(link, i)) continue;
        if (link->buffers[i].state != HELD)
            loopback_broken(rank, number, "%s: expected a buffer from %s, got another", call,
                            link->options.sends ? "acquire" : "take");
        if (message->event)
            loopback_broken(rank, number, "%s: expected no event between ranks, got one", call);
        return i;
    }
    loopback_broken(rank, number, "%s: expected a buffer of this link, got %p", call,
                    message->buffer);
}

static void post(cgp_link *link, const cgp_link_message *message) {
    network *net = link->communicator->net;
    pthread_mutex_lock(&net->lock);
    check_use(link, true, "post");
    const int i = held_buffer(link, message, "post");
    if (message->bytes < 0 || message->bytes > link->options.bytes || message->microbatch < 0)
        loopback_broken(link->communicator->rank, link->edge->number,
                        "post: expected at most %" PRId64
                        " bytes of a micro-batch >= 0, got %" PRId64 " of %d",
                        link->options.bytes, message->bytes, message->microbatch);
    item *sent = loopback_take_spare(&link->edge->lanes[true]);
    sent->late_ns = message->fault == CGP_LINK_LATE ? message->late_ns : 0;
    sent->lost = message->fault == CGP_LINK_LOST;
    sent->slot = i;
    sent->number = message->microbatch;
    sent->bytes = (size_t)message->bytes;
    memcpy(sent->storage, message->buffer, sent->bytes);
    memset(message->buffer, POISON, (size_t)link->options.bytes);
    link->buffers[i].state = AWAY;
    loopback_send(net, &link->edge->lanes[true], sent);
    pthread_mutex_unlock(&net->lock);
}

static void release(cgp_link *link, const cgp_link_message *message) {
    network *net = link->communicator->net;
    pthread_mutex_lock(&net->lock);
    check_use(link, false, "release");
    const int i = held_buffer(link, message, "release");
    item *sent = loopback_take_spare(&link->edge->lanes[false]);
    sent->slot = link->buffers[i].sender_slot;
    memset(message->buffer, POISON, (size_t)link->options.bytes);
    link->buffers[i].state = FREE;
    loopback_send(net, &link->edge->lanes[false], sent);
    pthread_mutex_unlock(&net->lock);
}

static bool waits(cgp_link *link) {
    pthread_mutex_lock(&link->communicator->net->lock);
    const bool result = link->waits;
    pthread_mutex_unlock(&link->communicator->net->lock);
    return result;
}

/* Nothing to do: the network's own thread delivers messages. */
static void progress(cgp_communicator *communicator) {
    (void)communicator;
}

/* --- agreements --- */

static void stop(cgp_communicator *communicator) {
    pthread_mutex_lock(&communicator->net->lock);
    loopback_end_waits(communicator);
    pthread_mutex_unlock(&communicator->net->lock);
}

/* Send a copy of `mine` to every other rank; called with the lock held. */
static cgp_status send_to_all(cgp_communicator *communicator, bool is_gather, const void *mine,
                              size_t bytes) {
    network *net = communicator->net;
    lane *lanes = net->pairs + communicator->rank * net->n;
    item *items = NULL;
    /* create all items first, so that the message is sent to all ranks or to none */
    for (int r = 1; r < net->n; r++) {
        item *created = loopback_create_item(bytes);
        if (!created) {
            loopback_free_items(items);
            return cgp__no_memory("loopback", bytes);
        }
        created->next = items;
        items = created;
    }
    for (int r = 0; r < net->n; r++) {
        if (r == communicator->rank) continue;
        item *sent = items;
        items = items->next;
        sent->number = is_gather;
        if (bytes > 0) memcpy(sent->storage, mine, bytes);
        loopback_send(net, &lanes[r], sent);
    }
    return CGP_OK;
}

static cgp_status end_of_rank(const cgp_communicator *communicator) {
    const failed *other = &communicator->other;
    if (other->status != CGP_OK)
        return cgp_fail(CGP_EPEER, "rank %d: %s", other->rank, other->message);
    return cgp_fail(CGP_EPEER, "rank %d: %s", communicator->rank,
                    communicator->own.status != CGP_OK ? communicator->own.message : "was stopped");
}

/* Receive a rank's message for a barrier or gather; called with the lock held. */
static cgp_status receive(cgp_communicator *communicator, int from, bool is_gather, void *to,
                          size_t bytes) {
    while (!communicator->ended && !communicator->inbox[from])
        (void)cgp__wait_until(&communicator->changed, &communicator->net->lock, INT64_MAX);
    if (communicator->ended) return end_of_rank(communicator);
    item *received = communicator->inbox[from];
    communicator->inbox[from] = received->next;
    if (received->number != (int)is_gather || received->bytes != bytes)
        loopback_broken(communicator->rank, -1,
                        "expected a %s of %zu bytes, got a %s of %zu of rank %d",
                        is_gather ? "gather" : "barrier", bytes,
                        received->number ? "gather" : "barrier", received->bytes, from);
    if (bytes > 0) memcpy(to, received->storage, bytes);
    free(received);
    return CGP_OK;
}

/* Exchange bytes with all ranks; if `bytes` is NULL, this is a barrier. Called with the lock
 * held. */
static cgp_status agree(cgp_communicator *communicator, const void *mine, char *all,
                        const size_t *bytes) {
    const int rank = communicator->rank;
    const size_t own = bytes ? bytes[rank] : 0;
    if (communicator->ended) return end_of_rank(communicator);
    if (communicator->agreeing) loopback_broken(rank, -1, "two threads agree at one time");
    communicator->agreeing = true;
    communicator->mine.agreements++;
    communicator->mine.agreeing_ns = cgp__now_ns();
    cgp_status status = send_to_all(communicator, bytes, mine, own);
    for (int r = 0; status == CGP_OK && r < communicator->net->n; r++) {
        if (r != rank)
            status = receive(communicator, r, bytes, all, bytes ? bytes[r] : 0);
        else if (own > 0 && all != mine)
            memcpy(all, mine, own);
        if (bytes) all += bytes[r];
    }
    communicator->agreeing = false;
    communicator->mine.agreeing_ns = 0;
    return status;
}

static cgp_status gather(cgp_communicator *communicator, const void *mine, void *all,
                         const size_t *bytes) {
    pthread_mutex_lock(&communicator->net->lock);
    const cgp_status status = agree(communicator, mine, all, bytes);
    pthread_mutex_unlock(&communicator->net->lock);
    return status;
}

static cgp_status barrier(cgp_communicator *communicator) {
    return gather(communicator, NULL, NULL, NULL);
}

static void fail_all(cgp_communicator *communicator, cgp_status status, const char *message) {
    pthread_mutex_lock(&communicator->net->lock);
    loopback_send_failure(communicator, communicator->rank, status, message);
    pthread_mutex_unlock(&communicator->net->lock);
}

static cgp_status failure(cgp_communicator *communicator, int *rank, char *message, size_t size) {
    pthread_mutex_lock(&communicator->net->lock);
    const cgp_status status = communicator->other.status;
    if (status != CGP_OK) {
        *rank = communicator->other.rank;
        snprintf(message, size, "%s", communicator->other.message);
    }
    pthread_mutex_unlock(&communicator->net->lock);
    return status;
}

/* --- heartbeats --- */

static cgp_status watch(cgp_communicator *communicator, int64_t timeout_ns) {
    network *net = communicator->net;
    pthread_mutex_lock(&net->lock);
    communicator->timeout_ns = timeout_ns;
    communicator->next_heartbeat_ns = 0;
    communicator->mine.left = timeout_ns == 0;
    for (int r = 0; r < net->n && timeout_ns > 0; r++) {
        if (communicator->known[r].heartbeat_ns == 0 && r != communicator->rank)
            communicator->known[r].heartbeat_ns = cgp__now_ns();
    }
    if (timeout_ns == 0) loopback_send_heartbeat(communicator);
    pthread_cond_signal(&net->filled);
    pthread_mutex_unlock(&net->lock);
    return CGP_OK;
}

static void report_progress(cgp_communicator *communicator, int64_t ended, int64_t end_ns) {
    pthread_mutex_lock(&communicator->net->lock);
    communicator->mine.ended = ended;
    communicator->mine.end_ns = end_ns;
    pthread_mutex_unlock(&communicator->net->lock);
}

static void rank_states(cgp_communicator *communicator, cgp_rank_state *out) {
    pthread_mutex_lock(&communicator->net->lock);
    memcpy(out, communicator->known, (size_t)communicator->net->n * sizeof *out);
    out[communicator->rank] = communicator->mine;
    out[communicator->rank].heartbeat_ns = cgp__now_ns();
    pthread_mutex_unlock(&communicator->net->lock);
}

void loopback_mute(cgp_communicator *communicator) {
    pthread_mutex_lock(&communicator->net->lock);
    communicator->mute = true;
    pthread_mutex_unlock(&communicator->net->lock);
}

void loopback_delay_wakeups(cgp_communicator *communicator, double seconds) {
    pthread_mutex_lock(&communicator->net->lock);
    communicator->wakeup_delay_ns = (int64_t)(1e9 * seconds);
    pthread_mutex_unlock(&communicator->net->lock);
}

/* Nothing to do: inside a process, messages are never damaged. */
static void verify(cgp_communicator *communicator, bool verifies) {
    (void)communicator, (void)verifies;
}

static void end_all(cgp_communicator *communicator, int code) {
    (void)communicator, (void)code;
}

const cgp_transport loopback = {
    .struct_size = sizeof(cgp_transport),
    .name = "loopback",
    .copies = true,
    .communicator_create = communicator_create,
    .communicator_destroy = communicator_destroy,
    .rank = rank_of,
    .ranks = ranks_of,
    .links.open = link_open,
    .links.close = link_close,
    .links.acquire = acquire,
    .links.take = take,
    .links.post = post,
    .links.release = release,
    .links.waits = waits,
    .links.progress = progress,
    .links.verify = verify,
    .agreement.barrier = barrier,
    .agreement.gather = gather,
    .failures.fail = fail_all,
    .failures.first = failure,
    .failures.watch = watch,
    .failures.report_progress = report_progress,
    .failures.rank_states = rank_states,
    .failures.stop = stop,
    .failures.abort = end_all,
};
