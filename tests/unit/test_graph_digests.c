/* SPDX-License-Identifier: Apache-2.0 */
/* test_graph_digests.c -- graph files do not change. Every model of the zoo, and models with every
 * built-in op, are written, and the files are compared with digests. If a digest changes,
 * CGP__GRAPH_VERSION must change too, so that users' files stay valid. */
#include "support.h"

#include <cgpipe/graph.h>
#include <cgpipe/models/spec.h>

#include "base/base.h"
#include "model/graph.h"
#include "model/model.h"

static const cgp_init normal = {CGP_INIT_NORMAL, 0.25}, uniform = {CGP_INIT_UNIFORM, 0.5};

/* Finish a model, compare its graph file with a digest, and mark the model's ops in `written`. */
static void write_and_compare(cgp_model *model, const char *digest, bool *written) {
    char hex[65], *text = NULL;
    cgp__sha256 *hash = NULL;
    if (!model->finished) assert_ok(cgp_model_finish(model));
    assert_ok(cgp_model_to_json(&text, model));
    assert_ok(cgp__sha256_create(&hash));
    assert_ok(cgp__sha256_add(hash, text, strlen(text)));
    assert_ok(cgp__sha256_finish(hash, hex));
    if (strcmp(hex, digest) != 0) print_error("%s%s: %s\n", text, cgp_model_name(model), hex);
    assert_string_equal(hex, digest);
    for (int i = 0; written && i < model->n_nodes; i++)
        written[model->nodes[i].kind] = true;
    cgp__sha256_destroy(hash);
    free(text);
    cgp_model_destroy(model);
}

TEST_CASE(models_of_the_zoo_keep_their_bytes) {
    static const struct {
        const char *spec, *digest;
    } models[] = {
        {"gpt2:layers=2,width=16,heads=2,vocab=32,seq=8,tied=1,gelu=tanh",
         "be5678617a852745f4e34c9c27e963fac87c29de56b913aeb1874d083b2695c0"},
        {"llama:layers=2,width=16,heads=4,kv_heads=2,vocab=32,seq=8",
         "8a0dda283078e3e4bee0f0789b2febf287a2478fd18a09db7f0845ce6cb9dec0"},
        {"vit:layers=2,width=16,heads=2,image=16,patch=8,classes=5",
         "90b6f4c5752fea15c2aeae74d50bc8b714a7080e86fe6fbb7eb23791faeb35fe"},
        {"resnet:depth=8,width=4,image=12",
         "92bfa0bc315fb5a0fa9414a92b6a39b4f1bfd61d1bcbf6684d3311d16f956a36"},
        {"resnet:depth=50,width=2,image=64,classes=5",
         "4aa2c382d7f3453f336b02da7a127f71e7ce9a8d942ff8b0ed97d94c48e3181b"},
        {"amoebanetd:L=3,D=8,image=64,classes=5",
         "339783fa48d45af9cb0d3ad5fe45a3e23efff98b6700b62d8334067b869935a7"},
        {"unet:B=2,C=4,depth=2,image=13",
         "5ba12e823fe0c2cc855d8dc5f63ddf06737affef00046ba31edc2f9ea6236ac8"},
    };
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        cgp_model_spec spec = cgp_model_spec_default();
        cgp_model *model = NULL;
        assert_ok(cgp_model_spec_parse(&spec, models[i].spec));
        spec.gpt2.dropout = 0.1;
        assert_ok(cgp_model_spec_create(&model, &spec));
        write_and_compare(model, models[i].digest, NULL);
    }
}

/* --- every op --- */

static cgp_model *model_of_images(void) {
    cgp_model *m = NULL;
    assert_ok(cgp_model_create(&m, "images"));
    cgp_model_layer(m, "windows");
    cgp_value x = cgp_model_input(m, "x", CGP_F32, 3, (int64_t[]){6, 5, 4});
    const cgp_value t = cgp_model_input(m, "t", CGP_F32, 1, (int64_t[]){4});
    const cgp_padding uneven = {.top = 1, .bottom = 2, .left = 3, .right = -1};
    const cgp_pool_options pool = {{3, 2}, {2, 1}, {.top = 2, .bottom = 1, .left = 1, .right = 0}};
    x = cgp_conv2d(m, x, "conv",
                   (cgp_conv2d_options){.out = 6,
                                        .kernel = {3, 2},
                                        .stride = {1, 2},
                                        .padding = uneven,
                                        .bias = true,
                                        .init = normal,
                                        .bias_init = uniform});
    x = cgp_conv_transpose2d(m, x, "wide",
                             (cgp_conv_transpose2d_options){.out = 4,
                                                            .kernel = {2, 3},
                                                            .stride = {2, 3},
                                                            .padding = uneven,
                                                            .output_padding = {1, 2},
                                                            .init = uniform});
    x = cgp_pad(m, cgp_upsample_nearest(m, x, 2), uneven);
    x = cgp_average_pool(m, cgp_max_pool(m, x, pool), pool);
    cgp_model_layer(m, "norms");
    x = cgp_batch_norm(m, x, "batch", 0.001, 0.25);
    x = cgp_group_norm(m, cgp_instance_norm(m, x, 0.002), "group", 2, 0.003);
    x = cgp_leaky_relu(m, cgp_dropout2d(m, x, 0.125), 0.0625);
    x = cgp_global_average_pool(m, cgp_relu(m, x));
    cgp_model_loss_bce_with_logits(m, cgp_scale(m, x, -1.5), t, 0.75);
    return m;
}

