/* SPDX-License-Identifier: Apache-2.0 */
/* link_ends.h -- the ends of links between devices: their transports, buffers and events. */
#ifndef CGP_SRC_PIPELINE_RUN_LINK_ENDS_H
#define CGP_SRC_PIPELINE_RUN_LINK_ENDS_H

#include <cgpipe/ext/backend.h>
#include <cgpipe/ext/transport.h>

typedef struct cgp__executor cgp__executor;
typedef struct cgp__shared_end cgp__shared_end;
typedef struct cgp__worker cgp__worker;

/* One end of a link. */
typedef struct cgp__end {
    /* Set by the caller's thread when it opens the link. */
    const cgp_transport *transport;
    cgp_communicator *communicator;
    cgp_link *link; /* NULL: the end is on another rank */
    char *memory;   /* address of the end's buffers */
    /* [buffers] events of an asynchronous device: event b is recorded after each copy to or from
     * buffer b. NULL: the link needs no events. The worker of the end's device creates them. */
    cgp_event **events;
    /* For a link of tied gradients: number of pieces sent or received so far. Written by the
     * worker. */
    int64_t pieces;
    /* Set for a shared edge between ranks. Then the receiver copies from the sender's device
     * memory, and each message is the number of a buffer in this memory. `shared` may be non-NULL
     * even if `shares` is false. */
    bool shares;
    cgp__shared_end *shared;
} cgp__end;

/* Open all links that have an end on this rank. Use the links only after all ranks have opened
 * their ends. */
cgp_status cgp__link_ends_open(cgp__executor *executor);

/* Close all links. No message arrives afterwards, so devices may be destroyed. */
void cgp__link_ends_close(cgp__executor *executor);

/* These functions create and free the events of the link ends on the worker's device. Called by the
 * worker. */
cgp_status cgp__link_ends_create_events(const cgp__worker *worker);
void cgp__link_ends_destroy_events(const cgp__worker *worker);

#endif
