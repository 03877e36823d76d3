/* SPDX-License-Identifier: Apache-2.0 */
/* memory.h -- compares the memory that a plan needs with the available memory. */
#ifndef CGP_SRC_PIPELINE_MEMORY_H
#define CGP_SRC_PIPELINE_MEMORY_H

#include <cgpipe/plan.h>

#include "base/base.h"

typedef struct cgp__ranks cgp__ranks;

/* For each host, check that the available memory is enough for all ranks on this host together. The
 * result is the same on all ranks. If `shares`, another pipeline owns the shared sections, so they
 * do not count. @retval CGP_ELIMIT */
cgp_status cgp__memory_check_hosts(const cgp__ranks *ranks, const cgp_plan *plan, bool shares);

/* Check that hardware other than the host, such as a GPU, has enough memory for this rank's devices
 * on that hardware. */
cgp_status cgp__memory_check_hardware(const cgp_plan *plan, int rank, bool shares);

#endif
