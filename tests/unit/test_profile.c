/* SPDX-License-Identifier: Apache-2.0 */
/* test_profile.c -- tests costs of layers. With made-up times, costs add up to the plan's FLOPs and
 * bytes. Measured costs are plausible, and balances follow from the costs. */
#include "graphs.h"

#include "model/model.h"
#include "op/op.h"
#include "partition/partition.h"

enum { LAYERS = 64 };

/* --- made-up times --- */

/* Fake timer: for a kernel with n floating-point operations it reports n seconds. */
static cgp_status flops_as_seconds(void *self, const cgp_model *model,
                                   const cgp__node_kernels *kernels,
                                   double seconds[CGP_OP_DIRECTIONS]) {
    const cgp__node *node = &model->nodes[kernels->node];
    (void)self;
    for (int d = 0; d < CGP_OP_DIRECTIONS; d++)
        seconds[d] =
            cgp__op_flops(node->kind, &node->use, (cgp_op_direction)d) * (double)kernels->spec[d].n;
    return CGP_OK;
}

static const cgp__timer flops_timer = {flops_as_seconds, NULL};

static cgp_layer_cost sum_of(const cgp_layer_cost *costs, int layers) {
    cgp_layer_cost sum = {0};
    for (int i = 0; i < layers; i++) {
        sum.forward_seconds += costs[i].forward_seconds;
        sum.input_seconds += costs[i].input_seconds;
        sum.weight_seconds += costs[i].weight_seconds;
        sum.recompute_seconds += costs[i].recompute_seconds;
        sum.selective_seconds += costs[i].selective_seconds;
        sum.parameter_bytes += costs[i].parameter_bytes;
        sum.saved_bytes += costs[i].saved_bytes;
    }
    return sum;
}

static cgp_plan *plan_of(const cgp_model *model, int64_t samples, cgp_recompute recompute) {
    cgp_plan *plan = NULL;
    cgp_plan_options o = cgp_plan_options_default();
    o.batch = samples;
    o.recompute = recompute;
    o.external_loss = model->n_losses == 0;
    assert_ok(cgp_plan_create(&plan, model, &o));
    return plan;
}

/* Compare the sums of layer costs with a plan of one stage. In f32 the plan saves no converted
 * copies of inputs. */
static void check_against_plan(const cgp_model *model, int64_t samples) {
    cgp_layer_cost costs[LAYERS];
    assert_true(cgp_model_layers(model) <= LAYERS);
    assert_ok(
        cgp__layer_costs(model, samples, (cgp__arithmetic){.type = CGP_F32}, &flops_timer, costs));
    const cgp_layer_cost sum = sum_of(costs, cgp_model_layers(model));
    cgp_plan *never = plan_of(model, samples, CGP_RECOMPUTE_NEVER);
    cgp_plan *always = plan_of(model, samples, CGP_RECOMPUTE_ALWAYS);
    cgp_plan *selective = plan_of(model, samples, CGP_RECOMPUTE_NEVER_SELECTIVE);
    const cgp_plan_stage *plain = cgp_plan_stage_at(never, 0);
    const double backward = sum.input_seconds + sum.weight_seconds;
    assert_float_equal(sum.forward_seconds, plain->forward_flops, 0.5);
    assert_float_equal(backward, plain->backward_flops, 0.5);
    assert_float_equal(sum.recompute_seconds, cgp_plan_stage_at(always, 0)->recompute_flops, 0.5);
    assert_float_equal(backward + sum.selective_seconds,
                       cgp_plan_stage_at(selective, 0)->backward_flops, 0.5);
    assert_int_equal(sum.parameter_bytes, 4 * cgp_model_parameter_count(model));
    /* The slot may be larger than the saved values, because each value is aligned to 64 bytes. */
    assert_true(sum.saved_bytes <= plain->saved_slot_bytes);
    assert_true(sum.saved_bytes + 64 * (model->n_values + 2 * model->n_nodes) >=
                plain->saved_slot_bytes);
    cgp_plan_destroy(selective);
    cgp_plan_destroy(always);
    cgp_plan_destroy(never);
}

