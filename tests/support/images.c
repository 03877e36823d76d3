/* SPDX-License-Identifier: Apache-2.0 */
/* images.c -- random graphs over images: see graphs.h. */
#include "graphs.h"

enum { MOST = 96, NAME = 64, MAX_PIXELS = 100, MAX_CHANNELS = 8 };

/* A value of shape [h, w, c]. */
typedef struct image {
    cgp_value value;
    int h, w, c;
} image;

/* A random graph under construction. */
typedef struct graph {
    cgp_model *model;
    uint64_t *state;
    const test_sizes *sizes;
    image seen[MOST]; /* values that later ops may use */
    int n;
    char norm[NAME]; /* name of the last batch norm; "" if none */
    int norm_channels;
} graph;

static const cgp_init normal = {CGP_INIT_NORMAL, 0.4};

static int windows(int side, int front, int behind, int kernel, int stride) {
    return (side + front + behind - kernel) / stride + 1;
}

/* Add a convolution. Its padding is random and may be negative, but leaves at least one window. */
static image random_convolution(graph *g, image x, const char *name) {
    cgp_conv2d_options o = {.out = test_between(g->state, 1, MAX_CHANNELS / 2),
                            .bias = test_between(g->state, 0, 1),
                            .init = normal,
                            .bias_init = normal};
    int *const padding[2][2] = {{&o.padding.top, &o.padding.bottom},
                                {&o.padding.left, &o.padding.right}};
    const int sides[2] = {x.h, x.w};
    int out[2];
    for (int i = 0; i < 2; i++) {
        o.kernel[i] = test_between(g->state, 1, 3);
        o.stride[i] = test_between(g->state, 1, 2);
        *padding[i][0] = test_between(g->state, sides[i] > 2 ? -1 : 0, 2);
        *padding[i][1] = test_between(g->state, sides[i] > 2 ? -1 : 0, 2);
        while (sides[i] + *padding[i][0] + *padding[i][1] < o.kernel[i])
            o.kernel[i]--;
        o.dilation[i] = test_between(g->state, 0, 2);
        while (o.dilation[i] > 1 &&
               sides[i] + *padding[i][0] + *padding[i][1] < (o.kernel[i] - 1) * o.dilation[i] + 1)
            o.dilation[i]--;
        out[i] = windows(sides[i], *padding[i][0], *padding[i][1],
                         (o.kernel[i] - 1) * (o.dilation[i] ? o.dilation[i] : 1) + 1, o.stride[i]);
    }
    if (test_between(g->state, 0, 2) == 0) o.out = o.groups = x.c;
    return (image){cgp_conv2d(g->model, x.value, name, o), out[0], out[1], (int)o.out};
}

/* Add a transposed convolution with kernels up to 3 x 3 and strides up to 2. Its padding leaves at
 * least one output pixel. */
static image random_transposed(graph *g, image x, const char *name) {
    cgp_conv_transpose2d_options o = {.out = test_between(g->state, 1, MAX_CHANNELS / 2),
                                      .bias = test_between(g->state, 0, 1),
                                      .init = {CGP_INIT_KAIMING_NORMAL, 1},
                                      .bias_init = normal};
    const int sides[2] = {x.h, x.w};
    int out[2];
    for (int i = 0; i < 2; i++) {
        o.kernel[i] = test_between(g->state, 1, 3);
        o.stride[i] = test_between(g->state, 1, 2);
        o.output_padding[i] = test_between(g->state, 0, o.stride[i] - 1);
        out[i] = (sides[i] - 1) * o.stride[i] + o.kernel[i] + o.output_padding[i];
    }
    o.padding.top = test_between(g->state, -1, out[0] > 3 ? 2 : 0);
    o.padding.right = test_between(g->state, -1, out[1] > 3 ? 2 : 0);
    return (image){cgp_conv_transpose2d(g->model, x.value, name, o), out[0] - o.padding.top,
                   out[1] - o.padding.right, (int)o.out};
}

static image random_pool(graph *g, image x) {
    cgp_pool_options o = {.padding = cgp_padding_all(0)};
    const int sides[2] = {x.h, x.w};
    int out[2];
    for (int i = 0; i < 2; i++) {
        o.kernel[i] = test_between(g->state, 1, sides[i] < 3 ? sides[i] : 3);
        o.stride[i] = test_between(g->state, 1, 2);
    }
    o.padding.top = test_between(g->state, 0, o.kernel[0] - 1);
    o.padding.right = test_between(g->state, 0, o.kernel[1] - 1);
    out[0] = windows(x.h, o.padding.top, 0, o.kernel[0], o.stride[0]);
    out[1] = windows(x.w, 0, o.padding.right, o.kernel[1], o.stride[1]);
    const bool largest = g->sizes->rough && test_between(g->state, 0, 1);
    const cgp_value y =
        largest ? cgp_max_pool(g->model, x.value, o) : cgp_average_pool(g->model, x.value, o);
    return (image){y, out[0], out[1], x.c};
}

