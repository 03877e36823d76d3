/* SPDX-License-Identifier: Apache-2.0 */
/* toy.c -- your own backend, in a plug-in: host memory, one thread, and plain loops for linear,
 * relu and cross_entropy in f32, with SGD updates. cgpipe/ext/backend.h is the contract;
 * cgpipe/ext/plugin.h says how the library finds a plug-in.
 *
 * The backend has no table `streams`, so the work of a call is complete when the call returns. Host
 * and kernels share memory (`host_addressable`). workspace() refuses other ops, and bf16. */
#include <cgpipe/ext/plugin.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>
#pragma GCC diagnostic ignored "-Wunused-parameter" /* the contract fixes signatures */

static const cgp_host *host; /* functions of the library */
typedef void toy_run(const cgp_kernel_spec *spec, const cgp_kernel_args *args);

struct cgp_device {
    int ordinal;
};
struct cgp_kernel {
    cgp_kernel_spec spec;
    toy_run *run;
};

/* --- kernels: operands and shapes as in the tables of cgpipe/ext/ops/ --- */

static int64_t rows_of(const cgp_kernel_spec *spec) {
    return spec->n * spec->attributes.rows;
}
static void put(float *to, int64_t i, bool adds, double value) {
    to[i] = (float)(adds ? to[i] + value : value);
}
/* Return the dot product of n elements of `a` and `b`, which are `a_step` and `b_step` apart. */
static double dot(int64_t n, const float *a, int64_t a_step, const float *b, int64_t b_step) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)a[i * a_step] * b[i * b_step];
    return sum;
}

/* y [rows, out] = x weight^T + bias */
static void linear_forward(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    const int64_t in = spec->attributes.in, out = spec->attributes.out;
    const float *x = args->x[0], *weight = args->param[0];
    for (int64_t k = 0; k < rows_of(spec) * out; k++) {
        const double bias = cgp_spec_linear(spec)->has_bias ? args->param[1][k % out] : 0;
        put(args->y, k, false, bias + dot(in, x + k / out * in, 1, weight + k % out * in, 1));
    }
}

/* dx [rows, in] = dy weight, added to dx if bit 0 of `add` is set. */
static void linear_input(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    const int64_t in = spec->attributes.in, out = spec->attributes.out;
    const float *dy = args->dy, *weight = args->param[0];
    for (int64_t k = 0; k < rows_of(spec) * in; k++)
        put(args->dx[0], k, spec->add & 1, dot(out, dy + k / in * out, 1, weight + k % in, in));
}

/* dweight [out, in] = dy^T x, dbias = sum of dy; NULL if frozen. Only `first` overwrites them. */
static void linear_weight(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    const int64_t in = spec->attributes.in, out = spec->attributes.out, rows = rows_of(spec);
    const float *x = args->x[0], *dy = args->dy, one = 1;
    for (int64_t k = 0; k < out * in && args->dparam[0]; k++)
        put(args->dparam[0], k, !args->first, dot(rows, dy + k / in, out, x + k % in, in));
    for (int64_t o = 0; o < out && args->dparam[1]; o++)
        put(args->dparam[1], o, !args->first, dot(rows, dy + o, out, &one, 0));
}

/* y = x if x > 0, otherwise slope * x. y and x may be the same memory. */
static void relu_forward(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    const float *x = args->x[0];
    for (int64_t i = 0; i < rows_of(spec) * spec->attributes.out; i++)
        put(args->y, i, false, x[i] > 0 ? x[i] : spec->attributes.slope * x[i]);
}

/* The backward of relu reads y, not x. dx and dy may be the same memory. */
static void relu_input(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    const float *y = args->y, *dy = args->dy;
    for (int64_t i = 0; i < rows_of(spec) * spec->attributes.out; i++)
        put(args->dx[0], i, spec->add & 1, y[i] > 0 ? dy[i] : spec->attributes.slope * dy[i]);
}

