/* SPDX-License-Identifier: Apache-2.0 */
/* test_allocations.c -- fail every allocation of models, schedules, plans and pipelines once.
 * support/scenario.h has the checks; test_allocations_files.c tests files.
 *
 * The tests cannot make allocations inside the C library fail. Instead, the C functions that return
 * memory fail (support/wrapped.txt). */
#include "custom_ops.h"
#include "scenario.h"

#include <cgpipe/models/gpt2.h>

#include "pipeline/profile.h"

enum { SEQUENCE = 3, WIDTH = 4, VOCAB = 5, BATCH = 4, STAGES = 3 };

/* --- models and inputs, made before anything fails --- */

static cgp_model *gpt2, *graph, *headless;

static cgp_status create_gpt2(cgp_model **out, bool loss) {
    cgp_gpt2_options options = cgp_gpt2_options_default();
    CGP_TRY(cgp_gpt2_parse(&options, "gpt2:layers=1,width=4,heads=2,vocab=5,seq=3,tied=1"));
    options.dropout = 0.25;
    options.loss = loss;
    return cgp_gpt2_create(out, &options);
}

/* Build a graph with skips over layers, a tied parameter, running statistics, a custom op, a
 * computed integer value, a float input and two losses. */
static void build_graph(cgp_model *m) {
    const cgp_init init = {CGP_INIT_NORMAL, 0.2};
    const cgp_linear_options square = {
        .out = WIDTH, .bias = true, .transposed = true, .init = init};
    const cgp_value tokens = cgp_model_input(m, "tokens", CGP_I32, 1, (int64_t[]){SEQUENCE});
    const cgp_value targets = cgp_model_input(m, "targets", CGP_I32, 1, (int64_t[]){SEQUENCE});
    const cgp_value floats = cgp_model_input(m, "floats", CGP_F32, 2, (int64_t[]){SEQUENCE, WIDTH});
    cgp_model_layer(m, "a");
    const cgp_value x = cgp_embedding(m, tokens, "embed", VOCAB, WIDTH, init);
    cgp_model_stash(m, "skips", "x", x);
    cgp_model_layer(m, "b");
    cgp_value y = cgp_gelu(m, cgp_linear(m, x, "one", square));
    y = cgp_add(m, y, cgp_dropout(m, floats, 0.25));
    cgp_model_layer(m, "c");
    cgp_model_tie(m, "two.weight", "one.weight");
    y = cgp_add(m, cgp_model_pop(m, "skips", "x"),
                cgp_linear(m, cgp_layer_norm(m, y, "norm", 0.1), "two", square));
    cgp_model_layer(m, "d");
    y = cgp_batch_norm(m, y, "batch_norm", 0.1, 0.1);
    y = cgp_op_apply(m, &test_custom_meter, &y, "meter", NULL);
    y = cgp_add(m, y, cgp_embedding(m, cgp_argmax(m, y), "best", WIDTH, WIDTH, init));
    const cgp_value logits =
        cgp_linear(m, y, "head", (cgp_linear_options){.out = VOCAB, .init = init});
    cgp_model_output(m, logits);
    cgp_model_loss_cross_entropy(m, logits, targets, -100, 1);
    cgp_model_loss_cross_entropy(m, cgp_linear(m, x, "side", square), cgp_argmax(m, y), -100, 2);
}

static cgp_status create_graph(cgp_model **out) {
    cgp_model *model = NULL;
    CGP_TRY(cgp_model_create(&model, "graph"));
    build_graph(model);
    const cgp_status status = cgp_model_finish(model);
    if (status == CGP_OK)
        *out = model;
    else
        cgp_model_destroy(model);
    return status;
}

static int32_t tokens_data[BATCH * SEQUENCE] = {1, 4, 2, 0, 3, 3};
static int32_t targets_data[BATCH * SEQUENCE] = {4, 2, 0, 3, 3, 1};
static float floats_data[BATCH * SEQUENCE * WIDTH] = {0.5f, -1, 2, 0.25f, 1, 1, -3, 0.75f};

/* A mini-batch. The targets, inputs[1], are NULL for a model without loss. */
typedef struct batch {
    cgp_tensor tensors[3];
    const cgp_tensor *inputs[3];
} batch;

