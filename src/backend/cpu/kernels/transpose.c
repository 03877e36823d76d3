/* SPDX-License-Identifier: Apache-2.0 */
/* transpose.c -- sets `to` [columns, rows] to the transpose of `from` [rows, columns], or adds that
 * transpose to `to`, in squares of LANES x LANES. Rows are read and written as vectors; a square is
 * transposed in the L1 cache. */
#include "backend/cpu/kernels/vec.h"

INLINE void turn_square(cgp_dtype type, void *to, int64_t to_stride, const void *from,
                        int64_t from_stride, int64_t rows, int64_t columns, bool add) {
    float square[LANES][LANES];
    for (int64_t i = 0; i < rows; i++) {
        const int64_t at = i * from_stride;
        store(square[i],
              columns == LANES ? load_as(type, from, at) : load_part_as(type, from, at, columns));
    }
    for (int64_t j = 0; j < columns; j++) {
        float line[LANES];
        for (int64_t i = 0; i < rows; i++)
            line[i] = square[i][j];
        const vec x = rows == LANES ? load(line) : load_part(line, rows);
        const int64_t at = j * to_stride;
        if (rows == LANES)
            store_as(type, to, at, add ? load_as(type, to, at) + x : x);
        else
            store_part_as(type, to, at, add ? load_part_as(type, to, at, rows) + x : x, rows);
    }
}

INLINE void transpose(cgp_dtype type, void *to, int64_t to_stride, const void *from,
                      int64_t from_stride, int64_t rows, int64_t columns, bool add) {
    for (int64_t j = 0; j < columns; j += LANES) {
        const int64_t across = cgp__min(columns - j, LANES);
        for (int64_t i = 0; i < rows; i += LANES)
            turn_square(type, cgp__cpu_at(type, to, j * to_stride + i), to_stride,
                        cgp__cpu_at(type, from, i * from_stride + j), from_stride,
                        cgp__min(rows - i, LANES), across, add);
    }
}

TYPED(transpose,
      (void *to, int64_t to_stride, const void *from, int64_t from_stride, int64_t rows,
       int64_t columns, bool add),
      to, to_stride, from, from_stride, rows, columns, add)

void CGP__CPU_NAME(transpose)(cgp_dtype type, void *to, int64_t to_stride, const void *from,
                              int64_t from_stride, int64_t rows, int64_t columns, bool add) {
    CALL_TYPED(type, transpose, to, to_stride, from, from_stride, rows, columns, add);
}
