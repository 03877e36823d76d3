/* SPDX-License-Identifier: Apache-2.0 */
/* test_frozen.c -- frozen parameters keep their values, and the other parameters train to the same
 * bits. Memory and work fall by exactly the cost of training the frozen parameters.
 *
 * (In test_bit_equality.c half of the random graphs have frozen parameters. They are bit-equal for
 * all stages, schedules, recompute modes and devices.) */
#define _GNU_SOURCE
#include "checkpoints.h"
#include "graphs.h"
#include "training.h"

enum { IN = 24, WIDTH = 40, OUT = 10, BATCH = 6, CHUNKS = 3 };

/* Make a model of three linear layers with biases, and relu between them: 24 -> 40 -> 40 -> 10. */
static cgp_model *mlp(void) {
    cgp_model *model = NULL;
    assert_ok(cgp_model_create(&model, "mlp"));
    const cgp_init init = {CGP_INIT_NORMAL, 0.2};
    cgp_value x = cgp_model_input(model, "x", CGP_F32, 1, (int64_t[]){IN});
    const cgp_value targets = cgp_model_input(model, "targets", CGP_I32, 1, (int64_t[]){1});
    cgp_model_layer(model, "first");
    x = cgp_linear(model, x, "first", (cgp_linear_options){WIDTH, true, false, init, init});
    cgp_model_layer(model, "second");
    x = cgp_linear(model, cgp_relu(model, x), "second",
                   (cgp_linear_options){WIDTH, true, false, init, init});
    cgp_model_layer(model, "third");
    x = cgp_linear(model, cgp_relu(model, x), "third",
                   (cgp_linear_options){OUT, true, false, init, init});
    cgp_model_loss_cross_entropy(model, x, targets, -100, 1);
    assert_ok(cgp_model_finish(model));
    return model;
}

static const test_sizes mlp_sizes = {.vocab = OUT};

static cgp_plan_options options_of(int stages) {
    cgp_plan_options o = cgp_plan_options_default();
    o.stages = stages;
    o.batch = BATCH;
    o.chunks = CHUNKS;
    o.optim = cgp_optim_adamw(1e-2, 0.1);
    return o;
}

static int find(const cgp_model *model, const char *name) {
    int p = cgp_model_parameters(model) - 1;
    while (p >= 0 && strcmp(cgp_model_parameter_name(model, p), name) != 0)
        p--;
    assert_true(p >= 0);
    return p;
}

/* Return the values or the gradient of a parameter. The caller frees the array. */
static float *get(const training *t, const cgp_model *model, int p, bool gradient) {
    const int64_t count = cgp_shape_count(cgp_model_parameter_shape(model, p));
    float *data = calloc((size_t)count, sizeof *data);
    assert_non_null(data);
    assert_ok(gradient ? cgp_pipeline_get_gradient(t->pipeline, p, data)
                       : cgp_pipeline_get_parameter(t->pipeline, p, data));
    return data;
}

static void assert_equal_and_free(float *a, float *b, const cgp_model *model, int p) {
    const int64_t count = cgp_shape_count(cgp_model_parameter_shape(model, p));
    if (memcmp(a, b, 4 * (size_t)count) != 0)
        print_error("parameter %s differs\n", cgp_model_parameter_name(model, p));
    assert_memory_equal(a, b, 4 * (size_t)count);
    free(a);
    free(b);
}

/* Compare the gradients of trainable parameters with their gradients in a model without frozen
 * parameters. Check that a few updates leave the values of frozen parameters unchanged. */