static void fill_batch(batch *b, int64_t samples) {
    const int64_t dims[3] = {samples, SEQUENCE, WIDTH};
    b->tensors[0] = (cgp_tensor){CGP_I32, cgp_shape_make(2, dims), tokens_data};
    b->tensors[1] = (cgp_tensor){CGP_I32, cgp_shape_make(2, dims), targets_data};
    b->tensors[2] = (cgp_tensor){CGP_F32, cgp_shape_make(3, dims), floats_data};
    for (int k = 0; k < 3; k++)
        b->inputs[k] = &b->tensors[k];
}

static cgp_plan_options options_for(const char *device, cgp_recompute recompute) {
    static const char *devices[STAGES];
    cgp_plan_options o = cgp_plan_options_default();
    for (int j = 0; j < STAGES; j++)
        devices[j] = device;
    o.stages = STAGES;
    o.batch = BATCH;
    o.chunks = 2;
    o.devices = devices;
    o.recompute = recompute;
    o.optim = cgp_optim_adamw(1e-2, 0.1);
    o.optim.clip_norm = 0.5;
    return o;
}

/* --- scenarios: models, schedules, plans --- */

/* Build an invalid model; cgp_model_finish() must fail. */
static cgp_status refuse_model(outcome *out) {
    cgp_model *m = NULL;
    CGP_TRY(cgp_model_create(&m, "wrong"));
    const cgp_status status = cgp_model_finish(m);
    note(out, "%s\n", cgp_status_name(status));
    cgp_model_destroy(m);
    return status == CGP_EINVAL ? CGP_OK : status;
}

static cgp_status make_models(outcome *out) {
    cgp_status status = CGP_OK;
    cgp_model *one = NULL, *other = NULL;
    DO(create_gpt2(&one, true));
    DO(create_graph(&other));
    DO(refuse_model(out));
    if (status == CGP_OK)
        note(out, "%lld %lld parameters\n", (long long)cgp_model_parameter_count(one),
             (long long)cgp_model_parameter_count(other));
    cgp_model_destroy(other);
    cgp_model_destroy(one);
    return status;
}

/* Write the length and the beginning of a text to `out`, and free the text. */
static void note_text(outcome *out, char *text) {
    if (text) note(out, "%zu %.20s\n", strlen(text), text);
    free(text);
}

/* Write a graph, and read another graph. The second graph has short strings, because jansson 2.14
 * reads past the end of longer ones if it runs out of memory (json.c). */
static cgp_status write_and_read(outcome *out) {
    static const char small[] = "{\"format\":\"cgpipe-graph\",\"version\":2,\"name\":\"g\","
                                "\"values\":[{\"dtype\":\"f32\",\"shape\":[2]}"
                                ",{\"dtype\":\"f32\",\"shape\":[2]},{\"dtype\":\"f32\","
                                "\"shape\":[2]}],\"inputs\":[{\"name\":\"x\","
                                "\"value\":0}],\"layers\":[\"a\",\"b\"],\"parameters\":[{"
                                "\"name\":\"w\",\"shape\":[2,2],\"init\":\"one\","
                                "\"scale\":0.5,\"decays\":true}],\"nodes\":[{\"op\":\"linear\","
                                "\"layer\":0,\"inputs\":[0],\"output\":1,"
                                "\"parameters\":[0],\"attributes\":{\"size\":2,\"bias\":false,"
                                "\"transposed\":true}},{\"custom\":\"meter\","
                                "\"layer\":1,\"inputs\":[1],\"output\":2,\"states\":[\"m.a\","
                                "\"m.b\"]}],\"losses\":[],\"outputs\":[2]}";
    static const cgp_op *const ops[] = {&test_custom_meter};
    cgp_status status = CGP_OK;
    cgp_model *read = NULL;
    char *text = NULL, *again = NULL;
    DO(cgp_model_to_json(&text, graph));
    DO(cgp_model_from_json(&read, "graph", small, sizeof small - 1, ops, 1));
    DO(cgp_model_to_json(&again, read));
    note_text(out, text);
    note_text(out, again);
    cgp_model_destroy(read);
    return status;
}

static cgp_status draw(const cgp_schedule *schedule, outcome *out) {
    char *text = cgp_schedule_draw(schedule);
    if (!text) return CGP_ENOMEM;
    note(out, "%s", text);
    free(text);
    return CGP_OK;
}

