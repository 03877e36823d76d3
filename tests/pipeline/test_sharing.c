/* SPDX-License-Identifier: Apache-2.0 */
/* test_sharing.c -- tests views of parameters, gradients and states, and pipelines that share this
 * memory. If two sharing pipelines step alternately, they train like a single pipeline, bit for
 * bit. This also holds if the gradients of their steps accumulate. Incompatible pipelines cannot
 * share. */
#include "graphs.h"

#include "plan/memory/devices.h"

enum { BATCHES = 4 };

/* A model, and its plan options with random stages. */
typedef struct setting {
    cgp_model *model;
    test_sizes sizes;
    cgp_plan_options options;
    int balance[64];
    const char *devices[8];
} setting;

static void draw(setting *s, uint64_t *state, const char *device, bool images) {
    memset(s, 0, sizeof *s);
    s->sizes = (test_sizes){.layers = test_between(state, 2, 5),
                            .sequence = test_between(state, 1, 6),
                            .heads = 2,
                            .width = 8,
                            .vocab = test_between(state, 3, 9)};
    s->model = images ? test_random_images(state, &s->sizes) : test_random_graph(state, &s->sizes);
    s->options = cgp_plan_options_default();
    s->options.batch = 6;
    s->options.chunks = 3;
    s->options.precision = test_between(state, 0, 1) ? CGP_PRECISION_BF16 : CGP_PRECISION_F32;
    s->options.recompute =
        (cgp_recompute)test_between(state, 0, CGP_RECOMPUTE_EXCEPT_LAST_SELECTIVE);
    s->options.optim = cgp_optim_adamw(1e-2, 0.01);
    const int layers = cgp_model_layers(s->model);
    s->options.stages = test_between(state, 1, layers < 4 ? layers : 4);
    test_random_balance(state, layers, s->options.stages, s->balance);
    s->options.balance = s->balance;
    for (int d = 0; d < 8; d++)
        s->devices[d] = device;
    s->options.devices = s->devices;
}

/* Create a plan of the setting's model for another batch size, or for inference. */
static cgp_plan *plan_of(const setting *s, int64_t batch, int chunks, bool inference) {
    cgp_plan_options o = s->options;
    cgp_plan *plan = NULL;
    o.batch = batch;
    o.chunks = chunks;
    o.inference = inference;
    assert_ok(cgp_plan_create(&plan, s->model, &o));
    return plan;
}

static void assert_same_weights(cgp_pipeline *a, cgp_pipeline *b) {
    char x[65], y[65];
    assert_ok(cgp_pipeline_weights_sha256(a, x));
    assert_ok(cgp_pipeline_weights_sha256(b, y));
    assert_string_equal(x, y);
    assert_ok(cgp_pipeline_state_sha256(a, x));
    assert_ok(cgp_pipeline_state_sha256(b, y));
    assert_string_equal(x, y);
}

static void step(cgp_pipeline *pipeline, const test_batch *batch, double *loss) {
    assert_ok(cgp_pipeline_step(pipeline, batch->inputs, batch->n, loss));
    assert_ok(cgp_optim_step(pipeline));
}

static void assert_allocated(const cgp_pipeline *pipeline, const cgp_plan *plan, bool shares) {
    for (int d = 0; d < cgp_plan_devices(plan); d++) {
        const cgp_plan_device *device = cgp_plan_device_at(plan, d);
        const int64_t shared = cgp__plan_shared_bytes(cgp__plan_device(plan, d));
        assert_true(shared >= device->parameter_bytes + device->gradient_bytes);
        assert_int_equal(cgp_pipeline_allocated_bytes(pipeline, d),
                         device->planned_bytes - (shares ? shared : 0));
    }
}

/* Two sharing pipelines step alternately; one takes 6 samples, the other 4, in micro-batches of 2.
 * A third pipeline evaluates. */
