/* SPDX-License-Identifier: Apache-2.0 */
/* places.h -- placement of ranks: the host, cores, memory, instruction set and libm of each rank.
 * These facts are gathered once, before anything is allocated, so that all ranks make the same
 * decisions. */
#ifndef CGP_SRC_PIPELINE_PLACES_H
#define CGP_SRC_PIPELINE_PLACES_H

#include <cgpipe/plan.h>

#include "base/base.h"

typedef struct cgp__ranks cgp__ranks;

typedef struct cgp__place {
    char host[72];           /* host name */
    char cores[120];         /* cores that the rank may use, as text such as "0-3,8" */
    unsigned char mask[128]; /* cores that the rank may use, as a cpu_set_t; all zero: not known */
    uint64_t machine;        /* ranks with equal values run on one OS kernel and share its memory */
    uint64_t container;      /* among ranks on one machine, ranks with equal values share a memory
                              * limit */
    uint64_t clock;          /* among ranks on one machine, ranks with equal values share a clock */
    int64_t machine_bytes;   /* available memory of the machine, in bytes; INT64_MAX: not known */
    int64_t container_bytes; /* memory available within the container's limit, in bytes; INT64_MAX:
                              * no limit */
    char libm[24];           /* result of cgp__libm_digest() */
    char libc[32];           /* name of the C library; "": not known */
    char numerics[96];       /* `numerics` text of the rank's devices; "": none */
    uint64_t hardware[8];    /* hashes of the hardware identities of the rank's first 8 devices; 0:
                              * none */
    int64_t isa;             /* the lowest instruction set (cgp_isa) among the rank's devices */
} cgp__place;

/* Describe the place of this process for the devices of a rank. @retval CGP_EDEVICE, CGP_EINVAL A
 * backend's isa() or numerics() failed. */
cgp_status cgp__place_find(cgp__place *out, const cgp_plan *plan, int rank);

/* These functions return true if two ranks share a machine, a container or a clock. */
static inline bool cgp__same_machine(const cgp__place *a, const cgp__place *b) {
    return a->machine == b->machine;
}
static inline bool cgp__same_container(const cgp__place *a, const cgp__place *b) {
    return cgp__same_machine(a, b) && a->container == b->container;
}
static inline bool cgp__same_clock(const cgp__place *a, const cgp__place *b) {
    return cgp__same_machine(a, b) && a->clock == b->clock;
}

/* Exchange the places of all ranks. Set ranks->neighbours, ranks->may_pin, ranks->isa (the lowest
 * instruction set), and whether clocks differ. Rank 0 warns if GPUs or their libraries differ, or
 * if ranks share a GPU. Collective; all ranks return the same status. @retval CGP_EINVAL The
 * results of libm differ. */
cgp_status cgp__ranks_exchange_places(cgp__ranks *ranks);

#endif
