/* SPDX-License-Identifier: Apache-2.0 */
/* heartbeat.h -- defines the interval between heartbeats. The MPI transport uses it, and so do
 * pipelines, whose watchdog depends on how old a rank's state may be. */
#ifndef CGP_SRC_TRANSPORT_HEARTBEAT_H
#define CGP_SRC_TRANSPORT_HEARTBEAT_H

#include <stdint.h>

/* Return the interval between heartbeats, in nanoseconds, of ranks that are lost after this time
 * without one. It is an eighth of that time, but at least 1 ms and at most 250 ms. */
static inline int64_t cgp__heartbeat_interval(int64_t timeout_ns) {
    const int64_t interval = timeout_ns / 8;
    return interval < 1000000 ? 1000000 : interval < 250000000 ? interval : 250000000;
}

#endif
