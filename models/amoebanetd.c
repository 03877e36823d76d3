/* SPDX-License-Identifier: Apache-2.0 */
/* amoebanetd.c -- builds AmoebaNet-D, and its older definition. Both have the same operations, but
 * different genotypes and different partitions into layers.
 *
 * Values of a cell, with S the side of s1:
 *
 *     s1, s2     results of the last cell and of the cell before it, any widths; s2's side is 2 S
 *                if the last cell was a reduction
 *     h0, h1     s1 and s2 as [S, S, c], each by a 1 x 1 convolution. If s2's side is 2 S, it goes
 *                through the factorised reduction below; if it has c channels, it stays as it is
 *     h2 .. h6   two operations added up; in a reduction, operations on h0 and h1 have stride 2
 *     result     some of them concatenated
 *
 * An operation of width c; `.i` is the index in PyTorch's Sequential that names its parameters:
 *
 *     conv1x1       relu  conv 1x1 (.1)  bn (.2)
 *     conv3x3       relu  conv 1x1 to c/4 (.1)  bn (.2)  relu  conv 3x3 (.4)  bn (.5)
 *                   relu  conv 1x1 to c (.7)  bn (.8)
 *     conv1x7_7x1   as conv3x3 with 1x7 (.4) and 7x1 (.7) in the middle, to c (.10)
 *     pools         3x3, padding 1, not counted; 2x2. Old: conv 1x1 (.1)  bn (.2) after them
 *
 * Factorised reduction [2 S, 2 S, i] -> [S, S, c]: relu, then two 1 x 1 convolutions of stride 2 to
 * c/2 channels, concatenated, then bn. The first convolution reads the pixels at even positions.
 * The padding of the second shifts its input by a pixel, so it reads the pixels at odd
 * positions. */
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

/* Kernels of an operation's convolutions. Between two of its convolutions, there are c / 4
 * channels. */
static const struct {
    int n, kernels[4][2];
} convolutions[] = {
    [CONV_1X1] = {1, {{1, 1}}},
    [CONV_3X3] = {3, {{1, 1}, {3, 3}, {1, 1}}},
    [CONV_1X7_7X1] = {4, {{1, 1}, {1, 7}, {7, 1}, {1, 1}}},
};

#define PAIRS 5
#define STATES (2 + PAIRS)

typedef struct genotype {
    int n_result, result[4];
    struct {
        operation kind;
        int input; /* the operand is h<input> */
    } pairs[PAIRS][2];
} genotype;

/* In these genotypes, h0 is made from s1, and h1 from s2. */
static const genotype normal = {4,
                                {0, 3, 4, 6},
                                {{{CONV_1X1, 1}, {MAX_3X3, 1}},
                                 {{NONE, 1}, {CONV_1X7_7X1, 0}},
                                 {{CONV_1X1, 0}, {CONV_1X7_7X1, 0}},
                                 {{MAX_3X3, 2}, {NONE, 2}},
                                 {{AVERAGE_3X3, 1}, {CONV_1X1, 5}}}};
static const genotype reduction = {3,
                                   {4, 5, 6},
                                   {{{MAX_2X2, 0}, {MAX_3X3, 0}},
                                    {{NONE, 2}, {CONV_3X3, 1}},
                                    {{CONV_1X7_7X1, 2}, {MAX_3X3, 2}},
                                    {{NONE, 3}, {MAX_2X2, 1}},
                                    {{AVERAGE_3X3, 2}, {CONV_1X1, 3}}}};

/* In the older definition, h0 is made from s2, and h1 from s1. */
static const genotype old_normal = {3,
                                    {4, 5, 6},
                                    {{{MAX_3X3, 0}, {CONV_1X1, 0}},
                                     {{NONE, 2}, {MAX_3X3, 2}},
                                     {{NONE, 0}, {CONV_1X7_7X1, 1}},
                                     {{CONV_1X1, 1}, {CONV_1X7_7X1, 1}},
                                     {{AVERAGE_3X3, 0}, {CONV_1X1, 3}}}};
