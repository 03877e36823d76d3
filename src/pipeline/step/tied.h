/* SPDX-License-Identifier: Apache-2.0 */
/* tied.h -- gradients of tied parameters, which are parameters with several uses. */
#ifndef CGP_SRC_PIPELINE_STEP_TIED_H
#define CGP_SRC_PIPELINE_STEP_TIED_H

#include "base/base.h"

typedef struct cgp__executor cgp__executor;

/* Add up the gradients of tied parameters after the last backward. `exchanged` is true if an
 * exchange of all ranks follows immediately. */
cgp_status cgp__tied_sum(cgp__executor *executor, bool exchanged);

/* For each tied parameter, set the gradient buffers of all uses except the first to zero. The
 * buffer of the first use keeps the sum. After that, further micro-batches may add to all
 * buffers. */
cgp_status cgp__tied_separate(cgp__executor *executor);

#endif
