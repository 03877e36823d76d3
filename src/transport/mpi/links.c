/* SPDX-License-Identifier: Apache-2.0 */
/* links.c -- sends and receives the messages and releases of an edge.
 *
 *     sender                                        receiver
 *     buffer i ── header and bytes, tag 2 e ──────► one of `capacity` receives; each receive has
 *                                                   its own buffer
 *     buffer i ◄───────── i, tag 2 e + 1 ────────── release: start the receive again, then send i
 *                                                   back
 *
 * The releases ensure that the sender sends a message only if a receive for the message is started.
 * So MPI never has to store a message. Requests are persistent: they are created once, when the
 * link is opened. A header identifies its message, so the receiver can drop duplicates. It also
 * drops messages that were sent before the edge was last opened. */
#include "transport/mpi/world.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

typedef struct header {
    int32_t edge, opening, microbatch, slot; /* slot: index of the sender's buffer */
    int64_t sequence, bytes;
    int64_t late_ns;       /* injected delay after the arrival, in ns */
    uint32_t has_checksum; /* set if `checksum` covers the header (with checksum = 0) and the
                            * bytes */
    uint32_t checksum;
} header;

_Static_assert(sizeof(header) <= CGP_LINK_HEADER_BYTES, "a header fits its place");

typedef struct release {
    int32_t opening, slot;
} release;

typedef enum state {
    FREE,    /* sender: the buffer can be acquired; receiver: the buffer's receive is started */
    HELD,    /* held by the caller */
    AWAY,    /* sender: the buffer is posted and not released */
    ARRIVED, /* receiver: the buffer has the message of `microbatch` */
} state;

typedef struct buffer {
    state state;
    int32_t microbatch, slot; /* receiver: the message's micro-batch and the sender's slot */
    int64_t bytes;
    int64_t released_ns;  /* arrival time of the other end's release or message */
    MPI_Request whole;    /* persistent request that sends or receives the header and all bytes */
    MPI_Request part;     /* sender: request that sends fewer bytes, or sends a message a second
                           * time */
    MPI_Request released; /* receiver: persistent request that sends `answer` */
    release answer;
} buffer;

struct cgp_link {
    cgp_communicator *communicator;
    cgp_link_options options;
    int32_t opening;
    /* This lock guards the members below, except `waits`. It is needed because progress() notes
     * arrivals if a delay is injected. Only MPI's own locks are taken while this lock is held. */
    pthread_mutex_t lock;
    cgp_link *next;   /* next link in the communicator's list of open links; guarded by the
                       * communicator's lock */
    int64_t sequence; /* number of the next message */
    bool verify;
    atomic_bool waits;
    MPI_Request release; /* sender: persistent request that receives `answer` */
    release answer;
    /* Receiver: [capacity] a ring of the buffers whose receive is started. MPI fills these buffers
     * in the order in which their receives were started. */
    int *started;
    int first, n_started;
    buffer buffers[]; /* [capacity] */
};

static char *header_at(const cgp_link *link, int i) {
    return (char *)link->options.memory + i * (CGP_LINK_HEADER_BYTES + link->options.bytes);
}

static char *bytes_at(const cgp_link *link, int i) {
    return header_at(link, i) + CGP_LINK_HEADER_BYTES;
}

/* --- open, close --- */

/* Find or add the entry of an end. Refuse an end that is already open. */
static cgp_status find_edge(cgp_communicator *c, const cgp_link_options *o, cgp__mpi_edge **out) {
    for (int i = 0; i < c->n_edges; i++) {
        cgp__mpi_edge *e = &c->edges[i];
        if (e->number != o->edge || e->sends != o->sends) continue;
        if (e->open)
            return CGP__MPI_FAIL(CGP_EINVAL, "mpi, edge %d: expected one %s, got another", o->edge,
                                 o->sends ? "sender" : "receiver");
        if (e->peer == o->peer) *out = e;
    }
    if (*out) return CGP_OK;
    if (c->n_edges == c->edges_capacity) {
        const int capacity = c->edges_capacity ? 2 * c->edges_capacity : 16;
        cgp__mpi_edge *edges = realloc(c->edges, (size_t)capacity * sizeof *edges);
        if (!edges)
            return CGP__MPI_FAIL(CGP_ENOMEM, "mpi: out of memory (%zu bytes)",
                                 (size_t)capacity * sizeof *edges);
        c->edges = edges;
        c->edges_capacity = capacity;
    }
    *out = &c->edges[c->n_edges++];
    **out = (cgp__mpi_edge){.number = o->edge, .peer = o->peer, .sends = o->sends};
    return CGP_OK;
}

