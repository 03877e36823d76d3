/* SPDX-License-Identifier: Apache-2.0 */
/* plan.h -- every byte and every action of a step, before it runs.
 *
 * A plan cuts a model into stages, orders their work by a schedule, and lays out each device's
 * memory:
 *
 *     parameters + gradients + optimizer + state + slots + workspace + step + transfer + receive + packed
 *
 * A device that does not share the host's memory has the values of a step there; messages from
 * other ranks are received.
 *
 * A pipeline allocates exactly that, once.
 *
 * Threads: a plan never changes once it is made; any number of threads may read it. */
#ifndef CGPIPE_PLAN_H
#define CGPIPE_PLAN_H

#include <cgpipe/devices.h>
#include <cgpipe/model.h>
#include <cgpipe/optim.h>
#include <cgpipe/schedule.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cgp_plan cgp_plan;

/** Type of activations and their gradients on devices (results of ops, saved values, messages
 *  between stages). bf16 takes half the bytes. Parameters, their gradients, the optimizer,
 *  statistics of norms and softmaxes, and losses are f32 either way, and so is all arithmetic:
 *  values are rounded to bf16, nearest even, when they are stored. Processors with AVX512_BF16 or
 *  AMX multiply the GEMM operands of linear layers, convolutions, matrix products and attention,
 *  weights too, in bf16 and sum in f32; CGP_CPU_ISA=v4 in the environment turns that off. The
 *  caller's tensors stay f32 (or i32). The bits still do not depend on stages, schedule or
 *  recomputation, but they differ with and without these instructions. */
typedef enum cgp_precision { CGP_PRECISION_F32, CGP_PRECISION_BF16 } cgp_precision;

/** Parse "f32" or "bf16". @retval CGP_EINVAL Another word; the message lists the known ones.
 *  Threads: any. */
CGP_API CGP_MUST_CHECK cgp_status cgp_precision_parse(cgp_precision *out, const char *text);

/** Return the name that cgp_precision_parse() takes. Static. Threads: any. */
CGP_API const char *cgp_precision_name(cgp_precision precision);

typedef struct cgp_plan_options {
    size_t struct_size;
    /** n >= 1: with one stage on each device their number; with v on each, n devices have n v. [1]
     *  */
    int stages;
    /** [n v] layers of each stage; NULL: cgp_balance_by_flops(). Borrowed for the call. */
    const int *balance;
    /** B samples in a mini-batch, >= 1. [1] */
    int64_t batch;
    /** M >= 1: micro-batches of ceil(B / M) samples, as many as B fills. [1] */
    int chunks;
    /** Any of cgp_schedule_info_at() with a backward, with `inference` "forward-only" alone [NULL:
     *  "1f1b", with `external_loss` "gpipe", with `inference` "forward-only"]. zb-1p and zb-2p are
     *  generated with FLOPs as costs. Borrowed for the call. */
    const char *schedule;
    /** v >= 1 stages on each device [0: as cgp_schedule_info says]. */
    int virtual_stages;
    /** As in cgp_schedule_options [0]. */
    int group;
    /** Instead of `schedule`: the caller's table, of `stages` devices and the number of
     *  micro-batches that results. It is checked first; its compute actions are used, with new
     *  transfers. Where backward does not ascend, results equal those of other schedules up to
     *  rounding. None with `inference`. Borrowed for the call. [NULL] */
    const cgp_schedule *table;
    /** [never] */
    cgp_recompute recompute;
    /** [SGD without momentum, lr 0.01] */
    cgp_optim optim;
    /** Forward only: no gradients, no optimizer, schedule "forward-only". */
    bool inference;
    /** [n] Names as in devices.h, which also makes them of a list: "cpu", "cuda:1", "cuda:0@22GiB".
     *  An ordinal need not exist on this machine before a pipeline is created. NULL: all "cpu".
     *  Borrowed for the call. */
    const char *const *devices;
    /** T >= 1 [1] */
    int threads_per_device;
    /** Maximum bytes of a device, for each beside the limit in its name; 0: no limit here,
     *  cgp_pipeline_create() checks the machine's memory. In bf16 a cpu device with a limit keeps,
     *  where there is room, weights packed for several micro-batches: the limit is to be what the
     *  machine has for it. */
    int64_t memory_limit;
    /** The caller computes the loss of the model's output: cgp_pipeline_forward() and _backward().
     *  The model has no loss; in the schedule all forwards of a device come before its first
     *  backward: gpipe (the default then), looped-bfs, looped-bfs-zb. */
    bool external_loss;
    /** [f32] */
    cgp_precision precision;
    /** Running statistics of batch norms change once a step, by those of the whole mini-batch,
     *  instead of by each micro-batch: then they do not depend on `chunks` (but for rounding).
     *  Training normalises by micro-batch either way. [false] */
    bool deferred_batch_norm;
    /** Processes that run the plan together, 1 to the number of devices, which they own in
     *  contiguous blocks. [1] */
    int ranks;
    /** [direct] */
    cgp_convolution convolution;
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
                                false,
                                1,
                                CGP_CONVOLUTION_DIRECT};
    return options;
}

/** Return the number of stages of a plan with these options, n v or the table's: the length of a
 *  balance. An unknown schedule counts as one with v = 1. Threads: any. */
CGP_API int cgp_plan_options_stages(const cgp_plan_options *options);

