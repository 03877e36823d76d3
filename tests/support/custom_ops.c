/* SPDX-License-Identifier: Apache-2.0 */
/* custom_ops.c -- see custom_ops.h. This file uses only the public headers, as a user's ops
 * would. */
#include "custom_ops.h"

#include <math.h>
#include <string.h>

_Atomic int test_noise_runs, test_noise_recomputed;

static int64_t width_of(const cgp_op_type *type) {
    return type->shape.dims[type->shape.rank - 1];
}

/* Return the number of elements (count_of) or rows (rows_of) of input 0, over all samples. */
static int64_t count_of(const cgp_op_run *run) {
    return run->n * cgp_shape_count(&run->node->inputs[0].shape);
}

static int64_t rows_of(const cgp_op_run *run) {
    return count_of(run) / width_of(&run->node->inputs[0]);
}

static cgp_op_parameter parameter_of(const char *suffix, int64_t size, cgp_init_kind kind,
                                     double scale) {
    return (cgp_op_parameter){suffix, cgp_shape_make(1, &size), {kind, scale}, false};
}

/* Shape rule: y has the type of input 0, and the op has a weight for each column. */
static cgp_status infer_weighted(const void *attributes, const cgp_op_type *inputs,
                                 cgp_op_shapes *out) {
    (void)attributes;
    if (inputs[0].dtype != CGP_F32 || inputs[0].shape.rank < 1)
        return cgp_fail(CGP_EINVAL, "expects f32 rows, got %s of %d dims",
                        cgp_dtype_name(inputs[0].dtype), inputs[0].shape.rank);
    out->output = inputs[0];
    out->n_parameters = 1;
    out->parameters[0] = parameter_of("weight", width_of(&inputs[0]), CGP_INIT_ONE, 0);
    return CGP_OK;
}

/* --- scale --- */

static cgp_status scale_infer(const void *attributes, const cgp_op_type *inputs,
                              cgp_op_shapes *out) {
    CGP_TRY(infer_weighted(attributes, inputs, out));
    out->n_parameters = 2;
    out->parameters[1] = parameter_of("bias", width_of(&inputs[0]), CGP_INIT_UNIFORM, 0.1);
    return CGP_OK;
}

static void scale_rows(const cgp_op_run *run, void *work, int64_t begin, int64_t end, int thread) {
    (void)work;
    (void)thread;
    const int64_t C = width_of(&run->node->inputs[0]);
    const float *x = run->x[0], *weight = run->parameters[0], *bias = run->parameters[1];
    float *y = run->y;
    for (int64_t i = begin * C; i < end * C; i++)
        y[i] = x[i] * weight[i % C] + bias[i % C];
}

static cgp_status scale_forward(const cgp_op_run *run) {
    cgp_op_parallel_for(run, rows_of(run), 4, scale_rows, NULL);
    return CGP_OK;
}

static cgp_status scale_input(const cgp_op_run *run) {
    const int64_t n = count_of(run), C = width_of(&run->node->inputs[0]);
    for (int64_t i = 0; i < n; i++)
        run->dx[0][i] = run->dy[i] * run->parameters[0][i % C];
    return CGP_OK;
}

static cgp_status scale_weight(const cgp_op_run *run) {
    const int64_t n = count_of(run), C = width_of(&run->node->inputs[0]);
    const float *x = run->x[0];
    memset(run->dparameters[0], 0, (size_t)C * sizeof(float));
    memset(run->dparameters[1], 0, (size_t)C * sizeof(float));
    for (int64_t i = 0; i < n; i++) {
        run->dparameters[0][i % C] += run->dy[i] * x[i];
        run->dparameters[1][i % C] += run->dy[i];
    }
    return CGP_OK;
}

static double scale_flops(const cgp_op_node *node, cgp_op_direction direction) {
    const double each[] = {2, 1, 3};
    return each[direction] * (double)cgp_shape_count(&node->inputs[0].shape);
}

