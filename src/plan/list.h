/* SPDX-License-Identifier: Apache-2.0 */
/* list.h -- a device's actions for mini-batches of N samples, with slots, samples and calls filled
 * in, so that a step looks nothing up. */
#ifndef CGP_SRC_PLAN_LIST_H
#define CGP_SRC_PLAN_LIST_H

#include <cgpipe/plan.h>

#include "backend/backend.h"
#include "plan/location.h"

/* The programs of a stage, as indices. */
enum { CGP__FORWARD_NOSAVE, CGP__FORWARD_SAVED, CGP__RECOMPUTE, CGP__BACKWARD, CGP__PROGRAMS };

/* The host is at most so many actions ahead of the device: before it enqueues action i, action i -
 * CGP__AHEAD has ended. */
enum { CGP__AHEAD = 4 };

/* All that calls are bound to; equal actions of several micro-batches share one. */
typedef struct cgp__variant {
    int stage;
    /* -1: none */
    int input_slot, saved_slot;
    /* of a compute action; for SEND_F, the one its F ran */
    int program;
    /* of the program's calls, those of this action */
    int begin, end;
    /* Write, not add: F, its accumulators; B and I, the weight gradients of backward's input half.
     * */
    int first;
    /* Likewise those of its weight half. */
    int first_weight;
    /* of a micro-batch */
    int64_t samples;
    /* filled in by the pipeline: index of the worker's kernel set; of its recordings, -1: none */
    int kernels, recordings;
} cgp__variant;

typedef struct cgp__bound_action {
    cgp_action action;
    /* of the mini-batch */
    int64_t first_sample;
    int variant;
    /* Its queue waits for these actions of the list, on the other queues; -1: none. */
    int wait[CGP_QUEUES];
} cgp__bound_action;

typedef struct cgp__list {
    cgp__bound_action *actions;
    int n;
    /* with an external loss: the first actions, up to here, are forward */
    int n_forward;
    cgp__variant *variants;
    int n_variants, variants_capacity;
} cgp__list;

/* A mini-batch: its samples and micro-batches; an evaluation or prediction is forward only. */
typedef struct cgp__minibatch {
    int64_t samples;
    bool forward_only;
    int chunks;
} cgp__minibatch;

/* Bind a device's list of a lowered schedule. */
cgp_status cgp__plan_bind(const cgp_plan *plan, const cgp_schedule *schedule,
                          cgp__minibatch minibatch, int device, cgp__list *list);
void cgp__list_release(cgp__list *list);

/* Return whether two variants are one, of two lists too. */
bool cgp__same_variant(const cgp__variant *a, const cgp__variant *b);

/* The queue of a device that runs an action. */
cgp_queue cgp__queue_of(cgp_action_kind kind);

/* waits.c: fill in the actions' waits. */
cgp_status cgp__plan_find_waits(const cgp_plan *plan, int device, cgp__list *list);

#endif
