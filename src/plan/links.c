/* SPDX-License-Identifier: Apache-2.0 */
/* links.c -- lists the links between devices. See links.h. */
#include "plan/links.h"

#include <cgpipe/ext/transport.h>

#include "model/model.h"
#include "plan/memory/devices.h"
#include "plan/memory/shards.h"
#include "plan/owners.h"
#include "plan/plan.h"

#include <stdlib.h>

int cgp__plan_tie(const cgp_plan *plan, int from, int to) {
    for (int l = plan->messages.n_edges; l < plan->links.n; l++) {
        const cgp__link_plan *link = &plan->links.list[l];
        if (link->from == from && link->to == to && link->pieces > 0 && link->level == 0) return l;
    }
    return -1;
}

/* Return true if device `to` cannot read the memory of device `from`, which is on another rank or
 * is device memory of another backend. */
static bool are_apart(const cgp_plan *plan, int from, int to) {
    const cgp__device_plan *a = &plan->placement.devices[from], *b = &plan->placement.devices[to];
    return a->info.rank != b->info.rank ||
           (!a->backend->host_addressable && a->backend != b->backend);
}

/* Return true if it is worthwhile to cut messages from one device to another into pieces. Copies
 * between device and host memory can then overlap with the transport. */
static bool is_divisible(const cgp_plan *plan, int from, int to) {
    const cgp__device_plan *a = &plan->placement.devices[from], *b = &plan->placement.devices[to];
    return a->info.rank != b->info.rank &&
           (!a->backend->host_addressable || !b->backend->host_addressable);
}

/* Tests use the environment variable CGP_PIECE_BYTES to set the maximum size of a message's
 * pieces. */
cgp_status cgp__read_piece_bytes(cgp__setup *setup) {
    const char *text = getenv("CGP_PIECE_BYTES");
    char *end = NULL;
    int64_t bytes = CGP__PIECE_BYTES;
    if (text) bytes = strtoll(text, &end, 10);
    setup->piece_bytes = bytes;
    setup->reduce_bytes = cgp__min(bytes, CGP_REDUCE_BYTES);
    if (!text || (end != text && *end == '\0' && bytes >= 64 && bytes % 64 == 0)) return CGP_OK;
    return cgp_fail(CGP_EINVAL, "CGP_PIECE_BYTES: expected a multiple of 64, got \"%s\"", text);
}

static cgp_status add_link(cgp_plan *plan, int from, int to, int64_t bytes, int capacity) {
    if (!cgp__grow(&plan->links.list, &plan->links.capacity, plan->links.n + 1,
                   sizeof *plan->links.list))
        return cgp__no_memory("plan: links", sizeof *plan->links.list);
    const cgp__device_plan *a = &plan->placement.devices[from], *b = &plan->placement.devices[to];
    const bool receives = a->info.rank != b->info.rank;
    const bool to_it = a->backend->host_addressable && !b->backend->host_addressable && !receives;
    const bool from_it = !a->backend->host_addressable && are_apart(plan, from, to);
    /* ranks exchange one handle of shared memory for all replicas, so a plan with several replicas
     * cannot share memory */
    const bool shares = receives && a->backend == b->backend && a->backend->sharing &&
                        plan->links.n < plan->messages.n_edges && bytes >= CGP__SHARED_BYTES &&
                        plan->setup.replicas == 1;
    plan->links.list[plan->links.n++] =
        (cgp__link_plan){.from = from,
                         .to = to,
                         .bytes = bytes,
                         .message_bytes = bytes,
                         .pieces = 1,
                         .capacity = capacity,
                         .holder = to_it ? to : from,
                         .in_host = to_it || from_it,
                         .receives = receives,
                         .receives_in_host = !b->backend->host_addressable,
                         .shares = shares};
    return CGP_OK;
}

static cgp_status add_tie(cgp_plan *plan, int from, int to) {
    if (from == to || !are_apart(plan, from, to) || cgp__plan_tie(plan, from, to) >= 0)
        return CGP_OK;
    return add_link(plan, from, to, CGP__TIE_BYTES, 2);
}

/* Add the links of a tied parameter: from each device that uses the parameter to the owner, and
 * from the owner to each device that holds a copy. */
static cgp_status add_ties(cgp_plan *plan, int p) {
    const cgp__parameter *param = &plan->setup.model->params[p];
    const int owner = plan->parameters.copies[plan->parameters.first_copy[p]].device;
    for (int u = param->first_use; u < param->first_use + param->n_uses; u++) {
        const int node = plan->setup.model->uses[u].node;
        if (plan->setup.model->nodes[node].requires_grad)
            CGP_TRY(add_tie(plan, cgp__plan_device_of(plan, node), owner));
    }
    for (int c = plan->parameters.first_copy[p] + 1;
         c < plan->parameters.first_copy[p + 1] && param->requires_grad; c++)
        CGP_TRY(add_tie(plan, owner, plan->parameters.copies[c].device));
    return CGP_OK;
}

/* Divide the messages of an edge into pieces. The first piece stays on the edge's link; each
 * further piece gets a new link. */