static cgp_status check(const cgp_communicator *c, const cgp_link_options *o) {
    CGP_TRY(cgp__mpi_host->link_check(&cgp__mpi_table, o, c->ranks));
    if (o->bytes > INT_MAX - CGP_LINK_HEADER_BYTES)
        return CGP__MPI_FAIL(CGP_ELIMIT,
                             "mpi, edge %d: expected messages below 2 GiB, which MPI can count, "
                             "got %" PRId64 " bytes (smaller micro-batches)",
                             o->edge, o->bytes);
    if (o->edge > (c->last_tag - 1) / 2)
        return CGP__MPI_FAIL(CGP_ELIMIT,
                             "mpi, edge %d: expected at most %d edges, which this MPI has tags "
                             "for (fewer stages)",
                             o->edge, (c->last_tag + 1) / 2);
    return CGP_OK;
}

static cgp_status make_sender(cgp_link *link) {
    const cgp_link_options *o = &link->options;
    const int bytes = (int)(CGP_LINK_HEADER_BYTES + o->bytes), tag = 2 * o->edge;
    MPI_Comm comm = link->communicator->links;
    for (int i = 0; i < o->capacity; i++)
        CGP_TRY(cgp__mpi_check(MPI_Send_init(header_at(link, i), bytes, MPI_BYTE, o->peer, tag,
                                             comm, &link->buffers[i].whole),
                               "MPI_Send_init"));
    CGP_TRY(cgp__mpi_check(MPI_Recv_init(&link->answer, sizeof link->answer, MPI_BYTE, o->peer,
                                         tag + 1, comm, &link->release),
                           "MPI_Recv_init"));
    return cgp__mpi_check(MPI_Start(&link->release), "MPI_Start");
}

/* Start the receive of a buffer. */
static cgp_status start_receive(cgp_link *link, buffer *b) {
    const int i = (link->first + link->n_started) % link->options.capacity;
    link->started[i] = (int)(b - link->buffers);
    link->n_started++;
    b->state = FREE;
    return cgp__mpi_check(MPI_Start(&b->whole), "MPI_Start");
}

static cgp_status make_receiver(cgp_link *link) {
    const cgp_link_options *o = &link->options;
    const int bytes = (int)(CGP_LINK_HEADER_BYTES + o->bytes), tag = 2 * o->edge;
    MPI_Comm comm = link->communicator->links;
    for (int i = 0; i < o->capacity; i++) {
        buffer *b = &link->buffers[i];
        CGP_TRY(cgp__mpi_check(
            MPI_Recv_init(header_at(link, i), bytes, MPI_BYTE, o->peer, tag, comm, &b->whole),
            "MPI_Recv_init"));
        CGP_TRY(cgp__mpi_check(MPI_Send_init(&b->answer, sizeof b->answer, MPI_BYTE, o->peer,
                                             tag + 1, comm, &b->released),
                               "MPI_Send_init"));
        CGP_TRY(start_receive(link, b));
    }
    return CGP_OK;
}

cgp_status cgp__mpi_link_open(cgp_communicator *c, const cgp_link_options *options,
                              cgp_link **out) {
    cgp__mpi_edge *edge = NULL;
    CGP_TRY(check(c, options));
    CGP_TRY(find_edge(c, options, &edge));
    const size_t size =
        sizeof(cgp_link) + (size_t)options->capacity * (sizeof(buffer) + sizeof(int));
    cgp_link *link = calloc(1, size);
    if (!link) return CGP__MPI_FAIL(CGP_ENOMEM, "mpi: out of memory (%zu bytes)", size);
    pthread_mutex_init(&link->lock, NULL);
    link->communicator = c;
    link->options = *options;
    link->opening = edge->openings++;
    link->verify = c->verify;
    edge->open = true;
    link->release = MPI_REQUEST_NULL;
    link->started = (int *)(void *)(link->buffers + options->capacity);
    for (int i = 0; i < options->capacity; i++) {
        buffer *b = &link->buffers[i];
        b->whole = b->part = b->released = MPI_REQUEST_NULL;
    }
    const cgp_status status = options->sends ? make_sender(link) : make_receiver(link);
    pthread_mutex_lock(&c->lock);
    link->next = c->open;
    c->open = link;
    pthread_mutex_unlock(&c->lock);
    if (status == CGP_OK)
        *out = link;
    else
        cgp__mpi_link_close(link);
    return status;
}

