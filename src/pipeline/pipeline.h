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

#include "plan/plan.h"
#include "trace/trace.h"
#include "transport/transport.h"

/* The programs of a stage, as indices. */
enum { CGP__LIGHT, CGP__FORWARD_SAVED, CGP__RECOMPUTE, CGP__BACKWARD, CGP__PROGRAMS };

/* An action with all that a worker needs to know, so that nothing is looked up in a step. */
typedef struct cgp__bound_action {
    cgp_action action;
    int64_t first_sample, samples; /* of the mini-batch */
    int input_slot, saved_slot;    /* -1: none */
    int program;                   /* of a compute action; for SEND_F, the one its F ran */
    bool first;                    /* weight gradients are written, not added to */
    int kernels;                   /* index of the worker's kernel set */
} cgp__bound_action;

typedef struct cgp__list {
    cgp__bound_action *actions;
    int n;
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

typedef struct cgp__worker {
    cgp_pipeline *pipeline;
    int index; /* of the device */
    pthread_t thread;
    bool started;
    cgp__device *device;
    char *memory;
    int64_t bytes;
    int n_calls;     /* of all programs of its stages */
    int *first_call; /* [stages x programs] */
    cgp__kernel_set *sets;
    int n_sets, sets_room;
    cgp__cached_kernel *cache; /* one kernel for all calls of one spec */
    int n_cache, cache_room;
    cgp__trace trace;
    int64_t trace_start; /* trace.written when the last step began */
    cgp_status status;   /* of the last job */
    char message[1024];
} cgp__worker;

typedef cgp_status cgp__job(cgp__worker *worker, void *argument);

struct cgp_pipeline {
    const cgp_plan *plan;
    uint64_t seed;
    cgp__worker *workers;    /* [devices] */
    cgp__channel **channels; /* [edges] */
    cgp__run **runs;         /* one for each size met */
    int n_runs, runs_room;
    double *losses; /* [micro-batches of the largest run] sums */
    int losses_room;
    int64_t step, updates; /* steps and optimizer updates done */
    bool has_gradients, failed;
    char failure[1024];
    int fault_stage, fault_microbatch, fault_kind; /* CGP_FAULT=fail:1F3; kind -1: none */

    pthread_mutex_t lock;
    pthread_cond_t work, done;
    cgp__job *job;
    void *argument;
    int generation, pending;
    bool quit;
    cgp_status first_status; /* of the run in progress: the first error wins */
    char first_message[1024];
};

/* What a run needs besides its list. */
typedef struct cgp__run_context {
    const cgp__run *run;
    const cgp_tensor *const *inputs;
    int64_t offset; /* of the run's first sample in the inputs and the output */
    bool training, with_loss;
    float loss_scale;
    const cgp_tensor *output; /* predict */
} cgp__run_context;

/* workers.c: run a job on every worker and wait; the status and message of the first device
 * that failed. */
cgp_status cgp__workers_start(cgp_pipeline *pipeline);
cgp_status cgp__workers_all(cgp_pipeline *pipeline, cgp__job *job, void *argument);
void cgp__workers_stop(cgp_pipeline *pipeline);

/* device.c: jobs that make and free what belongs to a device. */
cgp_status cgp__job_create_device(cgp__worker *worker, void *unused);
cgp_status cgp__job_destroy_device(cgp__worker *worker, void *unused);
cgp_status cgp__job_bind_kernels(cgp__worker *worker, void *run);

/* bind.c: the lists for N samples, made when first met. */
cgp_status cgp__run_find(cgp_pipeline *pipeline, int64_t samples, bool forward_only,
                         const cgp__run **out);
void cgp__run_destroy(const cgp_pipeline *pipeline, cgp__run *run);
const cgp__program *cgp__stage_program(const cgp__stage_plan *stage, int program);

/* execute.c: the job that runs a list. Argument: cgp__run_context. */
cgp_status cgp__job_run(cgp__worker *worker, void *context);

/* pipeline.c: CGP_ESTATE if the pipeline has failed. */
cgp_status cgp__pipeline_check_alive(const cgp_pipeline *pipeline);

/* inputs.c: check the caller's tensors before anything runs. */
cgp_status cgp__inputs_check(const cgp_pipeline *pipeline, const cgp_tensor *const *inputs,
                             int n_inputs, bool with_loss, int64_t *samples);
cgp_status cgp__inputs_loss_count(const cgp_pipeline *pipeline, const cgp_tensor *const *inputs,
                                  int64_t samples, int64_t *count);

#endif
