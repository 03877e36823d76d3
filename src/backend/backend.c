/* SPDX-License-Identifier: Apache-2.0 */
/* backend.c -- the registry of backends by name, and checks that all backends share. */
#include "backend/backend.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define MAX_BACKENDS 16

static const cgp_backend *backends[MAX_BACKENDS] = {&cgp__backend_cpu, &cgp__backend_ref};
static int n_backends = 2;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

const cgp_backend *cgp__backend_at(int i) {
    pthread_mutex_lock(&lock);
    const cgp_backend *backend = i >= 0 && i < n_backends ? backends[i] : NULL;
    pthread_mutex_unlock(&lock);
    return backend;
}

/* Return the name of the first function that a table lacks; NULL: none. */
static const char *missing_function(const cgp_backend *b) {
#define CHECK(entry)                                                                               \
    if (!b->entry) return #entry
    CHECK(count);
    CHECK(memory);
    CHECK(device_create);
    CHECK(device_destroy);
    CHECK(has_cores);
    CHECK(memory_create);
    CHECK(memory_destroy);
    CHECK(copy);
    CHECK(convert);
    CHECK(workspace);
    CHECK(kernel_create);
    CHECK(kernel_run);
    CHECK(kernel_destroy);
    CHECK(commit);
    CHECK(check_commit);
    CHECK(sum_squares);
    CHECK(find_nonfinite);
    CHECK(update);
    CHECK(add);
    if (b->packed) CHECK(pack);
    if (!b->host_addressable) {
        CHECK(host_memory_create);
        CHECK(host_memory_destroy);
    }
    if (b->asynchronous) {
        CHECK(tag_in_progress);
        CHECK(event_create);
        CHECK(event_destroy);
        CHECK(event_record);
        CHECK(event_wait);
        CHECK(event_done);
        CHECK(event_sync);
        CHECK(event_time);
        CHECK(finish);
    }
    if (b->record_begin || b->record_end || b->recording_run || b->recording_destroy ||
        b->launches) {
        CHECK(record_begin);
        CHECK(record_end);
        CHECK(recording_run);
        CHECK(recording_destroy);
        CHECK(launches);
    }
#undef CHECK
    return NULL;
}

static cgp_status add(const cgp_backend *backend) {
    for (int i = 0; i < n_backends; i++) {
        if (backends[i] == backend) return CGP_OK;
        if (strcmp(backends[i]->name, backend->name) == 0)
            return cgp_fail(CGP_EINVAL,
                            "backend %s: expected a name of its own, got one of another backend",
                            backend->name);
    }
    if (n_backends == MAX_BACKENDS)
        return cgp_fail(CGP_ELIMIT, "backend %s: expected at most %d backends", backend->name,
                        MAX_BACKENDS);
    backends[n_backends++] = backend;
    return CGP_OK;
}

cgp_status cgp__backend_add(const cgp_backend *backend) {
    if (backend->struct_size != sizeof *backend || !backend->name)
        return cgp_fail(CGP_EINVAL,
                        "backend %s: expected a table of %zu bytes with a name, got %zu bytes "
                        "(build it for this version)",
                        backend->name ? backend->name : "without a name", sizeof *backend,
                        backend->struct_size);
    const char *missing = missing_function(backend);
    if (missing)
        return cgp_fail(CGP_EINVAL, "backend %s: expected a function %s, got NULL", backend->name,
                        missing);
    pthread_mutex_lock(&lock);
    const cgp_status status = add(backend);
    pthread_mutex_unlock(&lock);
    return status;
}

const char *cgp__isa_name(cgp_isa isa) {
    static const char *const names[] = {
        [CGP_ISA_NEON] = "neon", [CGP_ISA_V1] = "v1",           [CGP_ISA_V3] = "v3",
        [CGP_ISA_V4] = "v4",     [CGP_ISA_V4_BF16] = "v4-bf16", [CGP_ISA_AMX] = "amx"};
    return isa > CGP_ISA_NONE && isa <= CGP_ISA_AMX ? names[isa] : NULL;
}

cgp_status cgp__kernel_check(const char *backend, const cgp_kernel_spec *spec) {
    if ((unsigned)spec->op >= CGP_OP_KINDS || (unsigned)spec->direction >= CGP_OP_DIRECTIONS)
        return cgp_fail(CGP_EINVAL, "%s: expects an op and a direction, got %d and %d", backend,
                        (int)spec->op, (int)spec->direction);
    if (spec->n < 1 || spec->attributes.rows < 1)
        return cgp_fail(CGP_EINVAL,
                        "%s: expects %s of 1 or more rows, got %" PRId64 " samples of %" PRId64,
                        backend, cgp_op_name(spec->op), spec->n, spec->attributes.rows);
    return CGP_OK;
}

cgp_status cgp__kernel_missing(const char *backend, const cgp_kernel_spec *spec) {
    static const char *const directions[] = {"forward", "backward input", "backward weight"};
    return cgp_fail(CGP_EINVAL, "%s: expects a direction that %s has, got %s", backend,
                    cgp_op_name(spec->op), directions[spec->direction]);
}
