/* SPDX-License-Identifier: Apache-2.0 */
/* tied.h -- gradients of tied parameters (those with several uses). */
#ifndef CGP_SRC_PIPELINE_STEP_TIED_H
#define CGP_SRC_PIPELINE_STEP_TIED_H

#include "base/base.h"

typedef struct cgp__executor cgp__executor;

/* Add up the gradients of tied parameters after the last backward. */
cgp_status cgp__tied_sum(cgp__executor *executor);

#endif
