/* SPDX-License-Identifier: Apache-2.0 */
/* kernels.c -- checks the spec of an op kernel, looks up the op's function, and runs it. */
#include "backend/cuda/device.h"
#include "backend/cuda/gemm_lt.h"

#include <inttypes.h>
#include <stdlib.h>

static const char *const directions[CGP_OP_DIRECTIONS] = {"forward", "backward input",
                                                          "backward weight"};

static const cgp__cuda_op *find_op(cgp_op_kind kind) {
#define OP(kind, name, family) &cgp__cuda_##name,
    static const cgp__cuda_op *const ops[CGP_OP_KINDS] = {CGP_OPS(OP)};
    return (unsigned)kind < CGP_OP_KINDS ? ops[kind] : NULL;
}

static cgp_status find_kernel(const cgp_kernel_spec *spec, const cgp__cuda_op **out) {
    const cgp__cuda_op *op = find_op(spec->op);
    if (!op)
        return cgp__cuda_host->fail(CGP_EINVAL, CGP__CUDA_NAME ": expects a built-in op, got %s",
                                    spec->op == CGP_OP_CUSTOM ? "a custom one" : "none");
    if ((unsigned)spec->direction >= CGP_OP_DIRECTIONS || !op->run[spec->direction])
        return cgp__cuda_host->fail(
            CGP_EINVAL, CGP__CUDA_NAME ": expects a direction that %s has, got %s",
            cgp_op_name(spec->op),
            (unsigned)spec->direction < CGP_OP_DIRECTIONS ? directions[spec->direction] : "none");
    if (spec->n < 1 || spec->attributes.rows < 1)
        return cgp__cuda_host->fail(CGP_EINVAL,
                                    CGP__CUDA_NAME ": expects %s of 1 or more rows, got %" PRId64
                                                   " samples of %" PRId64,
                                    cgp_op_name(spec->op), spec->n, spec->attributes.rows);
    if (spec->type != CGP_F32 && spec->type != CGP_BF16)
        return cgp__cuda_host->fail(CGP_EINVAL, CGP__CUDA_NAME ": %s: expects f32 or bf16, got %s",
                                    cgp_op_name(spec->op), spec->type == CGP_I32 ? "i32" : "none");
    if (spec->op == CGP_OP_CONV2D && cgp_spec_windows(spec)->tile)
        return cgp__cuda_host->fail(
            CGP_EINVAL, CGP__CUDA_NAME ": %s: expects direct convolutions, got winograd",
            cgp_op_name(spec->op));
    *out = op;
    return CGP_OK;
}

cgp_status cgp__cuda_workspace(const cgp_device_options *options, const cgp_kernel_spec *spec,
                               int64_t *bytes) {
    const cgp__cuda_op *op = NULL;
    (void)options;
    CGP__TRY_STATUS(find_kernel(spec, &op));
    *bytes = op->workspace ? op->workspace(spec) : 0;
    return CGP_OK;
}

cgp_status cgp__cuda_prepare(cgp_device *device, const cgp_kernel_spec *specs, int n, int n_own) {
    cgp__cuda_gemm_problem problem;
    CGP__TRY_STATUS(cgp__cuda_set_device(device));
    for (int i = 0; i < n; i++)
        if (cgp__cuda_gemm_problem_of(&specs[i], &problem))
            CGP__TRY_STATUS(cgp__cuda_lt_announce(device, &problem, specs[i].n));
    for (int i = 0; i < n_own; i++)
        if (cgp__cuda_gemm_problem_of(&specs[i], &problem))
            CGP__TRY_STATUS(cgp__cuda_lt_prepare(device, &problem));
    return CGP_OK;
}

static cgp_status create_gemm(cgp_kernel *kernel) {
    cgp__cuda_gemm_problem problem;
    if (!cgp__cuda_gemm_problem_of(&kernel->spec, &problem)) return CGP_OK;
    return cgp__cuda_lt_gemm_create(kernel->device, &problem, &kernel->gemm);
}

cgp_status cgp__cuda_kernel_create(cgp_device *device, const cgp_kernel_spec *spec,
                                   cgp_kernel **out) {
    const cgp__cuda_op *op = NULL;
    CGP__TRY_STATUS(find_kernel(spec, &op));
    cgp_kernel *kernel = malloc(sizeof *kernel);
    if (!kernel) return cgp__cuda_host->fail(CGP_ENOMEM, CGP__CUDA_NAME ": kernel: out of memory");
    *kernel = (cgp_kernel){device, *spec, op->run[spec->direction], NULL};
    const cgp_status status = create_gemm(kernel);
    if (status == CGP_OK)
        *out = kernel;
    else
        free(kernel);
    return status;
}

static cudaError_t enqueue(const cgp_kernel *kernel, const cgp_kernel_args *args) {
    const cgp_device *device = kernel->device;
    const cudaStream_t stream = args->branch ? device->branch : device->streams[CGP_QUEUE_COMPUTE];
    if (args->branch) cgp__cuda_use_branch(device);
    return kernel->gemm ? cgp__cuda_run_gemm(&kernel->spec, args, kernel->gemm, stream)
                        : kernel->run(&kernel->spec, args, stream);
}

cgp_status cgp__cuda_kernel_run(cgp_kernel *kernel, const cgp_kernel_args *args) {
    cgp_device *device = kernel->device;
    CGP__TRY_STATUS(cgp__cuda_set_device(device));
    return cgp__cuda_check(device, enqueue(kernel, args), "%s, %s", cgp_op_name(kernel->spec.op),
                           directions[kernel->spec.direction]);
}

void cgp__cuda_kernel_destroy(cgp_kernel *kernel) {
    if (kernel) cgp__cuda_lt_gemm_destroy(kernel->gemm);
    free(kernel);
}
