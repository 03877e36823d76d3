/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline.h -- a running plan: workers, their kernels, and the action lists bound to slots and
 * samples.
 *
 *     caller's thread                      worker of device d (one each)
 *     cgp_pipeline_step ── job ──────────► for each action of its list: wait for messages,
 *                       ◄─ all done ──     run the program's calls, send, note the times
 */
#ifndef CGP_SRC_PIPELINE_H
#define CGP_SRC_PIPELINE_H

#include <cgpipe/pipeline.h>

#include <pthread.h>
#include <stdatomic.h>

#include "plan/plan.h"
#include "trace/trace.h"
#include "transport/transport.h"

/* The programs of a stage, as indices. */
enum { CGP__FORWARD_NOSAVE, CGP__FORWARD_SAVED, CGP__RECOMPUTE, CGP__BACKWARD, CGP__PROGRAMS };

/* An action with all that a worker needs to know, so that nothing is looked up in a step. */
typedef struct cgp__bound_action {
    cgp_action action;
    int64_t first_sample, samples; /* of the mini-batch */
    int input_slot, saved_slot;    /* -1: none */
    int program;                   /* of a compute action; for SEND_F, the one its F ran */
    int begin, end;                /* of its calls, those that the action runs */
    bool
        first; /* what F collects, or the weight gradients of backward's input half, are written,
                   not added to */
    bool first_weight; /* those of its weight half */
    int kernels;       /* index of the worker's kernel set */
} cgp__bound_action;

typedef struct cgp__list {
    cgp__bound_action *actions;
    int n;
    int n_forward; /* with a loss outside: the first so many are forward */
} cgp__list;

/* All lists for mini-batches of one size. */
typedef struct cgp__run {
    int64_t samples;
    bool forward_only;
    int chunks;
    cgp__list *lists; /* [devices] */
} cgp__run;

/* The kernels of a device's stages for micro-batches of one size: kernels[first[stage][program]
 * + call]. */
typedef struct cgp__kernel_set {
    int64_t samples;
    cgp__kernel **kernels;
} cgp__kernel_set;

typedef struct cgp__cached_kernel {
    cgp__kernel_spec spec;
    cgp__kernel *kernel;
} cgp__cached_kernel;

/* Of the runs of one of a node's kernels with full micro-batches. */
typedef struct cgp__node_time {
    int64_t ns, runs;
} cgp__node_time;

typedef struct cgp__worker cgp__worker;
typedef cgp_status cgp__job(cgp__worker *worker, void *argument);

struct cgp__worker {
    cgp_pipeline *pipeline;
    int index; /* of the device */
    pthread_t thread;
    bool started;
    bool handed, busy, stuck; /* a job, under the pipeline's lock: not taken yet; taken; taken
                                 and not back in time */
    atomic_int call;          /* of the program it runs: the last one begun */
    cgp__device *device;
    char *memory;
    int64_t bytes;
    int n_calls;     /* of all programs of its stages */
    int *first_call; /* [stages x programs] */
    cgp__kernel_set *sets;
    int n_sets, sets_capacity;
    cgp__cached_kernel *cache; /* one kernel for all calls of one spec */
    int n_cache, cache_capacity;
    cgp__trace trace;
    int64_t trace_start;        /* trace.written when the last step began */
    cgp__node_time *node_times; /* [nodes x directions]; NULL: not measured (layer_times.c) */
    int nonfinite; /* of its last check (finite.c, save.c): the first thing that is not; -1: all is */
    int64_t nonfinite_at;  /* of save.c: which element, */
    float nonfinite_value; /* and what it is */
    cgp_status status;     /* of the last job */
    char message[1024];
};

/* What CGP_FAULT asks for (faults.c). */
typedef enum cgp__fault_effect {
    CGP__FAULT_FAIL,
    CGP__FAULT_STALL,
    CGP__FAULT_DELAY,
    CGP__FAULT_DELAY_ALL
} cgp__fault_effect;

typedef struct cgp__fault {
    cgp__fault_effect effect;
    cgp_action action; /* but for DELAY_ALL */
    double seconds;    /* of a DELAY; of DELAY_ALL, the most */
} cgp__fault;

/* Which actions of its lists a run takes. */
typedef enum cgp__part_of_run {
    CGP__WHOLE,
    CGP__FORWARD_HALF,
    CGP__BACKWARD_HALF
} cgp__part_of_run;

/* Why a step updates and commits nothing: the first of its numbers that is not finite. */
typedef enum cgp__refusal {
    CGP__ACCEPTED,
    CGP__REFUSED_LOSS,
    CGP__REFUSED_STATE, /* refused_by: its number */
    CGP__REFUSED_NORM   /* refused_by: the parameter with the first such gradient */
} cgp__refusal;

