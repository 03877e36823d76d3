/* SPDX-License-Identifier: Apache-2.0 */
/* test_ranks.c -- ranks make the same call, but with different arguments. Either all ranks refuse
 * the call, or no rank does. No rank waits for ever, and the message names the rank at fault. */
#define _GNU_SOURCE /* nftw */
#include "rank_world.h"

#include <math.h>

#include "custom_ops.h"
#include "checkpoints.h"
#include "model/model.h"
#include "plan/memory/parameters.h"
#include "plan/setup.h"

enum { OUTPUTS = SAMPLES * 8 * 11 };

/* --- inputs and output --- */

/* Wrong targets: `targets` has one target that is not a class, and `fewer` has too few samples. */
typedef struct others {
    int32_t bad[SAMPLES * 8];
    cgp_tensor targets, fewer;
} others;

static void make_others(others *o, const cgp_tensor *targets) {
    memcpy(o->bad, targets->data, sizeof o->bad);
    o->bad[3] = 12;
    o->targets = o->fewer = *targets;
    o->targets.data = o->bad;
    o->fewer.shape.dims[0] = SAMPLES - 1;
}

static void call_with_own_inputs(rank *r) {
    const cgp_tensor *ids = r->batch->inputs[0], *targets = r->batch->inputs[1];
    const cgp_tensor *first[] = {ids, NULL}, *last[] = {NULL, targets};
    const cgp_tensor *const *own = r->number == 0 ? first : r->number == 2 ? last : NULL;
    others o;
    make_others(&o, targets);
    note_create(r);
    /* a rank may pass NULL for inputs that it does not read */
    note(r, cgp_pipeline_step(r->pipeline, own, 2, &r->loss));
    note(r, step(r, ids, r->number == 2 ? &o.targets : targets));
    note(r, step(r, ids, r->number == 2 ? &o.fewer : targets));
    note(r, cgp_pipeline_step(r->pipeline, r->number == 0 ? NULL : own, 2, &r->loss));
    note(r, cgp_pipeline_evaluate(r->pipeline, r->number == 2 ? NULL : own, 2, &r->loss));
    note(r, cgp_pipeline_evaluate(r->pipeline, own, 2, &r->loss));
    note(r, step(r, ids, targets)); /* refused calls changed nothing */
}

TEST_CASE(inputs_of_one_rank_are_refused_on_all) {
    world w;
    rank ranks[3];
    int k = 0;
    make_world(&w);
    make_ranks(ranks, 3, w.plan, &w.batch, call_with_own_inputs);
    run_ranks(ranks, 3);
    assert_note(ranks, 3, k++, CGP_OK, -1, "");
    assert_note(ranks, 3, k++, CGP_OK, -1, "");
    assert_note(ranks, 3, k++, CGP_EINVAL, 2, "sample 0, element 3 is 12");
    assert_note(ranks, 3, k++, CGP_EINVAL, -1, "got 5 on rank 2, 6 before it");
    assert_note(ranks, 3, k++, CGP_EINVAL, 0, "is missing");
    assert_note(ranks, 3, k++, CGP_EINVAL, 2, "is missing");
    assert_note(ranks, 3, k++, CGP_OK, -1, "");
    assert_note(ranks, 3, k++, CGP_OK, -1, "");
    for (int r = 1; r < 3; r++)
        assert_memory_equal(&ranks[r].loss, &ranks[0].loss, sizeof(double));
    free_world(&w);
}

static void call_with_own_output(rank *r) {
    static float rows[3][OUTPUTS];
    const cgp_tensor y = {CGP_F32, {3, {SAMPLES, 8, 11}}, rows[r->number]};
    const cgp_tensor *first[] = {r->batch->inputs[0], NULL};
    const cgp_tensor *const *own = r->number == 0 ? first : NULL;
    note_create(r);
    note(r, cgp_pipeline_predict(r->pipeline, own, 2,
                                 (const cgp_tensor *[]){r->number == 2 ? &y : NULL}, 1));
    note(r, cgp_pipeline_predict(r->pipeline, own, 2,
                                 r->number == 2 ? NULL : (const cgp_tensor *[]){&y}, 1));
    note(r, cgp_pipeline_predict(r->pipeline, own, 2, (const cgp_tensor *[]){&y}, 1));
}

