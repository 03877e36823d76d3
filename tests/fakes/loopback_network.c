/* SPDX-License-Identifier: Apache-2.0 */
/* loopback_network.c -- see loopback_network.h. */
#include "loopback_network.h"

#include "base/base.h"
#include "support.h"
#include "transport/heartbeat.h"

_Noreturn void loopback_broken(int rank, int number, const char *format, ...) {
    va_list args;
    va_start(args, format);
    fprintf(stderr, "loopback: rank %d, edge %d: ", rank, number);
    vfprintf(stderr, format, args);
    fprintf(stderr, "\n");
    va_end(args);
    abort();
}

/* --- lanes; called with the lock held --- */

/* Draw the delay of an item. Half of the items have no delay. Most other items have a delay of at
 * most 50 us, and some of 500 us. */
static int64_t draw_delay(lane *l) {
    const int kind = test_between(&l->random, 0, 7);
    if (kind < 4) return 0;
    return test_between(&l->random, 0, kind < 7 ? 50000 : 500000);
}

item *loopback_create_item(size_t bytes) {
    item *created = cgp__calloc(1, sizeof(item) + bytes);
    if (created) created->bytes = bytes;
    return created;
}

cgp_status loopback_reserve(lane *l, int count, size_t bytes) {
    for (int i = 0; i < count; i++) {
        item *spare = loopback_create_item(bytes);
        if (!spare) return cgp__no_memory("loopback", bytes);
        spare->next = l->spare;
        l->spare = spare;
    }
    return CGP_OK;
}

item *loopback_take_spare(lane *l) {
    item *spare = l->spare;
    if (!spare) loopback_broken(-1, -1, "more is on the way than there are buffers");
    l->spare = spare->next;
    return spare;
}

void loopback_free_items(item *first) {
    while (first) {
        item *next = first->next;
        free(first);
        first = next;
    }
}

void loopback_clear_lane(lane *l) {
    loopback_free_items(l->first);
    loopback_free_items(l->spare);
    *l = (lane){.random = l->random};
}

void loopback_send(network *net, lane *l, item *sent) {
    sent->due_ns = cgp__now_ns() + draw_delay(l) + sent->late_ns;
    sent->next = NULL;
    if (l->first)
        l->last->next = sent;
    else
        l->first = sent;
    l->last = sent;
    pthread_cond_signal(&net->filled);
}

/* --- the network's thread; called with the lock held --- */

int loopback_find_buffer(const cgp_link *link, int state) {
    for (int i = 0; i < link->options.capacity; i++) {
        if (link->buffers[i].state == state) return i;
    }
    return -1;
}

char *loopback_buffer_at(const cgp_link *link, int i) {
    const int64_t stride = CGP_LINK_HEADER_BYTES + link->options.bytes;
    return (char *)link->options.memory + i * stride + CGP_LINK_HEADER_BYTES;
}

static void deliver_message(cgp_link *receiver, const item *message) {
    const int i = loopback_find_buffer(receiver, FREE);
    if (i < 0)
        loopback_broken(receiver->communicator->rank, receiver->edge->number,
                        "expected a free buffer for micro-batch %d, got none", message->number);
    if (loopback_find_buffer(receiver, message->number) >= 0)
        loopback_broken(receiver->communicator->rank, receiver->edge->number,
                        "micro-batch %d came again before it was taken", message->number);
    memcpy(loopback_buffer_at(receiver, i), message->storage, message->bytes);
    receiver->buffers[i] =
        (buffer){message->number, message->slot, (int64_t)message->bytes, cgp__now_ns()};
    pthread_cond_broadcast(&receiver->changed);
}

static void deliver_release(cgp_link *sender, const item *release) {
    sender->buffers[release->slot].state = FREE;
    sender->buffers[release->slot].released_ns = cgp__now_ns();
    pthread_cond_broadcast(&sender->changed);
}

void loopback_end_waits(cgp_communicator *communicator) {
    communicator->ended = true;
    for (const edge *e = communicator->net->edges; e; e = e->next) {
        for (int end = 0; end < 2; end++) {
            if (e->ends[end] && e->ends[end]->communicator == communicator)
                pthread_cond_broadcast(&e->ends[end]->changed);
        }
    }
    pthread_cond_broadcast(&communicator->changed);
}

static void deliver_failure(cgp_communicator *to, const item *failure) {
    loopback_end_waits(to);
    if (to->other.status != CGP_OK) return;
    to->other.status = (cgp_status)failure->number;
    to->other.rank = failure->slot;
    memcpy(to->other.message, failure->storage, TEXT_BYTES);
}

void loopback_send_failure(cgp_communicator *from, int rank, cgp_status status,
                           const char *message) {
    network *net = from->net;
    const bool first = from->own.status == CGP_OK;
    loopback_end_waits(from);
    if (!first) return;
    from->own.status = status;
    snprintf(from->own.message, TEXT_BYTES, "%s", message);
    for (int r = 0; r < net->n; r++) {
        lane *to = &net->pairs[from->rank * net->n + r];
        if (r == from->rank) continue;
        item *sent = loopback_take_spare(to);
        sent->fails = true;
        sent->number = (int)status;
        sent->slot = rank;
        memcpy(sent->storage, from->own.message, TEXT_BYTES);
        loopback_send(net, to, sent);
    }
}

