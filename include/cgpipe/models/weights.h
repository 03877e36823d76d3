/* SPDX-License-Identifier: Apache-2.0 */
/* weights.h -- load published PyTorch weights into a pipeline, and save a pipeline's weights in the
 * same form.
 *
 *     cgp_model_spec spec = cgp_model_spec_default();
 *     CGP_TRY(cgp_huggingface_read(&spec, "gpt2"));           reads gpt2/config.json
 *     CGP_TRY(cgp_model_spec_create(&model, &spec));          then create plan and pipeline
 *     CGP_TRY(cgp_weights_open(&weights, model, "gpt2"));     checks names and shapes of tensors
 *     CGP_TRY(cgp_weights_load(weights, pipeline));
 *     cgp_weights_close(weights);
 *
 * Published weights have the same names as in this library's models: the names of Hugging Face
 * (GPT-2, Llama, ViT), torchvision (ResNet) or torchgpipe's benchmarks (AmoebaNet-D, U-Net).
 * Layouts are the same too, with these exceptions:
 *
 *     parameter                         published                     in this library
 *     the weight of a convolution       [out, in, height, width]      [height, width, in, out]
 *     (every parameter of 4 sizes)
 *     ViT's cls_token                   [1, 1, C]                     [1, C], named ...weight
 *     ViT's position_embeddings         [1, T + 1, C]                 [T + 1, C], named ...weight
 *     num_batches_tracked               one I64                       an i32
 *
 * Source: the layouts of torch.nn.Conv2d and BatchNorm2d, and of GPT2LMHeadModel in Hugging Face's
 * transformers. */
#ifndef CGPIPE_MODELS_WEIGHTS_H
#define CGPIPE_MODELS_WEIGHTS_H

#include <cgpipe/models/spec.h>
#include <cgpipe/pipeline.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cgp_weights cgp_weights; /* published weights that fit a model */

/**
 * Open published weights and check that they fit a model. The path is a safetensors file, or a
 * directory with model.safetensors or, for weights in several files, with
 * model.safetensors.index.json and the files that it names.
 *
 * Every parameter and running statistic of the model must occur once, with its shape, as F32, F16
 * or BF16; a missing num_batches_tracked counts as 0. Names in the file may have the prefix
 * "transformer." or "model.".
 *
 * The only other tensors allowed are constants (.attn.bias, .attn.masked_bias,
 * .rotary_emb.inv_freq), and lm_head.weight if the model's head is tied to wte.weight or
 * embed_tokens.weight. In that case cgp_weights_load() checks that the two tensors are equal. An
 * index must name plain files of its directory, and each tensor must be in the file that the index
 * names for it.
 *
 * @param[out] out    Owned by the caller, see cgp_weights_close().
 * @param[in]  model  Borrowed until cgp_weights_close().
 * @param[in]  path   Borrowed.
 *
 * @retval CGP_EIO      Missing or unreadable.
 * @retval CGP_EFORMAT  Damaged, or from another model. The message gives the file, the tensor, and
 *                      the expected and actual values.
 * @retval CGP_EINVAL   The model has an i32 state of several numbers, which has no published form.
 * @retval CGP_ENOMEM
 *
 * Threads: any; a handle belongs to one thread at a time. Cost: reads headers, not data.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_weights_open(cgp_weights **out, const cgp_model *model,
                                                   const char *path);

/**
 * Load all weights and running statistics into a pipeline of the model.
 *
 * @retval CGP_EFORMAT  A file ends early, a value is not finite, or lm_head.weight differs from the
 *                      weight that it is tied to. The pipeline then has some of these weights.
 * @retval CGP_EIO      A read failed. The pipeline then has some of these weights.
 * @retval CGP_ESTATE   As for cgp_pipeline_set_parameter().
 * @retval CGP_ENOMEM
 *
 * Cost: reads all data once. During the call, it needs memory for two f32 tensors of the size of
 * the largest tensor.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_weights_load(cgp_weights *weights, cgp_pipeline *pipeline);

/** Close the files. Accepts NULL. */
CGP_API void cgp_weights_close(cgp_weights *weights);

/**
 * Save the weights and running statistics of a pipeline to one safetensors file, with the published
 * names and layouts. Floats are F32, counters I64. cgp_weights_open() and PyTorch
 * (load_state_dict(safetensors.torch.load_file(path))) can read the file.
 *
 * @param[in] model  Model of the pipeline. Borrowed.
 * @param[in] path   The file is replaced completely or not at all.
 *
 * @retval CGP_EIO     Not written; an existing file is untouched.
 * @retval CGP_ENOMEM  Not written; an existing file is untouched.
 * @retval CGP_EINVAL  As for cgp_weights_open().
 *
 * Cost: memory as for cgp_weights_load().
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_weights_save(cgp_pipeline *pipeline, const cgp_model *model,
                                                   const char *path);

/**
 * Read a model's kind and options from the config.json of a Hugging Face directory. The supported
 * models are GPT-2, Llama (model types llama, mistral, qwen2 and qwen3) and ViT (an image
 * classifier, model type vit).
 *
 * If the file's three dropout values for GPT-2 (resid_pdrop, embd_pdrop, attn_pdrop) are equal,
 * `dropout` is set to this value, otherwise to 0. For ViT, `dropout` is set in the same way from
 * two values. Keys that do not change the results are ignored.
 *
 * @param[in,out] spec  The kind, and all its options but `loss`, are set; unchanged on failure.
 *
 * @retval CGP_EIO      Missing or unreadable.
 * @retval CGP_EFORMAT  The file is not JSON or describes another kind of model; or a size is
 *                      missing, of another type or out of range. Or a feature is not supported
 *                      (another activation, another scaling of the rotary embedding, a window in
 *                      layers of no regular pattern, ...). The message names the fault.
 * @retval CGP_EINVAL   `spec` is not from cgp_model_spec_default().
 * @retval CGP_ENOMEM
 *
 * Threads: any.
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_huggingface_read(cgp_model_spec *spec, const char *directory);

/**
 * Write a pipeline's GPT-2, Llama or ViT as a Hugging Face directory: model.safetensors, then
 * config.json. The method from_pretrained() of one of these classes reads the directory:
 * GPT2LMHeadModel, LlamaForCausalLM, MistralForCausalLM (with a window), Qwen2ForCausalLM (with
 * biases), Qwen3ForCausalLM (with norms of q and k) or ViTForImageClassification.
 *
 * @param[in] spec       Spec of the model. Borrowed.
 * @param[in] model      Model of the pipeline. Borrowed.
 * @param[in] directory  Must exist. Each file is replaced completely or not at all.
 *
 * @retval CGP_EIO     Not written.
 * @retval CGP_EINVAL  The spec has another kind of model, options that no config.json describes, or
 *                     a bad option; the message names it.
 * @retval CGP_ENOMEM
 */
CGP_API CGP_MUST_CHECK cgp_status cgp_huggingface_write(const cgp_model_spec *spec,
                                                        cgp_pipeline *pipeline,
                                                        const cgp_model *model,
                                                        const char *directory);

#ifdef __cplusplus
}
#endif
#endif
