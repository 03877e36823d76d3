/* SPDX-License-Identifier: Apache-2.0 */
/* test_captured_graphs.c -- trainings with and without captured graphs are bit-equal. The tests run
 * on the backend `late`. In addition, they capture every action again at each use, and compare the
 * new graph with the first one. (test_cuda_graphs tests this on cuda-host.) */
#include "graphs.h"

#include <limits.h>
#include <stdatomic.h>

#include "backend/registry.h"
#include "late/late.h"
#include "custom_models.h"
#include "pipeline/run/captured_graphs.h"

enum { STEPS = 3, DRAWS = 6 };

/* --- a copy of `late` that counts --- */

static struct {
    atomic_int begun, run;
    atomic_int memory;  /* number of further captures that succeed */
    atomic_bool forgot; /* invert the argument `first` of every kernel */
    atomic_int dropped; /* n: skip the n-th kernel from here; 0: none */
} counted;

static cgp_status counted_begin(cgp_device *device) {
    counted.begun++;
    return cgp__backend_late.graphs->capture_begin(device);
}

static cgp_status counted_end(cgp_device *device, cgp_captured_graph **out) {
    CGP_TRY(cgp__backend_late.graphs->capture_end(device, out));
    if (counted.memory-- > 0) return CGP_OK;
    if (*out) cgp__backend_late.graphs->destroy(*out);
    *out = NULL;
    return cgp_fail(CGP_ENOMEM, "counted: no memory");
}

static cgp_status counted_run(cgp_captured_graph *graph, int64_t tag) {
    counted.run++;
    return cgp__backend_late.graphs->launch(graph, tag);
}

static cgp_status counted_kernel(cgp_kernel *kernel, const cgp_kernel_args *args) {
    cgp_kernel_args a = *args;
    if (counted.dropped > 0 && --counted.dropped == 0) return CGP_OK;
    a.first = a.first != counted.forgot;
    return cgp__backend_late.kernels.run(kernel, &a);
}

static void add_counted(void) {
    static cgp_backend backend;
    static cgp_backend_graphs graphs;
    if (!backend.name) {
        backend = cgp__backend_late;
        graphs = *backend.graphs;
        backend.name = "counted";
        graphs.capture_begin = counted_begin;
        graphs.capture_end = counted_end;
        graphs.launch = counted_run;
        backend.graphs = &graphs;
        backend.kernels.run = counted_kernel;
    }
    assert_ok(cgp__backend_add(&backend));
    counted.begun = counted.run = 0;
    counted.memory = INT_MAX;
    counted.forgot = false;
    counted.dropped = 0;
}

static const char *const on_counted[8] = {"counted", "counted", "counted", "counted",
                                          "counted", "counted", "counted", "counted"};
static const char *const on_cpu[8] = {"cpu", "cpu", "cpu", "cpu", "cpu", "cpu", "cpu", "cpu"};

/* --- the bits --- */

/* A model, its plan options and three mini-batches; the second mini-batch may be smaller. */
typedef struct draw {
    test_sizes sizes;
    cgp_model *model;
    cgp_plan_options options;
    int balance[64];
    test_batch batches[STEPS];
} draw;

static void make_draw(draw *d, uint64_t *state, bool images, bool external) {
    *d = (draw){.sizes = {.layers = 5, .sequence = 5, .width = 8, .heads = 2, .vocab = 11}};
    d->sizes.dropout = 0.2;
    d->sizes.no_loss = external;
    d->model = images ? test_random_images(state, &d->sizes) : test_random_graph(state, &d->sizes);
    d->options = cgp_plan_options_default();
    test_random_training(state, d->model, &d->options, d->balance);
    if (external) {
        const int stages = cgp_plan_options_stages(&d->options);
        d->options.schedule = "gpipe";
        d->options.virtual_stages = d->options.group = d->options.in_flight = 0;
        d->options.stages = stages < 8 ? stages : 8;
        d->options.external_loss = true;
        test_random_balance(state, cgp_model_layers(d->model), d->options.stages, d->balance);
    }
    d->options.optim = test_between(state, 0, 1) ? cgp_optim_adamw(1e-3, 0.01)
                                                 : cgp_optim_sgd(0.05, 0.9, true, 1e-4);
    if (test_between(state, 0, 1)) d->options.optim.clip_norm = 1;
    /* the last micro-batch has 1 sample */
    if (d->options.chunks > 1) d->options.batch = 2 * d->options.chunks - 1;
    d->options.deferred_batch_norm = test_between(state, 0, 1);
    d->options.gradient_groups = 1 << test_between(state, 0, 3);
    for (int s = 0; s < STEPS; s++)
        test_batch_fill(&d->batches[s], d->model, &d->sizes,
                        s == 1 ? test_between(state, 1, (int)d->options.batch) : d->options.batch,
                        state);
}

