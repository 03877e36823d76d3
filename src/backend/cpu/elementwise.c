/* SPDX-License-Identifier: Apache-2.0 */
/* elementwise.c -- ADD, POSITION, FLATTEN, GELU, RELU, DROPOUT, DROPOUT2D, BCE, EMBEDDING: operands handed to the loops.
 *
 * None saves anything. Where the gradient of an input is dy itself (ADD, POSITION, FLATTEN, dropouts
 * outside training) and shares its memory, nothing is done. */
#include "backend/cpu/cpu.h"

static int64_t sample_size(const cgp__kernel *kernel) {
    return kernel->spec.attributes.rows * kernel->spec.attributes.out;
}

static int64_t size_of(const cgp__kernel *kernel) {
    return kernel->spec.n * sample_size(kernel);
}

/* A block of the elements of one sample: its number among those of all samples, and where it lies. */
typedef struct piece {
    int64_t sample, begin, end;
} piece;

static int64_t pieces_of(int64_t size) {
    return (size + CGP__CPU_SPLIT - 1) / CGP__CPU_SPLIT;
}

static piece piece_of(int64_t number, int64_t size) {
    const int64_t begin = number % pieces_of(size) * CGP__CPU_SPLIT,
                  end = begin + CGP__CPU_SPLIT;
    return (piece){number / pieces_of(size), begin, end < size ? end : size};
}

/* Share the elements of all samples. */
static void share_elements(const cgp__kernel *kernel, const cgp__kernel_args *args,
                           cgp__cpu_part *part) {
    const cgp__cpu_call call = {kernel, args};
    cgp__cpu_parallel_for(kernel->device, size_of(kernel), CGP__CPU_SPLIT, part, &call);
}

/* --- ADD: y = x[0] + x[1], through a RELU if it ends in one, block by block while it is in the cache --- */

