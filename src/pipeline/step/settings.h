/* SPDX-License-Identifier: Apache-2.0 */
/* settings.h -- checks that all ranks have the same settings. */
#ifndef CGP_SRC_PIPELINE_STEP_SETTINGS_H
#define CGP_SRC_PIPELINE_STEP_SETTINGS_H

#include <cgpipe/pipeline.h>

typedef struct cgp__setup cgp__setup;

/* Return the number of words of a rank's settings. */
int cgp__settings_words(const cgp__setup *setup);

/* Write this rank's settings. */
void cgp__settings_write(const cgp_pipeline *pipeline, int64_t *words);

/* Compare the settings of a rank with the settings of rank 0. @retval CGP_EINVAL A setting differs;
 * the message contains both values. */
cgp_status cgp__settings_compare(const cgp__setup *setup, int rank, const int64_t *words,
                                 const int64_t *of_rank_0);

#endif