/* Sum log_sum + (max - x[target]) over rows; log_sum = log sum exp(x - max). Save max, log_sum. */
static void loss_forward(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    const int64_t classes = spec->attributes.in;
    const int32_t *target = args->x[1];
    double loss = 0;
    for (int64_t row = 0; row < rows_of(spec); row++) {
        const float *x = (const float *)args->x[0] + row * classes;
        double max = x[0], sum = 0;
        for (int64_t c = 1; c < classes; c++)
            max = fmax(max, x[c]);
        for (int64_t c = 0; c < classes; c++)
            sum += exp(x[c] - max);
        args->saved[0][row] = (float)max;
        args->saved[1][row] = (float)log(sum);
        if (target[row] != cgp_spec_cross_entropy(spec)->ignore)
            loss += log(sum) + (max - x[target[row]]);
    }
    if (args->losses) args->losses[args->values->loss_word + args->loss] = loss;
}

/* dx = scale (softmax(x) - [c == target]), and 0 in an ignored row. dx may be x. */
static void loss_input(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    const int64_t classes = spec->attributes.in, ignore = cgp_spec_cross_entropy(spec)->ignore;
    const float *x = args->x[0], scale = cgp_step_loss_scale(args->values, args->loss);
    const int32_t *target = args->x[1];
    for (int64_t i = 0; i < rows_of(spec) * classes; i++) {
        const int64_t row = i / classes, here = target[row];
        const double max = args->saved[0][row], log_sum = args->saved[1][row];
        const double slope = exp((x[i] - max) - log_sum) - (i % classes == here);
        put(args->dx[0], i, spec->add & 1, here == ignore ? 0 : scale * slope);
    }
}

/* Return the kernel of an op in a direction; NULL if there is none. */
static toy_run *find(const cgp_kernel_spec *spec) {
    static toy_run *const runs[CGP_OP_KINDS][CGP_OP_DIRECTIONS] = {
        [CGP_OP_LINEAR] = {linear_forward, linear_input, linear_weight},
        [CGP_OP_RELU] = {relu_forward, relu_input},
        [CGP_OP_CROSS_ENTROPY] = {loss_forward, loss_input}};
    const cgp_op_cross_entropy *loss = &spec->attributes.cross_entropy;
    if (spec->op >= CGP_OP_KINDS || spec->type != CGP_F32) return NULL;
    if (spec->op == CGP_OP_LINEAR && cgp_spec_linear(spec)->transposed) return NULL;
    if (spec->op == CGP_OP_CROSS_ENTROPY && (loss->smoothing > 0 || loss->weighted)) return NULL;
    return runs[spec->op][spec->direction];
}
static cgp_status workspace(const cgp_device_options *options, const cgp_kernel_spec *spec,
                            int64_t *bytes) {
    *bytes = 0;
    if (find(spec)) return CGP_OK;
    return host->fail(CGP_EINVAL, "toy: has linear, relu and cross_entropy in f32 only");
}
static cgp_status kernel_create(cgp_device *device, const cgp_kernel_spec *spec, cgp_kernel **out) {
    if (!(*out = malloc(sizeof **out))) return host->fail(CGP_ENOMEM, "toy: out of memory");
    **out = (cgp_kernel){*spec, find(spec)};
    return CGP_OK;
}
static cgp_status kernel_run(cgp_kernel *kernel, const cgp_kernel_args *args) {
    const bool wanted = kernel->spec.direction != CGP_OP_BACKWARD_INPUT || args->dx[0];
    if (wanted) kernel->run(&kernel->spec, args);
    return CGP_OK;
}
static void kernel_destroy(cgp_kernel *kernel) {
    free(kernel);
}

/* --- devices, memory, and the calls between kernels --- */

