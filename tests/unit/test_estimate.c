/* SPDX-License-Identifier: Apache-2.0 */
/* test_estimate.c -- tests the costs of layers that are estimated from a device's description. The
 * costs are compared with numbers computed by hand, and with FLOPs. */
#include "support.h"

#include <cgpipe/cgpipe.h>

enum { N = 4, IN = 8, OUT = 16 };

/* Make three layers: a linear map, a linear map from IN to OUT features with bias, and a relu. */
static cgp_model *make_model(void) {
    cgp_model *model = NULL;
    assert_ok(cgp_model_create(&model, "two"));
    cgp_value x = cgp_model_input(model, "x", CGP_F32, 1, (int64_t[]){IN});
    cgp_model_layer(model, "first");
    x = cgp_linear(model, x, "first", (cgp_linear_options){.out = IN});
    cgp_model_layer(model, "linear");
    x = cgp_linear(model, x, "linear", (cgp_linear_options){.out = OUT, .bias = true});
    cgp_model_layer(model, "relu");
    cgp_model_output(model, cgp_relu(model, x));
    assert_ok(cgp_model_finish(model));
    return model;
}

static void close_to(double value, double expected) {
    assert_true(fabs(value - expected) <= 1e-12 * expected);
}

/* If a device's memory takes no time, a layer takes FLOPs / (FLOPs per second). */
TEST_CASE(arithmetic_takes_its_flops) {
    cgp_model *model = make_model();
    cgp_layer_cost costs[3];
    const cgp_device_speed speed = {.flops_per_second = 1000, .optim = cgp_optim_adamw(0.1, 0)};
    assert_ok(cgp_layer_costs_estimate(model, &speed, N, costs));
    close_to(costs[1].forward_seconds, (double)(2 * N * IN * OUT + N * OUT) / 1000);
    for (int i = 0; i < 3; i++) {
        close_to(costs[i].forward_seconds, costs[i].flops[0] / 1000);
        close_to(costs[i].input_seconds, costs[i].flops[1] / 1000);
        close_to(costs[i].weight_seconds, costs[i].flops[2] / 1000);
        assert_true(costs[i].update_seconds == 0);
    }
    cgp_model_destroy(model);
}

/* If a device's arithmetic takes no time, a layer takes (bytes of its operands) / (bytes per
 * second). */
TEST_CASE(memory_takes_its_bytes) {
    cgp_model *model = make_model();
    cgp_layer_cost costs[3];
    cgp_device_speed speed = {
        .flops_per_second = 1e30, .bytes_per_second = 100, .optim = cgp_optim_adamw(0.1, 0)};
    const int weight = 4 * IN * OUT, bias = 4 * OUT, x = 4 * N * IN, y = 4 * N * OUT;
    assert_ok(cgp_layer_costs_estimate(model, &speed, N, costs));
    close_to(costs[1].forward_seconds, (x + weight + bias + y) / 100.0);
    close_to(costs[1].input_seconds, (y + weight + bias + x) / 100.0);
    close_to(costs[1].weight_seconds, (y + x + 2 * (weight + bias)) / 100.0);
    close_to(costs[1].update_seconds, 7 * (weight + bias) / 100.0);
    close_to(costs[2].forward_seconds, 2 * y / 100.0);
    assert_true(costs[2].update_seconds == 0);
    speed.optim = cgp_optim_sgd(0.1, 0, false, 0);
    speed.precision = CGP_PRECISION_BF16;
    assert_ok(cgp_layer_costs_estimate(model, &speed, N, costs));
    close_to(costs[1].forward_seconds, (x / 2.0 + weight + bias + y / 2.0) / 100.0);
    close_to(costs[1].update_seconds, 3 * (weight + bias) / 100.0);
    cgp_model_destroy(model);
}

/* Each kernel takes the longer of its two times, for arithmetic and for memory. */
TEST_CASE(the_longer_counts) {
    cgp_model *model = make_model();
    cgp_layer_cost flops[3], bytes[3], both[3];
    cgp_device_speed speed = {.flops_per_second = 2e3};
    assert_ok(cgp_layer_costs_estimate(model, &speed, N, flops));
    speed = (cgp_device_speed){.flops_per_second = 1e30, .bytes_per_second = 4e3};
    assert_ok(cgp_layer_costs_estimate(model, &speed, N, bytes));
    speed.flops_per_second = 2e3;
    assert_ok(cgp_layer_costs_estimate(model, &speed, N, both));
    for (int i = 0; i < 3; i++) { /* a layer has one kernel per direction */
        close_to(both[i].forward_seconds, fmax(flops[i].forward_seconds, bytes[i].forward_seconds));
        close_to(both[i].weight_seconds, fmax(flops[i].weight_seconds, bytes[i].weight_seconds));
    }
    cgp_model_destroy(model);
}

TEST_CASE(bad_numbers_are_refused) {
    cgp_model *model = make_model();
    cgp_layer_cost costs[3] = {{.forward_seconds = 7}};
    cgp_device_speed speed = {.flops_per_second = 0};
    assert_status(cgp_layer_costs_estimate(model, &speed, N, costs), CGP_EINVAL);
    assert_message("estimate: expected flops_per_second above 0");
    speed.flops_per_second = NAN;
    assert_status(cgp_layer_costs_estimate(model, &speed, N, costs), CGP_EINVAL);
    speed.flops_per_second = 1;
    assert_status(cgp_layer_costs_estimate(model, &speed, 0, costs), CGP_EINVAL);
    assert_message("estimate: samples: expected 1 to 2147483647, got 0");
    assert_true(costs[0].forward_seconds == 7);
    cgp_model_destroy(model);
}
