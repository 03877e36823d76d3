/* SPDX-License-Identifier: Apache-2.0 */
/* renumbered.h -- a view of a communicator in which the ranks have other numbers, and edges have
 * numbers of their own. So a second pipeline of the same ranks can run a plan with its stages on
 * other ranks. Both pipelines share the communicator. Their collective calls are in the same order
 * on all ranks. A failure of one is a failure of the other. */
#ifndef CGP_SRC_PIPELINE_RUN_RENUMBERED_H
#define CGP_SRC_PIPELINE_RUN_RENUMBERED_H

#include <cgpipe/ext/transport.h>

typedef struct cgp__renumbered cgp__renumbered;

/* Create a view. `actual` [ranks] is a permutation: rank r of the view is rank actual[r] of the
 * communicator. Edge e of the view is edge first_edge + e. The communicator is borrowed. */
cgp_status cgp__renumbered_create(cgp__renumbered **out, const cgp_transport *transport,
                                  cgp_communicator *communicator, const int *actual,
                                  int first_edge);

/* Free a view that no pipeline uses. Accepts NULL. */
void cgp__renumbered_destroy(cgp__renumbered *view);

/* Return the table and the communicator of a view. */
const cgp_transport *cgp__renumbered_transport(const cgp__renumbered *view);
cgp_communicator *cgp__renumbered_communicator(cgp__renumbered *view);

#endif