static cgp_status make_schedule(const char *name, cgp_recompute mode, outcome *out) {
    const cgp_edge edges[] = {{0, 1}, {1, 2}, {0, 2}, {2, 1}, {1, 0}};
    cgp_status status = CGP_OK;
    cgp_schedule *schedule = NULL;
    cgp_schedule_report report = {0};
    cgp_schedule_timeline timeline = {0};
    DO(cgp_schedule_create(&schedule, name, STAGES, 4, NULL));
    DO(draw(schedule, out));
    if (strcmp(name, "forward-only") != 0) DO(cgp_schedule_recompute(schedule, mode));
    DO(cgp_schedule_lower(schedule, edges, 5));
    DO(cgp_schedule_check(schedule, &report));
    DO(cgp_schedule_simulate(schedule, NULL, &timeline));
    DO(draw(schedule, out));
    if (status == CGP_OK)
        note(out, "%d %d %g\n", report.peak_slots[0], report.min_capacity[2], timeline.makespan);
    cgp_schedule_timeline_release(&timeline);
    cgp_schedule_report_release(&report);
    cgp_schedule_destroy(schedule);
    return status;
}

static cgp_status make_schedules(outcome *out) {
    cgp_status status = make_schedule("gpipe", CGP_RECOMPUTE_ALWAYS, out);
    if (status == CGP_OK) status = make_schedule("1f1b", CGP_RECOMPUTE_EXCEPT_LAST, out);
    if (status == CGP_OK) status = make_schedule("forward-only", CGP_RECOMPUTE_NEVER, out);
    return status;
}

/* --- schedules as texts --- */

static cgp_status generate_all(outcome *out) {
    const cgp_schedule_info *info;
    cgp_status status = CGP_OK;
    for (int i = 0; status == CGP_OK && (info = cgp_schedule_info_at(i)); i++) {
        cgp_schedule *schedule = NULL;
        DO(cgp_schedule_create(&schedule, info->name, 2, 4, NULL));
        if (status == CGP_OK) note(out, "%d ", cgp_schedule_stages(schedule));
        cgp_schedule_destroy(schedule);
    }
    return status;
}

static cgp_status draw_grid(const cgp_schedule *schedule, outcome *out) {
    char *grid = cgp_schedule_draw_diagnostic(schedule);
    if (!grid) return CGP_ENOMEM;
    note_text(out, grid);
    return CGP_OK;
}

static cgp_status draw_diagnostic(outcome *out) {
    static const char csv[] = "0F0,0B0,0F1,0B1\n1F1,1F0,1B0,1B1\n";
    cgp_status status = CGP_OK;
    cgp_schedule *schedule = NULL;
    DO(cgp_schedule_from_csv(&schedule, "csv", csv, sizeof csv - 1));
    DO(draw_grid(schedule, out));
    cgp_schedule_destroy(schedule);
    return status;
}

static cgp_status write_schedule(outcome *out) {
    cgp_status status = CGP_OK;
    cgp_schedule *schedule = NULL, *back = NULL;
    cgp_schedule_timeline timeline = {0};
    char *compute = NULL, *transfers = NULL, *svg = NULL, *trace = NULL;
    DO(cgp_schedule_create(&schedule, "zb-v", 2, 1, NULL));
    DO(cgp_schedule_to_csv(schedule, CGP_CSV_COMPUTE, &compute));
    DO(cgp_schedule_lower_chain(schedule));
    DO(cgp_schedule_to_csv(schedule, CGP_CSV_TRANSFERS, &transfers));
    DO(cgp_schedule_from_csv(&back, "csv", transfers, strlen(transfers)));
    DO(cgp_schedule_simulate(back, NULL, &timeline));
    DO(cgp_schedule_svg(back, &timeline, &svg));
    DO(cgp_schedule_trace(back, &timeline, 1, &trace));
    note_text(out, compute);
    note_text(out, transfers);
    note_text(out, svg);
    note_text(out, trace);
    cgp_schedule_timeline_release(&timeline);
    cgp_schedule_destroy(back);
    cgp_schedule_destroy(schedule);
    return status;
}

