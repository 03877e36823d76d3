/* SPDX-License-Identifier: Apache-2.0 */
/* list.h -- a device's actions for mini-batches of N samples, with slots, samples and calls filled
 * in, so that a step needs no lookups. */
#ifndef CGP_SRC_PLAN_LIST_H
#define CGP_SRC_PLAN_LIST_H

#include <cgpipe/ext/backend.h>
#include <cgpipe/plan.h>

#include "plan/location.h"

/* Maximum number of actions in flight: the host enqueues action i when action i - CGP__AHEAD is
 * complete. */
enum { CGP__AHEAD = 4 };

/* A bound instance: everything that an action's calls are bound to. Equal actions of several
 * micro-batches share an instance. */
typedef struct cgp__variant {
    int stage;
    /* offsets of the slots in the device's pool; -1: the action uses no such slot */
    int64_t input_slot, saved_slot, gradient_slot;
    /* program of a compute action; for SEND_F, the program that F of the same micro-batch ran */
    int program;
    /* calls of the program that the action runs: begin .. end - 1 */
    int begin, end;
    /* Overwrite instead of adding: F overwrites its accumulators; B and I overwrite weight
     * gradients that input backward makes. */
    int first;
    /* Overwrite instead of adding: B and W overwrite weight gradients that weight backward
     * makes. */
    int first_weight;
    /* With gradient groups: the buffer in which the gradients add up, and the additions at the end
     * of the action (schedule/gradient_groups.h). 0 if it writes no gradients. */
    int buffer, additions;
    /* samples of the micro-batch */
    int64_t samples;
    /* filled in by the pipeline: indices of the worker's kernel set and of its captured graphs (-1:
     * none) */
    int kernels, graphs;
} cgp__variant;

typedef struct cgp__bound_action {
    cgp_action action;
    /* index of the micro-batch's first sample in the mini-batch */
    int64_t first_sample;
    int variant;
    /* The action is the last that uses this slot of its micro-batch. */
    bool frees_input, frees_saved, frees_gradient;
    /* Actions of the list, one on each other queue, for which this action's queue waits; -1:
     * none. */
    int wait[CGP_QUEUES];
} cgp__bound_action;

typedef struct cgp__list {
    cgp__bound_action *actions;
    int n;
    /* number of forward actions at the start of the list (with an external loss: all forward
     * actions) */
    int n_forward;
    cgp__variant *variants;
    int n_variants, variants_capacity;
} cgp__list;

/* A mini-batch: its samples and micro-batches; an evaluation or prediction is forward only. */
typedef struct cgp__minibatch {
    int64_t samples;
    bool forward_only;
    /* The first micro-batch adds its weight gradients to the gradients of earlier steps. With
     * gradient groups, only the first group does so. */
    bool adds;
    int chunks;
} cgp__minibatch;

/* Bind a device's list of a lowered schedule. */
cgp_status cgp__plan_bind(const cgp_plan *plan, const cgp_schedule *schedule,
                          cgp__minibatch minibatch, int device, cgp__list *list);
void cgp__list_release(cgp__list *list);

/* Return whether two bound instances, perhaps of different lists, are equal. */
bool cgp__same_variant(const cgp__variant *a, const cgp__variant *b);

/* Return the queue on which a device runs an action. */
cgp_queue cgp__queue_of(cgp_action_kind kind);

/* Return false if a transfer's message has no values in an arena of its stage; true for any other
 * action. `program`: of the bound instance. */
bool cgp__transfer_touches(const cgp_plan *plan, const cgp_action *action, int program,
                           cgp__arena arena);

/* waits.c: fill in the actions' waits. */
cgp_status cgp__plan_find_waits(const cgp_plan *plan, cgp__list *list);

#endif
