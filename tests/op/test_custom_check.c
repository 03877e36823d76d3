/* SPDX-License-Identifier: Apache-2.0 */
/* test_custom_check.c -- cgp_op_check() accepts custom ops that keep the contract. If an op breaks
 * the contract, the message names the broken rule. */
#include "custom_ops.h"
#include "support.h"

static const cgp_op_type rows = {.shape = {2, {5, 8}}};

TEST_CASE(every_op_of_the_tests_passes) {
    const test_noise noise = {0.4};
    const int64_t bound = 7;
    const uint64_t seed = test_seed();
    const cgp_op_type ids = {.dtype = CGP_I32, .shape = {1, {5}}, .upper_bound = 7};
    const cgp_op_type one[] = {rows}, two[] = {rows, rows}, looked_up[] = {rows, ids};
    const struct {
        const cgp_op *op;
        const void *attributes;
        const cgp_op_type *inputs;
    } cases[] = {{&test_custom_scale, NULL, one},    {&test_custom_rms, NULL, one},
                 {&test_custom_sigmoid, NULL, one},  {&test_custom_product, NULL, two},
                 {&test_custom_noise, &noise, one},  {&test_custom_meter, NULL, one},
                 {&test_custom_bucket, &bound, one}, {&test_custom_gain, &bound, looked_up},
                 {&test_custom_squares, NULL, two},  {&test_custom_bias, NULL, one}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int samples = 1; samples < 4; samples++) {
            cgp_op_check_options options = cgp_op_check_options_default();
            options.samples = samples;
            options.seed = seed;
            assert_ok(cgp_op_check(cases[i].op, cases[i].attributes, cases[i].inputs, &options));
        }
}

/* --- broken ops: each computes y = x^2, with one fault --- */

static cgp_status square(const cgp_op_run *run) {
    const float *x = run->x[0];
    for (int64_t i = 0; i < test_custom_count(run); i++)
        ((float *)run->y)[i] = x[i] * x[i];
    return CGP_OK;
}

static cgp_status square_dx(const cgp_op_run *run) {
    const float *x = run->x[0];
    for (int64_t i = 0; i < test_custom_count(run); i++)
        run->dx[0][i] = 2 * x[i] * run->dy[i];
    return CGP_OK;
}

static const cgp_op good = {.struct_size = sizeof(cgp_op),
                            .name = "square",
                            .n_inputs = 1,
                            .infer = test_custom_same,
                            .input_needs_x = 1,
                            .overwrites = 1,
                            .dx_in_place = true,
                            .forward = square,
                            .backward_input = square_dx};

static void expect(const cgp_op *op, const char *message) {
    assert_status(cgp_op_check(op, NULL, &rows, NULL), CGP_EINVAL);
    assert_message(message);
}

static cgp_status wrong_dx(const cgp_op_run *run) {
    const float *x = run->x[0];
    for (int64_t i = 0; i < test_custom_count(run); i++)
        run->dx[0][i] = 1.99f * x[i] * run->dy[i];
    return CGP_OK;
}

/* Compute dx, but with a wrong last element, as an off-by-one error would. */
static cgp_status nearly_dx(const cgp_op_run *run) {
    CGP_TRY(square_dx(run));
    run->dx[0][test_custom_count(run) - 1] = 0;
    return CGP_OK;
}

TEST_CASE(the_reserved_field_is_null) {
    cgp_op op = good;
    op.device = &op;
    expect(&op, "op square: device: expected NULL, which is reserved");
}

TEST_CASE(a_wrong_gradient_is_found) {
    cgp_op op = good;
    assert_ok(cgp_op_check(&op, NULL, &rows, NULL));
    op.backward_input = wrong_dx;
    expect(&op, "op square: backward_input: dx[0], element ");
    assert_message("by differences of forward, got ");
    op.backward_input = nearly_dx;
    cgp_op_check_options all = cgp_op_check_options_default();
    all.elements = 1000;
    assert_status(cgp_op_check(&op, NULL, &rows, &all), CGP_EINVAL);
    assert_message("dx[0], element 119: expected ");
}

static cgp_status dx_from_y(const cgp_op_run *run) {
    const float *x = run->x[0], *y = run->y;
    for (int64_t i = 0; i < test_custom_count(run); i++)
        run->dx[0][i] = (x[i] < 0 ? -2 : 2) * sqrtf(y[i]) * run->dy[i];
    return CGP_OK;
}

