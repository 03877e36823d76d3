/* SPDX-License-Identifier: Apache-2.0 */
/* test_models.c -- tests the layers, exact numbers of parameters, shapes and names of ResNet,
 * AmoebaNet-D, U-Net and ViT. */
#include "support.h"

#include <time.h>

#include <cgpipe/models/spec.h>
#include <cgpipe/partition.h>

#include "model/model.h"
#include "op/op.h"

static cgp_model *make(const char *text) {
    cgp_model_spec spec = cgp_model_spec_default();
    cgp_model *model = NULL;
    assert_ok(cgp_model_spec_parse(&spec, text));
    assert_ok(cgp_model_spec_create(&model, &spec));
    return model;
}

typedef struct published {
    const char *text;
    int layers;
    int64_t parameters;
} published;

static void assert_published(const published *cases, size_t count) {
    for (size_t i = 0; i < count; i++) {
        cgp_model *model = make(cases[i].text);
        if (cgp_model_layers(model) != cases[i].layers ||
            cgp_model_parameter_count(model) != cases[i].parameters)
            fail_msg("%s: %d layers, %lld parameters; expected %d, %lld", cases[i].text,
                     cgp_model_layers(model), (long long)cgp_model_parameter_count(model),
                     cases[i].layers, (long long)cases[i].parameters);
        cgp_model_destroy(model);
    }
}

#define ASSERT_PUBLISHED(cases) assert_published(cases, sizeof cases / sizeof cases[0])

/* --- parameters and layers --- */

/* Check torchvision's numbers of parameters. A basic block has 8 layers; a bottleneck block has
 * 11. */
TEST_CASE(resnet_has_the_published_layers_and_parameters) {
    static const published cases[] = {
        {"resnet", 370, 44549160},
        {"resnet18", 4 + 8 * 8 + 3, 11689512},
        {"resnet34", 4 + 16 * 8 + 3, 21797672},
        {"resnet50", 4 + 16 * 11 + 3, 25557032},
        {"resnet101", 370, 44549160},
        {"resnet152", 4 + 50 * 11 + 3, 60192808},
        {"resnet101:classes=10", 370, 44549160 - 990 * 2049},
    };
    ASSERT_PUBLISHED(cases);
}

/* Compute the number of parameters by hand, with n blocks per group. The terms are: stem 27 * 16 +
 * 2 * 16; convolutions 9 * (16^2 * 2n + 16 * 32 + 32^2 * (2n - 1) + 32 * 64 + 64^2 * (2n - 1));
 * norms 2 * 2n * (16 + 32 + 64); two shortcuts 16 * 32 + 2 * 32 + 32 * 64 + 2 * 64; classifier 64 *
 * 10 + 10. */
static int64_t small_resnet_parameters(int64_t n) {
    return 27 * 16 + 32 + 9 * (256 * 2 * n + 512 + 1024 * (2 * n - 1) + 2048 + 4096 * (2 * n - 1)) +
           4 * n * 112 + 512 + 64 + 2048 + 128 + 650;
}

/* The ResNet of depth 20 by He et al. has 269,722 parameters. This model has 2,752 more parameters,
 * in two shortcuts. */
TEST_CASE(resnet_of_6n_plus_2_is_the_family_for_small_images) {
    static const int depths[] = {8, 14, 20, 32, 44, 56, 110, 1202};
    assert_int_equal(small_resnet_parameters(3), 269722 + 2752);
    for (size_t i = 0; i < sizeof depths / sizeof depths[0]; i++) {
        const int n = (depths[i] - 2) / 6;
        char text[32];
        snprintf(text, sizeof text, "resnet%d", depths[i]);
        assert_published(&(published){text, 3 + 3 * n * 8 + 3, small_resnet_parameters(n)}, 1);
    }
}

TEST_CASE(amoebanetd_has_the_published_layers_and_parameters) {
    static const published cases[] = {
        {"amoebanetd:L=18,D=208", 24, 81505540},   {"amoebanetd", 24, 122470120},
        {"amoebanetd:L=18,D=416", 24, 319024120},  {"amoebanetd:L=18,D=544", 24, 542734840},
        {"amoebanetd:L=36,D=544", 42, 1055832376}, {"amoebanetd:L=72,D=512", 78, 1844858344},
    };
    ASSERT_PUBLISHED(cases);
}

