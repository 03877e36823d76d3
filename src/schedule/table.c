/* SPDX-License-Identifier: Apache-2.0 */
/* table.c -- builds and changes the table in a cgp_schedule. */
#include "schedule/table.h"

#include "base/json.h"
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

void cgp_schedule_destroy(cgp_schedule *schedule) {
    if (!schedule) return;
    for (int device = 0; schedule->lists && device < schedule->devices; device++)
        free(schedule->lists[device]);
    free(schedule->edges);
    free(schedule->capacity);
    free(schedule->counts);
    free(schedule->lists);
    free(schedule->device_of);
    free(schedule->name);
    free(schedule);
}

bool cgp__next(const cgp_schedule *schedule, cgp__cursor *at) {
    at->position += at->action != NULL;
    for (; at->device < schedule->devices; at->device++, at->position = 0) {
        if (at->position == schedule->counts[at->device]) continue;
        at->action = &schedule->lists[at->device][at->position];
        return true;
    }
    return false;
}

bool cgp__has_kind(const cgp_schedule *schedule, cgp_action_kind kind) {
    cgp__cursor at = {0};
    while (cgp__next(schedule, &at)) {
        if (at.action->kind == kind) return true;
    }
    return false;
}

bool cgp__has_backward(const cgp_schedule *schedule) {
    return cgp__has_kind(schedule, CGP_ACTION_B) || cgp__has_kind(schedule, CGP_ACTION_I) ||
           cgp__has_kind(schedule, CGP_ACTION_W);
}

cgp_status cgp__edges_check(const cgp_edge *edges, int n_edges, int stages) {
    if (n_edges < 0)
        return cgp_fail(CGP_EINVAL, "schedule: expected 0 or more edges, got %d", n_edges);
    for (int e = 0; e < n_edges; e++) {
        const int from = edges[e].from, to = edges[e].to;
        if (from < 0 || from >= stages || to < 0 || to >= stages)
            return cgp_fail(CGP_EINVAL, "schedule: edge %d: expected stages 0 to %d, got %d -> %d",
                            e, stages - 1, from, to);
        if (from == to)
            return cgp_fail(CGP_EINVAL,
                            "schedule: edge %d: expected two different stages, got %d -> %d", e,
                            from, to);
    }
    return CGP_OK;
}

static cgp_status check_size(int stages, int chunks) {
    if (stages < 1) return cgp_fail(CGP_EINVAL, "stages: expected 1 or more, got %d", stages);
    if (chunks < 1) return cgp_fail(CGP_EINVAL, "chunks: expected 1 or more, got %d", chunks);
    if ((int64_t)stages * chunks > CGP__SCHEDULE_LIMIT)
        return cgp_fail(CGP_EINVAL, "schedule: expected stages x chunks up to %d, got %d x %d",
                        CGP__SCHEDULE_LIMIT, stages, chunks);
    return CGP_OK;
}

cgp_status cgp__schedule_new(cgp_schedule **out, const char *name, int stages, int chunks,
                             int devices, const int *device_of) {
    CGP_TRY(check_size(stages, chunks));
    cgp_schedule *s = cgp__calloc(1, sizeof *s);
    if (!s) return cgp__no_memory("schedule", sizeof *s);
    *s = (cgp_schedule){.name = cgp__strdup(name),
                        .stages = stages,
                        .chunks = chunks,
                        .devices = devices,
                        .device_of = cgp__calloc((size_t)stages, sizeof *s->device_of),
                        .lists = cgp__calloc((size_t)devices, sizeof *s->lists),
                        .counts = cgp__calloc((size_t)devices, sizeof *s->counts),
                        .capacity = cgp__calloc((size_t)devices, sizeof *s->capacity)};
    if (!s->name || !s->device_of || !s->lists || !s->counts || !s->capacity) {
        cgp_schedule_destroy(s);
        return cgp__no_memory("schedule", (size_t)stages * sizeof *device_of);
    }
    if (device_of) memcpy(s->device_of, device_of, (size_t)stages * sizeof *device_of);
    *out = s;
    return CGP_OK;
}

void cgp__append_action(cgp_schedule *schedule, const cgp_action *action) {
    const int device = schedule->device_of[action->stage];
    int *count = &schedule->counts[device];
    if (cgp__grow(&schedule->lists[device], &schedule->capacity[device], *count + 1,
                  sizeof *action))
        schedule->lists[device][(*count)++] = *action;
    else
        schedule->incomplete = true;
}

void cgp__append(cgp_schedule *schedule, cgp_action_kind kind, int stage, int microbatch) {
    const cgp_action action = {.kind = kind, .stage = stage, .microbatch = microbatch, .edge = -1};
    if (microbatch < schedule->chunks) cgp__append_action(schedule, &action);
}

cgp_status cgp__set_edges(cgp_schedule *schedule, const cgp_edge *edges, int n_edges) {
    const size_t bytes = (size_t)n_edges * sizeof *edges;
    schedule->edges = cgp__calloc(bytes, 1);
    if (!schedule->edges) return cgp__no_memory("schedule", bytes);
    if (n_edges > 0) memcpy(schedule->edges, edges, bytes);
    schedule->n_edges = n_edges;
    schedule->lowered = true;
    return CGP_OK;
}

cgp_status cgp__schedule_finish(cgp_schedule **out, cgp_schedule *schedule, cgp_status status) {
    if (status == CGP_OK && schedule->incomplete)
        status = cgp__no_memory("schedule", (size_t)schedule->stages * (size_t)schedule->chunks *
                                                sizeof(cgp_action));
    if (status == CGP_OK)
        *out = schedule;
    else
        cgp_schedule_destroy(schedule);
    return status;
}

cgp_status cgp__schedule_replace(cgp_schedule *schedule, cgp_schedule *rebuilt) {
    CGP_TRY(cgp__schedule_finish(&rebuilt, rebuilt, CGP_OK));
    const cgp_schedule old = *schedule;
    *schedule = *rebuilt;
    *rebuilt = old;
    rebuilt->name = schedule->name; /* keep the name, because the caller may hold a pointer to it */
    schedule->name = old.name;
    schedule->incomplete = old.incomplete;
    cgp_schedule_destroy(rebuilt);
    return CGP_OK;
}

cgp_status cgp__surplus_check(const cgp_schedule *schedule, int64_t chunks) {
    if (schedule->stages * chunks <= CGP__SCHEDULE_LIMIT) return CGP_OK;
    return cgp_fail(CGP_EINVAL,
                    "schedule: expected stages x micro-batches up to %d, got %d x %lld (%d "
                    "micro-batches are few for %s on so many devices)",
                    CGP__SCHEDULE_LIMIT, schedule->stages, (long long)chunks, schedule->chunks,
                    schedule->name);
}

cgp_status cgp__wrong_action(const cgp_action *action, int device, int position, const char *rule,
                             ...) {
    char text[CGP__ACTION_TEXT], why[256];
    va_list args;
    va_start(args, rule);
    cgp__vprint(why, sizeof why, rule, args);
    va_end(args);
    return cgp_fail(CGP_EINVAL, "schedule: device %d, position %d, %s: %s", device, position,
                    cgp_action_text(action, text, sizeof text), why);
}
