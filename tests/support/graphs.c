/* SPDX-License-Identifier: Apache-2.0 */
/* graphs.c -- see graphs.h. */
#include "graphs.h"
#include "custom_ops.h"
#include "processes.h"

#include "plan/plan.h"

#include <cgpipe/models/gpt2.h>

cgp_model *test_gpt2(const test_sizes *sizes) {
    cgp_gpt2_options options = cgp_gpt2_options_default();
    options.layers = sizes->layers;
    options.width = sizes->width;
    options.heads = sizes->heads;
    options.vocab = sizes->vocab;
    options.sequence = sizes->sequence;
    options.dropout = sizes->dropout;
    cgp_model *model = NULL;
    assert_ok(cgp_gpt2_create(&model, &options));
    return model;
}

static const cgp_init normal = {CGP_INIT_NORMAL, 0.15};

test_extras test_graph_extras;

enum { MOST = 256, NAME = 80 };

/* A random graph under construction. */
typedef struct graph {
    cgp_model *model;
    uint64_t *state;
    const test_sizes *sizes;
    cgp_value seen[MOST]; /* values that later ops may use */
    int n;
    cgp_value kinds; /* an input of integers below `vocab` */
    cgp_value ids;   /* integers made by an earlier layer; none if id < 0 */
    /* names of the last linear layer from C to C and of the last norm; "" if there is none */
    char square[NAME], norm[NAME];
    bool transposed;                           /* weight of `square` is transposed */
    cgp_value features;                        /* the float input */
    int outputs[TEST_MOST_OUTPUTS], n_outputs; /* outputs, except the first */
} graph;

/* In one of three cases, tie the new parameter `name`.`suffix` to the parameter of an existing
 * op. */
static void maybe_tie(graph *g, const char *name, const char *suffix, const char *existing) {
    char tied[NAME + 8], old[NAME + 8];
    if (!existing[0] || test_between(g->state, 0, 2)) return;
    snprintf(tied, sizeof tied, "%s.%s", name, suffix);
    snprintf(old, sizeof old, "%s.%s", existing, suffix);
    cgp_model_tie(g->model, tied, old);
}

/* Add a linear layer from C to C features. It may share an earlier weight. */
static cgp_value random_linear(graph *g, cgp_value x, const char *name) {
    const bool transposed = test_between(g->state, 0, 1);
    if (transposed == g->transposed) maybe_tie(g, name, "weight", g->square);
    snprintf(g->square, sizeof g->square, "%s", name);
    g->transposed = transposed;
    return cgp_linear(
        g->model, x, name,
        (cgp_linear_options){
            .out = g->sizes->width, .bias = true, .transposed = transposed, .init = normal});
}

/* Add a norm. Its eps is large, so that rows of nearly equal numbers are not amplified. */
static cgp_value random_norm(graph *g, cgp_value x, const char *name) {
    maybe_tie(g, name, "weight", g->norm);
    maybe_tie(g, name, "bias", g->norm);
    snprintf(g->norm, sizeof g->norm, "%s", name);
    return cgp_layer_norm(g->model, x, name, 0.1);
}

static cgp_value random_activation(graph *g, cgp_value x) {
    static cgp_value (*const functions[])(cgp_model *, cgp_value) = {
        cgp_gelu, cgp_silu, cgp_sigmoid, cgp_tanh, cgp_softmax, cgp_log_softmax};
    const int function = test_between(g->state, 0, 7);
    if (function == 6 && g->sizes->rough)
        return cgp_apply(g->model, x, CGP_FUNCTION_HARDTANH, -1, 1);
    if (function >= 6) return cgp_apply(g->model, x, CGP_FUNCTION_MISH, 0, 0);
    return functions[function](g->model, x);
}

/* Multiply x by itself in one of three cases, otherwise by an earlier value. A norm limits the size
 * of the result. */
static cgp_value random_product(graph *g, cgp_value x, const char *name) {
    const cgp_value other = g->seen[test_between(g->state, 0, g->n - 1)];
    maybe_tie(g, name, "weight", g->norm);
    x = cgp_multiply(g->model, x, test_between(g->state, 0, 2) ? other : x);
    return cgp_rms_norm(g->model, x, name, 0.1);
}