/* The number of parameters is (648.046875 + 288.75 (R - 2)) D^2 + (101 + 119 R + 16 K) D + K, R = L
 * / 3 >= 2. */
TEST_CASE(amoebanetd_has_the_parameters_of_its_closed_form) {
    uint64_t seed = test_seed();
    for (int i = 0; i < 20; i++) {
        const int r = test_between(&seed, 2, 9), d = 8 * test_between(&seed, 1, 80),
                  k = test_between(&seed, 1, 2000);
        const double expected =
            (648.046875 + 288.75 * (r - 2)) * d * d + (101.0 + 119.0 * r + 16.0 * k) * d + k;
        char text[64];
        snprintf(text, sizeof text, "amoebanetd:L=%d,D=%d,classes=%d,image=32", 3 * r, d, k);
        assert_published(&(published){text, 3 * r + 6, (int64_t)expected}, 1);
    }
}

TEST_CASE(old_amoebanetd_has_the_published_parameters) {
    static const published cases[] = {
        {"amoebanetd:old=1,L=6,D=208", 445, 89745302},
        {"amoebanetd:old=1,D=416", 445, 358456186},
        {"amoebanetd:old=1,L=6,D=544", 445, 612770042},
        {"amoebanetd:old=1,L=12,D=544", 805, 1163292602},
        {"amoebanetd:old=1,L=24,D=512", 1525, 2005905418},
        {"amoebanetd:old=1,L=6,D=208,classes=1000", 445, 92217332},
        {"amoebanetd:old=1,L=24,D=512,classes=1000", 1525, 2011988968},
    };
    ASSERT_PUBLISHED(cases);
    cgp_model *model = make("amoebanetd:old=1,L=4,D=512"); /* torchgpipe's balances sum to 325 */
    assert_int_equal(cgp_model_layers(model), 325);
    cgp_model_destroy(model);
}

TEST_CASE(unet_has_the_published_layers_and_parameters) {
    static const published cases[] = {
        {"unet", 241, 232687328},
        {"unet:B=6,C=72", 285, 362157516},
        {"unet:B=11,C=128", 505, 2213834176},
        {"unet:B=24,C=128", 1077, 4993859008},
        {"unet:B=24,C=160", 1077, 7802903600},
        {"unet:B=48,C=160", 2133, 15822206000},
    };
    ASSERT_PUBLISHED(cases);
}

TEST_CASE(unet_has_the_layers_of_its_closed_form) {
    for (int b = 1; b <= 4; b++) {
        for (int d = 1; d <= 6; d++) {
            char text[64];
            snprintf(text, sizeof text, "unet:B=%d,C=4,depth=%d", b, d);
            cgp_model *model = make(text);
            assert_int_equal(cgp_model_layers(model), 4 * b * (2 * d + 1) + 4 * d + 1);
            cgp_model_destroy(model);
        }
    }
}

/* Table 1 of Dosovitskiy et al. lists 86, 307 and 632 million parameters. By hand, with width W and
 * T patches of side P, the embeddings have 3 P^2 W + W + W + (T + 1) W parameters. Each block has
 * 12 W^2 + 13 W. The last norm has 2 W, and the classifier has 1000 W + 1000. ViT-B/16 has exactly
 * the parameters of google/vit-base-patch16-224. */
TEST_CASE(vit_has_the_published_layers_and_parameters) {
    static const published cases[] = {
        {"vit", 16, 86567656},
        {"vit:patch=32", 16, 88224232},
        {"vit:layers=24,width=1024,heads=16", 28, 304326632},
        {"vit:layers=32,width=1280,heads=16,patch=14", 36, 632045800},
    };
    ASSERT_PUBLISHED(cases);
}

/* Return the CPU seconds of this thread, which other programs do not affect. */
static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Building these models takes a tenth of a second. The tested bound is larger, for builds with
 * sanitizers. */
TEST_CASE(the_largest_models_are_made_within_seconds) {
    static const char *const texts[] = {"unet:B=48,C=160", "amoebanetd:L=72,D=512",
                                        "amoebanetd:old=1,L=24,D=512"};
    for (int i = 0; i < 3; i++) {
        const double start = seconds();
        cgp_model *model = make(texts[i]);
        const double taken = seconds() - start;
        print_message("%s: %d ops, %.3f s\n", texts[i], model->n_nodes, taken);
        assert_true(taken < 2);
        cgp_model_destroy(model);
    }
}

