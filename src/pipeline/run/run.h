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

/* The part of its lists that a run takes. */
typedef enum cgp__run_part { CGP__WHOLE_RUN, CGP__FORWARD_PART, CGP__BACKWARD_PART } cgp__run_part;

/* The arguments of a run besides its lists. */
typedef struct cgp__run_context {
    const cgp__run *run;
    cgp__run_part part;
    const cgp_tensor *const *inputs;
    int64_t offset; /* of the run's first sample in the inputs and outputs */
    bool training, with_loss;
    bool may_count_nothing;   /* the loss's mean is not wanted, so it may have no targets */
    uint64_t seed, step;      /* of the key of dropout */
    const float *loss_scales; /* [losses] */
    /* [outputs] for the caller; NULL, or NULL entries: not wanted */
    const cgp_tensor *const *outputs;
    int n_outputs;
    /* [outputs] theirs, with an external loss */
    const cgp_tensor *const *gradients;
    /* [inputs] for theirs; NULL, or NULL entries: not wanted */
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

/* Launches that are the same each time: given to the device one by one at their first use, recorded
 * at the second. */
typedef struct cgp__recorded {
    enum { CGP__UNUSED, CGP__USED, CGP__RECORDED } state;
    cgp_recording *recording; /* NULL: none, or of no launch */
    int64_t launches;         /* at the first use */
} cgp__recorded;

/* A variant's calls, in all lists that have it, by kind of run. */
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
    /* of an asynchronous device: [buffers] recorded behind the copies to or from a buffer */
    cgp_event **events;
    int64_t pieces; /* of a tie, so far */
} cgp__end;

/* An action that the device has been given and that has not ended; of a device that is not
 * asynchronous, its times only. */
typedef struct cgp__flight {
    const cgp__bound_action *bound;
    cgp__event event;
    cgp_event *start, *end;
    int64_t pieces; /* of staging, taken by its end */
    /* Handed over between ranks when the flight has landed; NULL: none. */
    const cgp_transport *transport;
    cgp_link *link;
    cgp_link_message message;
} cgp__flight;

enum { CGP__FLIGHTS = 2 * CGP__AHEAD }; /* a power of two */

/* A piece of staging in use: its bytes go to the host's memory; NULL: they came from there. */
typedef struct cgp__piece {
    char *to;
    size_t bytes;
} cgp__piece;

/* A device and all that its thread alone touches. */
struct cgp__worker {
    cgp__executor *executor;
    int index;       /* of the device */
    atomic_int call; /* of the program that runs: the last one that the device was given */
    cgp_device *device;
    char *memory;    /* from byte `skipped` of the plan's on */
    int64_t skipped; /* of it, as they are another pipeline's */
    char *parameters, *gradients, *optimizer, *states;
    char *host; /* planned memory of the host, for copies; NULL: none */
    int64_t bytes;
    int n_calls;     /* of all programs of its stages */
    int *first_call; /* [stages x programs] */
    cgp__kernel_set *sets;
    int n_sets, sets_capacity;
    cgp__cached_kernel *cache; /* one kernel for all calls of one spec */
    int n_cache, cache_capacity;
    cgp__recordings *recordings;
    int n_recordings, recordings_capacity;
    bool records;                  /* more of them */
    int64_t own_changes, *changes; /* of the parameters, by all pipelines that share them */
    int64_t packed_at;             /* `changes` when they were packed; -1: never */
    cgp__recorded recorded_jobs[CGP__RECORDED_JOBS];
    double *words;   /* [step.n_words] that kernels write, in memory of the device */
    double *fetched; /* [step.n_words] the same for the host */

    /* Of a device that does not share the host's memory: [staging.pieces]; numbers returned ..
     * taken - 1 are in use (staging.c). */
    cgp__piece *pieces;
    int64_t taken, returned;
    cgp_event *ring_end; /* to wait for when all are in use */

    /* Asynchronous devices: action i of the list is flights[i % CGP__FLIGHTS]; those before
     * `landed` have ended. */
    cgp__flight flights[CGP__FLIGHTS];
    _Atomic int64_t begun;
    int64_t landed;
    cgp_event *timer[2]; /* around a kernel that is measured */
    atomic_bool syncs;   /* waits for an event of another backend's device */

    int64_t progress_ns; /* when messages between ranks were last let go on */

    cgp__trace trace;
    int64_t trace_start;        /* trace.written when the last run began */
    cgp__node_time *node_times; /* [nodes x directions]; NULL: not measured (layer_times.c) */
};

typedef struct cgp__injected_fault cgp__injected_fault;

