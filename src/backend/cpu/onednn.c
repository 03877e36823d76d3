/* onednn.c -- matrix products by oneDNN's matmul primitive.
 *
 * The scratchpad is always the caller's: oneDNN's own is thread-local, and a primitive that is
 * run by another thread than made it then crashes. Its size depends on the number of threads at
 * the time the primitive is described, so plan and device must agree on that. A sum post-op
 * adds. */
#include "backend/cpu/onednn.h"

#include <pthread.h>

#define ONEDNN_TRY(what, expression)                                                           \
    do {                                                                                       \
        const dnnl_status_t status_ = (expression);                                            \
        if (status_ != dnnl_success) return cgp__onednn_failed(what, status_);                 \
    } while (0)

static pthread_mutex_t making_engine = PTHREAD_MUTEX_INITIALIZER;
static dnnl_engine_t engine; /* NULL: not made yet, or it failed; made once in a process */

/* Held where primitives and their descriptors are made and destroyed: threads share them
 * through oneDNN's cache, whose own locks the thread sanitizer cannot see. */
static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;

cgp_status cgp__onednn_failed(const char *what, dnnl_status_t status) {
    if (status == dnnl_out_of_memory)
        return cgp_fail(CGP_ENOMEM, "cpu: oneDNN %s: out of memory", what);
    return cgp_fail(CGP_EDEVICE, "cpu: oneDNN %s: status %d", what, (int)status);
}

cgp_status cgp__onednn_engine(dnnl_engine_t *out) {
    dnnl_status_t status = dnnl_success;
    pthread_mutex_lock(&making_engine);
    if (!engine) status = dnnl_engine_create(&engine, dnnl_cpu, 0);
    *out = engine;
    pthread_mutex_unlock(&making_engine);
    ONEDNN_TRY("engine", status);
    return CGP_OK;
}

/* --- descriptors --- */

/* oneDNN 2.6 copies a plain b into panels of 64 columns only if its width is a power of two
 * above 256. It should for other wide ones: rows of 3072 floats, 12 KiB apart, fall on so few
 * cache sets that the product takes twice as long. It always copies a b of four dimensions in
 * the order of attention's heads, so that is what it is told: [1, 2, k, n / 2], two halves of a
 * row as heads. */
#define WIDE 2560

static bool has_avx512(void) {
    const unsigned wanted = dnnl_cpu_isa_avx512_core;
    return ((unsigned)dnnl_get_effective_cpu_isa() & wanted) == wanted;
}

/* Its rows, or its columns, follow each other without a gap. */
static bool is_dense(cgp__matrix layout, int64_t rows, int64_t columns) {
    return (layout.column == 1 && layout.row == columns) ||
           (layout.row == 1 && layout.column == rows);
}

bool cgp__product_copies(const cgp__product *p) {
    const bool power_of_two = (p->n & (p->n - 1)) == 0;
    if (p->n < WIDE || p->n % 2 || power_of_two || !has_avx512()) return false;
    return is_dense(p->a, p->m, p->k) && p->b.row == p->n && p->c.row == p->n;
}

/* One form for layouts that differ only where there is but one row or column: oneDNN takes them
 * for equal in its cache of primitives, and not when it chooses an implementation, so that
 * which one is got, and with it the bits of the result, would depend on who asked first. */
static cgp__matrix canonical(cgp__matrix layout, int64_t rows, int64_t columns) {
    if (columns == 1) layout.column = 1;
    if (rows == 1) layout.row = columns * layout.column;
    return layout;
}

static dnnl_status_t describe_matrix(dnnl_memory_desc_t *out, int64_t rows, int64_t columns,
                                     cgp__matrix layout) {
    layout = canonical(layout, rows, columns);
    const dnnl_dims_t dims = {rows, columns}, strides = {layout.row, layout.column};
    return dnnl_memory_desc_init_by_strides(out, 2, dims, dnnl_f32, strides);
}