TEST_CASE(what_is_read_is_named_and_what_is_named_is_read) {
    cgp_op op = good;
    op.input_needs_x = 0;
    expect(&op, "op square: backward_input: reads x[0], which input_needs_x does not name");
    op = good;
    op.input_needs_y = true;
    expect(&op, "op square: backward_input: never reads y, which input_needs_y names");
    op.backward_input = dx_from_y;
    assert_ok(cgp_op_check(&op, NULL, &rows, NULL));
    op.input_needs_y = false;
    expect(&op, "op square: backward_input: reads y, which input_needs_y does not name");
    cgp_op scale = test_custom_scale;
    scale.weight_needs_x = 0;
    expect(&scale, "op scale: backward_weight: reads x[0], which weight_needs_x does not name");
    cgp_op rms = test_custom_rms;
    rms.weight_needs_saved = 0;
    expect(&rms, "op rms: backward_weight: reads saved[0], which weight_needs_saved does not");
    cgp_op sigmoid = test_custom_sigmoid;
    sigmoid.weight_needs_y = false;
    expect(&sigmoid, "op sigmoid: backward_weight: reads y, which weight_needs_y does not");
}

static cgp_status half_written(const cgp_op_run *run) {
    const float *x = run->x[0];
    for (int64_t i = 0; i < test_custom_count(run) / run->n; i++) /* writes only the first sample */
        ((float *)run->y)[i] = x[i] * x[i];
    return CGP_OK;
}

static cgp_status added(const cgp_op_run *run) {
    const float *x = run->x[0];
    for (int64_t i = 0; i < test_custom_count(run); i++)
        run->dx[0][i] += 2 * x[i] * run->dy[i];
    return CGP_OK;
}

static cgp_status too_far(const cgp_op_run *run) {
    const int64_t n = test_custom_count(run);
    CGP_TRY(square(run));
    ((float *)run->y)[n] = 0;
    return CGP_OK;
}

static cgp_status writes_x(const cgp_op_run *run) {
    ((float *)(uintptr_t)run->x[0])[1] = 0;
    return square(run);
}

static cgp_status counting(const cgp_op_run *run) {
    static int calls;
    CGP_TRY(square(run));
    ((float *)run->y)[0] += (float)++calls;
    return CGP_OK;
}

TEST_CASE(memory_is_written_whole_and_nothing_else) {
    cgp_op op = good;
    op.forward = half_written;
    expect(&op, "op square: forward: y, element 40 ");
    assert_message("depends on the previous contents of its memory");
    op = good;
    op.backward_input = added;
    expect(&op, "op square: backward_input: dx[0], element 0 depends on the previous contents "
                "of its memory");
    op = good;
    op.forward = too_far;
    expect(&op, "op square: forward: writes behind y");
    op = good;
    op.forward = writes_x;
    expect(&op, "op square: forward: writes to x[0], which is only read");
    op = good;
    op.forward = counting;
    expect(&op, "op square: forward: y, element 0 ");
}

/* Compute y[i] from x[i + 1]. This is correct only if y does not overwrite x in place. */
static cgp_status shifted(const cgp_op_run *run) {
    const float *x = run->x[0];
    const int64_t n = test_custom_count(run);
    for (int64_t i = n - 1; i >= 0; i--)
        ((float *)run->y)[i] = x[(i + 1) % n];
    return CGP_OK;
}

static cgp_status shifted_dx(const cgp_op_run *run) {
    const int64_t n = test_custom_count(run);
    for (int64_t i = 0; i < n; i++)
        run->dx[0][(i + 1) % n] = run->dy[i];
    return CGP_OK;
}

TEST_CASE(what_may_lie_in_place_is_tried_there) {
    cgp_op op = good;
    op.input_needs_x = 0;
    op.overwrites = 0;
    op.dx_in_place = false;
    op.forward = shifted;
    op.backward_input = shifted_dx;
    assert_ok(cgp_op_check(&op, NULL, &rows, NULL));
    op.overwrites = 1;
    expect(&op, "differs when y lies over an input that `overwrites` names");
    op.overwrites = 0;
    op.dx_in_place = true;
    expect(&op, "differs when it lies over dy (a loss: x), as dx_in_place allows");
}

static void sum_part(const cgp_op_run *run, void *work, int64_t begin, int64_t end, int thread) {
    (void)thread;
    for (int64_t i = begin; i < end; i++)
        *(float *)work += ((const float *)run->x[0])[i];
}

/* This custom op breaks the contract: it adds up the sums of ranges in the order in which the
 * ranges happen to run. */
static cgp_status sums(const cgp_op_run *run) {
    float sum = 0;
    cgp_op_parallel_for(run, test_custom_count(run), 1, sum_part, &sum);
    for (int64_t i = 0; i < test_custom_count(run); i++)
        ((float *)run->y)[i] = sum;
    return CGP_OK;
}

