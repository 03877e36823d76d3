/* SPDX-License-Identifier: Apache-2.0 */
/* schedule.h -- which action runs when: tables of integers, made, lowered, checked, simulated and drawn without a device.
 *
 * A schedule has one ordered action list per device. It is made by a generator (`gpipe`, `1f1b`, `zb-h1` ...) or read from CSV,
 * gets its recomputations (cgp_schedule_recompute), then its transfers (cgp_schedule_lower). Backward runs in ascending order of
 * micro-batch in every generator, so that weight gradients add up in the same order under every schedule.
 *
 * Threads: a schedule has no locks. Calls that change one need it alone; calls that take it as const may run side by side. */
#ifndef CGPIPE_SCHEDULE_H
#define CGPIPE_SCHEDULE_H

#include <cgpipe/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What an action does with one micro-batch on one stage. */
typedef enum cgp_action_kind {
    CGP_ACTION_F, /**< Forward. */
    CGP_ACTION_B, /**< Backward, both halves. */
    CGP_ACTION_I, /**< Backward, input gradient only. */
    CGP_ACTION_W, /**< Backward, weight gradient only, after I. */
    CGP_ACTION_R, /**< Recompute: forward again, for what backward needs. */
    CGP_ACTION_SEND_F,
    CGP_ACTION_RECV_F,
    CGP_ACTION_SEND_B,
    CGP_ACTION_RECV_B,
} cgp_action_kind;

/** One entry of a device's list. */
typedef struct cgp_action {
    cgp_action_kind kind;
    int stage;      /**< 0..n-1: who computes, sends or receives. */
    int microbatch; /**< 0..m-1. */
    int edge; /**< Transfers: index into the edges given to cgp_schedule_lower(). Otherwise -1. */
    bool
        overlapped; /**< F, before lowering: goes with the next B or I of the list (dualpipe-v). Both wait for what either
                      needs, and send when both are done. */
} cgp_action;

/** A way that data takes between two stages, for every micro-batch.
 *
 * from < to: an activation, ready after F of `from`, needed by F of `to`.
 * from > to: a gradient, ready after B (or I) of `from`, needed by B (or I) of `to`. */
typedef struct cgp_edge {
    int from, to;
} cgp_edge;

typedef struct cgp_schedule cgp_schedule;

/** Which micro-batches are recomputed, and what is kept of them. The selective ones say the same of micro-batches, but leave
 * the outputs of ops that are cheap to redo (norms, activations, dropout) out of what is kept; backward redoes them. They
 * give the same schedule. */
typedef enum cgp_recompute {
    CGP_RECOMPUTE_NEVER,  /**< All that backward needs is kept from F. */
    CGP_RECOMPUTE_ALWAYS, /**< Every micro-batch is run again before its backward. */
    CGP_RECOMPUTE_EXCEPT_LAST, /**< As always, but not where the next backward of the stage after a forward is its own. */
    CGP_RECOMPUTE_NEVER_SELECTIVE,
    CGP_RECOMPUTE_ALWAYS_SELECTIVE,
    CGP_RECOMPUTE_EXCEPT_LAST_SELECTIVE,
} cgp_recompute;

/** Return the mode without its "+selective"; and tell whether it has one. */
static inline cgp_recompute cgp_recompute_plain(cgp_recompute mode) {
    return (cgp_recompute)((int)mode % (int)CGP_RECOMPUTE_NEVER_SELECTIVE);
}
static inline bool cgp_recompute_is_selective(cgp_recompute mode) {
    return mode >= CGP_RECOMPUTE_NEVER_SELECTIVE;
}

/** Parse "never", "always", "except_last", each with or without "+selective"; "selective" alone is never+selective.
 * @retval CGP_EINVAL with the nearest name in the message. Threads: any. */
CGP_API CGP_MUST_CHECK cgp_status cgp_recompute_parse(cgp_recompute *out, const char *text);

