/* SPDX-License-Identifier: Apache-2.0 */
/* objective.c -- simulates a step for many different cuts. Messages take no time, and buffers are
 * unbounded, as in the simulation that a plan makes.
 *
 * The cuts do not change which actions an action waits for. So the actions of all devices are first
 * put into one order, in which each action comes after all actions that it waits for:
 *
 *     device 0   F0 F1 B0 B1
 *     device 1      F0 B0 F1 B1           F0 F1 | F0' B0' | B0 | F1' B1' | B1      ' is device 1
 *
 * A simulation is one pass over that order. An action starts when its device's previous action and
 * all actions that it waits for have ended. */
#include "partition/objective.h"

#include <stdlib.h>
#include <string.h>

#include "schedule/table.h"

struct cgp__ordered_action {
    /* combined index of micro-batch and stage: micro-batch x stages + stage */
    int cell;
    int stage;
    cgp_action_kind kind;
};

/* --- the order --- */

typedef struct orderer {
    const cgp_schedule *schedule;
    int *next;                   /* [devices] */
    uint8_t *done;               /* [chunks][stages] actions in the order so far; bit 0: F, bit 1: B
                                  * or I */
    bool *waiting;               /* [devices] */
    int *ready, n_ready;         /* a stack of devices */
    int *count_in, *count_saved; /* [stages] current numbers of micro-batches whose inputs, and
                                  * whose saved values, the stage holds */
    bool *recomputed;            /* [stages] whether the schedule has R on this stage */
    cgp_action_kind *ends;       /* [stages] the kind of action that frees what forward saved */
} orderer;

static void wake(orderer *o, int device) {
    if (!o->waiting[device]) return;
    o->waiting[device] = false;
    o->ready[o->n_ready++] = device;
}

/* After an action, count the micro-batches whose values a stage holds. */
static void count(cgp__objective *x, orderer *o, const cgp_action *a) {
    const int j = a->stage;
    x->counts[(size_t)a->kind * x->stages + j]++;
    if (a->kind == CGP_ACTION_F) o->count_in[j]++;
    if (a->kind == (o->recomputed[j] ? CGP_ACTION_R : CGP_ACTION_F)) o->count_saved[j]++;
    x->inputs[j] = cgp__max(x->inputs[j], o->count_in[j]);
    x->saved[j] = cgp__max(x->saved[j], o->count_saved[j]);
    if (!cgp__ends(a, o->ends)) return;
    o->count_in[j]--;
    o->count_saved[j]--;
}

/* Return the nearest stage with a backward: after stage j if `by` is 1, before stage j if `by` is
 * -1. Return -1 if there is none. */
static int next_backward(const cgp__objective *x, const orderer *o, int j, int by) {
    for (j += by; j >= 0 && j < x->stages; j += by) {
        if (o->ends[j] != CGP_ACTION_F) return j;
    }
    return -1;
}

/* Append the next action of a device to the order, unless this action must wait. */
static bool append(cgp__objective *x, orderer *o, int device) {
    const cgp_action *a = &o->schedule->lists[device][o->next[device]];
    const int j = a->stage, cell = a->microbatch * x->stages + j;
    const bool forward = a->kind == CGP_ACTION_F, backward = cgp__starts_backward(a->kind);
    if (forward && j > 0 && !(o->done[cell - 1] & 1)) return false;
    const int after = backward ? next_backward(x, o, j, 1) : -1;
    if (after >= 0 && !(o->done[cell + after - j] & 2)) return false;
    x->order[x->n++] = (cgp__ordered_action){cell, j, a->kind};
    count(x, o, a);
    o->next[device]++;
    if (forward) {
        o->done[cell] |= 1;
        if (j < x->stages - 1) wake(o, x->device_of[j + 1]);
    } else if (backward) {
        const int before = next_backward(x, o, j, -1);
        o->done[cell] |= 2;
        if (before >= 0) wake(o, x->device_of[before]);
    }
    return true;
}

