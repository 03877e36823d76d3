/* SPDX-License-Identifier: Apache-2.0 */
/* slots.c -- places the slots of a device's micro-batches in one pool. It finds the slots'
 * lifetimes by walking the device's action list:
 *
 *     input slot      from the first RECV_F of a micro-batch to the last action that reads it
 *     saved slot      from F (from R if the micro-batch is recomputed) to B or W (to I on a stage
 *                     without W); none on a stage without backward
 *     gradient slot   from the first RECV_B, or B or I, to B or W
 *
 * A SEND immediately follows the action that makes its message, so no action takes a slot between
 * the two. If the lifetimes of a stage's input slots and saved slots always end together, an input
 * slot and its saved slot may be placed as one range. The lifetimes of saved slots and gradient
 * slots always end together, so they may also be placed as one range.
 *
 * The smallest of several placements is used (pool.h). Each different combination of offsets of an
 * action's slots needs another bound instance and another captured graph. So a placement is
 * accepted only if it has at most twice as many bound instances as a placement in which stages
 * share no blocks. */
#include "plan/memory/slots.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "plan/memory/devices.h"
#include "plan/memory/pool.h"
#include "plan/placement.h"
#include "plan/program/program.h"

/* Facts about a micro-batch on a stage, collected before lifetimes are computed. The flags are set
 * if the micro-batch is recomputed, has a backward, has a split backward (I), or has a W. */
typedef struct facts {
    bool recomputed, backward, split, weight;
} facts;

enum { INPUT, SAVED, GRADIENT, KINDS };

/* The ranges and the offsets of the slots of one micro-batch on one stage; -1: no such slot. */
typedef struct triple {
    int range[KINDS];
    int64_t at[KINDS];
} triple;

typedef struct walker {
    const cgp__stage_plan *stages;
    const cgp_plan_device *device;
    const cgp_action *actions;
    int n, microbatches;
    /* [stages of the device] set if the stage's input slots are placed together with its saved
     * slots */
    bool *joins_input;
    /* set if gradient slots are placed together with saved slots */
    bool joins_gradient;
    /* [stages x microbatches], indexed by cell() */
    facts *facts;
    triple *triples;
    /* [microbatches] scratch for sorting */
    triple *sorted;
    int n_triples;
    /* [KINDS x n_triples] */
    cgp__pool_range *ranges;
    int n_ranges;
    /* maximum bytes of slots in use at one time */
    int64_t in_use;
} walker;

/* --- lifetimes --- */

static int cell(const walker *w, const cgp_action *a) {
    return w->stages[a->stage].number * w->microbatches + a->microbatch;
}

static void gather(const walker *w) {
    for (int i = 0; i < w->n; i++) {
        facts *f = &w->facts[cell(w, &w->actions[i])];
        const cgp_action_kind kind = w->actions[i].kind;
        f->recomputed = f->recomputed || kind == CGP_ACTION_R;
        f->split = f->split || kind == CGP_ACTION_I;
        f->weight = f->weight || kind == CGP_ACTION_W;
        f->backward = f->backward || kind == CGP_ACTION_B || kind == CGP_ACTION_I;
    }
}

/* Return the kind of the last action of a micro-batch's backward. */
static cgp_action_kind last_kind(const facts *f) {
    if (f->weight) return CGP_ACTION_W;
    return f->split ? CGP_ACTION_I : CGP_ACTION_B;
}

static bool is_last_reader(const cgp__stage_plan *stage, const facts *f, cgp_action_kind kind) {
    if (f->backward && stage->weight_reads_slot) return kind == last_kind(f);
    if (f->backward && stage->input_reads_slot)
        return kind == (f->split ? CGP_ACTION_I : CGP_ACTION_B);
    if (f->recomputed && stage->recompute_reads_slot) return kind == CGP_ACTION_R;
    return kind == CGP_ACTION_F;
}

static int add_range(walker *w, int64_t bytes, int kind, int first) {
    w->ranges[w->n_ranges] =
        (cgp__pool_range){.bytes = bytes, .kind = kind, .first = first, .last = first};
    return w->n_ranges++;
}

