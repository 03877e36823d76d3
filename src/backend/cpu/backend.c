/* backend.c -- the `cpu` backend's table; kernels made, measured and run.
 *
 * What a kernel needs follows from its spec and the number of threads alone: a list of matrix
 * products and some bytes of temporaries (cpu.h). The plan measures it without a device, and a
 * kernel that turns out to need more than that is refused when it is made. */
#include "backend/cpu/cpu.h"

#include <inttypes.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    const cgp__cpu_op *op; /* [CGP__DIRECTIONS]; run == NULL: the op has no such direction */
} ops[CGP__OP_KINDS] = {
    [CGP__OP_EMBEDDING] = {"embedding", cgp__cpu_embedding},
    [CGP__OP_POSITION] = {"position", cgp__cpu_position},
    [CGP__OP_ADD] = {"add", cgp__cpu_add},
    [CGP__OP_LINEAR] = {"linear", cgp__cpu_linear},
    [CGP__OP_LAYER_NORM] = {"layer_norm", cgp__cpu_layer_norm},
    [CGP__OP_GELU] = {"gelu", cgp__cpu_gelu},
    [CGP__OP_ATTENTION] = {"attention", cgp__cpu_attention},
    [CGP__OP_DROPOUT] = {"dropout", cgp__cpu_dropout},
    [CGP__OP_CROSS_ENTROPY] = {"cross_entropy", cgp__cpu_cross_entropy},
    [CGP__OP_ARGMAX] = {"argmax", cgp__cpu_argmax},
};

static cgp_status find_op(const cgp__kernel_spec *spec, const cgp__cpu_op **out) {
    static const char *const directions[] = {"forward", "backward input", "backward weight"};
    if ((unsigned)spec->op >= CGP__OP_KINDS || (unsigned)spec->direction >= CGP__DIRECTIONS)
        return cgp_fail(CGP_EINVAL, "cpu: expects an op and a direction, got %d and %d",
                        (int)spec->op, (int)spec->direction);
    const cgp__cpu_op *op = &ops[spec->op].op[spec->direction];
    if (!op->run)
        return cgp_fail(CGP_EINVAL, "cpu: expects a direction that %s has, got %s",
                        ops[spec->op].name, directions[spec->direction]);
    if (spec->n < 1 || spec->geometry.rows < 1)
        return cgp_fail(CGP_EINVAL,
                        "cpu: expects %s of 1 or more rows, got %" PRId64
                        " samples of %" PRId64,
                        ops[spec->op].name, spec->n, spec->geometry.rows);
    if (spec->type != CGP_F32 && (spec->op == CGP__OP_LINEAR || spec->op == CGP__OP_ATTENTION))
        return cgp_fail(CGP_EDEVICE,
                        "cpu: %s expects activations of f32, got %s "
                        "(use precision f32, or device ref)",
                        ops[spec->op].name, cgp_dtype_name(spec->type));
    *out = op;
    return CGP_OK;
}

static int64_t temporaries(const cgp__cpu_op *op, const cgp__kernel_spec *spec, int threads) {
    return op->temporaries ? cgp__align_up(op->temporaries(spec, threads)) : 0;
}

/* Workspaces of a kernel, each for one of so many threads. */
static int workspaces(const cgp__cpu_op *op, const cgp__kernel_spec *spec, int threads) {
    return op->alone && op->alone(spec, threads) ? threads : 1;
}

static cgp_status scratchpad(const cgp__cpu_op *op, const cgp__kernel_spec *spec,
                             int64_t *most) {
    cgp__product products[CGP__CPU_PRODUCTS] = {0};
    *most = 0;
    if (op->products) op->products(spec, products);
    for (int i = 0; i < CGP__CPU_PRODUCTS; i++) {
        int64_t bytes = 0;
        CGP_TRY(cgp__product_scratchpad(&products[i], &bytes));
        *most = bytes > *most ? bytes : *most;
    }
    return CGP_OK;
}

/* oneDNN's answer depends on the threads OpenMP would give the caller, so it is asked with
 * those that will run a product: all of the device, or one. */
