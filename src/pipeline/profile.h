/* SPDX-License-Identifier: Apache-2.0 */
/* profile.h -- measures the costs of layers in training steps of given plans. */
#ifndef CGP_SRC_PIPELINE_PROFILE_H
#define CGP_SRC_PIPELINE_PROFILE_H

#include <cgpipe/profile.h>

/* Train all plans [n_plans] at the same time, and measure the layers of the first plan. Each plan
 * is for one rank; a plan may occur several times. Costs are medians over `steps` steps, for
 * micro-batches of cgp_plan_microbatch() samples.
 *
 * costs: [layers of the first plan's model], unchanged on failure.
 *
 * @retval CGP_ELIMIT  The pipelines together need more memory than the machine has.
 * @retval CGP_EDEVICE @retval CGP_ENOMEM @retval CGP_ESTATE A plan is for inference. */
cgp_status cgp__profile_plans(const cgp_plan *const *plans, int n_plans, int steps,
                              cgp_layer_cost *costs);

#endif
