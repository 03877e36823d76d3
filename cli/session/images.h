/* SPDX-License-Identifier: Apache-2.0 */
/* images.h -- the image sets that --data names. */
#ifndef CGPIPE_CLI_IMAGES_H
#define CGPIPE_CLI_IMAGES_H

#include "session/data.h"

/* Find the kind by the name before a colon, "shapes" also alone; CLI_DATA_TEXT if it is none. */
cli_data_kind cli_images_kind_of(const char *text);

/* Return the text behind the colon; "" if there is none. */
const char *cli_images_rest(const char *text);

/* Check --strict, --plain, --workers and --validation against the kind. Fails with CGP_EINVAL. */
CGP_MUST_CHECK cgp_status cli_images_check(const cli_run_options *options, cli_data_kind kind);

/* Open a set for the inputs of the model, which determine the sizes that its options leave out. */
CGP_MUST_CHECK cgp_status cli_images_open(cgp_data **out, const cli_run_options *options,
                                          cli_data_kind kind, const cgp_model *model);

#endif
