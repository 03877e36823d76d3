/* SPDX-License-Identifier: Apache-2.0 */
/* test_profile_steps.c -- costs of layers, measured in whole steps. In any model, every layer with
 * kernels gets times. The model's pipeline may run alone or beside other pipelines. FLOPs and bytes
 * equal those of the plan. After a failure the caller's costs are unchanged. */
#include "graphs.h"

#include "partition/partition.h"
#include "pipeline/profile.h"

enum { LAYERS = 64 };

static cgp_plan *plan_of(const cgp_model *model, int stages, int64_t batch, int chunks,
                         bool external_loss) {
    cgp_plan *plan = NULL;
    cgp_plan_options o = cgp_plan_options_default();
    o.stages = stages;
    o.batch = batch;
    o.chunks = chunks;
    o.external_loss = external_loss;
    o.optim = cgp_optim_adamw(1e-6, 0.01);
    assert_ok(cgp_plan_create(&plan, model, &o));
    return plan;
}

static cgp_status second_for_each(void *self, const cgp_model *model,
                                  const cgp__node_kernels *kernels,
                                  double seconds[CGP_OP_DIRECTIONS]) {
    (void)self;
    (void)model;
    for (int d = 0; d < CGP_OP_DIRECTIONS; d++)
        seconds[d] = kernels->has[d];
    return CGP_OK;
}

/* Check that exactly the layers with kernels have times, and that all other costs equal those of
 * cgp__layer_costs(). */
static void check(const cgp_model *model, const cgp_layer_cost *costs, int64_t samples) {
    const cgp__timer timer = {second_for_each, NULL};
    cgp_layer_cost expected[LAYERS];
    double bytes = 0, update = 0;
    const int layers = cgp_model_layers(model);
    assert_true(layers <= LAYERS);
    assert_ok(
        cgp__layer_costs(model, samples, (cgp__arithmetic){.type = CGP_F32}, &timer, expected));
    for (int i = 0; i < layers; i++) {
        const cgp_layer_cost *c = &costs[i], *e = &expected[i];
        assert_int_equal(c->forward_seconds > 0, e->forward_seconds > 0);
        assert_int_equal(c->input_seconds > 0, e->input_seconds > 0);
        assert_int_equal(c->weight_seconds > 0, e->weight_seconds > 0);
        assert_int_equal(c->recompute_seconds > 0, e->recompute_seconds > 0);
        assert_int_equal(c->selective_seconds > 0, e->selective_seconds > 0);
        assert_true(c->recompute_seconds <= c->forward_seconds && c->forward_seconds < 100);
        assert_memory_equal(c->flops, e->flops, sizeof c->flops);
        assert_int_equal(c->parameter_bytes, e->parameter_bytes);
        assert_int_equal(c->saved_bytes, e->saved_bytes);
        bytes += (double)c->parameter_bytes;
        update += c->update_seconds;
    }
    assert_true(bytes == 0 || (update > 0 && update < 100));
    for (int i = 0; i < layers && bytes > 0; i++)
        assert_float_equal(costs[i].update_seconds,
                           update * (double)costs[i].parameter_bytes / bytes, 1e-9);
}

TEST_CASE(layers_of_random_models_have_times) {
    uint64_t state = test_seed();
    for (int round = 0; round < 12; round++) {
        const test_sizes sizes = {.layers = test_between(&state, 2, 8),
                                  .sequence = 8,
                                  .width = 16,
                                  .heads = 2,
                                  .vocab = 11,
                                  .dropout = 0.1,
                                  .no_loss = round % 4 == 0};
        cgp_model *model =
            round % 2 ? test_random_images(&state, &sizes) : test_random_graph(&state, &sizes);
        const int samples = test_between(&state, 1, 3);
        cgp_plan *plan = plan_of(model, 1, 2 * samples, 2, sizes.no_loss);
        cgp_layer_cost costs[LAYERS];
        assert_ok(cgp__profile_plans((const cgp_plan *[]){plan}, 1, 2, costs));
        check(model, costs, samples);
        cgp_plan_destroy(plan);
        cgp_model_destroy(model);
    }
}

/* The first of several plans is measured, while the other plans train. The model's head has a
 * hundred times the FLOPs of its norm, so the head must take longer. */
TEST_CASE(the_first_plan_is_measured) {
    const test_sizes small = {2, 8, 16, 2, 11, 0, false, false};
    const test_sizes large = {2, 32, 64, 2, 1031, 0, false, false};
    cgp_model *models[] = {test_gpt2(&large), test_gpt2(&small)};
    cgp_plan *one = plan_of(models[0], 1, 4, 2, false);
    cgp_plan *two = plan_of(models[1], 2, 4, 4, false);
    const cgp_plan *plans[] = {one, two, one, two};
    for (int n = 1; n <= 4; n += n == 1 ? 1 : 2) {
        cgp_layer_cost costs[LAYERS];
        const int head = cgp_model_layers(models[0]) - 1, norm = head - 1;
        int tries = 0;
        do { /* a busy machine may interrupt a layer norm */
            assert_ok(cgp__profile_plans(plans, n, 3, costs));
            check(models[0], costs, 2);
        } while (costs[head].forward_seconds <= costs[norm].forward_seconds && ++tries < 20);
        assert_in_range(tries, 0, 19);
    }
    cgp_layer_cost costs[LAYERS];
    assert_ok(cgp__profile_plans((const cgp_plan *[]){two, one}, 2, 1, costs));
    check(models[1], costs, 1);
    cgp_plan_destroy(two);
    cgp_plan_destroy(one);
    cgp_model_destroy(models[1]);
    cgp_model_destroy(models[0]);
}