static const genotype old_reduction = {3,
                                       {4, 5, 6},
                                       {{{MAX_2X2, 1}, {MAX_3X3, 1}},
                                        {{CONV_3X3, 0}, {NONE, 2}},
                                        {{CONV_1X7_7X1, 2}, {MAX_3X3, 2}},
                                        {{AVERAGE_3X3, 2}, {CONV_1X1, 3}},
                                        {{NONE, 3}, {MAX_2X2, 0}}}};

/* --- parts --- */

#define REMEMBERED 16 /* number of values that are kept with their ReLUs, enough for two cells */

/* A network being built. */
typedef struct network {
    cgp_model *model;
    const cgp_amoebanetd_options *o;
    cgp__network names;             /* with a prefix such as "cell1_normal1." */
    char part[32];                  /* part of the names of the next parameters, such as
                                     * "operations.3.module" */
    cgp_value relus[REMEMBERED][2]; /* the last values that had a ReLU, and these ReLUs */
    int n_relus;
} network;

/* Return relu(x), computed once for all operations that begin with it. */
static cgp_value relu_of(network *net, cgp_value x) {
    for (int i = 0; i < REMEMBERED && i < net->n_relus; i++) {
        if (net->relus[i][0].id == x.id) return net->relus[i][1];
    }
    cgp_value *entry = net->relus[net->n_relus++ % REMEMBERED];
    entry[0] = x;
    entry[1] = cgp_relu(net->model, x);
    return entry[1];
}

/* Add a convolution: x [H, W, in] -> [H / stride, W / stride, out]. */
static cgp_value convolve(network *net, cgp_value x, const char *name, int64_t in, int64_t out,
                          const int kernel[2], const int stride[2]) {
    const int down = kernel[0] / 2, across = kernel[1] / 2;
    const cgp_conv2d_options options = {.out = out,
                                        .kernel = {kernel[0], kernel[1]},
                                        .stride = {stride[0], stride[1]},
                                        .padding = {down, down, across, across}};
    return cgp__conv2d_pytorch(net->model, x, name, in, options);
}

/* Add a convolution and the norm after it, entries `.at` and `.at + 1` of a Sequential. */
static cgp_value conv_norm(network *net, cgp_value x, int at, int64_t in, int64_t out,
                           const int kernel[2], const int stride[2]) {
    const char *name = cgp__name(&net->names, "%s.%d", net->part, at);
    x = convolve(net, x, name, in, out, kernel, stride);
    name = cgp__name(&net->names, "%s.%d", net->part, at + 1);
    return cgp__batch_norm_pytorch(net->model, x, name);
}

/* Add the convolutions of an operation, each after a ReLU. In each direction, `stride` applies to
 * the convolution with the largest kernel. */
static cgp_value convolve_all(network *net, operation kind, cgp_value x, int64_t in, int64_t out,
                              int stride) {
    const int n = convolutions[kind].n;
    for (int k = 0; k < n; k++) {
        const int *kernel = convolutions[kind].kernels[k];
        const int strides[2] = {n == 1 || kernel[0] > 1 ? stride : 1,
                                n == 1 || kernel[1] > 1 ? stride : 1};
        const int64_t to = k + 1 < n ? out / 4 : out;
        x = k == 0 ? relu_of(net, x) : cgp_relu(net->model, x);
        x = conv_norm(net, x, 1 + 3 * k, in, to, kernel, strides);
        in = to;
    }
    return x;
}

static cgp_value pool(network *net, operation kind, cgp_value x, int64_t c, int stride) {
    const int side = kind == MAX_2X2 ? 2 : 3;
    const bool largest =
        kind == MAX_2X2 || (kind == MAX_3X3 && net->o->maxpool == CGP_AMOEBANETD_MAX);
    const cgp_pool_options options = {
        {side, side}, {stride, stride}, cgp_padding_all((side - 1) / 2)};
    x = largest ? cgp_max_pool(net->model, x, options) : cgp_average_pool(net->model, x, options);
    return net->o->old ? conv_norm(net, x, 1, c, c, (int[]){1, 1}, (int[]){1, 1}) : x;
}

