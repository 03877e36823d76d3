/* SPDX-License-Identifier: Apache-2.0 */
/* threads.h -- the transport between ranks that are threads of one process. It serves the replicas
 * of a pipeline (pipeline/crew.h). A message is the sender's own buffer, which the receiver reads
 * until it releases the buffer. So no rank may free its buffers before the workers of all ranks
 * rest. */
#ifndef CGP_SRC_TRANSPORT_THREADS_H
#define CGP_SRC_TRANSPORT_THREADS_H

#include <cgpipe/ext/transport.h>

#include "base/base.h"

extern const cgp_transport cgp__transport_threads;

/* Create the communicators of `n` ranks, >= 1, in `out` [n]. @retval CGP_ENOMEM */
cgp_status cgp__threads_create(int n, cgp_communicator **out);

#endif