/* Remove a link from the communicator's list. */
static void unlist(cgp_link *link) {
    cgp_communicator *c = link->communicator;
    pthread_mutex_lock(&c->lock);
    cgp_link **at = &c->open;
    while (*at != link)
        at = &(*at)->next;
    *at = link->next;
    pthread_mutex_unlock(&c->lock);
}

void cgp__mpi_link_close(cgp_link *link) {
    if (!link) return;
    cgp_communicator *c = link->communicator;
    unlist(link);
    for (int i = 0; i < link->options.capacity; i++) {
        cgp__mpi_drop(&link->buffers[i].whole);
        cgp__mpi_drop(&link->buffers[i].part);
        cgp__mpi_drop(&link->buffers[i].released);
    }
    cgp__mpi_drop(&link->release);
    for (int i = 0; i < c->n_edges; i++) {
        cgp__mpi_edge *e = &c->edges[i];
        if (e->number == link->options.edge && e->sends == link->options.sends) e->open = false;
    }
    pthread_mutex_destroy(&link->lock);
    free(link);
}

/* --- waits --- */

/* Return true if a message or release counts as arrived. After an injected delay or fault, it
 * counts as arrived later than MPI received it. */
static bool has_arrived(const buffer *b) {
    return b->released_ns <= cgp__mpi_host->now_ns();
}

/* Process the releases that MPI has received. */
static cgp_status take_releases(cgp_link *link) {
    for (;;) {
        int done = 0;
        CGP_TRY(cgp__mpi_check(MPI_Test(&link->release, &done, MPI_STATUS_IGNORE), "MPI_Test"));
        if (!done) return CGP_OK;
        const release r = link->answer;
        CGP_TRY(cgp__mpi_check(MPI_Start(&link->release), "MPI_Start"));
        if (r.opening != link->opening || r.slot < 0 || r.slot >= link->options.capacity)
            continue; /* the release was sent before the edge was last opened */
        buffer *b = &link->buffers[r.slot];
        if (b->state != AWAY) continue;
        b->released_ns = cgp__mpi_host->now_ns() + link->communicator->delay_ns;
        b->state = FREE;
    }
}

/* Set *left to 1 if MPI has completed all sends from a buffer, otherwise to 0. */
static cgp_status has_left(buffer *b, int *left) {
    CGP_TRY(cgp__mpi_check(MPI_Test(&b->part, left, MPI_STATUS_IGNORE), "MPI_Test"));
    if (!*left) return CGP_OK;
    return cgp__mpi_check(MPI_Test(&b->whole, left, MPI_STATUS_IGNORE), "MPI_Test");
}

static cgp_status find_free(cgp_link *link, int microbatch, buffer **out) {
    (void)microbatch;
    CGP_TRY(take_releases(link));
    for (int i = 0; i < link->options.capacity; i++) {
        int left = 0;
        if (link->buffers[i].state != FREE || !has_arrived(&link->buffers[i])) continue;
        CGP_TRY(has_left(&link->buffers[i], &left));
        if (!left) continue;
        *out = &link->buffers[i];
        return CGP_OK;
    }
    return CGP_OK;
}

/* Return the checksum of the header and the bytes of buffer `i`. */
static uint32_t checksum_of(const cgp_link *link, int i, const header *h) {
    header plain = *h;
    plain.checksum = 0;
    memcpy(header_at(link, i), &plain, sizeof plain);
    const uint32_t sum =
        cgp__mpi_checksum(header_at(link, i), CGP_LINK_HEADER_BYTES + (size_t)h->bytes);
    memcpy(header_at(link, i), h, sizeof *h);
    return sum;
}

static bool fits(const cgp_link *link, const header *h) {
    return h->bytes >= 0 && h->bytes <= link->options.bytes;
}