/* What a run needs besides its list. */
typedef struct cgp__run_context {
    const cgp__run *run;
    cgp__part_of_run part;
    const cgp_tensor *const *inputs;
    int64_t offset; /* of the run's first sample in the inputs and the output */
    bool training, with_loss;
    const float *loss_scales;   /* [losses] */
    const cgp_tensor *output;   /* that the caller wants */
    const cgp_tensor *gradient; /* of the output, with a loss outside */
} cgp__run_context;

struct cgp_pipeline {
    pid_t process; /* that made it, and has its workers */
    const cgp_plan *plan;
    uint64_t seed;
    cgp__worker *workers;    /* [devices] */
    cgp__channel **channels; /* [edges] */
    cgp__run **runs;         /* one for each size met */
    int n_runs, runs_capacity;
    double *losses; /* [micro-batches of the largest run][losses of the model] sums */
    int losses_capacity;
    int64_t *loss_counts;             /* [losses] of the mini-batch */
    double *loss_sums;                /* [losses] over its micro-batches */
    float *loss_scales;               /* [losses] weight / count */
    double *squares;                  /* [params] sums of their gradients' squares, to clip */
    cgp_tensor *external_inputs;      /* [inputs] of the forward whose backward is due ... */
    const cgp_tensor **external_list; /* [inputs] ... as execute.c wants them */
    const cgp__run *external_run;     /* ... and its lists; NULL: forward is due */
    int64_t step, updates;            /* steps and optimizer updates done */
    double step_loss, step_norm;      /* of the last step; the norm NaN without clip_norm */
    double gradient_norm;             /* the same, of the last cgp_optim_step() */
    cgp__refusal refusal;             /* of the last step */
    int refused_by;
    bool has_gradients;  /* for an update */
    bool left_gradients; /* for cgp_pipeline_get_gradient() */
    bool failed;
    char failure[1024];
    cgp__fault *faults; /* of CGP_FAULT */
    int n_faults, faults_capacity;

    pthread_mutex_t lock;
    pthread_cond_t work, done, released; /* the last: faults that hold a worker let it go */
    cgp__job *job;                       /* of the workers, and what it was given */
    void *argument;
    cgp__run_context context; /* of cgp__job_run */
    cgp__update constants;    /* of the update */
    int accumulator;          /* workers that the caller waits for */
    bool quit, release;
    atomic_bool stopped;  /* a run has failed: no worker touches the plan or the caller's memory
                             any more */
    bool shares_stuck;    /* a stuck worker may be in the memory of other devices */
    int64_t timeout_ns;   /* 0: none */
    int64_t job_start_ns; /* of the job in progress; of the last run of lists */
    int64_t run_start_ns;
    int64_t
        back_ns;  /* when a worker last came back from its job, or the process from a sleep */
    char *report; /* of the run that timed out */
    cgp_status first_status; /* of the run in progress: the first error wins */
    char first_message[1024];
};

/* pipeline.c: CGP_ESTATE in a process that fork() made since: the workers are not there, and a lock may be held for ever. */
cgp_status cgp__pipeline_check_process(const cgp_pipeline *pipeline, const char *function);

/* The beginning of a public call. */
#define CGP__PIPELINE(pipeline)                                                                \
    do {                                                                                       \
        CGP__NEED(pipeline);                                                                   \
        CGP_TRY(cgp__pipeline_check_process(pipeline, __func__));                              \
    } while (0)
#define CGP__PIPELINE_OR(pipeline, result)                                                     \
    do {                                                                                       \
        CGP__NEED_OR(pipeline, result);                                                        \
        if (cgp__pipeline_check_process(pipeline, __func__) != CGP_OK) return result;          \
    } while (0)

/* workers.c: run a job on every worker and wait; the status and message of the first device
 * that failed, or of the timeout. */
void cgp__workers_init(cgp_pipeline *pipeline);
cgp_status cgp__workers_start(cgp_pipeline *pipeline);
cgp_status cgp__workers_all(cgp_pipeline *pipeline, cgp__job *job, void *argument);

/* Let go of stalled workers; false if one is stuck all the same. Then end all threads. */
bool cgp__workers_release(cgp_pipeline *pipeline);
void cgp__workers_stop(cgp_pipeline *pipeline);
void cgp__workers_deinit(cgp_pipeline *pipeline);

/* Wait for a condition that goes by cgp__now_ns(); INT64_MAX: without limit. false once it is so
 * late. */
bool cgp__wait_until(pthread_cond_t *condition, pthread_mutex_t *lock, int64_t deadline_ns);

/* Keep cgp_message() as the run's error if it is the first one, and wake everybody who waits for
 * a message. Under the lock. */
void cgp__workers_give_up(cgp_pipeline *pipeline, cgp_status status);

/* watchdog.c, under the lock: when the job has timed out, as far as is known now (INT64_MAX:
 * never); then, unless something has ended since: make the report, record which action hangs,
 * and give the run up. */
int64_t cgp__watchdog_deadline(const cgp_pipeline *pipeline);
bool cgp__watchdog_bark(cgp_pipeline *pipeline);

