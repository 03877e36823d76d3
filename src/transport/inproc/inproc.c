/* SPDX-License-Identifier: Apache-2.0 */
/* inproc.c -- implements the two transports within a process: `inproc`, between the devices of one
 * rank, and `threads`, between ranks. Both have a network, with one lock; that of `inproc` has one
 * rank. An edge of the network has a channel, which both ends use. The channel uses the sender's
 * memory. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "transport/inproc/channel.h"
#include "transport/transport.h"

typedef struct network network;

struct cgp_link {
    cgp_communicator *communicator;
    struct edge *edge;
    bool sends;
};

/* An edge, which exists while one of its ends is open. */
typedef struct edge {
    struct edge *next;
    int number, capacity;
    int64_t bytes;
    cgp__channel *channel; /* NULL until the sender's end is open */
    cgp_link *ends[2];     /* receiver's link, sender's link; NULL: not open */
    bool opened[2];        /* set if the end has ever been opened */
} edge;

struct cgp_communicator {
    network *net;
    int rank;
    bool stopped;
    const void *mine; /* this rank's bytes in the current gather */
    cgp_rank_state state;
};

/* The first failure of a rank. */
typedef struct failed {
    cgp_status status; /* CGP_OK: there is none */
    int rank;
    char message[1024];
} failed;

struct network {
    pthread_mutex_t lock; /* guards all members, and the communicators; a channel's lock may be
                           * taken while this lock is held */
    pthread_cond_t changed;
    const cgp_transport *transport;
    int n, living;
    int entered; /* number of ranks that have entered the current barrier */
    int64_t barriers;
    edge *edges;
    failed failed;
    cgp_communicator ranks[]; /* [n] */
};

/* --- communicators --- */

static void destroy_network(network *net) {
    pthread_cond_destroy(&net->changed);
    pthread_mutex_destroy(&net->lock);
    free(net);
}

static cgp_status create(const cgp_transport *transport, int n, cgp_communicator **out) {
    const size_t size = sizeof(network) + (size_t)n * sizeof(cgp_communicator);
    network *net = cgp__calloc(1, size);
    if (!net) return cgp__no_memory(transport->name, size);
    pthread_mutex_init(&net->lock, NULL);
    cgp__condition_init(&net->changed);
    net->transport = transport;
    net->n = net->living = n;
    for (int r = 0; r < n; r++) {
        net->ranks[r] = (cgp_communicator){.net = net, .rank = r, .state.process = getpid()};
        out[r] = &net->ranks[r];
    }
    return CGP_OK;
}

cgp_status cgp__inproc_create(cgp_communicator **out) {
    return create(&cgp__transport_inproc, 1, out);
}

cgp_status cgp__threads_create(int n, cgp_communicator **out) {
    return create(&cgp__transport_threads, n, out);
}

/* Refuse a handle, because the transport has no processes that a handle could name. */
static cgp_status create_one(const void *handle, cgp_communicator **out) {
    if (handle) return cgp_fail(CGP_EINVAL, "inproc: expected NULL, got a handle");
    return cgp__inproc_create(out);
}

static cgp_status create_none(const void *handle, cgp_communicator **out) {
    (void)handle, (void)out;
    return cgp_fail(CGP_EINVAL, "threads: expected a plan with replicas, which makes the ranks");
}

static void communicator_destroy(cgp_communicator *communicator) {
    if (!communicator) return;
    network *net = communicator->net;
    pthread_mutex_lock(&net->lock);
    communicator->state.left = true;
    const bool last = --net->living == 0;
    pthread_mutex_unlock(&net->lock);
    if (last) destroy_network(net);
}

static int rank_of(const cgp_communicator *communicator) {
    return communicator->rank;
}

static int ranks_of(const cgp_communicator *communicator) {
    return communicator->net->n;
}

/* --- links; called with the lock held, except link_open and link_close --- */

/* Return the place of the pointer to an edge, or of the last NULL pointer. */
static edge **find_edge(network *net, int number) {
    edge **at = &net->edges;
    while (*at && (*at)->number != number)
        at = &(*at)->next;
    return at;
}

/* Stop the ends of an edge whose ranks are stopped. */
static void stop_ends(const edge *e) {
    for (int side = 0; e->channel && side < 2; side++) {
        if (e->ends[side] && e->ends[side]->communicator->stopped)
            cgp__channel_stop(e->channel, side);
    }
}

static void drop_if_closed(network *net, edge *e) {
    if (e->ends[false] || e->ends[true]) return;
    *find_edge(net, e->number) = e->next;
    cgp__channel_destroy(e->channel);
    free(e);
}