static void check_turns(uint64_t *state, const char *device, bool images) {
    setting s;
    draw(&s, state, device, images);
    cgp_plan *large = plan_of(&s, 6, 3, false), *small = plan_of(&s, 4, 2, false),
             *inference = plan_of(&s, 6, 3, true);
    cgp_pipeline *alone = NULL, *owner = NULL, *second = NULL, *third = NULL;
    test_batch batches[BATCHES];
    assert_ok(cgp_pipeline_create(&alone, large, 7));
    assert_ok(cgp_pipeline_create(&owner, large, 7));
    assert_ok(cgp_pipeline_create_sharing(&second, small, owner));
    assert_ok(cgp_pipeline_create_sharing(&third, inference, second));
    assert_allocated(owner, large, false);
    assert_allocated(second, small, true);
    for (int b = 0; b < BATCHES; b++) {
        double expected, got;
        cgp_pipeline *turn = b % 2 ? second : owner;
        test_batch_fill(&batches[b], s.model, &s.sizes, b % 2 ? 4 : 6, state);
        step(alone, &batches[b], &expected);
        step(turn, &batches[b], &got);
        assert_memory_equal(&expected, &got, sizeof got);
        assert_int_equal(cgp_pipeline_updates(third), b + 1);
        assert_same_weights(alone, b % 2 ? owner : second);
        assert_ok(cgp_pipeline_evaluate(alone, batches[b].inputs, batches[b].n, &expected));
        assert_ok(cgp_pipeline_evaluate(third, batches[b].inputs, batches[b].n, &got));
        assert_memory_equal(&expected, &got, sizeof got);
    }
    for (int b = 0; b < BATCHES; b++)
        test_batch_release(&batches[b]);
    cgp_pipeline_destroy(third);
    cgp_pipeline_destroy(second);
    cgp_pipeline_destroy(owner);
    cgp_pipeline_destroy(alone);
    cgp_plan_destroy(inference);
    cgp_plan_destroy(small);
    cgp_plan_destroy(large);
    cgp_model_destroy(s.model);
}

TEST_CASE(two_that_take_turns_train_as_one) {
    static const char *const devices[] = {"cpu", "ref"};
    uint64_t state = test_seed();
    for (int i = 0; i < 16; i++)
        check_turns(&state, devices[i / 2 % 2], i % 2);
}

/* --- views --- */

/* Add a number to each parameter. In the pipeline `viewed`, write through the view; in the other
 * pipeline, call the setter. */
static void move_parameters(const setting *s, cgp_pipeline *viewed, cgp_pipeline *set) {
    for (int p = 0; p < cgp_model_parameters(s->model); p++) {
        cgp_tensor view;
        assert_ok(cgp_pipeline_parameter_tensor(viewed, p, &view));
        assert_true(cgp_shape_equal(&view.shape, cgp_model_parameter_shape(s->model, p)));
        const int64_t n = cgp_shape_count(&view.shape);
        float *values = calloc((size_t)n, sizeof *values);
        assert_ok(cgp_pipeline_get_parameter(set, p, values));
        assert_memory_equal(values, view.data, (size_t)n * sizeof *values);
        for (int64_t i = 0; i < n; i++)
            ((float *)view.data)[i] = values[i] += 0.25F / (float)(i % 7 + 1);
        assert_ok(cgp_pipeline_set_parameter(set, p, values));
        free(values);
    }
    assert_ok(cgp_pipeline_parameters_changed(viewed));
}

static void compare_gradients(const setting *s, cgp_pipeline *viewed, cgp_pipeline *other) {
    for (int p = 0; p < cgp_model_parameters(s->model); p++) {
        cgp_tensor view;
        assert_ok(cgp_pipeline_gradient_tensor(viewed, p, &view));
        const size_t bytes = (size_t)cgp_shape_count(&view.shape) * sizeof(float);
        float *values = malloc(bytes);
        assert_ok(cgp_pipeline_get_gradient(other, p, values));
        assert_memory_equal(values, view.data, bytes);
        free(values);
    }
    for (int k = 0; k < cgp_model_states(s->model); k++) {
        cgp_tensor view;
        assert_ok(cgp_pipeline_state_tensor(viewed, k, &view));
        const size_t bytes = (size_t)cgp_shape_count(&view.shape) * 4;
        char *values = malloc(bytes);
        assert_ok(cgp_pipeline_get_state(other, k, values));
        assert_memory_equal(values, view.data, bytes);
        free(values);
    }
}

