/* SPDX-License-Identifier: Apache-2.0 */
/* test_op_tiles.c -- compares GEMM in bf16, with AVX512_BF16 and with AMX, bit for bit with the
 * simple loops in tiles.h. The file also tests which of the two instruction sets a device uses.
 *
 *     a [m, k] ─► bf16 ─┐                   32 of k: even + odd, two sums of 16 products
 *     b [k, n] ─► bf16 ─┴─► sum of 32, of 32, ... ─► + bias ─► + previous value ─► c, f32 or bf16
 *
 * LINEAR consists of such GEMMs. Attention consists of such GEMMs and a softmax in f32. On a
 * processor without AVX512_BF16, these tests are skipped with a message, except the tests of
 * CGP_CPU_ISA. On a processor without AMX, the GEMM for AMX runs on fake tiles. */
#include "tiles.h"
#include "backend/cpu/operands.h"

static uint64_t seed;
static runner cpu, parallel; /* devices with one and with three threads */
/* Two devices. GEMMs of `by_vectors` use AVX512_BF16. GEMMs of `by_tiles` use AMX, or fake tiles on
 * a processor without AMX. */
static runner by_vectors, by_tiles;

static void need_tiles(void) {
    if (runner_has_tiles(&cpu)) return;
    print_message("skipped: this processor, or its system, has neither AVX512_BF16 nor AMX\n");
    skip();
}

/* --- random GEMMs --- */

/* Allocate `count` elements of either type, filled with NaNs. Elements between the rows of a matrix
 * stay NaN. */
static void *new_memory(cgp_dtype type, int64_t count) {
    void *memory = aligned_alloc(64, (size_t)(4 * count + 63) / 64 * 64);
    assert_non_null(memory);
    for (int64_t i = 0; i < count; i++) {
        if (type == CGP_BF16)
            ((uint16_t *)memory)[i] = 0x7FC0u;
        else
            ((float *)memory)[i] = NAN;
    }
    return memory;
}

static void put(cgp_dtype type, void *memory, int64_t at, float x) {
    if (type == CGP_BF16)
        ((uint16_t *)memory)[at] = cgp__bf16_from_float(x);
    else
        ((float *)memory)[at] = x;
}

/* The kind of numbers that draw_number() returns currently. */
static enum { USUAL, DOWN_TO_DENORMALS, OF_TINY_PRODUCTS } numbers;

static float draw_number(void) {
    const float x = random_float(&seed);
    if (numbers == USUAL) return x;
    const int down = numbers == OF_TINY_PRODUCTS ? 62 : (int)test_between(&seed, 0, 140);
    return ldexpf(x, -down);
}

/* Draw a matrix whose rows or columns are contiguous. The stride exceeds the length of a row (or
 * column) by up to 20 elements. The caller frees the matrix's `at`. */
static cgp__matrix draw_matrix(int64_t rows, int64_t columns) {
    const cgp_dtype type = test_random(&seed) & 1 ? CGP_BF16 : CGP_F32;
    const bool by_rows = test_random(&seed) & 1;
    const int64_t runs = by_rows ? rows : columns;
    const int64_t stride = (by_rows ? columns : rows) + test_between(&seed, 0, 20);
    void *memory = new_memory(type, runs * stride);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            put(type, memory, by_rows ? i * stride + j : j * stride + i, draw_number());
    return by_rows ? cgp__rows(type, memory, stride) : cgp__columns(type, memory, stride);
}

static void run_on(const runner *on, const cgp__gemm *p) {
    const int64_t bytes = cgp__gemm_workspace(p->m, p->n, p->k, p->type, true, on->threads);
    char *workspace = new_memory(CGP_F32, bytes / 4 + 16);
    cgp__gemm_run(on->device, on->threads == 1, p, workspace);
    for (int64_t i = 0; i < 16; i++) /* the GEMM writes nothing past the workspace */
        assert_true(isnan(((const float *)(const void *)(workspace + bytes / 4 * 4))[i]));
    free(workspace);
}

