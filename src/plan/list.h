/* SPDX-License-Identifier: Apache-2.0 */
/* list.h -- a device's bound action list for mini-batches of N samples. Slots, samples and calls
 * are filled in, so a step needs no lookups. */
#ifndef CGP_SRC_PLAN_LIST_H
#define CGP_SRC_PLAN_LIST_H

#include <cgpipe/ext/backend.h>
#include <cgpipe/plan.h>

#include "plan/location.h"

/* Maximum number of enqueued actions that are not complete: the host enqueues action i when action
 * i - CGP__AHEAD is complete. */
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
    /* If set, the action overwrites instead of adding. F overwrites its accumulators; B and I
     * overwrite weight gradients that input backward makes. */
    int first;
    /* If set, B and W overwrite the weight gradients that weight backward makes, instead of adding
     * to them. */
    int first_weight;
    /* With gradient groups: the index of the buffer in which the gradients add up, and the number
     * of additions at the end of the action (schedule/gradient_groups.h). Both are 0 if the action
     * writes no gradients. */
    int buffer, additions;
    /* number of samples of the micro-batch */
    int64_t samples;
    /* Indices of the worker's kernel set and of the worker's captured graphs (-1: none). The
     * pipeline fills in both. */
    int kernels, graphs;
} cgp__variant;

typedef struct cgp__bound_action {
    cgp_action action;
    /* index of the micro-batch's first sample in the mini-batch */
    int64_t first_sample;
    int variant;
    /* Set if the action is the last one that uses the input slot, saved slot or gradient slot of
     * its micro-batch. */
    bool frees_input, frees_saved, frees_gradient;
    /* For each other queue: the index, in the list, of the action on that queue for which this
     * action's queue waits; -1: none. */
    int wait[CGP_QUEUES];
} cgp__bound_action;

typedef struct cgp__list {
    cgp__bound_action *actions;
    int n;
    /* number of forward actions at the start of the list; with an external loss, these are all
     * forward actions */
    int n_forward;
    cgp__variant *variants;
    int n_variants, variants_capacity;
} cgp__list;

/* The samples and micro-batches of a mini-batch, or of the share that a replica runs. An evaluation
 * or prediction is forward only. */
typedef struct cgp__minibatch {
    int64_t samples;
    bool forward_only;
    /* The first micro-batch adds its weight gradients to the sums of earlier steps. With gradient
     * groups, the first group alone does so; with replicas, the first group of the whole. */
    bool adds;
    int chunks;
    /* A replica's share: the number of its first micro-batch in the whole mini-batch, and the
     * micro-batches and samples there. `of_chunks` 0: this is the whole. */
    int first, of_chunks;
    int64_t of_samples;
} cgp__minibatch;

/* Return the number of micro-batches in the whole mini-batch. */
static inline int cgp__whole_chunks(const cgp__minibatch *minibatch) {
    return minibatch->of_chunks ? minibatch->of_chunks : minibatch->chunks;
}

/* Return a replica's share of a mini-batch of `samples`, for a training step. A share may have no
 * sample. With one replica it is the whole. */
cgp__minibatch cgp__plan_share(const cgp_plan *plan, int64_t samples, int replica);

/* Bind a device's list of a lowered schedule. */
cgp_status cgp__plan_bind(const cgp_plan *plan, const cgp_schedule *schedule,
                          cgp__minibatch minibatch, int device, cgp__list *list);
void cgp__list_release(cgp__list *list);

/* Return whether two bound instances, perhaps of different lists, are equal. */
bool cgp__same_variant(const cgp__variant *a, const cgp__variant *b);

/* Return the queue on which a device runs an action. */
cgp_queue cgp__queue_of(cgp_action_kind kind);

/* Return false if the action is a transfer and its message has no values in this arena of its
 * stage; return true for any other action. `program`: the program of the bound instance. */
bool cgp__transfer_touches(const cgp_plan *plan, const cgp_action *action, int program,
                           cgp__arena arena);

/* Fill in the `wait` fields of the list's actions (waits.c). */
cgp_status cgp__plan_find_waits(const cgp_plan *plan, cgp__list *list);

#endif
