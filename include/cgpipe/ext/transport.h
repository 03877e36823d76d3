/* SPDX-License-Identifier: Apache-2.0 */
/* transport.h -- the contract of a transport: how messages travel along the edges between stages,
 * and how ranks agree and detect failures.
 *
 * A rank is a process (in tests, a team of workers) that owns some devices of a plan. A rank's end
 * of the transport is called a communicator. A transport creates communicators, and has three
 * tables of functions on them:
 *
 *     links       messages along edges
 *     agreement   barrier and gather
 *     failures    stop and abort, and the detection of failed ranks by heartbeats
 *
 * An edge has two ends, called links: the sender's and the receiver's. The rank that owns an end's
 * device opens this end; both ends have the same edge number.
 *
 *     sender                                  receiver
 *     acquire   a free buffer                 take      the message of a micro-batch
 *     (fill it)                               (copy it away)
 *     post      it, for a micro-batch         release   its buffer
 *
 * A receiver takes messages by micro-batch, in any order. A micro-batch is posted again only after
 * its previous message was taken. A sender waits in acquire while all `capacity` buffers are in
 * flight, that is, posted and not yet released.
 *
 * `inproc` serves the devices of one rank. A message is the sender's own buffer. The sender lends
 * it with an event of its device, and the receiver's queue waits for this event. The buffer returns
 * with an event of the receiver's device. A transport between ranks has `copies` set: it moves
 * bytes into buffers of the receiver's plan, and all events are NULL. Exception: `threads`, between
 * ranks of one process, also lends the sender's buffer.
 *
 * A rank is stopped by stop(), by fail() on any rank, or by a failure of the transport itself, for
 * example a failure of the network. After that, no call waits: acquire and take return false, and
 * agreements return CGP_EPEER. All other calls stay legal. post and release still return the
 * caller's buffers, although messages may be dropped; waits(), progress(), first() and close() work
 * as they do without a stop. */
#ifndef CGPIPE_EXT_TRANSPORT_H
#define CGPIPE_EXT_TRANSPORT_H

#include <cgpipe/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Version of the structs in this header. It rises with every change of their layout. */
#define CGP_TRANSPORT_ABI 3

/** A rank's end of a transport. It serves one pipeline at a time. Each transport defines its own
 *  struct. */
typedef struct cgp_communicator cgp_communicator;

/** Bytes before each buffer of a link between ranks. The transport may use them to send a header
 *  and the buffer as one message. */
#define CGP_LINK_HEADER_BYTES 64

/** One end of an edge. Each transport defines its own struct. */
typedef struct cgp_link cgp_link;

/** Options of a link. `edge`, `bytes` and `capacity` are the same at both ends. */
typedef struct cgp_link_options {
    size_t struct_size; /**< sizeof(cgp_link_options) */
    int edge;           /**< Number of the edge in the whole plan, >= 0; the same on every rank. */
    bool sends;         /**< True for the sender's end, false for the receiver's end. */
    int peer;           /**< Rank of the other end; this rank if both ends are on this rank. */
    int capacity;       /**< Number of buffers, >= 1. */
    int64_t bytes;      /**< Size of a buffer, >= 1. */
    /** If the transport `copies`: [capacity][CGP_LINK_HEADER_BYTES + bytes], the buffers of either
     *  end, in host memory. Otherwise [capacity][bytes], the sender's buffers, which may be in
     *  device memory; NULL for the receiver. Borrowed until close(). */
    void *memory;
    /** Time that a waiting thread may spin before it blocks, >= 0. A transport that can only poll
     *  polls for this time without pauses, and then with pauses. */
    int64_t spin_ns;
} cgp_link_options;

/** A fault injected into a message, for tests: none, a lost message, a changed bit, a duplicate, or
 *  a message that stays hidden for a time after its arrival. */
typedef enum cgp_link_fault {
    CGP_LINK_SOUND,
    CGP_LINK_LOST,
    CGP_LINK_CORRUPT,
    CGP_LINK_TWICE,
    CGP_LINK_LATE
} cgp_link_fault;

/** A message: a buffer that passes from one end to the other. (cgp_message() is the text of a
 *  failure.) */
typedef struct cgp_link_message {
    /** A buffer of the link; with inproc, the receiver gets the sender's buffer. Borrowed. */
    void *buffer;
    int microbatch; /**< Micro-batch of the message, >= 0; -1 from acquire, ignored by release. */
    /** Number of bytes in use, 0 .. the link's `bytes`; only these bytes are sent. Ignored in
     *  acquire and release. */
    int64_t bytes;
    /** Event of the other end's device that is done when the buffer may be used. NULL: it may be
     *  used immediately. */
    void *event;
    /** Time at which the other end posted or released the buffer; set by acquire and take. Between
     *  ranks, it is the time at which the other end's message or release arrived on this rank. The
     *  time is on the monotonic clock of this rank. 0: the buffer was never posted. */
    int64_t released_ns;
    /** Fault to inject, for tests. Only post() of a transport between processes reads this
     * field. */
    cgp_link_fault fault;
    int64_t late_ns; /**< Delay of CGP_LINK_LATE. */
} cgp_link_message;