/* Add a factorised reduction: x [2 S, 2 S, in] -> [S, S, out]. */
static cgp_value factorised_reduction(network *net, cgp_value x, int64_t in, int64_t out) {
    cgp_conv2d_options options = {.out = out / 2, .kernel = {1, 1}, .stride = {2, 2}};
    cgp_value halves[2];
    x = relu_of(net, x);
    for (int k = 0; k < 2; k++) {
        const char *name = cgp__name(&net->names, "%s.conv%d", net->part, k + 1);
        halves[k] = cgp__conv2d_pytorch(net->model, x, name, in, options);
        options.padding = (cgp_padding){-1, 1, -1, 1}; /* shift by one, to read the odd pixels */
    }
    x = cgp_concat(net->model, halves, 2);
    return cgp__batch_norm_pytorch(net->model, x, cgp__name(&net->names, "%s.bn", net->part));
}

/* Add an operation: x [H, W, c] -> [H / stride, W / stride, c]. */
static cgp_value operate(network *net, operation kind, cgp_value x, int64_t c, int stride) {
    if (kind == NONE) return x; /* NONE only occurs with stride 1 */
    if (kind >= CONV_1X1) return convolve_all(net, kind, x, c, c, stride);
    return pool(net, kind, x, c, stride);
}

/* --- cells --- */

/* The inputs of a cell. Adding the cell replaces them by the inputs of the next cell. */
typedef struct flow {
    cgp_value s1, s2;
    int64_t width1, width2; /* channels of s1 and of s2 */
    bool reduced;           /* s2 has twice the side of s1 */
    int64_t c;              /* width of the current cell */
} flow;

/* Set net->part, which is a part of the names of the next parameters, and return the full name. In
 * the older definition, this function also begins a layer. */
static const char *enter(network *net, const char *part) {
    snprintf(net->part, sizeof net->part, "%s", part);
    return net->o->old ? cgp__layer(&net->names, "%s", part) : cgp__name(&net->names, "%s", part);
}

static void begin_cell(network *net, const char *cell) {
    if (!net->o->old) cgp_model_layer(net->model, cell);
    snprintf(net->names.prefix, sizeof net->names.prefix, "%s.", cell);
}

static cgp_value bring_s1(network *net, const flow *f) {
    enter(net, "reduce1");
    return convolve_all(net, CONV_1X1, f->s1, f->width1, f->c, 1);
}

static cgp_value bring_s2(network *net, const flow *f) {
    enter(net, "reduce2");
    if (f->reduced) return factorised_reduction(net, f->s2, f->width2, f->c);
    if (f->width2 == f->c) return f->s2;
    return convolve_all(net, CONV_1X1, f->s2, f->width2, f->c, 1);
}

/* Return hidden state 2 + i of a cell: the sum of a pair of ops. */
static cgp_value add_pair(network *net, const genotype *g, int i, bool reduces, const cgp_value *h,
                          int64_t c) {
    cgp_value ends[2];
    char part[24];
    for (int k = 0; k < 2; k++) {
        const int input = g->pairs[i][k].input;
        snprintf(part, sizeof part, "operations.%d", 2 * i + k);
        enter(net, part);
        snprintf(net->part, sizeof net->part, "%s.module", part);
        ends[k] = operate(net, g->pairs[i][k].kind, h[input], c, reduces && input < 2 ? 2 : 1);
    }
    snprintf(part, sizeof part, "sum.%d", 2 + i);
    enter(net, part);
    return cgp_add(net->model, ends[0], ends[1]);
}

static void add_cell(network *net, const char *cell, bool reduces, flow *f) {
    const genotype *cells[2][2] = {{&normal, &reduction}, {&old_normal, &old_reduction}};
    const genotype *g = cells[net->o->old][reduces];
    cgp_value h[STATES], result[4];
    if (reduces) f->c *= 2;
    begin_cell(net, cell);
    if (net->o->old) {
        h[0] = bring_s2(net, f);
        enter(net, "twin"); /* layer without an op: s1 is also an input of the next cell */
        h[1] = bring_s1(net, f);
    } else {
        h[0] = bring_s1(net, f);
        h[1] = bring_s2(net, f);
    }
    for (int i = 0; i < PAIRS; i++)
        h[2 + i] = add_pair(net, g, i, reduces, h, f->c);
    enter(net, "shift");
    enter(net, "concat");
    for (int i = 0; i < g->n_result; i++)
        result[i] = h[g->result[i]];
    f->s2 = f->s1;
    f->width2 = f->width1;
    f->s1 = cgp_concat(net->model, result, g->n_result);
    f->width1 = g->n_result * f->c;
    f->reduced = reduces;
}

