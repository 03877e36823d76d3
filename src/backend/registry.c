/* SPDX-License-Identifier: Apache-2.0 */
/* registry.c -- stores the backends by name, and checks their tables. */
#include "backend/registry.h"

#include <pthread.h>
#include <string.h>

#include "base/base.h"

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

/* missing_function() and missing_optional() return the name of the first entry that is NULL in a
 * backend's tables, or NULL if no entry is missing. */
#define CHECK(entry)                                                                               \
    if (!b->entry) return #entry

static const char *missing_function(const cgp_backend *b) {
    CHECK(device.count);
    CHECK(device.memory);
    CHECK(device.create);
    CHECK(device.destroy);
    CHECK(device.has_cores);
    CHECK(device.memory_create);
    CHECK(device.memory_destroy);
    if (!b->host_addressable) {
        CHECK(device.host_memory_create);
        CHECK(device.host_memory_destroy);
    }
    CHECK(device.copy);
    CHECK(kernels.workspace);
    if (b->kernels.packed) CHECK(kernels.pack);
    CHECK(kernels.create);
    CHECK(kernels.run);
    CHECK(kernels.destroy);
    CHECK(kernels.commit);
    CHECK(kernels.check_commit);
    CHECK(kernels.sum_squares);
    CHECK(kernels.find_nonfinite);
    CHECK(kernels.update);
    CHECK(kernels.add);
    CHECK(kernels.convert);
    return NULL;
}

static const char *missing_optional(const cgp_backend *b) {
    if (b->streams) {
        CHECK(streams->event_create);
        CHECK(streams->event_destroy);
        CHECK(streams->event_record);
        CHECK(streams->event_wait);
        if (b->streams->fork) CHECK(streams->join);
        if (b->streams->join) CHECK(streams->fork);
        CHECK(streams->event_done);
        CHECK(streams->event_sync);
        CHECK(streams->event_time);
        CHECK(streams->tag_in_progress);
        CHECK(streams->finish);
        CHECK(streams->discard);
    }
    if (b->graphs) {
        CHECK(graphs->capture_begin);
        CHECK(graphs->capture_end);
        CHECK(graphs->launch);
        CHECK(graphs->destroy);
        CHECK(graphs->launches);
    }
    if (b->sharing) {
        CHECK(sharing->memory_export);
        CHECK(sharing->memory_import);
        CHECK(sharing->memory_close);
        CHECK(sharing->event_export);
        CHECK(sharing->event_import);
    }
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

/* Check the tables that may be NULL. */
static cgp_status check_optional(const cgp_backend *b) {
    if ((b->graphs || b->sharing) && !b->streams)
        return cgp_fail(CGP_EINVAL, "backend %s: expected streams with %s, got none", b->name,
                        b->graphs ? "graphs" : "sharing");
    if (b->sharing && b->host_addressable)
        return cgp_fail(CGP_EINVAL, "backend %s: expected no sharing with host_addressable",
                        b->name);
    const size_t streams = b->streams ? b->streams->struct_size : 0,
                 graphs = b->graphs ? b->graphs->struct_size : 0,
                 sharing = b->sharing ? b->sharing->struct_size : 0;
    if ((!b->streams || streams == sizeof *b->streams) &&
        (!b->graphs || graphs == sizeof *b->graphs) &&
        (!b->sharing || sharing == sizeof *b->sharing))
        return CGP_OK;
    return cgp_fail(CGP_EINVAL,
                    "backend %s: expected streams of %zu bytes, graphs of %zu bytes and sharing of "
                    "%zu bytes, or none of them, got %zu, %zu and %zu bytes (build it for this "
                    "version)",
                    b->name, sizeof *b->streams, sizeof *b->graphs, sizeof *b->sharing, streams,
                    graphs, sharing);
}

cgp_status cgp__backend_add(const cgp_backend *backend) {
    if (backend->struct_size != sizeof *backend || !backend->name)
        return cgp_fail(CGP_EINVAL,
                        "backend %s: expected a table of %zu bytes with a name, got %zu bytes "
                        "(build it for this version)",
                        backend->name ? backend->name : "without a name", sizeof *backend,
                        backend->struct_size);
    CGP_TRY(check_optional(backend));
    const char *missing = missing_function(backend);
    if (!missing) missing = missing_optional(backend);
    if (missing)
        return cgp_fail(CGP_EINVAL, "backend %s: expected a function %s, got NULL", backend->name,
                        missing);
    pthread_mutex_lock(&lock);
    const cgp_status status = add(backend);
    pthread_mutex_unlock(&lock);
    return status;
}
