/* SPDX-License-Identifier: Apache-2.0 */
/* test_gpt2.c -- tests the layers, the parameters and the text form of GPT-2. */
#include "support.h"

#include <cgpipe/models/gpt2.h>

static cgp_model *make(const char *text) {
    cgp_gpt2_options options = cgp_gpt2_options_default();
    cgp_model *model = NULL;
    assert_ok(cgp_gpt2_parse(&options, text));
    assert_ok(cgp_gpt2_create(&model, &options));
    return model;
}

/* Return the index of a parameter; fail the test if the model has no such parameter. */
static int find(const cgp_model *model, const char *name) {
    for (int i = 0; i < cgp_model_parameters(model); i++) {
        if (strcmp(cgp_model_parameter_name(model, i), name) == 0) return i;
    }
    fail_msg("no parameter %s", name);
    return -1;
}

static void assert_shape(const cgp_model *model, const char *name, const char *expected) {
    char text[64];
    const cgp_shape *shape = cgp_model_parameter_shape(model, find(model, name));
    assert_string_equal(cgp_shape_text(shape, text, sizeof text), expected);
}

/* The number of parameters, counted by hand: V C + T C + 12 (12 C^2 + 13 C) + 2 C + V C, with V =
 * 3000, T = 128, C = 768. */
TEST_CASE(seed_session_has_16_layers_and_89762304_parameters) {
    cgp_model *model = make("gpt2:layers=12,width=768,heads=12,vocab=3000,seq=128");
    assert_int_equal(cgp_model_layers(model), 16);
    assert_int_equal(cgp_model_parameter_count(model), 89762304);
    assert_int_equal(cgp_model_parameters(model), 2 + 12 * 12 + 2 + 1);
    cgp_model_destroy(model);
}

TEST_CASE(layers_are_embeddings_blocks_norm_and_head) {
    static const char *const expected[] = {"wte", "wpe", "h.0", "h.1", "ln_f", "lm_head"};
    cgp_model *model = make("gpt2:layers=2,width=8,heads=2,vocab=11,seq=5");
    assert_int_equal(cgp_model_layers(model), 6);
    for (int i = 0; i < 6; i++)
        assert_string_equal(cgp_model_layer_name(model, i), expected[i]);
    cgp_model_destroy(model);
}

/* The expected parameters, in the order of `GPT2LMHeadModel(...).state_dict()`. */
TEST_CASE(parameters_have_the_published_names_shapes_and_order) {
    static const char *const expected[][2] = {
        {"transformer.wte.weight", "[11, 8]"},
        {"transformer.wpe.weight", "[5, 8]"},
        {"transformer.h.0.ln_1.weight", "[8]"},
        {"transformer.h.0.ln_1.bias", "[8]"},
        {"transformer.h.0.attn.c_attn.weight", "[8, 24]"},
        {"transformer.h.0.attn.c_attn.bias", "[24]"},
        {"transformer.h.0.attn.c_proj.weight", "[8, 8]"},
        {"transformer.h.0.attn.c_proj.bias", "[8]"},
        {"transformer.h.0.ln_2.weight", "[8]"},
        {"transformer.h.0.ln_2.bias", "[8]"},
        {"transformer.h.0.mlp.c_fc.weight", "[8, 32]"},
        {"transformer.h.0.mlp.c_fc.bias", "[32]"},
        {"transformer.h.0.mlp.c_proj.weight", "[32, 8]"},
        {"transformer.h.0.mlp.c_proj.bias", "[8]"},
        {"transformer.ln_f.weight", "[8]"},
        {"transformer.ln_f.bias", "[8]"},
        {"lm_head.weight", "[11, 8]"},
    };
    const int count = (int)(sizeof expected / sizeof expected[0]);
    cgp_model *model = make("gpt2:layers=1,width=8,heads=2,vocab=11,seq=5");
    assert_int_equal(cgp_model_parameters(model), count);
    for (int i = 0; i < count; i++) {
        assert_string_equal(cgp_model_parameter_name(model, i), expected[i][0]);
        assert_shape(model, expected[i][0], expected[i][1]);
    }
    cgp_model_destroy(model);
}

TEST_CASE(the_width_inside_a_block_may_be_given) {
    cgp_model *model = make("gpt2:layers=1,width=8,heads=2,vocab=11,seq=5,inner=12");
    assert_shape(model, "transformer.h.0.mlp.c_fc.weight", "[8, 12]");
    assert_shape(model, "transformer.h.0.mlp.c_fc.bias", "[12]");
    assert_shape(model, "transformer.h.0.mlp.c_proj.weight", "[12, 8]");
    cgp_model_destroy(model);
}

TEST_CASE(inputs_are_tokens_and_for_training_targets) {
    char text[64];
    cgp_gpt2_options options = cgp_gpt2_options_default();
    assert_ok(cgp_gpt2_parse(&options, "gpt2:layers=1,width=8,heads=2,vocab=11,seq=5"));
    for (int loss = 0; loss <= 1; loss++) {
        cgp_model *model = NULL;
        options.loss = loss == 1;
        assert_ok(cgp_gpt2_create(&model, &options));
        assert_int_equal(cgp_model_inputs(model), 1 + loss);
        assert_string_equal(cgp_model_input_name(model, 0), "tokens");
        if (loss) assert_string_equal(cgp_model_input_name(model, 1), "targets");
        const cgp_shape output = cgp_model_output_shape(model, 0);
        assert_string_equal(cgp_shape_text(&output, text, sizeof text), "[5, 11]");
        assert_int_equal(cgp_model_parameters(model), 17);
        cgp_model_destroy(model);
    }
}

