/* SPDX-License-Identifier: Apache-2.0 */
/* memory.h -- compares what a plan needs with the memory that is available. */
#ifndef CGP_SRC_PIPELINE_MEMORY_H
#define CGP_SRC_PIPELINE_MEMORY_H

#include <cgpipe/plan.h>

#include "base/base.h"

typedef struct cgp__ranks cgp__ranks;

/* Compare the memory that the ranks of each host need together with what the host has. The result
 * is the same on all ranks. `shares`: without the sections that another pipeline owns. @retval
 * CGP_ELIMIT */
cgp_status cgp__memory_check_hosts(const cgp__ranks *ranks, const cgp_plan *plan, bool shares);

/* Compare what this rank's devices need on other hardware with what that has. */
cgp_status cgp__memory_check_hardware(const cgp_plan *plan, int rank, bool shares);

#endif
