/* SPDX-License-Identifier: Apache-2.0 */
/* schedule.h -- the order in which actions run: integer tables that are made, lowered, checked,
 * simulated and drawn without a device.
 *
 * A schedule has one ordered list of actions per device. A generator (`gpipe`, `1f1b`, `zb-h1` ...)
 * makes the schedule, or the schedule is read from CSV. After that, cgp_schedule_recompute() adds
 * recomputations, and cgp_schedule_lower() adds transfers. In every generator, backward runs in
 * ascending order of micro-batch, so weight gradients add up in one order under every schedule.
 * Gradient groups add no actions: their additions run at the end of B, I or W of a group's last
 * micro-batch.
 *
 * Threads: a schedule has no locks. A call that changes a schedule needs exclusive access; calls
 * that take it as const may run concurrently. */
#ifndef CGPIPE_SCHEDULE_H
#define CGPIPE_SCHEDULE_H

#include <cgpipe/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The work of an action with one micro-batch on one stage. */
typedef enum cgp_action_kind {
    CGP_ACTION_F, /**< Forward. */
    CGP_ACTION_B, /**< Backward: I and W in one action. */
    CGP_ACTION_I, /**< Backward, input gradient only. */
    CGP_ACTION_W, /**< Backward, weight gradient only, after I. */
    CGP_ACTION_R, /**< Recompute: run forward again, to restore the inputs of backward. */
    CGP_ACTION_SEND_F,
    CGP_ACTION_RECV_F,
    CGP_ACTION_SEND_B,
    CGP_ACTION_RECV_B,
} cgp_action_kind;

/** One entry of a device's list. */
typedef struct cgp_action {
    cgp_action_kind kind;
    int stage;      /**< 0..n-1: the stage that computes, sends or receives. */
    int microbatch; /**< 0..m-1. */
    int edge;       /**< Transfers: index into the edges of cgp_schedule_lower(). Others: -1. */
    /** Only for F, before lowering: this F and the next B or I of the list run as an overlapped
     *  pair (dualpipe-v, OVERLAP_F_B). Each action of the pair waits for the inputs of both, and
     *  both send when both are done. */
    bool overlapped;
} cgp_action;

/** An edge between two stages. Every micro-batch uses it once.
 *
 *  from < to: an activation, ready after F of `from`, needed by F of `to`.
 *  from > to: a gradient, ready after B (or I) of `from`, needed by B (or I) of `to`. */
typedef struct cgp_edge {
    int from, to;
} cgp_edge;

typedef struct cgp_schedule cgp_schedule;

/** Recomputation mode: which micro-batches are recomputed, and which values are saved. A selective
 *  mode recomputes the same micro-batches and has the same schedule. In addition, it does not save
 *  the outputs of cheap ops (norms, activations, dropout); backward recomputes them. */
typedef enum cgp_recompute {
    CGP_RECOMPUTE_NEVER,  /**< F saves all inputs of backward. */
    CGP_RECOMPUTE_ALWAYS, /**< Every micro-batch is recomputed before its backward. */
    /** Like `always`, but a micro-batch is not recomputed if its backward is the first backward on
     *  its stage after its F. */
    CGP_RECOMPUTE_EXCEPT_LAST,
    CGP_RECOMPUTE_NEVER_SELECTIVE,
    CGP_RECOMPUTE_ALWAYS_SELECTIVE,
    CGP_RECOMPUTE_EXCEPT_LAST_SELECTIVE,
    /** Only for plans. The plan decides for each value whether backward recomputes it. The plan
     *  recomputes as little as the memory limits of its devices allow. */
    CGP_RECOMPUTE_BUDGET,
} cgp_recompute;

/** These functions return the mode without "+selective", and whether the mode has "+selective". */
static inline cgp_recompute cgp_recompute_plain(cgp_recompute mode) {
    return mode == CGP_RECOMPUTE_BUDGET
               ? mode
               : (cgp_recompute)((int)mode % (int)CGP_RECOMPUTE_NEVER_SELECTIVE);
}
static inline bool cgp_recompute_is_selective(cgp_recompute mode) {
    return mode >= CGP_RECOMPUTE_NEVER_SELECTIVE && mode != CGP_RECOMPUTE_BUDGET;
}

