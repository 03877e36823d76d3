/* SPDX-License-Identifier: Apache-2.0 */
/* table.c -- builds and changes the table behind cgp_schedule. */
#include "schedule/table.h"

#include <stdlib.h>
#include <string.h>

void cgp__lists_free(cgp_action **lists, int devices) {
    for (int device = 0; lists && device < devices; device++)
        free(lists[device]);
    free(lists);
}

cgp_action **cgp__lists_new(int devices, const int *counts) {
    cgp_action **lists = cgp__calloc((size_t)devices, sizeof *lists);
    if (!lists) return NULL;
    for (int device = 0; device < devices; device++) {
        lists[device] = cgp__calloc((size_t)counts[device], sizeof **lists);
        if (!lists[device]) {
            cgp__lists_free(lists, devices);
            return NULL;
        }
    }
    return lists;
}

void cgp__schedule_replace(cgp_schedule *schedule, cgp_action **lists, int *counts) {
    cgp__lists_free(schedule->lists, schedule->devices);
    free(schedule->counts);
    schedule->lists = lists;
    schedule->counts = counts;
}

void cgp_schedule_destroy(cgp_schedule *schedule) {
    if (!schedule) return;
    free(schedule->edges);
    cgp__lists_free(schedule->lists, schedule->devices);
    free(schedule->counts);
    free(schedule->device_of);
    free(schedule->name);
    free(schedule);
}

