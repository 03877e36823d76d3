/* SPDX-License-Identifier: Apache-2.0 */
/* rows.h -- computes the column sums of a block of rows. */
#ifndef CGP_SRC_CPU_ROWS_H
#define CGP_SRC_CPU_ROWS_H

#include "backend/cpu/kernels/vec.h"

/* Add to partial[c] the sum of x[row, c] over the rows, for all c below the padded width. Adding
 * four rows at a time saves loads and stores. */
INLINE void add_block(cgp_dtype type, float *partial, const void *x, int64_t rows, int64_t width,
                      int64_t stride) {
    int64_t row = 0;
    for (; row + 4 <= rows; row += 4) {
        const void *r = cgp__cpu_at(type, x, row * stride);
        int64_t c = 0;
        for (; c + LANES <= width; c += LANES) {
            vec sum = load(partial + c) + load_as(type, r, c);
            sum = sum + load_as(type, r, c + stride);
            sum = sum + load_as(type, r, c + 2 * stride);
            store(partial + c, sum + load_as(type, r, c + 3 * stride));
        }
        for (int k = 0; c < width && k < 4; k++)
            store(partial + c,
                  load(partial + c) + load_part_as(type, r, c + k * stride, width - c));
    }
    for (; row < rows; row++) {
        const void *r = cgp__cpu_at(type, x, row * stride);
        int64_t c = 0;
        for (; c + LANES <= width; c += LANES)
            store(partial + c, load(partial + c) + load_as(type, r, c));
        if (c < width) store(partial + c, load(partial + c) + load_part_as(type, r, c, width - c));
    }
}

#endif
