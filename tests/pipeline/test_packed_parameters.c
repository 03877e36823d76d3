/* SPDX-License-Identifier: Apache-2.0 */
/* test_packed_parameters.c -- prepacked weights are up to date whenever a kernel reads them. After
 * each change of the parameters, weights are packed once, and only one packed copy is stored. The
 * tests run on `cpu` and on a copy of `ref` whose kernels check the packed weights. In the copy of
 * `ref`, LINEAR has one packed layout, and LAYER_NORM has one packed layout for each direction. */
#include "custom_ops.h"
#include "graphs.h"

#include <stdatomic.h>

#include <cgpipe/models/gpt2.h>

#include "backend/registry.h"

enum { KERNELS = 1024, LAYERS = 3, WIDTH = 8, VOCAB = 11, ROWS = 40 };

static const test_sizes sizes = {LAYERS, 4, WIDTH, 2, VOCAB, 0, false, false};

/* --- a backend that packs --- */

static struct {
    cgp_kernel *kernel;
    cgp_kernel_spec spec;
} kernels[KERNELS];
static atomic_int n_kernels, packs, checks;

/* Return the number of elements of parameter `k` of a kernel. */
static int64_t elements(const cgp_kernel_spec *spec, int k) {
    const cgp_op_attributes *a = &spec->attributes;
    if (spec->op == CGP_OP_LAYER_NORM) return a->out;
    return k == 0 ? a->in * a->out : cgp_spec_linear(spec)->has_bias ? a->out : 0;
}

static cgp_status packed(const cgp_device_options *options, const cgp_kernel_spec *spec,
                         int64_t *bytes, int *layout) {
    (void)options;
    *bytes = 0;
    *layout = spec->op == CGP_OP_LAYER_NORM && spec->direction == CGP_OP_BACKWARD_INPUT;
    if ((spec->op == CGP_OP_LINEAR && spec->direction != CGP_OP_BACKWARD_WEIGHT) ||
        spec->op == CGP_OP_LAYER_NORM)
        *bytes = 4 * (elements(spec, 0) + elements(spec, 1));
    return CGP_OK;
}

static cgp_status pack(cgp_device *device, const cgp_kernel_spec *spec, const float *const *param,
                       void *to) {
    (void)device;
    packs++;
    memcpy(to, param[0], 4 * (size_t)elements(spec, 0));
    if (elements(spec, 1) > 0)
        memcpy((float *)to + elements(spec, 0), param[1], 4 * (size_t)elements(spec, 1));
    return CGP_OK;
}

static cgp_status kernel_create(cgp_device *device, const cgp_kernel_spec *spec, cgp_kernel **out) {
    CGP_TRY(cgp__backend_ref.kernels.create(device, spec, out));
    const int i = n_kernels++;
    if (i >= KERNELS) return cgp_fail(CGP_ELIMIT, "too many kernels");
    kernels[i].kernel = *out;
    kernels[i].spec = *spec;
    return CGP_OK;
}

static cgp_status kernel_run(cgp_kernel *kernel, const cgp_kernel_args *args) {
    int64_t bytes = 0;
    int i = n_kernels - 1, layout = 0;
    while (kernels[i].kernel != kernel)
        i--;
    const cgp_kernel_spec *spec = &kernels[i].spec;
    CGP_TRY(packed(NULL, spec, &bytes, &layout));
    for (int k = 0; k < 2 && bytes > 0; k++) {
        const float *copy = (const float *)args->packed + (k ? elements(spec, 0) : 0);
        if (elements(spec, k) > 0 &&
            memcmp(copy, args->param[k], 4 * (size_t)elements(spec, k)) != 0)
            return cgp_fail(CGP_EDEVICE, "parameter %d is not the packed one", k);
        checks++;
    }
    if (bytes == 0 && args->packed) return cgp_fail(CGP_EDEVICE, "packed, expected none");
    return cgp__backend_ref.kernels.run(kernel, args);
}

