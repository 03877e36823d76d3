/* SPDX-License-Identifier: Apache-2.0 */
/* test_bad_options.c -- set every number and enum of every options struct to invalid values: NaN,
 * infinite, negative, not in the enum. Each call must return CGP_EINVAL with a message that has the
 * value or names the fault. The tests also put NULL into lists of paths and devices. */
#include "bad_values.h"

#include <cgpipe/data.h>
#include <cgpipe/images.h>

/* --- plans --- */

static cgp_status plan(const void *options) {
    cgp_plan *made = NULL;
    const cgp_status status = cgp_plan_create(&made, whole, options);
    cgp_plan_destroy(made);
    return status;
}

static const field plan_fields[] = {
    F(cgp_plan_options, stages, INT),
    F(cgp_plan_options, batch, INT64),
    F(cgp_plan_options, chunks, INT),
    F(cgp_plan_options, virtual_stages, INT),
    F(cgp_plan_options, group, INT),
    F(cgp_plan_options, in_flight, INT),
    F(cgp_plan_options, recompute, ENUM),
    F(cgp_plan_options, threads_per_device, INT),
    F(cgp_plan_options, memory_limit, INT64),
    F(cgp_plan_options, precision, ENUM),
    F(cgp_plan_options, convolution, ENUM),
    F(cgp_plan_options, optim.kind, ENUM),
    F(cgp_plan_options, optim.lr, REAL),
    F(cgp_plan_options, optim.weight_decay, REAL),
    F(cgp_plan_options, optim.clip_norm, REAL),
    F(cgp_plan_options, optim.momentum, REAL),
    F(cgp_plan_options, optim.schedule.kind, ENUM),
    F(cgp_plan_options, optim.schedule.warmup, INT64),
    F(cgp_plan_options, optim.schedule.start, REAL),
    F(cgp_plan_options, optim.schedule.warmup_interval, INT64),
};

static const field adam_fields[] = {
    F(cgp_plan_options, optim.beta1, REAL),
    F(cgp_plan_options, optim.beta2, REAL),
    F(cgp_plan_options, optim.eps, REAL),
};
static const field rmsprop_fields[] = {F(cgp_plan_options, optim.alpha, REAL)};
static const field cosine_fields[] = {F(cgp_plan_options, optim.schedule.min_ratio, REAL),
                                      F(cgp_plan_options, optim.schedule.steps, INT64)};
static const field step_fields[] = {F(cgp_plan_options, optim.schedule.gamma, REAL),
                                    F(cgp_plan_options, optim.schedule.step_size, INT64)};
static const field milestone_fields[] = {F(cgp_plan_options, optim.schedule.gamma, REAL),
                                         F(cgp_plan_options, optim.schedule.n_milestones, INT),
                                         F(cgp_plan_options, optim.schedule.milestones, INT64)};

TEST(plan_options_are_checked) {
    cgp_plan_options o = cgp_plan_options_default();
    for (int inference = 0; inference < 2; inference++) {
        o.inference = inference == 1;
        TRY(o, plan_fields, plan);
    }
    o = cgp_plan_options_default();
    o.optim = cgp_optim_adamw(0.1, 0);
    TRY(o, adam_fields, plan);
    o.optim = cgp_optim_rmsprop(0.1, 0, 0);
    TRY(o, rmsprop_fields, plan);
    o.optim.schedule.kind = CGP_LR_COSINE;
    o.optim.schedule.steps = 10;
    TRY(o, cosine_fields, plan);
    o.optim.schedule.kind = CGP_LR_STEP;
    o.optim.schedule.gamma = 0.5;
    o.optim.schedule.step_size = 5;
    TRY(o, step_fields, plan);
    o.optim.schedule.kind = CGP_LR_MILESTONES;
    o.optim.schedule.n_milestones = 1;
    o.optim.schedule.milestones[0] = 3;
    TRY(o, milestone_fields, plan);
}

