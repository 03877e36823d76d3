/* SPDX-License-Identifier: Apache-2.0 */
/* evidence.h -- the evidence of a step: hashes of its messages, gradients and results. If two runs
 * of a step differ, their evidence shows the first difference in the order of the data:
 *
 *     forward     stage 0, message to stage 1, stage 1, ..       losses and states of each stage
 *     backward    last stage, message to the stage before, ..    gradients of each stage
 *     reduction   sums of tied gradients, squares for clipping
 *     update      parameters and optimizer states on each device
 *
 * Within a micro-batch, a wrong number changes only what follows it in this order. So the first
 * difference is in the stage, or between the stages, in which the two runs began to differ. */
#ifndef CGP_SRC_PIPELINE_STEP_EVIDENCE_H
#define CGP_SRC_PIPELINE_STEP_EVIDENCE_H

#include <cgpipe/pipeline.h>

#include "pipeline/run/message_hashes.h"

typedef struct cgp__evidence {
    char *data; /* [bytes] the memory of all arrays below */
    size_t bytes;
    bool states_only; /* see cgp__evidence_add_results() */
    bool refused;     /* set if the step was refused, so nothing was committed or updated */
    cgp__message_hashes messages;
    /* Written by the workers of the devices that have the tensors: */
    cgp__hash16 *uses;      /* [model uses] gradients of the uses of tied parameters, before they
                             * are added up */
    cgp__hash16 *gradients; /* [parameters] complete gradients */
    cgp__hash16 *states;    /* [states] states after the step */
    cgp__hash16 *copies;    /* [copies][1 + optimizer states] parameters and optimizer states after
                             * the update */
    /* Written by the caller's thread: */
    double *losses;  /* [losses] sums over the mini-batch */
    double *squares; /* [parameters] sums of squares of gradients; 0 without clip_norm */
} cgp__evidence;

/* The kinds of differences between the evidence of two runs. */
typedef enum cgp__difference_kind {
    CGP__DIFFERS_NOT,
    CGP__DIFFERS_MESSAGE_SENT,
    CGP__DIFFERS_MESSAGE_RECEIVED,
    CGP__DIFFERS_LOSS,
    CGP__DIFFERS_STATE,
    CGP__DIFFERS_USE_GRADIENT,
    CGP__DIFFERS_GRADIENT_SUM,
    CGP__DIFFERS_SQUARES,
    CGP__DIFFERS_PARAMETER,
    CGP__DIFFERS_OPTIMIZER_STATE
} cgp__difference_kind;

/* A difference. */
typedef struct cgp__difference {
    cgp__difference_kind kind;
    int index;        /* number of the edge, loss, state, parameter or use */
    int microbatch;   /* of a message; otherwise -1 */
    int part;         /* number of an optimizer state */
    int stage;        /* stage that computed or received it; -1: the update */
    int device;       /* the plan's number of the device that did so */
    int order;        /* place in the order of the data */
    size_t at, bytes; /* place of the value in the evidence's data */
} cgp__difference;

/* Allocate and free evidence. `hashers` [devices] is borrowed. After a failure, release it too. */
cgp_status cgp__evidence_create(cgp__evidence *evidence, const cgp_plan *plan,
                                const cgp__hasher *hashers);
void cgp__evidence_release(cgp__evidence *evidence);

/* During the next step, make evidence. NULL: make none. */
void cgp__evidence_begin(const cgp_pipeline *pipeline, cgp__evidence *evidence);

/* Hash the gradients of the uses of tied parameters. cgp__step_end() calls this function before
 * these gradients are added up. */
cgp_status cgp__evidence_add_uses(cgp_pipeline *pipeline);

/* After the update, hash the results of the step. With `states_only`, hash states, parameters and
 * optimizer states, but no gradients. */
cgp_status cgp__evidence_add_results(cgp_pipeline *pipeline, cgp__evidence *evidence,
                                     bool states_only);

/* Find the first difference between the evidence of two runs of a plan. With `states_only`, compare
 * only states, parameters and optimizer states. */
cgp__difference cgp__evidence_compare(const cgp_plan *plan, const cgp__evidence *a,
                                      const cgp__evidence *b, bool states_only);

/* Return true if two runs have the same value at the place of a difference between other runs. */
bool cgp__evidence_same_at(const cgp__evidence *a, const cgp__evidence *b,
                           const cgp__difference *difference);

#endif