/** State of a rank, from its heartbeats. Times are on this rank's monotonic clock. */
typedef struct cgp_rank_state {
    /** Time at which the rank's last heartbeat arrived on this rank. If none has arrived, the time
     *  at which watch() was called on this rank, or 0 before watch(). For this rank itself, the
     *  current time. */
    int64_t heartbeat_ns;
    int64_t ended;      /**< Number of actions that have ended on the rank, as reported with
                         *   report_progress(). */
    int64_t end_ns;     /**< Time at which the rank's last action ended; 0: none has ended. */
    int64_t agreements; /**< Number of agreements that the rank has entered. */
    /** Time at which the rank entered the agreement in which it waits; 0: it waits in no
     *  agreement. */
    int64_t agreeing_ns;
    /** True: the rank sends no more heartbeats, because its communicator was destroyed or because
     *  it called watch() with 0. */
    bool left;
    int64_t process; /**< Process id of the rank on its host; 0: not known. */
    char host[64];   /**< Name of the rank's host, cut to fit; "": not known. */
} cgp_rank_state;

/** Messages along edges. */
typedef struct cgp_transport_links {
    /**
     * Open one end of an edge. The ends may be opened in any order, but both must be open before
     * either is used. An edge may be opened again when both ends are closed. Threads: the user
     * thread.
     *
     * @retval CGP_EINVAL  This end is open already, or options are out of range. Or the options
     *                     differ from the options of the other end, if the transport can detect
     *                     this.
     * @retval CGP_ENOMEM
     */
    cgp_status (*open)(cgp_communicator *communicator, const cgp_link_options *options,
                       cgp_link **out);
    /** Close an end on which no thread waits. Accepts NULL. The ends may be closed in any order.
     *  Messages in flight to this end are dropped, and its memory is not used again. After a
     *  failure, the transport may be unable to take back messages in flight, and may use their
     *  memory until the communicator is destroyed. Threads: the user thread. */
    void (*close)(cgp_link *link);

    /**
     * Wait for a free buffer (sender), or for the message of a micro-batch (receiver).
     *
     * @param timeout_ns  The longest wait, >= 0; INT64_MAX: no limit.
     * @param out         Overwritten on success.
     * @return False on timeout, and immediately after stop(), fail() on any rank, or a failure of
     *     the transport.
     *
     * Threads: one per link. Blocks.
     */
    bool (*acquire)(cgp_link *link, int64_t timeout_ns, cgp_link_message *out);
    /** Take a message. Parameters and result are as for acquire. */
    bool (*take)(cgp_link *link, int microbatch, int64_t timeout_ns, cgp_link_message *out);

    /** Hand an acquired buffer to the receiver, with `microbatch`, `bytes` and `event`. The call
     *  never waits. @param message Borrowed for the call. Threads: the thread of the link. */
    void (*post)(cgp_link *link, const cgp_link_message *message);
    /** Return the buffer of a taken message to the sender, with `event`. The call never waits.
     *  @param message Borrowed for the call. Threads: the thread of the link. */
    void (*release)(cgp_link *link, const cgp_link_message *message);

    /** Return true if the link's thread waits in acquire or take. Threads: any. */
    bool (*waits)(cgp_link *link);

    /** Let messages of this rank make progress, as they do while a rank waits. Threads that compute
     *  for a long time call this function from time to time. It never blocks. Threads: any. */
    void (*progress)(cgp_communicator *communicator);

    /** Add a checksum to the messages of links that are opened after this call. The checksum is
     *  compared when a message arrives; a difference is a failure of the transport. The call has no
     *  effect if messages are not copied. Threads: the user thread. */
    void (*verify)(cgp_communicator *communicator, bool verify);
} cgp_transport_links;

/** Agreements. They are collective: the user thread of every rank makes the same calls in the same
 *  order. */
typedef struct cgp_transport_agreement {
    /** Wait until every rank has entered the barrier. @retval CGP_EPEER After stop(), fail() on any
     *  rank, or a failure of the transport; the failure's message is passed on. */
    cgp_status (*barrier)(cgp_communicator *communicator);
    /**
     * Collect bytes[r] bytes from each rank r.
     *
     * @param mine   [bytes[rank]] Borrowed; it may point to this rank's place in `all`.
     * @param all    [sum of bytes] The bytes of rank 0, of rank 1, ...; overwritten, undefined
     *               after a failure.
     * @param bytes  [ranks] The same on every rank. Borrowed.
     *
     * @retval CGP_EPEER   As for barrier.
     * @retval CGP_ENOMEM
     */
    cgp_status (*gather)(cgp_communicator *communicator, const void *mine, void *all,
                         const size_t *bytes);
} cgp_transport_agreement;

