/* SPDX-License-Identifier: Apache-2.0 */
/* conv2d_winograd_weight.c -- the weight's gradient of a Winograd convolution
 * (conv2d_winograd.c). */
#include "backend/cpu/gemm/gemm.h"
#include "backend/cpu/ops/winograd.h"

/* State of the computation of a weight gradient. dU is computed in parts, each of some rows
 * (channels of x). With many tiles, the blocks of tiles are processed one after the other for each
 * part of the rows. With few tiles, V and Z are computed once, and then panels of rows are
 * processed one after the other. */
typedef struct weight_gradient {
    cgp_device *device;
    cgp__winograd_image x, dy;
    cgp__winograd_tiling tiles;
    int64_t in, out;
    float *dw;
    bool add;
    /* First and last run of the block, and the block's number of tiles. */
    int64_t first, last, count;
    float *du, *v, *z;
    char *scratch;
} weight_gradient;

static int64_t gemm_bytes(const cgp__winograd_tiling *t, int64_t rows, int64_t out) {
    return cgp__gemm_workspace(rows, out, cgp__winograd_block_tiles(t), CGP_F32, false, 1);
}

/* Set du to rows row .. row + rows - 1 of V[i]^T Z[i], or add these rows to du. */
static void multiply(const weight_gradient *p, int64_t i, int64_t row, int64_t rows, float *du,
                     void *scratch) {
    const int64_t width = p->x.count;
    const float *v = p->v + i * cgp__winograd_matrix(p->count, width) + row;
    const float *z = p->z + i * cgp__winograd_matrix(p->count, p->out);
    cgp__gemm_run(p->device, true,
                  &(cgp__gemm){.m = rows,
                               .n = p->out,
                               .k = p->count,
                               .a = cgp__columns(CGP_F32, v, width),
                               .b = cgp__rows(CGP_F32, z, p->out),
                               .type = CGP_F32,
                               .c = du,
                               .stride = p->out,
                               .add = p->first > 0},
                  scratch);
}

/* Transform items begin .. end - 1. An item is a run of the block. */
static void runs_range(const void *work, int64_t begin, int64_t end, int thread) {
    const weight_gradient *p = work;
    const cgp__cpu_kernels *kernels = p->device->kernels;
    int64_t at = cgp__winograd_tiles_between(&p->tiles, p->first, p->first + begin);
    (void)thread;
    for (int64_t i = p->first + begin; i < p->first + end; i++) {
        const cgp__winograd_run r = cgp__winograd_run_at(&p->tiles, i);
        const cgp__winograd_row x = cgp__winograd_rows(&p->x, &r, CGP__WINOGRAD_SIDE),
                                dy = cgp__winograd_rows(&p->dy, &r, 2);
        kernels->winograd_input(p->v + at * p->x.count, cgp__winograd_matrix(p->count, p->x.count),
                                &x);
        kernels->winograd_gradient(p->z + at * p->out, cgp__winograd_matrix(p->count, p->out), &dy);
        at += r.tiles;
    }
}

/* --- blocks of tiles --- */

/* Multiply items begin .. end - 1. An item is one of the 16 matrices. */
static void matrices_range(const void *work, int64_t begin, int64_t end, int thread) {
    const weight_gradient *p = work;
    const int64_t rows = p->x.count;
    char *scratch = p->scratch + thread * gemm_bytes(&p->tiles, rows, p->out);
    for (int64_t i = begin; i < end; i++)
        multiply(p, i, 0, rows, p->du + i * cgp__winograd_matrix(rows, p->out), scratch);
}

/* Transform items begin .. end - 1 back to dw. An item is 16 elements of each dU[i]. */
static void back_range(const void *work, int64_t begin, int64_t end, int thread) {
    const weight_gradient *p = work;
    (void)thread;
    p->device->kernels->winograd_weights_back(p->dw, p->in * p->out, p->du,
                                              cgp__winograd_matrix(p->x.count, p->out), begin * 16,
                                              cgp__min(end * 16, p->x.count * p->out), p->add);
}

static void run_part(weight_gradient *p) {
    const int64_t runs = cgp__winograd_runs_at_once(&p->tiles), all = cgp__winograd_runs(&p->tiles),
                  rows = p->x.count;
    const int64_t vectors = cgp__ceil_div(rows * p->out, 16);
    for (p->first = 0; p->first < all; p->first = p->last) {
        p->last = cgp__min(p->first + runs, all);
        p->count = cgp__winograd_tiles_between(&p->tiles, p->first, p->last);
        const bool little =
            p->count * CGP__WINOGRAD_ELEMENTS * rows * p->out / 16 < CGP__GEMM_MIN_WORK;
        const int64_t n = p->last - p->first, some = cgp__ceil_div(n, 2 * p->device->threads);
        cgp__cpu_parallel_for(p->device, n, little ? n : some, runs_range, p);
        cgp__cpu_parallel_for(p->device, CGP__WINOGRAD_ELEMENTS,
                              little ? CGP__WINOGRAD_ELEMENTS : 1, matrices_range, p);
    }
    cgp__cpu_parallel_for(p->device, vectors, cgp__cpu_block_rows(16 * 25), back_range, p);
}

