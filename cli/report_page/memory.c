/* SPDX-License-Identifier: Apache-2.0 */
/* memory.c -- the memory of a report: the sections of each device's plan, and the slots in use
 * during a step.
 *
 * A micro-batch occupies an input slot of a stage from its F to the end of its backward. It
 * occupies a saved slot from its F to the end of its backward or, if it is recomputed, from its R.
 * The plan reserves `slots` for all of them, and places slots of different lifetimes in the same
 * bytes. */
#include "report_page/run.h"

#include "json_value.h"
#include "session/session.h"
#include "text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_POINTS = 400 };

/* --- slots over the step --- */

/* The schedule whose times the curves have: measured, or planned. */
typedef struct clock {
    const cgp_schedule *schedule;
    const cgp_schedule_timeline *timeline;
} clock;

typedef struct sample {
    double time;
    int64_t bytes; /* slots in use from `time` on */
    int action;    /* index in the device's list */
} sample;

static cgp_action_kind last_backward(const cgp_action *list, int n, int stage) {
    cgp_action_kind kind = CGP_ACTION_F; /* a stage without backward */
    for (int i = 0; i < n; i++) {
        if (list[i].stage != stage) continue;
        if (list[i].kind == CGP_ACTION_W || list[i].kind == CGP_ACTION_B) return list[i].kind;
        if (list[i].kind == CGP_ACTION_I) kind = CGP_ACTION_I;
    }
    return kind;
}

/* Tell for each micro-batch of a stage whether it is recomputed. Freed by the caller. */
static bool *recomputed(const cgp_action *list, int n, int stage, int chunks) {
    bool *again = cli_calloc((size_t)chunks, sizeof *again);
    for (int i = 0; i < n; i++) {
        if (list[i].stage == stage && list[i].kind == CGP_ACTION_R)
            again[list[i].microbatch] = true;
    }
    return again;
}

/* The stages of a device, as far as their slots are concerned. */
typedef struct slots {
    const cgp_plan_stage *info;
    cgp_action_kind last;
    bool *again;
} slots;

/* Return the bytes of slots of a micro-batch, all of which its backward frees. */
static int64_t bytes_of(const slots *s) {
    return s->info->input_slot_bytes + s->info->saved_slot_bytes;
}

/* Return the bytes of slots that an action begins to use. */
static int64_t begins(const slots *s, const cgp_action *a) {
    int64_t bytes = 0;
    if (a->kind == CGP_ACTION_F) bytes += s->info->input_slot_bytes;
    if (a->kind == (s->again[a->microbatch] ? CGP_ACTION_R : CGP_ACTION_F))
        bytes += s->info->saved_slot_bytes;
    return bytes;
}

static int by_time(const void *a, const void *b) {
    const sample *x = a, *y = b;
    if (x->time != y->time) return (x->time > y->time) - (x->time < y->time);
    return (x->action > y->action) - (x->action < y->action);
}

/* Return the changes of a device's slots in order of time, and their number. Freed by the
 * caller. */
static sample *changes_of(const clock *c, const slots *of_stage, int d, int *count) {
    int n = 0;
    const cgp_action *list = cgp_schedule_actions(c->schedule, d, &n);
    sample *samples = cli_calloc(2 * (size_t)n + 1, sizeof *samples);
    *count = 0;
    for (int i = 0; i < n; i++) {
        const slots *s = &of_stage[list[i].stage];
        if (list[i].kind > CGP_ACTION_R) continue;
        const int64_t bytes = begins(s, &list[i]);
        if (bytes > 0) samples[(*count)++] = (sample){c->timeline->start[d][i], bytes, i};
        if (list[i].kind == s->last)
            samples[(*count)++] = (sample){c->timeline->end[d][i], -bytes_of(s), i};
    }
    qsort(samples, (size_t)*count, sizeof *samples, by_time);
    for (int k = 1; k < *count; k++)
        samples[k].bytes += samples[k - 1].bytes;
    return samples;
}

static slots *slots_of(const cgp_plan *plan, const cgp_schedule *schedule, int d) {
    int n = 0;
    const cgp_action *list = cgp_schedule_actions(schedule, d, &n);
    slots *all = cli_calloc((size_t)cgp_plan_stages(plan), sizeof *all);
    for (int j = 0; j < cgp_plan_stages(plan); j++)
        all[j] = (slots){cgp_plan_stage_at(plan, j), last_backward(list, n, j),
                         recomputed(list, n, j, cgp_schedule_chunks(schedule))};
    return all;
}

static void free_slots(slots *all, int n) {
    for (int j = 0; j < n; j++)
        free(all[j].again);
    free(all);
}