/* Compare a step of two stages and one micro-batch with its plan. The times are set by hand. */
static cgp_status compare_step(outcome *out) {
    static const char text[] =
        "{\"cgpipe\":{\"format\":1,\"schedule\":\"hand\",\"csv\":\"0F0\\n,1F0\\n\",\"edges\":[["
        "0,1]],"
        "\"start_seconds\":[[0,1],[0.1,2.1]],\"end_seconds\":[[1,1.5],[2,3.1]],"
        "\"given_seconds\":[[0,0],[1.5,0]],\"ready_seconds\":[[0,1],[1.7,2.1]]}}";
    cgp_status status = CGP_OK;
    cgp_schedule *schedule = NULL;
    cgp_schedule_timeline timeline = {0};
    cgp_schedule_comparison c = {0};
    char *trace = NULL, *svg = NULL, *rows = NULL;
    DO(cgp_schedule_from_trace(&schedule, &timeline, "t.json", text, sizeof text - 1));
    DO(cgp_schedule_compare(schedule, &timeline, &c));
    DO(cgp_schedule_trace(schedule, &timeline, 1e6, &trace));
    DO(cgp_schedule_compare_svg(schedule, &c.planned, &timeline, &svg));
    DO(cgp_schedule_draw_timeline(schedule, &timeline, timeline.makespan, 31, &rows));
    if (status == CGP_OK) note(out, "%g\n", c.parts[1][CGP_PART_WAKEUP]);
    note_text(out, trace);
    note_text(out, svg);
    note_text(out, rows);
    cgp_schedule_comparison_release(&c);
    cgp_schedule_timeline_release(&timeline);
    cgp_schedule_destroy(schedule);
    return status;
}

static cgp_status make_texts(outcome *out) {
    cgp_status status = generate_all(out);
    if (status == CGP_OK) status = draw_diagnostic(out);
    if (status == CGP_OK) status = write_schedule(out);
    if (status == CGP_OK) status = compare_step(out);
    return status;
}

static cgp_status make_plan(const cgp_model *model, const cgp_plan_options *o, outcome *out) {
    cgp_status status = CGP_OK;
    cgp_plan *plan = NULL;
    DO(cgp_plan_create(&plan, model, o));
    for (int d = 0; status == CGP_OK && d < o->stages; d++)
        note(out, "%lld\n", (long long)cgp_plan_device_at(plan, d)->planned_bytes);
    cgp_plan_destroy(plan);
    return status;
}

static cgp_recompute mode; /* recompute mode of the next scenario */

static cgp_status plan_gpt2(outcome *out) {
    const cgp_plan_options o = options_for("cpu", mode);
    return make_plan(gpt2, &o, out);
}

static cgp_status plan_graph(outcome *out) {
    const cgp_plan_options o = options_for("ref", mode);
    return make_plan(graph, &o, out);
}

static cgp_status plan_other_uses(outcome *out) {
    cgp_plan_options o = options_for("ref", CGP_RECOMPUTE_NEVER);
    int balance[STAGES] = {0};
    o.inference = true;
    cgp_status status = make_plan(gpt2, &o, out);
    o.inference = false;
    o.external_loss = true;
    if (status == CGP_OK) status = make_plan(headless, &o, out);
    DO(cgp_balance_by_flops(gpt2, STAGES, balance));
    note(out, "%d %d %d\n", balance[0], balance[1], balance[2]);
    return status;
}

/* --- scenarios: pipelines --- */

static const cgp_model *model; /* model and plan of the next scenario */
static cgp_plan *plan;

static cgp_status predict(cgp_pipeline *pipeline, const batch *b, outcome *out) {
    float data[BATCH * SEQUENCE * VOCAB] = {0};
    const cgp_tensor output = {CGP_F32, cgp_shape_make(3, (int64_t[]){BATCH, SEQUENCE, VOCAB}),
                               data};
    CGP_TRY(cgp_pipeline_predict(pipeline, b->inputs, cgp_model_inputs(model),
                                 (const cgp_tensor *[]){&output}, 1));
    note(out, "output %a\n", data[7]);
    return CGP_OK;
}

static cgp_status copy_parameter(cgp_pipeline *pipeline) {
    float data[VOCAB * WIDTH];
    CGP_TRY(cgp_pipeline_get_parameter(pipeline, 0, data));
    return cgp_pipeline_set_parameter(pipeline, 0, data);
}

static cgp_status copy_state(cgp_pipeline *pipeline) {
    float data[WIDTH];
    if (cgp_model_states(model) == 0) return CGP_OK;
    CGP_TRY(cgp_pipeline_get_state(pipeline, 0, data));
    return cgp_pipeline_set_state(pipeline, 0, data);
}

