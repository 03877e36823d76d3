/* SPDX-License-Identifier: Apache-2.0 */
/* heartbeat.h -- defines the interval between heartbeats. The MPI transport uses this interval.
 * Pipelines use it too, because their watchdog depends on the maximum age of a rank's state. */
#ifndef CGP_SRC_TRANSPORT_HEARTBEAT_H
#define CGP_SRC_TRANSPORT_HEARTBEAT_H

#include <stdint.h>

/* Return the interval between heartbeats, in ns. A rank counts as lost after `timeout_ns` without a
 * heartbeat. The interval is timeout_ns / 8, but at least 1 ms and at most 250 ms. */
static inline int64_t cgp__heartbeat_interval(int64_t timeout_ns) {
    const int64_t interval = timeout_ns / 8;
    return interval < 1000000 ? 1000000 : interval < 250000000 ? interval : 250000000;
}

#endif
