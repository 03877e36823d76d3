/* SPDX-License-Identifier: Apache-2.0 */
/* executor.h -- the executor, which has the workers of this rank and runs their action lists. */
#ifndef CGP_SRC_PIPELINE_RUN_EXECUTOR_H
#define CGP_SRC_PIPELINE_RUN_EXECUTOR_H

#include <cgpipe/ext/transport.h>
#include <cgpipe/plan.h>

typedef struct cgp__end cgp__end;
typedef struct cgp__executor cgp__executor;
typedef struct cgp__measured cgp__measured;
typedef struct cgp__ranks cgp__ranks;
typedef struct cgp__run cgp__run;
typedef struct cgp__team cgp__team;
typedef struct cgp__worker cgp__worker;

/* The part of the workers' action lists that a run executes. */
typedef enum cgp__run_part { CGP__WHOLE_RUN, CGP__FORWARD_PART, CGP__BACKWARD_PART } cgp__run_part;

/* The arguments of a run, except the action lists. Written by the caller's thread. */
typedef struct cgp__run_context {
    const cgp__run *run;
    cgp__run_part part;
    const cgp_tensor *const *inputs;
    int64_t offset; /* index of the run's first sample in the caller's inputs and outputs */
    bool training, with_loss;
    /* With replicas: reduces: set if the run adds gradients over the replicas. completes: set if
     * every replica gets all sums (exchange.h). */
    bool reduces, completes;
    bool may_count_nothing;   /* set if the caller needs no mean loss, so all targets of the loss
                               * may be ignored */
    uint64_t seed, step;      /* seed and step number, from which the key of dropout is derived */
    const float *loss_scales; /* [losses] */
    /* [outputs] the caller's tensors for outputs. An entry is NULL if the caller does not need that
     * output; the pointer is NULL if the caller needs no output. */
    const cgp_tensor *const *outputs;
    int n_outputs;
    /* [outputs] the caller's gradients of the outputs, if the loss is external */
    const cgp_tensor *const *gradients;
    /* [inputs] the caller's tensors for gradients of inputs. An entry is NULL if the caller does
     * not need that gradient; the pointer is NULL if the caller needs no gradient. */
    const cgp_tensor *const *input_gradients;
} cgp__run_context;

struct cgp__executor {
    /* Set by the caller's thread before the workers start. */
    const cgp_plan *plan;
    const cgp_model *model; /* the plan's model */
    /* The executor that owns parameters, gradients, optimizer state and op states; NULL: this
     * executor owns them. */
    const cgp__executor *owner;
    /* The executor in whose allocations this executor places its devices, in layout `layout` of
     * the plan (plan/memory/replays.h); NULL: this executor allocates memory. */
    const cgp__executor *lender;
    int layout;
    cgp__team *team;
    cgp__ranks *ranks;
    cgp__worker *workers;    /* [devices] workers of other ranks have no thread and no device */
    cgp__measured *measured; /* [devices] */
    bool *reads;             /* [inputs][with_loss] set if a node of this rank reads the input */
    cgp_communicator *inproc;
    cgp__end *ends; /* [links][2] the sender's and the receiver's end of each link */
    bool *shares;   /* [links] set if the receiver copies from the sender's device memory */
    bool exports;   /* set if other ranks may have imported memory and events of this rank */
    bool keeps;     /* set if this rank's memory must not be freed, because other ranks may still
                     * use it */
    bool captures;  /* set to capture graphs if the backend supports it */
    bool branches;  /* set to run weight backward on a device's branch if the plan does so */
    bool ipc;       /* set to share edges between processes if the backend supports it */
    struct cgp__injected_faults *faults; /* faults of CGP_FAULT; NULL: none */

    /* Written by the caller's thread between jobs. */
    int replay; /* 0: steps; 1, 2: a replay of a step. Faults of CGP_FAULT apply to one of them. */
    struct cgp__message_hashes *messages; /* hashes of the run's messages; NULL: none are made */
    struct cgp__runs *runs; /* bound action lists (bind.c); NULL: there are none yet */
    int losses_capacity, rows_capacity;
    char *rows; /* per-step constants: one row for each micro-batch of the largest run */
    /* [micro-batches of the largest mini-batch][losses of the model] loss sums. The worker of the
     * last stage writes its sums; the caller's thread writes the sums that arrive from other
     * ranks. */
    double *losses;

    /* Written by the caller's thread under the team's lock. */
    cgp__run_context context; /* context of the last run; zero before the first run */
    int64_t run_start_ns;

    /* Written under the team's lock. */
    char *report;    /* report about the run that has timed out; written by the caller's thread */
    char *diagnosis; /* state at the first failure; written by the thread that failed */
};

/* These functions allocate an executor, start its threads and devices, and free it. */
cgp_status cgp__executor_init(cgp__executor *executor, const cgp_plan *plan, cgp__team *team,
                              cgp__ranks *ranks);
cgp_status cgp__executor_start(cgp__executor *executor);
void cgp__executor_deinit(cgp__executor *executor);

/* Run the action lists of all workers, as a job. */
cgp_status cgp__executor_run(cgp__executor *executor, const cgp__run_context *context);

/* Record a run of no actions. So the times of the last run are unknown. */
void cgp__executor_skip(cgp__executor *executor);

/* Return the loss sums of a run's micro-batches. */
double *cgp__executor_losses(const cgp__executor *executor, const cgp__run *run);

/* Return true if a node that runs on this rank reads input `k`. Loss nodes run only if
 * `with_loss`. */
static inline bool cgp__input_is_read(const cgp__executor *executor, int k, bool with_loss) {
    return executor->reads[2 * k + with_loss];
}

#endif