TEST(lists_of_a_plan_are_checked) {
    cgp_plan_options o = cgp_plan_options_default();
    const char *const no_caller[] = {NULL}, *const unknown[] = {"gpu"};
    const int negative[] = {-1};
    o.devices = no_caller;
    expect_refused(plan(&o), "devices = {NULL}", 0);
    o.devices = unknown;
    expect_refused(plan(&o), "devices = {gpu}", 0);
    o.devices = NULL;
    o.balance = negative;
    expect_refused(plan(&o), "balance = {-1}", 0);
}

/* --- cost, balance, schedule --- */

static cgp_status profile(const void *options) {
    cgp_layer_cost cost;
    return cgp_profile_steps(whole, options, &cost, NULL);
}

static const field profile_fields[] = {
    F(cgp_profile_options, sizes, INT),      F(cgp_profile_options, n_devices, INT),
    F(cgp_profile_options, threads, INT),    F(cgp_profile_options, steps, INT),
    F(cgp_profile_options, precision, ENUM), F(cgp_profile_options, convolution, ENUM)};

static cgp_status balance_by_size(const void *options) {
    int balance[1];
    return cgp_balance_by_size(whole, options, 1, balance);
}

static const field size_fields[] = {F(cgp_balance_size_options, samples, INT64),
                                    F(cgp_balance_size_options, in_flight, INT),
                                    F(cgp_balance_size_options, parameter_scale, REAL)};

typedef struct balanced {
    double cost;
    cgp_layer_cost layer;
    int stages;
} balanced;

static cgp_status balance(const void *options) {
    const balanced *b = options;
    int result[1];
    CGP_TRY(cgp_balance_solve(&b->cost, 1, b->stages, result));
    CGP_TRY(cgp_balance_check(whole, b->stages, (const int[]){1}));
    CGP_TRY(cgp_balance_by_flops(whole, b->stages, result));
    return cgp_balance_by_time(whole, &b->layer, false, b->stages, result);
}

static const field balanced_fields[] = {
    F(balanced, cost, REAL), F(balanced, stages, INT), F(balanced, layer.forward_seconds, REAL),
    F(balanced, layer.input_seconds, REAL), F(balanced, layer.weight_seconds, REAL)};

static cgp_status generate(const void *options) {
    cgp_schedule *schedule = NULL;
    const cgp_status status = cgp_schedule_create(&schedule, "interleaved", 2, 4, options);
    cgp_schedule_destroy(schedule);
    return status;
}

static const field schedule_fields[] = {
    F(cgp_schedule_options, virtual_stages, INT), F(cgp_schedule_options, group, INT),
    F(cgp_schedule_options, in_flight, INT), F(cgp_schedule_options, placement, ENUM),
    F(cgp_schedule_options, latency, REAL)};

typedef struct simulated {
    double forward[2], input[2], weight[2], recompute[2], latency[2], transfer[2];
    int capacity[2];
    cgp_edge edges[2];
    cgp_recompute mode;
    int devices, chunks;
    cgp_csv dialect;
    double until, microseconds;
    int columns;
} simulated;

static cgp_status draw(const simulated *s, const cgp_schedule *schedule,
                       const cgp_schedule_timeline *timeline) {
    char *text = NULL;
    CGP_TRY(cgp_schedule_draw_timeline(schedule, timeline, s->until, s->columns, &text));
    free(text);
    CGP_TRY(cgp_schedule_trace(schedule, timeline, s->microseconds, &text));
    free(text);
    CGP_TRY(cgp_schedule_to_csv(schedule, s->dialect, &text));
    free(text);
    return CGP_OK;
}

static cgp_status run_schedule(const simulated *s, cgp_schedule *schedule) {
    const cgp_schedule_costs costs = {.forward = s->forward,
                                      .backward_input = s->input,
                                      .backward_weight = s->weight,
                                      .recompute = s->recompute,
                                      .latency = s->latency,
                                      .transfer = s->transfer,
                                      .capacity = s->capacity};
    cgp_schedule_timeline timeline = {0};
    CGP_TRY(cgp_schedule_recompute(schedule, s->mode));
    CGP_TRY(cgp_schedule_lower(schedule, s->edges, 2));
    CGP_TRY(cgp_schedule_simulate(schedule, &costs, &timeline));
    const cgp_status status = draw(s, schedule, &timeline);
    cgp_schedule_timeline_release(&timeline);
    return status;
}

