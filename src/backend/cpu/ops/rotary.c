/* SPDX-License-Identifier: Apache-2.0 */
/* rotary.c -- ROTARY: rotary position embedding (RoPE, Su et al. 2021, arXiv:2104.09864) of rows of
 * heads. Threads take positions. The cosines and sines of a position serve the row at this position
 * in all samples, unless each sample has its own positions. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/operands.h"
#include "backend/rotary.h"

typedef struct rotary {
    cgp__cpu_call call;
    /* [n, R] positions; NULL: all samples have the same positions. */
    const int32_t *positions;
    void *to;
    const void *from;
    /* Sign of the angles: 1 in forward, -1 in backward. */
    float sign;
    bool add;
    float frequencies[CGP__ROTARY_PAIRS];
} rotary;

static void rotate_row(const rotary *r, cgp__cpu_rotation *row, int64_t sample, int64_t t) {
    const cgp_kernel_spec *spec = &r->call.kernel->spec;
    const int64_t at = (sample * spec->attributes.rows + t) * spec->attributes.out;
    row->from = cgp__cpu_at(spec->type, r->from, at);
    row->to = cgp__cpu_at(spec->type, r->to, at);
    r->call.kernel->device->kernels->rotary(row);
}

/* Run items begin .. end - 1. An item is a row of every sample or, if samples have their own
 * positions, a row of one sample. */
static void rotary_range(const void *work, int64_t begin, int64_t end, int thread) {
    const rotary *r = work;
    const cgp_kernel_spec *spec = &r->call.kernel->spec;
    const cgp__cpu_kernels *kernels = r->call.kernel->device->kernels;
    const cgp_op_rotary *g = cgp_spec_rotary(spec);
    /* If pairs are interleaved, reads may go one vector past the end, so there are 16 extra
     * floats. */
    _Alignas(64) float cosines[CGP__ROTARY_PAIRS + 16], sines[CGP__ROTARY_PAIRS + 16];
    cgp__cpu_rotation row = {.type = spec->type,
                             .heads = g->heads,
                             .width = g->out / g->heads,
                             .rotated = g->rotated,
                             .interleaved = g->interleaved,
                             .cos = cosines,
                             .sin = sines,
                             .add = r->add};
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        const int64_t first = r->positions ? i / g->rows : 0, t = i % g->rows;
        kernels->rotary_angles(cosines, sines, r->frequencies, g->rotated / 2,
                               r->sign * cgp__rotary_position(g, r->positions, first, t));
        for (int64_t sample = first; sample < (r->positions ? first + 1 : spec->n); sample++)
            rotate_row(r, &row, sample, t);
    }
}

static void run(const cgp_kernel *kernel, rotary *work) {
    const cgp_op_rotary *g = cgp_spec_rotary(&kernel->spec);
    cgp__rotary_frequencies(g, work->frequencies);
    const int64_t n = kernel->spec.n, samples = work->positions ? n : 1;
    cgp__cpu_parallel_for(kernel->device, samples * g->rows,
                          cgp__cpu_block_rows(n / samples * g->out + 8 * g->rotated), rotary_range,
                          work);
}

static cgp_status rotary_forward(const cgp_kernel *kernel, const cgp_kernel_args *args) {
    rotary work = {.call = {kernel, args},
                   .positions = args->x[1],
                   .to = args->y,
                   .from = args->x[0],
                   .sign = 1.0f};
    run(kernel, &work);
    return CGP_OK;
}

static cgp_status rotary_input(const cgp_kernel *kernel, const cgp_kernel_args *args) {
    rotary work = {.call = {kernel, args},
                   .positions = args->x[1],
                   .to = args->dx[0],
                   .from = args->dy,
                   .sign = -1.0f,
                   .add = cgp__cpu_adds(kernel, 0)};
    if (args->dx[0]) run(kernel, &work);
    return CGP_OK;
}

const cgp__cpu_op cgp__cpu_rotary[CGP_OP_DIRECTIONS] = {
    [CGP_OP_FORWARD] = {rotary_forward, NULL},
    [CGP_OP_BACKWARD_INPUT] = {rotary_input, NULL},
};
