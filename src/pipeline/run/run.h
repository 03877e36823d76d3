/* SPDX-License-Identifier: Apache-2.0 */
/* run.h -- the plan's action lists, bound to slots, samples and kernels, and the workers that run
 * them. */
#ifndef CGP_SRC_PIPELINE_RUN_H
#define CGP_SRC_PIPELINE_RUN_H

#include "pipeline/run/ranks.h"
#include "pipeline/team/team.h"
#include "plan/plan.h"
#include "base/trace.h"
#include "transport/transport.h"

/* All lists for mini-batches of one size. */
typedef struct cgp__run {
    cgp__minibatch minibatch;
    cgp_schedule *schedule;
    cgp__list *lists; /* [devices] */
} cgp__run;

/* The part of its lists that a run executes. */
typedef enum cgp__run_part { CGP__WHOLE_RUN, CGP__FORWARD_PART, CGP__BACKWARD_PART } cgp__run_part;

/* The arguments of a run besides its lists. */
typedef struct cgp__run_context {
    const cgp__run *run;
    cgp__run_part part;
    const cgp_tensor *const *inputs;
    int64_t offset; /* of the run's first sample in the inputs and outputs */
    bool training, with_loss;
    bool may_count_nothing;   /* the mean loss is not wanted, so there may be no targets */
    uint64_t seed, step;      /* key of dropout */
    const float *loss_scales; /* [losses] */
    /* [outputs] the caller's tensors; NULL, or NULL entries: not wanted */
    const cgp_tensor *const *outputs;
    int n_outputs;
    /* [outputs] gradients of the outputs, with an external loss */
    const cgp_tensor *const *gradients;
    /* [inputs] tensors for gradients of inputs; NULL, or NULL entries: not wanted */
    const cgp_tensor *const *input_gradients;
} cgp__run_context;

/* The kernels of a device's stages for micro-batches of one size:
 * kernels[first_call[stage][program] + call]. */
typedef struct cgp__kernel_set {
    int64_t samples;
    cgp_kernel **kernels;
} cgp__kernel_set;

typedef struct cgp__cached_kernel {
    cgp_kernel_spec spec;
    cgp_kernel *kernel;
} cgp__cached_kernel;

/* Launches that repeat unchanged, and their captured graph. The first use launches them one by one;
 * the second captures them. */
typedef struct cgp__recorded {
    enum { CGP__UNUSED, CGP__USED, CGP__RECORDED } state;
    cgp_recording *recording; /* NULL: none, or no launches */
    int64_t launches;         /* counted at the first use */
} cgp__recorded;

/* The captured graphs of a bound instance, by kind of run. All lists that have the instance share
 * them. */
typedef struct cgp__recordings {
    cgp__variant variant;
    cgp__recorded of[2][2]; /* [training][with_loss] */
} cgp__recordings;

enum { CGP__RECORDED_UPDATE, CGP__RECORDED_PACKS, CGP__RECORDED_SQUARES, CGP__RECORDED_JOBS };

/* Total time of one of a node's kernels, over full micro-batches. */
typedef struct cgp__node_time {
    int64_t ns, runs;
} cgp__node_time;

/* One end of a link. */
typedef struct cgp__end {
    const cgp_transport *transport;
    cgp_communicator *communicator;
    cgp_link *link; /* NULL: the end is on another rank */
    char *memory;   /* its buffers */
    /* [buffers] of an asynchronous device; recorded after each copy to or from a buffer */
    cgp_event **events;
    int64_t pieces; /* sent or received so far, on a link of tied gradients */
} cgp__end;

/* An action in flight: enqueued but not complete. A synchronous device uses only its times. */
typedef struct cgp__flight {
    const cgp__bound_action *bound;
    cgp__event event;
    cgp_event *start, *end;
    int64_t pieces; /* staging pieces taken up to its end */
    /* Message to hand over to another rank when the action is complete; NULL: none. */
    const cgp_transport *transport;
    cgp_link *link;
    cgp_link_message message;
} cgp__flight;

enum { CGP__FLIGHTS = 2 * CGP__AHEAD }; /* a power of two */

/* A staging piece in use. `to`: where its bytes go in host memory; NULL: they came from the
 * host. */
typedef struct cgp__piece {
    char *to;
    size_t bytes;
} cgp__piece;

