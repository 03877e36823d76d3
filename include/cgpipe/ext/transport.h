/* SPDX-License-Identifier: Apache-2.0 */
/* transport.h -- the contract of a transport: how messages travel along the edges between stages,
 *and how ranks agree.
 *
 * A rank is a process, in tests a team of workers, that owns some devices of a plan. Its end of the
 * transport is a communicator. An edge has two ends, links: the sender's and the receiver's, opened
 * with the same edge number on the ranks of their devices.
 *
 *     sender                                  receiver
 *     acquire   a free buffer                 take      the message of a micro-batch
 *     (fill it)                               (copy it away)
 *     post      it, for a micro-batch         release   its buffer
 *
 * A receiver takes messages by micro-batch, in any order. A micro-batch is posted again only after
 * its last message was taken. A sender waits in acquire while all `capacity` buffers are on their
 * way: posted, and not released yet.
 *
 * `inproc` serves the devices of one rank. A message is the sender's own buffer, lent with an event
 * of the sender's device that the receiver's queue waits for; it comes back with an event of the
 * receiver's device. Between ranks nothing is shared: a transport that `copies` moves bytes into
 * buffers of the receiver's plan, and all events are NULL.
 *
 * A rank ends by stop(), by fail() on any rank, or when the transport itself has failed, say its
 * network. From then on nothing waits: acquire and take return false, agreements CGP_EPEER.
 * Everything else stays legal: post and release hand back what is held, though messages may be
 * dropped; waits, progress, failure and link_close do what they always do. */
#ifndef CGPIPE_EXT_TRANSPORT_H
#define CGPIPE_EXT_TRANSPORT_H

#include <cgpipe/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The version of the structs in this header; fields are only appended. */
#define CGP_TRANSPORT_ABI 1

/** A rank's end of a transport. It serves one pipeline at a time. Each transport defines its own
 *  struct. */
typedef struct cgp_communicator cgp_communicator;

/** Bytes before each buffer of a link between ranks, for the transport's use: it can send them and
 *  the buffer as one. */
#define CGP_LINK_HEADER_BYTES 64

/** One end of an edge. Each transport defines its own struct. */
typedef struct cgp_link cgp_link;

/** A link, as it is opened. Edge, bytes and capacity are those of the other end. */
typedef struct cgp_link_options {
    size_t struct_size; /**< sizeof(cgp_link_options) */
    int edge;           /**< >= 0; of the whole plan, so the same on every rank. */
    bool sends;         /**< This is the sender's end. */
    int peer;           /**< Rank of the other end; this rank's own, if both ends are here. */
    int capacity;       /**< Buffers, >= 1. */
    int64_t bytes;      /**< Of a buffer, >= 1. */
    /** [capacity][CGP_LINK_HEADER_BYTES + bytes], if the transport `copies`: the buffers of either
     *  end, in host memory. Else [capacity][bytes], the sender's, also a device's; NULL for the
     *  receiver. Borrowed until link_close. */
    void *memory;
    /** A waiter may spin this long before it blocks, >= 0. A transport that can only test, and not
     *  block, tests without a pause for so long, then with pauses. */
    int64_t spin_ns;
} cgp_link_options;

/** A fault of a message, for tests: none; it never arrives; one bit of it changes on the way; it
 *  arrives twice; it arrives, but counts as not there for a time. */
typedef enum cgp_link_fault {
    CGP_LINK_SOUND,
    CGP_LINK_LOST,
    CGP_LINK_CORRUPT,
    CGP_LINK_TWICE,
    CGP_LINK_LATE
} cgp_link_fault;

/** A buffer as it changes hands. (cgp_message() is a failure's text.) */
typedef struct cgp_link_message {
    void *buffer;   /**< One of the link's; inproc's receiver gets the sender's. Borrowed. */
    int microbatch; /**< >= 0; from acquire -1, in release ignored. */
    /** In use, 0 .. the link's `bytes`: only they travel. Without meaning in acquire and release.
     *  */
    int64_t bytes;
    /** Of the other end's device: done when the buffer may be used. NULL: it may be used now. */
    void *event;
    /** Filled by acquire and take: when the other end handed the buffer over; between ranks, when
     *  that was known here. Monotonic clock of this rank; 0: a buffer that was never posted. */
    int64_t released_ns;
    /** In post, for tests: what becomes of the message, where ranks share nothing; elsewhere
     *  without meaning. */
    cgp_link_fault fault;
    int64_t late_ns; /**< Of CGP_LINK_LATE. */
} cgp_link_message;

