/* SPDX-License-Identifier: Apache-2.0 */
/* test_transformers.c -- a Llama, a Mistral, a Qwen2, a Qwen3 and a Vision Transformer compute what
 * Hugging Face's transformers computes from the same files. The test compares logits, and the
 * losses of ten steps of AdamW. The library writes the same files again.
 *
 * tests/data/weights has the files, and results computed in double (tools/reference_llama.py,
 * tools/reference_vit.py). Logits may differ by 1e-5 of the largest logit. Losses may differ by
 * 2e-5 relative, because ten steps run in f32. (The loss of a single step is within 1e-6.) */
#define _GNU_SOURCE /* nftw */
#include "published.h"

static const char *const cases[] = {"llama",         "llama-linear", "llama-3", "mistral",
                                    "qwen2",         "vit-shards",   "vit",     "qwen3",
                                    "qwen3-windows", "qwen2-windows"};
enum { CASES = sizeof cases / sizeof cases[0], STEPS = 10 };

static const char *path_of(const char *name, const char *file) {
    static char paths[2][256];
    static int turn;
    char *path = paths[turn++ % 2];
    snprintf(path, sizeof paths[0], DATA "%s/%s", name, file);
    return path;
}

/* --- numbers of transformers --- */

typedef struct numbers {
    cgp_tensor inputs, targets, logits, losses;
} numbers;

static numbers read_numbers(const char *name) {
    cgp_safetensors *file = NULL;
    numbers n = {0};
    assert_ok(cgp_safetensors_open(&file, path_of(name, "expected.safetensors")));
    n.inputs = read_tensor(file, "inputs");
    n.targets = read_tensor(file, "targets");
    n.logits = read_tensor(file, "outputs");
    n.losses = read_tensor(file, "losses");
    assert_int_equal(cgp_shape_count(&n.losses.shape), STEPS);
    cgp_safetensors_close(file);
    return n;
}

static void release_numbers(numbers *n) {
    free(n->inputs.data);
    free(n->targets.data);
    free(n->logits.data);
    free(n->losses.data);
}

/* --- logits --- */

/* Return the largest difference of logits, relative to the largest logit. */
static double logits_differ(network *net, const numbers *n) {
    double largest = 0;
    const double far = outputs_differ(net, &n->inputs, &n->logits, &largest);
    return far / largest;
}

TEST_CASE(logits_are_those_of_transformers) {
    for (int c = 0; c < CASES; c++) {
        numbers n = read_numbers(cases[c]);
        for (int stages = 1; stages <= 3; stages += 2) {
            network net = open_network(path_of(cases[c], "."), stages);
            const double far = logits_differ(&net, &n);
            print_message("%s, %d stages: logits differ by %.1e\n", cases[c], stages, far);
            assert_true(far < 1e-5);
            release(&net);
        }
        release_numbers(&n);
    }
}

/* The options in the files have an effect: with other options, the logits differ from those of
 * transformers. */
TEST_CASE(other_options_compute_something_else) {
    for (int c = 0; c < CASES; c++) {
        numbers n = read_numbers(cases[c]);
        network net = {.spec = cgp_model_spec_default()};
        cgp_llama_options *llama = &net.spec.llama;
        assert_ok(cgp_huggingface_read(&net.spec, path_of(cases[c], ".")));
        if (c == 1) llama->factor = 8;
        if (c == 2) llama->low_freq_factor = 1;
        if (c == 3) llama->window = 4;
        if (c == 0 || c == 4) llama->theta = 500;
        if (c == 5) net.spec.vit.eps = 1e-12;
        if (c == 6) net.spec.vit.heads = 2;
        if (c == 7) llama->theta = 500;
        if (c == 8) llama->full_every = 0;
        if (c == 9) llama->window_from = 0;
        make_network(&net, 1);
        assert_ok(load(&net, path_of(cases[c], ".")));
        assert_true(logits_differ(&net, &n) > 1e-4);
        release(&net);
        release_numbers(&n);
    }
}

