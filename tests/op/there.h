/* SPDX-License-Identifier: Apache-2.0 */
/* there.h -- runs the kernels of a backend's device on operands in host memory. If the device has
 * its own memory, everything that a kernel may read or write, including guards, is copied to the
 * device and back. */
#ifndef CGP_TESTS_OP_THERE_H
#define CGP_TESTS_OP_THERE_H

#include <stdlib.h>

#include "backend/cpu/cpu.h"
#include "backend/registry.h"
#include "plugin/find.h"
#include "support.h"

/* A device on which tests run kernels. */
typedef struct runner {
    const cgp_backend *backend;
    cgp_device *device;
    int threads;
} runner;

/* Return options of a device whose threads are not pinned. */
static inline cgp_device_options device_options(int threads) {
    return (cgp_device_options){.struct_size = sizeof(cgp_device_options), .threads = threads};
}

static inline runner runner_open(const cgp_backend *backend, int threads) {
    runner on = {.backend = backend, .threads = threads};
    const cgp_device_options options = device_options(threads);
    assert_ok(backend->device.create(&on.device, &options));
    return on;
}

static inline void runner_close(runner *on) {
    on->backend->device.destroy(on->device);
    on->device = NULL;
}

/* Return `cpu`, or the backend that CGP_TEST_BACKEND names. */
static inline const cgp_backend *backend_under_test(void) {
    const char *name = getenv("CGP_TEST_BACKEND");
    const cgp_backend *backend = &cgp__backend_cpu;
    if (name && cgp__backend_find(name, &backend) != CGP_OK) {
        fprintf(stderr, "%s\n", cgp_message());
        exit(1);
    }
    return backend;
}

/* --- memory of the device --- */

enum { MAX_PARTS = 64 };

typedef struct there {
    const runner *on;
    int n;
    struct {
        char *here;
        void *there;
        size_t bytes;
    } parts[MAX_PARTS];
} there;

/* Copy between host and device through pinned staging memory. */
static inline void there_copy(const runner *on, cgp_place to, cgp_place from, size_t bytes) {
    const cgp_queue queue = to.device ? CGP_QUEUE_IN : CGP_QUEUE_OUT;
    const cgp_backend *b = on->backend;
    void *pinned = NULL;
    if (b->host_addressable) {
        assert_ok(b->device.copy(on->device, queue, to, from, bytes));
        return;
    }
    assert_ok(b->device.host_memory_create(on->device, bytes, &pinned));
    if (to.device) memcpy(pinned, from.at, bytes);
    const cgp_place host = {NULL, pinned};
    assert_ok(
        b->device.copy(on->device, queue, to.device ? to : host, to.device ? host : from, bytes));
    if (b->streams) assert_ok(b->streams->finish(on->device));
    if (!to.device) memcpy(to.at, pinned, bytes);
    b->device.host_memory_destroy(on->device, pinned, bytes);
}

/* Copy `bytes` bytes of host memory to the device. Do nothing if `here` is NULL. */
static inline void there_put(there *t, void *here, size_t bytes) {
    if (!here || t->on->backend->host_addressable) return;
    void *copy = NULL;
    assert_true(t->n < MAX_PARTS);
    assert_ok(t->on->backend->device.memory_create(t->on->device, bytes, &copy));
    there_copy(t->on, (cgp_place){t->on->device, copy}, (cgp_place){NULL, here}, bytes);
    t->parts[t->n].here = here;
    t->parts[t->n].there = copy;
    t->parts[t->n++].bytes = bytes;
}

/* Return the device address of the memory that there_put() copied from a host address. */
static inline void *there_of(const there *t, const void *here) {
    for (int i = 0; i < t->n; i++) {
        const char *at = here, *begin = t->parts[i].here;
        if (at >= begin && at < begin + t->parts[i].bytes)
            return (char *)t->parts[i].there + (at - begin);
    }
    return (void *)(uintptr_t)here; /* NULL, or memory that the device shares */
}

/* Wait for the device, and copy everything back to the host. */
static inline void there_end(there *t) {
    if (t->on->backend->streams) assert_ok(t->on->backend->streams->finish(t->on->device));
    for (int i = 0; i < t->n; i++) {
        there_copy(t->on, (cgp_place){NULL, t->parts[i].here},
                   (cgp_place){t->on->device, t->parts[i].there}, t->parts[i].bytes);
        t->on->backend->device.memory_destroy(t->on->device, t->parts[i].there, t->parts[i].bytes);
    }
    t->n = 0;
}

/* Replace host addresses in the arguments by device addresses. The memory at every address must
 * have been copied to the device before. */
static inline cgp_kernel_args there_args(const there *t, cgp_kernel_args a) {
#define MOVE(operand) operand = there_of(t, operand)
    for (int k = 0; k < CGP_OP_MAX_INPUTS; k++) {
        MOVE(a.x[k]);
        MOVE(a.dx[k]);
    }
    for (int k = 0; k < CGP_OP_MAX_SAVED; k++)
        MOVE(a.saved[k]);
    for (int k = 0; k < CGP_OP_MAX_STATE; k++)
        MOVE(a.state[k]);
    for (int k = 0; k < CGP_OP_MAX_PARAMETERS; k++) {
        MOVE(a.param[k]);
        MOVE(a.dparam[k]);
    }
    MOVE(a.y);
    MOVE(a.accumulator);
    MOVE(a.dy);
    MOVE(a.workspace);
    MOVE(a.values);
    MOVE(a.losses);
#undef MOVE
    return a;
}

static inline size_t there_packed_bytes(const runner *on, const cgp_kernel_spec *spec) {
    const cgp_device_options options = device_options(on->threads);
    int64_t bytes = 0;
    int layout = 0;
    if (on->backend->kernels.packed)
        assert_ok(on->backend->kernels.packed(&options, spec, &bytes, &layout));
    return (size_t)bytes;
}

/* Make the packed parameters of a kernel whose arguments are on the device, and return their
 * address. The caller owns the memory. Return NULL if the kernel has no packed parameters. */
static inline void *there_pack(const there *t, const cgp_kernel_spec *spec, cgp_kernel_args *args) {
    const cgp_backend *b = t->on->backend;
    const size_t bytes = there_packed_bytes(t->on, spec);
    void *packed = NULL;
    if (bytes == 0) return NULL;
    assert_ok(b->device.memory_create(t->on->device, bytes, &packed));
    assert_ok(b->kernels.pack(t->on->device, spec, args->param, packed));
    args->packed = packed;
    return packed;
}

/* Return the index of the first element that is not finite, or -1 if all elements are finite. */
static inline int64_t find_nonfinite(const runner *on, const float *x, int64_t n) {
    int64_t index = -2;
    there t = {.on = on};
    there_put(&t, (void *)(uintptr_t)x, (size_t)n * sizeof *x);
    there_put(&t, &index, sizeof index);
    assert_ok(
        on->backend->kernels.find_nonfinite(on->device, there_of(&t, x), n, there_of(&t, &index)));
    there_end(&t);
    return index;
}

#endif