/** One stage of a plan. */
typedef struct cgp_plan_stage {
    int first_layer, layers;
    int device;
    double forward_flops, backward_flops, recompute_flops; /**< Of a full micro-batch. */
    double weight_flops;                                   /**< Of W, part of backward. */
    int input_slots, saved_slots;
    int64_t input_slot_bytes, saved_slot_bytes; /**< Of one slot. */
} cgp_plan_stage;

/** One device of a plan; all figures in bytes. */
typedef struct cgp_plan_device {
    const char *name;      /**< Its backend and its number in the pipeline, "cpu:0" */
    const int *stage_list; /**< [stages] The stages on it, ascending. */
    int stages;
    int64_t parameter_bytes, gradient_bytes, optimizer_bytes;
    /** Op state across steps, and its accumulators in training. */
    int64_t state_bytes;
    /** Copies of parameters in the layout of the backend's kernels, as rounded to bf16, made anew
     *  after an update. */
    int64_t packed_bytes;
    int64_t slot_bytes; /**< All input and saved slots of its stages. */
    int64_t workspace_bytes, transfer_bytes;
    int64_t activation_bytes; /**< All but parameters, gradients, optimizer, state and packed. */
    int64_t planned_bytes;    /**< All. */
    /** Of a device that does not share the host's memory: values that change from step to step, and
     *  scalars. */
    int64_t step_bytes;
    /** Memory of the host that a device which does not share it needs besides: the caller's data go
     *  through it, and messages of devices that cannot reach each other's memory. */
    int64_t host_bytes;
    /** Buffers for messages from other ranks. */
    int64_t receive_bytes;
    /** The rank that owns it. */
    int rank;
    /** Variants of actions that compute, in a step of a full mini-batch: (stage, program, slots,
     *  range, first, samples). Where the backend records launches, as many recordings. */
    int variants;
    /** Number of the hardware. */
    int ordinal;
    /** The plan was held to so many bytes; 0: no limit. */
    int64_t limit_bytes;
} cgp_plan_device;

/**
 * Plan a model. Nothing is allocated on a device and nothing runs.
 *
 * @param[out] out      Owned by the caller, see cgp_plan_destroy().
 * @param[in]  model    Finished. Borrowed until the plan is destroyed.
 * @param[in]  options  Borrowed for the call.
 *
 * @retval CGP_EINVAL   An option is wrong, the model has nothing to train: no loss or no parameter (and neither `inference` nor
 *                      `external_loss` is set); or a device does not run an op: no custom ops, or no kernel.
 * @retval CGP_ELIMIT   A device would need more than its limit: the message has the numbers and a way out.
 * @retval CGP_EDEVICE  A backend refused a kernel.   @retval CGP_ENOMEM
 *
 * Threads: any. Cost: near linear in nodes, stages and actions; about a second for a GPT-2 of
 * 10,000 layers in 64 stages and 1,024 micro-batches.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_plan_create(cgp_plan **out, const cgp_model *model,
                                                  const cgp_plan_options *options);

/** Free a plan. Accepts NULL. Pipelines borrow it: destroy them first. */
CGP_API void cgp_plan_destroy(cgp_plan *plan);

/** Return a hash of model, options, layout and actions, which ranks compare before they run the
 *  plan together. Two plans of equal hashes are equal, but for the functions and attributes of
 *  custom ops, which it does not see; those of equal models and options are, on every machine.
 *  @retval CGP_ENOMEM Threads: any. */
CGP_API CGP_MUST_CHECK cgp_status cgp_plan_hash(const cgp_plan *plan, char hex[65]);

/** Return numbers of stages and devices; samples of a full micro-batch; micro-batches of a full
 *  mini-batch (at most `chunks`). */
CGP_API int cgp_plan_stages(const cgp_plan *plan);
CGP_API int cgp_plan_devices(const cgp_plan *plan);
CGP_API int64_t cgp_plan_microbatch(const cgp_plan *plan);
CGP_API int cgp_plan_chunks(const cgp_plan *plan);

/** Return a stage, a device, the balance [stages]. Borrowed from the plan; NULL if the index is out
 *  of range. */
CGP_API const cgp_plan_stage *cgp_plan_stage_at(const cgp_plan *plan, int stage);
CGP_API const cgp_plan_device *cgp_plan_device_at(const cgp_plan *plan, int device);
CGP_API const int *cgp_plan_balance(const cgp_plan *plan);

/** Return the stage that makes an output of the model; -1: there is no such output. Threads: any.
 *  */
CGP_API int cgp_plan_output_stage(const cgp_plan *plan, int output);

/** An edge between two stages: activations if from < to, gradients if from > to. */
typedef struct cgp_plan_edge {
    int from, to;
    int64_t bytes; /**< Of the message of a full micro-batch. */
    int buffers;   /**< Of that size, on the device of `from`. */
} cgp_plan_edge;

/** Return the number of edges; an edge, numbered as in the schedule's transfers, all zero if there
 *  is none. */
CGP_API int cgp_plan_edges(const cgp_plan *plan);
CGP_API cgp_plan_edge cgp_plan_edge_at(const cgp_plan *plan, int edge);

/** Return the lowered, checked schedule of a full mini-batch, and its timeline with FLOPs as costs.
 *  Borrowed. */
CGP_API const cgp_schedule *cgp_plan_schedule(const cgp_plan *plan);
CGP_API const cgp_schedule_timeline *cgp_plan_timeline(const cgp_plan *plan);

#ifdef __cplusplus
}
#endif
#endif
