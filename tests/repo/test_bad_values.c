/* SPDX-License-Identifier: Apache-2.0 */
/* test_bad_values.c -- every number and enum of every options struct, and of the builder's calls, with values that none may
 * have: NaN, infinite, negative, not in the enum. Each is CGP_EINVAL, and the message has the value or names what is wrong.
 * Then what a pointer may lead to: NULL in a list, a name that is not UTF-8. */
#include "support.h"

#include <cgpipe/cgpipe.h>
#include <cgpipe/models/spec.h>

#include <limits.h>

typedef enum kind {
    REAL,
    INT,
    INT64,
    ENUM,
    SIGNED
} kind; /* SIGNED: a real that may be negative */

typedef struct field {
    const char *name;
    size_t offset;
    kind kind;
} field;

#define F(type, name, kind)                                                                    \
    { #type "." #name, offsetof(type, name), kind }

static int failures, tried;

/* Memory of the field's kind becomes bad value number `i`; false: there is none of that number. */
static bool put(void *at, kind k, int i) {
    static const double reals[] = {NAN, INFINITY, -INFINITY, -0.5};
    static const int ints[] = {-1, INT_MIN}, enums[] = {-1, 99, INT_MAX};
    static const int64_t int64s[] = {-1, INT64_MIN};
    if (i >= (k == REAL ? 4 : k == SIGNED ? 3 : k == ENUM ? 3 : 2)) return false;
    if (k == REAL || k == SIGNED) memcpy(at, &reals[i], sizeof reals[i]);
    if (k == INT) memcpy(at, &ints[i], sizeof ints[i]);
    if (k == ENUM) memcpy(at, &enums[i], sizeof enums[i]);
    if (k == INT64) memcpy(at, &int64s[i], sizeof int64s[i]);
    return true;
}

static void expect_refused(cgp_status status, const char *name, int i) {
    tried++;
    if (status == CGP_EINVAL && cgp_message()[0]) return;
    failures++;
    print_error("%s, bad value %d: %s (%s), expected CGP_EINVAL\n", name, i,
                cgp_status_name(status), cgp_message());
}

/* Each field of `options` in turn; `use` takes the options, which are as they were in between. */
static void try_fields(void *options, size_t size, const field *fields, size_t n,
                       cgp_status (*use)(const void *options)) {
    unsigned char before[2048];
    assert_true(size <= sizeof before);
    memcpy(before, options, size);
    (void)cgp_fail(CGP_OK, "%s", "");
    assert_ok(use(options));
    for (size_t f = 0; f < n; f++) {
        for (int i = 0; put((char *)options + fields[f].offset, fields[f].kind, i); i++) {
            (void)cgp_fail(CGP_OK, "%s", "");
            expect_refused(use(options), fields[f].name, i);
            memcpy(options, before, size);
        }
    }
}

#define TRY(options, fields, use)                                                              \
    try_fields(&(options), sizeof(options), fields, sizeof(fields) / sizeof(fields)[0], use)

/* --- plans --- */

static cgp_model *make_model(void) {
    cgp_model *model = NULL;
    assert_ok(cgp_model_create(&model, "m"));
    const cgp_value x = cgp_model_input(model, "x", CGP_F32, 1, (const int64_t[]){4});
    const cgp_value labels = cgp_model_input(model, "labels", CGP_I32, 1, (const int64_t[]){1});
    cgp_model_layer(model, "one");
    const cgp_value y = cgp_linear(model, x, "one", (cgp_linear_options){.out = 3});
    cgp_model_loss_cross_entropy(model, y, labels, -100, 1);
    cgp_model_output(model, y);
    assert_ok(cgp_model_finish(model));
    return model;
}

static const cgp_model *whole;

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
    F(cgp_plan_options, recompute, ENUM),
    F(cgp_plan_options, threads_per_device, INT),
    F(cgp_plan_options, memory_limit, INT64),
    F(cgp_plan_options, precision, ENUM),
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

static void plan_options_are_checked(void **state) {
    (void)state;
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

static void lists_of_a_plan_are_checked(void **state) {
    (void)state;
    cgp_plan_options o = cgp_plan_options_default();
    const char *const nobody[] = {NULL}, *const unknown[] = {"gpu"};
    const int negative[] = {-1};
    o.devices = nobody;
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
    return cgp_profile(whole, options, &cost);
}

static const field profile_fields[] = {
    F(cgp_profile_options, samples, INT64), F(cgp_profile_options, threads, INT),
    F(cgp_profile_options, type, ENUM), F(cgp_profile_options, repeats, INT)};

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
    F(cgp_schedule_options, placement, ENUM), F(cgp_schedule_options, latency, REAL)};

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

static void costs_and_schedules_are_checked(void **state) {
    (void)state;
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
    p.device = "ref";
    p.repeats = 1;
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

static cgp_status fill(void *context, cgp_split split, int64_t index, int64_t position,
                       void *input, void *target) {
    (void)context;
    (void)split;
    (void)index;
    (void)position;
    (void)input;
    (void)target;
    return CGP_OK;
}

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
    const cgp_status status =
        cgp_data_read(data, d->split, d->first, d->count, tokens, tokens + 4);
    cgp_data_destroy(data);
    return status;
}

static const field drawn_fields[] = {F(drawn, vocab, INT64), F(drawn, sequence, INT64),
                                     F(drawn, first, INT64), F(drawn, count, INT64),
                                     F(drawn, split, ENUM)};

/* The file that these read is missing, which is found out after the options. */
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

static const field token_fields[] = {F(cgp_token_options, sequence, INT64),
                                     F(cgp_token_options, vocab, INT64),
                                     F(cgp_token_options, validation_fraction, REAL),
                                     F(cgp_token_options, n_validation_paths, INT)};

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
    return missing_is_fine(cgp_data_images(&data, "/nowhere", options), data);
}

