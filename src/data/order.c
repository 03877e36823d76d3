/* SPDX-License-Identifier: Apache-2.0 */
/* order.c -- the order of a pass is a Fisher-Yates shuffle with the key (seed, pass), so position p
 * is known without its history: sample order_of_pass(p / n)[p % n]. The order of the last pass
 * is kept. */
#include "data/order.h"
#include "data/source.h"

#include <stdlib.h>

cgp_status cgp__order_make(cgp__order *order, const char *name, uint32_t n, uint64_t seed) {
    *order = (cgp__order){.n = n, .pass = -1, .seed = seed};
    order->order = cgp__calloc(n, sizeof *order->order);
    return order->order ? CGP_OK : cgp__no_memory(name, n * sizeof *order->order);
}

void cgp__order_release(cgp__order *order) {
    free(order->order);
    *order = (cgp__order){0};
}

static void shuffle(cgp__order *order, int64_t pass) {
    const cgp__rng_key key =
        cgp__rng_derive(order->seed, CGP__RNG_DATA, (uint64_t)pass, CGP__DATA_SHUFFLE);
    for (uint32_t i = 0; i < order->n; i++)
        order->order[i] = i;
    for (uint32_t i = order->n - 1; i > 0; i--) {
        const uint32_t j = (uint32_t)cgp__rng_below(key, i, i + 1);
        const uint32_t swapped = order->order[i];
        order->order[i] = order->order[j];
        order->order[j] = swapped;
    }
    order->pass = pass;
}

int64_t cgp__order_at_short(cgp__order *order, int64_t position, int64_t length) {
    if (order->pass != position / length) shuffle(order, position / length);
    return order->order[position % length];
}

int64_t cgp__order_at(cgp__order *order, int64_t position) {
    return cgp__order_at_short(order, position, order->n);
}
