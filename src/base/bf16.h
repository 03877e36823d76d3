/* SPDX-License-Identifier: Apache-2.0 */
/* bf16.h -- converts between f32 and bf16, which is the upper 16 bits of an f32. Only memory holds
 * bf16; arithmetic uses f32. */
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

/* Round to nearest, ties to even. Values that are too large become infinite. A NaN becomes a quiet
 * NaN, because the upper half of a NaN may be the bits of an infinity. */
static inline uint16_t cgp__bf16_from_float(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (x != x) return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}

#endif
