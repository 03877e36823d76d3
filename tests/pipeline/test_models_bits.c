/* SPDX-License-Identifier: Apache-2.0 */
/* test_models_bits.c -- small ResNets, AmoebaNets, U-Nets and ViTs give bit-equal weights, running
 * statistics, losses and outputs for all stages, balances, schedules and recompute modes. Batch
 * norms are per micro-batch or deferred; convolutions are direct or Winograd (Lavin and Gray 2016,
 * arXiv:1509.09308). */
#include "graphs.h"

#include <cgpipe/models/spec.h>

enum { BATCH = 5, CHUNKS = 3, STEPS = 2, DRAWS = 6 }; /* micro-batches of 2, 2 and 1 samples */

static const char *const texts[] = {
    "resnet:depth=8,width=4,image=12",
    "resnet:depth=50,width=2,image=64,classes=5",
    "amoebanetd:L=3,D=8,image=64,classes=5",
    "amoebanetd:L=1,D=8,image=64,maxpool=max,old=1",
    "unet:B=2,C=4,depth=2,image=13",
    "vit:layers=2,width=8,heads=2,image=12,patch=4,classes=5",
};
enum { TEXTS = sizeof texts / sizeof texts[0] };

static cgp_model *make(const char *text) {
    cgp_model_spec spec = cgp_model_spec_default();
    cgp_model *model = NULL;
    assert_ok(cgp_model_spec_parse(&spec, text));
    assert_ok(cgp_model_spec_create(&model, &spec));
    return model;
}

typedef struct batch {
    cgp_tensor tensors[2];
    const cgp_tensor *inputs[2];
} batch;

/* Fill the inputs: random images in [-1, 1), labels below 5, and masks of zeros and ones. */
static void make_batch(batch *b, const cgp_model *model, uint64_t *state) {
    for (int k = 0; k < 2; k++) {
        const cgp_shape shape = cgp_model_input_shape(model, k);
        int64_t dims[CGP_MAX_RANK] = {BATCH};
        memcpy(dims + 1, shape.dims, (size_t)shape.rank * sizeof *dims);
        const int64_t n = BATCH * cgp_shape_count(&shape);
        void *data = calloc((size_t)n, 4);
        for (int64_t i = 0; i < n; i++) {
            if (cgp_model_input_dtype(model, k) == CGP_I32)
                ((int32_t *)data)[i] = test_between(state, 0, 4);
            else
                ((float *)data)[i] = k == 0 ? (float)test_between(state, -1000, 999) / 1000.0f
                                            : (float)test_between(state, 0, 1);
        }
        b->tensors[k] = (cgp_tensor){cgp_model_input_dtype(model, k),
                                     cgp_shape_make(shape.rank + 1, dims), data};
        b->inputs[k] = &b->tensors[k];
    }
}

typedef struct outcome {
    double losses[STEPS], evaluation;
    char weights[65], states[65];
} outcome;

static outcome train(const cgp_model *model, const cgp_plan_options *o, const batch *b) {
    cgp_plan *plan = NULL;
    cgp_pipeline *pipeline = NULL;
    outcome got;
    memset(&got, 0, sizeof got);
    assert_ok(cgp_plan_create(&plan, model, o));
    assert_ok(cgp_pipeline_create(&pipeline, plan, 7));
    for (int s = 0; s < STEPS; s++) {
        assert_ok(cgp_pipeline_step(pipeline, b->inputs, 2, &got.losses[s]));
        assert_ok(cgp_optim_step(pipeline));
    }
    assert_ok(cgp_pipeline_evaluate(pipeline, b->inputs, 2, &got.evaluation));
    assert_ok(cgp_pipeline_weights_sha256(pipeline, got.weights));
    assert_ok(cgp_pipeline_state_sha256(pipeline, got.states));
    cgp_pipeline_destroy(pipeline);
    cgp_plan_destroy(plan);
    return got;
}

/* Compare a run on one stage (gpipe, no recomputation) with runs in random layouts. */
static outcome compare(const char *text, bool deferred, cgp_convolution convolution,
                       uint64_t *state) {
    static const char *const modes[] = {
        "never",           "always",           "except_last",
        "never+selective", "always+selective", "except_last+selective"};
    cgp_model *model = make(text);
    batch b;
    make_batch(&b, model, state);
    cgp_plan_options o = cgp_plan_options_default();
    o.batch = BATCH;
    o.chunks = CHUNKS;
    o.schedule = "gpipe";
    o.deferred_batch_norm = deferred;
    o.convolution = convolution;
    o.optim = cgp_optim_sgd(0.001, 0.9, false, 1e-4);
    const outcome expected = train(model, &o, &b);
    print_message("%s: losses %g, %g, then %g\n", text, expected.losses[0], expected.losses[1],
                  expected.evaluation);
    assert_true(isfinite(expected.losses[1]) && isfinite(expected.evaluation));
    assert_true(expected.losses[0] != expected.losses[1]);
    for (int d = 0; d < DRAWS; d++) {
        int balance[16];
        const char *mode = modes[d % 6];
        o.balance = balance;
        o.threads_per_device = test_between(state, 1, 2);
        test_random_schedule(state, cgp_model_layers(model), 4, &o);
        test_random_balance(state, cgp_model_layers(model), cgp_plan_options_stages(&o), balance);
        assert_ok(cgp_recompute_parse(&o.recompute, mode));
        const outcome got = train(model, &o, &b);
        if (memcmp(&got, &expected, sizeof got) != 0)
            fail_msg("%s%s, %d stages, %s, %s: losses %.9g %.9g, weights %s, states %s; one stage: "
                     "%.9g %.9g, %s, %s",
                     text, deferred ? ", deferred" : "", o.stages, o.schedule, mode, got.losses[0],
                     got.losses[1], got.weights, got.states, expected.losses[0], expected.losses[1],
                     expected.weights, expected.states);
    }
    free(b.tensors[0].data);
    free(b.tensors[1].data);
    cgp_model_destroy(model);
    return expected;
}

TEST_CASE(stages_balance_schedule_and_recomputation_change_no_bit) {
    uint64_t state = test_seed();
    for (int i = 0; i < TEXTS; i++)
        compare(texts[i], false, CGP_CONVOLUTION_DIRECT, &state);
}

TEST_CASE(nor_do_they_with_deferred_batch_norms) {
    uint64_t state = test_seed();
    /* the U-Net and the ViT are left out, because they have no batch norm */
    for (int i = 0; i < TEXTS - 2; i++)
        compare(texts[i], true, CGP_CONVOLUTION_DIRECT, &state);
}

/* These models have enough channels and pixels for Winograd tiles. */
TEST_CASE(nor_do_they_with_winograd_convolutions) {
    static const char *const tiled[] = {"resnet:depth=18,width=16,image=64,classes=5",
                                        "unet:B=2,C=16,depth=2,image=33"};
    for (int i = 0; i < 2; i++) {
        uint64_t state = test_seed(), same = state;
        const outcome direct = compare(tiled[i], false, CGP_CONVOLUTION_DIRECT, &state);
        const outcome got = compare(tiled[i], false, CGP_CONVOLUTION_WINOGRAD, &same);
        assert_string_not_equal(got.weights, direct.weights);
        assert_true(fabs(got.losses[0] - direct.losses[0]) <= 1e-4 * direct.losses[0]);
    }
}