/* Compare c with the result of the plain loops. Elements between the rows of c must not change. */
static void check_result(const cgp__gemm *p, const void *before) {
    const cgp__matrix c = cgp__rows(p->type, p->c, p->stride);
    const cgp__matrix old = cgp__rows(p->type, before, p->stride);
    for (int64_t i = 0; i < p->m; i++)
        for (int64_t j = 0; j < p->stride; j++) {
            const float got = element(&c, i, j), was = element(&old, i, j);
            const float want = j < p->n ? expected(p, i, j, was) : was;
            if (memcmp(&got, &want, sizeof got) != 0)
                fail_msg("[%d, %d] of %dx%dx%d (a %s %s, b %s %s, c %s, add %d, bias %d) is "
                         "%.9g, expected %.9g",
                         (int)i, (int)j, (int)p->m, (int)p->n, (int)p->k, cgp_dtype_name(p->a.type),
                         p->a.column == 1 ? "rows" : "columns", cgp_dtype_name(p->b.type),
                         p->b.column == 1 ? "rows" : "columns", cgp_dtype_name(p->type), p->add,
                         p->bias != NULL, (double)got, (double)want);
        }
}

static void check_gemm(int64_t m, int64_t n, int64_t k) {
    float *bias = new_memory(CGP_F32, n);
    cgp__gemm p = {.m = m,
                   .n = n,
                   .k = k,
                   .a = draw_matrix(m, k),
                   .b = draw_matrix(k, n),
                   .type = test_random(&seed) & 1 ? CGP_BF16 : CGP_F32,
                   .bias = test_random(&seed) & 1 ? bias : NULL,
                   .stride = n + test_between(&seed, 0, 20),
                   .add = test_random(&seed) & 1,
                   .in_bf16 = true};
    fill_random(bias, n, &seed);
    void *before = new_memory(p.type, m * p.stride);
    for (int64_t i = 0; i < m * p.stride; i++)
        put(p.type, before, i, draw_number());
    const runner *const runners[] = {&cpu, &parallel, &by_vectors, &by_tiles};
    for (int i = 0; i < 4; i++) {
        p.c = new_memory(p.type, m * p.stride);
        memcpy(p.c, before, (size_t)(m * p.stride) * cgp_dtype_bytes(p.type));
        run_on(runners[i], &p);
        check_result(&p, before);
        free(p.c);
    }
    free(before);
    free(bias);
    free((void *)p.a.at);
    free((void *)p.b.at);
}

TEST_CASE(gemms_are_the_promised_sums) {
    need_tiles();
    static const int64_t sizes[] = {1, 2, 3, 15, 16, 17, 31, 32, 33, 47, 48, 63, 64, 65, 100};
    for (int i = 0; i < 300 / FEWER; i++)
        check_gemm(sizes[test_random(&seed) % 15], sizes[test_random(&seed) % 15],
                   sizes[test_random(&seed) % 15]);
}

/* Denormal operands, products and sums are treated as 0, except the final sum if c is f32. */
TEST_CASE(denormals_count_as_zero) {
    need_tiles();
    for (int i = 0; i < 60 / FEWER; i++) {
        numbers = i % 2 ? OF_TINY_PRODUCTS : DOWN_TO_DENORMALS;
        check_gemm(test_between(&seed, 1, 40), test_between(&seed, 1, 40),
                   test_between(&seed, 1, 80));
    }
    numbers = USUAL;
}

/* The GEMMs have several parts of k, within one micro-panel or in the whole GEMM, and several
 * blocks of rows or columns. They are large enough for several threads. */
TEST_CASE(large_gemms_are_too) {
    static const int64_t sizes[][3] = {
        {33, 40, 513}, {64, 33, 800},  {40, 70, 1024},  {17, 50, 1025},  {70, 65, 2100},
        {513, 40, 70}, {700, 33, 130}, {1030, 30, 64},  {530, 40, 1030}, {130, 500, 300},
        {1, 1100, 70}, {300, 270, 40}, {520, 1030, 65}, {290, 560, 500}};
    need_tiles();
    for (int i = 0; i < 14; i += FEWER)
        for (int repeat = 0; repeat < 4; repeat++)
            check_gemm(sizes[i][0], sizes[i][1], sizes[i][2]);
}

/* --- LINEAR --- */

/* Compute a linear layer. W is [in, out], or [out, in] if transposed; dW is then dy^T x instead of
 * x^T dy. */