/* A device and all data that only its thread touches. */
struct cgp__worker {
    cgp__executor *executor;
    int index;       /* of the device */
    atomic_int call; /* last one enqueued, an index into the running program */
    cgp_device *device;
    char *memory;    /* the plan's, from byte `skipped` on */
    int64_t skipped; /* bytes of the plan's memory that another pipeline owns */
    char *parameters, *gradients, *optimizer, *states;
    char *host; /* planned host memory, for copies; NULL: none */
    int64_t bytes;
    int n_calls;     /* of all programs of its stages */
    int *first_call; /* [stages x programs] */
    cgp__kernel_set *sets;
    int n_sets, sets_capacity;
    cgp__cached_kernel *cache; /* one kernel for all calls of one spec */
    int n_cache, cache_capacity;
    cgp__recordings *recordings;
    int n_recordings, recordings_capacity;
    bool records; /* capture more graphs */
    /* count of parameter changes, by all pipelines that share them */
    int64_t own_changes, *changes;
    int64_t packed_at; /* `changes` when parameters were last packed; -1: never */
    cgp__recorded recorded_jobs[CGP__RECORDED_JOBS];
    double *words;   /* [step.n_words] results that kernels write, in device memory */
    double *fetched; /* [step.n_words] the host's copy of words */

    /* [staging.pieces] if the device has its own memory. Numbers returned .. taken - 1 are in use
     * (staging.c). */
    cgp__piece *pieces;
    int64_t taken, returned;
    cgp_event *ring_end; /* to wait for when all pieces are in use */

    /* Asynchronous devices: action i of the list is flights[i % CGP__FLIGHTS]; those before
     * `landed` are complete. */
    cgp__flight flights[CGP__FLIGHTS];
    _Atomic int64_t begun;
    int64_t landed;
    cgp_event *timer[2]; /* around a measured kernel */
    atomic_bool syncs;   /* the thread waits for an event of another backend's device */

    int64_t progress_ns; /* when the transport's progress() was last called */

    cgp__trace trace;
    int64_t trace_start;        /* trace.written when the last run began */
    cgp__node_time *node_times; /* [nodes x directions]; NULL: not measured (layer_times.c) */
};

typedef struct cgp__injected_fault cgp__injected_fault;

struct cgp__executor {
    const cgp_plan *plan;
    /* owner of parameters, gradients, optimizer and states; NULL: this one */
    const cgp__executor *owner;
    cgp__team *team;
    cgp__ranks ranks;
    cgp__worker *workers; /* [devices]; workers of other ranks have no thread and no device */
    bool *reads;          /* [inputs][with_loss] a node of this rank reads the input */
    cgp_communicator *inproc;
    cgp__end (*ends)[2]; /* [links] sender, receiver */
    cgp__run **runs;     /* one per mini-batch size */
    int n_runs, runs_capacity;
    /* [micro-batches of the largest run][losses of the model] loss sums; `rows`: a row of per-step
     * constants for each micro-batch */
    double *losses;
    char *rows;
    int losses_capacity, rows_capacity;
    cgp__run_context context; /* of the last run; zero before the first */
    int64_t run_start_ns;
    char *report;                /* of the run that timed out */
    char *diagnosis;             /* state at the first failure */
    bool records;                /* capture graphs, where the backend can */
    cgp__injected_fault *faults; /* of CGP_FAULT */
    int n_faults, faults_capacity;
};

/* executor.c: allocate; start threads, devices and links; free. Links may be used once all ranks
 * have opened theirs. */
cgp_status cgp__executor_init(cgp__executor *executor, const cgp_plan *plan, cgp__team *team,
                              const cgp_transport *transport, cgp_communicator *communicator);
cgp_status cgp__executor_start(cgp__executor *executor);
void cgp__executor_deinit(cgp__executor *executor);

/* Close all links: no message arrives afterwards, so devices may be destroyed. */
void cgp__executor_close_links(cgp__executor *executor);

/* Run a job on the worker of one of this rank's devices. The argument is borrowed for the call. */
cgp_status cgp__executor_run_one(const cgp__executor *executor, int device, cgp__job *job,
                                 void *argument);

/* Run a job on all workers of all ranks, within the time limit. A rank that fails notifies the
 * others, and their waits and exchanges end; after a failure the team has failed. Collective. If an
 * exchange of all ranks follows at once, cgp__team_run() is enough. */
cgp_status cgp__executor_job(cgp__executor *executor, cgp__job *job, void *argument);

/* Return `status`, the result of an exchange within a step; mark the team as failed if it is a
 * failure. */
cgp_status cgp__executor_exchanged(cgp__executor *executor, cgp_status status);

/* Run the lists of all workers, as a job. */
cgp_status cgp__executor_run(cgp__executor *executor, const cgp__run_context *context);

/* device.c: jobs that make and free what belongs to a device, on its worker. */
cgp_status cgp__job_create_device(cgp__worker *worker, void *unused);
cgp_status cgp__job_destroy_device(cgp__worker *worker, void *unused);
cgp_status cgp__job_bind_kernels(cgp__worker *worker, void *run);

/* bind.c: find the lists for N samples; they are made on first use. */
cgp_status cgp__run_find(cgp__executor *executor, int64_t samples, bool forward_only,
                         const cgp__run **out);