TEST_CASE(a_missing_output_is_refused_on_all_ranks) {
    world w;
    rank ranks[3];
    make_world(&w);
    make_ranks(ranks, 3, w.plan, &w.batch, call_with_own_output);
    run_ranks(ranks, 3);
    assert_note(ranks, 3, 1, CGP_OK, -1, "");
    assert_note(ranks, 3, 2, CGP_EINVAL, 2, "outputs: are missing");
    assert_note(ranks, 3, 3, CGP_OK, -1, "");
    free_world(&w);
}

static void call_in_two_parts(rank *r) {
    static float rows[3][OUTPUTS];
    const cgp_tensor y = {CGP_F32, {3, {SAMPLES, 8, 11}}, rows[r->number]};
    const cgp_tensor *first[] = {r->batch->inputs[0]};
    const cgp_tensor *const *own = r->number == 0 ? first : NULL;
    note_create(r);
    note(r, cgp_pipeline_forward(r->pipeline, own, 1,
                                 (const cgp_tensor *[]){r->number == 2 ? NULL : &y}, 1));
    note(r, cgp_pipeline_forward(r->pipeline, own, 1,
                                 (const cgp_tensor *[]){r->number == 2 ? &y : NULL}, 1));
    note(r,
         cgp_pipeline_backward(r->pipeline, (const cgp_tensor *[]){r->number == 2 ? NULL : &y}, 1));
    note(r,
         cgp_pipeline_backward(r->pipeline, (const cgp_tensor *[]){r->number == 2 ? &y : NULL}, 1));
}

TEST_CASE(outputs_and_gradients_are_those_of_their_rank) {
    const int64_t shape[] = {8};
    cgp_model *model = NULL;
    cgp_plan *plan = NULL;
    test_batch batch = {.n = 1};
    int32_t ids[SAMPLES * 8] = {0};
    rank ranks[3];
    assert_ok(cgp_model_create(&model, "no loss"));
    cgp_value x = cgp_model_input(model, "ids", CGP_I32, 1, shape);
    const cgp_init init = {CGP_INIT_NORMAL, 0.5};
    cgp_model_layer(model, "a");
    x = cgp_embedding(model, x, "a", 11, 11, init);
    for (int l = 0; l < 2; l++) {
        cgp_model_layer(model, l ? "c" : "b");
        x = cgp_linear(model, x, l ? "c" : "b", (cgp_linear_options){.out = 11, .init = init});
    }
    cgp_model_output(model, x);
    assert_ok(cgp_model_finish(model));
    cgp_plan_options o = options(3);
    o.external_loss = true;
    assert_ok(cgp_plan_create(&plan, model, &o));
    batch.tensors[0] = (cgp_tensor){CGP_I32, {2, {SAMPLES, 8}}, ids};
    batch.inputs[0] = &batch.tensors[0];
    make_ranks(ranks, 3, plan, &batch, call_in_two_parts);
    run_ranks(ranks, 3);
    assert_note(ranks, 3, 1, CGP_EINVAL, 2, "output: is missing");
    assert_note(ranks, 3, 2, CGP_OK, -1, "");
    assert_note(ranks, 3, 3, CGP_EINVAL, 2, "gradient: is missing");
    assert_note(ranks, 3, 4, CGP_OK, -1, "");
    cgp_plan_destroy(plan);
    cgp_model_destroy(model);
}

/* --- losses whose targets no rank reads --- */

static cgp_status infer_sum(const void *attributes, const cgp_op_type *inputs, cgp_op_shapes *out) {
    (void)attributes, (void)inputs, (void)out;
    return CGP_OK;
}

