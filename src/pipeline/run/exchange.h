/* SPDX-License-Identifier: Apache-2.0 */
/* exchange.h -- the exchange between replicas: a worker adds the gradients of its device over the
 * replicas, or distributes updated parameters, piece by piece (plan/memory/shards.h). The exchange
 * of gradients begins during the step. Only the worker calls these functions. */
#ifndef CGP_SRC_PIPELINE_RUN_EXCHANGE_H
#define CGP_SRC_PIPELINE_RUN_EXCHANGE_H

#include "base/base.h"

typedef struct cgp__exchange cgp__exchange;
typedef struct cgp__worker cgp__worker;

/* Describes an exchange. */
typedef struct cgp__exchange_options {
    char *memory; /* a section of the worker's memory: its gradients or its parameters */
    int64_t end;  /* bytes to exchange; the untied bytes come first */
    bool halves;  /* add the pieces of all replicas, by recursive halving */
    /* distribute the untied pieces, or the others, by recursive doubling */
    bool doubles_untied, doubles_other;
    int chunks; /* with `halves`: number of micro-batches of the whole mini-batch */
} cgp__exchange_options;

/* Allocate the worker's exchange if there are replicas. The pipeline frees it with free(). */
cgp_status cgp__exchange_create(cgp__worker *worker);

/* Begin an exchange of which no piece is ready. */
void cgp__exchange_begin(cgp__worker *worker, const cgp__exchange_options *options);

/* Begin the exchange of the gradients of a step. If not `complete`, a replica gets the sums of
 * untied gradients only for its parts. */
void cgp__exchange_begin_gradients(cgp__worker *worker, int chunks, bool complete);

/* The first `ready` pieces now have the results of this replica. Send and receive what is possible
 * without waiting. */
cgp_status cgp__exchange_advance(cgp__worker *worker, int ready);

/* All pieces are ready. Wait until all of them are exchanged. */
cgp_status cgp__exchange_finish(cgp__worker *worker);

/* Send bytes of the exchange's memory to the peer of a level, and receive other bytes in their
 * place. */
typedef struct cgp__exchange_block {
    int64_t own, other; /* offsets of the bytes to send, and of the bytes to receive */
    int64_t bytes;
} cgp__exchange_block;
cgp_status cgp__exchange_blocks(cgp__worker *worker, int level, const cgp__exchange_block *block);

#endif
