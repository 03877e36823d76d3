/* SPDX-License-Identifier: Apache-2.0 */
/* plan.h -- plans: every byte and every action of a step, fixed before the step runs.
 *
 * A plan partitions a model into stages, orders their work by a schedule, and lays out each
 * device's memory:
 *
 *     parameters + gradients + optimizer + state + partial gradients + packed
 *     + slots + workspace + step + transfer + receive
 *
 * `step` holds values that change from step to step, on devices that do not share the host's
 * memory. `receive` holds messages from other ranks. A pipeline allocates exactly these bytes,
 * once.
 *
 * Threads: a plan never changes after it is made; any number of threads may read it. */
#ifndef CGPIPE_PLAN_H
#define CGPIPE_PLAN_H

#include <cgpipe/devices.h>
#include <cgpipe/model.h>
#include <cgpipe/optim.h>
#include <cgpipe/partition.h>
#include <cgpipe/schedule.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cgp_plan cgp_plan;

/** The type in which devices store activations and their gradients (results of ops, saved values,
 *  and messages between stages), and the precision of GEMMs.
 *
 *  f32 is the exact precision: the order of every sum is fixed, on all kinds of GPUs. In bf16 and
 *  tf32, tensor cores and libraries decide the order of some sums, so the kind of GPU and the
 *  library's version also determine the bits.
 *
 *  bf16 halves the bytes of activations and their gradients. Parameters, their gradients, the
 *  optimizer, statistics of norms and softmaxes, and losses are always f32. Arithmetic is in f32
 *  too: values are rounded to bf16, nearest even, when they are stored. The caller's tensors stay
 *  f32 (or i32).
 *
 *  On processors with AVX512_BF16 or AMX, kernels round all GEMM operands, including weights, to
 *  bf16, and sum in f32. This applies to linear layers, convolutions, matrix products and
 *  attention. With CGP_CPU_ISA=v4 in the environment, these kernels multiply in f32. Results do not
 *  depend on stages, schedule or recomputation, but their bits differ with and without these
 *  instructions.
 *
 *  tf32 stores f32. Linear layers and 1 x 1 convolutions run on the tensor cores of NVIDIA GPUs,
 *  which round operands to 10 bits of fraction and sum in f32. A plan with a device of another
 *  backend than `cuda` is refused. A plan needs as much memory as in f32, plus 64 KiB of
 *  workspace. */
typedef enum cgp_precision {
    CGP_PRECISION_F32,
    CGP_PRECISION_BF16,
    CGP_PRECISION_TF32
} cgp_precision;

/** Parse "f32", "tf32" or "bf16". @retval CGP_EINVAL The word is unknown; the message lists the
 *  known words. Threads: any. */
CGP_API CGP_MUST_CHECK cgp_status cgp_precision_parse(cgp_precision *out, const char *text);

/** Return the name that cgp_precision_parse() accepts. The string is static. Threads: any. */
CGP_API const char *cgp_precision_name(cgp_precision precision);