/* --- shapes --- */

/* Write the shapes of the values that cross a cut before `layer`, in the order of the ops that
 * compute them, for example "[56, 56, 312] [112, 112, 52]". */
static void crossing(const cgp_model *model, const char *layer, char *text, size_t size) {
    int at = 0;
    while (strcmp(cgp_model_layer_name(model, at), layer) != 0)
        at++;
    *text = '\0';
    for (int v = 0; v < model->n_values; v++) {
        const int maker = model->values[v].node;
        bool crosses = false;
        for (int i = 0; maker >= 0 && i < model->n_nodes; i++) {
            for (int k = 0; k < model->nodes[i].n_inputs; k++)
                crosses =
                    crosses || (model->nodes[i].inputs[k] == v && model->nodes[i].layer >= at &&
                                model->nodes[maker].layer < at);
        }
        const size_t used = strlen(text);
        char shape[64];
        if (crosses)
            snprintf(text + used, size - used, "%s%s", used ? " " : "",
                     cgp_shape_text(&model->values[v].type.shape, shape, sizeof shape));
    }
}

static void assert_crossings(const char *text, const char *const (*expected)[2], size_t count) {
    cgp_model *model = make(text);
    for (size_t i = 0; i < count; i++) {
        char got[256];
        crossing(model, expected[i][0], got, sizeof got);
        if (strcmp(got, expected[i][1]) != 0)
            fail_msg("%s: %s crosses in front of %s, expected %s", text, got, expected[i][0],
                     expected[i][1]);
    }
    cgp_model_destroy(model);
}

#define ASSERT_CROSSINGS(text, cases) assert_crossings(text, cases, sizeof cases / sizeof cases[0])

/* The skip's shape is written before the shape of x, because the skip is computed first. */
TEST_CASE(amoebanetd_passes_on_pairs_of_values) {
    static const char *const pairs[][2] = {
        {"stem2", "[112, 112, 52]"},
        {"stem3", "[112, 112, 52] [56, 56, 312]"},
        {"cell1_normal1", "[56, 56, 312] [28, 28, 624]"},
        {"cell1_normal2", "[28, 28, 624] [28, 28, 832]"},
        {"cell1_normal3", "[28, 28, 832] [28, 28, 832]"},
        {"cell2_reduction", "[28, 28, 832] [28, 28, 832]"},
        {"cell3_normal1", "[28, 28, 832] [14, 14, 1248]"},
        {"cell3_normal2", "[14, 14, 1248] [14, 14, 1664]"},
        {"cell4_reduction", "[14, 14, 1664] [14, 14, 1664]"},
        {"cell5_normal1", "[14, 14, 1664] [7, 7, 2496]"},
        {"cell5_normal6", "[7, 7, 3328] [7, 7, 3328]"},
        {"classify", "[7, 7, 3328]"},
    };
    ASSERT_CROSSINGS("amoebanetd:D=208", pairs);
}

/* Compare the parameters of each layer with the published table for (L, D) = (18, 208). */
TEST_CASE(amoebanetd_layers_have_the_published_parameters) {
    static const int64_t expected[24] = {1508,    49296,   227032,  446992,  555152,  598416,
                                         598416,  598416,  598416,  1292304, 1867424, 2213536,
                                         2386592, 2386592, 2386592, 2386592, 5158816, 7455552,
                                         8840000, 9532224, 9532224, 9532224, 9532224, 3329000};
    int64_t got[24] = {0};
    cgp_model *model = make("amoebanetd:D=208");
    for (int u = 0; u < model->n_uses; u++)
        got[model->nodes[model->uses[u].node].layer] +=
            cgp_shape_count(&model->params[model->uses[u].parameter].shape);
    for (int i = 0; i < 24; i++)
        assert_int_equal(got[i], expected[i]);
    cgp_model_destroy(model);
}