/* --- training --- */

TEST_CASE(losses_are_those_of_transformers) {
    for (int c = 0; c < CASES; c++) {
        numbers n = read_numbers(cases[c]);
        network net;
        cgp_plan_options o = cgp_plan_options_default();
        if (c % 2) {
            o.stages = 2;
            o.chunks = 3;
            o.schedule = "zb-h1";
            o.recompute = CGP_RECOMPUTE_ALWAYS_SELECTIVE;
        }
        net.spec = cgp_model_spec_default();
        assert_ok(cgp_huggingface_read(&net.spec, path_of(cases[c], ".")));
        const double far =
            losses_differ(&net, path_of(cases[c], "."), &o, &n.inputs, &n.targets, &n.losses);
        print_message("%s: losses differ by %.1e\n", cases[c], far);
        assert_true(far < 2e-5);
        release(&net);
        release_numbers(&n);
    }
}

/* --- writing the files --- */

TEST_CASE(a_directory_that_we_write_is_the_same_network) {
    for (int c = 0; c < CASES; c++) {
        char before[65], after[65], text[2][320];
        network net = open_network(path_of(cases[c], "."), 2);
        assert_ok(cgp_huggingface_write(&net.spec, net.pipeline, net.model, test_directory));
        network again = open_network(test_directory, 1);
        assert_ok(cgp_pipeline_weights_sha256(net.pipeline, before));
        assert_ok(cgp_pipeline_weights_sha256(again.pipeline, after));
        assert_string_equal(before, after);
        assert_ok(cgp_model_spec_text(&net.spec, text[0], sizeof text[0]));
        assert_ok(cgp_model_spec_text(&again.spec, text[1], sizeof text[1]));
        assert_string_equal(text[0], text[1]);
        release(&again);
        release(&net);
    }
}

/* --- config.json --- */

#define SIZES "\"hidden_size\": 8, \"num_attention_heads\": 2, \"intermediate_size\": 8, "
#define BASE SIZES "\"num_hidden_layers\": 2, \"vocab_size\": 8, \"max_position_embeddings\": 8, "
#define LLAMA BASE "\"model_type\": \"llama\", "
#define ALONE BASE "\"model_type\": \"qwen2\", \"num_key_value_heads\": null, "
#define QWEN2                                                                                      \
    BASE "\"model_type\": \"qwen2\", \"num_key_value_heads\": 2, \"use_sliding_window\": true, "   \
         "\"sliding_window\": 4, "
#define VIT                                                                                        \
    SIZES "\"num_hidden_layers\": 1, \"image_size\": 8, \"patch_size\": 4, \"model_type\": "       \
          "\"vit\", "

static cgp_status read_config(cgp_model_spec *spec, const char *keys) {
    char config[1024];
    snprintf(config, sizeof config, "{%s}", keys);
    test_write_file(test_path_of("config.json"), config, strlen(config));
    *spec = cgp_model_spec_default();
    return cgp_huggingface_read(spec, test_directory);
}

/* Qwen2Config in transformers decides which layers have an attention window. If there is
 * layer_types, it lists these layers. Otherwise layer max_window_layers (default 28) and all later
 * layers have a window. */