static cgp_value rotate(cgp_model *m, cgp_value x, const cgp_value *positions) {
    return cgp_rotary_embedding(m, x,
                                (cgp_rotary_options){.heads = 2,
                                                     .width = 2,
                                                     .interleaved = positions != NULL,
                                                     .theta = 500.0,
                                                     .offset = 7,
                                                     .scaling = CGP_ROTARY_LLAMA3,
                                                     .factor = 8.0,
                                                     .low_freq_factor = 1.5,
                                                     .high_freq_factor = 4.0,
                                                     .original_max_position = 64,
                                                     .positions = positions});
}

/* Return values of shape [5, 8], made from token ids and positions by embeddings, norms and
 * rotations. */
static cgp_value rows_of(cgp_model *m, const cgp_value *positions) {
    const cgp_value ids = cgp_model_input(m, "ids", CGP_I32, 1, (int64_t[]){5});
    cgp_value x = cgp_embedding(m, ids, "table", 7, 8, normal);
    x = cgp_layer_norm(m, cgp_position_embedding(m, x, "place", uniform), "norm", 0.001);
    return cgp_add(m, rotate(m, x, NULL), rotate(m, cgp_rms_norm(m, x, "rms", 0.002), positions));
}

static cgp_value attend(cgp_model *m, cgp_value x) {
    const cgp_value k = cgp_slice(m, x, 1, 2, 6), v = cgp_slice(m, x, -1, 0, 4);
    const cgp_linear_options wide = {
        .out = 24, .bias = true, .transposed = true, .init = normal, .bias_init = uniform};
    x = cgp_attention(
        m, x, k, v,
        (cgp_attention_options){
            .heads = 4, .kv_heads = 2, .causal = true, .window = 3, .p = 0.5, .scale = 0.125});
    return cgp_causal_attention(m, cgp_linear(m, x, "qkv", wide), 2, 0.25);
}

static cgp_model *model_of_rows(void) {
    cgp_model *m = NULL;
    assert_ok(cgp_model_create(&m, "rows"));
    cgp_model_layer(m, "rows");
    const cgp_value positions = cgp_model_input(m, "positions", CGP_I32, 1, (int64_t[]){5});
    const cgp_value t = cgp_model_input(m, "t", CGP_I32, 1, (int64_t[]){5});
    cgp_value x = attend(m, rows_of(m, &positions));
    cgp_model_layer(m, "elements");
    x = cgp_tanh(m, cgp_sigmoid(m, cgp_silu(m, cgp_gelu_tanh(m, cgp_gelu(m, x)))));
    x = cgp_subtract(m, cgp_multiply(m, x, x), cgp_softmax(m, cgp_dropout(m, x, 0.375)));
    const cgp_value square = cgp_matmul(m, x, x, (cgp_matmul_options){.transpose_b = true});
    const cgp_value cube = cgp_reshape(m, x, 3, (int64_t[]){5, 2, -1});
    x = cgp_concat(m, (cgp_value[]){square, x, cgp_mean(m, cgp_transpose(m, cube, 0, -2), 0)}, 3);
    cgp_model_loss_cross_entropy(m, x, t, -7, 1.25);
    cgp_model_output(m, cgp_argmax(m, x));
    return m;
}

static cgp_model *model_with_a_cache(void) {
    cgp_model *m = NULL;
    assert_ok(cgp_model_create(&m, "cache"));
    cgp_model_layer(m, "rows");
    const cgp_value x = cgp_model_input(m, "x", CGP_F32, 2, (int64_t[]){1, 8});
    const cgp_value position = cgp_model_input(m, "position", CGP_I32, 1, (int64_t[]){1});
    const cgp_cached_attention_options options = {
        .length = 9, .heads = 4, .kv_heads = 4, .window = 3, .scale = 0.125};
    cgp_model_output(m, cgp_cached_attention(m, x, x, x, position, options));
    return m;
}

