/* SPDX-License-Identifier: Apache-2.0 */
/* profile.c -- measures the times of a model's kernels on a device, op by op.
 *
 *     x ──► forward ──► y, saved         dy ──► backward ──► dx, dparam
 *     random numbers                     random numbers
 *
 * For each op, the profile makes the operands, runs the op's kernels in the order of a step
 * (forward, weight backward, input backward), and frees the operands. Operands are random numbers,
 * because the values in training are not zeros. No kernel's time depends on the particular numbers.
 * Backward reads the values that forward saved.
 *
 * In a step, all other ops run between two runs of a kernel. So the caches hold only one operand of
 * the kernel: the operand that the previous op has just made. This is x in forward and dy in
 * backward. For a device that shares the host's memory, the profile imitates this. Before each run,
 * it reads other memory, and then x or dy. */
#include "partition/partition.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bf16.h"
#include "model/model.h"
#include "plugin/find.h"

/* Before a run, memory as large as the largest cache is read, to empty the caches. If the system
 * reports a size outside MIN_CACHE .. MAX_CACHE, the nearer bound is used. If it reports no size,
 * MIN_CACHE is used. */
#define MIN_CACHE (32 << 20)
#define MAX_CACHE (256 << 20)
#define CACHE_LINE 64
/* Number of different random floats; longer operands repeat them. */
#define BLOCK 65536
#define MAX_BUFFERS                                                                                \
    (3 * CGP_OP_MAX_INPUTS + CGP_OP_MAX_SAVED + CGP_OP_MAX_STATE + 2 * CGP_OP_MAX_PARAMETERS + 10)

/* The time of a kernel. */
typedef struct measurement {
    cgp_kernel_spec spec;
    uint32_t dx;
    double seconds;
} measurement;

typedef struct profiler {
    const cgp__kernel_profile *options;
    const cgp_backend *backend;
    cgp_device_options device_options;
    cgp_device *device;
    /* events around a run of a kernel; NULL on a synchronous device */
    cgp_event *timer[2];
    /* [BLOCK] random numbers in -1 .. 1 */
    float *block;
    uint16_t *halves; /* the same numbers in bf16 */
    int32_t *integers;
    void *staged; /* [BLOCK] host memory for copies to a device with its own memory */
    double *runs; /* [repeats] */
    /* memory that is read before a run; NULL: none */
    char *other;
    size_t other_bytes;
    measurement *measured;
    int n_measured, measured_capacity;
    /* hash index of the entries of `measured`, by hash_of() */
    cgp__index measured_index;
    /* operands of the op that runs */
    struct {
        void *memory;
        size_t bytes;
    } buffers[MAX_BUFFERS];
    int n_buffers;
} profiler;

/* --- operands --- */

static void free_operands(profiler *p) {
    while (p->n_buffers > 0) {
        p->n_buffers--;
        p->backend->device.memory_destroy(p->device, p->buffers[p->n_buffers].memory,
                                          p->buffers[p->n_buffers].bytes);
    }
}

static cgp_status make_buffer(profiler *p, int64_t bytes, void **out) {
    char needed[32], left[32];
    *out = NULL;
    if (bytes == 0) return CGP_OK;
    if (bytes > cgp__memory_available())
        return cgp_fail(CGP_ELIMIT,
                        "memory: an operand needs %s but the machine has %s available "
                        "(fewer samples)",
                        cgp_bytes_text(bytes, needed, sizeof needed),
                        cgp_bytes_text(cgp__memory_available(), left, sizeof left));
    CGP_TRY(p->backend->device.memory_create(p->device, (size_t)bytes, out));
    p->buffers[p->n_buffers].memory = *out;
    p->buffers[p->n_buffers++].bytes = (size_t)bytes;
    return CGP_OK;
}

static cgp_status finish(const profiler *p) {
    return p->backend->streams ? p->backend->streams->finish(p->device) : CGP_OK;
}

/* Copy at most BLOCK floats from the host to memory of the device. */
static cgp_status put(const profiler *p, void *to, const void *from, size_t bytes) {
    if (p->staged) memcpy(p->staged, from, bytes);
    CGP_TRY(p->backend->device.copy(p->device, CGP_QUEUE_COMPUTE, (cgp_place){p->device, to},
                                    (cgp_place){NULL, p->staged ? p->staged : (void *)from},
                                    bytes));
    return finish(p);
}

