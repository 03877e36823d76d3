/* SPDX-License-Identifier: Apache-2.0 */
/* planner.h -- predicts the times of a step of a plan, and searches for plans that fit their
 * devices.
 *
 *     cgp_search_options search = cgp_search_options_default();
 *     cgp_search_result found;
 *     options.memory_limit = (int64_t)2 << 30;
 *     CGP_TRY(cgp_plan_search(model, &options, &search, &found));
 *     cgp_search_choice_apply(&found.choices[0], &options); // the fastest plan
 *     CGP_TRY(cgp_plan_create(&plan, model, &options));
 *
 * Threads: any; a finished model and a plan are only read. */
#ifndef CGPIPE_PLANNER_H
#define CGPIPE_PLANNER_H

#include <cgpipe/plan.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The speed of a device, for estimates without that device. */
typedef struct cgp_device_speed {
    double flops_per_second; /**< FLOPs per second that kernels reach, > 0. */
    /** Bytes of memory per second that kernels reach; 0: reading and writing memory takes no
     *  time. */
    double bytes_per_second;
    cgp_precision precision;
    cgp_convolution convolution;
    cgp_optim optim; /**< The optimizer, which determines the time of the update. */
} cgp_device_speed;

/**
 * Estimate costs of layers. The time of a kernel is the larger of FLOPs / `flops_per_second` and
 * bytes / `bytes_per_second`, where the bytes of each operand count once. The time of an update is
 * bytes / `bytes_per_second`. Launches take no time.
 *
 * @param[in]  model    Finished. Borrowed.
 * @param[in]  speed    Borrowed.
 * @param[in]  samples  Samples of a micro-batch, 1 to INT32_MAX.
 * @param[out] costs    [cgp_model_layers()], memory of the caller. Unchanged on failure.
 *
 * @retval CGP_EINVAL  A number is out of range, or the model is not finished.
 * @retval CGP_ENOMEM
 *
 * Threads: any. Cost: O(ops). Source: Williams, Waterman and Patterson 2009 (roofline model).
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_layer_costs_estimate(const cgp_model *model,
                                                           const cgp_device_speed *speed,
                                                           int64_t samples, cgp_layer_cost *costs);

/**
 * Find the balance of a plan for devices of unequal speed. The first goal is the makespan, as for
 * cgp_balance_for_plan().
 *
 * @param[in]  costs    [rows][layers] Costs of a micro-batch. Rows may differ only in their times.
 *                      Borrowed.
 * @param[in]  row_of   [devices] the row of each device's costs, below the number of devices; NULL:
 *                      all devices have row 0. Borrowed.
 * All else is as in cgp_balance_for_plan().
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_balance_for_devices(const cgp_model *model,
                                                          const cgp_plan_options *options,
                                                          const cgp_layer_cost *costs,
                                                          const int *row_of, int *balance);

/** Times of messages between stages. Arrays are borrowed. */
typedef struct cgp_message_costs {
    /** Bytes per second of a message that uses no link; 0: such a message takes no time. Several
     *  such messages of an edge may be in transit at one time. */
    double copy_bytes_per_second;
    /** [devices][devices] Links: latency in seconds, and bytes per second, from one device to
     *  another. On a link, an edge transfers one message at a time. NULL: there are no links.
     *  Messages within a device use no link. */
    const double *latency_seconds;
    const double *bytes_per_second;
} cgp_message_costs;

/**
 * Simulate a step of a full mini-batch with costs of layers.
 *
 * @param[in]  plan      Borrowed.
 * @param[in]  costs     [rows][layers] of a micro-batch of cgp_plan_microbatch() samples, from
 *                       cgp_layer_costs_at(). Borrowed.
 * @param[in]  row_of    [devices] the row of each device's costs, below the number of devices;
 *                       NULL: all devices have row 0. Borrowed.
 * @param[in]  messages  Borrowed; NULL: messages take no time.
 * @param[out] timeline  Filled on success only. It does not include the optimizer's update. The
 *                       time of an addition of gradient groups is derived from the update's time,
 *                       in proportion to the memory that both read and write.
 * @param[out] update    Seconds of the update on the slowest device; 0 if the costs have none. With
 *                       `shard_optimizer`, of a replica's share of the update. May be NULL.
 *
 * @retval CGP_EINVAL  A cost is negative or not finite, or a row is out of range.
 * @retval CGP_ENOMEM
 *
 * Cost: O(actions).
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_plan_simulate(const cgp_plan *plan,
                                                    const cgp_layer_cost *costs, const int *row_of,
                                                    const cgp_message_costs *messages,
                                                    cgp_schedule_timeline *timeline,
                                                    double *update);

/** Times of messages between replicas, which add their gradients by recursive halving, then
 *  recursive doubling. At level l of log2 R, a device of replica r exchanges messages with the same
 *  device of replica r xor 2^l. Arrays are borrowed. */