static void plain_linear(operands *o) {
    const cgp_op_attributes *g = &o->c.attributes;
    const int64_t rows = o->c.n * g->rows, in = g->in, out = g->out;
    const float *weight = o->at[SLOT_PARAM];
    const cgp__matrix w =
        g->linear.transposed ? cgp__rows(CGP_F32, weight, out) : cgp__columns(CGP_F32, weight, in);
    const cgp__matrix transposed = {CGP_F32, weight, w.column, w.row};
    const float *x = o->at[SLOT_X], *dy = o->at[SLOT_DY];
    plainly(rows, out, in, cgp__rows(CGP_F32, x, in), w, o->at[SLOT_PARAM + 1], CGP_BF16,
            o->at[SLOT_Y], out, false);
    plainly(rows, in, out, cgp__rows(CGP_F32, dy, out), transposed, NULL, CGP_BF16, o->at[SLOT_DX],
            in, o->c.add & 1);
    const int64_t m = g->linear.transposed ? in : out, n = g->linear.transposed ? out : in;
    plainly(m, n, rows, cgp__columns(CGP_F32, g->linear.transposed ? x : dy, m),
            cgp__rows(CGP_F32, g->linear.transposed ? dy : x, n), NULL, CGP_F32, o->at[SLOT_DPARAM],
            n, o->c.accumulate);
}

TEST_CASE(linear_is_such_gemms) {
    need_tiles();
    for (int i = 0; i < 40; i += FEWER) {
        op_case c = draw_case(CGP_OP_LINEAR, 3, &seed);
        c.attributes =
            draw_attributes(c.op, test_between(&seed, 1, 70), test_between(&seed, 1, 100),
                            test_between(&seed, 1, 100), &seed);
        c.type = CGP_BF16;
        operands got, want;
        operands_create_bent(&got, &c, &seed);
        operands_copy(&want, &got);
        for (int d = CGP_OP_FORWARD; d < CGP_OP_DIRECTIONS; d++)
            op_run(&cpu, &got, (cgp_op_direction)d);
        plain_linear(&want);
        operands_drop(&got, SLOT_DPARAM + 1); /* dbias is not a GEMM */
        for (int slot = SLOT_Y; slot < SLOTS; slot++)
            assert_same_bits(&got, &want, slot, 0, "of GEMM");
        operands_destroy(&got);
        operands_destroy(&want);
    }
}

/* --- attention --- */

#define QUERIES 64 /* number of queries per tile */
#define MAX_ROWS 150

/* One attention head of one sample, with bf16 values stored as floats. Rows of q, k and v are 3 C
 * floats apart; rows of y and dy are C floats apart. */
typedef struct head {
    int64_t rows, depth, width; /* `width` is C */
    const float *q, *k, *v, *dy;
    float *y, *max, *log_sum, *dq, *dk, *dv;
} head;

/* Compute y, max and log_sum of one tile of queries. */
static void plain_forward(const head *h, cgp__cpu_scores *a) {
    const int64_t row = 3 * h->width, seen = a->width;
    plainly(a->rows, seen, h->depth, cgp__rows(CGP_F32, h->q + a->first * row, row),
            cgp__columns(CGP_F32, h->k, row), NULL, CGP_F32, a->s, a->stride, false);
    cpu.device->kernels->softmax_forward(a);
    plainly(a->rows, h->depth, seen, cgp__rows(CGP_F32, a->s, a->stride),
            cgp__rows(CGP_F32, h->v, row), NULL, CGP_BF16, h->y + a->first * h->width, h->width,
            false);
}

/* Compute dq of one tile of queries, and add the tile's terms to dk and dv in f32. For keys that no
 * earlier tile reads, set dk and dv instead. */
static void plain_backward(const head *h, cgp__cpu_scores *a, float *delta) {
    const int64_t row = 3 * h->width, seen = a->width, first = a->first;
    const cgp__matrix q = cgp__rows(CGP_F32, h->q + first * row, row);
    const cgp__matrix dy = cgp__rows(CGP_F32, h->dy + first * h->width, h->width);
    plainly(a->rows, seen, h->depth, q, cgp__columns(CGP_F32, h->k, row), NULL, CGP_F32, a->s,
            a->stride, false);
    plainly(a->rows, seen, h->depth, dy, cgp__columns(CGP_F32, h->v, row), NULL, CGP_F32, a->dp,
            a->stride, false);
    cpu.device->kernels->row_dots(delta, CGP_F32, dy.at, h->y + first * h->width, a->rows, h->depth,
                                  h->width);
    cpu.device->kernels->softmax_backward(a);
    for (int64_t begin = 0; begin < seen; begin = begin < first ? first : seen) {
        const int64_t keys = (begin < first ? first : seen) - begin;
        plainly(keys, h->depth, a->rows, cgp__columns(CGP_F32, a->s + begin, a->stride), dy, NULL,
                CGP_F32, h->dv + begin * row, row, begin < first);
        plainly(keys, h->depth, a->rows, cgp__columns(CGP_F32, a->dp + begin, a->stride), q, NULL,
                CGP_F32, h->dk + begin * row, row, begin < first);
    }
    plainly(a->rows, h->depth, seen, cgp__rows(CGP_F32, a->dp, a->stride),
            cgp__rows(CGP_F32, h->k, row), NULL, CGP_BF16, h->dq + first * row, row, false);
}