const cgp_op test_custom_scale = {.struct_size = sizeof(cgp_op),
                                  .name = "scale",
                                  .n_inputs = 1,
                                  .infer = scale_infer,
                                  .weight_needs_x = 1u << 0,
                                  .dx_in_place = true,
                                  .forward = scale_forward,
                                  .backward_input = scale_input,
                                  .backward_weight = scale_weight,
                                  .flops = scale_flops};

/* --- rms --- */

static cgp_status rms_infer(const void *attributes, const cgp_op_type *inputs, cgp_op_shapes *out) {
    CGP_TRY(infer_weighted(attributes, inputs, out));
    out->n_saved = 1;
    out->saved[0].dtype = CGP_F32;
    out->saved[0].shape = cgp_shape_make(inputs[0].shape.rank - 1, inputs[0].shape.dims);
    return CGP_OK;
}

static cgp_status rms_forward(const cgp_op_run *run) {
    const int64_t rows = rows_of(run), C = width_of(&run->node->inputs[0]);
    for (int64_t r = 0; r < rows; r++) {
        const float *x = (const float *)run->x[0] + r * C;
        float *y = (float *)run->y + r * C;
        double sum = 0;
        for (int64_t c = 0; c < C; c++)
            sum += (double)x[c] * x[c];
        const float scale = (float)(1 / sqrt(sum / (double)C + 0.1));
        run->saved[0][r] = scale;
        for (int64_t c = 0; c < C; c++)
            y[c] = x[c] * scale * run->parameters[0][c];
    }
    return CGP_OK;
}

/* Compute dx = s * g - x * s^3 * mean(g * x), where g = dy * weight and s is the saved scale. */
static cgp_status rms_input(const cgp_op_run *run) {
    const int64_t rows = rows_of(run), C = width_of(&run->node->inputs[0]);
    for (int64_t r = 0; r < rows; r++) {
        const float *x = (const float *)run->x[0] + r * C, *dy = run->dy + r * C;
        const double s = run->saved[0][r];
        double sum = 0;
        for (int64_t c = 0; c < C; c++)
            sum += (double)dy[c] * run->parameters[0][c] * x[c];
        for (int64_t c = 0; c < C; c++)
            run->dx[0][r * C + c] =
                (float)(s * dy[c] * run->parameters[0][c] - x[c] * s * s * s * sum / (double)C);
    }
    return CGP_OK;
}

/* Compute dweight: sum each column in double, in the workspace. */
static cgp_status rms_weight(const cgp_op_run *run) {
    const int64_t rows = rows_of(run), C = width_of(&run->node->inputs[0]);
    const float *x = run->x[0];
    double *sums = run->workspace;
    memset(sums, 0, (size_t)C * sizeof(double));
    for (int64_t i = 0; i < rows * C; i++)
        sums[i % C] += (double)run->dy[i] * x[i] * run->saved[0][i / C];
    for (int64_t c = 0; c < C; c++)
        run->dparameters[0][c] = (float)sums[c];
    return CGP_OK;
}

static int64_t rms_workspace(const cgp_op_node *node, cgp_op_direction direction, int64_t n,
                             int threads) {
    (void)n;
    (void)threads;
    return direction == CGP_OP_BACKWARD_WEIGHT
               ? width_of(&node->inputs[0]) * (int64_t)sizeof(double)
               : 0;
}

const cgp_op test_custom_rms = {.struct_size = sizeof(cgp_op),
                                .name = "rms",
                                .n_inputs = 1,
                                .infer = rms_infer,
                                .input_needs_x = 1u << 0,
                                .input_needs_saved = 1u << 0,
                                .weight_needs_x = 1u << 0,
                                .weight_needs_saved = 1u << 0,
                                .cheap = true,
                                .forward = rms_forward,
                                .backward_input = rms_input,
                                .backward_weight = rms_weight,
                                .workspace = rms_workspace};

/* --- sigmoid --- */

