/* SPDX-License-Identifier: Apache-2.0 */
/* plan.h -- every byte and every action of a step, before it runs.
 *
 * A plan cuts a model into stages, orders their work by a schedule, and lays out each device's memory:
 *
 *     parameters + gradients + optimizer + state + slots + workspace + transfer
 *
 * A pipeline allocates exactly that, once.
 *
 * Threads: a plan never changes once it is made; any number of threads may read it. */
#ifndef CGPIPE_PLAN_H
#define CGPIPE_PLAN_H

#include <cgpipe/model.h>
#include <cgpipe/optim.h>
#include <cgpipe/schedule.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cgp_plan cgp_plan;

/** How devices keep the values of the graph (what ops give, what is stored for backward, what stages send each other) and
 *  their gradients. bf16 takes half the bytes. Parameters, their gradients, the optimizer, statistics of norms and softmaxes,
 *  and losses are f32 either way, and so is all arithmetic: bf16 is rounded to, the nearest, halfway to even, whenever a
 *  value is stored. Processors with AMX multiply in bf16 what products of linear layers and attention read, weights too, and sum
 *  in f32; CGP_CPU_ISA=v4 in the environment keeps them from it. What the caller gives and gets stays f32 (or i32); the bits
 *  still depend neither on stages nor schedule nor recomputation, but on whether there is AMX. */
typedef enum cgp_precision { CGP_PRECISION_F32, CGP_PRECISION_BF16 } cgp_precision;

/** Parse "f32" or "bf16". @retval CGP_EINVAL Another word; the message lists the known ones. Threads: any. */
CGP_API CGP_MUST_CHECK cgp_status cgp_precision_parse(cgp_precision *out, const char *text);

/** Return the name that cgp_precision_parse() takes. Static. Threads: any. */
CGP_API const char *cgp_precision_name(cgp_precision precision);

typedef struct cgp_plan_options {
    size_t struct_size;
    int stages; /**< n >= 1: with one stage on each device their number; with v on each, n devices have n v. [1] */
    const int *
        balance; /**< [n v] layers of each stage; NULL: cgp_balance_by_flops(). Borrowed for the call. */
    int64_t batch; /**< B samples in a mini-batch, >= 1. [1] */
    int chunks;    /**< M >= 1: micro-batches of ceil(B / M) samples, as many as B fills. [1] */
    const char *
        schedule; /**< Any of cgp_schedule_info_at() with a backward [NULL: "1f1b"]. zb-1p and zb-2p are
                                  made for FLOPs as costs. Borrowed for the call. */
    int virtual_stages; /**< v >= 1 stages on each device [0: as cgp_schedule_info says]. */
    int group;          /**< As cgp_schedule_options has it [0]. */
    const cgp_schedule *
        table; /**< Instead of `schedule`: a table of the caller's, of `stages` devices and as many micro-batches as there
                    will be. It is checked first; of its actions the computing ones are taken, and transfers put in anew.
                    Where backward does not ascend, results are those of other schedules up to rounding. Borrowed for the
                    call. [NULL] */
    cgp_recompute recompute; /**< [never] */
    cgp_optim optim;         /**< [SGD without momentum, rate 0.01] */
    bool inference; /**< Forward only: no gradients, no optimizer, schedule "forward-only". */
    const char *const
        *devices;           /**< [n] "cpu" or "ref"; NULL: all "cpu". Borrowed for the call. */
    int threads_per_device; /**< T >= 1 [1] */
    int64_t
        memory_limit; /**< Most bytes a device may take; 0: no limit here, cgp_pipeline_create() asks the machine. */
    bool
        external_loss; /**< The caller computes the loss of the model's output: cgp_pipeline_forward() and _backward(). The
                            model has no loss; the schedule is gpipe. */
    cgp_precision precision; /**< [f32] */
    bool
        deferred_batch_norm; /**< Running statistics of batch norms change once a step, by those of the whole mini-batch,
                                   instead of by each micro-batch: then they do not depend on `chunks` (but for rounding).
                                   Training normalises by micro-batch either way. [false] */
} cgp_plan_options;

/** The defaults in brackets above, with struct_size set. */
static inline cgp_plan_options cgp_plan_options_default(void) {
    cgp_plan_options options = {sizeof(cgp_plan_options),
                                1,
                                NULL,
                                1,
                                1,
                                NULL,
                                0,
                                0,
                                NULL,
                                CGP_RECOMPUTE_NEVER,
                                cgp_optim_sgd(0.01, 0, false, 0.0),
                                false,
                                NULL,
                                1,
                                0,
                                false,
                                CGP_PRECISION_F32,
                                false};
    return options;
}

