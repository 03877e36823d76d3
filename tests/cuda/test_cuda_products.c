/* SPDX-License-Identifier: Apache-2.0 */
/* test_cuda_products.c -- LINEAR in bf16 and tf32, computed by the fake cuBLASLt, is bit-identical
 * to plain loops over rounded factors. A faulty algorithm is rejected, for example if a row's
 * result depends on the number of rows. If all algorithms are rejected, the backend's own kernels
 * run. Each library call fails once. */
#include "tests/op/harness.h"

#include "in_program.h"

static uint64_t seed;
static runner on;

/* Open a device for which no algorithm has been chosen yet. The fake library offers `algorithms`
 * algorithms; the first `broken` of them have a fault. */
static void open_with(int algorithms, int broken) {
    cgp__shim_get_settings()->algorithms = algorithms;
    cgp__shim_get_settings()->broken = broken;
    on = runner_open(cuda_host(), 1);
}

static op_case draw(int i) {
    static const struct {
        int64_t rows, in, out;
    } sizes[] = {{1, 1, 1}, {3, 8, 16}, {70, 33, 65}, {17, 40, 9}, {200, 64, 72}, {5, 600, 24}};
    op_case c = draw_case(CGP_OP_LINEAR, 2, &seed);
    c.attributes = linear_attributes(sizes[i % 6].rows, sizes[i % 6].in, sizes[i % 6].out,
                                     test_random(&seed) & 1, test_random(&seed) & 1);
    c.tf32 = test_random(&seed) & 1;
    c.type = c.tf32 ? CGP_F32 : CGP_BF16;
    return c;
}

static op_case draw_tf32(int i) {
    op_case c = draw(i);
    c.tf32 = true;
    c.type = CGP_F32;
    return c;
}

/* Turn the case into a pointwise CONV2D or CONV_TRANSPOSE2D with the same operands. */
static void as_convolution(op_case *c) {
    c->op = test_random(&seed) & 1 ? CGP_OP_CONV2D : CGP_OP_CONV_TRANSPOSE2D;
    c->attributes =
        image_attributes(c->op, c->attributes.rows, 1, c->attributes.in,
                         (cgp__attributes){.windows = {.size = (int)c->attributes.out,
                                                       .bias = c->attributes.linear.has_bias,
                                                       .kernel = {1, 1},
                                                       .stride = {1, 1}}});
}

static void run_all(operands *o) {
    op_run(&on, o, CGP_OP_FORWARD);
    op_run(&on, o, CGP_OP_BACKWARD_INPUT);
    op_run(&on, o, CGP_OP_BACKWARD_WEIGHT);
}

/* --- plain loops --- */

/* Return x, rounded to the case's type in memory. */
static float rounded(const op_case *c, float x) {
    return c->tf32 ? x : cgp__bf16_to_float(cgp__bf16_from_float(x));
}

/* Return x, rounded as the library rounds a factor: to bf16 (8 bits), or to TF32 (11 bits, ties
 * away from zero). */
static float factor(const op_case *c, float x) {
    int exponent;
    if (!c->tf32) return rounded(c, x);
    const float fraction = frexpf(x, &exponent);
    return ldexpf(roundf(ldexpf(fraction, 11)), exponent - 11);
}

/* Return whether the weight is stored as [in, out]. */
static bool is_transposed(const op_case *c) {
    return c->op == CGP_OP_CONV2D || (c->op == CGP_OP_LINEAR && c->attributes.linear.transposed);
}

static float weight_at(const operands *o, int64_t in, int64_t out) {
    const cgp_op_attributes *g = &o->c.attributes;
    const bool transposed = is_transposed(&o->c);
    return factor(&o->c, o->at[SLOT_PARAM][transposed ? in * g->out + out : out * g->in + in]);
}

static void expect_forward(operands *o, int64_t rows) {
    const cgp_op_attributes *g = &o->c.attributes;
    for (int64_t i = 0; i < rows * g->out; i++) {
        const int64_t row = i / g->out, column = i % g->out;
        float sum = 0.0f;
        for (int64_t k = 0; k < g->in; k++)
            sum = fmaf(weight_at(o, k, column), factor(&o->c, o->at[SLOT_X][row * g->in + k]), sum);
        if (has_bias(&o->c)) sum = sum + rounded(&o->c, o->at[SLOT_PARAM + 1][column]);
        o->at[SLOT_Y][i] = rounded(&o->c, sum);
    }
}

