/* SPDX-License-Identifier: Apache-2.0 */
/* isa.c -- selects the kernel table of an x86-64 CPU device: v1, v3 or v4, and AVX512_BF16 or AMX
 * tiles for GEMM in bf16.
 *
 * AMX needs a processor that has AMX, a system that saves AMX registers, and permission for the
 * process. The first bf16 kernel requests permission, once. Tiles are 8 KiB of register state per
 * thread, which Linux enables only for processes that request it. Linux may refuse the request if a
 * thread's signal stack is too small for this state. After it has granted the request, Linux
 * refuses signal stacks that are too small (sigaltstack(2), AT_MINSIGSTKSZ). */
#include "backend/cpu/cpu.h"
#include "backend/cpu/gemm/tiles.h"
#include "backend/device_names.h"

#ifndef __aarch64__ /* isa_aarch64.c replaces this file on aarch64 */
#include <cpuid.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* arch_prctl(2) */
#define REQUEST_STATE 0x1023 /* ARCH_REQ_XCOMP_PERM */
#define TILE_DATA 18         /* XFEATURE_XTILEDATA */

/* Bits of cpuid and of register XCR0. */
#define OSXSAVE (1u << 27)     /* leaf 1, ecx */
#define AMX_BF16 (1u << 22)    /* leaf 7, edx */
#define AMX_TILE (1u << 24)    /* leaf 7, edx */
#define TILE_STATES (3u << 17) /* configuration and data */

static bool has_v3(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
}

static bool has_v4(void) {
    return has_v3() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
}

static bool has_v4_bf16(void) {
    return has_v4() && __builtin_cpu_supports("avx512bf16");
}

static bool has_tile_instructions(void) {
    unsigned a, b, c, d, low, high;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & OSXSAVE)) return false;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    if ((low & TILE_STATES) != TILE_STATES) return false;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
    return (d & AMX_BF16) && (d & AMX_TILE);
}

static bool tiles_granted;

static void request_tiles(void) {
    if (!has_v4_bf16() || !has_tile_instructions()) return;
    tiles_granted = syscall(SYS_arch_prctl, REQUEST_STATE, TILE_DATA) == 0;
    cgp_log(CGP_LOG_INFO, "cpu", "AMX, for GEMM in bf16: %s",
            tiles_granted ? "granted" : "refused by the system");
}

static bool has_tiles(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, request_tiles);
    return tiles_granted;
}

/* Set *wanted to the instruction set that the environment variable CGP_CPU_ISA names, or to NONE if
 * the variable is not set. */
static cgp_status isa_wanted(cgp_isa *wanted) {
    const char *text = getenv("CGP_CPU_ISA");
    *wanted = CGP_ISA_NONE;
    for (int i = CGP_ISA_V1; text && i <= CGP_ISA_AMX; i++)
        if (strcmp(text, cgp__isa_name((cgp_isa)i)) == 0) *wanted = (cgp_isa)i;
    if (!text || *wanted != CGP_ISA_NONE) return CGP_OK;
    return cgp_fail(CGP_EINVAL, "CGP_CPU_ISA: expects v1, v3, v4, v4-bf16 or amx, got \"%s\"",
                    text);
}

/* Return CGP_OK if this machine has the instruction set `isa`; otherwise fail with a message about
 * `object`. */
static cgp_status check_isa(cgp_isa isa, const char *object) {
    if (isa == CGP_ISA_NEON)
        return cgp_fail(CGP_EDEVICE, "%s: neon expects an aarch64 processor, got an x86-64",
                        object);
    if (isa == CGP_ISA_V3 && !has_v3())
        return cgp_fail(CGP_EDEVICE,
                        "%s: v3 expects a processor with AVX2, FMA and BMI2, got an older one "
                        "(use v1)",
                        object);
    if (isa == CGP_ISA_V4 && !has_v4())
        return cgp_fail(CGP_EDEVICE,
                        "%s: v4 expects a processor with AVX-512 F, BW, "
                        "CD, DQ and VL, got one without (use %s)",
                        object, has_v3() ? "v3" : "v1");
    const char *older = has_v4() ? "v4" : has_v3() ? "v3" : "v1";
    if (isa == CGP_ISA_V4_BF16 && !has_v4_bf16())
        return cgp_fail(CGP_EDEVICE,
                        "%s: v4-bf16 expects a processor with AVX512-BF16, got one without "
                        "(use %s)",
                        object, older);
    if (isa == CGP_ISA_AMX && !has_tiles())
        return cgp_fail(CGP_EDEVICE,
                        "%s: amx expects a processor with AMX-BF16 and "
                        "AVX512-BF16 and a system that grants its use, got one "
                        "without (use %s)",
                        object, has_v4_bf16() ? "v4-bf16" : older);
    return CGP_OK;
}

/* Return the best instruction set for GEMM in bf16 that is not above `limit`. The machine must have
 * v4. */
static cgp_isa best_in_bf16(cgp_isa limit) {
    if (limit >= CGP_ISA_AMX && has_tiles()) return CGP_ISA_AMX;
    return limit >= CGP_ISA_V4_BF16 && has_v4_bf16() ? CGP_ISA_V4_BF16 : CGP_ISA_V4;
}

cgp_status cgp__cpu_isa_best(cgp_dtype type, cgp_isa *best) {
    cgp_isa wanted;
    CGP_TRY(isa_wanted(&wanted));
    CGP_TRY(check_isa(wanted, "CGP_CPU_ISA"));
    if (wanted == CGP_ISA_NONE) wanted = CGP_ISA_AMX;
    if (wanted == CGP_ISA_V1 || !has_v3())
        *best = CGP_ISA_V1;
    else if (wanted == CGP_ISA_V3 || !has_v4())
        *best = CGP_ISA_V3;
    else
        *best = type == CGP_BF16 ? best_in_bf16(wanted) : CGP_ISA_V4;
    return CGP_OK;
}

cgp_status cgp__cpu_isa_choose(cgp_device *device, cgp_isa isa) {
    if (isa != CGP_ISA_NONE) {
        CGP_TRY(check_isa(isa, "cpu"));
        device->bf16_limit = isa;
    } else { /* no instruction set was requested */
        CGP_TRY(isa_wanted(&isa));
        device->bf16_limit = isa == CGP_ISA_NONE ? CGP_ISA_AMX : isa;
        CGP_TRY(cgp__cpu_isa_best(CGP_F32, &isa));
    }
    device->kernels = isa == CGP_ISA_V1   ? &cgp__cpu_kernels_v1
                      : isa == CGP_ISA_V3 ? &cgp__cpu_kernels_v3
                                          : &cgp__cpu_kernels_v4;
    return CGP_OK;
}

const cgp__cpu_tiles *cgp__cpu_tiles_of(cgp_device *device) {
    if (device->tiles || device->bf16_limit < CGP_ISA_V4_BF16 || !has_v4()) return device->tiles;
    const cgp_isa isa = best_in_bf16(device->bf16_limit);
    if (isa == CGP_ISA_AMX)
        device->tiles = &cgp__cpu_tiles_amx;
    else if (isa == CGP_ISA_V4_BF16)
        device->tiles = &cgp__cpu_tiles_v4_bf16;
    return device->tiles;
}
#endif