/** Parse "never", "always", "except_last", each with or without "+selective", or "budget";
 * "selective" alone is never+selective.
 * @retval CGP_EINVAL The name is unknown; the message has the nearest name. Threads: any. */
CGP_API CGP_MUST_CHECK cgp_status cgp_recompute_parse(cgp_recompute *out, const char *text);

/** Return the name that cgp_recompute_parse() accepts. The string is static. Threads: any. */
CGP_API const char *cgp_recompute_name(cgp_recompute recompute);

/** Placement of stages: v on each of n devices, n v in all. */
typedef enum cgp_placement {
    CGP_PLACEMENT_LOOP, /**< Stage j on device j mod n. */
    /** Stages on devices 0 1 .. n-1 n-1 .. 1 0, then 0 1 .. again. With 2 stages on each device,
     *  the first and the last stage share a device. */
    CGP_PLACEMENT_V,
} cgp_placement;

/** The properties of a named schedule. Strings are static. */
typedef struct cgp_schedule_info {
    const char *name;   /**< "zb-h1" */
    const char *when;   /**< The schedule's use case, in one line. */
    const char *rule;   /**< The schedule's construction, in two lines. */
    int virtual_stages; /**< Default of v, the number of stages per device. */
    bool any_virtual;   /**< The options may set another v. */
    bool has_backward;
    bool splits_backward; /**< The schedule has I and W instead of B. */
    cgp_placement placement;
} cgp_schedule_info;

/** The first function returns schedule number `index`, counted from 0. The second returns the
 *  schedule called `name`. The result is static; NULL if there is no such schedule. Threads:
 *  any. */
CGP_API const cgp_schedule_info *cgp_schedule_info_at(int index);
CGP_API const cgp_schedule_info *cgp_schedule_info_find(const char *name);

/** Options of a generator, in addition to name and size. */
typedef struct cgp_schedule_options {
    size_t struct_size;
    int virtual_stages; /**< v, the number of stages on each device, >= 1 [0: the default in
                         *   cgp_schedule_info]. */
    int group;          /**< interleaved, interleaved-zb: micro-batches in a group, n..m [0: n]. */
    /** Placement of the schedule forward-only [loop]; other schedules have a fixed placement. */
    cgp_placement placement;
    /** [stages] zb-1p, zb-2p: time of F [NULL: 1]. The three arrays are borrowed for the call. */
    const double *forward;
    const double *backward_input;  /**< [stages] Time of I [NULL: 1]. */
    const double *backward_weight; /**< [stages] Time of W [NULL: 1]. */
    double latency;                /**< zb-1p, zb-2p: time of a message between devices [0]. */
    /** v-flex: maximum number of micro-batches in flight, summed over the two stages of a device.
     *  The range is from the peak of v-min to 2n [0: 2n, which needs as much memory as 1f1b]. */
    int in_flight;
} cgp_schedule_options;

/** Return the defaults given in brackets above, with struct_size set. */
static inline cgp_schedule_options cgp_schedule_options_default(void) {
    cgp_schedule_options options = {
        sizeof(cgp_schedule_options), 0, 0, CGP_PLACEMENT_LOOP, NULL, NULL, NULL, 0.0, 0};
    return options;
}

/**
 * Generate a schedule by name; cgp_schedule_info_at() lists them.
 *
 * The result has compute actions only. Backward (B, I and W) runs in ascending order of micro-batch
 * on every stage, so weight gradients add up in one order.
 *
 * @param[out] out      Owned by the caller, see cgp_schedule_destroy().
 * @param[in]  name     Borrowed.
 * @param[in]  devices  n >= 1.
 * @param[in]  chunks   m >= 1 micro-batches; it may be less than n.
 * @param[in]  options  Borrowed; NULL for all defaults.
 *
 * @retval CGP_EINVAL  The name is unknown (the message has the nearest name), n or m is < 1, or
 *                     stages x micro-batches is more than 2^24. Or v, group, in_flight or a cost
 *                     does not fit the schedule, or dualpipe-v needs more micro-batches.
 * @retval CGP_ENOMEM
 *
 * Threads: any. Cost: O(actions); for zb-1p and zb-2p, a dozen times O(actions x n);
 * for v-flex, O(actions + 2^18).
 * Source: each generator's file in src/schedule names its paper.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_schedule_create(cgp_schedule **out, const char *name,
                                                      int devices, int chunks,
                                                      const cgp_schedule_options *options);

/** Free a schedule. Accepts NULL. */
CGP_API void cgp_schedule_destroy(cgp_schedule *schedule);

