/* SPDX-License-Identifier: Apache-2.0 */
/* measured.c -- implements measured.h. */
#include "pipeline/run/measured.h"

#include <stdlib.h>

void cgp__measured_release(cgp__measured *measured) {
    cgp__trace_release(&measured->trace);
    free(measured->node_times);
    measured->node_times = NULL;
}
