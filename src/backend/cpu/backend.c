/* SPDX-License-Identifier: Apache-2.0 */
/* backend.c -- the `cpu` backend's table.
 *
 * A kernel consists of a spec and the function that runs it. The size of the kernel's workspace
 * follows from the spec and the number of threads, so a plan needs no device to compute this
 * size. */
#include "backend/cpu/cpu.h"
#include "backend/host.h"
#include "backend/registry.h"

#include <stdlib.h>

#define ENTRY(kind, name, family) cgp__cpu_##name,
static const cgp__cpu_op *const ops[CGP_OP_KINDS] = {CGP_OPS(ENTRY)};

static const cgp__cpu_prepack *const prepacks[CGP_OP_KINDS] = {
    [CGP_OP_LINEAR] = &cgp__cpu_linear_prepack,
};

static cgp_status add(cgp_device *device, float *to, const float *from, int64_t n) {
    cgp__cpu_pass(device, CGP_F32, to, from, n, true);
    return CGP_OK;
}

static cgp_status custom_run(const cgp_kernel *kernel, const cgp_kernel_args *args) {
    const cgp__host host = {.device = kernel->device,
                            .threads = kernel->device->threads,
                            .parallel_for = cgp__cpu_parallel_for,
                            .convert = cgp__cpu_convert,
                            .add = add};
    return cgp__custom_run(&host, &kernel->spec, args);
}

static const cgp__cpu_op custom = {custom_run, cgp__custom_workspace};

static cgp_status find_op(const cgp_kernel_spec *spec, const cgp__cpu_op **out) {
    if (spec->op == CGP_OP_CUSTOM) {
        *out = &custom;
        return CGP_OK;
    }
    CGP_TRY(cgp__kernel_check("cpu", spec));
    *out = &ops[spec->op][spec->direction];
    return (*out)->run ? CGP_OK : cgp__kernel_missing("cpu", spec);
}

static cgp_status workspace(const cgp_device_options *options, const cgp_kernel_spec *spec,
                            int64_t *bytes) {
    const cgp__cpu_op *op = NULL;
    CGP_TRY(find_op(spec, &op));
    *bytes = op->workspace ? cgp__align_up(op->workspace(spec, options->threads)) : 0;
    return CGP_OK;
}

/* Only bf16 kernels have prepacked weights. Every machine reserves memory for them, so that plans
 * are the same everywhere. A machine without AVX512_BF16 and AMX leaves that memory unused. */
static cgp_status packed(const cgp_device_options *options, const cgp_kernel_spec *spec,
                         int64_t *bytes, int *layout) {
    const bool built_in = spec->op != CGP_OP_CUSTOM && spec->type == CGP_BF16;
    const cgp__cpu_prepack *prepack = built_in ? prepacks[spec->op] : NULL;
    (void)options;
    *bytes = *layout = 0;
    if (prepack) *bytes = prepack->bytes(spec, layout);
    return CGP_OK;
}

static cgp_status pack(cgp_device *device, const cgp_kernel_spec *spec, const float *const *param,
                       void *to) {
    if (cgp__cpu_tiles_of(device)) prepacks[spec->op]->pack(device, spec, param[0], to);
    return CGP_OK;
}

static cgp_status kernel_create(cgp_device *device, const cgp_kernel_spec *spec, cgp_kernel **out) {
    const cgp__cpu_op *op = NULL;
    CGP_TRY(find_op(spec, &op));
    cgp_kernel *kernel = cgp__calloc(1, sizeof *kernel);
    if (!kernel) return cgp__no_memory("cpu: kernel", sizeof *kernel);
    if (spec->type == CGP_BF16) (void)cgp__cpu_tiles_of(device);
    *kernel = (cgp_kernel){.device = device, .spec = *spec, .op = op};
    *out = kernel;
    return CGP_OK;
}

static cgp_status kernel_run(cgp_kernel *kernel, const cgp_kernel_args *args) {
    if (kernel->spec.attributes.p > 0) kernel->key = cgp__dropout_key(args);
    return kernel->op->run(kernel, args);
}

const cgp_backend cgp__backend_cpu = {
    .struct_size = sizeof(cgp_backend),
    .name = "cpu",
    .host_addressable = true,
    .custom_ops = true,
    .fuses = true,
    .prefetches = true,
    .packs_optionally = true,
    .device.count = cgp__host_count,
    .device.memory = cgp__host_memory,
    .device.isa = cgp__cpu_isa_best,
    .device.create = cgp__cpu_device_create,
    .device.destroy = cgp__cpu_device_destroy,
    .device.has_cores = cgp__cpu_has_cores,
    .device.memory_create = cgp__cpu_memory_create,
    .device.memory_destroy = cgp__cpu_memory_destroy,
    .device.copy = cgp__host_copy,
    .kernels.workspace = workspace,
    .kernels.packed = packed,
    .kernels.pack = pack,
    .kernels.create = kernel_create,
    .kernels.run = kernel_run,
    .kernels.destroy = cgp__host_kernel_destroy,
    .kernels.merge = cgp__host_merge,
    .kernels.commit = cgp__host_commit,
    .kernels.check_commit = cgp__host_check_commit,
    .kernels.sum_squares = cgp__cpu_sum_squares,
    .kernels.find_nonfinite = cgp__cpu_find_nonfinite,
    .kernels.update = cgp__cpu_update,
    .kernels.add = add,
    .kernels.convert = cgp__cpu_convert,
};