static int64_t shrinking(const cgp_op_node *node, cgp_op_direction direction, int64_t n,
                         int threads) {
    (void)node;
    (void)direction;
    (void)threads;
    return n == 2 ? 64 : 128;
}

TEST_CASE(ranges_and_workspace_are_tried) {
    cgp_op op = good;
    op.forward = sums;
    op.overwrites = 0;
    expect(&op, "differs when the ranges of cgp_op_parallel_for run in another order");
    op = good;
    op.workspace = shrinking;
    expect(&op, "op square: workspace: forward: expected at least the 128 bytes of 1 samples "
                "for 2, got 64");
}

static cgp_status uncounted_differs(const cgp_op_run *run) {
    const float *x = run->x[0];
    for (int64_t i = 0; i < test_custom_count(run); i++)
        ((float *)run->y)[i] = run->accumulator || !run->training ? x[i] : 2 * x[i];
    for (int64_t s = 0; s < run->n; s++)
        run->saved[0][s] = 1;
    if (run->accumulator) memset(run->accumulator, 0, 16);
    return CGP_OK;
}

static cgp_status never_begins(const cgp_op_run *run) {
    cgp_op_run other = *run;
    other.first = false;
    return test_custom_meter.forward(&other);
}

TEST_CASE(state_is_tried) {
    cgp_op op = test_custom_meter;
    op.forward = uncounted_differs;
    expect(&op, "op meter: forward: y, element 0 differs when `accumulator` is NULL");
    op.forward = never_begins;
    expect(&op, "op meter: end_of_step: state[0] depends on the contents of `accumulator`");
}

/* Compute dx[1] from x[0], although writing dx[0] may have overwritten x[0]. */
static cgp_status loss_in_two_loops(const cgp_op_run *run) {
    const float *x = run->x[0], *t = run->x[1];
    for (int64_t i = 0; i < test_custom_count(run) && run->dx[0]; i++)
        run->dx[0][i] = run->loss_scale * (x[i] - t[i]);
    for (int64_t i = 0; i < test_custom_count(run) && run->dx[1]; i++)
        run->dx[1][i] = run->loss_scale * (t[i] - x[i]);
    return CGP_OK;
}

TEST_CASE(a_loss_is_tried) {
    const cgp_op_type two[] = {rows, rows};
    cgp_op op = test_custom_squares;
    op.backward_input = loss_in_two_loops;
    assert_status(cgp_op_check(&op, NULL, two, NULL), CGP_EINVAL);
    assert_message("differs when it lies over dy (a loss: x)");
    op.dx_in_place = false;
    assert_ok(cgp_op_check(&op, NULL, two, NULL));
}

static cgp_status fails(const cgp_op_run *run) {
    return cgp_fail(CGP_EDEVICE, "sample %d is too dark", (int)run->n);
}

static cgp_status refuses(const void *attributes, const cgp_op_type *inputs, cgp_op_shapes *out) {
    (void)attributes;
    (void)inputs;
    (void)out;
    return cgp_fail(CGP_EINVAL, "expects a cube");
}

TEST_CASE(bad_tables_and_arguments_are_refused) {
    cgp_op op = good;
    op.forward = fails;
    expect(&op, "op square: forward: failed with CGP_EDEVICE (sample 3 is too dark)");
    op.forward = NULL;
    expect(&op, "op square: expected infer and forward, got no forward");
    op = good;
    op.infer = refuses;
    expect(&op, "op square: expects a cube");
    op = good;
    op.input_needs_x = 2;
    expect(&op, "op square: input_needs_x: expected bits of 1 inputs, got 0x2");
    op = good;
    op.struct_size = 8;
    expect(&op, "struct_size is 8");
    op = good;
    op.n_inputs = 5;
    expect(&op, "op square: expected 1 to 4 inputs, got 5");
    op = good;
    op.attribute_bytes = 4;
    expect(&op, "op square: expected 4 bytes of attributes, got none");
    op = good;
    op.weight_in_input = true;
    expect(&op, "its shape rule says no parameters");
    op = good;
    op.input_needs_saved = 1;
    expect(&op, "its table needs saved values 0x1, and its shape rule says 0");
    cgp_op_check_options options = cgp_op_check_options_default();
    options.low = options.high;
    assert_status(cgp_op_check(&good, NULL, &rows, &options), CGP_EINVAL);
    assert_message("expected low < high, got 1 and 1");
    assert_status(cgp_op_check(NULL, NULL, &rows, NULL), CGP_EINVAL);
    const cgp_op_type ids[] = {rows, {.dtype = CGP_I32, .shape = {1, {5}}}};
    const int64_t bound = 7;
    assert_status(cgp_op_check(&test_custom_gain, &bound, ids, NULL), CGP_EINVAL);
    assert_message("op gain: input 1: expected upper_bound from 1 to ");
}