/* Find the index of each row's largest element. Look up that index in a table, in this layer or in
 * a later one. Half of the time, add x without its gradient. */
static cgp_value random_integers(graph *g, cgp_value x, const char *name) {
    const cgp_value ids = g->ids;
    if (!g->sizes->rough) return cgp_gelu_tanh(g->model, x);
    g->ids = cgp_argmax(g->model, x);
    const cgp_value y = cgp_embedding(g->model, ids.id < 0 ? g->ids : ids, name, g->sizes->width,
                                      g->sizes->width, normal);
    return test_between(g->state, 0, 1) ? y : cgp_add(g->model, y, cgp_detach(g->model, x));
}

/* Return true if the devices that the environment chooses can run custom ops. */
static bool devices_run_custom_ops(void) {
    const char *devices = getenv("CGP_TEST_DEVICES");
    return !devices || strcmp(devices, "cuda-host") != 0;
}

/* Add a custom op. */
static cgp_value random_custom(graph *g, cgp_value x, const char *name) {
    static const cgp_op *const plain[] = {&test_custom_scale, &test_custom_rms,
                                          &test_custom_sigmoid, &test_custom_meter,
                                          &test_custom_bias};
    const test_noise noise = {g->sizes->dropout};
    const int64_t vocab = g->sizes->vocab;
    const cgp_value with[2] = {x, g->seen[test_between(g->state, 0, g->n - 1)]};
    switch (test_between(g->state, 0, 6)) {
    case 0:
        return cgp_op_apply(g->model, &test_custom_product, with, NULL, NULL);
    case 1:
        return cgp_op_apply(g->model, &test_custom_noise, &x, NULL, &noise);
    case 2:
        return cgp_op_apply(g->model, &test_custom_gain, (cgp_value[]){x, g->kinds}, name, &vocab);
    case 3:
        if (!g->sizes->rough) return x;
        return cgp_embedding(g->model,
                             cgp_op_apply(g->model, &test_custom_bucket, &x, NULL, &vocab), name,
                             vocab, g->sizes->width, normal);
    default:
        return cgp_op_apply(g->model, plain[test_between(g->state, 0, 4)], &x, name, NULL);
    }
}

/* Project x to rows of `width` columns by a new linear layer. */
static cgp_value random_projection(graph *g, cgp_value x, const char *name, const char *part,
                                   int64_t width) {
    char full[NAME + 8];
    snprintf(full, sizeof full, "%s.%s", name, part);
    return cgp_linear(g->model, x, full, (cgp_linear_options){.out = width, .init = normal});
}

/* Add attention. Either q, k and v are separate values made from x and an earlier value, or all
 * three are x. If all three are x, three gradients are summed. */
static cgp_value random_attention(graph *g, cgp_value x, const char *name) {
    const cgp_value from = g->seen[test_between(g->state, 0, g->n - 1)];
    cgp_attention_options options = {.heads = g->sizes->heads,
                                     .p = g->sizes->dropout,
                                     .causal = test_between(g->state, 0, 2) > 0};
    if (options.causal) options.window = test_between(g->state, 0, 3);
    if (test_between(g->state, 0, 3) == 0) return cgp_attention(g->model, x, x, x, options);
    const cgp_rotary_options rotary = {.heads = options.heads,
                                       .width = 2 * test_between(g->state, 0, 2),
                                       .interleaved = test_between(g->state, 0, 1),
                                       .scaling = CGP_ROTARY_LINEAR,
                                       .factor = test_between(g->state, 1, 3)};
    cgp_rotary_options rotary_keys = rotary;
    options.kv_heads = test_between(g->state, 0, 1);
    rotary_keys.heads = options.kv_heads ? 1 : options.heads;
    const cgp_value q = cgp_rotary_embedding(
        g->model, random_projection(g, x, name, "q", 4 * rotary.heads), rotary);
    const cgp_value k = cgp_rotary_embedding(
        g->model, random_projection(g, from, name, "k", 4 * rotary_keys.heads), rotary_keys);
    const cgp_value v = random_projection(g, from, name, "v", 3 * rotary_keys.heads);
    return random_projection(g, cgp_attention(g->model, q, k, v, options), name, "o",
                             g->sizes->width);
}