/** Return the name that cgp_recompute_parse() takes. Static. Threads: any. */
CGP_API const char *cgp_recompute_name(cgp_recompute recompute);

/** Which stages a device has: with v of them on each of n devices, n v in all. */
typedef enum cgp_placement {
    CGP_PLACEMENT_LOOP, /**< Stage j on device j mod n. */
    CGP_PLACEMENT_V, /**< To and fro: 0 1 .. n-1 n-1 .. 1 0: the first and the last stage share a device. */
} cgp_placement;

/** What is known of a schedule before it is made. Strings are static. */
typedef struct cgp_schedule_info {
    const char *name;   /**< "zb-h1" */
    const char *when;   /**< When to use it, in a line. */
    const char *rule;   /**< How it is made, in two lines. */
    int virtual_stages; /**< v without `virtual_stages` in the options. */
    bool any_virtual;   /**< Other v than that are possible. */
    bool has_backward;
    bool splits_backward; /**< I and W instead of B. */
    cgp_placement placement;
} cgp_schedule_info;

/** Return the `index`-th schedule there is, 0.., or NULL after the last; the one of that name, or NULL. Static. Threads: any. */
CGP_API const cgp_schedule_info *cgp_schedule_info_at(int index);
CGP_API const cgp_schedule_info *cgp_schedule_info_find(const char *name);

/** How a schedule is made, beyond its name and size. */
typedef struct cgp_schedule_options {
    size_t struct_size;
    int virtual_stages; /**< v >= 1 stages on each device [0: as cgp_schedule_info says]. */
    int group; /**< interleaved, interleaved-zb: micro-batches that go round together, n..m [0: n]. */
    cgp_placement placement; /**< forward-only [loop]; of the others it is given. */
    const double *
        forward; /**< [stages] zb-1p, zb-2p: time of F [NULL: 1]. Borrowed for the call, as the next two. */
    const double *backward_input;  /**< [stages] of I [NULL: 1]. */
    const double *backward_weight; /**< [stages] of W [NULL: 1]. */
    double latency;                /**< zb-1p, zb-2p: time of a message between devices [0]. */
} cgp_schedule_options;

/** The defaults in brackets above, with struct_size set. */
static inline cgp_schedule_options cgp_schedule_options_default(void) {
    cgp_schedule_options options = {
        sizeof(cgp_schedule_options), 0, 0, CGP_PLACEMENT_LOOP, NULL, NULL, NULL, 0.0};
    return options;
}

/**
 * Generate a schedule by name; cgp_schedule_info_at() lists them.
 *
 * Compute actions only. Backward (B, I and W) ascends on every stage, so that weight gradients add up in one order.
 *
 * @param[out] out      Owned by the caller, see cgp_schedule_destroy().
 * @param[in]  name     Borrowed.
 * @param[in]  devices  n >= 1.
 * @param[in]  chunks   m >= 1 micro-batches; fewer than n are fine.
 * @param[in]  options  Borrowed; NULL for all defaults.
 *
 * @retval CGP_EINVAL  Unknown name (the message has the nearest), n or m < 1, more than 2^24 stages x micro-batches, or an
 *                     option that does not fit the schedule: v, group, fewer micro-batches than dualpipe-v needs, a cost.
 * @retval CGP_ENOMEM
 *
 * Threads: any. Cost: O(actions); zb-1p and zb-2p O(actions x n), a dozen times over.
 * Source: each generator's file in src/schedule names its paper.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_schedule_create(cgp_schedule **out, const char *name,
                                                      int devices, int chunks,
                                                      const cgp_schedule_options *options);

/** Free a schedule. Accepts NULL. */
CGP_API void cgp_schedule_destroy(cgp_schedule *schedule);

/** Return the name given at creation, borrowed; the numbers n, m and devices. Threads: any. */
CGP_API const char *cgp_schedule_name(const cgp_schedule *schedule);
CGP_API int cgp_schedule_stages(const cgp_schedule *schedule);
CGP_API int cgp_schedule_chunks(const cgp_schedule *schedule);
CGP_API int cgp_schedule_devices(const cgp_schedule *schedule);