static cgp_status count(int *out) {
    *out = 1;
    return CGP_OK;
}
static cgp_status memory(int ordinal, int64_t *bytes) {
    *bytes = host->memory_available();
    return CGP_OK;
}
static cgp_status device_create(cgp_device **out, const cgp_device_options *options) {
    if (options->ordinal != 0)
        return host->fail(CGP_EINVAL, "toy: expected ordinal 0, got %d", options->ordinal);
    if (!(*out = calloc(1, sizeof **out))) return host->fail(CGP_ENOMEM, "toy: out of memory");
    return CGP_OK;
}
static void device_destroy(cgp_device *device) {
    free(device);
}
static bool has_cores(const cgp_device *device) {
    return device->ordinal < 0; /* false: this device has no cores of its own */
}
static cgp_status memory_create(cgp_device *device, size_t bytes, void **out) {
    const size_t whole = (bytes | 63) + 1; /* rounded up to a multiple of 64 */
    if (!(*out = aligned_alloc(64, whole))) return host->fail(CGP_ENOMEM, "toy: out of memory");
    memset(*out, 0, whole);
    return CGP_OK;
}
static void memory_destroy(cgp_device *device, void *at, size_t bytes) {
    free(at);
}
static cgp_status copy(cgp_device *device, cgp_queue queue, cgp_place to, cgp_place from,
                       size_t bytes) {
    if (bytes > 0) memcpy(to.at, from.at, bytes);
    return CGP_OK;
}
/* This backend has no bf16, so nothing is converted; the call only copies the caller's tensors. */
static cgp_status convert(cgp_device *device, cgp_dtype to_type, void *to, cgp_dtype from_type,
                          const void *from, int64_t n) {
    if (to_type != from_type) return host->fail(CGP_EINVAL, "toy: has no bf16");
    if (n > 0) memcpy(to, from, 4 * (size_t)n); /* f32 or i32 */
    return CGP_OK;
}

/* No op of this backend has state. */
static cgp_status commit(cgp_device *device, const cgp_kernel_spec *spec,
                         const cgp_kernel_args *args) {
    return host->fail(CGP_EINVAL, "toy: has no op with state");
}
static cgp_status check_commit(cgp_device *device, const cgp_kernel_spec *spec,
                               const cgp_kernel_args *args, int64_t *index) {
    return commit(device, spec, args);
}
static cgp_status sum_squares(cgp_device *device, const float *x, int64_t n, double *sum) {
    *sum = dot(n, x, 1, x, 1);
    return CGP_OK;
}
static cgp_status find_nonfinite(cgp_device *device, const float *x, int64_t n, int64_t *index) {
    *index = -1;
    for (int64_t i = 0; i < n && *index < 0; i++)
        if (!isfinite(x[i])) *index = i;
    return CGP_OK;
}
static cgp_status add(cgp_device *device, float *to, const float *from, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        to[i] += from[i];
    return CGP_OK;
}
static cgp_status update(cgp_device *device, const cgp_update *updates, int n) {
    for (const cgp_update *u = updates; u < updates + n; u++) {
        if (u->rule != CGP_UPDATE_SGD || u->state[0])
            return host->fail(CGP_EINVAL, "toy: has SGD without momentum only");
        for (int64_t i = 0; i < u->n; i++) {
            const double g = u->values->gradient_scale * u->grad[i] + u->weight_decay * u->param[i];
            u->param[i] = (float)(u->param[i] - u->values->lr * g);
        }
    }
    return CGP_OK;
}

/* --- the tables --- */

/* clang-format off */
static const cgp_backend toy = {
    .struct_size = sizeof toy, .name = "toy", .host_addressable = true,
    .device = {.count = count, .memory = memory, .create = device_create, .destroy = device_destroy,
               .has_cores = has_cores, .memory_create = memory_create,
               .memory_destroy = memory_destroy, .copy = copy},
    .kernels = {.workspace = workspace, .create = kernel_create, .run = kernel_run, .add = add,
                .destroy = kernel_destroy, .commit = commit, .check_commit = check_commit,
                .sum_squares = sum_squares, .find_nonfinite = find_nonfinite, .update = update,
                .convert = convert}}; /* clang-format on */
static const cgp_backend *const backends[] = {&toy};
static const cgp_plugin plugin = {CGP_PLUGIN_HEADER, .name = "toy", .backends = backends,
                                  .n_backends = 1};

__attribute__((visibility("default"))) cgp_plugin_entry_function cgp_plugin_entry;
const cgp_plugin *cgp_plugin_entry(const cgp_host *of) {
    host = of;
    return host->abi == CGP_PLUGIN_ABI ? &plugin : NULL;
}