static cgp_status put_in_order(cgp__objective *x, orderer *o) {
    const int *counts = o->schedule->counts;
    int left = 0;
    for (int d = x->devices - 1; d >= 0; d--) {
        left += counts[d];
        o->ready[o->n_ready++] = d;
    }
    for (cgp__cursor at = {0}; cgp__next(o->schedule, &at);)
        o->recomputed[at.action->stage] |= at.action->kind == CGP_ACTION_R;
    if (!cgp__grow(&x->order, &x->capacity, left, sizeof *x->order))
        return cgp__no_memory("balance: actions", (size_t)left * sizeof *x->order);
    while (o->n_ready > 0) {
        const int d = o->ready[--o->n_ready];
        while (o->next[d] < counts[d] && append(x, o, d))
            left--;
        o->waiting[d] = o->next[d] < counts[d];
    }
    return left == 0 ? CGP_OK
                     : cgp_fail(CGP_EINVAL, "balance: schedule %s cannot run as a chain of stages",
                                o->schedule->name);
}

/* Read the actions of a schedule. */
static cgp_status read_schedule(cgp__objective *x, const cgp_schedule *schedule) {
    const size_t n = (size_t)x->stages, devices = (size_t)x->devices;
    orderer o = {.schedule = schedule};
    int *numbers = cgp__calloc(2 * devices + 2 * n, sizeof *numbers);
    bool *flags = cgp__calloc(devices + n, sizeof *flags);
    o.done = cgp__calloc(n * (size_t)x->chunks, 1);
    cgp_status status = cgp__stage_ends(schedule, &o.ends);
    if (status == CGP_OK && (!numbers || !flags || !o.done)) {
        status = cgp__no_memory("balance: actions", n * (size_t)x->chunks);
    } else if (status == CGP_OK) {
        o.next = numbers;
        o.ready = o.next + devices;
        o.count_in = o.ready + devices;
        o.count_saved = o.count_in + n;
        o.waiting = flags;
        o.recomputed = flags + devices;
        x->n = 0;
        memset(x->counts, 0, CGP__COMPUTE_KINDS * n * sizeof *x->counts);
        memset(x->inputs, 0, 2 * n * sizeof *x->inputs);
        status = put_in_order(x, &o);
    }
    free(o.ends);
    free(o.done);
    free(flags);
    free(numbers);
    return status;
}

/* --- what stages wait for --- */

/* Record that each stage waits for its neighbours: for the previous stage in forward, and for the
 * next stage in backward. */
static void wait_for_neighbours(cgp__objective *x) {
    for (int way = 0; way < 2; way++) {
        int n = 0;
        for (int j = 0; j < x->stages; j++) {
            const int other = way == 0 ? j - 1 : j + 1;
            x->first[way][j] = n;
            if (other >= 0 && other < x->stages) x->waits[way][n++] = other;
        }
        x->first[way][x->stages] = n;
    }
}

/* Record that each stage waits for the stages from which the links of its layers come. */
static void wait_for_links(cgp__objective *x, const int *cuts) {
    const int n = x->stages;
    int used[2] = {0, 0};
    memset(x->linked, 0, (size_t)n * (size_t)n);
    for (int j = 0; j < n; j++) {
        for (int i = cuts[j]; i < cuts[j + 1]; i++)
            x->stage_of[i] = j;
    }
    for (int e = 0; e < x->sums->n_links; e++) {
        const cgp__layer_link *link = &x->sums->links[e];
        x->linked[(size_t)x->stage_of[link->to] * (size_t)n + (size_t)x->stage_of[link->from]] = 1;
    }
    for (int j = 0; j < n; j++) {
        x->first[0][j] = used[0];
        x->first[1][j] = used[1];
        for (int k = 0; k < n; k++) {
            if (k != j && x->linked[(size_t)j * (size_t)n + (size_t)k])
                x->waits[k > j][used[k > j]++] = k;
        }
    }
    x->first[0][n] = used[0];
    x->first[1][n] = used[1];
}

/* --- create --- */