void cgp__run_destroy(const cgp__executor *executor, cgp__run *run);

/* execute.c: the job that runs a list. Argument: cgp__run_context. The part of the run that the
 * context selects has the device's actions *begin .. *end - 1. */
cgp_status cgp__job_run(cgp__worker *worker, void *context);
void cgp__run_range(const cgp__run_context *context, int device, int *begin, int *end);

/* Return whether a node that will run on this rank reads input k; a loss runs only if with_loss. */
static inline bool cgp__input_is_read(const cgp__executor *executor, int k, bool with_loss) {
    return executor->reads[2 * k + with_loss];
}

/* An action, its worker, and the address of each arena. */
typedef struct cgp__execution {
    cgp__worker *worker;
    const cgp_plan *plan;
    const cgp__run_context *context;
    const cgp__list *list;
    const cgp__bound_action *bound;
    const cgp__variant *variant;
    const cgp__stage_plan *stage;
    const cgp_step_values *values;
    char *base[CGP__ARENAS];
    /* What the next action reads first: kernels evict it from cache, so it is prefetched. */
    const void *next[4];
    /* The calls are being captured, for every action of the bound instance. */
    bool records;
} cgp__execution;

/* execute.c: return the address of an operand; NULL: none. */
void *cgp__address(const cgp__execution *execution, cgp__location location);

/* The functions below return false if the action did not end because this or another worker gave up
 * the run. Then the caller's memory must not be touched. */

/* execute.c: give up the run. Prefix cgp_message() with the action's stage, micro-batch and name,
 * and with the layer and op of its program's `call` (-1: not known). */
bool cgp__fail_in_action(const cgp__worker *worker, const cgp__bound_action *bound,
                         const cgp__variant *variant, int call);

/* queues.c: the same for the action in which the device failed: an earlier one, perhaps, if the
 * device runs ahead. */
bool cgp__fail_on_device(const cgp__execution *execution, int call);

/* A kernel's tag combines the index of its action in the list and of its call in the program. */
static inline int64_t cgp__tag_of(int action, int call) {
    return (int64_t)action << 32 | call;
}

static inline int cgp__tag_action(int64_t tag) {
    return (int)(tag >> 32);
}

static inline int cgp__tag_call(int64_t tag) {
    return (int)(tag & INT32_MAX);
}

/* compute.c: enqueue the calls of an action, and the copies of its outputs to the caller. */
bool cgp__compute(const cgp__execution *execution);

/* Enqueue launches one by one. `records`: they are being captured. The run may be given up
 * meanwhile. */
typedef cgp_status cgp__launch(cgp__worker *worker, const void *what, bool records);

/* recordings.c: do the same, but capture a graph at the second use and run it from then on, with
 * `tag` added to the tags of its kernels. */
cgp_status cgp__run_recorded(cgp__worker *worker, cgp__recorded *recorded, int64_t tag,
                             cgp__launch *launch, const void *what);

/* recordings.c: read CGP_GRAPHS; reserve captured graphs for a list's bound instances; destroy
 * all. */
cgp_status cgp__recordings_read(bool *records);
cgp_status cgp__recordings_bind(cgp__worker *worker, cgp__list *list);
void cgp__recordings_destroy(cgp__worker *worker);

/* packings.c: repack parameters if they are stale. */
cgp_status cgp__pack_parameters(cgp__worker *worker);

/* transfer.c: send or receive a message. */
bool cgp__transfer(const cgp__execution *execution, cgp__flight *flight);

/* transfer.c: return why a wait without limit ended with no message. CGP_OK: the run was given up.
 * CGP_EPEER: another rank has failed, or this rank's communicator was stopped; in the latter case
 * the others are notified. */
cgp_status cgp__wait_status(const cgp__worker *worker, const cgp__end *end);

/* queues.c: keep track of actions in flight. begin: wait until one more action may be enqueued.
 * start: make its queue wait for other queues, and mark its start. end: mark its end. land: retire
 * complete actions. finish: wait for all actions.
 *
 *     begin ... start (calls) end          land, land .. finish
 *
 * begin returns NULL where the others return false. */
cgp__flight *cgp__flight_begin(const cgp__execution *execution);
bool cgp__flight_start(const cgp__execution *execution, cgp__flight *flight);
bool cgp__flight_end(const cgp__execution *execution, cgp__flight *flight);
bool cgp__flight_land(cgp__worker *worker, const cgp__list *list);
bool cgp__flight_finish(cgp__worker *worker, const cgp__list *list);

/* Return how long the worker may block, in ns: while actions are in flight, it must wake to retire
 * them. */
int64_t cgp__flight_patience(const cgp__worker *worker);

