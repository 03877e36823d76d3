/* SPDX-License-Identifier: Apache-2.0 */
/* test_bad_values.c -- pass invalid values to the model builder, custom ops, pipelines and files,
 * as test_bad_options.c does for options. The tests also pass names that are not UTF-8. */
#include "bad_values.h"

#include <cgpipe/data.h>
#include "directory.h"

/* --- the builder --- */

/* Arguments of all calls of the model builder. */
typedef struct built {
    cgp_init init;
    cgp_linear_options linear;
    cgp_conv2d_options conv;
    cgp_conv_transpose2d_options transposed;
    cgp_pool_options pool;
    cgp_padding padding;
    cgp_dtype dtype;
    int rank, scale, n, mean;
    cgp_attention_options attention;
    cgp_rotary_options rotary;
    int reshape_rank;
    int64_t dim, vocab, width, heads, groups, slice_begin, slice_end;
    double eps, momentum, slope, factor, p, p2, attention_p, weight, bce_weight, beta;
} built;

static cgp_status build(const void *options) {
    const built *b = options;
    cgp_model *model = NULL;
    CGP_TRY(cgp_model_create(&model, "m"));
    const cgp_value ids = cgp_model_input(model, "ids", CGP_I32, 1, (const int64_t[]){4});
    const cgp_value image = cgp_model_input(model, "image", CGP_F32, 3, (const int64_t[]){8, 8, 4});
    const cgp_value mask = cgp_model_input(model, "mask", CGP_F32, 1, (const int64_t[]){4});
    const cgp_value label = cgp_model_input(model, "label", CGP_I32, 1, (const int64_t[]){1});
    const cgp_value more =
        cgp_model_input(model, "more", b->dtype, b->rank, (const int64_t[]){b->dim, 1, 1});
    cgp_model_layer(model, "layer");
    cgp_value x = cgp_embedding(model, ids, "e", b->vocab, b->width, b->init);
    x = cgp_position_embedding(model, x, "p", b->init);
    x = cgp_layer_norm(model, x, "n", b->eps);
    x = cgp_scale(model, cgp_rms_norm(model, x, "r", b->eps), b->factor);
    x = cgp_causal_attention(model, x, b->heads, b->attention_p);
    x = cgp_rotary_embedding(model, x, b->rotary);
    x = cgp_attention(model, x, x, x, b->attention);
    x = cgp_dropout(model, x, b->p);
    (void)cgp_mean(model, cgp_linear(model, x, "l", b->linear), b->mean);
    cgp_value y = cgp_conv2d(model, image, "c", b->conv);
    y = cgp_conv_transpose2d(model, y, "t", b->transposed);
    y = cgp_slice(model, y, -1, b->slice_begin, b->slice_end);
    y = cgp_reshape(model, y, b->reshape_rank, (const int64_t[CGP_MAX_RANK]){8, 8, -1, 1, 1, 1});
    y = cgp_batch_norm(model, y, "b", b->eps, b->momentum);
    y = cgp_instance_norm(model, y, b->eps);
    y = cgp_group_norm(model, y, "g", b->groups, b->eps);
    y = cgp_leaky_relu(model, y, b->slope);
    y = cgp_dropout2d(model, y, b->p2);
    y = cgp_max_pool(model, y, b->pool);
    y = cgp_pad(model, cgp_upsample_nearest(model, y, b->scale), b->padding);
    y = cgp_concat(model, (const cgp_value[]){y, y}, b->n);
    y = cgp_linear(model, cgp_global_average_pool(model, y), "h", b->linear);
    cgp_model_output(model, cgp_add(model, y, y));
    cgp_model_loss_cross_entropy(model, y, label, -100, b->weight);
    cgp_model_loss_bce_with_logits(model, y, mask, b->bce_weight);
    cgp_model_loss_smooth_l1(model, y, mask, b->beta, 1);
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
                                     F(built, transposed.out, INT64),
                                     F(built, transposed.kernel[0], INT),
                                     F(built, transposed.kernel[1], INT),
                                     F(built, transposed.stride[0], INT),
                                     F(built, transposed.stride[1], INT),
                                     F(built, transposed.output_padding[0], INT),
                                     F(built, transposed.output_padding[1], INT),
                                     F(built, transposed.init.kind, ENUM),
                                     F(built, transposed.init.scale, REAL),
                                     F(built, transposed.bias_init.kind, ENUM),
                                     F(built, transposed.bias_init.scale, REAL),
                                     F(built, slice_begin, INT64),
                                     F(built, slice_end, INT64),
                                     F(built, reshape_rank, ENUM),
                                     F(built, pool.kernel[0], INT),
                                     F(built, pool.kernel[1], INT),
                                     F(built, pool.stride[0], INT),
                                     F(built, pool.stride[1], INT),
                                     F(built, pool.padding.top, INT),
                                     F(built, pool.padding.right, INT),
                                     F(built, attention.heads, INT64),
                                     F(built, attention.kv_heads, INT64),
                                     F(built, attention.window, INT64),
                                     F(built, attention.p, REAL),
                                     F(built, attention.scale, REAL),
                                     F(built, rotary.heads, INT64),
                                     F(built, rotary.width, INT64),
                                     F(built, rotary.theta, REAL),
                                     F(built, rotary.offset, INT64),
                                     F(built, rotary.scaling, ENUM),
                                     F(built, rotary.factor, REAL),
                                     F(built, rotary.low_freq_factor, REAL),
                                     F(built, rotary.high_freq_factor, REAL),
                                     F(built, rotary.original_max_position, INT64),
                                     F(built, dtype, ENUM),
                                     F(built, rank, ENUM),
                                     F(built, scale, INT),
                                     F(built, n, ENUM),
                                     F(built, mean, DIM),
                                     F(built, dim, INT64),
                                     F(built, vocab, INT64),
                                     F(built, width, INT64),
                                     F(built, heads, INT64),
                                     F(built, groups, INT64),
                                     F(built, eps, REAL),
                                     F(built, momentum, REAL),
                                     F(built, slope, REAL),
                                     F(built, factor, SIGNED),
                                     F(built, p, REAL),
                                     F(built, p2, REAL),
                                     F(built, attention_p, REAL),
                                     F(built, weight, REAL),
                                     F(built, bce_weight, REAL),
                                     F(built, beta, REAL)};

