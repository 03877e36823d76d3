/* SPDX-License-Identifier: Apache-2.0 */
/* lines.h -- memory called ahead of its use, a line at a time, between steps of arithmetic. */
#ifndef CGP_SRC_CPU_LINES_H
#define CGP_SRC_CPU_LINES_H

#include "backend/cpu/kernels/vec.h"

#define LINE 64 /* bytes in a cache line */

/* Lines of memory to be called, `each` at a time, in runs. */
typedef struct lines {
    const char *at, *end; /* of the run */
    int64_t count, each;
    int64_t gap, stride; /* bytes from the end of a run to the next one, from end to end */
} lines;

INLINE void call_lines(lines *l, int write) {
    const char *at = l->at, *end = l->end;
    int64_t n = l->each < l->count ? l->each : l->count;
    l->count -= n;
    for (; n > 0; n--) {
        if (write)
            __builtin_prefetch(at, 1, 3);
        else
            __builtin_prefetch(at, 0, 2);
        at += LINE;
        if (at < end) continue;
        at = end + l->gap;
        end += l->stride;
    }
    l->at = at;
    l->end = end;
}

INLINE int64_t bytes_of(cgp_dtype type, int64_t n) {
    return type == CGP_BF16 ? 2 * n : 4 * n;
}

/* All lines of `runs` runs of `length` bytes that begin `stride` bytes apart, in `calls` calls. */
INLINE lines lines_of(const void *at, int64_t runs, int64_t length, int64_t stride,
                      int64_t calls) {
    const int64_t count = runs * ((length + LINE - 1) / LINE);
    return (lines){.at = at,
                   .end = (const char *)at + length,
                   .count = count,
                   .each = calls > 0 ? (count + calls - 1) / calls : 0,
                   .gap = stride - length,
                   .stride = stride};
}

#endif