typedef struct cgp_plan_options {
    size_t struct_size;
    /** n >= 1: the number of devices. If each device has v stages, the plan has n v stages. [1] */
    int stages;
    /** [n v] Number of layers of each stage. NULL: the balance that cgp_balance_for_plan() finds
     *  for the makespan, with FLOPs as costs. Borrowed for the call. */
    const int *balance;
    /** B >= 1: the number of samples in a mini-batch. [1] */
    int64_t batch;
    /** M >= 1: the number of micro-batches. Each has ceil(B / M) samples, so fewer than M
     *  micro-batches may suffice for B samples. [1] */
    int chunks;
    /** Name of a schedule with a backward, see cgp_schedule_info_at(). If `inference` is set, only
     *  "forward-only" is allowed. [NULL: "1f1b"; with `external_loss` "gpipe"; with `inference`
     *  "forward-only"] zb-1p and zb-2p are generated with FLOPs as costs. Borrowed for the call. */
    const char *schedule;
    /** v, the number of stages on each device, >= 1 [0: the default in cgp_schedule_info]. */
    int virtual_stages;
    /** Micro-batches in a group, as in cgp_schedule_options [0]. */
    int group;
    /** The caller's schedule, instead of `schedule`. It must have `stages` devices and the plan's
     *  number of micro-batches. The plan checks it first, uses its compute actions, and inserts new
     *  transfers. If its backward does not run in ascending order of micro-batch, its results equal
     *  the results of other schedules only up to rounding. Not allowed with `inference`. Borrowed
     *  for the call. [NULL] */
    const cgp_schedule *table;
    /** [never] CGP_RECOMPUTE_BUDGET needs a memory limit on at least one device. Its candidates are
     *  the other modes, and plans whose backward recomputes a set of values chosen for each device.
     *  The plan is the fastest candidate that fits, where FLOPs are the costs. */
    cgp_recompute recompute;
    /** The optimizer. [SGD without momentum, lr 0.01] */
    cgp_optim optim;
    /** The plan runs forward only: it has no gradients and no optimizer, and its schedule is
     *  "forward-only". */
    bool inference;
    /** [n] Names as in devices.h, "cpu", "cuda:1", "cuda:0@22GiB"; cgp_device_list_parse() makes
     *  them from a list. An ordinal need not exist on this machine until a pipeline is created.
     *  NULL: all "cpu". Borrowed for the call. */
    const char *const *devices;
    /** T >= 1: the number of threads of each device. [1] */
    int threads_per_device;
    /** Maximum number of bytes of each device; a smaller limit in a device's name applies instead.
     *  0: no limit, but cgp_pipeline_create() checks the machine's memory. In bf16, a cpu device
     *  with a limit uses spare memory below the limit to keep weights packed across micro-batches.
     *  So set the limit to the memory that the machine has for the device. [0] */
    int64_t memory_limit;
    /** The caller computes the loss of the model's outputs, between cgp_pipeline_forward() and
     *  _backward(). The model has no loss. The schedule must have all forwards of a device before
     *  its first backward: gpipe (then the default), looped-bfs or looped-bfs-zb. */
    bool external_loss;
    /** Precision of the devices. [f32] */
    cgp_precision precision;
    /** Running statistics of batch norms change once per step, with the statistics of the whole
     *  mini-batch, instead of once per micro-batch. With this option, the statistics do not depend
     *  on `chunks`, up to rounding. Training normalises by micro-batch in both cases. [false] */
    bool deferred_batch_norm;
    /** Number of processes that run the plan together, 1 to the number of devices; with `replicas`,
     *  the number for one replica. Each process owns a contiguous block of devices. [1] */
    int ranks;
    /** Algorithm of convolutions. [direct] */
    cgp_convolution convolution;
    /** G: a power of two, 1 to 1024. The M micro-batches of a mini-batch are cut into G contiguous
     *  groups: floor(g M / G) .. floor((g + 1) M / G) - 1. Inside a group, gradients are added in
     *  ascending order of micro-batches. The sums of the groups are added in a complete binary
     *  tree; a group without micro-batches is skipped. So the bits of gradients depend on G and M,
     *  and not on where groups run. The tree needs up to log2 G more gradient buffers
     *  (`partial_gradient_bytes`). With G > 1 a `table` must have a backward in ascending order of
     *  micro-batch. [1: ascending order] */
    int gradient_groups;
    /** Maximum number of micro-batches in flight, as in cgp_schedule_options [0]. */
    int in_flight;
    /** R: a power of two, at most `gradient_groups`. R replicas of the pipeline share the M
     *  micro-batches: replica r of R has floor(r M / R) .. floor((r + 1) M / R) - 1. The plan
     *  describes one replica, for ceil(M / R) micro-batches, and a `table` has as many. A pipeline
     *  runs on R times `ranks` ranks: rank r * `ranks` + p is rank p of replica r. If `ranks` is 1,
     *  the replicas may also be threads of one process (cgp_pipeline_create()). Gradients are added
     *  over the replicas in the tree of gradient groups. So
     *  the bits of gradients depend on G and M, and not on R. With R > 1 there is neither
     *  `inference` nor `external_loss`, and no custom op has an accumulator. [1] */
    int replicas;
    /** Let each replica have optimizer state only for its parts of the parameters, update these
     *  parts, and send them to the other replicas (ZeRO stage 1). Bits stay the same. A view of a
     *  gradient is complete only after cgp_pipeline_complete_gradients(), while steps accumulate,
     *  or if `optim` has a clip_norm. With 1 replica, this changes nothing. [false] */
    bool shard_optimizer;
    /** Reserve memory to keep the state before a step, and to run the step again on other devices
     *  (cgpipe/replay.h). All devices must have the same backend, and all ranks the same number of
     *  devices. With `replay` there is one replica, and neither `inference` nor `external_loss`.
     *  [false] */
    bool replay;
    /** [n_replay_on] With `replay`: replay_on[d] is the device on which a replay runs the stages of
     *  device d. There must be a number for each device. Several numbers may be equal. The devices
     *  of a rank must be on devices of one rank, which no other rank's devices are on. [NULL: the
     *  next device or, with several ranks, the same device of the next rank] */
    const int *replay_on;
    int n_replay_on;
} cgp_plan_options;

