/* SPDX-License-Identifier: Apache-2.0 */
/* test_cuda_waits.c -- shows that each wait of one stream for another is necessary (waits.h). The
 * tests slow down the kernels and copies of one queue on cuda-host. */
#include "waits.h"

#include <time.h>

#include "backend/cuda/device.h"
#include "backend/registry.h"
#include "cuda/work.h"
#include "in_program.h"

int cgp__site_off = -1;

static struct {
    _Atomic int64_t ns[CGP_QUEUES + 1]; /* the last element is for the branch */
    cgp_backend table;
    const cgp_backend *quick;
} slow;

static cudaError_t sleep_for(const void *ns) {
    const struct timespec time = {0, (long)*(const int64_t *)ns};
    nanosleep(&time, NULL);
    return cudaSuccess;
}

/* Delay the next work of a queue, or of the branch. */
static void delay(const cgp_device *device, int queue) {
    const int64_t ns = slow.ns[queue];
    if (ns == 0) return;
    cgp__shim_work *work = cgp__shim_make_work(sleep_for, false, &ns, sizeof ns);
    assert_non_null(work);
    assert_int_equal(cgp__cuda_use(device->ordinal), cudaSuccess);
    assert_int_equal(
        cgp__shim_enqueue(queue == BRANCH ? device->branch : device->streams[queue], work),
        cudaSuccess);
}

static cgp_status slow_copy(cgp_device *device, cgp_queue queue, cgp_place to, cgp_place from,
                            size_t bytes) {
    delay(device, queue);
    return slow.quick->device.copy(device, queue, to, from, bytes);
}

typedef struct indices {
    const int32_t *from;
    int32_t *to;
    int64_t n, limit, ignored;
} indices;

static cudaError_t copy_in_range(const void *payload) {
    const indices *all = payload;
    for (int64_t i = 0; i < all->n; i++) {
        const int32_t index = all->from[i];
        const bool in_range = index == all->ignored || (index >= 0 && index < all->limit);
        all->to[i] = in_range ? index : 0;
    }
    return cudaSuccess;
}

static cudaError_t free_copy(const void *payload) {
    free(((const indices *)payload)->to);
    return cudaSuccess;
}

static void enqueue(const cgp_kernel *kernel, cudaError_t (*run)(const void *),
                    const indices *all) {
    cgp__shim_work *work = cgp__shim_make_work(run, true, all, sizeof *all);
    assert_non_null(work);
    assert_int_equal(cgp__cuda_use(kernel->device->ordinal), cudaSuccess);
    assert_int_equal(cgp__shim_enqueue(kernel->device->streams[CGP_QUEUE_COMPUTE], work),
                     cudaSuccess);
}

/* Return which input of a kernel holds indices; -1 if no input does. */
static int operand_of_indices(const cgp_kernel_spec *s) {
    if (s->op == CGP_OP_EMBEDDING) return 0;
    return s->op == CGP_OP_CROSS_ENTROPY ? 1 : -1;
}

/* Run a kernel late. If a test leaves out a wait, indices may be arbitrary numbers, and may change
 * while the kernel runs. Therefore a kernel that reads indices runs on queue COMPUTE, on a copy of
 * the indices. In the copy, indices outside the table are replaced. */
static cgp_status slow_kernel(cgp_kernel *kernel, const cgp_kernel_args *args) {
    const cgp_kernel_spec *s = &kernel->spec;
    const int operand = operand_of_indices(s);
    const bool copies = operand >= 0 && args->x[operand];
    cgp_kernel_args late = *args;
    late.branch = args->branch && operand < 0;
    delay(kernel->device, late.branch ? BRANCH : CGP_QUEUE_COMPUTE);
    indices all = {0};
    if (copies) {
        const int64_t n = s->n * s->attributes.rows;
        all = (indices){args->x[operand], malloc((size_t)n * sizeof *all.to), n, s->attributes.in,
                        s->op == CGP_OP_EMBEDDING ? 0 : cgp_spec_cross_entropy(s)->ignore};
        assert_non_null(all.to);
        enqueue(kernel, copy_in_range, &all);
        late.x[operand] = all.to;
    }
    const cgp_status status = slow.quick->kernels.run(kernel, &late);
    if (copies) enqueue(kernel, free_copy, &all);
    return status;
}

static void make_slow(int queue, int64_t ns) {
    slow.ns[queue] = ns;
}

TEST_CASE(every_wait_makes_a_difference) {
    check_waits();
}

TEST_CASE(a_slow_queue_changes_no_bit) {
    check_slow_queues();
}

int main(void) {
    setenv("CGP_GRAPHS", "off", 1); /* a sleep cannot be captured */
    slow.quick = cuda_host();
    slow.table = *slow.quick;
    slow.table.name = "slow";
    slow.table.device.copy = slow_copy;
    slow.table.kernels.run = slow_kernel;
    assert_ok(cgp__backend_add(&slow.table));
    waits_on = (waits_device){"slow", "cuda-host", make_slow, false, true};
    return test_run();
}
