/* SPDX-License-Identifier: Apache-2.0 */
/* test_residuals.c -- a GPT-2 with attention residuals computes what PyTorch computes from its
 * definition: logits, and the losses of ten steps of AdamW. The attention residuals are skips over
 * any number of layers. Results are bit-equal for all stages, schedules, balances and recompute
 * modes.
 *
 * tests/data/weights/gpt2-residuals has weights for residual groups of any size, and results
 * computed in double (tools/reference_residuals.py). Logits may differ by 1e-5 of the largest
 * logit. Losses may differ by 2e-5 relative, because ten steps run in f32. (The loss of a single
 * step is within 1e-6.) */
#define _GNU_SOURCE /* nftw */
#include "graphs.h"
#include "published.h"

#define CASE DATA "gpt2-residuals/"

static const int groups[] = {1, 2, 5};
enum { GROUPS = sizeof groups / sizeof groups[0], STEPS = 10 };

/* --- numbers of PyTorch --- */

static cgp_tensor read_number(const char *name, int group) {
    cgp_safetensors *file = NULL;
    char full[32];
    snprintf(full, sizeof full, group > 0 ? "%s_%d" : "%s", name, group);
    assert_ok(cgp_safetensors_open(&file, CASE "expected.safetensors"));
    const cgp_tensor tensor = read_tensor(file, full);
    cgp_safetensors_close(file);
    return tensor;
}

static cgp_model_spec spec_of(int group) {
    cgp_model_spec spec = cgp_model_spec_default();
    char text[96];
    snprintf(text, sizeof text,
             "gpt2:layers=5,width=12,heads=2,vocab=17,seq=7,inner=16,residuals=%d", group);
    assert_ok(cgp_model_spec_parse(&spec, text));
    return spec;
}

/* Return the largest difference of logits, relative to the largest logit. */
static double logits_differ(int group, int expected_group, int stages) {
    cgp_tensor tokens = read_number("inputs", 0), expected = read_number("outputs", expected_group);
    double largest = 0;
    network net = {.spec = spec_of(group)};
    make_network(&net, stages);
    assert_ok(load(&net, CASE "model.safetensors"));
    const double far = outputs_differ(&net, &tokens, &expected, &largest);
    free(tokens.data);
    free(expected.data);
    release(&net);
    return far / largest;
}

TEST_CASE(logits_are_those_of_pytorch) {
    for (int g = 0; g < GROUPS; g++) {
        for (int stages = 1; stages <= 5; stages += 2) {
            const double far = logits_differ(groups[g], groups[g], stages);
            print_message("groups of %d, %d stages: logits differ by %.1e\n", groups[g], stages,
                          far);
            assert_true(far < 1e-5);
        }
        assert_true(logits_differ(groups[g], groups[(g + 1) % GROUPS], 1) > 1e-3);
    }
}

TEST_CASE(losses_are_those_of_pytorch) {
    for (int g = 0; g < GROUPS; g++) {
        cgp_tensor tokens = read_number("inputs", 0), targets = read_number("targets", 0),
                   losses = read_number("losses", groups[g]);
        network net = {.spec = spec_of(groups[g])};
        cgp_plan_options o = cgp_plan_options_default();
        o.stages = 3;
        o.chunks = 3;
        o.schedule = "zb-h1";
        assert_int_equal(cgp_shape_count(&losses.shape), STEPS);
        const double far =
            losses_differ(&net, CASE "model.safetensors", &o, &tokens, &targets, &losses);
        print_message("groups of %d: losses differ by %.1e\n", groups[g], far);
        assert_true(far < 2e-5);
        free(tokens.data);
        free(targets.data);
        free(losses.data);
        release(&net);
    }
}

/* --- bits --- */

