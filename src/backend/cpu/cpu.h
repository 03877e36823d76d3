/* SPDX-License-Identifier: Apache-2.0 */
/* cpu.h -- the device and the op table of the `cpu` backend, and helpers of its ops. */
#ifndef CGP_SRC_CPU_H
#define CGP_SRC_CPU_H

#include <stdatomic.h>

#include "backend/backend.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/gemm/gemm.h"
#include "backend/cpu/threads.h"
#include "backend/cpu/gemm/tiles.h"

struct cgp_device {
    int threads;
    /* The kernel table of the device's instruction set. */
    const cgp__cpu_kernels *kernels;
    /* For GEMM in bf16, set by the first kernel in bf16; NULL: it is done in f32. */
    const cgp__cpu_tiles *tiles;
    /* The best instruction set that they may have. */
    cgp_isa bf16_limit;
    /* Of a core's L2 cache; 0: not known. */
    int64_t l2_bytes;
    /* The owner's affinity and OpenMP threads before. */
    struct cgp__cpu_thread *thread;
    cgp__cpu_parallel_work parallel;
    /* Of each thread. */
    cgp__cpu_share *shares;
    /* Threads that took ranges of it. */
    _Atomic int64_t taken;
};

/* One direction of an op. */
typedef struct cgp__cpu_op {
    cgp_status (*run)(const cgp_kernel *kernel, const cgp_kernel_args *args);
    /* Bytes of workspace on a device of `threads` threads; NULL: none. */
    int64_t (*workspace)(const cgp_kernel_spec *spec, int threads);
} cgp__cpu_op;

/* Layouts of packed parameters: b of a GEMM. */
enum {
    /* of a weight whose rows are b's */
    CGP__PACKED_ROWS,
    /* of one whose rows are b's columns */
    CGP__PACKED_COLUMNS
};

/* Packed parameters of an op, for GEMMs in bf16. */
typedef struct cgp__cpu_packing {
    /* Bytes of them, and their layout; 0: the direction has none. */
    int64_t (*bytes)(const cgp_kernel_spec *spec, int *layout);
    /* Write them, on a device that has tiles. */
    void (*pack)(cgp_device *device, const cgp_kernel_spec *spec, const float *weight,
                 uint16_t *to);
} cgp__cpu_packing;

extern const cgp__cpu_packing cgp__cpu_linear_packing;

struct cgp_kernel {
    cgp_device *device;
    cgp_kernel_spec spec;
    const cgp__cpu_op *op;
    /* Of dropout, in this run. */
    cgp__rng_key key;
};

/* [CGP_OP_DIRECTIONS]; run == NULL: no such kernel. */
#define CGP__CPU_OP(kind, name) extern const cgp__cpu_op cgp__cpu_##name[CGP_OP_DIRECTIONS];
CGP_OPS(CGP__CPU_OP)

/* isa.c: the best instruction set of this machine, or the one that CGP_CPU_ISA names: v4-bf16 and
 * amx for bf16 only. */
cgp_status cgp__cpu_isa_best(cgp_dtype type, cgp_isa *best);
/* Set the device's kernel table, of an instruction set or, NONE, the best, and its limit in bf16.
 * */
cgp_status cgp__cpu_isa_choose(cgp_device *device, cgp_isa isa);
/* The device's GEMM in bf16; the tiles of AMX are requested from the system at the first call;
 * NULL: it has none. */
const cgp__cpu_tiles *cgp__cpu_tiles_of(cgp_device *device);

/* device.c */
cgp_status cgp__cpu_device_create(cgp_device **out, const cgp_device_options *options);
void cgp__cpu_device_destroy(cgp_device *device);
bool cgp__cpu_has_cores(const cgp_device *device);
cgp_status cgp__cpu_memory_create(cgp_device *device, size_t bytes, void **out);
void cgp__cpu_memory_destroy(cgp_device *device, void *memory, size_t bytes);

/* sums.c: sum[c] = or += sum over rows of x[row, c]; to = or += from, `to` may be `from` or NULL;
 * to = from of another type. */
void cgp__cpu_sum_rows(cgp_device *device, float *sum, cgp_dtype type, const void *x, int64_t rows,
                       int64_t width, bool add);
void cgp__cpu_pass(cgp_device *device, cgp_dtype type, void *to, const void *from, int64_t n,
                   bool add);
cgp_status cgp__cpu_convert(cgp_device *device, cgp_dtype to_type, void *to, cgp_dtype from_type,
                            const void *from, int64_t n);
void cgp__cpu_clear(cgp_device *device, float *to, int64_t n);
cgp_status cgp__cpu_sum_squares(cgp_device *device, const float *x, int64_t n, double *out);
cgp_status cgp__cpu_find_nonfinite(cgp_device *device, const float *x, int64_t n, int64_t *out);

/* update.c */
cgp_status cgp__cpu_update(cgp_device *device, const cgp_update *update);

/* dx[k] is added to instead of overwritten. */
static inline bool cgp__cpu_adds(const cgp_kernel *kernel, int k) {
    return kernel->spec.add >> k & 1u;
}

/* Rows of all samples. */
static inline int64_t cgp__cpu_rows(const cgp_kernel *kernel) {
    return kernel->spec.n * kernel->spec.attributes.rows;
}

/* `work` of most ranges. */
typedef struct cgp__cpu_call {
    const cgp_kernel *kernel;
    const cgp_kernel_args *args;
} cgp__cpu_call;

/* Run the rows of all samples, each of about `width` elements, in parallel. */
static inline void cgp__cpu_parallel_for_rows(const cgp_kernel *kernel, const cgp_kernel_args *args,
                                              int64_t width, cgp__range *range) {
    const cgp__cpu_call call = {kernel, args};
    cgp__cpu_parallel_for(kernel->device, cgp__cpu_rows(kernel), cgp__cpu_block_rows(width), range,
                          &call);
}

/* The mask of dropout for one sample; false if nothing is dropped. */
static inline bool cgp__cpu_mask_of(cgp__cpu_mask *out, const cgp_kernel *kernel,
                                    const cgp_kernel_args *args, int64_t sample) {
    const float p = kernel->spec.attributes.p;
    if (!args->training || p == 0.0f) return false;
    *out = (cgp__cpu_mask){.key = kernel->key,
                           .threshold = cgp__dropout_threshold(p),
                           .sample = (uint64_t)(args->values->sample + sample),
                           .scale = (float)(1.0 / (1.0 - (double)p))};
    return true;
}

#endif
