/* SPDX-License-Identifier: Apache-2.0 */
/* ranks.c -- see ranks.h. Every exchange is a gather of the transport, so that its order, and with it all bits, is that of the ranks. */
#include "pipeline/run/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A rank's part of an agreement. */
typedef struct report {
    int64_t status;
    char message[504];
} report;

static cgp_status check(const cgp__ranks *ranks, const cgp_plan *plan) {
    if (ranks->n == plan->ranks) return CGP_OK;
    return cgp_fail(CGP_EINVAL, "ranks: the plan is for %d, the communicator has %d%s",
                    plan->ranks, ranks->n,
                    ranks->transport ? "" : " (cgp_pipeline_create_on takes one)");
}

cgp_status cgp__ranks_init(cgp__ranks *ranks, const cgp_plan *plan,
                           const cgp_transport *transport, cgp_communicator *communicator) {
    *ranks = (cgp__ranks){.n = 1, .end = plan->n_devices};
    if (transport) {
        ranks->transport = transport;
        ranks->communicator = communicator;
        ranks->rank = transport->rank(communicator);
        ranks->n = transport->ranks(communicator);
    }
    CGP_TRY(check(ranks, plan));
    if (ranks->n == 1) ranks->transport = NULL;
    while (ranks->first < plan->n_devices && !cgp__plan_is_on(plan, ranks->first, ranks->rank))
        ranks->first++;
    ranks->end = ranks->first;
    while (ranks->end < plan->n_devices && cgp__plan_is_on(plan, ranks->end, ranks->rank))
        ranks->end++;
    CGP_TRY(CGP__NEW(ranks->bytes, ranks->n, "pipeline"));
    ranks->reports = cgp__calloc((size_t)ranks->n, sizeof(report));
    return ranks->reports ? CGP_OK : cgp__no_memory("pipeline", sizeof(report));
}

void cgp__ranks_deinit(cgp__ranks *ranks) {
    free(ranks->bytes);
    free(ranks->neighbours);
    free(ranks->reports);
}

static cgp_status gather(const cgp__ranks *ranks, const void *mine, void *all) {
    return ranks->transport->gather(ranks->communicator, mine, all, ranks->bytes);
}

cgp_status cgp__ranks_share(const cgp__ranks *ranks, void *all, size_t bytes) {
    if (!ranks->transport) return CGP_OK;
    for (int r = 0; r < ranks->n; r++)
        ranks->bytes[r] = bytes;
    return gather(ranks, (char *)all + (size_t)ranks->rank * bytes, all);
}

cgp_status cgp__ranks_broadcast(const cgp__ranks *ranks, int root, void *data, size_t bytes) {
    if (!ranks->transport || bytes == 0) return CGP_OK;
    for (int r = 0; r < ranks->n; r++)
        ranks->bytes[r] = r == root ? bytes : 0;
    return gather(ranks, data, data);
}

cgp_status cgp__ranks_share_devices(const cgp__ranks *ranks, const cgp_plan *plan, void *data,
                                    size_t bytes) {
    if (!ranks->transport) return CGP_OK;
    memset(ranks->bytes, 0, (size_t)ranks->n * sizeof *ranks->bytes);
    for (int d = 0; d < plan->n_devices; d++)
        ranks->bytes[plan->devices[d].info.rank] += bytes;
    return gather(ranks, (char *)data + (size_t)ranks->first * bytes, data);
}

cgp_status cgp__ranks_agree(const cgp__ranks *ranks, cgp_status status) {
    if (!ranks->transport) return status;
    report *all = ranks->reports, *mine = &all[ranks->rank], own;
    mine->status = (int64_t)status;
    snprintf(mine->message, sizeof mine->message, "%s", status == CGP_OK ? "" : cgp_message());
    own = *mine;
    const cgp_status exchanged = cgp__ranks_share(ranks, all, sizeof *all);
    if (status != CGP_OK) return cgp_fail(status, "%s", own.message);
    CGP_TRY(exchanged);
    for (int r = 0; r < ranks->n; r++) {
        all[r].message[sizeof all[r].message - 1] = 0;
        if (all[r].status != CGP_OK)
            return cgp_fail((cgp_status)all[r].status, "rank %d: %s", r, all[r].message);
    }
    return CGP_OK;
}

cgp_status cgp__ranks_compare(const cgp__ranks *ranks, const cgp_plan *plan) {
    if (!ranks->transport) return CGP_OK;
    char(*hashes)[65] = cgp__calloc((size_t)ranks->n, sizeof *hashes);
    if (!hashes) return cgp__no_memory("pipeline", sizeof *hashes);
    cgp_status status = cgp_plan_hash(plan, hashes[ranks->rank]);
    if (status == CGP_OK) status = cgp__ranks_share(ranks, hashes, sizeof *hashes);
    for (int r = 0; r < ranks->n && status == CGP_OK; r++) {
        if (memcmp(hashes[r], hashes[0], sizeof *hashes) != 0)
            status = cgp_fail(CGP_EINVAL,
                              "plan: expected the same on all ranks, rank %d has %.12s, rank 0 "
                              "%.12s (the same model, options and version on all)",
                              r, hashes[r], hashes[0]);
    }
    free(hashes);
    return status;
}

void cgp__ranks_fail(const cgp__ranks *ranks, cgp_status status) {
    if (ranks->transport && status != CGP_EPEER)
        ranks->transport->fail(ranks->communicator, status, cgp_message());
}