/* If the link verifies checksums, check the checksum of the message in buffer `i`. */
static cgp_status check_bytes(const cgp_link *link, int i, const header *h) {
    if (!link->verify ||
        (h->has_checksum && fits(link, h) && checksum_of(link, i, h) == h->checksum))
        return CGP_OK;
    return CGP__MPI_FAIL(CGP_EDEVICE,
                         "mpi, edge %d: the message of micro-batch %d from rank %d to rank %d, "
                         "%" PRId64 " bytes, was damaged on its way (checksum)",
                         link->options.edge, h->microbatch, link->options.peer,
                         link->communicator->rank, h->bytes);
}

/* Process the message in a buffer. Drop the message if it is a duplicate, or if it was sent before
 * the edge was last opened. */
static cgp_status enter(cgp_link *link, buffer *b) {
    header h;
    const int i = (int)(b - link->buffers);
    memcpy(&h, header_at(link, i), sizeof h);
    CGP_TRY(check_bytes(link, i, &h));
    if (h.opening != link->opening || h.edge != link->options.edge || h.sequence < link->sequence) {
        if (h.opening == link->opening)
            cgp__mpi_host->log(CGP_LOG_WARN, "mpi",
                               "edge %d: message %" PRId64 " of micro-batch %d came twice: dropped",
                               link->options.edge, h.sequence, h.microbatch);
        return start_receive(link, b);
    }
    if (!fits(link, &h))
        return CGP__MPI_FAIL(CGP_EDEVICE,
                             "mpi, edge %d: expected a message of at most %" PRId64
                             " bytes, got %" PRId64,
                             link->options.edge, link->options.bytes, h.bytes);
    link->sequence = h.sequence + 1;
    b->state = ARRIVED;
    b->microbatch = h.microbatch;
    b->slot = h.slot;
    b->bytes = h.bytes;
    b->released_ns = cgp__mpi_host->now_ns() + link->communicator->delay_ns + h.late_ns;
    return CGP_OK;
}

/* Process the messages that MPI has received, in the order of their receives. */
static cgp_status take_messages(cgp_link *link) {
    int done = 1;
    while (link->n_started > 0) {
        buffer *b = &link->buffers[link->started[link->first]];
        CGP_TRY(cgp__mpi_check(MPI_Test(&b->whole, &done, MPI_STATUS_IGNORE), "MPI_Test"));
        if (!done) break;
        link->first = (link->first + 1) % link->options.capacity;
        link->n_started--;
        CGP_TRY(enter(link, b));
    }
    return CGP_OK;
}

cgp_status cgp__mpi_note_arrivals(cgp_communicator *c) {
    cgp_status status = CGP_OK;
    for (cgp_link *link = c->open; link && status == CGP_OK; link = link->next) {
        if (pthread_mutex_trylock(&link->lock) != 0) continue; /* another thread uses the link */
        status = link->options.sends ? take_releases(link) : take_messages(link);
        pthread_mutex_unlock(&link->lock);
    }
    return status;
}

static cgp_status find_message(cgp_link *link, int microbatch, buffer **out) {
    CGP_TRY(take_messages(link));
    for (int i = 0; i < link->options.capacity; i++) {
        buffer *b = &link->buffers[i];
        if (b->state == ARRIVED && b->microbatch == microbatch && has_arrived(b)) *out = b;
    }
    return CGP_OK;
}

typedef cgp_status find(cgp_link *link, int microbatch, buffer **out);

static cgp_status try_hold(cgp_link *link, find *look, int microbatch, buffer **out) {
    pthread_mutex_lock(&link->lock);
    const cgp_status status = look(link, microbatch, out);
    if (status == CGP_OK && *out) (*out)->state = HELD;
    pthread_mutex_unlock(&link->lock);
    return status;
}

static bool hold(cgp_link *link, find *look, int microbatch, int64_t timeout_ns,
                 cgp_link_message *out) {
    const cgp__mpi_wait wait = cgp__mpi_wait_begin(link->options.spin_ns, timeout_ns);
    buffer *b = NULL;
    for (bool goes_on = true; goes_on && !atomic_load(&link->communicator->ended);) {
        const cgp_status status = try_hold(link, look, microbatch, &b);
        if (status != CGP_OK) cgp__mpi_break(link->communicator, status);
        if (b || status != CGP_OK) break;
        cgp__mpi_progress(link->communicator);
        atomic_store_explicit(&link->waits, true, memory_order_relaxed);
        goes_on = cgp__mpi_wait_on(&wait);
    }
    atomic_store_explicit(&link->waits, false, memory_order_relaxed);
    if (!b || atomic_load(&link->communicator->ended)) return false;
    const int i = (int)(b - link->buffers);
    *out = (cgp_link_message){.buffer = bytes_at(link, i),
                              .microbatch = microbatch,
                              .bytes = b->bytes,
                              .released_ns = b->released_ns};
    return true;
}

