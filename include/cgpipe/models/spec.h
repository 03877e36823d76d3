/* SPDX-License-Identifier: Apache-2.0 */
/* spec.h -- model specs: any model of the zoo by its name and options.
 *
 *     cgp_model_spec spec = cgp_model_spec_default();
 *     CGP_TRY(cgp_model_spec_parse(&spec, "resnet:depth=20"));
 *     CGP_TRY(cgp_model_spec_create(&model, &spec));
 *
 * Threads: any. */
#ifndef CGPIPE_MODELS_SPEC_H
#define CGPIPE_MODELS_SPEC_H

#include <cgpipe/models/amoebanetd.h>
#include <cgpipe/models/gpt2.h>
#include <cgpipe/models/llama.h>
#include <cgpipe/models/resnet.h>
#include <cgpipe/models/unet.h>
#include <cgpipe/models/vit.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum cgp_model_kind {
    CGP_MODEL_GPT2,
    CGP_MODEL_RESNET,
    CGP_MODEL_AMOEBANETD,
    CGP_MODEL_UNET,
    CGP_MODEL_LLAMA,
    CGP_MODEL_VIT,
    CGP_MODEL_KINDS
} cgp_model_kind;

/** A model kind, and the options of every kind; only the options of `kind` are used. */
typedef struct cgp_model_spec {
    size_t struct_size;
    cgp_model_kind kind;
    cgp_gpt2_options gpt2;
    cgp_resnet_options resnet;
    cgp_amoebanetd_options amoebanetd;
    cgp_unet_options unet;
    cgp_llama_options llama;
    cgp_vit_options vit;
} cgp_model_spec;

/** Return a spec for a GPT-2, with the default options of every kind. */
static inline cgp_model_spec cgp_model_spec_default(void) {
    cgp_model_spec spec = {sizeof(cgp_model_spec),           CGP_MODEL_GPT2,
                           cgp_gpt2_options_default(),       cgp_resnet_options_default(),
                           cgp_amoebanetd_options_default(), cgp_unet_options_default(),
                           cgp_llama_options_default(),      cgp_vit_options_default()};
    return spec;
}

/** Return "gpt2", "resnet", "amoebanetd", "unet", "llama" or "vit"; NULL for another number. */
CGP_API const char *cgp_model_kind_name(cgp_model_kind kind);

/**
 * Parse a model spec, "kind:key=value,...", into the kind and its options. See cgp_gpt2_parse(),
 * cgp_resnet_parse(), cgp_amoebanetd_parse(), cgp_unet_parse(), cgp_llama_parse(), cgp_vit_parse().
 *
 * @retval CGP_EINVAL  The model is unknown (the message has the nearest name), or one of these
 *                     functions returns CGP_EINVAL. `spec` is unchanged.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_model_spec_parse(cgp_model_spec *spec, const char *text);

/**
 * Write a spec with all sizes as text. Parsing the text gives the same model, except for `dropout`
 * and `loss`, which the text omits.
 *
 * @param[out] text  [size], 320 characters are enough.
 * @retval CGP_EINVAL  A bad option; the message names it.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_model_spec_text(const cgp_model_spec *spec, char *text,
                                                      size_t size);

/**
 * Build and finish the model.
 *
 * @param[out] out  Owned by the caller, see cgp_model_destroy().
 * @retval CGP_EINVAL  A bad option; the message names it.
 * @retval CGP_ENOMEM
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_model_spec_create(cgp_model **out,
                                                        const cgp_model_spec *spec);

#ifdef __cplusplus
}
#endif
#endif
