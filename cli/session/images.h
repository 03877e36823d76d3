/* SPDX-License-Identifier: Apache-2.0 */
/* images.h -- the image sets that --data names. */
#ifndef CGPIPE_CLI_IMAGES_H
#define CGPIPE_CLI_IMAGES_H

#include "session/data.h"

/* Tell the kind by what stands before a colon, "shapes" also alone; CLI_DATA_TEXT if it is none. */
cli_data_kind cli_images_kind_of(const char *text);

/* What follows the colon; "" if there is none. */
const char *cli_images_rest(const char *text);

/* Fails with CGP_EINVAL where options do not go together. */
CGP_MUST_CHECK cgp_status cli_images_resolve(const cli_run_options *options,
                                             cli_data_kind kind);

/* Open a set for what the model takes: what its options do not say is the model's. */
CGP_MUST_CHECK cgp_status cli_images_open(cgp_data **out, const cli_run_options *options,
                                          cli_data_kind kind, const cgp_model *model);

#endif