static cgp_status sigmoid_forward(const cgp_op_run *run) {
    const int64_t n = count_of(run), C = width_of(&run->node->inputs[0]);
    const float *x = run->x[0];
    for (int64_t i = 0; i < n; i++)
        ((float *)run->y)[i] = 1 / (1 + expf(-run->parameters[0][i % C] * x[i]));
    return CGP_OK;
}

static cgp_status sigmoid_input(const cgp_op_run *run) {
    const int64_t n = count_of(run), C = width_of(&run->node->inputs[0]);
    const float *y = run->y;
    for (int64_t i = 0; i < n; i++)
        run->dx[0][i] = run->dy[i] * y[i] * (1 - y[i]) * run->parameters[0][i % C];
    return CGP_OK;
}

static cgp_status sigmoid_weight(const cgp_op_run *run) {
    const int64_t n = count_of(run), C = width_of(&run->node->inputs[0]);
    const float *x = run->x[0], *y = run->y;
    memset(run->dparameters[0], 0, (size_t)C * sizeof(float));
    for (int64_t i = 0; i < n; i++)
        run->dparameters[0][i % C] += run->dy[i] * y[i] * (1 - y[i]) * x[i];
    return CGP_OK;
}

const cgp_op test_custom_sigmoid = {.struct_size = sizeof(cgp_op),
                                    .name = "sigmoid",
                                    .n_inputs = 1,
                                    .infer = infer_weighted,
                                    .input_needs_y = true,
                                    .weight_needs_x = 1u << 0,
                                    .weight_needs_y = true,
                                    .cheap = true,
                                    .dx_in_place = true,
                                    .forward = sigmoid_forward,
                                    .backward_input = sigmoid_input,
                                    .backward_weight = sigmoid_weight};

/* --- product --- */

static cgp_status product_infer(const void *attributes, const cgp_op_type *inputs,
                                cgp_op_shapes *out) {
    if (!cgp_shape_equal(&inputs[0].shape, &inputs[1].shape)) {
        char a[64], b[64];
        return cgp_fail(CGP_EINVAL, "expects two values of one shape, got %s and %s",
                        cgp_shape_text(&inputs[0].shape, a, sizeof a),
                        cgp_shape_text(&inputs[1].shape, b, sizeof b));
    }
    return test_custom_same(attributes, inputs, out);
}

static cgp_status product_forward(const cgp_op_run *run) {
    const int64_t n = count_of(run);
    const float *a = run->x[0], *b = run->x[1];
    for (int64_t i = 0; i < n; i++)
        ((float *)run->y)[i] = a[i] * b[i];
    return CGP_OK;
}

/* Compute dx. Read each element of dy before writing the same element of dx, because dx may share
 * memory with dy. */
static cgp_status product_input(const cgp_op_run *run) {
    const int64_t n = count_of(run);
    const float *a = run->x[0], *b = run->x[1];
    for (int64_t i = 0; i < n; i++) {
        const float dy = run->dy[i];
        if (run->dx[0]) run->dx[0][i] = dy * b[i];
        if (run->dx[1]) run->dx[1][i] = dy * a[i];
    }
    return CGP_OK;
}

const cgp_op test_custom_product = {.struct_size = sizeof(cgp_op),
                                    .name = "product",
                                    .n_inputs = 2,
                                    .infer = product_infer,
                                    .input_needs_x = 1u << 0 | 1u << 1,
                                    .overwrites = 1u << 0 | 1u << 1,
                                    .dx_in_place = true,
                                    .forward = product_forward,
                                    .backward_input = product_input};

/* --- noise --- */

static float noise_at(const cgp_op_run *run, int64_t i) {
    const test_noise *attributes = run->node->attributes;
    const int64_t each = cgp_shape_count(&run->node->inputs[0].shape);
    float u;
    if (!run->training) return 1.0f;
    cgp_op_random(run, i / each, i % each, 1, &u);
    return (float)(1 + attributes->strength * (u - 0.5));
}