static cgp_status simulate(const void *options) {
    const simulated *s = options;
    cgp_schedule *schedule = NULL;
    CGP_TRY(cgp_schedule_create(&schedule, "gpipe", s->devices, s->chunks, NULL));
    const cgp_status status = run_schedule(s, schedule);
    cgp_schedule_destroy(schedule);
    return status;
}

static const field simulated_fields[] = {
    F(simulated, forward, REAL),      F(simulated, input, REAL),
    F(simulated, weight, REAL),       F(simulated, recompute, REAL),
    F(simulated, latency, REAL),      F(simulated, transfer, REAL),
    F(simulated, capacity, INT),      F(simulated, edges[0].from, INT),
    F(simulated, edges[1].to, INT),   F(simulated, mode, ENUM),
    F(simulated, devices, INT),       F(simulated, chunks, INT),
    F(simulated, dialect, ENUM),      F(simulated, until, REAL),
    F(simulated, microseconds, REAL), F(simulated, columns, INT)};

TEST(costs_and_schedules_are_checked) {
    cgp_profile_options p = cgp_profile_options_default();
    cgp_balance_size_options b = cgp_balance_size_options_default();
    cgp_schedule_options s = cgp_schedule_options_default();
    balanced one = {1, {.forward_seconds = 1}, 1};
    simulated step = {{1, 1},
                      {1, 1},
                      {1, 1},
                      {1, 1},
                      {0, 0},
                      {0, 0},
                      {2, 2},
                      {{0, 1}, {1, 0}},
                      CGP_RECOMPUTE_ALWAYS,
                      2,
                      2,
                      CGP_CSV_COMPUTE,
                      1000,
                      1,
                      80};
    p.devices = (const char *const[]){"ref"};
    p.steps = 1;
    s.virtual_stages = 2;
    TRY(p, profile_fields, profile);
    TRY(b, size_fields, balance_by_size);
    TRY(one, balanced_fields, balance);
    TRY(s, schedule_fields, generate);
    TRY(step, simulated_fields, simulate);
}

/* --- data --- */

static cgp_status shapes(const void *options) {
    cgp_data *data = NULL;
    const cgp_status status = cgp_data_shapes(&data, options);
    cgp_data_destroy(data);
    return status;
}

static const field shapes_fields[] = {F(cgp_shapes_options, size, INT64),
                                      F(cgp_shapes_options, validation, INT64)};

static cgp_status create_data(const void *options) {
    cgp_data *data = NULL;
    const cgp_status status = cgp_data_create(&data, options);
    cgp_data_destroy(data);
    return status;
}

static const field source_fields[] = {
    F(cgp_data_source, input.dtype, ENUM),       F(cgp_data_source, input.shape.rank, ENUM),
    F(cgp_data_source, input.shape.dims, INT64), F(cgp_data_source, target.dtype, ENUM),
    F(cgp_data_source, target.shape.rank, ENUM), F(cgp_data_source, training, INT64),
    F(cgp_data_source, validation, INT64),       F(cgp_data_source, threads, INT)};

typedef struct drawn {
    int64_t vocab, sequence, first, count;
    cgp_split split;
} drawn;

static cgp_status draw_tokens(const void *options) {
    const drawn *d = options;
    int32_t tokens[8];
    cgp_data *data = NULL;
    CGP_TRY(cgp_data_random(&data, d->vocab, d->sequence, 0));
    const cgp_status status = cgp_data_read(data, d->split, d->first, d->count, tokens, tokens + 4);
    cgp_data_destroy(data);
    return status;
}

