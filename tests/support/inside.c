/* SPDX-License-Identifier: Apache-2.0 */
/* inside.c -- see inside.h. */
#include "inside.h"

#include "pipeline/pipeline.h"
#include "pipeline/run/measured.h"

pid_t inside_process(const cgp_pipeline *pipeline) {
    return pipeline->process;
}

const cgp_plan *inside_plan(const cgp_pipeline *pipeline) {
    return pipeline->plan;
}

int inside_rank(const cgp_pipeline *pipeline) {
    return pipeline->rank;
}

cgp__ranks *inside_ranks(const cgp_pipeline *pipeline) {
    return pipeline->ranks;
}

cgp__team *inside_team(const cgp_pipeline *pipeline) {
    return pipeline->team;
}

cgp__executor *inside_executor(const cgp_pipeline *pipeline) {
    return pipeline->executor;
}

cgp__step *inside_step(const cgp_pipeline *pipeline) {
    return pipeline->step;
}

const cgp__measured *inside_measured(const cgp_pipeline *pipeline, int device) {
    return &pipeline->measured[device];
}