/* A cut inside a residual block is crossed by the stashed value and by the block's own value. */
TEST_CASE(resnet_passes_on_one_value_and_the_stash) {
    static const char *const cases[][2] = {
        {"bn1", "[112, 112, 64]"},
        {"layer1.0.identity", "[56, 56, 64]"},
        {"layer1.0.conv1", "[56, 56, 64]"},
        {"layer1.0.relu2", "[56, 56, 64] [56, 56, 64]"},
        {"layer1.1.identity", "[56, 56, 256]"},
        {"layer2.0.identity", "[56, 56, 256]"},
        {"layer2.0.bn1", "[56, 56, 256] [56, 56, 128]"},
        {"layer2.0.bn2", "[56, 56, 256] [28, 28, 128]"},
        {"layer3.0.identity", "[28, 28, 512]"},
        {"layer4.0.identity", "[14, 14, 1024]"},
        {"avgpool", "[7, 7, 2048]"},
        {"fc", "[2048]"},
    };
    static const char *const small[][2] = {{"layer1.0.identity", "[32, 32, 16]"},
                                           {"layer2.0.identity", "[32, 32, 16]"},
                                           {"layer3.0.identity", "[16, 16, 32]"},
                                           {"avgpool", "[8, 8, 64]"}};
    ASSERT_CROSSINGS("resnet101", cases);
    ASSERT_CROSSINGS("resnet20", small);
}

TEST_CASE(unet_passes_on_its_skips_unchanged) {
    static const char *const even[][2] = {
        {"encoder.1.encode.0.conv", "[192, 192, 64] [96, 96, 64]"},
        {"bottleneck.0.0.conv", "[192, 192, 64] [96, 96, 128] [48, 48, 128]"},
        {"bottleneck.0.1.conv", "[192, 192, 64] [96, 96, 128] [48, 48, 256]"},
        {"decoder.0.up", "[192, 192, 64] [96, 96, 128] [48, 48, 128]"},
        {"decoder.0.skip", "[192, 192, 64] [96, 96, 128] [96, 96, 128]"},
        {"decoder.0.decode.0.conv", "[192, 192, 64] [96, 96, 256]"},
        {"decoder.1.decode.0.conv", "[192, 192, 128]"},
        {"segment", "[192, 192, 32]"},
    };
    /* The sides of images shrink from 45 to 22 and 11, grow to 44, and are padded to 45 at the
     * end. */
    static const char *const odd[][2] = {
        {"decoder.0.skip", "[45, 45, 4] [22, 22, 8] [22, 22, 8]"},
        {"decoder.1.skip", "[45, 45, 4] [44, 44, 4]"},
        {"decoder.1.decode.0.conv", "[45, 45, 8]"},
    };
    ASSERT_CROSSINGS("unet:depth=2", even);
    ASSERT_CROSSINGS("unet:B=1,C=4,depth=2,image=45", odd);
}

static void assert_input(const cgp_model *model, int input, const char *name,
                         const char *expected) {
    char text[64];
    const cgp_shape shape = cgp_model_input_shape(model, input);
    assert_string_equal(cgp_model_input_name(model, input), name);
    assert_string_equal(cgp_shape_text(&shape, text, sizeof text), expected);
}

TEST_CASE(inputs_are_images_and_for_training_labels_or_masks) {
    static const char *const cases[][3] = {
        {"resnet8", "[32, 32, 3]", "[10]"},
        {"amoebanetd:L=3,D=8,image=64", "[64, 64, 3]", "[1000]"},
        {"unet:B=1,C=2,depth=1,image=6", "[6, 6, 3]", "[6, 6, 1]"},
        {"vit:layers=1,width=4,heads=2,image=6,patch=3", "[6, 6, 3]", "[1000]"}};
    for (int i = 0; i < 4; i++) {
        for (int loss = 0; loss <= 1; loss++) {
            cgp_model_spec spec = cgp_model_spec_default();
            cgp_model *model = NULL;
            char text[64];
            spec.resnet.loss = spec.amoebanetd.loss = spec.unet.loss = loss == 1;
            spec.vit.loss = loss == 1;
            assert_ok(cgp_model_spec_parse(&spec, cases[i][0]));
            assert_ok(cgp_model_spec_create(&model, &spec));
            assert_int_equal(cgp_model_inputs(model), 1 + loss);
            assert_input(model, 0, "images", cases[i][1]);
            if (loss && i != 2) assert_input(model, 1, "labels", "[1]");
            if (loss && i == 2) assert_input(model, 1, "masks", "[6, 6, 1]");
            const cgp_shape output = cgp_model_output_shape(model, 0);
            assert_string_equal(cgp_shape_text(&output, text, sizeof text), cases[i][2]);
            cgp_model_destroy(model);
        }
    }
}