static int64_t bytes_of(const cgp__stage_plan *stage, int kind) {
    return kind == INPUT   ? stage->info.input_slot_bytes
           : kind == SAVED ? stage->info.saved_slot_bytes
                           : stage->gradient_slot_bytes;
}

/* Begin the range of a slot of kind `kind`, unless the micro-batch already has one. Slots that are
 * placed together have one range. */
static void take(walker *w, const cgp__stage_plan *stage, triple *t, int kind, int i) {
    const bool joined[KINDS] = {w->joins_input[stage->number], true, w->joins_gradient};
    int64_t bytes = 0;
    if (t->range[kind] >= 0) return;
    for (int k = 0; k < KINDS; k++)
        bytes += k == kind || (joined[kind] && joined[k]) ? bytes_of(stage, k) : 0;
    const int range =
        add_range(w, bytes, (joined[kind] ? SAVED : kind) * w->device->stages + stage->number, i);
    for (int k = 0; k < KINDS; k++) {
        if (k == kind || (joined[kind] && joined[k])) t->range[k] = range;
    }
}

/* Return true if the stage has gradient slots, and an action of this kind may be the first to use a
 * gradient slot. */
static bool takes_gradient(const cgp__stage_plan *stage, const facts *f, cgp_action_kind kind) {
    return stage->gradient_slot_bytes > 0 && f->backward &&
           (kind == CGP_ACTION_RECV_B || kind == CGP_ACTION_B || kind == CGP_ACTION_I);
}

/* List the ranges of all slots, in the order of the device's action list. */
static void list_ranges(walker *w) {
    w->n_ranges = 0;
    for (int c = 0; c < w->n_triples; c++)
        w->triples[c] = (triple){{-1, -1, -1}, {-1, -1, -1}};
    for (int i = 0; i < w->n; i++) {
        const cgp_action *a = &w->actions[i];
        const cgp__stage_plan *stage = &w->stages[a->stage];
        const facts *f = &w->facts[cell(w, a)];
        triple *t = &w->triples[cell(w, a)];
        if (a->kind == CGP_ACTION_RECV_F) take(w, stage, t, INPUT, i);
        if (f->backward && a->kind == (f->recomputed ? CGP_ACTION_R : CGP_ACTION_F))
            take(w, stage, t, SAVED, i);
        if (takes_gradient(stage, f, a->kind)) take(w, stage, t, GRADIENT, i);
        if (t->range[INPUT] >= 0 && is_last_reader(stage, f, a->kind))
            w->ranges[t->range[INPUT]].last = i;
        if (!f->backward || a->kind != last_kind(f)) continue;
        w->ranges[t->range[SAVED]].last = i;
        if (t->range[GRADIENT] >= 0) w->ranges[t->range[GRADIENT]].last = i;
    }
}

/* Mark the stages on which the lifetimes of a micro-batch's input slot and saved slot always end
 * together. Return true if there is at least one such stage. */
static bool find_joined(walker *w) {
    bool any = false;
    for (int j = 0; j < w->device->stages; j++) {
        bool joined = true;
        for (int m = 0; m < w->microbatches && joined; m++) {
            const triple *t = &w->triples[j * w->microbatches + m];
            joined = t->range[INPUT] >= 0 && t->range[SAVED] >= 0 &&
                     !w->facts[j * w->microbatches + m].recomputed &&
                     w->ranges[t->range[INPUT]].last == w->ranges[t->range[SAVED]].last;
        }
        w->joins_input[j] = joined;
        any = any || joined;
    }
    return any;
}

/* --- placements --- */

static int by_offsets(const void *a, const void *b) {
    const triple *p = a, *q = b;
    for (int k = 0; k < KINDS; k++) {
        if (p->at[k] != q->at[k]) return p->at[k] > q->at[k] ? 1 : -1;
    }
    return 0;
}

/* Return the number of bound instances of one action kind of a stage. The flags say which kinds of
 * slots the action uses. */