/** Replicas exchange gradients in pieces of at most this many bytes. */
#define CGP_REDUCE_BYTES (1 << 20)

/** Return the defaults given in brackets above, with struct_size set. */
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
                                CGP_CONVOLUTION_DIRECT,
                                1,
                                0,
                                1,
                                false,
                                false,
                                NULL,
                                0};
    return options;
}

/** Return the number of stages of a plan with these options, which is the length of a balance. It
 *  is n v or, with `table`, the number in the table. For an unknown schedule, v is 1. Threads:
 *  any. */
CGP_API int cgp_plan_options_stages(const cgp_plan_options *options);

/** Return the number of gradient groups that the program chooses for `replicas` and `chunks`. One
 *  replica has 1 group. R replicas have the largest power of two up to 8 that divides `chunks`, and
 *  at least R. Other fields are not read. Threads: any. */
CGP_API int cgp_plan_options_gradient_groups(const cgp_plan_options *options);

/** The first goal of a balance. Times are simulated, as in cgp_plan_timeline(). */
typedef enum cgp_balance_goal {
    /** Minimise the makespan of a step. Among equal makespans, minimise the memory of the fullest
     *  device; then the differences between devices and between stages. */
    CGP_BALANCE_MAKESPAN,
    /** Minimise the memory of the fullest device; then the makespan; then the same differences. */
    CGP_BALANCE_MEMORY,
} cgp_balance_goal;

