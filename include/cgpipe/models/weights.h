/* SPDX-License-Identifier: Apache-2.0 */
/* weights.h -- loads published PyTorch weights into a pipeline, and saves a pipeline's weights in
 *that form.
 *
 *     cgp_model_spec spec = cgp_model_spec_default();
 *     CGP_TRY(cgp_huggingface_read(&spec, "gpt2"));               a directory: its config.json
 *     CGP_TRY(cgp_model_spec_create(&model, &spec));              and plan, and pipeline
 *     CGP_TRY(cgp_weights_open(&weights, model, "gpt2"));          its tensors, names and shapes checked
 *     CGP_TRY(cgp_weights_load(weights, pipeline));
 *     cgp_weights_close(weights);
 *
 * Published weights have the names of this library's models: Hugging Face's (GPT-2, Llama, ViT),
 * torchvision's (ResNet) or torchgpipe's benchmarks' (AmoebaNet-D, U-Net). Layouts are the same,
 * but for
 *
 *     the weight of a convolution      [out, in, height, width] there, [height, width, in, out] here: every parameter of 4 sizes
 *     ViT's cls_token, and                  [1, 1, C] and [1, T + 1, C] there; [1, C] and [T + 1, C], named ...weight, here
 *       position_embeddings
 *     num_batches_tracked              one I64 there, an i32 here
 *
 * Source: the layouts are those of torch.nn.Conv2d and BatchNorm2d, and of GPT2LMHeadModel in
 * Hugging Face's transformers. */
#ifndef CGPIPE_MODELS_WEIGHTS_H
#define CGPIPE_MODELS_WEIGHTS_H

#include <cgpipe/models/spec.h>
#include <cgpipe/pipeline.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cgp_weights cgp_weights; /* published weights that fit a model */

/**
 * Open published weights and check that they are those of a model: a safetensors file, or a
 * directory that has model.safetensors or, for weights in several files,
 * model.safetensors.index.json and the files that it names.
 *
 * Every parameter and running statistic of the model is there once, with its shape, as F32, F16 or
 * BF16; a missing num_batches_tracked counts as 0. Names may come with or without "transformer."
 * and "model.". The only other tensors are constants (.attn.bias, .attn.masked_bias,
 * .rotary_emb.inv_freq), and lm_head.weight where the model's head is tied to wte.weight, or to
 * embed_tokens.weight: cgp_weights_load() then checks that the two are equal. An index names plain
 * files of its directory, and each tensor is in its file of the index.
 *
 * @param[out] out    Owned by the caller, see cgp_weights_close().
 * @param[in]  model  Borrowed until cgp_weights_close().
 * @param[in]  path   Borrowed.
 *
 * @retval CGP_EIO      Missing or unreadable.
 * @retval CGP_EFORMAT  Damaged, or of another model: the message has file, tensor, expectation and
 * value.
 * @retval CGP_EINVAL   The model has an i32 state of several numbers, which has no published form.   @retval CGP_ENOMEM
 *
 * Threads: any; a handle belongs to one thread at a time. Cost: reads headers, not data.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_weights_open(cgp_weights **out, const cgp_model *model,
                                                   const char *path);

/**
 * Load all weights and running statistics into a pipeline of the model.
 *
 * @retval CGP_EFORMAT  A file ends early; a value is not finite; lm_head.weight differs from the
 * weight that it is tied to.
 *                      The pipeline's weights are then partly these.   @retval CGP_EIO  Likewise.
 * @retval CGP_ESTATE   As for cgp_pipeline_set_parameter().   @retval CGP_ENOMEM
 *
 * Cost: reads all data once; memory for two tensors of the size of the largest, as f32, for the
 * time of the call.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_weights_load(cgp_weights *weights, cgp_pipeline *pipeline);

/** Close the files. Accepts NULL. */
CGP_API void cgp_weights_close(cgp_weights *weights);

/**
 * Save the weights and running statistics of a pipeline as one published safetensors file, F32,
 * which cgp_weights_open() and PyTorch (load_state_dict(safetensors.torch.load_file(path))) read.
 *
 * @param[in] model  Of the pipeline. Borrowed.
 * @param[in] path   Replaced whole or not at all.
 *
 * @retval CGP_EIO  Not written; an existing file is untouched.   @retval CGP_ENOMEM  Likewise.   @retval CGP_EINVAL  As for
 * cgp_weights_open().
 *
 * Cost: memory as for cgp_weights_load().
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_weights_save(cgp_pipeline *pipeline, const cgp_model *model,
                                                   const char *path);

/**
 * Read the model of a Hugging Face directory, its kind and its options, from its config.json:
 * GPT-2, a Llama (of the model types llama, mistral and qwen2) or a ViT (an image classifier, of
 * the model type vit).
 *
 * GPT-2's `dropout` is that of the file if its three (resid_pdrop, embd_pdrop, attn_pdrop) are
 * equal, and 0 if not; ViT's likewise of its two. Keys that do not change the results are ignored.
 *
 * @param[in,out] spec  The kind, and of its options all but `loss` are set; unchanged on failure.
 *
 * @retval CGP_EIO      Missing or unreadable.
 * @retval CGP_EFORMAT  No JSON; another kind of model; a size that is missing, of another type or
 * out of range; or a
 *                      feature that is not supported (another activation, another scaling of the rotary embedding, a window for
 *                      some layers, ...). The message names it.
 * @retval CGP_EINVAL   `spec` is not from cgp_model_spec_default().   @retval CGP_ENOMEM
 *
 * Threads: any.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_huggingface_read(cgp_model_spec *spec, const char *directory);

/**
 * Write a pipeline's GPT-2, Llama or ViT as a Hugging Face directory, which
 * GPT2LMHeadModel.from_pretrained(), or that of LlamaForCausalLM, MistralForCausalLM (a window),
 * Qwen2ForCausalLM (biases) or ViTForImageClassification, reads: model.safetensors, and last
 * config.json.
 *
 * @param[in] spec   Of the model. Borrowed.
 * @param[in] model    Of the pipeline. Borrowed.
 * @param[in] directory  Exists. Each file is replaced whole or not at all.
 *
 * @retval CGP_EIO     Not written.   @retval CGP_EINVAL  Another model; a bad option; the message names it.   @retval CGP_ENOMEM
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_huggingface_write(const cgp_model_spec *spec,
                                                        cgp_pipeline *pipeline,
                                                        const cgp_model *model,
                                                        const char *directory);

#ifdef __cplusplus
}
#endif
#endif
