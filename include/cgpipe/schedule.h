/* SPDX-License-Identifier: Apache-2.0 */
/* schedule.h -- the order in which actions run: tables of integers, made, lowered, checked,
 *simulated and drawn without a
 * device.
 *
 * A schedule has one ordered action list per device. It is made by a generator (`gpipe`, `1f1b`,
 * `zb-h1` ...) or read from CSV, gets its recomputations (cgp_schedule_recompute), then its
 * transfers (cgp_schedule_lower). Backward runs in ascending order of micro-batch in every
 * generator, so that weight gradients add up in one order under every schedule.
 *
 * Threads: a schedule has no locks. Calls that change one need it alone; calls that take it as
 * const may run side by side. */
#ifndef CGPIPE_SCHEDULE_H
#define CGPIPE_SCHEDULE_H

#include <cgpipe/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The work of an action with one micro-batch on one stage. */
typedef enum cgp_action_kind {
    CGP_ACTION_F, /**< Forward. */
    CGP_ACTION_B, /**< Backward, both halves. */
    CGP_ACTION_I, /**< Backward, input gradient only. */
    CGP_ACTION_W, /**< Backward, weight gradient only, after I. */
    CGP_ACTION_R, /**< Recompute: run forward again, to save the inputs of backward. */
    CGP_ACTION_SEND_F,
    CGP_ACTION_RECV_F,
    CGP_ACTION_SEND_B,
    CGP_ACTION_RECV_B,
} cgp_action_kind;

/** One entry of a device's list. */
typedef struct cgp_action {
    cgp_action_kind kind;
    int stage;      /**< 0..n-1: computes, sends or receives. */
    int microbatch; /**< 0..m-1. */
    int edge;       /**< Transfers: index into the edges of cgp_schedule_lower(). Otherwise -1. */
    /** F, before lowering: runs with the next B or I of the list (dualpipe-v, OVERLAP_F_B). Both
     * wait for the inputs of both, and send when both are done. */
    bool overlapped;
} cgp_action;

/** A link between two stages, used once by every micro-batch.
 *
 * from < to: an activation, ready after F of `from`, needed by F of `to`.
 * from > to: a gradient, ready after B (or I) of `from`, needed by B (or I) of `to`. */
typedef struct cgp_edge {
    int from, to;
} cgp_edge;

typedef struct cgp_schedule cgp_schedule;

/** Recomputation: of which micro-batches, and which values are saved. The selective modes recompute
 * the same micro-batches, and do not save the outputs of cheap ops (norms, activations, dropout)
 * either; backward recomputes those. They give the same schedule. */
typedef enum cgp_recompute {
    CGP_RECOMPUTE_NEVER,  /**< F saves all inputs of backward. */
    CGP_RECOMPUTE_ALWAYS, /**< Every micro-batch is recomputed before its backward. */
    /** As always, but not where the next backward of the stage after a forward is its own. */
    CGP_RECOMPUTE_EXCEPT_LAST,
    CGP_RECOMPUTE_NEVER_SELECTIVE,
    CGP_RECOMPUTE_ALWAYS_SELECTIVE,
    CGP_RECOMPUTE_EXCEPT_LAST_SELECTIVE,
} cgp_recompute;

/** Return the mode without its "+selective"; return true if it has one. */
static inline cgp_recompute cgp_recompute_plain(cgp_recompute mode) {
    return (cgp_recompute)((int)mode % (int)CGP_RECOMPUTE_NEVER_SELECTIVE);
}
static inline bool cgp_recompute_is_selective(cgp_recompute mode) {
    return mode >= CGP_RECOMPUTE_NEVER_SELECTIVE;
}

/** Parse "never", "always", "except_last", each with or without "+selective"; "selective" alone is
 * never+selective.
 * @retval CGP_EINVAL with the nearest name in the message. Threads: any. */
CGP_API CGP_MUST_CHECK cgp_status cgp_recompute_parse(cgp_recompute *out, const char *text);

/** Return the name that cgp_recompute_parse() takes. Static. Threads: any. */
CGP_API const char *cgp_recompute_name(cgp_recompute recompute);

/** The placement of stages: v on each of n devices, n v in all. */
typedef enum cgp_placement {
    CGP_PLACEMENT_LOOP, /**< Stage j on device j mod n. */
    CGP_PLACEMENT_V, /**< On devices 0 1 .. n-1 n-1 .. 1 0: the first and the last stage share one. */
} cgp_placement;

