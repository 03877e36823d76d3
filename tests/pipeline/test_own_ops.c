/* test_own_ops.c -- ops from outside the library in a pipeline: planned, run, recomputed and refused as the library's own. (Random
 * graphs have them too: their bits, gradients, memory and messages are tried by the tests of those.) */
#include "own_ops.h"
#include "support.h"

enum { T = 4, C = 6, B = 8 };

/* --- a twin of cgp_relu --- */

static cgp_status same(const void *attributes, const cgp_op_type *inputs, cgp_op_shapes *out) {
    (void)attributes;
    out->output = inputs[0];
    return CGP_OK;
}

static int64_t count(const cgp_op_run *run) {
    return run->n * cgp_shape_count(&run->node->inputs[0].shape);
}

static cgp_status relu(const cgp_op_run *run) {
    const float *x = run->x[0];
    for (int64_t i = 0; i < count(run); i++)
        ((float *)run->y)[i] = x[i] > 0 ? x[i] : 0 * x[i];
    return CGP_OK;
}

static cgp_status relu_dx(const cgp_op_run *run) {
    const float *y = run->y;
    for (int64_t i = 0; i < count(run); i++)
        run->dx[0][i] = y[i] > 0 ? run->dy[i] : 0 * run->dy[i];
    return CGP_OK;
}

static const cgp_op twin = {.struct_size = sizeof(cgp_op),
                            .name = "twin",
                            .n_inputs = 1,
                            .infer = same,
                            .input_needs_y = true,
                            .cheap = true,
                            .overwrites = 1u << 0,
                            .dx_in_place = true,
                            .forward = relu,
                            .backward_input = relu_dx};

/* --- models and runs --- */

typedef struct parts {
    cgp_model *model;
    cgp_value x, kinds, features;
} parts;

/* Inputs "features" [T, C] and "kinds" [T], and a first layer. */
static parts begin(void) {
    parts p = {0};
    assert_ok(cgp_model_create(&p.model, "own"));
    p.features = cgp_model_input(p.model, "features", CGP_F32, 2, (int64_t[]){T, C});
    p.kinds = cgp_model_input(p.model, "kinds", CGP_I32, 1, (int64_t[]){T});
    cgp_model_layer(p.model, "first");
    p.x = cgp_linear(
        p.model, p.features, "first",
        (cgp_linear_options){.out = C, .bias = true, .init = {CGP_INIT_NORMAL, 0.5}});
    return p;
}

static void layer(parts *p, const char *name) {
    cgp_model_layer(p->model, name);
    p->x = cgp_linear(
        p->model, p->x, name,
        (cgp_linear_options){.out = C, .bias = true, .init = {CGP_INIT_NORMAL, 0.5}});
}

static cgp_model *finish(parts *p) {
    layer(p, "last");
    cgp_model_output(p->model, p->x);
    cgp_model_loss_cross_entropy(p->model, p->x, p->kinds, -100, 1);
    assert_ok(cgp_model_finish(p->model));
    return p->model;
}

/* What is trained on: the same for every model. */
typedef struct batch {
    float features[B * T * C];
    int32_t kinds[B * T];
    cgp_tensor tensors[2];
    const cgp_tensor *inputs[2];
} batch;

static void fill(batch *b, uint64_t seed) {
    for (int i = 0; i < B * T * C; i++)
        b->features[i] = (float)test_between(&seed, -1000, 1000) / 1000;
    for (int i = 0; i < B * T; i++)
        b->kinds[i] = test_between(&seed, 0, C - 1);
    b->tensors[0] = (cgp_tensor){CGP_F32, {3, {B, T, C}}, b->features};
    b->tensors[1] = (cgp_tensor){CGP_I32, {2, {B, T}}, b->kinds};
    b->inputs[0] = &b->tensors[0];
    b->inputs[1] = &b->tensors[1];
}

typedef struct world {
    cgp_plan *plan;
    cgp_pipeline *pipeline;
    batch batch;
} world;

