/* SPDX-License-Identifier: Apache-2.0 */
/* recording.c -- see recording.h. */
#include "backend/late/recording.h"

#include <stdlib.h>
#include <string.h>

cgp_status cgp__late_recording_add(cgp_recording *recording, cgp__late_run *run,
                                   const void *payload, size_t bytes) {
    if (!cgp__grow(&recording->entries, &recording->capacity, recording->n + 1,
                   sizeof(cgp__late_recorded *)))
        return cgp__no_memory("late: recording", bytes);
    cgp__late_recorded *entry = aligned_alloc(16, (sizeof *entry + bytes + 15) / 16 * 16);
    if (!entry) return cgp__no_memory("late: recording", bytes);
    entry->run = run;
    entry->bytes = bytes;
    memcpy(entry->payload, payload, bytes);
    recording->entries[recording->n++] = entry;
    return CGP_OK;
}

void cgp__late_recording_destroy(cgp_recording *recording) {
    for (int i = 0; i < recording->n; i++)
        free(recording->entries[i]);
    free(recording->entries);
    free(recording);
}

#define COMPARE(member)                                                                            \
    if (memcmp(&a->member, &b->member, sizeof a->member) != 0) return #member

const char *cgp__late_differing_args(const cgp_kernel_args *a, const cgp_kernel_args *b) {
    COMPARE(x);
    COMPARE(y);
    COMPARE(saved);
    COMPARE(state);
    COMPARE(accumulator);
    COMPARE(param);
    COMPARE(dy);
    COMPARE(dx);
    COMPARE(dparam);
    COMPARE(workspace);
    COMPARE(values);
    COMPARE(losses);
    COMPARE(loss);
    COMPARE(id);
    COMPARE(first);
    COMPARE(training);
    COMPARE(deferred);
    COMPARE(recomputing);
    COMPARE(n_prefetch);
    return NULL;
}

const char *cgp__late_differing_update(const cgp_update *a, const cgp_update *b) {
    COMPARE(rule);
    COMPARE(n);
    COMPARE(param);
    COMPARE(grad);
    COMPARE(state);
    COMPARE(weight_decay);
    COMPARE(momentum);
    COMPARE(nesterov);
    COMPARE(beta1);
    COMPARE(beta2);
    COMPARE(eps);
    COMPARE(alpha);
    COMPARE(values);
    return NULL;
}
