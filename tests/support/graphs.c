/* graphs.c -- see graphs.h. */
#include "graphs.h"

#include <cgpipe/models/gpt2.h>

cgp_model *test_gpt2(const test_sizes *sizes) {
    cgp_gpt2_options options = cgp_gpt2_options_default();
    options.layers = sizes->layers;
    options.width = sizes->width;
    options.heads = sizes->heads;
    options.vocabulary = sizes->vocabulary;
    options.sequence = sizes->sequence;
    options.dropout = sizes->dropout;
    cgp_model *model = NULL;
    assert_ok(cgp_gpt2_create(&model, &options));
    return model;
}

static const cgp_init normal = {CGP_INIT_NORMAL, 0.15};

/* One op on x, or an addition of x and an earlier value. */
static cgp_value random_op(cgp_model *model, uint64_t *state, const test_sizes *sizes,
                           cgp_value x, const cgp_value *earlier, int n_earlier,
                           const char *name) {
    const int64_t width = sizes->width;
    switch (test_between(state, 0, 7)) {
    case 0:
        return cgp_linear(model, x, name,
                          (cgp_linear_options){width, true, test_between(state, 0, 1), normal});
    case 1:
        return cgp_layer_norm(
            model, x, name,
            0.1); /* large, so that rows of nearly equal numbers stay harmless */
    case 2:
        return cgp_gelu(model, x);
    case 3: {
        char qkv[80];
        snprintf(qkv, sizeof qkv, "%s.qkv", name);
        x = cgp_linear(model, x, qkv, (cgp_linear_options){3 * width, true, true, normal});
        return cgp_causal_attention(model, x, sizes->heads, sizes->dropout);
    }
    case 4:
        return cgp_dropout(model, x, sizes->dropout);
    default: {
        const cgp_value other = earlier[test_between(state, 0, n_earlier - 1)];
        return test_between(state, 0, 1) ? cgp_add(model, x, other) : cgp_add(model, other, x);
    }
    }
}

cgp_model *test_random_graph(uint64_t *state, const test_sizes *sizes) {
    enum { MOST = 256 };
    cgp_value seen[MOST];
    int n = 0;
    char name[64];
    cgp_model *model = NULL;
    assert_ok(cgp_model_create(&model, "random"));
    const int64_t sequence[1] = {sizes->sequence}, wide[2] = {sizes->sequence, sizes->width};
    const cgp_value tokens = cgp_model_input(model, "tokens", CGP_I32, 1, sequence);
    const cgp_value targets = cgp_model_input(model, "targets", CGP_I32, 1, sequence);
    const cgp_value kinds = cgp_model_input(model, "kinds", CGP_I32, 1, sequence);
    const cgp_value features = cgp_model_input(model, "features", CGP_F32, 2, wide);
    cgp_model_layer(model, "embed");
    cgp_value x =
        cgp_embedding(model, tokens, "embed", sizes->vocabulary, sizes->width, normal);
    seen[n++] = x;
    for (int layer = 0; layer < sizes->layers; layer++) {
        snprintf(name, sizeof name, "layer%d", layer);
        cgp_model_layer(model, name);
        const int ops = test_between(state, 0, 4);
        for (int k = 0; k < ops && n < MOST - 4; k++) {
            snprintf(name, sizeof name, "layer%d.op%d", layer, k);
            /* Mostly go on from the last value; sometimes branch off an earlier one, which then
             * has one more use. */
            const cgp_value from =
                test_between(state, 0, 4) ? x : seen[test_between(state, 0, n - 1)];
            const cgp_value y = random_op(model, state, sizes, from, seen, n, name);
            x = from.id == x.id ? y : cgp_add(model, x, y);
            seen[n++] = y;
            seen[n++] = x;
        }
        if (layer == sizes->layers / 2) {
            x = cgp_add(
                model, x,
                cgp_embedding(model, kinds, "kinds", sizes->vocabulary, sizes->width, normal));
            x = cgp_add(model, x,
                        cgp_linear(model, features, "features",
                                   (cgp_linear_options){sizes->width, false, false, normal}));
            seen[n++] = x;
        }
    }
    cgp_model_layer(model, "head");
    x = cgp_layer_norm(model, x, "norm", 0.1);
    x = cgp_linear(model, x, "head",
                   (cgp_linear_options){sizes->vocabulary, false, false, normal});
    cgp_model_output(model, x);
    cgp_model_loss_cross_entropy(model, x, targets, -100);
    assert_ok(cgp_model_finish(model));
    return model;
}

