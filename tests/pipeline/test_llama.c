/* SPDX-License-Identifier: Apache-2.0 */
/* test_llama.c -- a Llama, a Mistral and a Qwen2 compute what Hugging Face's transformers computes
 * from the same files: logits, and the losses of ten steps of AdamW. The library writes the same
 * files again.
 *
 * tests/data/weights has the files, and results computed in double (tools/reference_llama.py).
 * Tolerances: 1e-5 of the largest logit; 2e-5 relative for losses, since ten steps run in f32. The
 * loss of a single step is within 1e-6. */
#define _GNU_SOURCE /* nftw */
#include "published.h"

static const char *const cases[] = {"llama", "llama-linear", "llama-3", "mistral", "qwen2"};
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
    cgp_tensor tokens, targets, logits, losses;
} numbers;

static cgp_tensor read_tensor(cgp_safetensors *file, const char *name, cgp_dtype type) {
    const int index = cgp_safetensors_find(file, name);
    assert_true(index >= 0);
    cgp_tensor tensor = {type, *cgp_safetensors_shape(file, index), NULL};
    tensor.data = calloc((size_t)cgp_shape_count(&tensor.shape), 4);
    assert_ok(cgp_safetensors_read(file, index, tensor.data));
    return tensor;
}

static numbers read_numbers(const char *name) {
    cgp_safetensors *file = NULL;
    numbers n = {0};
    assert_ok(cgp_safetensors_open(&file, path_of(name, "expected.safetensors")));
    n.tokens = read_tensor(file, "inputs", CGP_I32);
    n.targets = read_tensor(file, "targets", CGP_I32);
    n.logits = read_tensor(file, "outputs", CGP_F32);
    n.losses = read_tensor(file, "losses", CGP_F32);
    assert_int_equal(cgp_shape_count(&n.losses.shape), STEPS);
    cgp_safetensors_close(file);
    return n;
}

static void release_numbers(numbers *n) {
    free(n->tokens.data);
    free(n->targets.data);
    free(n->logits.data);
    free(n->losses.data);
}

/* --- logits --- */

/* Return the largest difference of logits, relative to the largest logit. */
static double logits_differ(network *net, const numbers *n) {
    const int64_t count = cgp_shape_count(&n->logits.shape);
    const float *expected = n->logits.data;
    cgp_tensor got = n->logits;
    double far = 0, largest = 0;
    got.data = calloc((size_t)count, sizeof(float));
    assert_ok(cgp_pipeline_predict(net->pipeline, (const cgp_tensor *[]){&n->tokens}, 1,
                                   (const cgp_tensor *[]){&got}, 1));
    for (int64_t i = 0; i < count; i++) {
        far = fmax(far, fabs((double)((float *)got.data)[i] - (double)expected[i]));
        largest = fmax(largest, fabs((double)expected[i]));
    }
    free(got.data);
    return far / largest;
}

static void logits_are_those_of_transformers(void **state) {
    (void)state;
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

/* The options in the files matter: with other options the test above fails. */
static void other_options_compute_something_else(void **state) {
    (void)state;
    for (int c = 0; c < CASES; c++) {
        numbers n = read_numbers(cases[c]);
        network net = {.spec = cgp_model_spec_default()};
        cgp_llama_options *o = &net.spec.llama;
        assert_ok(cgp_huggingface_read(&net.spec, path_of(cases[c], ".")));
        if (c == 1) o->factor = 8;
        if (c == 2) o->low_freq_factor = 1;
        if (c == 3) o->window = 4;
        if (c == 0 || c == 4) o->theta = 500;
        make_network(&net, 1);
        assert_ok(load(&net, path_of(cases[c], ".")));
        assert_true(logits_differ(&net, &n) > 1e-4);
        release(&net);
        release_numbers(&n);
    }
}

/* --- training --- */

static void make_training(network *net, const char *name, cgp_plan_options *o) {
    net->spec = cgp_model_spec_default();
    assert_ok(cgp_huggingface_read(&net->spec, path_of(name, ".")));
    o->batch = 3;
    o->optim = cgp_optim_adamw(1e-3, 0.01);
    assert_ok(cgp_model_spec_create(&net->model, &net->spec));
    assert_ok(cgp_plan_create(&net->plan, net->model, o));
    assert_ok(cgp_pipeline_create(&net->pipeline, net->plan, 0));
    assert_ok(load(net, path_of(name, ".")));
}

static void losses_are_those_of_transformers(void **state) {
    (void)state;
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
        double far = 0;
        make_training(&net, cases[c], &o);
        for (int s = 0; s < STEPS; s++) {
            double loss = 0;
            assert_ok(cgp_pipeline_step(net.pipeline, (const cgp_tensor *[]){&n.tokens, &n.targets},
                                        2, &loss));
            assert_ok(cgp_optim_step(net.pipeline));
            far = fmax(far, fabs(loss / (double)((float *)n.losses.data)[s] - 1));
        }
        print_message("%s: losses differ by %.1e\n", cases[c], far);
        assert_true(far < 2e-5);
        release(&net);
        release_numbers(&n);
    }
}

/* --- writing the files --- */

