/* SPDX-License-Identifier: Apache-2.0 */
/* windows.h -- the windows of a convolution for conv2d.c, conv2d_weight.c and conv2d_bf16.c, and
 * the functions of conv2d_winograd.c. A block of output pixels is computed from padded rows, which
 * are a copy of its input rows with zeros around them. */
#ifndef CGP_SRC_CPU_WINDOWS_H
#define CGP_SRC_CPU_WINDOWS_H

#include "backend/cpu/cpu.h"
#include "backend/cpu/gemm/block.h"
#include "backend/cpu/ops/conv2d.h"

/* Maximum number of output pixels in a block. For y and dx, pixels are rows of c, so this number
 * corresponds to MC. For dW, pixels are the k indices of the GEMM, so it corresponds to KC. */
#define CGP__WINDOW_PIXELS 256
#define CGP__WINDOW_WEIGHT_PIXELS 512

/* The output positions of a convolution over an image [n, H, W, C]; each has one window. */
typedef struct cgp__output_positions {
    /* Type of the image. */
    cgp_dtype type;
    const void *image;
    int64_t n, height, width, channels;
    int64_t out_height, out_width;
    int64_t kernel_height, kernel_width, stride_height, stride_width;
    int64_t top, left;
    /* The fields below are set by cgp__output_positions_set(). */
    /* Number of output pixels in a run, which stays within one output row, and number of runs in an
     * output row. */
    int64_t run, parts;
    /* Pixels from one window to the next in the padded rows. Padded rows leave out pixels that no
     * window contains. */
    int64_t step_height, step_width;
    /* Number of pixels in a padded row. */
    int64_t padded_width;
    /* Number of elements in a row of a window. */
    int64_t segment;
} cgp__output_positions;

void cgp__output_positions_set(cgp__output_positions *g);
cgp__output_positions cgp__output_positions_of(const cgp_kernel_spec *spec, const void *image);

static inline int64_t cgp__output_runs(const cgp__output_positions *g) {
    return g->n * g->out_height * g->parts;
}

/* Return the number of runs in a block; 1 if an output row has several runs. */
static inline int64_t cgp__output_runs_per_block(const cgp__output_positions *g, int64_t pixels) {
    return g->parts > 1 ? 1 : cgp__min(cgp__max(pixels / g->run, 1), cgp__output_runs(g));
}

/* Return the maximum number of elements in the padded rows of `runs` runs. Runs of one image share
 * input rows. */
int64_t cgp__padded_rows_elements(const cgp__output_positions *g, int64_t runs);

static inline int64_t cgp__padded_rows_bytes(const cgp__output_positions *g, int64_t pixels,
                                             cgp_dtype type) {
    return cgp__align_up(cgp__padded_rows_elements(g, cgp__output_runs_per_block(g, pixels)) *
                         (int64_t)cgp_dtype_bytes(type));
}

/* Return the number of output pixels before a run. */
int64_t cgp__output_pixels_before(const cgp__output_positions *g, int64_t run);

/* Copy the padded rows of runs first .. first + count - 1 to `padded`, converted to a type, and
 * store the offset of each window in `padded`. Return the number of windows. Use the threads of the
 * device or, if `alone` is set, only the calling thread. */
int64_t cgp__padded_rows_copy(cgp_device *device, bool alone, const cgp__output_positions *g,
                              int64_t first, int64_t count, cgp_dtype type, void *padded,
                              int64_t *windows);

/* Return the input rows that the windows of runs first .. first + count - 1 read. These rows are
 * contiguous in memory. */
cgp__cpu_prefetch cgp__input_rows_prefetch(const cgp__output_positions *g, int64_t first,
                                           int64_t count);

/* Layout of the output pixels: the numbers of elements from one image, row and pixel to the
 * next. */
typedef struct cgp__pixel_layout {
    cgp_dtype type;
    void *at;
    int64_t image, row, pixel;
} cgp__pixel_layout;

/* A GEMM that sets c [pixels, columns] to windows times `b` plus bias, or adds this product to
 * c. */
typedef struct cgp__window_gemm {
    cgp_device *device;
    cgp__output_positions positions;
    cgp__pixel_layout to;
    bool add;
    int64_t columns;
    /* Operand b with all of k if taps.depth is 0; otherwise b.at is the address of the first
     * tap. */
    cgp__matrix b;
    cgp__taps taps;
    const float *bias;
    /* The fields below are set by run_window_gemm(). */
    /* Number of runs in a block. */
    int64_t runs;
    /* Number of micro-panels of columns in an item. */
    int64_t micro_panels;
    /* Bytes of workspace per thread. */
    int64_t bytes;
    char *workspace;
} cgp__window_gemm;