static void check_values(cgp_model *(*make)(uint64_t *, const test_sizes *), uint64_t *state,
                         const test_sizes *sizes) {
    uint64_t again = *state;
    test_graph_extras.frozen = false;
    cgp_model *free_model = make(state, sizes), *model = make(&again, sizes);
    test_graph_extras.frozen = true;
    for (int frozen = 0; frozen == 0;) {
        test_random_freeze(state, model);
        for (int p = 0; p < cgp_model_parameters(model); p++)
            frozen += cgp_model_parameter_frozen(model, p);
    }
    cgp_plan_options o = options_of(test_between(state, 1, 2));
    o.batch = o.chunks = 3;
    const uint64_t seed = test_random(state);
    test_batch batch;
    test_batch_fill(&batch, model, sizes, o.batch, state);
    training all = training_start(free_model, &o, seed), t = training_start(model, &o, seed);
    (void)training_step(&all, &batch);
    for (int step = 0; step < 3; step++) {
        const double loss = training_step(&t, &batch);
        assert_true(isfinite(loss));
        for (int p = 0; step == 0 && p < cgp_model_parameters(model); p++) {
            if (cgp_model_parameter_frozen(model, p)) continue;
            assert_equal_and_free(get(&t, model, p, true), get(&all, model, p, true), model, p);
            assert_equal_and_free(get(&t, model, p, false), get(&all, model, p, false), model, p);
        }
    }
    training_stop(&all);
    all = training_start(free_model, &o, seed);
    for (int p = 0; p < cgp_model_parameters(model); p++) {
        if (cgp_model_parameter_frozen(model, p))
            assert_equal_and_free(get(&t, model, p, false), get(&all, model, p, false), model, p);
    }
    training_stop(&all);
    training_stop(&t);
    test_batch_release(&batch);
    cgp_model_destroy(model);
    cgp_model_destroy(free_model);
}

TEST_CASE(gradients_of_the_others_are_the_same_bits_and_frozen_values_stay) {
    uint64_t state = test_seed();
    for (int i = 0; i < test_scaled(20); i++) {
        test_sizes sizes = {.layers = test_between(&state, 1, 4), .sequence = 5, .heads = 2};
        sizes.width = 2 * test_between(&state, 1, 6);
        sizes.vocab = 9;
        sizes.dropout = 0.2;
        check_values(i % 2 ? test_random_images : test_random_graph, &state, &sizes);
    }
}

/* --- memory --- */

static int64_t aligned(int64_t bytes) {
    return (bytes + 63) / 64 * 64;
}

typedef struct memory {
    int64_t parameters, gradients, optimizer, saved, planned;
} memory;

/* Freeze the parameters whose names match `patterns`, plan the model, run a step, and return the
 * planned memory. */
static memory measure(const char *const *patterns, cgp_recompute recompute) {
    cgp_model *model = mlp();
    for (; *patterns; patterns++)
        assert_ok(cgp_model_freeze(model, *patterns));
    cgp_plan_options o = options_of(1);
    o.recompute = recompute;
    training t = training_start(model, &o, 1);
    uint64_t state = 1;
    test_batch batch;
    test_batch_fill(&batch, model, &mlp_sizes, BATCH, &state);
    (void)training_step(&t, &batch);
    test_batch_release(&batch);
    const cgp_plan_device *device = cgp_plan_device_at(t.plan, 0);
    const cgp_plan_stage *stage = cgp_plan_stage_at(t.plan, 0);
    const memory m = {device->parameter_bytes, device->gradient_bytes, device->optimizer_bytes,
                      stage->saved_slot_bytes, device->planned_bytes};
    training_stop(&t);
    cgp_model_destroy(model);
    return m;
}

TEST_CASE(gradients_and_optimizer_fall_by_the_bytes_of_frozen_parameters) {
    const memory all = measure((const char *[]){NULL}, CGP_RECOMPUTE_NEVER);
    const memory some = measure((const char *[]){"second.*", NULL}, CGP_RECOMPUTE_NEVER);
    const int64_t frozen = aligned(4 * WIDTH * WIDTH) + aligned(4 * WIDTH);
    assert_int_equal(some.parameters, all.parameters);
    assert_int_equal(all.gradients - some.gradients, frozen);
    assert_int_equal(all.optimizer - some.optimizer, 2 * frozen);
}

