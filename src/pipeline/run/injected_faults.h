/* SPDX-License-Identifier: Apache-2.0 */
/* injected_faults.h -- fault injection for tests. */
#ifndef CGP_SRC_PIPELINE_RUN_INJECTED_FAULTS_H
#define CGP_SRC_PIPELINE_RUN_INJECTED_FAULTS_H

#include <cgpipe/ext/transport.h>
#include <cgpipe/schedule.h>

#include "base/base.h"

typedef struct cgp__executor cgp__executor;

/* The first function reads CGP_FAULT. The second function frees the list of faults. */
cgp_status cgp__injected_faults_read(cgp__executor *executor);
void cgp__injected_faults_destroy(cgp__executor *executor);

/* Apply the faults of an action before it runs: sleep, or fail with CGP_EDEVICE. Meanwhile the run
 * may be given up and the pipeline destroyed. */
cgp_status cgp__injected_faults_apply(const cgp__executor *executor, const cgp_action *action);

/* Set the fault of a message that a SEND action passes to the transport. */
void cgp__injected_faults_of_message(const cgp__executor *executor, const cgp_action *action,
                                     cgp_link_message *message);

/* The first function finds the next flip of an action; the second finds the next flip of the update
 * on a device. The search starts at index *from of the list of faults. Set *number, which selects
 * the bit, and advance *from. Return false if there is no further flip. */
bool cgp__injected_flip(const cgp__executor *executor, const cgp_action *action, int *from,
                        int64_t *number);
bool cgp__injected_update_flip(const cgp__executor *executor, int device, int *from,
                               int64_t *number);

/* Find the next flip of the kept state of a device, before the replay of step `step`. */
bool cgp__injected_kept_flip(const cgp__executor *executor, int device, int64_t step, int *from,
                             int64_t *number);

/* Return true if a fault names this action. All earlier actions must then end before the fault is
 * applied. */
bool cgp__injected_faults_hold(const cgp__executor *executor, const cgp_action *action);

#endif
