/* ref.h -- what the files of the `ref` backend share: the type of a kernel, dropout's mask, how
 * a gradient is stored, and the list of kernels. */
#ifndef CGP_SRC_BACKEND_REF_H
#define CGP_SRC_BACKEND_REF_H

#include "backend/backend.h"
#include "tensor/bf16.h"

/* A kernel is a function of its spec and its operands; it cannot fail. */
typedef void cgp__ref_run(const cgp__kernel_spec *spec, const cgp__kernel_args *args);

/* Element i of memory of a type, f32 or bf16. */
static inline float cgp__ref_load(cgp_dtype type, const void *from, int64_t i) {
    if (type == CGP_BF16) return cgp__bf16_to_float(((const uint16_t *)from)[i]);
    return ((const float *)from)[i];
}

static inline void cgp__ref_write(cgp_dtype type, void *to, int64_t i, float value) {
    if (type == CGP_BF16)
        ((uint16_t *)to)[i] = cgp__bf16_from_float(value);
    else
        ((float *)to)[i] = value;
}

/* Element i = or += value. Gradients are rounded to float before they are added, as by a backend that
 * sums aside. */
static inline void cgp__ref_store(cgp_dtype type, void *to, int64_t i, bool add, double value) {
    const float before = add ? cgp__ref_load(type, to, i) : 0.0f;
    cgp__ref_write(type, to, i, add ? before + (float)value : (float)value);
}

/* Bit k of spec->add. */
static inline bool cgp__ref_adds(const cgp__kernel_spec *spec, int k) {
    return ((spec->add >> k) & 1) != 0;
}

/* Factor of an element under dropout, 0 or 1 / (1 - p); 1 outside training. `sample` counts
 * from the first of the run. */
double cgp__ref_keep(const cgp__kernel_args *args, float p, int64_t sample, int64_t group,
                     int64_t element);

cgp__ref_run cgp__ref_embedding_forward, cgp__ref_embedding_weight;
cgp__ref_run cgp__ref_position_forward, cgp__ref_position_input, cgp__ref_position_weight;
cgp__ref_run cgp__ref_add_forward, cgp__ref_add_input;
cgp__ref_run cgp__ref_linear_forward, cgp__ref_linear_input, cgp__ref_linear_weight;
cgp__ref_run cgp__ref_layer_norm_forward, cgp__ref_layer_norm_input;
cgp__ref_run cgp__ref_gelu_forward, cgp__ref_gelu_input;
cgp__ref_run cgp__ref_attention_forward, cgp__ref_attention_input;
cgp__ref_run cgp__ref_dropout_forward, cgp__ref_dropout_input;
cgp__ref_run cgp__ref_cross_entropy_forward, cgp__ref_cross_entropy_input;
cgp__ref_run cgp__ref_argmax_forward;

/* Bytes of workspace of the kernels that need some. */
int64_t cgp__ref_embedding_workspace(const cgp__kernel_spec *spec);
int64_t cgp__ref_layer_norm_workspace(const cgp__kernel_spec *spec);
int64_t cgp__ref_attention_workspace(const cgp__kernel_spec *spec);

void cgp__ref_update(cgp__device *device, const cgp__update *update);

#endif
