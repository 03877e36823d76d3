/* SPDX-License-Identifier: Apache-2.0 */
/* places.h -- where each rank runs, and the instruction set and the libm that it has: gathered
 * once, before anything is allocated, so that all ranks draw the same conclusions. */
#ifndef CGP_SRC_PIPELINE_PLACES_H
#define CGP_SRC_PIPELINE_PLACES_H

#include "plan/plan.h"

typedef struct cgp__ranks cgp__ranks;

typedef struct cgp__place {
    char host[72];           /* its name */
    char cores[120];         /* that the rank may use: "0-3,8" */
    unsigned char mask[128]; /* the same, a cpu_set_t; all zero: not known */
    uint64_t machine;        /* equal: one kernel, hence one memory */
    uint64_t container;      /* on one machine, equal: one limit of memory */
    uint64_t clock;          /* on one machine, equal: one monotonic clock */
    int64_t machine_bytes;   /* available; INT64_MAX: not known */
    int64_t container_bytes; /* likewise; INT64_MAX: no limit */
    char libm[24];           /* cgp__libm_digest() */
    char libc[32];           /* the C library, "" if it does not say */
    char numerics[96];       /* of the rank's first device that has a text; "": of none */
    int64_t isa;             /* cgp_isa, the lowest of the rank's devices */
} cgp__place;

/* Describe the place of this process, for the devices of a rank. @retval CGP_EDEVICE, CGP_EINVAL As
 * of a backend's isa(). */
cgp_status cgp__place_find(cgp__place *out, const cgp_plan *plan, int rank);

/* Return whether two ranks run on one machine; in one container, too; with one clock. */
static inline bool cgp__same_machine(const cgp__place *a, const cgp__place *b) {
    return a->machine == b->machine;
}
static inline bool cgp__same_container(const cgp__place *a, const cgp__place *b) {
    return cgp__same_machine(a, b) && a->container == b->container;
}
static inline bool cgp__same_clock(const cgp__place *a, const cgp__place *b) {
    return cgp__same_machine(a, b) && a->clock == b->clock;
}

/* Bring the places to all ranks, and find the neighbours, the lowest instruction set, and if clocks
 * differ. Other GPUs and libraries are a warning of rank 0. Collective, with the same result on
 * all.
 * @retval CGP_EINVAL The results of libm differ. */
cgp_status cgp__ranks_meet(cgp__ranks *ranks);

#endif