static const field drawn_fields[] = {F(drawn, vocab, INT64), F(drawn, sequence, INT64),
                                     F(drawn, first, INT64), F(drawn, count, INT64),
                                     F(drawn, split, ENUM)};

/* Turn CGP_EIO into CGP_OK. The tests below name a file that does not exist, so CGP_EIO shows that
 * the options were accepted. */
static cgp_status missing_is_fine(cgp_status status, cgp_data *data) {
    cgp_data_destroy(data);
    return status == CGP_EIO ? CGP_OK : status;
}

static cgp_status text(const void *options) {
    cgp_data *data = NULL;
    const char *const paths[] = {"/nowhere"};
    return missing_is_fine(cgp_data_text(&data, paths, 1, options), data);
}

static const field text_fields[] = {F(cgp_text_options, sequence, INT64),
                                    F(cgp_text_options, validation_fraction, REAL),
                                    F(cgp_text_options, n_validation_paths, INT)};

static cgp_status tokens(const void *options) {
    cgp_data *data = NULL;
    const char *const paths[] = {"/nowhere"};
    return missing_is_fine(cgp_data_tokens(&data, paths, 1, options), data);
}

static const field token_fields[] = {
    F(cgp_token_options, sequence, INT64), F(cgp_token_options, vocab, INT64),
    F(cgp_token_options, validation_fraction, REAL), F(cgp_token_options, n_validation_paths, INT)};

static cgp_status cifar(const void *options) {
    cgp_data *data = NULL;
    return missing_is_fine(cgp_data_cifar(&data, "/nowhere", options), data);
}

static const field cifar_fields[] = {F(cgp_cifar_options, classes, INT)};

static cgp_status mnist(const void *options) {
    cgp_data *data = NULL;
    return missing_is_fine(cgp_data_mnist(&data, "/nowhere", options), data);
}

static const field mnist_fields[] = {F(cgp_mnist_options, size, INT64),
                                     F(cgp_mnist_options, channels, INT64)};

static cgp_status images(const void *options) {
    cgp_data *data = NULL;
    return missing_is_fine(cgp_data_image_folder(&data, "/nowhere", options), data);
}

static const field images_fields[] = {F(cgp_image_folder_options, size, INT64),
                                      F(cgp_image_folder_options, validation_fraction, REAL),
                                      F(cgp_image_folder_options, workers, INT),
                                      F(cgp_image_folder_options, drop_last, INT64)};

TEST(data_options_are_checked) {
    cgp_shapes_options s = cgp_shapes_options_default();
    cgp_text_options t = cgp_text_options_default();
    cgp_token_options k = cgp_token_options_default();
    cgp_cifar_options c = cgp_cifar_options_default();
    cgp_mnist_options m = cgp_mnist_options_default();
    cgp_image_folder_options i = cgp_image_folder_options_default();
    cgp_data_source own = cgp_data_source_default();
    drawn d = {8, 4, 0, 1, CGP_SPLIT_TRAIN};
    own.input = own.target = (cgp_data_field){CGP_F32, {1, {4}}};
    own.training = 4;
    own.fill = fill_nothing;
    TRY(s, shapes_fields, shapes);
    TRY(t, text_fields, text);
    TRY(k, token_fields, tokens);
    TRY(c, cifar_fields, cifar);
    TRY(m, mnist_fields, mnist);
    TRY(i, images_fields, images);
    TRY(own, source_fields, create_data);
    TRY(d, drawn_fields, draw_tokens);
}

