/* SPDX-License-Identifier: Apache-2.0 */
/* draw_trace.c -- writes a picture as trace events. The trace of a measured step also has all times
 * of the step, for read_trace.c:
 *
 *     {"displayTimeUnit":"ms","traceEvents":[...],
 *     "cgpipe":{"format":1,"schedule":"1f1b","csv":"0F0,,0B0\n1F0,1B0\n","edges":[[0,1],[1,0]],
 *       "start_seconds":[[0.0,...],[...]],"end_seconds":...,"given_seconds":...,
 *       "ready_seconds":...,"clock_uncertainty_seconds":1e-05}}
 *
 * `csv` has the compute actions. Inserting the transfers of `edges` between these actions gives the
 * action lists. The times of each device are in the order of the device's list.
 * `clock_uncertainty_seconds` is present only if the ranks have several clocks, and
 * `exchanged_seconds` [devices] only with replicas. */
#include "schedule/formats/picture.h"

#include "base/json.h"
#include "schedule/check.h"
#include "schedule/formats/trace_keys.h"
#include "base/chrome.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Write the boxes of a row. A micro-batch is in flight from the start of its F to the end of its
 * backward. */
static void write_row(cgp__chrome *trace, const cgp__picture *p, const cgp_action_kind *ends,
                      int row, double scale) {
    char text[CGP__ACTION_TEXT];
    int in_flight = 0;
    snprintf(text, sizeof text, "device %d", row);
    cgp__chrome_process(trace, row, text);
    for (int i = p->first[row]; i < p->first[row + 1]; i++) {
        const cgp__box *box = &p->boxes[i];
        const cgp_action *a = &box->action;
        cgp_action_text(a, text, sizeof text);
        if (a->kind == CGP_ACTION_F)
            cgp__chrome_counter(trace, row, "in flight", box->start * scale, ++in_flight);
        cgp__chrome_slice(trace, row, 0, text, cgp__action_names[a->kind], box->start * scale,
                          (box->end - box->start) * scale, a->stage, a->microbatch, box->critical);
        if (cgp__ends(a, ends))
            cgp__chrome_counter(trace, row, "in flight", box->end * scale, --in_flight);
    }
    const double last = cgp__row_end(p, row);
    if (p->exchanged && p->exchanged[row] > last)
        cgp__chrome_slice(trace, row, 0, "gradients", "wait for gradients of other replicas",
                          last * scale, (p->exchanged[row] - last) * scale, -1, -1, false);
}

static void write_picture(cgp__chrome *trace, const cgp__picture *p, const cgp_action_kind *ends,
                          double microseconds) {
    for (int row = 0; row < p->rows; row++)
        write_row(trace, p, ends, row, microseconds);
    for (int i = 0; i < p->n_messages; i++) {
        const cgp__box *from = &p->boxes[p->messages[i].from];
        const cgp__box *to = &p->boxes[p->messages[i].to];
        cgp__chrome_flow(trace, i, from->row, (from->start + from->end) / 2 * microseconds, to->row,
                         to->start * microseconds);
    }
}

/* --- a measured step --- */

/* Return `array`. If an append failed because memory is short, free the array and return NULL. (An
 * append of NULL, or to NULL, fails too, so callers need no other check.) */
static json_t *unless_failed(json_t *array, int failed) {
    if (!failed) return array;
    json_decref(array);
    return NULL;
}

static json_t *times_json(const cgp_schedule *s, double *const *times) {
    json_t *devices = json_array();
    int failed = 0;
    for (int d = 0; d < s->devices; d++) {
        json_t *list = json_array();
        for (int i = 0; i < s->counts[d]; i++)
            failed |= json_array_append_new(list, json_real(times[d][i]));
        failed |= json_array_append_new(devices, list);
    }
    return unless_failed(devices, failed);
}