/* Reorder parts of rows, or move single elements or heads to other positions and back. */
static cgp_value random_view(graph *g, cgp_value x) {
    const int64_t width = g->sizes->width, heads = g->sizes->heads;
    const int64_t cut = width / 2;
    const int64_t apart[3] = {g->sizes->sequence, heads, width / heads};
    const int64_t together[2] = {g->sizes->sequence, -1};
    switch (test_between(g->state, cut == 0, 2)) {
    case 0:
        return cgp_concat(g->model,
                          (cgp_value[]){cgp_slice(g->model, x, 1, cut, width),
                                        cgp_slice(g->model, x, -1, 0, cut)},
                          2);
    case 1:
        x = cgp_gelu_tanh(g->model, cgp_transpose(g->model, x, 0, -1));
        return cgp_transpose(g->model, x, -2, 1);
    default:
        x = cgp_gelu_tanh(g->model,
                          cgp_transpose(g->model, cgp_reshape(g->model, x, 3, apart), 0, 1));
        return cgp_reshape(g->model, cgp_transpose(g->model, x, 1, 0), 2, together);
    }
}

/* Compute y = norm(x z^T) z, or z times the transpose of norm(x^T z), where z is an earlier value
 * or x. Norms keep the values small. */
static cgp_value random_products(graph *g, cgp_value x, const char *name) {
    const cgp_value z = g->seen[test_between(g->state, 0, g->n - 1)];
    const bool by_rows = test_between(g->state, 0, 1);
    char second[NAME + 8];
    snprintf(second, sizeof second, "%s.second", name);
    cgp_value scores = cgp_matmul(
        g->model, x, z, (cgp_matmul_options){.transpose_a = !by_rows, .transpose_b = by_rows});
    scores = cgp_layer_norm(g->model, scores, name, 0.1);
    x = by_rows ? cgp_matmul(g->model, scores, z, (cgp_matmul_options){0})
                : cgp_matmul(g->model, z, scores, (cgp_matmul_options){.transpose_b = true});
    return cgp_layer_norm(g->model, x, second, 0.1);
}

/* Add one op on x, or add a sum or difference of x and an earlier value. */
static cgp_value random_op(graph *g, cgp_value x, const char *name) {
    if (devices_run_custom_ops() && test_between(g->state, 0, 5) == 0)
        return random_custom(g, x, name);
    switch (test_between(g->state, 0, 13)) {
    case 10:
        return random_product(g, x, name);
    case 11:
        return random_attention(g, x, name);
    case 12:
        return random_view(g, x);
    case 13:
        return random_products(g, x, name);
    case 0:
    case 1:
        return random_linear(g, x, name);
    case 2:
        return random_norm(g, x, name);
    case 3:
        return random_activation(g, x);
    case 4: {
        char qkv[NAME + 8];
        snprintf(qkv, sizeof qkv, "%s.qkv", name);
        x = cgp_linear(
            g->model, x, qkv,
            (cgp_linear_options){
                .out = 3 * g->sizes->width, .bias = true, .transposed = true, .init = normal});
        return cgp_causal_attention(g->model, x, g->sizes->heads, g->sizes->dropout);
    }
    case 5:
        return cgp_dropout(g->model, x, g->sizes->dropout);
    case 6:
        return random_integers(g, x, name);
    default: {
        const cgp_value other = g->seen[test_between(g->state, 0, g->n - 1)];
        switch (test_between(g->state, 0, 4)) {
        case 0:
            return cgp_subtract(g->model, other, x);
        case 1:
            return cgp_scale(g->model, cgp_subtract(g->model, x, other), 0.75);
        case 2:
            return cgp_add(g->model, other, x);
        default:
            return cgp_add(g->model, x, other);
        }
    }
    }
}

/* In the middle of the graph, add a second integer input, a float input (sometimes used unchanged)
 * and a loss. */