static void check_views(uint64_t *state, const char *device, bool images) {
    setting s;
    draw(&s, state, device, images);
    cgp_plan *plan = plan_of(&s, 6, 3, false), *inference = plan_of(&s, 6, 3, true);
    cgp_pipeline *viewed = NULL, *set = NULL, *shares = NULL;
    test_batch batch;
    test_batch_fill(&batch, s.model, &s.sizes, 6, state);
    assert_ok(cgp_pipeline_create(&viewed, plan, 3));
    assert_ok(cgp_pipeline_create(&set, plan, 3));
    assert_ok(cgp_pipeline_create_sharing(&shares, inference, viewed));
    for (int k = 0; k < 3; k++) {
        double expected, got;
        move_parameters(&s, viewed, set);
        step(set, &batch, &expected);
        step(viewed, &batch, &got);
        assert_memory_equal(&expected, &got, sizeof got);
        compare_gradients(&s, viewed, set);
        assert_ok(cgp_pipeline_evaluate(set, batch.inputs, batch.n, &expected));
        assert_ok(cgp_pipeline_evaluate(shares, batch.inputs, batch.n, &got));
        assert_memory_equal(&expected, &got, sizeof got);
    }
    assert_same_weights(viewed, set);
    test_batch_release(&batch);
    cgp_pipeline_destroy(shares);
    cgp_pipeline_destroy(set);
    cgp_pipeline_destroy(viewed);
    cgp_plan_destroy(inference);
    cgp_plan_destroy(plan);
    cgp_model_destroy(s.model);
}

TEST_CASE(views_are_where_the_numbers_are) {
    uint64_t state = test_seed();
    for (int i = 0; i < 16; i++)
        check_views(&state, i & 2 ? "cpu" : "ref", i % 2);
}

TEST_CASE(a_view_of_memory_that_the_host_cannot_read_is_refused) {
    uint64_t state = 3;
    setting s;
    draw(&s, &state, "late", true);
    cgp_plan *plan = plan_of(&s, 6, 3, false), *inference = plan_of(&s, 6, 3, true);
    cgp_pipeline *pipeline = NULL;
    cgp_tensor view;
    assert_ok(cgp_pipeline_create(&pipeline, plan, 3));
    assert_status(cgp_pipeline_parameter_tensor(pipeline, 0, &view), CGP_ESTATE);
    assert_message("has memory of its own");
    assert_status(cgp_pipeline_gradient_tensor(pipeline, 0, &view), CGP_ESTATE);
    assert_status(cgp_pipeline_state_tensor(pipeline, 0, &view), CGP_ESTATE);
    assert_status(cgp_pipeline_parameter_tensor(pipeline, 9999, &view), CGP_EINVAL);
    assert_status(cgp_pipeline_state_tensor(pipeline, -1, &view), CGP_EINVAL);
    assert_ok(cgp_pipeline_parameters_changed(pipeline));
    cgp_pipeline_destroy(pipeline);
    assert_ok(cgp_pipeline_create(&pipeline, inference, 3));
    assert_status(cgp_pipeline_gradient_tensor(pipeline, 0, &view), CGP_ESTATE);
    assert_message("planned for inference");
    cgp_pipeline_destroy(pipeline);
    cgp_plan_destroy(inference);
    cgp_plan_destroy(plan);
    cgp_model_destroy(s.model);
}

/* --- two forwards before a backward --- */

static void forward(cgp_pipeline *pipeline, const setting *s, const test_batch *batch,
                    test_results *r) {
    test_results_make(r, s->model, batch->tensors[0].shape.dims[0]);
    assert_ok(cgp_pipeline_forward(pipeline, batch->inputs, cgp_model_inputs(s->model),
                                   r->output_list, r->n_outputs));
}

static void backward(cgp_pipeline *pipeline, test_results *r) {
    assert_ok(cgp_pipeline_backward(pipeline, r->output_list, r->n_outputs));
    test_results_release(r);
}

/* Sharing pipelines have separate slots and deferred statistics, so both may run a forward before
 * either runs its backward. Statistics are committed in the order in which the backwards end. */