/* For any graph, the FLOPs and saved bytes of a stage are the sums over its layers. */
TEST_CASE(costs_of_layers_add_up_to_the_plan) {
    uint64_t state = test_seed();
    for (int round = 0; round < 30; round++) {
        const test_sizes sizes = {.layers = test_between(&state, 2, 12),
                                  .sequence = 8,
                                  .width = 16,
                                  .heads = 2,
                                  .vocab = 11,
                                  .dropout = 0.1,
                                  .rough = round % 3 == 0,
                                  .no_loss = round % 5 == 0};
        cgp_model *model =
            round % 2 ? test_random_graph(&state, &sizes) : test_random_images(&state, &sizes);
        check_against_plan(model, test_between(&state, 1, 5));
        cgp_model_destroy(model);
    }
}

/* FLOPs of layers equal cgp_layer_flops(), except for the losses in the last layer. */
TEST_CASE(operations_are_counted_by_layer) {
    cgp_layer_cost costs[LAYERS];
    const test_sizes sizes = {2, 8, 16, 2, 11, 0, false, false};
    cgp_model *model = test_gpt2(&sizes);
    const int layers = cgp_model_layers(model);
    assert_ok(cgp__layer_costs(model, 3, (cgp__arithmetic){.type = CGP_F32}, &flops_timer, costs));
    for (int i = 0; i < layers; i++) {
        const double flops = costs[i].flops[0] + costs[i].flops[1] + costs[i].flops[2];
        if (i < layers - 1) assert_float_equal(flops, 3 * cgp_layer_flops(model, i), 0.5);
        if (i == layers - 1) assert_true(flops > 3 * cgp_layer_flops(model, i));
    }
    cgp_model_destroy(model);
}

static cgp_status no_kernel(void *self, const cgp_model *model, const cgp__node_kernels *kernels,
                            double seconds[CGP_OP_DIRECTIONS]) {
    int *left = self;
    (void)model;
    (void)kernels;
    (void)seconds;
    return (*left)-- > 0 ? CGP_OK : cgp_fail(CGP_EDEVICE, "kernel: broke");
}

TEST_CASE(a_kernel_that_fails_leaves_the_costs_as_they_were) {
    const test_sizes sizes = {1, 4, 8, 2, 7, 0, false, false};
    cgp_model *model = test_gpt2(&sizes);
    cgp_layer_cost costs[LAYERS], before[LAYERS];
    memset(costs, 0x5a, sizeof costs);
    memcpy(before, costs, sizeof costs);
    int left = 4;
    const cgp__timer timer = {no_kernel, &left};
    assert_status(cgp__layer_costs(model, 1, (cgp__arithmetic){.type = CGP_F32}, &timer, costs),
                  CGP_EDEVICE);
    assert_memory_equal(costs, before, sizeof costs);
    cgp_model_destroy(model);
}

/* --- balances --- */

/* Make n layers, each with one linear map from 8 to 8 features. Layer number `wide` has two linear
 * maps instead: from 8 to 64, and from 64 to 8 features. */
static cgp_model *row_of_linears(int n, int wide) {
    cgp_model *model = NULL;
    assert_ok(cgp_model_create(&model, "row"));
    cgp_value x = cgp_model_input(model, "x", CGP_F32, 1, (int64_t[]){8});
    for (int i = 0; i < n; i++) {
        char name[32];
        snprintf(name, sizeof name, "l%d", i);
        cgp_model_layer(model, name);
        if (i == wide) {
            x = cgp_linear(model, x, "up", (cgp_linear_options){.out = 64, .bias = true});
            snprintf(name, sizeof name, "down");
        }
        x = cgp_linear(model, x, name, (cgp_linear_options){.out = 8, .bias = true});
        x = cgp_gelu(model, x);
    }
    cgp_model_output(model, x);
    assert_ok(cgp_model_finish(model));
    return model;
}

/* Six layers take 10 to 60 ms, as in torchgpipe's test, and are balanced as [4, 2]. If
 * recomputation is counted too, the long recomputation (R) of the first layer moves the cut. */
TEST_CASE(the_balance_follows_the_times) {
    cgp_model *model = row_of_linears(6, -1);
    cgp_layer_cost costs[6] = {0};
    int balance[2];
    for (int i = 0; i < 6; i++) {
        costs[i].forward_seconds = 0.002 * (i + 1);
        costs[i].input_seconds = 0.005 * (i + 1);
        costs[i].weight_seconds = 0.003 * (i + 1);
    }
    costs[0].recompute_seconds = 0.200;
    assert_ok(cgp_balance_by_time(model, costs, false, 2, balance));
    assert_memory_equal(balance, ((int[]){4, 2}), sizeof balance);
    assert_ok(cgp_balance_by_time(model, costs, true, 2, balance));
    assert_memory_equal(balance, ((int[]){1, 5}), sizeof balance);
    costs[3].input_seconds = NAN;
    assert_status(cgp_balance_by_time(model, costs, false, 2, balance), CGP_EINVAL);
    assert_message("layer 3");
    cgp_model_destroy(model);
}

