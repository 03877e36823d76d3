/* SPDX-License-Identifier: Apache-2.0 */
/* test_plan_replay.c -- compare the memory of a plan with the lower bound of a replay
 * (plan_replay.h). A plan may exceed the bound by 3 %.
 *
 * The bound ignores that each value must be contiguous, so plans of some models may exceed it by
 * more. Plans of small models may exceed it by one scratchpad: the scratchpad of a GEMM (about 0.5
 * MB for any batch) is large compared with a slot. Plans of random image models may exceed it by
 * the largest value, because a stage has few values and their sizes differ. Plans of the GPT-2
 * benchmark may exceed it by no more than 3 %. */
#include "graphs.h"
#include "plan_replay.h"

#include <cgpipe/models/resnet.h>
#include <cgpipe/models/unet.h>

#include "plan/memory/devices.h"
#include "plan/plan.h"

/* How far a plan may exceed the bound: not at all, by one scratchpad, or by the largest value or
 * scratchpad. */
typedef enum allowance { NOTHING, A_SCRATCHPAD, A_PIECE } allowance;

static void check_plan(const cgp_model *model, const cgp_plan_options *o, allowance allowed,
                       double *worst) {
    cgp_plan *plan = NULL;
    assert_ok(cgp_plan_create(&plan, model, o));
    for (int j = 0; j < cgp_plan_stages(plan); j++) {
        test_replay r;
        test_replay_stage(&r, plan, j);
        const int64_t activation = r.inputs * r.input + r.saved * r.slot + r.work + r.transfer;
        const int64_t bound =
            (2 + cgp_optim_states(&o->optim)) * r.parameters + activation + r.states;
        const cgp_plan_device *device = &plan->placement.devices[j].info;
        assert_int_equal(device->state_bytes, r.states);
        const double ratio = (double)device->planned_bytes / (double)bound;
        const double activation_ratio =
            activation ? (double)device->activation_bytes / (double)activation : 1;
        *worst = activation_ratio > *worst ? activation_ratio : *worst;
        const double more = allowed == A_PIECE        ? (double)r.piece
                            : allowed == A_SCRATCHPAD ? (double)r.scratchpad
                                                      : 0;
        if ((double)device->activation_bytes > 1.03 * (double)activation + more ||
            (double)device->planned_bytes > 1.03 * (double)bound + more || ratio < 1) {
            print_message("%s, stages %d, batch %d, chunks %d, %s, %s: device %d plans %lld bytes, "
                          "bound %lld (%.4f), of it "
                          "activations %lld, bound %lld (%.4f: slots %d x %lld, %d x %lld, "
                          "workspace %lld of %lld)\n",
                          cgp_precision_name(o->precision), o->stages, (int)o->batch, o->chunks,
                          o->schedule, cgp_recompute_name(o->recompute), j,
                          (long long)device->planned_bytes, (long long)bound, ratio,
                          (long long)device->activation_bytes, (long long)activation,
                          activation_ratio, r.inputs, (long long)r.input, r.saved,
                          (long long)r.slot, (long long)r.work, (long long)device->workspace_bytes);
            fail();
        }
    }
    cgp_plan_destroy(plan);
}

enum { MODES = CGP_RECOMPUTE_EXCEPT_LAST_SELECTIVE + 1 };
static const char *const schedules[] = {"gpipe", "1f1b"};

/* The images are so large that rounding sizes to 64 bytes does not matter. */
TEST_CASE(plans_of_images_exceed_the_replay_by_at_most_three_percent) {
    uint64_t state = test_seed();
    double worst = 0;
    static const char *const devices[] = {"ref", "ref", "ref", "ref", "ref"};
    for (int i = 0; i < 40; i++) {
        const test_sizes sizes = {
            .layers = test_between(&state, 1, 6), .vocab = 10, .dropout = 0.1, .rough = true};
        cgp_model *model = test_random_images(&state, &sizes);
        cgp_plan_options o = cgp_plan_options_default();
        int balance[5];
        o.stages =
            test_between(&state, 1, cgp_model_layers(model) < 5 ? cgp_model_layers(model) : 5);
        o.balance = balance;
        o.devices = devices;
        test_random_balance(&state, cgp_model_layers(model), o.stages, balance);
        o.chunks = test_between(&state, 1, 10);
        o.batch = 1000 * o.chunks;
        for (int c = 0; c < 2 * MODES; c++) {
            o.schedule = schedules[c % 2];
            o.recompute = (cgp_recompute)(c / 2);
            check_plan(model, &o, A_PIECE, &worst);
        }
        cgp_model_destroy(model);
    }
    print_message("largest ratio of planned activations to the bound: %.4f\n", worst);
}