static void release_draw(draw *d) {
    for (int s = 0; s < STEPS; s++)
        test_batch_release(&d->batches[s]);
    cgp_model_destroy(d->model);
}

typedef struct outcome {
    double losses[STEPS], evaluations[STEPS], outputs[STEPS];
    char sha256[65], state_sha256[65];
} outcome;

/* Make a tensor for the model's output for a mini-batch. The caller frees its data. */
static cgp_tensor output_of(const cgp_model *model, const test_batch *b) {
    const cgp_shape one = cgp_model_output_shape(model, 0);
    cgp_tensor y = {CGP_F32, {one.rank + 1, {b->tensors[0].shape.dims[0]}}, NULL};
    for (int i = 0; i < one.rank; i++)
        y.shape.dims[i + 1] = one.dims[i];
    y.data = calloc((size_t)cgp_shape_count(&y.shape), sizeof(float));
    assert_non_null(y.data);
    return y;
}

static double sum_of(const cgp_tensor *y) {
    double sum = 0;
    for (int64_t i = 0; i < cgp_shape_count(&y->shape); i++)
        sum += ((const float *)y->data)[i] * (double)(i % 97 + 1);
    return sum;
}

/* Run a step with the external loss y . y / 2, whose gradient is y. */
static void external_step(cgp_pipeline *pipeline, const draw *d, int s, outcome *out) {
    cgp_tensor y = output_of(d->model, &d->batches[s]);
    assert_ok(cgp_pipeline_forward(pipeline, d->batches[s].inputs, d->batches[s].n,
                                   (const cgp_tensor *[]){&y}, 1));
    out->losses[s] = sum_of(&y);
    assert_ok(cgp_pipeline_backward(pipeline, (const cgp_tensor *[]){&y}, 1));
    free(y.data);
}

static void train(const draw *d, const char *const *devices, outcome *out) {
    cgp_plan_options o = d->options;
    cgp_plan *plan = NULL;
    cgp_pipeline *pipeline = NULL;
    o.devices = devices;
    memset(out, 0, sizeof *out);
    assert_ok(cgp_plan_create(&plan, d->model, &o));
    assert_ok(cgp_pipeline_create(&pipeline, plan, 7));
    for (int s = 0; s < STEPS; s++) {
        const test_batch *b = &d->batches[s];
        cgp_tensor y = output_of(d->model, b);
        if (o.external_loss)
            external_step(pipeline, d, s, out);
        else
            assert_ok(cgp_pipeline_step(pipeline, b->inputs, b->n, &out->losses[s]));
        assert_ok(cgp_optim_step(pipeline));
        if (!o.external_loss)
            assert_ok(cgp_pipeline_evaluate(pipeline, b->inputs, b->n, &out->evaluations[s]));
        assert_ok(cgp_pipeline_predict(pipeline, b->inputs, b->n, (const cgp_tensor *[]){&y}, 1));
        out->outputs[s] = sum_of(&y);
        free(y.data);
    }
    assert_ok(cgp_pipeline_weights_sha256(pipeline, out->sha256));
    assert_ok(cgp_pipeline_state_sha256(pipeline, out->state_sha256));
    cgp_pipeline_destroy(pipeline);
    cgp_plan_destroy(plan);
}