static cgp_status noise_forward(const cgp_op_run *run) {
    const int64_t n = count_of(run);
    const float *x = run->x[0];
    if (cgp_is_recomputing())
        test_noise_recomputed++;
    else
        test_noise_runs++;
    for (int64_t i = 0; i < n; i++)
        ((float *)run->y)[i] = x[i] * noise_at(run, i);
    return CGP_OK;
}

static cgp_status noise_input(const cgp_op_run *run) {
    const int64_t n = count_of(run);
    for (int64_t i = 0; i < n; i++)
        run->dx[0][i] = run->dy[i] * noise_at(run, i);
    return CGP_OK;
}

const cgp_op test_custom_noise = {.struct_size = sizeof(cgp_op),
                                  .name = "noise",
                                  .n_inputs = 1,
                                  .attribute_bytes = sizeof(test_noise),
                                  .infer = test_custom_same,
                                  .cheap = true,
                                  .overwrites = 1u << 0,
                                  .dx_in_place = true,
                                  .forward = noise_forward,
                                  .backward_input = noise_input};

/* --- meter: state, accumulated in double --- */

typedef struct metered {
    double sum, count;
} metered;

static cgp_status meter_infer(const void *attributes, const cgp_op_type *inputs,
                              cgp_op_shapes *out) {
    (void)attributes;
    const cgp_shape one = cgp_shape_make(1, (int64_t[]){1});
    out->output = inputs[0];
    out->n_saved = 1;
    out->saved[0].dtype = CGP_F32;
    out->saved[0].shape = one;
    out->n_state = 2;
    out->state[0] = (cgp_op_state){"mean", CGP_F32, one, 0.5f};
    out->state[1] = (cgp_op_state){"steps", CGP_I32, one, 0};
    out->accumulator_bytes = sizeof(metered);
    return CGP_OK;
}

static cgp_status meter_forward(const cgp_op_run *run) {
    const int64_t n = count_of(run), each = n / run->n;
    const float *x = run->x[0], scale = 1 / (1 + *(const float *)run->state[0]);
    metered *collected = run->accumulator;
    if (collected && run->first) *collected = (metered){0, 0};
    for (int64_t i = 0; i < n; i++) {
        if (collected) collected->sum += fabs((double)x[i]);
        ((float *)run->y)[i] = x[i] * scale;
        if (i % each == 0) run->saved[0][i / each] = scale;
    }
    if (collected) collected->count += (double)n;
    return CGP_OK;
}

static cgp_status meter_input(const cgp_op_run *run) {
    const int64_t n = count_of(run), each = n / run->n;
    for (int64_t i = 0; i < n; i++)
        run->dx[0][i] = run->dy[i] * run->saved[0][i / each];
    return CGP_OK;
}

static void meter_end(const cgp_op_run *run) {
    const metered *collected = run->accumulator;
    float *mean = run->state[0];
    *mean = (float)(0.5 * *mean + 0.5 * collected->sum / collected->count);
    ++*(int32_t *)run->state[1];
}

const cgp_op test_custom_meter = {.struct_size = sizeof(cgp_op),
                                  .name = "meter",
                                  .n_inputs = 1,
                                  .infer = meter_infer,
                                  .input_needs_saved = 1u << 0,
                                  .dx_in_place = true,
                                  .forward = meter_forward,
                                  .backward_input = meter_input,
                                  .end_of_step = meter_end};

/* --- bias: the backward-input function (I) also computes dbias --- */

static cgp_status bias_forward(const cgp_op_run *run) {
    const int64_t n = count_of(run), C = width_of(&run->node->inputs[0]);
    const float *x = run->x[0];
    for (int64_t i = 0; i < n; i++)
        ((float *)run->y)[i] = x[i] + run->parameters[0][i % C];
    return CGP_OK;
}

static cgp_status bias_input(const cgp_op_run *run) {
    const int64_t n = count_of(run), C = width_of(&run->node->inputs[0]);
    memset(run->dparameters[0], 0, (size_t)C * sizeof(float));
    for (int64_t i = 0; i < n; i++) {
        run->dparameters[0][i % C] += run->dy[i];
        if (run->dx[0]) run->dx[0][i] = run->dy[i];
    }
    return CGP_OK;
}