static void expect_input(operands *o, int64_t rows) {
    const cgp_op_attributes *g = &o->c.attributes;
    for (int64_t i = 0; i < rows * g->in; i++) {
        const int64_t row = i / g->in, column = i % g->in;
        float sum = 0.0f, *dx = &o->at[SLOT_DX][i];
        for (int64_t k = 0; k < g->out; k++)
            sum =
                fmaf(weight_at(o, column, k), factor(&o->c, o->at[SLOT_DY][row * g->out + k]), sum);
        *dx = rounded(&o->c, o->c.add & 1 ? *dx + sum : sum);
    }
}

/* Set dx to the dx of `from` plus the product. The product is rounded before it is added, and the
 * sum is rounded again. */
static void expect_input_rounded_twice(operands *o, const operands *from) {
    const int64_t rows = o->c.n * o->c.attributes.rows;
    operands product;
    operands_copy(&product, from);
    product.c.add = 0;
    expect_input(&product, rows);
    for (int64_t i = 0; i < rows * o->c.attributes.in; i++)
        o->at[SLOT_DX][i] = rounded(&o->c, from->at[SLOT_DX][i] + product.at[SLOT_DX][i]);
    operands_destroy(&product);
}

static void expect_weight(operands *o, int64_t rows) {
    const cgp_op_attributes *g = &o->c.attributes;
    const bool transposed = is_transposed(&o->c);
    for (int64_t i = 0; i < g->in * g->out; i++) {
        const int64_t in = transposed ? i / g->out : i % g->in;
        const int64_t out = transposed ? i % g->out : i / g->in;
        float sum = 0.0f, *dw = &o->at[SLOT_DPARAM][i];
        for (int64_t row = 0; row < rows; row++)
            sum = fmaf(factor(&o->c, o->at[SLOT_X][row * g->in + in]),
                       factor(&o->c, o->at[SLOT_DY][row * g->out + out]), sum);
        *dw = o->c.accumulate ? *dw + sum : sum;
    }
}

/* --- properties --- */

static void assert_same(const operands *got, const operands *want, const char *text) {
    for (int slot = SLOT_Y; slot < SLOTS; slot++)
        if (slot == SLOT_Y || slot >= SLOT_DX) assert_same_bits(got, want, slot, 0, text);
}

/* The test compares all results except the bias gradient, which the library does not compute. */
TEST_CASE(the_library_multiplies_rounded_factors) {
    open_with(2, 0);
    for (int i = 0; i < 36; i++) {
        op_case c = draw(i);
        operands got, want;
        if (i % 2 || c.tf32) c.shift = 0;
        if (i >= 18) as_convolution(&c);
        operands_create_bent(&got, &c, &seed);
        operands_copy(&want, &got);
        run_all(&got);
        const int64_t rows = c.n * c.attributes.rows;
        expect_forward(&want, rows);
        expect_input(&want, rows);
        if (c.shift == 0) /* with other shifts, operands are not aligned to 16 bytes */
            expect_weight(&want, rows);
        else
            copy_slot(&want, &got, SLOT_DPARAM);
        copy_slot(&want, &got, SLOT_DPARAM + 1);
        assert_same(&got, &want, "plain loops");
        operands_destroy(&got);
        operands_destroy(&want);
    }
    runner_close(&on);
}

/* Run all directions with a library that offers `algorithms` algorithms; the first `broken` of them
 * have a fault. */
static void run_with(operands *o, const operands *from, int algorithms, int broken) {
    open_with(algorithms, broken);
    operands_copy(o, from);
    run_all(o);
    runner_close(&on);
}

/* Check that the first algorithm without the fault is used. If all algorithms have the fault, the
 * backend's own kernels must be used. */