typedef struct cgp_exchange_costs {
    /** [levels][replicas][devices] Latency in seconds, and bytes per second, of the messages that
     *  the device sends at the level. */
    const double *latency_seconds;
    const double *bytes_per_second;
} cgp_exchange_costs;

/** A simulated exchange of gradients between replicas, in seconds. */
typedef struct cgp_plan_exchange {
    /** Time of the exchange by itself, on the slowest device. With `shard_optimizer`, this includes
     *  the time to send the updated parameters. */
    double seconds;
    /** The part of `seconds` that does not overlap with the actions of the step. */
    double added;
} cgp_plan_exchange;

/**
 * Simulate the exchange of gradients between the replicas of a plan. A piece of gradients, at most
 * CGP_REDUCE_BYTES, leaves when backward has completed it or, on a device with queues, after the
 * last action of the device. All replicas are taken to run their actions at the same times. The
 * messages of a device at a level leave one after the other.
 *
 * @param[in]  plan      Borrowed.
 * @param[in]  timeline  A simulated step of the plan, from cgp_plan_simulate(). Borrowed.
 * @param[in]  costs     Borrowed. Its arrays are not read if the plan has 1 replica.
 * @param[out] out       All 0 for 1 replica. Unchanged on failure.
 *
 * @retval CGP_EINVAL  A latency is negative or not finite, or a bandwidth is not above 0.
 * @retval CGP_ENOMEM
 *
 * Threads: any. Cost: for each device, and each replica with other costs than replica 0,
 * O(pieces x levels^2) and a bound list of the device's actions. Source: Thakur, Rabenseifner and
 * Gropp 2005.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_plan_simulate_exchange(const cgp_plan *plan,
                                                             const cgp_schedule_timeline *timeline,
                                                             const cgp_exchange_costs *costs,
                                                             cgp_plan_exchange *out);

/** Options of cgp_plan_search(): the parts of a plan that the search may change, and the costs. */
typedef struct cgp_search_options {
    size_t struct_size;
    /** Try every schedule; if the plan's options set `in_flight`, only v-flex. If `in_flight` is 0,
     *  v-flex is tried with up to five values of `in_flight`, from the least to the most. [true] */
    bool schedules;
    /** For schedules that allow any number of stages on each device, try 2, 3, 4, 6 and 8. If
     *  false, use the number in the plan options' `virtual_stages`, and skip schedules that do not
     *  allow this number. If this number is 0, use the default number of each schedule. [true] */
    bool virtual_stages;
    /** Try every recomputation mode. [true] */
    bool recomputes;
    /** Search the balance. If false, use the balance of the plan's options. False with such a
     *  balance is refused if `schedules` or `virtual_stages` is true, unless the options have a
     *  `table`. [true] */
    bool balances;
    /** Try powers of 2, up to the batch, as numbers of micro-batches, in addition to the options'
     *  `chunks`. The size of a micro-batch changes the bits of a step, and the statistics of batch
     *  norms. [false] */
    bool chunks;
    /** [rows][sizes][layers] Costs of micro-batches of `samples[sizes]` samples, as for
     *  cgp_layer_costs_at(). NULL: costs are FLOPs. Borrowed. */
    const cgp_layer_cost *costs;
    const int64_t *samples;
    int sizes;
    /** NULL: messages take no time. Borrowed. */
    const cgp_message_costs *messages;
    /** The number of choices to keep, >= 1. [10] */
    int most;
    /** Try bf16 in addition to the options' f32; allowed only without `costs`. Results are rounded
     *  differently in bf16. [false] */
    bool precisions;
    /** [devices] The row of each device's costs, below the number of devices. NULL: all devices
     *  have row 0. Borrowed. */
    const int *row_of;
    /** With replicas: times of messages between them; allowed only with `costs`. NULL: adding
     *  gradients over replicas takes no time. Borrowed. */
    const cgp_exchange_costs *exchange;
    /** If the smallest plan that was tried exceeds `memory_limit` by more than 1/8, do not look for
     *  the least memory. Then `least` is that plan, although a smaller plan may exist. [false] */
    bool give_up_far;
} cgp_search_options;

/** Return the defaults given in brackets above, with struct_size set. */
static inline cgp_search_options cgp_search_options_default(void) {
    cgp_search_options options = {sizeof(cgp_search_options),
                                  true,
                                  true,
                                  true,
                                  true,
                                  false,
                                  NULL,
                                  NULL,
                                  0,
                                  NULL,
                                  10,
                                  false,
                                  NULL,
                                  NULL,
                                  false};
    return options;
}

