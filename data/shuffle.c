/* SPDX-License-Identifier: Apache-2.0 */
/* shuffle.c -- shuffles the n samples of each pass (Fisher-Yates), with the key (seed, pass). So
 * the sample at position p does not depend on earlier reads: it is permutation_of_pass(p / n)[p %
 * n]. The permutation of the pass that was read last is kept. */
#include "data/source.h"

cgp_status cgp__data_shuffle(cgp_data *data, const char *name, uint32_t n) {
    data->n_permutation = n;
    data->pass = -1;
    data->permutation = cgp__calloc(n, sizeof *data->permutation);
    return data->permutation ? CGP_OK : cgp__no_memory(name, n * sizeof *data->permutation);
}

static void permute(cgp_data *data, int64_t pass) {
    uint32_t *permutation = data->permutation;
    const cgp__rng_key key = cgp__data_key(data, pass, CGP__DATA_SHUFFLE);
    for (uint32_t i = 0; i < data->n_permutation; i++)
        permutation[i] = i;
    for (uint32_t i = data->n_permutation - 1; i > 0; i--) {
        const uint32_t j = (uint32_t)cgp__rng_below(key, i, i + 1);
        const uint32_t swapped = permutation[i];
        permutation[i] = permutation[j];
        permutation[j] = swapped;
    }
    data->pass = pass;
}

int64_t cgp__data_index(cgp_data *data, cgp_split split, int64_t position) {
    const int64_t length = data->samples[CGP_SPLIT_TRAIN];
    if (split == CGP_SPLIT_VALIDATION || !data->permutation) return position;
    if (data->pass != position / length) permute(data, position / length);
    return data->permutation[position % length];
}