/* Points of synchronization. A test build can disable each of them, to check that a test notices:
 *
 *     QUEUES     [queue][other queue] a queue waits for another
 *     MESSAGE    the receiver waits for the copy into a buffer
 *     BUFFER     the sender waits for the copy out of a buffer
 *     AHEAD      the host waits for the oldest action in flight */
enum {
    CGP__SITE_QUEUES,
    CGP__SITE_MESSAGE = CGP__SITE_QUEUES + CGP_QUEUES * CGP_QUEUES,
    CGP__SITE_BUFFER,
    CGP__SITE_AHEAD,
    CGP__SITES
};
#ifdef CGP_TEST_SITES
/* recordings.c: compare a captured graph with a second capture; NULL: do not. */
extern cgp_status (*cgp__recordings_compare)(const cgp_recording *recorded,
                                             const cgp_recording *now);
extern int cgp__site_off; /* disabled point; -1: none */
#define CGP__ON(site) (cgp__site_off != (site))
#else
#define CGP__ON(site) true
#endif

/* staging.c: copy between the host and a device with its own memory, on queue COMPUTE. put: from
 * the host; the source may change on return. get: to the host; the data arrives when the action is
 * complete, or in cgp__worker_finish(). */
cgp_status cgp__staging_put(cgp__worker *worker, void *to, const void *from, size_t bytes);
cgp_status cgp__staging_get(cgp__worker *worker, void *to, const void *from, size_t bytes);

/* Return the pieces before number `end`, which COMPUTE has finished with; data for the host
 * arrives. */
void cgp__staging_return(cgp__worker *worker, int64_t end);

/* Wait for an event of the worker's device. Messages between ranks make progress meanwhile. */
cgp_status cgp__worker_wait(const cgp__worker *worker, cgp_event *event);

/* Wait until all enqueued work is complete. */
cgp_status cgp__worker_finish(cgp__worker *worker);

/* Copy between the host and memory of the worker's device; return when the copy is complete. */
cgp_status cgp__worker_read(cgp__worker *worker, void *out, const void *from, size_t bytes);
cgp_status cgp__worker_write(cgp__worker *worker, void *to, const void *in, size_t bytes);

/* Copy the first n words to `fetched`. */
cgp_status cgp__worker_fetch_words(cgp__worker *worker, int n);

/* watchdog.c: the supervisor of an executor's team. */
extern const cgp__supervisor cgp__watchdog;

/* diagnosis.c: save what the devices do and wait for, unless it is saved already. Called with the
 * team's lock held. */
void cgp__diagnosis_keep(cgp__executor *executor);

/* Return the number of actions that have ended on this rank since the pipeline was created. */
static inline int64_t cgp__ended_here(const cgp__executor *executor) {
    int64_t ended = 0;
    for (int d = executor->ranks.first; d < executor->ranks.end; d++)
        ended += cgp__trace_written(&executor->workers[d].trace);
    return ended;
}

/* injected_faults.c: read CGP_FAULT; apply it before an action: sleep, or fail with CGP_EDEVICE.
 * The run may be given up, and the pipeline destroyed, meanwhile. */
cgp_status cgp__injected_faults_read(cgp__executor *executor);
cgp_status cgp__injected_faults_apply(const cgp__worker *worker, const cgp_action *action);
/* Set the fault of a message that a SEND hands over. */
void cgp__injected_faults_of_message(const cgp__executor *executor, const cgp_action *action,
                                     cgp_link_message *message);
/* Return whether a fault applies to this very action: then all actions before it must end first. */
bool cgp__injected_faults_hold(const cgp__executor *executor, const cgp_action *action);

static inline const cgp_backend *cgp__backend_of(const cgp__worker *worker) {
    return worker->executor->plan->devices[worker->index].backend;
}

/* Return the address of an offset in the device's planned memory, in the part that is not
 * shared. */
static inline char *cgp__worker_at(const cgp__worker *worker, int64_t offset) {
    return worker->memory + (offset - worker->skipped);
}

static inline cgp__thread *cgp__thread_of(const cgp__worker *worker) {
    const cgp__executor *executor = worker->executor;
    return &executor->team->threads[worker->index - executor->ranks.first];
}

/* Return whether the worker's job has a time limit and was given up. Such a job must not touch the
 * plan or the caller's memory. The caller waits for a job without a limit, such as a getter after a
 * failure. */
static inline bool cgp__is_stopped(const cgp__worker *worker) {
    return cgp__thread_of(worker)->timed &&
           atomic_load_explicit(&worker->executor->team->stopped, memory_order_acquire);
}

static inline cgp_place cgp__device_place(const cgp__worker *worker, void *at) {
    return (cgp_place){worker->device, at};
}

static inline cgp_place cgp__host_place(const void *at) {
    return (cgp_place){NULL, (void *)at};
}

#endif