TEST_CASE(a_frozen_linear_does_not_save_its_input) {
    test_needs_cpu();
    const int64_t rows = BATCH / CHUNKS;
    const memory all = measure((const char *[]){NULL}, CGP_RECOMPUTE_NEVER);
    /* the input of the second linear stays saved, because it is the result of relu, and relu's
     * backward reads it */
    const memory second = measure((const char *[]){"second.weight", NULL}, CGP_RECOMPUTE_NEVER);
    assert_int_equal(second.saved, all.saved);
    /* no gradient is needed before the third linear, so relu's result is not saved for relu's
     * backward */
    const memory before =
        measure((const char *[]){"first.*", "second.*", NULL}, CGP_RECOMPUTE_NEVER);
    assert_int_equal(all.saved - before.saved, aligned(4 * rows * WIDTH));
    /* only the bias of the third linear is trainable, and its gradient does not depend on the
     * input */
    const memory bias =
        measure((const char *[]){"first.*", "second.*", "*.weight", NULL}, CGP_RECOMPUTE_NEVER);
    assert_int_equal(before.saved - bias.saved, aligned(4 * rows * WIDTH));
}

/* --- what is refused --- */

TEST_CASE(patterns_are_a_shells) {
    cgp_model *model = mlp();
    assert_ok(cgp_model_freeze(model, "[fs]*.bias"));
    assert_true(cgp_model_parameter_frozen(model, find(model, "first.bias")));
    assert_true(cgp_model_parameter_frozen(model, find(model, "second.bias")));
    assert_false(cgp_model_parameter_frozen(model, find(model, "third.bias")));
    assert_false(cgp_model_parameter_frozen(model, find(model, "first.weight")));
    assert_false(cgp_model_parameter_frozen(model, -1));
    assert_false(cgp_model_parameter_frozen(model, 6));
    cgp_model_destroy(model);
}

TEST_CASE(a_pattern_that_matches_nothing_is_refused) {
    cgp_model *model = mlp();
    assert_status(cgp_model_freeze(model, "frist.weight"), CGP_EINVAL);
    assert_message(
        "no parameter of model mlp matches \"frist.weight\" (did you mean first.weight?)");
    assert_status(cgp_model_freeze(model, ""), CGP_EINVAL);
    cgp_model_destroy(model);
}

TEST_CASE(a_planned_model_is_not_frozen_any_more) {
    cgp_model *model = mlp();
    const cgp_plan_options o = options_of(1);
    cgp_plan *plan = NULL;
    assert_ok(cgp_plan_create(&plan, model, &o));
    assert_status(cgp_model_freeze(model, "first.*"), CGP_ESTATE);
    assert_message("a plan was made of it");
    assert_false(cgp_model_parameter_frozen(model, find(model, "first.weight")));
    cgp_plan_destroy(plan);
    cgp_model_destroy(model);
}

TEST_CASE(a_model_without_a_trainable_parameter_is_not_planned) {
    cgp_model *model = mlp();
    cgp_plan_options o = options_of(1);
    cgp_plan *plan = NULL;
    assert_ok(cgp_model_freeze(model, "*"));
    assert_status(cgp_plan_create(&plan, model, &o), CGP_EINVAL);
    assert_message("has no parameter to train, as all are frozen");
    o = cgp_plan_options_default();
    o.inference = true;
    assert_ok(cgp_plan_create(&plan, model, &o));
    cgp_plan_destroy(plan);
    cgp_model_destroy(model);
}

TEST_CASE(a_frozen_parameter_has_no_gradient_and_no_optimizer_state) {
    cgp_model *model = mlp();
    assert_ok(cgp_model_freeze(model, "first.*"));
    cgp_plan_options o = options_of(2);
    o.optim.clip_norm = 1e6;
    training t = training_start(model, &o, 1);
    uint64_t state = 1;
    test_batch batch;
    test_batch_fill(&batch, model, &mlp_sizes, BATCH, &state);
    (void)training_step(&t, &batch);
    float data[IN * WIDTH];
    cgp_tensor tensor;
    const int p = find(model, "first.weight");
    assert_status(cgp_pipeline_get_gradient(t.pipeline, p, data), CGP_EINVAL);
    assert_message("gradient: parameter first.weight is frozen");
    assert_status(cgp_pipeline_gradient_tensor(t.pipeline, p, &tensor), CGP_EINVAL);
    assert_status(cgp_pipeline_get_optimizer_state(t.pipeline, p, 0, data), CGP_EINVAL);
    assert_status(cgp_pipeline_set_optimizer_state(t.pipeline, p, 0, data), CGP_EINVAL);
    double squares = 0;
    for (int q = 0; q < cgp_model_parameters(model); q++) {
        if (cgp_model_parameter_frozen(model, q)) continue;
        float *gradient = get(&t, model, q, true);
        for (int64_t i = 0; i < cgp_shape_count(cgp_model_parameter_shape(model, q)); i++)
            squares += (double)gradient[i] * gradient[i];
        free(gradient);
    }
    const double norm = cgp_pipeline_gradient_norm(t.pipeline);
    assert_true(fabs(norm - sqrt(squares)) <= 1e-9 * norm);
    test_batch_release(&batch);
    training_stop(&t);
    cgp_model_destroy(model);
}

