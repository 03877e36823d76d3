/* SPDX-License-Identifier: Apache-2.0 */
/* test_weights_refused.c -- invalid published weights are refused: tensor files, config.json, and
 * the index of several files. */
#define _GNU_SOURCE /* nftw */
#include "published.h"

/* --- files --- */

typedef void change(tensors *t);

static void a_name_of_another(tensors *t) {
    strcpy(t->names[0], "transformer.h.7.ln_1.weight");
}

static void one_less(tensors *t) {
    drop_tensor(t, index_of(t, "transformer.h.1.mlp.c_fc.bias"));
}

static void twice(tensors *t) {
    add_tensor(t, "wpe.weight", cgp_shape_make(2, (int64_t[]){12, 16}), CGP_F32);
}

static void another_shape(tensors *t) {
    const int i = index_of(t, "transformer.h.0.attn.c_attn.weight");
    t->shapes[i] = cgp_shape_make(2, (int64_t[]){48, 16});
}

static void another_type(tensors *t) {
    t->types[index_of(t, "transformer.ln_f.bias")] = CGP_I32;
}

static void not_a_number(tensors *t) {
    ((float *)t->data[index_of(t, "transformer.ln_f.weight")])[3] = NAN;
}

static void infinite(tensors *t) {
    ((float *)t->data[index_of(t, "transformer.h.0.ln_2.bias")])[0] = -INFINITY;
}

TEST_CASE(files_of_something_else_are_refused) {
    static const struct {
        change *change;
        const char *message;
    } cases[] = {
        {a_name_of_another,
         "t.safetensors: transformer.h.7.ln_1.weight: the model has no such parameter"},
        {one_less, "t.safetensors: transformer.h.1.mlp.c_fc.bias: is missing"},
        {twice, "wpe.weight: is there twice, with and without \"transformer.\""},
        {another_shape,
         "transformer.h.0.attn.c_attn.weight: expected shape [16, 48], got [48, 16]"},
        {another_type, "transformer.ln_f.bias: expected type F32, F16 or BF16, got I32"},
        {not_a_number, "transformer.ln_f.weight: expected finite numbers, element 3 is nan"},
        {infinite, "transformer.h.0.ln_2.bias: expected finite numbers, element 0 is -inf"},
    };
    network net = open_network(DATA "gpt2", 1);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        static tensors t;
        read_tensors(&t, DATA "gpt2/model.safetensors");
        cases[i].change(&t);
        write_tensors(&t, test_path_of("t.safetensors"));
        assert_status(load(&net, test_path_of("t.safetensors")), CGP_EFORMAT);
        assert_message(cases[i].message);
        release_tensors(&t);
    }
    net.spec.gpt2.tied = false; /* the file has no head */
    network untied = {.spec = net.spec};
    make_network(&untied, 1);
    assert_status(load(&untied, DATA "gpt2"), CGP_EFORMAT);
    assert_message("lm_head.weight: is missing (is the head tied to wte.weight? tied=1 in the "
                   "model)");
    release(&untied);
    release(&net);
}

TEST_CASE(a_run_s_own_layout_is_not_taken_for_torchvision_s) {
    network net = open_network(DATA "resnet20/resnet20.safetensors", 1);
    assert_ok(cgp_pipeline_save(net.pipeline, test_directory, 1, NULL));
    assert_status(load(&net, test_path_of("latest/weights.safetensors")), CGP_EFORMAT);
    assert_message("conv1.weight: expected shape [4, 3, 3, 3], got [3, 3, 3, 4]");
    release(&net);
}

TEST_CASE(a_file_that_is_cut_is_refused) {
    network net = open_network(DATA "gpt2", 1);
    char bytes[4096];
    assert_int_equal(test_read_file(DATA "gpt2/model.safetensors", bytes), 4096);
    test_write_file(test_path_of("model.safetensors"), bytes, 4096);
    assert_status(load(&net, test_directory), CGP_EFORMAT);
    assert_message("model.safetensors: at byte 4096: file ends early");
    release(&net);
}

/* --- config.json --- */

static void write_text(const char *name, const char *text) {
    test_write_file(test_path_of(name), text, strlen(text));
}

static void write_json(const char *name, const json_t *json) {
    char *text = json_dumps(json, 0);
    write_text(name, text);
    free(text);
}

