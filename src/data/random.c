/* SPDX-License-Identifier: Apache-2.0 */
/* random.c -- endless random tokens, for measurements: nothing is stored.
 *
 *     tokens [sample, t] = below(key(seed, sample, 1 + 2 split),     t)
 *     targets[sample, t] = below(key(seed, sample, 1 + 2 split + 1), t)
 *
 * Ids are those of source.h. */
#include "base/base.h"
#include "data/source.h"

#include <inttypes.h>
#include <stdlib.h>

typedef struct noise_data {
    cgp_data base;
    uint64_t seed;
} noise_data;

static void draw(const noise_data *noise, int64_t position, uint32_t id, int32_t *out) {
    const cgp__rng_key key =
        cgp__rng_derive(noise->seed, CGP__RNG_DATA, (uint64_t)position, id);
    for (int64_t t = 0; t < noise->base.sequence; t++)
        out[t] = (int32_t)cgp__rng_below(key, (uint64_t)t, (uint32_t)noise->base.vocab);
}

static cgp_status fill(cgp_data *data, cgp_split split, int64_t position, void *tokens,
                       void *targets) {
    const noise_data *noise = (const noise_data *)data;
    const uint32_t id = CGP__DATA_TOKENS + (split == CGP_SPLIT_TRAIN ? 0 : 2);
    draw(noise, position, id, tokens);
    draw(noise, position, id + 1, targets);
    return CGP_OK;
}

static cgp_status identify(const cgp_data *data, cgp__sha256 *hash) {
    return cgp__data_identify(hash, "seed %" PRIu64 "\n", ((const noise_data *)data)->seed);
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
    noise_data *noise = cgp__calloc(1, sizeof *noise);
    if (!noise) return cgp__no_memory("random data", sizeof *noise);
    noise->base.kind = &kind;
    cgp__data_set_tokens(&noise->base, vocab, sequence);
    noise->base.samples[CGP_SPLIT_TRAIN] = INT64_MAX;
    noise->base.samples[CGP_SPLIT_VALIDATION] = INT64_MAX;
    noise->seed = seed;
    *out = &noise->base;
    return CGP_OK;
}
