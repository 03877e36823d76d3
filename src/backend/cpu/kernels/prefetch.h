/* SPDX-License-Identifier: Apache-2.0 */
/* prefetch.h -- prefetches cache lines a few at a time, interleaved with arithmetic. */
#ifndef CGP_SRC_CPU_PREFETCH_H
#define CGP_SRC_CPU_PREFETCH_H

#include "backend/cpu/kernels/vec.h"

#define LINE 64 /* bytes in a cache line */

/* A stream of cache lines to prefetch, in runs of contiguous lines. */
typedef struct prefetch_stream {
    /* Next line and end of the current run. */
    const char *at, *end;
    /* Number of lines left, and number of lines per call. */
    int64_t count, each;
    /* Bytes from the end of a run to the beginning of the next run, and to the end of the next
     * run. */
    int64_t gap, stride;
} prefetch_stream;

/* Return the line in which a run begins. The run may touch one line more than its length
 * suggests. */
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

/* Return a stream that prefetches `runs` runs of `length` bytes, `stride` bytes apart, in `calls`
 * calls. If runs begin in the middle of lines, some lines after the last run are prefetched too. */
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