/* Train two steps. The second step has fewer samples, so it makes new action lists and kernels. */
static cgp_status train(outcome *out) {
    cgp_status status = CGP_OK;
    cgp_pipeline *pipeline = NULL;
    batch full, small;
    double losses[3] = {0};
    char hex[65] = "", states[65] = "";
    const int n = cgp_model_inputs(model);
    fill_batch(&full, BATCH);
    fill_batch(&small, 1);
    DO(cgp_pipeline_create(&pipeline, plan, 7));
    DO(cgp_pipeline_set_timeout(pipeline, 60));
    DO(cgp_pipeline_step(pipeline, full.inputs, n, &losses[0]));
    DO(cgp_optim_step(pipeline));
    DO(cgp_pipeline_step(pipeline, small.inputs, n, &losses[1]));
    DO(cgp_optim_step(pipeline));
    DO(cgp_pipeline_evaluate(pipeline, full.inputs, n, &losses[2]));
    DO(predict(pipeline, &full, out));
    DO(copy_parameter(pipeline));
    DO(copy_state(pipeline));
    DO(cgp_pipeline_weights_sha256(pipeline, hex));
    DO(cgp_pipeline_state_sha256(pipeline, states));
    note(out, "losses %a %a %a\nweights %s\nstates %s\n", losses[0], losses[1], losses[2], hex,
         states);
    cgp_pipeline_destroy(pipeline);
    return status;
}

static cgp_status train_with_external_loss(outcome *out) {
    cgp_status status = CGP_OK;
    cgp_pipeline *pipeline = NULL;
    batch b;
    float data[BATCH * SEQUENCE * VOCAB] = {0};
    const cgp_tensor output = {CGP_F32, cgp_shape_make(3, (int64_t[]){BATCH, SEQUENCE, VOCAB}),
                               data};
    char hex[65] = "";
    fill_batch(&b, BATCH);
    DO(cgp_pipeline_create(&pipeline, plan, 7));
    DO(cgp_pipeline_forward(pipeline, b.inputs, 1, (const cgp_tensor *[]){&output}, 1));
    /* the loss is half the squared output, so its gradient is the output */
    DO(cgp_pipeline_backward(pipeline, (const cgp_tensor *[]){&output}, 1));
    DO(cgp_optim_step(pipeline));
    DO(cgp_pipeline_weights_sha256(pipeline, hex));
    note(out, "output %a\nweights %s\n", data[7], hex);
    cgp_pipeline_destroy(pipeline);
    return status;
}

/* --- tests --- */

TEST_CASE(every_allocation_of_a_model_fails_cleanly) {
    scenario_check("models", make_models);
    scenario_check("graph-files", write_and_read);
}

TEST_CASE(every_allocation_of_a_schedule_fails_cleanly) {
    scenario_check("schedules", make_schedules);
    scenario_check("schedules-as-texts", make_texts);
}

TEST_CASE(every_allocation_of_a_plan_fails_cleanly_in_every_recompute_mode) {
    for (mode = CGP_RECOMPUTE_NEVER; mode <= CGP_RECOMPUTE_EXCEPT_LAST_SELECTIVE; mode++) {
        char name[64];
        snprintf(name, sizeof name, "plan-gpt2-%s", cgp_recompute_name(mode));
        scenario_check(name, plan_gpt2);
        snprintf(name, sizeof name, "plan-graph-%s", cgp_recompute_name(mode));
        scenario_check(name, plan_graph);
    }
    scenario_check("plan-inference-outside-balance", plan_other_uses);
}

static void check_pipeline(const char *name, const cgp_model *of, const cgp_plan_options *o,
                           scenario *act) {
    model = of;
    assert_ok(cgp_plan_create(&plan, model, o));
    scenario_check(name, act);
    cgp_plan_destroy(plan);
}

TEST_CASE(every_allocation_of_a_pipeline_fails_cleanly) {
    cgp_plan_options o = options_for("cpu", CGP_RECOMPUTE_EXCEPT_LAST);
    check_pipeline("train-gpt2-cpu", gpt2, &o, train);
    o = options_for("ref", CGP_RECOMPUTE_ALWAYS_SELECTIVE);
    check_pipeline("train-graph-ref", graph, &o, train);
    o.external_loss = true;
    setenv("CGP_FAULT", "fail:9F9", 1); /* parsed, but matches no action */
    check_pipeline("outside-ref", headless, &o, train_with_external_loss);
    unsetenv("CGP_FAULT");
}