static cgp_model *model_with_a_detach(void) {
    cgp_model *m = NULL;
    assert_ok(cgp_model_create(&m, "detach"));
    cgp_model_layer(m, "rows");
    const cgp_value x = cgp_model_input(m, "x", CGP_F32, 2, (int64_t[]){5, 8});
    cgp_model_output(m, cgp_add(m, x, cgp_detach(m, x)));
    return m;
}

static cgp_model *model_with_groups(void) {
    cgp_model *m = NULL;
    assert_ok(cgp_model_create(&m, "groups"));
    cgp_model_layer(m, "windows");
    cgp_value x = cgp_model_input(m, "x", CGP_F32, 3, (int64_t[]){6, 5, 4});
    x = cgp_conv2d(m, x, "conv",
                   (cgp_conv2d_options){.out = 4,
                                        .kernel = {3, 2},
                                        .stride = {1, 1},
                                        .init = normal,
                                        .groups = 4,
                                        .dilation = {1, 2}});
    cgp_model_output(m, cgp_conv_transpose2d(m, x, "wide",
                                             (cgp_conv_transpose2d_options){.out = 6,
                                                                            .kernel = {2, 3},
                                                                            .stride = {2, 3},
                                                                            .init = uniform,
                                                                            .groups = 2,
                                                                            .dilation = {3, 1}}));
    return m;
}

static cgp_model *model_of_losses(void) {
    cgp_model *m = NULL;
    assert_ok(cgp_model_create(&m, "losses"));
    cgp_model_layer(m, "rows");
    const cgp_value x = cgp_model_input(m, "x", CGP_F32, 2, (int64_t[]){5, 8});
    const cgp_value t = cgp_model_input(m, "t", CGP_F32, 2, (int64_t[]){5, 8});
    const cgp_value y = cgp_scale(m, x, 3);
    cgp_model_loss_mse(m, y, t, 0.5);
    cgp_model_loss_smooth_l1(m, y, t, 0.25, 2);
    return m;
}

static cgp_model *model_with_functions(void) {
    cgp_model *m = NULL;
    assert_ok(cgp_model_create(&m, "functions"));
    cgp_model_layer(m, "rows");
    const cgp_value x = cgp_model_input(m, "x", CGP_F32, 2, (int64_t[]){5, 8});
    cgp_model_output(m, cgp_apply(m, cgp_apply(m, x, CGP_FUNCTION_HARDTANH, 0, 6),
                                  CGP_FUNCTION_SOFTPLUS, 1.5, 20));
    return m;
}

static cgp_model *model_with_a_mean(void) {
    cgp_model *m = NULL;
    assert_ok(cgp_model_create(&m, "mean"));
    cgp_model_layer(m, "rows");
    const cgp_value x = cgp_model_input(m, "x", CGP_F32, 2, (int64_t[]){5, 8});
    const cgp_value t = cgp_model_input(m, "t", CGP_F32, 2, (int64_t[]){5, 8});
    const cgp_value one = cgp_apply(m, x, CGP_FUNCTION_BCE_ONE, 0, 0);
    cgp_model_loss_weighted_mean(m, cgp_log_softmax(m, one), t, 0.5);
    return m;
}

TEST_CASE(every_op_keeps_its_bytes) {
    bool written[CGP_OP_KINDS] = {false};
    write_and_compare(model_of_images(),
                      "f4065162fdbfdeec2958a184ece09aa41051eafe18983cad82a61e7736a9fc09", written);
    write_and_compare(model_of_rows(),
                      "38e03bd9316a145d461227490b80408eba8876520fdcea08511809b79c1124a1", written);
    write_and_compare(model_with_a_cache(),
                      "84d85c2a6bfb7c6f127a742d29a29ebc7d5bce621285d78319af5f0f20c307e2", written);
    write_and_compare(model_with_a_detach(),
                      "185f1558daaf28ba758236a5dc6cf382f319d386ad41ba5416225f68c4f4c07f", written);
    write_and_compare(model_with_groups(),
                      "6b58bf8c76960b3a314c1351230bdfd6c534fb0dfc3497bc4a1ebf1c5f77dd73", written);
    write_and_compare(model_of_losses(),
                      "6dced1b6a79f642edc6b549349efc62d6901a7087c0b1b61641a66ebef3fab03", written);
    write_and_compare(model_with_functions(),
                      "3fe6d232a35bc7fe80d7284dd86f22c744f555ee52761fcbfa9f3d32ab8713fb", written);
    write_and_compare(model_with_a_mean(),
                      "a2a51a6e84c1b514f7d054d11f6f0e26d9943f87c632611065ceecf7ad3cb432", written);
    for (int kind = 0; kind < CGP_OP_KINDS; kind++) {
        if (!written[kind]) print_error("%s: not written\n", cgp_op_name((cgp_op_kind)kind));
        assert_true(written[kind]);
    }
}