static cgp_model *frozen_mlp(const char *pattern) {
    cgp_model *model = mlp();
    if (pattern) assert_ok(cgp_model_freeze(model, pattern));
    return model;
}

/* --- schedules --- */

/* Count the actions of a kind on a stage of a planned step. */
static int count(const cgp_plan *plan, cgp_action_kind kind, int stage) {
    const cgp_schedule *schedule = cgp_plan_schedule(plan);
    int n = 0, found = 0;
    const cgp_action *actions =
        cgp_schedule_actions(schedule, cgp_schedule_device_of(schedule, stage), &n);
    for (int i = 0; i < n; i++)
        found += actions[i].kind == kind && actions[i].stage == stage;
    return found;
}

static cgp_plan *plan_frozen(cgp_model *model, const char *schedule, int chunks) {
    cgp_plan_options o = options_of(3);
    o.schedule = schedule;
    o.balance = (const int[]){1, 1, 1};
    o.chunks = chunks;
    o.batch = 2 * chunks;
    cgp_plan *plan = NULL;
    assert_ok(cgp_plan_create(&plan, model, &o));
    return plan;
}

TEST_CASE(a_stage_with_nothing_to_train_before_it_runs_forward_only) {
    static const char *const schedules[] = {"gpipe", "1f1b", "zb-h1", "zb-1p"};
    for (int k = 0; k < 4; k++) {
        cgp_model *model = frozen_mlp("first.*");
        cgp_plan *plan = plan_frozen(model, schedules[k], 12);
        for (int kind = CGP_ACTION_B; kind <= CGP_ACTION_R; kind++)
            assert_int_equal(count(plan, (cgp_action_kind)kind, 0), 0);
        assert_int_equal(count(plan, CGP_ACTION_RECV_B, 0), 0);
        assert_int_equal(count(plan, CGP_ACTION_F, 0), 12);
        assert_int_equal(count(plan, CGP_ACTION_B, 1) + count(plan, CGP_ACTION_W, 1), 12);
        assert_int_equal(cgp_plan_stage_at(plan, 0)->saved_slots, 0);
        assert_int_equal(cgp_plan_stage_at(plan, 0)->saved_slot_bytes, 0);
        for (int e = 0; e < cgp_plan_edges(plan); e++) {
            const cgp_plan_edge edge = cgp_plan_edge_at(plan, e);
            assert_true(edge.from < edge.to || edge.to > 0);
            /* the first stage may run ahead of the other stages, but not by the whole mini-batch */
            if (edge.from == 0) assert_in_range(edge.buffers, 2, 4);
        }
        cgp_plan_destroy(plan);
        cgp_model_destroy(model);
    }
}

TEST_CASE(a_frozen_stage_after_a_trainable_one_has_no_weight_backward) {
    static const char *const schedules[] = {"zb-h1", "zb-h2", "zb-1p", "zb-2p"};
    for (int k = 0; k < 4; k++) {
        cgp_model *model = frozen_mlp("second.*");
        cgp_plan *plan = plan_frozen(model, schedules[k], 8);
        assert_int_equal(count(plan, CGP_ACTION_W, 0), 8);
        assert_int_equal(count(plan, CGP_ACTION_W, 1), 0);
        assert_int_equal(count(plan, CGP_ACTION_I, 1), 8);
        assert_int_equal(count(plan, CGP_ACTION_W, 2), 8);
        cgp_plan_destroy(plan);
        cgp_model_destroy(model);
    }
}

