/* SPDX-License-Identifier: Apache-2.0 */
/* transfer.h -- sends and receives messages. */
#ifndef CGP_SRC_PIPELINE_RUN_TRANSFER_H
#define CGP_SRC_PIPELINE_RUN_TRANSFER_H

#include "base/base.h"

typedef struct cgp__end cgp__end;
typedef struct cgp__execution cgp__execution;
typedef struct cgp__in_flight cgp__in_flight;
typedef struct cgp__worker cgp__worker;

/* Send or receive a message. Return false if the action ended early because this or another worker
 * gave up the run. */
bool cgp__transfer(const cgp__execution *execution, cgp__in_flight *action);

/* Return the reason why a wait for a message or a buffer has failed, although it had no time limit.
 * CGP_OK: the run was given up. CGP_EPEER: another rank has failed, or this rank's communicator was
 * stopped. If the communicator was stopped, also notify the other ranks. */
cgp_status cgp__wait_status(const cgp__worker *worker, const cgp__end *end);

#endif