static cgp_model *make_resnet(void) {
    cgp_resnet_options options = cgp_resnet_options_default();
    cgp_model *model = NULL;
    options.depth = 50;
    options.image = 64;
    assert_ok(cgp_resnet_create(&model, &options));
    return model;
}

static cgp_model *make_unet(void) {
    cgp_unet_options options = cgp_unet_options_default();
    cgp_model *model = NULL;
    options.convs = 2;
    options.channels = 16;
    options.depth = 3;
    options.image = 64;
    assert_ok(cgp_unet_create(&model, &options));
    return model;
}

/* These plans use the default balance, by FLOPs. */
TEST_CASE(plans_of_resnet_and_unet_exceed_the_replay_by_at_most_three_percent) {
    double worst = 0;
    for (int k = 0; k < 2; k++) {
        cgp_model *model = k ? make_unet() : make_resnet();
        for (int stages = 1; stages <= 4; stages++) {
            for (int c = 0; c < 2 * MODES; c++) {
                cgp_plan_options o = cgp_plan_options_default();
                o.stages = stages;
                o.batch = 64;
                o.chunks = 8;
                o.schedule = schedules[c % 2];
                o.recompute = (cgp_recompute)(c / 2);
                check_plan(model, &o, NOTHING, &worst);
            }
        }
        cgp_model_destroy(model);
    }
    print_message("largest ratio of planned activations to the bound: %.4f\n", worst);
}

TEST_CASE(plans_of_gpt2_exceed_the_replay_by_at_most_three_percent) {
    uint64_t state = test_seed();
    double worst = 0;
    for (int i = 0; i < 40; i++) {
        const test_sizes sizes = {test_between(&state, 1, 6),
                                  16 * test_between(&state, 4, 12),
                                  64 * test_between(&state, 2, 8),
                                  4,
                                  test_between(&state, 60, 3000),
                                  test_between(&state, 0, 1) * 0.1,
                                  false,
                                  false};
        cgp_model *model = test_gpt2(&sizes);
        cgp_plan_options o = cgp_plan_options_default();
        o.precision = i % 4 == 3 ? CGP_PRECISION_BF16 : CGP_PRECISION_F32;
        int balance[5];
        o.stages = test_between(&state, 1, sizes.layers + 4 < 5 ? sizes.layers + 4 : 5);
        o.balance = balance;
        test_random_balance(&state, cgp_model_layers(model), o.stages, balance);
        o.batch = test_between(&state, 1, 40);
        o.chunks = test_between(&state, 1, (int)o.batch);
        o.optim = test_between(&state, 0, 1) ? cgp_optim_adamw(1e-3, 0.01)
                                             : cgp_optim_sgd(0.1, 0, false, 0);
        for (int c = 0; c < 2 * MODES; c++) {
            o.schedule = schedules[c % 2];
            o.recompute = (cgp_recompute)(c / 2);
            check_plan(model, &o, A_SCRATCHPAD, &worst);
        }
        cgp_model_destroy(model);
    }
    print_message("largest ratio of planned activations to the bound: %.4f\n", worst);
}

/* Test the plans of the GPT-2 benchmark, with 16 layers and a batch of 64. */
TEST_CASE(plans_of_the_gpt2_benchmark_exceed_the_replay_by_at_most_three_percent) {
    static const int balances[3][4] = {{16}, {8, 8}, {5, 3, 3, 5}};
    static const int stages[3] = {1, 2, 4};
    const test_sizes sizes = {12, 128, 768, 12, 3000, 0.1, false, false};
    cgp_model *model = test_gpt2(&sizes);
    double worst = 0;
    for (int k = 0; k < 3; k++) {
        for (int chunks = 1; chunks <= 64; chunks *= 4) {
            for (int c = 0; c < 2 * MODES; c++) {
                cgp_plan_options o = cgp_plan_options_default();
                o.stages = stages[k];
                o.balance = balances[k];
                o.batch = 64;
                o.chunks = chunks;
                o.schedule = schedules[c % 2];
                o.recompute = (cgp_recompute)(c / 2);
                o.optim = cgp_optim_sgd(0.01, 0.9, true, 1e-4);
                check_plan(model, &o, NOTHING, &worst);
            }
        }
    }
    cgp_model_destroy(model);
    print_message("largest ratio of planned activations to the bound: %.4f\n", worst);
}
