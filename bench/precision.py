#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What does bf16 bring over f32?"""
from cases import GPT2, answer, ours

CASES = {}
for m in (1, 8):
    CASES[f"f32 M={m}"] = ours(GPT2, stages=1, chunks=m)
    CASES[f"bf16 M={m}"] = ours(GPT2, stages=1, chunks=m, precision="bf16")
RATIOS = [(f"bf16 M={m}", f"f32 M={m}", "one core, the same model") for m in (1, 8)]

if __name__ == "__main__":
    answer("precision", CASES, RATIOS)
