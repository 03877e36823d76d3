/* SPDX-License-Identifier: Apache-2.0 */
/* timeline.c -- the step of a report: the planned and the measured timeline, where the time of each
 * device went, and what each device waited for.
 *
 * With at most MOST_ACTIONS actions, each is listed: ["F", stage, micro-batch, start, end]. With
 * more, each device's time is cut into columns of equal width. A column has the kind that takes
 * most of it, and equal columns in a row become one entry: ["F", -1, actions, start, end]. The wait
 * for other replicas after the last action is an entry ["X", -1, 0, start, end]. */
#include "report_page/run.h"

#include "json_value.h"
#include "session/session.h"
#include "text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_ACTIONS = 2000,
    COLUMNS = 5000,
    WIDEST = 1000,
    NARROWEST = 40,
    MOST_ROWS = 256,
    KINDS = 6
};
static const char letters[] = "FBIWR.";

static bool computes(const cgp_action *a) {
    return a->kind <= CGP_ACTION_R;
}

static int actions_of(const cgp_schedule *schedule) {
    int sum = 0;
    for (int d = 0; d < cgp_schedule_devices(schedule); d++) {
        int n = 0;
        const cgp_action *list = cgp_schedule_actions(schedule, d, &n);
        for (int i = 0; i < n; i++)
            sum += computes(&list[i]);
    }
    return sum;
}

/* --- entries --- */

static json_t *entry(char kind, int stage, int number, double start, double end) {
    return json_pack("[s#, i, i, o, o]", &kind, 1, stage, number, cli_real_json(start),
                     cli_real_json(end));
}

static json_t *list_all(const cgp_schedule *schedule, const cgp_schedule_timeline *t, int d) {
    json_t *entries = json_array();
    int n = 0;
    const cgp_action *list = cgp_schedule_actions(schedule, d, &n);
    for (int i = 0; i < n; i++) {
        if (computes(&list[i]))
            json_array_append_new(entries, entry(letters[list[i].kind], list[i].stage,
                                                 list[i].microbatch, t->start[d][i], t->end[d][i]));
    }
    return entries;
}

typedef struct column {
    double seconds[KINDS - 1];
    int actions; /* actions that start in the column */
} column;

/* Add the time of an action to the columns that it covers. */
static void cover(column *columns, int n, double width, int kind, double start, double end) {
    const int first = (int)fmin(n - 1, fmax(0, start / width));
    columns[first].actions++;
    for (int c = first; c < n && c * width < end; c++)
        columns[c].seconds[kind] += fmin(end, (c + 1) * width) - fmax(start, c * width);
}

static int main_kind(const column *c, double width) {
    double busy = 0;
    int best = 0;
    for (int k = 0; k < KINDS - 1; k++) {
        busy += c->seconds[k];
        if (c->seconds[k] > c->seconds[best]) best = k;
    }
    return busy < 0.5 * width ? KINDS - 1 : best;
}

static json_t *list_columns(const cgp_schedule *schedule, const cgp_schedule_timeline *t, int d,
                            double until) {
    const int wanted = COLUMNS / cgp_schedule_devices(schedule);
    const int n = wanted > WIDEST ? WIDEST : wanted < NARROWEST ? NARROWEST : wanted;
    const double width = until / n;
    column *columns = cli_calloc((size_t)n, sizeof *columns);
    json_t *entries = json_array();
    int count = 0;
    const cgp_action *list = cgp_schedule_actions(schedule, d, &count);
    for (int i = 0; i < count; i++) {
        if (computes(&list[i]))
            cover(columns, n, width, (int)list[i].kind, t->start[d][i], t->end[d][i]);
    }
    for (int c = 0, next; c < n; c = next) {
        const int kind = main_kind(&columns[c], width);
        int actions = 0;
        for (next = c; next < n && main_kind(&columns[next], width) == kind; next++)
            actions += columns[next].actions;
        if (kind < KINDS - 1)
            json_array_append_new(entries,
                                  entry(letters[kind], -1, actions, c * width, next * width));
    }
    free(columns);
    return entries;
}

/* Return the entries of a device; none for the devices after the first MOST_ROWS. `each`: list each
 * action. */
