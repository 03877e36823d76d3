/* SPDX-License-Identifier: Apache-2.0 */
/* captured_graphs.c -- launches the kernels of an action, or of a job, as one graph.
 *
 *     constants, caller's data    copied each time
 *     the calls after them        1st use: launched one by one; 2nd: captured, then run; later: run
 *     the output                  copied each time
 *
 * In runs of one kind, all actions of a bound instance launch the same calls. Only the calls' tags
 * and the contents of device memory change, because operands have fixed addresses or are slots of
 * the instance. The operands of a job have fixed addresses. Graphs contain no events. They also
 * contain no copies of constants, outputs or the caller's data. Runs that measure kernels capture
 * nothing. */
#include "pipeline/run/captured_graphs.h"

#include "base/base.h"
#include "pipeline/run/worker.h"
#include "plan/list.h"

#include <stdlib.h>
#include <string.h>

struct cgp__captured {
    enum { UNUSED, USED, CAPTURED } state;
    cgp_captured_graph *graph; /* NULL: the launches are not captured, or there are no launches */
    int64_t launches;          /* number of launches, counted at the first use */
};

/* The captured graphs of a bound instance, one for each kind of run. */
typedef struct instance {
    cgp__variant variant;
    cgp__captured of[2][2]; /* [training][with_loss] */
} instance;

struct cgp__captured_graphs {
    bool captures; /* set if further graphs may be captured */
    instance *instances;
    int n, capacity;
    cgp__captured jobs[CGP__CAPTURED_JOBS];
};

#ifdef CGP_TEST_SITES
cgp_status (*cgp__captured_graphs_compare)(const cgp_captured_graph *captured,
                                           const cgp_captured_graph *now);
#endif

cgp_status cgp__captured_graphs_create(cgp__worker *worker, bool captures) {
    const cgp_backend *backend = worker->backend;
    CGP_TRY(CGP__NEW(worker->graphs, 1, "worker"));
    worker->graphs->captures = captures && backend->graphs && !backend->host_addressable;
    return CGP_OK;
}

/* Find the entry with the captured graphs of a bound instance, or add an entry. Several action
 * lists may share an instance, so search the entries that other lists have added; these come before
 * index `known`. */
static cgp_status find(struct cgp__captured_graphs *r, int known, cgp__variant *variant) {
    for (int i = 0; i < known; i++) {
        variant->graphs = i;
        if (cgp__same_variant(&r->instances[i].variant, variant)) return CGP_OK;
    }
    if (!cgp__grow(&r->instances, &r->capacity, r->n + 1, sizeof *r->instances))
        return cgp__no_memory("captured graphs", sizeof *r->instances);
    variant->graphs = r->n;
    r->instances[r->n++] = (instance){.variant = *variant};
    return CGP_OK;
}

cgp_status cgp__captured_graphs_bind(cgp__worker *worker, cgp__list *list) {
    const int known = worker->graphs->n;
    for (int i = 0; i < list->n_variants; i++) {
        cgp__variant *variant = &list->variants[i];
        variant->graphs = -1;
        if (worker->graphs->captures && variant->end > variant->begin)
            CGP_TRY(find(worker->graphs, known, variant));
    }
    return CGP_OK;
}

cgp__captured *cgp__captured_run(const cgp__worker *worker, int i, bool training, bool with_loss) {
    return &worker->graphs->instances[i].of[training][with_loss];
}

cgp__captured *cgp__captured_job(const cgp__worker *worker, int job) {
    return &worker->graphs->jobs[job];
}

static void destroy(const cgp__worker *worker, const cgp__captured *captured) {
    if (captured->graph) worker->backend->graphs->destroy(captured->graph);
}