/** Return the device that stage j is on, -1 if there is no such stage. Threads: any. */
CGP_API int cgp_schedule_device_of(const cgp_schedule *schedule, int stage);

/** Return a device's list in order, and its length in `count`. Borrowed; valid until the schedule is changed. */
CGP_API const cgp_action *cgp_schedule_actions(const cgp_schedule *schedule, int device,
                                               int *count);

/**
 * Put an R in front of the backward of every (stage, micro-batch) that the mode recomputes.
 *
 * except_last: not recomputed if the next backward of that stage that follows the micro-batch's own F in the list is its
 * own. It spends the memory of `always` (one saved slot) and recomputes as little as that allows.
 *
 * @retval CGP_EINVAL  Not a mode. The schedule is unchanged.
 * @retval CGP_ESTATE  The schedule is lowered already, or has R actions. It is unchanged.
 * @retval CGP_ENOMEM  It is unchanged.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_schedule_recompute(cgp_schedule *schedule,
                                                         cgp_recompute mode);

/**
 * Insert the transfers of every edge: SEND right after the producer, RECV right before the consumer (after its R).
 *
 * Order of several RECV before one action, and of several SEND after one: ascending edge index.
 * An activation edge adds SEND_F/RECV_F, a gradient edge SEND_B/RECV_B. Gradient edges are left out where the schedule
 * has no backward. Edges between stages of one device are lowered too: their transfer is a copy.
 *
 * @param[in] edges    [n_edges], copied. `from` != `to`, both 0..n-1.
 *
 * @retval CGP_EINVAL  A bad edge; unchanged.   @retval CGP_ESTATE  Lowered already.   @retval CGP_ENOMEM
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_schedule_lower(cgp_schedule *schedule,
                                                     const cgp_edge *edges, int n_edges);

/** As cgp_schedule_lower() with the edges of a chain: 0 -> 1, 1 -> 2 ..., then 1 -> 0, 2 -> 1 ... */
CGP_API CGP_MUST_CHECK cgp_status cgp_schedule_lower_chain(cgp_schedule *schedule);

/** Return the edges of a lowered schedule, and how many in `count`; 0 before. Borrowed. Threads: any. */
CGP_API const cgp_edge *cgp_schedule_edges(const cgp_schedule *schedule, int *count);

/** The two dialects of PyTorch's CSV. */
typedef enum cgp_csv {
    CGP_CSV_COMPUTE, /**< F B I W only (and R, which PyTorch does not know); a column per tick. */
    CGP_CSV_TRANSFERS, /**< The transfers, too; only for stages that send to their neighbours. */
} cgp_csv;

