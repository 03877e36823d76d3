/* SPDX-License-Identifier: Apache-2.0 */
/* pieces.h -- copies pieces of gradients to and from the buffers of messages. Only the worker calls
 * these functions. */
#ifndef CGP_SRC_PIPELINE_RUN_PIECES_H
#define CGP_SRC_PIPELINE_RUN_PIECES_H

#include <cgpipe/ext/backend.h>

typedef struct cgp__worker cgp__worker;

/* Copy a piece of a gradient into a message's buffer, and wait for the copy. */
cgp_status cgp__piece_fill(cgp__worker *worker, cgp_place to, const float *from, size_t bytes);

/* Copy `n` numbers from a message's buffer to `to`. If `add`, add them to the numbers at `to`
 * instead. A device with its own memory then first copies them to its workspace, which must have
 * room for `n` numbers. Wait until this is done. */
cgp_status cgp__piece_drain(cgp__worker *worker, float *to, cgp_place from, int64_t n, bool add);

#endif