static void expect_refused(const cgp_plan *const *plans, int n, int steps, cgp_status expected,
                           const char *message) {
    cgp_layer_cost costs[LAYERS], before[LAYERS];
    memset(costs, 0x5a, sizeof costs);
    memcpy(before, costs, sizeof costs);
    assert_status(cgp__profile_plans(plans, n, steps, costs), expected);
    assert_message(message);
    assert_memory_equal(costs, before, sizeof costs);
}

TEST_CASE(failures_leave_the_costs_as_they_were) {
    const test_sizes sizes = {2, 4, 8, 2, 7, 0, false, false};
    cgp_model *model = test_gpt2(&sizes);
    cgp_plan *one = plan_of(model, 1, 2, 1, false), *two = plan_of(model, 2, 2, 1, false);
    cgp_plan *inference = NULL;
    cgp_plan_options o = cgp_plan_options_default();
    o.inference = true;
    assert_ok(cgp_plan_create(&inference, model, &o));
    const cgp_plan *plans[] = {one, two};
    expect_refused((const cgp_plan *[]){inference}, 1, 1, CGP_ESTATE, "inference");
    expect_refused((const cgp_plan *[]){one, inference}, 2, 1, CGP_ESTATE, "inference");
    /* Only the second plan has a stage 1, so the action 1F0 fails in the second plan's pipeline,
     * before or while the first plan is measured. The delay makes 1,000 steps take 20 s. So the
     * first plan cannot finish before the third step of the second plan. */
    setenv("CGP_FAULT", "fail:1F0", 1);
    expect_refused(plans, 2, 1000, CGP_EDEVICE, "1F0");
    setenv("CGP_FAULT", "delay:0B0:0.02,fail:1F0@2", 1);
    expect_refused(plans, 2, 1000, CGP_EDEVICE, "1F0");
    expect_refused((const cgp_plan *[]){two, one}, 2, 1000, CGP_EDEVICE, "1F0");
    unsetenv("CGP_FAULT");
    cgp_plan_destroy(inference);
    cgp_plan_destroy(two);
    cgp_plan_destroy(one);
    cgp_model_destroy(model);
}

/* For both micro-batch sizes, time complete training steps while another device is also running. */
TEST_CASE(every_size_has_times) {
    const test_sizes sizes = {2, 8, 16, 2, 11, 0.1, false, false};
    cgp_model *model = test_gpt2(&sizes);
    const int64_t samples[] = {1, 3};
    const int layers = cgp_model_layers(model);
    cgp_profile_options o = cgp_profile_options_default();
    cgp_layer_cost costs[2 * LAYERS];
    bool in_steps = false;
    o.samples = samples;
    o.sizes = 2;
    o.steps = 2;
    o.devices = (const char *const[]){"ref", "cpu"};
    o.n_devices = 2;
    assert_ok(cgp_profile_steps(model, &o, costs, &in_steps));
    assert_true(in_steps);
    check(model, costs, 1);
    check(model, costs + layers, 3);
    cgp_model_destroy(model);
}

/* Assert that kernels are measured one by one, for all micro-batch sizes. */
static void expect_kernels(const cgp_model *model, const cgp_profile_options *options) {
    cgp_layer_cost costs[2 * LAYERS];
    bool in_steps = true;
    const int layers = cgp_model_layers(model);
    assert_true(layers <= LAYERS);
    assert_ok(cgp_profile_steps(model, options, costs, &in_steps));
    assert_false(in_steps);
    for (int i = 0; i < options->sizes * layers; i++) {
        assert_true(costs[i].forward_seconds > 0);
        assert_true(costs[i].update_seconds == 0);
    }
}

/* Whole steps cannot be measured in two cases: the larger micro-batch does not fit into 64 KiB, or
 * the model cannot train because its output is integers. */
TEST_CASE(kernels_are_measured_where_steps_cannot_run) {
    const test_sizes sizes = {2, 8, 16, 2, 11, 0, false, false};
    cgp_model *model = test_gpt2(&sizes), *fixed = NULL;
    cgp_profile_options o = cgp_profile_options_default();
    o.steps = 1;
    o.samples = (const int64_t[]){1, 64};
    o.sizes = 2;
    o.devices = (const char *const[]){"cpu@64KiB"};
    expect_kernels(model, &o);
    assert_ok(cgp_model_create(&fixed, "fixed"));
    cgp_value x = cgp_model_input(fixed, "x", CGP_F32, 1, (int64_t[]){4});
    cgp_model_layer(fixed, "a");
    cgp_model_output(fixed, cgp_argmax(fixed, x));
    assert_ok(cgp_model_finish(fixed));
    o = cgp_profile_options_default();
    o.steps = 1;
    expect_kernels(fixed, &o);
    cgp_model_destroy(fixed);
    cgp_model_destroy(model);
}

