/* SPDX-License-Identifier: Apache-2.0 */
/* cpu.h -- the device and the op table of the `cpu` backend, and functions that its ops share. */
#ifndef CGP_SRC_CPU_H
#define CGP_SRC_CPU_H

#include <stdatomic.h>

#include "backend/cpu/kernels.h"
#include "backend/cpu/threads.h"
#include "backend/kernel.h"

struct cgp_device {
    int threads;
    /* The kernel table of the device's instruction set. */
    const cgp__cpu_kernels *kernels;
    /* Kernels of GEMM in bf16, set when the first bf16 kernel is created. NULL: bf16 GEMMs compute
     * in f32. */
    const struct cgp__cpu_tiles *tiles;
    /* The best instruction set that `tiles` may use. */
    cgp_isa bf16_limit;
    /* Bytes of a core's L2 cache; 0: unknown. */
    int64_t l2_bytes;
    /* The owner's affinity and number of OpenMP threads, which are restored when the device is
     * destroyed. */
    struct cgp__cpu_thread *thread;
    cgp__cpu_parallel_work parallel;
    /* [threads] Each thread's static partition in a parallel_for. */
    cgp__cpu_partition *partitions;
    /* Number of threads that have finished their part of the work that `parallel` describes. */
    _Atomic int64_t taken;
};

/* One direction of an op. */
typedef struct cgp__cpu_op {
    cgp_status (*run)(const cgp_kernel *kernel, const cgp_kernel_args *args);
    /* Return the workspace size in bytes on a device with `threads` threads; NULL: no workspace. */
    int64_t (*workspace)(const cgp_kernel_spec *spec, int threads);
} cgp__cpu_op;

/* Layouts of prepacked weights. Prepacked weights are operand b of a GEMM. */
enum {
    /* The weight's rows are rows of b. */
    CGP__PREPACKED_ROWS,
    /* The weight's rows are columns of b. */
    CGP__PREPACKED_COLUMNS
};

/* Prepacked weights of an op, for GEMMs in bf16. */
typedef struct cgp__cpu_prepack {
    /* Return the size of the prepacked weights in bytes and set their layout; 0: this direction has
     * no prepacked weights. */
    int64_t (*bytes)(const cgp_kernel_spec *spec, int *layout);
    /* Pack the weights. The device must have `tiles`. */
    void (*pack)(cgp_device *device, const cgp_kernel_spec *spec, const float *weight,
                 uint16_t *to);
} cgp__cpu_prepack;

extern const cgp__cpu_prepack cgp__cpu_linear_prepack;

struct cgp_kernel {
    cgp_device *device;
    cgp_kernel_spec spec;
    const cgp__cpu_op *op;
    /* Key of the dropout mask of this run. */
    cgp__rng_key key;
};

/* For each op, an array with one entry per direction. If `run` of an entry is NULL, the op has no
 * kernel for that direction. */
#define CGP__CPU_OP(kind, name, family) extern const cgp__cpu_op cgp__cpu_##name[CGP_OP_DIRECTIONS];
CGP_OPS(CGP__CPU_OP)

/* isa.c: find the best instruction set of this machine. If the environment variable CGP_CPU_ISA
 * names an instruction set, the result does not exceed it. Only bf16 kernels use v4-bf16 and
 * amx. */
cgp_status cgp__cpu_isa_best(cgp_dtype type, cgp_isa *best);
/* Set the device's kernel table and its limit for bf16. NONE selects the best instruction set. */
cgp_status cgp__cpu_isa_choose(cgp_device *device, cgp_isa isa);
/* Return the device's GEMM in bf16, or NULL. The first call asks the system for permission to use
 * AMX. */
const struct cgp__cpu_tiles *cgp__cpu_tiles_of(cgp_device *device);

/* device.c */
cgp_status cgp__cpu_device_create(cgp_device **out, const cgp_device_options *options);
void cgp__cpu_device_destroy(cgp_device *device);
bool cgp__cpu_has_cores(const cgp_device *device);
cgp_status cgp__cpu_memory_create(cgp_device *device, size_t bytes, void **out);
void cgp__cpu_memory_destroy(cgp_device *device, void *memory, size_t bytes);

/* Functions of sums.c. sum_rows() sets sum[c] to the sum of x[row, c] over all rows, or adds this
 * sum to sum[c]. pass() copies `from` to `to`, or adds `from` to `to`; `to` may be `from` or NULL.
 * convert() copies an array and converts it to another type. */
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
cgp_status cgp__cpu_update(cgp_device *device, const cgp_update *updates, int n);

/* Return whether a kernel adds to dx[k] instead of overwriting it. */
static inline bool cgp__cpu_adds(const cgp_kernel *kernel, int k) {
    return kernel->spec.add >> k & 1u;
}

/* Return the number of rows of all samples. */
static inline int64_t cgp__cpu_rows(const cgp_kernel *kernel) {
    return kernel->spec.n * kernel->spec.attributes.rows;
}

/* One run of a kernel. Most range functions get a pointer to this struct as their argument
 * `work`. */
typedef struct cgp__cpu_call {
    const cgp_kernel *kernel;
    const cgp_kernel_args *args;
} cgp__cpu_call;

/* Process the rows of all samples in parallel. A row takes about as much work as `width`
 * elements. */
static inline void cgp__cpu_parallel_for_rows(const cgp_kernel *kernel, const cgp_kernel_args *args,
                                              int64_t width, cgp__range *range) {
    const cgp__cpu_call call = {kernel, args};
    cgp__cpu_parallel_for(kernel->device, cgp__cpu_rows(kernel), cgp__cpu_block_rows(width), range,
                          &call);
}

#endif
