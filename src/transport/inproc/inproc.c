/* SPDX-License-Identifier: Apache-2.0 */
/* inproc.c -- implements the transport between the devices of one rank. The two links of an edge
 * are opened on the rank's communicator, and share a channel. The channel uses the sender's
 * memory. */
#include "transport/inproc/channel.h"
#include "transport/transport.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct cgp_link {
    cgp__channel *channel; /* NULL until the sender's end is open */
    cgp_communicator *communicator;
    int edge;
    bool sends;
};

/* An edge, which exists while one of its ends is open. */
typedef struct edge {
    int number, capacity;
    int64_t bytes;
    cgp__channel *channel;
    cgp_link *ends[2]; /* receiver's link, sender's link; NULL: not open */
    bool opened[2];    /* set if the end has ever been opened */
} edge;

struct cgp_communicator {
    pthread_mutex_t lock; /* guards the members below; a channel's lock may be taken while this lock
                           * is held */
    edge *edges;
    int n, capacity;
    bool stopped;
    char failure[1024]; /* the first failure of this rank; "": there was none */
};

cgp_status cgp__inproc_create(cgp_communicator **out) {
    cgp_communicator *communicator = NULL;
    CGP_TRY(CGP__NEW(communicator, 1, "inproc"));
    pthread_mutex_init(&communicator->lock, NULL);
    *out = communicator;
    return CGP_OK;
}

/* Refuse a handle, because the transport has no processes that a handle could name. */
static cgp_status communicator_create(const void *handle, cgp_communicator **out) {
    if (handle) return cgp_fail(CGP_EINVAL, "inproc: expected NULL, got a handle");
    return cgp__inproc_create(out);
}

static void communicator_destroy(cgp_communicator *communicator) {
    if (!communicator) return;
    pthread_mutex_destroy(&communicator->lock);
    free(communicator->edges);
    free(communicator);
}

static int rank_of(const cgp_communicator *communicator) {
    (void)communicator;
    return 0;
}

static int ranks_of(const cgp_communicator *communicator) {
    (void)communicator;
    return 1;
}

/* --- links; called with the lock held, except link_open and link_close --- */

static edge *find_edge(cgp_communicator *communicator, int number) {
    for (int i = 0; i < communicator->n; i++) {
        if (communicator->edges[i].number == number) return &communicator->edges[i];
    }
    return NULL;
}

/* Return the edge of an end that is about to open. If the other end is not open, make a new
 * edge. */
static cgp_status edge_for(cgp_communicator *communicator, const cgp_link_options *options,
                           edge **out) {
    edge *e = find_edge(communicator, options->edge);
    if (!e) {
        if (!cgp__grow(&communicator->edges, &communicator->capacity, communicator->n + 1,
                       sizeof(edge)))
            return cgp__no_memory("inproc", sizeof(edge));
        e = &communicator->edges[communicator->n++];
        *e =
            (edge){.number = options->edge, .capacity = options->capacity, .bytes = options->bytes};
    }
    *out = e;
    if (e->opened[options->sends])
        return cgp_fail(CGP_EINVAL,
                        "inproc, edge %d: expected one %s, got another (close both ends first)",
                        e->number, options->sends ? "sender" : "receiver");
    if (e->capacity != options->capacity || e->bytes != options->bytes)
        return cgp_fail(CGP_EINVAL,
                        "inproc, edge %d: expected %d buffers of %" PRId64
                        " bytes as at the other end, got %d of %" PRId64,
                        e->number, e->capacity, e->bytes, options->capacity, options->bytes);
    return CGP_OK;
}

static void stop_channel(cgp__channel *channel) {
    cgp__channel_stop(channel, false);
    cgp__channel_stop(channel, true);
}

/* Make the channel for both ends, with the sender's memory. */
static cgp_status create_channel(cgp_communicator *communicator, edge *e,
                                 const cgp_link_options *options) {
    CGP_TRY(cgp__channel_create(&e->channel, options->memory, options->bytes, options->capacity,
                                options->spin_ns));
    if (e->ends[false]) e->ends[false]->channel = e->channel;
    if (communicator->stopped) stop_channel(e->channel);
    return CGP_OK;
}

/* Remove an edge that has no open end. */
static void drop_if_closed(cgp_communicator *communicator, edge *e) {
    if (e->ends[false] || e->ends[true]) return;
    cgp__channel_destroy(e->channel);
    *e = communicator->edges[--communicator->n];
}

static cgp_status open_end(cgp_communicator *communicator, const cgp_link_options *options,
                           cgp_link *link) {
    edge *e = NULL;
    cgp_status status = edge_for(communicator, options, &e);
    if (status == CGP_OK && options->sends) status = create_channel(communicator, e, options);
    if (status == CGP_OK) {
        *link = (cgp_link){e->channel, communicator, e->number, options->sends};
        e->ends[options->sends] = link;
        e->opened[options->sends] = true;
    } else if (e) {
        drop_if_closed(communicator, e);
    }
    return status;
}