static json_t *entries_json(const cgp_schedule *schedule, const cgp_schedule_timeline *t, int d,
                            double until, bool each) {
    if (d >= MOST_ROWS) return json_array();
    return each ? list_all(schedule, t, d) : list_columns(schedule, t, d, until);
}

/* Return the time at which all devices have the sums of gradients over the replicas. */
static double last_exchange(const cgp_schedule_timeline *t) {
    double last = t->makespan;
    for (int d = 0; t->exchanged && d < t->devices; d++)
        last = fmax(last, t->exchanged[d]);
    return last;
}

/* Return the entries of a device in the measured step. */
static json_t *measured_json(const cgp_schedule *schedule, const cgp_schedule_timeline *t, int d,
                             double until, bool each) {
    json_t *entries = entries_json(schedule, t, d, until, each);
    int n = 0;
    (void)cgp_schedule_actions(schedule, d, &n);
    const double last = n > 0 ? t->end[d][n - 1] : 0;
    if (t->exchanged && d < MOST_ROWS && t->exchanged[d] > last)
        json_array_append_new(entries, entry('X', -1, 0, last, t->exchanged[d]));
    return entries;
}

/* --- waits --- */

/* The largest wait of a device: its actions of one kind and stage, and the action that they wait
 * for. */
typedef struct wait {
    double seconds;
    int kind, stage, of_kind, of_stage;
} wait;

/* Find the transfer that an action at `i` waits for: the receive before it that was ready last. */
static int receive_before(const cgp_action *list, const cgp_schedule_timeline *t, int d, int i) {
    int found = -1;
    for (int k = i - 1; k >= 0 && !computes(&list[k]); k--) {
        const bool receives =
            list[k].kind == CGP_ACTION_RECV_F || list[k].kind == CGP_ACTION_RECV_B;
        if (receives && list[k].stage == list[i].stage &&
            (found < 0 || t->end[d][k] > t->end[d][found]))
            found = k;
    }
    return found;
}

/* Return the kind that produces the message of a receive. */
static int producer(const cgp_schedule *schedule, const cgp_action *receive, int stage) {
    int n = 0;
    if (receive->kind == CGP_ACTION_RECV_F) return CGP_ACTION_F;
    const int device = cgp_schedule_device_of(schedule, stage);
    const cgp_action *list = cgp_schedule_actions(schedule, device, &n);
    for (int i = 0; i < n; i++) {
        const bool backward = list[i].kind == CGP_ACTION_I || list[i].kind == CGP_ACTION_B;
        if (list[i].stage == stage && backward) return (int)list[i].kind;
    }
    return CGP_ACTION_B;
}

/* Add the waits of a device. sums: [stages][5] seconds that actions of a stage and kind waited. */
static void add_waits(const cgp_schedule *schedule, const cgp_schedule_timeline *t, int d,
                      wait *sums) {
    int n = 0, n_edges = 0;
    const cgp_action *list = cgp_schedule_actions(schedule, d, &n);
    const cgp_edge *edges = cgp_schedule_edges(schedule, &n_edges);
    double free_at = 0;
    for (int i = 0; i < n; i++) {
        if (!computes(&list[i])) continue;
        const int k = receive_before(list, t, d, i);
        wait *w = &sums[list[i].stage * (KINDS - 1) + (int)list[i].kind];
        if (k >= 0 && t->start[d][i] > free_at) {
            w->seconds += t->start[d][i] - free_at;
            w->kind = (int)list[i].kind;
            w->stage = list[i].stage;
            w->of_stage = edges[list[k].edge].from;
            w->of_kind = producer(schedule, &list[k], w->of_stage);
        }
        free_at = fmax(free_at, t->end[d][i]);
    }
}

static json_t *wait_json(const wait *w) {
    const char kind = letters[w->kind], of = letters[w->of_kind];
    return json_pack("{s:s#, s:i, s:s#, s:i, s:o}", "kind", &kind, 1, "stage", w->stage, "for_kind",
                     &of, 1, "for_stage", w->of_stage, "seconds", cli_real_json(w->seconds));
}

