/* elementwise.c -- ADD, POSITION, GELU, DROPOUT, EMBEDDING: operands handed to the loops.
 *
 * None saves anything. Where the gradient of an input is dy itself (ADD, POSITION, DROPOUT
 * outside training) and shares its memory, nothing is done. */
#include "backend/cpu/cpu.h"

static int64_t sample_size(const cgp__kernel *kernel) {
    return kernel->spec.geometry.rows * kernel->spec.geometry.out;
}

static int64_t size_of(const cgp__kernel *kernel) {
    return kernel->spec.n * sample_size(kernel);
}

/* Share the elements of all samples. */
static void share_elements(const cgp__kernel *kernel, const cgp__kernel_args *args,
                           cgp__cpu_part *part) {
    const cgp__cpu_call call = {kernel, args};
    cgp__cpu_share(kernel->device, size_of(kernel), CGP__CPU_SPLIT, part, &call);
}

/* --- ADD: y = x[0] + x[1] --- */

static void add_part(const void *work, int64_t begin, int64_t end, int thread) {
    const cgp__cpu_call *call = work;
    const cgp__kernel_args *args = call->args;
    const cgp_dtype type = call->kernel->spec.type;
    (void)thread;
    call->kernel->device->loops->add(type, cgp__cpu_at(type, args->y, begin),
                                     cgp__cpu_at(type, args->x[0], begin), type,
                                     cgp__cpu_at(type, args->x[1], begin), end - begin);
}

static cgp_status add_forward(const cgp__kernel *kernel, const cgp__kernel_args *args) {
    share_elements(kernel, args, add_part);
    return CGP_OK;
}

/* From the last input to the first: gradients of a value with two uses are added in that order,
 * and both may be one value. */
static cgp_status add_input(const cgp__kernel *kernel, const cgp__kernel_args *args) {
    for (int k = CGP__MAX_INPUTS - 1; k >= 0; k--)
        cgp__cpu_pass(kernel->device, kernel->spec.type, args->dx[k], args->dy, size_of(kernel),
                      cgp__cpu_adds(kernel, k));
    return CGP_OK;
}

const cgp__cpu_op cgp__cpu_add[CGP__DIRECTIONS] = {
    [CGP__FORWARD] = {add_forward, NULL},
    [CGP__BACKWARD_INPUT] = {add_input, NULL},
};

/* --- POSITION: y = x + weight [R, C], the same for every sample --- */

static void position_part(const void *work, int64_t begin, int64_t end, int thread) {
    const cgp__cpu_call *call = work;
    const int64_t size = sample_size(call->kernel);
    const cgp_dtype type = call->kernel->spec.type;
    (void)thread;
    for (int64_t e = begin, n; e < end; e += n) {
        const int64_t at = e % size; /* in its sample */
        n = size - at < end - e ? size - at : end - e;
        call->kernel->device->loops->add(type, cgp__cpu_at(type, call->args->y, e),
                                         cgp__cpu_at(type, call->args->x[0], e), CGP_F32,
                                         call->args->param[0] + at, n);
    }
}

static cgp_status position_forward(const cgp__kernel *kernel, const cgp__kernel_args *args) {
    share_elements(kernel, args, position_part);
    return CGP_OK;
}

static cgp_status position_input(const cgp__kernel *kernel, const cgp__kernel_args *args) {
    cgp__cpu_pass(kernel->device, kernel->spec.type, args->dx[0], args->dy, size_of(kernel),
                  cgp__cpu_adds(kernel, 0));
    return CGP_OK;
}

/* A sample is one row of the sum. */
static cgp_status position_weight(const cgp__kernel *kernel, const cgp__kernel_args *args) {
    cgp__cpu_sum_rows(kernel->device, args->dparam[0], kernel->spec.type, args->dy,
                      kernel->spec.n, sample_size(kernel), !args->first);
    return CGP_OK;
}

const cgp__cpu_op cgp__cpu_position[CGP__DIRECTIONS] = {
    [CGP__FORWARD] = {position_forward, NULL},
    [CGP__BACKWARD_INPUT] = {position_input, NULL},
    [CGP__BACKWARD_WEIGHT] = {position_weight, NULL},
};

/* --- GELU --- */

static void gelu_forward_part(const void *work, int64_t begin, int64_t end, int thread) {
    const cgp__cpu_call *call = work;
    const cgp_dtype type = call->kernel->spec.type;
    (void)thread;
    call->kernel->device->loops->gelu_forward(type, cgp__cpu_at(type, call->args->y, begin),
                                              cgp__cpu_at(type, call->args->x[0], begin),
                                              end - begin);
}

static void gelu_input_part(const void *work, int64_t begin, int64_t end, int thread) {
    const cgp__cpu_call *call = work;
    const cgp__kernel_args *args = call->args;
    const cgp_dtype type = call->kernel->spec.type;
    (void)thread;
    call->kernel->device->loops->gelu_backward(
        type, cgp__cpu_at(type, args->dx[0], begin), cgp__cpu_at(type, args->x[0], begin),
        cgp__cpu_at(type, args->dy, begin), end - begin, cgp__cpu_adds(call->kernel, 0));
}

static cgp_status gelu_forward(const cgp__kernel *kernel, const cgp__kernel_args *args) {
    share_elements(kernel, args, gelu_forward_part);
    return CGP_OK;
}

