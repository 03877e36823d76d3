/* SPDX-License-Identifier: Apache-2.0 */
/* transport.h -- the list of transports. Each transport follows the contract of
 * cgpipe/ext/transport.h. */
#ifndef CGP_SRC_TRANSPORT_H
#define CGP_SRC_TRANSPORT_H

#include <cgpipe/ext/transport.h>

#include "base/base.h"

/* The transport between the devices of one rank. These devices are threads of one process. */
extern const cgp_transport cgp__transport_inproc;

/* Create an inproc communicator with one rank. @retval CGP_ENOMEM */
cgp_status cgp__inproc_create(cgp_communicator **out);

/* The transport between ranks that are threads of one process: the replicas of a pipeline
 * (pipeline/crew.h). A message is the sender's own buffer, which the receiver reads until it
 * releases the buffer. So no rank may free its buffers before the workers of all ranks rest. */
extern const cgp_transport cgp__transport_threads;

/* Create the communicators of `n` ranks, >= 1, in `out` [n]. @retval CGP_ENOMEM */
cgp_status cgp__threads_create(int n, cgp_communicator **out);

/* Return transport `i`; NULL after the last transport. Threads: any. */
const cgp_transport *cgp__transport_at(int i);

/* Add a transport for the life of the process; adding the same table again is no error. Threads:
 * any.
 * @retval CGP_EINVAL  The table has a different size than in this version, lacks a function, or
 *                     has the name of another transport.
 * @retval CGP_ELIMIT  16 transports were added already. */
cgp_status cgp__transport_add(const cgp_transport *transport);

/* Make the checks that links.open() of every transport must make. Return CGP_EINVAL if an option is
 * out of range. */
cgp_status cgp__link_check(const cgp_transport *transport, const cgp_link_options *options,
                           int ranks);

#endif
