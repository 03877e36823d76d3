/* SPDX-License-Identifier: Apache-2.0 */
/* huggingface.h -- the config.json of a Hugging Face directory: its keys, and what each kind of
 * model makes of them. */
#ifndef CGPIPE_MODELS_HUGGINGFACE_H
#define CGPIPE_MODELS_HUGGINGFACE_H

#include <cgpipe/models/spec.h>

#include "weights_files.h"

typedef struct cgp__config {
    const char *path; /* in messages */
    const json_t *root;
} cgp__config;

/* CGP_EFORMAT, "<path>: <key>: expected <expected>, got <value>". */
cgp_status cgp__config_unexpected(const cgp__config *c, const char *key, const char *expected);

/* A whole number from 1 to max, which is required. */
CGP_MUST_CHECK cgp_status cgp__config_size(const cgp__config *c, const char *key, int64_t max,
                                           int64_t *out);

/* A flag, a number; `preset` where the key is missing. */
CGP_MUST_CHECK cgp_status cgp__config_flag(const cgp__config *c, const char *key, bool preset,
                                           bool *out);
CGP_MUST_CHECK cgp_status cgp__config_real(const cgp__config *c, const char *key, double min,
                                           double max, double preset, double *out);

/* A flag of which one value is supported. */
CGP_MUST_CHECK cgp_status cgp__config_need(const cgp__config *c, const char *key, bool needed);

/* Set the options that the file has, and check each of them by itself. */
CGP_MUST_CHECK cgp_status cgp__gpt2_from_config(const cgp__config *c, cgp_gpt2_options *o);
CGP_MUST_CHECK cgp_status cgp__llama_from_config(const cgp__config *c, cgp_llama_options *o);
CGP_MUST_CHECK cgp_status cgp__vit_from_config(const cgp__config *c, cgp_vit_options *o);

/* The same back. Owned by the caller; NULL when short of memory. */
json_t *cgp__gpt2_to_config(const cgp_gpt2_options *o);
json_t *cgp__llama_to_config(const cgp_llama_options *o);
json_t *cgp__vit_to_config(const cgp_vit_options *o);

#endif