/** These functions return the name (borrowed), and the numbers of stages, micro-batches and
 *  devices. Threads: any. */
CGP_API const char *cgp_schedule_name(const cgp_schedule *schedule);
CGP_API int cgp_schedule_stages(const cgp_schedule *schedule);
CGP_API int cgp_schedule_chunks(const cgp_schedule *schedule);
CGP_API int cgp_schedule_devices(const cgp_schedule *schedule);

/** Return the device of stage j; -1 if there is no such stage. Threads: any. */
CGP_API int cgp_schedule_device_of(const cgp_schedule *schedule, int stage);

/** Return a device's list in order, and its length in `count`. The list is borrowed, and valid
 *  until the schedule changes. */
CGP_API const cgp_action *cgp_schedule_actions(const cgp_schedule *schedule, int device,
                                               int *count);

/**
 * Insert an R before the backward of every (stage, micro-batch) that the mode recomputes.
 *
 * except_last does not recompute a micro-batch if the next backward after its F, in the list of the
 * stage, is for the same micro-batch. This mode needs as much memory as `always` (one saved slot),
 * and the fewest recomputations possible in that memory.
 *
 * @retval CGP_EINVAL  `mode` is not a mode. The schedule is unchanged.
 * @retval CGP_ESTATE  The schedule is lowered already, or has R actions. The schedule is unchanged.
 * @retval CGP_ENOMEM  The schedule is unchanged.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_schedule_recompute(cgp_schedule *schedule,
                                                         cgp_recompute mode);

/** The gradients that backward of a stage computes. */
typedef enum cgp_stage_backward {
    CGP_BACKWARD_FULL,  /**< Gradients of parameters and of inputs: B, or I and W. */
    CGP_BACKWARD_INPUT, /**< Only gradients of inputs, because all parameters are frozen: I
                         *   alone. */
    CGP_BACKWARD_NONE   /**< No gradients, because neither this stage nor an earlier stage trains a
                         *   parameter: F only. */
} cgp_stage_backward;

/**
 * Remove the backward actions that are unnecessary because parameters are frozen. An INPUT stage
 * loses W, and its B becomes I. A NONE stage loses B, I, W and R. All other actions keep their
 * order.
 *
 * Lower the schedule after this call, with gradient edges only between stages that have a backward;
 * cgp_schedule_lower_chain() does this.
 *
 * @param[in] stages  [stages]. Borrowed for the call.
 *
 * @retval CGP_EINVAL  An element is not a cgp_stage_backward. The schedule is unchanged.
 * @retval CGP_ESTATE  The schedule is lowered already. It is unchanged.
 * @retval CGP_ENOMEM  The schedule is unchanged.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_schedule_freeze(cgp_schedule *schedule,
                                                      const cgp_stage_backward *stages);

/**
 * Insert the transfers of every edge: SEND right after the producer, RECV right before the consumer
 * (after the consumer's R).
 *
 * Several RECVs before one action, and several SENDs after one, are in ascending order of edges. An
 * activation edge adds SEND_F/RECV_F, a gradient edge SEND_B/RECV_B. A schedule without backward
 * has no gradient transfers. Edges between stages of one device are lowered too: their transfer is
 * a copy.
 *
 * @param[in] edges    [n_edges], copied. `from` != `to`, both 0..n-1.
 *
 * @retval CGP_EINVAL  An edge is wrong. The schedule is unchanged.
 * @retval CGP_ESTATE  The schedule is lowered already.
 * @retval CGP_ENOMEM
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_schedule_lower(cgp_schedule *schedule, const cgp_edge *edges,
                                                     int n_edges);

/** Call cgp_schedule_lower() with the edges of a chain: 0 -> 1, 1 -> 2 ..., then 1 -> 0, 2 -> 1 ...
 *  If the first k stages have no backward, but later stages have one, the first k gradient edges
 *  are left out. */
CGP_API CGP_MUST_CHECK cgp_status cgp_schedule_lower_chain(cgp_schedule *schedule);

/** Return the edges of a lowered schedule (borrowed), and their number in `count`, which is 0
 *  before lowering. Threads: any. */
