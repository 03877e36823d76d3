/* SPDX-License-Identifier: Apache-2.0 */
/* kernels.h -- the vector kernels of the `cpu` backend, one table per instruction set.
 *
 * Every file in kernels/ is compiled three times for x86-64 (v1, v3 and v4), or once for aarch64
 * (neon). The names of its functions end in _v1, _v3, _v4 or _neon. The functions are called only
 * through the tables below, so that no instruction runs on a machine that lacks it. The result for
 * a row (for an element, in elementwise kernels) depends only on that row. Neighbouring rows,
 * addresses and the position of a loop's end do not affect the result. */
#ifndef CGP_SRC_CPU_KERNELS_H
#define CGP_SRC_CPU_KERNELS_H

#include <cgpipe/ext/backend.h>

#include "base/base.h"

#define CGP__CPU_BLOCK 64 /* rows in a partial sum of a parameter's gradient */

/* Return the number of floats in a padded row of `width` floats. The padding allows reads and
 * writes of full vectors. */
static inline int64_t cgp__cpu_padded(int64_t width) {
    return (width + 15) / 16 * 16;
}

/* Return the address of element i of an array of a type. Like strchr(), the function drops const:
 * the caller decides whether to write. */
static inline void *cgp__cpu_at(cgp_dtype type, const void *memory, int64_t i) {
    return (char *)memory + i * (type == CGP_BF16 ? 2 : 4);
}

/* Operands of kernels; operands.h and gemm/block.h define these structs. */
typedef struct cgp__block cgp__block;
typedef struct cgp__cpu_columns cgp__cpu_columns;
typedef struct cgp__cpu_depthwise cgp__cpu_depthwise;
typedef struct cgp__cpu_depthwise_weight cgp__cpu_depthwise_weight;
typedef struct cgp__cpu_element_loss cgp__cpu_element_loss;
typedef struct cgp__cpu_loss cgp__cpu_loss;
typedef struct cgp__cpu_mask cgp__cpu_mask;
typedef struct cgp__cpu_norm cgp__cpu_norm;
typedef struct cgp__cpu_pool cgp__cpu_pool;
typedef struct cgp__cpu_rotation cgp__cpu_rotation;
typedef struct cgp__cpu_scores cgp__cpu_scores;
typedef struct cgp__matrix cgp__matrix;
typedef struct cgp__winograd_filter cgp__winograd_filter;
typedef struct cgp__winograd_pixels cgp__winograd_pixels;
typedef struct cgp__winograd_row cgp__winograd_row;

/* X(name, arguments): all functions return void. `add`: add to the output instead of overwriting
 * it. An output may alias an input of the same shape. `type`, f32 or bf16, is the type of the
 * `void` operands that follow it. */
