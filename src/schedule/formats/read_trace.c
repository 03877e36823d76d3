/* SPDX-License-Identifier: Apache-2.0 */
/* read_trace.c -- reads a measured step from a trace that draw_trace.c has written.
 *
 * The file is not trusted. The reader checks the type of each key, the rules of the schedule, the
 * number of times of each device, and the order of each action's times (timeline.c). */
#include "schedule/table.h"

#include "base/json.h"
#include "schedule/simulator/timeline.h"
#include "schedule/formats/trace_keys.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct reader {
    const char *name; /* the name of the text, for error messages */
    const json_t *measured;
    cgp_schedule *schedule;
    cgp_schedule_timeline timeline;
} reader;

static cgp_status wrong(const reader *r, const char *key, const char *expected) {
    return cgp_fail(CGP_EFORMAT, "%s: %s.%s: expected %s", r->name, CGP__TRACE_KEY, key, expected);
}

/* Turn the error of a call into CGP_EFORMAT, and put the name of the text before the error
 * message. */
static cgp_status refused(const reader *r, cgp_status status) {
    char why[512];
    if (status == CGP_OK || status == CGP_ENOMEM) return status;
    snprintf(why, sizeof why, "%s", cgp_message());
    return cgp_fail(CGP_EFORMAT, "%s: %s", r->name, why);
}

/* --- schedule --- */

static cgp_status read_name(const reader *r, const char **out) {
    const char *name = json_string_value(json_object_get(r->measured, CGP__TRACE_NAME_KEY));
    const char *c = name ? name : "";
    while (cgp__trace_printable(*c))
        c++;
    if (!name || *c || c == name || c - name >= CGP__TRACE_NAME)
        return wrong(r, CGP__TRACE_NAME_KEY, "the name of a schedule");
    *out = name;
    return CGP_OK;
}

static cgp_status read_edges(const reader *r, cgp_edge **out, int *count) {
    const json_t *list = json_object_get(r->measured, CGP__TRACE_EDGES_KEY);
    const size_t n = json_array_size(list);
    if (!json_is_array(list) || n > CGP__SCHEDULE_LIMIT)
        return wrong(r, CGP__TRACE_EDGES_KEY, "a list of pairs of stages");
    cgp_edge *edges = cgp__calloc(n, sizeof *edges);
    if (!edges) return cgp__no_memory(r->name, n * sizeof *edges);
    *out = edges;
    *count = (int)n;
    for (size_t e = 0; e < n; e++) {
        json_int_t a, b;
        if (json_unpack(json_array_get(list, e), "[I I!]", &a, &b) != 0 || a < 0 || b < 0 ||
            a >= CGP__SCHEDULE_LIMIT || b >= CGP__SCHEDULE_LIMIT)
            return wrong(r, CGP__TRACE_EDGES_KEY, "a list of pairs of stages");
        edges[e] = (cgp_edge){(int)a, (int)b};
    }
    return CGP_OK;
}

/* Read the compute actions, and insert the transfers of the edges. */
static cgp_status read_schedule(reader *r) {
    const char *name = NULL;
    cgp_edge *edges = NULL;
    int n_edges = 0;
    CGP_TRY(read_name(r, &name));
    const json_t *csv = json_object_get(r->measured, CGP__TRACE_CSV_KEY);
    if (!json_is_string(csv)) return wrong(r, CGP__TRACE_CSV_KEY, "a schedule as CSV");
    CGP_TRY(refused(r, cgp_schedule_from_csv(&r->schedule, name, json_string_value(csv),
                                             json_string_length(csv))));
    cgp_status status = read_edges(r, &edges, &n_edges);
    if (status == CGP_OK) status = refused(r, cgp_schedule_lower(r->schedule, edges, n_edges));
    if (status == CGP_OK) status = refused(r, cgp_schedule_check(r->schedule, NULL));
    free(edges);
    return status;
}

/* --- times --- */

