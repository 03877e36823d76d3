/* SPDX-License-Identifier: Apache-2.0 */
/* backend.h -- the contract of a backend: devices with memory, queues and events, and one kernel
 * per (op, direction). A backend is a struct with five tables of functions:
 *
 *     device     hardware, devices, memory, copies
 *     kernels    kernels, conversions, updates
 *     streams    asynchronous work: queues, events. NULL: work is done when a call returns
 *     graphs     graph capture, for backends with streams. NULL: no capture
 *     sharing    memory and events for other processes of a host, for backends with streams. NULL:
 *                messages between processes pass through host memory
 *
 * A comment says which functions of `device`, `kernels` and `streams` may be NULL; no function of
 * the other tables may be NULL. Five functions are in tables in which a reader may not expect them:
 *
 * - `driver_bytes`, `isa` and `numerics` are in `device`: they describe hardware, and are called
 *   before a device exists;
 * - `discard` is in `streams`: it takes effect in the order of a queue;
 * - `launches` is in `graphs`: only the check of a captured graph reads it.
 *
 * With `streams`, work is *enqueued*: the call returns before the work is done. Without `streams`,
 * the work is done when the call returns, and a `queue` argument has no effect. A copy names its
 * queue, and work of `kernels` goes to COMPUTE. The work of one queue runs in order; queues run
 * concurrently.
 *
 *     COMPUTE   kernels, conversions, updates
 *     IN        copies to this device, from the host or another device
 *     OUT       copies from this device
 *
 * A device may have a branch, which is a fourth queue, for kernels that run beside the kernels of
 * COMPUTE.
 *
 * A failure in a queue is permanent. The queue drops the remaining work, its events complete, and
 * every later call on the device returns the failure. The caller then destroys the device.
 *
 * The thread that created the device creates one kernel for each combination of op attributes and
 * number of samples. A kernel allocates nothing when it runs; all its memory, including the
 * workspace, is passed with the call. Kernels read no host memory, unless the backend is
 * `host_addressable`. cgpipe/ext/ops.h lists the ops. The headers in cgpipe/ext/ops/ say what each
 * op computes.
 *
 * Threads: all calls on a device come from the thread that created it. The same holds for
 * event_wait(), whose event may belong to another device of the same backend. event_sync() may be
 * called by the thread of any device, even of another backend. */
#ifndef CGPIPE_EXT_BACKEND_H
#define CGPIPE_EXT_BACKEND_H

#include <cgpipe/ext/ops.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Version of the structs and ops in this header and in cgpipe/ext/ops.h. */
#define CGP_BACKEND_ABI 16

/** An entry of a kernel's prefetch list: memory that later kernels read. The list has the order of
 *  these kernels. */
typedef struct cgp_prefetch {
    const void *at;
    int64_t bytes;
} cgp_prefetch;

enum { CGP_MAX_PREFETCH = 8 };

/** Per-step constants: values that change from step to step and from micro-batch to micro-batch.
 *  They lie in device memory: a kernel reads them when it runs, not when it is enqueued. The loss
 *  scales, f32 [losses], follow the struct in memory; each is 1 / count of the mini-batch. */
typedef struct cgp_step_values {
    uint64_t seed, step;
    /** Index of the micro-batch's first sample in the mini-batch. */
    int64_t sample;
    /** Index of the micro-batch's first loss slot. */
    int64_t loss_word;
} cgp_step_values;

/** Return the scale of loss l. */
static inline float cgp_step_loss_scale(const cgp_step_values *values, int l) {
    return ((const float *)(const void *)(values + 1))[l];
}

/** The operands of one run, in device memory, borrowed for the call that enqueues it. An operand
 *  that a direction does not use may be NULL. A dx[k] that is not wanted, and the dparam[k] of a
 *  frozen parameter, may be NULL too. If the weight of a product is frozen, BACKWARD_WEIGHT has no
 *  x. */
