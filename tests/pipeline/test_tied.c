/* SPDX-License-Identifier: Apache-2.0 */
/* test_tied.c -- parameters with several uses, several losses, and integers computed by the graph.
 * Each feature is compared with a model that computes the same numbers without the feature.
 *
 * (The random graphs of test_bit_equality.c have these features too, and are bit-equal for all
 * stages, schedules and recompute modes.) */
#include "graphs.h"

#include <cgpipe/models/gpt2.h>

enum { LAYERS = 2, STAGES = 4 };

static const test_sizes sizes = {LAYERS, 7, 12, 3, 17, 0.2, false, false};

static cgp_model *gpt2(bool tied) {
    cgp_gpt2_options o = cgp_gpt2_options_default();
    o.layers = LAYERS;
    o.sequence = sizes.sequence;
    o.width = sizes.width;
    o.heads = sizes.heads;
    o.vocab = sizes.vocab;
    o.dropout = sizes.dropout;
    o.tied = tied;
    cgp_model *model = NULL;
    assert_ok(cgp_gpt2_create(&model, &o));
    return model;
}

typedef struct running {
    cgp_plan *plan;
    cgp_pipeline *pipeline;
    double loss;
} running;

static running start_groups(const cgp_model *model, int stages, int groups,
                            const test_batch *batch) {
    running r = {NULL, NULL, 0};
    cgp_plan_options o = cgp_plan_options_default();
    o.stages = stages;
    o.batch = 5;
    o.chunks = 3;
    o.gradient_groups = groups;
    assert_ok(cgp_plan_create(&r.plan, model, &o));
    assert_ok(cgp_pipeline_create(&r.pipeline, r.plan, 3));
    assert_ok(cgp_pipeline_step(r.pipeline, batch->inputs, batch->n, &r.loss));
    return r;
}

static running start(const cgp_model *model, int stages, const test_batch *batch) {
    return start_groups(model, stages, 1, batch);
}

static void stop(running *r) {
    cgp_pipeline_destroy(r->pipeline);
    cgp_plan_destroy(r->plan);
}

static int find(const cgp_model *model, const char *name) {
    for (int p = 0; p < cgp_model_parameters(model); p++) {
        if (strcmp(cgp_model_parameter_name(model, p), name) == 0) return p;
    }
    return -1;
}

/* Return the values or the gradient of the parameter with this name; the caller frees the array. */
static float *get(const cgp_model *model, cgp_pipeline *pipeline, const char *name, bool gradient) {
    const int p = find(model, name);
    assert_true(p >= 0);
    float *data = calloc((size_t)cgp_shape_count(cgp_model_parameter_shape(model, p)), 4);
    assert_non_null(data);
    assert_ok(gradient ? cgp_pipeline_get_gradient(pipeline, p, data)
                       : cgp_pipeline_get_parameter(pipeline, p, data));
    return data;
}

/* Compare a model with two untied weights of equal values and a model with one tied weight in their
 * place. The gradient of the tied weight is the sum of the gradients of the two weights. With
 * gradient groups, each of the two gradients is the sum of a tree. */