/* --- the graph --- */

static int count_ops(const cgp_model *model, cgp_op_kind kind) {
    int count = 0;
    for (int i = 0; i < model->n_nodes; i++)
        count += model->nodes[i].kind == kind;
    return count;
}

/* Count the pooling ops. Each AmoebaNet cell has three 3 x 3 pools. Two of them are maximum pools
 * in the paper. Each reduction has two more maximum pools. */
TEST_CASE(amoebanetd_takes_averages_or_maxima_where_the_paper_has_maxima) {
    cgp_model *average = make("amoebanetd:L=3,D=8,image=32");
    cgp_model *largest = make("amoebanetd:L=3,D=8,image=32,maxpool=max");
    const int cells = 3 + 4, reductions = 4;
    assert_int_equal(count_ops(average, CGP_OP_MAX_POOL), 2 * reductions);
    assert_int_equal(count_ops(average, CGP_OP_AVERAGE_POOL), 3 * cells + 1);
    assert_int_equal(count_ops(largest, CGP_OP_MAX_POOL), 2 * reductions + 2 * cells);
    assert_int_equal(count_ops(largest, CGP_OP_AVERAGE_POOL), cells + 1);
    assert_int_equal(cgp_model_parameter_count(average), cgp_model_parameter_count(largest));
    cgp_model_destroy(average);
    cgp_model_destroy(largest);
}

/* Count the elements of all states; the counter of each batch norm is one element. The published
 * numbers are 168,391 for AmoebaNet-D (18, 208), 207,187 for (18, 256), and 105,448 for
 * ResNet-101. */
TEST_CASE(batch_norms_keep_the_published_running_statistics) {
    static const char *const texts[] = {"amoebanetd:D=208", "amoebanetd", "resnet101", "unet"};
    static const int64_t expected[] = {168391, 207187, 105448, 0};
    for (int i = 0; i < 4; i++) {
        int64_t elements = 0;
        cgp_model *model = make(texts[i]);
        for (int s = 0; s < cgp_model_states(model); s++)
            elements += cgp_shape_count(cgp_model_state_shape(model, s));
        assert_int_equal(elements, expected[i]);
        cgp_model_destroy(model);
    }
}

/* Count the multiply-adds in convolutions and linear maps during the forward pass of one sample.
 * Compare them with PyTorch's numbers: 7.801, 15.170, 10.019 and 48.987 GMAC. */
TEST_CASE(forward_takes_the_published_multiplications) {
    static const char *const texts[] = {"resnet101", "amoebanetd", "amoebanetd:D=208", "unet"};
    static const double expected[] = {7.801, 15.170, 10.019, 48.987};
    for (int i = 0; i < 4; i++) {
        double products = 0;
        cgp_model *model = make(texts[i]);
        for (int n = 0; n < model->n_nodes; n++) {
            const cgp__node *node = &model->nodes[n];
            const bool linear = node->kind == CGP_OP_LINEAR;
            if (!linear && node->kind != CGP_OP_CONV2D) continue;
            const bool biased = linear ? node->sizes.linear.has_bias : node->sizes.windows.has_bias;
            const double bias = biased ? (double)(node->sizes.rows * node->sizes.out) : 0;
            products += (cgp__op_flops(node->kind, &node->use, CGP_OP_FORWARD) - bias) / 2;
        }
        print_message("%s: %.4f GMAC\n", texts[i], products / 1e9);
        assert_true(fabs(products / 1e9 - expected[i]) < 6e-4);
        cgp_model_destroy(model);
    }
}

