/* SPDX-License-Identifier: Apache-2.0 */
/* backend.c -- the `cpu` backend's table.
 *
 * A kernel is its spec and the function that runs it: its workspace follows from the spec and the number of threads, so the plan
 * knows it without a device. */
#include "backend/cpu/cpu.h"
#include "backend/running_stats.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    const cgp__cpu_op *op; /* [CGP__DIRECTIONS]; NULL, or run == NULL: no such kernel */
} ops[CGP__OP_KINDS] = {
    [CGP__OP_EMBEDDING] = {"embedding", cgp__cpu_embedding},
    [CGP__OP_POSITION] = {"position", cgp__cpu_position},
    [CGP__OP_ADD] = {"add", cgp__cpu_add},
    [CGP__OP_LINEAR] = {"linear", cgp__cpu_linear},
    [CGP__OP_LAYER_NORM] = {"layer_norm", cgp__cpu_layer_norm},
    [CGP__OP_GELU] = {"gelu", cgp__cpu_gelu},
    [CGP__OP_GELU_TANH] = {"gelu_tanh", cgp__cpu_gelu_tanh},
    [CGP__OP_ATTENTION] = {"attention", cgp__cpu_attention},
    [CGP__OP_DROPOUT] = {"dropout", cgp__cpu_dropout},
    [CGP__OP_CROSS_ENTROPY] = {"cross_entropy", cgp__cpu_cross_entropy},
    [CGP__OP_ARGMAX] = {"argmax", cgp__cpu_argmax},
    [CGP__OP_BCE] = {"bce_with_logits", cgp__cpu_bce},
    [CGP__OP_RELU] = {"relu", cgp__cpu_relu},
    [CGP__OP_DROPOUT2D] = {"dropout2d", cgp__cpu_dropout2d},
    [CGP__OP_FLATTEN] = {"flatten", cgp__cpu_flatten},
    [CGP__OP_CONV2D] = {"conv2d", cgp__cpu_conv2d},
    [CGP__OP_MAX_POOL] = {"max_pool", cgp__cpu_max_pool},
    [CGP__OP_AVERAGE_POOL] = {"average_pool", cgp__cpu_average_pool},
    [CGP__OP_UPSAMPLE] = {"upsample", cgp__cpu_upsample},
    [CGP__OP_PAD] = {"pad", cgp__cpu_pad},
    [CGP__OP_CONCAT] = {"concat", cgp__cpu_concat},
    [CGP__OP_BATCH_NORM] = {"batch_norm", cgp__cpu_batch_norm},
    [CGP__OP_INSTANCE_NORM] = {"instance_norm", cgp__cpu_instance_norm},
};

static void add(cgp__device *device, float *to, const float *from, int64_t n) {
    cgp__cpu_pass(device, CGP_F32, to, from, n, true);
}

static int64_t custom_workspace(const cgp__kernel_spec *spec, int threads) {
    return spec->attributes.custom->workspace(spec, threads);
}

static cgp_status custom_run(const cgp__kernel *kernel, const cgp__kernel_args *args) {
    const cgp__custom_host host = {.device = kernel->device,
                                   .threads = kernel->device->threads,
                                   .parallel_for = cgp__cpu_parallel_for,
                                   .convert = cgp__cpu_convert,
                                   .add = add};
    return kernel->spec.attributes.custom->run(&host, &kernel->spec, args);
}

static const cgp__cpu_op custom = {custom_run, custom_workspace};

static cgp_status find_op(const cgp__kernel_spec *spec, const cgp__cpu_op **out) {
    static const char *const directions[] = {"forward", "backward input", "backward weight"};
    if (spec->op == CGP__OP_CUSTOM) {
        *out = &custom;
        return CGP_OK;
    }
    if ((unsigned)spec->op >= CGP__OP_KINDS || (unsigned)spec->direction >= CGP__DIRECTIONS)
        return cgp_fail(CGP_EINVAL, "cpu: expects an op and a direction, got %d and %d",
                        (int)spec->op, (int)spec->direction);
    const cgp__cpu_op *op = ops[spec->op].op;
    if (!op || !op[spec->direction].run)
        return cgp_fail(CGP_EINVAL, "cpu: expects a direction that %s has, got %s",
                        ops[spec->op].name, directions[spec->direction]);
    if (spec->n < 1 || spec->attributes.rows < 1)
        return cgp_fail(CGP_EINVAL,
                        "cpu: expects %s of 1 or more rows, got %" PRId64
                        " samples of %" PRId64,
                        ops[spec->op].name, spec->n, spec->attributes.rows);
    *out = &op[spec->direction];
    return CGP_OK;
}

static cgp_status workspace(const cgp__kernel_spec *spec, int threads, int64_t *bytes) {
    const cgp__cpu_op *op = NULL;
    CGP_TRY(find_op(spec, &op));
    *bytes = op->workspace ? cgp__align_up(op->workspace(spec, threads)) : 0;
    return CGP_OK;
}

static void kernel_destroy(cgp__kernel *kernel) {
    free(kernel);
}

static cgp_status kernel_create(cgp__device *device, const cgp__kernel_spec *spec,
                                cgp__kernel **out) {
    const cgp__cpu_op *op = NULL;
    CGP_TRY(find_op(spec, &op));
    cgp__kernel *kernel = cgp__calloc(1, sizeof *kernel);
    if (!kernel) return cgp__no_memory("cpu: kernel", sizeof *kernel);
    if (spec->type == CGP_BF16) (void)cgp__cpu_tiles_of(device);
    *kernel = (cgp__kernel){.device = device, .spec = *spec, .op = op};
    *out = kernel;
    return CGP_OK;
}

static cgp_status kernel_run(cgp__kernel *kernel, const cgp__kernel_args *args) {
    return kernel->op->run(kernel, args);
}

static void copy(cgp__device *device, void *to, const void *from, size_t bytes) {
    (void)device;
    if (bytes) memcpy(to, from, bytes);
}

static void convert(cgp__device *device, cgp_dtype to_type, void *to, cgp_dtype from_type,
                    const void *from, int64_t n) {
    cgp__cpu_convert(device, to_type, to, from_type, from, n);
}

static void update(cgp__device *device, const cgp__update *args) {
    cgp__cpu_update(device, args);
}

static double sum_squares(cgp__device *device, const float *x, int64_t n) {
    return cgp__cpu_sum_squares(device, x, n);
}

static void commit(cgp__device *device, const cgp__kernel_spec *spec,
                   const cgp__kernel_args *args) {
    (void)device;
    if (spec->op == CGP__OP_CUSTOM)
        spec->attributes.custom->commit(spec, args);
    else
        cgp__running_stats_commit(spec, args);
}

static int check_commit(cgp__device *device, const cgp__kernel_spec *spec,
                        const cgp__kernel_args *args) {
    (void)device;
    return cgp__running_stats_check(spec, args);
}

const cgp__backend cgp__backend_cpu = {
    .name = "cpu",
    .device_create = cgp__cpu_device_create,
    .device_destroy = cgp__cpu_device_destroy,
    .memory_create = cgp__cpu_memory_create,
    .memory_destroy = cgp__cpu_memory_destroy,
    .copy = copy,
    .convert = convert,
    .workspace = workspace,
    .kernel_create = kernel_create,
    .kernel_run = kernel_run,
    .kernel_destroy = kernel_destroy,
    .fuses = true,
    .commit = commit,
    .check_commit = check_commit,
    .update = update,
    .add = add,
    .sum_squares = sum_squares,
    .find_nonfinite = cgp__cpu_find_nonfinite,
};