/* --- the graph --- */

/* Add the stem: images [S, S, 3] -> [S / 2, S / 2, D / 4]. In the older definition, each op is a
 * layer of its own, and `twin` is a layer without an op. */
static cgp_value add_stem(network *net, int64_t width) {
    cgp_value x = cgp__images(net->model, net->o->image);
    begin_cell(net, "stem1");
    enter(net, "relu");
    x = cgp_relu(net->model, x);
    x = convolve(net, x, enter(net, "conv"), 3, width, (int[]){3, 3}, (int[]){2, 2});
    x = cgp__batch_norm_pytorch(net->model, x, enter(net, "bn"));
    enter(net, "twin");
    return x;
}

static void build(cgp_model *model, const void *options) {
    const cgp_amoebanetd_options *o = options;
    network net = {.model = model, .o = o, .names = {.model = model}};
    const int repeat = o->old ? o->layers : o->layers / 3;
    flow f = {.width1 = o->filters / 4, .width2 = o->filters / 4, .c = o->filters / 4};
    char cell[48];
    f.s1 = f.s2 = add_stem(&net, f.c);
    add_cell(&net, "stem2", true, &f);
    add_cell(&net, "stem3", true, &f);
    for (int group = 1; group <= 5; group++) {
        snprintf(cell, sizeof cell, "cell%d_reduction", group);
        if (group % 2 == 0) add_cell(&net, cell, true, &f);
        for (int i = 0; group % 2 == 1 && i < repeat; i++) {
            snprintf(cell, sizeof cell, "cell%d_normal%d", group, i + 1);
            add_cell(&net, cell, false, &f);
        }
    }
    cgp_model_layer(model, "classify");
    const cgp_value x = cgp_global_average_pool(model, f.s1);
    cgp__classify(model, x, "classify.fc", f.width1, o->classes, o->loss);
}

/* --- options --- */

static cgp_status check_multiple(const char *key, int64_t value, int64_t of) {
    if (value % of == 0) return CGP_OK;
    return cgp_fail(CGP_EINVAL, "amoebanetd: %s: expected a multiple of %" PRId64 ", got %" PRId64,
                    key, of, value);
}

static cgp_status resolve(void *options) {
    cgp_amoebanetd_options *o = options;
    if (o->layers == 0) o->layers = o->old ? 6 : 18;
    if (o->classes == 0) o->classes = o->old ? 10 : 1000;
    CGP_TRY(cgp__keys_check(&cgp__amoebanetd_keys, o));
    if (!o->old) CGP_TRY(check_multiple("L", o->layers, 3));
    CGP_TRY(check_multiple("D", o->filters, 8));
    return check_multiple("image", o->image, 32);
}

const cgp__keys cgp__amoebanetd_keys = {
    .model = "amoebanetd",
    .struct_size = sizeof(cgp_amoebanetd_options),
    .resolve = resolve,
    .build = build,
    .keys = {CGP__KEY(cgp_amoebanetd_options, "L", INT, layers, 1, CGP__MAX_LAYERS),
             CGP__KEY(cgp_amoebanetd_options, "D", INT64, filters, 8, CGP__MAX_WIDTH),
             CGP__KEY(cgp_amoebanetd_options, "classes", INT64, classes, 1, CGP__MAX_COUNT),
             CGP__KEY(cgp_amoebanetd_options, "image", INT64, image, 32, CGP__MAX_SIDE),
             CGP__KEY(cgp_amoebanetd_options, "maxpool", WORD, maxpool, 0, 1, "average", "max"),
             CGP__KEY(cgp_amoebanetd_options, "old", BOOL, old, 0, 1)},
};

cgp_status cgp_amoebanetd_create(cgp_model **out, const cgp_amoebanetd_options *options) {
    return cgp__model_create(__func__, out, &cgp__amoebanetd_keys, options);
}

cgp_status cgp_amoebanetd_parse(cgp_amoebanetd_options *options, const char *text) {
    return cgp__keys_parse(__func__, &cgp__amoebanetd_keys, options, text);
}