static cgp_status link_open(cgp_communicator *communicator, const cgp_link_options *options,
                            cgp_link **out) {
    cgp_link *link = NULL;
    CGP_TRY(cgp__link_check(&cgp__transport_inproc, options, 1));
    CGP_TRY(CGP__NEW(link, 1, "inproc"));
    pthread_mutex_lock(&communicator->lock);
    const cgp_status status = open_end(communicator, options, link);
    pthread_mutex_unlock(&communicator->lock);
    if (status == CGP_OK)
        *out = link;
    else
        free(link);
    return status;
}

static void link_close(cgp_link *link) {
    if (!link) return;
    cgp_communicator *communicator = link->communicator;
    pthread_mutex_lock(&communicator->lock);
    edge *e = find_edge(communicator, link->edge);
    e->ends[link->sends] = NULL;
    drop_if_closed(communicator, e);
    pthread_mutex_unlock(&communicator->lock);
    free(link);
}

/* --- messages --- */

static bool acquire(cgp_link *link, int64_t timeout_ns, cgp_link_message *out) {
    return cgp__channel_hold(link->channel, CGP__CHANNEL_FREE, timeout_ns, out);
}

static bool take(cgp_link *link, int microbatch, int64_t timeout_ns, cgp_link_message *out) {
    return cgp__channel_hold(link->channel, microbatch, timeout_ns, out);
}

static void post(cgp_link *link, const cgp_link_message *message) {
    cgp__channel_hand_over(link->channel, message, message->microbatch);
}

static void release(cgp_link *link, const cgp_link_message *message) {
    cgp__channel_hand_over(link->channel, message, CGP__CHANNEL_FREE);
}

static bool waits(cgp_link *link) {
    return cgp__channel_waits(link->channel, link->sends);
}

/* --- agreements of one rank with itself --- */

static void stop_for(cgp_communicator *communicator, const char *failure) {
    pthread_mutex_lock(&communicator->lock);
    if (!communicator->failure[0])
        snprintf(communicator->failure, sizeof communicator->failure, "%s", failure);
    communicator->stopped = true;
    for (int i = 0; i < communicator->n; i++) {
        if (communicator->edges[i].channel) stop_channel(communicator->edges[i].channel);
    }
    pthread_mutex_unlock(&communicator->lock);
}

static void stop(cgp_communicator *communicator) {
    stop_for(communicator, "");
}

static cgp_status barrier(cgp_communicator *communicator) {
    char failure[sizeof communicator->failure];
    pthread_mutex_lock(&communicator->lock);
    const bool stopped = communicator->stopped;
    memcpy(failure, communicator->failure, sizeof failure);
    pthread_mutex_unlock(&communicator->lock);
    if (!stopped) return CGP_OK;
    return cgp_fail(CGP_EPEER, "rank 0: %s", failure[0] ? failure : "was stopped");
}

static cgp_status gather(cgp_communicator *communicator, const void *mine, void *all,
                         const size_t *bytes) {
    CGP_TRY(barrier(communicator));
    if (mine != all && bytes[0] > 0) memcpy(all, mine, bytes[0]);
    return CGP_OK;
}

static void fail(cgp_communicator *communicator, cgp_status status, const char *message) {
    (void)status;
    stop_for(communicator, message);
}

/* Do nothing, because a message arrives as soon as it is posted. */
static void progress(cgp_communicator *communicator) {
    (void)communicator;
}

/* Report no failure, because there is no other rank. */
static cgp_status failure(cgp_communicator *communicator, int *rank, char *message, size_t size) {
    (void)communicator, (void)rank, (void)message, (void)size;
    return CGP_OK;
}

static cgp_status watch(cgp_communicator *communicator, int64_t timeout_ns) {
    (void)communicator, (void)timeout_ns;
    return CGP_OK;
}

static void report_progress(cgp_communicator *communicator, int64_t ended, int64_t end_ns) {
    (void)communicator, (void)ended, (void)end_ns;
}

static void rank_states(cgp_communicator *communicator, cgp_rank_state *out) {
    (void)communicator;
    *out = (cgp_rank_state){.heartbeat_ns = cgp__now_ns()};
}

static void verify(cgp_communicator *communicator, bool verifies) {
    (void)communicator, (void)verifies;
}

/* Do nothing, because there is no launcher. */
static void end_all(cgp_communicator *communicator, int code) {
    (void)communicator, (void)code;
}

const cgp_transport cgp__transport_inproc = {
    .struct_size = sizeof(cgp_transport),
    .name = "inproc",
    .copies = false,
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
    .failures.fail = fail,
    .failures.first = failure,
    .failures.watch = watch,
    .failures.report_progress = report_progress,
    .failures.rank_states = rank_states,
    .failures.stop = stop,
    .failures.abort = end_all,
};
