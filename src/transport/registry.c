/* SPDX-License-Identifier: Apache-2.0 */
/* registry.c -- keeps the list of transports, and makes the checks that all transports share. */
#include "transport/transport.h"

#include <inttypes.h>
#include <pthread.h>
#include <string.h>

enum { MAX_TRANSPORTS = 16 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* no other lock is taken while this lock
                                                          * is held */
static const cgp_transport *transports[MAX_TRANSPORTS] = {&cgp__transport_inproc};
static int n_transports = 1;

/* Return the transport with this name; NULL: there is none. Called with the lock held. */
static const cgp_transport *find(const char *name) {
    for (int i = 0; i < n_transports; i++) {
        if (strcmp(transports[i]->name, name) == 0) return transports[i];
    }
    return NULL;
}

const cgp_transport *cgp__transport_at(int i) {
    pthread_mutex_lock(&lock);
    const cgp_transport *transport = i >= 0 && i < n_transports ? transports[i] : NULL;
    pthread_mutex_unlock(&lock);
    return transport;
}

static bool has_all_functions(const cgp_transport *t) {
    const cgp_transport_links *l = &t->links;
    const cgp_transport_failures *f = &t->failures;
    return t->communicator_create && t->communicator_destroy && t->rank && t->ranks && l->open &&
           l->close && l->acquire && l->take && l->post && l->release && l->waits && l->progress &&
           l->verify && t->agreement.barrier && t->agreement.gather && f->fail && f->first &&
           f->watch && f->report_progress && f->rank_states && f->stop && f->abort;
}

/* Add a transport to the list. Called with the lock held. */
static cgp_status add(const cgp_transport *transport) {
    const cgp_transport *same = find(transport->name);
    if (same == transport) return CGP_OK;
    if (same)
        return cgp_fail(CGP_EINVAL, "transport %s: expected a name of its own, got that of another",
                        transport->name);
    if (n_transports == MAX_TRANSPORTS)
        return cgp_fail(CGP_ELIMIT, "transport %s: expected at most %d transports, got more",
                        transport->name, MAX_TRANSPORTS);
    transports[n_transports++] = transport;
    return CGP_OK;
}

cgp_status cgp__transport_add(const cgp_transport *transport) {
    if (transport->struct_size != sizeof *transport)
        return cgp_fail(CGP_EINVAL,
                        "transport: expected a table of %zu bytes, got %zu (built for another "
                        "version of cgpipe)",
                        sizeof *transport, transport->struct_size);
    if (!transport->name || !*transport->name)
        return cgp_fail(CGP_EINVAL, "transport: expected a name, got none");
    if (!has_all_functions(transport))
        return cgp_fail(CGP_EINVAL, "transport %s: expected all functions, got NULL for some",
                        transport->name);
    pthread_mutex_lock(&lock);
    const cgp_status status = add(transport);
    pthread_mutex_unlock(&lock);
    return status;
}

cgp_status cgp__link_check(const cgp_transport *transport, const cgp_link_options *options,
                           int ranks) {
    const char *name = transport->name;
    const int edge = options->edge;
    if (edge < 0) return cgp_fail(CGP_EINVAL, "%s: expected an edge >= 0, got %d", name, edge);
    if (options->peer < 0 || options->peer >= ranks)
        return cgp_fail(CGP_EINVAL, "%s, edge %d: expected a peer below %d ranks, got %d", name,
                        edge, ranks, options->peer);
    if (options->capacity < 1 || options->bytes < 1)
        return cgp_fail(CGP_EINVAL,
                        "%s, edge %d: expected 1 or more buffers of 1 or more bytes, got %d of "
                        "%" PRId64,
                        name, edge, options->capacity, options->bytes);
    if ((options->sends || transport->copies) && !options->memory)
        return cgp_fail(CGP_EINVAL, "%s, edge %d: expected buffers, got NULL", name, edge);
    return CGP_OK;
}
