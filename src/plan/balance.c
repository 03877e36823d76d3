/* SPDX-License-Identifier: Apache-2.0 */
/* balance.c -- finds the balance of a plan. It passes the plan's schedule and the layers' costs for
 * one micro-batch to the search (partition/balance_search.c). */
#include "plan/balance.h"

#include <stdlib.h>

#include "model/model.h"
#include "optim/optim.h"
#include "partition/balance_search.h"
#include "partition/partition.h"
#include "plan/actions.h"
#include "plan/precision.h"
#include "plan/setup.h"
#include "schedule/gradient_groups.h"
#include "schedule/table.h"

/* The arguments of make_schedule(). */
typedef struct maker {
    const cgp__setup *setup;
    const cgp_plan_options *options;
    const cgp_schedule *placed;
    /* [layers] FLOPs of a micro-batch */
    const cgp_layer_cost *flops;
    /* [4][stages] FLOPs of F, I, W and R */
    double *stage_flops;
} maker;

static const double *add_flops(const maker *m, int stages, const int *cuts) {
    const bool selective = cgp_recompute_is_selective(m->setup->recompute);
    for (int j = 0; j < stages; j++) {
        double f = 0, i = 0, w = 0, r = 0;
        for (int layer = cuts[j]; layer < cuts[j + 1]; layer++) {
            const cgp_layer_cost *c = &m->flops[layer];
            f += c->forward_seconds;
            i += c->input_seconds + (selective ? c->selective_seconds : 0);
            w += c->weight_seconds;
            r += c->recompute_seconds;
        }
        m->stage_flops[j] = f;
        m->stage_flops[stages + j] = i;
        m->stage_flops[2 * stages + j] = w;
        m->stage_flops[3 * stages + j] = r;
    }
    return m->stage_flops;
}

/* Make the compute actions of a full mini-batch. This function implements
 * cgp__schedule_source.make. */
static cgp_status make_schedule(void *self, const int *cuts, cgp_schedule **out) {
    const maker *m = self;
    const int chunks = m->setup->chunks, stages = cgp_schedule_stages(m->placed);
    const double *costs = cuts ? add_flops(m, stages, cuts) : NULL;
    cgp_schedule *schedule = NULL;
    if (m->setup->inference)
        return cgp__schedule_forward(out, m->placed, chunks, cgp_schedule_devices(m->placed));
    CGP_TRY(m->options->table ? cgp__schedule_part(&schedule, m->placed, chunks)
                              : cgp__generate_table(m->setup, m->options, costs, &schedule));
    cgp_status status = CGP_OK;
    if (m->setup->recompute != CGP_RECOMPUTE_NEVER)
        status = cgp_schedule_recompute(schedule, m->setup->recompute);
    return cgp__schedule_finish(out, schedule, status);
}

static cgp_status search(const maker *m, const int64_t *caps, const cgp__layer_sums *sums,
                         int *balance, int64_t *bytes) {
    const cgp__schedule_source source = {
        make_schedule, (void *)m,
        !m->options->table && cgp__schedule_needs_costs(cgp__schedule_name_of(m->options))};
    cgp__objective objective = {0};
    cgp_status status = cgp__objective_create(&objective, sums, &source, caps);
    if (status == CGP_OK) status = cgp__search_balance(&objective, balance);
    if (status == CGP_OK && bytes) status = cgp__balance_bytes(&objective, balance, bytes);
    cgp__objective_release(&objective);
    return status;
}

/* Search for the balance. The search uses the layers' costs for one micro-batch. */
static cgp_status search_by(const maker *m, const int64_t *caps, const cgp__device_costs *costs,
                            int *balance, int64_t *bytes) {
    const cgp__setup *setup = m->setup;
    const cgp__layer_use use = {.inference = setup->inference,
                                .selective = cgp_recompute_is_selective(setup->recompute),
                                .samples = setup->microbatch,
                                .chunks = setup->chunks,
                                .type = cgp__activation_type(setup),
                                .parameter_scale = setup->inference
                                                       ? 1
                                                       : 2 + cgp_optim_states(&setup->optim) +
                                                             cgp__setup_partials(setup)};
    cgp__layer_sums sums = {0};
    cgp_status status = cgp__layer_sums_create(&sums, setup->model, costs, &use);
    if (status == CGP_OK) status = search(m, caps, &sums, balance, bytes);
    cgp__layer_sums_release(&sums);
    return status;
}

cgp_status cgp__find_balance(const cgp__setup *setup, const cgp_plan_options *options,
                             const cgp_schedule *placed, const int64_t *caps,
                             const cgp__device_costs *costs, int *balance, int64_t *bytes) {
    const int stages = cgp_schedule_stages(placed), layers = setup->model->n_layers;
    if (stages == 1 || stages == layers) { /* only one balance is possible */
        for (int j = 0; j < stages; j++)
            balance[j] = stages == 1 ? layers : 1;
        for (int d = 0; bytes && d < cgp_schedule_devices(placed); d++)
            bytes[d] = 0;
        return CGP_OK;
    }
    cgp_layer_cost *flops = cgp__calloc((size_t)layers, sizeof *flops);
    double *stage_flops = cgp__calloc(4 * (size_t)stages, sizeof *stage_flops);
    const cgp__device_costs by_flops = {.rows = flops};
    const maker m = {setup, options, placed, flops, stage_flops};
    cgp_status status =
        flops && stage_flops ? CGP_OK : cgp__no_memory("balance", (size_t)layers * sizeof *flops);
    if (status == CGP_OK)
        status = cgp__layer_flops_costs(setup->model, setup->microbatch, cgp__arithmetic_of(setup),
                                        flops);
    if (status == CGP_OK) status = search_by(&m, caps, costs ? costs : &by_flops, balance, bytes);
    free(stage_flops);
    free(flops);
    return status;
}