typedef struct cgp_kernel_args {
    const void *x[CGP_OP_MAX_INPUTS];
    /** The op's result: written by forward, read by backward. */
    void *y;
    float *saved[CGP_OP_MAX_SAVED];
    void *state[CGP_OP_MAX_STATE];
    /** Memory that collects the step's changes to the state; NULL: the changes are not
     *  collected. */
    void *accumulator;
    /** For BATCH_NORM: a log of statistics, whose entries are log_bytes apart. The k-th forward of
     *  a step writes its statistics to entry k, and the accumulator only counts the entries. NULL:
     *  forward updates the accumulator instead. */
    void *log;
    int64_t log_bytes;
    const float *param[CGP_OP_MAX_PARAMETERS];
    /** Prepacked parameters, which pack() has written from the current values; only for kernels
     *  whose packed() size is not 0. NULL: the parameters are not prepacked; only a backend that
     *  `packs_optionally` gets NULL. */
    const void *packed;
    const void *dy;
    void *dx[CGP_OP_MAX_INPUTS];
    float *dparam[CGP_OP_MAX_PARAMETERS];
    /** Scratch memory, as many bytes as workspace() returned. */
    void *workspace;
    const cgp_step_values *values;
    /** The forward of a loss writes the ordered sum over rows to losses[values->loss_word + loss].
     *  If this is NULL, the sum is discarded. */
    double *losses;
    /** Number of the loss. */
    int loss;
    /** Id of the op in the model: a part of dropout's key. */
    uint32_t id;
    /** The caller's tag for this run, >= 0; see tag_in_progress(). */
    int64_t tag;
    /** True: the run overwrites dparam, or the accumulator, instead of adding to it. */
    bool first;
    /** True: dropout is on, and BATCH_NORM takes its statistics from x. */
    bool training;
    /** True: the running statistics of BATCH_NORM are computed over whole mini-batches. */
    bool deferred;
    /** For CUSTOM: true if this forward is a recomputation for backward. */
    bool recomputing;
    /** True: the run goes to the branch instead of COMPUTE. Only a backend with fork() gets true,
     *  and only for kernels of BACKWARD_WEIGHT. */
    bool branch;
    /** The prefetch list of a LINEAR: at most CGP_MAX_PREFETCH entries, and none unless the backend
     *  `prefetches`. Borrowed for the call. */
    const cgp_prefetch *prefetch;
    int n_prefetch;
} cgp_kernel_args;

typedef enum cgp_update_rule {
    CGP_UPDATE_SGD,
    CGP_UPDATE_ADAMW,
    CGP_UPDATE_ADAM,
    CGP_UPDATE_RMSPROP
} cgp_update_rule;

/** Constants of an update that change from step to step, in device memory. They are double, because
 *  1 - 0.999f would have an error of 5e-5. */
typedef struct cgp_update_values {
    double lr;
    /** ADAM, ADAMW: 1 - beta1^t; sqrt(1 - beta2^t). */
    double correction1, correction2_sqrt;
    /** Factor by which the gradient is multiplied first. */
    double gradient_scale;
} cgp_update_values;

/** One optimizer update of one parameter, elementwise. cgpipe/optim.h has the formulas. */
typedef struct cgp_update {
    cgp_update_rule rule;
    int64_t n;
    float *param;
    const float *grad;
    /** Optimizer states. SGD: the momentum buffer, or NULL. ADAM, ADAMW: the first and the second
     *  moment. RMSPROP: the mean square, and the momentum buffer or NULL. */
    float *state[2];
    double weight_decay;
    /** Momentum; used by SGD and RMSPROP. */
    double momentum;
    bool nesterov;
    /** Constants of ADAM and ADAMW; RMSPROP uses eps too. */
    double beta1, beta2, eps;
    /** Weight of the old mean square; used by RMSPROP. */
    double alpha;
    const cgp_update_values *values;
} cgp_update;

/** Structs that each backend defines for itself. */
typedef struct cgp_device cgp_device;
typedef struct cgp_kernel cgp_kernel;
typedef struct cgp_event cgp_event;
/** A captured graph, which is work of COMPUTE that can be launched any number of times. */
typedef struct cgp_captured_graph cgp_captured_graph;

/** The queues of a device; the head of this file lists the work of each. */
typedef enum cgp_queue { CGP_QUEUE_COMPUTE, CGP_QUEUE_IN, CGP_QUEUE_OUT, CGP_QUEUES } cgp_queue;

