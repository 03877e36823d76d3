/* SPDX-License-Identifier: Apache-2.0 */
/* diagnosis.h -- what the devices of this rank do and wait for, and what is known of the other
 * ranks. */
#ifndef CGP_SRC_PIPELINE_RUN_DIAGNOSIS_H
#define CGP_SRC_PIPELINE_RUN_DIAGNOSIS_H

#include "base/json.h"
#include "pipeline/run/run.h"

/* The object as it was kept at a failure (run.h), or of now, if a wait has lasted `idle` seconds,
 * *is_idle; NULL: it has not, or memory is short. Owned by the caller. Threads: any. */
json_t *cgp__diagnosis_of(cgp__executor *executor, double idle, bool *is_idle);

#endif