TEST_CASE(forwards_of_two_may_be_open_at_once) {
    uint64_t state = test_seed();
    for (int i = 0; i < 8; i++) {
        setting s;
        draw(&s, &state, i & 2 ? "cpu" : "ref", true);
        cgp_model_destroy(s.model);
        s.sizes.no_loss = true;
        s.model = test_random_images(&state, &s.sizes);
        s.options.external_loss = s.options.deferred_batch_norm = true;
        s.options.stages = 2;
        test_random_balance(&state, cgp_model_layers(s.model), 2, s.balance);
        cgp_plan *plan = plan_of(&s, 6, 3, false), *small = plan_of(&s, 4, 2, false);
        cgp_pipeline *alone = NULL, *owner = NULL, *second = NULL;
        test_batch a, b;
        test_results of_a, of_b;
        test_batch_fill(&a, s.model, &s.sizes, 6, &state);
        test_batch_fill(&b, s.model, &s.sizes, 4, &state);
        assert_ok(cgp_pipeline_create(&alone, plan, 5));
        assert_ok(cgp_pipeline_create(&owner, plan, 5));
        assert_ok(cgp_pipeline_create_sharing(&second, small, owner));
        forward(alone, &s, &b, &of_b);
        backward(alone, &of_b);
        forward(alone, &s, &a, &of_a);
        backward(alone, &of_a);
        forward(owner, &s, &a, &of_a);
        forward(second, &s, &b, &of_b);
        backward(second, &of_b);
        backward(owner, &of_a);
        compare_gradients(&s, owner, alone);
        cgp_pipeline_destroy(second);
        cgp_pipeline_destroy(owner);
        cgp_pipeline_destroy(alone);
        cgp_plan_destroy(small);
        cgp_plan_destroy(plan);
        test_batch_release(&a);
        test_batch_release(&b);
        cgp_model_destroy(s.model);
    }
}

/* --- gradients of several steps --- */

static void compare_reads(const setting *s, cgp_pipeline *a, cgp_pipeline *b) {
    for (int p = 0; p < cgp_model_parameters(s->model); p++) {
        const int64_t n = cgp_shape_count(cgp_model_parameter_shape(s->model, p));
        float *x = malloc((size_t)n * sizeof *x), *y = malloc((size_t)n * sizeof *y);
        assert_ok(cgp_pipeline_get_gradient(a, p, x));
        assert_ok(cgp_pipeline_get_gradient(b, p, y));
        assert_memory_equal(x, y, (size_t)n * sizeof *x);
        free(y);
        free(x);
    }
}

/* Accumulate gradients over steps of two sharing pipelines, which step alternately. Either pipeline
 * may read and clip the gradients, and update. The pipeline `alone` makes the calls of both. The
 * plans of two[1] and `alone` may have a `clip_norm`. */
static void check_sums(uint64_t *state, const char *device, double clip_norm) {
    setting s;
    draw(&s, state, device, false);
    cgp_plan *owners = plan_of(&s, 6, 3, false);
    s.options.optim.clip_norm = clip_norm;
    cgp_plan *large = plan_of(&s, 6, 3, false), *small = plan_of(&s, 4, 2, false);
    cgp_pipeline *alone = NULL, *two[2] = {NULL, NULL};
    assert_ok(cgp_pipeline_create(&alone, large, 7));
    assert_ok(cgp_pipeline_create(&two[0], owners, 7));
    assert_ok(cgp_pipeline_create_sharing(&two[1], small, two[0]));
    cgp_pipeline *all[] = {alone, two[0], two[1]};
    for (int k = 0; k < 3; k++)
        assert_ok(cgp_pipeline_set_accumulation(all[k], true));
    for (int update = 0; update < 3; update++) {
        const int steps = test_between(state, 1, 3);
        for (int b = 0; b < steps; b++) {
            test_batch batch;
            double expected, got;
            test_batch_fill(&batch, s.model, &s.sizes, b % 2 ? 4 : 6, state);
            assert_ok(cgp_pipeline_step(alone, batch.inputs, batch.n, &expected));
            assert_ok(cgp_pipeline_step(two[b % 2], batch.inputs, batch.n, &got));
            assert_memory_equal(&expected, &got, sizeof got);
            test_batch_release(&batch);
            if (test_between(state, 0, 2) == 0)
                compare_reads(&s, alone, two[test_between(state, 0, 1)]);
        }
        if (test_between(state, 0, 1)) {
            double norms[2];
            assert_ok(cgp_pipeline_clip_grad_norm(alone, 1e-3, &norms[0]));
            assert_ok(cgp_pipeline_clip_grad_norm(two[test_between(state, 0, 1)], 1e-3, &norms[1]));
            assert_memory_equal(&norms[0], &norms[1], sizeof norms[0]);
        }
        assert_ok(cgp_optim_step(alone));
        cgp_pipeline *updates = two[clip_norm > 0 ? 1 : test_between(state, 0, 1)];
        assert_ok(cgp_optim_step(updates));
        if (clip_norm > 0)
            assert_true(cgp_pipeline_gradient_norm(updates) == cgp_pipeline_gradient_norm(alone));
        assert_same_weights(alone, two[0]);
    }
    for (int k = 2; k >= 0; k--)
        cgp_pipeline_destroy(all[k]);
    cgp_plan_destroy(small);
    cgp_plan_destroy(large);
    cgp_plan_destroy(owners);
    cgp_model_destroy(s.model);
}

