/* SPDX-License-Identifier: Apache-2.0 */
/* test_states.c -- running statistics are saved in checkpoints, and only a step changes them.
 * (test_bit_equality.c and test_external_loss.c check that running statistics do not depend on the
 * layout.) */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* nftw */
#endif
#include "checkpoints.h"
#include "training.h"

enum { ROWS = 4, CHANNELS = 3, BATCH = 7, STATES = 6, STEPS = 4 };
enum { MODES = CGP_RECOMPUTE_EXCEPT_LAST_SELECTIVE + 1 };

static const test_sizes sizes = {.vocab = 5};
static const cgp_init normal = {CGP_INIT_NORMAL, 0.4};

/* Make a model with two batch norms. The first norm reads the model's input, which no parameter
 * changes. The second norm reads values that depend on the first norm. */
static cgp_model *make_model(double momentum, int channels, bool loss) {
    cgp_model *model = NULL;
    assert_ok(cgp_model_create(&model, "norms"));
    cgp_value x = cgp_model_input(model, "x", CGP_F32, 2, (int64_t[]){ROWS, CHANNELS});
    cgp_model_layer(model, "first");
    x = cgp_batch_norm(model, x, "first", 1e-3, momentum);
    cgp_model_layer(model, "middle");
    x = cgp_linear(model, x, "middle", (cgp_linear_options){.out = channels, .init = normal});
    x = cgp_relu(model, cgp_batch_norm(model, x, "second", 1e-3, momentum));
    cgp_model_layer(model, "head");
    x = cgp_linear(model, cgp_flatten(model, x), "head",
                   (cgp_linear_options){.out = sizes.vocab, .init = normal});
    cgp_model_output(model, x);
    if (loss) {
        const cgp_value y = cgp_model_input(model, "targets", CGP_I32, 1, (int64_t[]){1});
        cgp_model_loss_cross_entropy(model, x, y, -100, 1);
    }
    assert_ok(cgp_model_finish(model));
    return model;
}

/* Backends of the devices, in two variants. Whether `chunks` is even or odd selects the variant, so
 * each norm runs on both backends. */
static const char *const devices[2][3] = {{"ref", "cpu", "ref"}, {"cpu", "ref", "cpu"}};

static cgp_plan_options options(int stages, int chunks) {
    cgp_plan_options o = cgp_plan_options_default();
    o.stages = stages;
    o.batch = BATCH;
    o.chunks = chunks;
    o.devices = devices[chunks % 2];
    return o;
}

static const char *sha256(const training *t, char hex[65]) {
    assert_ok(cgp_pipeline_state_sha256(t->pipeline, hex));
    return hex;
}

/* --- a step changes them --- */

/* Expected state of the first norm. */
typedef struct statistics {
    double mean[CHANNELS], variance[CHANNELS];
    int batches;
} statistics;

static statistics statistics_of(const training *t) {
    float mean[CHANNELS], variance[CHANNELS];
    int32_t batches = 0;
    statistics s;
    assert_ok(cgp_pipeline_get_state(t->pipeline, 0, mean));
    assert_ok(cgp_pipeline_get_state(t->pipeline, 1, variance));
    assert_ok(cgp_pipeline_get_state(t->pipeline, 2, &batches));
    for (int c = 0; c < CHANNELS; c++) {
        s.mean[c] = mean[c];
        s.variance[c] = variance[c];
    }
    s.batches = batches;
    return s;
}

/* Update the statistics by their definition. The `n` samples from sample `first` on are one
 * batch. */
static void see(statistics *s, const test_batch *batch, int first, int n, double momentum) {
    const float *x = (const float *)batch->tensors[0].data + first * ROWS * CHANNELS;
    const double f = momentum < 0 ? 1.0 / ++s->batches : (s->batches++, momentum);
    for (int c = 0; c < CHANNELS; c++) {
        double mean = 0, squares = 0;
        for (int r = 0; r < n * ROWS; r++)
            mean += x[r * CHANNELS + c] / (double)(n * ROWS);
        for (int r = 0; r < n * ROWS; r++)
            squares += (x[r * CHANNELS + c] - mean) * (x[r * CHANNELS + c] - mean);
        s->mean[c] += f * (mean - s->mean[c]);
        s->variance[c] += f * (squares / (n * ROWS - 1) - s->variance[c]);
    }
}