static cgp_status allocate(cgp__objective *x, const cgp_schedule *schedule) {
    const size_t n = (size_t)schedule->stages, cells = n * (size_t)schedule->chunks;
    const size_t devices = (size_t)schedule->devices;
    const size_t waits = x->sums->chain ? n : n * n;
    x->stages = schedule->stages;
    x->devices = schedule->devices;
    x->chunks = schedule->chunks;
    CGP_TRY(CGP__NEW(x->device_of, n, "balance"));
    memcpy(x->device_of, schedule->device_of, n * sizeof *x->device_of);
    CGP_TRY(CGP__NEW(x->counts, CGP__COMPUTE_KINDS * n, "balance"));
    CGP_TRY(CGP__NEW(x->inputs, 2 * n, "balance"));
    x->saved = x->inputs + n;
    CGP_TRY(CGP__NEW(x->duration, CGP__COMPUTE_KINDS * n, "balance"));
    CGP_TRY(CGP__NEW(x->clock, 2 * devices, "balance"));
    x->load = x->clock + devices;
    CGP_TRY(CGP__NEW(x->forward, 2 * cells, "balance"));
    x->backward = x->forward + cells;
    CGP_TRY(CGP__NEW(x->first[0], 2 * (n + 1) + 2 * waits, "balance"));
    x->first[1] = x->first[0] + n + 1;
    x->waits[0] = x->first[1] + n + 1;
    x->waits[1] = x->waits[0] + waits;
    if (x->sums->chain) {
        wait_for_neighbours(x);
        return CGP_OK;
    }
    CGP_TRY(CGP__NEW(x->stage_of, x->sums->layers, "balance"));
    return CGP__NEW(x->linked, n * n, "balance");
}

cgp_status cgp__objective_create(cgp__objective *x, const cgp__layer_sums *sums,
                                 const cgp__schedule_source *source, const int64_t *caps) {
    cgp_schedule *schedule = NULL;
    *x = (cgp__objective){.sums = sums, .source = *source, .caps = caps};
    CGP_TRY(source->make(source->self, NULL, &schedule));
    cgp_status status = allocate(x, schedule);
    if (status == CGP_OK) status = read_schedule(x, schedule);
    cgp_schedule_destroy(schedule);
    return status;
}

void cgp__objective_release(cgp__objective *x) {
    free(x->linked);
    free(x->stage_of);
    free(x->first[0]);
    free(x->forward);
    free(x->clock);
    free(x->duration);
    free(x->inputs);
    free(x->counts);
    free(x->order);
    free(x->device_of);
    *x = (cgp__objective){0};
}

/* --- the value of cuts --- */

/* Return whether a stage runs no backward. The plan leaves out all actions of such a stage except
 * F. */
static bool is_forward_only(const cgp__objective *x, const int *cuts, int stage) {
    return cuts[stage + 1] <= x->sums->first_backward;
}

static void fill_durations(cgp__objective *x, const int *cuts) {
    const size_t n = (size_t)x->stages;
    for (size_t j = 0; j < n; j++) {
        const int first = cuts[j], next = cuts[j + 1];
        const int64_t *time[CGP__TIMES];
        for (int k = 0; k < CGP__TIMES; k++)
            time[k] = cgp__device_times(x->sums, k, x->device_of[j]);
        int64_t *at = x->duration + j;
        at[CGP_ACTION_F * n] = cgp__layer_sum(time[CGP__TIME_F], first, next);
        at[CGP_ACTION_I * n] = at[CGP_ACTION_W * n] = at[CGP_ACTION_R * n] = 0;
        at[CGP_ACTION_B * n] = 0;
        if (is_forward_only(x, cuts, (int)j)) continue;
        at[CGP_ACTION_I * n] = cgp__layer_sum(time[CGP__TIME_I], first, next);
        at[CGP_ACTION_W * n] = cgp__layer_sum(time[CGP__TIME_W], first, next);
        at[CGP_ACTION_R * n] = cgp__layer_sum(time[CGP__TIME_R], first, next);
        at[CGP_ACTION_B * n] = at[CGP_ACTION_I * n] + at[CGP_ACTION_W * n];
    }
}

/* Make the schedule again, for these cuts. */
static cgp_status regenerate(cgp__objective *x, const int *cuts) {
    cgp_schedule *schedule = NULL;
    CGP_TRY(x->source.make(x->source.self, cuts, &schedule));
    const cgp_status status = read_schedule(x, schedule);
    cgp_schedule_destroy(schedule);
    return status;
}