static const field images_fields[] = {
    F(cgp_images_options, size, INT64), F(cgp_images_options, validation_fraction, REAL),
    F(cgp_images_options, workers, INT), F(cgp_images_options, drop_last, INT64)};

static void data_options_are_checked(void **state) {
    (void)state;
    cgp_shapes_options s = cgp_shapes_options_default();
    cgp_text_options t = cgp_text_options_default();
    cgp_token_options k = cgp_token_options_default();
    cgp_cifar_options c = cgp_cifar_options_default();
    cgp_mnist_options m = cgp_mnist_options_default();
    cgp_images_options i = cgp_images_options_default();
    cgp_data_source own = cgp_data_source_default();
    drawn d = {8, 4, 0, 1, CGP_SPLIT_TRAIN};
    own.input = own.target = (cgp_data_field){CGP_F32, {1, {4}}};
    own.training = 4;
    own.fill = fill;
    TRY(s, shapes_fields, shapes);
    TRY(t, text_fields, text);
    TRY(k, token_fields, tokens);
    TRY(c, cifar_fields, cifar);
    TRY(m, mnist_fields, mnist);
    TRY(i, images_fields, images);
    TRY(own, source_fields, create_data);
    TRY(d, drawn_fields, draw_tokens);
}

static void lists_of_paths_are_checked(void **state) {
    (void)state;
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
    expect_refused(cgp_data_tokens(&data, paths, 1, &k), "tokens: validation_paths = {NULL}",
                   0);
}

/* --- models --- */

#define CREATE(name)                                                                           \
    static cgp_status name(const void *options) {                                              \
        cgp_model *model = NULL;                                                               \
        const cgp_status status = cgp_##name##_create(&model, options);                        \
        cgp_model_destroy(model);                                                              \
        return status;                                                                         \
    }
CREATE(gpt2)
CREATE(resnet)
CREATE(unet)
CREATE(amoebanetd)
CREATE(model_spec)

static const field gpt2_fields[] = {
    F(cgp_gpt2_options, layers, INT),     F(cgp_gpt2_options, width, INT64),
    F(cgp_gpt2_options, heads, INT64),    F(cgp_gpt2_options, vocab, INT64),
    F(cgp_gpt2_options, sequence, INT64), F(cgp_gpt2_options, dropout, REAL),
    F(cgp_gpt2_options, gelu, ENUM),      F(cgp_gpt2_options, eps, REAL),
    F(cgp_gpt2_options, inner, INT64)};
