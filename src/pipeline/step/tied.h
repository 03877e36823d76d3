/* SPDX-License-Identifier: Apache-2.0 */
/* tied.h -- gradients of tied parameters (those with several uses). */
#ifndef CGP_SRC_PIPELINE_STEP_TIED_H
#define CGP_SRC_PIPELINE_STEP_TIED_H

#include "base/base.h"

typedef struct cgp__executor cgp__executor;

/* Add up the gradients of tied parameters after the last backward. `exchanged`: an exchange of all
 * ranks follows at once. */
cgp_status cgp__tied_sum(cgp__executor *executor, bool exchanged);

/* Set the buffers of all uses but a parameter's first to zero. The first use's buffer keeps the
 * sum, so that further micro-batches may add to all buffers. */
cgp_status cgp__tied_separate(cgp__executor *executor);

#endif
