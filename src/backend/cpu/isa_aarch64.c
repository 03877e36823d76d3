/* SPDX-License-Identifier: Apache-2.0 */
/* isa_aarch64.c -- selects the kernel table of an aarch64 CPU device: NEON, which every aarch64
 * processor has. GEMM in bf16 computes in f32. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/gemm/tiles.h"
#include "backend/device_names.h"

#ifdef __aarch64__
#include <stdlib.h>
#include <string.h>

static cgp_status check_wanted(void) {
    const char *text = getenv("CGP_CPU_ISA");
    if (!text || strcmp(text, "neon") == 0) return CGP_OK;
    return cgp_fail(CGP_EINVAL, "CGP_CPU_ISA: expects neon, got \"%s\"", text);
}

cgp_status cgp__cpu_isa_best(cgp_dtype type, cgp_isa *best) {
    (void)type;
    CGP_TRY(check_wanted());
    *best = CGP_ISA_NEON;
    return CGP_OK;
}

cgp_status cgp__cpu_isa_choose(cgp_device *device, cgp_isa isa) {
    CGP_TRY(check_wanted());
    if (isa != CGP_ISA_NONE && isa != CGP_ISA_NEON)
        return cgp_fail(CGP_EDEVICE, "cpu: %s expects an x86-64 processor, got an aarch64",
                        cgp__isa_name(isa));
    device->bf16_limit = CGP_ISA_NEON;
    device->kernels = &cgp__cpu_kernels_neon;
    return CGP_OK;
}

const cgp__cpu_tiles *cgp__cpu_tiles_of(cgp_device *device) {
    return device->tiles;
}
#else
typedef int cgp__no_aarch64; /* ISO C forbids an empty translation unit */
#endif
