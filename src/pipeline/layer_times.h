/* SPDX-License-Identifier: Apache-2.0 */
/* layer_times.h -- times of kernels, measured in a run. */
#ifndef CGP_SRC_PIPELINE_LAYER_TIMES_H
#define CGP_SRC_PIPELINE_LAYER_TIMES_H

#include <cgpipe/profile.h>

/* Broadcast the measured times of kernels to all ranks. Collective. @retval CGP_ESTATE No times
 * were measured. */
cgp_status cgp__gather_times(const cgp_pipeline *pipeline);

#endif
