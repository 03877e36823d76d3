/* SPDX-License-Identifier: Apache-2.0 */
/* crew.h -- the replicas of a pipeline as threads of one process. If a plan has replicas of one
 * rank each, cgp_pipeline_create() makes a pipeline for each replica, and a thread for each of them
 * but the first. The caller has the pipeline of replica 0. A public call on it that is collective
 * runs on all of them:
 *
 *     caller's thread   cgp_pipeline_step ──► pipeline of replica 0
 *     thread 1                            ──► pipeline of replica 1
 *
 * So the replicas are ranks as over MPI, with the transport `threads`. All get the caller's inputs.
 * Only replica 0 writes to the caller's memory, except for predicted outputs: each replica writes
 * those of its samples. */
#ifndef CGP_SRC_PIPELINE_CREW_H
#define CGP_SRC_PIPELINE_CREW_H

#include <cgpipe/ext/transport.h>
#include <cgpipe/pipeline.h>

typedef struct cgp__crew cgp__crew;

/* The collective calls (requests.c). */
typedef enum cgp__request_kind {
    CGP__REQUEST_CREATE,
    CGP__REQUEST_REST,
    CGP__REQUEST_DESTROY,
    CGP__REQUEST_SET_TIMEOUT,
    CGP__REQUEST_MEASURE_LAYERS,
    CGP__REQUEST_LAYER_COSTS,
    CGP__REQUEST_OP_TIMES,
    CGP__REQUEST_DRIVER_BYTES,
    CGP__REQUEST_LAST_TIMES,
    CGP__REQUEST_LAST_TIMELINE,
    CGP__REQUEST_OPTIM_STEP,
    CGP__REQUEST_SET_LR,
    CGP__REQUEST_SET_GROUP_LR,
    CGP__REQUEST_SET_UPDATES,
    CGP__REQUEST_SET_ACCUMULATION,
    CGP__REQUEST_SET_TARGETS,
    CGP__REQUEST_SET_SEED,
    CGP__REQUEST_SET_INPUT_GRADIENTS,
    CGP__REQUEST_PARAMETERS_CHANGED,
    CGP__REQUEST_ZERO_GRAD,
    CGP__REQUEST_COMPLETE_GRADIENTS,
    CGP__REQUEST_CLIP_GRAD_NORM,
    CGP__REQUEST_STEP,
    CGP__REQUEST_EVALUATE,
    CGP__REQUEST_PREDICT,
    CGP__REQUEST_DIGEST,
    CGP__REQUEST_GET_PARAMETER,
    CGP__REQUEST_SET_PARAMETER,
    CGP__REQUEST_GET_GRADIENT,
    CGP__REQUEST_GET_OPTIMIZER_STATE,
    CGP__REQUEST_SET_OPTIMIZER_STATE,
    CGP__REQUEST_GET_STATE,
    CGP__REQUEST_SET_STATE,
    CGP__REQUEST_WEIGHTS_SHA256,
    CGP__REQUEST_STATE_SHA256,
    CGP__REQUEST_CHECK_DIRECTORY,
    CGP__REQUEST_SAVE,
    CGP__REQUEST_LOAD,
} cgp__request_kind;

/* A collective call and its arguments. `at` and `of` are numbers of tensors, states or elements. */
typedef struct cgp__request {
    cgp__request_kind kind;
    int64_t at, of;
    double number;
    const void *in;
    const char *directory;
    void *out, *more; /* written by replica 0 */
} cgp__request;

/* A replica's pipeline. */
typedef struct cgp__member {
    int replica;
    cgp_communicator *communicator;
    cgp_pipeline *pipeline; /* NULL: not created, or destroyed */
    bool rests;             /* set by CGP__REQUEST_REST if no worker of the replica hangs */
} cgp__member;

/* Make a call on one replica. The calling thread is this replica's thread. */
typedef cgp_status cgp__request_member(cgp__member *member, const cgp__request *call);

/* Start the threads of `replicas` replicas, of which none has a pipeline yet.
 * @retval CGP_ENOMEM */
cgp_status cgp__crew_create(cgp__crew **out, int replicas, cgp__request_member *run);

/* End the threads. No replica has a pipeline. */
void cgp__crew_destroy(cgp__crew *crew);

/* Make a call on all replicas at the same time, and wait for all of them. Return the status of
 * replica 0. If that is CGP_OK or CGP_EPEER, return the status of the first replica that has failed
 * by itself. Set cgp_message(). */
cgp_status cgp__crew_request(cgp__crew *crew, const cgp__request *call);

cgp__member *cgp__crew_member(cgp__crew *crew, int replica);

/* Return true while a call runs on all replicas. The caller's thread then makes the call on replica
 * 0 alone. */
bool cgp__crew_is_calling(const cgp__crew *crew);

/* If the pipeline has a crew, return from the enclosing function with the result of the call on all
 * replicas. The variable arguments are members of a cgp__request. */
#define CGP__ON_ALL_REPLICAS(pipeline, ...)                                                        \
    do {                                                                                           \
        if ((pipeline)->crew && !cgp__crew_is_calling((pipeline)->crew))                           \
            return cgp__crew_request((pipeline)->crew, &(cgp__request){__VA_ARGS__});              \
    } while (0)

#endif