static cgp_value middle(graph *g, cgp_value x, cgp_value features, cgp_value targets) {
    const test_sizes *sizes = g->sizes;
    cgp_value y = cgp_embedding(g->model, g->kinds, "kinds", sizes->vocab, sizes->width, normal);
    x = cgp_add(g->model, x, y);
    y = cgp_linear(g->model, features, "features",
                   (cgp_linear_options){.out = sizes->width, .init = normal});
    x = cgp_add(g->model, x, y);
    if (test_graph_extras.input_gradients && test_between(g->state, 0, 1)) {
        x = cgp_add(g->model, features, x);
        g->seen[g->n++] = features;
    }
    if (sizes->no_loss) return x;
    if (devices_run_custom_ops() && test_between(g->state, 0, 2) == 0)
        cgp_op_apply_loss(g->model, &test_custom_squares, (cgp_value[]){x, features}, NULL, 0.01);
    if (test_between(g->state, 0, 2)) return x;
    y = cgp_linear(g->model, x, "side",
                   (cgp_linear_options){.out = sizes->vocab, .bias = true, .init = normal});
    cgp_model_loss_cross_entropy(g->model, y, targets, -100, 0.5);
    return x;
}

/* Add an op on the last value, or sometimes on an earlier value, which then has one more use. */
static cgp_value grow(graph *g, cgp_value x, const char *name) {
    const cgp_value from =
        test_between(g->state, 0, 4) ? x : g->seen[test_between(g->state, 0, g->n - 1)];
    const cgp_value y = random_op(g, from, name);
    x = from.id == x.id ? y : cgp_add(g->model, x, y);
    g->seen[g->n++] = y;
    g->seen[g->n++] = x;
    return x;
}

/* Draw a value, and make it an output unless it is already an input or output. */
static void add_output(graph *g) {
    const cgp_value x = g->seen[test_between(g->state, 0, g->n - 1)];
    for (int k = 0; k < g->n_outputs; k++)
        if (g->outputs[k] == x.id) return;
    if (x.id == g->features.id) return;
    g->outputs[g->n_outputs++] = x.id;
    cgp_model_output(g->model, x);
}

/* Freeze parameter number `p`, and no other parameter. */
static void freeze(cgp_model *model, int p) {
    assert_ok(cgp_model_freeze(model, cgp_model_parameter_name(model, p)));
}

void test_random_freeze(uint64_t *state, cgp_model *model) {
    const int n = cgp_model_parameters(model);
    if (!test_graph_extras.frozen || n < 2 || test_between(state, 0, 1)) return;
    const bool first = test_between(state, 0, 1);
    const int kept = first ? test_between(state, 1, n - 1) : test_between(state, 0, n - 1);
    for (int p = 0; p < n; p++) {
        if (first ? p < kept : p != kept && test_between(state, 0, 1)) freeze(model, p);
    }
}

/* Add the head, whose weight may be tied to the embedding's weight. Then add the losses and the
 * output. */
static void finish(graph *g, cgp_value x, cgp_value targets) {
    cgp_model_layer(g->model, "head");
    x = cgp_layer_norm(g->model, x, "norm", 0.1);
    maybe_tie(g, "head", "weight", "embed");
    x = cgp_linear(g->model, x, "head",
                   (cgp_linear_options){.out = g->sizes->vocab, .init = normal});
    cgp_model_output(g->model, x);
    for (int k = test_graph_extras.outputs > 0
                     ? test_between(g->state, 0, test_graph_extras.outputs)
                     : 0;
         k > 0; k--)
        add_output(g);
    if (g->sizes->no_loss) {
        assert_ok(cgp_model_finish(g->model));
        return;
    }
    cgp_model_loss_cross_entropy(g->model, x, targets, -100, 1);
    /* the targets of this loss are the argmax of the logits */
    if (g->sizes->rough && test_between(g->state, 0, 3) == 0)
        cgp_model_loss_cross_entropy(g->model, x, cgp_argmax(g->model, x), -100, 0.25);
    assert_ok(cgp_model_finish(g->model));
}

