/* SPDX-License-Identifier: Apache-2.0 */
/* prefetch.h -- cache lines prefetched a few at a time, interleaved with arithmetic. */
#ifndef CGP_SRC_CPU_PREFETCH_H
#define CGP_SRC_CPU_PREFETCH_H

#include "backend/cpu/kernels/vec.h"

#define LINE 64 /* bytes in a cache line */

/* Lines to prefetch, in runs. */
typedef struct prefetch_stream {
    /* Of the run. */
    const char *at, *end;
    /* Lines that are left, lines of one call. */
    int64_t count, each;
    /* Bytes from the end of a run to the next one, from end to end. */
    int64_t gap, stride;
} prefetch_stream;

/* The line in which a run begins: it may end in one more than its length has. */
INLINE const char *line_of(const char *at) {
    return at - ((uintptr_t)at & (LINE - 1));
}

INLINE void prefetch_some(prefetch_stream *s, int write) {
    const char *at = s->at, *end = s->end;
    int64_t n = s->each < s->count ? s->each : s->count;
    s->count -= n;
    for (; n > 0; n--) {
        if (write)
            __builtin_prefetch(at, 1, 3);
        else
            __builtin_prefetch(at, 0, 2);
        at += LINE;
        if (at < end) continue;
        at = line_of(end + s->gap);
        end += s->stride;
    }
    s->at = at;
    s->end = end;
}

INLINE int64_t bytes_of(cgp_dtype type, int64_t n) {
    return type == CGP_BF16 ? 2 * n : 4 * n;
}

/* All lines of `runs` runs of `length` bytes that begin `stride` bytes apart, in `calls` calls;
 * where they begin within lines, some lines of the runs behind them, too. */
INLINE prefetch_stream prefetch_stream_of(const void *at, int64_t runs, int64_t length,
                                          int64_t stride, int64_t calls) {
    const bool within = ((uintptr_t)at | (uintptr_t)stride) & (LINE - 1);
    const int64_t count = runs * ((length + LINE - 1) / LINE + within);
    return (prefetch_stream){.at = line_of(at),
                             .end = (const char *)at + length,
                             .count = count,
                             .each = calls > 0 ? (count + calls - 1) / calls : 0,
                             .gap = stride - length,
                             .stride = stride};
}

#endif