/**
 * Read a schedule from CSV: a row per device, a cell per action, `2F0` or `(0F7;7B3)OVERLAP_F_B`, blank where it idles.
 *
 * Both dialects: a text that has a transfer is lowered as a chain (transfers between stages of one device, which PyTorch
 * leaves out, are put in), another is compute only. UNSHARD, RESHARD, REDUCE_GRAD, WAIT_REDUCE_GRAD and WAIT_SEND_F and _B
 * are left out. Whether it makes sense is left to cgp_schedule_check().
 *
 * A text that has BW, or B and W of one (stage, micro-batch), is in PyTorch's older letters: its B is I, its BW is B. Where the
 * forwards of the last stage alone are numbered from 1, as PyTorch's Schedule1F1B does it, they are read from 0, with a
 * warning in the log. A byte order mark of UTF-8 and cells in quotes (RFC 4180) are read.
 *
 * @param[in] name   Of the schedule, and of the text in messages. Borrowed.
 * @param[in] text   [bytes], need not end in 0. Borrowed.
 *
 * @retval CGP_EFORMAT  The message names row and column (from 1) and the cell; or it is text in UTF-16 or UTF-32.
 * @retval CGP_EINVAL   More than 2^24 stages x micro-batches.   @retval CGP_ENOMEM
 *
 * Threads: any. Cost: O(bytes log bytes).
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_schedule_from_csv(cgp_schedule **out, const char *name,
                                                        const char *text, size_t bytes);

/**
 * Write a schedule as CSV that cgp_schedule_from_csv() and PyTorch read. (With transfers PyTorch 2.6 to 2.9; later ones want
 * a wait for each SEND as well, and put in both themselves where they are given the compute actions.)
 *
 * @param[out] out  The text, with a 0 at its end; freed by the caller with free().
 *
 * @retval CGP_EINVAL  Transfers are asked for and an edge jumps; or a rule of cgp_schedule_check() is broken.
 * @retval CGP_ENOMEM
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_schedule_to_csv(const cgp_schedule *schedule,
                                                      cgp_csv dialect, char **out);

/** What cgp_schedule_check() found. Arrays are owned by the report; free with cgp_schedule_report_release(). */
typedef struct cgp_schedule_report {
    int devices, stages, edges;
    int *
        peak_in_flight; /**< [stages] Most micro-batches between their F and the end of their backward (B, or W).
                              1 in a forward schedule, where a micro-batch ends with its F. */
    int *peak_slots; /**< [devices] The same, summed over the device's stages at one time. */
    int *
        min_capacity; /**< [edges] At least 1. With these buffers the schedule does not deadlock, with one less on
                              any edge it does, whatever the costs. A receive has a buffer from its posting until
                              its message is taken. Where several vectors are so, the largest entry of this one is
                              the least that would do for all edges alike. */
} cgp_schedule_report;

/**
 * Prove a lowered schedule right before anything runs.
 *
 * Every (stage, micro-batch) has its F once and its backward once (B, or I then W), or no backward at all in a forward
 * schedule; order within a stage; R at most once, between F and backward; SEND after its producer and RECV before its
 * consumer, once each, not necessarily next to them (RECV posts a receive, see cgp_schedule_simulate()); no deadlock with
 * unbounded buffers; then the least capacity of each edge.
 *
 * @param[out] report  Filled on success only. May be NULL.
 *
 * @retval CGP_EINVAL  The message names the device, position (from 0), action and the rule; for a deadlock, the cycle.
 * @retval CGP_ESTATE  Not lowered.   @retval CGP_ENOMEM
 *
 * Cost: O(actions) where one buffer is enough on every edge, otherwise O(actions x edges x log m) at worst.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_schedule_check(const cgp_schedule *schedule,
                                                     cgp_schedule_report *report);
/** Free the arrays of a report; it may be all zero. */
CGP_API void cgp_schedule_report_release(cgp_schedule_report *report);

/** Costs in any one unit of time. Arrays are borrowed; NULL stands for the default in brackets.
 *
 * F, I and W that are not given take 1 over all stages of a device, 1 / v on each of its v stages: so schedules with one
 * stage on each device and with several do the same work and can be compared. What is given is of the stage. */
typedef struct cgp_schedule_costs {
    const double *forward;         /**< [stages] F [1 / v]. */
    const double *backward_input;  /**< [stages] I [1 / v]. */
    const double *backward_weight; /**< [stages] W [1 / v]. B costs I + W. */
    const double *recompute;       /**< [stages] R [as F]. */
    const double
        *latency; /**< [edges] From the end of SEND until the message can be taken [0]. */
    const double *
        transfer; /**< [edges] What a message takes, bytes / bandwidth, beyond the latency [0]. Overlapped: on its
                                 way, one message of an edge at a time, while devices compute. */
    bool
        transfers_block; /**< Not overlapped: the receiver takes that time, on its device, before the action that waits. */
    const int *
        capacity; /**< [edges] Buffers, >= 1: SEND waits while all are taken; the taking of a message frees one. A receive
                       that is posted has one [unbounded]. */
} cgp_schedule_costs;

