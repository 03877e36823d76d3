/* SPDX-License-Identifier: Apache-2.0 */
/* probe_main.c -- print how the tensor cores of device 0 add, as a line of JSON:
 *
 *     {"block": 16, "extra_bits": 2, "rounding": "truncate", "normalized_products": false,
 *      "outputs": 16384, "different_from_model": 0}
 *
 * "block" or "extra_bits" is null if no number fits. The sums are then compared with the default
 * model. nvcc builds this program as cuda_probe; cuda_probe_host runs on the fake runtime. */
#include <stdio.h>

#include "probe.h"

#ifndef CGP_CUDA_HOST
/* launch() calls this function, which counts launches for captured graphs. */
void cgp__cuda_count_launch(void);
void cgp__cuda_count_launch(void) {
}
#endif

static void print_number(const char *name, int value, int least) {
    if (value >= least)
        printf("\"%s\": %d, ", name, value);
    else
        printf("\"%s\": null, ", name);
}

int main(void) {
    static const char *const roundings[] = {
        [PROBE_TRUNCATE] = "truncate", [PROBE_NEAREST] = "nearest", [PROBE_OTHER] = "other"};
    probe_result result;
    const cudaError_t error = probe_find(&result);
    if (error != cudaSuccess) {
        fprintf(stderr, "cuda_probe: %s: %s\n", cudaGetErrorName(error), cudaGetErrorString(error));
        return 1;
    }
    putchar('{');
    print_number("block", result.block, 1);
    print_number("extra_bits", result.extra, 0);
    printf("\"rounding\": \"%s\", \"normalized_products\": %s, \"outputs\": %d, "
           "\"different_from_model\": %d}\n",
           roundings[result.rounding], result.normalized ? "true" : "false", result.outputs,
           result.different);
    return 0;
}
