/* SPDX-License-Identifier: Apache-2.0 */
/* run.h -- the plan's action lists, bound to slots, samples and kernels, and the workers that run them. */
#ifndef CGP_SRC_PIPELINE_RUN_H
#define CGP_SRC_PIPELINE_RUN_H

#include "pipeline/team/team.h"
#include "plan/plan.h"
#include "base/trace.h"
#include "transport/transport.h"

/* The programs of a stage, as indices. */
enum { CGP__FORWARD_NOSAVE, CGP__FORWARD_SAVED, CGP__RECOMPUTE, CGP__BACKWARD, CGP__PROGRAMS };

/* An action with everything a worker needs, so that a step looks nothing up. */
typedef struct cgp__bound_action {
    cgp_action action;
    int64_t first_sample, samples; /* of the mini-batch */
    int input_slot, saved_slot;    /* -1: none */
    int program;                   /* of a compute action; for SEND_F, the one its F ran */
    int begin, end;                /* of the program's calls, those of this action */
    /* Write, not add: F, its accumulators; B and I, the weight gradients of backward's input half. */
    bool first;
    /* Likewise those of its weight half. */
    bool first_weight;
    int kernels; /* index of the worker's kernel set */
} cgp__bound_action;

typedef struct cgp__list {
    cgp__bound_action *actions;
    int n;
    int n_forward; /* with an external loss: the first actions, up to here, are forward */
} cgp__list;

/* All lists for mini-batches of one size. */
typedef struct cgp__run {
    int64_t samples;
    bool forward_only;
    int chunks;
    cgp__list *lists; /* [devices] */
} cgp__run;

/* The part of its lists that a run takes. */
typedef enum cgp__run_part {
    CGP__WHOLE_RUN,
    CGP__FORWARD_PART,
    CGP__BACKWARD_PART
} cgp__run_part;

/* The arguments of a run besides its lists. */
typedef struct cgp__run_context {
    const cgp__run *run;
    cgp__run_part part;
    const cgp_tensor *const *inputs;
    int64_t offset; /* of the run's first sample in the inputs and the output */
    bool training, with_loss;
    uint64_t seed, step;        /* of the key of dropout */
    const float *loss_scales;   /* [losses] */
    const cgp_tensor *output;   /* for the caller; NULL: not wanted */
    const cgp_tensor *gradient; /* of the output, with an external loss */
} cgp__run_context;

/* The kernels of a device's stages for micro-batches of one size: kernels[first_call[stage][program] + call]. */
typedef struct cgp__kernel_set {
    int64_t samples;
    cgp__kernel **kernels;
} cgp__kernel_set;

typedef struct cgp__cached_kernel {
    cgp__kernel_spec spec;
    cgp__kernel *kernel;
} cgp__cached_kernel;

/* Total time of one of a node's kernels, over full micro-batches. */
typedef struct cgp__node_time {
    int64_t ns, runs;
} cgp__node_time;

typedef struct cgp__executor cgp__executor;

/* A device and all that its thread alone touches. */
struct cgp__worker {
    cgp__executor *executor;
    int index;       /* of the device */
    atomic_int call; /* of the program that runs: the last one begun */
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
    int64_t trace_start;        /* trace.written when the last run began */
    cgp__node_time *node_times; /* [nodes x directions]; NULL: not measured (layer_times.c) */
};

typedef struct cgp__injected_fault cgp__injected_fault;

struct cgp__executor {
    const cgp_plan *plan;
    cgp__team *team;
    cgp__worker *workers;    /* [devices] */
    cgp__channel **channels; /* [edges] */
    cgp__run **runs;         /* one per mini-batch size */
    int n_runs, runs_capacity;
    double *losses; /* [micro-batches of the largest run][losses of the model] sums */
    int losses_capacity;
    cgp__run_context context; /* of the last run; zero before the first */
    int64_t run_start_ns;
    char *report;                /* of the run that timed out */
    cgp__injected_fault *faults; /* of CGP_FAULT */
    int n_faults, faults_capacity;
};

/* executor.c: allocate; start threads, devices and channels; free. */
cgp_status cgp__executor_init(cgp__executor *executor, const cgp_plan *plan, cgp__team *team);
cgp_status cgp__executor_start(cgp__executor *executor);
void cgp__executor_deinit(cgp__executor *executor);

/* Run lists on all workers; after a failure the team has failed. */
cgp_status cgp__executor_run(cgp__executor *executor, const cgp__run_context *context);

/* device.c: jobs that make and free what belongs to a device, on its worker. */
cgp_status cgp__job_create_device(cgp__worker *worker, void *unused);
cgp_status cgp__job_destroy_device(cgp__worker *worker, void *unused);
cgp_status cgp__job_bind_kernels(cgp__worker *worker, void *run);

/* Return whether several devices are each pinned to cores of their own. */
bool cgp__devices_have_cores(const cgp_plan *plan);

/* bind.c: the lists for N samples, made on first use. */
cgp_status cgp__run_find(cgp__executor *executor, int64_t samples, bool forward_only,
                         const cgp__run **out);
void cgp__run_destroy(const cgp__executor *executor, cgp__run *run);
const cgp__program *cgp__stage_program(const cgp__stage_plan *stage, int program);

/* execute.c: the job that runs a list. Argument: cgp__run_context. A device's actions in the context's part of the run are
 * *begin .. *end - 1. */
cgp_status cgp__job_run(cgp__worker *worker, void *context);
void cgp__run_range(const cgp__run_context *context, int device, int *begin, int *end);

/* Return whether a node that will run reads input k; a loss runs only if with_loss. */
bool cgp__input_is_read(const cgp_model *model, int k, bool with_loss);

/* watchdog.c: the team's supervisor of an executor. */
extern const cgp__supervisor cgp__watchdog;

/* injected_faults.c: read CGP_FAULT; apply it before an action: sleep, or fail with CGP_EDEVICE. The run may be given up, and
 * the pipeline destroyed, meanwhile. */
cgp_status cgp__injected_faults_read(cgp__executor *executor);
cgp_status cgp__injected_faults_apply(const cgp__worker *worker, const cgp_action *action);

static inline const cgp__backend *cgp__backend_of(const cgp__worker *worker) {
    return worker->executor->plan->devices[worker->index].backend;
}

/* Return whether the run in progress was given up. A worker that goes on may touch neither plan nor the caller's memory. */
static inline bool cgp__is_stopped(const cgp__worker *worker) {
    return atomic_load_explicit(&worker->executor->team->stopped, memory_order_acquire);
}

#endif