/** What a step looks like: simulated in the unit of its costs, or measured in seconds from the start of its first action
 * (cgp_pipeline_last_timeline(), cgp_schedule_from_trace()). Arrays are owned; free with cgp_schedule_timeline_release().
 *
 * Compute time is that of F, B, I, W and R. Where nothing takes time, shares and bubbles are 0. */
typedef struct cgp_schedule_timeline {
    int devices, edges;
    double makespan;        /**< End of the last action, from 0. */
    double span;            /**< Largest (last end - first start) of any device. */
    double bubble_makespan; /**< 1 - compute time of all devices / (devices x makespan). */
    double
        bubble_span; /**< 1 - compute time / span, of the device with the largest span; of several with the same
                                 span (to 1e-12 of it), the one that computes least. */
    double *busy; /**< [devices] Compute time / makespan. */
    int *
        free_capacity; /**< [edges] At least 1. Most buffers taken at once if they are unbounded (taken when SEND is
                                 done or RECV posted, freed when the message is taken, at one instant freed first): with
                                 so many no sender waits, and every time is as without limit. Does not depend on
                                 costs.capacity.
                                 Measured: most buffers taken at once, of those that there were. */
    double **start,
        **end; /**< [devices][actions of the device] SEND starts and ends when it is done, RECV when its message is taken,
                    right before the action that waits for it: where it was posted earlier, later than what follows it in
                    the list. If transfers block, RECV takes its time then. Measured: from when the device came to it, its
                    waiting and copying included. */
    double **given,
        **ready; /**< [devices][actions of the device] Measured, else NULL. Of a transfer: when the other side let go of its
                      buffer, or message (0: before the step), and when this side had it; what was given after `start` was
                      waited for, and from `ready` to `end` it is copied. Of others: 0, and start. */
    bool **
        critical; /**< [devices][actions of the device] On the critical path: a chain of actions from 0 to the makespan
                          in which each one starts when the one before ends or its message comes. One of several.
                          Measured: back from the last to end, from a transfer that waited to the one that it waited for,
                          from any other action to the one before it on its device. */
    double critical_path
        [CGP_ACTION_R +
         1]; /**< By kind: compute time on it. The rest of the makespan is messages, and,
                          measured, what is between actions. */
} cgp_schedule_timeline;

/**
 * Simulate a lowered schedule: each device runs its list in order, an action starts when what it needs has arrived.
 *
 * SEND waits for a free buffer. RECV only posts a receive, wherever it stands: the F, B or I of its stage and micro-batch
 * waits for the message, and takes it. (Of a pair, F waits for the messages of both.) So a table has the same times with
 * transfers as without; only buffers may be more. Transfers take no time on the device unless costs.transfers_block.
 *
 * @param[in]  costs  Borrowed; NULL for all defaults.
 * @param[out] out    Filled on success only.
 *
 * @retval CGP_EINVAL  A cost is negative or not finite, a capacity is < 1, a rule of cgp_schedule_check() is broken, or
 *                     the schedule deadlocks with this capacity (the message has the cycle).
 * @retval CGP_ESTATE  Not lowered.   @retval CGP_ENOMEM
 *
 * Cost: O(actions).
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_schedule_simulate(const cgp_schedule *schedule,
                                                        const cgp_schedule_costs *costs,
                                                        cgp_schedule_timeline *out);
/** Free the arrays of a timeline; it may be all zero. */
CGP_API void cgp_schedule_timeline_release(cgp_schedule_timeline *timeline);

/**
 * Draw a schedule in ASCII, a row per device, a column per clock tick, every compute action one tick; transfers are not drawn.
 *
 *     F0 F1 F2  .  .  .  . B0 B1 B2
 *      . F0 F1 F2  .  . B0 B1 B2  .
 *      .  . F0 F1 F2 B0 B1 B2  .  .
 *
 * Works before and after lowering; before it, stage j is taken to depend on stage j-1 (F) and j+1 (B).
 * On a device with several stages each action is written with its stage: 2F0.
 *
 * All cells are as wide as the widest, right-aligned, one blank between them.
 *
 * @return Text with a newline after each row, to be freed by the caller with free(); NULL if memory is short, a rule of
 *         cgp_schedule_check() is broken or it deadlocks: cgp_message() says which.
 */
