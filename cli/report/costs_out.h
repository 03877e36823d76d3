/* SPDX-License-Identifier: Apache-2.0 */
/* costs_out.h -- the layer times of a run, for plans of the same model (--costs-out). */
#ifndef CGPIPE_CLI_COSTS_OUT_H
#define CGPIPE_CLI_COSTS_OUT_H

#include <cgpipe/base.h>

#include <stdio.h>

typedef struct cli_session cli_session;

/* Write the layer times of the run to the file of --costs-out. Simulate a step with these layer
 * times, and print its time beside the measured step time. Collective. */
CGP_MUST_CHECK cgp_status cli_costs_out_write(FILE *out, const cli_session *session);

#endif
