/* lines.h -- memory called ahead of its use, a line at a time, between steps of arithmetic. */
#ifndef CGP_SRC_CPU_LINES_H
#define CGP_SRC_CPU_LINES_H

#include "backend/cpu/kernels/vec.h"

#define LINE 64 /* bytes in a cache line */

/* Lines of memory to be called: `left` more in this run, then on to the next one. */
typedef struct lines {
    const char *at;
    int64_t count, left, run, gap; /* gap: bytes from the end of a run */
} lines;

INLINE void call_line(lines *l, int write) {
    if (l->count <= 0) return;
    if (write)
        __builtin_prefetch(l->at, 1, 3);
    else
        __builtin_prefetch(l->at, 0, 2);
    l->at += LINE;
    l->count--;
    if (--l->left > 0) return;
    l->left = l->run;
    l->at += l->gap;
}

INLINE int64_t bytes_of(cgp_dtype type, int64_t n) {
    return type == CGP_BF16 ? 2 * n : 4 * n;
}

/* `count` lines in runs of `length` bytes that begin `stride` bytes apart. */
INLINE lines lines_of(const void *at, int64_t count, int64_t length, int64_t stride) {
    const int64_t run = (length + LINE - 1) / LINE;
    return (lines){at, count, run, run, stride - run * LINE};
}

#endif