CGP_API const cgp_edge *cgp_schedule_edges(const cgp_schedule *schedule, int *count);

/** The two dialects of PyTorch's CSV. */
typedef enum cgp_csv {
    CGP_CSV_COMPUTE, /**< Only F, B, I and W (and R, which PyTorch lacks); one column per tick. */
    /** The text has transfers too. Only for schedules in which each stage sends only to its
     *  neighbours. */
    CGP_CSV_TRANSFERS,
} cgp_csv;

/**
 * Read a schedule from CSV. It has one row per device and one cell per action, such as `2F0` or
 * `(0F7;7B3)OVERLAP_F_B`. In a blank cell, the device is idle.
 *
 * Both dialects are read. If the text has transfers, they are used, and the stages form a chain.
 * Transfers between stages of one device, which PyTorch omits, are then inserted. A text without
 * transfers has compute actions only. UNSHARD, RESHARD, REDUCE_GRAD, WAIT_REDUCE_GRAD, WAIT_SEND_F
 * and WAIT_SEND_B are skipped. Call cgp_schedule_check() to check the rules.
 *
 * A text that has BW, or B and W of one (stage, micro-batch), uses PyTorch's older letters: its B
 * is I, and its BW is B. PyTorch's Schedule1F1B numbers forwards from 1, but only on the last
 * stage. These forwards are renumbered from 0, with a warning in the log. The text may have a UTF-8
 * byte order mark and quoted cells (RFC 4180).
 *
 * @param[in] name   Name of the schedule, also for messages. Borrowed.
 * @param[in] text   [bytes], need not end in 0. Borrowed.
 *
 * @retval CGP_EFORMAT  The message names row and column (from 1) and the cell. Or the text is in
 *                      UTF-16 or UTF-32.
 * @retval CGP_EINVAL   More than 2^24 stages x micro-batches.
 * @retval CGP_ENOMEM
 *
 * Threads: any. Cost: O(bytes log bytes).
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_schedule_from_csv(cgp_schedule **out, const char *name,
                                                        const char *text, size_t bytes);

/**
 * Write a schedule as CSV that cgp_schedule_from_csv() and PyTorch read. Transfers are in the form
 * of PyTorch 2.6 to 2.9. Later versions also need a wait for each SEND. For these versions, write
 * compute actions only: they insert transfers and waits themselves.
 *
 * @param[out] out  The text, with a 0 at its end; freed by the caller with free().
 *
 * @retval CGP_EINVAL  With transfers, an edge joins stages that are not neighbours. Or a rule of
 *                     cgp_schedule_check() is broken.
 * @retval CGP_ENOMEM
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_schedule_to_csv(const cgp_schedule *schedule, cgp_csv dialect,
                                                      char **out);

/** Result of cgp_schedule_check(). Its arrays are owned by the report; free them with
 *  cgp_schedule_report_release(). */
typedef struct cgp_schedule_report {
    int devices, stages, edges;
    /** [stages] Largest number of micro-batches in flight. A micro-batch is in flight from its F to
     *  the end of its backward, which is B or W, or I if the stage has only I. On a stage without
     *  backward, it is in flight only during its F, and the number is 1. */
    int *peak_in_flight;
    /** [devices] Largest sum of micro-batches in flight over the device's stages at one time. */
    int *peak_slots;
    /** [edges] Number of buffers of each edge, >= 1. With these buffers, the schedule does not
     *  deadlock under any costs. With one buffer fewer on any edge, it deadlocks. A receive has a
     *  buffer from its posting until its message is taken. Several such arrays may exist. The
     *  largest entry of this array is the smallest capacity that suffices if all edges have the
     *  same capacity. */
    int *min_capacity;
} cgp_schedule_report;

