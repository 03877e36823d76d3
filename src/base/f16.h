/* SPDX-License-Identifier: Apache-2.0 */
/* f16.h -- converts IEEE 754 half precision to f32. A half has a sign bit, 5 exponent bits and 10
 * fraction bits. Only files contain halves. */
#ifndef CGP_SRC_BASE_F16_H
#define CGP_SRC_BASE_F16_H

#include <stdint.h>
#include <string.h>

/* Convert a half to an f32, exactly. The f32 has the same sign and fraction bits, and its exponent
 * is larger by 112. A denormal half (exponent 0) is a multiple of 2^-24. Infinities and NaNs have
 * exponent 31. */
static inline float cgp__f16_to_float(uint16_t x) {
    const uint32_t sign = (uint32_t)(x & 0x8000u) << 16, fraction = x & 0x3FFu;
    const uint32_t exponent = x >> 10 & 0x1Fu;
    uint32_t bits = sign | (exponent + 112) << 23 | fraction << 13;
    float value;
    if (exponent == 31) bits = sign | 0x7F800000u | fraction << 13;
    memcpy(&value, &bits, sizeof value);
    if (exponent > 0) return value;
    return (sign ? -0x1p-24f : 0x1p-24f) * (float)fraction;
}

#endif
