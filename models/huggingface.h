/* SPDX-License-Identifier: Apache-2.0 */
/* huggingface.h -- reads and writes the config.json of a Hugging Face directory for each kind of
 * model. */
#ifndef CGPIPE_MODELS_HUGGINGFACE_H
#define CGPIPE_MODELS_HUGGINGFACE_H

#include <cgpipe/models/spec.h>

#include "weights_files.h"

typedef struct cgp__config {
    const char *path; /* path of the file, for messages */
    const json_t *root;
} cgp__config;

/* Fail with CGP_EFORMAT, "<path>: <key>: expected <expected>, got <value>". */
cgp_status cgp__config_unexpected(const cgp__config *c, const char *key, const char *expected);

/* Read a required whole number from 1 to max. */
CGP_MUST_CHECK cgp_status cgp__config_size(const cgp__config *c, const char *key, int64_t max,
                                           int64_t *out);

/* Read a flag or a number. If the key is missing, set *out to `preset`. */
CGP_MUST_CHECK cgp_status cgp__config_flag(const cgp__config *c, const char *key, bool preset,
                                           bool *out);
CGP_MUST_CHECK cgp_status cgp__config_real(const cgp__config *c, const char *key, double min,
                                           double max, double preset, double *out);

/* Check that a flag is `needed`, the only supported value. */
CGP_MUST_CHECK cgp_status cgp__config_need(const cgp__config *c, const char *key, bool needed);

/* Fail if the file has a key that changes the results and is not supported. Values without an
 * effect, such as null and false, are accepted. */
CGP_MUST_CHECK cgp_status cgp__config_refuse_unsupported(const cgp__config *c);

/* Set the options that the file has. Each option is checked individually. */
CGP_MUST_CHECK cgp_status cgp__gpt2_from_config(const cgp__config *c, cgp_gpt2_options *o);
CGP_MUST_CHECK cgp_status cgp__llama_from_config(const cgp__config *c, cgp_llama_options *o);
CGP_MUST_CHECK cgp_status cgp__vit_from_config(const cgp__config *c, cgp_vit_options *o);

/* Make the configuration from the options. The caller owns the result. Return NULL if memory is
 * short. */
json_t *cgp__gpt2_to_config(const cgp_gpt2_options *o);
json_t *cgp__llama_to_config(const cgp_llama_options *o);
json_t *cgp__vit_to_config(const cgp_vit_options *o);

#endif