/* Whether a worker is in an action that computes: it touches no memory of other devices. */
bool cgp__watchdog_computes(const cgp_pipeline *pipeline, const cgp__worker *worker);

/* faults.c: read CGP_FAULT; wait as it asks before an action. CGP_EDEVICE if the action is to
 * fail. *leave: the run was given up, or the pipeline destroyed, meanwhile. */
cgp_status cgp__faults_read(cgp_pipeline *pipeline);
cgp_status cgp__faults_meet(cgp_pipeline *pipeline, const cgp_action *action, bool *leave);

/* device.c: jobs that make and free what belongs to a device. */
cgp_status cgp__job_create_device(cgp__worker *worker, void *unused);
cgp_status cgp__job_destroy_device(cgp__worker *worker, void *unused);
cgp_status cgp__job_bind_kernels(cgp__worker *worker, void *run);

/* Whether each of several devices is pinned to cores that no other has. */
bool cgp__devices_have_cores(const cgp_plan *plan);

/* bind.c: the lists for N samples, made when first met. */
cgp_status cgp__run_find(cgp_pipeline *pipeline, int64_t samples, bool forward_only,
                         const cgp__run **out);
void cgp__run_destroy(const cgp_pipeline *pipeline, cgp__run *run);
const cgp__program *cgp__stage_program(const cgp__stage_plan *stage, int program);

/* Whether the run in progress was given up. */
static inline bool cgp__is_stopped(const cgp_pipeline *pipeline) {
    return atomic_load_explicit(&pipeline->stopped, memory_order_acquire);
}

/* execute.c: the job that runs a list. Argument: cgp__run_context. The actions of a device's list
 * that it takes are *begin .. *end - 1. */
cgp_status cgp__job_run(cgp__worker *worker, void *context);
void cgp__run_range(const cgp__run_context *context, int device, int *begin, int *end);

/* pipeline.c: CGP_ESTATE if the pipeline has failed; run lists on all workers, and remember a
 * failure; check a tensor that is like the model's output. */
cgp_status cgp__pipeline_check_alive(const cgp_pipeline *pipeline);
cgp_status cgp__pipeline_check_idle(const cgp_pipeline *pipeline); /* and between steps */
const char *cgp__pipeline_due(const cgp_pipeline *pipeline); /* the call that makes gradients */
cgp_status cgp__pipeline_execute(cgp_pipeline *pipeline, const cgp__run_context *context);
cgp_status cgp__pipeline_check_output(const cgp_pipeline *pipeline, const char *name,
                                      const cgp_tensor *tensor, int64_t samples);

/* The end of a step whose last backward has run: sums, states, counters. The loss; 0 where the caller has it. */
cgp_status cgp__pipeline_end_step(cgp_pipeline *pipeline, double loss);

/* finite.c: set step_norm and refusal once all gradients are complete; fail with CGP_ESTATE if the step was refused. */
cgp_status cgp__finite_decide(cgp_pipeline *pipeline, double loss);
cgp_status cgp__finite_refuse(const cgp_pipeline *pipeline);

/* The gradient of a copy on the worker's device. */
static inline const float *cgp__gradient_of(const cgp__worker *worker, const cgp__copy *copy) {
    const cgp__device_plan *device = &worker->pipeline->plan->devices[worker->index];
    return (const float *)(const void *)(worker->memory + device->gradients + copy->gradient);
}

/* tied.c: add up the gradients of parameters with several uses, after the last backward. */
cgp_status cgp__pipeline_sum_tied(cgp_pipeline *pipeline);

/* states.c: set a device's states to their start; put what a step collected in all states. */
void cgp__states_begin(cgp__worker *worker);

/* The first state of the worker's device in which the commit would put what is not finite; -1: none. */
int cgp__states_find_nonfinite(cgp__worker *worker);
cgp_status cgp__pipeline_commit_states(cgp_pipeline *pipeline);

/* Find a tensor that is the worker's own to check and counts as a number of training: a parameter (number -1) or
 * its optimizer's state (parameters.c), a state of the library's norms (states.c). NULL: it is another's, or none. */
const float *cgp__parameter_data(const cgp__worker *worker, int parameter, int number);
const float *cgp__state_data(const cgp__worker *worker, int state);

/* inputs.c: check the caller's tensors before anything runs. */
/* Whether a node that will run reads input k; the loss does only if it runs. */
bool cgp__input_is_read(const cgp_model *model, int k, bool with_loss);
cgp_status cgp__inputs_check(const cgp_pipeline *pipeline, const cgp_tensor *const *inputs,
                             int n_inputs, bool with_loss, int64_t *samples);
cgp_status cgp__inputs_check_batch(const cgp_pipeline *pipeline, int64_t samples);

/* Fill pipeline->loss_counts and loss_scales for a mini-batch. */
cgp_status cgp__inputs_count_losses(cgp_pipeline *pipeline, const cgp_tensor *const *inputs,
                                    int64_t samples);

#endif