/* The same matrix as `heads` ranges of columns. */
static dnnl_status_t describe_heads(dnnl_memory_desc_t *out, int64_t rows, int64_t columns,
                                    int64_t heads, cgp__matrix layout) {
    const int64_t width = columns / heads;
    layout = canonical(layout, rows, columns);
    const dnnl_dims_t dims = {1, heads, rows, width};
    const dnnl_dims_t strides = {rows * columns, heads == 1 ? rows * columns : width,
                                 layout.row, layout.column};
    return dnnl_memory_desc_init_by_strides(out, 4, dims, dnnl_f32, strides);
}

static cgp_status describe_product(dnnl_matmul_desc_t *out, const cgp__product *p) {
    dnnl_memory_desc_t a, b, c, bias;
    if (cgp__product_copies(p)) {
        ONEDNN_TRY("matrix", describe_heads(&a, p->m, p->k, 1, p->a));
        ONEDNN_TRY("matrix", describe_heads(&b, p->k, p->n, 2, p->b));
        ONEDNN_TRY("matrix", describe_heads(&c, p->m, p->n, 2, p->c));
    } else {
        ONEDNN_TRY("matrix", describe_matrix(&a, p->m, p->k, p->a));
        ONEDNN_TRY("matrix", describe_matrix(&b, p->k, p->n, p->b));
        ONEDNN_TRY("matrix", describe_matrix(&c, p->m, p->n, p->c));
    }
    ONEDNN_TRY("matrix", describe_matrix(&bias, 1, p->n, (cgp__matrix){p->n, 1}));
    ONEDNN_TRY("matmul", dnnl_matmul_desc_init(out, &a, &b, p->bias ? &bias : NULL, &c));
    return CGP_OK;
}

static dnnl_status_t set_attributes(dnnl_primitive_attr_t attributes, dnnl_post_ops_t sum,
                                    bool add) {
    dnnl_status_t status =
        dnnl_primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user);
    if (status == dnnl_success && add) status = dnnl_post_ops_append_sum(sum, 1.0f);
    if (status == dnnl_success && add)
        status = dnnl_primitive_attr_set_post_ops(attributes, sum);
    return status;
}

static cgp_status make_descriptor(dnnl_primitive_desc_t *out, const cgp__product *product) {
    dnnl_engine_t cpu = NULL;
    dnnl_matmul_desc_t matmul;
    CGP_TRY(cgp__onednn_engine(&cpu));
    CGP_TRY(describe_product(&matmul, product));
    dnnl_primitive_attr_t attributes = NULL;
    dnnl_post_ops_t sum = NULL;
    dnnl_status_t status = dnnl_primitive_attr_create(&attributes);
    if (status == dnnl_success) status = dnnl_post_ops_create(&sum);
    if (status == dnnl_success) status = set_attributes(attributes, sum, product->add);
    if (status == dnnl_success)
        status = dnnl_primitive_desc_create(out, &matmul, attributes, cpu, NULL);
    dnnl_post_ops_destroy(sum);
    dnnl_primitive_attr_destroy(attributes);
    ONEDNN_TRY("matmul descriptor", status);
    return CGP_OK;
}

static int64_t scratchpad_bytes(const_dnnl_primitive_desc_t descriptor) {
    const dnnl_memory_desc_t *scratchpad =
        dnnl_primitive_desc_query_md(descriptor, dnnl_query_scratchpad_md, 0);
    return scratchpad ? (int64_t)dnnl_memory_desc_get_size(scratchpad) : 0;
}

cgp_status cgp__product_scratchpad(const cgp__product *product, int64_t *bytes) {
    *bytes = 0;
    if (product->m == 0) return CGP_OK;
    dnnl_primitive_desc_t descriptor = NULL;
    pthread_mutex_lock(&making);
    const cgp_status status = make_descriptor(&descriptor, product);
    if (status == CGP_OK) *bytes = scratchpad_bytes(descriptor);
    dnnl_primitive_desc_destroy(descriptor);
    pthread_mutex_unlock(&making);
    return status;
}