TEST_CASE(a_tied_gradient_is_the_sum_over_its_uses) {
    static const char wte[] = "transformer.wte.weight", head[] = "lm_head.weight";
    uint64_t state = test_seed();
    cgp_model *tied = gpt2(true), *untied = gpt2(false);
    assert_int_equal(find(tied, head), -1);
    assert_int_equal(cgp_model_parameters(tied), cgp_model_parameters(untied) - 1);
    const int64_t n = sizes.vocab * sizes.width;
    assert_int_equal(cgp_model_parameter_count(tied), cgp_model_parameter_count(untied) - n);
    test_batch batch;
    test_batch_fill(&batch, tied, &sizes, 5, &state);
    for (int k = 0; k < 2 * STAGES; k++) {
        const int stages = 1 + k % STAGES, groups = k < STAGES ? 1 : 4;
        running a = start_groups(tied, stages, groups, &batch);
        running b = start_groups(untied, stages, groups, &batch);
        for (int p = 0; p < cgp_model_parameters(untied); p++) {
            const char *name = cgp_model_parameter_name(untied, p);
            float *data = get(tied, a.pipeline, strcmp(name, head) == 0 ? wte : name, false);
            assert_ok(cgp_pipeline_set_parameter(b.pipeline, p, data));
            free(data);
        }
        assert_ok(cgp_pipeline_step(a.pipeline, batch.inputs, batch.n, &a.loss));
        assert_ok(cgp_pipeline_step(b.pipeline, batch.inputs, batch.n, &b.loss));
        assert_true(a.loss == b.loss);
        float *sum = get(tied, a.pipeline, wte, true);
        float *first = get(untied, b.pipeline, wte, true);
        float *second = get(untied, b.pipeline, head, true);
        for (int64_t i = 0; i < n; i++) {
            if (sum[i] != first[i] + second[i])
                fail_msg("stages %d, %d groups, element %d: %.9g, expected %.9g + %.9g", stages,
                         groups, (int)i, sum[i], first[i], second[i]);
        }
        free(second);
        free(first);
        free(sum);
        stop(&b);
        stop(&a);
    }
    test_batch_release(&batch);
    cgp_model_destroy(untied);
    cgp_model_destroy(tied);
}

/* Make a model that multiplies x by three weights, one after the other. If `tied` is true, the
 * three weights are one parameter. */
static cgp_model *three_uses(bool tied) {
    static const char *const names[] = {"a", "b", "c"};
    char name[16];
    cgp_model *model = NULL;
    assert_ok(cgp_model_create(&model, "three uses"));
    cgp_value x = cgp_model_input(model, "x", CGP_F32, 1, (int64_t[]){9});
    const cgp_value t = cgp_model_input(model, "t", CGP_I32, 1, (int64_t[]){1});
    for (int k = 0; k < 3; k++) {
        cgp_model_layer(model, names[k]);
        snprintf(name, sizeof name, "%s.weight", names[k]);
        if (tied && k > 0) cgp_model_tie(model, name, "a.weight");
        x = cgp_linear(model, x, names[k],
                       (cgp_linear_options){.out = 9, .init = {CGP_INIT_NORMAL, 0.4}});
    }
    cgp_model_loss_cross_entropy(model, x, t, -100, 1);
    assert_ok(cgp_model_finish(model));
    return model;
}

/* The sum of a tied parameter's gradients depends on the order of additions. They are added from
 * the first use to the last, on any number of stages. */
TEST_CASE(gradients_are_added_in_order_of_use) {
    float x[5 * 9];
    int32_t t[5] = {0, 8, 2, 5, 1};
    for (int i = 0; i < 45; i++)
        x[i] = (float)sin(3 * i);
    const cgp_tensor tensors[2] = {{CGP_F32, {2, {5, 9}}, x}, {CGP_I32, {2, {5, 1}}, t}};
    test_batch batch = {.n = 2, .inputs = {&tensors[0], &tensors[1]}};
    cgp_model *tied = three_uses(true), *untied = three_uses(false);
    for (int stages = 1; stages <= 3; stages++) {
        running a = start(tied, stages, &batch), b = start(untied, stages, &batch);
        float *weight = get(tied, a.pipeline, "a.weight", false);
        for (int p = 0; p < 3; p++)
            assert_ok(cgp_pipeline_set_parameter(b.pipeline, p, weight));
        assert_ok(cgp_pipeline_step(b.pipeline, batch.inputs, 2, NULL));
        float *sum = get(tied, a.pipeline, "a.weight", true), *each[3];
        for (int p = 0; p < 3; p++)
            each[p] = get(untied, b.pipeline, cgp_model_parameter_name(untied, p), true);
        for (int i = 0; i < 81; i++)
            assert_true(sum[i] == (each[0][i] + each[1][i]) + each[2][i]);
        for (int p = 0; p < 3; p++)
            free(each[p]);
        free(sum);
        free(weight);
        stop(&b);
        stop(&a);
    }
    cgp_model_destroy(untied);
    cgp_model_destroy(tied);
}

