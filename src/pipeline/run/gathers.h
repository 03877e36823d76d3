/* SPDX-License-Identifier: Apache-2.0 */
/* gathers.h -- exchanges data between ranks by gathers in the order of the ranks. Calls are
 * collective unless noted: the user threads of all ranks make the same calls in the same order.
 * With one rank, calls do nothing. */
#ifndef CGP_SRC_PIPELINE_RUN_GATHERS_H
#define CGP_SRC_PIPELINE_RUN_GATHERS_H

#include <cgpipe/plan.h>

#include "base/base.h"

typedef struct cgp__ranks cgp__ranks;

/* Broadcast `bytes` bytes of `data` from rank `root` to all ranks. */
cgp_status cgp__ranks_broadcast(const cgp__ranks *ranks, int root, void *data, size_t bytes);

/* Gather per-device data on all ranks. `data` has `bytes` bytes for each device. Before the call,
 * each rank fills in the data of its own devices. */
cgp_status cgp__ranks_share_devices(const cgp__ranks *ranks, const cgp_plan *plan, void *data,
                                    size_t bytes);

/* Do the same for the devices of all replicas. `data` [devices] is as above, and `all` is
 * [replicas][devices]. */
cgp_status cgp__ranks_share_replicas(const cgp__ranks *ranks, const cgp_plan *plan,
                                     const void *data, size_t bytes, void *all);

/* Gather blocks of equal size on all ranks. `all` is [n][bytes]. Before the call, each rank fills
 * in its own block. */
cgp_status cgp__ranks_share(const cgp__ranks *ranks, void *all, size_t bytes);

/* Gather blocks of different sizes on all ranks: `mine` is this rank's block, and `all` receives
 * the blocks one after the other. The caller first sets the sizes of all blocks, in bytes, in the
 * array that cgp__ranks_sizes() returns. */
size_t *cgp__ranks_sizes(const cgp__ranks *ranks);
cgp_status cgp__ranks_share_blocks(const cgp__ranks *ranks, const void *mine, void *all);

/* Gather the texts of all ranks. *all receives the texts one after the other, and lengths [n]
 * receives their lengths. The caller owns both. `mine` is this rank's text, or NULL if this rank
 * ran out of memory. */
cgp_status cgp__ranks_share_text(const cgp__ranks *ranks, const char *mine, char **all,
                                 int64_t **lengths);

#endif
