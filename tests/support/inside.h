/* SPDX-License-Identifier: Apache-2.0 */
/* inside.h -- gives tests of internals access to the parts of a pipeline. To read a part, include
 * that part's header. */
#ifndef CGP_TESTS_SUPPORT_INSIDE_H
#define CGP_TESTS_SUPPORT_INSIDE_H

#include <cgpipe/pipeline.h>

#include <sys/types.h>

typedef struct cgp__executor cgp__executor;
typedef struct cgp__measured cgp__measured;
typedef struct cgp__ranks cgp__ranks;
typedef struct cgp__step cgp__step;
typedef struct cgp__team cgp__team;

pid_t inside_process(const cgp_pipeline *pipeline);
const cgp_plan *inside_plan(const cgp_pipeline *pipeline);
int inside_rank(const cgp_pipeline *pipeline);
cgp__ranks *inside_ranks(const cgp_pipeline *pipeline);
cgp__team *inside_team(const cgp_pipeline *pipeline);
cgp__executor *inside_executor(const cgp_pipeline *pipeline);
cgp__step *inside_step(const cgp_pipeline *pipeline);
const cgp__measured *inside_measured(const cgp_pipeline *pipeline, int device);

#endif
