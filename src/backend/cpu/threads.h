/* SPDX-License-Identifier: Apache-2.0 */
/* threads.h -- parallel_for over the threads of a device, by static partition with work stealing.
 *
 *     items  0        B        2B       3B       4B     4B + r        B: items in a block
 *            |--------|--------|--------|--------|----|
 *     thread     0        0        1        1      0                  own, then stolen
 *
 * Items are rows, columns or elements. A range may run on any thread and at any time. So a range
 * must write nothing that another range reads or writes, and its result must depend only on its
 * items. Sums over ranges are kept per block of a fixed size, and afterwards added in the order of
 * blocks. So the bits of results depend neither on the number of threads nor on their timing. */
#ifndef CGP_SRC_CPU_THREADS_H
#define CGP_SRC_CPU_THREADS_H

#include <stdatomic.h>

#include "backend/kernel.h"

/* Minimum number of elements in a block. In the cheapest kernel, this many elements take some
 * microseconds, which is several times the cost of waking a thread. The number is a multiple of
 * every vector length. */
#define CGP__CPU_SPLIT 16384

/* The parallel_for in progress on a device. */
typedef struct cgp__cpu_parallel_work {
    cgp__range *range;
    const void *work;
    int64_t items;
    /* Number of items that a thread takes at a time; a multiple of the block size. */
    int64_t grain;
} cgp__cpu_parallel_work;

/* The grains of a parallel_for that one thread owns at the start. Partitions share no cache
 * lines. */
typedef struct cgp__cpu_partition {
    _Alignas(128) _Atomic int64_t next;
    int64_t end;
} cgp__cpu_partition;

/* Run all items. The owner calls this function. All items run in one range if the device has one
 * thread or there is one block. Allocates nothing in the steady state. */
void cgp__cpu_parallel_for(cgp_device *device, int64_t items, int64_t block, cgp__range *range,
                           const void *work);

/* Process one item, on a thread. */
typedef void cgp__cpu_item(const void *work, int64_t item, int thread);

/* Run items whose results are added in order. A free thread calls make() for the next item, and
 * then add() for the same item. The calls of add() run one at a time, in the order of items. A
 * thread takes no other item between the two calls, so one buffer per thread is enough. Allocates
 * nothing. */
void cgp__cpu_parallel_in_order(cgp_device *device, int64_t items, cgp__cpu_item *make,
                                cgp__cpu_item *add, const void *work);

/* Return whether cgp__cpu_parallel_for() divides these items. */
static inline bool cgp__cpu_is_parallel(int threads, int64_t items, int64_t block) {
    return threads > 1 && items > block;
}

/* Return the number of rows of `width` elements in a block: a multiple of four if rows are
 * short. */
static inline int64_t cgp__cpu_block_rows(int64_t width) {
    const int64_t rows = width > 0 ? CGP__CPU_SPLIT / width : CGP__CPU_SPLIT;
    if (rows < 4) return rows < 1 ? 1 : rows;
    return rows / 4 * 4;
}

/* Return the number of columns in a block if whole columns of `rows` rows are summed. If there is
 * little work, one block has all columns. */
static inline int64_t cgp__cpu_block_columns(int64_t rows, int64_t width) {
    return rows * width <= CGP__CPU_SPLIT ? width : 128;
}

/* End the OpenMP threads of the calling thread, which is the owner. */
void cgp__cpu_threads_end(void);

#endif