/* Add a batch norm. It may share an earlier weight and bias, but never statistics. Its eps is
 * large, so that channels of nearly equal numbers are not amplified. */
static image random_batch_norm(graph *g, image x, const char *name) {
    static const char *const suffixes[] = {"weight", "bias"};
    char tied[NAME + 8], old[NAME + 8];
    const bool tie = g->norm_channels == x.c && test_between(g->state, 0, 2) == 0;
    for (int k = 0; tie && k < 2; k++) {
        snprintf(tied, sizeof tied, "%s.%s", name, suffixes[k]);
        snprintf(old, sizeof old, "%s.%s", g->norm, suffixes[k]);
        cgp_model_tie(g->model, tied, old);
    }
    snprintf(g->norm, sizeof g->norm, "%s", name);
    g->norm_channels = x.c;
    x.value = cgp_batch_norm(g->model, x.value, name, 0.1,
                             test_between(g->state, 0, 2) ? 0.1 : CGP_MOMENTUM_CUMULATIVE);
    return x;
}

static image random_padding(graph *g, image x) {
    const cgp_padding p = {test_between(g->state, x.h > 2 ? -1 : 0, 1),
                           test_between(g->state, 0, 1), test_between(g->state, 0, 1),
                           test_between(g->state, x.w > 2 ? -1 : 0, 1)};
    return (image){cgp_pad(g->model, x.value, p), x.h + p.top + p.bottom, x.w + p.left + p.right,
                   x.c};
}

static image random_activation(graph *g, image x) {
    if (!g->sizes->rough)
        x.value = cgp_gelu(g->model, x.value);
    else if (test_between(g->state, 0, 1))
        x.value = cgp_relu(g->model, x.value);
    else
        x.value = cgp_leaky_relu(g->model, x.value, 0.25);
    return x;
}

/* Return an earlier value with the same height and width as x. If `channels` is not 0, the value
 * must have that many channels. If there is no such value, return x. */
static image like(graph *g, image x, int channels) {
    for (int tries = 0; tries < 8; tries++) {
        const image y = g->seen[test_between(g->state, 0, g->n - 1)];
        if (y.h == x.h && y.w == x.w && (channels == 0 || y.c == channels)) return y;
    }
    return x;
}

static image random_concat(graph *g, image x) {
    const image first = x;
    cgp_value values[4] = {x.value};
    const int max = test_between(g->state, 2, 4);
    int n = 1;
    while (n < max) {
        const image y = like(g, first, 0);
        if (x.c + y.c > MAX_CHANNELS) break;
        values[n++] = y.value;
        x.c += y.c;
    }
    if (n > 1) x.value = cgp_concat(g->model, values, n);
    return x;
}

/* Swap height and width, or take a part of the image. */
static image random_view(graph *g, image x) {
    const int h = test_between(g->state, 0, x.h - 1), c = test_between(g->state, 1, x.c);
    switch (test_between(g->state, 0, 2)) {
    case 0:
        return (image){cgp_transpose(g->model, x.value, 0, 1), x.w, x.h, x.c};
    case 1:
        return (image){cgp_slice(g->model, x.value, 0, h, x.h), x.h - h, x.w, x.c};
    default:
        return (image){cgp_slice(g->model, x.value, -1, 0, c), x.h, x.w, c};
    }
}

static image random_op(graph *g, image x, const char *name) {
    switch (test_between(g->state, 0, 15)) {
    case 0:
    case 1:
        return random_convolution(g, x, name);
    case 2:
    case 3:
    case 4:
        return random_batch_norm(g, x, name);
    case 5:
        x.value = test_between(g->state, 0, 1)
                      ? cgp_instance_norm(g->model, x.value, 0.1)
                      : cgp_group_norm(g->model, x.value, name, x.c % 2 ? 1 : x.c / 2, 0.1);
        return x;
    case 6:
    case 7:
        return random_activation(g, x);
    case 8:
        x.value = test_between(g->state, 0, 1) ? cgp_dropout2d(g->model, x.value, g->sizes->dropout)
                                               : cgp_dropout(g->model, x.value, g->sizes->dropout);
        return x;
    case 9:
        return random_pool(g, x);
    case 10:
        if (4 * x.h * x.w > MAX_PIXELS) return random_pool(g, x);
        return (image){cgp_upsample_nearest(g->model, x.value, 2), 2 * x.h, 2 * x.w, x.c};
    case 11:
        return x.h * x.w > MAX_PIXELS ? x : random_padding(g, x);
    case 12:
        return random_concat(g, x);
    case 13:
        return random_view(g, x);
    case 14:
        return 4 * x.h * x.w > MAX_PIXELS ? x : random_transposed(g, x, name);
    default:
        x.value = cgp_add(g->model, x.value, like(g, x, x.c).value);
        return x;
    }
}