/* --- heartbeats --- */

void loopback_send_heartbeat(cgp_communicator *from) {
    network *net = from->net;
    for (int r = 0; r < net->n && !from->mute; r++) {
        if (!net->ranks[r] || r == from->rank) continue;
        net->ranks[r]->known[from->rank] = from->mine;
        net->ranks[r]->known[from->rank].heartbeat_ns = cgp__now_ns();
    }
}

static void lose(cgp_communicator *c, int rank, int64_t now) {
    char message[128];
    snprintf(message, sizeof message, "silent for %.1f s",
             (double)(now - c->known[rank].heartbeat_ns) * 1e-9);
    if (c->other.status == CGP_OK) {
        c->other.status = CGP_EPEER;
        c->other.rank = rank;
        memcpy(c->other.message, message, sizeof message);
    }
    loopback_send_failure(c, rank, CGP_EPEER, message);
}

/* Send the heartbeats that are due, and find ranks that have been silent for too long. Return the
 * time of the next check. */
static int64_t run_detectors(network *net) {
    const int64_t now = cgp__now_ns();
    int64_t next = INT64_MAX;
    for (int r = 0; r < net->n; r++) {
        cgp_communicator *c = net->ranks[r];
        if (!c || c->timeout_ns == 0) continue;
        if (c->next_heartbeat_ns <= now) {
            loopback_send_heartbeat(c);
            c->next_heartbeat_ns = now + cgp__heartbeat_interval(c->timeout_ns);
        }
        next = cgp__min(next, c->next_heartbeat_ns);
        for (int other = 0; other < net->n && !c->ended && !c->mute; other++) {
            const cgp_rank_state *known = &c->known[other];
            if (known->heartbeat_ns > 0 && !known->left &&
                known->heartbeat_ns + c->timeout_ns <= now)
                lose(c, other, now);
        }
    }
    return next;
}

static void deliver_agreement(cgp_communicator *to, int from, item *agreement) {
    item **end = &to->inbox[from];
    while (*end)
        end = &(*end)->next;
    *end = agreement;
    agreement->next = NULL;
    pthread_cond_broadcast(&to->changed);
}

static item *remove_first(lane *l) {
    item *first = l->first;
    l->first = first->next;
    return first;
}

static void put_back(lane *l, item *spare) {
    spare->next = l->spare;
    l->spare = spare;
}

static void deliver_on_edge(edge *e, bool is_message) {
    item *first = remove_first(&e->lanes[is_message]);
    cgp_link *to = e->ends[!is_message];
    if (to && is_message && !first->lost) deliver_message(to, first);
    if (to && !is_message) deliver_release(to, first);
    put_back(&e->lanes[is_message], first);
}

static void deliver_between(network *net, int pair) {
    cgp_communicator *to = net->ranks[pair % net->n];
    item *first = remove_first(&net->pairs[pair]);
    if (to && first->fails) deliver_failure(to, first);
    if (first->fails)
        put_back(&net->pairs[pair], first);
    else if (to)
        deliver_agreement(to, pair / net->n, first);
    else
        free(first);
}

static bool is_earlier(const lane *l, int64_t due_ns) {
    return l->first && l->first->due_ns < due_ns;
}

/* Deliver the item that is due first. If none is due, return the time at which the next item is
 * due. */
static int64_t deliver_first(network *net) {
    int64_t due_ns = INT64_MAX;
    edge *on_edge = NULL;
    bool is_message = false;
    int pair = -1;
    for (edge *e = net->edges; e; e = e->next) {
        for (int i = 0; i < 2; i++) {
            if (!is_earlier(&e->lanes[i], due_ns)) continue;
            due_ns = e->lanes[i].first->due_ns;
            on_edge = e;
            is_message = i;
        }
    }
    for (int p = 0; p < net->n * net->n; p++) {
        if (!is_earlier(&net->pairs[p], due_ns)) continue;
        due_ns = net->pairs[p].first->due_ns;
        pair = p;
    }
    if (due_ns > cgp__now_ns()) return due_ns;
    if (pair >= 0)
        deliver_between(net, pair);
    else
        deliver_on_edge(on_edge, is_message);
    return 0;
}

void *loopback_run_network(void *argument) {
    network *net = argument;
    pthread_mutex_lock(&net->lock);
    while (!net->ends) {
        const int64_t check_ns = run_detectors(net), due_ns = deliver_first(net);
        if (due_ns > 0) (void)cgp__wait_until(&net->filled, &net->lock, cgp__min(due_ns, check_ns));
    }
    pthread_mutex_unlock(&net->lock);
    return NULL;
}