static cgp_status workspace(const cgp__kernel_spec *spec, int threads, int64_t *bytes) {
    const cgp__cpu_op *op = NULL;
    CGP_TRY(find_op(spec, &op));
    int64_t most = 0;
    const int before = omp_get_max_threads(), each = workspaces(op, spec, threads);
    omp_set_num_threads(each > 1 ? 1 : threads);
    const cgp_status status = scratchpad(op, spec, &most);
    omp_set_num_threads(before);
    if (status == CGP_OK)
        *bytes = each * (temporaries(op, spec, threads) + cgp__align_up(most));
    return status;
}

static cgp_status make_products(cgp__kernel *kernel, int64_t *most) {
    cgp__product products[CGP__CPU_PRODUCTS] = {0};
    *most = 0;
    if (kernel->op->products) kernel->op->products(&kernel->spec, products);
    for (int i = 0; i < kernel->workspaces * CGP__CPU_PRODUCTS; i++) {
        CGP_TRY(cgp__matmul_create(&kernel->matmuls[i], &products[i % CGP__CPU_PRODUCTS]));
        const int64_t bytes = kernel->matmuls[i].scratchpad_bytes;
        *most = bytes > *most ? bytes : *most;
    }
    return CGP_OK;
}

/* The kernel as specified; matmuls are there, empty. */
static cgp_status fill(cgp__kernel *kernel) {
    const int threads = kernel->device->threads;
    int64_t planned = 0, most = 0;
    CGP_TRY(workspace(&kernel->spec, threads, &planned));
    const int before = omp_get_max_threads();
    if (kernel->workspaces > 1) omp_set_num_threads(1);
    const cgp_status status = make_products(kernel, &most);
    omp_set_num_threads(before);
    CGP_TRY(status);
    kernel->temporaries = temporaries(kernel->op, &kernel->spec, threads);
    kernel->bytes = kernel->temporaries + cgp__align_up(most);
    const int64_t needed = kernel->workspaces * kernel->bytes;
    if (needed > planned)
        return cgp_fail(CGP_EDEVICE,
                        "cpu: %s: expects a workspace of %" PRId64 " bytes, as planned, "
                        "got one of %" PRId64 " from oneDNN",
                        ops[kernel->spec.op].name, planned, needed);
    return CGP_OK;
}

static void kernel_destroy(cgp__kernel *kernel) {
    if (!kernel) return;
    for (int i = 0; kernel->matmuls && i < kernel->workspaces * CGP__CPU_PRODUCTS; i++)
        cgp__matmul_destroy(&kernel->matmuls[i]);
    free(kernel->matmuls);
    free(kernel);
}

static cgp_status kernel_create(cgp__device *device, const cgp__kernel_spec *spec,
                                cgp__kernel **out) {
    const cgp__cpu_op *op = NULL;
    CGP_TRY(find_op(spec, &op));
    cgp__kernel *kernel = cgp__calloc(1, sizeof *kernel);
    if (!kernel) return cgp__no_memory("cpu: kernel", sizeof *kernel);
    kernel->device = device;
    kernel->spec = *spec;
    kernel->op = op;
    kernel->workspaces = workspaces(op, spec, device->threads);
    const size_t count = (size_t)kernel->workspaces * CGP__CPU_PRODUCTS;
    kernel->matmuls = cgp__calloc(count, sizeof *kernel->matmuls);
    const cgp_status status = kernel->matmuls
                                  ? fill(kernel)
                                  : cgp__no_memory("cpu: kernel", count * sizeof(cgp__matmul));
    if (status != CGP_OK) {
        kernel_destroy(kernel);
        return status;
    }
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

static void update(cgp__device *device, const cgp__update *what) {
    cgp__cpu_update(device, what);
}

static void add(cgp__device *device, float *to, const float *from, int64_t n) {
    cgp__cpu_pass(device, CGP_F32, to, from, n, true);
}

static double sum_squares(cgp__device *device, const float *x, int64_t n) {
    return cgp__cpu_sum_squares(device, x, n);
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
    .update = update,
    .add = add,
    .sum_squares = sum_squares,
};