static cgp_status divide(cgp_plan *plan, int edge, int64_t most) {
    const cgp__link_plan whole = plan->links.list[edge];
    if (whole.bytes <= most || !is_divisible(plan, whole.from, whole.to)) return CGP_OK;
    const int64_t pieces = cgp__ceil_div(whole.bytes, most);
    plan->links.list[edge].bytes = most;
    plan->links.list[edge].pieces = (int)pieces;
    plan->links.list[edge].next = plan->links.n;
    for (int64_t k = 1; k < pieces; k++) {
        CGP_TRY(add_link(plan, whole.from, whole.to, cgp__min(most, whole.bytes - k * most),
                         whole.capacity));
        plan->links.list[plan->links.n - 1].pieces = 0;
    }
    return CGP_OK;
}

int cgp__plan_piece(const cgp_plan *plan, int edge, int k) {
    return k == 0 ? edge : plan->links.list[edge].next + k - 1;
}

int64_t cgp__plan_piece_bytes(const cgp_plan *plan, int edge) {
    return plan->links.list[edge].bytes;
}

/* --- between replicas --- */

bool cgp__exchange_overlaps(const cgp_backend *backend) {
    return backend->host_addressable && !backend->streams;
}

int cgp__plan_exchange(const cgp_plan *plan, int device) {
    const int each = 2 * cgp__shard_levels(&plan->setup);
    return plan->links.n - each * (plan->placement.n_devices - device);
}

/* Return the bytes of the largest piece that a device exchanges with other replicas. */
static int64_t largest_piece(const cgp_plan *plan, const cgp__device_plan *device) {
    const int64_t untied = device->untied_bytes;
    int64_t bytes = cgp__max(untied, device->written_gradient_bytes - untied);
    if (plan->setup.shards) bytes = cgp__max(bytes, device->trained_bytes - untied);
    bytes = cgp__max(bytes, device->log_bytes * plan->setup.chunks);
    return cgp__max(cgp__min(plan->setup.reduce_bytes, bytes), 4);
}

/* Add the links between replicas. Over these links, a device exchanges halves of each piece of its
 * gradients, and of its parameters if they are in shards. If the device is not host-addressable, it
 * copies received halves to its workspace and adds them from there. */
static cgp_status add_exchanges(cgp_plan *plan, int device) {
    cgp__device_plan *d = &plan->placement.devices[device];
    const bool in_host = !d->backend->host_addressable;
    int64_t bytes = largest_piece(plan, d);
    if (in_host && plan->setup.replicas > 1)
        d->info.workspace_bytes =
            cgp__max(d->info.workspace_bytes, cgp__align_up(cgp__shard_half(bytes)));
    for (int k = 0; k < 2 * cgp__shard_levels(&plan->setup); k++) {
        if (k % 2 == 0) bytes = cgp__shard_half(bytes);
        CGP_TRY(add_link(plan, device, device, bytes, 2));
        cgp__link_plan *link = &plan->links.list[plan->links.n - 1];
        link->level = k / 2 + 1;
        link->receives = true;
        link->in_host = link->receives_in_host = in_host;
    }
    return CGP_OK;
}

cgp_status cgp__list_links(cgp_plan *plan) {
    for (int e = 0; e < plan->messages.n_edges; e++) {
        const cgp__edge_plan *edge = &plan->messages.edges[e];
        CGP_TRY(add_link(plan, plan->placement.stages[edge->edge.from].info.device,
                         plan->placement.stages[edge->edge.to].info.device, edge->bytes,
                         edge->capacity));
    }
    for (int p = 0; p < plan->setup.model->n_params && !plan->setup.inference; p++)
        if (cgp__is_tied(&plan->parameters, plan->setup.model, p)) CGP_TRY(add_ties(plan, p));
    for (int e = 0; e < plan->messages.n_edges; e++)
        CGP_TRY(divide(plan, e, plan->setup.piece_bytes));
    for (int d = 0; d < plan->placement.n_devices; d++)
        CGP_TRY(add_exchanges(plan, d));
    return CGP_OK;
}

/* Reserve bytes in a device's memory or, if `in_host`, in its host memory. Return the offset of
 * these bytes. */
static int64_t reserve(cgp_plan_device *info, bool in_host, int64_t bytes, int64_t *item) {
    int64_t *end = in_host ? &info->host_bytes : &info->planned_bytes;
    const int64_t offset = *end;
    *end += bytes;
    if (!in_host) *item += bytes;
    return offset;
}

void cgp__place_links(cgp_plan *plan) {
    for (int l = 0; l < plan->links.n; l++) {
        cgp__link_plan *link = &plan->links.list[l];
        cgp_plan_device *from = &plan->placement.devices[link->holder].info,
                        *to = &plan->placement.devices[link->to].info;
        const int64_t bytes =
            link->capacity * (link->bytes + (link->receives ? CGP_LINK_HEADER_BYTES : 0));
        link->offset = reserve(from, link->in_host, bytes, &from->transfer_bytes);
        if (link->receives)
            link->receive_offset = reserve(to, link->receives_in_host, bytes, &to->receive_bytes);
        if (link->shares)
            link->shared_offset =
                reserve(from, false, link->capacity * link->message_bytes, &from->transfer_bytes);
    }
}
