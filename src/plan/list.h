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

/* A bound instance. It has all data to which the calls of an action are bound. Equal actions of
 * several micro-batches share an instance. */
typedef struct cgp__variant {
    int stage;
    /* offsets of the slots in the device's pool; -1: the action does not use the slot */
    int64_t input_slot, saved_slot, gradient_slot;
    /* program of a compute action; for SEND_F, the program that F of the same micro-batch ran */
    int program;
    /* calls of the program that the action runs: begin .. end - 1 */
    int begin, end;
    /* If set, the action overwrites its sums instead of adding to them. F overwrites its
     * accumulators; B and I overwrite the weight gradients that input backward makes. */
    int first;
    /* If set, B and W overwrite the weight gradients that weight backward makes. Otherwise they add
     * to these gradients. */
    int first_weight;
    /* For plans with gradient groups: the index of the buffer that accumulates the gradients, and
     * the number of additions at the end of the action (schedule/gradient_groups.h). Both are 0 if
     * the action writes no gradients. */
    int buffer, additions;
    /* number of samples of the micro-batch */
    int64_t samples;
    /* Indices of the worker's kernel set and of the worker's captured graphs (-1: none). The
     * pipeline sets both. */
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
    /* wait[q]: before this action, its queue waits for the action on queue q that has this list
     * index; -1: no wait */
    int wait[CGP_QUEUES];
} cgp__bound_action;

/* The last action that writes a piece of gradients, and the last call of the action's program that
 * does so; -1: none. */
typedef struct cgp__completion {
    int action, call;
} cgp__completion;

typedef struct cgp__list {
    cgp__bound_action *actions;
    int n;
    /* number of forward actions at the start of the list; if the loss is external, all forward
     * actions are at the start */
    int n_forward;
    cgp__variant *variants;
    int n_variants, variants_capacity;
    /* With replicas: when the pieces of the device's gradients are complete, in the order in which
     * they are exchanged (memory/shards.h). */
    cgp__completion *pieces;
    int n_pieces;
} cgp__list;

/* The samples and micro-batches of a mini-batch, or of a replica's share of a mini-batch. An
 * evaluation or prediction is forward only. */
typedef struct cgp__minibatch {
    int64_t samples;
    bool forward_only;
    /* Set if the first micro-batch adds its weight gradients to the sums of earlier steps. If there
     * are gradient groups or replicas, only the first gradient group of the whole mini-batch does
     * so. */
    bool adds;
    int chunks;
    /* For a replica's share: the index of its first micro-batch in the whole mini-batch, and the
     * numbers of micro-batches and samples of the whole mini-batch. If `of_chunks` is 0, this
     * struct describes a whole mini-batch. */
    int first, of_chunks;
    int64_t of_samples;
} cgp__minibatch;

/* Return the number of micro-batches in the whole mini-batch. */
static inline int cgp__whole_chunks(const cgp__minibatch *minibatch) {
    return minibatch->of_chunks ? minibatch->of_chunks : minibatch->chunks;
}

/* Return a replica's share of a training mini-batch of `samples` samples. A share may have no
 * samples. If there is only one replica, its share is the whole mini-batch. */
cgp__minibatch cgp__plan_share(const cgp_plan *plan, int64_t samples, int replica);

/* Bind the action list of a device in a lowered schedule. */
cgp_status cgp__plan_bind(const cgp_plan *plan, const cgp_schedule *schedule,
                          cgp__minibatch minibatch, int device, cgp__list *list);
void cgp__list_release(cgp__list *list);

/* Return true if two bound instances are equal; they may belong to different lists. */
bool cgp__same_variant(const cgp__variant *a, const cgp__variant *b);

/* Return the queue on which a device runs an action. */
cgp_queue cgp__queue_of(cgp_action_kind kind);

/* Return false if the action is a transfer whose message has no values in `arena` of the action's
 * stage. Otherwise return true. `program` is the program of the bound instance. */
bool cgp__transfer_touches(const cgp_plan *plan, const cgp_action *action, int program,
                           cgp__arena arena);

/* Fill in the list's pieces (complete.c). */
cgp_status cgp__plan_find_complete(const cgp_plan *plan, int device, cgp__list *list);

/* Fill in the `wait` fields of the list's actions (waits.c). */
cgp_status cgp__plan_find_waits(const cgp_plan *plan, cgp__list *list);

#endif