/* --- by kind of op --- */

static const cgp_op_time *find(const cgp_op_time *times, int n, const char *op) {
    for (int i = 0; i < n; i++) {
        if (strcmp(times[i].op, op) == 0) return &times[i];
    }
    fail_msg("no %s", op);
    return NULL;
}

/* Compare the times and FLOPs of two steps with two micro-batches each. The sums over op kinds must
 * equal the sums over layers, for each of F, I and W. */
static void compare(const cgp_op_time *times, int n, const cgp_layer_cost *costs, int layers) {
    for (int d = 0; d < 3; d++) {
        double seconds = 0, flops = 0, layer_seconds = 0, layer_flops = 0;
        for (int i = 0; i < n; i++) {
            seconds += times[i].seconds[d];
            flops += times[i].flops[d];
        }
        for (int i = 0; i < layers; i++) {
            const double all[] = {costs[i].forward_seconds, costs[i].input_seconds,
                                  costs[i].weight_seconds};
            layer_seconds += all[d];
            layer_flops += costs[i].flops[d];
        }
        assert_float_equal(seconds, 4 * layer_seconds, 1e-9);
        assert_float_equal(flops, 4 * layer_flops, 1e-6 * flops);
    }
}

TEST_CASE(kinds_of_ops_add_up_to_the_layers) {
    enum { BLOCKS = 2, T = 8, W = 16, VOCAB = 11, SAMPLES = 2, RUNS = 4 };
    const test_sizes sizes = {BLOCKS, T, W, 2, VOCAB, 0, false, false};
    cgp_model *model = test_gpt2(&sizes);
    cgp_plan *plan = plan_of(model, 2, 2 * SAMPLES, 2, false);
    cgp_pipeline *pipeline = NULL;
    test_batch batch = {0};
    cgp_layer_cost costs[LAYERS];
    cgp_op_time times[CGP_OP_TIMES];
    int n = -1;
    uint64_t state = test_seed();
    test_batch_fill(&batch, model, &sizes, 2 * SAMPLES, &state);
    assert_ok(cgp_pipeline_create(&pipeline, plan, 0));
    assert_status(cgp_pipeline_op_times(pipeline, times, &n), CGP_ESTATE);
    assert_int_equal(n, -1);
    assert_ok(cgp_pipeline_measure_layers(pipeline, true));
    for (int step = 0; step < 2; step++)
        assert_ok(cgp_pipeline_step(pipeline, batch.inputs, batch.n, NULL));
    assert_ok(cgp_pipeline_layer_costs(pipeline, costs));
    assert_ok(cgp_pipeline_op_times(pipeline, times, &n));
    compare(times, n, costs, cgp_model_layers(model));
    for (int i = 1; i < n; i++)
        assert_true(times[i].seconds[0] + times[i].seconds[1] + times[i].seconds[2] <=
                    times[i - 1].seconds[0] + times[i - 1].seconds[1] + times[i - 1].seconds[2]);
    /* Forward of a layer norm reads x, weight and bias, and writes y and, for backward, the
     * statistics of each row. */
    const cgp_op_time *norm = find(times, n, "layer_norm");
    const double runs = RUNS * (2 * BLOCKS + 1), rows = SAMPLES * T;
    assert_int_equal(norm->runs[0], (int)runs);
    assert_true(norm->bytes[0] >= runs * 4 * (2 * rows * W + 2 * W));
    assert_true(norm->bytes[0] <= runs * 4 * (2 * rows * W + 2 * W + 2 * rows));
    /* W of a linear layer reads x and dy. For the second of two micro-batches it also reads dW and
     * dbias, because W adds to them. */
    const cgp_op_time *linear = find(times, n, "linear");
    double values = 0, parameters = 0;
    const int sides[][2] = {{W, 3 * W}, {W, W}, {W, 4 * W}, {4 * W, W}};
    for (int k = 0; k < 4; k++) {
        values += BLOCKS * rows * (sides[k][0] + sides[k][1]);
        parameters += BLOCKS * (sides[k][0] + 1) * sides[k][1];
    }
    values += rows * (W + VOCAB);
    parameters += W * VOCAB;
    assert_int_equal(linear->runs[2], RUNS * (4 * BLOCKS + 1));
    assert_float_equal(linear->bytes[2], RUNS * 4 * (values + 1.5 * parameters), 0.5);
    cgp_pipeline_destroy(pipeline);
    test_batch_release(&batch);
    cgp_plan_destroy(plan);
    cgp_model_destroy(model);
}
