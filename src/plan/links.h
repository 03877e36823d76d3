/* SPDX-License-Identifier: Apache-2.0 */
/* links.h -- links. A link is the set of buffers for messages from one device to another. Each edge
 * has a link. Gradients of tied parameters use additional links between devices that cannot read
 * each other's memory. A large message between ranks is cut into pieces, and each piece after the
 * first has an additional link. So the copy of one piece overlaps with the sending of another. */
#ifndef CGP_SRC_PLAN_LINKS_H
#define CGP_SRC_PLAN_LINKS_H

#include <cgpipe/ext/backend.h>
#include <cgpipe/plan.h>

typedef struct cgp__setup cgp__setup;

typedef struct cgp__link_plan {
    int from, to; /* devices */
    /* 0: a link within a replica. k > 0: a link between replicas. A device of replica r has both
     * ends of the link. It exchanges gradients with its counterpart in replica r xor 2^(k - 1). The
     * device sends from the buffers at `offset`, and receives into the buffers at
     * `receive_offset`. */
    int level;
    /* bytes of a buffer; bytes of a whole message */
    int64_t bytes, message_bytes;
    /* Number of pieces of a message, >= 1. Piece 0 uses this link. Piece k > 0 uses link `next` + k
     * - 1, and that link has `pieces` = 0. */
    int pieces, next;
    /* number of buffers at the sender's end; also at the receiver's end if `receives` */
    int capacity;
    /* The device that holds the sender's buffers, normally the sender. Exception: if both ends are
     * on one rank, and the sender is host-addressable and the receiver is not, the receiver holds
     * the buffers. Such a receiver can copy only from its own host memory. */
    int holder;
    /* Set if the buffers are in the holder's host memory, because one device cannot access the
     * memory of the other. */
    bool in_host;
    /* offset of the sender's buffers, in the holder's device or host memory */
    int64_t offset;
    /* receives: set if the ends are on different ranks, so the receiver has its own buffers.
     * receives_in_host: set if these buffers are in host memory, otherwise in device memory. */
    bool receives, receives_in_host;
    int64_t receive_offset;
    /* Set if the sender also has buffers in its device memory, at shared_offset. If both ends are
     * processes of one host, the receiver copies from these buffers. */
    bool shares;
    int64_t shared_offset;
} cgp__link_plan;

/* Sizes in bytes. TIE: a piece of a tied gradient. SHARED: a message that names a buffer of shared
 * memory. PIECE: a piece of another message, unless CGP_PIECE_BYTES sets the size. */
enum { CGP__TIE_BYTES = 65536, CGP__SHARED_BYTES = 4, CGP__PIECE_BYTES = 4 << 20 };

/* Link e belongs to edge e. Next come the links of tied gradients, then the links of further
 * pieces. The links between replicas come last. Each device has two links for each of the levels 1
 * .. log2 R: one for halving and one for doubling. */
typedef struct cgp__links {
    cgp__link_plan *list;
    int n, capacity;
} cgp__links;

/* Set the maximum bytes of pieces. */
cgp_status cgp__read_piece_bytes(cgp__setup *setup);

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

/* Return the index of a device's first link to other replicas. The links of a level are for halving
 * and for doubling; the links of higher levels have the next indices. */
int cgp__plan_exchange(const cgp_plan *plan, int device);

/* Return true if devices of a backend exchange gradients with other replicas while the actions of a
 * step run. Other devices would need more memory for this: they add received parts through their
 * workspace, which actions use. */
bool cgp__exchange_overlaps(const cgp_backend *backend);

/* Return the link of tied gradients from one device to another, or -1 if there is none. Devices
 * need no link if `to` can read the memory of `from`. */
int cgp__plan_tie(const cgp_plan *plan, int from, int to);

#endif
