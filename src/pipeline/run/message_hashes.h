/* SPDX-License-Identifier: Apache-2.0 */
/* message_hashes.h -- hashes of the messages between the stages of a step. The sender hashes the
 * values that it sends, and the receiver hashes the values that it has received. So two equal runs
 * of a step show in which stage, or between which stages, a third run differs. */
#ifndef CGP_SRC_PIPELINE_RUN_MESSAGE_HASHES_H
#define CGP_SRC_PIPELINE_RUN_MESSAGE_HASHES_H

#include "pipeline/run/hasher.h"

typedef struct cgp__execution cgp__execution;

typedef struct cgp__message_hashes {
    const cgp__hasher *hashers; /* [devices] borrowed; used by the device's worker */
    int chunks;
    cgp__hash16 *hashes; /* [edges][chunks][2] of the sender [0] and of the receiver [1]; written by
                          * their workers */
} cgp__message_hashes;

/* Return the hash of a message. */
static inline unsigned char *cgp__message_hash_at(const cgp__message_hashes *all, int edge,
                                                  int microbatch, bool received) {
    return all->hashes[2 * (edge * all->chunks + microbatch) + received];
}

/* Hash the message of a transfer whose copies are enqueued. Waits for the device. */
cgp_status cgp__message_hash(const cgp__execution *execution);

#endif
