/* schedule.c -- cgpipe schedule: a schedule drawn, checked and simulated without a model.
 *
 * Stages are a chain: each sends an activation to the next and a gradient to the one before. */
#include "commands.h"

#include "common.h"
#include "report.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

typedef struct drawing {
    const cli_settings *settings;
    cgp_schedule *schedule;
    cgp_edge *edges; /* 0 -> 1, 1 -> 2 ..., then 1 -> 0, 2 -> 1 ... */
    int n_edges;
    cgp_schedule_report report;
    cgp_schedule_timeline timeline;
} drawing;

static cgp_status make(drawing *d) {
    const cli_settings *s = d->settings;
    cgp_recompute recompute = CGP_RECOMPUTE_NEVER;
    if (!s->operand)
        return cgp_fail(CGP_EINVAL, "schedule: NAME is missing (gpipe, 1f1b or forward)");
    CGP_TRY(cgp_recompute_parse(&recompute, s->recompute));
    CGP_TRY(cgp_schedule_create(&d->schedule, s->operand, (int)s->stages, (int)s->chunks, NULL));
    CGP_TRY(cgp_schedule_recompute(d->schedule, recompute));
    const int links = (int)s->stages - 1;
    d->n_edges = 2 * links;
    d->edges = cli_calloc((size_t)d->n_edges, sizeof *d->edges);
    for (int j = 0; j < links; j++) {
        d->edges[j] = (cgp_edge){j, j + 1};
        d->edges[links + j] = (cgp_edge){j + 1, j};
    }
    return cgp_schedule_lower(d->schedule, d->edges, d->n_edges);
}

static double *repeat(double value, int count) {
    double *values = cli_calloc((size_t)count, sizeof *values);
    for (int i = 0; i < count; i++)
        values[i] = value;
    return values;
}

static cgp_status simulate(drawing *d) {
    const cli_settings *s = d->settings;
    const int stages = (int)s->stages;
    double *forward = repeat(s->cost_f, stages), *input = repeat(s->cost_i, stages);
    double *weight = repeat(s->cost_w, stages), *latency = repeat(s->latency, d->n_edges);
    const cgp_schedule_costs costs = {.forward = forward,
                                      .backward_input = input,
                                      .backward_weight = weight,
                                      .latency = latency};
    cgp_status status = cgp_schedule_check(d->schedule, &d->report);
    if (status == CGP_OK) status = cgp_schedule_simulate(d->schedule, &costs, &d->timeline);
    free(latency);
    free(weight);
    free(input);
    free(forward);
    return status;
}

static cgp_status print(const drawing *d) {
    const cli_settings *s = d->settings;
    const cgp_schedule_timeline *t = &d->timeline;
    FILE *out = cli_text(s);
    CGP_TRY(cli_print_picture(out, d->schedule, "device"));
    fprintf(out, "\ncosts        F %g, I %g, W %g, transfer %g\n", s->cost_f, s->cost_i,
            s->cost_w, s->latency);
    fprintf(out, "makespan     %g, bubble %.2f %%\n", t->makespan, 100 * t->bubble_makespan);
    fprintf(out, "span         %g, bubble %.2f %%\n", t->span, 100 * t->bubble_span);
    fprintf(out, "peak slots  ");
    for (int i = 0; i < d->report.devices; i++)
        fprintf(out, " %d", d->report.peak_slots[i]);
    fprintf(out, "\nbuffers      edge: least (no deadlock), free (no sender waits)\n");
    for (int i = 0; i < d->n_edges; i++)
        fprintf(out, "             %d->%d: %d, %d\n", d->edges[i].from, d->edges[i].to,
                d->report.least_capacity[i], t->free_capacity[i]);
    return CGP_OK;
}

static json_t *list_of(const int *values, int count) {
    json_t *list = json_array();
    for (int i = 0; i < count; i++)
        json_array_append_new(list, json_integer(values[i]));
    return list;
}

static json_t *to_json(const drawing *d) {
    const cli_settings *s = d->settings;
    const cgp_schedule_timeline *t = &d->timeline;
    json_t *o = json_object(), *edges = json_array();
    json_object_set_new(o, "schedule", json_string(s->operand));
    json_object_set_new(o, "stages", json_integer(s->stages));
    json_object_set_new(o, "chunks", json_integer(s->chunks));
    json_object_set_new(o, "virtual", json_integer(1));
    json_object_set_new(o, "recompute", json_string(s->recompute));
    json_object_set_new(o, "makespan", cli_real_json(t->makespan));
    json_object_set_new(o, "span", cli_real_json(t->span));
    json_object_set_new(o, "bubble_makespan", cli_real_json(t->bubble_makespan));
    json_object_set_new(o, "bubble_span", cli_real_json(t->bubble_span));
    json_object_set_new(o, "peak_slots_per_device",
                        list_of(d->report.peak_slots, d->report.devices));
    for (int i = 0; i < d->n_edges; i++)
        json_array_append_new(edges,
                              list_of((const int[]){d->edges[i].from, d->edges[i].to}, 2));
    json_object_set_new(o, "edges", edges);
    json_object_set_new(o, "least_capacity", list_of(d->report.least_capacity, d->n_edges));
    json_object_set_new(o, "free_capacity", list_of(t->free_capacity, d->n_edges));
    return o;
}

static cgp_status tell(drawing *d) {
    CGP_TRY(cli_json_check(d->settings));
    CGP_TRY(print(d));
    return cli_json_write(d->settings, to_json(d));
}

int cli_schedule(const cli_settings *settings) {
    drawing d = {.settings = settings};
    int code = cli_report(make(&d), true);
    if (code == CLI_OK) code = cli_report(simulate(&d), true);
    if (code == CLI_OK) code = cli_report(tell(&d), false);
    cgp_schedule_timeline_release(&d.timeline);
    cgp_schedule_report_release(&d.report);
    cgp_schedule_destroy(d.schedule);
    free(d.edges);
    return code;
}
