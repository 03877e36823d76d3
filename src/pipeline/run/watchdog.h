/* SPDX-License-Identifier: Apache-2.0 */
/* watchdog.h -- gives up a run that makes no progress, and reports which action hangs. */
#ifndef CGP_SRC_PIPELINE_RUN_WATCHDOG_H
#define CGP_SRC_PIPELINE_RUN_WATCHDOG_H

typedef struct cgp__supervisor cgp__supervisor;

/* The supervisor of an executor's team. Its callbacks receive the executor as `self`. */
extern const cgp__supervisor cgp__watchdog;

#endif