static int64_t stage_load(const cgp__objective *x, size_t j) {
    int64_t load = 0;
    for (size_t kind = 0; kind < CGP__COMPUTE_KINDS; kind++) {
        const size_t at = kind * (size_t)x->stages + j;
        load += x->duration[at] * x->counts[at];
    }
    return load;
}

/* Add up each device's load. Return a lower bound of the makespan. It takes into account that the
 * first action of a device starts after F of all stages before the device's first stage. */
static int64_t add_loads(cgp__objective *x) {
    int64_t bound = 0, before = 0;
    memset(x->load, 0, (size_t)x->devices * sizeof *x->load);
    for (size_t j = (size_t)x->stages; j-- > 0;)
        x->load[x->device_of[j]] += stage_load(x, j);
    for (int d = 0; d < x->devices; d++)
        bound = cgp__max(bound, x->load[d]);
    for (int d = 0; d < x->devices; d++)
        x->clock[d] = -1;
    for (int j = 0; j < x->stages && x->sums->chain; j++) {
        int64_t *first = &x->clock[x->device_of[j]];
        if (*first < 0) bound = cgp__max(bound, before + x->load[x->device_of[j]]);
        *first = before;
        before += x->duration[(size_t)CGP_ACTION_F * x->stages + j];
    }
    return bound;
}

/* Return the sum of the squares of the loads of devices and stages, scaled so that it does not
 * overflow. If no action takes time, numbers of layers replace the loads. */
static int64_t unevenness(const cgp__objective *x, const int *cuts) {
    const int layers = x->sums->layers;
    int64_t sum = 0, all = 0;
    int shift = 0;
    for (int d = 0; d < x->devices; d++)
        all += x->load[d];
    while (all >> shift >= INT64_C(1) << 30)
        shift++;
    for (int d = 0; d < x->devices; d++)
        sum += (x->load[d] >> shift) * (x->load[d] >> shift);
    for (int j = 0; j < x->stages; j++) {
        const int64_t load =
            all > 0 ? stage_load(x, j) >> shift : cgp__min(cuts[j + 1] - cuts[j], layers);
        sum += load * load;
    }
    return sum;
}

/* Count parameters with their gradients and optimizer states, inputs of stages, and saved values.
 * Do not count workspace and messages. */
void cgp__objective_bytes(const cgp__objective *x, const int *cuts, int64_t *bytes) {
    const cgp__layer_sums *s = x->sums;
    memset(bytes, 0, (size_t)x->devices * sizeof *bytes);
    for (int j = 0; j < x->stages; j++) {
        const bool forward_only = is_forward_only(x, cuts, j);
        bytes[x->device_of[j]] +=
            cgp__layer_sum(s->parameter, cuts[j], cuts[j + 1]) +
            cgp__layer_sum(s->saved, cuts[j], cuts[j + 1]) * (forward_only ? 0 : x->saved[j]) +
            s->crossing[cuts[j]] * (forward_only ? 1 : x->inputs[j]);
    }
}

/* Return the estimated bytes of the fullest device. Set *excess to the largest excess over a
 * cap. */
static int64_t fullest(cgp__objective *x, const int *cuts, int64_t *excess) {
    int64_t max = 0;
    *excess = 0;
    cgp__objective_bytes(x, cuts, x->clock);
    for (int d = 0; d < x->devices; d++) {
        max = cgp__max(max, x->clock[d]);
        if (x->caps) *excess = cgp__max(*excess, x->clock[d] - x->caps[d]);
    }
    return max;
}

static int64_t wait(const int64_t *ends, const int *first, const int *waits, int j, int64_t start) {
    for (int k = first[j]; k < first[j + 1]; k++) {
        if (ends[waits[k]] > start) start = ends[waits[k]];
    }
    return start;
}

/* Return the time at which an action ends if its device is free at time `start`. */
static int64_t end_of(cgp__objective *x, const int *cuts, const cgp__ordered_action *a,
                      int64_t start) {
    const bool forward = a->kind == CGP_ACTION_F;
    const int64_t duration = x->duration[(size_t)a->kind * x->stages + a->stage];
    if (!forward && is_forward_only(x, cuts, a->stage)) return start;
    if (!forward && !cgp__starts_backward(a->kind)) return start + duration;
    int64_t *ends = forward ? x->forward : x->backward;
    ends[a->cell] = duration + wait(ends + a->cell - a->stage, x->first[!forward],
                                    x->waits[!forward], a->stage, start);
    return ends[a->cell];
}

