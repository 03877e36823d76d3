/* SPDX-License-Identifier: Apache-2.0 */
/* hosts.c -- which ranks share cores with this one: those on the same host that may run on the same cores. Their devices are numbered
 * together, so that each is pinned to cores of its own, whether the launcher bound its processes or not. */
#define _GNU_SOURCE
#include "pipeline/run/ranks.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Host and cores of a rank. */
typedef struct place {
    char host[256];
    cpu_set_t cores; /* empty: not known */
} place;

static place place_of_this(void) {
    place here;
    memset(&here, 0, sizeof here);
    if (gethostname(here.host, sizeof here.host - 1) != 0) here.host[0] = '\0';
    if (sched_getaffinity(0, sizeof here.cores, &here.cores) != 0) CPU_ZERO(&here.cores);
    return here;
}

/* Return whether two ranks share a core. */
static bool overlaps(const place *a, const place *b) {
    cpu_set_t both;
    CPU_AND(&both, &a->cores, &b->cores);
    return strcmp(a->host, b->host) == 0 && CPU_COUNT(&both) > 0;
}

cgp_status cgp__ranks_find_neighbours(cgp__ranks *ranks) {
    place *all = NULL;
    ranks->may_pin = true;
    if (!ranks->transport) return CGP_OK;
    cgp_status status = CGP__NEW(ranks->neighbours, ranks->n, "pipeline");
    if (status == CGP_OK) status = CGP__NEW(all, ranks->n, "pipeline");
    if (status != CGP_OK) {
        cgp__ranks_fail(ranks, status);
        return status;
    }
    all[ranks->rank] = place_of_this();
    status = cgp__ranks_share(ranks, all, sizeof *all);
    const place *own = &all[ranks->rank];
    for (int r = 0; r < ranks->n && status == CGP_OK; r++) {
        ranks->neighbours[r] = overlaps(own, &all[r]);
        if (ranks->neighbours[r] && !CPU_EQUAL(&own->cores, &all[r].cores))
            ranks->may_pin = false;
    }
    free(all);
    return status;
}