static const field resnet_fields[] = {
    F(cgp_resnet_options, depth, INT), F(cgp_resnet_options, classes, INT64),
    F(cgp_resnet_options, image, INT64), F(cgp_resnet_options, width, INT64)};
static const field unet_fields[] = {
    F(cgp_unet_options, convs, INT), F(cgp_unet_options, channels, INT64),
    F(cgp_unet_options, depth, INT), F(cgp_unet_options, image, INT64),
    F(cgp_unet_options, dropout, REAL)};
static const field amoebanetd_fields[] = {
    F(cgp_amoebanetd_options, layers, INT), F(cgp_amoebanetd_options, filters, INT64),
    F(cgp_amoebanetd_options, classes, INT64), F(cgp_amoebanetd_options, image, INT64),
    F(cgp_amoebanetd_options, maxpool, ENUM)};
static const field spec_fields[] = {F(cgp_model_spec, kind, ENUM)};

static void models_are_checked(void **state) {
    (void)state;
    cgp_gpt2_options g = cgp_gpt2_options_default();
    cgp_resnet_options r = cgp_resnet_options_default();
    cgp_unet_options u = cgp_unet_options_default();
    cgp_amoebanetd_options a = cgp_amoebanetd_options_default();
    cgp_model_spec n = cgp_model_spec_default();
    TRY(g, gpt2_fields, gpt2);
    TRY(r, resnet_fields, resnet);
    TRY(u, unet_fields, unet);
    TRY(a, amoebanetd_fields, amoebanetd);
    TRY(n, spec_fields, model_spec);
}

/* --- the builder --- */

/* An argument of each call. */
typedef struct built {
    cgp_init init;
    cgp_linear_options linear;
    cgp_conv2d_options conv;
    cgp_pool_options pool;
    cgp_padding padding;
    cgp_dtype dtype;
    int rank, scale, n;
    int64_t dim, vocab, width, heads;
    double eps, momentum, slope, p, p2, attention_p, weight, bce_weight;
} built;

static cgp_status build(const void *options) {
    const built *b = options;
    cgp_model *model = NULL;
    CGP_TRY(cgp_model_create(&model, "m"));
    const cgp_value ids = cgp_model_input(model, "ids", CGP_I32, 1, (const int64_t[]){4});
    const cgp_value image =
        cgp_model_input(model, "image", CGP_F32, 3, (const int64_t[]){8, 8, 4});
    const cgp_value mask = cgp_model_input(model, "mask", CGP_F32, 1, (const int64_t[]){4});
    const cgp_value label = cgp_model_input(model, "label", CGP_I32, 1, (const int64_t[]){1});
    const cgp_value more =
        cgp_model_input(model, "more", b->dtype, b->rank, (const int64_t[]){b->dim, 1, 1});
    cgp_model_layer(model, "layer");
    cgp_value x = cgp_embedding(model, ids, "e", b->vocab, b->width, b->init);
    x = cgp_position_embedding(model, x, "p", b->init);
    x = cgp_layer_norm(model, x, "n", b->eps);
    x = cgp_causal_attention(model, x, b->heads, b->attention_p);
    x = cgp_dropout(model, x, b->p);
    x = cgp_linear(model, x, "l", b->linear);
    cgp_value y = cgp_conv2d(model, image, "c", b->conv);
    y = cgp_batch_norm(model, y, "b", b->eps, b->momentum);
    y = cgp_instance_norm(model, y, b->eps);
    y = cgp_leaky_relu(model, y, b->slope);
    y = cgp_dropout2d(model, y, b->p2);
    y = cgp_max_pool(model, y, b->pool);
    y = cgp_pad(model, cgp_upsample_nearest(model, y, b->scale), b->padding);
    y = cgp_concat(model, (const cgp_value[]){y, y}, b->n);
    y = cgp_linear(model, cgp_global_average_pool(model, y), "h", b->linear);
    cgp_model_output(model, cgp_add(model, y, y));
    cgp_model_loss_cross_entropy(model, y, label, -100, b->weight);
    cgp_model_loss_bce_with_logits(model, y, mask, b->bce_weight);
    (void)more;
    const cgp_status status = cgp_model_finish(model);
    cgp_model_destroy(model);
    return status;
}

