/* SPDX-License-Identifier: Apache-2.0 */
/* link_ends.c -- opens and closes the link ends on this rank. */
#include "pipeline/run/link_ends.h"

#include "pipeline/run/executor.h"
#include "pipeline/run/ranks.h"
#include "pipeline/run/worker.h"
#include "plan/links.h"
#include "plan/setup.h"
#include "transport/transport.h"

#include <stdlib.h>

/* A blocked thread takes 50 us or more to wake. A message often arrives sooner. So if every device
 * has separate cores, a waiting thread spins for this time, in ns, before it blocks. */
#define SPIN_NS 20000000

/* Return true if no two threads of this rank's devices share a core. */
static bool all_have_cores(const cgp__executor *executor) {
    for (int d = executor->ranks->first; d < executor->ranks->end; d++) {
        const cgp__worker *worker = &executor->workers[d];
        if (!worker->backend->device.has_cores(worker->device)) return false;
    }
    return true;
}

/* Return the address of the buffers that a link's end uses. Both ends use the sender's buffers,
 * except between ranks, where the receiver has its own buffers. */
static char *buffers_of(const cgp__executor *executor, const cgp__link_plan *link, bool sends) {
    const bool own = !sends && link->receives;
    const cgp__worker *worker = &executor->workers[own ? link->to : link->holder];
    const bool in_host = own ? link->receives_in_host : link->in_host;
    const int64_t offset = own ? link->receive_offset : link->offset;
    return in_host ? worker->host + offset : cgp__worker_at(worker, offset);
}

/* Set the number of an edge and the rank of its other end. Numbers are unique over all replicas.
 * Two replicas exchange gradients over two edges, one for each direction; both are numbered by the
 * lower replica. */
static void name_edge(const cgp__executor *executor, int l, bool sends, cgp_link_options *out) {
    const cgp_plan *plan = executor->plan;
    const cgp__links *links = cgp__plan_links(plan);
    const cgp__link_plan *link = &links->list[l];
    const cgp__setup *setup = cgp__plan_setup(plan);
    const int own = executor->ranks->replica, bit = link->level > 0 ? 1 << (link->level - 1) : 0,
              upper = bit > 0 && ((own & bit) != 0) == sends;
    out->edge = l;
    if (setup->replicas > 1) out->edge = 2 * ((own & ~bit) * links->n + l) + upper;
    if (link->receives)
        out->peer = cgp__ranks_with(executor->ranks, plan, sends ? link->to : link->from) +
                    ((own ^ bit) - own) * setup->ranks;
}

static cgp_status open_end(cgp__executor *executor, int l, bool sends, int64_t spin_ns) {
    const cgp_plan *plan = executor->plan;
    const cgp__link_plan *link = &cgp__plan_links(plan)->list[l];
    const cgp__ranks *ranks = executor->ranks;
    cgp__end *end = &executor->ends[2 * l + (sends ? 0 : 1)];
    if (!cgp__ranks_own(ranks, sends ? link->from : link->to)) return CGP_OK;
    end->transport = link->receives ? ranks->transport : &cgp__transport_inproc;
    end->communicator = link->receives ? ranks->communicator : executor->inproc;
    end->memory = buffers_of(executor, link, sends);
    cgp_link_options options = {.struct_size = sizeof options,
                                .sends = sends,
                                .capacity = link->capacity,
                                .bytes = link->bytes,
                                .memory = sends || link->receives ? end->memory : NULL,
                                .spin_ns = spin_ns};
    name_edge(executor, l, sends, &options);
    return end->transport->links.open(end->communicator, &options, &end->link);
}

cgp_status cgp__link_ends_open(cgp__executor *executor) {
    const int64_t spin_ns = all_have_cores(executor) ? SPIN_NS : 0;
    if (!executor->inproc) CGP_TRY(cgp__inproc_create(&executor->inproc));
    for (int l = 0; l < cgp__plan_links(executor->plan)->n; l++) {
        CGP_TRY(open_end(executor, l, true, spin_ns));
        CGP_TRY(open_end(executor, l, false, spin_ns));
    }
    return CGP_OK;
}

void cgp__link_ends_close(cgp__executor *executor) {
    for (int k = 0; executor->ends && k < 2 * cgp__plan_links(executor->plan)->n; k++) {
        cgp__end *end = &executor->ends[k];
        if (end->link) end->transport->links.close(end->link);
        end->link = NULL;
    }
}

cgp_status cgp__link_ends_create_events(const cgp__worker *worker) {
    const cgp__links *links = cgp__plan_links(worker->plan);
    const cgp_backend_streams *streams = worker->backend->streams;
    for (int l = 0; streams && l < links->n; l++) {
        const cgp__link_plan *link = &links->list[l];
        for (int side = 0; side < 2; side++) {
            cgp__end *end = &worker->executor->ends[2 * l + side];
            if (link->receives || (side == 0 ? link->from : link->to) != worker->index) continue;
            CGP_TRY(CGP__NEW(end->events, link->capacity, "worker"));
            for (int i = 0; i < link->capacity; i++)
                CGP_TRY(streams->event_create(worker->device, &end->events[i]));
        }
    }
    return CGP_OK;
}

void cgp__link_ends_destroy_events(const cgp__worker *worker) {
    const cgp__links *links = cgp__plan_links(worker->plan);
    const cgp_backend_streams *streams = worker->backend->streams;
    for (int k = 0; streams && k < 2 * links->n; k++) {
        const cgp__link_plan *link = &links->list[k / 2];
        cgp__end *end = &worker->executor->ends[k];
        if ((k % 2 == 0 ? link->from : link->to) != worker->index || !end->events) continue;
        for (int i = 0; i < link->capacity; i++)
            if (end->events[i]) streams->event_destroy(end->events[i]);
        free(end->events);
    }
}