static void add_packing(void) {
    static cgp_backend backend;
    if (!backend.name) {
        backend = cgp__backend_ref;
        backend.name = "packing";
        backend.kernels.packed = packed;
        backend.kernels.pack = pack;
        backend.kernels.create = kernel_create;
        backend.kernels.run = kernel_run;
    }
    assert_ok(cgp__backend_add(&backend));
    n_kernels = packs = checks = 0;
}

/* --- tests --- */

static const char *const on_packing[] = {"packing", "packing", "packing", "packing"};
static const char *const on_ref[] = {"ref", "ref", "ref", "ref"};

/* Count the prepacked weights. A block has four LINEARs and two LAYER_NORMs. Add the last
 * LAYER_NORM and the head. In training a LAYER_NORM counts twice, once for each direction. */
static int count_packings(bool trains) {
    return 4 * LAYERS + 1 + (2 * LAYERS + 1) * (trains ? 2 : 1);
}

static int64_t up(int64_t floats) {
    return (4 * floats + 63) / 64 * 64;
}

static int64_t count_bytes(bool trains) {
    const int64_t w = WIDTH, norm = up(2 * w) * (trains ? 2 : 1);
    const int64_t block = up(3 * w * w + 3 * w) + up(w * w + w) + up(4 * w * w + 4 * w) +
                          up(4 * w * w + w) + 2 * norm;
    return LAYERS * block + norm + up(VOCAB * w);
}

static int64_t packed_bytes(const cgp_plan *plan) {
    int64_t bytes = 0;
    for (int d = 0; d < cgp_plan_devices(plan); d++)
        bytes += cgp_plan_device_at(plan, d)->packed_bytes;
    return bytes;
}

static cgp_plan_options options_of(int stages, const char *const *devices) {
    cgp_plan_options o = cgp_plan_options_default();
    o.stages = stages;
    o.batch = 6;
    o.chunks = 3;
    o.devices = devices;
    o.optim = cgp_optim_adamw(1e-2, 0.01);
    return o;
}

TEST_CASE(a_plan_has_each_of_them_once) {
    cgp_model *model = test_gpt2(&sizes);
    add_packing();
    for (int c = 0; c < 12; c++) {
        cgp_plan *plan = NULL;
        cgp_plan_options o = options_of(1 + c % 3, c % 2 ? on_packing : on_ref);
        o.inference = c >= 6;
        o.recompute = CGP_RECOMPUTE_ALWAYS;
        assert_ok(cgp_plan_create(&plan, model, &o));
        assert_int_equal(packed_bytes(plan), c % 2 ? count_bytes(!o.inference) : 0);
        for (int d = 0; d < o.stages; d++) {
            const cgp_plan_device *device = cgp_plan_device_at(plan, d);
            assert_int_equal(device->planned_bytes,
                             device->parameter_bytes + device->gradient_bytes +
                                 device->optimizer_bytes + device->state_bytes +
                                 device->packed_bytes + device->activation_bytes);
        }
        cgp_plan_destroy(plan);
    }
    cgp_model_destroy(model);
}

/* Train, and check how often the weights are packed. */
static void train(const cgp_model *model, const test_batch *batch, int stages, bool packs_them,
                  char sha256[65]) {
    cgp_plan *plan = NULL;
    cgp_pipeline *pipeline = NULL;
    cgp_plan_options o = options_of(stages, packs_them ? on_packing : on_ref);
    const int once = packs_them ? count_packings(true) : 0;
    float *weight = NULL;
    double loss = 0;
    add_packing();
    assert_ok(cgp_plan_create(&plan, model, &o));
    assert_ok(cgp_pipeline_create(&pipeline, plan, 3));
    for (int s = 1; s <= 3; s++) {
        assert_ok(cgp_pipeline_step(pipeline, batch->inputs, batch->n, &loss));
        assert_ok(cgp_pipeline_evaluate(pipeline, batch->inputs, batch->n, &loss));
        assert_int_equal(packs, s * once);
        assert_ok(cgp_optim_step(pipeline));
    }
    const int64_t count = cgp_shape_count(cgp_model_parameter_shape(model, 0));
    weight = malloc((size_t)count * sizeof *weight);
    assert_non_null(weight);
    assert_ok(cgp_pipeline_get_parameter(pipeline, 0, weight));
    assert_ok(cgp_pipeline_evaluate(pipeline, batch->inputs, batch->n, &loss));
    assert_int_equal(packs, 4 * once);
    for (int64_t i = 0; i < count; i++)
        weight[i] += 0.25f;
    /* change the embedding, which is also the head's weight on the last device */
    assert_ok(cgp_pipeline_set_parameter(pipeline, 0, weight));
    assert_ok(cgp_pipeline_evaluate(pipeline, batch->inputs, batch->n, &loss));
    assert_true(packs > 4 * once || !packs_them);
    assert_ok(cgp_pipeline_weights_sha256(pipeline, sha256));
    assert_true((checks > 0) == packs_them);
    free(weight);
    cgp_pipeline_destroy(pipeline);
    cgp_plan_destroy(plan);
}