static int count_different(const walker *w, int number, bool input, bool saved, bool gradient) {
    const bool uses[KINDS] = {input, saved, gradient};
    int n = 1;
    for (int m = 0; m < w->microbatches; m++) {
        w->sorted[m] = w->triples[number * w->microbatches + m];
        for (int k = 0; k < KINDS; k++)
            w->sorted[m].at[k] = uses[k] ? w->sorted[m].at[k] : -1;
    }
    qsort(w->sorted, (size_t)w->microbatches, sizeof *w->sorted, by_offsets);
    for (int m = 1; m < w->microbatches; m++)
        n += by_offsets(&w->sorted[m], &w->sorted[m - 1]) != 0;
    return n;
}

/* Return the number of bound instances of all actions. */
static int count_instances(const walker *w) {
    int n = 0;
    for (int j = 0; j < w->device->stages; j++) {
        const cgp__stage_plan *stage = &w->stages[w->device->stage_list[j]];
        const facts *f = &w->facts[j * w->microbatches];
        n += count_different(w, j, true, !f->recomputed, false);
        if (f->recomputed) n += count_different(w, j, stage->recompute_reads_slot, true, false);
        if (f->backward) n += count_different(w, j, stage->input_reads_slot, true, true);
        if (f->weight) n += count_different(w, j, stage->weight_reads_slot, true, true);
    }
    return n;
}

/* Set the offsets of all slots. In a joint range, the saved slot comes first, then the input slot,
 * then the gradient slot. */
static void find_offsets(const walker *w) {
    for (int c = 0; c < w->n_triples; c++) {
        triple *t = &w->triples[c];
        const int number = c / w->microbatches;
        const cgp__stage_plan *stage = &w->stages[w->device->stage_list[number]];
        int64_t behind[KINDS] = {0};
        if (w->joins_input[number]) behind[INPUT] = bytes_of(stage, SAVED);
        if (w->joins_gradient)
            behind[GRADIENT] =
                bytes_of(stage, SAVED) + (w->joins_input[number] ? bytes_of(stage, INPUT) : 0);
        for (int k = 0; k < KINDS; k++) {
            if (t->range[k] >= 0) t->at[k] = w->ranges[t->range[k]].at + behind[k];
        }
    }
}

typedef struct placement {
    int64_t bytes;
    int instances;
} placement;

/* Place the ranges by a method, and keep the result in `slots` if it is better than `best`. */
static cgp_status try_method(walker *w, cgp__pool_method method, int most, placement *best,
                             cgp__slots *slots) {
    placement now = {0, 0};
    CGP_TRY(cgp__pool_place(w->ranges, w->n_ranges, KINDS * w->device->stages, method, &now.bytes));
    if (now.bytes > best->bytes) return CGP_OK;
    find_offsets(w);
    if (method != CGP__POOL_APART || now.bytes > w->in_use) now.instances = count_instances(w);
    if (now.instances > most || (now.bytes == best->bytes && now.instances >= best->instances))
        return CGP_OK;
    *best = now;
    slots->bytes = now.bytes;
    for (int c = 0; c < w->n_triples; c++) {
        slots->input[c] = w->triples[c].at[INPUT];
        slots->saved[c] = w->triples[c].at[SAVED];
        slots->gradient[c] = w->triples[c].at[GRADIENT];
    }
    return CGP_OK;
}

static bool has_gradient_slots(const walker *w) {
    bool has = false;
    for (int j = 0; j < w->device->stages; j++)
        has = has || w->stages[w->device->stage_list[j]].gradient_slot_bytes > 0;
    return has;
}

/* Try all placements of the ranges. */
static cgp_status try_methods(walker *w, cgp__slots *slots) {
    placement best = {INT64_MAX, INT32_MAX};
    w->joins_gradient = true;
    list_ranges(w);
    CGP_TRY(try_method(w, CGP__POOL_APART, INT32_MAX, &best, slots));
    if (best.bytes == w->in_use) return CGP_OK;
    const int most = 2 * best.instances;
    for (int joins = 0; joins < 4; joins++) {
        memset(w->joins_input, 0, (size_t)w->device->stages * sizeof *w->joins_input);
        w->joins_gradient = joins < 2;
        if (!w->joins_gradient && !has_gradient_slots(w)) break;
        list_ranges(w);
        if (joins % 2 && !find_joined(w)) continue;
        if (joins % 2) list_ranges(w);
        for (int method = CGP__POOL_SEGREGATED; method < CGP__POOL_METHODS; method++)
            CGP_TRY(try_method(w, (cgp__pool_method)method, most, &best, slots));
    }
    return CGP_OK;
}