struct cgp__executor {
    const cgp_plan *plan;
    const cgp__executor *owner; /* of parameters, gradients, optimizer and states; NULL: itself */
    cgp__team *team;
    cgp__ranks ranks;
    cgp__worker *workers; /* [devices] those of other ranks have no thread and no device */
    bool *reads;          /* [inputs][with_loss] a node of this rank reads the input */
    cgp_communicator *inproc;
    cgp__end (*ends)[2]; /* [links] sender, receiver */
    cgp__run **runs;     /* one per mini-batch size */
    int n_runs, runs_capacity;
    /* [micro-batches of the largest run][losses of the model] sums, and the rows of their step
     * values */
    double *losses;
    char *rows;
    int losses_capacity, rows_capacity;
    cgp__run_context context; /* of the last run; zero before the first */
    int64_t run_start_ns;
    char *report;                /* of the run that timed out */
    char *diagnosis;             /* of the moment of the first failure */
    bool records;                /* launches, where the backend does */
    cgp__injected_fault *faults; /* of CGP_FAULT */
    int n_faults, faults_capacity;
};

/* executor.c: allocate; start threads, devices and links, which are used when all ranks have opened
 * theirs; free. */
cgp_status cgp__executor_init(cgp__executor *executor, const cgp_plan *plan, cgp__team *team,
                              const cgp_transport *transport, cgp_communicator *communicator);
cgp_status cgp__executor_start(cgp__executor *executor);
void cgp__executor_deinit(cgp__executor *executor);

/* No message arrives any more: then devices may be destroyed. */
void cgp__executor_close_links(cgp__executor *executor);

/* Run a job on the worker of a device of this rank, which is borrowed for the call. */
cgp_status cgp__executor_run_one(const cgp__executor *executor, int device, cgp__job *job,
                                 void *argument);

/* Run a job on all workers of all ranks, in the time limit. A rank that fails has told the others,
 * whose waits and exchanges end; after a failure the team has failed. Collective. (Where an
 * exchange of all ranks is right behind, cgp__team_run() is enough.) */
cgp_status cgp__executor_job(cgp__executor *executor, cgp__job *job, void *argument);

/* Return the status of an exchange within a step; after a failure the team has failed. */
cgp_status cgp__executor_exchanged(cgp__executor *executor, cgp_status status);

/* Run lists: a job. */
cgp_status cgp__executor_run(cgp__executor *executor, const cgp__run_context *context);

/* device.c: jobs that make and free what belongs to a device, on its worker. */
cgp_status cgp__job_create_device(cgp__worker *worker, void *unused);
cgp_status cgp__job_destroy_device(cgp__worker *worker, void *unused);
cgp_status cgp__job_bind_kernels(cgp__worker *worker, void *run);

/* bind.c: the lists for N samples, made on first use. */
cgp_status cgp__run_find(cgp__executor *executor, int64_t samples, bool forward_only,
                         const cgp__run **out);
void cgp__run_destroy(const cgp__executor *executor, cgp__run *run);

/* execute.c: the job that runs a list. Argument: cgp__run_context. A device's actions in the
 * context's part of the run are
 * *begin .. *end - 1. */
cgp_status cgp__job_run(cgp__worker *worker, void *context);
void cgp__run_range(const cgp__run_context *context, int device, int *begin, int *end);

/* Return whether a node that will run on this rank reads input k; a loss runs only if with_loss. */
static inline bool cgp__input_is_read(const cgp__executor *executor, int k, bool with_loss) {
    return executor->reads[2 * k + with_loss];
}

/* The worker, the action, and where each arena begins for it. */
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
    /* The first reads of the next action: a kernel has driven them out of cache. */
    const void *next[4];
    /* The calls are recorded, for every action of the variant. */
    bool records;
} cgp__execution;

/* execute.c: the address of an operand; NULL: none. */
void *cgp__address(const cgp__execution *execution, cgp__location location);

/* Below, false: the action did not end, because the run was given up, by this worker or by another;
 * then nothing of the caller's may be touched. */

/* execute.c: give the run up. Prefix cgp_message() with stage, micro-batch and action of an
 * execution, and with layer and op of its program's call, -1: not known. */
bool cgp__fail_in_action(const cgp__worker *worker, const cgp__bound_action *bound,
                         const cgp__variant *variant, int call);

/* queues.c: the same, of the action in which the device has failed: where it runs ahead, perhaps an
 * earlier one. */
bool cgp__fail_on_device(const cgp__execution *execution, int call);

/* A kernel's tag is the index of its action in the list, and of its call in the program. */
static inline int64_t cgp__tag_of(int action, int call) {
    return (int64_t)action << 32 | call;
}

static inline int cgp__tag_action(int64_t tag) {
    return (int)(tag >> 32);
}

static inline int cgp__tag_call(int64_t tag) {
    return (int)(tag & INT32_MAX);
}

/* compute.c: give the device the calls of an action, and the copies of its outputs to the caller.
 * */
bool cgp__compute(const cgp__execution *execution);

/* Give the device launches, one by one; `records`: they are recorded. The run may be given up
 * meanwhile. */
typedef cgp_status cgp__launch(cgp__worker *worker, const void *what, bool records);

/* recordings.c: the same, as a recording where there is one or is to be one, whose kernels have
 * `tag` added to theirs. */
cgp_status cgp__run_recorded(cgp__worker *worker, cgp__recorded *recorded, int64_t tag,
                             cgp__launch *launch, const void *what);

/* recordings.c: read CGP_GRAPHS; make place for the recordings of a list's variants; destroy all.
 * */