TEST_CASE(captured_or_not_the_bits_are_the_same) {
    uint64_t state = test_seed();
    for (int i = 0; i < test_scaled(DRAWS); i++) {
        draw d;
        outcome expected, got;
        make_draw(&d, &state, i % 3 == 1, i % 3 == 2);
        train(&d, on_cpu, &expected);
        add_counted();
        setenv("CGP_GRAPHS", "off", 1);
        train(&d, on_counted, &got);
        unsetenv("CGP_GRAPHS");
        assert_memory_equal(&expected, &got, sizeof got);
        assert_int_equal(counted.begun, 0);
        train(&d, on_counted, &got);
        assert_memory_equal(&expected, &got, sizeof got);
        assert_true(counted.run > 0);
        cgp__captured_graphs_compare = cgp__late_graphs_compare;
        train(&d, on_counted, &got);
        cgp__captured_graphs_compare = NULL;
        assert_memory_equal(&expected, &got, sizeof got);
        print_message("%s, %s, %d stages, %d micro-batches: %d captured graphs run\n",
                      cgp_model_name(d.model), d.options.schedule, d.options.stages,
                      d.options.chunks, counted.run);
        release_draw(&d);
    }
}

/* --- training of a small GPT-2 --- */

static const test_sizes sizes = {
    .layers = 3, .sequence = 4, .width = 8, .heads = 2, .vocab = 11, .dropout = 0.1};

typedef struct training {
    cgp_model *model;
    cgp_plan *plan;
    cgp_pipeline *pipeline;
    test_batch batch;
} training;

static void open_training(training *t, const char *schedule, int stages, cgp_recompute recompute) {
    static const int blocks_everywhere[] = {3, 1, 1, 2}; /* each stage captures all programs */
    uint64_t state = 1;
    cgp_plan_options o = cgp_plan_options_default();
    add_counted();
    o.stages = stages;
    o.batch = o.chunks = 4;
    o.schedule = schedule;
    o.recompute = recompute;
    o.devices = on_counted;
    if (strcmp(schedule, "interleaved") == 0) o.balance = blocks_everywhere;
    t->plan = NULL;
    t->pipeline = NULL;
    t->model = test_gpt2(&sizes);
    test_batch_fill(&t->batch, t->model, &sizes, 4, &state);
    assert_ok(cgp_plan_create(&t->plan, t->model, &o));
    assert_ok(cgp_pipeline_create(&t->pipeline, t->plan, 1));
}

static cgp_status step_of(training *t) {
    cgp_status status = cgp_pipeline_step(t->pipeline, t->batch.inputs, t->batch.n, NULL);
    return status == CGP_OK ? cgp_optim_step(t->pipeline) : status;
}

static void close_training(training *t, char sha256[65]) {
    if (sha256) assert_ok(cgp_pipeline_weights_sha256(t->pipeline, sha256));
    cgp_pipeline_destroy(t->pipeline);
    cgp_plan_destroy(t->plan);
    test_batch_release(&t->batch);
    cgp_model_destroy(t->model);
}

/* Two steps capture as many graphs as the plan counts, plus one per device for the update. The
 * third step launches these graphs. */
TEST_CASE(there_are_as_many_captured_graphs_as_variants) {
    static const struct {
        const char *schedule;
        int stages;
        cgp_recompute recompute;
    } cases[] = {{"gpipe", 1, CGP_RECOMPUTE_NEVER},
                 {"1f1b", 3, CGP_RECOMPUTE_NEVER},
                 {"interleaved", 2, CGP_RECOMPUTE_EXCEPT_LAST},
                 {"zb-h1", 2, CGP_RECOMPUTE_NEVER_SELECTIVE}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        training t;
        int graphs = 0;
        open_training(&t, cases[i].schedule, cases[i].stages, cases[i].recompute);
        for (int d = 0; d < cgp_plan_devices(t.plan); d++)
            graphs += cgp_plan_device_at(t.plan, d)->variants + 1;
        assert_ok(step_of(&t));
        assert_ok(step_of(&t));
        assert_int_equal(counted.begun, graphs);
        const int run = counted.run;
        assert_ok(step_of(&t));
        assert_int_equal(counted.begun, graphs);
        assert_true(counted.run >= run + graphs);
        close_training(&t, NULL);
    }
}