static const field built_fields[] = {F(built, init.kind, ENUM),
                                     F(built, init.scale, REAL),
                                     F(built, linear.out, INT64),
                                     F(built, linear.init.kind, ENUM),
                                     F(built, linear.init.scale, REAL),
                                     F(built, linear.bias_init.kind, ENUM),
                                     F(built, linear.bias_init.scale, REAL),
                                     F(built, conv.out, INT64),
                                     F(built, conv.kernel[0], INT),
                                     F(built, conv.kernel[1], INT),
                                     F(built, conv.stride[0], INT),
                                     F(built, conv.stride[1], INT),
                                     F(built, conv.init.kind, ENUM),
                                     F(built, conv.init.scale, REAL),
                                     F(built, conv.bias_init.kind, ENUM),
                                     F(built, conv.bias_init.scale, REAL),
                                     F(built, pool.kernel[0], INT),
                                     F(built, pool.kernel[1], INT),
                                     F(built, pool.stride[0], INT),
                                     F(built, pool.stride[1], INT),
                                     F(built, pool.padding.top, INT),
                                     F(built, pool.padding.right, INT),
                                     F(built, dtype, ENUM),
                                     F(built, rank, ENUM),
                                     F(built, scale, INT),
                                     F(built, n, ENUM),
                                     F(built, dim, INT64),
                                     F(built, vocab, INT64),
                                     F(built, width, INT64),
                                     F(built, heads, INT64),
                                     F(built, eps, REAL),
                                     F(built, momentum, REAL),
                                     F(built, slope, REAL),
                                     F(built, p, REAL),
                                     F(built, p2, REAL),
                                     F(built, attention_p, REAL),
                                     F(built, weight, REAL),
                                     F(built, bce_weight, REAL)};

static void calls_of_the_builder_are_checked(void **state) {
    (void)state;
    const cgp_init normal = {CGP_INIT_NORMAL, 0.1};
    for (int bias = 0; bias < 2; bias++) { /* without one, its init is given all the same */
        built b = {.init = normal,
                   .linear = {4, bias == 1, false, normal, normal},
                   .conv = {4, {3, 3}, {1, 1}, cgp_padding_all(1), bias == 1, normal, normal},
                   .pool = {{2, 2}, {2, 2}, {0, 0, 0, 0}},
                   .padding = {1, 0, 0, 0},
                   .dtype = CGP_F32,
                   .rank = 1,
                   .scale = 2,
                   .n = 2,
                   .dim = 4,
                   .vocab = 8,
                   .width = 12,
                   .heads = 2,
                   .eps = 1e-5,
                   .momentum = 0.1,
                   .slope = 0.1,
                   .p = 0.1,
                   .p2 = 0.1,
                   .attention_p = 0.1,
                   .weight = 1,
                   .bce_weight = 1};
        TRY(b, built_fields, build);
    }
}

/* --- custom ops --- */

static cgp_init op_init;

static cgp_status infer(const void *attributes, const cgp_op_type *inputs, cgp_op_shapes *out) {
    (void)attributes;
    out->output = inputs[0];
    out->n_parameters = 1;
    out->parameters[0] = (cgp_op_parameter){"weight", inputs[0].shape, op_init, true};
    return CGP_OK;
}

static cgp_status forward(const cgp_op_run *run) {
    for (int64_t i = 0; i < 4 * run->n; i++)
        ((float *)run->y)[i] = ((const float *)run->x[0])[i] * run->parameters[0][i % 4];
    return CGP_OK;
}

static cgp_status backward_input(const cgp_op_run *run) {
    for (int64_t i = 0; i < 4 * run->n; i++)
        run->dx[0][i] = run->dy[i] * run->parameters[0][i % 4];
    return CGP_OK;
}

