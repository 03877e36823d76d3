/* SPDX-License-Identifier: Apache-2.0 */
/* model.h -- MODEL of the command line. */
#ifndef CGPIPE_CLI_MODEL_H
#define CGPIPE_CLI_MODEL_H

#include <cgpipe/cgpipe.h>
#include <cgpipe/models/spec.h>

#include "options/options.h"

/* Bytes of a model spec with all sizes written out. */
#define CLI_MODEL_SPEC 160

/* Parse MODEL; a GPT-2 that names no vocab takes `vocab`, 0: the zoo's. */
CGP_MUST_CHECK cgp_status cli_model_parse(cgp_model_spec *spec, const char *text,
                                          int64_t vocab);

/* Resolve --dropout: the model's if none is given, the given one if the model has dropout. Fails with CGP_EINVAL where it has
 * none. */
CGP_MUST_CHECK cgp_status cli_model_resolve(cgp_model_spec *spec, cli_run_options *options);

/* Parse the operand of a command and resolve --dropout. `example`: the command line for the message that there is none. */
CGP_MUST_CHECK cgp_status cli_model_find(cgp_model_spec *spec, cli_run_options *options,
                                         const char *example);

/* Fail with CGP_EINVAL if the model is no GPT-2, which `what` needs. */
CGP_MUST_CHECK cgp_status cli_model_expect_gpt2(const cgp_model_spec *spec, const char *what);

#endif