/* Measure times and saved bytes of each layer, and compute the balances. */
static cgp_status profile(outcome *out) {
    cgp_status status = CGP_OK;
    cgp_layer_cost costs[8] = {{0}};
    cgp_profile_options o = cgp_profile_options_default();
    const cgp_balance_size_options size = cgp_balance_size_options_default();
    const int layers = cgp_model_layers(graph);
    int by_size[STAGES] = {0}, by_time[STAGES] = {0};
    o.steps = 1;
    o.devices = (const char *const[]){"cpu@1KiB"}; /* too little memory for whole steps */
    DO(cgp_profile_steps(graph, &o, costs, NULL));
    for (int i = 0; i < layers; i++) { /* leave out times, which differ between runs */
        note(out, "%lld ", (long long)costs[i].saved_bytes);
        costs[i].forward_seconds = 1 + i;
        costs[i].input_seconds = costs[i].weight_seconds = 0;
    }
    DO(cgp_balance_by_time(graph, costs, false, STAGES, by_time));
    DO(cgp_balance_by_size(graph, &size, STAGES, by_size));
    for (int j = 0; j < STAGES; j++)
        note(out, "%d %d\n", by_time[j], by_size[j]);
    return status;
}

static cgp_status profile_steps(outcome *out) {
    cgp_status status = CGP_OK;
    cgp_layer_cost costs[8] = {{0}};
    DO(cgp__profile_plans((const cgp_plan *const *)&plan, 1, 1, costs));
    /* leave out times, which differ between runs */
    for (int i = 0; i < cgp_model_layers(model); i++)
        note(out, "%lld\n", (long long)costs[i].saved_bytes);
    return status;
}

TEST_CASE(every_allocation_of_a_profile_fails_cleanly) {
    cgp_plan_options o = options_for("cpu", CGP_RECOMPUTE_NEVER);
    assert_true(cgp_model_layers(graph) <= 8 && cgp_model_layers(headless) <= 8);
    scenario_check("profile", profile);
    check_pipeline("profile-steps", graph, &o, profile_steps);
    o.external_loss = true;
    check_pipeline("profile-steps-outside", headless, &o, profile_steps);
}

static cgp_status check_op(outcome *out) {
    const cgp_op_type rows = {.shape = {2, {2, 3}}};
    cgp_status status = CGP_OK;
    DO(cgp_op_check(&test_custom_meter, NULL, &rows, NULL));
    note(out, "checked\n");
    return status;
}

TEST_CASE(every_allocation_of_a_check_of_an_op_fails_cleanly) {
    scenario_check("op-check", check_op);
}

/* If a step times out, it returns the reason even if no memory is left for the report. */
TEST_CASE(a_timeout_is_reported_without_memory_for_a_report) {
    const cgp_plan_options o = options_for("ref", CGP_RECOMPUTE_NEVER);
    batch b;
    fill_batch(&b, BATCH);
    assert_ok(cgp_plan_create(&plan, gpt2, &o));
    for (int call = 0, failed = 1; failed; call++) {
        cgp_pipeline *pipeline = NULL;
        setenv("CGP_FAULT", "stall:1F0", 1);
        assert_ok(cgp_pipeline_create(&pipeline, plan, 7));
        unsetenv("CGP_FAULT");
        assert_ok(cgp_pipeline_set_timeout(pipeline, 0.02));
        const shortage_alive before = shortage_count_alive();
        shortage_begin((shortage){.number = call});
        const cgp_status status = cgp_pipeline_step(pipeline, b.inputs, 2, NULL);
        shortage_end();
        failed = shortage_function() != NULL;
        print_message("%s fails: %s\n", failed ? shortage_function() : "nothing", cgp_message());
        assert_int_equal(status, CGP_EDEVICE);
        assert_message("(timeout)");
        assert_int_equal(cgp_pipeline_report(pipeline)[0] == 0, failed);
        if (failed) assert_int_equal(shortage_count_alive().blocks, before.blocks);
        cgp_pipeline_destroy(pipeline);
    }
    cgp_plan_destroy(plan);
}

static int set_up(void **state) {
    if (scenario_set_up(state)) return -1;
    return create_gpt2(&gpt2, true) || create_gpt2(&headless, false) || create_graph(&graph);
}

static int tear_down(void **state) {
    cgp_model_destroy(graph);
    cgp_model_destroy(headless);
    cgp_model_destroy(gpt2);
    return scenario_tear_down(state);
}

TEST_GROUP(.set_up = set_up, .tear_down = tear_down);
