/* SPDX-License-Identifier: Apache-2.0 */
/* test_timeline.c -- the timeline of the last step has the times that the workers noted, in the
 * order of the plan's action lists. If the last run was not a training step, reading the timeline
 * fails. */
#include "graphs.h"

#include "inside.h"
#include "pipeline/run/measured.h"

enum { MODES = CGP_RECOMPUTE_EXCEPT_LAST_SELECTIVE + 1 };

static const test_sizes sizes = {
    .layers = 4, .sequence = 4, .width = 8, .heads = 2, .vocab = 7, .dropout = 0.1};

/* A small model with its plan and pipeline, and a mini-batch. */
typedef struct world {
    cgp_model *model;
    cgp_plan *plan;
    cgp_pipeline *pipeline;
    test_batch batch;
    uint64_t random;
} world;

static void open_world(world *w, const cgp_plan_options *o, bool any_graph, const char *fault) {
    w->random = test_seed();
    w->model = any_graph ? test_random_graph(&w->random, &sizes) : test_gpt2(&sizes);
    assert_ok(cgp_plan_create(&w->plan, w->model, o));
    if (fault) setenv("CGP_FAULT", fault, 1);
    assert_ok(cgp_pipeline_create(&w->pipeline, w->plan, 3));
    unsetenv("CGP_FAULT");
    test_batch_fill(&w->batch, w->model, &sizes, o->batch, &w->random);
}

static void close_world(world *w) {
    test_batch_release(&w->batch);
    cgp_pipeline_destroy(w->pipeline);
    cgp_plan_destroy(w->plan);
    cgp_model_destroy(w->model);
}

static void step(world *w) {
    assert_ok(cgp_pipeline_step(w->pipeline, w->batch.inputs, w->batch.n, NULL));
}

/* --- the times --- */

/* Assert that an action's start and end equal the times of the action's event. The times are
 * relative to the start of the first event. */
static void assert_times(const cgp__event *event, const cgp__event *first, double start,
                         double end) {
    assert_true(fabs(1e9 * start - (double)(event->start_ns - first->start_ns)) < 0.5);
    assert_true(fabs(1e9 * end - (double)(event->end_ns - first->start_ns)) < 0.5);
}

/* Return the event that started first on any device. */
static const cgp__event *first_event(const world *w) {
    const cgp__event *first = NULL;
    for (int d = 0; d < cgp_plan_devices(w->plan); d++) {
        const cgp__measured *measured = inside_measured(w->pipeline, d);
        const cgp__event *event = cgp__trace_event(&measured->trace, measured->trace_start);
        if (!first || event->start_ns < first->start_ns) first = event;
    }
    return first;
}

static void check_timeline(const world *w) {
    const cgp_schedule *s = cgp_plan_schedule(w->plan);
    const cgp__event *first = first_event(w);
    cgp_schedule_timeline t;
    double last = 0.0, busy[4];
    int path = 0;
    assert_ok(cgp_pipeline_last_timeline(w->pipeline, &t));
    assert_int_equal(t.devices, cgp_plan_devices(w->plan));
    const cgp_pipeline_times times = cgp_pipeline_last_times(w->pipeline, busy);
    for (int d = 0; d < t.devices; d++) {
        const cgp__measured *measured = inside_measured(w->pipeline, d);
        int n = 0;
        (void)cgp_schedule_actions(s, d, &n);
        for (int i = 0; i < n; i++) {
            assert_times(cgp__trace_event(&measured->trace, measured->trace_start + i), first,
                         t.start[d][i], t.end[d][i]);
            assert_true(t.start[d][i] >= (i > 0 ? t.end[d][i - 1] : 0.0));
            assert_true(t.released[d][i] <= t.ready[d][i]);
            last = t.end[d][i] > last ? t.end[d][i] : last;
            path += t.critical[d][i];
        }
        assert_float_equal(t.busy[d], busy[d], 1e-6);
    }
    assert_true(t.makespan == last);
    assert_float_equal(t.makespan, times.seconds, 1e-9);
    assert_float_equal(t.bubble_makespan, times.bubble, 1e-6);
    assert_true(path >= 2); /* at least a forward and a backward */
    cgp_schedule_timeline_release(&t);
}

/* A timeline that is written and read back is unchanged. The parts of each device's time add up to
 * the makespan. */
