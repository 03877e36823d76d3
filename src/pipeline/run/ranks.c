/* SPDX-License-Identifier: Apache-2.0 */
/* ranks.c -- implements ranks.h. */
#include "pipeline/run/ranks.h"

#include "pipeline/run/agreements.h"
#include "pipeline/run/clocks.h"
#include "pipeline/run/places.h"
#include "plan/owners.h"
#include "plan/setup.h"

#include <stdio.h>
#include <stdlib.h>

static cgp_status check(const cgp__ranks *ranks, const cgp_plan *plan) {
    const cgp__setup *setup = cgp__plan_setup(plan);
    char replicas[48] = "";
    if (ranks->n == setup->ranks * setup->replicas) return CGP_OK;
    if (setup->replicas > 1)
        snprintf(replicas, sizeof replicas, " in each of %d replicas", setup->replicas);
    return cgp_fail(CGP_EINVAL, "ranks: the plan is for %d%s, the communicator has %d%s",
                    setup->ranks, replicas, ranks->n,
                    ranks->transport ? "" : " (cgp_pipeline_create_on takes one)");
}

cgp_status cgp__ranks_init(cgp__ranks *ranks, const cgp_plan *plan, const cgp_transport *transport,
                           cgp_communicator *communicator) {
    *ranks = (cgp__ranks){.n = 1, .end = cgp_plan_devices(plan)};
    if (transport) {
        ranks->transport = transport;
        ranks->communicator = communicator;
        ranks->rank = transport->rank(communicator);
        ranks->n = transport->ranks(communicator);
    }
    CGP_TRY(check(ranks, plan));
    ranks->replica = ranks->rank / cgp__plan_setup(plan)->ranks;
    ranks->base = ranks->replica * cgp__plan_setup(plan)->ranks;
    if (ranks->n == 1) ranks->transport = NULL;
    while (ranks->first < cgp_plan_devices(plan) &&
           !cgp__plan_is_on(plan, ranks->first, ranks->rank))
        ranks->first++;
    ranks->end = ranks->first;
    while (ranks->end < cgp_plan_devices(plan) && cgp__plan_is_on(plan, ranks->end, ranks->rank))
        ranks->end++;
    CGP_TRY(CGP__NEW(ranks->bytes, ranks->n, "pipeline"));
    CGP_TRY(CGP__NEW(ranks->figures, cgp_plan_devices(plan), "pipeline"));
    CGP_TRY(CGP__NEW(ranks->states, ranks->n, "pipeline"));
    CGP_TRY(CGP__NEW(ranks->places, ranks->n, "pipeline"));
    CGP_TRY(CGP__NEW(ranks->neighbours, ranks->n, "pipeline"));
    CGP_TRY(cgp__clocks_create(&ranks->clocks, ranks->n));
    CGP_TRY(cgp__reports_create(&ranks->reports, ranks->n));
    return cgp__place_find(&ranks->places[ranks->rank], plan, ranks->rank);
}

void cgp__ranks_deinit(cgp__ranks *ranks) {
    free(ranks->bytes);
    free(ranks->figures);
    free(ranks->states);
    free(ranks->places);
    free(ranks->neighbours);
    cgp__clocks_destroy(ranks->clocks);
    free(ranks->reports);
}

int64_t cgp__ranks_exchange_progress(const cgp__ranks *ranks, int64_t ended, int64_t end_ns) {
    if (!ranks->transport) return end_ns;
    ranks->transport->failures.report_progress(ranks->communicator, ended, end_ns);
    ranks->transport->failures.rank_states(ranks->communicator, ranks->states);
    for (int r = 0; r < ranks->n; r++)
        end_ns = cgp__max(end_ns, ranks->states[r].end_ns);
    return end_ns;
}