/* Inputs are at most 1 in magnitude, and so are mean and variance. The kernel rounds mean and
 * variance to f32, and they are rounded again when they are stored in the state. Each rounding
 * changes them by at most 6e-8. */
static void assert_near(const statistics *got, const statistics *expected, const char *what) {
    for (int c = 0; c < CHANNELS; c++) {
        if (!(fabs(got->mean[c] - expected->mean[c]) <= 1e-6) ||
            !(fabs(got->variance[c] - expected->variance[c]) <= 1e-6))
            fail_msg("%s: channel %d: mean %.9g, variance %.9g, expected %.9g, %.9g", what, c,
                     got->mean[c], got->variance[c], expected->mean[c], expected->variance[c]);
    }
    assert_int_equal(got->batches, expected->batches);
}

/* Check all recompute modes, with 1 micro-batch up to more micro-batches than samples. The last
 * mini-batch is smaller. With deferred batch norms, a whole mini-batch counts as one batch. */
static void check_statistics(double momentum, bool deferred) {
    uint64_t state = test_seed();
    cgp_model *model = make_model(momentum, CHANNELS, true);
    test_batch batches[STEPS];
    for (int s = 0; s < STEPS; s++)
        test_batch_fill(&batches[s], model, &sizes, s == STEPS - 1 ? BATCH - 3 : BATCH, &state);
    for (int chunks = 1; chunks <= BATCH + 2; chunks++) {
        for (int mode = 0; mode < MODES; mode++) {
            char what[64];
            statistics expected = {.variance = {1, 1, 1}};
            cgp_plan_options o = options(1 + mode % 3, chunks);
            o.recompute = (cgp_recompute)mode;
            o.deferred_batch_norm = deferred;
            training t = training_start(model, &o, 5);
            for (int s = 0; s < STEPS; s++) {
                const int n = (int)batches[s].tensors[0].shape.dims[0];
                const int size = deferred ? n : (int)cgp_plan_microbatch(t.plan);
                for (int first = 0; first < n; first += size)
                    see(&expected, &batches[s], first, n - first < size ? n - first : size,
                        momentum);
                training_step(&t, &batches[s]);
            }
            snprintf(what, sizeof what, "%d chunks, %s", chunks, cgp_recompute_name(o.recompute));
            const statistics got = statistics_of(&t);
            assert_near(&got, &expected, what);
            training_stop(&t);
        }
    }
    for (int s = 0; s < STEPS; s++)
        test_batch_release(&batches[s]);
    cgp_model_destroy(model);
}

TEST_CASE(each_micro_batch_counts_once_in_ascending_order) {
    check_statistics(0.1, false);
    check_statistics(0.7, false);
    check_statistics(CGP_MOMENTUM_CUMULATIVE, false);
}

TEST_CASE(deferred_statistics_are_those_of_the_whole_mini_batch) {
    check_statistics(0.1, true);
    check_statistics(0.7, true);
    check_statistics(CGP_MOMENTUM_CUMULATIVE, true);
}

TEST_CASE(counts_stop_at_their_end) {
    uint64_t state = test_seed();
    cgp_model *model = make_model(0.1, CHANNELS, true);
    test_batch batch;
    test_batch_fill(&batch, model, &sizes, BATCH, &state);
    const cgp_plan_options o = options(2, 3);
    training t = training_start(model, &o, 5);
    int32_t count = INT32_MAX - 1;
    assert_ok(cgp_pipeline_set_state(t.pipeline, 2, &count));
    training_step(&t, &batch);
    assert_ok(cgp_pipeline_get_state(t.pipeline, 2, &count));
    assert_int_equal(count, INT32_MAX);
    training_stop(&t);
    test_batch_release(&batch);
    cgp_model_destroy(model);
}

/* --- nothing else changes them --- */