static void expect_refused(const op_case *c, cgp__shim_fault fault) {
    operands from, none, good, second, broken;
    cgp__shim_get_settings()->fault = fault;
    operands_create_bent(&from, c, &seed);
    run_with(&none, &from, 0, 0);
    run_with(&good, &from, 2, 0);
    run_with(&second, &from, 3, 2);
    run_with(&broken, &from, 3, 3);
    assert_same(&second, &good, "an algorithm after broken ones");
    assert_same(&broken, &none, "own kernels, for want of an algorithm");
    operands *all[] = {&from, &none, &good, &second, &broken};
    for (int k = 0; k < 5; k++)
        operands_destroy(all[k]);
    cgp__shim_get_settings()->fault = CGP__SHIM_SPLITS_SMALL_M;
}

TEST_CASE(an_algorithm_that_breaks_the_law_of_rows_is_not_taken) {
    static const int sizes[] = {2, 4, 5}; /* numbers of draws whose sizes are all 16 or more */
    for (int i = 0; i < 6; i++) {
        op_case c = draw(sizes[i % 3]);
        c.shift = 0;
        expect_refused(&c, CGP__SHIM_SPLITS_SMALL_M);
    }
}

/* A faulty algorithm may convert factors differently in a tile at the edge of c than in other
 * tiles. */
TEST_CASE(an_algorithm_that_truncates_some_rows_is_not_taken) {
    for (int i = 0; i < 3; i++) {
        op_case c = draw_tf32(2);
        c.shift = 0;
        expect_refused(&c, CGP__SHIM_TRUNCATES);
    }
}

TEST_CASE(an_algorithm_that_ignores_beta_is_not_taken) {
    for (int i = 0; i < 12; i++) {
        op_case c = draw(i);
        c.shift = 0;
        c.add = c.accumulate = true;
        c.attributes.linear.has_bias = false; /* a GEMM with a bias never adds */
        expect_refused(&c, CGP__SHIM_IGNORES_BETA);
    }
}

/* A layer with one input and one output has GEMMs with n = 1 only. */
TEST_CASE(an_algorithm_that_multiplies_no_single_column_is_not_taken) {
    for (int i = 0; i < 4; i++) {
        op_case c = draw(0);
        c.attributes = linear_attributes(20, 1, 1, i % 2, i / 2);
        c.shift = 0;
        expect_refused(&c, CGP__SHIM_ZERO_SINGLE_COLUMN);
    }
}

TEST_CASE(an_algorithm_that_refuses_some_rows_is_not_taken) {
    for (int i = 0; i < 4; i++) {
        op_case c = draw(i % 2 ? 2 : 3);
        c.shift = 0;
        c.n = 1;
        c.attributes.rows = cgp__shim_get_settings()->refused_rows = 63;
        expect_refused(&c, CGP__SHIM_REFUSES_ROWS);
    }
}

/* Hopper's kernels round a product to the type of c before they add the product. This is accepted,
 * because PyTorch's sums of gradients also round twice. */
TEST_CASE(an_algorithm_that_rounds_a_product_before_it_adds_is_taken) {
    for (int i = 0; i < 12; i++) {
        op_case c = draw(i);
        operands from, good, twice;
        c.shift = 0;
        c.add = true;
        operands_create_bent(&from, &c, &seed);
        cgp__shim_get_settings()->fault = CGP__SHIM_ROUNDS_TWICE;
        run_with(&good, &from, 1, 0);
        run_with(&twice, &from, 1, 1);
        expect_input_rounded_twice(&good, &from);
        assert_same(&twice, &good, "the product is rounded, then the sum");
        operands *all[] = {&from, &good, &twice};
        for (int k = 0; k < 3; k++)
            operands_destroy(all[k]);
    }
    cgp__shim_get_settings()->fault = CGP__SHIM_SPLITS_SMALL_M;
}