TEST_CASE(names_are_those_of_the_published_code) {
    static const char *const cases[][8] = {
        {"resnet50", "conv1.weight", "bn1.weight", "layer1.0.conv1.weight",
         "layer1.0.downsample.0.weight", "layer1.0.downsample.1.bias", "layer4.2.bn3.weight",
         "fc.bias"},
        {"amoebanetd:L=3,D=8,image=32", "stem1.conv.weight", "stem2.reduce1.1.weight",
         "stem3.reduce2.conv2.weight", "stem3.reduce2.bn.bias",
         "cell1_normal1.operations.3.module.10.weight",
         "cell2_reduction.operations.9.module.2.bias", "classify.fc.bias"},
        {"unet:depth=2,C=2", "encoder.0.encode.0.conv.weight", "encoder.1.encode.4.conv.weight",
         "bottleneck.0.0.conv.weight", "decoder.0.decode.0.conv.weight",
         "decoder.1.decode.4.conv.weight", "segment.weight", "segment.weight"},
        {"vit", "vit.embeddings.patch_embeddings.projection.bias",
         "vit.encoder.layer.0.layernorm_before.weight",
         "vit.encoder.layer.1.attention.attention.query.weight",
         "vit.encoder.layer.2.attention.output.dense.bias",
         "vit.encoder.layer.11.intermediate.dense.weight", "vit.layernorm.bias",
         "classifier.weight"},
    };
    for (int i = 0; i < 4; i++) {
        cgp_model *model = make(cases[i][0]);
        for (int k = 1; k < 8; k++) {
            int p = 0;
            while (p < cgp_model_parameters(model) &&
                   strcmp(cgp_model_parameter_name(model, p), cases[i][k]) != 0)
                p++;
            if (p == cgp_model_parameters(model))
                fail_msg("%s: no parameter %s", cases[i][0], cases[i][k]);
        }
        cgp_model_destroy(model);
    }
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

TEST_CASE(layer_names_are_different) {
    static const char *const texts[] = {"resnet101",        "resnet20", "amoebanetd",
                                        "amoebanetd:old=1", "unet",     "vit"};
    for (int i = 0; i < 6; i++) {
        cgp_model *model = make(texts[i]);
        const int n = cgp_model_layers(model);
        const char **names = calloc((size_t)n, sizeof *names);
        for (int k = 0; k < n; k++)
            names[k] = cgp_model_layer_name(model, k);
        qsort(names, (size_t)n, sizeof *names, by_name);
        for (int k = 1; k < n; k++)
            assert_string_not_equal(names[k - 1], names[k]);
        free(names);
        cgp_model_destroy(model);
    }
}

/* --- initial weights --- */

static const cgp__parameter *parameter(const cgp_model *model, const char *name) {
    for (int p = 0; p < model->n_params; p++) {
        if (strcmp(model->params[p].name, name) == 0) return &model->params[p];
    }
    fail_msg("no parameter %s", name);
    return NULL;
}

static void assert_init(const cgp_model *model, const char *name, cgp_init_kind kind,
                        double square) {
    const cgp_init *init = &parameter(model, name)->init;
    assert_int_equal(init->kind, kind);
    assert_true(fabs(init->scale * init->scale - square) < 1e-12);
}

TEST_CASE(initial_weights_are_those_of_pytorch) {
    cgp_model *resnet = make("resnet50"), *amoebanetd = make("amoebanetd"), *unet = make("unet"),
              *vit = make("vit");
    assert_init(resnet, "conv1.weight", CGP_INIT_NORMAL, 2.0 / (64 * 49));
    assert_init(resnet, "layer2.0.conv3.weight", CGP_INIT_NORMAL, 2.0 / 512);
    assert_init(resnet, "layer2.0.bn3.weight", CGP_INIT_ONE, 0);
    assert_init(resnet, "fc.weight", CGP_INIT_UNIFORM, 1.0 / 2048);
    assert_init(resnet, "fc.bias", CGP_INIT_UNIFORM, 1.0 / 2048);
    assert_init(amoebanetd, "stem1.conv.weight", CGP_INIT_UNIFORM, 1.0 / 27);
    assert_init(amoebanetd, "stem3.reduce2.conv1.weight", CGP_INIT_UNIFORM, 1.0 / 64);
    assert_init(amoebanetd, "stem2.operations.4.module.4.weight", CGP_INIT_UNIFORM, 1.0 / (32 * 7));
    assert_init(unet, "encoder.1.encode.0.conv.weight", CGP_INIT_UNIFORM, 1.0 / (64 * 9));
    assert_init(unet, "segment.weight", CGP_INIT_UNIFORM, 1.0 / 32);
    assert_init(vit, "vit.embeddings.cls_token.weight", CGP_INIT_NORMAL, 4e-4);
    assert_init(vit, "vit.encoder.layer.3.output.dense.weight", CGP_INIT_NORMAL, 4e-4);
    assert_init(vit, "classifier.bias", CGP_INIT_ZERO, 0);
    cgp_model_destroy(resnet);
    cgp_model_destroy(amoebanetd);
    cgp_model_destroy(unet);
    cgp_model_destroy(vit);
}
