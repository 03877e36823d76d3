/* SPDX-License-Identifier: Apache-2.0 */
/* tensor_core.cu -- mma.m16n8k16 and ldmatrix for `cuda-host`: both are collective operations of
 * the 32 lanes of a warp. The layout of fragments is that of the PTX ISA ("Matrix Fragments for
 * mma.m16n8k16", "ldmatrix").
 *
 * The lanes exchange their registers. Then the first lane that runs computes the results of all
 * lanes. */
#include "internal.h"
#include "tensor_core_model.h"

enum { WARPS = CGP__SHIM_MAX_BLOCK / CGP__SHIM_WARP, M = 16, N = 8, K = CGP__TENSOR_K };

/* Registers that a lane exchanges, with a size of CGP__SHIM_WORDS words. */
struct registers {
    uint32_t a[4], b[2];
    float c[4];
};
static_assert(sizeof(registers) == sizeof(cgp__shim_words), "all registers are exchanged");

/* The latest results of a warp. */
struct products {
    uint64_t number;
    float d[CGP__SHIM_WARP][4];
};

/* Decode row `row` of a, or column `row` of b. Four lanes hold the row: each lane has two of
 * elements 0 to 7 in one register, and two of elements 8 to 15 in another register. */
static void decode(cgp__tensor_factors *to, const registers *lanes, int row,
                   const uint32_t *low, const uint32_t *high) {
    uint16_t elements[K];
    const ptrdiff_t step = sizeof *lanes / sizeof *low;
    for (int i = 0; i < 4; i++) {
        memcpy(elements + 2 * i, low + (4 * row + i) * step, sizeof *low);
        memcpy(elements + 8 + 2 * i, high + (4 * row + i) * step, sizeof *high);
    }
    cgp__tensor_decode(to, elements);
}

static void multiply(float (*d)[4], const registers *lanes) {
    const cgp__tensor_core core = cgp__shim_get_settings()->tensor_core;
    cgp__tensor_factors rows[M], columns[N];
    for (int i = 0; i < N; i++) {
        decode(&rows[i], lanes, i, &lanes->a[0], &lanes->a[2]);
        decode(&rows[i + N], lanes, i, &lanes->a[1], &lanes->a[3]);
        decode(&columns[i], lanes, i, &lanes->b[0], &lanes->b[1]);
    }
    for (int lane = 0; lane < CGP__SHIM_WARP; lane++)
        for (int i = 0; i < 4; i++)
            d[lane][i] = cgp__tensor_sum(&core, lanes[lane].c[i], &rows[lane / 4 + i / 2 * N],
                                         &columns[lane % 4 * 2 + i % 2]);
}

void cgp__shim_mma(float d[4], const uint32_t a[4], const uint32_t b[2]) {
    static thread_local products last[WARPS];
    registers own, all[CGP__SHIM_WARP];
    cgp__shim_words words;
    memcpy(own.a, a, sizeof own.a);
    memcpy(own.b, b, sizeof own.b);
    memcpy(own.c, d, sizeof own.c);
    memcpy(words, &own, sizeof words);
    const cgp__shim_exchanged exchanged = cgp__shim_exchange(words);
    products *p = &last[exchanged.warp];
    if (p->number != exchanged.number) {
        memcpy(all, exchanged.of_lane, sizeof all);
        multiply(p->d, all);
        p->number = exchanged.number;
    }
    memcpy(d, p->d[exchanged.lane], sizeof p->d[0]);
}

void cgp__shim_ldmatrix(uint32_t to[4], const void *at, bool transposed) {
    const cgp__shim_words words = {(uint64_t)(uintptr_t)at};
    cgp__shim_check_shared(at, 16, "ldmatrix");
    const cgp__shim_exchanged exchanged = cgp__shim_exchange(words);
    const int lane = exchanged.lane;
    for (int matrix = 0; matrix < 4; matrix++) {
        uint16_t pair[2];
        for (int i = 0; i < 2; i++) {
            const int row = transposed ? lane % 4 * 2 + i : lane / 4;
            const int column = transposed ? lane / 4 : lane % 4 * 2 + i;
            const uint64_t address = exchanged.of_lane[8 * matrix + row][0];
            pair[i] = reinterpret_cast<const uint16_t *>((uintptr_t)address)[column];
        }
        memcpy(&to[matrix], pair, sizeof pair);
    }
}