/* There are six layers. The wide layer (index 4) has most of the parameters and few saved values.
 * With a large `parameter_scale` the wide layer gets its own stage. With a `parameter_scale` of 0,
 * the cut depends only on saved bytes. */
TEST_CASE(the_balance_by_size_weighs_parameters_and_saved_values) {
    cgp_model *model = row_of_linears(6, 4);
    cgp_balance_size_options o = cgp_balance_size_options_default();
    cgp_layer_cost costs[6];
    int by_size[3], expected[3];
    double bytes[6];
    assert_ok(cgp__layer_costs(model, 5, (cgp__arithmetic){.type = CGP_F32}, &flops_timer, costs));
    for (int round = 0; round < 4; round++) {
        o.samples = 5;
        o.in_flight = 1 + round;
        o.parameter_scale = round ? 100.0 * round : 0;
        for (int i = 0; i < 6; i++)
            bytes[i] = (double)costs[i].saved_bytes * o.in_flight +
                       (double)costs[i].parameter_bytes * o.parameter_scale;
        assert_ok(cgp_balance_solve(bytes, 6, 3, expected));
        assert_ok(cgp_balance_by_size(model, &o, 3, by_size));
        assert_memory_equal(by_size, expected, sizeof expected);
    }
    assert_memory_equal(by_size, ((int[]){4, 1, 1}), sizeof by_size);
    o.in_flight = 0;
    assert_status(cgp_balance_by_size(model, &o, 3, by_size), CGP_EINVAL);
    assert_message("in_flight");
    o = cgp_balance_size_options_default();
    o.parameter_scale = NAN;
    assert_status(cgp_balance_by_size(model, &o, 3, by_size), CGP_EINVAL);
    assert_message("parameter_scale");
    o.struct_size = 1;
    assert_status(cgp_balance_by_size(model, &o, 3, by_size), CGP_EINVAL);
    assert_message("struct_size");
    cgp_model_destroy(model);
}

/* --- measured --- */

/* With backends `ref` and `cpu`, and with f32 and bf16, every op has a time, and equal blocks have
 * equal times. */
TEST_CASE(a_profile_measures_every_layer) {
    const test_sizes sizes = {3, 8, 16, 2, 11, 0.1, false, false};
    cgp_model *model = test_gpt2(&sizes);
    const int layers = cgp_model_layers(model);
    for (int round = 0; round < 3; round++) {
        cgp_layer_cost costs[LAYERS], same[LAYERS];
        const cgp__kernel_profile o = {
            .device = round == 2 ? "ref" : "cpu",
            .samples = 2,
            .threads = 1,
            .repeats = 1,
            .arithmetic = {.type = round == 1 ? CGP_BF16 : CGP_F32},
        };
        assert_ok(cgp__profile_kernels(model, &o, costs));
        assert_ok(cgp__layer_costs(model, 2, o.arithmetic, &flops_timer, same));
        for (int i = 0; i < layers; i++) {
            assert_true(costs[i].forward_seconds > 0 && costs[i].forward_seconds < 10);
            assert_true(costs[i].input_seconds + costs[i].weight_seconds > 0);
            assert_true(costs[i].recompute_seconds <= costs[i].forward_seconds);
            assert_int_equal(costs[i].saved_bytes, same[i].saved_bytes);
        }
        /* layers 2, 3 and 4 are the equal blocks h.0, h.1 and h.2, which are measured only once */
        assert_true(costs[2].forward_seconds == costs[3].forward_seconds);
        assert_true(costs[3].weight_seconds == costs[4].weight_seconds);
    }
    cgp_model_destroy(model);
}