static cgp_status sum_squares(const cgp_op_run *r) {
    const float *x = r->x[0];
    *r->loss = 0;
    for (int64_t i = 0; i < test_custom_count(r); i++)
        *r->loss += (double)x[i] * (double)x[i] / 2;
    return CGP_OK;
}

static cgp_status sum_squares_dx(const cgp_op_run *r) {
    const float *x = r->x[0];
    for (int64_t i = 0; i < test_custom_count(r); i++)
        r->dx[0][i] = r->loss_scale * x[i];
    return CGP_OK;
}

/* A custom loss with one input and no targets. */
static const cgp_op sum_of_squares = {.struct_size = sizeof(cgp_op),
                                      .name = "sum_of_squares",
                                      .n_inputs = 1,
                                      .is_loss = true,
                                      .infer = infer_sum,
                                      .input_needs_x = 1u << 0,
                                      .forward = sum_squares,
                                      .backward_input = sum_squares_dx};

/* Make a model of two linear layers. The second linear layer is on a stage that reads no model
 * input. The graph itself computes the targets of the model's three losses. */
static cgp_model *model_of_own_targets(void) {
    cgp_model *model = NULL;
    const cgp_linear_options linear = {.out = 5, .bias = true, .init = {CGP_INIT_NORMAL, 0.5}};
    assert_ok(cgp_model_create(&model, "own targets"));
    cgp_value x = cgp_model_input(model, "x", CGP_F32, 1, (const int64_t[]){5});
    cgp_model_layer(model, "first");
    x = cgp_linear(model, x, "first", linear);
    cgp_model_layer(model, "second");
    x = cgp_linear(model, x, "second", linear);
    const cgp_value targets = cgp_argmax(model, x);
    cgp_model_loss_cross_entropy(model, x, targets, -100, 1);
    cgp_model_loss_bce_with_logits(model, x, x, 0.5);
    cgp_op_apply_loss(model, &sum_of_squares, &x, NULL, 0.25);
    assert_ok(cgp_model_finish(model));
    return model;
}

static void train_on(const cgp_model *model, int ranks, double losses[3], char sha256[65]) {
    float data[4 * 5];
    for (int i = 0; i < 4 * 5; i++)
        data[i] = (float)((i * 7) % 11) / 11 - 0.5f;
    const cgp_tensor x = {CGP_F32, {2, {4, 5}}, data};
    const cgp_tensor *inputs[] = {&x};
    cgp_plan_options o = cgp_plan_options_default();
    cgp_plan *plan = NULL;
    cgp_pipeline *pipeline = NULL;
    o.stages = 2;
    o.batch = 4;
    o.chunks = 3;
    o.ranks = ranks;
    assert_ok(cgp_plan_create(&plan, model, &o));
    assert_ok(cgp_pipeline_create(&pipeline, plan, 5));
    for (int s = 0; s < 2; s++) {
        assert_ok(cgp_pipeline_step(pipeline, inputs, 1, &losses[s]));
        assert_ok(cgp_optim_step(pipeline));
    }
    assert_ok(cgp_pipeline_evaluate(pipeline, inputs, 1, &losses[2]));
    assert_ok(cgp_pipeline_weights_sha256(pipeline, sha256));
    cgp_pipeline_destroy(pipeline);
    cgp_plan_destroy(plan);
}

TEST_CASE(losses_count_targets_of_the_graph) {
    double one[3], two[3];
    char sha256_of_one[65], sha256_of_two[65];
    cgp_model *model = model_of_own_targets();
    train_on(model, 1, one, sha256_of_one);
    train_on(model, 2, two, sha256_of_two);
    assert_true(isfinite(one[0]) && one[0] > 0);
    assert_memory_equal(one, two, sizeof one);
    assert_string_equal(sha256_of_one, sha256_of_two);
    cgp_model_destroy(model);
}

/* --- other arguments --- */