TEST(calls_of_the_builder_are_checked) {
    const cgp_init normal = {CGP_INIT_NORMAL, 0.1};
    for (int bias = 0; bias < 2; bias++) { /* even without a bias, bias_init is checked */
        built b = {.init = normal,
                   .linear = {4, bias == 1, false, normal, normal},
                   .conv = {.out = 4,
                            .kernel = {3, 3},
                            .stride = {1, 1},
                            .padding = cgp_padding_all(1),
                            .bias = bias == 1,
                            .init = normal,
                            .bias_init = normal},
                   .transposed = {.out = 6,
                                  .kernel = {3, 3},
                                  .stride = {1, 1},
                                  .padding = cgp_padding_all(1),
                                  .bias = bias == 1,
                                  .init = {CGP_INIT_XAVIER_UNIFORM, 1},
                                  .bias_init = normal},
                   .slice_begin = 2,
                   .slice_end = 6,
                   .reshape_rank = 3,
                   .pool = {{2, 2}, {2, 2}, {0, 0, 0, 0}},
                   .padding = {1, 0, 0, 0},
                   .attention = {.heads = 2, .kv_heads = 2, .causal = true, .window = 2},
                   .rotary = {.heads = 2,
                              .scaling = CGP_ROTARY_LLAMA3,
                              .factor = 8,
                              .low_freq_factor = 1,
                              .high_freq_factor = 4,
                              .original_max_position = 64},
                   .dtype = CGP_F32,
                   .rank = 1,
                   .scale = 2,
                   .n = 2,
                   .dim = 4,
                   .vocab = 8,
                   .width = 12,
                   .heads = 2,
                   .groups = 2,
                   .eps = 1e-5,
                   .momentum = 0.1,
                   .slope = 0.1,
                   .factor = -0.5,
                   .p = 0.1,
                   .p2 = 0.1,
                   .attention_p = 0.1,
                   .weight = 1,
                   .bce_weight = 1,
                   .beta = 0.5};
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
            run->dparameters[0][i] += run->dy[4 * s + i] * ((const float *)run->x[0])[4 * s + i];
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
    return cgp_op_check(&scale_op, NULL, &(const cgp_op_type){.shape = {1, {4}}}, options);
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

TEST(custom_ops_are_checked) {
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

TEST(what_a_pipeline_is_given_is_checked) {
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
    expect_refused(cgp_pipeline_predict(pipeline, nothing, 2, (const cgp_tensor *[]){&s.x}, 1),
                   "inputs = {NULL}", 0);
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
    const char *path = test_path_of("written.safetensors");
    CGP_TRY(cgp_safetensors_create(&writer, path, w->count, names, &w->type, &w->shape, NULL,
                                   w->n_metadata));
    cgp_safetensors_abandon(writer);
    return CGP_OK;
}

static const field written_fields[] = {F(written, type, ENUM), F(written, shape.rank, ENUM),
                                       F(written, shape.dims, INT64), F(written, count, INT),
                                       F(written, n_metadata, INT)};

TEST(what_a_file_is_made_of_is_checked) {
    written w = {CGP_F32, {1, {4}}, 1, 0};
    cgp_safetensors_writer *writer = NULL;
    const char *const nothing[] = {NULL, NULL}, *const names[] = {"a"};
    TRY(w, written_fields, write_file);
    expect_refused(cgp_safetensors_create(&writer, test_path_of("written.safetensors"), 1, nothing,
                                          &w.type, &w.shape, NULL, 0),
                   "names = {NULL}", 0);
    expect_refused(cgp_safetensors_create(&writer, test_path_of("written.safetensors"), 1, names,
                                          &w.type, &w.shape, nothing, 1),
                   "metadata = {NULL, NULL}", 0);
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

TEST(names_are_utf8) {
    cgp_model *model = NULL;
    cgp_data *data = NULL;
    cgp_data_source source = cgp_data_source_default();
    source.input = source.target = (cgp_data_field){CGP_F32, {1, {4}}};
    source.training = 4;
    source.fill = fill_nothing;
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

/* --- enums that only have a name, ranks --- */

TEST_CASE(numbers_that_stand_for_nothing_have_no_name) {
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
        assert_non_null(cgp_convolution_name((cgp_convolution)n));
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

static int begin_group(void **state) {
    return make_whole(state) || test_make_directory(state);
}

static int end_group(void **state) {
    return test_remove_directory(state) || drop_whole(state);
}

TEST_GROUP(.set_up = begin_group, .tear_down = end_group);