/** The properties of a named schedule. Strings are static. */
typedef struct cgp_schedule_info {
    const char *name;   /**< "zb-h1" */
    const char *when;   /**< Its use case, in a line. */
    const char *rule;   /**< Its construction, in two lines. */
    int virtual_stages; /**< v without `virtual_stages` in the options. */
    bool any_virtual;   /**< Other v than that are possible. */
    bool has_backward;
    bool splits_backward; /**< I and W instead of B. */
    cgp_placement placement;
} cgp_schedule_info;

/** Return the `index`-th schedule, 0.., or NULL after the last; the one of that name, or NULL.
 *  Static. Threads: any. */
CGP_API const cgp_schedule_info *cgp_schedule_info_at(int index);
CGP_API const cgp_schedule_info *cgp_schedule_info_find(const char *name);

/** Options of a generator, beyond name and size. */
typedef struct cgp_schedule_options {
    size_t struct_size;
    int virtual_stages; /**< v >= 1 stages on each device [0: that of cgp_schedule_info]. */
    int group;          /**< interleaved, interleaved-zb: micro-batches of a group, n..m [0: n]. */
    cgp_placement placement; /**< forward-only [loop]; fixed for the others. */
    /** [stages] zb-1p, zb-2p: time of F [NULL: 1]. Borrowed for the call, as the next two. */
    const double *forward;
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
 * Compute actions only. Backward (B, I and W) ascends on every stage, so that weight gradients add
 * up in one order.
 *
 * @param[out] out      Owned by the caller, see cgp_schedule_destroy().
 * @param[in]  name     Borrowed.
 * @param[in]  devices  n >= 1.
 * @param[in]  chunks   m >= 1 micro-batches; fewer than n are fine.
 * @param[in]  options  Borrowed; NULL for all defaults.
 *
 * @retval CGP_EINVAL  Unknown name (the message has the nearest), n or m < 1, more than 2^24 stages
 * x micro-batches, or an
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

/** Return the name, borrowed; the numbers n, m and devices. Threads: any. */
CGP_API const char *cgp_schedule_name(const cgp_schedule *schedule);
CGP_API int cgp_schedule_stages(const cgp_schedule *schedule);
CGP_API int cgp_schedule_chunks(const cgp_schedule *schedule);
CGP_API int cgp_schedule_devices(const cgp_schedule *schedule);

/** Return the device of stage j, -1 if there is no such stage. Threads: any. */
CGP_API int cgp_schedule_device_of(const cgp_schedule *schedule, int stage);

/** Return a device's list in order, and its length in `count`. Borrowed; valid until the schedule
 *  is changed. */
CGP_API const cgp_action *cgp_schedule_actions(const cgp_schedule *schedule, int device,
                                               int *count);

/**
 * Insert an R before the backward of every (stage, micro-batch) that the mode recomputes.
 *
 * except_last: not recomputed if, in the list of the stage, the next backward after the
 * micro-batch's F is its own. It needs the memory of `always` (one saved slot) and recomputes as
 * little as that allows.
 *
 * @retval CGP_EINVAL  Not a mode. The schedule is unchanged.
 * @retval CGP_ESTATE  The schedule is lowered already, or has R actions. It is unchanged.
 * @retval CGP_ENOMEM  It is unchanged.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_schedule_recompute(cgp_schedule *schedule,
                                                         cgp_recompute mode);

/**
 * Insert the transfers of every edge: SEND right after the producer, RECV right before the consumer
 * (after its R).
 *
 * Order of several RECV before one action, and of several SEND after one: ascending edge index.
 * An activation edge adds SEND_F/RECV_F, a gradient edge SEND_B/RECV_B. A schedule without backward
 * has no gradient transfers. Edges between stages of one device are lowered too: their transfer is
 * a copy.
 *
 * @param[in] edges    [n_edges], copied. `from` != `to`, both 0..n-1.
 *
 * @retval CGP_EINVAL  A bad edge; unchanged.   @retval CGP_ESTATE  Lowered already.   @retval CGP_ENOMEM
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_schedule_lower(cgp_schedule *schedule, const cgp_edge *edges,
                                                     int n_edges);

/** As cgp_schedule_lower() with the edges of a chain: 0 -> 1, 1 -> 2 ..., then 1 -> 0, 2 -> 1 ...
 *  */
CGP_API CGP_MUST_CHECK cgp_status cgp_schedule_lower_chain(cgp_schedule *schedule);

/** Return the edges of a lowered schedule, and their number in `count`, 0 before. Borrowed.
 *  Threads: any. */
CGP_API const cgp_edge *cgp_schedule_edges(const cgp_schedule *schedule, int *count);

/** The two dialects of PyTorch's CSV. */
typedef enum cgp_csv {
    CGP_CSV_COMPUTE,   /**< F B I W only (and R, which PyTorch does not know); a column per tick. */
    CGP_CSV_TRANSFERS, /**< With transfers; only for stages that send to their neighbours. */
} cgp_csv;

/**
 * Read a schedule from CSV: a row per device, a cell per action, `2F0` or `(0F7;7B3)OVERLAP_F_B`,
 * blank where it idles.
 *
 * Both dialects: a text that has a transfer is lowered as a chain (transfers between stages of one
 * device, which PyTorch leaves out, are inserted), another is compute only. UNSHARD, RESHARD,
 * REDUCE_GRAD, WAIT_REDUCE_GRAD and WAIT_SEND_F and _B are skipped. The rules are left to
 * cgp_schedule_check().
 *
 * A text that has BW, or B and W of one (stage, micro-batch), is in PyTorch's older letters: its B
 * is I, its BW is B. If the forwards of the last stage alone are numbered from 1, as by PyTorch's
 * Schedule1F1B, they are read from 0, with a warning in the log. A byte order mark of UTF-8 and
 * cells in quotes (RFC 4180) are read.
 *
 * @param[in] name   Of the schedule, and of the text in messages. Borrowed.
 * @param[in] text   [bytes], need not end in 0. Borrowed.
 *
 * @retval CGP_EFORMAT  The message names row and column (from 1) and the cell; or it is text in
 * UTF-16 or UTF-32.
 * @retval CGP_EINVAL   More than 2^24 stages x micro-batches.   @retval CGP_ENOMEM
 *
 * Threads: any. Cost: O(bytes log bytes).
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_schedule_from_csv(cgp_schedule **out, const char *name,
                                                        const char *text, size_t bytes);

/**
 * Write a schedule as CSV that cgp_schedule_from_csv() and PyTorch read. (With transfers PyTorch
 * 2.6 to 2.9; later ones need a wait for each SEND as well, and insert both themselves into compute
 * actions.)
 *
 * @param[out] out  The text, with a 0 at its end; freed by the caller with free().
 *
 * @retval CGP_EINVAL  With transfers, an edge between stages that are not neighbours; or a rule of
 * cgp_schedule_check() is
 *                     broken.
 * @retval CGP_ENOMEM
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_schedule_to_csv(const cgp_schedule *schedule, cgp_csv dialect,
                                                      char **out);

/** The result of cgp_schedule_check(). Arrays are owned by the report; free with
 *  cgp_schedule_report_release(). */
typedef struct cgp_schedule_report {
    int devices, stages, edges;
    /** [stages] The largest number of micro-batches between their F and the end of their backward
     * (B, or W). 1 in a forward schedule, where a micro-batch ends with its F. */
    int *peak_in_flight;
    /** [devices] As peak_in_flight, summed over the device's stages at one time. */
    int *peak_slots;
    /** [edges] At least 1. With these buffers the schedule does not deadlock, with one less on any
     * edge it does, whatever the costs. A receive has a buffer from its posting until its message
     * is taken. Of several such vectors, the largest entry of this one is the least that would do
     * for all edges alike. */
    int *min_capacity;
} cgp_schedule_report;

/**
 * Prove that a lowered schedule keeps the rules and does not deadlock, before anything runs.
 *
 * Every (stage, micro-batch) has its F once and its backward once (B, or I then W), or no backward
 * at all in a forward schedule; order within a stage; R at most once, between F and backward; SEND
 * after its producer and RECV before its consumer, once each, not necessarily next to them (RECV
 * posts a receive, see cgp_schedule_simulate()); no deadlock with unbounded buffers; then the least
 * capacity of each edge.
 *
 * @param[out] report  Filled on success only. May be NULL.
 *
 * @retval CGP_EINVAL  The message names the device, position (from 0), action and the rule; for a
 * deadlock, the cycle.
 * @retval CGP_ESTATE  Not lowered.   @retval CGP_ENOMEM
 *
 * Cost: O(actions) where one buffer is enough on every edge, otherwise O(actions x edges x log m)
 * at worst.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_schedule_check(const cgp_schedule *schedule,
                                                     cgp_schedule_report *report);
/** Free the arrays of a report; it may be all zero. */
CGP_API void cgp_schedule_report_release(cgp_schedule_report *report);

/** Costs in any one unit of time. Arrays are borrowed; NULL stands for the default in brackets.
 *
 * By default F, I and W take 1 over all stages of a device, 1 / v on each of its v stages: so
 * schedules with one stage on each device and with several do the same work and can be compared.
 * Costs in an array are per stage. */
typedef struct cgp_schedule_costs {
    const double *forward;         /**< [stages] F [1 / v]. */
    const double *backward_input;  /**< [stages] I [1 / v]. */
    const double *backward_weight; /**< [stages] W [1 / v]. B costs I + W. */
    const double *recompute;       /**< [stages] R [as F]. */
    /** [edges] From the end of SEND until the message can be taken [0]. */
    const double *latency;
    /** [edges] Time of a message, bytes / bandwidth, beyond the latency [0]. Overlapped: on its
     * way, one message of an edge at a time, while devices compute. */
    const double *transfer;
    /** Not overlapped: the message takes that time on the receiving device, before the action that
     *  waits. */
    bool transfers_block;
    /** [edges] Buffers, >= 1: SEND waits while all are in use; taking a message frees one. A posted
     * receive has one [unbounded]. */
    const int *capacity;
} cgp_schedule_costs;

/** The times of a step: simulated, in the unit of its costs, or measured, in seconds from the start
 *of its first action
 * (cgp_pipeline_last_timeline(), cgp_schedule_from_trace()). Arrays are owned; free with
 * cgp_schedule_timeline_release().
 *
 * Compute time is that of F, B, I, W and R. Where nothing takes time, busy fractions and bubbles
 * are 0. */
typedef struct cgp_schedule_timeline {
    int devices, edges;
    double makespan;        /**< End of the last action, from 0. */
    double span;            /**< Largest (last end - first start) of any device. */
    double bubble_makespan; /**< 1 - compute time of all devices / (devices x makespan). */
    /** 1 - compute time / span, of the device with the largest span; of several with the same span
     * (to 1e-12 of it), the one that computes least. */
    double bubble_span;
    /** [devices] Compute time / makespan. */
    double *busy;
    /** [edges] At least 1. The largest number of buffers in use at once if they are unbounded (in
     * use from when SEND is done or RECV posted until the message is taken; at one instant freed
     * first): with that many no sender waits, and every time is as without limit. Does not depend
     * on costs.capacity. Measured: the largest number in use at once. */
    int *free_capacity;
    /** [devices][actions of the device] SEND starts and ends when it is done, RECV when its message
     * is taken, right before the action that waits for it: if it was posted earlier, later than the
     * actions that follow it in the list. If transfers block, RECV takes its time then. Measured:
     * from when the device came to it, with its waiting and copying. */
    double **start, **end;
    /** [devices][actions of the device] Measured, else NULL. Of a transfer: when the other side
     * released its buffer, or message (0: before the step), and when this side had it; if it was
     * released after `start` the transfer waited, and from `ready` to `end` it copies. Of others:
     * 0, and start. */
    double **released, **ready;
    /** [devices][actions of the device] On the critical path: a chain of actions from 0 to the
     * makespan in which each one starts when the one before ends or its message comes. One of
     * several. Measured: back from the last to end, from a transfer that waited to the one that it
     * waited for, from any other action to the one before it on its device. */
    bool **critical;
    /** By kind: compute time on it. The rest of the makespan is messages, and, measured, the time
     *  between actions. */
    double critical_path[CGP_ACTION_R + 1];
    /** Measured by ranks whose hosts have clocks of their own: seconds by which the times of any of
     *  them may be off those of rank 0. Else 0. */
    double clock_uncertainty;
} cgp_schedule_timeline;

/**
 * Simulate a lowered schedule: each device runs its list in order, an action starts when its
 * messages have arrived.
 *
 * SEND waits for a free buffer. RECV only posts a receive, wherever it stands: the F, B or I of its
 * stage and micro-batch waits for the message, and takes it. (Of a pair, F waits for the messages
 * of both.) So a table has the same times with transfers as without; only buffers may be more.
 * Transfers take no time on the device unless costs.transfers_block.
 *
 * @param[in]  costs  Borrowed; NULL for all defaults.
 * @param[out] out    Filled on success only.
 *
 * @retval CGP_EINVAL  A cost is negative or not finite, a capacity is < 1, a rule of
 * cgp_schedule_check() is broken, or
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
 * Draw a schedule in ASCII, a row per device, a column per clock tick, every compute action one
 * tick; transfers are not drawn.
 *
 *     F0 F1 F2  .  .  .  . B0 B1 B2
 *      . F0 F1 F2  .  . B0 B1 B2  .
 *      .  . F0 F1 F2 B0 B1 B2  .  .
 *
 * Works before and after lowering; before it, stage j is taken to depend on stage j-1 (F) and j+1
 * (B). On a device with several stages each action is written with its stage: 2F0.
 *
 * All cells are as wide as the widest, right-aligned, one blank between them.
 *
 * @return Text with a newline after each row, to be freed by the caller with free(); NULL if memory
 * is short, a rule of
 *         cgp_schedule_check() is broken or it deadlocks: cgp_message() says which.
 */
CGP_API char *cgp_schedule_draw(const cgp_schedule *schedule);

/**
 * Draw a step, simulated or measured, in ASCII to scale: a row per device, columns in proportion to
 * time, transfers not drawn.
 *
 *     F0=F1=F2=..........B0====B1====B2====
 *     ...F0=F1=F2=B0====B1====B2====.......
 *
 * An action that is too short for its name has its letter; one of less than half a column may be
 * invisible.
 *
 * @param[in]  schedule  Lowered.
 * @param[in]  timeline  Of this schedule.
 * @param[in]  until     Time of the last column's end, from 0: at least the makespan; more to draw two steps to one scale.
 * @param[in]  columns   Of a row, 1 to 2^20.
 * @param[out] out       Text with a newline after each row, and a 0 at its end; freed by the caller with free().
 *
 * @retval CGP_EINVAL  `until` or `columns` is out of range, or a rule of cgp_schedule_check() is
 * broken.
 * @retval CGP_ESTATE  Not lowered.   @retval CGP_ENOMEM
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_schedule_draw_timeline(const cgp_schedule *schedule,
                                                             const cgp_schedule_timeline *timeline,
                                                             double until, int columns, char **out);

/**
 * Draw a step, simulated or measured, as SVG: a row per device, a box per compute action as long as
 * it takes, coloured, lettered and textured by kind, with its micro-batch; idle time shows as
 * background, the critical path has a red border; bubble and memory are in the title.
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
 * Write a step, simulated or measured, as Chrome's trace events, the JSON that ui.perfetto.dev and
 * chrome://tracing open.
 *
 * A process per device, a slice per compute action, an arrow per message between devices, and a
 * counter of the micro-batches in flight. A measured step has, beside them, the object `cgpipe`,
 * from which cgp_schedule_from_trace() reads it back. Parameters and errors as of
 * cgp_schedule_svg().
 *
 * @param[in] microseconds  Microseconds per unit of the costs, > 0; of a measured step 1e6.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_schedule_trace(const cgp_schedule *schedule,
                                                     const cgp_schedule_timeline *timeline,
                                                     double microseconds, char **out);

/**
 * Read a measured step back from the trace that cgp_schedule_trace() wrote of it: every action and
 * every time, exactly.
 *
 * @param[out] out       The lowered schedule. Owned by the caller, see cgp_schedule_destroy().
 * @param[out] timeline  Of it. Filled on success only.
 * @param[in]  name      Of the text, for messages. Borrowed.
 * @param[in]  text      [bytes], need not end in 0. Borrowed.
 *
 * @retval CGP_EFORMAT  Not JSON, without the object `cgpipe`, or a key of it is missing or wrong:
 * the message names it.
 * @retval CGP_ENOMEM
 *
 * Threads: any.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_schedule_from_trace(cgp_schedule **out,
                                                          cgp_schedule_timeline *timeline,
                                                          const char *name, const char *text,
                                                          size_t bytes);

/** The parts of a device's time, from 0 to the measured makespan. Each instant is in one of them.
 *  */
typedef enum cgp_schedule_part {
    CGP_PART_COMPUTE, /**< F, B, I, W and R run. */
    /** Idle as in a simulation where all stages cost the same: for each kind of action their mean.
     *  */
    CGP_PART_BUBBLE,
    /** Idle beyond that in a simulation of unequal stages: medians of kind and stage. */
    CGP_PART_IMBALANCE,
    /** Idle beyond that in a simulation where each action takes its measured time. */
    CGP_PART_VARIATION,
    CGP_PART_COPY, /**< Transfers copy: from having the buffer, or message, to their end. */
    /** Wake-up latency: from the other side's release of the buffer, or message, to this side's
     *  having it. */
    CGP_PART_WAKEUP,
    /** The rest: waiting because of copies and wake-ups elsewhere or for a free buffer; time
     * between actions; workers that start later than the first, or end before the last. */
    CGP_PART_OTHER,
    CGP_PARTS
} cgp_schedule_part;

/** Return the name of a part in one word, "wake-up". Static. Threads: any. */
CGP_API const char *cgp_schedule_part_name(cgp_schedule_part part);

/** A measured step beside its plan. Arrays are owned; free with cgp_schedule_comparison_release().
 *  */
typedef struct cgp_schedule_comparison {
    int devices;
    /** [devices] Seconds, none below 0; those of a device add up to the measured makespan, but for
     * rounding. Simulated idle time counts as far as the device was idle: a copy within its bubble
     * is copy. */
    double (*parts)[CGP_PARTS];
    double equal_makespan;  /**< Simulated, all stages the same. */
    double varied_makespan; /**< Simulated, each action with its measured time. */
    /** Simulated, each action with the median of its kind on its stage. In all simulations messages
     *  take no time. */
    cgp_schedule_timeline planned;
} cgp_schedule_comparison;

/**
 * Simulate a measured step, and split its time into parts.
 *
 * @param[in]  schedule  Lowered.
 * @param[in]  measured  Of this schedule: of cgp_pipeline_last_timeline() or
 * cgp_schedule_from_trace().
 * @param[out] out       Filled on success only.
 *
 * @retval CGP_EINVAL  The timeline is a simulated one, or a rule of cgp_schedule_check() is broken,
 * or it deadlocks.
 * @retval CGP_ESTATE  Not lowered.   @retval CGP_ENOMEM
 *
 * Cost: O(actions log actions).
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_schedule_compare(const cgp_schedule *schedule,
                                                       const cgp_schedule_timeline *measured,
                                                       cgp_schedule_comparison *out);
/** Free the arrays of a comparison; it may be all zero. */
CGP_API void cgp_schedule_comparison_release(cgp_schedule_comparison *comparison);

/** Draw two steps of a schedule as cgp_schedule_svg() does, the planned one above the measured one,
 * to one scale. Parameters and errors as there. */
CGP_API CGP_MUST_CHECK cgp_status cgp_schedule_compare_svg(const cgp_schedule *schedule,
                                                           const cgp_schedule_timeline *planned,
                                                           const cgp_schedule_timeline *measured,
                                                           char **out);

/**
 * Draw where a schedule is wrong: the compute actions of each device in the order of its list, in
 * brackets those that break the rule, or at which the devices of a deadlock block.
 *
 *      0F0 [0B0] 0F1  0B1
 *     [1F1] 1F0  1B0  1B1
 *
 * A transfer is drawn as its compute action. Brackets behind the last action: an action is missing
 * there. Long lists are cut to the neighbourhood. Works before and after lowering, as
 * cgp_schedule_draw().
 *
 * @return Text with a newline after each row, to be freed by the caller with free(), and the rule
 * in cgp_message(); NULL if
 *         nothing is wrong or memory is short.
 */
CGP_API char *cgp_schedule_draw_diagnostic(const cgp_schedule *schedule);

/** Write an action as "2F0" or "1SEND_F3" to `text` of `size` bytes; returns `text`. Threads: any.
 *  */
CGP_API char *cgp_action_text(const cgp_action *action, char *text, size_t size);

#ifdef __cplusplus
}
#endif
#endif
