/* SPDX-License-Identifier: Apache-2.0 */
/* amoebanetd.c -- AmoebaNet-D and its older definition: the same operations, two genotypes, two ways to cut it into layers.
 * Values of a cell, S the side of s1:
 *
 *     s1, s2     results of the cell before and the one before that, any widths; s2's side is 2 S
 *                if the cell before was a reduction
 *     h0, h1     as [S, S, c]: by a 1 x 1 convolution, for s2 also by the factorised reduction
 *                below, or s2 itself if it has c channels
 *     h2 .. h6   sums of two operations each; in a reduction those on h0 and h1 have stride 2
 *     result     some of them concatenated
 *
 * An operation of width c, `.i` the index in PyTorch's Sequential that names its parameters:
 *
 *     conv1x1       relu  conv 1x1 (.1)  bn (.2)
 *     conv3x3       relu  conv 1x1 to c/4 (.1)  bn (.2)  relu  conv 3x3 (.4)  bn (.5)
 *                   relu  conv 1x1 to c (.7)  bn (.8)
 *     conv1x7_7x1   as conv3x3 with 1x7 (.4) and 7x1 (.7) in the middle, to c (.10)
 *     pools         3x3, padding 1, not counted; 2x2. Old: conv 1x1 (.1)  bn (.2) after them
 *
 * Factorised reduction: [2 S, 2 S, i] -> relu -> conv 1x1 stride 2 to c/2 on the pixels at even
 * positions and, shifted by a pixel by its padding, another on those at odd positions, concatenated, bn. */
#include <cgpipe/models/amoebanetd.h>

#include <inttypes.h>
#include <stdio.h>

#include "zoo.h"

/* --- genotypes --- */

typedef enum operation {
    NONE,
    AVERAGE_3X3,
    MAX_3X3,
    MAX_2X2,
    CONV_1X1,
    CONV_3X3,
    CONV_1X7_7X1
} operation;

#define PAIRS 5
#define STATES (2 + PAIRS)

typedef struct genotype {
    struct {
        operation kind;
        int input; /* h<input> */
    } pairs[PAIRS][2];
    int result[4], n_result;
} genotype;

/* h0, h1 come from s1, s2. */
static const genotype normal = {{{{CONV_1X1, 1}, {MAX_3X3, 1}},
                                 {{NONE, 1}, {CONV_1X7_7X1, 0}},
                                 {{CONV_1X1, 0}, {CONV_1X7_7X1, 0}},
                                 {{MAX_3X3, 2}, {NONE, 2}},
                                 {{AVERAGE_3X3, 1}, {CONV_1X1, 5}}},
                                {0, 3, 4, 6},
                                4};
static const genotype reduction = {{{{MAX_2X2, 0}, {MAX_3X3, 0}},
                                    {{NONE, 2}, {CONV_3X3, 1}},
                                    {{CONV_1X7_7X1, 2}, {MAX_3X3, 2}},
                                    {{NONE, 3}, {MAX_2X2, 1}},
                                    {{AVERAGE_3X3, 2}, {CONV_1X1, 3}}},
                                   {4, 5, 6},
                                   3};

/* The older definition: h0, h1 come from s2, s1. */
static const genotype old_normal = {{{{MAX_3X3, 0}, {CONV_1X1, 0}},
                                     {{NONE, 2}, {MAX_3X3, 2}},
                                     {{NONE, 0}, {CONV_1X7_7X1, 1}},
                                     {{CONV_1X1, 1}, {CONV_1X7_7X1, 1}},
                                     {{AVERAGE_3X3, 0}, {CONV_1X1, 3}}},
                                    {4, 5, 6},
                                    3};
static const genotype old_reduction = {{{{MAX_2X2, 1}, {MAX_3X3, 1}},
                                        {{CONV_3X3, 0}, {NONE, 2}},
                                        {{CONV_1X7_7X1, 2}, {MAX_3X3, 2}},
                                        {{AVERAGE_3X3, 2}, {CONV_1X1, 3}},
                                        {{NONE, 3}, {MAX_2X2, 0}}},
                                       {4, 5, 6},
                                       3};

/* --- parts --- */

#define REMEMBERED 16 /* enough for a cell and the one before it */

/* A network being built; names begin with `prefix`. */
typedef struct network {
    cgp_model *model;
    const cgp_amoebanetd_options *o;
    char prefix[CGP__MODEL_NAME]; /* "cell1_normal1.operations.3.module." */
    char name[2 * CGP__MODEL_NAME];
    cgp_value relus[REMEMBERED][2]; /* values and their ReLUs, the latest n */
    int n_relus;
} network;