static void start_with(world *r, const cgp_model *model, const cgp_plan_options *o) {
    assert_ok(cgp_plan_create(&r->plan, model, o));
    assert_ok(cgp_pipeline_create(&r->pipeline, r->plan, 5));
    fill(&r->batch, 3);
}

static cgp_plan_options options(void) {
    cgp_plan_options o = cgp_plan_options_default();
    o.batch = B;
    o.chunks = 4;
    o.optim = cgp_optim_sgd(0.1, 0, false, 0);
    return o;
}

static void start(world *r, const cgp_model *model, int stages, cgp_recompute recompute) {
    cgp_plan_options o = options();
    o.stages = stages;
    o.recompute = recompute;
    start_with(r, model, &o);
}

static void start_in(world *r, const cgp_model *model, int chunks, cgp_precision precision) {
    cgp_plan_options o = options();
    o.chunks = chunks;
    o.precision = precision;
    start_with(r, model, &o);
}

static double step(world *r) {
    double loss = 0;
    assert_ok(cgp_pipeline_step(r->pipeline, r->batch.inputs, 2, &loss));
    assert_ok(cgp_optim_step(r->pipeline));
    return loss;
}

static void stop(world *r) {
    cgp_pipeline_destroy(r->pipeline);
    cgp_plan_destroy(r->plan);
}

/* --- tests --- */

static void a_twin_of_an_op_of_the_library_has_its_bytes_and_bits(void **unused) {
    (void)unused;
    char hashes[2][65];
    int64_t bytes[2];
    for (int mode = 0; mode <= CGP_RECOMPUTE_EXCEPT_LAST_SELECTIVE; mode++) {
        for (int own = 0; own < 2; own++) {
            parts p = begin();
            for (int k = 0; k < 3; k++) {
                char name[16];
                snprintf(name, sizeof name, "hidden%d", k);
                p.x = own ? cgp_op_apply(p.model, &twin, &p.x, NULL, NULL)
                          : cgp_relu(p.model, p.x);
                layer(&p, name);
            }
            cgp_model *model = finish(&p);
            world r;
            start(&r, model, 2, (cgp_recompute)mode);
            bytes[own] = cgp_plan_device_at(r.plan, 0)->planned_bytes +
                         cgp_plan_device_at(r.plan, 1)->planned_bytes;
            for (int k = 0; k < 3; k++)
                step(&r);
            assert_ok(cgp_pipeline_weights_sha256(r.pipeline, hashes[own]));
            stop(&r);
            cgp_model_destroy(model);
        }
        assert_int_equal(bytes[0], bytes[1]);
        assert_string_equal(hashes[0], hashes[1]);
    }
}

/* Forward of a micro-batch runs once, and again for backward where a mode wants it: always. */
static void an_op_knows_when_it_is_recomputed(void **unused) {
    (void)unused;
    const test_noise noise = {0.3};
    const struct {
        cgp_recompute mode;
        int again; /* of 4 micro-batches */
    } cases[] = {{CGP_RECOMPUTE_NEVER, 0},
                 {CGP_RECOMPUTE_ALWAYS, 4},
                 {CGP_RECOMPUTE_NEVER_SELECTIVE, 4}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        parts p = begin();
        p.x = cgp_relu(p.model, p.x); /* backward reads its result, so noise can be redone */
        p.x = cgp_op_apply(p.model, &test_own_noise, &p.x, NULL, &noise);
        cgp_model *model = finish(&p);
        world r;
        start(&r, model, 1, cases[i].mode);
        test_noise_runs = test_noise_again = 0;
        step(&r);
        assert_int_equal(test_noise_runs, 4);
        assert_int_equal(test_noise_again, cases[i].again);
        double loss;
        assert_ok(cgp_pipeline_evaluate(r.pipeline, r.batch.inputs, 2, &loss));
        assert_int_equal(test_noise_runs, 8);
        assert_int_equal(test_noise_again, cases[i].again);
        stop(&r);
        cgp_model_destroy(model);
        assert_false(cgp_is_recomputing());
    }
}