void cgp__captured_graphs_destroy(cgp__worker *worker) {
    struct cgp__captured_graphs *r = worker->graphs;
    if (!r) return;
    for (int i = 0; i < 4 * r->n; i++)
        destroy(worker, &r->instances[i / 4].of[i / 2 % 2][i % 2]);
    for (int i = 0; i < CGP__CAPTURED_JOBS; i++)
        destroy(worker, &r->jobs[i]);
    free(r->instances);
    free(r);
    worker->graphs = NULL;
}

/* Capture launches. Set *out to the graph, or to NULL if there is none. */
static cgp_status capture(cgp__worker *worker, cgp__launch *launch, const void *what,
                          cgp_captured_graph **out) {
    const cgp_backend_graphs *graphs = worker->backend->graphs;
    *out = NULL;
    CGP_TRY(graphs->capture_begin(worker->device));
    const cgp_status status = launch(worker, what, true);
    const cgp_status end = graphs->capture_end(worker->device, out);
    if (status != CGP_OK) {
        if (*out) graphs->destroy(*out);
        *out = NULL;
        return status;
    }
    if (end != CGP_ENOMEM) return end;
    worker->graphs->captures = false;
    cgp_log(CGP_LOG_INFO, "pipeline", "device %d: no memory for more captured graphs: %s",
            worker->index, cgp_message());
    return CGP_OK;
}

#ifdef CGP_TEST_SITES
/* Capture the same launches a second time, and compare both graphs. */
static cgp_status check(cgp__worker *worker, cgp__launch *launch, const void *what,
                        const cgp_captured_graph *captured) {
    cgp_captured_graph *now = NULL;
    if (!cgp__captured_graphs_compare) return CGP_OK;
    CGP_TRY(capture(worker, launch, what, &now));
    const cgp_status status = cgp__captured_graphs_compare(captured, now);
    if (now) worker->backend->graphs->destroy(now);
    return status;
}
#else
#define check(worker, launch, what, captured) CGP_OK
#endif

/* Enqueue launches one by one, and count them. */
static cgp_status launch_first(cgp__worker *worker, cgp__captured *r, cgp__launch *launch,
                               const void *what) {
    const cgp_backend_graphs *graphs = worker->backend->graphs;
    if (!worker->graphs->captures) return launch(worker, what, false);
    const int64_t before = graphs->launches(worker->device);
    CGP_TRY(launch(worker, what, false));
    r->launches = graphs->launches(worker->device) - before;
    return CGP_OK;
}

/* Capture a graph. Check that it has as many launches as the first use. */
static cgp_status capture_counted(cgp__worker *worker, cgp__captured *r, cgp__launch *launch,
                                  const void *what) {
    const cgp_backend_graphs *graphs = worker->backend->graphs;
    const int64_t before = graphs->launches(worker->device);
    CGP_TRY(capture(worker, launch, what, &r->graph));
    const int64_t launches = graphs->launches(worker->device) - before;
    if (cgp__is_stopped(worker) || launches == r->launches) return CGP_OK;
    return cgp_fail(CGP_EDEVICE,
                    "captured graph: expected %lld launches, as there were one by one, got %lld "
                    "(set CGP_GRAPHS=off)",
                    (long long)r->launches, (long long)launches);
}

cgp_status cgp__run_captured(cgp__worker *worker, cgp__captured *r, int64_t tag,
                             cgp__launch *launch, const void *what) {
    if (r->state == CAPTURED) {
        CGP_TRY(check(worker, launch, what, r->graph));
    } else if (r->state == USED && worker->graphs->captures) {
        CGP_TRY(capture_counted(worker, r, launch, what));
        /* The run was given up, so the graph is incomplete, and the plan may be freed. */
        if (cgp__is_stopped(worker)) return CGP_OK;
        if (worker->graphs->captures) r->state = CAPTURED;
    } else if (r->state == UNUSED) {
        r->state = USED;
        return launch_first(worker, r, launch, what);
    }
    if (r->state != CAPTURED) return launch(worker, what, false);
    return r->graph ? worker->backend->graphs->launch(r->graph, tag) : CGP_OK;
}