/** An address in device memory or, with device NULL, in host memory. */
typedef struct cgp_place {
    cgp_device *device;
    void *at;
} cgp_place;

/** Instruction sets of a backend whose kernels run on the host, in ascending order. An x86-64
 *  processor that has one of the x86-64 sets also has all sets from V1 up to that set. The bits of
 *  results may differ between sets. */
typedef enum cgp_isa {
    CGP_ISA_NONE,    /**< The backend has only one set of kernels. */
    CGP_ISA_NEON,    /**< aarch64. */
    CGP_ISA_V1,      /**< x86-64 with SSE2. It has no FMA, so product and sum are rounded
                      *  separately. */
    CGP_ISA_V3,      /**< x86-64-v3: AVX2. */
    CGP_ISA_V4,      /**< x86-64-v4: AVX-512. */
    CGP_ISA_V4_BF16, /**< x86-64-v4, and AVX512_BF16 for bf16 GEMMs. */
    CGP_ISA_AMX      /**< x86-64-v4, and AMX for bf16 GEMMs; results are bit-identical to
                      *  V4_BF16. */
} cgp_isa;

/** Options of a new device. */
typedef struct cgp_device_options {
    size_t struct_size;
    /** Index of the hardware device, 0 .. count() - 1. */
    int ordinal;
    /** Index of the device among the `count` devices of this backend in the pipeline. `cpu` pins
     *  the devices' threads to cores, unless `count` is 0. */
    int index, count;
    /** For `cpu`: the number of the device's threads, >= 1. */
    int threads;
    /** Instruction set of the kernels, if the backend has several. All ranks of a pipeline have
     *  agreed on this set. NONE: the backend uses the best set of this machine. */
    cgp_isa isa;
} cgp_device_options;

/** Hardware, devices, memory and copies. */
typedef struct cgp_backend_device {
    /** Return the number of ordinals. @retval CGP_EDEVICE There is no hardware; the message says
     *  why. */
    cgp_status (*count)(int *count);
    /** Return the number of bytes that devices of an ordinal can allocate at present; INT64_MAX:
     *  the number is not known. */
    cgp_status (*memory)(int ordinal, int64_t *bytes);
    /** Return the number of bytes on an ordinal that the driver and other programs hold. These
     *  bytes are neither free nor allocated by devices of this process. The driver takes more when
     *  kernels first run. A NULL function: the number is not known. Threads: any. */
    cgp_status (*driver_bytes)(int ordinal, int64_t *bytes);
    /** Find the best instruction set on this machine for kernels of a type, CGP_F32 or CGP_BF16. A
     *  NULL function: the backend has only one set of kernels. @retval CGP_EDEVICE The machine has
     *  none of these instruction sets. @retval CGP_EINVAL The environment requires an instruction
     *  set that the machine lacks. Threads: any. */
    cgp_status (*isa)(cgp_dtype type, cgp_isa *best);
    /** Fill `text` [size] with a description of the hardware and the libraries that determine the
     *  bits of results in addition to the sources. The text applies to an ordinal's kernels of one
     *  type, with or without `tf32`. Devices with equal texts compute the same bits. An empty text:
     *  only the sources determine the bits. A NULL function: the text is empty for every ordinal.
     *  @retval CGP_EINVAL There is no such ordinal. Threads: any. */
    cgp_status (*numerics)(int ordinal, cgp_dtype type, bool tf32, char *text, size_t size);
    /** Fill `text` [size] with an identifier of an ordinal's hardware, which is unique among all
     *  hosts. Ranks with equal texts share hardware. "", or a NULL function: the identifier is not
     *  known. @retval CGP_EINVAL There is no such ordinal. Threads: any. */
    cgp_status (*identity)(int ordinal, char *text, size_t size);

    /** Create a device, which belongs to the calling thread. @retval CGP_EINVAL There is no such
     *  ordinal (a plan does not check its ordinals). */
    cgp_status (*create)(cgp_device **out, const cgp_device_options *options);
    void (*destroy)(cgp_device *device);
    /** Return true if no other device's threads run on the cores of this device's threads, so that
     *  a waiting thread may spin. */
    bool (*has_cores)(const cgp_device *device);

    /** Allocate zeroed memory at a multiple of 64 bytes, resident on return. Another device of this
     *  process on the same hardware may use the memory too, but not at the same time. */
    cgp_status (*memory_create)(cgp_device *device, size_t bytes, void **out);
    void (*memory_destroy)(cgp_device *device, void *memory, size_t bytes);
    /** Allocate zeroed host memory with the same alignment, for copies from and to devices of the
     *  backend. A NULL function: the device's memory is host memory. */
    cgp_status (*host_memory_create)(cgp_device *device, size_t bytes, void **out);
    void (*host_memory_destroy)(cgp_device *device, void *memory, size_t bytes);
    /** Copy between the host, this device and other devices of the same backend; `device` is one of
     *  the two ends. If the backend has host_memory_create(), a host address must lie in memory
     *  that host_memory_create() returned for some device of the backend. */
    cgp_status (*copy)(cgp_device *device, cgp_queue queue, cgp_place to, cgp_place from,
                       size_t bytes);
    /** Return the ordinal of the hardware in whose memory an address lies, no matter which library
     *  of this process allocated the memory. -1: the address is in host memory, or unknown. A copy
     *  accepts such an address in a cgp_place of any device of the backend. A NULL function: the
     *  backend recognizes only memory that it allocated itself. Threads: any. */
    int (*ordinal_of)(const cgp_device *device, const void *address);
} cgp_backend_device;

