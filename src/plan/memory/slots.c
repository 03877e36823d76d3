/* SPDX-License-Identifier: Apache-2.0 */
/* slots.c -- places the slots of a device's micro-batches in one pool. It finds their lifetimes by
 * walking the device's list:
 *
 *     input slot   from the first RECV_F of a micro-batch to the last action that reads it
 *     saved slot   from F, or from R where the micro-batch is recomputed, to B, or W, or to I on a
 *                  stage without W; none on a stage without backward
 *
 * SEND stands right after the action that makes its message, so no action takes a slot between the
 * two. If both slots of a stage always end together, they may be placed as one.
 *
 * The smallest of several placements is taken (pool.h). Bound instances, and with them captured
 * graphs, are as many as the pairs of an input and a saved slot of a stage. So a placement counts
 * only if it has at most twice the pairs of slots that are kept apart. */
#include "plan/memory/slots.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "plan/memory/devices.h"
#include "plan/memory/pool.h"
#include "plan/placement.h"
#include "plan/program/program.h"

/* Facts at F of a micro-batch: it is recomputed, it has a backward, this backward begins with I,
 * and it has a W. */
typedef struct facts {
    bool recomputed, backward, split, weight;
} facts;

/* The slots of a stage and micro-batch: their ranges, -1: none, and offsets, -1: none. */
typedef struct pair {
    int input_range, saved_range;
    int64_t input, saved;
} pair;