/**
 * Prove that a lowered schedule keeps the rules and does not deadlock, before anything runs.
 *
 * - Every (stage, micro-batch) has its F once, then its backward once (B, or I then W). A stage
 *   whose parameters are frozen may have I alone for every micro-batch. A stage without gradient
 *   edges may have no backward at all, and in a forward schedule no stage has a backward.
 * - R of a (stage, micro-batch) occurs at most once, between F and backward.
 * - Each SEND occurs once, after its producer. Each RECV occurs once, before its consumer. Other
 *   actions may lie between them. (RECV posts a receive, see cgp_schedule_simulate().)
 * - The schedule does not deadlock with unbounded buffers.
 *
 * Then it computes the least capacity of each edge.
 *
 * @param[out] report  Filled on success only. May be NULL.
 *
 * @retval CGP_EINVAL  The message names the device, the position (from 0), the action and the rule
 *                     or, for a deadlock, the cycle.
 * @retval CGP_ESTATE  The schedule is not lowered.
 * @retval CGP_ENOMEM
 *
 * Cost: O(actions) if one buffer suffices on every edge; otherwise at most O(actions x edges x log
 * m).
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_schedule_check(const cgp_schedule *schedule,
                                                     cgp_schedule_report *report);
/** Free the arrays of a report. A report that is all zero is accepted. */
CGP_API void cgp_schedule_report_release(cgp_schedule_report *report);

/** Costs, all in the same unit of time. Arrays are borrowed; NULL means the default in brackets.
 *
 *  By default F, I and W each take 1 / v on a stage, where v is the number of stages per device. So
 *  a schedule with one stage per device and a schedule with several do the same work, and their
 *  times can be compared. Costs in an array are costs of whole stages. */
typedef struct cgp_schedule_costs {
    const double *forward;         /**< [stages] Cost of F [1 / v]. */
    const double *backward_input;  /**< [stages] Cost of I [1 / v]. */
    const double *backward_weight; /**< [stages] Cost of W [1 / v]. B costs I + W. */
    const double *recompute;       /**< [stages] Cost of R [as F]. */
    /** [edges] Time from the end of SEND until the message can be taken [0]. */
    const double *latency;
    /** [edges] Time of a message, bytes / bandwidth, beyond the latency [0]. An overlapped transfer
     *  runs while devices compute, one message of an edge at a time. */
    const double *transfer;
    /** If true, transfers are not overlapped: each message occupies the receiving device for the
     *  time of its transfer, before the action that waits for the message. */
    bool transfers_block;
    /** [edges] Number of buffers, >= 1 [unbounded]. SEND waits while all buffers are in use; taking
     *  a message frees its buffer. A posted receive occupies one buffer. */
    const int *capacity;
    /** [stages] Time of one addition of partial sums of gradients, after I and after W [0]. After
     *  B, both additions run. With gradient groups (cgp_plan_options), the last micro-batch of a
     *  group ends with the additions of the tree. */
    const double *add_input, *add_weight;
    /** Number of gradient groups, a power of two up to 1024 [0: 1]. */
    int gradient_groups;
} cgp_schedule_costs;

/** Times of a step. They are either simulated, in the unit of the costs, or measured, in seconds
 *  from the start of the first action (cgp_pipeline_last_timeline(), cgp_schedule_from_trace()).
 *  Arrays are owned; free them with cgp_schedule_timeline_release().
 *
 *  Compute time is the time of F, B, I, W and R. If nothing takes time, busy fractions and bubbles
 *  are 0. */
