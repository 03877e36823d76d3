/* SPDX-License-Identifier: Apache-2.0 */
/* late.h -- a backend for tests: the kernels of `cpu` behind real queues. Not in the library. */
#ifndef CGP_SRC_BACKEND_LATE_H
#define CGP_SRC_BACKEND_LATE_H

#include "backend/backend.h"

extern const cgp_backend cgp__backend_late;

/* Nanoseconds before every entry of a queue, of all devices; 0: random delays. */
extern _Atomic long cgp__late_delay_ns[CGP_QUEUES];

/* Two recordings have the same entries, but for the tags; NULL has none. @retval CGP_EDEVICE The
 * message names the first difference. */
cgp_status cgp__late_recording_compare(const cgp_recording *a, const cgp_recording *b);

#endif
