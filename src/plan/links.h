/* SPDX-License-Identifier: Apache-2.0 */
/* links.h -- the buffers of messages between devices: of each edge, and of ties, by which the
 * gradients of a parameter travel that several devices have and cannot read at each other. */
#ifndef CGP_SRC_PLAN_LINKS_H
#define CGP_SRC_PLAN_LINKS_H

#include <cgpipe/plan.h>

typedef struct cgp__link_plan {
    int from, to; /* devices */
    /* of a buffer */
    int64_t bytes;
    /* buffers, on each side that has some */
    int capacity;
    /* The device that has the sender's buffers: the sender's, but for one that shares the host's
     * memory and sends to one of its rank that does not, which copies from its own memory of the
     * host only. */
    int holder;
    /* They are in the host's memory of that device, as one of the two cannot reach the other's. */
    bool in_host;
    /* of the sender's buffers, in the memory of the holder, or in_host */
    int64_t offset;
    /* The ends are on different ranks: the receiver has buffers of its own, in its device's memory
     * or the host's. */
    bool receives, receives_in_host;
    int64_t receive_offset;
} cgp__link_plan;

/* Bytes of a piece of a tied gradient. */
enum { CGP__TIE_BYTES = 65536 };

/* Assign the devices to ranks, in contiguous blocks. */
cgp_status cgp__plan_ranks(cgp_plan *plan, int ranks);

/* List the links: number e is that of edge e, then come the ties. */
cgp_status cgp__plan_links(cgp_plan *plan);

/* Place the links' buffers behind all else that devices have. */
void cgp__plan_place_links(cgp_plan *plan);

/* Return the number of the tie from a device to another; -1: one reads the other's memory. */
int cgp__plan_tie(const cgp_plan *plan, int from, int to);

/* Return true if the device belongs to the rank. */
bool cgp__plan_is_on(const cgp_plan *plan, int device, int rank);

#endif
