/* SPDX-License-Identifier: Apache-2.0 */
/* test_gradients.c -- a pipeline's gradients are the gradients of its loss.
 *
 * Random graphs (values with many uses, skips over stages) run on the backend `ref`. A random
 * direction d covers all parameters and all inputs with gradients. Let p be these values, and g
 * their gradients. Along d, the central difference (loss(p + h d) - loss(p - h d)) / 2h is compared
 * with the sum of g d.
 *
 * The test halves h until the quotient converges, or until the relative rounding of the losses,
 * about 2e-7, becomes visible. (A norm over nearly equal numbers has a large curvature.) The
 * allowed difference is curvature + rounding + 5e-3 relative, which is far smaller than any wrong
 * term. A graph is inconclusive if curvature and rounding exceed a fifth of the slope. At most 5 of
 * 100 graphs may be inconclusive. */
#include "graphs.h"

static int64_t parameter_size(const cgp_model *model, int p) {
    return cgp_shape_count(cgp_model_parameter_shape(model, p));
}

/* Move all parameters by `h` times the direction. */
static void move(cgp_pipeline *pipeline, const cgp_model *model, float *const *start,
                 float *const *direction, double h) {
    for (int p = 0; p < cgp_model_parameters(model); p++) {
        const int64_t n = parameter_size(model, p);
        float *moved = calloc((size_t)n, sizeof *moved);
        for (int64_t i = 0; i < n; i++)
            moved[i] = (float)(start[p][i] + h * direction[p][i]);
        assert_ok(cgp_pipeline_set_parameter(pipeline, p, moved));
        free(moved);
    }
}

/* Move the inputs of a batch by `h` times the direction. */
static void move_inputs(test_batch *batch, const test_batch *start, float *const *direction,
                        double h) {
    for (int k = 0; k < batch->n; k++) {
        const int64_t n = cgp_shape_count(&batch->tensors[k].shape);
        for (int64_t i = 0; direction[k] && i < n; i++)
            ((float *)batch->tensors[k].data)[i] =
                (float)(((const float *)start->tensors[k].data)[i] + h * direction[k][i]);
    }
}

/* Draw a direction `d` that gives each parameter the same weight, whatever the size of its
 * gradient. For each parameter, `d` is the sum of the gradient and a random vector, both scaled to
 * length 1. So a parameter with zero gradient moves too. Return the sum of g d. */
static double draw_direction(float *direction, const float *gradient, int64_t n, uint64_t *state) {
    double slope = 0, gradient_norm = 0, random_norm = 0;
    for (int64_t i = 0; i < n; i++) {
        direction[i] = (float)test_between(state, -1000, 1000);
        random_norm += (double)direction[i] * direction[i];
        gradient_norm += (double)gradient[i] * gradient[i];
    }
    for (int64_t i = 0; i < n; i++) {
        const double along = gradient_norm > 0 ? gradient[i] / sqrt(gradient_norm) : 0;
        direction[i] = (float)(along + direction[i] / sqrt(random_norm + 1));
        slope += (double)gradient[i] * direction[i];
    }
    return slope;
}

/* Check a random graph. Return true if it is conclusive: the slope clearly exceeds rounding and
 * curvature. */
