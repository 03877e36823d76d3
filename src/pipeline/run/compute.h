/* SPDX-License-Identifier: Apache-2.0 */
/* compute.h -- runs a compute action. */
#ifndef CGP_SRC_PIPELINE_RUN_COMPUTE_H
#define CGP_SRC_PIPELINE_RUN_COMPUTE_H

#include <stdbool.h>

typedef struct cgp__execution cgp__execution;

/* Enqueue the calls of an action, and the copies of its outputs to the caller. Return false if the
 * action was cut short: this or another worker gave up the run. */
bool cgp__compute(const cgp__execution *execution);

#endif
