/* SPDX-License-Identifier: Apache-2.0 */
/* landings.h -- messages between ranks that are handed over when their copies are complete. Every
 * call is made by the worker. */
#ifndef CGP_SRC_PIPELINE_RUN_LANDINGS_H
#define CGP_SRC_PIPELINE_RUN_LANDINGS_H

#include <cgpipe/ext/backend.h>
#include <cgpipe/ext/transport.h>

typedef struct cgp__end cgp__end;
typedef struct cgp__worker cgp__worker;

/* Make and free the worker's lists. A device without queues has none: its copies are complete when
 * they return. Call destroy before the device is destroyed. */
cgp_status cgp__landings_create(cgp__worker *worker);
void cgp__landings_destroy(cgp__worker *worker);

/* Post (if `sends`) or release a message when the current work of its queue is complete. The struct
 * `*message` is copied. */
cgp_status cgp__landings_add(cgp__worker *worker, bool sends, const cgp__end *end,
                             const cgp_link_message *message);

/* Hand over the messages whose copies are complete. It never waits. */
void cgp__landings_check(const cgp__worker *worker);

/* Return whether a message has not been handed over. */
bool cgp__landings_pending(const cgp__worker *worker);

/* Forget all messages, after a failure. */
void cgp__landings_drop(cgp__worker *worker);

#endif