/* Return the number of a parameter that only rank 1 has. */
static int parameter_of_rank_1(const cgp_plan *plan) {
    for (int p = 0; p < cgp__plan_setup(plan)->model->n_params; p++) {
        const int *first = &cgp__plan_parameters(plan)->first_copy[p];
        if (cgp_plan_device_at(plan, cgp__owner_of(plan, p)->device)->rank == 1 &&
            first[1] == first[0] + 1)
            return p;
    }
    abort();
}

static void call_with_own_data(rank *r) {
    enum { MOST = 4096 };
    static float data[3][MOST];
    const int p = parameter_of_rank_1(r->plan);
    const bool owns = r->number == 1;
    cgp_schedule_timeline timeline = {0};
    cgp_layer_cost costs[16];
    note_create(r);
    cgp_pipeline *pipeline = r->pipeline;
    note(r, cgp_pipeline_get_parameter(pipeline, p, owns ? NULL : data[r->number]));
    note(r, cgp_pipeline_set_parameter(pipeline, p, owns ? NULL : data[r->number]));
    note(r, cgp_pipeline_set_parameter(pipeline, p, owns ? data[r->number] : NULL));
    note(r, cgp_pipeline_get_parameter(pipeline, 999, data[r->number]));
    note(r, cgp_pipeline_get_gradient(pipeline, p, data[r->number]));
    note(r, cgp_pipeline_measure_layers(pipeline, true));
    note(r, step(r, r->batch->inputs[0], r->batch->inputs[1]));
    note(r, cgp_pipeline_layer_costs(pipeline, owns ? NULL : costs));
    note(r, cgp_pipeline_layer_costs(pipeline, costs));
    note(r, cgp_pipeline_last_timeline(pipeline, owns ? NULL : &timeline));
    note(r, cgp_pipeline_weights_sha256(pipeline, owns ? NULL : r->sha256));
    note(r, cgp_pipeline_state_sha256(pipeline, owns ? NULL : r->sha256));
    note(r, cgp_optim_step(pipeline));
    note(r, cgp_pipeline_save(pipeline, owns ? NULL : r->directory, 0, NULL));
    note(r, cgp_pipeline_save(pipeline, r->directory, 0, NULL));
    note(r, cgp_pipeline_load(pipeline, owns ? NULL : r->directory, NULL));
    note(r, step(r, r->batch->inputs[0], r->batch->inputs[1]));
    cgp_schedule_timeline_release(&timeline);
}

TEST_CASE(arguments_of_one_rank_are_refused_on_all) {
    world w;
    rank ranks[3];
    int k = 1;
    make_world(&w);
    make_ranks(ranks, 3, w.plan, &w.batch, call_with_own_data);
    for (int r = 0; r < 3; r++)
        ranks[r].directory = run;
    run_ranks(ranks, 3);
    assert_note(ranks, 3, k++, CGP_OK, -1, "");
    assert_note(ranks, 3, k++, CGP_EINVAL, 1, "data: expected a pointer, got NULL");
    assert_note(ranks, 3, k++, CGP_OK, -1, "");
    assert_note(ranks, 3, k++, CGP_EINVAL, -1, "got 999");
    assert_note(ranks, 3, k++, CGP_ESTATE, -1, "cgp_pipeline_step is due");
    assert_note(ranks, 3, k++, CGP_OK, -1, "");
    assert_note(ranks, 3, k++, CGP_OK, -1, "");
    assert_note(ranks, 3, k++, CGP_EINVAL, 1, "costs: expected a pointer, got NULL");
    assert_note(ranks, 3, k++, CGP_OK, -1, "");
    assert_note(ranks, 3, k++, CGP_EINVAL, 1, "out: expected a pointer, got NULL");
    assert_note(ranks, 3, k++, CGP_OK, -1, "");
    assert_note(ranks, 3, k++, CGP_OK, -1, "");
    assert_note(ranks, 3, k++, CGP_OK, -1, "");
    assert_note(ranks, 3, k++, CGP_EINVAL, 1, "directory: expected a pointer, got NULL");
    assert_note(ranks, 3, k++, CGP_OK, -1, "");
    assert_note(ranks, 3, k++, CGP_EINVAL, 1, "directory: expected a pointer, got NULL");
    assert_note(ranks, 3, k++, CGP_OK, -1, "");
    free_world(&w);
}

