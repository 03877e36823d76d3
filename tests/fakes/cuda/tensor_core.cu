/* SPDX-License-Identifier: Apache-2.0 */
/* tensor_core.cu -- mma.m16n8k16 and ldmatrix for `cuda-host`: collectives of the 32 lanes of a
 * warp. Fragments are those of the PTX ISA ("Matrix Fragments for mma.m16n8k16", "ldmatrix"). */
#include "internal.h"
#include "tensor_core_model.h"

/* Copy row `row` of a [16, 16], or column `row` of b, from the registers of its four lanes. The
 * register of elements 0 to 7 is the first of `low`; that of elements 8 to 15 is in `high`. */
static void gather(cgp__tensor_factors *to, int exchange, int row, int low, int high) {
    uint16_t elements[CGP__TENSOR_K];
    for (int i = 0; i < 4; i++) {
        uint32_t registers[2 * CGP__SHIM_WORDS];
        memcpy(registers, cgp__shim_words_of(exchange, 4 * row + i), sizeof registers);
        memcpy(elements + 2 * i, registers + low, 4);
        memcpy(elements + 8 + 2 * i, registers + high, 4);
    }
    cgp__tensor_decode(to, elements);
}

void cgp__shim_mma(float d[4], const uint32_t a[4], const uint32_t b[2]) {
    const cgp__tensor_core core = cgp__shim_get_settings()->tensor_core;
    uint32_t registers[2 * CGP__SHIM_WORDS] = {a[0], a[1], a[2], a[3], b[0], b[1]};
    uint64_t words[CGP__SHIM_WORDS];
    cgp__tensor_factors row, upper, lower, columns[2];
    memcpy(words, registers, sizeof words);
    const int exchange = cgp__shim_exchange(words);
    const int lane = (int)cgp__shim_lane();
    gather(&upper, exchange, lane / 4, 0, 2);
    gather(&lower, exchange, lane / 4, 1, 3);
    for (int i = 0; i < 2; i++)
        gather(&columns[i], exchange, lane % 4 * 2 + i, 4, 5);
    for (int i = 0; i < 4; i++) {
        row = i < 2 ? upper : lower;
        d[i] = cgp__tensor_sum(&core, d[i], &row, &columns[i % 2]);
    }
}

void cgp__shim_ldmatrix(uint32_t to[4], const void *at, bool transposed) {
    const uint64_t words[CGP__SHIM_WORDS] = {(uint64_t)(uintptr_t)at};
    cgp__shim_check_shared(at, 16, "ldmatrix");
    const int exchange = cgp__shim_exchange(words);
    const int lane = (int)cgp__shim_lane();
    for (int matrix = 0; matrix < 4; matrix++) {
        uint16_t pair[2];
        for (int i = 0; i < 2; i++) {
            const int row = transposed ? lane % 4 * 2 + i : lane / 4;
            const int column = transposed ? lane / 4 : lane % 4 * 2 + i;
            const uint64_t *address = cgp__shim_words_of(exchange, 8 * matrix + row);
            pair[i] = reinterpret_cast<const uint16_t *>((uintptr_t)address[0])[column];
        }
        memcpy(&to[matrix], pair, sizeof pair);
    }
}