static json_t *edges_json(const cgp_schedule *s) {
    json_t *edges = json_array();
    int failed = 0;
    for (int e = 0; e < s->n_edges; e++)
        failed |=
            json_array_append_new(edges, json_pack("[i i]", s->edges[e].from, s->edges[e].to));
    return unless_failed(edges, failed);
}

static json_t *exchanged_json(const cgp_schedule *s, const cgp_schedule_timeline *t) {
    json_t *list = json_array();
    int failed = 0;
    for (int d = 0; d < s->devices; d++)
        failed |= json_array_append_new(list, json_real(t->exchanged[d]));
    return unless_failed(list, failed);
}

/* Return the schedule's name as JSON, with "?" for each character that is not printable ASCII. */
static json_t *name_json(const cgp_schedule *s) {
    char name[CGP__TRACE_NAME];
    snprintf(name, sizeof name, "%s", s->name);
    for (char *c = name; *c; c++)
        *c = cgp__trace_printable(*c) ? *c : '?';
    return json_string(name);
}

/* Write the object `cgpipe` as text, which the caller must free(). */
static cgp_status write_measured(const cgp_schedule *s, const cgp_schedule_timeline *t,
                                 char **out) {
    char *csv = NULL;
    CGP_TRY(cgp_schedule_to_csv(s, CGP_CSV_COMPUTE, &csv));
    double *const *const times[] = {t->start, t->end, t->released, t->ready};
    json_t *o = json_object();
    int failed = json_object_set_new(o, CGP__TRACE_FORMAT_KEY, json_integer(CGP__TRACE_FORMAT));
    failed |= json_object_set_new(o, CGP__TRACE_NAME_KEY, name_json(s));
    failed |= json_object_set_new(o, CGP__TRACE_CSV_KEY, json_string(csv));
    failed |= json_object_set_new(o, CGP__TRACE_EDGES_KEY, edges_json(s));
    for (int k = 0; k < CGP__TRACE_TIMES; k++)
        failed |= json_object_set_new(o, cgp__trace_times[k], times_json(s, times[k]));
    if (t->exchanged)
        failed |= json_object_set_new(o, CGP__TRACE_EXCHANGED_KEY, exchanged_json(s, t));
    if (t->clock_uncertainty > 0)
        failed |= json_object_set_new(o, CGP__TRACE_CLOCKS_KEY, json_real(t->clock_uncertainty));
    free(csv);
    *out = failed ? NULL : cgp__json_text(o, JSON_COMPACT | JSON_REAL_PRECISION(17));
    json_decref(o);
    return *out ? CGP_OK : cgp__no_memory("schedule: trace", (size_t)s->devices);
}

cgp_status cgp_schedule_trace(const cgp_schedule *schedule, const cgp_schedule_timeline *timeline,
                              double microseconds, char **out) {
    CGP__NEED(schedule);
    CGP__NEED(timeline);
    CGP__NEED(out);
    cgp__picture picture = {0};
    cgp__text text;
    cgp__chrome trace;
    char *measured = NULL;
    cgp_action_kind *ends = NULL;
    if (!isfinite(microseconds) || microseconds <= 0.0)
        return cgp_fail(CGP_EINVAL, "trace: expected microseconds above 0, got %g", microseconds);
    CGP_TRY(cgp__rules_check(schedule, NULL));
    if (timeline->released) CGP_TRY(write_measured(schedule, timeline, &measured));
    cgp_status status = cgp__picture_of_timeline(&picture, schedule, timeline);
    if (status == CGP_OK) status = cgp__stage_ends(schedule, &ends);
    if (status == CGP_OK) status = cgp__text_open(&text, "schedule: trace");
    if (status == CGP_OK) {
        cgp__chrome_begin(&trace, text.file);
        write_picture(&trace, &picture, ends, microseconds);
        status = cgp__chrome_end(&trace, measured ? CGP__TRACE_KEY : NULL, measured);
        status = cgp__text_close(&text, status, out);
    }
    cgp__picture_release(&picture);
    free(ends);
    free(measured);
    return status;
}
