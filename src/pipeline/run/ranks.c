/* SPDX-License-Identifier: Apache-2.0 */
/* ranks.c -- see ranks.h. Every exchange is a gather of the transport: data arrives in the order of
 * the ranks, so the bits of results do not depend on timing. */
#include "pipeline/run/ranks.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A rank's part of an agreement. `text`: its error message, or the text to compare. */
typedef struct report {
    int64_t status;
    char text[504];
} report;

static cgp_status check(const cgp__ranks *ranks, const cgp_plan *plan) {
    if (ranks->n == plan->ranks) return CGP_OK;
    return cgp_fail(CGP_EINVAL, "ranks: the plan is for %d, the communicator has %d%s", plan->ranks,
                    ranks->n, ranks->transport ? "" : " (cgp_pipeline_create_on takes one)");
}

cgp_status cgp__ranks_init(cgp__ranks *ranks, const cgp_plan *plan, const cgp_transport *transport,
                           cgp_communicator *communicator) {
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
    CGP_TRY(CGP__NEW(ranks->figures, plan->n_devices, "pipeline"));
    CGP_TRY(CGP__NEW(ranks->beats, ranks->n, "pipeline"));
    CGP_TRY(CGP__NEW(ranks->places, ranks->n, "pipeline"));
    CGP_TRY(CGP__NEW(ranks->neighbours, ranks->n, "pipeline"));
    CGP_TRY(cgp__clocks_create(&ranks->clocks, ranks->n));
    ranks->reports = cgp__calloc((size_t)ranks->n, sizeof(report));
    if (!ranks->reports) return cgp__no_memory("pipeline", sizeof(report));
    return cgp__place_find(&ranks->places[ranks->rank], plan, ranks->rank);
}

void cgp__ranks_deinit(cgp__ranks *ranks) {
    free(ranks->bytes);
    free(ranks->figures);
    free(ranks->beats);
    free(ranks->places);
    free(ranks->neighbours);
    cgp__clocks_destroy(ranks->clocks);
    free(ranks->reports);
}

static cgp_status gather(const cgp__ranks *ranks, const void *mine, void *all) {
    const cgp_status status =
        ranks->transport->gather(ranks->communicator, mine, all, ranks->bytes);
    if (status != CGP_OK) cgp__ranks_fail(ranks, status); /* the others would wait */
    return status;
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

/* Gather texts, given the lengths of all; *all has them one after the other. */
static cgp_status share_text(const cgp__ranks *ranks, const char *mine, const int64_t *lengths,
                             char **all) {
    size_t total = 0;
    for (int r = 0; r < ranks->n; r++)
        total += (size_t)lengths[r];
    CGP_TRY(cgp__ranks_agree(ranks, CGP__NEW(*all, total + 1, "ranks")));
    for (int r = 0; r < ranks->n; r++)
        ranks->bytes[r] = (size_t)lengths[r];
    return gather(ranks, mine, *all);
}

cgp_status cgp__ranks_share_text(const cgp__ranks *ranks, const char *mine, char **all,
                                 int64_t **lengths) {
    *all = NULL;
    *lengths = NULL;
    cgp_status status =
        mine ? CGP__NEW(*lengths, ranks->n, "ranks") : cgp__no_memory("ranks", (size_t)ranks->n);
    status = cgp__ranks_agree(ranks, status);
    if (status == CGP_OK) {
        (*lengths)[ranks->rank] = (int64_t)strlen(mine);
        status = cgp__ranks_share(ranks, *lengths, sizeof **lengths);
    }
    if (status == CGP_OK) status = share_text(ranks, mine, *lengths, all);
    if (status == CGP_OK) return CGP_OK;
    free(*lengths);
    free(*all);
    return status;
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
    return cgp__ranks_agree_on(ranks, status, "", "", "");
}

/* Exchange statuses and texts: ranks->reports has all of them. */
static cgp_status exchange(const cgp__ranks *ranks, cgp_status status, const char *text) {
    report *all = ranks->reports, *mine = &all[ranks->rank], own;
    mine->status = (int64_t)status;
    snprintf(mine->text, sizeof mine->text, "%s", status == CGP_OK ? text : cgp_message());
    own = *mine;
    const cgp_status exchanged = cgp__ranks_share(ranks, all, sizeof *all);
    if (status != CGP_OK) return cgp_fail(status, "%s", own.text);
    CGP_TRY(exchanged);
    for (int r = 0; r < ranks->n; r++) {
        all[r].text[sizeof all[r].text - 1] = 0;
        if (all[r].status != CGP_OK)
            return cgp_fail((cgp_status)all[r].status, "rank %d: %s", r, all[r].text);
    }
    return CGP_OK;
}

/* Return the first rank whose text differs from rank 0's; 0: none. */
static int first_other(const cgp__ranks *ranks) {
    const report *all = ranks->reports;
    for (int r = 1; r < ranks->n; r++)
        if (strcmp(all[r].text, all[0].text) != 0) return r;
    return 0;
}

cgp_status cgp__ranks_agree_on(const cgp__ranks *ranks, cgp_status status, const char *object,
                               const char *text, const char *way_out) {
    if (!ranks->transport) return status;
    CGP_TRY(exchange(ranks, status, text));
    const report *all = ranks->reports;
    const int r = first_other(ranks);
    if (r == 0) return CGP_OK;
    return cgp_fail(CGP_EINVAL,
                    "%s: expected the same on all ranks, got %s on rank %d, %s on rank 0 (%s)",
                    object, all[r].text, r, all[0].text, way_out);
}

cgp_status cgp__ranks_have_same(const cgp__ranks *ranks, cgp_status status, const char *text,
                                bool *same) {
    *same = true;
    if (!ranks->transport) return status;
    CGP_TRY(exchange(ranks, status, text));
    *same = first_other(ranks) == 0;
    return CGP_OK;
}

cgp_status cgp__ranks_compare(const cgp__ranks *ranks, const cgp_plan *plan, uint64_t seed) {
    char hash[65] = "", text[128];
    if (!ranks->transport) return CGP_OK;
    const cgp_status status = cgp_plan_hash(plan, hash);
    snprintf(text, sizeof text, "plan %s, seed %" PRIu64, hash, seed);
    return cgp__ranks_agree_on(ranks, status, "pipeline", text,
                               "the same model, options, seed and version on all");
}

void cgp__ranks_fail(const cgp__ranks *ranks, cgp_status status) {
    if (ranks->transport && status != CGP_EPEER)
        ranks->transport->fail(ranks->communicator, status, cgp_message());
}

int64_t cgp__ranks_exchange_beats(const cgp__ranks *ranks, int64_t ended, int64_t end_ns) {
    if (!ranks->transport) return end_ns;
    ranks->transport->beat(ranks->communicator, ended, end_ns);
    ranks->transport->beats(ranks->communicator, ranks->beats);
    for (int r = 0; r < ranks->n; r++)
        end_ns = cgp__max(end_ns, ranks->beats[r].end_ns);
    return end_ns;
}
