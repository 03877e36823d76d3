/* SPDX-License-Identifier: Apache-2.0 */
/* saved_plan.h -- write the plan of a session to the file that --plan-out names. Also check that a
 * session's model and devices agree with the file that --plan names. */
#ifndef CGPIPE_CLI_SAVED_PLAN_H
#define CGPIPE_CLI_SAVED_PLAN_H

#include <cgpipe/base.h>

typedef struct cli_session cli_session;

/* Write the session's plan to --plan-out, atomically; without the option, do nothing. */
CGP_MUST_CHECK cgp_status cli_saved_plan_write(const cli_session *session);

/* Fail with CGP_EINVAL if the model, the number of devices or the kinds of devices differ between
 * the session and --plan. */
CGP_MUST_CHECK cgp_status cli_saved_plan_check_model(const cli_session *session);
CGP_MUST_CHECK cgp_status cli_saved_plan_check_devices(const cli_session *session);

#endif
