/* SPDX-License-Identifier: Apache-2.0 */
/* probe.h -- uses chosen operands to find out how a tensor core adds the products of an mma
 * instruction (Fasi, Higham, Mikaitis and Pranesh 2021, "Numerical behavior of NVIDIA tensor
 * cores"). */
#ifndef CGP_TESTS_CUDA_PROBE_H
#define CGP_TESTS_CUDA_PROBE_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum probe_rounding { PROBE_TRUNCATE, PROBE_NEAREST, PROBE_OTHER } probe_rounding;

/* The parameters that the probe found, for the model in tests/fakes/cuda/tensor_core_model.h. */
typedef struct probe_result {
    /* The number of products that are added at once; 0 if no number fits. */
    int block;
    /* The number of bits that are kept below the last bit of the largest term; -1 if no number
     * fits. */
    int extra;
    probe_rounding rounding;
    /* true if the exponent of a product is increased when the product of the significands is 2 or
     * more (the model assumes false) */
    bool normalized;
    /* Number of sums of random operands that were compared, and number of these sums that differ
     * from the model's sums. */
    int outputs, different;
} probe_result;

/* Add `a b^T` to d, with one mma instruction per tile. `a` is [tiles, 16, 16] and `b` is [tiles, 8,
 * 16], both in bf16; d is [tiles, 16, 8]. All three are in host memory. */
cudaError_t probe_multiply(const uint16_t *a, const uint16_t *b, float *d, int tiles);
/* Probe the current device. */
cudaError_t probe_find(probe_result *result);

#ifdef __cplusplus
}
#endif
#endif
