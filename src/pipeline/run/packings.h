/* SPDX-License-Identifier: Apache-2.0 */
/* packings.h -- keeps prepacked weights up to date. */
#ifndef CGP_SRC_PIPELINE_RUN_PACKINGS_H
#define CGP_SRC_PIPELINE_RUN_PACKINGS_H

#include "base/base.h"

typedef struct cgp__worker cgp__worker;

/* Repack parameters if they are stale. Called by the worker. */
cgp_status cgp__pack_parameters(cgp__worker *worker);

#endif