TEST_CASE(a_failed_step_leaves_them_as_they_were) {
    test_needs_one_rank();
    uint64_t state = test_seed();
    cgp_model *model = make_model(0.1, CHANNELS, true);
    test_batch batch;
    test_batch_fill(&batch, model, &sizes, BATCH, &state);
    for (int k = 0; k < 4; k++) {
        cgp_plan_options o = options(3, 3);
        o.schedule = k % 2 ? "1f1b" : "gpipe";
        o.recompute = CGP_RECOMPUTE_ALWAYS_SELECTIVE;
        o.deferred_batch_norm = k / 2;
        cgp_plan *plan = NULL;
        assert_ok(cgp_plan_create(&plan, model, &o));
        for (int d = 0; d < 3; d++) {
            int n = 0;
            const cgp_action *actions = cgp_schedule_actions(cgp_plan_schedule(plan), d, &n);
            for (int i = 0; i < n; i++) {
                char before[65], after[65], fault[64] = "fail:";
                training t = {plan, NULL};
                cgp_action_text(&actions[i], fault + 5, sizeof fault - 5);
                setenv("CGP_FAULT", fault, 1);
                assert_ok(cgp_pipeline_create(&t.pipeline, plan, 1));
                unsetenv("CGP_FAULT");
                const float mean[CHANNELS] = {0.1f, 0.2f, 0.3f};
                assert_ok(cgp_pipeline_set_state(t.pipeline, 0, mean));
                sha256(&t, before);
                assert_status(cgp_pipeline_step(t.pipeline, batch.inputs, batch.n, NULL),
                              CGP_EDEVICE);
                assert_string_equal(sha256(&t, after), before);
                cgp_pipeline_destroy(t.pipeline);
            }
        }
        cgp_plan_destroy(plan);
    }
    test_batch_release(&batch);
    cgp_model_destroy(model);
}

TEST_CASE(evaluation_and_prediction_change_nothing) {
    uint64_t state = test_seed();
    cgp_model *model = make_model(0.1, CHANNELS, true);
    test_batch batch;
    float logits[BATCH * 5];
    const cgp_tensor output = {CGP_F32, {2, {BATCH, 5}}, logits};
    test_batch_fill(&batch, model, &sizes, BATCH, &state);
    for (int mode = 0; mode < MODES; mode++) {
        char before[65], after[65];
        cgp_plan_options o = options(2, 3);
        o.recompute = (cgp_recompute)mode;
        training t = training_start(model, &o, 5);
        sha256(&t, before);
        assert_ok(cgp_pipeline_evaluate(t.pipeline, batch.inputs, batch.n, NULL));
        assert_ok(cgp_pipeline_predict(t.pipeline, batch.inputs, batch.n,
                                       (const cgp_tensor *[]){&output}, 1));
        assert_string_equal(sha256(&t, after), before);
        training_step(&t, &batch);
        assert_string_not_equal(sha256(&t, before), after);
        assert_ok(cgp_pipeline_evaluate(t.pipeline, batch.inputs, batch.n, NULL));
        assert_ok(cgp_pipeline_predict(t.pipeline, batch.inputs, batch.n,
                                       (const cgp_tensor *[]){&output}, 1));
        assert_string_equal(sha256(&t, after), before);
        training_stop(&t);
    }
    test_batch_release(&batch);
    cgp_model_destroy(model);
}

/* In evaluation, a sample's output does not depend on the other samples. */
TEST_CASE(evaluation_normalises_by_the_state) {
    uint64_t state = test_seed();
    cgp_model *model = make_model(0.1, CHANNELS, true);
    test_batch batch;
    float all[BATCH * 5], one[5];
    const cgp_tensor to_all = {CGP_F32, {2, {BATCH, 5}}, all}, to_one = {CGP_F32, {2, {1, 5}}, one};
    test_batch_fill(&batch, model, &sizes, BATCH, &state);
    const cgp_plan_options o = options(2, 2);
    training t = training_start(model, &o, 5);
    training_step(&t, &batch);
    assert_ok(cgp_pipeline_predict(t.pipeline, batch.inputs, batch.n,
                                   (const cgp_tensor *[]){&to_all}, 1));
    for (int i = 0; i < BATCH; i++) {
        const cgp_tensor x = {CGP_F32,
                              {3, {1, ROWS, CHANNELS}},
                              (float *)batch.tensors[0].data + i * ROWS * CHANNELS};
        const cgp_tensor *inputs[2] = {&x, NULL};
        assert_ok(cgp_pipeline_predict(t.pipeline, inputs, 2, (const cgp_tensor *[]){&to_one}, 1));
        assert_memory_equal(one, all + 5 * i, sizeof one);
    }
    training_stop(&t);
    test_batch_release(&batch);
    cgp_model_destroy(model);
}

