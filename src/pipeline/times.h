/* SPDX-License-Identifier: Apache-2.0 */
/* times.h -- access to the events of the last run of all ranks. */
#ifndef CGP_SRC_PIPELINE_TIMES_H
#define CGP_SRC_PIPELINE_TIMES_H

#include <cgpipe/profile.h>

#include "base/trace.h"

/* Broadcast the events of the last run to all ranks. Collective. */
cgp_status cgp__pipeline_share_events(const cgp_pipeline *pipeline);

/* Return event k of a device's trace, on the clock of rank 0. Valid after
 * cgp__pipeline_share_events(). */
cgp__event cgp__pipeline_event(const cgp_pipeline *pipeline, int device, int64_t k);

/* Return the maximum error of times on other ranks' clocks, in seconds. */
double cgp__pipeline_clock_uncertainty(const cgp_pipeline *pipeline);

#endif