static void plain_head(const head *h, bool backward) {
    static _Alignas(64) float s[QUERIES * (MAX_ROWS + 32)], dp[QUERIES * (MAX_ROWS + 32)];
    float delta[QUERIES];
    for (int64_t first = 0; first < h->rows; first += QUERIES) {
        const int64_t left = h->rows - first, rows = left < QUERIES ? left : QUERIES;
        cgp__cpu_scores a = {.rows = rows,
                             .first = first,
                             .width = first + rows,
                             .stride = cgp__cpu_padded(h->rows) + 16,
                             .causal = true,
                             .scale = (float)(1.0 / sqrt((double)h->depth)),
                             .s = s,
                             .dp = dp,
                             .max = h->max + first,
                             .log_sum = h->log_sum + first,
                             .delta = delta};
        if (backward)
            plain_backward(h, &a, delta);
        else
            plain_forward(h, &a);
    }
    for (int64_t i = 0; backward && i < h->rows * h->depth; i++) {
        const int64_t at = i / h->depth * 3 * h->width + i % h->depth;
        h->dk[at] = rounded(h->dk[at]);
        h->dv[at] = rounded(h->dv[at]);
    }
}

static void plain_attention(operands *o, bool backward) {
    const cgp_op_attributes *g = &o->c.attributes;
    const int64_t depth = g->out / g->attention.heads;
    for (int64_t i = 0; i < o->c.n * g->attention.heads; i++) {
        const int64_t at = i / g->attention.heads * g->rows * g->out,
                      column = i % g->attention.heads * depth;
        const float *q = o->at[SLOT_X] + 3 * at + column;
        float *dq = o->at[SLOT_DX] + 3 * at + column;
        const head h = {.rows = g->rows,
                        .depth = depth,
                        .width = g->out,
                        .q = q,
                        .k = q + g->out,
                        .v = q + 2 * g->out,
                        .dy = o->at[SLOT_DY] + at + column,
                        .y = o->at[SLOT_Y] + at + column,
                        .max = o->at[SLOT_SAVED] + i * g->rows,
                        .log_sum = o->at[SLOT_SAVED + 1] + i * g->rows,
                        .dq = dq,
                        .dk = dq + g->out,
                        .dv = dq + 2 * g->out};
        plain_head(&h, backward);
    }
}

TEST_CASE(attention_is_such_gemms_and_a_softmax) {
    static const int64_t rows[] = {1, 5, 63, 64, 65, 100, 128, MAX_ROWS}, depths[] = {1, 8, 33, 64};
    need_tiles();
    for (int i = 0; i < 32; i += FEWER) {
        const op_case c = {.op = CGP_OP_ATTENTION,
                           .n = 2,
                           .attributes = attention_attributes(rows[i % 8], 2, depths[i / 8], 0.0),
                           .type = CGP_BF16};
        operands got, want;
        operands_create_bent(&got, &c, &seed);
        operands_copy(&want, &got);
        op_run(&cpu, &got, CGP_OP_FORWARD);
        plain_attention(&want, false);
        op_run(&cpu, &got, CGP_OP_BACKWARD_INPUT);
        plain_attention(&want, true);
        for (int slot = SLOT_Y; slot < SLOT_DPARAM; slot++)
            assert_same_bits(&got, &want, slot, 0, "of GEMM");
        operands_destroy(&got);
        operands_destroy(&want);
    }
}

/* --- the choice of tiles --- */

/* Open a cpu device with the environment variable CGP_CPU_ISA set to `isa`; return NULL after an
 * error. */