/* Gradients do not pass through integers. So a layer whose result is converted to integers runs,
 * but is not trained. */
TEST_CASE(what_only_integers_reach_is_not_trained) {
    cgp_model *model = NULL;
    assert_ok(cgp_model_create(&model, "codes"));
    const cgp_init normal = {CGP_INIT_NORMAL, 0.5};
    const cgp_value x = cgp_model_input(model, "x", CGP_F32, 2, (int64_t[]){3, 4});
    const cgp_value t = cgp_model_input(model, "t", CGP_I32, 1, (int64_t[]){3});
    cgp_model_layer(model, "encode");
    cgp_value y = cgp_linear(model, x, "encode", (cgp_linear_options){.out = 8, .init = normal});
    y = cgp_argmax(model, y);
    cgp_model_layer(model, "decode");
    y = cgp_embedding(model, y, "decode", 8, 6, normal);
    cgp_model_loss_cross_entropy(model, y, t, -100, 1);
    assert_ok(cgp_model_finish(model));
    float in[5 * 12], *weights[2];
    int32_t targets[15] = {0};
    for (int i = 0; i < 60; i++)
        in[i] = (float)cos(i);
    const cgp_tensor tensors[2] = {{CGP_F32, {3, {5, 3, 4}}, in}, {CGP_I32, {2, {5, 3}}, targets}};
    test_batch batch = {.n = 2, .inputs = {&tensors[0], &tensors[1]}};
    for (int stages = 1; stages <= 2; stages++) {
        running r = start(model, stages, &batch);
        weights[0] = get(model, r.pipeline, "encode.weight", false);
        assert_ok(cgp_optim_step(r.pipeline));
        weights[1] = get(model, r.pipeline, "encode.weight", false);
        assert_memory_equal(weights[0], weights[1], 32 * sizeof(float));
        double before = r.loss;
        assert_ok(cgp_pipeline_step(r.pipeline, batch.inputs, 2, &r.loss));
        assert_true(r.loss < before); /* the embedding after the integers is trained */
        free(weights[0]);
        free(weights[1]);
        stop(&r);
    }
    cgp_model_destroy(model);
}

/* Every stage that uses a tied parameter has memory for a copy of the parameter. Every use has
 * memory for its own gradient. */
TEST_CASE(a_tied_weight_is_paid_for_where_it_is_used) {
    cgp_model *tied = gpt2(true);
    const int64_t bytes = (4 * sizes.vocab * sizes.width + 63) / 64 * 64;
    cgp_plan_options o = cgp_plan_options_default();
    cgp_plan *one = NULL, *two = NULL;
    assert_ok(cgp_plan_create(&one, tied, &o));
    o.stages = 2;
    assert_ok(cgp_plan_create(&two, tied, &o));
    const cgp_plan_device *all = cgp_plan_device_at(one, 0);
    const cgp_plan_device *a = cgp_plan_device_at(two, 0), *b = cgp_plan_device_at(two, 1);
    assert_int_equal(all->gradient_bytes, all->parameter_bytes + bytes);
    assert_int_equal(a->parameter_bytes + b->parameter_bytes, all->parameter_bytes + bytes);
    assert_int_equal(a->gradient_bytes + b->gradient_bytes, all->gradient_bytes);
    cgp_plan_destroy(two);
    cgp_plan_destroy(one);
    cgp_model_destroy(tied);
}

/* Make a model x -> a -> logits, with two losses that have separate targets. A loss with weight 0
 * is omitted. */