static void check_round_trip(const world *w) {
    const cgp_schedule *s = cgp_plan_schedule(w->plan);
    cgp_schedule_timeline t, u;
    cgp_schedule_comparison c;
    cgp_schedule *back = NULL;
    char *text = NULL;
    assert_ok(cgp_pipeline_last_timeline(w->pipeline, &t));
    assert_ok(cgp_schedule_trace(s, &t, 1e6, &text));
    assert_ok(cgp_schedule_from_trace(&back, &u, "t.json", text, strlen(text)));
    assert_ok(cgp_schedule_compare(back, &u, &c));
    for (int d = 0; d < t.devices; d++) {
        int n = 0, m = 0;
        double sum = 0.0;
        const cgp_action *a = cgp_schedule_actions(s, d, &n);
        const cgp_action *b = cgp_schedule_actions(back, d, &m);
        assert_int_equal(n, m);
        for (int i = 0; i < n; i++)
            assert_true(a[i].kind == b[i].kind && a[i].stage == b[i].stage &&
                        a[i].microbatch == b[i].microbatch && a[i].edge == b[i].edge);
        assert_memory_equal(t.end[d], u.end[d], (size_t)n * sizeof(double));
        assert_memory_equal(t.released[d], u.released[d], (size_t)n * sizeof(double));
        for (int part = 0; part < CGP_PARTS; part++) {
            assert_true(c.parts[d][part] >= 0.0);
            sum += c.parts[d][part];
        }
        assert_true(fabs(sum - t.makespan) <= 1e-9 * t.makespan);
    }
    free(text);
    cgp_schedule_comparison_release(&c);
    cgp_schedule_timeline_release(&u);
    cgp_schedule_destroy(back);
    cgp_schedule_timeline_release(&t);
}

/* Check schedules with I and W, with several stages on a device, and with recomputation. */
TEST_CASE(a_timeline_is_what_the_workers_noted) {
    test_needs_one_rank();
    const cgp_schedule_info *info;
    for (int k = 0; (info = cgp_schedule_info_at(k)); k++) {
        for (int n = 1; n <= 3 && info->has_backward; n++) {
            world w;
            cgp_plan_options o = cgp_plan_options_default();
            o.stages = n;
            o.schedule = info->name;
            o.recompute = (cgp_recompute)((k + n) % MODES);
            o.batch = 13;
            o.chunks = 7;
            open_world(&w, &o, true, NULL);
            for (int i = 0; i < 2; i++) {
                step(&w);
                check_timeline(&w);
                assert_ok(cgp_optim_step(w.pipeline));
                check_timeline(&w);
                check_round_trip(&w);
            }
            close_world(&w);
        }
    }
}

/* --- uses --- */

/* One of four forwards of stage 0 is slow, so stage 1 waits 100 ms. The comparison must attribute
 * this wait to the variation of forward times. On a busy machine, a part of the wait may have other
 * causes. */
TEST_CASE(a_slow_action_shows_as_variation) {
    world w;
    cgp_schedule_timeline t;
    cgp_schedule_comparison c;
    cgp_plan_options o = cgp_plan_options_default();
    o.stages = 2;
    o.batch = o.chunks = 4;
    o.schedule = "gpipe";
    open_world(&w, &o, false, "delay:0F1:0.1");
    step(&w);
    assert_ok(cgp_pipeline_last_timeline(w.pipeline, &t));
    assert_ok(cgp_schedule_compare(cgp_plan_schedule(w.plan), &t, &c));
    assert_true(t.makespan >= 0.1);
    assert_true(c.parts[0][CGP_PART_COMPUTE] >= 0.1);
    for (int d = 0; d < 2; d++) {
        double sum = 0.0;
        for (int part = 0; part < CGP_PARTS; part++)
            sum += c.parts[d][part];
        assert_float_equal(sum, t.makespan, 1e-9);
    }
    if (c.parts[1][CGP_PART_VARIATION] < 0.05) {
        print_error("variation %g of %g s\n", c.parts[1][CGP_PART_VARIATION], t.makespan);
        fail();
    }
    cgp_schedule_comparison_release(&c);
    cgp_schedule_timeline_release(&t);
    close_world(&w);
}

/* The functions that write timelines accept both measured and simulated timelines. */
TEST_CASE(a_timeline_is_drawn) {
    world w;
    cgp_schedule_timeline t;
    char *text = NULL;
    cgp_plan_options o = cgp_plan_options_default();
    o.stages = 3;
    o.batch = o.chunks = 4;
    o.recompute = CGP_RECOMPUTE_ALWAYS;
    open_world(&w, &o, true, NULL);
    const cgp_schedule *s = cgp_plan_schedule(w.plan);
    step(&w);
    assert_ok(cgp_pipeline_last_timeline(w.pipeline, &t));
    assert_ok(cgp_schedule_svg(s, &t, &text));
    assert_non_null(strstr(text, "<title>1f1b, measured: 3 devices, 3 stages, 4 micro-"));
    free(text);
    assert_ok(cgp_schedule_draw_timeline(s, &t, t.makespan, 80, &text));
    assert_int_equal(strlen(text), 3 * 81);
    free(text);
    cgp_schedule_timeline_release(&t);
    close_world(&w);
}

