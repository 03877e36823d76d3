/* SPDX-License-Identifier: Apache-2.0 */
/* test_parameter_groups.c -- parameter groups, each with its own learning rate and weight decay.
 *
 * An update changes each parameter independently. So after one update, a group's parameters are
 * bit-identical to the parameters of a training whose optimizer has the group's constants:
 *
 *     groups      0: *.bias   1: *.weight, with lr 0.5     others
 *     is as in    decay 0     lr 0.5                       the optimizer as it is
 */
#include <fnmatch.h>

#include "training.h"

enum { GROUPS = 3, KINDS = 4 };

static const test_sizes sizes = {.layers = 3, .sequence = 4, .heads = 2, .vocab = 11, .width = 8};

static cgp_optim optim_of(int kind) {
    const cgp_optim all[KINDS] = {cgp_optim_sgd(0.05, 0.9, true, 0.1), cgp_optim_adamw(1e-2, 0.1),
                                  cgp_optim_adam(1e-2, 0.1), cgp_optim_rmsprop(1e-2, 0.9, 0.1)};
    return all[kind];
}

/* Make three groups. Group 0 has no decay. Group 1 has another learning rate, and decay for norms.
 * Group 2 has another learning rate. */
static void make_groups(cgp_optim_group groups[GROUPS]) {
    groups[0] = cgp_optim_group_of("*.bias,*.attn.c_attn.weight");
    groups[0].weight_decay = 0;
    groups[1] = cgp_optim_group_of("*.ln_?.weight");
    groups[1].lr = 0.5;
    groups[1].weight_decay = 0.25;
    groups[2] = cgp_optim_group_of("*.h.1.*");
    groups[2].lr = 0.125;
}

/* Return the group of the parameter with this name, or -1 if it is in no group. */
static int group_of(const char *name) {
    static const char *const patterns[][2] = {
        {"*.bias", "*.attn.c_attn.weight"}, {"*.ln_?.weight", ""}, {"*.h.1.*", ""}};
    for (int g = 0; g < GROUPS; g++) {
        if (fnmatch(patterns[g][0], name, 0) == 0 || fnmatch(patterns[g][1], name, 0) == 0)
            return g;
    }
    return -1;
}

static cgp_plan_options options_of(const cgp_optim *optim, const char *const *devices, int stages) {
    cgp_plan_options o = cgp_plan_options_default();
    o.batch = 4;
    o.chunks = 2;
    o.stages = stages;
    o.devices = devices;
    o.optim = *optim;
    return o;
}

/* Train `steps` updates; the first one has number `from`. */
static training train(const cgp_model *model, const cgp_optim *optim, const char *device,
                      int stages, int64_t from, int steps) {
    const char *devices[2] = {device, device};
    const cgp_plan_options o = options_of(optim, devices, stages);
    uint64_t state = 5;
    test_batch batch;
    test_batch_fill(&batch, model, &sizes, o.batch, &state);
    training t = training_start(model, &o, 1);
    assert_ok(cgp_pipeline_set_updates(t.pipeline, from));
    for (int i = 0; i < steps; i++)
        (void)training_step(&t, &batch);
    test_batch_release(&batch);
    return t;
}

static float *parameter(const training *t, const cgp_model *model, int p) {
    const int64_t n = cgp_shape_count(cgp_model_parameter_shape(model, p));
    float *data = calloc((size_t)n, sizeof *data);
    assert_ok(cgp_pipeline_get_parameter(t->pipeline, p, data));
    return data;
}

/* Compare the parameters of group `g` in two trainings. With `g` = -1, compare the parameters in no
 * group. */
static int compare(const training *got, const training *expected, const cgp_model *model, int g) {
    int count = 0;
    for (int p = 0; p < cgp_model_parameters(model); p++) {
        const char *name = cgp_model_parameter_name(model, p);
        if (group_of(name) != g) continue;
        const int64_t n = cgp_shape_count(cgp_model_parameter_shape(model, p));
        float *a = parameter(got, model, p), *b = parameter(expected, model, p);
        if (memcmp(a, b, (size_t)n * sizeof *a) != 0) fail_msg("%s differs, of group %d", name, g);
        free(a);
        free(b);
        count++;
    }
    return count;
}

static void check_kind(const cgp_model *model, int kind, const char *device) {
    cgp_optim_group groups[GROUPS];
    cgp_optim optim = optim_of(kind);
    make_groups(groups);
    optim.schedule = (cgp_lr_schedule){.kind = CGP_LR_STEP, .step_size = 2, .gamma = 0.5};
    for (int g = -1; g < GROUPS; g++) {
        cgp_optim alone = optim, with = optim;
        with.groups = groups;
        with.n_groups = GROUPS;
        if (g >= 0 && !isnan(groups[g].lr)) alone.lr = groups[g].lr;
        if (g >= 0 && !isnan(groups[g].weight_decay)) {
            alone.weight_decay = groups[g].weight_decay;
            alone.decay_all = true;
        }
        training got = train(model, &with, device, 2, 6, 1);
        training expected = train(model, &alone, device, 1, 6, 1);
        assert_true(compare(&got, &expected, model, g) > 0);
        training_stop(&got);
        training_stop(&expected);
    }
}

