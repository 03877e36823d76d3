/* SPDX-License-Identifier: Apache-2.0 */
/* elementwise.h -- splits the elements of all samples into ranges, or into blocks that do not cross
 * samples. */
#ifndef CGP_SRC_CPU_ELEMENTWISE_H
#define CGP_SRC_CPU_ELEMENTWISE_H

#include "backend/cpu/cpu.h"

/* Return the number of elements of y: cgp__cpu_sample_size() in one sample, cgp__cpu_size() in all
 * samples. */
static inline int64_t cgp__cpu_sample_size(const cgp_kernel *kernel) {
    return kernel->spec.attributes.rows * kernel->spec.attributes.out;
}

static inline int64_t cgp__cpu_size(const cgp_kernel *kernel) {
    return kernel->spec.n * cgp__cpu_sample_size(kernel);
}

/* Run all elements in parallel. */
static inline void cgp__cpu_parallel_for_elements(const cgp_kernel *kernel,
                                                  const cgp_kernel_args *args, cgp__range *range) {
    const cgp__cpu_call call = {kernel, args};
    cgp__cpu_parallel_for(kernel->device, cgp__cpu_size(kernel), CGP__CPU_SPLIT, range, &call);
}

/* Run BACKWARD_INPUT of an op that has one input and whose gradient dx equals dy. */
static inline cgp_status cgp__cpu_pass_dy(const cgp_kernel *kernel, const cgp_kernel_args *args) {
    cgp__cpu_pass(kernel->device, kernel->spec.type, args->dx[0], args->dy, cgp__cpu_size(kernel),
                  cgp__cpu_adds(kernel, 0));
    return CGP_OK;
}

/* A block of elements begin .. end - 1 of one sample. */
typedef struct cgp__cpu_sample_block {
    int64_t sample, begin, end;
} cgp__cpu_sample_block;

/* Return the number of blocks of a sample of `size` elements. */
static inline int64_t cgp__cpu_sample_blocks(int64_t size) {
    return cgp__ceil_div(size, CGP__CPU_SPLIT);
}

/* Return block `index`, counted over the blocks of all samples. */
static inline cgp__cpu_sample_block cgp__cpu_sample_block_of(int64_t index, int64_t size) {
    const int64_t blocks = cgp__cpu_sample_blocks(size);
    const int64_t begin = index % blocks * CGP__CPU_SPLIT;
    return (cgp__cpu_sample_block){index / blocks, begin, cgp__min(begin + CGP__CPU_SPLIT, size)};
}

#endif