CGP_API char *cgp_schedule_draw(const cgp_schedule *schedule);

/**
 * Draw a step, simulated or measured, in ASCII to scale: a row per device, columns in proportion to time, transfers not drawn.
 *
 *     F0=F1=F2=..........B0====B1====B2====
 *     ...F0=F1=F2=B0====B1====B2====.......
 *
 * An action that is too short for its name has its letter, one of less than half a column may have nothing.
 *
 * @param[in]  schedule  Lowered.
 * @param[in]  timeline  Of this schedule.
 * @param[in]  until     Time that the columns stand for, from 0: at least the makespan; more to draw two steps to one scale.
 * @param[in]  columns   Of a row, 1 to 2^20.
 * @param[out] out       Text with a newline after each row, and a 0 at its end; freed by the caller with free().
 *
 * @retval CGP_EINVAL  `until` or `columns` is out of range, or a rule of cgp_schedule_check() is broken.
 * @retval CGP_ESTATE  Not lowered.   @retval CGP_ENOMEM
 */
CGP_API CGP_MUST_CHECK cgp_status
cgp_schedule_draw_timeline(const cgp_schedule *schedule, const cgp_schedule_timeline *timeline,
                           double until, int columns, char **out);

/**
 * Draw a step, simulated or measured, as SVG: a row per device, a box per compute action as long as it takes, coloured,
 * lettered and textured by kind, with its micro-batch; what is idle shows, the critical path has a red border; bubble and
 * memory are in the title.
 *
 * @param[in]  schedule  Lowered.
 * @param[in]  timeline  Of this schedule.
 * @param[out] out       The text, with a 0 at its end; freed by the caller with free().
 *
 * @retval CGP_EINVAL  A rule of cgp_schedule_check() is broken.   @retval CGP_ESTATE  Not lowered.   @retval CGP_ENOMEM
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_schedule_svg(const cgp_schedule *schedule,
                                                   const cgp_schedule_timeline *timeline,
                                                   char **out);

/**
 * Write a step, simulated or measured, as Chrome's trace events, the JSON that ui.perfetto.dev and chrome://tracing open.
 *
 * A process per device, a slice per compute action, an arrow per message between devices, and a counter of the micro-batches
 * in flight. A measured step has, beside them, the object `cgpipe`, from which cgp_schedule_from_trace() reads it back.
 * Parameters and errors as of cgp_schedule_svg().
 *
 * @param[in] microseconds  What a unit of the costs is shown as, > 0; of a measured step 1e6.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_schedule_trace(const cgp_schedule *schedule,
                                                     const cgp_schedule_timeline *timeline,
                                                     double microseconds, char **out);

/**
 * Read a measured step back from the trace that cgp_schedule_trace() wrote of it: every action and every time, exactly.
 *
 * @param[out] out       The lowered schedule. Owned by the caller, see cgp_schedule_destroy().
 * @param[out] timeline  Of it. Filled on success only.
 * @param[in]  name      Of the text, for messages. Borrowed.
 * @param[in]  text      [bytes], need not end in 0. Borrowed.
 *
 * @retval CGP_EFORMAT  Not JSON, without the object `cgpipe`, or something in that is missing or cannot be: the message says
 *                      what, and where.   @retval CGP_ENOMEM
 *
 * Threads: any.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_schedule_from_trace(cgp_schedule **out,
                                                          cgp_schedule_timeline *timeline,
                                                          const char *name, const char *text,
                                                          size_t bytes);

/** What the time of a device, from 0 to the measured makespan, went into. Each moment is in one of them. */
typedef enum cgp_schedule_part {
    CGP_PART_COMPUTE, /**< F, B, I, W and R run. */
    CGP_PART_BUBBLE, /**< Idle as in a simulation where all stages cost the same: for each kind of action their mean. */
    CGP_PART_IMBALANCE, /**< Idle beyond that in a simulation of the stages as they are: medians of kind and stage. */
    CGP_PART_VARIATION, /**< Idle beyond that in a simulation where each action takes as long as it took. */
    CGP_PART_COPY,   /**< Transfers copy: from having the buffer, or message, to their end. */
    CGP_PART_WAKEUP, /**< What was waited for is there, but not noticed: from the other side's giving to this side's having. */
    CGP_PART_OTHER, /**< The rest: waiting because of copies and wake-ups elsewhere or for a free buffer; time between
                         actions; workers that start later than the first, or end before the last. */
    CGP_PARTS
} cgp_schedule_part;