static void add_part(const void *work, int64_t begin, int64_t end, int thread) {
    const cgp__cpu_call *call = work;
    const cgp__kernel_args *args = call->args;
    const cgp_dtype type = call->kernel->spec.type;
    const cgp__cpu_kernels *loops = call->kernel->device->loops;
    const float slope = call->kernel->spec.attributes.slope;
    (void)thread;
    for (int64_t e = begin, n; e < end; e += n) {
        void *y = cgp__cpu_at(type, args->y, e);
        n = end - e < CGP__CPU_SPLIT ? end - e : CGP__CPU_SPLIT;
        loops->add(type, y, cgp__cpu_at(type, args->x[0], e), type,
                   cgp__cpu_at(type, args->x[1], e), n);
        if (slope != 1.0f) loops->relu_forward(type, y, y, n, slope);
    }
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

static cgp_status pass_input(const cgp__kernel *kernel, const cgp__kernel_args *args) {
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
    [CGP__BACKWARD_INPUT] = {pass_input, NULL},
    [CGP__BACKWARD_WEIGHT] = {position_weight, NULL},
};

/* --- FLATTEN: the elements stay where they are --- */

static cgp_status flatten_forward(const cgp__kernel *kernel, const cgp__kernel_args *args) {
    cgp__cpu_pass(kernel->device, kernel->spec.type, args->y, args->x[0], size_of(kernel),
                  false);
    return CGP_OK;
}

const cgp__cpu_op cgp__cpu_flatten[CGP__DIRECTIONS] = {
    [CGP__FORWARD] = {flatten_forward, NULL},
    [CGP__BACKWARD_INPUT] = {pass_input, NULL},
};

/* --- GELU --- */

/* Both forms differ in their loops only. */
typedef void gelu_forward_loop(cgp_dtype type, void *y, const void *x, int64_t n);
typedef void gelu_backward_loop(cgp_dtype type, void *dx, const void *x, const void *dy,
                                int64_t n, bool add);

static void gelu_forward_part(const void *work, int64_t begin, int64_t end, int thread) {
    const cgp__cpu_call *call = work;
    const cgp__cpu_kernels *loops = call->kernel->device->loops;
    const bool erf_form = call->kernel->spec.op == CGP__OP_GELU;
    gelu_forward_loop *loop = erf_form ? loops->gelu_forward : loops->gelu_tanh_forward;
    const cgp_dtype type = call->kernel->spec.type;
    (void)thread;
    loop(type, cgp__cpu_at(type, call->args->y, begin),
         cgp__cpu_at(type, call->args->x[0], begin), end - begin);
}

static void gelu_input_part(const void *work, int64_t begin, int64_t end, int thread) {
    const cgp__cpu_call *call = work;
    const cgp__kernel_args *args = call->args;
    const cgp__cpu_kernels *loops = call->kernel->device->loops;
    const bool erf_form = call->kernel->spec.op == CGP__OP_GELU;
    gelu_backward_loop *loop = erf_form ? loops->gelu_backward : loops->gelu_tanh_backward;
    const cgp_dtype type = call->kernel->spec.type;
    (void)thread;
    loop(type, cgp__cpu_at(type, args->dx[0], begin), cgp__cpu_at(type, args->x[0], begin),
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

const cgp__cpu_op cgp__cpu_gelu_tanh[CGP__DIRECTIONS] = {
    [CGP__FORWARD] = {gelu_forward, NULL},
    [CGP__BACKWARD_INPUT] = {gelu_input, NULL},
};

/* --- RELU --- */

static void relu_forward_part(const void *work, int64_t begin, int64_t end, int thread) {
    const cgp__cpu_call *call = work;
    const cgp_dtype type = call->kernel->spec.type;
    (void)thread;
    call->kernel->device->loops->relu_forward(type, cgp__cpu_at(type, call->args->y, begin),
                                              cgp__cpu_at(type, call->args->x[0], begin),
                                              end - begin, call->kernel->spec.attributes.slope);
}

static void relu_input_part(const void *work, int64_t begin, int64_t end, int thread) {
    const cgp__cpu_call *call = work;
    const cgp__kernel_args *args = call->args;
    const cgp__kernel_spec *spec = &call->kernel->spec;
    (void)thread;
    call->kernel->device->loops->relu_backward(
        spec->type, cgp__cpu_at(spec->type, args->dx[0], begin),
        cgp__cpu_at(spec->type, args->y, begin), cgp__cpu_at(spec->type, args->dy, begin),
        end - begin, spec->attributes.slope, cgp__cpu_adds(call->kernel, 0));
}

static cgp_status relu_forward(const cgp__kernel *kernel, const cgp__kernel_args *args) {
    share_elements(kernel, args, relu_forward_part);
    return CGP_OK;
}

static cgp_status relu_input(const cgp__kernel *kernel, const cgp__kernel_args *args) {
    if (args->dx[0]) share_elements(kernel, args, relu_input_part);
    return CGP_OK;
}

const cgp__cpu_op cgp__cpu_relu[CGP__DIRECTIONS] = {
    [CGP__FORWARD] = {relu_forward, NULL},
    [CGP__BACKWARD_INPUT] = {relu_input, NULL},
};

/* --- DROPOUT: elements are numbered within a sample, so that is what blocks are of --- */

typedef struct drop {
    cgp__cpu_call call;
    void *to;
    const void *from;
    bool add;
} drop;

/* Pieces of all samples. */
static void drop_part(const void *work, int64_t begin, int64_t end, int thread) {
    const drop *d = work;
    const int64_t size = sample_size(d->call.kernel);
    const cgp_dtype type = d->call.kernel->spec.type;
    (void)thread;
    for (int64_t number = begin; number < end; number++) {
        const piece p = piece_of(number, size);
        cgp__cpu_mask mask;
        (void)cgp__cpu_mask_of(&mask, d->call.kernel, d->call.args, p.sample);
        d->call.kernel->device->loops->dropout(type, cgp__cpu_at(type, d->to, p.sample * size),
                                               cgp__cpu_at(type, d->from, p.sample * size),
                                               p.begin, p.end, &mask, d->add);
    }
}

static void run_drop(const cgp__kernel *kernel, const cgp__kernel_args *args, void *to,
                     const void *from, bool add) {
    const int64_t size = sample_size(kernel);
    const drop work = {{kernel, args}, to, from, add};
    cgp__cpu_mask mask;
    if (cgp__cpu_mask_of(&mask, kernel, args, 0))
        cgp__cpu_parallel_for(kernel->device, kernel->spec.n * pieces_of(size),
                              cgp__cpu_block_rows(size), drop_part, &work);
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

/* --- DROPOUT2D: a sample's channels have factors, as many elements of DROPOUT; they are made first --- */

static int64_t drop2d_temporaries(const cgp__kernel_spec *spec, int threads) {
    (void)threads;
    return spec->n * cgp__cpu_padded(spec->attributes.out) * (int64_t)sizeof(float);
}

static float *factors_of(const drop *d, int64_t sample) {
    return (float *)d->call.args->workspace +
           sample * cgp__cpu_padded(d->call.kernel->spec.attributes.out);
}

static void drop2d_part(const void *work, int64_t begin, int64_t end, int thread) {
    const drop *d = work;
    const cgp__kernel_spec *spec = &d->call.kernel->spec;
    const int64_t rows = spec->attributes.rows, width = spec->attributes.out;
    (void)thread;
    for (int64_t row = begin, n; row < end; row += n) {
        const int64_t sample = row / rows, left = (sample + 1) * rows - row;
        n = left < end - row ? left : end - row;
        d->call.kernel->device->loops->dropout_channels(
            spec->type, cgp__cpu_at(spec->type, d->to, row * width),
            cgp__cpu_at(spec->type, d->from, row * width), n, width, factors_of(d, sample),
            d->add);
    }
}

static void run_drop2d(const cgp__kernel *kernel, const cgp__kernel_args *args, void *to,
                       const void *from, bool add) {
    const int64_t width = kernel->spec.attributes.out;
    const drop work = {{kernel, args}, to, from, add};
    cgp__cpu_mask mask;
    if (!cgp__cpu_mask_of(&mask, kernel, args, 0)) {
        cgp__cpu_pass(kernel->device, kernel->spec.type, to, from, size_of(kernel), add);
        return;
    }
    for (int64_t sample = 0; sample < kernel->spec.n; sample++) {
        float *factors = factors_of(&work, sample);
        for (int64_t c = 0; c < width; c++)
            factors[c] = 1.0f;
        (void)cgp__cpu_mask_of(&mask, kernel, args, sample);
        kernel->device->loops->dropout(CGP_F32, factors, factors, 0, width, &mask, false);
    }
    cgp__cpu_parallel_for(kernel->device, cgp__cpu_rows(kernel), cgp__cpu_block_rows(width),
                          drop2d_part, &work);
}

static cgp_status drop2d_forward(const cgp__kernel *kernel, const cgp__kernel_args *args) {
    run_drop2d(kernel, args, args->y, args->x[0], false);
    return CGP_OK;
}

static cgp_status drop2d_input(const cgp__kernel *kernel, const cgp__kernel_args *args) {
    if (args->dx[0]) run_drop2d(kernel, args, args->dx[0], args->dy, cgp__cpu_adds(kernel, 0));
    return CGP_OK;
}

const cgp__cpu_op cgp__cpu_dropout2d[CGP__DIRECTIONS] = {
    [CGP__FORWARD] = {drop2d_forward, drop2d_temporaries},
    [CGP__BACKWARD_INPUT] = {drop2d_input, drop2d_temporaries},
};

/* --- BCE: dx may overwrite the logits --- */

/* One sum for each piece, added up afterwards. */
static int64_t bce_temporaries(const cgp__kernel_spec *spec, int threads) {
    (void)threads;
    return spec->n * pieces_of(spec->attributes.rows * spec->attributes.out) *
           (int64_t)sizeof(double);
}

static void bce_forward_part(const void *work, int64_t begin, int64_t end, int thread) {
    const cgp__cpu_call *call = work;
    const int64_t size = sample_size(call->kernel);
    const cgp_dtype type = call->kernel->spec.type;
    double *sums = call->args->workspace;
    (void)thread;
    for (int64_t number = begin; number < end; number++) {
        const piece p = piece_of(number, size);
        const int64_t at = p.sample * size + p.begin;
        call->kernel->device->loops->bce_forward(
            &sums[number], type, cgp__cpu_at(type, call->args->x[0], at),
            cgp__cpu_at(type, call->args->x[1], at), p.end - p.begin);
    }
}

static cgp_status bce_forward(const cgp__kernel *kernel, const cgp__kernel_args *args) {
    const int64_t size = sample_size(kernel), pieces = kernel->spec.n * pieces_of(size);
    const cgp__cpu_call call = {kernel, args};
    const double *sums = args->workspace;
    cgp__cpu_parallel_for(kernel->device, pieces, cgp__cpu_block_rows(size), bce_forward_part,
                          &call);
    *args->loss = 0.0;
    for (int64_t i = 0; i < pieces; i++)
        *args->loss += sums[i];
    return CGP_OK;
}

static void bce_input_part(const void *work, int64_t begin, int64_t end, int thread) {
    const cgp__cpu_call *call = work;
    const cgp__kernel_args *args = call->args;
    const cgp_dtype type = call->kernel->spec.type;
    (void)thread;
    call->kernel->device->loops->bce_backward(type, cgp__cpu_at(type, args->dx[0], begin),
                                              cgp__cpu_at(type, args->x[0], begin),
                                              cgp__cpu_at(type, args->x[1], begin), end - begin,
                                              args->loss_scale, cgp__cpu_adds(call->kernel, 0));
}

static cgp_status bce_input(const cgp__kernel *kernel, const cgp__kernel_args *args) {
    if (args->dx[0]) share_elements(kernel, args, bce_input_part);
    return CGP_OK;
}

const cgp__cpu_op cgp__cpu_bce[CGP__DIRECTIONS] = {
    [CGP__FORWARD] = {bce_forward, bce_temporaries},
    [CGP__BACKWARD_INPUT] = {bce_input, NULL},
};

/* --- EMBEDDING: y [N, C] = weight[ids]; dweight[ids] += dy, in the order of rows --- */

static void embedding_forward_part(const void *work, int64_t begin, int64_t end, int thread) {
    const cgp__cpu_call *call = work;
    const int64_t width = call->kernel->spec.attributes.out;
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
    cgp__cpu_parallel_for_rows(kernel, args, kernel->spec.attributes.out,
                               embedding_forward_part);
    return CGP_OK;
}

/* Some columns of all rows: several rows may have one id. */
static void embedding_weight_part(const void *work, int64_t begin, int64_t end, int thread) {
    const cgp__cpu_call *call = work;
    const int64_t rows = cgp__cpu_rows(call->kernel), width = call->kernel->spec.attributes.out;
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
    const int64_t width = kernel->spec.attributes.out;
    const cgp__cpu_call call = {kernel, args};
    if (args->first)
        cgp__cpu_clear(kernel->device, args->dparam[0], kernel->spec.attributes.in * width);
    cgp__cpu_parallel_for(kernel->device, width,
                          cgp__cpu_block_columns(cgp__cpu_rows(kernel), width),
                          embedding_weight_part, &call);
    return CGP_OK;
}

const cgp__cpu_op cgp__cpu_embedding[CGP__DIRECTIONS] = {
    [CGP__FORWARD] = {embedding_forward, NULL},
    [CGP__BACKWARD_WEIGHT] = {embedding_weight, NULL},
};