/* --- a device --- */

/* If `begins`, add a range that begins with action `i` to the counts; otherwise, subtract a range
 * that ends with action `i`. */
static void change(const walker *w, int range, int i, bool begins, int *count, int64_t *bytes) {
    const cgp__pool_range *r = range < 0 ? NULL : &w->ranges[range];
    if (!r || (begins ? r->first : r->last) != i) return;
    *count += begins ? 1 : -1;
    *bytes += begins ? r->bytes : -r->bytes;
}

/* Find two maxima over time: the number of slots of each stage in use, and the bytes of all slots
 * in use. */
static void count_slots(walker *w, cgp__placement *of, int *counts) {
    const int stages = w->device->stages;
    int64_t bytes = 0;
    int gradients = 0;
    for (int i = 0; i < w->n; i++) {
        const cgp_action *a = &w->actions[i];
        const cgp__stage_plan *stage = &w->stages[a->stage];
        const triple *t = &w->triples[cell(w, a)];
        int *input = &counts[stage->number], *saved = &counts[stages + stage->number];
        cgp_plan_stage *info = &of->stages[a->stage].info;
        change(w, t->range[INPUT], i, true, input, &bytes);
        change(w, t->range[SAVED], i, true, saved, &bytes);
        change(w, t->range[GRADIENT], i, true, &gradients, &bytes);
        info->input_slots = (int)cgp__max(info->input_slots, *input);
        info->saved_slots = (int)cgp__max(info->saved_slots, *saved);
        w->in_use = cgp__max(w->in_use, bytes);
        change(w, t->range[INPUT], i, false, input, &bytes);
        change(w, t->range[SAVED], i, false, saved, &bytes);
        change(w, t->range[GRADIENT], i, false, &gradients, &bytes);
    }
}

static cgp_status allocate(walker *w, cgp__slots *slots) {
    const size_t n = (size_t)w->n_triples;
    CGP_TRY(CGP__NEW(slots->input, KINDS * n, "plan: slots"));
    slots->saved = slots->input + n;
    slots->gradient = slots->saved + n;
    CGP_TRY(CGP__NEW(w->joins_input, w->device->stages, "plan: slots"));
    CGP_TRY(CGP__NEW(w->facts, n, "plan: slots"));
    CGP_TRY(CGP__NEW(w->triples, n + (size_t)w->microbatches, "plan: slots"));
    w->sorted = w->triples + n;
    return CGP__NEW(w->ranges, KINDS * n, "plan: slots");
}

static cgp_status fill(walker *w, cgp__placement *of, cgp__slots *slots) {
    int *counts = NULL;
    gather(w);
    list_ranges(w);
    CGP_TRY(CGP__NEW(counts, 2 * w->device->stages, "plan: slots"));
    count_slots(w, of, counts);
    free(counts);
    return try_methods(w, slots);
}

cgp_status cgp__place_slots(cgp__placement *of, const cgp_schedule *schedule, int device) {
    cgp__slots *slots = &of->devices[device].slots;
    walker w = {.stages = of->stages,
                .device = &of->devices[device].info,
                .microbatches = cgp_schedule_chunks(schedule)};
    w.actions = cgp_schedule_actions(schedule, device, &w.n);
    w.n_triples = w.device->stages * w.microbatches;
    slots->microbatches = w.microbatches;
    cgp_status status = allocate(&w, slots);
    if (status == CGP_OK) status = fill(&w, of, slots);
    free(w.ranges);
    free(w.triples);
    free(w.facts);
    free(w.joins_input);
    return status;
}

void cgp__slots_release(cgp__slots *slots) {
    free(slots->input);
}