/* Compare one stage with 1 to 5 stages of each schedule, in random recompute modes and balances. */
static void compare_layouts(const cgp_model *model, const test_batch *batches, cgp_plan_options o,
                            uint64_t *state) {
    static const char *const schedules[] = {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"};
    enum { SCHEDULES = sizeof schedules / sizeof schedules[0] };
    test_outcome expected, got;
    int balance[16];
    test_train(model, &o, 7, batches, 2, &expected);
    o.balance = balance;
    for (int k = 0; k < 5 * SCHEDULES; k++) {
        o.stages = k / SCHEDULES + 1;
        o.schedule = schedules[k % SCHEDULES];
        o.recompute = (cgp_recompute)test_between(state, 0, CGP_RECOMPUTE_EXCEPT_LAST_SELECTIVE);
        o.virtual_stages = strcmp(o.schedule, "interleaved") == 0 ? 2 : 0;
        test_random_balance(state, cgp_model_layers(model), cgp_plan_options_stages(&o), balance);
        test_train(model, &o, 7, batches, 2, &got);
        if (memcmp(&got, &expected, sizeof got) != 0)
            fail_msg("%d stages, %s, %s: losses %.9g %.9g, weights %s; one stage: %.9g %.9g, %s",
                     o.stages, o.schedule, cgp_recompute_name(o.recompute), got.losses[0],
                     got.losses[1], got.sha256, expected.losses[0], expected.losses[1],
                     expected.sha256);
    }
}

TEST_CASE(layouts_change_no_bit) {
    uint64_t state = test_seed();
    for (int residuals = 1; residuals <= 3; residuals++) {
        cgp_gpt2_options g = cgp_gpt2_options_default();
        cgp_plan_options o = cgp_plan_options_default();
        cgp_model *model = NULL;
        test_batch batches[2];
        g.layers = 6 + residuals; /* a multiple of the group size */
        g.width = 12;
        g.heads = 2;
        g.vocab = 11;
        g.sequence = 6;
        g.dropout = 0.25;
        g.residuals = residuals;
        o.batch = 6;
        o.chunks = 5;
        o.precision = residuals == 2 ? CGP_PRECISION_BF16 : CGP_PRECISION_F32;
        const test_sizes sizes = {.vocab = g.vocab, .sequence = g.sequence};
        assert_ok(cgp_gpt2_create(&model, &g));
        for (int s = 0; s < 2; s++)
            test_batch_fill(&batches[s], model, &sizes, o.batch, &state);
        compare_layouts(model, batches, o, &state);
        for (int s = 0; s < 2; s++)
            test_batch_release(&batches[s]);
        cgp_model_destroy(model);
    }
}

/* --- initial values, config.json, text form --- */

TEST_CASE(queries_start_at_zero) {
    network net = {.spec = spec_of(2)};
    int queries = 0;
    make_network(&net, 1);
    for (int p = 0; p < cgp_model_parameters(net.model); p++) {
        float query[12];
        if (!strstr(cgp_model_parameter_name(net.model, p), "_res.query.weight")) continue;
        assert_ok(cgp_pipeline_get_parameter(net.pipeline, p, query));
        for (int i = 0; i < 12; i++)
            assert_true(query[i] == 0);
        queries++;
    }
    /* each of 5 blocks has two branches; every branch except the first has a query, and ln_f has
     * one too */
    assert_int_equal(queries, 2 * 5 - 1 + 1);
    release(&net);
}

TEST_CASE(no_config_json_says_it) {
    network net = {.spec = spec_of(2)};
    make_network(&net, 1);
    assert_status(
        cgp_huggingface_write(&net.spec, net.pipeline, net.model, test_path_of("residuals")),
        CGP_EINVAL);
    assert_message("model: expected a gpt2 without residuals, got residuals=2");
    release(&net);
}

TEST_CASE(a_spec_has_them) {
    char text[160];
    cgp_model_spec spec = cgp_model_spec_default();
    assert_ok(cgp_model_spec_parse(&spec, "gpt2:layers=3,residuals=100"));
    assert_ok(cgp_model_spec_text(&spec, text, sizeof text));
    assert_string_equal(text, "gpt2:layers=3,width=768,heads=12,vocab=50257,seq=1024,residuals=3");
    assert_status(cgp_model_spec_parse(&spec, "gpt2:residuals=0"), CGP_EINVAL);
    assert_message("gpt2: residuals: expected a whole number from 1 to 10000, got \"0\"");
}

TEST_GROUP(.set_up = test_make_directory, .tear_down = test_remove_directory);