TEST_CASE(dropout_changes_neither_layers_nor_parameters) {
    cgp_gpt2_options options = cgp_gpt2_options_default();
    assert_ok(cgp_gpt2_parse(&options, "gpt2:layers=2,width=8,heads=2,vocab=11,seq=5"));
    int64_t counts[2];
    for (int i = 0; i < 2; i++) {
        cgp_model *model = NULL;
        options.dropout = i == 0 ? 0.0 : 0.25;
        assert_ok(cgp_gpt2_create(&model, &options));
        assert_int_equal(cgp_model_layers(model), 6);
        counts[i] = cgp_model_parameter_count(model);
        cgp_model_destroy(model);
    }
    assert_int_equal(counts[0], counts[1]);
}

TEST_CASE(text_sets_what_it_names_and_keeps_the_rest) {
    cgp_gpt2_options options = cgp_gpt2_options_default();
    assert_ok(cgp_gpt2_parse(&options, "gpt2"));
    assert_int_equal(options.layers, 12);
    assert_int_equal(options.vocab, 50257);
    assert_ok(cgp_gpt2_parse(&options, "gpt2:width=128,layers=4,tied=0"));
    assert_int_equal(options.layers, 4);
    assert_int_equal(options.width, 128);
    assert_int_equal(options.heads, 12);
    assert_int_equal(options.sequence, 1024);
}

TEST_CASE(bad_text_is_refused_and_changes_nothing) {
    static const char *const cases[][2] = {
        {"gpt2:layrs=4", "gpt2: layrs: unknown key (did you mean layers?)"},
        {"gpt2:vocabulary=4", "gpt2: vocabulary: unknown key"},
        {"gpt2:wdith=4", "did you mean width?"},
        {"gpt2:layers=abc", "gpt2: layers: expected a whole number from 1"},
        {"gpt2:layers=abc", "got \"abc\""},
        {"gpt2:layers=0", "got \"0\""},
        {"gpt2:layers=-1", "got \"-1\""},
        {"gpt2:layers=+1", "got \"+1\""},
        {"gpt2:layers= 1", "got \" 1\""},
        {"gpt2:layers=1.5", "got \"1.5\""},
        {"gpt2:layers=1x", "got \"1x\""},
        {"gpt2:layers=", "got \"\""},
        {"gpt2:layers=99999999999999999999", "got \"99999999999999999999\""},
        {"gpt2:tied=2", "gpt2: tied: expected a whole number from 0 to 1"},
        {"gpt2:layers", "expected key=value, got \"layers\""},
        {"gpt2:", "expected key=value, got \"\""},
        {"gpt2:layers=2,", "expected key=value, got \"\""},
        {"gpt2:layers=2,layers=3", "gpt2: layers: is given twice"},
        {"gpt3:layers=2", "got \"gpt3:layers=2\""},
        {"gpt22", "got \"gpt22\""},
        {"", "got \"\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cgp_gpt2_options options = cgp_gpt2_options_default();
        assert_status(cgp_gpt2_parse(&options, cases[i][0]), CGP_EINVAL);
        assert_message(cases[i][1]);
        assert_int_equal(options.layers, 12);
    }
}

TEST_CASE(text_of_any_length_is_refused_not_cut) {
    char text[2000] = "gpt2:layers=";
    memset(text + strlen(text), '1', sizeof text - strlen("gpt2:layers=") - 1);
    text[sizeof text - 1] = '\0';
    cgp_gpt2_options options = cgp_gpt2_options_default();
    assert_status(cgp_gpt2_parse(&options, text), CGP_EINVAL);
}

TEST_CASE(bad_options_are_refused) {
    cgp_model *model = NULL;
    cgp_gpt2_options options = cgp_gpt2_options_default();
    options.heads = 5;
    assert_status(cgp_gpt2_create(&model, &options), CGP_EINVAL);
    assert_message("gpt2: heads: expected a divisor of the width, got heads=5, width=768");

    options = cgp_gpt2_options_default();
    options.layers = 0;
    assert_status(cgp_gpt2_create(&model, &options), CGP_EINVAL);
    assert_message("gpt2: layers");

    const double shares[] = {1.0, -0.1, NAN};
    for (int i = 0; i < 3; i++) {
        options = cgp_gpt2_options_default();
        options.dropout = shares[i];
        assert_status(cgp_gpt2_create(&model, &options), CGP_EINVAL);
        assert_message("gpt2: dropout");
    }

    const double eps[] = {-1e-5, 1.5, NAN};
    for (int i = 0; i < 3; i++) {
        options = cgp_gpt2_options_default();
        options.eps = eps[i];
        assert_status(cgp_gpt2_create(&model, &options), CGP_EINVAL);
        assert_message("gpt2: eps: expected a number above 0 and at most 1, got");
    }

    options = cgp_gpt2_options_default();
    options.inner = -1;
    assert_status(cgp_gpt2_create(&model, &options), CGP_EINVAL);
    assert_message("gpt2: inner: expected a whole number");

    options = cgp_gpt2_options_default();
    options.struct_size = 3;
    assert_status(cgp_gpt2_create(&model, &options), CGP_EINVAL);
    assert_message("struct_size");
    assert_null(model);
}