TEST_CASE(kernels_find_those_of_now) {
    char expected[65], sha256[65];
    uint64_t seed = test_seed();
    cgp_model *model = test_gpt2(&sizes);
    test_batch batch;
    test_batch_fill(&batch, model, &sizes, 6, &seed);
    train(model, &batch, 1, false, expected);
    for (int stages = 1; stages <= 4; stages++) {
        train(model, &batch, stages, true, sha256);
        assert_string_equal(sha256, expected);
    }
    test_batch_release(&batch);
    cgp_model_destroy(model);
}

/* Two pipelines share parameters. The test changes the parameters through either pipeline. The
 * kernels of both pipelines check that their prepacked weights are up to date. */
TEST_CASE(pipelines_that_share_parameters_find_those_of_now) {
    uint64_t seed = test_seed();
    cgp_model *model = test_gpt2(&sizes);
    cgp_plan *plan = NULL, *inference = NULL;
    cgp_pipeline *owner = NULL, *second = NULL;
    test_batch batch;
    double loss[2];
    test_batch_fill(&batch, model, &sizes, 6, &seed);
    add_packing();
    cgp_plan_options o = options_of(3, on_packing);
    assert_ok(cgp_plan_create(&plan, model, &o));
    o.inference = true;
    assert_ok(cgp_plan_create(&inference, model, &o));
    assert_ok(cgp_pipeline_create(&owner, plan, 3));
    assert_ok(cgp_pipeline_create_sharing(&second, inference, owner));
    for (int k = 0; k < 6; k++) {
        cgp_tensor view;
        if (k % 2 == 0) {
            assert_ok(cgp_pipeline_step(owner, batch.inputs, batch.n, NULL));
            assert_ok(cgp_optim_step(owner));
        } else {
            cgp_pipeline *changed = k == 3 ? owner : second;
            const int last = cgp_model_parameters(model) - 1;
            for (int p = 0; p <= last; p += last) { /* the embedding and the last parameter */
                assert_ok(cgp_pipeline_parameter_tensor(changed, p, &view));
                ((float *)view.data)[0] += 0.25f;
            }
            assert_ok(cgp_pipeline_parameters_changed(changed));
        }
        assert_ok(cgp_pipeline_evaluate(owner, batch.inputs, batch.n, &loss[0]));
        assert_ok(cgp_pipeline_evaluate(second, batch.inputs, batch.n, &loss[1]));
        assert_true(loss[0] == loss[1]);
    }
    cgp_pipeline_destroy(second);
    cgp_pipeline_destroy(owner);
    cgp_plan_destroy(inference);
    cgp_plan_destroy(plan);
    test_batch_release(&batch);
    cgp_model_destroy(model);
}

/* --- the cpu backend: in bf16, within a memory limit --- */

static int64_t round_up(int64_t n) {
    return (n + 31) / 32 * 32;
}

/* Count the bytes that the packed weights of all linear layers take in full bf16 tiles. Forward
 * needs a packed [in, out] matrix, and backward an [out, in] matrix. The head's weight is the
 * embedding. */
static int64_t count_tile_bytes(bool trains) {
    const int64_t w = WIDTH, sides[][2] = {{w, 3 * w}, {w, w}, {w, 4 * w}, {4 * w, w}};
    int64_t elements = round_up(w) * round_up(VOCAB);
    for (int k = 0; k < 4; k++)
        elements += LAYERS * round_up(sides[k][0]) * round_up(sides[k][1]);
    return (trains ? 2 : 1) * 2 * elements;
}