cgp_model *test_random_graph(uint64_t *state, const test_sizes *sizes) {
    char name[NAME];
    graph g = {.state = state, .sizes = sizes, .ids = {-1}};
    assert_ok(cgp_model_create(&g.model, "random"));
    const int64_t sequence[1] = {sizes->sequence}, wide[2] = {sizes->sequence, sizes->width};
    const cgp_value tokens = cgp_model_input(g.model, "tokens", CGP_I32, 1, sequence);
    const cgp_value targets = cgp_model_input(g.model, "targets", CGP_I32, 1, sequence);
    g.kinds = cgp_model_input(g.model, "kinds", CGP_I32, 1, sequence);
    const cgp_value features = cgp_model_input(g.model, "features", CGP_F32, 2, wide);
    g.features = features;
    if (test_graph_extras.input_gradients) cgp_model_input_gradient(g.model, features);
    cgp_model_layer(g.model, "embed");
    cgp_value x = cgp_embedding(g.model, tokens, "embed", sizes->vocab, sizes->width, normal);
    g.seen[g.n++] = x;
    for (int layer = 0; layer < sizes->layers; layer++) {
        snprintf(name, sizeof name, "layer%d", layer);
        cgp_model_layer(g.model, name);
        const int ops = test_between(state, 0, 4);
        for (int k = 0; k < ops && g.n < MOST - 4; k++) {
            snprintf(name, sizeof name, "layer%d.op%d", layer, k);
            x = grow(&g, x, name);
        }
        if (layer == sizes->layers / 2 && (!sizes->no_loss || test_graph_extras.input_gradients)) {
            x = middle(&g, x, features, targets);
            g.seen[g.n++] = x;
        }
    }
    finish(&g, x, targets);
    test_random_freeze(state, g.model);
    return g.model;
}

static cgp_tensor new_tensor(const cgp_model *model, int input, int64_t samples) {
    const cgp_shape one = cgp_model_input_shape(model, input);
    cgp_tensor tensor = {cgp_model_input_dtype(model, input), {one.rank + 1, {samples}}, NULL};
    for (int i = 0; i < one.rank; i++)
        tensor.shape.dims[i + 1] = one.dims[i];
    tensor.data = calloc((size_t)cgp_shape_count(&tensor.shape), cgp_dtype_bytes(tensor.dtype));
    assert_non_null(tensor.data);
    return tensor;
}

void test_batch_fill(test_batch *batch, const cgp_model *model, const test_sizes *sizes,
                     int64_t samples, uint64_t *state) {
    batch->n = cgp_model_inputs(model);
    for (int k = 0; k < batch->n; k++) {
        const char *name = cgp_model_input_name(model, k);
        const int min = strncmp(name, "mask", 4) == 0 ? 0 : -1000;
        batch->tensors[k] = new_tensor(model, k, samples);
        batch->inputs[k] = &batch->tensors[k];
        const int64_t count = cgp_shape_count(&batch->tensors[k].shape);
        for (int64_t i = 0; i < count; i++) {
            if (batch->tensors[k].dtype == CGP_F32)
                ((float *)batch->tensors[k].data)[i] = (float)test_between(state, min, 1000) / 1000;
            else if (strcmp(name, "targets") == 0 && i > 0 && test_between(state, 0, 9) == 0)
                ((int32_t *)batch->tensors[k].data)[i] = -100;
            else
                ((int32_t *)batch->tensors[k].data)[i] =
                    test_between(state, 0, (int)sizes->vocab - 1);
        }
    }
}

void test_batch_release(test_batch *batch) {
    for (int k = 0; k < batch->n; k++)
        free(batch->tensors[k].data);
}

void test_random_balance(uint64_t *state, int layers, int stages, int *balance) {
    for (int j = 0; j < stages; j++)
        balance[j] = 1;
    for (int i = stages; i < layers; i++)
        balance[test_between(state, 0, stages - 1)]++;
}

void test_random_budget(uint64_t *state, const cgp_model *model, cgp_plan_options *o) {
    cgp_plan *plan = NULL;
    int64_t most = 0;
    o->memory_limit = 0;
    o->recompute = CGP_RECOMPUTE_NEVER;
    assert_ok(cgp_plan_create(&plan, model, o));
    for (int d = 0; d < cgp_plan_devices(plan); d++) {
        const int64_t bytes = cgp_plan_device_at(plan, d)->planned_bytes;
        most = bytes > most ? bytes : most;
    }
    cgp_plan_destroy(plan);
    o->recompute = CGP_RECOMPUTE_BUDGET;
    o->memory_limit = most * test_between(state, 20, 99) / 100;
    for (bool fits = false; !fits; o->memory_limit += fits ? 0 : most / 16 + 1) {
        assert_ok(cgp__plan_make(&plan, model, o)); /* does not search for the least limit */
        fits = cgp__plan_check_limits(plan) == CGP_OK;
        cgp_plan_destroy(plan);
    }
}

