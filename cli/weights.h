/* SPDX-License-Identifier: Apache-2.0 */
/* weights.h -- parameters for a pipeline from another pipeline. */
#ifndef CGPIPE_CLI_WEIGHTS_H
#define CGPIPE_CLI_WEIGHTS_H

#include <cgpipe/cgpipe.h>

/* Copy all parameters from one pipeline of the model to another. */
CGP_MUST_CHECK cgp_status cli_weights_copy(cgp_pipeline *from, cgp_pipeline *to,
                                           const cgp_model *model);

#endif