/** A plan that the search made and simulated. */
typedef struct cgp_search_choice {
    const char *schedule; /**< Name of the schedule, static; NULL: the schedule is the options'
                           *  `table`. */
    int virtual_stages;   /**< Stages on each device. */
    int chunks;
    cgp_recompute recompute;
    int stages;
    int *balance; /**< [stages] Owned by the result. */
    /** Seconds of the step, excluding exchange and update; FLOPs if no costs are given. */
    double makespan;
    double update; /**< Seconds of the update, or 0. */
    double bubble; /**< As cgp_schedule_timeline's bubble_makespan. */
    /** FLOPs of recomputation, as a fraction of the FLOPs of forward and backward. */
    double recomputed;
    int64_t bytes; /**< Planned bytes of the fullest device. */
    int device;    /**< The fullest device. */
    cgp_precision precision;
    int in_flight;   /**< As in cgp_schedule_options; 0 unless the schedule is v-flex. */
    double exchange; /**< Seconds that the exchange between replicas adds, or 0. */
} cgp_search_choice;

/** The result of cgp_plan_search(). Free it with cgp_search_result_release(). */
typedef struct cgp_search_result {
    /** [n] Sorted, best first: by makespan plus exchange plus update; among equal times f32 first,
     *  then fewer bytes. There is one choice for each combination of schedule, number of stages on
     *  a device, number in flight and number of micro-batches. It has the fastest recomputation
     *  mode and precision that fit. */
    cgp_search_choice *choices;
    int n;
    int64_t plans; /**< Number of plans made. */
    /** [n_tried] The combinations that were planned, in order. A combination is a schedule, number
     *  of stages on a device, number in flight, number of micro-batches, precision and
     *  recomputation mode. Its entry describes its best plan that fits. If no plan fits, `makespan`
     *  is 0, and `bytes` are the bytes of its smallest plan. `balance` is NULL. A combination is
     *  left out if its fastest balance does not fit and is slower than `most` choices. */
    cgp_search_choice *tried;
    int n_tried;
    /** After CGP_ELIMIT, the plan whose fullest device needs the fewest bytes; otherwise all 0. A
     *  search with a memory limit of `least.bytes` and no other limits finds a plan; with one byte
     *  less it finds none. `give_up_far` may end the search before the smallest plan is known. */
    cgp_search_choice least;
    /** Set if the steps include the exchange between replicas, or there is one replica. */
    bool exchanged;
} cgp_search_result;

/**
 * Search for the fastest plans whose devices stay within their memory limits.
 *
 * Every choice was planned, so its bytes are exact, and simulated. For each schedule the balance
 * with the least makespan is planned. If a device exceeds its limit, the search looks for the
 * balance with the least makespan within the limit, then for the balance with the least memory.
 * Unless plans are large, it then moves layers between stages as long as a plan gets faster, or
 * comes nearer to its limit. A recomputation mode is left out if another mode fits and cannot be
 * slower, because that mode has the same actions or fewer, and none of them takes more time.
 *
 * @param[in]  model    Finished. Borrowed.
 * @param[in]  options  Options that the search does not change, including memory limits and the
 *                      number of replicas. `balance` is read only if the search does not change it.
 *                      A `table` fixes the schedule. Borrowed.
 * @param[in]  search   Borrowed; NULL for all defaults.
 * @param[out] out      Filled on success. After CGP_ELIMIT, only `tried` and `least` are filled.
 *
 * @retval CGP_EINVAL  No plan can be made; the message is the message of the first plan.
 * @retval CGP_ELIMIT  No plan fits. The message has the least memory that would be enough, and the
 *                     parts that need this memory.
 * @retval CGP_ENOMEM
 *
 * Threads: any. Cost: a balance and a plan for each schedule, mode, precision and number of
 * micro-batches; a few times as much if the result is CGP_ELIMIT.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_plan_search(const cgp_model *model,
                                                  const cgp_plan_options *options,
                                                  const cgp_search_options *search,
                                                  cgp_search_result *out);

/** Set schedule, virtual_stages, in_flight, chunks, recompute, precision and balance of options.
 *  The balance is borrowed from the choice. Threads: any. */
CGP_API void cgp_search_choice_apply(const cgp_search_choice *choice, cgp_plan_options *options);

/** Free the arrays of a result. A result whose fields are all zero is accepted. */
CGP_API void cgp_search_result_release(cgp_search_result *result);

#ifdef __cplusplus
}
#endif
#endif
