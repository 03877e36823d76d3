/* SPDX-License-Identifier: Apache-2.0 */
/* late.h -- an asynchronous fake backend: real queues run the kernels of `cpu`. */
#ifndef CGP_TESTS_FAKES_LATE_H
#define CGP_TESTS_FAKES_LATE_H

#include <cgpipe/ext/backend.h>

extern const cgp_backend cgp__backend_late;

/* Delay in ns before every entry of each queue, on all devices. 0 means random delays. */
extern _Atomic long cgp__late_delay_ns[CGP_QUEUES];

/* Check that two captured graphs have the same nodes, ignoring tags. NULL means an empty graph.
 * @retval CGP_EDEVICE The message names the first difference. */
cgp_status cgp__late_graphs_compare(const cgp_captured_graph *a, const cgp_captured_graph *b);

#endif