/* Write the published config.json with one key changed. The value "-" removes the key. */
static void write_config(const char *key, const char *value) {
    json_t *config = test_reference_load(DATA "gpt2/config.json");
    if (strcmp(value, "-") == 0)
        json_object_del(config, key);
    else
        json_object_set_new(config, key, json_loads(value, JSON_DECODE_ANY, NULL));
    write_json("config.json", config);
    json_decref(config);
}

TEST_CASE(a_config_that_cannot_be_computed_is_refused) {
    static const char *const cases[][3] = {
        {"model_type", "\"bert\"",
         "config.json: model_type: expected \"gpt2\", \"llama\", \"mistral\", \"qwen2\", \"qwen3\" "
         "or "
         "\"vit\", got "
         "\"bert\""},
        {"model_type", "-", "or \"vit\", got none"},
        {"model_type", "[1]", "or \"vit\", got [1]"},
        {"n_layer", "-", "n_layer: expected a whole number from 1 to 10000, got none"},
        {"n_layer", "0", "n_layer: expected a whole number from 1 to 10000, got 0"},
        {"n_layer", "2.0", "n_layer: expected a whole number from 1 to 10000, got 2.0"},
        {"n_layer", "\"2\"", "got \"2\""},
        {"n_layer", "10001", "got 10001"},
        {"n_embd", "9223372036854775807",
         "n_embd: expected a whole number from 1 to 1048576, got 9223372036854775807"},
        {"n_embd", "null", "n_embd: expected a whole number from 1 to 1048576, got null"},
        {"n_head", "3", "config.json: gpt2: heads: expected a divisor of the width"},
        {"n_head", "-16", "n_head: expected a whole number"},
        {"vocab_size", "2147483648", "vocab_size: expected a whole number from 1 to 2147483647"},
        {"n_positions", "-", "n_positions: expected a whole number from 1 to 2147483647, got none"},
        {"n_inner", "0", "n_inner: expected a whole number from 1 to 4194304, got 0"},
        {"n_inner", "{}", "got {}"},
        {"activation_function", "\"relu\"",
         "activation_function: expected gelu_new, gelu_pytorch_tanh, gelu_fast or gelu, got "
         "\"relu\""},
        {"activation_function", "null", "got null"},
        {"layer_norm_epsilon", "0", "layer_norm_epsilon: expected a number above 0 and at most 1"},
        {"layer_norm_epsilon", "\"1e-5\"", "got \"1e-5\""},
        {"layer_norm_epsilon", "2", "got 2"},
        {"tie_word_embeddings", "1", "tie_word_embeddings: expected true or false, got 1"},
        {"scale_attn_weights", "false",
         "scale_attn_weights: expected true, got false (cgpipe does not compute that)"},
        {"scale_attn_by_inverse_layer_idx", "true",
         "scale_attn_by_inverse_layer_idx: expected false, got true"},
        {"add_cross_attention", "true", "add_cross_attention: expected false, got true"},
        {"attn_pdrop", "1", "attn_pdrop: expected a number from 0 on and below 1, got 1"},
        {"resid_pdrop", "true", "resid_pdrop: expected a number from 0 on and below 1, got true"},
    };
    cgp_model_spec spec = cgp_model_spec_default();
    spec.gpt2.layers = 77;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_config(cases[i][0], cases[i][1]);
        assert_status(cgp_huggingface_read(&spec, test_directory), CGP_EFORMAT);
        assert_message(cases[i][2]);
        assert_int_equal(spec.gpt2.layers, 77);
    }
}