static cgp_device *device_with(const char *isa, cgp_status *status) {
    cgp_device *device = NULL;
    const cgp_device_options options = device_options(1);
    const char *was = getenv("CGP_CPU_ISA");
    char *kept = was ? strdup(was) : NULL;
    assert_int_equal(setenv("CGP_CPU_ISA", isa, 1), 0);
    *status = cgp__cpu_device_create(&device, &options);
    assert_int_equal(kept ? setenv("CGP_CPU_ISA", kept, 1) : unsetenv("CGP_CPU_ISA"), 0);
    free(kept);
    return device;
}

TEST_CASE(a_request_for_an_older_set_gets_no_tiles) {
    const char *const older[] = {"v1", "v3", "v4"};
    for (int i = 0; i < 3; i++) {
        cgp_status status;
        cgp_device *device = device_with(older[i], &status);
        if (i == 0 || status == CGP_OK) {
            assert_int_equal(status, CGP_OK);
            assert_string_equal(device->kernels->isa, older[i]);
            assert_null(cgp__cpu_tiles_of(device));
        } else {
            assert_int_equal(status, CGP_EDEVICE);
        }
        cgp__cpu_device_destroy(device);
    }
}

/* Check that opening a device with CGP_CPU_ISA set to `isa` gives a device that uses `tiles`, or
 * fails with `message`. */
static void check_request(const char *isa, const cgp__cpu_tiles *tiles, const char *message) {
    cgp_status status;
    cgp_device *device = device_with(isa, &status);
    if (status == CGP_OK) {
        assert_ptr_equal(cgp__cpu_tiles_of(device), tiles);
        assert_string_equal(device->kernels->isa, "v4");
    } else {
        assert_int_equal(status, CGP_EDEVICE);
        assert_message(message);
    }
    cgp__cpu_device_destroy(device);
}

TEST_CASE(a_request_for_bf16_is_met_or_says_what_is_missing) {
    cgp_status status;
    check_request("v4-bf16", &cgp__cpu_tiles_v4_bf16,
                  "CGP_CPU_ISA: v4-bf16 expects a processor with AVX512-BF16");
    check_request("amx", &cgp__cpu_tiles_amx,
                  "CGP_CPU_ISA: amx expects a processor with AMX-BF16 and AVX512-BF16");
    assert_null(device_with("v5", &status));
    assert_int_equal(status, CGP_EINVAL);
    assert_message("CGP_CPU_ISA: expects v1, v3, v4, v4-bf16 or amx, got \"v5\"");
}

/* GEMM in f32 is bit-identical on devices with and without AMX or AVX512_BF16. */
TEST_CASE(gemm_in_f32_does_not_depend_on_tiles) {
    need_tiles();
    cgp_status status;
    const op_case c = {
        .op = CGP_OP_LINEAR, .n = 1, .attributes = linear_attributes(70, 130, 90, true, true)};
    operands tiled, plain;
    runner without = {.backend = &cgp__backend_cpu, .threads = 1};
    without.device = device_with("v4", &status);
    assert_int_equal(status, CGP_OK);
    operands_create(&tiled, &c, &seed);
    operands_copy(&plain, &tiled);
    for (int d = CGP_OP_FORWARD; d < CGP_OP_DIRECTIONS; d++) {
        op_run(&cpu, &tiled, (cgp_op_direction)d);
        op_run(&without, &plain, (cgp_op_direction)d);
    }
    for (int slot = 0; slot < SLOTS; slot++)
        assert_same_bits(&tiled, &plain, slot, 0, "without tiles");
    operands_destroy(&tiled);
    operands_destroy(&plain);
    runner_close(&without);
}

int main(void) {
    seed = test_seed();
    cpu = runner_open(&cgp__backend_cpu, 1);
    parallel = runner_open(&cgp__backend_cpu, 3);
    (void)cgp__cpu_tiles_of(cpu.device); /* enable AMX, as creating a bf16 kernel does */
    (void)cgp__cpu_tiles_of(parallel.device);
    by_vectors = runner_open(&cgp__backend_cpu, 1);
    by_tiles = runner_open(&cgp__backend_cpu, 1);
    by_vectors.device->tiles = &cgp__cpu_tiles_v4_bf16;
    by_tiles.device->tiles =
        cpu.device->tiles == &cgp__cpu_tiles_amx ? &cgp__cpu_tiles_amx : &cgp__cpu_tiles_fake;
    const int failed = test_run();
    runner_close(&by_tiles);
    runner_close(&by_vectors);
    runner_close(&parallel);
    runner_close(&cpu);
    return failed;
}