/* Set `at` to the offsets of the pixels of runs first .. first + count - 1. */
void cgp__window_pixels(const cgp__window_gemm *p, int64_t first, int64_t count, int64_t *at);

/* Return the number of micro-panels of columns in an item. It is the number of all micro-panels if
 * there are enough blocks for the threads. */
static inline int64_t cgp__columns_at_once(int64_t all, int64_t blocks, int threads) {
    if (blocks >= 2 * threads) return all;
    return cgp__max(all / cgp__ceil_div(2 * threads, blocks), 1);
}

/* Return the bytes of a table of the pixels of a block. */
static inline int64_t cgp__window_table_bytes(const cgp__output_positions *g, int64_t pixels) {
    return cgp__align_up(cgp__output_runs_per_block(g, pixels) * g->run * (int64_t)sizeof(int64_t));
}

/* conv2d_weight.c: set dw to (windows of x)^T dy, or add the product to dw. The workspace is for
 * `threads` threads. */
void cgp__convolve_weight_f32(cgp_device *device, const cgp_kernel_spec *spec, const void *x,
                              const void *dy, float *dw, bool add, void *workspace);
int64_t cgp__convolve_weight_f32_bytes(const cgp_kernel_spec *spec, int threads);

/* conv2d_winograd.c: Winograd convolution, for 3 x 3 kernels and stride 1; arguments are as in
 * conv2d.h. */
bool cgp__winograd_applies(const cgp_op_windows *s);
void cgp__winograd_convolve(cgp_device *device, const cgp__cpu_convolution *conv, void *workspace);
void cgp__winograd_convolve_transposed(cgp_device *device, const cgp__cpu_convolution *conv,
                                       void *workspace);
int64_t cgp__winograd_convolve_bytes(const cgp_kernel_spec *spec, int threads);
void cgp__winograd_weight(cgp_device *device, const cgp_kernel_spec *spec, const void *x,
                          const void *dy, float *dw, bool add, void *workspace);
int64_t cgp__winograd_weight_bytes(const cgp_kernel_spec *spec, int threads);

/* conv2d_depthwise.c: convolve channels one by one; arguments are as in conv2d.h. */
void cgp__depthwise_convolve(cgp_device *device, const cgp__cpu_convolution *conv, void *workspace);
void cgp__depthwise_convolve_transposed(cgp_device *device, const cgp__cpu_convolution *conv,
                                        void *workspace);
int64_t cgp__depthwise_convolve_bytes(const cgp_kernel_spec *spec, int threads);
void cgp__depthwise_weight(cgp_device *device, const cgp_kernel_spec *spec, const void *x,
                           const void *dy, float *dw, bool add, void *workspace);
int64_t cgp__depthwise_weight_bytes(const cgp_kernel_spec *spec, int threads);

/* conv2d_parts.c: convolve groups and dilations in parts; arguments are as in conv2d.h. */
bool cgp__has_parts(const cgp_op_windows *g);
void cgp__convolve_parts(cgp_device *device, const cgp__cpu_convolution *conv, void *workspace);
void cgp__convolve_parts_transposed(cgp_device *device, const cgp__cpu_convolution *conv,
                                    void *workspace);
void cgp__convolve_parts_weight(cgp_device *device, const cgp_kernel_spec *spec, const void *x,
                                const void *dy, float *dw, bool add, void *workspace);
int64_t cgp__convolve_parts_bytes(const cgp_kernel_spec *spec, int threads);

/* conv2d_bf16.c: convolve by windows on a device with AVX512_BF16 or AMX. The workspace is for
 * `threads` threads. */
void cgp__window_gemm_bf16(cgp__window_gemm *p, void *workspace);
int64_t cgp__window_gemm_bf16_bytes(const cgp__output_positions *g, int64_t columns, int threads);
void cgp__convolve_weight_bf16(cgp_device *device, const cgp_kernel_spec *spec, const void *x,
                               const void *dy, float *dw, bool add, void *workspace);
int64_t cgp__convolve_weight_bf16_bytes(const cgp_kernel_spec *spec, int threads);

#endif