TEST_CASE(a_config_says_what_is_not_the_default) {
    static const struct {
        const char *key, *value, *text;
        double dropout;
    } cases[] = {
        {"use_cache", "-", "gpt2:layers=2,width=16,heads=2,vocab=53,seq=12,tied=1,gelu=tanh", 0.1},
        {"tie_word_embeddings", "false", "gpt2:layers=2,width=16,heads=2,vocab=53,seq=12,gelu=tanh",
         0.1},
        {"activation_function", "-",
         "gpt2:layers=2,width=16,heads=2,vocab=53,seq=12,tied=1,gelu=tanh", 0.1},
        {"activation_function", "\"gelu\"", "gpt2:layers=2,width=16,heads=2,vocab=53,seq=12,tied=1",
         0.1},
        {"layer_norm_epsilon", "1e-6",
         "gpt2:layers=2,width=16,heads=2,vocab=53,seq=12,tied=1,gelu=tanh,eps=1e-06", 0.1},
        {"n_inner", "64", "gpt2:layers=2,width=16,heads=2,vocab=53,seq=12,tied=1,gelu=tanh", 0.1},
        {"attn_pdrop", "0", "gpt2:layers=2,width=16,heads=2,vocab=53,seq=12,tied=1,gelu=tanh", 0},
        {"n_ctx", "99", "gpt2:layers=2,width=16,heads=2,vocab=53,seq=12,tied=1,gelu=tanh", 0.1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cgp_model_spec spec = cgp_model_spec_default();
        char text[160];
        write_config(cases[i].key, cases[i].value);
        assert_ok(cgp_huggingface_read(&spec, test_directory));
        assert_ok(cgp_model_spec_text(&spec, text, sizeof text));
        assert_string_equal(text, cases[i].text);
        assert_true(spec.gpt2.dropout == cases[i].dropout);
    }
}

TEST_CASE(a_config_that_is_no_json_is_refused) {
    static const char *const cases[][2] = {
        {"", "config.json: is not JSON (byte "},
        {"{\"n_layer\": 12", "config.json: is not JSON (byte "},
        {"[1, 2]", "config.json: expected a JSON object, got a list"},
        {"{\"n_layer\": 1, \"n_layer\": 2}", "duplicate object key"},
        {"{\"n_layer\": 99999999999999999999}", "too big integer"},
        {"{\"n_layer\": 1e999}", "real number overflow"},
        {"{\"model_type\": \"\xff\"}", "config.json: is not JSON"},
    };
    cgp_model_spec spec = cgp_model_spec_default();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_text("config.json", cases[i][0]);
        assert_status(cgp_huggingface_read(&spec, test_directory), CGP_EFORMAT);
        assert_message(cases[i][1]);
    }
    char *deep = calloc(100001, 1);
    memset(deep, '[', 100000);
    write_text("config.json", deep);
    assert_status(cgp_huggingface_read(&spec, test_directory), CGP_EFORMAT);
    assert_message("expected JSON nested at most 64 deep");
    free(deep);
    test_empty_directory();
    assert_status(cgp_huggingface_read(&spec, test_directory), CGP_EIO);
    assert_message("config.json: cannot be read (No such file or directory)");
    assert_int_equal(mkdir(test_path_of("config.json"), 0700), 0);
    assert_status(cgp_huggingface_read(&spec, test_directory), CGP_EIO);
    assert_message("config.json: expected a file, got something else");
    assert_int_equal(rmdir(test_path_of("config.json")), 0);
    spec.gpt2.struct_size = 1;
    assert_status(cgp_huggingface_read(&spec, test_directory), CGP_EINVAL);
}

/* --- the index --- */

#define SHARD(n) "model-0000" n "-of-00005.safetensors"
#define INDEX "model.safetensors.index.json"

/* Copy the published shards, so that tests can damage the copies. */
static void copy_shards(void) {
    static const char *const names[] = {SHARD("1"), SHARD("2"), SHARD("3"), SHARD("4"), SHARD("5")};
    for (int i = 0; i < 5; i++) {
        static tensors t;
        char path[256];
        snprintf(path, sizeof path, DATA "gpt2-shards/%s", names[i]);
        read_tensors(&t, path);
        write_tensors(&t, test_path_of(names[i]));
        release_tensors(&t);
    }
}

/* Write the published index with the file name of one tensor changed. The value "-" removes the
 * tensor. */
static void write_index(const char *tensor, const char *value) {
    json_t *index = test_reference_load(DATA "gpt2-shards/" INDEX);
    json_t *map = json_object_get(index, "weight_map");
    if (strcmp(value, "-") == 0)
        json_object_del(map, tensor);
    else
        json_object_set_new(map, tensor, json_loads(value, JSON_DECODE_ANY, NULL));
    write_json(INDEX, index);
    json_decref(index);
}

