/* SPDX-License-Identifier: Apache-2.0 */
/* random_tokens.c -- computes endless random tokens for measurements, on demand.
 *
 *     tokens [sample, t] = below(key(seed, sample, 1 + 2 split),     t)
 *     targets[sample, t] = below(key(seed, sample, 1 + 2 split + 1), t)
 *
 * The ids of the keys are in source.h. */
#include "data/source.h"

#include <inttypes.h>

static void draw(const cgp_data *data, int64_t position, uint32_t id, int32_t *out) {
    const cgp__rng_key key = cgp__data_key(data, position, id);
    for (int64_t t = 0; t < data->sequence; t++)
        out[t] = (int32_t)cgp__rng_below(key, (uint64_t)t, (uint32_t)data->vocab);
}

static cgp_status fill(cgp_data *data, cgp_split split, int64_t position, int64_t index,
                       void *tokens, void *targets) {
    (void)index;
    const uint32_t id = CGP__DATA_TOKENS + (split == CGP_SPLIT_TRAIN ? 0 : 2);
    if (tokens) draw(data, position, id, tokens);
    if (targets) draw(data, position, id + 1, targets);
    return CGP_OK;
}

static cgp_status identify(const cgp_data *data, cgp__sha256 *hash) {
    return cgp__data_identify(hash, "seed %" PRIu64 "\n", data->seed);
}

typedef struct options {
    int64_t vocab, sequence;
    uint64_t seed;
} options;

static cgp_status open_random(cgp_data *data, const void *o) {
    const options *of = o;
    CGP_TRY(cgp__data_check_range("random data", "vocabulary is", "", of->vocab, 1, INT32_MAX));
    CGP_TRY(cgp__data_check_range("random data", "sequence is", "", of->sequence, 1, INT32_MAX));
    cgp__data_set_tokens(data, of->vocab, of->sequence);
    data->samples[CGP_SPLIT_TRAIN] = data->samples[CGP_SPLIT_VALIDATION] = INT64_MAX;
    data->seed = of->seed;
    return CGP_OK;
}

cgp_status cgp_data_random(cgp_data **out, int64_t vocab, int64_t sequence, uint64_t seed) {
    CGP__NEED(out);
    static const cgp__data_kind kind = {.name = "random",
                                        .size = sizeof(cgp_data),
                                        .open = open_random,
                                        .fill = fill,
                                        .identify = identify};
    return cgp__data_open(out, &kind, "random data", &(options){vocab, sequence, seed});
}