TEST_CASE(a_qwen2_has_the_window_that_transformers_computes) {
    static const struct {
        const char *keys;
        int64_t window[3]; /* window, window_from, full_every */
    } configs[] = {
        {QWEN2 "\"max_window_layers\": 0", {4}},
        {QWEN2 "\"max_window_layers\": 2", {0}},
        {QWEN2 "\"max_window_layers\": 28", {0}},
        {QWEN2 "\"tie_word_embeddings\": false", {0}}, /* the default max_window_layers is 28 */
        {QWEN2 "\"layer_types\": null", {0}},
        {QWEN2
         "\"max_window_layers\": 1, \"layer_types\": [\"full_attention\", \"full_attention\"]",
         {0}},
        {QWEN2 "\"layer_types\": [\"sliding_attention\", \"sliding_attention\"]", {4}},
        {QWEN2 "\"max_window_layers\": 1", {4, 1}},
        {QWEN2 "\"layer_types\": [\"full_attention\", \"sliding_attention\"]", {4, 1}},
        {QWEN2 "\"layer_types\": [\"sliding_attention\", \"full_attention\"]", {4, 0, 2}},
        {LLAMA "\"layer_types\": [\"full_attention\", \"full_attention\"]", {0}},
        {ALONE "\"use_sliding_window\": true, \"max_window_layers\": 0, \"sliding_window\": null",
         {0}},
        {ALONE "\"max_window_layers\": 1, \"use_sliding_window\": false", {0}},
    };
    for (size_t i = 0; i < sizeof configs / sizeof configs[0]; i++) {
        cgp_model_spec spec;
        assert_ok(read_config(&spec, configs[i].keys));
        const int64_t *window = configs[i].window;
        if (spec.llama.window != window[0]) print_error("%s\n", configs[i].keys);
        assert_int_equal(spec.llama.window, window[0]);
        assert_int_equal(spec.llama.window_from, window[1]);
        assert_int_equal(spec.llama.full_every, window[2]);
    }
}

/* Check optional keys of config.json, their defaults, and values that depend on two keys. */
TEST_CASE(presets_of_a_vit_are_those_of_transformers) {
    static const struct {
        const char *keys;
        int64_t classes;
        double eps, dropout;
    } read[] = {
        {VIT "\"qkv_bias\": true", 2, 1e-12, 0},
        {VIT "\"num_labels\": 9, \"layer_norm_eps\": 1e-6", 9, 1e-6, 0},
        {VIT "\"id2label\": {\"0\": \"cat\", \"1\": \"dog\", \"2\": \"cow\"}", 3, 1e-12, 0},
        {VIT "\"hidden_dropout_prob\": 0.25, \"attention_probs_dropout_prob\": 0.25", 2, 1e-12,
         0.25},
        {VIT "\"hidden_dropout_prob\": 0.25", 2, 1e-12, 0},
    };
    for (size_t i = 0; i < sizeof read / sizeof read[0]; i++) {
        cgp_model_spec spec;
        assert_ok(read_config(&spec, read[i].keys));
        assert_int_equal(spec.kind, CGP_MODEL_VIT);
        assert_int_equal(spec.vit.classes, read[i].classes);
        assert_true(spec.vit.eps == read[i].eps && spec.vit.dropout == read[i].dropout);
    }
}