typedef struct cgp_schedule_timeline {
    int devices, edges;
    double makespan;        /**< End of the last action, from 0. */
    double span;            /**< Largest difference, over the devices, between the end of the last
                             *  action and the start of the first. */
    double bubble_makespan; /**< 1 - compute time of all devices / (devices x makespan). */
    /** 1 - compute time / span, for the device with the largest span. If several devices have this
     *  span (within a relative 1e-12), the device with the least compute time is used. */
    double bubble_span;
    /** [devices] Compute time / makespan. */
    double *busy;
    /** [edges] Largest number of buffers in use at once, >= 1. A simulation counts with unbounded
     *  buffers, and ignores costs.capacity. A buffer is in use from the end of SEND, or the posting
     *  of RECV, until the message is taken. A buffer that is freed at an instant can be used again
     *  at the same instant. With that many buffers no sender waits, and all times are as with
     *  unbounded buffers. */
    int *free_capacity;
    /** [devices][actions of the device] Start and end of each action. A simulated SEND takes no
     *  time: it starts and ends when it is done. A simulated RECV starts and ends when its message
     *  is taken, just before the action that waits for the message. So a RECV that is posted early
     *  may have a later time than actions after it in the list. If transfers block, RECV lasts as
     *  long as the transfer. A measured transfer starts when the device reaches it; waiting and
     *  copying are included. */
    double **start, **end;
    /** [devices][actions of the device] For measured steps; NULL if simulated. `released` is the
     *  time at which the other side released the buffer, or message, of a transfer (0: before the
     *  step). `ready` is the time at which this side had the buffer or message. The transfer waited
     *  if `released` is after `start`, and it copies from `ready` to `end`. For other actions,
     *  `released` is 0. `ready` is the start or, on an asynchronous device, the time at which the
     *  device began the action. */
    double **released, **ready;
    /** [devices][actions of the device] The action is on the critical path, a chain of actions from
     *  0 to the makespan. In the chain, each action starts when the previous action ends or when
     *  its message arrives. Several such chains may exist. A measured path is traced back from the
     *  action that ends last. If a transfer waited, the path continues with the transfer that it
     *  waited for. From any other action, the path continues with the previous action on the same
     *  device. */
    bool **critical;
    /** Compute time on the critical path, by kind. The rest of the makespan is the time of messages
     *  and, in a measured step, the time between actions. */
    double critical_path[CGP_ACTION_R + 1];
    /** Largest error of any rank's times relative to the clock of rank 0, in seconds, if the step
     *  was measured on hosts with separate clocks. Otherwise 0. */
    double clock_uncertainty;
    /** [devices] In a plan with replicas: the time at which the device has the sums of its
     *  gradients over the replicas, at or after the end of its last action. It is not part of the
     *  makespan, span and bubbles. NULL: there are no replicas, or the times are not known. */
    double *exchanged;
} cgp_schedule_timeline;

/**
 * Simulate a lowered schedule: each device runs its list in order, and an action starts when its
 * messages have arrived.
 *
 * SEND waits for a free buffer. RECV only posts a receive, wherever it is in the list: the F, B or
 * I of its stage and micro-batch waits for the message and takes it. (In an overlapped pair, F
 * waits for the messages of both actions.) So the position of RECV changes no times, but may change
 * the number of buffers needed. Transfers take no time on the device unless costs.transfers_block
 * is set.
 *
 * @param[in]  costs  Borrowed; NULL for all defaults.
 * @param[out] out    Filled on success only.
 *
 * @retval CGP_EINVAL  A cost is negative or not finite, a capacity is < 1, gradient_groups is not a
 *                     power of two, a rule of cgp_schedule_check() is broken, or the schedule
 *                     deadlocks with this capacity (the message has the cycle).
 * @retval CGP_ESTATE  The schedule is not lowered.
 * @retval CGP_ENOMEM
 *
 * Cost: O(actions).
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_schedule_simulate(const cgp_schedule *schedule,
                                                        const cgp_schedule_costs *costs,
                                                        cgp_schedule_timeline *out);
/** Free the arrays of a timeline. A timeline that is all zero is accepted. */
CGP_API void cgp_schedule_timeline_release(cgp_schedule_timeline *timeline);

/**
 * Draw a schedule in ASCII, with one row per device and one column per clock tick. Every compute
 * action takes one tick; transfers are not drawn.
 *
 *     F0 F1 F2  .  .  .  . B0 B1 B2
 *      . F0 F1 F2  .  . B0 B1 B2  .
 *      .  . F0 F1 F2 B0 B1 B2  .  .
 *
 * The schedule may be lowered or not. If it is not, stage j is assumed to depend on stage j-1 (F)
 * and j+1 (B). On a device with several stages, an action is written with its stage: 2F0. All cells
 * are as wide as the widest, right-aligned, with one blank between them.
 *
 * @return Text with a newline after each row, freed by the caller with free(). NULL if memory is
 *     short, a rule of cgp_schedule_check() is broken, or the schedule deadlocks: cgp_message()
 *     says which.
 */
CGP_API char *cgp_schedule_draw(const cgp_schedule *schedule);