/**
 * Find the balance of a plan with these options. The options' `balance` is ignored.
 *
 * If few balances exist, the result is the best of all. Otherwise a local search starts from
 * balances whose largest device, or stage, is as small as possible. If a step has at most 50,000
 * actions, the result is a local optimum: it does not improve if one boundary between two stages
 * moves by one layer. If a step has more actions, at most 100 balances are simulated. Equal
 * arguments give equal balances on every machine.
 *
 * Memory is an estimate: parameters with their gradients and optimizer states, inputs of stages,
 * and the values that backward reads, times the micro-batches in flight. Messages, and additions of
 * gradient groups, take no time.
 *
 * @param[in]  model    Finished. Borrowed.
 * @param[in]  options  Borrowed.
 * @param[in]  goal The quantity that is minimised first.
 * @param[in]  costs    [layers] of a micro-batch, from cgp_profile_steps(), cgp_layer_costs_at() or
 *                      chosen by the caller; NULL: FLOPs. Borrowed.
 * @param[out] balance  [cgp_plan_options_stages()] layers of each stage. Unchanged on failure.
 *
 * @retval CGP_EINVAL  As for cgp_plan_create(), or a time is negative or not finite.
 * @retval CGP_ELIMIT  As for cgp_plan_create().
 * @retval CGP_ENOMEM
 *
 * Threads: any. Cost: milliseconds; about a second for 64 stages and 256 micro-batches.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_balance_for_plan(const cgp_model *model,
                                                       const cgp_plan_options *options,
                                                       cgp_balance_goal goal,
                                                       const cgp_layer_cost *costs, int *balance);

/** One stage of a plan. */
typedef struct cgp_plan_stage {
    int first_layer, layers;
    int device;
    double forward_flops, backward_flops, recompute_flops; /**< FLOPs of a full micro-batch. */
    double weight_flops;                                   /**< FLOPs of W, a part of backward. */
    int input_slots, saved_slots;                          /**< Largest number of slots in use at
                                                            *   once. */
    int64_t input_slot_bytes, saved_slot_bytes;            /**< Bytes of one slot, after forward. */
    double recomputed_flops; /**< FLOPs of forward that run within backward; a part of
                              *   backward_flops. */
    /** Numbers of values that backward reads: values stored by F or R, and values recomputed within
     *  backward. */
    int kept_values, recomputed_values;
} cgp_plan_stage;

/** One device of a plan. All sizes are in bytes. */
typedef struct cgp_plan_device {
    const char *name;      /**< The device's backend, and its number in the pipeline: "cpu:0". */
    const int *stage_list; /**< [stages] Stages on the device, ascending. */
    int stages;
    int64_t parameter_bytes, gradient_bytes, optimizer_bytes;
    /** States of ops, which last across steps; in training also their accumulators. */
    int64_t state_bytes;
    /** Copies of parameters in the layout of the backend's kernels (prepacked weights), for example
     *  rounded to bf16. They are repacked after an update. */
    int64_t packed_bytes;
    /** The pool for all slots of the device's stages: input slots, saved slots and, if backward is
     *  split, slots for gradients that I leaves for W. */
    int64_t slot_bytes;
    int64_t workspace_bytes;
    /** The device's buffers for messages to other devices, including devices of other processes on
     *  this host. */
    int64_t transfer_bytes;
    /** All planned bytes except parameters, gradients, optimizer, state, partial gradients, packed
     *  and replay. */
    int64_t activation_bytes;
    int64_t planned_bytes; /**< Sum of all sections. */
    /** Values that change from step to step, and scalars, on a device that does not share the
     *  host's memory. */
    int64_t step_bytes;
    /** Additional host memory for a device that does not share the host's memory. It stages the
     *  caller's data, and messages between devices that cannot reach each other's memory. */
    int64_t host_bytes;
    /** Buffers for messages from other ranks. */
    int64_t receive_bytes;
    /** The rank that owns the device. */
    int rank;
    /** Bound instances of compute actions in a step of a full mini-batch: (stage, program, slots,
     *  range, first, samples). If the backend captures launches, each bound instance has one
     *  captured graph, unless it computes nothing. */
    int variants;
    /** Ordinal of the device's hardware. */
    int ordinal;
    /** Memory limit of the plan on this device; 0: no limit. */
    int64_t limit_bytes;
    /** Maximum bytes that custom ops keep outside the plan (cgp_op.outside_bytes). They are not in
     *  `planned_bytes`; the memory limit applies to the sum of both. */
    int64_t outside_bytes;
    /** Partial sums of gradients, if there are gradient groups. */
    int64_t partial_gradient_bytes;
    /** With `replay`: bytes of the kept parameters, optimizer state and states, plus the bytes by
     *  which the largest replay on this device exceeds the device's other sections. */
    int64_t replay_bytes;
} cgp_plan_device;