static cgp_model *two_losses(double first, double second) {
    cgp_model *model = NULL;
    assert_ok(cgp_model_create(&model, "two losses"));
    const cgp_init normal = {CGP_INIT_NORMAL, 0.3};
    const cgp_value x = cgp_model_input(model, "x", CGP_F32, 1, (int64_t[]){6});
    const cgp_value t = cgp_model_input(model, "t", CGP_I32, 1, (int64_t[]){1});
    const cgp_value u = cgp_model_input(model, "u", CGP_I32, 1, (int64_t[]){1});
    cgp_model_layer(model, "a");
    const cgp_value a = cgp_linear(model, x, "a", (cgp_linear_options){.out = 5, .init = normal});
    if (first > 0) cgp_model_loss_cross_entropy(model, a, t, -100, first);
    cgp_model_layer(model, "b");
    const cgp_value b =
        cgp_linear(model, cgp_gelu(model, a), "b", (cgp_linear_options){.out = 4, .init = normal});
    if (second > 0) cgp_model_loss_cross_entropy(model, b, u, -100, second);
    cgp_model_output(model, b);
    assert_ok(cgp_model_finish(model));
    return model;
}

TEST_CASE(several_losses_add_up_by_their_weights) {
    static const double weights[3][2] = {{1, 0}, {0, 1}, {0.25, 3}};
    float x[5 * 6];
    int32_t t[5] = {0, 4, -100, 2, 1}, u[5] = {3, -100, -100, 0, 2}; /* 4 of t, 3 of u count */
    for (int i = 0; i < 30; i++)
        x[i] = (float)sin(i);
    const cgp_tensor tensors[3] = {
        {CGP_F32, {2, {5, 6}}, x}, {CGP_I32, {2, {5, 1}}, t}, {CGP_I32, {2, {5, 1}}, u}};
    test_batch batch = {.n = 3, .inputs = {&tensors[0], &tensors[1], &tensors[2]}};
    for (int stages = 1; stages <= 2; stages++) {
        double losses[3];
        float *gradients[3];
        for (int k = 0; k < 3; k++) {
            cgp_model *model = two_losses(weights[k][0], weights[k][1]);
            running r = start(model, stages, &batch);
            losses[k] = r.loss;
            gradients[k] = get(model, r.pipeline, "a.weight", true);
            double evaluated;
            assert_ok(cgp_pipeline_evaluate(r.pipeline, batch.inputs, 3, &evaluated));
            assert_true(evaluated == r.loss);
            stop(&r);
            cgp_model_destroy(model);
        }
        assert_true(fabs(losses[2] - (0.25 * losses[0] + 3 * losses[1])) < 1e-12);
        for (int i = 0; i < 30; i++) {
            const double expected = 0.25 * gradients[0][i] + 3 * gradients[1][i];
            if (!(fabs(gradients[2][i] - expected) <= 1e-6))
                fail_msg("element %d: %.9g, expected %.9g", i, gradients[2][i], expected);
        }
        for (int k = 0; k < 3; k++)
            free(gradients[k]);
    }
}