TEST_CASE(an_index_that_does_not_fit_its_files_is_refused) {
    static const struct {
        const char *tensor, *value;
        cgp_status status;
        const char *message;
    } cases[] = {
        {"transformer.wte.weight", "\"../" SHARD("1") "\"", CGP_EFORMAT,
         INDEX
         ": weight_map: transformer.wte.weight: expected the name of a file in its directory, "
         "got \"../" SHARD("1") "\""},
        {"transformer.wte.weight", "\"/etc/passwd\"", CGP_EFORMAT, "got \"/etc/passwd\""},
        {"transformer.wte.weight", "\"..\"", CGP_EFORMAT, "got \"..\""},
        {"transformer.wte.weight", "\"\"", CGP_EFORMAT, "got \"\""},
        {"transformer.wte.weight", "5", CGP_EFORMAT, "got 5"},
        {"transformer.wte.weight", "null", CGP_EFORMAT, "got null"},
        {"transformer.wte.weight", "\"model-6.safetensors\"", CGP_EIO, "model-6.safetensors: "},
        {"transformer.wte.weight", "\"" SHARD("2") "\"", CGP_EFORMAT,
         "weight_map: transformer.wte.weight is not in " SHARD("2")},
        {"transformer.wte.weight", "-", CGP_EFORMAT,
         SHARD("1") ": transformer.wte.weight: is not in the weight_map of "},
        {"transformer.h.9.ln_1.bias", "\"" SHARD("1") "\"", CGP_EFORMAT,
         "weight_map: transformer.h.9.ln_1.bias is not in " SHARD("1")},
    };
    network net = open_network(DATA "gpt2-shards", 1);
    copy_shards();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_index(cases[i].tensor, cases[i].value);
        assert_status(load(&net, test_directory), cases[i].status);
        assert_message(cases[i].message);
    }
    write_text(INDEX, "{\"weight_map\": [1]}");
    assert_status(load(&net, test_directory), CGP_EFORMAT);
    assert_message(INDEX ": weight_map: expected names with their files, got [1]");
    write_text(INDEX, "{\"weight_map\": {}}");
    assert_status(load(&net, test_directory), CGP_EFORMAT);
    write_text(INDEX, "{}");
    assert_status(load(&net, test_directory), CGP_EFORMAT);
    assert_message("got none");
    release(&net);
}

TEST_CASE(a_tensor_in_two_files_is_refused) {
    static tensors t;
    network net = open_network(DATA "gpt2-shards", 1);
    copy_shards();
    write_index("metadata", "-");
    read_tensors(&t, test_path_of(SHARD("5")));
    add_tensor(&t, "transformer.wpe.weight", cgp_shape_make(2, (int64_t[]){12, 16}), CGP_F32);
    write_tensors(&t, test_path_of(SHARD("5")));
    assert_status(load(&net, test_directory), CGP_EFORMAT);
    assert_message(SHARD("5") ": transformer.wpe.weight: is there twice, here and in " SHARD("1"));
    release_tensors(&t);
    release(&net);
}

TEST_CASE(a_directory_without_weights_says_what_it_has) {
    network net = open_network(DATA "gpt2", 1);
    assert_status(load(&net, test_directory), CGP_EIO);
    assert_message(": expected model.safetensors or " INDEX ", got neither");
    write_text("pytorch_model.bin", "pickled");
    assert_status(load(&net, test_directory), CGP_EIO);
    assert_message("got pytorch_model.bin (in Python, save_pretrained(.., "
                   "safe_serialization=True) writes the first)");
    assert_status(load(&net, test_path_of("none")), CGP_EIO);
    assert_message("none: ");
    release(&net);
}

TEST_CASE(a_text_without_measure_is_not_parsed) {
    network net = open_network(DATA "gpt2-shards", 1);
    cgp_model_spec spec = cgp_model_spec_default();
    write_text("config.json", "{}");
    write_text(INDEX, "{}");
    assert_int_equal(truncate(test_path_of("config.json"), 1000000), 0);
    assert_status(cgp_huggingface_read(&spec, test_directory), CGP_EFORMAT);
    assert_message("config.json: is not JSON (byte "); /* 1,000,000 bytes are not too many */
    assert_int_equal(truncate(test_path_of("config.json"), 1000001), 0);
    assert_status(cgp_huggingface_read(&spec, test_directory), CGP_EFORMAT);
    assert_message("config.json: expected at most 1000000 bytes, got 1000001");
    assert_int_equal(truncate(test_path_of(INDEX), 16000001), 0);
    assert_status(load(&net, test_directory), CGP_EFORMAT);
    assert_message(INDEX ": expected at most 16000000 bytes, got 16000001");
    release(&net);
}

TEST_GROUP(.set_up = test_make_directory, .tear_down = remove_tree_after,
           .before = empty_tree_before);
