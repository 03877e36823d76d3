/* SPDX-License-Identifier: Apache-2.0 */
/* device.h -- a device of the fake backend `late`, for the files that implement the backend. */
#ifndef CGP_TESTS_FAKES_LATE_DEVICE_H
#define CGP_TESTS_FAKES_LATE_DEVICE_H

#include <cgpipe/ext/backend.h>

#include "queue.h"

#define MAX_MEMORIES 64

typedef struct cgp__late_region {
    char *begin;
    size_t bytes;
} cgp__late_region;

struct cgp_device {
    cgp_device_options options;
    cgp__late_queue queues[CGP_QUEUES];
    cgp__late_failure failure;
    cgp_captured_graph *capture; /* capture in progress; NULL if none */
    int64_t launches;
    cgp_device *cpu;     /* used by COMPUTE's thread */
    _Atomic int64_t tag; /* tag of the running kernel; -1 if none */
    _Atomic int64_t failed_tag;
    cgp__late_region memories[MAX_MEMORIES];
    /* Kernels announced by prepare(); NULL if prepare() was not called. */
    cgp_kernel_spec *announced;
    int n_announced;
};

extern const cgp_backend_streams cgp__late_streams;

/* Check the contract for call `what`: during a capture, the caller enqueues no other work on the
 * device. */
cgp_status cgp__late_check_not_capturing(const cgp_device *device, const char *what);
/* Check that memory belongs to the place's device. If that device is NULL, the memory must come
 * from host_memory_create(). */
cgp_status cgp__late_check_place(const char *what, cgp_place place, size_t bytes);

#endif