/* Make `count` random elements of `type`. Integers are in 0 .. upper_bound - 1. */
static cgp_status make_random(profiler *p, cgp_dtype type, int64_t count, int64_t upper_bound,
                              void **out) {
    CGP_TRY(make_buffer(p, count * (int64_t)cgp_dtype_bytes(type), out));
    for (int64_t i = 0; type == CGP_I32 && i < BLOCK; i++)
        p->integers[i] = (int32_t)(0.5 * ((double)p->block[i] + 1) *
                                   (double)(upper_bound > 1 ? upper_bound - 1 : 0));
    const void *from = p->block;
    if (type == CGP_I32) from = p->integers;
    if (type == CGP_BF16) from = p->halves;
    for (int64_t at = 0; at < count; at += BLOCK) {
        const size_t n = (size_t)cgp__min(count - at, BLOCK), bytes = cgp_dtype_bytes(type);
        CGP_TRY(put(p, (char *)*out + (size_t)at * bytes, from, n * bytes));
    }
    return CGP_OK;
}

/* Return the upper bound of the integers in input k of an op. */
static int64_t upper_bound_of(const cgp__node *node, int k) {
    const cgp_op *op = node->use.op;
    return cgp__max(1, op->upper_bound ? op->upper_bound(&node->use, k) : 0);
}

static cgp_status make_value(profiler *p, const cgp_model *model, int value, int64_t n,
                             int64_t upper_bound, void **out) {
    const cgp_op_type *type = &model->values[value].type;
    const cgp_dtype on_device = type->dtype == CGP_F32 ? p->options->arithmetic.type : type->dtype;
    return make_random(p, on_device, n * cgp_shape_count(&type->shape), upper_bound, out);
}

static cgp_status make_parameters(profiler *p, const cgp_model *model, const cgp__node *node,
                                  cgp_kernel_args *args) {
    for (int k = 0; k < node->use.shapes.n_parameters; k++) {
        const int64_t count = cgp_shape_count(&model->params[node->params[k]].shape);
        void *memory = NULL;
        CGP_TRY(make_random(p, CGP_F32, count, 0, &memory));
        args->param[k] = memory;
        if (model->params[node->params[k]].frozen) continue;
        CGP_TRY(make_buffer(p, 4 * count, &memory));
        args->dparam[k] = memory;
    }
    return CGP_OK;
}

/* Initialize an op's state as for training. */
static cgp_status fill_state(const profiler *p, const cgp_op_state *state, char *to) {
    const int32_t number = (int32_t)state->begin;
    const void *begin = state->dtype == CGP_I32 ? (const void *)&number : &state->begin;
    for (int64_t i = 0; i < cgp_shape_count(&state->shape); i++)
        CGP_TRY(put(p, to + 4 * i, begin, 4));
    return CGP_OK;
}

static cgp_status make_saved_and_state(profiler *p, const cgp_model *model, const cgp__node *node,
                                       int64_t n, cgp_kernel_args *args) {
    for (int k = 0; k < node->use.shapes.n_saved; k++) {
        void *memory = NULL;
        CGP_TRY(make_buffer(p, cgp__type_bytes(&node->use.shapes.saved[k], n), &memory));
        args->saved[k] = memory;
    }
    for (int k = 0; k < node->use.shapes.n_state; k++) {
        const cgp_op_state *state = &model->states[node->first_state + k].info;
        CGP_TRY(make_buffer(p,
                            cgp_shape_count(&state->shape) * (int64_t)cgp_dtype_bytes(state->dtype),
                            &args->state[k]));
        CGP_TRY(fill_state(p, state, args->state[k]));
    }
    if (cgp__node_cache(node) > 0)
        CGP_TRY(
            make_random(p, p->options->arithmetic.type, cgp__node_cache(node), 0, &args->state[0]));
    return make_buffer(p, node->use.shapes.accumulator_bytes, &args->accumulator);
}

static cgp_status make_workspace(profiler *p, const cgp__node_kernels *kernels,
                                 cgp_kernel_args *args) {
    int64_t max = 0;
    for (int d = 0; d < CGP_OP_DIRECTIONS; d++) {
        int64_t bytes = 0;
        if (!kernels->has[d]) continue;
        CGP_TRY(p->backend->kernels.workspace(&p->device_options, &kernels->spec[d], &bytes));
        max = bytes > max ? bytes : max;
    }
    return make_buffer(p, max, &args->workspace);
}

