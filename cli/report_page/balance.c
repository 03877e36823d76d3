/* SPDX-License-Identifier: Apache-2.0 */
/* balance.c -- the balance of a report: layers, time and bytes of each stage. */
#include "report_page/run.h"

#include "json_value.h"
#include "session/session.h"
#include "text.h"

#include <stdlib.h>

char *cli_page_layers(const cli_session *session, int stage) {
    const cgp_plan_stage *s = cgp_plan_stage_at(session->plan, stage);
    const char *first = cgp_model_layer_name(session->model, s->first_layer);
    const char *last = cgp_model_layer_name(session->model, s->first_layer + s->layers - 1);
    return s->layers == 1 ? cli_text("%s", first) : cli_text("%s .. %s", first, last);
}

/* Times or FLOPs of a stage's F, I and W for a micro-batch. */
typedef struct work {
    double f, i, w;
} work;

static work work_of(const cli_page_run *run, int stage) {
    const cgp_plan_stage *s = cgp_plan_stage_at(run->session->plan, stage);
    work sum = {0};
    if (!run->costs)
        return (work){s->forward_flops, s->backward_flops - s->weight_flops, s->weight_flops};
    for (int i = s->first_layer; i < s->first_layer + s->layers; i++) {
        sum.f += run->costs[i].forward_seconds;
        sum.i += run->costs[i].input_seconds;
        sum.w += run->costs[i].weight_seconds;
    }
    return sum;
}

static int64_t parameter_bytes(const cli_page_run *run, const cgp_plan_stage *s) {
    int64_t bytes = 0;
    for (int i = s->first_layer; run->costs && i < s->first_layer + s->layers; i++)
        bytes += run->costs[i].parameter_bytes;
    return bytes;
}

void cli_page_balance(cli_page_run *run) {
    if (!run->session) return;
    const cgp_plan *plan = run->session->plan;
    json_t *stages = json_array();
    double total = 0, largest = 0;
    for (int j = 0; j < cgp_plan_stages(plan); j++) {
        const work w = work_of(run, j);
        total += w.f + w.i + w.w;
        largest = w.f + w.i + w.w > largest ? w.f + w.i + w.w : largest;
    }
    for (int j = 0; j < cgp_plan_stages(plan); j++) {
        const cgp_plan_stage *s = cgp_plan_stage_at(plan, j);
        const work w = work_of(run, j);
        char *names = cli_page_layers(run->session, j);
        json_array_append_new(
            stages,
            json_pack("{s:i, s:i, s:i, s:s, s:o, s:o, s:o, s:o, s:o, s:I, s:I, s:i}", "stage", j,
                      "device", s->device, "layers", s->layers, "names", names, "forward",
                      cli_real_json(w.f), "input", cli_real_json(w.i), "weight", cli_real_json(w.w),
                      "share", cli_real_json(total > 0 ? (w.f + w.i + w.w) / total : 0),
                      "parameter_bytes",
                      run->costs ? json_integer(parameter_bytes(run, s)) : json_null(),
                      "saved_slot_bytes", (json_int_t)s->saved_slot_bytes, "input_slot_bytes",
                      (json_int_t)s->input_slot_bytes, "saved_slots", s->saved_slots));
        free(names);
    }
    cli_json_add(run->data, "{s:{s:s, s:o, s:o}}", "balance", "unit",
                 run->costs ? "seconds" : "FLOPs", "largest_over_mean",
                 cli_real_json(total > 0 ? largest * cgp_plan_stages(plan) / total : 1), "stages",
                 stages);
}
