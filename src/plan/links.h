/* SPDX-License-Identifier: Apache-2.0 */
/* links.h -- links, which are the buffers of messages between devices. Each edge has a link.
 * Gradients of tied parameters have additional links between devices that cannot read each other's
 * memory. A large message between ranks is cut into pieces, and each piece after the first has an
 * additional link. So the copy of one piece overlaps with the sending of another. */
#ifndef CGP_SRC_PLAN_LINKS_H
#define CGP_SRC_PLAN_LINKS_H

#include <cgpipe/plan.h>

typedef struct cgp__link_plan {
    int from, to; /* the devices at the two ends */
    /* bytes of a buffer; bytes of a whole message */
    int64_t bytes, message_bytes;
    /* Number of pieces of a message, >= 1. Piece 0 uses this link. Piece k > 0 uses link `next` + k
     * - 1. Links for such further pieces have `pieces` = 0. */
    int pieces, next;
    /* number of buffers at each end that has buffers */
    int capacity;
    /* The device that holds the sender's buffers, normally the sender. On one rank, the receiver
     * holds these buffers if the sender shares the host's memory and the receiver does not. Such a
     * receiver can copy only from its own host memory. */
    int holder;
    /* The buffers are in the holder's host memory, because one device cannot access the memory of
     * the other. */
    bool in_host;
    /* offset of the sender's buffers, in the holder's device or host memory */
    int64_t offset;
    /* The ends are on different ranks, so the receiver has its own buffers, in device or host
     * memory. */
    bool receives, receives_in_host;
    int64_t receive_offset;
    /* The sender also has buffers in its device memory, at shared_offset. If both ends are
     * processes of one host, the receiver copies from these buffers. */
    bool shares;
    int64_t shared_offset;
} cgp__link_plan;

/* CGP__TIE_BYTES: bytes of a piece of a tied gradient. CGP__SHARED_BYTES: bytes of a message that
 * names a buffer in shared memory. CGP__PIECE_BYTES: bytes of a piece of any other message. */
enum { CGP__TIE_BYTES = 65536, CGP__SHARED_BYTES = 4, CGP__PIECE_BYTES = 4 << 20 };

/* The links of a plan. Link e belongs to edge e. The links of tied gradients follow the edges'
 * links, and the links of further pieces come last. */
typedef struct cgp__links {
    cgp__link_plan *list;
    int n, capacity;
} cgp__links;

/* List the links. */
cgp_status cgp__list_links(cgp_plan *plan);

/* Append the links' buffers to the planned device memory and host memory of each device. */
void cgp__place_links(cgp_plan *plan);

/* Return the links of a plan. */
const cgp__links *cgp__plan_links(const cgp_plan *plan);

/* Return the index of the link that carries piece k of an edge's messages. */
int cgp__plan_piece(const cgp_plan *plan, int edge, int k);

/* Return the size in bytes of each piece of an edge's messages; only the last piece may be
 * smaller. */
int64_t cgp__plan_piece_bytes(const cgp_plan *plan, int edge);

/* Return the link for tied gradients from device `from` to device `to`. Return -1 if there is none
 * because `to` can read the memory of `from`. */
int cgp__plan_tie(const cgp_plan *plan, int from, int to);

#endif