const cgp_op test_custom_bias = {.struct_size = sizeof(cgp_op),
                                 .name = "bias",
                                 .n_inputs = 1,
                                 .infer = infer_weighted,
                                 .weight_in_input = true,
                                 .overwrites = 1u << 0,
                                 .dx_in_place = true,
                                 .forward = bias_forward,
                                 .backward_input = bias_input};

/* --- bucket: rows to integers --- */

static cgp_status bucket_infer(const void *attributes, const cgp_op_type *inputs,
                               cgp_op_shapes *out) {
    const cgp_shape *x = &inputs[0].shape;
    if (x->rank < 2) return cgp_fail(CGP_EINVAL, "expects 2 dims or more, got %d", x->rank);
    out->output = (cgp_op_type){.dtype = CGP_I32,
                                .shape = cgp_shape_make(x->rank - 1, x->dims),
                                .upper_bound = *(const int64_t *)attributes};
    return CGP_OK;
}

static cgp_status bucket_forward(const cgp_op_run *run) {
    const int64_t rows = rows_of(run), C = width_of(&run->node->inputs[0]);
    const int64_t bound = *(const int64_t *)run->node->attributes;
    const float *x = run->x[0];
    for (int64_t r = 0; r < rows; r++) { /* fmod() of an infinite x is NaN */
        const double bucket = fmod(fabs(8 * (double)x[r * C]), (double)bound);
        ((int32_t *)run->y)[r] = isnan(bucket) ? 0 : (int32_t)bucket;
    }
    return CGP_OK;
}

const cgp_op test_custom_bucket = {.struct_size = sizeof(cgp_op),
                                   .name = "bucket",
                                   .n_inputs = 1,
                                   .attribute_bytes = sizeof(int64_t),
                                   .infer = bucket_infer,
                                   .forward = bucket_forward};

/* --- gain --- */

static cgp_status gain_infer(const void *attributes, const cgp_op_type *inputs,
                             cgp_op_shapes *out) {
    const int64_t bound = *(const int64_t *)attributes;
    if (inputs[1].dtype != CGP_I32 || inputs[1].upper_bound > bound)
        return cgp_fail(CGP_EINVAL, "expects integers below %lld, got %s below %lld",
                        (long long)bound, cgp_dtype_name(inputs[1].dtype),
                        (long long)inputs[1].upper_bound);
    out->output = inputs[0];
    out->n_parameters = 1;
    out->parameters[0] = parameter_of("weight", bound, CGP_INIT_UNIFORM, 1);
    out->n_saved = 1;
    out->saved[0] = inputs[0];
    return CGP_OK;
}

/* Return the index of the weight for element `i`. If a test leaves out a wait, the integers may be
 * arbitrary. Return 0 if the index is out of range for this reason. */
static int64_t gain_index(const cgp_op_run *run, int64_t i) {
    const int64_t id = ((const int32_t *)run->x[1])[i / width_of(&run->node->inputs[0])];
    return id >= 0 && id < *(const int64_t *)run->node->attributes ? id : 0;
}

static cgp_status gain_forward(const cgp_op_run *run) {
    const int64_t n = count_of(run);
    const float *x = run->x[0];
    memcpy(run->saved[0], x, (size_t)n * sizeof(float));
    for (int64_t i = 0; i < n; i++)
        ((float *)run->y)[i] = x[i] * run->parameters[0][gain_index(run, i)];
    return CGP_OK;
}

static cgp_status gain_input(const cgp_op_run *run) {
    for (int64_t i = 0; i < count_of(run); i++)
        run->dx[0][i] = run->dy[i] * run->parameters[0][gain_index(run, i)];
    return CGP_OK;
}

static cgp_status gain_weight(const cgp_op_run *run) {
    const int64_t bound = *(const int64_t *)run->node->attributes;
    const float *x = run->saved[0];
    memset(run->dparameters[0], 0, (size_t)bound * sizeof(float));
    for (int64_t i = 0; i < count_of(run); i++)
        run->dparameters[0][gain_index(run, i)] += run->dy[i] * x[i];
    return CGP_OK;
}