static cgp_status backward_weight(const cgp_op_run *run) {
    for (int64_t i = 0; i < 4; i++) {
        run->dparameters[0][i] = 0;
        for (int64_t s = 0; s < run->n; s++)
            run->dparameters[0][i] +=
                run->dy[4 * s + i] * ((const float *)run->x[0])[4 * s + i];
    }
    return CGP_OK;
}

static const cgp_op scale_op = {.struct_size = sizeof(cgp_op),
                                .name = "scale",
                                .n_inputs = 1,
                                .infer = infer,
                                .weight_needs_x = 1,
                                .forward = forward,
                                .backward_input = backward_input,
                                .backward_weight = backward_weight};

static cgp_status check_op(const void *options) {
    op_init = (cgp_init){CGP_INIT_ONE, 0};
    return cgp_op_check(&scale_op, NULL, &(const cgp_op_type){CGP_F32, {1, {4}}, 0}, options);
}

static const field check_fields[] = {
    F(cgp_op_check_options, low, SIGNED), F(cgp_op_check_options, high, SIGNED),
    F(cgp_op_check_options, step, REAL), F(cgp_op_check_options, tolerance, REAL),
    F(cgp_op_check_options, elements, INT)};

static cgp_status apply(const void *options) {
    cgp_model *model = NULL;
    op_init = *(const cgp_init *)options;
    CGP_TRY(cgp_model_create(&model, "m"));
    const cgp_value x = cgp_model_input(model, "x", CGP_F32, 1, (const int64_t[]){4});
    cgp_model_layer(model, "layer");
    cgp_model_output(model, cgp_op_apply(model, &scale_op, &x, "s", NULL));
    const cgp_status status = cgp_model_finish(model);
    cgp_model_destroy(model);
    return status;
}

static const field init_fields[] = {F(cgp_init, kind, ENUM), F(cgp_init, scale, REAL)};

static void custom_ops_are_checked(void **state) {
    (void)state;
    cgp_op_check_options o = cgp_op_check_options_default();
    cgp_init init = {CGP_INIT_UNIFORM, 1};

    TRY(o, check_fields, check_op);
    TRY(init, init_fields, apply);
}

/* --- tensors of a step, timeout, files --- */

typedef struct stepped {
    cgp_tensor x;
    double timeout;
    int n_inputs, keep;
} stepped;

static cgp_pipeline *pipeline;

static cgp_status run_step(const void *options) {
    const stepped *s = options;
    static int32_t labels[1];
    const cgp_tensor l = {CGP_I32, {2, {1, 1}}, labels};
    const cgp_tensor *const inputs[] = {&s->x, &l};
    CGP_TRY(cgp_pipeline_set_timeout(pipeline, s->timeout));
    CGP_TRY(cgp_pipeline_step(pipeline, inputs, s->n_inputs, NULL));
    CGP_TRY(cgp_pipeline_evaluate(pipeline, inputs, s->n_inputs, NULL));
    CGP_TRY(cgp_optim_step(pipeline));
    return s->keep < 0 ? cgp_pipeline_save(pipeline, "/nowhere/run", s->keep, NULL) : CGP_OK;
}

static const field stepped_fields[] = {F(stepped, x.dtype, ENUM),
                                       F(stepped, x.shape.rank, ENUM),
                                       F(stepped, x.shape.dims[0], INT64),
                                       F(stepped, x.shape.dims[1], INT64),
                                       F(stepped, timeout, REAL),
                                       F(stepped, n_inputs, ENUM),
                                       F(stepped, keep, INT)};