static bool check_graph(uint64_t *state, bool images) {
    test_sizes sizes = {.layers = test_between(state, 1, 6), .sequence = test_between(state, 1, 6)};
    sizes.heads = test_between(state, 1, 2);
    sizes.width = sizes.heads * test_between(state, 2, 5);
    sizes.vocab = test_between(state, 3, 9);
    sizes.dropout = 0.25;
    cgp_model *model =
        images ? test_random_images(state, &sizes) : test_random_graph(state, &sizes);
    const int stages =
        test_between(state, 1, cgp_model_layers(model) < 4 ? cgp_model_layers(model) : 4);
    const char *devices[4] = {"ref", "ref", "ref", "ref"};
    int balance[4];
    test_random_balance(state, cgp_model_layers(model), stages, balance);
    cgp_plan_options o = cgp_plan_options_default();
    o.stages = stages;
    o.balance = balance;
    o.batch = test_between(state, 1, 5);
    o.chunks = test_between(state, 1, 4);
    o.devices = devices;
    cgp_plan *plan = NULL;
    cgp_pipeline *pipeline = NULL;
    const uint64_t seed = test_random(state);
    assert_ok(cgp_plan_create(&plan, model, &o));
    test_batch batch, moved;
    uint64_t before = *state;
    test_batch_fill(&moved, model, &sizes, o.batch, &before);
    test_batch_fill(&batch, model, &sizes, o.batch, state);
    test_results results;
    float *input_direction[4] = {NULL};
    test_results_make(&results, model, o.batch);
    const int n = cgp_model_parameters(model);
    float **start = calloc((size_t)n, sizeof *start),
          **direction = calloc((size_t)n, sizeof *direction);
    double slope = 0, losses[2], quotients[3] = {INFINITY, INFINITY, INFINITY};
    assert_ok(cgp_pipeline_create(&pipeline, plan, seed));
    assert_ok(cgp_pipeline_set_input_gradients(pipeline, results.gradient_list, results.n_inputs));
    assert_ok(cgp_pipeline_step(pipeline, batch.inputs, batch.n, NULL));
    for (int p = 0; p < n; p++) {
        const int64_t count = parameter_size(model, p);
        start[p] = calloc((size_t)count, sizeof(float));
        direction[p] = calloc((size_t)count, sizeof(float));
        float *gradient = calloc((size_t)count, sizeof(float));
        assert_ok(cgp_pipeline_get_parameter(pipeline, p, start[p]));
        assert_ok(cgp_pipeline_get_gradient(pipeline, p, gradient));
        slope += draw_direction(direction[p], gradient, count, state);
        free(gradient);
    }
    for (int k = 0; k < batch.n; k++) {
        if (!results.gradient_list[k]) continue;
        const int64_t count = cgp_shape_count(&results.gradients[k].shape);
        input_direction[k] = calloc((size_t)count, sizeof(float));
        slope += draw_direction(input_direction[k], results.gradients[k].data, count, state);
    }
    cgp_pipeline_destroy(pipeline);
    double h = 1.6e-2, curvature = INFINITY, noise = 0;
    for (int k = 0;
         k < 3 || (curvature > 2e-3 * slope && noise < fmax(5e-3 * slope, curvature / 4));
         k++, h /= 2) {
        for (int side = 0; side < 2; side++) {
            assert_ok(cgp_pipeline_create(&pipeline, plan,
                                          seed)); /* same step number, so the same dropout */
            move(pipeline, model, start, direction, side ? h : -h);
            move_inputs(&moved, &batch, input_direction, side ? h : -h);
            assert_ok(cgp_pipeline_step(pipeline, moved.inputs, moved.n, &losses[side]));
            cgp_pipeline_destroy(pipeline);
        }
        quotients[0] = quotients[1];
        quotients[1] = quotients[2];
        quotients[2] = (losses[1] - losses[0]) / (2 * h);
        /* use two differences, because a single one may be small by chance */
        curvature = fabs(quotients[2] - quotients[1]) + fabs(quotients[1] - quotients[0]);
        noise = 4e-7 * fabs(losses[0]) / h;
    }
    print_message("%d layers, %d stages, %d params: slope %.8g, quotient %.8g +- %.2g\n",
                  sizes.layers, stages, n, slope, quotients[2], curvature + noise);
    assert_true(fabs(quotients[2] - slope) <= 5e-3 * slope + curvature + noise);
    for (int p = 0; p < n; p++) {
        free(start[p]);
        free(direction[p]);
    }
    for (int k = 0; k < batch.n; k++)
        free(input_direction[k]);
    test_results_release(&results);
    test_batch_release(&moved);
    free(start);
    free(direction);
    test_batch_release(&batch);
    cgp_plan_destroy(plan);
    cgp_model_destroy(model);
    return curvature + noise <= 0.2 * slope;
}

static void check_graphs(bool images) {
    uint64_t state = test_seed();
    int telling = 0;
    for (int i = 0; i < 100; i++)
        telling += check_graph(&state, images);
    print_message("%d of 100 graphs tell\n", telling);
    assert_in_range(telling, 95, 100);
}

TEST_CASE(gradients_of_random_graphs_match_finite_differences) {
    check_graphs(false);
}

TEST_CASE(gradients_of_random_images_match_finite_differences) {
    check_graphs(true);
}

int main(void) {
    test_graph_extras = (test_extras){.outputs = 2, .input_gradients = true};
    return test_run();
}