TEST_CASE(a_table_must_have_what_a_stage_trains) {
    static const char forward[] = "0F0,0F1,,,,\n,1F0,1F1,1I0,1W0,1I1,1W1\n";
    static const char input[] = "0F0,0F1,,,0I0,0I1\n,1F0,1I0,1F1,1I1,1W0,1W1\n";
    cgp_model *model = mlp(), *frozen = frozen_mlp("first.*");
    cgp_plan_options o = options_of(2);
    cgp_schedule *tables[2] = {NULL};
    cgp_plan *plan = NULL;
    assert_ok(cgp_schedule_from_csv(&tables[0], "forward", forward, sizeof forward - 1));
    assert_ok(cgp_schedule_from_csv(&tables[1], "input", input, sizeof input - 1));
    o.balance = (const int[]){1, 2};
    o.chunks = 2;
    o.table = tables[0];
    assert_status(cgp_plan_create(&plan, model, &o), CGP_EINVAL);
    assert_message("schedule forward: stage 0 has a gradient to compute, expected a backward");
    o.table = tables[1];
    assert_status(cgp_plan_create(&plan, model, &o), CGP_EINVAL);
    assert_message("schedule input: stage 0 has parameters to train, expected W");
    for (int k = 0; k < 2; k++) {
        o.table = tables[k];
        assert_ok(cgp_plan_create(&plan, frozen, &o));
        assert_int_equal(count(plan, CGP_ACTION_I, 0), 0);
        cgp_plan_destroy(plan);
        cgp_schedule_destroy(tables[k]);
    }
    cgp_model_destroy(model);
    cgp_model_destroy(frozen);
}

/* --- checkpoints --- */

/* Train two steps with the parameters `saved` frozen, and save. Load the checkpoint into a pipeline
 * with the parameters `loaded` frozen, and train two more steps. Return the status of the load. */
static cgp_status save_and_load(const char *saved, const char *loaded, int stages, hashes *out) {
    cgp_model *from = frozen_mlp(saved), *to = frozen_mlp(loaded);
    const cgp_plan_options o = options_of(2), other = options_of(stages);
    uint64_t state = 5;
    test_batch batch;
    test_batch_fill(&batch, from, &mlp_sizes, BATCH, &state);
    training t = training_start(from, &o, 1), u = training_start(to, &other, 2);
    for (int step = 0; step < 2; step++)
        (void)training_step(&t, &batch);
    remove_tree(run);
    assert_ok(cgp_pipeline_save(t.pipeline, run, 0, NULL));
    const cgp_status status = cgp_pipeline_load(u.pipeline, run, NULL);
    for (int step = 0; status == CGP_OK && step < 2; step++)
        (void)training_step(&u, &batch);
    if (status == CGP_OK) *out = hashes_of(&u);
    training_stop(&t);
    training_stop(&u);
    test_batch_release(&batch);
    cgp_model_destroy(from);
    cgp_model_destroy(to);
    return status;
}

TEST_CASE(a_checkpoint_has_frozen_parameters_and_goes_on) {
    hashes one, two;
    assert_ok(save_and_load("second.*", "second.*", 1, &one));
    assert_ok(save_and_load("second.*", "second.*", 3, &two));
    assert_same(&two, &one);
}

TEST_CASE(a_checkpoint_from_before_the_freeze_loads) {
    hashes one, two;
    assert_ok(save_and_load(NULL, "first.*", 1, &one));
    assert_ok(save_and_load(NULL, "first.*", 2, &two));
    assert_same(&two, &one);
}

TEST_CASE(a_checkpoint_that_lacks_optimizer_state_is_refused) {
    hashes none;
    assert_status(save_and_load("first.*", NULL, 1, &none), CGP_EFORMAT);
    assert_message("\"first.weight.exp_avg\" of model mlp is missing (was the parameter frozen?");
}

TEST_GROUP(.set_up = test_make_directory, .tear_down = remove_tree_after,
           .before = empty_tree_before);
