/* SPDX-License-Identifier: Apache-2.0 */
/* hardware.h -- estimated costs of a model's layers on devices that this machine need not have.
 * --tflops or a cluster file describes the speed of these devices. */
#ifndef CGPIPE_CLI_HARDWARE_H
#define CGPIPE_CLI_HARDWARE_H

#include "session/cluster.h"
#include "session/costs.h"

typedef struct cli_session cli_session;

/* Estimate the costs of the session's layers (cgp_layer_costs_estimate()) for micro-batches of all
 * sizes up to the mini-batch. `cluster` is NULL, or a cluster file whose devices have speeds.
 * Release *costs in any case. Fails with CGP_EINVAL or CGP_EFORMAT. */
CGP_MUST_CHECK cgp_status cli_hardware_costs(cli_costs *costs, const cli_session *session,
                                             const cli_cluster *cluster);

#endif
