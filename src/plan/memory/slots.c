/* SPDX-License-Identifier: Apache-2.0 */
/* slots.c -- assigns slots to actions by walking a device's list. The plan has as many slots as are
 * ever in use at the same time.
 *
 *     input slot   from the first RECV_F of a micro-batch to the last action that reads it
 *     saved slot   from F, or from R where the micro-batch is recomputed, to B, or W, or to I on a
 *                  stage without W; none on a stage without backward
 *
 * A slot freed by an action is reused by a later action, lowest number first. */
#include "plan/memory/slots.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "plan/memory/devices.h"
#include "plan/placement.h"
#include "plan/program/program.h"

/* Slots of one kind on one stage. Every slot below `max` is either taken or in the heap. */
typedef struct pool {
    int *of;   /* [microbatches] slot of each micro-batch; -1: none yet */
    int *heap; /* [microbatches] free slots, a binary min-heap */
    int n_free, max;
} pool;

static void swap(int *a, int *b) {
    const int kept = *a;
    *a = *b;
    *b = kept;
}

static int take_lowest(pool *p) {
    const int lowest = p->heap[0];
    p->heap[0] = p->heap[--p->n_free];
    for (int i = 0, child; (child = 2 * i + 1) < p->n_free; i = child) {
        if (child + 1 < p->n_free && p->heap[child + 1] < p->heap[child]) child++;
        if (p->heap[i] <= p->heap[child]) break;
        swap(&p->heap[i], &p->heap[child]);
    }
    return lowest;
}

static void take(pool *p, int microbatch) {
    p->of[microbatch] = p->n_free > 0 ? take_lowest(p) : p->max++;
}

static void give(pool *p, int microbatch) {
    if (p->of[microbatch] < 0) return;
    int i = p->n_free++;
    p->heap[i] = p->of[microbatch];
    for (; i > 0 && p->heap[i] < p->heap[(i - 1) / 2]; i = (i - 1) / 2)
        swap(&p->heap[i], &p->heap[(i - 1) / 2]);
}

/* Facts that the walk needs at F of a micro-batch: the micro-batch is recomputed, it has a
 * backward, this backward begins with I, and it has a W. */
typedef struct facts {
    /* [stages of the device x microbatches] indexed by cell() */
    bool *recomputed, *backward, *split, *weight;
} facts;

/* Return the index of an action's stage and micro-batch in the arrays of `facts`. */
static size_t cell(const cgp__stage_plan *stages, const cgp_action *a, int chunks) {
    return (size_t)stages[a->stage].number * (size_t)chunks + (size_t)a->microbatch;
}

static void gather(const cgp__stage_plan *stages, const cgp_action *actions, int n, int chunks,
                   facts *f) {
    for (int i = 0; i < n; i++) {
        const size_t at = cell(stages, &actions[i], chunks);
        f->recomputed[at] = f->recomputed[at] || actions[i].kind == CGP_ACTION_R;
        f->split[at] = f->split[at] || actions[i].kind == CGP_ACTION_I;
        f->weight[at] = f->weight[at] || actions[i].kind == CGP_ACTION_W;
        f->backward[at] =
            f->backward[at] || actions[i].kind == CGP_ACTION_B || actions[i].kind == CGP_ACTION_I;
    }
}

/* Return the kind of the last action of a backward. */
static cgp_action_kind last_kind(const facts *f, size_t at) {
    if (f->weight[at]) return CGP_ACTION_W;
    return f->split[at] ? CGP_ACTION_I : CGP_ACTION_B;
}

static bool last_reader_of_input(const cgp__stage_plan *stage, const facts *f, size_t at,
                                 cgp_action_kind kind) {
    const bool split = f->split[at];
    if (f->backward[at] && stage->weight_reads_slot) return kind == last_kind(f, at);
    if (f->backward[at] && stage->input_reads_slot)
        return kind == (split ? CGP_ACTION_I : CGP_ACTION_B);
    if (f->recomputed[at] && stage->recompute_reads_slot) return kind == CGP_ACTION_R;
    return kind == CGP_ACTION_F;
}

static void walk(const cgp__stage_plan *stages, const cgp_action *actions, int n, int chunks,
                 const facts *f, pool *inputs, pool *saved, int *input_slot, int *saved_slot) {
    for (int i = 0; i < n; i++) {
        const cgp_action *a = &actions[i];
        const cgp__stage_plan *stage = &stages[a->stage];
        const size_t at = cell(stages, a, chunks);
        pool *in = &inputs[stage->number], *out = &saved[stage->number];
        if (a->kind == CGP_ACTION_RECV_F && in->of[a->microbatch] < 0) take(in, a->microbatch);
        const bool fills =
            f->backward[at] && a->kind == (f->recomputed[at] ? CGP_ACTION_R : CGP_ACTION_F);
        if (fills) take(out, a->microbatch);
        if (input_slot) input_slot[i] = in->of[a->microbatch];
        if (saved_slot) saved_slot[i] = out->of[a->microbatch];
        if (last_reader_of_input(stage, f, at, a->kind)) give(in, a->microbatch);
        if (a->kind == last_kind(f, at)) give(out, a->microbatch);
    }
}

cgp_status cgp__assign_slots(const cgp__placement *placement, const cgp_schedule *schedule,
                             int device, int *input_slot, int *saved_slot, int *input_count,
                             int *saved_count) {
    int n = 0;
    const cgp_action *actions = cgp_schedule_actions(schedule, device, &n);
    const cgp_plan_device *info = &placement->devices[device].info;
    const int chunks = cgp_schedule_chunks(schedule), stages = info->stages;
    const size_t cells = (size_t)stages * (size_t)chunks;
    pool *pools = cgp__calloc(2 * (size_t)stages, sizeof *pools);
    int *numbers = cgp__calloc(4 * cells, sizeof *numbers);
    bool *flags = cgp__calloc(4 * cells, sizeof *flags);
    const bool ready = pools && numbers && flags;
    if (ready) {
        memset(numbers, 0xff, 2 * cells * sizeof *numbers); /* -1 */
        for (int j = 0; j < 2 * stages; j++) {
            pools[j].of = numbers + (size_t)j * (size_t)chunks;
            pools[j].heap = numbers + 2 * cells + (size_t)j * (size_t)chunks;
        }
        facts f = {flags, flags + cells, flags + 2 * cells, flags + 3 * cells};
        gather(placement->stages, actions, n, chunks, &f);
        walk(placement->stages, actions, n, chunks, &f, pools, pools + stages, input_slot,
             saved_slot);
        for (int j = 0; j < stages; j++) {
            if (input_count) input_count[info->stage_list[j]] = pools[j].max;
            if (saved_count) saved_count[info->stage_list[j]] = pools[stages + j].max;
        }
    }
    free(pools);
    free(numbers);
    free(flags);
    return ready ? CGP_OK : cgp__no_memory("plan: slots", 4 * cells * sizeof *numbers);
}
