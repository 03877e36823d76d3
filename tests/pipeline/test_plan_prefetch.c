/* SPDX-License-Identifier: Apache-2.0 */
/* test_plan_prefetch.c -- the prefetch list of a linear layer contains operands of the next kernel
 * calls. */
#include "graphs.h"

#include "model/model.h"
#include "plan/precision.h"
#include "plan/program/program.h"
#include "plan/setup.h"

static bool is_linear(const cgp_plan *plan, const cgp__call *call) {
    return call->node >= 0 && cgp__plan_setup(plan)->model->nodes[call->node].kind == CGP_OP_LINEAR;
}

static int64_t parameter_bytes(const cgp_plan *plan, const cgp__node *node, int k) {
    return 4 * cgp_shape_count(&cgp__plan_setup(plan)->model->params[node->params[k]].shape);
}

/* Return the number of bytes that a kernel call reads at a location. */
static int64_t read_bytes(const cgp_plan *plan, const cgp__call *call, cgp__location location) {
    if (call->node < 0) return 0;
    const cgp__node *node = &cgp__plan_setup(plan)->model->nodes[call->node];
    const bool weight = call->direction == CGP_OP_BACKWARD_WEIGHT;
    for (int k = 0; k < node->use.shapes.n_parameters; k++) {
        if (!weight && cgp__same_location(call->param[k], location))
            return parameter_bytes(plan, node, k);
    }
    for (int k = 0; k < node->n_inputs; k++) {
        if (cgp__same_location(call->x[k], location))
            return cgp__value_bytes(cgp__plan_setup(plan), node->inputs[k],
                                    cgp_plan_microbatch(plan));
    }
    return call->direction != CGP_OP_FORWARD && cgp__same_location(call->y, location)
               ? cgp__value_bytes(cgp__plan_setup(plan), node->output, cgp_plan_microbatch(plan))
               : 0;
}

static bool prefetches(const cgp__call *call, cgp__location location) {
    for (int i = 0; i < call->n_prefetch; i++) {
        if (cgp__same_location(call->prefetch[i].location, location)) return true;
    }
    return false;
}

/* Check the prefetch list of call `i`. The calls after `i`, up to the next linear of the action,
 * must read every entry. Unless the list is full, it must contain all parameters of these calls. */
static void check_call(const cgp_plan *plan, const cgp__program *program, int i, int end) {
    const cgp__call *call = &program->calls[i];
    int last = i + 1;
    while (last < end && !is_linear(plan, &program->calls[last]))
        last++;
    for (int s = 0; s < call->n_prefetch; s++) {
        int64_t bytes = 0;
        for (int j = i + 1; j <= last && j < end && bytes != call->prefetch[s].bytes; j++)
            bytes = read_bytes(plan, &program->calls[j], call->prefetch[s].location);
        assert_int_equal(bytes, call->prefetch[s].bytes);
        assert_true(bytes > 0);
    }
    for (int j = i + 1; j <= last && j < end && call->n_prefetch < CGP_MAX_PREFETCH; j++) {
        const cgp__call *next = &program->calls[j];
        for (int k = 0; k < CGP_OP_MAX_PARAMETERS && next->direction != CGP_OP_BACKWARD_WEIGHT; k++)
            assert_true(next->param[k].arena == CGP__NOWHERE || prefetches(call, next->param[k]));
    }
}

/* Check the prefetch lists of a program; return the number of calls that have one. */
static int check_program(const cgp_plan *plan, const cgp__program *program) {
    int n = 0;
    for (int i = 0; i < program->n; i++) {
        const cgp__call *call = &program->calls[i];
        n += call->n_prefetch > 0;
        if (is_linear(plan, call))
            check_call(plan, program, i, i < program->n_input ? program->n_input : program->n);
        else
            assert_int_equal(call->n_prefetch, 0);
    }
    return n;
}