TEST_CASE(a_group_is_updated_as_with_an_optimizer_of_its_own) {
    cgp_model *model = test_gpt2(&sizes);
    for (int i = 0; i < 2 * KINDS; i++)
        check_kind(model, i / 2, i % 2 ? "cpu" : "ref");
    cgp_model_destroy(model);
}

TEST_CASE(groups_train_bit_equal_over_stages) {
    cgp_model *model = test_gpt2(&sizes);
    cgp_optim_group groups[GROUPS];
    cgp_optim optim = optim_of(1);
    make_groups(groups);
    training plain = train(model, &optim, "cpu", 1, 0, 3);
    optim.groups = groups;
    optim.n_groups = GROUPS;
    training one = train(model, &optim, "cpu", 1, 0, 3), two = train(model, &optim, "cpu", 2, 0, 3);
    const hashes expected = hashes_of(&one), got = hashes_of(&two), other = hashes_of(&plain);
    assert_same(&got, &expected);
    assert_string_not_equal(other.weights, expected.weights);
    training_stop(&plain);
    training_stop(&one);
    training_stop(&two);
    cgp_model_destroy(model);
}

TEST_CASE(a_group_takes_the_rate_that_the_caller_sets) {
    cgp_model *model = test_gpt2(&sizes);
    const char *devices[1] = {"cpu"};
    cgp_optim_group groups[GROUPS];
    cgp_optim optim = optim_of(0);
    make_groups(groups);
    optim.groups = groups;
    optim.n_groups = GROUPS;
    const cgp_plan_options o = options_of(&optim, devices, 1);
    uint64_t state = 5;
    test_batch batch;
    test_batch_fill(&batch, model, &sizes, o.batch, &state);
    training got = training_start(model, &o, 1);
    assert_ok(cgp_pipeline_set_lr(got.pipeline, 0.75)); /* also sets group 0, which has no rate */
    assert_ok(cgp_pipeline_set_group_lr(got.pipeline, 2, 0.0));
    (void)training_step(&got, &batch);
    optim.lr = 0.75;
    groups[2].lr = 0;
    training expected = train(model, &optim, "cpu", 1, 0, 1);
    for (int g = -1; g < GROUPS; g++)
        assert_true(compare(&got, &expected, model, g) > 0);
    assert_status(cgp_pipeline_set_group_lr(got.pipeline, GROUPS, 0.1), CGP_EINVAL);
    assert_message("parameter group: the plan has 3, got number 3");
    assert_status(cgp_pipeline_set_group_lr(got.pipeline, 0, -1), CGP_EINVAL);
    assert_message("lr: a finite number of 0 or more is expected, got -1");
    training_stop(&got);
    training_stop(&expected);
    test_batch_release(&batch);
    cgp_model_destroy(model);
}

static void assert_refused(const cgp_model *model, const cgp_optim_group *groups, int n,
                           const char *message) {
    cgp_plan_options o = cgp_plan_options_default();
    cgp_plan *plan = NULL;
    o.optim.groups = groups;
    o.optim.n_groups = n;
    assert_status(cgp_plan_create(&plan, model, &o), CGP_EINVAL);
    assert_message(message);
    assert_null(plan);
}

TEST_CASE(a_wrong_group_is_named) {
    cgp_model *model = test_gpt2(&sizes);
    cgp_optim_group groups[2] = {cgp_optim_group_of("*.bias"), cgp_optim_group_of("*.ln_1.bias")};
    assert_refused(model, groups, 2,
                   "parameter group 1 (\"*.ln_1.bias\"): all its parameters belong "
                   "to groups before it (put it before them)");
    groups[1].patterns = "*.weight,lm_heat.weight";
    assert_refused(model, groups, 2,
                   "parameter group: no parameter of model gpt2 matches \"lm_heat.weight\"");
    groups[1].patterns = "";
    assert_refused(model, groups, 2, "parameter group 1: a pattern of names is expected, got \"\"");
    groups[1] = cgp_optim_group_of("*.weight");
    groups[1].lr = INFINITY;
    assert_refused(model, groups, 2,
                   "parameter group 1 (\"*.weight\"): lr is expected in [0, inf), "
                   "got inf");
    groups[0].weight_decay = -1;
    assert_refused(model, groups, 2,
                   "parameter group 0 (\"*.bias\"): weight_decay is expected in "
                   "[0, inf), got -1");
    assert_refused(model, NULL, 2, "parameter groups: expected 2, got NULL");
    assert_refused(model, groups, -1, "parameter groups: expected 0 to 1024, got -1");
    cgp_model_destroy(model);
}