/* Return the curve, [time, bytes] from then on. If there are too many points, only the largest of
 * each group is kept. */
static json_t *curve_json(const sample *samples, int n) {
    const int group = (n + MOST_POINTS - 1) / MOST_POINTS;
    json_t *points = json_array();
    json_array_append_new(points, json_pack("[f, i]", 0.0, 0));
    for (int k = 0; k<n; k += group> 0 ? group : 1) {
        const sample *largest = &samples[k];
        for (int i = k; i < n && i < k + group; i++)
            largest = samples[i].bytes > largest->bytes ? &samples[i] : largest;
        json_array_append_new(points, json_pack("[o, I]", cli_real_json(samples[k].time),
                                                (json_int_t)largest->bytes));
    }
    return points;
}

/* Return the time of the peak, its action, and the stage's layers. */
static json_t *peak_json(const cli_page_run *run, const clock *c, int d, const sample *samples,
                         int n, int64_t fixed) {
    int count = 0;
    const cgp_action *list = cgp_schedule_actions(c->schedule, d, &count);
    const sample *peak = n > 0 ? &samples[0] : NULL;
    char action[32] = "";
    for (int k = 1; k < n; k++)
        peak = samples[k].bytes > peak->bytes ? &samples[k] : peak;
    if (!peak) return json_null();
    const int64_t bytes = fixed + peak->bytes;
    const cgp_action *a = &list[peak->action];
    char *layers = cli_page_layers(run->session, a->stage);
    snprintf(action, sizeof action, "%d%c%d", a->stage, "FBIWR"[a->kind], a -> microbatch);
    json_t *o =
        json_pack("{s:I, s:o, s:s, s:i, s:s}", "bytes", (json_int_t)bytes, "time",
                  cli_real_json(peak->time), "action", action, "stage", a->stage, "layers", layers);
    free(layers);
    return o;
}

/* --- a device --- */

static json_t *sections_json(const cgp_plan_device *device) {
    const int64_t transfer = device->transfer_bytes + device->receive_bytes;
    json_t *o = json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "parameters",
        (json_int_t)device->parameter_bytes, "gradients", (json_int_t)device->gradient_bytes,
        "optimizer", (json_int_t)device->optimizer_bytes, "states", (json_int_t)device->state_bytes,
        "partial gradients", (json_int_t)device->partial_gradient_bytes, "packed",
        (json_int_t)device->packed_bytes, "workspace", (json_int_t)device->workspace_bytes,
        "transfer", (json_int_t)transfer, "step values", (json_int_t)device->step_bytes);
    if (device->replay_bytes > 0)
        json_object_set_new(o, "replay", json_integer(device->replay_bytes));
    json_object_set_new(o, "slots", json_integer(device->slot_bytes));
    return o;
}

static json_t *device_json(const cli_page_run *run, const clock *c, int d) {
    const cgp_plan *plan = run->session->plan;
    const cgp_plan_device *device = cgp_plan_device_at(plan, d);
    int n = 0;
    slots *of_stage = slots_of(plan, c->schedule, d);
    sample *samples = changes_of(c, of_stage, d, &n);
    const int64_t fixed = device->planned_bytes - device->slot_bytes;
    json_t *o = json_pack("{s:i, s:s, s:I, s:I, s:o, s:o, s:o, s:o}", "device", d, "name",
                          device->name, "planned_bytes", (json_int_t)device->planned_bytes,
                          "outside_bytes", (json_int_t)device->outside_bytes, "limit_bytes",
                          device->limit_bytes ? json_integer(device->limit_bytes) : json_null(),
                          "sections", sections_json(device), "slots", curve_json(samples, n),
                          "peak", peak_json(run, c, d, samples, n, fixed));
    free(samples);
    free_slots(of_stage, cgp_plan_stages(plan));
    return o;
}

void cli_page_memory(cli_page_run *run) {
    if (!run->session) return;
    const cgp_plan *plan = run->session->plan;
    const bool measured = cli_page_same_lists(run);
    const clock c = measured ? (clock){run->schedule, &run->timeline}
                             : (clock){cgp_plan_schedule(plan), cgp_plan_timeline(plan)};
    json_t *devices = json_array();
    int fullest = 0;
    for (int d = 0; d < cgp_plan_devices(plan); d++) {
        json_array_append_new(devices, device_json(run, &c, d));
        if (cgp_plan_device_at(plan, d)->planned_bytes >
            cgp_plan_device_at(plan, fullest)->planned_bytes)
            fullest = d;
    }
    cli_json_add(run->data, "{s:{s:i, s:b, s:o, s:o}}", "memory", "fullest_device", fullest,
                 "measured_times", measured, "end", cli_real_json(c.timeline->makespan), "devices",
                 devices);
}