static void a_directory_that_we_write_is_the_same_network(void **state) {
    (void)state;
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

/* --- refused files --- */

#define BASE                                                                                       \
    "\"num_hidden_layers\": 2, \"hidden_size\": 8, \"num_attention_heads\": 2, "                   \
    "\"intermediate_size\": 8, \"vocab_size\": 8, \"max_position_embeddings\": 8"

#define QWEN2                                                                                      \
    "\"model_type\": \"qwen2\", \"num_key_value_heads\": 2, \"use_sliding_window\": true, "        \
    "\"sliding_window\": 4, "

/* Layers get a window by the rule of Qwen2Config in transformers: the layers that layer_types
 * lists, or else layer max_window_layers (default 28) and all later layers. */
static void a_qwen2_has_the_window_that_transformers_computes(void **state) {
    (void)state;
    static const struct {
        const char *keys;
        int64_t window;
    } configs[] = {
        {"\"max_window_layers\": 0", 4},
        {"\"max_window_layers\": 2", 0},
        {"\"max_window_layers\": 28", 0},
        {"\"tie_word_embeddings\": false", 0}, /* max_window_layers is 28 by default */
        {"\"layer_types\": null", 0},
        {"\"max_window_layers\": 1, \"layer_types\": [\"full_attention\", \"full_attention\"]", 0},
        {"\"layer_types\": [\"sliding_attention\", \"sliding_attention\"]", 4},
        {"\"use_sliding_window\": true, \"max_window_layers\": 0, \"sliding_window\": null", 0},
        {"\"max_window_layers\": 1, \"use_sliding_window\": false", 0},
    };
    for (size_t i = 0; i < sizeof configs / sizeof configs[0]; i++) {
        const bool own = strstr(configs[i].keys, "_window\"");
        cgp_model_spec spec = cgp_model_spec_default();
        char config[512];
        snprintf(config, sizeof config, "{" BASE ", %s%s}",
                 own ? "\"model_type\": \"qwen2\", \"num_key_value_heads\": null, " : QWEN2,
                 configs[i].keys);
        test_write_file(test_path_of("config.json"), config, strlen(config));
        assert_ok(cgp_huggingface_read(&spec, test_directory));
        if (spec.llama.window != configs[i].window) print_error("%s\n", configs[i].keys);
        assert_int_equal(spec.llama.window, configs[i].window);
    }
}

static void what_is_not_computed_is_refused(void **state) {
    (void)state;
    static const char *const refused[][2] = {
        {"\"model_type\": \"mamba\"", "model_type: expected \"gpt2\", \"llama\", \"mistral\", "
                                      "\"qwen2\" or \"vit\", got \"mamba\""},
        {"\"model_type\": \"llama\", \"attention_bias\": true",
         "attention_bias: expected false, got true (cgpipe does not compute that)"},
        {"\"model_type\": \"llama\", \"mlp_bias\": true", "mlp_bias: expected false, got true"},
        {"\"model_type\": \"llama\", \"hidden_act\": \"gelu\"",
         "hidden_act: expected \"silu\", got \"gelu\""},
        {"\"model_type\": \"llama\", \"num_key_value_heads\": 3",
         "llama: kv_heads: expected a divisor of heads, got kv_heads=3, heads=2"},
        {"\"model_type\": \"llama\", \"head_dim\": 3",
         "llama: head_width: expected an even number, got 3"},
        {"\"model_type\": \"llama\", \"rms_norm_eps\": 2",
         "rms_norm_eps: expected a number from 1e-30 to 1, got 2"},
        {"\"model_type\": \"llama\", \"rope_theta\": \"10000\"",
         "rope_theta: expected a number from 1 to 1e+12, got \"10000\""},
        {"\"model_type\": \"llama\", \"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4.0}",
         "rope_scaling: type: expected \"default\", \"linear\" or \"llama3\", got \"yarn\""},
        {"\"model_type\": \"llama\", \"rope_scaling\": {\"rope_type\": \"linear\"}",
         "llama: factor: expected at least 1, got 0"},
        {"\"model_type\": \"llama\", \"rope_scaling\": 4",
         "rope_scaling: expected an object or null, got 4"},
        {"\"model_type\": \"llama\", \"rope_parameters\": {\"rope_theta\": 0.5}",
         "rope_parameters: rope_theta: expected a number from 1 to 1e+12, got 0.5"},
        {QWEN2 "\"max_window_layers\": 1",
         "max_window_layers: expected 0, or at least the number of layers (cgpipe has one "
         "window for all layers), got 1"},
        {QWEN2 "\"layer_types\": [\"full_attention\", \"sliding_attention\"]",
         "layer_types: expected the same for all layers (cgpipe has one window for all), got "
         "[\"full_attention\",\"sliding_attention\"]"},
        {QWEN2 "\"layer_types\": [\"sliding_attention\"]",
         "layer_types: expected \"full_attention\" or \"sliding_attention\" for each layer, "
         "got [\"sliding_attention\"]"},
        {QWEN2 "\"layer_types\": [\"linear_attention\", \"full_attention\"]",
         "layer_types: expected \"full_attention\" or"},
        {"\"model_type\": \"qwen2\", \"num_key_value_heads\": 2, \"layer_types\": "
         "[\"sliding_attention\", \"sliding_attention\"]",
         "layer_types: expected \"full_attention\" for all layers, as there is no "
         "sliding_window, got "},
    };
    cgp_model_spec spec = cgp_model_spec_default();
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        char config[512];
        snprintf(config, sizeof config, "{" BASE ", %s}", refused[i][0]);
        test_write_file(test_path_of("config.json"), config, strlen(config));
        assert_status(cgp_huggingface_read(&spec, test_directory), CGP_EFORMAT);
        assert_message(refused[i][1]);
        assert_int_equal(spec.kind, CGP_MODEL_GPT2);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_are_those_of_transformers),
        cmocka_unit_test(other_options_compute_something_else),
        cmocka_unit_test(losses_are_those_of_transformers),
        cmocka_unit_test(a_directory_that_we_write_is_the_same_network),
        cmocka_unit_test(a_qwen2_has_the_window_that_transformers_computes),
        cmocka_unit_test(what_is_not_computed_is_refused),
    };
    return cmocka_run_group_tests(tests, test_make_directory, test_remove_directory);
}
