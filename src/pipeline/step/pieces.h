/* SPDX-License-Identifier: Apache-2.0 */
/* pieces.h -- copies between gradients and the buffers of messages. Called by the worker. */
#ifndef CGP_SRC_PIPELINE_STEP_PIECES_H
#define CGP_SRC_PIPELINE_STEP_PIECES_H

#include <cgpipe/ext/backend.h>

typedef struct cgp__worker cgp__worker;

/* Copy a piece of a gradient into a message's buffer, and wait for the copy. */
cgp_status cgp__piece_fill(cgp__worker *worker, cgp_place to, const float *from, size_t bytes);

/* Copy the n numbers of a message's buffer to `to`, or add them, and wait. A device with memory of
 * its own adds through its workspace, which has room for them. */
cgp_status cgp__piece_drain(cgp__worker *worker, float *to, cgp_place from, int64_t n, bool add);

#endif