TEST_CASE(steps_of_two_add_up_as_those_of_one) {
    uint64_t state = test_seed();
    for (int i = 0; i < 24; i++)
        check_sums(&state, i % 2 ? "cpu" : "ref", i / 2 % 2 ? 1e-3 : 0);
}

static void refuse_step(cgp_pipeline *pipeline, const test_batch *batch, const char *message) {
    assert_status(cgp_pipeline_step(pipeline, batch->inputs, batch->n, NULL), CGP_ESTATE);
    assert_message(message);
}

/* Either of two sharing pipelines may clip or discard the accumulated gradients. If an update must
 * be refused, both pipelines refuse it for the same reason. */
TEST_CASE(what_waits_is_the_same_for_two) {
    uint64_t state = test_seed();
    setting s;
    draw(&s, &state, "cpu", false);
    cgp_plan *plan = plan_of(&s, 6, 3, false), *inference = plan_of(&s, 6, 3, true);
    cgp_pipeline *a = NULL, *b = NULL, *c = NULL;
    test_batch batch;
    float value;
    test_batch_fill(&batch, s.model, &s.sizes, 6, &state);
    assert_ok(cgp_pipeline_create(&a, plan, 3));
    assert_ok(cgp_pipeline_create_sharing(&b, plan, a));
    assert_ok(cgp_pipeline_create_sharing(&c, inference, a));
    assert_ok(cgp_pipeline_set_accumulation(a, true));
    assert_ok(cgp_pipeline_step(a, batch.inputs, batch.n, NULL));
    assert_status(cgp_optim_step(c), CGP_ESTATE); /* an inference plan has no optimizer */
    assert_status(cgp_pipeline_get_gradient(c, 0, &value), CGP_ESTATE);
    assert_ok(cgp_pipeline_clip_grad_norm(b, 1, NULL));
    refuse_step(a, &batch, "are clipped");
    assert_status(cgp_pipeline_set_updates(b, 5), CGP_ESTATE);
    assert_ok(cgp_pipeline_zero_grad(b));
    assert_status(cgp_pipeline_get_gradient(a, 0, &value), CGP_ESTATE);
    assert_status(cgp_optim_step(a), CGP_ESTATE);
    const int64_t count = cgp_shape_count(cgp_model_parameter_shape(s.model, 0));
    float *good = malloc((size_t)count * sizeof *good), *bad = malloc((size_t)count * sizeof *bad);
    for (int64_t i = 0; i < count; i++)
        bad[i] = NAN;
    assert_ok(cgp_pipeline_get_parameter(a, 0, good));
    assert_ok(cgp_pipeline_set_parameter(a, 0, bad));
    assert_ok(cgp_pipeline_step(a, batch.inputs, batch.n, NULL));
    assert_ok(cgp_pipeline_set_parameter(a, 0, good));
    assert_status(cgp_optim_step(b), CGP_ESTATE);
    assert_message("loss: is not finite");
    free(bad);
    free(good);
    test_batch_release(&batch);
    cgp_pipeline_destroy(c);
    cgp_pipeline_destroy(b);
    cgp_pipeline_destroy(a);
    cgp_plan_destroy(inference);
    cgp_plan_destroy(plan);
    cgp_model_destroy(s.model);
}

/* --- dropout, refusals --- */

static cgp_model *mlp(int64_t width, double p, const char *name) {
    cgp_model *model = NULL;
    assert_ok(cgp_model_create(&model, "mlp"));
    const cgp_value x = cgp_model_input(model, "x", CGP_F32, 1, (int64_t[]){8});
    const cgp_value t = cgp_model_input(model, "t", CGP_I32, 1, (int64_t[]){1});
    const cgp_init init = {CGP_INIT_NORMAL, 0.5};
    cgp_model_layer(model, "a");
    cgp_value y = cgp_linear(model, x, name, (cgp_linear_options){.out = width, .init = init});
    cgp_model_layer(model, "b");
    y = cgp_linear(model, cgp_dropout(model, y, p), "b",
                   (cgp_linear_options){.out = 3, .init = init});
    cgp_model_loss_cross_entropy(model, y, t, -100, 1);
    assert_ok(cgp_model_finish(model));
    return model;
}