static const char *name_of(network *net, const char *part) {
    snprintf(net->name, sizeof net->name, "%s%s", net->prefix, part);
    return net->name;
}

/* relu(x), once for all operations that begin with it. */
static cgp_value relu_of(network *net, cgp_value x) {
    for (int i = 0; i < REMEMBERED && i < net->n_relus; i++) {
        if (net->relus[i][0].id == x.id) return net->relus[i][1];
    }
    cgp_value *entry = net->relus[net->n_relus++ % REMEMBERED];
    entry[0] = x;
    entry[1] = cgp_relu(net->model, x);
    return entry[1];
}

/* x [H, W, in] -> [H / stride, W / stride, out] */
static cgp_value convolve(network *net, cgp_value x, const char *name, int64_t in, int64_t out,
                          const int kernel[2], const int stride[2]) {
    const cgp_conv2d_options options = {.out = out,
                                        .kernel = {kernel[0], kernel[1]},
                                        .stride = {stride[0], stride[1]},
                                        .padding = cgp__padding_same(kernel[0], kernel[1])};
    return cgp__conv2d_pytorch(net->model, x, name_of(net, name), in, options);
}

static cgp_value normalise(network *net, cgp_value x, const char *name) {
    return cgp__batch_norm_pytorch(net->model, x, name_of(net, name));
}

/* A convolution and the norm after it, entries `.at` and `.at + 1` of a Sequential. */
static cgp_value conv_norm(network *net, cgp_value x, int at, int64_t in, int64_t out,
                           const int kernel[2], const int stride[2]) {
    char name[16];
    snprintf(name, sizeof name, "%d", at);
    x = convolve(net, x, name, in, out, kernel, stride);
    snprintf(name, sizeof name, "%d", at + 1);
    return normalise(net, x, name);
}

static const int one[2] = {1, 1};

static cgp_value conv1x1(network *net, cgp_value x, int64_t in, int64_t out, int stride) {
    return conv_norm(net, relu_of(net, x), 1, in, out, one, (int[]){stride, stride});
}

/* Through c / 4 channels, by one 3 x 3 kernel or a 1 x 7 and a 7 x 1. */
static cgp_value bottleneck(network *net, cgp_value x, int64_t c, int stride, bool crossed) {
    const int64_t inner = c / 4;
    int at = 4;
    x = conv_norm(net, relu_of(net, x), 1, c, inner, one, one);
    x = cgp_relu(net->model, x);
    if (crossed) {
        x = conv_norm(net, x, at, inner, inner, (int[]){1, 7}, (int[]){1, stride});
        x = cgp_relu(net->model, x);
        at += 3;
        x = conv_norm(net, x, at, inner, inner, (int[]){7, 1}, (int[]){stride, 1});
    } else {
        x = conv_norm(net, x, at, inner, inner, (int[]){3, 3}, (int[]){stride, stride});
    }
    x = cgp_relu(net->model, x);
    return conv_norm(net, x, at + 3, inner, c, one, one);
}

static cgp_value pool(network *net, cgp_value x, int64_t c, int side, bool largest,
                      int stride) {
    const cgp_pool_options options = {
        {side, side}, {stride, stride}, cgp_padding_all((side - 1) / 2)};
    x = largest ? cgp_max_pool(net->model, x, options)
                : cgp_average_pool(net->model, x, options);
    return net->o->old ? conv_norm(net, x, 1, c, c, one, one) : x;
}

/* x [2 S, 2 S, in] -> [S, S, out] */
static cgp_value factorised_reduction(network *net, cgp_value x, int64_t in, int64_t out) {
    const cgp_conv2d_options even = {.out = out / 2, .kernel = {1, 1}, .stride = {2, 2}};
    cgp_conv2d_options odd = even;
    odd.padding = (cgp_padding){-1, 1, -1, 1};
    x = relu_of(net, x);
    const cgp_value a = cgp__conv2d_pytorch(net->model, x, name_of(net, "conv1"), in, even);
    const cgp_value b = cgp__conv2d_pytorch(net->model, x, name_of(net, "conv2"), in, odd);
    return normalise(net, cgp_concat(net->model, (cgp_value[]){a, b}, 2), "bn");
}