/* List the three largest waits. */
static json_t *waits_json(const cgp_schedule *schedule, const cgp_schedule_timeline *t) {
    const int n = cgp_schedule_stages(schedule) * (KINDS - 1);
    wait *sums = cli_calloc((size_t)n, sizeof *sums);
    json_t *list = json_array();
    for (int d = 0; d < cgp_schedule_devices(schedule); d++)
        add_waits(schedule, t, d, sums);
    for (int k = 0; k < 3; k++) {
        wait *largest = &sums[0];
        for (int i = 1; i < n; i++)
            largest = sums[i].seconds > largest->seconds ? &sums[i] : largest;
        if (!(largest->seconds > 0)) break;
        json_array_append_new(list, wait_json(largest));
        largest->seconds = 0;
    }
    free(sums);
    return list;
}

/* --- the section --- */

static json_t *parts_json(const double parts[CGP_PARTS]) {
    json_t *o = json_object();
    for (int part = 0; part < CGP_PARTS; part++)
        json_object_set_new(o, cgp_schedule_part_name((cgp_schedule_part)part),
                            cli_real_json(parts[part]));
    return o;
}

static void put_measured(cli_page_run *run) {
    const cgp_schedule *s = run->schedule;
    const cgp_schedule_timeline *t = &run->timeline, *planned = &run->comparison.planned;
    const json_t *places = json_object_get(run->measured, "places");
    const double until = fmax(t->makespan, planned->makespan);
    const bool each = actions_of(s) <= MOST_ACTIONS;
    json_t *devices = json_array(), *step = json_object_get(run->measured, "step");
    if (!json_is_integer(step)) {
        step = NULL;
        cli_page_missing(run, "timeline", "the number of the measured step is missing");
    }
    for (int d = 0; d < t->devices; d++) {
        json_t *host = json_object_get(json_array_get(places, (size_t)d), "host");
        json_array_append_new(devices,
                              json_pack("{s:i, s:O*, s:o, s:o, s:o}", "device", d, "host", host,
                                        "parts", parts_json(run->comparison.parts[d]), "planned",
                                        entries_json(s, planned, d, until, each), "measured",
                                        measured_json(s, t, d, until, each)));
    }
    cli_json_add(run->data, "{s:{s:s, s:O?, s:i, s:i, s:b, s:o, s:o, s:o*, s:o, s:o, s:o, s:o}}",
                 "timeline", "schedule", cgp_schedule_name(s), "step", step, "stages",
                 cgp_schedule_stages(s), "micro_batches", cgp_schedule_chunks(s), "each_action",
                 each, "measured_seconds", cli_real_json(t->makespan), "planned_seconds",
                 cli_real_json(planned->makespan), "exchanged_seconds",
                 t->exchanged ? cli_real_json(last_exchange(t)) : NULL, "clock_uncertainty_seconds",
                 cli_real_json(t->clock_uncertainty), "bubble", cli_real_json(t->bubble_makespan),
                 "waits", waits_json(s, t), "devices", devices);
}

/* Without a measured step, draw the plan, whose unit of time is a FLOP. */
static void put_planned(cli_page_run *run) {
    const cgp_schedule *s = cgp_plan_schedule(run->session->plan);
    const cgp_schedule_timeline *t = cgp_plan_timeline(run->session->plan);
    const bool each = actions_of(s) <= MOST_ACTIONS;
    json_t *devices = json_array();
    for (int d = 0; d < t->devices; d++)
        json_array_append_new(devices, json_pack("{s:i, s:o}", "device", d, "planned",
                                                 entries_json(s, t, d, t->makespan, each)));
    cli_json_add(run->data, "{s:{s:s, s:i, s:i, s:b, s:o, s:o, s:o}}", "timeline", "schedule",
                 cgp_schedule_name(s), "stages", cgp_schedule_stages(s), "micro_batches",
                 cgp_schedule_chunks(s), "each_action", each, "planned_flops",
                 cli_real_json(t->makespan), "bubble", cli_real_json(t->bubble_makespan), "devices",
                 devices);
}

void cli_page_timeline(cli_page_run *run) {
    const cgp_schedule *s = run->schedule  ? run->schedule
                            : run->session ? cgp_plan_schedule(run->session->plan)
                                           : NULL;
    if (s && cgp_schedule_devices(s) > MOST_ROWS)
        cli_page_missing(run, "timeline", "only the first %d of %d devices are listed", MOST_ROWS,
                         cgp_schedule_devices(s));
    if (run->schedule)
        put_measured(run);
    else if (run->session)
        put_planned(run);
}