static cgp_status check_end(const network *net, const edge *e, const cgp_link_options *options) {
    const char *name = net->transport->name;
    if (e->opened[options->sends])
        return cgp_fail(CGP_EINVAL,
                        "%s, edge %d: expected one %s, got another (close both ends first)", name,
                        e->number, options->sends ? "sender" : "receiver");
    if (e->capacity != options->capacity || e->bytes != options->bytes)
        return cgp_fail(CGP_EINVAL,
                        "%s, edge %d: expected %d buffers of %lld bytes as at the other end, got "
                        "%d of %lld",
                        name, e->number, e->capacity, (long long)e->bytes, options->capacity,
                        (long long)options->bytes);
    return CGP_OK;
}

/* Make the channel for both ends, with the sender's memory. */
static cgp_status create_channel(const network *net, edge *e, const cgp_link_options *options) {
    const int64_t header = net->transport->copies ? CGP_LINK_HEADER_BYTES : 0;
    return cgp__channel_create(&e->channel, (char *)options->memory + header,
                               header + options->bytes, options->capacity, options->spin_ns);
}

static cgp_status open_end(network *net, const cgp_link_options *options, cgp_link *link) {
    edge **at = find_edge(net, options->edge), *e = *at;
    if (!e) {
        CGP_TRY(CGP__NEW(e, 1, net->transport->name));
        e->number = options->edge;
        e->capacity = options->capacity;
        e->bytes = options->bytes;
        *at = e;
    }
    cgp_status status = check_end(net, e, options);
    if (status == CGP_OK && options->sends) status = create_channel(net, e, options);
    if (status == CGP_OK) {
        link->edge = e;
        link->sends = options->sends;
        e->ends[link->sends] = link;
        e->opened[link->sends] = true;
        stop_ends(e);
    } else {
        drop_if_closed(net, e);
    }
    return status;
}

static cgp_status link_open(cgp_communicator *communicator, const cgp_link_options *options,
                            cgp_link **out) {
    network *net = communicator->net;
    cgp_link *link = NULL;
    CGP_TRY(cgp__link_check(net->transport, options, net->n));
    CGP_TRY(CGP__NEW(link, 1, net->transport->name));
    link->communicator = communicator;
    pthread_mutex_lock(&net->lock);
    const cgp_status status = open_end(net, options, link);
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
    link->edge->ends[link->sends] = NULL;
    drop_if_closed(net, link->edge);
    pthread_mutex_unlock(&net->lock);
    free(link);
}

/* --- messages --- */

static bool acquire(cgp_link *link, int64_t timeout_ns, cgp_link_message *out) {
    return cgp__channel_hold(link->edge->channel, CGP__CHANNEL_FREE, timeout_ns, out);
}

static bool take(cgp_link *link, int microbatch, int64_t timeout_ns, cgp_link_message *out) {
    return cgp__channel_hold(link->edge->channel, microbatch, timeout_ns, out);
}

static void post(cgp_link *link, const cgp_link_message *message) {
    cgp__channel_hand_over(link->edge->channel, message, message->microbatch);
}

static void release(cgp_link *link, const cgp_link_message *message) {
    cgp__channel_hand_over(link->edge->channel, message, CGP__CHANNEL_FREE);
}

static bool waits(cgp_link *link) {
    return cgp__channel_waits(link->edge->channel, link->sends);
}

/* Do nothing, because a message arrives as soon as it is posted. */
static void progress(cgp_communicator *communicator) {
    (void)communicator;
}

/* Do nothing, because messages are not copied. */
static void verify(cgp_communicator *communicator, bool verifies) {
    (void)communicator, (void)verifies;
}

/* --- failures --- */

/* Stop a rank, and wake its threads. Called with the lock held. */
static void stop_rank(cgp_communicator *communicator) {
    network *net = communicator->net;
    communicator->stopped = true;
    for (const edge *e = net->edges; e; e = e->next)
        stop_ends(e);
    pthread_cond_broadcast(&net->changed);
}

static void stop(cgp_communicator *communicator) {
    pthread_mutex_lock(&communicator->net->lock);
    stop_rank(communicator);
    pthread_mutex_unlock(&communicator->net->lock);
}

static void fail(cgp_communicator *communicator, cgp_status status, const char *message) {
    network *net = communicator->net;
    pthread_mutex_lock(&net->lock);
    if (net->failed.status == CGP_OK) {
        net->failed.status = status;
        net->failed.rank = communicator->rank;
        snprintf(net->failed.message, sizeof net->failed.message, "%s", message);
        for (int r = 0; r < net->n; r++)
            stop_rank(&net->ranks[r]);
    }
    pthread_mutex_unlock(&net->lock);
}

static cgp_status first(cgp_communicator *communicator, int *rank, char *message, size_t size) {
    network *net = communicator->net;
    cgp_status status = CGP_OK;
    pthread_mutex_lock(&net->lock);
    if (net->failed.status != CGP_OK && net->failed.rank != communicator->rank) {
        status = net->failed.status;
        *rank = net->failed.rank;
        snprintf(message, size, "%s", net->failed.message);
    }
    pthread_mutex_unlock(&net->lock);
    return status;
}

