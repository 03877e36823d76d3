/* SPDX-License-Identifier: Apache-2.0 */
/* test_op_tiles_images.c -- CONV2D in bf16 with AVX512_BF16 and with AMX is bit-identical to these
 * GEMMs, computed by the rule in tiles.h:
 *
 *     y  = windows of x  W               k: rows of the window, pixels of a row, channels
 *     dx = windows of dy W               k: the pixel's taps, last first, in the same order
 *     dW = (windows of x)^T dy           k: pixels of one block
 *
 * The test is skipped on a processor without AVX512_BF16. */
#include "tiles.h"

static uint64_t seed;
static runner cpu, parallel, by_tiles; /* 1 thread, 3 threads, (fake) AMX */

/* Return the windows of x as a matrix [n * OH * OW, KH * KW * in]. */
static float *windows_of(const operands *o) {
    const cgp_op_attributes *g = &o->c.attributes;
    const int64_t k = g->in * g->windows.kernel_height * g->windows.kernel_width;
    float *windows = calloc((size_t)(o->c.n * g->rows * k), sizeof *windows), *to = windows;
    assert_non_null(windows);
    for (int64_t p = 0; p < o->c.n * g->rows; p++) {
        const int64_t n = p / g->rows, i = p % g->rows / g->windows.out_width,
                      j = p % g->windows.out_width;
        for (int64_t u = 0; u < g->windows.kernel_height; u++)
            for (int64_t v = 0; v < g->windows.kernel_width; v++, to += g->in) {
                const int64_t y = i * g->windows.stride_height + u - g->windows.top;
                const int64_t x = j * g->windows.stride_width + v - g->windows.left;
                if (y < 0 || y >= g->windows.height || x < 0 || x >= g->windows.width) continue;
                memcpy(to,
                       o->at[SLOT_X] + ((n * g->windows.height + y) * g->windows.width + x) * g->in,
                       (size_t)g->in * sizeof *to);
            }
    }
    return windows;
}

/* Return the number of window taps that read pixel `i` along one side of the image; `last` gets the
 * last tap. */
static int64_t taps_of(int64_t i, int64_t stride, int64_t kernel, int64_t padding, int64_t *last) {
    const int64_t first = ((i + padding) % stride + stride) % stride;
    const int64_t taps = kernel > first ? (kernel - first + stride - 1) / stride : 0;
    *last = first + (taps - 1) * stride;
    return taps;
}

/* Get the factors of tap (u, v) of a pixel. `a` gets the row of dy, or zeros if no window reads the
 * pixel through this tap. `b` gets the tap's weight as [out, in]. */
static void plain_tap(const operands *o, const int64_t pixel[3], int64_t u, int64_t v, float *a,
                      float *b) {
    const cgp_op_attributes *g = &o->c.attributes;
    const int64_t y = pixel[1] + g->windows.top - u, x = pixel[2] + g->windows.left - v;
    const int64_t p = y / g->windows.stride_height, q = x / g->windows.stride_width;
    const bool exists = y >= 0 && p < g->windows.out_height && x >= 0 && q < g->windows.out_width;
    const float *weight = o->at[SLOT_PARAM] + (u * g->windows.kernel_width + v) * g->in * g->out;
    const int64_t row = (pixel[0] * g->windows.out_height + p) * g->windows.out_width + q;
    for (int64_t d = 0; d < g->out; d++) {
        a[d] = exists ? o->at[SLOT_DY][row * g->out + d] : 0.0f;
        for (int64_t c = 0; c < g->in; c++)
            b[d * g->in + c] = weight[c * g->out + d];
    }
}

/* Compute one pixel of dx. `a` and `b` are scratch memory. */
static void plain_pixel(operands *o, const int64_t pixel[3], float *a, float *b) {
    const cgp_op_attributes *g = &o->c.attributes;
    int64_t u, v, k = 0;
    const int64_t rows =
        taps_of(pixel[1], g->windows.stride_height, g->windows.kernel_height, g->windows.top, &u);
    const int64_t columns =
        taps_of(pixel[2], g->windows.stride_width, g->windows.kernel_width, g->windows.left, &v);
    float *dx = o->at[SLOT_DX] +
                ((pixel[0] * g->windows.height + pixel[1]) * g->windows.width + pixel[2]) * g->in;
    for (int64_t s = 0; s < rows; s++)
        for (int64_t t = 0; t < columns; t++, k += g->out)
            plain_tap(o, pixel, u - s * g->windows.stride_height, v - t * g->windows.stride_width,
                      a + k, b + k * g->in);
    if (k > 0)
        plainly(1, g->in, k, cgp__rows(CGP_F32, a, k), cgp__rows(CGP_F32, b, g->in), NULL, CGP_BF16,
                dx, g->in, o->c.add & 1);
    else if (!(o->c.add & 1))
        memset(dx, 0, (size_t)g->in * sizeof *dx);
}