/** Kernels, and all other work of COMPUTE. */
typedef struct cgp_backend_kernels {
    /** Return the workspace size in bytes of a kernel on a device with `options`. The call needs
     *  neither a device nor the hardware. Fewer samples never need more workspace. @retval
     *  CGP_EINVAL The backend has no such kernel; a plan that needs it is refused. */
    cgp_status (*workspace)(const cgp_device_options *options, const cgp_kernel_spec *spec,
                            int64_t *bytes);
    /** Return the size in bytes of a kernel's prepacked parameters. These are rounded or rearranged
     *  copies, in a layout that the backend defines, and lie in planned memory. pack() writes them
     *  once, and all runs of the kernels use them until the parameters change. Kernels with the
     *  same parameters and the same *layout share one copy. 0: the kernel has no prepacked
     *  parameters. The result does not depend on n. A NULL function: no kernel has prepacked
     *  parameters, and pack() is NULL too. */
    cgp_status (*packed)(const cgp_device_options *options, const cgp_kernel_spec *spec,
                         int64_t *bytes, int *layout);
    /** Write the prepacked copy of the parameters. */
    cgp_status (*pack)(cgp_device *device, const cgp_kernel_spec *spec, const float *const *param,
                       void *packed);

    /** Announce the kernels of a pipeline: specs [n]. Kernels for the first n_own specs will be
     *  created on this device. The number of samples in a spec is a maximum, because kernels may
     *  also be created for fewer samples. All devices of the backend get the same set of specs, so
     *  what a backend chooses for the whole set does not depend on stages or ranks. The pipeline
     *  calls this once for each device, before memory_create(), so the call may allocate memory
     *  that it frees again. Kernels may also be created without this call. NULL: no kernel depends
     *  on other kernels. */
    cgp_status (*prepare)(cgp_device *device, const cgp_kernel_spec *specs, int n, int n_own);
    cgp_status (*create)(cgp_device *device, const cgp_kernel_spec *spec, cgp_kernel **out);
    cgp_status (*run)(cgp_kernel *kernel, const cgp_kernel_args *args);
    void (*destroy)(cgp_kernel *kernel);

    /** For BATCH_NORM: update args->accumulator from the first n entries of args->log, in their
     *  order, as n forward runs without a log would. If args->first is set, the first entry
     *  overwrites the accumulator. NULL: the backend runs no BATCH_NORM with replicas. */
    cgp_status (*merge)(cgp_device *device, const cgp_kernel_spec *spec,
                        const cgp_kernel_args *args, int n);
    /** Apply args->accumulator to args->state, at the end of a step. */
    cgp_status (*commit)(cgp_device *device, const cgp_kernel_spec *spec,
                         const cgp_kernel_args *args);
    /* The next three functions write their results to device memory. */
    /** Find the index of the first state to which commit() would write a number that is not finite;
     *  -1: none, or a custom op. */
    cgp_status (*check_commit)(cgp_device *device, const cgp_kernel_spec *spec,
                               const cgp_kernel_args *args, int64_t *index);
    /** Sum up x[i]^2 in double. The result depends only on n and the values. */
    cgp_status (*sum_squares)(cgp_device *device, const float *x, int64_t n, double *sum);
    /** Find the first i for which x[i] is infinite or NaN; -1: all n numbers are finite. */
    cgp_status (*find_nonfinite)(cgp_device *device, const float *x, int64_t n, int64_t *index);

    /** Apply n updates, which differ only in operands, weight_decay and values. All `values` are
     *  elements of one array, which has at most 1025 elements. */
    cgp_status (*update)(cgp_device *device, const cgp_update *updates, int n);
    /** Add: to[i] += from[i]. */
    cgp_status (*add)(cgp_device *device, float *to, const float *from, int64_t n);
    /** Copy n elements within a device, and convert them from one type to another. If the backend
     *  is host_addressable, the copy may also be from or to host memory. i32 stays i32. */
    cgp_status (*convert)(cgp_device *device, cgp_dtype to_type, void *to, cgp_dtype from_type,
                          const void *from, int64_t n);
} cgp_backend_kernels;