TEST_CASE(unaligned_operands_have_own_kernels) {
    for (int tf32 = 0; tf32 < 2; tf32++) {
        op_case c = tf32 ? draw_tf32(4) : draw(4);
        operands from, got, want;
        c.accumulate = false;
        c.shift = 1; /* aligns the weight's gradient and f32 operands to only 4 bytes */
        operands_create_bent(&from, &c, &seed);
        operands_copy(&got, &from);
        operands_copy(&want, &from);
        for (int d = c.tf32 ? CGP_OP_FORWARD : CGP_OP_BACKWARD_WEIGHT; d < CGP_OP_DIRECTIONS; d++) {
            open_with(2, 0);
            op_run(&on, &got, (cgp_op_direction)d);
            runner_close(&on);
            open_with(0, 0);
            op_run(&on, &want, (cgp_op_direction)d);
            runner_close(&on);
        }
        assert_same(&got, &want, "own kernels at any address");
        operands *all[] = {&from, &got, &want};
        for (int k = 0; k < 3; k++)
            operands_destroy(all[k]);
    }
}

/* --- failures --- */

enum { WIDTH = 16 };

/* Create a device, and create and run kernels for one direction; return the first failure. */
static cgp_status live(cgp_op_direction direction) {
    const cgp_backend *b = cuda_host();
    const cgp_device_options options = device_options(1);
    const cgp_kernel_spec spec = {.op = CGP_OP_LINEAR,
                                  .direction = direction,
                                  .attributes = linear_attributes(4, WIDTH, WIDTH, true, false),
                                  .n = 1,
                                  .type = CGP_BF16};
    cgp_device *device = NULL;
    cgp_kernel *kernel = NULL, *other = NULL;
    int64_t bytes = 0;
    void *memory = NULL;
    assert_ok(b->kernels.workspace(&options, &spec, &bytes));
    bytes += 6 * WIDTH * WIDTH * 4;
    cgp_status status = b->device.create(&device, &options);
    if (status != CGP_OK) return status;
    if (status == CGP_OK) status = b->device.memory_create(device, (size_t)bytes, &memory);
    if (status == CGP_OK) status = b->kernels.create(device, &spec, &kernel);
    if (status == CGP_OK) status = b->kernels.create(device, &spec, &other);
    if (status == CGP_OK) {
        float *at[6];
        for (int i = 0; i < 6; i++)
            at[i] = (float *)memory + i * WIDTH * WIDTH;
        const cgp_kernel_args args = {.x = {at[0]},
                                      .y = at[1],
                                      .param = {at[2], at[2]},
                                      .dy = at[1],
                                      .dparam = {at[3], at[4]},
                                      .packed = at[5],
                                      .workspace = (float *)memory + 6 * WIDTH * WIDTH,
                                      .first = true};
        status = b->kernels.pack(device, &spec, args.param, at[5]);
        if (status == CGP_OK) status = b->kernels.run(kernel, &args);
    }
    if (status == CGP_OK) status = b->streams->finish(device);
    b->kernels.destroy(kernel);
    b->kernels.destroy(other);
    if (memory) b->device.memory_destroy(device, memory, (size_t)bytes);
    b->device.destroy(device);
    return status;
}

/* Let each library call fail once, by setting `*due` to the number of the call; return the number
 * of failures. */
static int fail_each(int *due, cgp_op_direction direction) {
    const int64_t alive = cgp__shim_get_objects().alive;
    int failed = 0;
    for (int n = 1;; n++) {
        *due = n;
        const cgp_status status = live(direction);
        const bool reached = *due == 0;
        *due = 0;
        assert_int_equal(cgp__shim_get_objects().alive, alive);
        if (status != CGP_OK) {
            assert_int_equal(status, CGP_EDEVICE);
            if (!strstr(cgp_message(), ": unknown error") &&
                !strstr(cgp_message(), ": unspecified launch failure")) /* a GEMM failed */
                fail_msg("call %d: %s", n, cgp_message());
            failed++;
        }
        if (!reached) return failed;
    }
}

TEST_CASE(any_call_may_fail) {
    cgp__shim_settings *s = cgp__shim_get_settings();
    s->error = cudaErrorUnknown;
    s->algorithms = 2;
    s->broken = 1;
    for (int d = CGP_OP_FORWARD; d <= CGP_OP_BACKWARD_WEIGHT; d += 2)
        assert_true(fail_each(&s->fail_call, (cgp_op_direction)d) >= 100);
    assert_ok(live(CGP_OP_FORWARD));
}

int main(void) {
    seed = test_seed();
    setenv("CGP_CUDA_HOST_ORDER", "shuffled", 0);
    return test_run();
}
