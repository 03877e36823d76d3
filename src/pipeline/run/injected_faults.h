/* SPDX-License-Identifier: Apache-2.0 */
/* injected_faults.h -- fault injection for tests. */
#ifndef CGP_SRC_PIPELINE_RUN_INJECTED_FAULTS_H
#define CGP_SRC_PIPELINE_RUN_INJECTED_FAULTS_H

#include <cgpipe/ext/transport.h>
#include <cgpipe/schedule.h>

#include "base/base.h"

typedef struct cgp__executor cgp__executor;

/* The first function reads CGP_FAULT; the second frees what was read. */
cgp_status cgp__injected_faults_read(cgp__executor *executor);
void cgp__injected_faults_destroy(cgp__executor *executor);

/* Apply the faults of an action before it runs: sleep, or fail with CGP_EDEVICE. Meanwhile the run
 * may be given up and the pipeline destroyed. */
cgp_status cgp__injected_faults_apply(const cgp__executor *executor, const cgp_action *action);

/* Set the fault of a message that a SEND action hands over to the transport. */
void cgp__injected_faults_of_message(const cgp__executor *executor, const cgp_action *action,
                                     cgp_link_message *message);

/* Find the next flip of an action, or of an update of a stage on a device. The search in the list
 * starts at index *from. Set *number, which selects the bit, and advance *from. Return false if
 * there is no further flip. */
bool cgp__injected_flip(const cgp__executor *executor, const cgp_action *action, int *from,
                        int64_t *number);
bool cgp__injected_update_flip(const cgp__executor *executor, int device, int *from,
                               int64_t *number);

/* Return whether a fault applies to exactly this action. If so, all earlier actions must end before
 * the fault is applied. */
bool cgp__injected_faults_hold(const cgp__executor *executor, const cgp_action *action);

#endif