TEST_CASE(masks_of_dropout_are_not_the_owners) {
    test_needs_cpu();
    uint64_t state = 11;
    cgp_model *model = mlp(64, 0.5, "a");
    cgp_plan *plan = NULL;
    cgp_pipeline *owner = NULL, *pipelines[3];
    cgp_plan_options o = cgp_plan_options_default();
    test_batch batch;
    double losses[3];
    o.batch = 6;
    test_batch_fill(&batch, model, &(const test_sizes){.vocab = 3}, 6, &state);
    assert_ok(cgp_plan_create(&plan, model, &o));
    assert_ok(cgp_pipeline_create(&owner, plan, 5));
    pipelines[0] = owner;
    for (int k = 1; k < 3; k++)
        assert_ok(cgp_pipeline_create_sharing(&pipelines[k], plan, owner));
    for (int k = 0; k < 3; k++)
        assert_ok(cgp_pipeline_step(pipelines[k], batch.inputs, batch.n, &losses[k]));
    assert_true(losses[0] != losses[1] && losses[0] != losses[2] && losses[1] != losses[2]);
    for (int k = 2; k >= 0; k--)
        cgp_pipeline_destroy(pipelines[k]);
    cgp_plan_destroy(plan);
    test_batch_release(&batch);
    cgp_model_destroy(model);
}

/* Assert that a pipeline with these plan options cannot share memory with the owner. */
static void refuse(const cgp_model *model, const cgp_plan_options *o, cgp_pipeline *owner,
                   const char *message) {
    cgp_plan *plan = NULL;
    cgp_pipeline *pipeline = NULL;
    assert_ok(cgp_plan_create(&plan, model, o));
    assert_status(cgp_pipeline_create_sharing(&pipeline, plan, owner), CGP_EINVAL);
    assert_message(message);
    assert_null(pipeline);
    cgp_plan_destroy(plan);
}

TEST_CASE(what_differs_is_refused) {
    static const char *const names[] = {"ref", "ref"};
    cgp_model *model = mlp(4, 0, "a"), *wider = mlp(5, 0, "a"), *other = mlp(4, 0, "c");
    cgp_plan_options o = cgp_plan_options_default();
    cgp_plan *plan = NULL, *inference = NULL;
    cgp_pipeline *owner = NULL, *without_gradients = NULL;
    o.batch = 6;
    o.stages = 2;
    o.devices = (const char *const[]){"cpu", "cpu"};
    assert_ok(cgp_plan_create(&plan, model, &o));
    o.inference = true;
    assert_ok(cgp_plan_create(&inference, model, &o));
    o.inference = false;
    assert_ok(cgp_pipeline_create(&owner, plan, 1));
    assert_ok(cgp_pipeline_create(&without_gradients, inference, 1));
    refuse(wider, &o, owner, "a.weight: has another shape than the owner's");
    refuse(other, &o, owner, "c.weight: is no parameter of the owner at this place");
    refuse(model, &o, without_gradients, "planned for inference and has no gradients");
    cgp_plan_options with = o;
    with.optim = cgp_optim_adamw(1e-3, 0);
    with.optim.kind = o.optim.kind == CGP_OPTIM_SGD ? CGP_OPTIM_ADAMW : CGP_OPTIM_SGD;
    refuse(model, &with, owner, "the optimizer is not the owner's");
    with = o;
    with.devices = names;
    refuse(model, &with, owner, "device 0 is ref:0");
    with = o;
    with.devices = (const char *const[]){"late", "late"};
    refuse(model, &with, owner, "device late:0 has memory of its own");
    with = o;
    with.stages = 1;
    refuse(model, &with, owner, "expected 2 devices, as the owner's, got 1");
    with = o;
    with.ranks = 2;
    refuse(model, &with, owner, "expected plans for 1 rank, got 2 and 1");
    cgp_pipeline_destroy(without_gradients);
    cgp_pipeline_destroy(owner);
    cgp_plan_destroy(inference);
    cgp_plan_destroy(plan);
    cgp_model_destroy(other);
    cgp_model_destroy(wider);
    cgp_model_destroy(model);
}