/* Pack a kernel's parameters, if the kernel reads packed parameters. */
static cgp_status make_packed(profiler *p, const cgp_kernel_spec *spec, cgp_kernel_args *args) {
    int64_t bytes = 0;
    int layout = 0;
    void *memory = NULL;
    args->packed = NULL;
    if (!p->backend->kernels.packed || p->backend->packs_optionally) return CGP_OK;
    CGP_TRY(p->backend->kernels.packed(&p->device_options, spec, &bytes, &layout));
    if (bytes == 0) return CGP_OK;
    CGP_TRY(make_buffer(p, bytes, &memory));
    args->packed = memory;
    return p->backend->kernels.pack(p->device, spec, args->param, memory);
}

/* Make the per-step constants of a first micro-batch, with loss scales of 1, and the loss slot. */
static cgp_status make_values(profiler *p, cgp_kernel_args *args) {
    const cgp_step_values values = {0};
    const float one = 1;
    const int64_t bytes = (int64_t)(sizeof values + sizeof one);
    void *memory = NULL;
    CGP_TRY(make_buffer(p, bytes, &memory));
    CGP_TRY(put(p, memory, &values, sizeof values));
    CGP_TRY(put(p, (char *)memory + sizeof values, &one, sizeof one));
    args->values = memory;
    CGP_TRY(make_buffer(p, sizeof(double), &memory));
    args->losses = memory;
    return CGP_OK;
}

static cgp_status make_operands(profiler *p, const cgp_model *model,
                                const cgp__node_kernels *kernels, cgp_kernel_args *args) {
    const cgp__node *node = &model->nodes[kernels->node];
    const int64_t n = p->options->samples;
    const bool backward =
        kernels->has[CGP_OP_BACKWARD_INPUT] || kernels->has[CGP_OP_BACKWARD_WEIGHT];
    void *memory = NULL;
    for (int k = 0; k < node->n_inputs; k++) {
        CGP_TRY(make_value(p, model, node->inputs[k], n, upper_bound_of(node, k), &memory));
        args->x[k] = memory;
        if (kernels->dx & (1u << k))
            CGP_TRY(make_value(p, model, node->inputs[k], n, 0, &args->dx[k]));
    }
    if (node->output >= 0) {
        CGP_TRY(make_value(p, model, node->output, n, 0, &args->y));
        if (backward) CGP_TRY(make_value(p, model, node->output, n, 0, &memory));
        args->dy = backward ? memory : NULL;
    }
    CGP_TRY(make_values(p, args));
    CGP_TRY(make_parameters(p, model, node, args));
    CGP_TRY(make_saved_and_state(p, model, node, n, args));
    return make_workspace(p, kernels, args);
}

/* --- time --- */

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Run a kernel; *ns is its time. */
static cgp_status time_run(const profiler *p, cgp_kernel *kernel, const cgp_kernel_args *args,
                           int64_t *ns) {
    const cgp_backend_streams *streams = p->backend->streams;
    const int64_t start = cgp__now_ns();
    if (streams) CGP_TRY(streams->event_record(p->device, CGP_QUEUE_COMPUTE, p->timer[0]));
    CGP_TRY(p->backend->kernels.run(kernel, args));
    *ns = cgp__now_ns() - start;
    if (!streams) return CGP_OK;
    CGP_TRY(streams->event_record(p->device, CGP_QUEUE_COMPUTE, p->timer[1]));
    CGP_TRY(streams->event_sync(p->timer[1]));
    *ns = streams->event_time(p->timer[1]) - streams->event_time(p->timer[0]);
    return CGP_OK;
}

static void read_lines(const void *memory, size_t bytes) {
    const volatile char *at = memory;
    for (size_t i = 0; i < bytes; i += CACHE_LINE)
        (void)at[i];
}

/* Bring the caches into the state that they have in a step. Then they hold only the operands
 * `recent` [n], which the previous op has just made. */
static void empty_caches(const profiler *p, const void *const *recent, int n) {
    if (!p->other) return;
    read_lines(p->other, p->other_bytes);
    for (int i = 0; i < p->n_buffers; i++) {
        for (int k = 0; k < n; k++) {
            if (p->buffers[i].memory == recent[k]) read_lines(recent[k], p->buffers[i].bytes);
        }
    }
}