static int64_t gain_bound(const cgp_op_node *node, int k) {
    return k == 1 ? *(const int64_t *)node->attributes : 0;
}

const cgp_op test_custom_gain = {.struct_size = sizeof(cgp_op),
                                 .name = "gain",
                                 .n_inputs = 2,
                                 .attribute_bytes = sizeof(int64_t),
                                 .infer = gain_infer,
                                 .input_needs_x = 1u << 1,
                                 .weight_needs_x = 1u << 1,
                                 .weight_needs_saved = 1u << 0,
                                 .forward = gain_forward,
                                 .backward_input = gain_input,
                                 .backward_weight = gain_weight,
                                 .upper_bound = gain_bound};

/* --- losses --- */

/* Return true if a row counts in the loss. For op `weighted`, a row counts only if the first number
 * of the target's row is above 0. For other losses, every row counts. */
static bool counts(const cgp_op_node *node, const float *t, int64_t row, int64_t C) {
    return node->op != &test_custom_weighted || t[row * C] > 0;
}

static cgp_status loss_infer(const void *attributes, const cgp_op_type *inputs,
                             cgp_op_shapes *out) {
    CGP_TRY(product_infer(attributes, inputs, out));
    memset(&out->output, 0, sizeof out->output);
    return CGP_OK;
}

static cgp_status squares_forward(const cgp_op_run *run) {
    const int64_t n = count_of(run), C = width_of(&run->node->inputs[0]);
    const float *x = run->x[0], *t = run->x[1];
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        const double difference = (double)x[i] - t[i];
        if (counts(run->node, t, i / C, C)) sum += 0.5 * difference * difference;
    }
    *run->loss = sum;
    return CGP_OK;
}

/* Compute both gradients. Read all inputs of an element before writing a gradient, because dx[k]
 * may share memory with x[k]. */
static cgp_status squares_input(const cgp_op_run *run) {
    const int64_t n = count_of(run);
    const float *x = run->x[0], *t = run->x[1];
    for (int64_t i = 0; i < n; i++) {
        const float dx = run->loss_scale * (x[i] - t[i]);
        if (run->dx[0]) run->dx[0][i] = dx;
        if (run->dx[1]) run->dx[1][i] = -dx;
    }
    return CGP_OK;
}

const cgp_op test_custom_squares = {.struct_size = sizeof(cgp_op),
                                    .name = "squares",
                                    .n_inputs = 2,
                                    .is_loss = true,
                                    .infer = loss_infer,
                                    .input_needs_x = 1u << 0 | 1u << 1,
                                    .dx_in_place = true,
                                    .forward = squares_forward,
                                    .backward_input = squares_input};

static cgp_status weighted_input(const cgp_op_run *run) {
    const int64_t n = count_of(run), C = width_of(&run->node->inputs[0]);
    const float *x = run->x[0], *t = run->x[1];
    for (int64_t i = 0; i < n; i++)
        run->dx[0][i] = counts(run->node, t, i / C, C) ? run->loss_scale * (x[i] - t[i]) : 0.0f;
    return CGP_OK;
}

static int64_t weighted_count(const cgp_op_node *node, const void *targets, int64_t n) {
    const int64_t C = width_of(&node->inputs[1]);
    const int64_t rows = n * cgp_shape_count(&node->inputs[1].shape) / C;
    int64_t count = 0;
    for (int64_t r = 0; r < rows; r++)
        count += counts(node, targets, r, C);
    return count;
}

const cgp_op test_custom_weighted = {.struct_size = sizeof(cgp_op),
                                     .name = "weighted",
                                     .n_inputs = 2,
                                     .is_loss = true,
                                     .infer = loss_infer,
                                     .input_needs_x = 1u << 0 | 1u << 1,
                                     .forward = squares_forward,
                                     .backward_input = weighted_input,
                                     .count = weighted_count};
