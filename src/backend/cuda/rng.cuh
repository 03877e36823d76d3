/* SPDX-License-Identifier: Apache-2.0 */
/* rng.cuh -- Philox4x32-10 (Salmon et al. 2011) and the dropout rule of ext/ops/common.h. The key
 * is derived on the device, because seed and step are per-step constants. */
#ifndef CGP_SRC_CUDA_RNG_CUH
#define CGP_SRC_CUDA_RNG_CUH

#include "backend/cuda/cuda.cuh"

typedef struct rng_key {
    uint32_t k0, k1;
} rng_key;

typedef struct rng_words {
    uint32_t at[4];
} rng_words;

/* Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3",
 * 2011). */
__device__ static inline rng_words philox(rng_key key, uint32_t c0, uint32_t c1, uint32_t c2,
                                          uint32_t c3) {
    for (int round = 0; round < 10; round++) {
        const uint32_t high0 = __umulhi(0xD2511F53u, c0), low0 = 0xD2511F53u * c0;
        const uint32_t high1 = __umulhi(0xCD9E8D57u, c2), low1 = 0xCD9E8D57u * c2;
        c0 = high1 ^ c1 ^ key.k0;
        c1 = low1;
        c2 = high0 ^ c3 ^ key.k1;
        c3 = low0;
        key.k0 += 0x9E3779B9u;
        key.k1 += 0xBB67AE85u;
    }
    return {{c0, c1, c2, c3}};
}

/* An op's dropout, as a kernel argument. */
typedef struct dropout_rule {
    const cgp_step_values *values;
    uint32_t id;
    /* Threshold for a random word: p 2^32. */
    uint32_t threshold;
    /* Factor of kept elements: 1 / (1 - p). */
    float scale;
    /* False: dropout is off, so every factor is 1. */
    bool on;
} dropout_rule;

static inline dropout_rule dropout_of(const cgp_kernel_spec *spec,
                                      const cgp_kernel_args *args) {
    const double p = (double)spec->attributes.p;
    return {args->values, args->id, (uint32_t)(p * 4294967296.0), (float)(1.0 / (1.0 - p)),
            args->training && p > 0.0};
}

/* The mask of one sample. */
typedef struct dropout_mask {
    rng_key key;
    uint32_t sample[2];
    uint32_t threshold;
    float scale;
} dropout_mask;

/* Return the mask of a sample. The sample's number counts from the first sample of the run. Dropout
 * must be on. */
__device__ static inline dropout_mask dropout_mask_of(const dropout_rule &rule,
                                                      int64_t sample) {
    const uint64_t seed = rule.values->seed, step = rule.values->step;
    const uint64_t index = (uint64_t)(rule.values->sample + sample);
    const uint32_t use = 1; /* identifies the purpose of the random numbers: dropout */
    const rng_words key = philox({(uint32_t)seed, (uint32_t)(seed >> 32)}, (uint32_t)step,
                                 (uint32_t)(step >> 32), rule.id, use);
    return {{key.at[0], key.at[1]},
            {(uint32_t)index, (uint32_t)(index >> 32)},
            rule.threshold,
            rule.scale};
}

/* Return the random words of elements 4 * quad .. 4 * quad + 3 of a group. */
__device__ static inline rng_words dropout_words(const dropout_mask &mask, uint32_t group,
                                                 uint32_t quad) {
    return philox(mask.key, quad, group, mask.sample[0], mask.sample[1]);
}

/* Return the dropout factor of an element from its random word. */
__device__ static inline float dropout_factor(const dropout_mask &mask, uint32_t word) {
    return word >= mask.threshold ? mask.scale : 0.0f;
}

/* Return the dropout factor of a single element e of a group. */
__device__ static inline float dropout_factor_at(const dropout_mask &mask, uint32_t group,
                                                 int64_t e) {
    const rng_words words = dropout_words(mask, group, (uint32_t)(e / 4));
    const uint32_t i = (uint32_t)e & 3u;
    const uint32_t word = i == 0   ? words.at[0]
                          : i == 1 ? words.at[1]
                          : i == 2 ? words.at[2]
                                   : words.at[3];
    return dropout_factor(mask, word);
}

#endif
