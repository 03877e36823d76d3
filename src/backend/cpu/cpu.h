/* cpu.h -- what the files of the `cpu` backend share. */
#ifndef CGP_SRC_CPU_H
#define CGP_SRC_CPU_H

#include "backend/backend.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/onednn.h"

#define CGP__CPU_PRODUCTS 30 /* room for the matrix products of one kernel */

struct cgp__device {
    int threads;
    const cgp__cpu_kernels *loops; /* of this machine's instruction set */
    dnnl_stream_t stream;
    struct cgp__cpu_thread *thread; /* how the owner was before */
};

/* How an op runs in one direction. The workspace of a kernel is its temporaries, then the
 * largest scratchpad of its products, each at a multiple of 64 bytes. */
typedef struct cgp__cpu_op {
    cgp_status (*run)(const cgp__kernel *kernel, const cgp__kernel_args *args);
    /* Fill `out` (zeroed) with the products to be made; NULL: there are none. */
    void (*products)(const cgp__kernel_spec *spec, cgp__product out[CGP__CPU_PRODUCTS]);
    /* Bytes of temporaries; NULL: none. */
    int64_t (*temporaries)(const cgp__kernel_spec *spec);
} cgp__cpu_op;

struct cgp__kernel {
    cgp__device *device;
    cgp__kernel_spec spec;
    const cgp__cpu_op *op;
    int64_t temporaries; /* bytes, a multiple of 64 */
    cgp__matmul matmuls[CGP__CPU_PRODUCTS];
};

extern const cgp__cpu_op cgp__cpu_embedding[CGP__DIRECTIONS],
    cgp__cpu_position[CGP__DIRECTIONS], cgp__cpu_add[CGP__DIRECTIONS],
    cgp__cpu_linear[CGP__DIRECTIONS], cgp__cpu_layer_norm[CGP__DIRECTIONS],
    cgp__cpu_gelu[CGP__DIRECTIONS], cgp__cpu_attention[CGP__DIRECTIONS],
    cgp__cpu_dropout[CGP__DIRECTIONS], cgp__cpu_cross_entropy[CGP__DIRECTIONS],
    cgp__cpu_argmax[CGP__DIRECTIONS];

/* device.c */
cgp_status cgp__cpu_device_create(cgp__device **out, int threads, int core);
void cgp__cpu_device_destroy(cgp__device *device);
cgp_status cgp__cpu_memory_create(cgp__device *device, size_t bytes, void **out);
void cgp__cpu_memory_destroy(cgp__device *device, void *memory, size_t bytes);

/* Whether dx[k] is added to. */
static inline bool cgp__cpu_adds(const cgp__kernel *kernel, int k) {
    return kernel->spec.add >> k & 1u;
}

/* Rows of all samples. */
static inline int64_t cgp__cpu_rows(const cgp__kernel *kernel) {
    return kernel->spec.n * kernel->spec.geometry.rows;
}

/* Run product `index` of the kernel's list. */
static inline cgp_status cgp__cpu_multiply(const cgp__kernel *kernel, int index,
                                           const cgp__kernel_args *args, const float *a,
                                           const float *b, const float *bias, float *c) {
    void *scratchpad = args->workspace ? (char *)args->workspace + kernel->temporaries : NULL;
    return cgp__matmul_run(&kernel->matmuls[index], kernel->device->stream, a, b, bias, c,
                           scratchpad);
}

/* The mask of dropout for one sample; false if nothing is dropped. */
static inline bool cgp__cpu_mask_of(cgp__cpu_mask *out, const cgp__kernel *kernel,
                                    const cgp__kernel_args *args, int64_t sample) {
    const float p = kernel->spec.geometry.p;
    if (!args->training || p == 0.0f) return false;
    *out = (cgp__cpu_mask){.key = args->key,
                           .threshold = cgp__dropout_threshold(p),
                           .sample = (uint64_t)(args->sample + sample),
                           .scale = (float)(1.0 / (1.0 - (double)p))};
    return true;
}

#endif