/* clang-format off */
#define CGP__CPU_KERNELS(X)                                                                    \
    /* y = a + b */                                                                            \
    X(add, (cgp_dtype type, void *y, const void *a, cgp_dtype b_type, const void *b,           \
            int64_t n))                                                                        \
    /* y = a b or y = a - b; backward sets or adds dx[1], then dx[0]; dx[k] may be NULL, or    \
     * alias dy or the other dx */                                                             \
    X(multiply, (cgp_dtype type, void *y, const void *a, const void *b, int64_t n))            \
    X(subtract, (cgp_dtype type, void *y, const void *a, const void *b, int64_t n))            \
    X(multiply_backward, (cgp_dtype type, void *const dx[2], const void *a, const void *b,     \
                          const void *dy, int64_t n, uint32_t add))                            \
    X(subtract_backward, (cgp_dtype type, void *const dx[2], const void *dy, int64_t n,        \
                          uint32_t add))                                                       \
    /* y = f(x); dx = dy f', computed from x or y; y may alias x, and dx may alias dy */       \
    X(function_forward, (const cgp_op_function *f, cgp_dtype type, void *y, const void *x,     \
                         int64_t n))                                                           \
    X(function_backward, (const cgp_op_function *f, cgp_dtype type, void *dx, const void *x,   \
                          const void *dy, int64_t n, bool add))                                \
    /* softmax of contiguous rows; y may alias x, and dx may alias dy */                       \
    X(row_softmax_forward, (cgp_dtype type, void *y, const void *x, int64_t rows,              \
                            int64_t width))                                                    \
    X(row_softmax_backward, (cgp_dtype type, void *dx, const void *y, const void *dy,          \
                             int64_t rows, int64_t width, bool add))                           \
    /* log softmax of contiguous rows; y may alias x, and dx may alias dy */                   \
    X(row_log_softmax_forward, (cgp_dtype type, void *y, const void *x, int64_t rows,          \
                                int64_t width))                                                \
    X(row_log_softmax_backward, (cgp_dtype type, void *dx, const void *y, const void *dy,      \
                                 int64_t rows, int64_t width, bool add))                       \
    /* copy from one type to another */                                                        \
    X(convert, (cgp_dtype to_type, void *to, cgp_dtype from_type, const void *from, int64_t n)) \
    /* set sum[c] to the sum of x[row, c], or add this sum; rows are `stride` elements apart   \
     * and are summed in blocks of 64 */                                                       \
    X(sum_rows, (float *sum, cgp_dtype type, const void *x, int64_t rows, int64_t width,       \
                 int64_t stride, bool add))                                                    \
    /* out[i] = a[i] . b[i], for vectors of `width` elements, `stride` apart */                \
    X(row_dots, (float *out, cgp_dtype type, const void *a, const void *b, int64_t rows,       \
                 int64_t width, int64_t stride))                                               \
    /* compute elements begin .. end - 1 of a sample; begin is a multiple of 32 */             \
    X(dropout, (cgp_dtype type, void *y, const void *x, int64_t begin, int64_t end,            \
                const cgp__cpu_mask *mask, bool add))                                          \
    /* multiply channels of a sample's rows by factors; 0 where a factor is 0 */               \
    X(dropout_channels, (cgp_dtype type, void *y, const void *x, int64_t rows, int64_t width,  \
                         const float *factors, bool add))                                      \
    X(layer_norm_forward, (const cgp__cpu_norm *norm))                                         \
    X(layer_norm_backward, (const cgp__cpu_norm *norm))                                        \
    X(cross_entropy_forward, (const cgp__cpu_loss *loss))                                      \
    X(cross_entropy_backward, (const cgp__cpu_loss *loss))                                     \
    X(element_loss_forward, (const cgp__cpu_element_loss *loss))                               \
    X(element_loss_backward, (const cgp__cpu_element_loss *loss))                              \
    /* merge the moments (in backward: the sums) of the rows of `a` into sums[] */          \
    X(columns_moments, (const cgp__cpu_columns *a))                                            \
    X(columns_sums, (const cgp__cpu_columns *a))                                               \
    X(columns_forward, (const cgp__cpu_columns *a))                                            \
    X(columns_backward, (const cgp__cpu_columns *a))                                           \
    /* copy or add rows of `width` elements, with a stride for each side */                    \
    X(copy_rows, (cgp_dtype type, void *to, int64_t to_stride, const void *from,               \
                  int64_t from_stride, int64_t rows, int64_t width, bool add))                 \
    /* set `to` [columns, rows] to the transpose of `from` [rows, columns], or add it */       \
    X(transpose, (cgp_dtype type, void *to, int64_t to_stride, const void *from,               \
                  int64_t from_stride, int64_t rows, int64_t columns, bool add))               \
    /* compute row i of y (sums, means or maxima), or row i of the argmax */                \
    X(pool_sum, (const cgp__cpu_pool *p, void *y, int64_t i))                                  \
    X(pool_max, (const cgp__cpu_pool *p, void *y, int64_t i))                                  \
    X(pool_argmax, (const cgp__cpu_pool *p, float *argmax, int64_t i))                         \
    /* compute a row of the image's gradient */                                                \
    X(pool_sum_back, (const cgp__cpu_pool *p, void *dx, int64_t row))                          \
    X(pool_max_back, (const cgp__cpu_pool *p, void *dx, int64_t row))                          \
    /* depthwise convolution: compute a row of pixels, or the weight's gradient over rows */   \
    X(depthwise_row, (const cgp__cpu_depthwise *p))                                            \
    X(depthwise_weight, (const cgp__cpu_depthwise_weight *p))                                  \
    X(softmax_forward, (const cgp__cpu_scores *scores))                                        \
    X(softmax_backward, (const cgp__cpu_scores *scores))                                       \
    /* cos and sin of position * frequencies, padded to full vectors */                        \
    X(rotary_angles, (float *cos, float *sin, const float *frequencies, int64_t n,             \
                      float position))                                                         \
    X(rotary, (const cgp__cpu_rotation *a))                                                    \
    /* pack `rows` rows of `a` to [CGP__GEMM_MR-padded rows, k] floats */                      \
    X(gemm_pack_a, (float *to, const cgp__matrix *a, int64_t rows, int64_t k))                 \
    /* pack all of b to micro-panels of columns, cgp__gemm_panels_bytes() */                   \
    X(gemm_pack_b, (float *to, const cgp__matrix *b, int64_t columns, int64_t k))              \
    /* pack elements first .. first + rows - 1 of each window as a column of `a` */            \
    X(gemm_pack_windows, (float *to, const float *at, const int64_t *windows, int64_t count,   \
                        int64_t first, int64_t rows))                                          \
    /* compute columns begin .. end - 1; begin is a multiple of CGP__GEMM_NR; packed_b: memory \
     * for two micro-panels [2, k, CGP__GEMM_NR], NULL if b is prepacked */                    \
    X(gemm_columns, (const cgp__block *block, int64_t begin, int64_t end, float *packed_b))    \
    /* compute columns of a block with one row and without windows or taps; `sums` has the     \
     * size of packed_b */                                                                     \
    X(gemv_columns, (const cgp__block *block, int64_t begin, int64_t end, float *sums))        \
    /* transform x or dy to tiles, or tiles to pixels; the 16 elements of a tile are in 16     \
     * matrices, `matrix` elements apart */                                                    \
    X(winograd_input, (float *to, int64_t matrix, const cgp__winograd_row *row))               \
    X(winograd_gradient, (float *to, int64_t matrix, const cgp__winograd_row *row))            \
    X(winograd_output, (const float *from, int64_t matrix,                                     \
                        const cgp__winograd_pixels *pixels))                                   \
    /* compute U = G w G^T, rows begin .. end - 1 of k, as micro-panels of 16 matrices */      \
    X(winograd_weights, (float *to, int64_t matrix, const cgp__winograd_filter *filter,        \
                         int64_t begin, int64_t end))                                          \
    /* set elements begin .. end - 1 of dw to G^T dU G, or add them; the taps of dw are        \
     * `tap` elements apart */                                                                 \
    X(winograd_weights_back, (float *dw, int64_t tap, const float *from, int64_t matrix,       \
                              int64_t begin, int64_t end, bool add))                           \
    /* *sum = x . x, in double */                                                              \
    X(sum_squares, (double *sum, const float *x, int64_t n))                                   \
    /* *at: index of the first infinity or NaN in x; -1: there is none */                      \
    X(find_nonfinite, (int64_t *at, const float *x, int64_t n))                                \
    X(update, (const cgp_update *update))