static cgp_tensor tensor_like(cgp_dtype dtype, cgp_shape one, int64_t samples) {
    cgp_tensor tensor = {dtype, {one.rank + 1, {samples}}, NULL};
    for (int i = 0; i < one.rank; i++)
        tensor.shape.dims[i + 1] = one.dims[i];
    tensor.data = calloc((size_t)cgp_shape_count(&tensor.shape), cgp_dtype_bytes(dtype));
    assert_non_null(tensor.data);
    return tensor;
}

void test_results_make(test_results *r, const cgp_model *model, int64_t samples) {
    memset(r, 0, sizeof *r);
    r->n_outputs = cgp_model_outputs(model);
    r->n_inputs = cgp_model_inputs(model);
    assert_true(r->n_outputs <= TEST_MOST_OUTPUTS && r->n_inputs <= 4);
    for (int k = 0; k < r->n_outputs; k++) {
        r->outputs[k] = tensor_like(cgp_model_output_dtype(model, k),
                                    cgp_model_output_shape(model, k), samples);
        r->output_list[k] = &r->outputs[k];
    }
    for (int k = 0; k < r->n_inputs; k++) {
        if (!cgp_model_input_has_gradient(model, k)) continue;
        r->gradients[k] = tensor_like(CGP_F32, cgp_model_input_shape(model, k), samples);
        r->gradient_list[k] = &r->gradients[k];
    }
}

void test_results_release(test_results *r) {
    for (int k = 0; k < r->n_outputs; k++)
        free(r->outputs[k].data);
    for (int k = 0; k < r->n_inputs; k++)
        free(r->gradients[k].data);
}

static double sum_of(const cgp_tensor *tensor) {
    const int64_t n = cgp_shape_count(&tensor->shape);
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (tensor->dtype == CGP_I32 ? ((const int32_t *)tensor->data)[i]
                                         : ((const float *)tensor->data)[i]) *
               (double)(i % 97 + 1);
    return sum;
}

double test_results_outputs(const test_results *r) {
    double sum = 0;
    for (int k = 0; k < r->n_outputs; k++)
        sum += (k + 1) * sum_of(&r->outputs[k]);
    return sum;
}

double test_results_gradients(const test_results *r) {
    double sum = 0;
    for (int k = 0; k < r->n_inputs; k++)
        if (r->gradient_list[k]) sum += (k + 1) * sum_of(&r->gradients[k]);
    return sum;
}

/* Run inference on a batch, without targets and masks. Return a checksum of all outputs. */
static double checksum(cgp_pipeline *pipeline, const cgp_model *model, const test_batch *batch) {
    const cgp_tensor *inputs[4];
    test_results results;
    for (int k = 0; k < batch->n; k++) {
        const char *name = cgp_model_input_name(model, k);
        const bool is_target = strcmp(name, "targets") == 0 || strcmp(name, "mask") == 0;
        inputs[k] = is_target ? NULL : batch->inputs[k];
    }
    test_results_make(&results, model, batch->tensors[0].shape.dims[0]);
    assert_ok(
        cgp_pipeline_predict(pipeline, inputs, batch->n, results.output_list, results.n_outputs));
    const double sum = test_results_outputs(&results);
    test_results_release(&results);
    return sum;
}

/* Return true if the schedule supports the stages and micro-batches of the options. */
static bool exists(const cgp_plan_options *o) {
    const int64_t samples = (o->batch + o->chunks - 1) / o->chunks;
    const int chunks = (int)((o->batch + samples - 1) / samples);
    cgp_schedule_options options = cgp_schedule_options_default();
    cgp_schedule *schedule = NULL;
    options.virtual_stages = o->virtual_stages;
    options.group = o->group;
    options.in_flight = o->in_flight;
    const cgp_status status =
        cgp_schedule_create(&schedule, o->schedule, o->stages, chunks, &options);
    cgp_schedule_destroy(schedule);
    return status == CGP_OK;
}

