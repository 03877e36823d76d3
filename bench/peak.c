/* peak.c -- prints what one core can do at most, and with which instructions, as JSON: gflops, isa. */
#include <cgpipe/partition.h>

#include <stdio.h>

int main(void) {
    const double flops = cgp_core_peak_flops();
    if (!(flops > 0)) {
        fprintf(stderr, "bench_peak: expects a processor with AVX2 and FMA\n");
        return 1;
    }
    printf("{\"gflops\": %.2f, \"isa\": \"%s\"}\n", 1e-9 * flops,
           __builtin_cpu_supports("avx512f") ? "x86-64-v4" : "x86-64-v3");
    return 0;
}