/* clang-format on */

#define CGP__CPU_FIELD(name, arguments) void(*name) arguments;

/* The operand that the backward of an elementwise op reads besides dy. */
typedef enum cgp__cpu_reads {
    CGP__CPU_READS_X,
    CGP__CPU_READS_Y,
    CGP__CPU_READS_DY
} cgp__cpu_reads;

/* An elementwise op: y = f(x) and dx = dy f', which needs x, y or neither. RELU and SCALE use
 * `slope`. */
typedef struct cgp__cpu_elementwise {
    void (*forward)(cgp_dtype type, void *y, const void *x, int64_t n, float slope);
    void (*backward)(cgp_dtype type, void *dx, const void *operand, const void *dy, int64_t n,
                     float slope, bool add);
    cgp__cpu_reads reads;
} cgp__cpu_elementwise;

typedef struct cgp__cpu_kernels {
    const char *isa;
    CGP__CPU_KERNELS(CGP__CPU_FIELD)
    /* Only the entries of CGP_ELEMENTWISE_OPS are set. */
    const cgp__cpu_elementwise *elementwise[CGP_OP_KINDS];
} cgp__cpu_kernels;

#ifdef __aarch64__
extern const cgp__cpu_kernels cgp__cpu_kernels_neon;
#else
extern const cgp__cpu_kernels cgp__cpu_kernels_v1, cgp__cpu_kernels_v3, cgp__cpu_kernels_v4;
#endif

#ifdef CGP_ISA /* set while a file of kernels/ is compiled */
#define CGP__CPU_PASTE_(name, isa) cgp__cpu_##name##_##isa
#define CGP__CPU_PASTE(name, isa) CGP__CPU_PASTE_(name, isa)
#define CGP__CPU_NAME(name) CGP__CPU_PASTE(name, CGP_ISA)
#define CGP__CPU_DECLARE(name, arguments) void CGP__CPU_NAME(name) arguments;
CGP__CPU_KERNELS(CGP__CPU_DECLARE)
#define CGP__CPU_DECLARE_ELEMENTWISE(kind, name, family)                                           \
    extern const cgp__cpu_elementwise CGP__CPU_NAME(name);
CGP_ELEMENTWISE_OPS(CGP__CPU_DECLARE_ELEMENTWISE)
#endif

#endif