/* --- primitives --- */

static cgp_status make_memory(dnnl_memory_t *out, const_dnnl_primitive_desc_t descriptor,
                              dnnl_query_t what, int index) {
    dnnl_engine_t cpu = NULL;
    CGP_TRY(cgp__onednn_engine(&cpu));
    ONEDNN_TRY("memory",
               dnnl_memory_create(out, dnnl_primitive_desc_query_md(descriptor, what, index),
                                  cpu, DNNL_MEMORY_NONE));
    return CGP_OK;
}

static cgp_status fill(cgp__matmul *out, const_dnnl_primitive_desc_t descriptor, bool bias) {
    ONEDNN_TRY("matmul primitive", dnnl_primitive_create(&out->primitive, descriptor));
    CGP_TRY(make_memory(&out->a, descriptor, dnnl_query_src_md, 0));
    CGP_TRY(make_memory(&out->b, descriptor, dnnl_query_weights_md, 0));
    if (bias) CGP_TRY(make_memory(&out->bias, descriptor, dnnl_query_weights_md, 1));
    CGP_TRY(make_memory(&out->c, descriptor, dnnl_query_dst_md, 0));
    out->scratchpad_bytes = scratchpad_bytes(descriptor);
    if (out->scratchpad_bytes > 0)
        CGP_TRY(make_memory(&out->scratchpad, descriptor, dnnl_query_scratchpad_md, 0));
    return CGP_OK;
}

cgp_status cgp__matmul_create(cgp__matmul *out, const cgp__product *product) {
    if (product->m == 0) return CGP_OK;
    dnnl_primitive_desc_t descriptor = NULL;
    pthread_mutex_lock(&making);
    cgp_status status = make_descriptor(&descriptor, product);
    if (status == CGP_OK) status = fill(out, descriptor, product->bias);
    dnnl_primitive_desc_destroy(descriptor);
    pthread_mutex_unlock(&making);
    return status;
}

void cgp__matmul_destroy(cgp__matmul *matmul) {
    if (!matmul->primitive) return; /* it is made first */
    dnnl_memory_t const memories[] = {matmul->a, matmul->b, matmul->c, matmul->bias,
                                      matmul->scratchpad};
    pthread_mutex_lock(&making);
    for (size_t i = 0; i < sizeof memories / sizeof memories[0]; i++)
        dnnl_memory_destroy(memories[i]);
    dnnl_primitive_destroy(matmul->primitive);
    pthread_mutex_unlock(&making);
    *matmul = (cgp__matmul){0};
}

/* An operand of the run: nothing if the product has no such memory. */
static cgp_status put(dnnl_exec_arg_t *list, int *count, int name, dnnl_memory_t memory,
                      const void *address) {
    if (!memory) return CGP_OK;
    ONEDNN_TRY("address", dnnl_memory_set_data_handle(memory, (void *)(uintptr_t)address));
    list[(*count)++] = (dnnl_exec_arg_t){name, memory};
    return CGP_OK;
}

cgp_status cgp__matmul_run(const cgp__matmul *matmul, dnnl_stream_t stream, const float *a,
                           const float *b, const float *bias, float *c, void *scratchpad) {
    dnnl_exec_arg_t list[5];
    int n = 0;
    CGP_TRY(put(list, &n, DNNL_ARG_SRC, matmul->a, a));
    CGP_TRY(put(list, &n, DNNL_ARG_WEIGHTS, matmul->b, b));
    CGP_TRY(put(list, &n, DNNL_ARG_BIAS, matmul->bias, bias));
    CGP_TRY(put(list, &n, DNNL_ARG_DST, matmul->c, c));
    CGP_TRY(put(list, &n, DNNL_ARG_SCRATCHPAD, matmul->scratchpad, scratchpad));
    ONEDNN_TRY("matmul", dnnl_primitive_execute(matmul->primitive, stream, n, list));
    ONEDNN_TRY("stream", dnnl_stream_wait(stream));
    return CGP_OK;
}