/* The meter measures what comes in: mean' = (mean + mean |features|) / 2 from 0.5 on. */
static void state_changes_once_a_step(void **unused) {
    (void)unused;
    for (int mode = 0; mode <= CGP_RECOMPUTE_ALWAYS; mode++) {
        parts p = begin();
        p.x = cgp_add(p.model, p.x,
                      cgp_op_apply(p.model, &test_own_meter, &p.features, "meter", NULL));
        cgp_model *model = finish(&p);
        world r;
        start(&r, model, 2, (cgp_recompute)mode);
        assert_int_equal(cgp_model_states(model), 2);
        assert_string_equal(cgp_model_state_name(model, 0), "meter.mean");
        double sum = 0, expected = 0.5;
        for (int i = 0; i < B * T * C; i++)
            sum += fabs((double)r.batch.features[i]);
        for (int k = 1; k <= 3; k++) {
            float mean;
            int32_t steps;
            step(&r);
            expected = 0.5 * expected + 0.5 * sum / (B * T * C);
            assert_ok(cgp_pipeline_get_state(r.pipeline, 0, &mean));
            assert_ok(cgp_pipeline_get_state(r.pipeline, 1, &steps));
            assert_true(fabs(mean - expected) < 1e-6);
            assert_int_equal(steps, k);
        }
        stop(&r);
        cgp_model_destroy(model);
    }
}

/* Rows of the features that begin above 0 count: the loss is their mean. */
static void a_loss_of_ones_own_counts_what_it_says(void **unused) {
    (void)unused;
    parts p = begin();
    const cgp_value made = cgp_op_apply(p.model, &test_own_rms, &p.x, "rms", NULL);
    cgp_op_apply_loss(p.model, &test_own_weighted, (cgp_value[]){made, p.features}, NULL, 2);
    cgp_model_output(p.model, made);
    assert_ok(cgp_model_finish(p.model));
    world r;
    start(&r, p.model, 1, CGP_RECOMPUTE_NEVER);
    float got[B * T * C];
    cgp_tensor output = {CGP_F32, {3, {B, T, C}}, got};
    double loss, sum = 0;
    int counted = 0;
    assert_ok(cgp_pipeline_predict(r.pipeline, r.batch.inputs, 2, &output));
    for (int row = 0; row < B * T; row++) {
        if (r.batch.features[row * C] <= 0) continue;
        counted++;
        for (int i = row * C; i < (row + 1) * C; i++)
            sum += 0.5 * pow((double)got[i] - r.batch.features[i], 2);
    }
    assert_true(counted > 0 && counted < B * T);
    assert_ok(cgp_pipeline_evaluate(r.pipeline, r.batch.inputs, 2, &loss));
    assert_true(fabs(loss - 2 * sum / counted) < 1e-9 * loss);
    const double first = step(&r);
    assert_true(first == loss);
    for (int k = 0; k < 20; k++)
        loss = step(&r);
    assert_true(loss < 0.9 * first);
    for (int row = 0; row < B * T; row++)
        r.batch.features[row * C] = -1;
    assert_status(cgp_pipeline_step(r.pipeline, r.batch.inputs, 2, &loss), CGP_EINVAL);
    assert_message("loss weighted: expected a count above 0 of 8 samples, got 0");
    stop(&r);
    cgp_model_destroy(p.model);
}

