/* SPDX-License-Identifier: Apache-2.0 */
/* test_plan_split_backward.c -- check plans whose schedules split backward into I and W. The test
 * inspects the kernel calls without running them.
 *
 * Between the I and the W of a micro-batch, other actions use the workspace. So all operands of W
 * must be outside the workspace, or W must recompute these operands. The same holds for the
 * operands of I, except for gradients that arrive directly before I. */
#include "graphs.h"

#include "model/model.h"
#include "plan/messages.h"
#include "plan/precision.h"
#include "plan/program/program.h"
#include "plan/setup.h"

/* Ranges of the workspace that the calls of an action have written so far. */
typedef struct written {
    int64_t begin[4096], end[4096];
    int n;
} written;

static void write_range(written *w, cgp__location location, int64_t bytes) {
    if (location.arena != CGP__WORKSPACE) return;
    assert_true(w->n < 4096);
    w->begin[w->n] = location.offset;
    w->end[w->n++] = location.offset + bytes;
}

/* A call reads from `location`. Assert that an earlier call has written a range that begins
 * there. */
static void read_range(const written *w, cgp__location location) {
    if (location.arena != CGP__WORKSPACE) return;
    for (int i = 0; i < w->n; i++) {
        if (w->begin[i] == location.offset) return;
    }
    print_message("workspace + %lld is read, but was not written\n", (long long)location.offset);
    fail();
}

static int64_t value_bytes(const cgp_plan *plan, int value) {
    return value < 0 ? 0
                     : cgp__value_bytes(cgp__plan_setup(plan), value, cgp_plan_microbatch(plan));
}

static void check_copy(const cgp__call *call, written *w) {
    read_range(w, call->dy);
    write_range(w, call->dx[0], 4 * call->copy_count);
}

/* Check calls `begin` to `end - 1` of the backward program as one action. Return how many of these
 * calls compute weight gradients. */
static int check_calls(const cgp_plan *plan, const cgp__program *program, int begin, int end,
                       written *w) {
    int weights = 0;
    for (int i = begin; i < end; i++) {
        const cgp__call *call = &program->calls[i];
        if (call->node < 0) {
            check_copy(call, w);
            continue;
        }
        const cgp__node *node = &cgp__plan_setup(plan)->model->nodes[call->node];
        const bool forward = call->direction == CGP_OP_FORWARD;
        weights += call->direction == CGP_OP_BACKWARD_WEIGHT;
        for (int k = 0; k < node->n_inputs; k++)
            read_range(w, call->x[k]);
        if (!forward) read_range(w, call->y);
        if (!forward) read_range(w, call->dy);
        for (int k = node->n_inputs - 1; k >= 0 && !forward;
             k--) { /* gradients are added in this order */
            if (call->add & (1u << k)) read_range(w, call->dx[k]);
            write_range(w, call->dx[k], value_bytes(plan, node->inputs[k]));
        }
        /* saved data that backward needs are outside the workspace */
        for (int k = 0; k < node->use.shapes.n_saved; k++)
            assert_true(forward || call->saved[k].arena != CGP__WORKSPACE ||
                        !(node->use.op->input_needs_saved & (1u << k)));
        if (forward) write_range(w, call->y, value_bytes(plan, node->output));
    }
    return weights;
}

static void arrive(const cgp_plan *plan, int stage, written *w) {
    for (int e = 0; e < cgp_plan_edges(plan); e++) {
        const cgp__edge_plan *edge = cgp__plan_edge(plan, e);
        for (int i = 0; i < edge->n_parts; i++) {
            if (edge->edge.to == stage && edge->edge.from > stage)
                write_range(w, edge->parts[i].to, value_bytes(plan, edge->parts[i].value));
        }
    }
}

static void check_plan(const cgp_plan *plan) {
    static written w;
    for (int j = 0; j < cgp_plan_stages(plan); j++) {
        const cgp__program *backward = &cgp__plan_stage(plan, j)->programs[CGP__BACKWARD];
        int all = 0;
        for (int i = 0; i < backward->n; i++)
            all += backward->calls[i].direction == CGP_OP_BACKWARD_WEIGHT;
        w.n = 0;
        arrive(plan, j, &w);
        assert_int_equal(check_calls(plan, backward, 0, backward->n_input, &w), 0);
        w.n = 0;
        assert_int_equal(check_calls(plan, backward, backward->n_input, backward->n, &w), all);
    }
}

TEST_CASE(weight_backward_reads_saved_operands) {
    uint64_t state = test_seed();
    int plans = 0;
    while (plans < 200) {
        const test_sizes sizes = {test_between(&state, 1, 6),
                                  test_between(&state, 1, 9),
                                  6,
                                  2,
                                  test_between(&state, 2, 20),
                                  0.1,
                                  true,
                                  false};
        cgp_model *model = test_between(&state, 0, 1) ? test_random_graph(&state, &sizes)
                                                      : test_random_images(&state, &sizes);
        cgp_plan_options o = cgp_plan_options_default();
        int balance[64];
        test_random_training(&state, model, &o, balance);
        if (cgp_schedule_info_find(o.schedule)->splits_backward) {
            cgp_plan *plan = NULL;
            assert_ok(cgp_plan_create(&plan, model, &o));
            check_plan(plan);
            cgp_plan_destroy(plan);
            plans++;
        }
        cgp_model_destroy(model);
    }
}

/* Gradients that are kept for W overwrite values that only I reads. In a GPT-2 these values are
 * about as large as the gradients, so splitting backward takes little more memory. */
TEST_CASE(a_split_backward_takes_little_more_memory) {
    const test_sizes sizes = {12, 128, 768, 12, 3000, 0, false, false};
    cgp_model *model = test_gpt2(&sizes);
    int64_t bytes[2];
    for (int k = 0; k < 2; k++) {
        cgp_plan_options o = cgp_plan_options_default();
        cgp_plan *plan = NULL;
        o.schedule = k ? "zb-h1" : "1f1b";
        o.batch = o.chunks = 8;
        o.stages = 2;
        assert_ok(cgp_plan_create(&plan, model, &o));
        bytes[k] = cgp_plan_stage_at(plan, 0)->saved_slot_bytes +
                   cgp__plan_stage(plan, 0)->gradient_slot_bytes;
        cgp_plan_destroy(plan);
    }
    print_message("saved slot: %lld, with a gradient slot %lld\n", (long long)bytes[0],
                  (long long)bytes[1]);
    assert_true((double)bytes[1] < 1.06 * (double)bytes[0]);
    cgp_model_destroy(model);
}