/* Do nothing: a thread ends only together with the other ranks. */
static cgp_status watch(cgp_communicator *communicator, int64_t timeout_ns) {
    (void)communicator, (void)timeout_ns;
    return CGP_OK;
}

static void report_progress(cgp_communicator *communicator, int64_t ended, int64_t end_ns) {
    pthread_mutex_lock(&communicator->net->lock);
    communicator->state.ended = ended;
    communicator->state.end_ns = end_ns;
    pthread_mutex_unlock(&communicator->net->lock);
}

static void rank_states(cgp_communicator *communicator, cgp_rank_state *out) {
    network *net = communicator->net;
    pthread_mutex_lock(&net->lock);
    for (int r = 0; r < net->n; r++) {
        out[r] = net->ranks[r].state;
        out[r].heartbeat_ns = cgp__now_ns();
    }
    pthread_mutex_unlock(&net->lock);
}

/* Do nothing, because there is no launcher. */
static void end_all(cgp_communicator *communicator, int code) {
    (void)communicator, (void)code;
}

/* --- agreements; the functions with a lock are called with it held --- */

/* Set cgp_message() to the reason why a rank is stopped. */
static cgp_status stopped(const cgp_communicator *communicator) {
    const failed *f = &communicator->net->failed;
    if (f->status == CGP_OK) return cgp_fail(CGP_EPEER, "rank %d: was stopped", communicator->rank);
    return cgp_fail(CGP_EPEER, "rank %d: %s", f->rank, f->message);
}

/* Wait until all ranks have entered this barrier. */
static cgp_status enter(cgp_communicator *communicator) {
    network *net = communicator->net;
    const int64_t barrier = net->barriers;
    if (communicator->stopped) return stopped(communicator);
    communicator->state.agreeing_ns = cgp__now_ns();
    if (++net->entered == net->n) {
        net->entered = 0;
        net->barriers++;
        pthread_cond_broadcast(&net->changed);
    }
    while (net->barriers == barrier && !communicator->stopped)
        pthread_cond_wait(&net->changed, &net->lock);
    communicator->state.agreeing_ns = 0;
    return net->barriers == barrier ? stopped(communicator) : CGP_OK;
}

static cgp_status barrier(cgp_communicator *communicator) {
    network *net = communicator->net;
    pthread_mutex_lock(&net->lock);
    communicator->state.agreements++;
    const cgp_status status = enter(communicator);
    pthread_mutex_unlock(&net->lock);
    return status;
}

/* Copy the bytes of all ranks. After a failure, other ranks may have left the gather, and their
 * bytes may be gone. */
static cgp_status collect(const cgp_communicator *communicator, char *all, const size_t *bytes) {
    const network *net = communicator->net;
    if (communicator->stopped) return stopped(communicator);
    for (int r = 0; r < net->n; r++) {
        if (bytes[r] > 0 && net->ranks[r].mine != all) memcpy(all, net->ranks[r].mine, bytes[r]);
        all += bytes[r];
    }
    return CGP_OK;
}

static cgp_status gather(cgp_communicator *communicator, const void *mine, void *all,
                         const size_t *bytes) {
    network *net = communicator->net;
    pthread_mutex_lock(&net->lock);
    communicator->state.agreements++;
    communicator->mine = mine;
    cgp_status status = enter(communicator);
    if (status == CGP_OK) status = collect(communicator, all, bytes);
    if (status == CGP_OK) status = enter(communicator); /* until all ranks have copied `mine` */
    pthread_mutex_unlock(&net->lock);
    return status;
}

/* The fields that both tables share. */
#define FUNCTIONS                                                                                  \
    .struct_size = sizeof(cgp_transport), .communicator_destroy = communicator_destroy,            \
    .rank = rank_of, .ranks = ranks_of, .links.open = link_open, .links.close = link_close,        \
    .links.acquire = acquire, .links.take = take, .links.post = post, .links.release = release,    \
    .links.waits = waits, .links.progress = progress, .links.verify = verify,                      \
    .agreement.barrier = barrier, .agreement.gather = gather, .failures.fail = fail,               \
    .failures.first = first, .failures.watch = watch, .failures.report_progress = report_progress, \
    .failures.rank_states = rank_states, .failures.stop = stop, .failures.abort = end_all

const cgp_transport cgp__transport_inproc = {
    .name = "inproc", .copies = false, .communicator_create = create_one, FUNCTIONS};

const cgp_transport cgp__transport_threads = {
    .name = "threads", .copies = true, .communicator_create = create_none, FUNCTIONS};