/**
 * Plan a model. The call allocates nothing on a device, and runs nothing.
 *
 * @param[out] out      Owned by the caller, see cgp_plan_destroy().
 * @param[in]  model    Finished. Borrowed until the plan is destroyed.
 * @param[in]  options  Borrowed for the call.
 *
 * @retval CGP_EINVAL   An option is wrong, or a device cannot run an op: the device runs no custom
 *                      ops, or has no kernel for the op. Or, without `inference` and
 *                      `external_loss`, the model has nothing to train: no loss, or no parameter
 *                      and no input gradient.
 * @retval CGP_ELIMIT   A device would need more memory than its limit. The message has both numbers
 *                      and a suggestion.
 * @retval CGP_EDEVICE  A backend refused a kernel.
 * @retval CGP_ENOMEM
 *
 * Threads: any. Cost: nearly linear in nodes, stages and actions; about a second for a GPT-2 of
 * 10,000 layers in 64 stages and 1,024 micro-batches.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_plan_create(cgp_plan **out, const cgp_model *model,
                                                  const cgp_plan_options *options);

/** Free a plan. Accepts NULL. Pipelines borrow the plan: destroy them first. */
CGP_API void cgp_plan_destroy(cgp_plan *plan);

/** Return a hash of model, options, layout and actions, which ranks compare before they run the
 *  plan together. Equal models and options give equal hashes on every machine. Plans with equal
 *  hashes are equal, except for the functions and attributes of custom ops, which are not hashed.
 *  @retval CGP_ENOMEM Threads: any. */
CGP_API CGP_MUST_CHECK cgp_status cgp_plan_hash(const cgp_plan *plan, char hex[65]);

/** These functions return the number of stages, the number of devices, the samples of a full
 *  micro-batch, and the micro-batches of a full mini-batch. The first two are for one replica; the
 *  last is over all replicas, and is at most `chunks`. */
CGP_API int cgp_plan_stages(const cgp_plan *plan);
CGP_API int cgp_plan_devices(const cgp_plan *plan);
CGP_API int64_t cgp_plan_microbatch(const cgp_plan *plan);
CGP_API int cgp_plan_chunks(const cgp_plan *plan);

/** These functions return a stage, a device, or the balance [stages]. The result is borrowed from
 *  the plan; NULL if the index is out of range. */
CGP_API const cgp_plan_stage *cgp_plan_stage_at(const cgp_plan *plan, int stage);
CGP_API const cgp_plan_device *cgp_plan_device_at(const cgp_plan *plan, int device);
CGP_API const int *cgp_plan_balance(const cgp_plan *plan);

/** Return the stage that computes an output of the model; -1 if there is no such output. Threads:
 *  any. */
CGP_API int cgp_plan_output_stage(const cgp_plan *plan, int output);

/** Return the group of a parameter, 0 .. cgp_optim.n_groups - 1; -1 if the parameter is in no group
 *  or does not exist. Threads: any. */
CGP_API int cgp_plan_parameter_group(const cgp_plan *plan, int parameter);

/** An edge between two stages: activations if from < to, gradients if from > to. */
typedef struct cgp_plan_edge {
    int from, to;
    int64_t bytes; /**< Size of the message of a full micro-batch. */
    int buffers;   /**< Number of the edge's buffers, on the device of `from`. */
} cgp_plan_edge;

/** These functions return the number of edges, and an edge, numbered as in the schedule's
 *  transfers. All fields of the edge are zero if there is no such edge. */
CGP_API int cgp_plan_edges(const cgp_plan *plan);
CGP_API cgp_plan_edge cgp_plan_edge_at(const cgp_plan *plan, int edge);

/** These functions return the lowered and checked schedule of a full mini-batch, and its timeline
 *  with FLOPs as costs. Both are borrowed from the plan. */
CGP_API const cgp_schedule *cgp_plan_schedule(const cgp_plan *plan);
CGP_API const cgp_schedule_timeline *cgp_plan_timeline(const cgp_plan *plan);

#ifdef __cplusplus
}
#endif
#endif
