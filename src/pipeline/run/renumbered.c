/* SPDX-License-Identifier: Apache-2.0 */
/* renumbered.c -- implements renumbered.h. The view's table is a copy of the transport's table.
 * Functions on links are those of the transport. Functions on a communicator get the view, convert
 * numbers of ranks and edges, and call the transport. */
#include "pipeline/run/renumbered.h"

#include "base/base.h"

#include <stdlib.h>
#include <string.h>

struct cgp__renumbered {
    cgp_transport table;
    const cgp_transport *transport;
    cgp_communicator *communicator;
    int n, first_edge;
    int *actual, *number; /* [n] the communicator's number of a rank of the view, and the reverse */
    size_t *bytes;        /* [n] scratch of a gather */
    char *gathered;       /* scratch of a gather, in the communicator's order */
    int capacity;
    cgp_rank_state *states; /* [n] scratch; protected by the lock of the caller's team */
};

static cgp__renumbered *view_of(cgp_communicator *communicator) {
    return (cgp__renumbered *)(void *)communicator;
}

static void communicator_destroy(cgp_communicator *communicator) {
    (void)communicator; /* the view is destroyed by its owner */
}

static int rank_of(const cgp_communicator *communicator) {
    const cgp__renumbered *v = (const cgp__renumbered *)(const void *)communicator;
    return v->number[v->transport->rank(v->communicator)];
}

static int ranks_of(const cgp_communicator *communicator) {
    return ((const cgp__renumbered *)(const void *)communicator)->n;
}

static cgp_status open_link(cgp_communicator *communicator, const cgp_link_options *options,
                            cgp_link **out) {
    cgp__renumbered *v = view_of(communicator);
    cgp_link_options own = *options;
    own.edge += v->first_edge;
    own.peer = v->actual[own.peer];
    return v->transport->links.open(v->communicator, &own, out);
}

static void progress(cgp_communicator *communicator) {
    const cgp__renumbered *v = view_of(communicator);
    v->transport->links.progress(v->communicator);
}

static void verify(cgp_communicator *communicator, bool on) {
    const cgp__renumbered *v = view_of(communicator);
    v->transport->links.verify(v->communicator, on);
}

static cgp_status barrier(cgp_communicator *communicator) {
    const cgp__renumbered *v = view_of(communicator);
    return v->transport->agreement.barrier(v->communicator);
}

/* Gather in the communicator's order, then copy to the view's order. If memory runs out, the rank
 * fails, which ends the gather of the other ranks. */
static cgp_status gather(cgp_communicator *communicator, const void *mine, void *all,
                         const size_t *bytes) {
    cgp__renumbered *v = view_of(communicator);
    size_t total = 0;
    for (int r = 0; r < v->n; r++) {
        v->bytes[v->actual[r]] = bytes[r];
        total += bytes[r];
    }
    if (total > INT32_MAX || !cgp__grow(&v->gathered, &v->capacity, (int)total, 1))
        return cgp__no_memory("replay", total);
    CGP_TRY(v->transport->agreement.gather(v->communicator, mine, v->gathered, v->bytes));
    char *to = all;
    for (int r = 0; r < v->n; r++) {
        size_t at = 0;
        for (int q = 0; q < v->actual[r]; q++)
            at += v->bytes[q];
        if (bytes[r] > 0) memcpy(to, v->gathered + at, bytes[r]);
        to += bytes[r];
    }
    return CGP_OK;
}

static void fail(cgp_communicator *communicator, cgp_status status, const char *message) {
    const cgp__renumbered *v = view_of(communicator);
    v->transport->failures.fail(v->communicator, status, message);
}

static cgp_status first(cgp_communicator *communicator, int *rank, char *message, size_t size) {
    const cgp__renumbered *v = view_of(communicator);
    int actual = -1;
    const cgp_status status = v->transport->failures.first(v->communicator, &actual, message, size);
    if (actual >= 0 && actual < v->n) *rank = v->number[actual];
    return status;
}

static cgp_status watch(cgp_communicator *communicator, int64_t timeout_ns) {
    const cgp__renumbered *v = view_of(communicator);
    return v->transport->failures.watch(v->communicator, timeout_ns);
}

static void report_progress(cgp_communicator *communicator, int64_t ended, int64_t end_ns) {
    const cgp__renumbered *v = view_of(communicator);
    v->transport->failures.report_progress(v->communicator, ended, end_ns);
}

static void rank_states(cgp_communicator *communicator, cgp_rank_state *out) {
    cgp__renumbered *v = view_of(communicator);
    v->transport->failures.rank_states(v->communicator, v->states);
    for (int r = 0; r < v->n; r++)
        out[r] = v->states[v->actual[r]];
}

static void stop(cgp_communicator *communicator) {
    const cgp__renumbered *v = view_of(communicator);
    v->transport->failures.stop(v->communicator);
}

static void abort_all(cgp_communicator *communicator, int code) {
    const cgp__renumbered *v = view_of(communicator);
    v->transport->failures.abort(v->communicator, code);
}

static void fill_table(cgp__renumbered *v) {
    v->table = *v->transport;
    v->table.communicator_create = NULL;
    v->table.communicator_destroy = communicator_destroy;
    v->table.rank = rank_of;
    v->table.ranks = ranks_of;
    v->table.links.open = open_link;
    v->table.links.progress = progress;
    v->table.links.verify = verify;
    v->table.agreement = (cgp_transport_agreement){barrier, gather};
    v->table.failures = (cgp_transport_failures){.fail = fail,
                                                 .first = first,
                                                 .watch = watch,
                                                 .report_progress = report_progress,
                                                 .rank_states = rank_states,
                                                 .stop = stop,
                                                 .abort = abort_all};
}

static cgp_status fill(cgp__renumbered *v, const int *actual) {
    CGP_TRY(CGP__NEW(v->actual, v->n, "replay"));
    CGP_TRY(CGP__NEW(v->number, v->n, "replay"));
    CGP_TRY(CGP__NEW(v->bytes, v->n, "replay"));
    CGP_TRY(CGP__NEW(v->states, v->n, "replay"));
    for (int r = 0; r < v->n; r++) {
        v->actual[r] = actual[r];
        v->number[actual[r]] = r;
    }
    fill_table(v);
    return CGP_OK;
}

cgp_status cgp__renumbered_create(cgp__renumbered **out, const cgp_transport *transport,
                                  cgp_communicator *communicator, const int *actual,
                                  int first_edge) {
    cgp__renumbered *v = NULL;
    CGP_TRY(CGP__NEW(v, 1, "replay"));
    v->transport = transport;
    v->communicator = communicator;
    v->n = transport->ranks(communicator);
    v->first_edge = first_edge;
    const cgp_status status = fill(v, actual);
    if (status == CGP_OK)
        *out = v;
    else
        cgp__renumbered_destroy(v);
    return status;
}

void cgp__renumbered_destroy(cgp__renumbered *v) {
    if (!v) return;
    free(v->actual);
    free(v->number);
    free(v->bytes);
    free(v->gathered);
    free(v->states);
    free(v);
}

const cgp_transport *cgp__renumbered_transport(const cgp__renumbered *view) {
    return &view->table;
}

cgp_communicator *cgp__renumbered_communicator(cgp__renumbered *view) {
    return (cgp_communicator *)(void *)view;
}