static void run_by_blocks(weight_gradient *p, char *workspace) {
    const int64_t part = cgp__min(cgp__winograd_part(p->in, p->out), p->in);
    const cgp__winograd_image x = p->x;
    float *dw = p->dw;
    char *after = workspace + cgp__winograd_matrices_bytes(cgp__winograd_matrix(part, p->out));
    p->du = (float *)(void *)workspace;
    p->v = (float *)(void *)after;
    p->z = (float *)(void *)(after + cgp__winograd_tiles_bytes(&p->tiles, part));
    p->scratch = after + cgp__winograd_thread_bytes(&p->tiles, part, p->out);
    for (int64_t row = 0; row < p->in; row += part) {
        p->x.at = cgp__cpu_at(x.type, x.at, row);
        p->x.count = cgp__min(part, p->in - row);
        p->dw = dw + row * p->out;
        run_part(p);
    }
}

static int64_t blocks_bytes(const cgp__winograd_tiling *t, int64_t in, int64_t out, int threads) {
    const int64_t part = cgp__min(cgp__winograd_part(in, out), in);
    return cgp__winograd_matrices_bytes(cgp__winograd_matrix(part, out)) +
           cgp__winograd_thread_bytes(t, part, out) + threads * gemm_bytes(t, part, out);
}

/* --- panels of rows --- */

static int64_t panel_bytes(const cgp__winograd_tiling *t, int64_t out) {
    return cgp__winograd_matrices_bytes(cgp__winograd_matrix(CGP__WINOGRAD_PANEL, out)) +
           gemm_bytes(t, CGP__WINOGRAD_PANEL, out);
}

/* Compute items begin .. end - 1. An item is a panel of rows. */
static void panels_range(const void *work, int64_t begin, int64_t end, int thread) {
    const weight_gradient *p = work;
    char *scratch = p->scratch + thread * panel_bytes(&p->tiles, p->out);
    for (int64_t panel = begin; panel < end; panel++) {
        const int64_t row = panel * CGP__WINOGRAD_PANEL,
                      rows = cgp__min(CGP__WINOGRAD_PANEL, p->in - row);
        const int64_t matrix = cgp__winograd_matrix(rows, p->out);
        float *du = (float *)(void *)scratch;
        for (int64_t i = 0; i < CGP__WINOGRAD_ELEMENTS; i++)
            multiply(p, i, row, rows, du + i * matrix,
                     scratch + cgp__winograd_matrices_bytes(
                                   cgp__winograd_matrix(CGP__WINOGRAD_PANEL, p->out)));
        p->device->kernels->winograd_weights_back(p->dw + row * p->out, p->in * p->out, du, matrix,
                                                  0, rows * p->out, p->add);
    }
}

static void run_by_panels(weight_gradient *p, char *workspace) {
    const int64_t runs = cgp__winograd_runs(&p->tiles),
                  panels = cgp__ceil_div(p->in, CGP__WINOGRAD_PANEL);
    p->x.count = p->in;
    p->count = cgp__winograd_tiles_between(&p->tiles, 0, runs);
    p->v = (float *)(void *)workspace;
    p->z = (float *)(void *)(workspace + cgp__winograd_tiles_bytes(&p->tiles, p->in));
    p->scratch = workspace + cgp__winograd_thread_bytes(&p->tiles, p->in, p->out);
    const bool little =
        p->count * CGP__WINOGRAD_ELEMENTS * p->in * p->out / 16 < CGP__GEMM_MIN_WORK;
    cgp__cpu_parallel_for(p->device, runs, little ? runs : 1, runs_range, p);
    cgp__cpu_parallel_for(p->device, panels, little ? panels : 1, panels_range, p);
}

static int64_t panels_bytes(const cgp__winograd_tiling *t, int64_t in, int64_t out, int threads) {
    return cgp__winograd_thread_bytes(t, in, out) + threads * panel_bytes(t, out);
}

/* --- either --- */

void cgp__winograd_weight(cgp_device *device, const cgp_kernel_spec *spec, const void *x,
                          const void *dy, float *dw, bool add, void *workspace) {
    const cgp_op_windows *s = cgp_spec_windows(spec);
    weight_gradient p = {.device = device,
                         .x = {spec->type, x, s->height, s->width, s->in, 0, s->top, s->left},
                         .dy = {spec->type, dy, s->out_height, s->out_width, s->out, s->out, 0, 0},
                         .tiles = cgp__winograd_tiling_of(spec->n, s->out_height, s->out_width),
                         .in = s->in,
                         .out = s->out,
                         .dw = dw,
                         .add = add};
    if (cgp__winograd_by_panels(&p.tiles, s->in, device->threads))
        run_by_panels(&p, workspace);
    else
        run_by_blocks(&p, workspace);
}

int64_t cgp__winograd_weight_bytes(const cgp_kernel_spec *spec, int threads) {
    const cgp_op_windows *s = cgp_spec_windows(spec);
    const cgp__winograd_tiling t = cgp__winograd_tiling_of(spec->n, s->out_height, s->out_width);
    const cgp__winograd_tiling fewer = cgp__winograd_fewer(&t);
    const int64_t blocks = blocks_bytes(&t, s->in, s->out, threads);
    if (!cgp__winograd_by_panels(&fewer, s->in, threads)) return blocks;
    const int64_t panels = panels_bytes(&fewer, s->in, s->out, threads);
    return fewer.n == t.n ? panels : cgp__max(blocks, panels);
}