static void integers_out_of_range_are_refused(void **unused) {
    (void)unused;
    int64_t high = C;
    parts p = begin();
    p.x = cgp_op_apply(p.model, &test_own_gain, (cgp_value[]){p.x, p.kinds}, "gain", &high);
    high = 1; /* what was given is copied */
    cgp_model *model = finish(&p);
    world r;
    start(&r, model, 2, CGP_RECOMPUTE_NEVER);
    step(&r);
    char before[65], after[65];
    double loss;
    assert_ok(cgp_pipeline_weights_sha256(r.pipeline, before));
    r.batch.kinds[2 * T + 1] = C;
    assert_status(cgp_pipeline_step(r.pipeline, r.batch.inputs, 2, &loss), CGP_EINVAL);
    assert_message(
        "input kinds: sample 2, element 1 is 6, expected 0 to 5 (layer first, gain)");
    assert_ok(cgp_pipeline_weights_sha256(r.pipeline, after));
    assert_string_equal(before, after);
    stop(&r);
    cgp_model_destroy(model);
}

/* y: the random numbers of its elements, drawn in two pieces. */
static cgp_status numbers(const cgp_op_run *run) {
    const int64_t each = count(run) / run->n, half = each / 2 - 1;
    float *y = run->y;
    for (int64_t s = 0; s < run->n; s++) {
        cgp_op_random(run, s, 0, half, y + s * each);
        cgp_op_random(run, s, half, each - half, y + s * each + half);
    }
    return CGP_OK;
}

/* Predictions of two ops that are nothing but random, in so many micro-batches, before and after a step. */
static void draw_numbers(int chunks, float out[2][2 * B * T * C]) {
    cgp_op op = twin;
    op.name = "numbers";
    op.forward = numbers;
    op.backward_input = NULL;
    op.overwrites = 0;
    op.input_needs_y = op.dx_in_place = false;
    parts p = begin();
    cgp_value both[2];
    for (int k = 0; k < 2; k++)
        both[k] = cgp_op_apply(p.model, &op, &p.x, NULL, NULL);
    cgp_model_output(p.model, cgp_concat(p.model, both, 2));
    cgp_model_loss_cross_entropy(p.model, p.x, p.kinds, -100, 1);
    assert_ok(cgp_model_finish(p.model));
    world w;
    start_in(&w, p.model, chunks, CGP_PRECISION_F32);
    for (int k = 0; k < 2; k++) {
        const cgp_tensor output = {CGP_F32, {3, {B, T, 2 * C}}, out[k]};
        assert_ok(cgp_pipeline_predict(w.pipeline, w.batch.inputs, 2, &output));
        step(&w);
    }
    stop(&w);
    cgp_model_destroy(p.model);
}

