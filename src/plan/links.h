/* SPDX-License-Identifier: Apache-2.0 */
/* links.h -- the buffers of messages between devices. Each edge has a link. Gradients of tied
 * parameters have further links, between devices that cannot read each other's memory. A large
 * message between ranks is cut into pieces, which also have further links. So the copy of one piece
 * overlaps with the sending of another. */
#ifndef CGP_SRC_PLAN_LINKS_H
#define CGP_SRC_PLAN_LINKS_H

#include <cgpipe/plan.h>

typedef struct cgp__link_plan {
    int from, to; /* the devices at the two ends */
    /* bytes of a buffer; bytes of a whole message */
    int64_t bytes, message_bytes;
    /* Number of pieces of a message, >= 1. Piece 0 uses this link, piece k > 0 the link of number
     * `next` + k - 1, whose own number of pieces is 0. */
    int pieces, next;
    /* number of buffers, on each side that has buffers */
    int capacity;
    /* The device that holds the sender's buffers, normally the sender. The receiver holds them if
     * the sender shares the host's memory and the receiver, on the same rank, does not. Such a
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
    /* The sender has further buffers of its own, in device memory at shared_offset. If both ends
     * are processes of one host, the receiver copies from them. */
    bool shares;
    int64_t shared_offset;
} cgp__link_plan;

/* Bytes of a piece of a tied gradient, of a message that names a buffer of shared memory, and of a
 * piece of a message. */
enum { CGP__TIE_BYTES = 65536, CGP__SHARED_BYTES = 4, CGP__PIECE_BYTES = 4 << 20 };

/* Link e belongs to edge e; the links of tied gradients follow, then the links of pieces. */
typedef struct cgp__links {
    cgp__link_plan *list;
    int n, capacity;
} cgp__links;

/* List the links. */
cgp_status cgp__list_links(cgp_plan *plan);

/* Append the links' buffers to the planned memory of devices and of their hosts. */
void cgp__place_links(cgp_plan *plan);

/* Return the links of a plan. */
const cgp__links *cgp__plan_links(const cgp_plan *plan);

/* Return the number of the link of piece k of an edge's messages. */
int cgp__plan_piece(const cgp_plan *plan, int edge, int k);

/* Return the number of bytes of each piece of a message; the last piece may have fewer. */
int64_t cgp__plan_piece_bytes(const cgp_plan *plan, int edge);

/* Return the link of tied gradients from one device to another; -1: there is none, because `to` can
 * read the memory of `from`. */
int cgp__plan_tie(const cgp_plan *plan, int from, int to);

#endif
