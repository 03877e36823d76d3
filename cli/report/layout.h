/* SPDX-License-Identifier: Apache-2.0 */
/* layout.h -- print the stages of a plan in the notation of other trainers (--layout). */
#ifndef CGPIPE_CLI_LAYOUT_H
#define CGPIPE_CLI_LAYOUT_H

#include <cgpipe/base.h>

#include <stdio.h>

typedef struct cli_run_options cli_run_options;
typedef struct cli_session cli_session;

/* Check the name that --layout gives. */
CGP_MUST_CHECK cgp_status cli_layout_check(const cli_run_options *options);

/* Print the stages of a session's plan in the form of --layout: megatron, torchtitan or deepspeed.
 * Print nothing without --layout. CGP_EINVAL: the trainer does not support these stages. */
CGP_MUST_CHECK cgp_status cli_print_layout(FILE *out, const cli_session *session);

#endif