/** Return how many stages a plan of these options has, n v or those of the table: what a balance must have numbers for.
 * An unknown schedule counts as one with v = 1. Threads: any. */
CGP_API int cgp_plan_options_stages(const cgp_plan_options *options);

/** One stage of a plan. */
typedef struct cgp_plan_stage {
    int first_layer, layers;
    int device;
    double forward_flops, backward_flops, recompute_flops; /**< Of a full micro-batch. */
    double weight_flops; /**< Of backward, the weight half: W. */
    int input_slots, saved_slots;
    int64_t input_slot_bytes, saved_slot_bytes; /**< Of one slot. */
} cgp_plan_stage;

/** One device of a plan; all figures in bytes. */
typedef struct cgp_plan_device {
    const char *name;      /**< "cpu:0" */
    const int *stage_list; /**< [stages] The stages on it, ascending. */
    int stages;
    int64_t parameter_bytes, gradient_bytes, optimizer_bytes;
    int64_t
        state_bytes; /**< What ops keep across steps, and where training collects its changes. */
    int64_t slot_bytes; /**< All input and saved slots of its stages. */
    int64_t workspace_bytes, transfer_bytes;
    int64_t activation_bytes; /**< All but parameters, gradients, optimizer and state. */
    int64_t planned_bytes;    /**< All. */
} cgp_plan_device;

/**
 * Plan a model. Nothing is allocated on a device and nothing runs.
 *
 * @param[out] out      Owned by the caller, see cgp_plan_destroy().
 * @param[in]  model    Finished. Borrowed until the plan is destroyed.
 * @param[in]  options  Borrowed for the call.
 *
 * @retval CGP_EINVAL   An option is wrong, or the model has nothing to train: no loss (and neither `inference` nor `external_loss`
 *                      is set), or no parameter.
 * @retval CGP_ELIMIT   A device would need more than it has: the message has the numbers and a way out.
 * @retval CGP_EDEVICE  A backend refused a kernel.   @retval CGP_ENOMEM
 *
 * Threads: any. Cost: near linear in nodes, stages and actions; about a second for a GPT-2 of 10,000 layers in 64 stages and
 * 1,024 micro-batches.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_plan_create(cgp_plan **out, const cgp_model *model,
                                                  const cgp_plan_options *options);

/** Free a plan. Accepts NULL. Pipelines borrow it: destroy them first. */
CGP_API void cgp_plan_destroy(cgp_plan *plan);

/** Numbers of stages and devices; samples of a full micro-batch; micro-batches of a full mini-batch (<= chunks asked). */
CGP_API int cgp_plan_stages(const cgp_plan *plan);
CGP_API int cgp_plan_devices(const cgp_plan *plan);
CGP_API int64_t cgp_plan_microbatch(const cgp_plan *plan);
CGP_API int cgp_plan_chunks(const cgp_plan *plan);

/** A stage, a device, the balance [stages]. Borrowed from the plan; NULL if the index is out of range. */
CGP_API const cgp_plan_stage *cgp_plan_stage_at(const cgp_plan *plan, int stage);
CGP_API const cgp_plan_device *cgp_plan_device_at(const cgp_plan *plan, int device);
CGP_API const int *cgp_plan_balance(const cgp_plan *plan);

/** A way that messages take between two stages: activations if from < to, gradients if from > to. */
typedef struct cgp_plan_edge {
    int from, to;
    int64_t bytes; /**< Of the message of a full micro-batch. */
    int buffers;   /**< Of that size, on the device of `from`. */
} cgp_plan_edge;

/** How many edges there are; edge 0 .. of them, as the schedule's transfers number them, all zero if there is none. */
CGP_API int cgp_plan_edges(const cgp_plan *plan);
CGP_API cgp_plan_edge cgp_plan_edge_at(const cgp_plan *plan, int edge);

/** The lowered, checked schedule of a full mini-batch, and its timeline with FLOPs as costs. Borrowed. */
CGP_API const cgp_schedule *cgp_plan_schedule(const cgp_plan *plan);
CGP_API const cgp_schedule_timeline *cgp_plan_timeline(const cgp_plan *plan);

#ifdef __cplusplus
}
#endif
#endif
