/* SPDX-License-Identifier: Apache-2.0 */
/* alive.h -- checks, at the start of a public call, that this process created the pipeline and that
 * the pipeline has not failed. */
#ifndef CGP_SRC_PIPELINE_ALIVE_H
#define CGP_SRC_PIPELINE_ALIVE_H

#include <cgpipe/pipeline.h>

#include "base/base.h"

/* Return CGP_ESTATE in a child process made by fork(). Such a child has no workers, and the locks
 * that it inherited may never be released. */
cgp_status cgp__pipeline_check_process(const cgp_pipeline *pipeline, const char *function);

/* Return CGP_ESTATE if the pipeline has failed. */
cgp_status cgp__pipeline_check_alive(const cgp_pipeline *pipeline);

/* Check at the start of a public call that the handle `pipeline` is not NULL, and that this process
 * created the pipeline. */
#define CGP__PIPELINE(pipeline)                                                                    \
    do {                                                                                           \
        CGP__NEED(pipeline);                                                                       \
        CGP_TRY(cgp__pipeline_check_process(pipeline, __func__));                                  \
    } while (0)
#define CGP__PIPELINE_OR(pipeline, result)                                                         \
    do {                                                                                           \
        CGP__NEED_OR(pipeline, result);                                                            \
        if (cgp__pipeline_check_process(pipeline, __func__) != CGP_OK) return result;              \
    } while (0)

#endif