bool cgp__has_kind(const cgp_schedule *schedule, cgp_action_kind kind) {
    for (int device = 0; device < schedule->devices; device++) {
        for (int i = 0; i < schedule->counts[device]; i++) {
            if (schedule->lists[device][i].kind == kind) return true;
        }
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
            return cgp_fail(CGP_EINVAL,
                            "schedule: edge %d: expected stages 0 to %d, got %d -> %d", e,
                            stages - 1, from, to);
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

/* A schedule without its lists. */
static cgp_schedule *new_frame(const char *name, int stages, int chunks, int devices) {
    cgp_schedule *schedule = cgp__calloc(1, sizeof *schedule);
    if (!schedule) return NULL;
    schedule->stages = stages;
    schedule->chunks = chunks;
    schedule->devices = devices;
    schedule->name = cgp__strdup(name);
    schedule->device_of = cgp__calloc((size_t)stages, sizeof *schedule->device_of);
    schedule->counts = cgp__calloc((size_t)devices, sizeof *schedule->counts);
    if (!schedule->name || !schedule->device_of || !schedule->counts) {
        cgp_schedule_destroy(schedule);
        return NULL;
    }
    return schedule;
}

/* Take over a frame whose stages are placed; its lists are empty, with capacity for `kinds` actions of each micro-batch on
 * each stage. */
static cgp_status finish_frame(cgp_schedule **out, cgp_schedule *frame, int kinds) {
    int64_t bytes = 0;
    for (int j = 0; frame && j < frame->stages; j++) {
        frame->counts[frame->device_of[j]] += frame->chunks * kinds;
        bytes += (int64_t)frame->chunks * kinds * (int64_t)sizeof(cgp_action);
    }
    if (frame) frame->lists = cgp__lists_new(frame->devices, frame->counts);
    if (!frame || !frame->lists) {
        cgp_schedule_destroy(frame);
        return cgp__no_memory("schedule", (size_t)bytes);
    }
    for (int device = 0; device < frame->devices; device++)
        frame->counts[device] = 0;
    *out = frame;
    return CGP_OK;
}

cgp_status cgp__schedule_new(cgp_schedule **out, const char *name, int devices, int v,
                             cgp_placement placement, int chunks, int kinds) {
    if (devices < 1) return cgp_fail(CGP_EINVAL, "stages: expected 1 or more, got %d", devices);
    if ((int64_t)devices * v > CGP__SCHEDULE_LIMIT)
        return cgp_fail(CGP_EINVAL, "schedule: expected up to %d stages, got %d x %d",
                        CGP__SCHEDULE_LIMIT, devices, v);
    CGP_TRY(check_size(devices * v, chunks));
    cgp_schedule *schedule = new_frame(name, devices * v, chunks, devices);
    for (int j = 0; schedule && j < devices * v; j++) {
        const int position = j % devices, back = j / devices % 2;
        schedule->device_of[j] =
            placement == CGP_PLACEMENT_V && back ? devices - 1 - position : position;
    }
    return finish_frame(out, schedule, kinds);
}

cgp_status cgp__schedule_like(cgp_schedule **out, const cgp_schedule *other, const char *name,
                              int chunks, int kinds) {
    CGP_TRY(check_size(other->stages, chunks));
    cgp_schedule *schedule = new_frame(name, other->stages, chunks, other->devices);
    if (schedule)
        memcpy(schedule->device_of, other->device_of,
               (size_t)other->stages * sizeof *other->device_of);
    return finish_frame(out, schedule, kinds);
}

void cgp__append(cgp_schedule *schedule, cgp_action_kind kind, int stage, int microbatch) {
    const int device = schedule->device_of[stage];
    if (microbatch >= schedule->chunks) return;
    schedule->lists[device][schedule->counts[device]++] =
        (cgp_action){.kind = kind, .stage = stage, .microbatch = microbatch, .edge = -1};
}

cgp_status cgp__surplus_check(const cgp_schedule *schedule, int64_t chunks) {
    if (schedule->stages * chunks <= CGP__SCHEDULE_LIMIT) return CGP_OK;
    return cgp_fail(CGP_EINVAL,
                    "schedule: expected stages x micro-batches up to %d, got %d x %lld (%d "
                    "micro-batches are few for %s on so many devices)",
                    CGP__SCHEDULE_LIMIT, schedule->stages, (long long)chunks, schedule->chunks,
                    schedule->name);
}

/* Check that numbers are in range, so that they can be used as indices. */
static cgp_status check_action(const cgp__schedule_table *table, int device, int position) {
    const cgp_action *a = &table->lists[device][position];
    const int kind = (int)a->kind;
    if (kind < 0 || kind > CGP_ACTION_RECV_B)
        return cgp_fail(CGP_EINVAL,
                        "schedule: device %d, position %d: expected an action, got kind %d",
                        device, position, kind);
    char text[CGP__ACTION_TEXT];
    cgp_action_text(a, text, sizeof text);
    if (a->stage < 0 || a->stage >= table->stages)
        return cgp_fail(CGP_EINVAL,
                        "schedule: device %d, position %d, %s: expected stage 0 to %d, got %d",
                        device, position, text, table->stages - 1, a->stage);
    if (a->microbatch < 0 || a->microbatch >= table->chunks)
        return cgp_fail(
            CGP_EINVAL,
            "schedule: device %d, position %d, %s: expected micro-batch 0 to %d, got %d",
            device, position, text, table->chunks - 1, a->microbatch);
    if (table->device_of[a->stage] != device)
        return cgp_fail(
            CGP_EINVAL,
            "schedule: device %d, position %d, %s: expected on device %d as all of stage %d",
            device, position, text, table->device_of[a->stage], a->stage);
    if (cgp__is_transfer(a->kind) && !table->lowered)
        return cgp_fail(
            CGP_EINVAL,
            "schedule: device %d, position %d, %s: expected compute actions only before "
            "lowering",
            device, position, text);
    if (!cgp__is_transfer(a->kind) && a->edge != -1)
        return cgp_fail(CGP_EINVAL,
                        "schedule: device %d, position %d, %s: expected edge -1, got %d",
                        device, position, text, a->edge);
    if (cgp__is_transfer(a->kind) && (a->edge < 0 || a->edge >= table->n_edges))
        return cgp_fail(
            CGP_EINVAL,
            "schedule: device %d, position %d, %s: expected one of %d edges, got edge %d",
            device, position, text, table->n_edges, a->edge);
    return CGP_OK;
}

static cgp_status check_table(const cgp__schedule_table *table) {
    CGP_TRY(check_size(table->stages, table->chunks));
    if (table->devices < 1)
        return cgp_fail(CGP_EINVAL, "devices: expected 1 or more, got %d", table->devices);
    for (int j = 0; j < table->stages; j++) {
        const int device = table->device_of[j];
        if (device < 0 || device >= table->devices)
            return cgp_fail(CGP_EINVAL, "schedule: stage %d: expected a device 0 to %d, got %d",
                            j, table->devices - 1, device);
    }
    if (!table->lowered && table->n_edges != 0)
        return cgp_fail(CGP_EINVAL, "schedule: expected no edges before lowering, got %d",
                        table->n_edges);
    CGP_TRY(cgp__edges_check(table->edges, table->n_edges, table->stages));
    for (int device = 0; device < table->devices; device++) {
        if (table->counts[device] < 0)
            return cgp_fail(CGP_EINVAL,
                            "schedule: device %d: expected 0 or more actions, got %d", device,
                            table->counts[device]);
        for (int i = 0; i < table->counts[device]; i++)
            CGP_TRY(check_action(table, device, i));
    }
    return CGP_OK;
}

cgp_status cgp__schedule_from_lists(cgp_schedule **out, const cgp__schedule_table *table) {
    CGP_TRY(check_table(table));
    cgp_status status = CGP_ENOMEM;
    size_t bytes = 0;
    cgp_schedule *schedule =
        new_frame(table->name, table->stages, table->chunks, table->devices);
    if (!schedule) goto out;
    for (int device = 0; device < table->devices; device++) {
        schedule->counts[device] = table->counts[device];
        bytes += (size_t)table->counts[device] * sizeof(cgp_action);
    }
    memcpy(schedule->device_of, table->device_of, (size_t)table->stages * sizeof(int));
    schedule->lists = cgp__lists_new(table->devices, schedule->counts);
    schedule->edges = cgp__calloc((size_t)table->n_edges, sizeof *schedule->edges);
    if (!schedule->lists || !schedule->edges) goto out;
    for (int device = 0; device < table->devices; device++) {
        if (table->counts[device] > 0)
            memcpy(schedule->lists[device], table->lists[device],
                   (size_t)table->counts[device] * sizeof(cgp_action));
    }
    if (table->n_edges > 0)
        memcpy(schedule->edges, table->edges, (size_t)table->n_edges * sizeof(cgp_edge));
    schedule->n_edges = table->n_edges;
    schedule->lowered = table->lowered;
    *out = schedule;
    schedule = NULL;
    status = CGP_OK;
out:
    cgp_schedule_destroy(schedule);
    return status == CGP_OK ? CGP_OK : cgp__no_memory("schedule", bytes);
}