/* Simulate all actions, and return the makespan. Unless `action_end` is NULL, set action_end[n] to
 * the ends of the actions. */
static int64_t simulate(cgp__objective *x, const int *cuts, int64_t *action_end) {
    int64_t makespan = 0;
    memset(x->clock, 0, (size_t)x->devices * sizeof *x->clock);
    x->simulations++;
    for (int k = 0; k < x->n; k++) {
        const cgp__ordered_action *a = &x->order[k];
        int64_t *clock = &x->clock[x->device_of[a->stage]];
        *clock = end_of(x, cuts, a, *clock);
        if (action_end) action_end[k] = *clock;
    }
    for (int d = 0; d < x->devices; d++)
        makespan = cgp__max(makespan, x->clock[d]);
    return makespan;
}

cgp_status cgp__objective_evaluate(void *self, const int *cuts, const cgp__value *limit,
                                   cgp__value *value, int64_t *spent) {
    cgp__objective *x = self;
    int64_t excess = 0;
    *value = CGP__REJECTED;
    *spent += x->stages;
    fill_durations(x, cuts);
    if (!x->source.varies) {
        const int64_t bound = add_loads(x);
        if (x->caps) (void)fullest(x, cuts, &excess);
        if (excess > limit->key[0]) return CGP_OK;
        if (excess == limit->key[0] && bound > limit->key[1]) return CGP_OK;
    }
    *spent += (int64_t)x->n * (x->source.varies ? 1 + CGP__GENERATE : 1);
    if (x->source.varies) {
        CGP_TRY(regenerate(x, cuts));
        (void)add_loads(x);
    }
    if (!x->sums->chain) wait_for_links(x, cuts);
    value->key[2] = fullest(x, cuts, &value->key[0]);
    value->key[1] = simulate(x, cuts, NULL);
    value->key[3] = unevenness(x, cuts);
    return CGP_OK;
}

/* --- the critical path --- */

/* Return true if action `a` waits for action `b` of any device, by the rules of wait(). */
static bool waits_for(const cgp__objective *x, const cgp__ordered_action *a,
                      const cgp__ordered_action *b) {
    const bool forward = a->kind == CGP_ACTION_F;
    if (!forward && !cgp__starts_backward(a->kind)) return false;
    if (forward ? b->kind != CGP_ACTION_F : !cgp__starts_backward(b->kind)) return false;
    const int *first = x->first[!forward], *waits = x->waits[!forward];
    for (int k = first[a->stage]; k < first[a->stage + 1]; k++) {
        if (b->cell == a->cell - a->stage + waits[k]) return true;
    }
    return false;
}

static int64_t duration_of(const cgp__objective *x, int k) {
    return x->duration[(size_t)x->order[k].kind * x->stages + x->order[k].stage];
}

cgp_status cgp__objective_critical(cgp__objective *x, const int *cuts, int64_t *time) {
    int64_t *end = cgp__calloc((size_t)x->n, sizeof *end);
    if (!end) return cgp__no_memory("balance: critical path", (size_t)x->n * sizeof *end);
    fill_durations(x, cuts);
    if (!x->sums->chain) wait_for_links(x, cuts);
    const int64_t makespan = simulate(x, cuts, end);
    memset(time, 0, (size_t)x->stages * sizeof *time);
    int k = x->n - 1;
    while (k > 0 && end[k] != makespan)
        k--;
    while (k >= 0) {
        const cgp__ordered_action *a = &x->order[k];
        const int64_t start = end[k] - duration_of(x, k);
        time[a->stage] += duration_of(x, k);
        /* find the last action that this action waits for and that ended at this action's start */
        for (k--; k >= 0 && start > 0; k--) {
            const cgp__ordered_action *b = &x->order[k];
            const bool same = x->device_of[a->stage] == x->device_of[b->stage];
            if (end[k] == start && (same || waits_for(x, a, b))) break;
        }
        if (start <= 0) break;
    }
    free(end);
    return CGP_OK;
}