/* Add the class logits of the image as an output, and the losses. Sometimes add a mask as a further
 * output. */
static void finish(graph *g, image x, cgp_value targets) {
    cgp_model_layer(g->model, "head");
    const int dim = test_between(g->state, 0, 4);
    cgp_value y = dim < 3    ? cgp_flatten(g->model, cgp_mean(g->model, x.value, dim))
                  : dim == 3 ? cgp_flatten(g->model, x.value)
                             : cgp_global_average_pool(g->model, x.value);
    y = cgp_layer_norm(g->model, y, "norm", 0.1); /* else loss and gradients may be near 0 */
    y = cgp_linear(g->model, y, "head",
                   (cgp_linear_options){.out = g->sizes->vocab,
                                        .bias = true,
                                        .init = {CGP_INIT_NORMAL, 0.1},
                                        .bias_init = normal});
    const bool beside = !g->sizes->no_loss && test_between(g->state, 0, 3) == 0;
    cgp_model_output(g->model, /* a batch norm here is not trained, but updates statistics */
                     beside ? cgp_batch_norm(g->model, y, "output", 0.1, 0.1) : y);
    const cgp_value early = g->seen[test_between(g->state, 0, g->n - 1)].value;
    if (test_graph_extras.outputs > 0 && early.id != g->seen[0].value.id && early.id != y.id)
        cgp_model_output(g->model, early);
    if (!g->sizes->no_loss) {
        cgp_model_loss_cross_entropy(g->model, y, targets, -100, 1);
        if (test_between(g->state, 0, 1)) {
            const int64_t dims[3] = {x.h, x.w, 1};
            const cgp_value mask = cgp_model_input(g->model, "mask", CGP_F32, 3, dims);
            y = cgp_linear(g->model, x.value, "mask",
                           (cgp_linear_options){.out = 1, .bias = true, .init = normal});
            if (test_between(g->state, 0, 1))
                cgp_model_loss_bce_with_logits(g->model, y, mask, 0.5);
            else if (test_between(g->state, 0, 1))
                cgp_model_loss_mse(g->model, y, mask, 0.5);
            else if (test_between(g->state, 0, 2) == 0)
                cgp_model_loss_weighted_mean(g->model, y, mask, 0.5);
            else
                cgp_model_loss_smooth_l1(g->model, y, mask, 0.5, 0.5);
        }
    }
    assert_ok(cgp_model_finish(g->model));
}

cgp_model *test_random_images(uint64_t *state, const test_sizes *sizes) {
    char name[NAME];
    graph g = {.state = state, .sizes = sizes};
    image x = {.h = test_between(state, 2, 7),
               .w = test_between(state, 2, 7),
               .c = test_between(state, 1, 3)};
    const int64_t dims[3] = {x.h, x.w, x.c};
    assert_ok(cgp_model_create(&g.model, "random images"));
    x.value = cgp_model_input(g.model, "image", CGP_F32, 3, dims);
    if (test_graph_extras.input_gradients) cgp_model_input_gradient(g.model, x.value);
    const cgp_value targets = cgp_model_input(g.model, "targets", CGP_I32, 1, (int64_t[]){1});
    cgp_model_layer(g.model, "stem");
    g.seen[g.n++] = x;
    x = random_batch_norm(&g, random_convolution(&g, x, "stem"), "stem.norm");
    g.seen[g.n++] = x;
    for (int layer = 0; layer < sizes->layers; layer++) {
        snprintf(name, sizeof name, "layer%d", layer);
        cgp_model_layer(g.model, name);
        const int ops = test_between(state, 0, 4);
        for (int k = 0; k < ops && g.n < MOST; k++) {
            snprintf(name, sizeof name, "layer%d.op%d", layer, k);
            x = random_op(&g, test_between(state, 0, 5) ? x : g.seen[g.n / 2], name);
            g.seen[g.n++] = x;
        }
    }
    finish(&g, x, targets);
    test_random_freeze(state, g.model);
    return g.model;
}
