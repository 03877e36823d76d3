/* SPDX-License-Identifier: Apache-2.0 */
/* groups.h -- parameter groups from --parameter-groups: PATTERN:lr=X:weight-decay=X. */
#ifndef CGPIPE_CLI_GROUPS_H
#define CGPIPE_CLI_GROUPS_H

#include <cgpipe/optim.h>

#include "options/options.h"

/* Check the text of each group. @retval CGP_EINVAL */
CGP_MUST_CHECK cgp_status cli_groups_check(const cli_run_options *options);

/* Make the groups, [parameter_groups.count]; *out is NULL if there are none. Their learning rates
 * are scaled to --batch like --lr. The caller frees *out. @retval CGP_EINVAL */
CGP_MUST_CHECK cgp_status cli_groups_make(cgp_optim_group **out, const cli_run_options *options);

#endif