/* --- creation --- */

static void create_only(rank *r) {
    note_create(r);
}

static void create_nowhere(rank *r) {
    cgp_pipeline **out = r->number == 1 ? NULL : &r->pipeline;
    note(r, cgp_pipeline_create_on(out, r->plan, r->seed, &loopback, r->communicator));
}

TEST_CASE(ranks_that_differ_are_refused) {
    world w;
    rank ranks[3];
    cgp_plan *other = NULL, *of_two = NULL;
    cgp_plan_options o = options(3);
    make_world(&w);
    o.optim.schedule.warmup = 10;
    assert_ok(cgp_plan_create(&other, w.model, &o));
    o = options(2);
    assert_ok(cgp_plan_create(&of_two, w.model, &o));
    for (int what = 0; what < 4; what++) {
        make_ranks(ranks, 3, w.plan, &w.batch, what == 3 ? create_nowhere : create_only);
        if (what == 0) ranks[1].plan = other;
        if (what == 1) ranks[2].seed = 6;
        if (what == 2) ranks[1].plan = of_two;
        run_ranks(ranks, 3);
        for (int r = 0; r < 3; r++)
            assert_null(ranks[r].pipeline);
        if (what == 0) assert_note(ranks, 3, 0, CGP_EINVAL, -1, "seed 5 on rank 1, plan ");
        if (what == 1) assert_note(ranks, 3, 0, CGP_EINVAL, -1, "seed 6 on rank 2, plan ");
        if (what < 2) continue;
        assert_int_equal(ranks[1].status[0], CGP_EINVAL);
        assert_note(&ranks[2], 1, 0, CGP_EPEER, -1, "rank 1: ");
        assert_note(&ranks[0], 1, 0, CGP_EPEER, -1,
                    what == 2 ? "rank 1: ranks: the plan is for 2, the communicator has 3"
                              : "rank 1: cgp_pipeline_create_on: out: expected a pointer");
    }
    cgp_plan_destroy(of_two);
    cgp_plan_destroy(other);
    free_world(&w);
}

/* --- failures --- */

static void train_and_fail(rank *r) {
    note_create(r);
    note(r, step(r, r->batch->inputs[0], r->batch->inputs[1]));
    note(r, cgp_pipeline_weights_sha256(r->pipeline, r->sha256));
}

/* If a kernel fails on one rank, all ranks fail with the message of that rank. */
TEST_CASE(a_kernel_that_fails_ends_all_ranks) {
    static const char *const faults[] = {"fail:0F1", "fail:1B0", "fail:2F2"};
    world w;
    make_world(&w);
    for (int by = 0; by < 3; by++) {
        rank ranks[3];
        make_ranks(ranks, 3, w.plan, &w.batch, train_and_fail);
        setenv("CGP_FAULT", faults[by], 1);
        run_ranks(ranks, 3);
        unsetenv("CGP_FAULT");
        for (int r = 0; r < 3; r++) {
            assert_note(&ranks[r], 1, 0, CGP_OK, -1, "");
            assert_note(&ranks[r], 1, 1, r == by ? CGP_EDEVICE : CGP_EPEER, -1, "injected");
            assert_int_not_equal(ranks[r].status[2], CGP_OK);
        }
        char name[16];
        snprintf(name, sizeof name, "rank %d: ", by);
        assert_note(&ranks[by == 0], 1, 1, CGP_EPEER, -1, name);
    }
    free_world(&w);
}

TEST_GROUP(.set_up = test_make_directory, .tear_down = remove_tree_after,
           .before = empty_tree_before);