TEST_CASE(a_launch_that_is_not_captured_is_noticed) {
    training t;
    open_training(&t, "1f1b", 2, CGP_RECOMPUTE_NEVER);
    assert_ok(step_of(&t));
    counted.dropped = 5;
    assert_status(step_of(&t), CGP_EDEVICE);
    assert_non_null(strstr(cgp_message(), ": captured graph: expected "));
    assert_non_null(strstr(cgp_message(), " launches, as there were one by one, got "));
    close_training(&t, NULL);
}

TEST_CASE(measured_kernels_are_not_captured) {
    training t;
    cgp_layer_cost costs[16];
    open_training(&t, "1f1b", 2, CGP_RECOMPUTE_NEVER);
    for (int s = 0; s < 3; s++)
        assert_ok(step_of(&t));
    const int run = counted.run, begun = counted.begun;
    assert_ok(cgp_pipeline_measure_layers(t.pipeline, true));
    assert_ok(step_of(&t));
    assert_ok(cgp_pipeline_layer_costs(t.pipeline, costs));
    assert_int_equal(counted.run, run + 2); /* the updates are captured */
    assert_ok(cgp_pipeline_measure_layers(t.pipeline, false));
    assert_ok(step_of(&t));
    assert_true(counted.run > run);
    assert_int_equal(counted.begun, begun);
    close_training(&t, NULL);
}

/* If a capture fails, the kernels of the action are launched one by one. */
TEST_CASE(without_memory_for_more_the_bits_are_the_same) {
    char expected[65], got[65];
    for (int memory = -1; memory < 4; memory++) {
        training t;
        open_training(&t, "1f1b", 2, CGP_RECOMPUTE_NEVER);
        if (memory >= 0) counted.memory = memory;
        for (int s = 0; s < 4; s++)
            assert_ok(step_of(&t));
        assert_true((counted.run > 0) == (memory != 0));
        close_training(&t, memory < 0 ? expected : got);
        if (memory >= 0) assert_string_equal(got, expected);
    }
}

/* If a kernel's argument differs from the captured argument, the comparison of graphs detects the
 * difference. */
TEST_CASE(an_operand_that_changes_is_noticed) {
    training t;
    open_training(&t, "gpipe", 1, CGP_RECOMPUTE_NEVER);
    cgp__captured_graphs_compare = cgp__late_graphs_compare;
    for (int s = 0; s < 3; s++)
        assert_ok(step_of(&t));
    counted.forgot = true;
    assert_status(step_of(&t), CGP_EDEVICE);
    assert_message("stage 0, micro-batch 0, 0F0: late: graph: node 0 of ");
    assert_message(": first has changed");
    cgp__captured_graphs_compare = NULL;
    close_training(&t, NULL);
}

/* --- failures --- */

/* If n > 0, this RELU fails at its n-th run from now on. */
static atomic_int failing;

static cgp_status fragile_forward(const cgp_op_run *run) {
    if (failing > 0 && --failing == 0) return cgp_fail(CGP_EDEVICE, "broke");
    return relu(run);
}

/* The message names the action that runs the graph, not the action that captured it. */
TEST_CASE(a_kernel_of_a_captured_graph_that_fails_is_named) {
    add_counted();
    for (int k = 1; k <= 4; k++) {
        cgp_op fragile = custom_relu;
        parts p = begin();
        world w;
        char expected[64];
        fragile.name = "fragile";
        fragile.forward = fragile_forward;
        layer(&p, "middle");
        p.x = cgp_op_apply(p.model, &fragile, &p.x, NULL, NULL);
        cgp_model *model = finish(&p);
        cgp_plan_options o = options();
        o.schedule = "gpipe";
        o.devices = on_counted;
        start_with(&w, model, &o);
        step(&w);
        step(&w);
        failing = k;
        assert_status(cgp_pipeline_step(w.pipeline, w.batch.inputs, 2, NULL), CGP_EDEVICE);
        failing = 0;
        snprintf(expected, sizeof expected,
                 "stage 0, micro-batch %d, 0F%d: layer middle, fragile: ", k - 1, k - 1);
        assert_message(expected);
        assert_message("broke");
        stop(&w);
        cgp_model_destroy(model);
    }
}