/** Events, and queues whose work may run after a call has returned. */
typedef struct cgp_backend_streams {
    size_t struct_size;
    cgp_status (*event_create)(cgp_device *device, cgp_event **out);
    void (*event_destroy)(cgp_event *event);
    /** Record the event in the queue, after all work enqueued so far. */
    cgp_status (*event_record)(cgp_device *device, cgp_queue queue, cgp_event *event);
    /** Make all later work of the queue wait for the most recent record of the event. An event that
     *  was never recorded is done. */
    cgp_status (*event_wait)(cgp_device *device, cgp_queue queue, cgp_event *event);
    /** Make later work of the branch wait for all work in COMPUTE. A NULL function: there is no
     *  branch, and join is NULL too. After a fork() during a capture, the branch's work is captured
     *  until the next join(). */
    cgp_status (*fork)(cgp_device *device);
    /** Make later work of COMPUTE wait for all work in the branch. */
    cgp_status (*join)(cgp_device *device);
    /** Set *done to true if the event is done, else to false. A failure of the event's device is
     * returned. */
    cgp_status (*event_done)(cgp_event *event, bool *done);
    /** Block until the event is done. A failure of the event's device is returned. Threads: any. */
    cgp_status (*event_sync)(cgp_event *event);
    /** Return the completion time of an event that is done, on the clock of the host's `now_ns`. */
    int64_t (*event_time)(cgp_event *event);

    /** If a kernel has failed, set *failed to true and return its args->tag. Otherwise set *failed
     *  to false and return the args->tag of the running kernel. -1: there is no such kernel, or it
     *  is not known. Copies, and calls that were refused when enqueued, do not count as failed
     *  kernels. Threads: any. */
    int64_t (*tag_in_progress)(const cgp_device *device, bool *failed);
    /** Block until all queues are empty. */
    cgp_status (*finish)(cgp_device *device);
    /** Enqueue a notice that nothing will read the contents of this memory. A backend for tests
     *  overwrites the contents; other backends only return CGP_OK. */
    cgp_status (*discard)(cgp_device *device, cgp_queue queue, void *at, size_t bytes);
    /** Return the handle by which other libraries use a queue; in CUDA, it is a cudaStream_t. A
     *  NULL function: there is no such handle. Threads: any. */
    void *(*handle)(const cgp_device *device, cgp_queue queue);
} cgp_backend_streams;

