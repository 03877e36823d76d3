/* SPDX-License-Identifier: Apache-2.0 */
/* sharing.h -- checks whether pipelines may share parameters. */
#ifndef CGP_SRC_PIPELINE_SHARING_H
#define CGP_SRC_PIPELINE_SHARING_H

#include <cgpipe/plan.h>

/* Return CGP_EINVAL if a pipeline of the plan cannot use the parameters, gradients, optimizer state
 * and op states of the owner's plan. */
cgp_status cgp__sharing_check(const cgp_plan *plan, const cgp_plan *owner);

#endif
