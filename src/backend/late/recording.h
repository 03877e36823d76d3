/* SPDX-License-Identifier: Apache-2.0 */
/* recording.h -- a captured graph of `late`: copies of entries for COMPUTE. */
#ifndef CGP_SRC_BACKEND_LATE_RECORDING_H
#define CGP_SRC_BACKEND_LATE_RECORDING_H

#include "backend/backend.h"
#include "backend/late/queue.h"

typedef struct cgp__late_recorded {
    cgp__late_run *run;
    size_t bytes;
    _Alignas(16) char payload[];
} cgp__late_recorded;

struct cgp_recording {
    cgp_device *device;
    cgp__late_recorded **entries;
    int n, capacity;
};

/* Add a copy of an entry. */
cgp_status cgp__late_recording_add(cgp_recording *recording, cgp__late_run *run,
                                   const void *payload, size_t bytes);
void cgp__late_recording_destroy(cgp_recording *recording);

/* Return the name of the first operand that differs between two runs of a kernel (ignoring the tag)
 * or two updates; NULL: none. */
const char *cgp__late_differing_args(const cgp_kernel_args *a, const cgp_kernel_args *b);
const char *cgp__late_differing_update(const cgp_update *a, const cgp_update *b);

#endif