typedef struct walker {
    const cgp__stage_plan *stages;
    const cgp_plan_device *device;
    const cgp_action *actions;
    int n, microbatches;
    /* [stages of the device] both slots are placed as one */
    bool *joined;
    /* [stages x microbatches], as cell() says */
    facts *facts;
    pair *pairs, *sorted;
    int n_pairs;
    /* [2 n_pairs] */
    cgp__pool_range *ranges;
    int n_ranges;
    /* most bytes of slots in use at one time */
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

/* Return the kind of the last action of a backward. */
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

static void take_input(walker *w, const cgp__stage_plan *stage, pair *p, int i) {
    const bool joined = w->joined[stage->number];
    if (p->input_range >= 0) return;
    p->input_range =
        add_range(w, stage->info.input_slot_bytes + (joined ? stage->info.saved_slot_bytes : 0),
                  stage->number, i);
    if (joined) p->saved_range = p->input_range;
}

/* List the ranges of all slots, in order of the list. */
static void list_ranges(walker *w) {
    w->n_ranges = 0;
    for (int c = 0; c < w->n_pairs; c++)
        w->pairs[c] = (pair){-1, -1, -1, -1};
    for (int i = 0; i < w->n; i++) {
        const cgp_action *a = &w->actions[i];
        const cgp__stage_plan *stage = &w->stages[a->stage];
        const facts *f = &w->facts[cell(w, a)];
        pair *p = &w->pairs[cell(w, a)];
        if (a->kind == CGP_ACTION_RECV_F) take_input(w, stage, p, i);
        if (f->backward && a->kind == (f->recomputed ? CGP_ACTION_R : CGP_ACTION_F) &&
            p->saved_range < 0)
            p->saved_range =
                add_range(w, stage->info.saved_slot_bytes, w->device->stages + stage->number, i);
        if (p->input_range >= 0 && is_last_reader(stage, f, a->kind))
            w->ranges[p->input_range].last = i;
        if (f->backward && a->kind == last_kind(f)) w->ranges[p->saved_range].last = i;
    }
}

/* Mark the stages whose slots always end together; return true if there is one. */
static bool find_joined(walker *w) {
    bool any = false;
    for (int j = 0; j < w->device->stages; j++) {
        bool joined = true;
        for (int m = 0; m < w->microbatches && joined; m++) {
            const pair *p = &w->pairs[j * w->microbatches + m];
            const facts *f = &w->facts[j * w->microbatches + m];
            joined = p->input_range >= 0 && p->saved_range >= 0 && !f->recomputed &&
                     w->ranges[p->input_range].last == w->ranges[p->saved_range].last;
        }
        w->joined[j] = joined;
        any = any || joined;
    }
    return any;
}

/* --- placements --- */

static int by_saved(const void *a, const void *b) {
    const pair *p = a, *q = b;
    return (p->saved > q->saved) - (p->saved < q->saved);
}

static int by_offsets(const void *a, const void *b) {
    const pair *p = a, *q = b;
    return p->input != q->input ? (p->input > q->input) - (p->input < q->input) : by_saved(a, b);
}

/* Count the bound instances of a stage's actions: an action has as many as the slots that it uses
 * have offsets. `pairs`: the stage's. */
static int count_instances(const walker *w, int number, pair *pairs) {
    const cgp__stage_plan *stage = &w->stages[w->device->stage_list[number]];
    const facts *f = &w->facts[number * w->microbatches];
    int inputs = 0, saved = 0, both = 0;
    qsort(pairs, (size_t)w->microbatches, sizeof *pairs, by_offsets);
    for (int m = 0; m < w->microbatches; m++) {
        inputs += m == 0 || pairs[m].input != pairs[m - 1].input;
        both += m == 0 || by_offsets(&pairs[m], &pairs[m - 1]) != 0;
    }
    qsort(pairs, (size_t)w->microbatches, sizeof *pairs, by_saved);
    for (int m = 0; m < w->microbatches; m++)
        saved += m == 0 || pairs[m].saved != pairs[m - 1].saved;
    int n = f->recomputed ? inputs : both;
    if (f->recomputed) n += stage->recompute_reads_slot ? both : saved;
    if (f->backward) n += stage->input_reads_slot ? both : saved;
    if (f->weight) n += stage->weight_reads_slot ? both : saved;
    return n;
}

/* Fill in the offsets of all pairs. */
static void find_offsets(const walker *w) {
    for (int c = 0; c < w->n_pairs; c++) {
        pair *p = &w->pairs[c];
        const int number = c / w->microbatches;
        const cgp__stage_plan *stage = &w->stages[w->device->stage_list[number]];
        if (p->input_range >= 0) p->input = w->ranges[p->input_range].at;
        if (p->saved_range >= 0)
            p->saved = w->ranges[p->saved_range].at +
                       (w->joined[number] ? stage->info.input_slot_bytes : 0);
    }
}

static int count_all_instances(walker *w) {
    int instances = 0;
    memcpy(w->sorted, w->pairs, (size_t)w->n_pairs * sizeof *w->sorted);
    for (int j = 0; j < w->device->stages; j++)
        instances += count_instances(w, j, w->sorted + j * w->microbatches);
    return instances;
}

typedef struct placement {
    int64_t bytes;
    int instances;
} placement;

/* Place the ranges by a method, and keep the result in `slots` if it is better than `best`. */
static cgp_status try_method(walker *w, cgp__pool_method method, int most, placement *best,
                             cgp__slots *slots) {
    placement now = {0, 0};
    CGP_TRY(cgp__pool_place(w->ranges, w->n_ranges, 2 * w->device->stages, method, &now.bytes));
    if (now.bytes > best->bytes) return CGP_OK;
    find_offsets(w);
    if (method != CGP__POOL_APART || now.bytes > w->in_use) now.instances = count_all_instances(w);
    if (now.instances > most || (now.bytes == best->bytes && now.instances >= best->instances))
        return CGP_OK;
    *best = now;
    slots->bytes = now.bytes;
    for (int c = 0; c < w->n_pairs; c++) {
        slots->input[c] = w->pairs[c].input;
        slots->saved[c] = w->pairs[c].saved;
    }
    return CGP_OK;
}

/* Try all placements of the ranges. */
static cgp_status try_methods(walker *w, cgp__slots *slots) {
    placement best = {INT64_MAX, INT32_MAX};
    list_ranges(w);
    CGP_TRY(try_method(w, CGP__POOL_APART, INT32_MAX, &best, slots));
    if (best.bytes == w->in_use) return CGP_OK;
    const int most = 2 * best.instances;
    for (int joins = 0; joins < 2; joins++) {
        if (joins && !find_joined(w)) break;
        if (joins) list_ranges(w);
        for (int method = CGP__POOL_SEGREGATED; method < CGP__POOL_METHODS; method++)
            CGP_TRY(try_method(w, (cgp__pool_method)method, most, &best, slots));
    }
    return CGP_OK;
}

/* --- a device --- */

/* Count a range that begins, or ends, with action i. */
static void change(const walker *w, int range, int i, bool begins, int *count, int64_t *bytes) {
    const cgp__pool_range *r = range < 0 ? NULL : &w->ranges[range];
    if (!r || (begins ? r->first : r->last) != i) return;
    *count += begins ? 1 : -1;
    *bytes += begins ? r->bytes : -r->bytes;
}

/* Count the slots of each stage, and the bytes of all slots, that are in use at one time. */
static void count_slots(walker *w, cgp__placement *of, int *counts) {
    const int stages = w->device->stages;
    int64_t bytes = 0;
    for (int i = 0; i < w->n; i++) {
        const cgp_action *a = &w->actions[i];
        const cgp__stage_plan *stage = &w->stages[a->stage];
        const pair *p = &w->pairs[cell(w, a)];
        int *input = &counts[stage->number], *saved = &counts[stages + stage->number];
        cgp_plan_stage *info = &of->stages[a->stage].info;
        change(w, p->input_range, i, true, input, &bytes);
        change(w, p->saved_range, i, true, saved, &bytes);
        info->input_slots = (int)cgp__max(info->input_slots, *input);
        info->saved_slots = (int)cgp__max(info->saved_slots, *saved);
        w->in_use = cgp__max(w->in_use, bytes);
        change(w, p->input_range, i, false, input, &bytes);
        change(w, p->saved_range, i, false, saved, &bytes);
    }
}

static cgp_status allocate(walker *w, cgp__slots *slots) {
    const size_t pairs = (size_t)w->n_pairs;
    CGP_TRY(CGP__NEW(slots->input, 2 * pairs, "plan: slots"));
    slots->saved = slots->input + pairs;
    CGP_TRY(CGP__NEW(w->joined, w->device->stages, "plan: slots"));
    CGP_TRY(CGP__NEW(w->facts, pairs, "plan: slots"));
    CGP_TRY(CGP__NEW(w->pairs, 2 * pairs, "plan: slots"));
    w->sorted = w->pairs + pairs;
    return CGP__NEW(w->ranges, 2 * pairs, "plan: slots");
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
    w.n_pairs = w.device->stages * w.microbatches;
    slots->microbatches = w.microbatches;
    cgp_status status = allocate(&w, slots);
    if (status == CGP_OK) status = fill(&w, of, slots);
    free(w.ranges);
    free(w.pairs);
    free(w.facts);
    free(w.joined);
    return status;
}

void cgp__slots_release(cgp__slots *slots) {
    free(slots->input);
}
