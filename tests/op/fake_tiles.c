/* SPDX-License-Identifier: Apache-2.0 */
/* fake_tiles.c -- compiles amx.c with fake AMX tiles, for processors that have AVX512_BF16 but no
 * AMX. The fakes are plain loops that follow the definition of TDPBF16PS in Intel's Software
 * Developer's Manual. */
#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#define TILES 8

/* The fake tile registers. Each tile has 16 rows of 64 bytes. */
static _Thread_local uint32_t tiles[TILES][16][16];
static _Thread_local int configured;

static float float_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static float flushed(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits & 0x7F800000u ? x : float_of(bits & 0x80000000u);
}

static float fused(float a, float b, float sum) {
    return flushed(fmaf(flushed(a), flushed(b), flushed(sum)));
}

static void fake_load(int tile, const void *from, int64_t stride) {
    for (int i = 0; i < 16; i++)
        memcpy(tiles[tile][i], (const char *)from + i * stride, 64);
}

static void fake_store(int tile, void *to, int64_t stride) {
    for (int i = 0; i < 16; i++)
        memcpy((char *)to + i * stride, tiles[tile][i], 64);
}

/* Fake of TDPBF16PS: add the product of tiles `a` and `b` to tile `c`. The sum is NaN if the tiles
 * are not configured. */
static void fake_multiply(int c, int a, int b) {
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 16; j++) {
            float even = configured ? 0.0f : NAN, odd = 0.0f, sum;
            for (int p = 0; p < 16; p++) {
                const uint32_t x = tiles[a][i][p], y = tiles[b][p][j];
                even = fused(float_of(x << 16), float_of(y << 16), even);
                odd = fused(float_of(x & 0xFFFF0000u), float_of(y & 0xFFFF0000u), odd);
            }
            sum = flushed(flushed(float_of(tiles[c][i][j])) + flushed(even + odd));
            memcpy(&tiles[c][i][j], &sum, sizeof sum);
        }
}

#undef _tile_loadconfig
#undef _tile_release
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbf16ps
#define _tile_loadconfig(from) ((void)(from), configured = 1)
#define _tile_release() (configured = 0)
#define _tile_zero(tile) memset(tiles[tile], 0, sizeof tiles[tile])
#define _tile_loadd(tile, from, stride) fake_load(tile, from, stride)
#define _tile_stored(tile, to, stride) fake_store(tile, to, stride)
#define _tile_dpbf16ps(c, a, b) fake_multiply(c, a, b)

#define cgp__cpu_tiles_amx cgp__cpu_tiles_fake
/* NOLINTNEXTLINE(bugprone-suspicious-include): amx.c, with the fake intrinsics */
#include "backend/cpu/kernels/bf16/amx.c"