static void what_a_pipeline_is_given_is_checked(void **state) {
    (void)state;
    float x[4] = {1};
    stepped s = {{CGP_F32, {2, {1, 4}}, x}, 0, 2, 0};
    const cgp_plan_options o = cgp_plan_options_default();
    const cgp_tensor *const nothing[] = {NULL, NULL};
    const cgp_tensor no_data = {CGP_F32, {2, {1, 4}}, NULL};
    const cgp_tensor *const empty[] = {&no_data, &no_data};
    float parameter[12];
    cgp_plan *made = NULL;
    assert_ok(cgp_plan_create(&made, whole, &o));
    assert_ok(cgp_pipeline_create(&pipeline, made, 0));
    TRY(s, stepped_fields, run_step);
    expect_refused(cgp_pipeline_step(pipeline, nothing, 2, NULL), "inputs = {NULL}", 0);
    expect_refused(cgp_pipeline_step(pipeline, empty, 2, NULL), "data = NULL", 0);
    expect_refused(cgp_pipeline_predict(pipeline, nothing, 2, &s.x), "inputs = {NULL}", 0);
    expect_refused(cgp_pipeline_get_parameter(pipeline, -1, parameter), "parameter", 0);
    expect_refused(cgp_pipeline_get_optimizer_state(pipeline, 0, -1, parameter), "state", 0);
    cgp_pipeline_destroy(pipeline);
    cgp_plan_destroy(made);
}

typedef struct written {
    cgp_dtype type;
    cgp_shape shape;
    int count, n_metadata;
} written;

static cgp_status write_file(const void *options) {
    const written *w = options;
    cgp_safetensors_writer *writer = NULL;
    const char *const names[] = {"a"};
    char path[] = "/tmp/cgp-bad-values.safetensors";
    CGP_TRY(cgp_safetensors_create(&writer, path, w->count, names, &w->type, &w->shape, NULL,
                                   w->n_metadata));
    cgp_safetensors_abandon(writer);
    return CGP_OK;
}

static const field written_fields[] = {F(written, type, ENUM), F(written, shape.rank, ENUM),
                                       F(written, shape.dims, INT64), F(written, count, INT),
                                       F(written, n_metadata, INT)};

static void what_a_file_is_made_of_is_checked(void **state) {
    (void)state;
    written w = {CGP_F32, {1, {4}}, 1, 0};
    cgp_safetensors_writer *writer = NULL;
    const char *const nothing[] = {NULL, NULL}, *const names[] = {"a"};
    TRY(w, written_fields, write_file);
    expect_refused(cgp_safetensors_create(&writer, "/tmp/cgp-bad-values.safetensors", 1,
                                          nothing, &w.type, &w.shape, NULL, 0),
                   "names = {NULL}", 0);
    expect_refused(cgp_safetensors_create(&writer, "/tmp/cgp-bad-values.safetensors", 1, names,
                                          &w.type, &w.shape, nothing, 1),
                   "metadata = {NULL, NULL}", 0);
}

/* --- enums that only have a name, ranks --- */

static void numbers_that_stand_for_nothing_have_no_name(void **state) {
    (void)state;
    static const int wrong[] = {-1, 99, INT_MIN, INT_MAX};
    char buffer[64];
    for (int i = 0; i < 4; i++) {
        const int n = wrong[i];
        const cgp_action action = {(cgp_action_kind)n, n, n, n, false};
        const cgp_shape shape = {n, {1}};
        assert_non_null(cgp_status_name((cgp_status)n));
        assert_non_null(cgp_dtype_name((cgp_dtype)n));
        assert_int_equal(cgp_dtype_bytes((cgp_dtype)n), 0);
        assert_non_null(cgp_recompute_name((cgp_recompute)n));
        assert_non_null(cgp_precision_name((cgp_precision)n));
        assert_non_null(cgp_optim_kind_name((cgp_optim_kind)n));
        assert_non_null(cgp_lr_kind_name((cgp_lr_kind)n));
        assert_non_null(cgp_schedule_part_name((cgp_schedule_part)n));
        assert_null(cgp_model_kind_name((cgp_model_kind)n));
        assert_null(cgp_schedule_info_at(n));
        assert_non_null(cgp_action_text(&action, buffer, sizeof buffer));
        assert_non_null(cgp_shape_text(&shape, buffer, sizeof buffer));
        assert_true(cgp_shape_count(&shape) <= 1);
        (void)cgp_shape_equal(&shape, &shape);
        assert_int_equal(cgp_shape_make(n, (const int64_t[]){1}).rank, -1);
    }
    cgp_log_set_level((cgp_log_level)99);
    cgp_log_set_level(CGP_LOG_WARN);
}

