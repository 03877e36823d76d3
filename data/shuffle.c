/* SPDX-License-Identifier: Apache-2.0 */
/* shuffle.c -- a Fisher-Yates shuffle per pass, with the key (seed, pass), so that position p is known without its history:
 * sample permutation_of_pass(p / n)[p % n]. The permutation of the last pass is kept. */
#include "data/shuffle.h"
#include "data/source.h"

#include <stdlib.h>

cgp_status cgp__shuffle_create(cgp__shuffle *shuffle, const char *name, uint32_t n,
                               uint64_t seed) {
    *shuffle = (cgp__shuffle){.n = n, .pass = -1, .seed = seed};
    shuffle->permutation = cgp__calloc(n, sizeof *shuffle->permutation);
    return shuffle->permutation ? CGP_OK
                                : cgp__no_memory(name, n * sizeof *shuffle->permutation);
}

void cgp__shuffle_release(cgp__shuffle *shuffle) {
    free(shuffle->permutation);
    *shuffle = (cgp__shuffle){0};
}

static void permute(cgp__shuffle *shuffle, int64_t pass) {
    uint32_t *permutation = shuffle->permutation;
    const cgp__rng_key key =
        cgp__rng_derive(shuffle->seed, CGP__RNG_DATA, (uint64_t)pass, CGP__DATA_SHUFFLE);
    for (uint32_t i = 0; i < shuffle->n; i++)
        permutation[i] = i;
    for (uint32_t i = shuffle->n - 1; i > 0; i--) {
        const uint32_t j = (uint32_t)cgp__rng_below(key, i, i + 1);
        const uint32_t swapped = permutation[i];
        permutation[i] = permutation[j];
        permutation[j] = swapped;
    }
    shuffle->pass = pass;
}

int64_t cgp__shuffle_at_short(cgp__shuffle *shuffle, int64_t position, int64_t length) {
    if (shuffle->pass != position / length) permute(shuffle, position / length);
    return shuffle->permutation[position % length];
}

int64_t cgp__shuffle_at(cgp__shuffle *shuffle, int64_t position) {
    return cgp__shuffle_at_short(shuffle, position, shuffle->n);
}