static cgp_tensor new_tensor(cgp_dtype dtype, int rank, const int64_t *dims) {
    cgp_tensor tensor = {dtype, cgp_shape_make(rank, dims), NULL};
    tensor.data = calloc((size_t)cgp_shape_count(&tensor.shape), cgp_dtype_bytes(dtype));
    assert_non_null(tensor.data);
    return tensor;
}

void test_batch_fill(test_batch *batch, const cgp_model *model, const test_sizes *sizes,
                     int64_t samples, uint64_t *state) {
    const int64_t dims[3] = {samples, sizes->sequence, sizes->width};
    batch->n = cgp_model_inputs(model);
    for (int k = 0; k < batch->n; k++) {
        const bool is_float = strcmp(cgp_model_input_name(model, k), "features") == 0;
        const bool is_target = strcmp(cgp_model_input_name(model, k), "targets") == 0;
        batch->tensors[k] =
            is_float ? new_tensor(CGP_F32, 3, dims) : new_tensor(CGP_I32, 2, dims);
        batch->inputs[k] = &batch->tensors[k];
        const int64_t count = cgp_shape_count(&batch->tensors[k].shape);
        for (int64_t i = 0; i < count; i++) {
            if (is_float)
                ((float *)batch->tensors[k].data)[i] =
                    (float)test_between(state, -1000, 1000) / 1000;
            else if (is_target && i > 0 && test_between(state, 0, 9) == 0)
                ((int32_t *)batch->tensors[k].data)[i] = -100;
            else
                ((int32_t *)batch->tensors[k].data)[i] =
                    test_between(state, 0, (int)sizes->vocabulary - 1);
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

/* A sum over all outputs of a batch that tells them apart by place; the targets are not needed
 * for it. */
static double checksum(cgp_pipeline *pipeline, const cgp_model *model,
                       const test_batch *batch) {
    const cgp_shape one = cgp_model_output_shape(model);
    const cgp_tensor *inputs[4];
    cgp_tensor output = {CGP_F32, {one.rank + 1, {batch->tensors[0].shape.dims[0]}}, NULL};
    for (int i = 0; i < one.rank; i++)
        output.shape.dims[i + 1] = one.dims[i];
    for (int k = 0; k < batch->n; k++)
        inputs[k] =
            strcmp(cgp_model_input_name(model, k), "targets") == 0 ? NULL : batch->inputs[k];
    const int64_t n = cgp_shape_count(&output.shape);
    float *data = calloc((size_t)n, sizeof *data);
    output.data = data;
    assert_ok(cgp_pipeline_predict(pipeline, inputs, batch->n, &output));
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += data[i] * (double)(i % 97 + 1);
    free(data);
    return sum;
}

void test_train(const cgp_model *model, const cgp_plan_options *options, uint64_t seed,
                const test_batch *batches, int steps, test_outcome *outcome) {
    cgp_plan *plan = NULL;
    cgp_pipeline *pipeline = NULL;
    memset(outcome, 0, sizeof *outcome);
    assert_ok(cgp_plan_create(&plan, model, options));
    assert_ok(cgp_pipeline_create(&pipeline, plan, seed));
    for (int s = 0; s < steps; s++) {
        assert_ok(
            cgp_pipeline_step(pipeline, batches[s].inputs, batches[s].n, &outcome->losses[s]));
        assert_ok(cgp_optim_step(pipeline));
    }
    assert_ok(
        cgp_pipeline_evaluate(pipeline, batches[0].inputs, batches[0].n, &outcome->evaluation));
    outcome->prediction = checksum(pipeline, model, &batches[0]);
    assert_ok(cgp_pipeline_weights_sha256(pipeline, outcome->sha256));
    cgp_pipeline_destroy(pipeline);
    cgp_plan_destroy(plan);
}