static int by_value(const void *a, const void *b) {
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void random_numbers_are_those_of_seed_step_op_sample_and_element(void **unused) {
    (void)unused;
    enum { EACH = 2 * B * T * C, ALL = 2 * EACH };
    static float drawn[2][EACH], again[2][EACH];
    float *sorted = &drawn[0][0];
    double sum = 0;
    draw_numbers(4, drawn);
    draw_numbers(1, again);
    assert_memory_equal(drawn, again, sizeof drawn);
    qsort(sorted, ALL, sizeof *sorted, by_value);
    for (int i = 0; i < ALL; i++)
        sum += sorted[i];
    for (int i = 1; i < ALL; i++)
        assert_true(sorted[i - 1] < sorted[i]); /* all differ, with this seed */
    assert_true(sorted[0] >= 0 && sorted[ALL - 1] < 1);
    assert_true(fabs(sum / ALL - 0.5) < 0.05);
}

/* --- two inputs of one value --- */

static cgp_status square(const cgp_op_run *run) {
    const float *x = run->x[0];
    for (int64_t i = 0; i < count(run); i++)
        ((float *)run->y)[i] = x[i] * x[i];
    return CGP_OK;
}

static cgp_status square_dx(const cgp_op_run *run) {
    const float *x = run->x[0];
    for (int64_t i = 0; i < count(run); i++)
        run->dx[0][i] = 2 * (run->dy[i] * x[i]);
    return CGP_OK;
}

/* The gradient of "first.weight" with the model's middle made by an op of `n` equal inputs. */
static void gradient_of(const cgp_op *op, cgp_precision precision, float *gradient) {
    parts p = begin();
    p.x = cgp_op_apply(p.model, op, (cgp_value[]){p.x, p.x}, NULL, NULL);
    cgp_model *model = finish(&p);
    world w;
    start_in(&w, model, 4, precision);
    assert_ok(cgp_pipeline_step(w.pipeline, w.batch.inputs, 2, NULL));
    assert_ok(cgp_pipeline_get_gradient(w.pipeline, 0, gradient));
    stop(&w);
    cgp_model_destroy(model);
}

/* In f32 the product's two gradients of one value add up exactly; in bf16 the first is rounded before. */
static void the_gradient_of_a_product_with_itself_is_that_of_a_square(void **unused) {
    (void)unused;
    cgp_op one = twin;
    one.name = "square";
    one.forward = square;
    one.backward_input = square_dx;
    one.input_needs_y = false;
    one.input_needs_x = 1u << 0;
    float expected[C * C], got[C * C];
    double norm = 0, difference = 0;
    gradient_of(&one, CGP_PRECISION_F32, expected);
    gradient_of(&test_own_product, CGP_PRECISION_F32, got);
    assert_memory_equal(expected, got, sizeof got);
    gradient_of(&test_own_product, CGP_PRECISION_BF16, got);
    for (int i = 0; i < C * C; i++) {
        norm += pow((double)expected[i], 2);
        difference += pow((double)expected[i] - got[i], 2);
    }
    assert_true(norm > 0);
    assert_true(sqrt(difference / norm) < 0.05);
}

/* y = a + b backwards: may lie over a, if that is not b. */
static cgp_status mirrored(const cgp_op_run *run) {
    const int64_t n = count(run);
    const float *a = run->x[0], *b = run->x[1];
    for (int64_t i = 0; i < n; i++)
        ((float *)run->y)[i] = a[i] + b[n - 1 - i];
    return CGP_OK;
}

static cgp_status mirrored_dx(const cgp_op_run *run) {
    const int64_t n = count(run);
    for (int64_t i = 0; i < n; i++) {
        if (run->dx[0]) run->dx[0][i] = run->dy[i];
        if (run->dx[1]) run->dx[1][n - 1 - i] = run->dy[i];
    }
    return CGP_OK;
}

/* a^3 / 3 + b^2 / 2: each dx from its own x, one after the other. */
static cgp_status powers(const cgp_op_run *run) {
    const float *a = run->x[0], *b = run->x[1];
    *run->loss = 0;
    for (int64_t i = 0; i < count(run); i++)
        *run->loss += (double)a[i] * a[i] * a[i] / 3 + (double)b[i] * b[i] / 2;
    return CGP_OK;
}

static cgp_status powers_dx(const cgp_op_run *run) {
    const float *a = run->x[0], *b = run->x[1], scale = run->loss_scale;
    for (int64_t i = 0; run->dx[1] && i < count(run); i++)
        run->dx[1][i] = scale * b[i];
    for (int64_t i = 0; run->dx[0] && i < count(run); i++)
        run->dx[0][i] = scale * a[i] * a[i];
    return CGP_OK;
}

static cgp_status no_result(const void *attributes, const cgp_op_type *inputs,
                            cgp_op_shapes *out) {
    (void)attributes;
    (void)inputs;
    (void)out;
    return CGP_OK;
}

static void memory_of_a_value_that_is_two_inputs_is_left_alone(void **unused) {
    (void)unused;
    char hashes[2][65];
    for (int over = 0; over < 2; over++) {
        cgp_op op = twin, loss = twin;
        op.name = "mirrored";
        op.n_inputs = 2;
        op.forward = mirrored;
        op.backward_input = mirrored_dx;
        op.input_needs_y = op.dx_in_place = false;
        op.overwrites = over ? 1u << 0 : 0;
        loss.name = "powers";
        loss.n_inputs = 2;
        loss.is_loss = true;
        loss.infer = no_result;
        loss.forward = powers;
        loss.backward_input = powers_dx;
        loss.input_needs_x = 3;
        loss.input_needs_y = loss.cheap = false;
        loss.overwrites = 0;
        loss.dx_in_place = over;
        parts p = begin();
        p.x = cgp_op_apply(p.model, &op, (cgp_value[]){p.x, p.x}, NULL, NULL);
        layer(&p, "last");
        cgp_model_output(p.model, p.x);
        cgp_op_apply_loss(p.model, &loss, (cgp_value[]){p.x, p.x}, NULL, 0.01);
        assert_ok(cgp_model_finish(p.model));
        world w;
        start(&w, p.model, 1, CGP_RECOMPUTE_NEVER);
        assert_ok(cgp_pipeline_step(w.pipeline, w.batch.inputs, 2, NULL));
        assert_ok(cgp_optim_step(w.pipeline));
        assert_ok(cgp_pipeline_weights_sha256(w.pipeline, hashes[over]));
        stop(&w);
        cgp_model_destroy(p.model);
    }
    assert_string_equal(hashes[0], hashes[1]);
}

/* --- where nobody looks at first --- */

/* No input has a gradient; that of the parameter comes all the same. */
static void an_op_on_an_input_of_the_model_trains_its_parameters(void **unused) {
    (void)unused;
    parts p = begin();
    p.x =
        cgp_add(p.model, p.x, cgp_op_apply(p.model, &test_own_bias, &p.features, "bias", NULL));
    cgp_model *model = finish(&p);
    world w;
    start(&w, model, 2, CGP_RECOMPUTE_NEVER);
    float gradient[C];
    double sum = 0;
    assert_string_equal(cgp_model_parameter_name(model, 2), "bias.weight");
    step(&w);
    assert_ok(cgp_pipeline_get_gradient(w.pipeline, 2, gradient));
    for (int c = 0; c < C; c++)
        sum += fabs((double)gradient[c]);
    assert_true(sum > 0);
    stop(&w);
    cgp_model_destroy(model);
}

static void inner_part(const cgp_op_run *run, void *work, int64_t begin_, int64_t end,
                       int thread) {
    (void)thread;
    float *y = run->y;
    for (int64_t i = begin_; i < end; i++)
        y[*(int64_t *)work + i] += 1;
}

static void outer_part(const cgp_op_run *run, void *work, int64_t begin_, int64_t end,
                       int thread) {
    (void)work;
    (void)thread;
    for (int64_t row = begin_; row < end; row++) {
        int64_t at = row * C;
        for (int64_t c = 0; c < C; c++)
            ((float *)run->y)[at + c] = ((const float *)run->x[0])[at + c];
        cgp_op_share(run, C, 1, inner_part, &at);
    }
}

static cgp_status nested(const cgp_op_run *run) {
    cgp_op_share(run, count(run) / C, 1, outer_part, NULL);
    return CGP_OK;
}

static void a_share_in_a_share_runs_whole(void **unused) {
    (void)unused;
    cgp_op op = twin;
    op.name = "nested";
    op.forward = nested;
    op.backward_input = NULL;
    op.input_needs_y = op.dx_in_place = op.cheap = false;
    op.overwrites = 0;
    parts p = begin();
    cgp_model_output(p.model, cgp_op_apply(p.model, &op, &p.features, NULL, NULL));
    cgp_model_loss_cross_entropy(p.model, p.x, p.kinds, -100, 1);
    assert_ok(cgp_model_finish(p.model));
    cgp_plan_options o = options();
    o.threads_per_device = 2;
    world w;
    start_with(&w, p.model, &o);
    float got[B * T * C];
    const cgp_tensor output = {CGP_F32, {3, {B, T, C}}, got};
    assert_ok(cgp_pipeline_predict(w.pipeline, w.batch.inputs, 2, &output));
    for (int i = 0; i < B * T * C; i++)
        assert_true(got[i] == w.batch.features[i] + 1);
    stop(&w);
    cgp_model_destroy(p.model);
}

static cgp_status quiet(const cgp_op_run *run) {
    (void)run;
    return CGP_ELIMIT;
}

static void a_failure_without_a_message_is_told_by_its_name(void **unused) {
    (void)unused;
    cgp_op op = twin;
    op.name = "quiet";
    op.forward = quiet;
    parts p = begin();
    p.x = cgp_op_apply(p.model, &op, &p.x, NULL, NULL);
    cgp_model *model = finish(&p);
    world w;
    double loss;
    start(&w, model, 1, CGP_RECOMPUTE_NEVER);
    assert_status(cgp_pipeline_step(w.pipeline, w.batch.inputs, 2, &loss), CGP_EDEVICE);
    assert_message("0F0: layer first, quiet: failed with CGP_ELIMIT");
    stop(&w);
    cgp_model_destroy(model);
}

static void names_of_states_come_once(void **unused) {
    (void)unused;
    parts p = begin();
    for (int k = 0; k < 2; k++)
        p.x = cgp_op_apply(p.model, &test_own_meter, &p.x, "meter", NULL);
    assert_status(cgp_model_finish(p.model), CGP_EINVAL);
    assert_message("layer first, meter: state meter.mean exists already");
    cgp_model_destroy(p.model);
}

static cgp_status whole_steps(const cgp_op_run *run) {
    const int32_t steps = *(const int32_t *)run->state[1];
    if (steps != 3) return cgp_fail(CGP_EDEVICE, "begins with 3 steps, got %d", (int)steps);
    return test_own_meter.forward(run);
}

static cgp_status three_steps(const void *attributes, const cgp_op_type *inputs,
                              cgp_op_shapes *out) {
    CGP_TRY(test_own_meter.infer(attributes, inputs, out));
    out->state[1].begin = 3;
    return CGP_OK;
}

static void a_profile_has_the_states_of_the_beginning(void **unused) {
    (void)unused;
    cgp_op op = test_own_meter;
    op.infer = three_steps;
    op.forward = whole_steps;
    parts p = begin();
    p.x = cgp_op_apply(p.model, &op, &p.x, "meter", NULL);
    cgp_model *model = finish(&p);
    cgp_layer_cost costs[2];
    const cgp_profile_options o = cgp_profile_options_default();
    assert_ok(cgp_profile(model, &o, costs));
    cgp_model_destroy(model);
}

static cgp_status fails_in_the_third(const cgp_op_run *run) {
    float u;
    cgp_op_random(run, 0, 0, 1, &u); /* its operands are whole, also in a run that will fail */
    const float *x = run->x[0];
    for (int64_t i = 0; i < count(run); i++) {
        if (x[i] > 1000) return cgp_fail(CGP_EDEVICE, "%g is too bright", (double)x[i]);
        ((float *)run->y)[i] = x[i];
    }
    return CGP_OK;
}

static void an_error_of_the_op_comes_back_with_its_place(void **unused) {
    (void)unused;
    cgp_op op = twin;
    op.name = "bright";
    op.forward = fails_in_the_third;
    parts p = begin();
    cgp_model_layer(p.model, "second");
    p.x = cgp_op_apply(p.model, &op, &p.features, NULL, NULL);
    cgp_model *model = finish(&p);
    world r;
    start(&r, model, 1, CGP_RECOMPUTE_NEVER);
    step(&r);
    double loss;
    r.batch.features[5 * T * C + 7] = 2000;
    assert_status(cgp_pipeline_step(r.pipeline, r.batch.inputs, 2, &loss), CGP_EDEVICE);
    assert_message("stage 0, micro-batch 2, 0F2: layer second, bright: 2000 is too bright");
    stop(&r);
    cgp_model_destroy(model);
}

static cgp_op_shapes said; /* what a shape rule of the next test says */

static cgp_status says(const void *attributes, const cgp_op_type *inputs, cgp_op_shapes *out) {
    (void)attributes;
    (void)inputs;
    *out = said;
    return CGP_OK;
}

static void expect_refused(const cgp_op *op, const char *name, const char *message) {
    parts p = begin();
    p.x = cgp_op_apply(p.model, op, &p.x, name, NULL);
    assert_int_equal(p.x.id, -1);
    assert_status(cgp_model_finish(p.model), CGP_EINVAL);
    assert_message(message);
    cgp_model_destroy(p.model);
}

static void a_bad_use_sticks_with_layer_and_op(void **unused) {
    (void)unused;
    cgp_op op = twin;
    expect_refused(&test_own_scale, NULL,
                   "layer first, scale: has parameters or state, expected a name");
    expect_refused(&test_own_squares, NULL,
                   "layer first, squares: is a loss and has no result");
    expect_refused(&test_own_gain, "g",
                   "layer first, gain: op gain: expected 8 bytes of attributes");
    op.infer = says;
    expect_refused(&op, NULL, "layer first, twin: expects output of 1 to 5 dims, got []");
    said.output = (cgp_op_type){CGP_F32, {2, {T, 0}}, 0};
    expect_refused(&op, NULL, "layer first, twin: expects output of sizes >= 1, got [4, 0]");
    said.output = (cgp_op_type){CGP_I32, {2, {T, C}}, 0};
    expect_refused(&op, NULL, "its shape rule says integers below 0, expected 1 to ");
    said.output = (cgp_op_type){CGP_F32, {2, {T, C}}, 0};
    said.n_saved = 5;
    expect_refused(&op, NULL, "its shape rule says 5 saved values, expected 0 to 4");
    said.n_saved = 0;
    said.n_parameters = 1;
    said.parameters[0].shape = cgp_shape_make(1, (int64_t[]){C});
    expect_refused(&op, "w", "its shape rule gives parameter 0 no suffix");
    said.parameters[0].suffix = "weight";
    expect_refused(&op, "w", "its shape rule says parameters, expected backward_weight");
    parts p = begin();
    cgp_op_apply_loss(p.model, &twin, &p.x, NULL, 1);
    assert_status(cgp_model_finish(p.model), CGP_EINVAL);
    assert_message("layer first, twin: is no loss");
    cgp_model_destroy(p.model);
    p = begin();
    p.x = cgp_op_apply(p.model, &test_own_product,
                       (cgp_value[]){p.x, cgp_flatten(p.model, p.x)}, NULL, NULL);
    assert_status(cgp_model_finish(p.model), CGP_EINVAL);
    assert_message(
        "layer first, product: expects two values of one shape, got [4, 6] and [24]");
    cgp_model_destroy(p.model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_twin_of_an_op_of_the_library_has_its_bytes_and_bits),
        cmocka_unit_test(an_op_knows_when_it_is_recomputed),
        cmocka_unit_test(state_changes_once_a_step),
        cmocka_unit_test(a_loss_of_ones_own_counts_what_it_says),
        cmocka_unit_test(random_numbers_are_those_of_seed_step_op_sample_and_element),
        cmocka_unit_test(the_gradient_of_a_product_with_itself_is_that_of_a_square),
        cmocka_unit_test(memory_of_a_value_that_is_two_inputs_is_left_alone),
        cmocka_unit_test(an_op_on_an_input_of_the_model_trains_its_parameters),
        cmocka_unit_test(a_share_in_a_share_runs_whole),
        cmocka_unit_test(a_failure_without_a_message_is_told_by_its_name),
        cmocka_unit_test(names_of_states_come_once),
        cmocka_unit_test(a_profile_has_the_states_of_the_beginning),
        cmocka_unit_test(integers_out_of_range_are_refused),
        cmocka_unit_test(an_error_of_the_op_comes_back_with_its_place),
        cmocka_unit_test(a_bad_use_sticks_with_layer_and_op),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