static cgp_status read_times(const reader *r, const char *key, double *const *times) {
    const cgp_schedule *s = r->schedule;
    const json_t *devices = json_object_get(r->measured, key);
    char expected[96];
    snprintf(expected, sizeof expected, "a list of times for each of the %d devices", s->devices);
    if (!json_is_array(devices) || json_array_size(devices) != (size_t)s->devices)
        return wrong(r, key, expected);
    for (int d = 0; d < s->devices; d++) {
        const json_t *list = json_array_get(devices, (size_t)d);
        snprintf(expected, sizeof expected, "the times of the %d actions of device %d",
                 s->counts[d], d);
        if (!json_is_array(list) || json_array_size(list) != (size_t)s->counts[d])
            return wrong(r, key, expected);
        for (int i = 0; i < s->counts[d]; i++) {
            const json_t *number = json_array_get(list, (size_t)i);
            if (!json_is_number(number)) return wrong(r, key, expected);
            times[d][i] = json_number_value(number);
        }
    }
    return CGP_OK;
}

/* Read the clock uncertainty. Traces of ranks that share one clock, and older traces, have no such
 * number. */
static cgp_status read_clocks(reader *r) {
    const json_t *number = json_object_get(r->measured, CGP__TRACE_CLOCKS_KEY);
    if (!number) return CGP_OK;
    r->timeline.clock_uncertainty = json_number_value(number);
    if (json_is_number(number) && r->timeline.clock_uncertainty >= 0) return CGP_OK;
    return wrong(r, CGP__TRACE_CLOCKS_KEY, "a number of seconds from 0 on");
}

/* Read the times of the exchange between replicas. Traces without replicas have none. */
static cgp_status read_exchanged(reader *r) {
    const json_t *list = json_object_get(r->measured, CGP__TRACE_EXCHANGED_KEY);
    const size_t n = (size_t)r->schedule->devices;
    if (!list) return CGP_OK;
    if (!json_is_array(list) || json_array_size(list) != n)
        return wrong(r, CGP__TRACE_EXCHANGED_KEY, "a time for each device");
    CGP_TRY(CGP__NEW(r->timeline.exchanged, n, r->name));
    for (size_t d = 0; d < n; d++) {
        const json_t *number = json_array_get(list, d);
        if (!json_is_number(number))
            return wrong(r, CGP__TRACE_EXCHANGED_KEY, "a time for each device");
        r->timeline.exchanged[d] = json_number_value(number);
    }
    return CGP_OK;
}

static cgp_status read_timeline(reader *r) {
    cgp_schedule_timeline *t = &r->timeline;
    CGP_TRY(cgp__timeline_create(t, r->schedule, true));
    CGP_TRY(read_clocks(r));
    CGP_TRY(read_exchanged(r));
    double *const *const times[CGP__TRACE_TIMES] = {t->start, t->end, t->released, t->ready};
    for (int k = 0; k < CGP__TRACE_TIMES; k++)
        CGP_TRY(read_times(r, cgp__trace_times[k], times[k]));
    return refused(r, cgp__timeline_complete(t, r->schedule));
}

/* --- all --- */

static cgp_status read_measured(reader *r, const json_t *root) {
    r->measured = json_object_get(root, CGP__TRACE_KEY);
    if (!json_is_object(r->measured))
        return cgp_fail(CGP_EFORMAT,
                        "%s: expected the trace of a measured step, got none of its times "
                        "(the object \"%s\")",
                        r->name, CGP__TRACE_KEY);
    const json_t *format = json_object_get(r->measured, CGP__TRACE_FORMAT_KEY);
    if (json_integer_value(format) != CGP__TRACE_FORMAT)
        return wrong(r, CGP__TRACE_FORMAT_KEY, "1");
    CGP_TRY(read_schedule(r));
    return read_timeline(r);
}

cgp_status cgp_schedule_from_trace(cgp_schedule **out, cgp_schedule_timeline *timeline,
                                   const char *name, const char *text, size_t bytes) {
    CGP__NEED(out);
    CGP__NEED(timeline);
    CGP__NEED(name);
    if (bytes > 0) CGP__NEED(text);
    cgp__json_error error;
    reader r = {.name = name};
    json_t *root = cgp__json_read(text, bytes, &error);
    if (!root && error.refused != CGP_OK)
        return cgp_fail(error.refused, "%s: %s", name, error.reason);
    if (!root && !*error.reason) return cgp__no_memory(name, bytes);
    if (!root) return cgp_fail(CGP_EFORMAT, "%s: byte %zu: %s", name, error.byte, error.reason);
    const cgp_status status = read_measured(&r, root);
    json_decref(root);
    if (status == CGP_OK) {
        *out = r.schedule;
        *timeline = r.timeline;
    } else {
        cgp_schedule_timeline_release(&r.timeline);
        cgp_schedule_destroy(r.schedule);
    }
    return status;
}
