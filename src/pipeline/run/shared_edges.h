/* SPDX-License-Identifier: Apache-2.0 */
/* shared_edges.h -- shared edges. A shared edge passes messages between two processes of one host
 * through device memory (CUDA IPC). The receiver copies from the sender's buffers, and events of
 * both processes order the copies. */
#ifndef CGP_SRC_PIPELINE_RUN_SHARED_EDGES_H
#define CGP_SRC_PIPELINE_RUN_SHARED_EDGES_H

#include <cgpipe/ext/backend.h>

#include "base/base.h"

typedef struct cgp__executor cgp__executor;
typedef struct cgp__worker cgp__worker;

/* An end of a shared edge. Its worker creates, writes and frees it. */
typedef struct cgp__shared_end {
    char *memory;   /* the sender's buffers; at the receiver, this is their imported address */
    void *imported; /* at the receiver: the imported memory of the sender's device; NULL: none */
    /* [buffers] own: events of this device; peer: events of the peer's device. A device records
     * event b after each copy to or from buffer b. */
    cgp_event **own, **peer;
} cgp__shared_end;

/* Open all edges that can be shared. An edge can be shared if the plan has device buffers for it,
 * both ends are on one host, and a test pattern arrives in both directions. The other edges stay
 * unshared. Collective. Call it after all ranks have created their devices, and before the links
 * are opened. */
cgp_status cgp__shared_edges_open(cgp__executor *executor);

/* Close imported memory and events. Then wait for the other ranks to do the same, so that this
 * rank's memory can be freed. If a rank has failed, do not wait, and keep this rank's memory until
 * the process ends. Collective unless a rank has failed. */
void cgp__shared_edges_close(cgp__executor *executor);

/* Free the exported events of the worker's device, unless other ranks may still use them. Called by
 * the worker. */
void cgp__shared_edges_destroy_events(const cgp__worker *worker);

#endif