static cgp_plan *cpu_plan(const cgp_model *model, bool bf16, bool inference, int chunks,
                          int64_t limit) {
    cgp_plan *plan = NULL;
    cgp_plan_options o = options_of(1, (const char *const[]){"cpu"});
    o.chunks = chunks;
    o.precision = bf16 ? CGP_PRECISION_BF16 : CGP_PRECISION_F32;
    o.inference = inference;
    o.memory_limit = limit;
    assert_ok(cgp_plan_create(&plan, model, &o));
    return plan;
}

TEST_CASE(the_room_of_a_limit_has_packed_weights) {
    test_needs_cpu();
    cgp_model *model = test_gpt2(&sizes);
    for (int c = 0; c < 8; c++) {
        const bool bf16 = c & 1, inference = c & 2;
        const int chunks = c & 4 ? 3 : 1;
        const int64_t bytes = bf16 && (inference || chunks > 1) ? count_tile_bytes(!inference) : 0;
        cgp_plan *plan = cpu_plan(model, bf16, inference, chunks, 0);
        const int64_t without = cgp_plan_device_at(plan, 0)->planned_bytes;
        assert_int_equal(packed_bytes(plan), 0);
        cgp_plan_destroy(plan);
        for (int short_of = -1; short_of <= 1; short_of++) {
            plan =
                cpu_plan(model, bf16, inference, chunks, without + bytes + (bytes ? -short_of : 0));
            const int64_t expected = short_of > 0 ? 0 : bytes;
            assert_int_equal(packed_bytes(plan), expected);
            assert_int_equal(cgp_plan_device_at(plan, 0)->planned_bytes, without + expected);
            cgp_plan_destroy(plan);
        }
    }
    cgp_model_destroy(model);
}

/* Make a model of two linear layers. The first has one output column, which the second layer
 * reads. */
static cgp_model *narrow_model(bool transposed) {
    const cgp_init init = {CGP_INIT_NORMAL, 0.5};
    cgp_model *model = NULL;
    assert_ok(cgp_model_create(&model, "narrow"));
    cgp_value y = cgp_model_input(model, "x", CGP_F32, 2, (int64_t[]){ROWS, 3});
    const cgp_value t = cgp_model_input(model, "t", CGP_I32, 1, (int64_t[]){ROWS});
    cgp_model_layer(model, "a");
    y = cgp_linear(model, y, "a", (cgp_linear_options){.out = 1, .init = init});
    y = cgp_linear(model, y, "b",
                   (cgp_linear_options){.out = 7, .init = init, .transposed = transposed});
    cgp_model_loss_cross_entropy(model, y, t, -100, 1);
    assert_ok(cgp_model_finish(model));
    return model;
}

static int64_t thousand_bytes(const cgp_op_node *node, int64_t n) {
    (void)node;
    return 1000 * n;
}

/* If a plan fits the memory limit only without packed weights, it has no packed weights. The memory
 * that a custom op needs outside the plan counts too. */
TEST_CASE(memory_outside_the_plan_takes_the_room_of_packed_weights) {
    test_needs_cpu();
    cgp_op keeper = test_custom_noise;
    keeper.outside_bytes = thousand_bytes;
    cgp_model *model = NULL;
    assert_ok(cgp_model_create(&model, "keeper"));
    cgp_value y = cgp_model_input(model, "x", CGP_F32, 2, (int64_t[]){ROWS, 64});
    const cgp_value t = cgp_model_input(model, "t", CGP_I32, 1, (int64_t[]){ROWS});
    cgp_model_layer(model, "a");
    y = cgp_linear(model, y, "a", (cgp_linear_options){.out = 64});
    y = cgp_op_apply(model, &keeper, &y, NULL, &(test_noise){0.1});
    cgp_model_loss_cross_entropy(model, y, t, -100, 1);
    assert_ok(cgp_model_finish(model));
    cgp_plan *plan = cpu_plan(model, true, false, 2, 0);
    const int64_t without = cgp_plan_device_at(plan, 0)->planned_bytes;
    const int64_t outside = cgp_plan_device_at(plan, 0)->outside_bytes;
    const int64_t bytes = 2 * 64 * 64; /* only for forward: x has no gradient */
    assert_true(outside >= 1000);
    cgp_plan_destroy(plan);
    for (int missing = 0; missing < 2; missing++) {
        plan = cpu_plan(model, true, false, 2, without + outside + bytes - missing);
        assert_int_equal(packed_bytes(plan), missing ? 0 : bytes);
        cgp_plan_destroy(plan);
    }
    cgp_model_destroy(model);
}