TEST_CASE(what_is_not_computed_is_refused) {
    static const char *const refused[][2] = {
        {BASE "\"model_type\": \"mamba\"", "model_type: expected \"gpt2\", \"llama\", \"mistral\", "
                                           "\"qwen2\", \"qwen3\" or \"vit\", got \"mamba\""},
        {LLAMA "\"attention_bias\": true",
         "attention_bias: expected false, got true (cgpipe does not compute that)"},
        {LLAMA "\"mlp_bias\": true", "mlp_bias: expected false, got true"},
        {LLAMA "\"hidden_act\": \"gelu\"", "hidden_act: expected \"silu\", got \"gelu\""},
        {LLAMA "\"num_key_value_heads\": 3",
         "llama: kv_heads: expected a divisor of heads, got kv_heads=3, heads=2"},
        {LLAMA "\"head_dim\": 3", "llama: head_width: expected an even number, got 3"},
        {LLAMA "\"rms_norm_eps\": 2", "rms_norm_eps: expected a number from 1e-30 to 1, got 2"},
        {LLAMA "\"rope_theta\": \"10000\"",
         "rope_theta: expected a number from 1 to 1e+12, got \"10000\""},
        {LLAMA "\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4.0}",
         "rope_scaling: type: expected \"default\", \"linear\" or \"llama3\", got \"yarn\""},
        {LLAMA "\"rope_scaling\": {\"rope_type\": \"linear\"}",
         "llama: factor: expected at least 1, got 0"},
        {LLAMA "\"rope_scaling\": 4", "rope_scaling: expected an object or null, got 4"},
        {LLAMA "\"rope_parameters\": {\"rope_theta\": 0.5}",
         "rope_parameters: rope_theta: expected a number from 1 to 1e+12, got 0.5"},
        {QWEN2 "\"max_window_layers\": -1", "max_window_layers: expected a whole number, got -1"},
        {SIZES
         "\"num_hidden_layers\": 4, \"vocab_size\": 8, \"max_position_embeddings\": 8, "
         "\"model_type\": \"qwen2\", \"num_key_value_heads\": 2, \"use_sliding_window\": true, "
         "\"sliding_window\": 4, \"layer_types\": [\"sliding_attention\", \"full_attention\", "
         "\"full_attention\", \"sliding_attention\"]",
         "layer_types: expected full attention in the first layers alone, or in every n-th layer, "
         "got ["},
        {LLAMA "\"layer_types\": [\"sliding_attention\", \"full_attention\"]",
         "layer_types: expected \"full_attention\" for all layers, as there is no sliding_window"},
        {BASE "\"model_type\": \"qwen3\", \"num_key_value_heads\": 2, \"attention_bias\": true",
         "attention_bias: expected false, got true (cgpipe does not compute that)"},
        {LLAMA "\"quantization_config\": {\"bits\": 4}",
         "quantization_config: expected no such key (cgpipe does not compute that), got "
         "{\"bits\":4}"},
        {LLAMA "\"final_logit_softcapping\": 30.0",
         "final_logit_softcapping: expected no such key (cgpipe does not compute that), got 30.0"},
        {LLAMA "\"partial_rotary_factor\": 0.5", "partial_rotary_factor: expected no such key"},
        {LLAMA "\"rope_parameters\": {\"partial_rotary_factor\": 0.5}",
         "rope_parameters: partial_rotary_factor: expected no such key"},
        {QWEN2 "\"layer_types\": [\"sliding_attention\"]",
         "layer_types: expected \"full_attention\" or \"sliding_attention\" for each layer, "
         "got [\"sliding_attention\"]"},
        {QWEN2 "\"layer_types\": [\"linear_attention\", \"full_attention\"]",
         "layer_types: expected \"full_attention\" or"},
        {BASE "\"model_type\": \"qwen2\", \"num_key_value_heads\": 2, \"layer_types\": "
              "[\"sliding_attention\", \"sliding_attention\"]",
         "layer_types: expected \"full_attention\" for all layers, as there is no "
         "sliding_window, got "},
        {LLAMA "\"partial_rotary_factor\": 1.0, \"quantization_config\": null, \"mlp_bias\": true",
         "mlp_bias: expected false, got true"},
        {VIT "\"hidden_act\": \"relu\"", "hidden_act: expected \"gelu\", got \"relu\""},
        {VIT "\"qkv_bias\": false",
         "qkv_bias: expected true, got false (cgpipe does not compute that)"},
        {VIT "\"num_channels\": 1", "num_channels: expected 3, got 1"},
        {VIT "\"num_labels\": 0",
         "num_labels: expected a whole number from 1 to 2147483647, got 0"},
        {VIT "\"id2label\": {}", "id2label: expected an object of the classes' names, got {}"},
        {VIT "\"layer_norm_eps\": 0", "layer_norm_eps: expected a number from 1e-30 to 1, got 0"},
        {VIT "\"hidden_dropout_prob\": 1",
         "hidden_dropout_prob: expected a number from 0 on and below 1, got 1"},
        {VIT "\"attention_probs_dropout_prob\": \"0\"",
         "attention_probs_dropout_prob: expected a number from 0 to 1, got \"0\""},
    };
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        cgp_model_spec spec;
        assert_status(read_config(&spec, refused[i][0]), CGP_EFORMAT);
        assert_message(refused[i][1]);
        assert_int_equal(spec.kind, CGP_MODEL_GPT2);
    }
}

TEST_GROUP(.set_up = test_make_directory, .tear_down = test_remove_directory);