/** Failures of ranks, and their detection by heartbeats (Chandra and Toueg 1996). */
typedef struct cgp_transport_failures {
    /** Stop this rank, and send the reason to all other ranks, which ends their waits. Only the
     *  first call has an effect. The caller may hold a lock, as for stop(). @param status Not
     *  CGP_OK. @param message Copied, up to 1023 bytes. Threads: any. */
    void (*fail)(cgp_communicator *communicator, cgp_status status, const char *message);
    /**
     * Return the status of the first failure: a failure of another rank whose notice has arrived on
     * this rank, or a failure of the transport itself. Return CGP_OK if there is none.
     *
     * @param rank     The rank that failed; this rank for a failure of the transport. Unchanged if
     *                 there is no failure.
     * @param message  [size] The failure's message, cut to size - 1 bytes; unchanged if there is no
     *                 failure.
     *
     * Threads: any.
     */
    cgp_status (*first)(cgp_communicator *communicator, int *rank, char *message, size_t size);

    /**
     * Start to watch the other ranks. A thread sends at least 4 heartbeats per second to each of
     * them, and at least 8 per `timeout_ns` if that is 8 ms or more. The thread does so even while
     * this rank computes or runs the caller's code, and sleeps between heartbeats. A rank from
     * which nothing arrives for `timeout_ns` counts as failed, with a message such as "silent for
     * 3.1 s". So all ranks should start to watch at about the same time, for example after a
     * barrier. Time in which this process was stopped does not count.
     *
     * @param timeout_ns  The limit; it should be the same on all ranks. 0: stop watching, and
     *                    notify the other ranks.
     *
     * @retval CGP_ENOMEM  Also: the thread could not be started.
     *
     * Threads: the user thread.
     */
    cgp_status (*watch)(cgp_communicator *communicator, int64_t timeout_ns);
    /** Set the progress that the next heartbeats report. The call never waits. @param ended Number
     *  of actions that have ended on this rank. @param end_ns Time at which the last action ended,
     *  on the monotonic clock. Threads: any. */
    void (*report_progress)(cgp_communicator *communicator, int64_t ended, int64_t end_ns);
    /** Return the state of each rank, according to the heartbeats that have arrived on this rank.
     *  @param out [ranks] Overwritten. Threads: any. */
    void (*rank_states)(cgp_communicator *communicator, cgp_rank_state *out);

    /** End all current and later waits of this rank's links and agreements. Other ranks continue.
     *  The caller may hold a lock that other threads need, because stop() waits for at most 0.5 s
     *  and calls no code of the caller. Threads: any. */
    void (*stop)(cgp_communicator *communicator);
    /** After a failure, make the launcher end all processes. This process ends with exit code
     *  `code`. The call may return if there is no launcher. Threads: any. */
    void (*abort)(cgp_communicator *communicator, int code);
} cgp_transport_failures;

/** A transport: a static table, borrowed for the life of the process. No function is NULL. */
typedef struct cgp_transport {
    size_t struct_size; /**< sizeof(cgp_transport) */
    const char *name;   /**< "inproc" */
    /** True: the transport works between ranks. Buffers are in host memory, each after a header of
     *  CGP_LINK_HEADER_BYTES, and events are NULL. */
    bool copies;

    /**
     * Create this rank's communicator. Collective.
     *
     * @param handle  The processes that are ranks, in the transport's own type. Borrowed until the
     *                communicator is destroyed. NULL: all processes that were launched together; a
     *                transport that cannot find them refuses NULL.
     *
     * @retval CGP_EINVAL  The handle is invalid.
     * @retval CGP_ESTATE  The processes were not launched as this transport needs it.
     *
     * Threads: the thread that becomes the user thread.
     */
    cgp_status (*communicator_create)(const void *handle, cgp_communicator **out);
    /** Destroy a communicator that has no open links. Accepts NULL. After a failure, a transport
     *  between processes may wait here for the other ranks for at most 1 s, so that all ranks end
     *  together. Threads: the user thread, which created the communicator. */
    void (*communicator_destroy)(cgp_communicator *communicator);
    /** The number of this rank, 0 .. ranks - 1. Threads: any. */
    int (*rank)(const cgp_communicator *communicator);
    /** The number of ranks, >= 1. Threads: any. */
    int (*ranks)(const cgp_communicator *communicator);

    cgp_transport_links links;
    cgp_transport_agreement agreement;
    cgp_transport_failures failures;
} cgp_transport;

#ifdef __cplusplus
}
#endif
#endif