TEST_CASE(with_an_external_loss_they_change_after_backward) {
    uint64_t state = test_seed();
    cgp_model *model = make_model(0.1, CHANNELS, false);
    test_batch batch;
    float logits[BATCH * 5], mean[CHANNELS];
    const cgp_tensor output = {CGP_F32, {2, {BATCH, 5}}, logits};
    test_batch_fill(&batch, model, &sizes, BATCH, &state);
    char before[65], after[65];
    cgp_plan_options o = options(2, 3);
    o.external_loss = true;
    training t = training_start(model, &o, 5);
    sha256(&t, before);
    assert_ok(cgp_pipeline_forward(t.pipeline, batch.inputs, batch.n,
                                   (const cgp_tensor *[]){&output}, 1));
    assert_string_equal(sha256(&t, after), before);
    assert_ok(cgp_pipeline_get_state(t.pipeline, 0, mean));
    assert_status(cgp_pipeline_set_state(t.pipeline, 0, mean), CGP_ESTATE);
    assert_message("state 0: a forward has run with it (cgp_pipeline_backward is due)");
    assert_ok(cgp_pipeline_backward(t.pipeline, (const cgp_tensor *[]){&output}, 1));
    assert_string_not_equal(sha256(&t, after), before);
    training_stop(&t);
    test_batch_release(&batch);
    cgp_model_destroy(model);
}

/* --- names, copies, bytes --- */

TEST_CASE(they_begin_as_the_op_says_and_are_copied) {
    static const char *const names[STATES] = {
        "first.running_mean",  "first.running_var",  "first.num_batches_tracked",
        "second.running_mean", "second.running_var", "second.num_batches_tracked"};
    enum { WIDE = 1500 }; /* the setter copies it in several pieces */
    cgp_model *model = make_model(0.1, WIDE, true);
    const cgp_plan_options o = options(2, 1);
    training t = training_start(model, &o, 5);
    float *data = calloc(WIDE, sizeof *data);
    assert_int_equal(cgp_model_states(model), STATES);
    for (int s = 0; s < STATES; s++) {
        const cgp_shape *shape = cgp_model_state_shape(model, s);
        assert_string_equal(cgp_model_state_name(model, s), names[s]);
        assert_int_equal(cgp_model_state_dtype(model, s), s % 3 == 2 ? CGP_I32 : CGP_F32);
        assert_int_equal(shape->rank, 1);
        assert_int_equal(shape->dims[0], s % 3 == 2 ? 1 : s < 3 ? CHANNELS : WIDE);
        for (int round = 0; round < 2; round++) {
            const float expected = round ? 0.25f * (float)s : s % 3 == 1;
            data[0] = 7;
            assert_ok(cgp_pipeline_get_state(t.pipeline, s, data));
            for (int i = 0; i < shape->dims[0]; i++) {
                assert_true(data[i] == expected);
                data[i] = 0.25f * (float)s;
            }
            assert_ok(cgp_pipeline_set_state(t.pipeline, s, data));
        }
    }
    assert_status(cgp_pipeline_get_state(t.pipeline, STATES, data), CGP_EINVAL);
    assert_message("state: the model has 6, got number 6");
    assert_status(cgp_pipeline_set_state(t.pipeline, -1, data), CGP_EINVAL);
    assert_status(cgp_pipeline_set_state(t.pipeline, 0, NULL), CGP_EINVAL);
    assert_message("cgp_pipeline_set_state: data: expected a pointer, got NULL");
    free(data);
    training_stop(&t);
    cgp_model_destroy(model);
}

static int64_t up(int64_t bytes) {
    return (bytes + 63) / 64 * 64;
}

/* Return the bytes of a batch norm's mean, variance and count. For training, add the accumulator:
 * two doubles, and two more doubles for each channel. */
static int64_t norm_bytes(int64_t channels, bool trains) {
    return 2 * up(4 * channels) + up(4) + (trains ? up(8 * (2 + 2 * channels)) : 0);
}

