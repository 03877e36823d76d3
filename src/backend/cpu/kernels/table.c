/* SPDX-License-Identifier: Apache-2.0 */
/* table.c -- defines the kernel table of one instruction set. */
#include "backend/cpu/kernels.h"

#define TEXT_(text) #text
#define TEXT(text) TEXT_(text)
#define ENTRY(name, arguments) .name = CGP__CPU_NAME(name),

#define ELEMENTWISE(kind, name, family) [CGP_OP_##kind] = &CGP__CPU_NAME(name),

const cgp__cpu_kernels CGP__CPU_NAME(kernels) = {
    .isa = TEXT(CGP_ISA), CGP__CPU_KERNELS(ENTRY).elementwise = {CGP_ELEMENTWISE_OPS(ELEMENTWISE)}};