bool cgp__mpi_acquire(cgp_link *link, int64_t timeout_ns, cgp_link_message *out) {
    return hold(link, find_free, -1, timeout_ns, out);
}

bool cgp__mpi_take(cgp_link *link, int microbatch, int64_t timeout_ns, cgp_link_message *out) {
    return hold(link, find_message, microbatch, timeout_ns, out);
}

bool cgp__mpi_waits(cgp_link *link) {
    return atomic_load_explicit(&link->waits, memory_order_relaxed);
}

/* --- post, release --- */

static int index_of(const cgp_link *link, const cgp_link_message *message) {
    const int64_t stride = CGP_LINK_HEADER_BYTES + link->options.bytes;
    return (int)(((const char *)message->buffer - (const char *)link->options.memory) / stride);
}

/* Send the header and `bytes` bytes of buffer `i` with the request `part`. */
static cgp_status send_part(cgp_link *link, int i, int64_t bytes) {
    return cgp__mpi_check(MPI_Isend(header_at(link, i), (int)(CGP_LINK_HEADER_BYTES + bytes),
                                    MPI_BYTE, link->options.peer, 2 * link->options.edge,
                                    link->communicator->links, &link->buffers[i].part),
                          "MPI_Isend");
}

static cgp_status send(cgp_link *link, int i, const cgp_link_message *message) {
    if (message->fault == CGP_LINK_LOST) return CGP_OK;
    if (message->fault == CGP_LINK_CORRUPT) bytes_at(link, i)[message->bytes / 2] ^= 0x10;
    if (message->bytes < link->options.bytes) return send_part(link, i, message->bytes);
    CGP_TRY(cgp__mpi_check(MPI_Start(&link->buffers[i].whole), "MPI_Start"));
    return message->fault == CGP_LINK_TWICE ? send_part(link, i, message->bytes) : CGP_OK;
}

void cgp__mpi_post(cgp_link *link, const cgp_link_message *message) {
    const int i = index_of(link, message);
    header h = {.edge = link->options.edge,
                .opening = link->opening,
                .microbatch = message->microbatch,
                .slot = i,
                .sequence = link->sequence++,
                .bytes = message->bytes,
                .late_ns = message->fault == CGP_LINK_LATE ? message->late_ns : 0,
                .has_checksum = link->verify};
    memcpy(header_at(link, i), &h, sizeof h);
    if (link->verify) h.checksum = checksum_of(link, i, &h);
    memcpy(header_at(link, i), &h, sizeof h);
    pthread_mutex_lock(&link->lock);
    link->buffers[i].state = AWAY;
    pthread_mutex_unlock(&link->lock);
    if (atomic_load(&link->communicator->ended)) return;
    const cgp_status status = send(link, i, message);
    if (status != CGP_OK) cgp__mpi_break(link->communicator, status);
}

void cgp__mpi_verify(cgp_communicator *c, bool verify) {
    c->verify = verify;
}

/* Start the receive again, then send the release. */
static cgp_status give_back(cgp_link *link, buffer *b) {
    CGP_TRY(start_receive(link, b));
    CGP_TRY(cgp__mpi_check(MPI_Wait(&b->released, MPI_STATUS_IGNORE), "MPI_Wait"));
    b->answer = (release){link->opening, b->slot}; /* the previous answer has been sent */
    return cgp__mpi_check(MPI_Start(&b->released), "MPI_Start");
}

void cgp__mpi_release(cgp_link *link, const cgp_link_message *message) {
    buffer *b = &link->buffers[index_of(link, message)];
    if (atomic_load(&link->communicator->ended)) return;
    pthread_mutex_lock(&link->lock);
    const cgp_status status = give_back(link, b);
    pthread_mutex_unlock(&link->lock);
    if (status != CGP_OK) cgp__mpi_break(link->communicator, status);
}