/* x [H, W, c] -> [H / stride, W / stride, c] */
static cgp_value operate(network *net, operation kind, cgp_value x, int64_t c, int stride) {
    switch (kind) {
    case AVERAGE_3X3:
        return pool(net, x, c, 3, false, stride);
    case MAX_3X3:
        return pool(net, x, c, 3, net->o->maxpool == CGP_AMOEBANETD_MAX, stride);
    case MAX_2X2:
        return pool(net, x, c, 2, true, stride);
    case CONV_1X1:
        return conv1x1(net, x, c, c, stride);
    case CONV_3X3:
        return bottleneck(net, x, c, stride, false);
    case CONV_1X7_7X1:
        return bottleneck(net, x, c, stride, true);
    default:
        return x; /* stride 1, as in every genotype */
    }
}

/* --- cells --- */

/* The inputs of a cell, and its outputs for the next. */
typedef struct flow {
    cgp_value s1, s2;
    int64_t width1, width2; /* their channels */
    bool reduced;           /* s2 has twice the side of s1 */
    int64_t c;              /* of the latest cell */
} flow;

/* Set the prefix of names to "<cell>.<part>"; the older definition is cut here. */
static void enter(network *net, const char *cell, const char *layer, const char *prefix) {
    char name[CGP__MODEL_NAME];
    snprintf(name, sizeof name, "%s.%s", cell, layer);
    snprintf(net->prefix, sizeof net->prefix, "%s.%s", cell, prefix);
    if (net->o->old) cgp_model_layer(net->model, name);
}

static cgp_value bring_s1(network *net, const char *cell, const flow *f) {
    enter(net, cell, "reduce1", "reduce1.");
    return conv1x1(net, f->s1, f->width1, f->c, 1);
}

static cgp_value bring_s2(network *net, const char *cell, const flow *f) {
    enter(net, cell, "reduce2", "reduce2.");
    if (f->reduced) return factorised_reduction(net, f->s2, f->width2, f->c);
    if (f->width2 != f->c) return conv1x1(net, f->s2, f->width2, f->c, 1);
    return f->s2;
}

/* h<2 + i> */
static cgp_value add_pair(network *net, const char *cell, const genotype *g, int i,
                          const cgp_value *h, int64_t c) {
    cgp_value ends[2];
    char layer[32], prefix[48];
    for (int k = 0; k < 2; k++) {
        const int input = g->pairs[i][k].input;
        const bool halves = (g == &reduction || g == &old_reduction) && input < 2;
        snprintf(layer, sizeof layer, "operations.%d", 2 * i + k);
        snprintf(prefix, sizeof prefix, "%s.module.", layer);
        enter(net, cell, layer, prefix);
        ends[k] = operate(net, g->pairs[i][k].kind, h[input], c, halves ? 2 : 1);
    }
    snprintf(layer, sizeof layer, "sum.%d", 2 + i);
    enter(net, cell, layer, "");
    return cgp_add(net->model, ends[0], ends[1]);
}

static void add_cell(network *net, const char *cell, const genotype *g, flow *f) {
    const bool reduces = g == &reduction || g == &old_reduction, old = net->o->old;
    cgp_value h[STATES], result[4];
    if (reduces) f->c *= 2;
    if (!old) cgp_model_layer(net->model, cell);
    if (old) {
        h[0] = bring_s2(net, cell, f);
        enter(net, cell, "twin", ""); /* s1 is an input of the next cell, too: no op */
        h[1] = bring_s1(net, cell, f);
    } else {
        h[0] = bring_s1(net, cell, f);
        h[1] = bring_s2(net, cell, f);
    }
    for (int i = 0; i < PAIRS; i++)
        h[2 + i] = add_pair(net, cell, g, i, h, f->c);
    enter(net, cell, "shift", "");
    enter(net, cell, "concat", "");
    for (int i = 0; i < g->n_result; i++)
        result[i] = h[g->result[i]];
    f->s2 = f->s1;
    f->width2 = f->width1;
    f->s1 = cgp_concat(net->model, result, g->n_result);
    f->width1 = g->n_result * f->c;
    f->reduced = reduces;
}

/* --- the graph --- */