static void plain_convolution(operands *o) {
    const cgp_op_attributes *g = &o->c.attributes;
    const int64_t pixels = o->c.n * g->rows;
    const int64_t taps = (int64_t)g->windows.kernel_height * g->windows.kernel_width,
                  k = taps * g->in;
    float *windows = windows_of(o);
    float *a = malloc((size_t)(taps * g->out) * sizeof *a);
    float *b = malloc((size_t)(taps * g->out * g->in) * sizeof *b);
    assert_true(a && b);
    plainly(pixels, g->out, k, cgp__rows(CGP_F32, windows, k),
            cgp__rows(CGP_F32, o->at[SLOT_PARAM], g->out), o->at[SLOT_PARAM + 1], CGP_BF16,
            o->at[SLOT_Y], g->out, false);
    plainly(k, g->out, pixels, cgp__columns(CGP_F32, windows, k),
            cgp__rows(CGP_F32, o->at[SLOT_DY], g->out), NULL, CGP_F32, o->at[SLOT_DPARAM], g->out,
            o->c.accumulate);
    for (int64_t n = 0; n < o->c.n; n++)
        for (int64_t i = 0; i < g->windows.height; i++)
            for (int64_t j = 0; j < g->windows.width; j++)
                plain_pixel(o, (const int64_t[]){n, i, j}, a, b);
    free(b);
    free(a);
    free(windows);
}

static void check_convolution(const op_case *c) {
    const runner *const runners[] = {&cpu, &parallel, &by_tiles};
    operands drawn, want;
    operands_create_bent(&drawn, c, &seed);
    operands_copy(&want, &drawn);
    plain_convolution(&want);
    for (int i = 0; i < 3; i++) {
        operands got;
        operands_copy(&got, &drawn);
        for (int d = CGP_OP_FORWARD; d < CGP_OP_DIRECTIONS; d++)
            op_run(runners[i], &got, (cgp_op_direction)d);
        operands_drop(&got, SLOT_DPARAM + 1); /* dbias is not a GEMM */
        for (int slot = SLOT_Y; slot < SLOTS; slot++)
            assert_same_bits(&got, &want, slot, 0, "of GEMM");
        operands_destroy(&got);
    }
    operands_destroy(&want);
    operands_destroy(&drawn);
}

/* Numbers of channels are near 32 and near divisors of 32. Some steps of k therefore cross the end
 * of a contiguous run of channels. */
TEST_CASE(convolutions_are_the_gemms_of_their_windows) {
    static const int64_t channels[] = {1, 3, 8, 16, 32, 33, 64, 70, 130};
    if (!runner_has_tiles(&cpu)) skip();
    for (int i = 0; i < 60; i += FEWER) {
        op_case c = draw_case(CGP_OP_CONV2D, 2, &seed);
        c.type = CGP_BF16;
        do
            c.attributes =
                draw_attributes(c.op, test_between(&seed, 1, 60), channels[test_random(&seed) % 9],
                                channels[test_random(&seed) % 9], &seed);
        while (c.n * c.attributes.rows > 512);
        check_convolution(&c);
    }
}

int main(void) {
    seed = test_seed();
    cpu = runner_open(&cgp__backend_cpu, 1);
    parallel = runner_open(&cgp__backend_cpu, 3);
    by_tiles = runner_open(&cgp__backend_cpu, 1);
    by_tiles.device->tiles = cgp__cpu_tiles_of(cpu.device) == &cgp__cpu_tiles_amx
                                 ? &cgp__cpu_tiles_amx
                                 : &cgp__cpu_tiles_fake;
    const int failed = test_run();
    runner_close(&by_tiles);
    runner_close(&parallel);
    runner_close(&cpu);
    return failed;
}