/* --- runs without a timeline --- */

static void assert_none(const world *w, const char *message) {
    cgp_schedule_timeline t = {0};
    assert_status(cgp_pipeline_last_timeline(w->pipeline, &t), CGP_ESTATE);
    assert_message(message);
    assert_null(t.start);
}

TEST_CASE(only_a_step_of_a_full_mini_batch_has_a_timeline) {
    test_needs_one_rank();
    world w;
    test_batch fewer;
    cgp_plan_options o = cgp_plan_options_default();
    o.stages = 2;
    o.batch = o.chunks = 4;
    open_world(&w, &o, false, NULL);
    assert_none(&w, "timeline: expected a step of a full mini-batch last, got none");
    step(&w);
    check_timeline(&w);
    assert_ok(cgp_pipeline_evaluate(w.pipeline, w.batch.inputs, w.batch.n, NULL));
    assert_none(&w, "got an evaluation or prediction");
    test_batch_fill(&fewer, w.model, &sizes, 3, &w.random);
    assert_ok(cgp_pipeline_step(w.pipeline, fewer.inputs, fewer.n, NULL));
    assert_none(&w, "a full mini-batch last, 4 samples, got one of 3");
    assert_ok(cgp_optim_step(w.pipeline));
    step(&w);
    check_timeline(&w);
    test_batch_release(&fewer);
    close_world(&w);
}

TEST_CASE(a_step_that_failed_has_none) {
    world w;
    cgp_plan_options o = cgp_plan_options_default();
    o.stages = 2;
    o.batch = o.chunks = 4;
    open_world(&w, &o, false, "fail:1B2");
    assert_status(cgp_pipeline_step(w.pipeline, w.batch.inputs, w.batch.n, NULL), CGP_EDEVICE);
    assert_none(&w, "got one that failed");
    close_world(&w);
}

TEST_CASE(a_step_in_two_calls_has_none) {
    test_sizes external = sizes;
    external.no_loss = true;
    uint64_t random = test_seed();
    world w = {.model = test_random_graph(&random, &external)};
    cgp_plan_options o = cgp_plan_options_default();
    o.stages = 2;
    o.batch = o.chunks = 4;
    o.external_loss = true;
    assert_ok(cgp_plan_create(&w.plan, w.model, &o));
    assert_ok(cgp_pipeline_create(&w.pipeline, w.plan, 3));
    test_batch_fill(&w.batch, w.model, &external, 4, &random);
    const cgp_shape one = cgp_model_output_shape(w.model, 0);
    cgp_tensor y = {CGP_F32, {one.rank + 1, {4}}, NULL};
    for (int i = 0; i < one.rank; i++)
        y.shape.dims[i + 1] = one.dims[i];
    y.data = calloc((size_t)cgp_shape_count(&y.shape), sizeof(float));
    assert_ok(cgp_pipeline_forward(w.pipeline, w.batch.inputs, cgp_model_inputs(w.model),
                                   (const cgp_tensor *[]){&y}, 1));
    assert_none(&w, "got one in two calls (external_loss)");
    assert_ok(cgp_pipeline_backward(w.pipeline, (const cgp_tensor *[]){&y}, 1));
    assert_none(&w, "got one in two calls (external_loss)");
    free(y.data);
    close_world(&w);
}

TEST_CASE(a_trace_that_grows_counts_on) {
    cgp__trace trace = {.events = NULL};
    assert_ok(cgp__trace_reserve(&trace, 256));
    for (int k = 0; k < 300; k++)
        cgp__trace_add(&trace, (cgp__event){.microbatch = k});
    assert_ok(cgp__trace_reserve(&trace, 1000));
    assert_int_equal(cgp__trace_written(&trace), 300);
    for (int k = 300; k < 1324; k++)
        cgp__trace_add(&trace, (cgp__event){.microbatch = k});
    for (int k = 300; k < 1324; k++)
        assert_int_equal(cgp__trace_event(&trace, k)->microbatch, k);
    cgp__trace_release(&trace);
}
