/* SPDX-License-Identifier: Apache-2.0 */
/* diagnosis.h -- describes the state of this rank's devices (what each device runs or waits for),
 * and the last known state of the other ranks. */
#ifndef CGP_SRC_PIPELINE_RUN_DIAGNOSIS_H
#define CGP_SRC_PIPELINE_RUN_DIAGNOSIS_H

#include "base/json.h"

typedef struct cgp__executor cgp__executor;

/* Save the current state in executor->diagnosis, unless a state is already saved. Call it with the
 * team's lock held. */
void cgp__diagnosis_keep(cgp__executor *executor);

/* Return the saved state of the first failure, if there was a failure. Otherwise, if a wait has
 * lasted `idle` seconds, return the current state. Otherwise return NULL and set *is_idle to false.
 * If the result is NULL and *is_idle is true, memory has run out. The caller owns the result.
 * Threads: any. */
json_t *cgp__diagnosis_of(cgp__executor *executor, double idle, bool *is_idle);

#endif