static cgp_status fork_nothing(cgp_device *device) {
    (void)device;
    return CGP_OK;
}

TEST_CASE(tables_that_are_not_whole_are_refused) {
    cgp_backend three = cgp__backend_late;
    cgp_backend_streams streams = *three.streams;
    cgp_backend_graphs graphs = *three.graphs;
    cgp_backend_sharing sharing = {.struct_size = sizeof sharing};
    char expected[200];
    three.name = "three";
    three.sharing = &sharing;
    assert_status(cgp__backend_add(&three), CGP_EINVAL);
    assert_message("backend three: expected a function sharing->memory_export, got NULL");
    three.sharing = NULL;
    three.graphs = &graphs;
    graphs.destroy = NULL;
    assert_status(cgp__backend_add(&three), CGP_EINVAL);
    assert_message("backend three: expected a function graphs->destroy, got NULL");
    three.streams = &streams;
    streams.fork = fork_nothing;
    assert_status(cgp__backend_add(&three), CGP_EINVAL);
    assert_message("backend three: expected a function streams->join, got NULL");
    streams.join = streams.fork;
    streams.fork = NULL;
    assert_status(cgp__backend_add(&three), CGP_EINVAL);
    assert_message("backend three: expected a function streams->fork, got NULL");
    streams.join = NULL;
    streams.discard = NULL;
    assert_status(cgp__backend_add(&three), CGP_EINVAL);
    assert_message("backend three: expected a function streams->discard, got NULL");
    snprintf(expected, sizeof expected,
             "backend three: expected streams of %zu bytes, graphs of %zu bytes and sharing of %zu "
             "bytes, or none of them, got",
             sizeof streams, sizeof graphs, sizeof sharing);
    const size_t wrong_streams[] = {0, sizeof streams - 1}, wrong_graphs[] = {0, sizeof graphs + 1};
    for (int i = 0; i < 2; i++) {
        streams.struct_size = wrong_streams[i];
        assert_status(cgp__backend_add(&three), CGP_EINVAL);
        assert_message(expected);
    }
    three.streams = cgp__backend_late.streams;
    for (int i = 0; i < 2; i++) {
        graphs.struct_size = wrong_graphs[i];
        assert_status(cgp__backend_add(&three), CGP_EINVAL);
        assert_message(expected);
    }
    sharing.struct_size--;
    three.graphs = NULL;
    three.sharing = &sharing;
    assert_status(cgp__backend_add(&three), CGP_EINVAL);
    assert_message(expected);
    three.host_addressable = true;
    assert_status(cgp__backend_add(&three), CGP_EINVAL);
    assert_message("backend three: expected no sharing with host_addressable");
    three.streams = NULL;
    assert_status(cgp__backend_add(&three), CGP_EINVAL);
    assert_string_equal(cgp_message(), "backend three: expected streams with sharing, got none");
    three.sharing = NULL;
    three.graphs = cgp__backend_late.graphs;
    assert_status(cgp__backend_add(&three), CGP_EINVAL);
    assert_string_equal(cgp_message(), "backend three: expected streams with graphs, got none");
}

TEST_CASE(wrong_switches_are_refused) {
    training t;
    cgp_pipeline *pipeline = NULL;
    open_training(&t, "gpipe", 1, CGP_RECOMPUTE_NEVER);
    setenv("CGP_GRAPHS", "no", 1);
    assert_status(cgp_pipeline_create(&pipeline, t.plan, 1), CGP_EINVAL);
    assert_message("CGP_GRAPHS: expects on or off, got \"no\"");
    unsetenv("CGP_GRAPHS");
    setenv("CGP_IPC", "no", 1);
    assert_status(cgp_pipeline_create(&pipeline, t.plan, 1), CGP_EINVAL);
    assert_message("CGP_IPC: expects on or off, got \"no\"");
    unsetenv("CGP_IPC");
    setenv("CGP_BRANCH", "no", 1);
    assert_status(cgp_pipeline_create(&pipeline, t.plan, 1), CGP_EINVAL);
    assert_message("CGP_BRANCH: expects on or off, got \"no\"");
    unsetenv("CGP_BRANCH");
    close_training(&t, NULL);
}