/** Return the name of a part in one word, "wake-up". Static. Threads: any. */
CGP_API const char *cgp_schedule_part_name(cgp_schedule_part part);

/** A measured step beside its plan. Arrays are owned; free with cgp_schedule_comparison_release(). */
typedef struct cgp_schedule_comparison {
    int devices;
    double (*parts)
        [CGP_PARTS]; /**< [devices] Seconds, none below 0; those of a device add up to the measured makespan, but
                                     for rounding. Simulated idle time counts as far as the device was idle: what it
                                     copied in its bubble is copy. */
    double equal_makespan;  /**< Simulated, all stages the same. */
    double varied_makespan; /**< Simulated, each action as long as it took. */
    cgp_schedule_timeline
        planned; /**< Simulated, the stages as they are: each action takes the median of its kind on its
                                        stage. In all simulations messages take no time. */
} cgp_schedule_comparison;

/**
 * Simulate a measured step, and tell where its time went.
 *
 * @param[in]  schedule  Lowered.
 * @param[in]  measured  Of this schedule: of cgp_pipeline_last_timeline() or cgp_schedule_from_trace().
 * @param[out] out       Filled on success only.
 *
 * @retval CGP_EINVAL  The timeline is a simulated one, or a rule of cgp_schedule_check() is broken, or it deadlocks.
 * @retval CGP_ESTATE  Not lowered.   @retval CGP_ENOMEM
 *
 * Cost: O(actions log actions).
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_schedule_compare(const cgp_schedule *schedule,
                                                       const cgp_schedule_timeline *measured,
                                                       cgp_schedule_comparison *out);
/** Free the arrays of a comparison; it may be all zero. */
CGP_API void cgp_schedule_comparison_release(cgp_schedule_comparison *comparison);

/** Draw two steps of a schedule as cgp_schedule_svg() does, the planned one above the measured one, to one scale. Parameters
 * and errors as there. */
CGP_API CGP_MUST_CHECK cgp_status
cgp_schedule_compare_svg(const cgp_schedule *schedule, const cgp_schedule_timeline *planned,
                         const cgp_schedule_timeline *measured, char **out);

/**
 * Draw where a schedule is wrong: the compute actions of each device in the order of its list, those in brackets that break
 * the rule, or that the devices of a deadlock cannot get past.
 *
 *      0F0 [0B0] 0F1  0B1
 *     [1F1] 1F0  1B0  1B1
 *
 * A transfer stands for the action that it is for. Brackets behind the last action: something is missing there. Long
 * lists are cut to what is around. Works before and after lowering, as cgp_schedule_draw().
 *
 * @return Text with a newline after each row, to be freed by the caller with free(); NULL if nothing is wrong or memory is
 *         short. If something is, cgp_message() says what.
 */
CGP_API char *cgp_schedule_draw_diagnostic(const cgp_schedule *schedule);

/** Write an action as "2F0" or "1SEND_F3" to `text` of `size` bytes; returns `text`. Threads: any. */
CGP_API char *cgp_action_text(const cgp_action *action, char *text, size_t size);

#ifdef __cplusplus
}
#endif
#endif