static cgp_status gelu_input(const cgp__kernel *kernel, const cgp__kernel_args *args) {
    if (args->dx[0]) share_elements(kernel, args, gelu_input_part);
    return CGP_OK;
}

const cgp__cpu_op cgp__cpu_gelu[CGP__DIRECTIONS] = {
    [CGP__FORWARD] = {gelu_forward, NULL},
    [CGP__BACKWARD_INPUT] = {gelu_input, NULL},
};

/* --- DROPOUT: elements are numbered within a sample, so that is what blocks are of --- */

typedef struct drop {
    cgp__cpu_call call;
    void *to;
    const void *from;
    bool add;
    int64_t blocks; /* in a sample */
} drop;

/* Blocks of all samples. */
static void drop_part(const void *work, int64_t begin, int64_t end, int thread) {
    const drop *d = work;
    const int64_t size = sample_size(d->call.kernel);
    const cgp_dtype type = d->call.kernel->spec.type;
    (void)thread;
    for (int64_t block = begin; block < end; block++) {
        const int64_t sample = block / d->blocks, first = block % d->blocks * CGP__CPU_SPLIT;
        const int64_t last = first + CGP__CPU_SPLIT < size ? first + CGP__CPU_SPLIT : size;
        cgp__cpu_mask mask;
        (void)cgp__cpu_mask_of(&mask, d->call.kernel, d->call.args, sample);
        d->call.kernel->device->loops->dropout(type, cgp__cpu_at(type, d->to, sample * size),
                                               cgp__cpu_at(type, d->from, sample * size), first,
                                               last, &mask, d->add);
    }
}

static void run_drop(const cgp__kernel *kernel, const cgp__kernel_args *args, void *to,
                     const void *from, bool add) {
    const int64_t size = sample_size(kernel);
    const int64_t blocks = (size + CGP__CPU_SPLIT - 1) / CGP__CPU_SPLIT;
    const drop work = {{kernel, args}, to, from, add, blocks};
    cgp__cpu_mask mask;
    if (cgp__cpu_mask_of(&mask, kernel, args, 0))
        cgp__cpu_share(kernel->device, kernel->spec.n * blocks, cgp__cpu_block_rows(size),
                       drop_part, &work);
    else
        cgp__cpu_pass(kernel->device, kernel->spec.type, to, from, size_of(kernel), add);
}

static cgp_status dropout_forward(const cgp__kernel *kernel, const cgp__kernel_args *args) {
    run_drop(kernel, args, args->y, args->x[0], false);
    return CGP_OK;
}

static cgp_status dropout_input(const cgp__kernel *kernel, const cgp__kernel_args *args) {
    if (args->dx[0]) run_drop(kernel, args, args->dx[0], args->dy, cgp__cpu_adds(kernel, 0));
    return CGP_OK;
}

const cgp__cpu_op cgp__cpu_dropout[CGP__DIRECTIONS] = {
    [CGP__FORWARD] = {dropout_forward, NULL},
    [CGP__BACKWARD_INPUT] = {dropout_input, NULL},
};

/* --- EMBEDDING: y [N, C] = weight[ids]; dweight[ids] += dy, in the order of rows --- */

static void embedding_forward_part(const void *work, int64_t begin, int64_t end, int thread) {
    const cgp__cpu_call *call = work;
    const int64_t width = call->kernel->spec.geometry.out;
    const float *weight = call->args->param[0];
    const int32_t *ids = call->args->x[0];
    const cgp_dtype type = call->kernel->spec.type;
    (void)thread;
    for (int64_t row = begin; row < end; row++)
        call->kernel->device->loops->convert(type,
                                             cgp__cpu_at(type, call->args->y, row * width),
                                             CGP_F32, weight + ids[row] * width, width);
}

static cgp_status embedding_forward(const cgp__kernel *kernel, const cgp__kernel_args *args) {
    cgp__cpu_share_rows(kernel, args, kernel->spec.geometry.out, embedding_forward_part);
    return CGP_OK;
}

/* Some columns of all rows: several rows may have one id. */
static void embedding_weight_part(const void *work, int64_t begin, int64_t end, int thread) {
    const cgp__cpu_call *call = work;
    const int64_t rows = cgp__cpu_rows(call->kernel), width = call->kernel->spec.geometry.out;
    const int32_t *ids = call->args->x[0];
    const cgp_dtype type = call->kernel->spec.type;
    (void)thread;
    for (int64_t row = 0; row < rows; row++) {
        float *to = call->args->dparam[0] + ids[row] * width + begin;
        const void *dy = cgp__cpu_at(type, call->args->dy, row * width + begin);
        call->kernel->device->loops->add(CGP_F32, to, to, type, dy, end - begin);
    }
}

static cgp_status embedding_weight(const cgp__kernel *kernel, const cgp__kernel_args *args) {
    const int64_t width = kernel->spec.geometry.out;
    const cgp__cpu_call call = {kernel, args};
    if (args->first)
        cgp__cpu_clear(kernel->device, args->dparam[0], kernel->spec.geometry.in * width);
    cgp__cpu_share(kernel->device, width, cgp__cpu_block_columns(cgp__cpu_rows(kernel), width),
                   embedding_weight_part, &call);
    return CGP_OK;
}

const cgp__cpu_op cgp__cpu_embedding[CGP__DIRECTIONS] = {
    [CGP__FORWARD] = {embedding_forward, NULL},
    [CGP__BACKWARD_WEIGHT] = {embedding_weight, NULL},
};