/* --- names --- */

#define NOT_UTF8 "caf\xe9"

static cgp_status finish(cgp_model *model, const char *name) {
    cgp_value y = cgp_linear(model, (cgp_value){0}, name, (cgp_linear_options){.out = 2});
    cgp_model_output(model, y);
    const cgp_status status = cgp_model_finish(model);
    cgp_model_destroy(model);
    return status;
}

static cgp_model *begin(const char *name, const char *input, const char *layer) {
    cgp_model *model = NULL;
    if (cgp_model_create(&model, name) != CGP_OK) return NULL;
    cgp_model_input(model, input, CGP_F32, 1, (const int64_t[]){4});
    cgp_model_layer(model, layer);
    return model;
}

static void names_are_utf8(void **state) {
    (void)state;
    cgp_model *model = NULL;
    cgp_data *data = NULL;
    cgp_data_source source = cgp_data_source_default();
    source.input = source.target = (cgp_data_field){CGP_F32, {1, {4}}};
    source.training = 4;
    source.fill = fill;
    expect_refused(cgp_model_create(&model, NOT_UTF8), "the name of a model", 0);
    expect_refused(finish(begin("m", NOT_UTF8, "layer"), "l"), "the name of an input", 0);
    expect_refused(finish(begin("m", "x", NOT_UTF8), "l"), "the name of a layer", 0);
    expect_refused(finish(begin("m", "x", "layer"), NOT_UTF8), "the name of parameters", 0);
    model = begin("m", "x", "layer");
    cgp_model_stash(model, NULL, NOT_UTF8, (cgp_value){0});
    expect_refused(finish(model, "l"), "the name of a stash", 0);
    source.name = NOT_UTF8;
    expect_refused(cgp_data_create(&data, &source), "the name of a data set", 0);
    assert_ok(finish(begin("m\xc3\xb6"
                           "del",
                           "\xe2\x82\xac", "\xf0\x9f\x98\x80"),
                     "caf\xc3\xa9"));
}

static int none_failed(void **state) {
    (void)state;
    print_message("%d bad values tried, %d accepted\n", tried, failures);
    if (failures) print_error("%d accepted\n", failures);
    failures = 0;
    return 0;
}

static int make_whole(void **state) {
    (void)state;
    whole = make_model();
    return 0;
}

static int drop_whole(void **state) {
    cgp_model_destroy((cgp_model *)(uintptr_t)whole);
    return none_failed(state);
}

/* Each test ends in a look at what it found. */
#define TEST(name)                                                                             \
    static void name##_all(void **state) {                                                     \
        failures = 0;                                                                          \
        name(state);                                                                           \
        assert_int_equal(failures, 0);                                                         \
    }
TEST(plan_options_are_checked)
TEST(lists_of_a_plan_are_checked)
TEST(costs_and_schedules_are_checked)
TEST(data_options_are_checked)
TEST(lists_of_paths_are_checked)
TEST(models_are_checked)
TEST(calls_of_the_builder_are_checked)
TEST(custom_ops_are_checked)
TEST(what_a_pipeline_is_given_is_checked)
TEST(what_a_file_is_made_of_is_checked)
TEST(names_are_utf8)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plan_options_are_checked_all),
        cmocka_unit_test(lists_of_a_plan_are_checked_all),
        cmocka_unit_test(costs_and_schedules_are_checked_all),
        cmocka_unit_test(data_options_are_checked_all),
        cmocka_unit_test(lists_of_paths_are_checked_all),
        cmocka_unit_test(models_are_checked_all),
        cmocka_unit_test(calls_of_the_builder_are_checked_all),
        cmocka_unit_test(custom_ops_are_checked_all),
        cmocka_unit_test(what_a_pipeline_is_given_is_checked_all),
        cmocka_unit_test(what_a_file_is_made_of_is_checked_all),
        cmocka_unit_test(numbers_that_stand_for_nothing_have_no_name),
        cmocka_unit_test(names_are_utf8_all),
    };
    return cmocka_run_group_tests(tests, make_whole, drop_whole);
}
