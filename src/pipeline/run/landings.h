/* SPDX-License-Identifier: Apache-2.0 */
/* landings.h -- passes messages between ranks to the transport when the messages' copies are
 * complete. Only the worker calls these functions. */
#ifndef CGP_SRC_PIPELINE_RUN_LANDINGS_H
#define CGP_SRC_PIPELINE_RUN_LANDINGS_H

#include <cgpipe/ext/backend.h>
#include <cgpipe/ext/transport.h>

typedef struct cgp__end cgp__end;
typedef struct cgp__worker cgp__worker;

/* These functions create and free the worker's lists of pending messages. A device without queues
 * has no lists, because its copies are complete when the copy calls return. Call the second
 * function before the device is destroyed. */
cgp_status cgp__landings_create(cgp__worker *worker);
void cgp__landings_destroy(cgp__worker *worker);

/* Register a message. It is posted (if `sends`) or released when the work enqueued so far on its
 * queue is complete. The struct `*message` is copied. */
cgp_status cgp__landings_add(cgp__worker *worker, bool sends, const cgp__end *end,
                             const cgp_link_message *message);

/* Hand over the messages whose copies are complete. This function never waits. */
void cgp__landings_check(const cgp__worker *worker);

/* Return true if a registered message has not been handed over. */
bool cgp__landings_pending(const cgp__worker *worker);

/* Forget all messages, after a failure. */
void cgp__landings_drop(cgp__worker *worker);

#endif