/* Train one step in bf16. `digest` [65] becomes the SHA-256 of the weights after the step. */
static void train_narrow(const cgp_model *model, int64_t limit, char *digest) {
    cgp_plan *plan = NULL;
    cgp_pipeline *pipeline = NULL;
    double loss;
    float x[4 * ROWS * 3];
    int32_t target[4 * ROWS];
    const cgp_tensor in = {CGP_F32, {3, {4, ROWS, 3}}, x}, to = {CGP_I32, {2, {4, ROWS}}, target};
    cgp_plan_options o = options_of(1, NULL);
    o.precision = CGP_PRECISION_BF16;
    o.memory_limit = limit;
    o.batch = 4;
    o.chunks = 2;
    for (int i = 0; i < 4 * ROWS * 3; i++) {
        x[i] = (float)(i % 5) - 2;
        target[i / 3] = i % 7;
    }
    assert_ok(cgp_plan_create(&plan, model, &o));
    assert_ok(cgp_pipeline_create(&pipeline, plan, 1));
    assert_ok(cgp_pipeline_step(pipeline, (const cgp_tensor *const[]){&in, &to}, 2, &loss));
    assert_ok(cgp_optim_step(pipeline));
    assert_ok(cgp_pipeline_weights_sha256(pipeline, digest));
    cgp_pipeline_destroy(pipeline);
    cgp_plan_destroy(plan);
}

/* If a weight has one row, its packed copies for forward and backward have the same sizes and
 * strides, but different contents. */
TEST_CASE(weights_of_one_row_are_packed_for_each_direction) {
    test_needs_cpu();
    for (int transposed = 0; transposed < 2; transposed++) {
        char digests[2][65];
        cgp_model *model = narrow_model(transposed);
        train_narrow(model, 0, digests[0]);
        train_narrow(model, (int64_t)1 << 30, digests[1]);
        assert_string_equal(digests[0], digests[1]);
        cgp_model_destroy(model);
    }
}

/* Compare losses, evaluations, predictions and weights with and without prepacked weights. */
TEST_CASE(packed_weights_change_no_bit) {
    test_needs_cpu();
    uint64_t seed = test_seed();
    for (int round = 0; round < 6; round++) {
        const test_sizes random = {
            test_between(&seed, 2, 6), 8, 16 * test_between(&seed, 1, 5), 2, 11, 0.1, false, false};
        cgp_model *model = round % 2 ? test_random_graph(&seed, &random) : test_gpt2(&random);
        test_batch batches[3];
        test_outcome outcomes[2];
        cgp_plan_options o = options_of(1 + round % 2, NULL);
        o.precision = CGP_PRECISION_BF16;
        o.recompute = (cgp_recompute)(round % 3);
        for (int s = 0; s < 3; s++)
            test_batch_fill(&batches[s], model, &random, 6, &seed);
        for (int k = 0; k < 2; k++) {
            o.memory_limit = k ? (int64_t)1 << 30 : 0;
            test_train(model, &o, 5, batches, 3, &outcomes[k]);
        }
        assert_memory_equal(outcomes[0].losses, outcomes[1].losses, 3 * sizeof(double));
        assert_true(outcomes[0].evaluation == outcomes[1].evaluation);
        assert_true(outcomes[0].prediction == outcomes[1].prediction);
        assert_string_equal(outcomes[0].sha256, outcomes[1].sha256);
        for (int s = 0; s < 3; s++)
            test_batch_release(&batches[s]);
        cgp_model_destroy(model);
    }
}