cgp_status cgp__recordings_read(bool *records);
cgp_status cgp__recordings_bind(cgp__worker *worker, cgp__list *list);
void cgp__recordings_destroy(cgp__worker *worker);

/* packings.c: enqueue packed parameters, where they are not those of now. */
cgp_status cgp__pack_parameters(cgp__worker *worker);

/* transfer.c: send or receive a message. */
bool cgp__transfer(const cgp__execution *execution, cgp__flight *flight);

/* transfer.c: why a wait without limit ended with no message. CGP_OK: the run was given up;
 * CGP_EPEER: another rank has failed, or this one's communicator was stopped, which the others then
 * know. */
cgp_status cgp__wait_status(const cgp__worker *worker, const cgp__end *end);

/* queues.c: an action's flight: wait until the device may be given one more action; let its queue
 *wait for others, and mark its
 * start; mark its end; land those that have ended; wait for all of them.
 *
 *     begin ... start (calls) end          land, land .. finish
 *
 * NULL: as false. */
cgp__flight *cgp__flight_begin(const cgp__execution *execution);
bool cgp__flight_start(const cgp__execution *execution, cgp__flight *flight);
bool cgp__flight_end(const cgp__execution *execution, cgp__flight *flight);
bool cgp__flight_land(cgp__worker *worker, const cgp__list *list);
bool cgp__flight_finish(cgp__worker *worker, const cgp__list *list);

/* Return how long the worker may block: while its device works, it looks after its flights now and
 * then. */
int64_t cgp__flight_patience(const cgp__worker *worker);

/* Places where something is waited for. In a build for tests each can be left out, to see that a
 * test notices. */
enum {
    CGP__SITE_QUEUES, /* [queue][other queue] */
    CGP__SITE_MESSAGE =
        CGP__SITE_QUEUES + CGP_QUEUES * CGP_QUEUES, /* the receiver, for the copy into a buffer */
    CGP__SITE_BUFFER,                               /* the sender, for the copy out of it */
    CGP__SITE_AHEAD,                                /* the host, for the oldest action in flight */
    CGP__SITES
};
#ifdef CGP_TEST_SITES
/* recordings.c: what would be recorded now is what was recorded; NULL: is not compared. */
extern cgp_status (*cgp__recordings_compare)(const cgp_recording *recorded,
                                             const cgp_recording *now);
extern int cgp__site_off; /* -1: none */
#define CGP__ON(site) (cgp__site_off != (site))
#else
#define CGP__ON(site) true
#endif

/* staging.c: copy between the host and a device that does not share its memory, on COMPUTE. `put`:
 * from the host, whose memory may change on return. `get`: to the host, where it arrives when the
 * action has ended, or with cgp__worker_finish(). */
cgp_status cgp__staging_put(cgp__worker *worker, void *to, const void *from, size_t bytes);
cgp_status cgp__staging_get(cgp__worker *worker, void *to, const void *from, size_t bytes);

/* Give the pieces before number `end` back, with which COMPUTE is done: theirs arrive. */
void cgp__staging_return(cgp__worker *worker, int64_t end);

/* Wait for an event of the worker's device. Messages between ranks go on meanwhile. */
cgp_status cgp__worker_wait(const cgp__worker *worker, cgp_event *event);

/* Wait until the device has done all that it was given. */
cgp_status cgp__worker_finish(cgp__worker *worker);

/* Copy between the host and memory of the worker's device; all of it is done on return. */
cgp_status cgp__worker_read(cgp__worker *worker, void *out, const void *from, size_t bytes);
cgp_status cgp__worker_write(cgp__worker *worker, void *to, const void *in, size_t bytes);

/* Bring the first n words to `fetched`. */
cgp_status cgp__worker_fetch_words(cgp__worker *worker, int n);

/* watchdog.c: the team's supervisor of an executor. */
extern const cgp__supervisor cgp__watchdog;

/* diagnosis.c: keep what the devices do and wait for, if nothing is kept yet. Called with the
 * team's lock held. */
void cgp__diagnosis_keep(cgp__executor *executor);

/* The actions that have ended on this rank, ever. */
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
/* Give a message that a SEND hands over its fault. */
void cgp__injected_faults_of_message(const cgp__executor *executor, const cgp_action *action,
                                     cgp_link_message *message);
/* Return whether a fault of this very action holds it: those before it end first. */
bool cgp__injected_faults_hold(const cgp__executor *executor, const cgp_action *action);

static inline const cgp_backend *cgp__backend_of(const cgp__worker *worker) {
    return worker->executor->plan->devices[worker->index].backend;
}

/* The address of an offset in the plan's memory of the device, in the part that is not shared. */
static inline char *cgp__worker_at(const cgp__worker *worker, int64_t offset) {
    return worker->memory + (offset - worker->skipped);
}

static inline cgp__thread *cgp__thread_of(const cgp__worker *worker) {
    const cgp__executor *executor = worker->executor;
    return &executor->team->threads[worker->index - executor->ranks.first];
}

/* Return whether the worker's job, one with a time limit, was given up: if it goes on it may touch
 * neither plan nor the caller's memory. A job without one, as of a getter after a failure, is
 * waited for. */
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