TEST_CASE(every_prefetched_operand_is_read_next) {
    uint64_t state = test_seed();
    int n = 0;
    for (int round = 0; round < 100; round++) {
        const test_sizes sizes = {test_between(&state, 1, 8), 5, 6, 2, 11, 0.1, true, false};
        cgp_model *model = test_random_graph(&state, &sizes);
        cgp_plan_options o = cgp_plan_options_default();
        cgp_plan *plan = NULL;
        int balance[64];
        test_random_training(&state, model, &o, balance);
        assert_ok(cgp_plan_create(&plan, model, &o));
        for (int j = 0; j < cgp_plan_stages(plan); j++) {
            const cgp__stage_plan *stage = cgp__plan_stage(plan, j);
            n += check_program(plan, &stage->programs[CGP__FORWARD_NOSAVE]) +
                 check_program(plan, &stage->programs[CGP__FORWARD_SAVED]) +
                 check_program(plan, &stage->programs[CGP__RECOMPUTE]) +
                 check_program(plan, &stage->programs[CGP__BACKWARD]);
        }
        cgp_plan_destroy(plan);
        cgp_model_destroy(model);
    }
    assert_true(n > 0);
}

/* Plan the model x [6] -> up [10] -> GELU -> down [4] -> loss, with 3 samples. */
static cgp_plan *two_linears(cgp_model **model) {
    cgp_plan_options o = cgp_plan_options_default();
    cgp_plan *plan = NULL;
    assert_ok(cgp_model_create(model, "two linears"));
    cgp_value x = cgp_model_input(*model, "x", CGP_F32, 1, (int64_t[]){6});
    cgp_value y = cgp_model_input(*model, "y", CGP_I32, 1, (int64_t[]){1});
    cgp_model_layer(*model, "all");
    x = cgp_linear(*model, x, "up", (cgp_linear_options){.out = 10, .bias = true});
    x = cgp_linear(*model, cgp_gelu(*model, x), "down", (cgp_linear_options){.out = 4});
    cgp_model_loss_cross_entropy(*model, x, y, -100, 1);
    assert_ok(cgp_model_finish(*model));
    o.batch = 3;
    o.chunks = o.stages = 1;
    assert_ok(cgp_plan_create(&plan, *model, &o));
    return plan;
}

/* The forward program calls the kernels of up, gelu, down and loss, in this order. */
TEST_CASE(forward_prefetches_weights) {
    cgp_model *model;
    cgp_plan *plan = two_linears(&model);
    const cgp__call *calls = cgp__plan_stage(plan, 0)->programs[CGP__FORWARD_SAVED].calls;
    assert_int_equal(calls[0].n_prefetch, 1);
    assert_true(cgp__same_location(calls[0].prefetch[0].location, calls[2].param[0]));
    assert_int_equal(calls[0].prefetch[0].bytes, 10 * 4 * 4);
    assert_int_equal(calls[2].n_prefetch, 0);
    cgp_plan_destroy(plan);
    cgp_model_destroy(model);
}

/* The backward program calls five kernels: loss, weight backward of `down`, input backward of
 * `down`, gelu, and weight backward of `up`. */
TEST_CASE(backward_prefetches_saved_values) {
    cgp_model *model;
    cgp_plan *plan = two_linears(&model);
    const cgp__program *backward = &cgp__plan_stage(plan, 0)->programs[CGP__BACKWARD];
    const cgp__call *calls = backward->calls;
    assert_int_equal(backward->n, 5);
    assert_int_equal(calls[1].n_prefetch, 1);
    assert_true(cgp__same_location(calls[1].prefetch[0].location, calls[2].param[0]));
    assert_int_equal(calls[2].n_prefetch, 1); /* x of `up` is the caller's */
    assert_true(cgp__same_location(calls[2].prefetch[0].location, calls[3].x[0]));
    assert_int_equal(calls[2].prefetch[0].bytes, 3 * 10 * 4);
    assert_int_equal(calls[4].n_prefetch, 0);
    cgp_plan_destroy(plan);
    cgp_model_destroy(model);
}