/**
 * Draw a step, simulated or measured, in ASCII to scale, with one row per device. Widths are in
 * proportion to times. Transfers are not drawn.
 *
 *     F0=F1=F2=..........B0====B1====B2====
 *     ...F0=F1=F2=B0====B1====B2====.......
 *
 * An action too short for its name is drawn as its letter; an action shorter than half a column may
 * be invisible.
 *
 * @param[in]  schedule  A lowered schedule.
 * @param[in]  timeline  Timeline of this schedule.
 * @param[in]  until     Time at the end of the last column, at least the makespan. To draw two
 *                       steps to the same scale, pass the same value for both.
 * @param[in]  columns   Columns in a row, 1 to 2^20.
 * @param[out] out       Text with a newline after each row, and a 0 at its end; freed by the caller
 *                       with free().
 *
 * @retval CGP_EINVAL  `until` or `columns` is out of range, or a rule of cgp_schedule_check() is
 *                     broken.
 * @retval CGP_ESTATE  The schedule is not lowered.
 * @retval CGP_ENOMEM
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_schedule_draw_timeline(const cgp_schedule *schedule,
                                                             const cgp_schedule_timeline *timeline,
                                                             double until, int columns, char **out);

/**
 * Draw a step, simulated or measured, as SVG, with one row per device and one box per compute
 * action. The length of a box is the action's time. A box has the colour, letter and texture of the
 * action's kind, and the number of its micro-batch. Idle time shows the background, boxes on the
 * critical path have a red border, and the title gives the bubble and the memory. With
 * `exchanged`, a box after the last action of a device shows its wait for other replicas.
 *
 * @param[in]  schedule  A lowered schedule.
 * @param[in]  timeline  Timeline of this schedule.
 * @param[out] out       The text, with a 0 at its end; freed by the caller with free().
 *
 * @retval CGP_EINVAL  A rule of cgp_schedule_check() is broken.
 * @retval CGP_ESTATE  The schedule is not lowered.
 * @retval CGP_ENOMEM
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_schedule_svg(const cgp_schedule *schedule,
                                                   const cgp_schedule_timeline *timeline,
                                                   char **out);

/**
 * Write a step, simulated or measured, as Chrome trace events, JSON that ui.perfetto.dev and
 * chrome://tracing open.
 *
 * The trace has one process per device, one slice per compute action, one arrow per message between
 * devices, and a counter of the micro-batches in flight. For a measured step it also has the object
 * `cgpipe`, from which cgp_schedule_from_trace() reads the step back. Parameters and errors are as
 * for cgp_schedule_svg().
 *
 * @param[in] microseconds  Microseconds per unit of the costs, > 0; for a measured step 1e6.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_schedule_trace(const cgp_schedule *schedule,
                                                     const cgp_schedule_timeline *timeline,
                                                     double microseconds, char **out);

/**
 * Read a measured step back from a trace of cgp_schedule_trace(): every action and every time,
 * exactly.
 *
 * @param[out] out       The lowered schedule. Owned by the caller, see cgp_schedule_destroy().
 * @param[out] timeline  Its timeline. Filled on success only.
 * @param[in]  name      Name of the text, for messages. Borrowed.
 * @param[in]  text      [bytes], need not end in 0. Borrowed.
 *
 * @retval CGP_EFORMAT  The text is not JSON, or has no object `cgpipe`, or a key of this object is
 *                      missing or wrong. The message names the fault.
 * @retval CGP_ENOMEM
 *
 * Threads: any.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_schedule_from_trace(cgp_schedule **out,
                                                          cgp_schedule_timeline *timeline,
                                                          const char *name, const char *text,
                                                          size_t bytes);

/**
 * Draw the compute actions of each device in the order of its list, and mark where the schedule is
 * wrong. Brackets enclose the actions that break the rule, or at which the devices of a deadlock
 * block.
 *
 *      0F0 [0B0] 0F1  0B1
 *     [1F1] 1F0  1B0  1B1
 *
 * A transfer is drawn as its compute action. Brackets after the last action mean that an action is
 * missing there. In long lists, only the actions near the brackets are drawn. The schedule may be
 * lowered or not, as for cgp_schedule_draw().
 *
 * @return Text with a newline after each row, freed by the caller with free(), and the rule in
 *     cgp_message(). NULL if nothing is wrong, or if memory is short.
 */
CGP_API char *cgp_schedule_draw_diagnostic(const cgp_schedule *schedule);

/** Write an action as "2F0" or "1SEND_F3" to `text` of `size` bytes. Returns `text`. Threads:
 *  any. */
CGP_API char *cgp_action_text(const cgp_action *action, char *text, size_t size);

#ifdef __cplusplus
}
#endif
#endif