void test_random_schedule(uint64_t *state, int layers, int max, cgp_plan_options *o) {
    int known = 0;
    while (cgp_schedule_info_at(known))
        known++;
    do {
        const cgp_schedule_info *info = cgp_schedule_info_at(test_between(state, 0, known - 1));
        o->schedule = info->name;
        o->stages = test_between(state, 1, max);
        o->virtual_stages = info->any_virtual ? test_between(state, 0, 3) : 0;
        o->group = 0;
        if (strncmp(info->name, "interleaved", 11) == 0 && test_between(state, 0, 1))
            o->group = test_between(state, o->stages, o->stages + 2);
        o->in_flight =
            strcmp(info->name, "v-flex") == 0 ? test_between(state, 0, 2 * o->stages) : 0;
        if (!info->has_backward) continue;
        if (cgp_plan_options_stages(o) <= layers && exists(o)) return;
    } while (true);
}

void test_random_training(uint64_t *state, const cgp_model *model, cgp_plan_options *o,
                          int *balance) {
    const int layers = cgp_model_layers(model);
    o->batch = o->chunks = test_between(state, 1, 8);
    o->precision = test_between(state, 0, 1) ? CGP_PRECISION_BF16 : CGP_PRECISION_F32;
    o->recompute = (cgp_recompute)test_between(state, 0, CGP_RECOMPUTE_EXCEPT_LAST_SELECTIVE);
    test_random_schedule(state, layers, 4, o);
    test_random_balance(state, layers, cgp_plan_options_stages(o), balance);
    o->balance = balance;
}

/* Return true if this process has the device of the last stage, which makes the output. */
static bool test_has_output(const cgp_plan *plan) {
    const int last = cgp_plan_stage_at(plan, cgp_plan_stages(plan) - 1)->device;
    return !test_transport || cgp_plan_device_at(plan, cgp_plan_devices(plan) - 1)->rank == 0 ||
           cgp_plan_device_at(plan, last)->rank == test_transport->rank(test_communicator);
}

/* Compute the digest of the last step, and store the digest's root. */
static void digest(const cgp_plan *plan, cgp_pipeline *pipeline, unsigned char root[32]) {
    const size_t bytes = cgp_plan_digest_bytes(plan);
    unsigned char *record = calloc(1, bytes);
    assert_non_null(record);
    assert_ok(cgp_pipeline_digest(pipeline, record));
    assert_ok(cgp_digest_check(record, bytes));
    memcpy(root, record + bytes - 32, 32);
    free(record);
}

void test_train(const cgp_model *model, const cgp_plan_options *options, uint64_t seed,
                const test_batch *batches, int steps, test_outcome *outcome) {
    cgp_plan *plan = NULL;
    cgp_pipeline *pipeline = NULL;
    memset(outcome, 0, sizeof *outcome);
    assert_ok(cgp_plan_create(&plan, model, options));
    assert_ok(cgp_pipeline_create(&pipeline, plan, seed));
    for (int s = 0; s < steps; s++) {
        test_results results;
        test_results_make(&results, model, batches[s].tensors[0].shape.dims[0]);
        assert_ok(
            cgp_pipeline_set_input_gradients(pipeline, results.gradient_list, results.n_inputs));
        assert_ok(
            cgp_pipeline_step(pipeline, batches[s].inputs, batches[s].n, &outcome->losses[s]));
        assert_ok(cgp_optim_step(pipeline));
        digest(plan, pipeline, outcome->roots[s]);
        outcome->gradients += (s + 1) * test_results_gradients(&results);
        assert_ok(cgp_pipeline_set_input_gradients(pipeline, NULL, 0));
        test_results_release(&results);
    }
    assert_ok(
        cgp_pipeline_evaluate(pipeline, batches[0].inputs, batches[0].n, &outcome->evaluation));
    outcome->prediction = checksum(pipeline, model, &batches[0]);
    if (!test_has_output(plan)) outcome->prediction = NAN;
    assert_ok(cgp_pipeline_weights_sha256(pipeline, outcome->sha256));
    assert_ok(cgp_pipeline_state_sha256(pipeline, outcome->state_sha256));
    cgp_pipeline_destroy(pipeline);
    cgp_plan_destroy(plan);
}