/* An output of a model may have integers: here a prediction returns the argmax of the logits. */
TEST_CASE(integers_come_out_as_they_are) {
    cgp_model *model = NULL;
    assert_ok(cgp_model_create(&model, "classes"));
    const cgp_value x = cgp_model_input(model, "x", CGP_F32, 2, (int64_t[]){2, 3});
    cgp_model_layer(model, "a");
    const cgp_value y = cgp_gelu(model, x);
    cgp_model_layer(model, "b");
    cgp_model_output(model, cgp_argmax(model, y));
    assert_ok(cgp_model_finish(model));
    assert_int_equal(cgp_model_output_dtype(model, 0), CGP_I32);
    cgp_plan_options o = cgp_plan_options_default();
    o.inference = true;
    o.stages = 2;
    cgp_plan *plan = NULL;
    cgp_pipeline *pipeline = NULL;
    assert_ok(cgp_plan_create(&plan, model, &o));
    assert_ok(cgp_pipeline_create(&pipeline, plan, 0));
    float in[12] = {1, 3, 2, 5, 5, 4, 0, 0, 9, 1, 2, 7}; /* of equal numbers, the first wins */
    int32_t out[4] = {-1, -1, -1, -1}, expected[4] = {1, 0, 2, 2};
    const cgp_tensor tensor = {CGP_F32, {3, {2, 2, 3}}, in}, *const inputs[] = {&tensor};
    cgp_tensor output = {CGP_I32, {2, {2, 2}}, out};
    assert_ok(cgp_pipeline_predict(pipeline, inputs, 1, (const cgp_tensor *[]){&output}, 1));
    assert_memory_equal(out, expected, sizeof out);
    output.dtype = CGP_F32;
    assert_status(cgp_pipeline_predict(pipeline, inputs, 1, (const cgp_tensor *[]){&output}, 1),
                  CGP_EINVAL);
    assert_message("output: expected i32 of shape [2] x [2], got f32 [2, 2]");
    cgp_pipeline_destroy(pipeline);
    cgp_plan_destroy(plan);
    cgp_model_destroy(model);
}

/* --- views of gradients --- */

/* Compare the views of complete gradients with gradients that are read from another pipeline. (A
 * read completes all gradients.) A gradient has no view if its device has its own memory or belongs
 * to another rank. */
static void compare_views(const cgp_model *model, cgp_pipeline *viewed, cgp_pipeline *other) {
    for (int p = 0; p < cgp_model_parameters(model); p++) {
        const int64_t n = cgp_shape_count(cgp_model_parameter_shape(model, p));
        float *read = malloc((size_t)n * sizeof *read);
        cgp_tensor view = {.dtype = CGP_F32, .data = read};
        assert_non_null(read);
        assert_ok(cgp_pipeline_get_gradient(other, p, read));
        const cgp_status status = cgp_pipeline_gradient_tensor(viewed, p, &view);
        if (status != CGP_OK) assert_int_equal(status, CGP_ESTATE);
        if (memcmp(view.data, read, (size_t)n * sizeof *read) != 0)
            fail_msg("%s: the view differs from the gradient", cgp_model_parameter_name(model, p));
        free(read);
    }
}

TEST_CASE(views_of_complete_gradients_have_the_sum_of_all_uses) {
    uint64_t state = test_seed();
    cgp_model *model = gpt2(true);
    for (int stages = 1; stages <= STAGES; stages++) {
        test_batch batch;
        test_batch_fill(&batch, model, &sizes, 5, &state);
        running viewed = start(model, stages, &batch), other = start(model, stages, &batch);
        assert_ok(cgp_pipeline_zero_grad(viewed.pipeline));
        assert_status(cgp_pipeline_complete_gradients(viewed.pipeline), CGP_ESTATE);
        assert_message("gradients: there are none yet (cgp_pipeline_step is due)");
        assert_ok(cgp_pipeline_zero_grad(other.pipeline));
        assert_ok(cgp_pipeline_set_accumulation(viewed.pipeline, true));
        assert_ok(cgp_pipeline_set_accumulation(other.pipeline, true));
        for (int k = 0; k < 3; k++) {
            assert_ok(cgp_pipeline_step(viewed.pipeline, batch.inputs, batch.n, NULL));
            assert_ok(cgp_pipeline_step(other.pipeline, batch.inputs, batch.n, NULL));
            if (k == 0) continue; /* complete only sums of several steps */
            for (int twice = 0; twice < 2; twice++) {
                assert_ok(cgp_pipeline_complete_gradients(viewed.pipeline));
                compare_views(model, viewed.pipeline, other.pipeline);
            }
        }
        stop(&other);
        stop(&viewed);
        test_batch_release(&batch);
    }
    cgp_model_destroy(model);
}