/* The test profiles random graphs of ops on images. */
TEST_CASE(random_images_can_be_profiled) {
    uint64_t state = test_seed();
    for (int round = 0; round < 4; round++) {
        const test_sizes sizes = {.layers = 8, .vocab = 5, .dropout = 0.2, .no_loss = round == 0};
        cgp_model *model = test_random_images(&state, &sizes);
        cgp_layer_cost costs[LAYERS];
        const cgp__kernel_profile o = {"cpu", 3, 1, 1, {.type = CGP_F32}};
        assert_ok(cgp__profile_kernels(model, &o, costs));
        for (int i = 0; i < cgp_model_layers(model); i++)
            assert_true(isfinite(costs[i].forward_seconds + costs[i].input_seconds +
                                 costs[i].weight_seconds));
        cgp_model_destroy(model);
    }
}

/* The model has 4096 layers of 64 MiB, that is 256 GiB of parameters. */
TEST_CASE(a_model_larger_than_memory_can_be_profiled) {
    enum { MANY = 4096 };
    cgp_model *model = NULL;
    cgp_layer_cost *costs = calloc(MANY, sizeof *costs);
    assert_non_null(costs);
    assert_ok(cgp_model_create(&model, "large"));
    cgp_value x = cgp_model_input(model, "x", CGP_F32, 1, (int64_t[]){4096});
    for (int i = 0; i < MANY; i++) {
        char name[32];
        snprintf(name, sizeof name, "l%d", i);
        cgp_model_layer(model, name);
        x = cgp_linear(model, x, name, (cgp_linear_options){.out = 4096});
    }
    cgp_model_output(model, x);
    assert_ok(cgp_model_finish(model));
    cgp_profile_options o = cgp_profile_options_default();
    bool in_steps = true;
    o.steps = 1;
    assert_ok(cgp_profile_steps(model, &o, costs, &in_steps));
    assert_false(in_steps);
    const cgp_layer_cost sum = sum_of(costs, MANY);
    assert_int_equal(sum.parameter_bytes, (int64_t)MANY << 26);
    assert_true(sum.forward_seconds > 0);
    cgp_model_destroy(model);
    free(costs);
}

TEST_CASE(bad_profile_options_are_refused) {
    const test_sizes sizes = {1, 4, 8, 2, 7, 0, false, false};
    cgp_model *model = test_gpt2(&sizes), *open = NULL;
    cgp_layer_cost costs[LAYERS], before[LAYERS];
    const char *const gpu[] = {"cpu", "gpu"}, *const missing[] = {NULL};
    const int64_t none[] = {0}, huge[] = {INT32_MAX};
    const cgp_profile_options good = cgp_profile_options_default();
    cgp_profile_options bad[12];
    static const char *const messages[] = {
        "struct_size",
        "samples: expected 1 to 2147483647, got 0",
        "sizes: expected 1 to 16, got 17",
        "sizes: expected 1 to 1, got 2",
        "n_devices: expected 1 to 1024, got 0",
        "devices: expected a name for device 0, got NULL",
        "device: expected cpu, ref or late, got \"gpu\"",
        "threads: expected 1 to 1024, got 0",
        "steps: expected 1 to 1000, got 0",
        "precision: expected f32, tf32 or bf16, got number 7",
        "convolution: expected direct or winograd, got number 7",
        "lr",
    };
    for (int i = 0; i < 12; i++)
        bad[i] = good;
    bad[0].struct_size = 3;
    bad[1].samples = none;
    bad[2].samples = huge, bad[2].sizes = 17;
    bad[3].sizes = 2;
    bad[4].n_devices = 0;
    bad[5].devices = missing;
    bad[6].devices = gpu, bad[6].n_devices = 2;
    bad[7].threads = 0;
    bad[8].steps = 0;
    bad[9].precision = (cgp_precision)7;
    bad[10].convolution = (cgp_convolution)7;
    bad[11].optim.lr = -1;
    memset(costs, 0x5a, sizeof costs);
    memcpy(before, costs, sizeof costs);
    for (int i = 0; i < 12; i++) {
        assert_status(cgp_profile_steps(model, &bad[i], costs, NULL), CGP_EINVAL);
        assert_message(messages[i]);
    }
    cgp_profile_options large = good;
    large.samples = huge;
    assert_status(cgp_profile_steps(model, &large, costs, NULL), CGP_ELIMIT);
    assert_ok(cgp_model_create(&open, "open"));
    assert_status(cgp_profile_steps(open, &good, costs, NULL), CGP_EINVAL);
    assert_message("not finished");
    assert_memory_equal(costs, before, sizeof costs);
    cgp_model_destroy(open);
    cgp_model_destroy(model);
}