static cgp_status run_often(profiler *p, cgp_kernel *kernel, int direction, int n_inputs,
                            const cgp_kernel_args *args, double *seconds) {
    const int n = p->options->repeats;
    const bool forward = direction == CGP_OP_FORWARD;
    const void *const dy[] = {args->dy};
    const void *x[CGP_OP_MAX_INPUTS];
    int64_t took = 0;
    for (int k = 0; k < n_inputs; k++)
        x[k] = args->x[k];
    CGP_TRY(time_run(p, kernel, args, &took));
    for (int i = 0; i < n; i++) {
        empty_caches(p, forward ? x : dy, forward ? n_inputs : 1);
        CGP_TRY(time_run(p, kernel, args, &took));
        p->runs[i] = 1e-9 * (double)took;
    }
    qsort(p->runs, (size_t)n, sizeof *p->runs, by_size);
    *seconds = 0.5 * (p->runs[(n - 1) / 2] + p->runs[n / 2]);
    return CGP_OK;
}

static uint64_t hash_of(const cgp_kernel_spec *spec, uint32_t dx) {
    return cgp__hash(spec, sizeof *spec) + dx;
}

static bool find_measured(const profiler *p, const cgp__node_kernels *kernels, int d,
                          double *seconds) {
    const uint32_t dx = d == CGP_OP_BACKWARD_INPUT ? kernels->dx : 0;
    const uint64_t hash = hash_of(&kernels->spec[d], dx);
    uint32_t tried = 0;
    int i;
    while ((i = cgp__index_next(&p->measured_index, hash, &tried)) >= 0) {
        if (p->measured[i].dx != dx ||
            memcmp(&p->measured[i].spec, &kernels->spec[d], sizeof kernels->spec[d]) != 0)
            continue;
        *seconds = p->measured[i].seconds;
        return true;
    }
    return false;
}

static cgp_status measure(profiler *p, const cgp__node_kernels *kernels, int d, int n_inputs,
                          cgp_kernel_args *args, double *seconds) {
    cgp_kernel *kernel = NULL;
    if (!cgp__grow(&p->measured, &p->measured_capacity, p->n_measured + 1, sizeof *p->measured))
        return cgp__no_memory("profile", sizeof *p->measured);
    CGP_TRY(make_packed(p, &kernels->spec[d], args));
    CGP_TRY(p->backend->kernels.create(p->device, &kernels->spec[d], &kernel));
    args->first = d == CGP_OP_FORWARD; /* backward adds to gradients of parameters, as it does in
                                        * most micro-batches */
    const cgp_status status = run_often(p, kernel, d, n_inputs, args, seconds);
    p->backend->kernels.destroy(kernel);
    if (status != CGP_OK) return status;
    const uint32_t dx = d == CGP_OP_BACKWARD_INPUT ? kernels->dx : 0;
    if (!cgp__index_add(&p->measured_index, hash_of(&kernels->spec[d], dx), p->n_measured))
        return cgp__no_memory("profile", sizeof *p->measured);
    p->measured[p->n_measured++] =
        (measurement){.spec = kernels->spec[d], .dx = dx, .seconds = *seconds};
    return CGP_OK;
}

static cgp_status time_node(void *self, const cgp_model *model, const cgp__node_kernels *kernels,
                            double seconds[CGP_OP_DIRECTIONS]) {
    static const int order[] = {CGP_OP_FORWARD, CGP_OP_BACKWARD_WEIGHT, CGP_OP_BACKWARD_INPUT};
    profiler *p = self;
    bool all = true;
    for (int d = 0; d < CGP_OP_DIRECTIONS; d++)
        all = all && (!kernels->has[d] || find_measured(p, kernels, d, &seconds[d]));
    if (all) return CGP_OK;
    const cgp__node *node = &model->nodes[kernels->node];
    cgp_kernel_args args = {.training = true};
    cgp_status status = make_operands(p, model, kernels, &args);
    for (int i = 0; i < CGP_OP_DIRECTIONS && status == CGP_OK; i++) {
        const int d = order[i];
        if (kernels->has[d]) status = measure(p, kernels, d, node->n_inputs, &args, &seconds[d]);
    }
    (void)finish(p);
    free_operands(p);
    if (status == CGP_OK)
        cgp_log(CGP_LOG_INFO, "profile", "%s, %s: F %.3g s, I %.3g s, W %.3g s",
                node->use.op->is_loss ? "loss" : model->layers[node->layer], node->use.op->name,
                seconds[CGP_OP_FORWARD], seconds[CGP_OP_BACKWARD_INPUT],
                seconds[CGP_OP_BACKWARD_WEIGHT]);
    return status;
}