/** Graph capture. If the backend is `host_addressable`, nothing is captured. */
typedef struct cgp_backend_graphs {
    size_t struct_size;
    /** Begin a capture. All work that is given to COMPUTE or the branch before capture_end() is
     *  captured with its current operands, and does not run. This work consists of kernels, packs,
     *  conversions, commits and their checks, sums, searches, updates and additions. The captured
     *  work reads device memory when the graph runs. No copies, events or work of other queues may
     *  be enqueued before capture_end(). */
    cgp_status (*capture_begin)(cgp_device *device);
    /** End the capture, even if a call failed since capture_begin(). Memory and kernels must
     *  outlive the graph. *out is NULL if nothing was captured, or if the capture failed. @retval
     *  CGP_ENOMEM There is no graph; the device has not failed. */
    cgp_status (*capture_end)(cgp_device *device, cgp_captured_graph **out);
    /** Enqueue the whole graph in COMPUTE, in order. An earlier launch of the graph may still be
     *  running. `tag` is added to the tags of its kernels. */
    cgp_status (*launch)(cgp_captured_graph *graph, int64_t tag);
    /** Free a graph. No launch of the graph may be running. */
    void (*destroy)(cgp_captured_graph *graph);
    /** Return the number of launches given to COMPUTE, including the launches of a capture in
     *  progress. Launches of a whole graph are not counted. A captured graph must have as many
     *  launches as the same work has without a capture. */
    int64_t (*launches)(const cgp_device *device);
} cgp_backend_graphs;

/** A handle of device memory or of an event. Another process of the same host can import it. */
typedef struct cgp_shared_handle {
    unsigned char bytes[64];
} cgp_shared_handle;

/** Device memory and events that two processes of one host use (CUDA IPC). A process exports its
 *  own memory and events, and imports memory and events of the other process. The pipeline
 *  exchanges the handles. A call that fails leaves the device usable: messages then pass through
 *  host memory. */
typedef struct cgp_backend_sharing {
    size_t struct_size;
    /** Export memory that memory_create() returned: write its handle. */
    cgp_status (*memory_export)(cgp_device *device, void *memory, cgp_shared_handle *out);
    /** Import the memory of a device of the same backend in another process. In a copy, addresses
     *  from *out on are given in a cgp_place of `device`. The exporter frees the memory only after
     *  memory_close(). @retval CGP_EDEVICE This device cannot read that memory. */
    cgp_status (*memory_import)(cgp_device *device, const cgp_shared_handle *handle, void **out);
    /** Close imported memory that no enqueued copy uses. */
    void (*memory_close)(cgp_device *device, void *memory);
    /** Create an event and write its handle. The exporting device records the event. The event has
     *  no time, so event_time() is not called for it. */
    cgp_status (*event_export)(cgp_device *device, cgp_event **out, cgp_shared_handle *handle);
    /** Import an event, for event_wait(). event_wait() waits for the most recent record whose
     *  event_record() call has returned in the exporting process. The exporter destroys its event
     *  only after event_destroy() of the imported event. */
    cgp_status (*event_import)(cgp_device *device, const cgp_shared_handle *handle,
                               cgp_event **out);
} cgp_backend_sharing;

/** A backend. */
typedef struct cgp_backend {
    size_t struct_size;
    const char *name;

    /** Kernels may read and write host memory, and the device's memory is host memory. */
    bool host_addressable;
    /** Kernels of CGP_OP_CUSTOM call the functions of the op. */
    bool custom_ops;
    /** ADD and the channel norms accept a slope other than 1; results are bit-identical to two
     *  separate kernels. */
    bool fuses;
    /** LINEAR uses prefetch lists, which do not change results. */
    bool prefetches;
    /** Kernels also run without packed parameters (args->packed is NULL); results are
     *  bit-identical. A plan then packs parameters only if several runs may read them before they
     *  change (several micro-batches, or inference). The device must also have a memory limit with
     *  room for all packed parameters. */
    bool packs_optionally;
    /** Kernels accept specs with `tf32`. A plan in tf32 has only devices of backends that set this
     *  field. */
    bool tf32;

    cgp_backend_device device;
    cgp_backend_kernels kernels;
    /** Borrowed; NULL: the backend is not asynchronous. */
    const cgp_backend_streams *streams;
    /** Borrowed; NULL: the backend captures nothing. Needs `streams`. */
    const cgp_backend_graphs *graphs;
    /** Borrowed; NULL: memory of devices is not shared between processes. Needs `streams`; not
     *  allowed if the backend is host_addressable. */
    const cgp_backend_sharing *sharing;
} cgp_backend;

#ifdef __cplusplus
}
#endif
#endif
