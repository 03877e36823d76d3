/* SPDX-License-Identifier: Apache-2.0 */
/* agreements.c -- implements agreements.h. In an agreement, each rank sends one report to all other
 * ranks. */
#include "pipeline/run/agreements.h"

#include "pipeline/run/gathers.h"
#include "pipeline/run/ranks.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* A rank's report in an agreement. `text`: its error message, or the text to compare. */
typedef struct report {
    int64_t status;
    char text[504];
} report;

cgp_status cgp__reports_create(void **out, int ranks) {
    *out = cgp__calloc((size_t)ranks, sizeof(report));
    return *out ? CGP_OK : cgp__no_memory("pipeline", sizeof(report));
}

cgp_status cgp__ranks_agree(const cgp__ranks *ranks, cgp_status status) {
    return cgp__ranks_agree_on(ranks, status, "", "", "");
}

/* Exchange statuses and texts. Afterwards ranks->reports has the reports of all ranks. */
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

/* Return the lowest rank whose text differs from the text of rank 0; 0 if all texts are equal. */
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
        ranks->transport->failures.fail(ranks->communicator, status, cgp_message());
}
