/* SPDX-License-Identifier: Apache-2.0 */
/* checksum.c -- computes CRC-32C (polynomial 0x1EDC6F41, reflected; Castagnoli et al. 1993). On
 * x86-64 with SSE4.2, it processes 8 bytes at a time. */
#include "transport/mpi/world.h"

#include <string.h>

static uint32_t by_bits(uint32_t sum, const unsigned char *bytes, size_t n) {
    for (size_t i = 0; i < n; i++) {
        sum ^= bytes[i];
        for (int k = 0; k < 8; k++)
            sum = sum >> 1 ^ (sum & 1 ? 0x82F63B78u : 0);
    }
    return sum;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t by_words(uint32_t sum, const unsigned char *bytes,
                                                           size_t n) {
    uint64_t wide = sum, word;
    for (; n >= sizeof word; n -= sizeof word, bytes += sizeof word) {
        memcpy(&word, bytes, sizeof word);
        wide = __builtin_ia32_crc32di(wide, word);
    }
    return by_bits((uint32_t)wide, bytes, n);
}
#endif

uint32_t cgp__mpi_checksum(const void *bytes, size_t n) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("sse4.2")) return ~by_words(~0u, bytes, n);
#endif
    return ~by_bits(~0u, bytes, n);
}
