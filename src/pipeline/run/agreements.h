/* SPDX-License-Identifier: Apache-2.0 */
/* agreements.h -- lets all ranks agree on the status of a call, and compares texts of all ranks.
 * Calls are collective unless noted: the user threads of all ranks make the same calls in the same
 * order. With one rank, calls do nothing. */
#ifndef CGP_SRC_PIPELINE_RUN_AGREEMENTS_H
#define CGP_SRC_PIPELINE_RUN_AGREEMENTS_H

#include <cgpipe/plan.h>

#include "base/base.h"

typedef struct cgp__ranks cgp__ranks;

/* Allocate the reports that agreements exchange, one for each rank. */
cgp_status cgp__reports_create(void **out, int ranks);

/* Return CGP_OK if `status` is CGP_OK on all ranks. If `status` is a failure, return `status`.
 * Otherwise return the status of the lowest rank that has failed, and set cgp_message() to the
 * message of that rank. CGP_EPEER: a rank could not be reached. */
cgp_status cgp__ranks_agree(const cgp__ranks *ranks, cgp_status status);

/* Agree as cgp__ranks_agree() does, and compare a text of at most 500 bytes. @retval CGP_EINVAL The
 * texts differ: "<object>: expected the same on all ranks, got <text> on rank 1, <text> on rank 0
 * (<way_out>)". */
cgp_status cgp__ranks_agree_on(const cgp__ranks *ranks, cgp_status status, const char *object,
                               const char *text, const char *way_out);

/* Agree as cgp__ranks_agree() does. Set *same to true if the text is the same on all ranks. */
cgp_status cgp__ranks_have_same(const cgp__ranks *ranks, cgp_status status, const char *text,
                                bool *same);

/* Compare the plan's hash and the seed on all ranks. @retval CGP_EINVAL Hash or seed differ; the
 * message names a rank whose value differs from that of rank 0. */
cgp_status cgp__ranks_compare(const cgp__ranks *ranks, const cgp_plan *plan, uint64_t seed);

/* Notify the other ranks that this rank has failed, and send them cgp_message(). Not collective. */
void cgp__ranks_fail(const cgp__ranks *ranks, cgp_status status);

#endif