TEST(lists_of_paths_are_checked) {
    const char *const nothing[] = {NULL}, *const paths[] = {"/dev/null"};
    cgp_data *data = NULL;
    cgp_text_options t = cgp_text_options_default();
    cgp_token_options k = cgp_token_options_default();
    expect_refused(cgp_data_text(&data, nothing, 1, NULL), "text: paths = {NULL}", 0);
    expect_refused(cgp_data_text(&data, paths, -1, NULL), "text: n_paths = -1", 0);
    expect_refused(cgp_data_tokens(&data, nothing, 1, NULL), "tokens: paths = {NULL}", 0);
    expect_refused(cgp_data_tokens(&data, paths, -1, NULL), "tokens: n_paths = -1", 0);
    t.n_validation_paths = k.n_validation_paths = 1;
    expect_refused(cgp_data_text(&data, paths, 1, &t), "text: validation_paths = NULL", 0);
    expect_refused(cgp_data_tokens(&data, paths, 1, &k), "tokens: validation_paths = NULL", 0);
    t.validation_paths = k.validation_paths = nothing;
    expect_refused(cgp_data_text(&data, paths, 1, &t), "text: validation_paths = {NULL}", 0);
    expect_refused(cgp_data_tokens(&data, paths, 1, &k), "tokens: validation_paths = {NULL}", 0);
}

/* --- models --- */

#define CREATE(name)                                                                               \
    static cgp_status name(const void *options) {                                                  \
        cgp_model *model = NULL;                                                                   \
        const cgp_status status = cgp_##name##_create(&model, options);                            \
        cgp_model_destroy(model);                                                                  \
        return status;                                                                             \
    }
CREATE(gpt2)
CREATE(resnet)
CREATE(unet)
CREATE(vit)
CREATE(amoebanetd)
CREATE(model_spec)

static const field gpt2_fields[] = {
    F(cgp_gpt2_options, layers, INT),     F(cgp_gpt2_options, width, INT64),
    F(cgp_gpt2_options, heads, INT64),    F(cgp_gpt2_options, vocab, INT64),
    F(cgp_gpt2_options, sequence, INT64), F(cgp_gpt2_options, dropout, REAL),
    F(cgp_gpt2_options, gelu, ENUM),      F(cgp_gpt2_options, eps, REAL),
    F(cgp_gpt2_options, inner, INT64),    F(cgp_gpt2_options, residuals, INT64)};
static const field resnet_fields[] = {
    F(cgp_resnet_options, depth, INT), F(cgp_resnet_options, classes, INT64),
    F(cgp_resnet_options, image, INT64), F(cgp_resnet_options, width, INT64)};
static const field unet_fields[] = {
    F(cgp_unet_options, convs, INT), F(cgp_unet_options, channels, INT64),
    F(cgp_unet_options, depth, INT), F(cgp_unet_options, image, INT64),
    F(cgp_unet_options, dropout, REAL)};
static const field vit_fields[] = {
    F(cgp_vit_options, layers, INT),    F(cgp_vit_options, width, INT64),
    F(cgp_vit_options, heads, INT64),   F(cgp_vit_options, inner, INT64),
    F(cgp_vit_options, image, INT64),   F(cgp_vit_options, patch, INT64),
    F(cgp_vit_options, classes, INT64), F(cgp_vit_options, eps, REAL),
    F(cgp_vit_options, dropout, REAL)};
static const field amoebanetd_fields[] = {
    F(cgp_amoebanetd_options, layers, INT), F(cgp_amoebanetd_options, filters, INT64),
    F(cgp_amoebanetd_options, classes, INT64), F(cgp_amoebanetd_options, image, INT64),
    F(cgp_amoebanetd_options, maxpool, ENUM)};
static const field spec_fields[] = {F(cgp_model_spec, kind, ENUM)};

TEST(models_are_checked) {
    cgp_gpt2_options g = cgp_gpt2_options_default();
    cgp_resnet_options r = cgp_resnet_options_default();
    cgp_unet_options u = cgp_unet_options_default();
    cgp_amoebanetd_options a = cgp_amoebanetd_options_default();
    cgp_vit_options v = cgp_vit_options_default();
    cgp_model_spec n = cgp_model_spec_default();
    TRY(g, gpt2_fields, gpt2);
    TRY(r, resnet_fields, resnet);
    TRY(u, unet_fields, unet);
    TRY(a, amoebanetd_fields, amoebanetd);
    TRY(v, vit_fields, vit);
    TRY(n, spec_fields, model_spec);
}

TEST_GROUP(.set_up = make_whole, .tear_down = drop_whole);
