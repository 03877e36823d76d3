/* SPDX-License-Identifier: Apache-2.0 */
/* random_tokens.c -- endless random tokens, for measurements; computed on demand.
 *
 *     tokens [sample, t] = below(key(seed, sample, 1 + 2 split),     t)
 *     targets[sample, t] = below(key(seed, sample, 1 + 2 split + 1), t)
 *
 * Ids are those of source.h. */
#include "base/base.h"
#include "data/source.h"

#include <inttypes.h>
#include <stdlib.h>

typedef struct random_tokens {
    cgp_data base;
    uint64_t seed;
} random_tokens;

static void draw(const random_tokens *set, int64_t position, uint32_t id, int32_t *out) {
    const cgp__rng_key key = cgp__rng_derive(set->seed, CGP__RNG_DATA, (uint64_t)position, id);
    for (int64_t t = 0; t < set->base.sequence; t++)
        out[t] = (int32_t)cgp__rng_below(key, (uint64_t)t, (uint32_t)set->base.vocab);
}

static cgp_status fill(cgp_data *data, cgp_split split, int64_t position, void *tokens,
                       void *targets) {
    const random_tokens *set = (const random_tokens *)data;
    const uint32_t id = CGP__DATA_TOKENS + (split == CGP_SPLIT_TRAIN ? 0 : 2);
    draw(set, position, id, tokens);
    draw(set, position, id + 1, targets);
    return CGP_OK;
}

static cgp_status identify(const cgp_data *data, cgp__sha256 *hash) {
    return cgp__data_identify(hash, "seed %" PRIu64 "\n", ((const random_tokens *)data)->seed);
}

static void destroy(cgp_data *data) {
    free(data);
}

cgp_status cgp_data_random(cgp_data **out, int64_t vocab, int64_t sequence, uint64_t seed) {
    CGP__NEED(out);
    static const cgp__data_kind kind = {
        .name = "random", .fill = fill, .identify = identify, .destroy = destroy};
    if (vocab < 1 || vocab > INT32_MAX)
        return cgp_fail(CGP_EINVAL, "random data: vocabulary is between 1 and %d, got %" PRId64,
                        INT32_MAX, vocab);
    if (sequence < 1 || sequence > INT32_MAX)
        return cgp_fail(CGP_EINVAL, "random data: sequence is between 1 and %d, got %" PRId64,
                        INT32_MAX, sequence);
    random_tokens *set = cgp__calloc(1, sizeof *set);
    if (!set) return cgp__no_memory("random data", sizeof *set);
    set->base.kind = &kind;
    cgp__data_set_tokens(&set->base, vocab, sequence);
    set->base.samples[CGP_SPLIT_TRAIN] = INT64_MAX;
    set->base.samples[CGP_SPLIT_VALIDATION] = INT64_MAX;
    set->seed = seed;
    *out = &set->base;
    return CGP_OK;
}
