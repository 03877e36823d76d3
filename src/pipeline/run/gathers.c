/* SPDX-License-Identifier: Apache-2.0 */
/* gathers.c -- implements gathers.h. Every exchange is a gather of the transport, which delivers
 * data in the order of the ranks. So timing does not change the bits of results. */
#include "pipeline/run/gathers.h"

#include "pipeline/run/agreements.h"
#include "pipeline/run/ranks.h"
#include "plan/setup.h"

#include <stdlib.h>
#include <string.h>

static cgp_status gather(const cgp__ranks *ranks, const void *mine, void *all) {
    const cgp_status status =
        ranks->transport->agreement.gather(ranks->communicator, mine, all, ranks->bytes);
    /* Notify the other ranks. This ends their waits. */
    if (status != CGP_OK) cgp__ranks_fail(ranks, status);
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

size_t *cgp__ranks_sizes(const cgp__ranks *ranks) {
    return ranks->bytes;
}

cgp_status cgp__ranks_share_blocks(const cgp__ranks *ranks, const void *mine, void *all) {
    return gather(ranks, mine, all);
}

/* Gather texts of known lengths. *all receives the texts one after the other. */
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

cgp_status cgp__ranks_share_replicas(const cgp__ranks *ranks, const cgp_plan *plan,
                                     const void *data, size_t bytes, void *all) {
    const int devices = cgp_plan_devices(plan), own = ranks->end - ranks->first,
              each = cgp__plan_setup(plan)->ranks;
    const char *mine = (const char *)data + (size_t)ranks->first * bytes;
    if (!ranks->transport) memcpy(all, mine, (size_t)own * bytes);
    if (!ranks->transport) return CGP_OK;
    memset(ranks->bytes, 0, (size_t)ranks->n * sizeof *ranks->bytes);
    for (int d = 0; d < devices; d++)
        for (int r = cgp_plan_device_at(plan, d)->rank; r < ranks->n; r += each)
            ranks->bytes[r] += bytes;
    return gather(ranks, mine, all);
}

cgp_status cgp__ranks_share_devices(const cgp__ranks *ranks, const cgp_plan *plan, void *data,
                                    size_t bytes) {
    if (!ranks->transport) return CGP_OK;
    memset(ranks->bytes, 0, (size_t)ranks->n * sizeof *ranks->bytes);
    for (int d = 0; d < cgp_plan_devices(plan); d++)
        ranks->bytes[cgp_plan_device_at(plan, d)->rank] += bytes;
    return gather(ranks, (char *)data + (size_t)ranks->first * bytes, data);
}
