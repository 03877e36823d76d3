/* SPDX-License-Identifier: Apache-2.0 */
/* links.c -- assigns devices to ranks, and lists the links between devices. See links.h. */
#include "plan/links.h"

#include <cgpipe/ext/transport.h>

#include "plan/plan.h"

cgp_status cgp__plan_ranks(cgp_plan *plan, int ranks) {
    plan->ranks = ranks;
    if (ranks < 1 || ranks > plan->n_devices)
        return cgp_fail(CGP_EINVAL,
                        "ranks: expected 1 to %d, a device for each, got %d (more stages)",
                        plan->n_devices, ranks);
    for (int d = 0; d < plan->n_devices; d++)
        plan->devices[d].info.rank = (int)((int64_t)d * ranks / plan->n_devices);
    return CGP_OK;
}

bool cgp__plan_is_on(const cgp_plan *plan, int device, int rank) {
    return plan->devices[device].info.rank == rank;
}

int cgp__plan_tie(const cgp_plan *plan, int from, int to) {
    for (int l = plan->n_edges; l < plan->n_links; l++) {
        if (plan->links[l].from == from && plan->links[l].to == to) return l;
    }
    return -1;
}

/* Return whether device `to` cannot read memory of device `from`: the memory is on another rank, or
 * is device memory of another backend. */
static bool are_apart(const cgp_plan *plan, int from, int to) {
    const cgp__device_plan *a = &plan->devices[from], *b = &plan->devices[to];
    return a->info.rank != b->info.rank ||
           (!a->backend->host_addressable && a->backend != b->backend);
}

static cgp_status add_link(cgp_plan *plan, int from, int to, int64_t bytes, int capacity) {
    if (!cgp__grow(&plan->links, &plan->links_capacity, plan->n_links + 1, sizeof *plan->links))
        return cgp__no_memory("plan: links", sizeof *plan->links);
    const cgp__device_plan *a = &plan->devices[from], *b = &plan->devices[to];
    const bool receives = a->info.rank != b->info.rank;
    const bool to_it = a->backend->host_addressable && !b->backend->host_addressable && !receives;
    const bool from_it = !a->backend->host_addressable && are_apart(plan, from, to);
    plan->links[plan->n_links++] =
        (cgp__link_plan){.from = from,
                         .to = to,
                         .bytes = bytes,
                         .capacity = capacity,
                         .holder = to_it ? to : from,
                         .in_host = to_it || from_it,
                         .receives = receives,
                         .receives_in_host = !b->backend->host_addressable};
    return CGP_OK;
}

static cgp_status add_tie(cgp_plan *plan, int from, int to) {
    if (from == to || !are_apart(plan, from, to) || cgp__plan_tie(plan, from, to) >= 0)
        return CGP_OK;
    return add_link(plan, from, to, CGP__TIE_BYTES, 2);
}

/* Add a link from each device that uses the parameter to its owner, and from the owner to each
 * device that holds a copy. */
static cgp_status add_ties(cgp_plan *plan, int p) {
    const cgp__parameter *param = &plan->model->params[p];
    const int owner = plan->copies[plan->first_copy[p]].device;
    for (int u = param->first_use; u < param->first_use + param->n_uses; u++) {
        const int node = plan->model->uses[u].node;
        if (plan->model->nodes[node].requires_grad)
            CGP_TRY(add_tie(plan, cgp__plan_device_of(plan, node), owner));
    }
    for (int c = plan->first_copy[p] + 1; c < plan->first_copy[p + 1] && param->requires_grad; c++)
        CGP_TRY(add_tie(plan, owner, plan->copies[c].device));
    return CGP_OK;
}

cgp_status cgp__plan_links(cgp_plan *plan) {
    for (int e = 0; e < plan->n_edges; e++) {
        const cgp__edge_plan *edge = &plan->edges[e];
        CGP_TRY(add_link(plan, plan->stages[edge->edge.from].info.device,
                         plan->stages[edge->edge.to].info.device, edge->bytes, edge->capacity));
    }
    for (int p = 0; p < plan->model->n_params && !plan->inference; p++)
        if (cgp__plan_is_tied(plan, p)) CGP_TRY(add_ties(plan, p));
    return CGP_OK;
}

/* Reserve bytes in a device's memory, or in its host memory; return their offset. */
static int64_t reserve(cgp_plan_device *info, bool in_host, int64_t bytes, int64_t *item) {
    int64_t *end = in_host ? &info->host_bytes : &info->planned_bytes;
    const int64_t offset = *end;
    *end += bytes;
    if (!in_host) *item += bytes;
    return offset;
}

void cgp__plan_place_links(cgp_plan *plan) {
    for (int l = 0; l < plan->n_links; l++) {
        cgp__link_plan *link = &plan->links[l];
        cgp_plan_device *from = &plan->devices[link->holder].info,
                        *to = &plan->devices[link->to].info;
        const int64_t bytes =
            link->capacity * (link->bytes + (link->receives ? CGP_LINK_HEADER_BYTES : 0));
        link->offset = reserve(from, link->in_host, bytes, &from->transfer_bytes);
        if (link->receives)
            link->receive_offset = reserve(to, link->receives_in_host, bytes, &to->receive_bytes);
    }
}