/** A rank as it is known here, by its beats. Times are of this rank's monotonic clock. */
typedef struct cgp_beat {
    /** When its last beat came, or watch() began here; of this rank: now. 0: neither. */
    int64_t heard_ns;
    int64_t ended;       /**< Actions that have ended there, as it gave them to beat(). */
    int64_t end_ns;      /**< When the last one did; 0: none has. */
    int64_t agreements;  /**< That it has come to. */
    int64_t agreeing_ns; /**< When it came to the one that it waits in; 0: it is in none. */
    bool left;       /**< It watches no more: its communicator was destroyed, or watch() got 0. */
    int64_t process; /**< Its number on the host; 0: not known. */
    char host[64];   /**< Its name, cut; "": not known. */
} cgp_beat;

/** Return how often ranks that watch with this limit send beats, in nanoseconds: 8 times in it, but
 *  every 1 to 250 ms. */
static inline int64_t cgp_beat_interval(int64_t timeout_ns) {
    const int64_t interval = timeout_ns / 8;
    return interval < 1000000 ? 1000000 : interval < 250000000 ? interval : 250000000;
}

/** A transport: a static table, borrowed for the life of the process. No function is NULL. */
typedef struct cgp_transport {
    size_t struct_size; /**< sizeof(cgp_transport) */
    const char *name;   /**< "inproc" */
    bool copies;        /**< Between processes: a receiver has buffers of its own. */

    /**
     * Create this rank's communicator. Collective.
     *
     * @param handle  Which processes are ranks: of the transport's own type, borrowed until the
     * communicator is destroyed. NULL:
     *                all that were launched together; a transport that cannot know them refuses it.
     *
     * @retval CGP_EINVAL  The handle.   @retval CGP_ESTATE  The processes were not launched as this transport needs it.
     *
     * Threads: the one that will be the user thread.
     */
    cgp_status (*communicator_create)(const void *handle, cgp_communicator **out);
    /** Destroy a communicator without open links, or NULL. After a failure a transport between
     *  processes may wait here for the other ranks, 1 s at most, so that they leave together.
     *  Threads: the user thread, the one that made the communicator. */
    void (*communicator_destroy)(cgp_communicator *communicator);
    /** The number of this rank, 0 .. ranks - 1. Threads: any. */
    int (*rank)(const cgp_communicator *communicator);
    /** The number of ranks, >= 1. Threads: any. */
    int (*ranks)(const cgp_communicator *communicator);

    /**
     * Open one end of an edge: the ends in any order, both before either is used. An edge may be
     * opened again when both ends are closed. Threads: the user thread.
     *
     * @retval CGP_EINVAL  This end is open already, options are out of range, or, as far as that is
     * known here, differ from those
     *                     of the other end.
     * @retval CGP_ENOMEM
     */
    cgp_status (*link_open)(cgp_communicator *communicator, const cgp_link_options *options,
                            cgp_link **out);
    /** Close an end in which nobody waits, or NULL; the ends in any order. Messages on their way to
     *  it are dropped; its memory is not touched again. After a failure that holds as far as the
     *  transport can know: it may keep what it was lent for messages on their way that it cannot
     *  take back, until the communicator is destroyed. Threads: the user thread. */
    void (*link_close)(cgp_link *link);

    /**
     * Wait for a free buffer (a sender), or for the message of a micro-batch (a receiver).
     *
     * @param timeout_ns  The longest wait, >= 0; INT64_MAX: no limit.
     * @param out         Overwritten on success.
     * @return false if there is none in time; at once after stop(), fail() on any rank, or a
     * failure of the transport.
     *
     * Threads: one a link. Blocks.
     */
    bool (*acquire)(cgp_link *link, int64_t timeout_ns, cgp_link_message *out);
    /** See acquire. */
    bool (*take)(cgp_link *link, int microbatch, int64_t timeout_ns, cgp_link_message *out);

    /** Hand an acquired buffer to the receiver, with `microbatch`, `bytes` and `event`. It never
     *  waits. @param message Borrowed for the call. Threads: the link's. */
    void (*post)(cgp_link *link, const cgp_link_message *message);
    /** Give the buffer of a taken message back, with `event`. It never waits. @param message
     *  Borrowed for the call. Threads: the link's. */
    void (*release)(cgp_link *link, const cgp_link_message *message);

    /** Return whether the link's thread waits in acquire or take. Threads: any. */
    bool (*waits)(cgp_link *link);

    /** Let messages of this rank go on, as a rank does that waits. Called by a thread that computes
     *  for long. It never blocks. Threads: any. */
    void (*progress)(cgp_communicator *communicator);

    /** End all waits on this rank, of its links and its agreements, now and later. Other ranks go
     *  on. The caller may hold a lock that others need: it waits for 0.5 s at most, and calls
     *  nothing of the caller's. Threads: any. */
    void (*stop)(cgp_communicator *communicator);

    /* Agreements are collective: the user thread of every rank makes the same calls in the same
     * order. */

    /** Wait until every rank has come here. @retval CGP_EPEER After stop(), fail() on any rank, or
     *  a failure of the transport; the message has its own. */
    cgp_status (*barrier)(cgp_communicator *communicator);
    /**
     * Collect bytes[r] bytes from each rank r.
     *
     * @param mine   [bytes[rank]] Borrowed; may be its place in `all`.
     * @param all    [sum of bytes] Those of rank 0, of rank 1, ...; overwritten, undefined after a failure.
     * @param bytes  [ranks] The same on every rank. Borrowed.
     *
     * @retval CGP_EPEER   As of barrier.
     * @retval CGP_ENOMEM
     */
    cgp_status (*gather)(cgp_communicator *communicator, const void *mine, void *all,
                         const size_t *bytes);

    /** Stop this rank, and let every other know why: their waits end. Only the first call counts.
     *  As in stop(), the caller may hold a lock. @param status Not CGP_OK. @param message Copied,
     *  up to 1023 bytes. Threads: any. */
    void (*fail)(cgp_communicator *communicator, cgp_status status, const char *message);
    /**
     * Return the status of the first failure of another rank, as it came here, or of the transport
     * itself; CGP_OK: none.
     *
     * @param rank     The rank that failed, this rank's for the transport; unchanged if there is none.
     * @param message  [size] Its message, cut to size - 1 bytes; unchanged if there is none.
     *
     * Threads: any.
     */
    cgp_status (*failure)(cgp_communicator *communicator, int *rank, char *message, size_t size);

    /**
     * Watch over the other ranks from now on: send each a beat every cgp_beat_interval(), also
     * while this rank computes or is in code of the caller's, by a thread that sleeps meanwhile. A
     * rank of which nothing came for so long has failed: "silent for 3.1 s". So all ranks begin to
     * watch at about the same time, say after a barrier. Time in which this process was stopped
     * does not count.
     *
     * @param timeout_ns  The limit, best the same on all ranks; 0: watch no more, which the others
     * then know.
     *
     * @retval CGP_ENOMEM  Also: no thread.
     *
     * Threads: the user thread.
     */
    cgp_status (*watch)(cgp_communicator *communicator, int64_t timeout_ns);
    /** Set the part of the next beats that the caller knows. @param ended  Actions that have ended
     *  here so far. @param end_ns  When the last one did, monotonic clock. It never waits. Threads:
     *  any. */
    void (*beat)(cgp_communicator *communicator, int64_t ended, int64_t end_ns);
    /** Return what is known of each rank. @param out [ranks] Overwritten. Threads: any. */
    void (*beats)(cgp_communicator *communicator, cgp_beat *out);

    /** Give the messages of links that are opened from here on a checksum, which is compared where
     *  they arrive: one that differs is a failure of the transport. Without effect where messages
     *  are not copied. Threads: the user thread. */
    void (*verify)(cgp_communicator *communicator, bool verify);

    /** Let the launcher end all processes, this one with `code`, after a failure. It may return
     *  where there is no launcher. Threads: any. */
    void (*abort)(cgp_communicator *communicator, int code);
} cgp_transport;

#ifdef __cplusplus
}
#endif
#endif