TEST_CASE(a_plan_has_their_bytes_where_they_are) {
    enum { WIDE = 37 };
    static const int balances[3][3] = {{3}, {1, 2}, {1, 1, 1}};
    cgp_model *model = make_model(0.1, WIDE, true);
    for (int k = 0; k < 6; k++) {
        cgp_plan_options o = options(1 + k % 3, 3);
        o.inference = k >= 3;
        o.balance = balances[k % 3];
        training t = training_start(model, &o, 5);
        const int64_t first = norm_bytes(CHANNELS, !o.inference),
                      second = norm_bytes(WIDE, !o.inference);
        const int64_t expected[3][3] = {{first + second}, {first, second}, {first, second, 0}};
        for (int d = 0; d < o.stages; d++) {
            const cgp_plan_device *device = cgp_plan_device_at(t.plan, d);
            assert_int_equal(device->state_bytes, expected[o.stages - 1][d]);
            assert_int_equal(device->planned_bytes,
                             device->parameter_bytes + device->gradient_bytes +
                                 device->optimizer_bytes + device->state_bytes +
                                 device->activation_bytes);
            assert_int_equal(cgp_pipeline_allocated_bytes(t.pipeline, d), device->planned_bytes);
        }
        training_stop(&t);
    }
    cgp_model_destroy(model);
}

/* --- saved --- */

TEST_CASE(a_checkpoint_has_them) {
    uint64_t state = test_seed();
    cgp_model *model = make_model(0.1, CHANNELS, true);
    test_batch batch;
    char saved[65], loaded[65];
    double expected = 0, got = 0;
    test_batch_fill(&batch, model, &sizes, BATCH, &state);
    cgp_plan_options o = options(1, 3);
    training t = training_start(model, &o, 5);
    training_step(&t, &batch);
    training_step(&t, &batch);
    assert_ok(cgp_pipeline_save(t.pipeline, run, 0, NULL));
    assert_ok(cgp_pipeline_evaluate(t.pipeline, batch.inputs, batch.n, &expected));
    sha256(&t, saved);
    training_stop(&t);
    o = options(3, 2);
    o.inference = true;
    t = training_start(model, &o, 5);
    assert_ok(cgp_pipeline_load(t.pipeline, run, NULL));
    assert_string_equal(sha256(&t, loaded), saved);
    assert_ok(cgp_pipeline_evaluate(t.pipeline, batch.inputs, batch.n, &got));
    /* the pipelines have different micro-batches, so their sums round differently */
    assert_true(fabs(got - expected) <= 1e-6 * expected);
    training_stop(&t);
    test_batch_release(&batch);
    cgp_model_destroy(model);
}

/* Make a model with a batch norm or with a layer norm. Both have the same parameters, but only the
 * batch norm has running statistics. */
static cgp_model *one_norm(bool batch) {
    cgp_model *model = NULL;
    assert_ok(cgp_model_create(&model, batch ? "batch" : "layer"));
    cgp_value x = cgp_model_input(model, "x", CGP_F32, 2, (int64_t[]){ROWS, CHANNELS});
    cgp_model_layer(model, "norm");
    x = batch ? cgp_batch_norm(model, x, "norm", 1e-3, 0.1)
              : cgp_layer_norm(model, x, "norm", 1e-3);
    cgp_model_output(model, x);
    assert_ok(cgp_model_finish(model));
    return model;
}

static void save(const cgp_model *model) {
    cgp_plan_options o = options(1, 1);
    o.external_loss = true;
    training t = training_start(model, &o, 5);
    assert_ok(cgp_pipeline_save(t.pipeline, run, 0, NULL));
    training_stop(&t);
}

static void assert_refused(const cgp_model *model, const char *message) {
    char before[65], after[65];
    cgp_plan_options o = options(1, 1);
    o.external_loss = true;
    training t = training_start(model, &o, 5);
    sha256(&t, before);
    assert_status(cgp_pipeline_load(t.pipeline, run, NULL), CGP_EFORMAT);
    assert_message(message);
    assert_string_equal(sha256(&t, after), before);
    training_stop(&t);
}

TEST_CASE(a_checkpoint_without_them_is_refused) {
    cgp_model *with = one_norm(true), *without = one_norm(false);
    save(without);
    assert_refused(with, "weights.safetensors: \"norm.running_mean\" of model batch is missing "
                         "(is it of another model?)");
    save(with);
    assert_refused(without, "weights.safetensors: model layer has no \"norm.running_mean\" (is "
                            "it of another model?)");
    cgp_model_destroy(with);
    cgp_model_destroy(without);
}

TEST_GROUP(.set_up = test_make_directory, .tear_down = remove_tree_after,
           .before = empty_tree_before);
