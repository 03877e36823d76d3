/* SPDX-License-Identifier: Apache-2.0 */
/* alive.c -- checks, at the start of a public call, that this process created the pipeline and that
 * the pipeline has not failed. */
#include "pipeline/alive.h"

#include "pipeline/pipeline.h"
#include "pipeline/team/team.h"

#include <unistd.h>

cgp_status cgp__pipeline_check_process(const cgp_pipeline *pipeline, const char *function) {
    if (pipeline->process == getpid()) return CGP_OK;
    return cgp_fail(CGP_ESTATE,
                    "%s: pipeline: expected a call of process %ld, which made it, got one of %ld "
                    "(after a fork make another one)",
                    function, (long)pipeline->process, (long)getpid());
}

cgp_status cgp__pipeline_check_alive(const cgp_pipeline *pipeline) {
    if (pipeline->team->failed)
        return cgp_fail(CGP_ESTATE, "pipeline: has failed and can only be destroyed (%s)",
                        pipeline->team->failure);
    return CGP_OK;
}