/* --- all --- */

/* Return an error if the size of an operand does not fit an int64_t. */
static cgp_status check_bytes(const cgp_model *model, int64_t samples) {
    for (int v = 0; v < model->n_values; v++) {
        const double bytes = (double)cgp__type_bytes(&model->values[v].type, 1);
        if (bytes * (double)samples > 0x1p50)
            return cgp_fail(
                CGP_ELIMIT,
                "memory: %lld samples of model %s need more than 2^50 bytes (fewer samples)",
                (long long)samples, model->name);
    }
    return CGP_OK;
}

static cgp_status make_other(profiler *p) {
    const int64_t largest = sysconf(_SC_LEVEL3_CACHE_SIZE);
    p->other_bytes = (size_t)cgp__min(cgp__max(largest, MIN_CACHE), MAX_CACHE);
    CGP_TRY(CGP__NEW(p->other, p->other_bytes, "profile"));
    /* write the memory first: unwritten pages all map to one page of zeros, which would stay in the
     * cache */
    memset(p->other, 1, p->other_bytes);
    return CGP_OK;
}

static cgp_status begin(profiler *p) {
    p->block = cgp__calloc(BLOCK, sizeof *p->block);
    p->integers = cgp__calloc(BLOCK, sizeof *p->integers);
    p->runs = cgp__calloc((size_t)p->options->repeats, sizeof *p->runs);
    p->halves = cgp__calloc(BLOCK, sizeof *p->halves);
    if (!p->block || !p->halves || !p->integers || !p->runs)
        return cgp__no_memory("profile", BLOCK * sizeof *p->block);
    const cgp__rng_key key = cgp__rng_derive(0, CGP__RNG_DATA, 0, 0);
    for (uint32_t i = 0; i < BLOCK; i += 4) {
        uint32_t words[4];
        cgp__philox(words, (const uint32_t[]){i, 0, 0, 0}, key);
        for (uint32_t k = 0; k < 4; k++)
            p->block[i + k] = (float)((double)words[k] * 0x1p-31 - 1);
    }
    for (int i = 0; i < BLOCK; i++)
        p->halves[i] = cgp__bf16_from_float(p->block[i]);
    CGP_TRY(p->backend->device.create(&p->device, &p->device_options));
    if (!p->backend->host_addressable)
        CGP_TRY(
            p->backend->device.host_memory_create(p->device, BLOCK * sizeof *p->block, &p->staged));
    /* A single run is meant to be quick and rough, so it does not empty the caches. */
    if (p->backend->host_addressable && p->options->repeats > 1) CGP_TRY(make_other(p));
    for (int i = 0; p->backend->streams && i < 2; i++)
        CGP_TRY(p->backend->streams->event_create(p->device, &p->timer[i]));
    return CGP_OK;
}

static void end(profiler *p) {
    for (int i = 0; i < 2; i++)
        if (p->timer[i]) p->backend->streams->event_destroy(p->timer[i]);
    if (p->staged)
        p->backend->device.host_memory_destroy(p->device, p->staged, BLOCK * sizeof *p->block);
    if (p->device) p->backend->device.destroy(p->device);
    cgp__index_release(&p->measured_index);
    free(p->other);
    free(p->measured);
    free(p->runs);
    free(p->integers);
    free(p->halves);
    free(p->block);
}

cgp_status cgp__profile_kernels(const cgp_model *model, const cgp__kernel_profile *options,
                                cgp_layer_cost *costs) {
    profiler p = {.options = options};
    const cgp__timer timer = {time_node, &p};
    cgp__device_name name;
    CGP_TRY(check_bytes(model, options->samples));
    CGP_TRY(cgp__device_named(options->device, &p.backend, &name));
    p.device_options = (cgp_device_options){.struct_size = sizeof p.device_options,
                                            .ordinal = name.ordinal,
                                            .threads = options->threads};
    cgp_status status = begin(&p);
    if (status == CGP_OK)
        status = cgp__layer_costs(model, options->samples, options->arithmetic, &timer, costs);
    end(&p);
    return status;
}