/* images [S, S, 3] -> [S / 2, S / 2, D / 4]; the older definition has one layer per op, and `twin`. */
static cgp_value add_stem(network *net, int64_t width) {
    cgp_value x = cgp__images(net->model, net->o->image);
    if (!net->o->old) cgp_model_layer(net->model, "stem1");
    enter(net, "stem1", "relu", "");
    x = cgp_relu(net->model, x);
    enter(net, "stem1", "conv", "");
    x = convolve(net, x, "conv", 3, width, (int[]){3, 3}, (int[]){2, 2});
    enter(net, "stem1", "bn", "");
    x = normalise(net, x, "bn");
    enter(net, "stem1", "twin", "");
    return x;
}

static void build(cgp_model *model, const cgp_amoebanetd_options *o) {
    network net = {.model = model, .o = o};
    const genotype *cells[2] = {o->old ? &old_normal : &normal,
                                o->old ? &old_reduction : &reduction};
    const int repeat = o->old ? o->layers : o->layers / 3;
    flow f = {.width1 = o->filters / 4, .width2 = o->filters / 4, .c = o->filters / 4};
    char cell[48];
    f.s1 = f.s2 = add_stem(&net, f.c);
    add_cell(&net, "stem2", cells[1], &f);
    add_cell(&net, "stem3", cells[1], &f);
    for (int group = 1; group <= 5; group++) {
        snprintf(cell, sizeof cell, "cell%d_reduction", group);
        if (group % 2 == 0) add_cell(&net, cell, cells[1], &f);
        for (int i = 0; group % 2 == 1 && i < repeat; i++) {
            snprintf(cell, sizeof cell, "cell%d_normal%d", group, i + 1);
            add_cell(&net, cell, cells[0], &f);
        }
    }
    cgp_model_layer(model, "classify");
    const cgp_value x = cgp_global_average_pool(model, f.s1);
    cgp__classify(model, x, "classify.fc", f.width1, o->classes, o->loss);
}

/* --- options --- */

static const cgp__key keys[] = {
    CGP__KEY(cgp_amoebanetd_options, "L", INT, layers, 1, CGP__MAX_LAYERS),
    CGP__KEY(cgp_amoebanetd_options, "D", INT64, filters, 8, CGP__MAX_WIDTH),
    CGP__KEY(cgp_amoebanetd_options, "classes", INT64, classes, 1, CGP__MAX_COUNT),
    CGP__KEY(cgp_amoebanetd_options, "image", INT64, image, 32, CGP__MAX_SIDE),
    {.name = "maxpool",
     .kind = CGP__KEY_WORD,
     .offset = offsetof(cgp_amoebanetd_options, maxpool),
     .words = {"average", "max"}},
    CGP__KEY(cgp_amoebanetd_options, "old", BOOL, old, 0, 1),
};

const cgp__keys cgp__amoebanetd_keys = {.model = "amoebanetd",
                                        .struct_size = sizeof(cgp_amoebanetd_options),
                                        .keys = keys,
                                        .count = sizeof keys / sizeof keys[0],
                                        .name_key = -1};

static cgp_status check_multiple(const char *key, int64_t value, int64_t of) {
    if (value % of == 0) return CGP_OK;
    return cgp_fail(CGP_EINVAL,
                    "amoebanetd: %s: expected a multiple of %" PRId64 ", got %" PRId64, key, of,
                    value);
}

cgp_status cgp__amoebanetd_resolve(cgp_amoebanetd_options *o) {
    if (o->layers == 0) o->layers = o->old ? 6 : 18;
    if (o->classes == 0) o->classes = o->old ? 10 : 1000;
    CGP_TRY(cgp__keys_check(&cgp__amoebanetd_keys, o));
    if (!o->old) CGP_TRY(check_multiple("L", o->layers, 3));
    CGP_TRY(check_multiple("D", o->filters, 8));
    return check_multiple("image", o->image, 32);
}

cgp_status cgp_amoebanetd_create(cgp_model **out, const cgp_amoebanetd_options *options) {
    CGP__NEED(out);
    CGP__NEED(options);
    cgp_model *model = NULL;
    CGP_TRY(cgp__keys_check_size(&cgp__amoebanetd_keys, options));
    cgp_amoebanetd_options resolved = *options;
    CGP_TRY(cgp__amoebanetd_resolve(&resolved));
    CGP_TRY(cgp_model_create(&model, "amoebanetd"));
    build(model, &resolved);
    return cgp__model_finish(out, model);
}

cgp_status cgp_amoebanetd_parse(cgp_amoebanetd_options *options, const char *text) {
    CGP__NEED(options);
    CGP__NEED(text);
    return cgp__keys_parse(&cgp__amoebanetd_keys, options, text);
}
