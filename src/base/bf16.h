/* SPDX-License-Identifier: Apache-2.0 */
/* bf16.h -- bf16 in memory: the upper half of an f32, as 16 bits. Arithmetic is in f32. */
#ifndef CGP_SRC_BASE_BF16_H
#define CGP_SRC_BASE_BF16_H

#include <stdint.h>
#include <string.h>

static inline float cgp__bf16_to_float(uint16_t x) {
    const uint32_t bits = (uint32_t)x << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Round to nearest, ties to even; values that are too large become infinite. A NaN becomes a quiet
 * NaN, because its upper half alone could be an infinity. */
static inline uint16_t cgp__bf16_from_float(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (x != x) return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}

#endif