/* --- more rules of the contract --- */

static cgp_status summed_with_dx(const cgp_op_run *run) {
    if (!run->dx[0]) {
        memset(run->dparameters[0], 0, 8 * sizeof(float));
        return CGP_OK;
    }
    return test_custom_bias.backward_input(run);
}

TEST_CASE(gradients_of_parameters_come_without_dx_too) {
    cgp_op op = test_custom_bias;
    op.backward_input = summed_with_dx;
    expect(&op, "op bias: backward_input: dparameters[0], element 0 differs when every dx is NULL");
}

static cgp_status wild(const cgp_op_run *run) {
    for (int64_t i = 0; i < run->n * cgp_shape_count(&run->node->shapes.output.shape); i++)
        ((int32_t *)run->y)[i] = i == 7 ? 7 : 6;
    return CGP_OK;
}

TEST_CASE(integers_are_in_their_range) {
    const int64_t bound = 7;
    cgp_op op = test_custom_bucket;
    op.forward = wild;
    assert_status(cgp_op_check(&op, &bound, &rows, NULL), CGP_EINVAL);
    assert_message("op bucket: forward: y, element 7 is 7, expected 0 to 6 (output.upper_bound)");
}

static int64_t only_backward(const cgp_op_node *node, cgp_op_direction direction, int64_t n,
                             int threads) {
    (void)node;
    (void)n;
    (void)threads;
    return direction == CGP_OP_FORWARD ? 64 : 4096;
}

static cgp_status scratches(const cgp_op_run *run) {
    memset(run->workspace, 1, 65);
    return square(run);
}

TEST_CASE(each_direction_keeps_to_its_own_workspace) {
    cgp_op op = good;
    op.workspace = only_backward;
    assert_ok(cgp_op_check(&op, NULL, &rows, NULL));
    op.forward = scratches;
    expect(&op, "op square: forward: writes behind workspace");
}

/* Shape rule of an op that computes the maximum of each row. The maximum's index is saved as a
 * float for backward. */
static cgp_status largest_infer(const void *attributes, const cgp_op_type *inputs,
                                cgp_op_shapes *out) {
    (void)attributes;
    out->output = (cgp_op_type){.shape = cgp_shape_make(1, inputs[0].shape.dims)};
    out->n_saved = 1;
    out->saved[0] = out->output;
    return CGP_OK;
}

static cgp_status largest(const cgp_op_run *run) {
    for (int64_t r = 0; r < run->n * 5; r++) {
        const float *x = (const float *)run->x[0] + r * 8;
        int best = 0;
        for (int c = 1; c < 8; c++)
            if (x[c] > x[best]) best = c;
        run->saved[0][r] = (float)best;
        ((float *)run->y)[r] = x[best];
    }
    return CGP_OK;
}

static cgp_status largest_dx(const cgp_op_run *run) {
    memset(run->dx[0], 0, (size_t)(run->n * 40) * sizeof(float));
    for (int64_t r = 0; r < run->n * 5; r++)
        run->dx[0][r * 8 + (int64_t)run->saved[0][r]] = run->dy[r];
    return CGP_OK;
}

TEST_CASE(a_saved_index_stays_one) {
    const cgp_op op = {.struct_size = sizeof(cgp_op),
                       .name = "largest",
                       .n_inputs = 1,
                       .infer = largest_infer,
                       .input_needs_saved = 1,
                       .forward = largest,
                       .backward_input = largest_dx};
    assert_ok(cgp_op_check(&op, NULL, &rows, NULL));
}

static cgp_status nothing_kept(const void *attributes, const cgp_op_type *inputs,
                               cgp_op_shapes *out) {
    CGP_TRY(test_custom_same(attributes, inputs, out));
    out->accumulator_bytes = 8;
    return CGP_OK;
}

TEST_CASE(what_would_never_be_used_is_reported) {
    cgp_op op = good;
    op.infer = nothing_kept;
    op.end_of_step = test_custom_meter.end_of_step;
    expect(&op, "op square: its shape rule says 8 accumulator bytes, expected a state");
    op = good;
    op.weight_needs_y = true;
    expect(&op, "op square: names operands of backward_weight, expected that function, got NULL");
    op = test_custom_bucket;
    op.input_needs_x = 1;
    expect(&op, "op bucket: names operands of backward_input");
}
