#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How much faster is bf16 than f32? If PYTHON has PyTorch 2, how much faster is it than PyTorch's
autocast to bf16?"""
from cases import GPT2, answer, newest, ours, torch

CASES = {}
RATIOS = []
for m in (1, 8):
    CASES[f"f32 M={m}"] = ours(GPT2, stages=1, chunks=m)
    CASES[f"bf16 M={m}"] = ours(GPT2, stages=1, chunks=m, precision="bf16")
    RATIOS.append((f"bf16 M={m}", f"f32 M={m}", "one core, the same model"))
    if newest():
        CASES[f"PyTorch bf16 M={m}"] = torch(GPT2, chunks=m, flags=["bf16"])
        RATIOS.append((f"bf16 M={m}", f"PyTorch bf16 M={m}", "one core each"))
CASES["bf16 M=8 in 8 GiB"] = ours(GPT2, stages=1, chunks=8, precision="bf16", memory_limit="8G")
RATIOS.append(("bf16 M=8", "bf16 M=1", "what 8 micro-batches leave of the speed of one"))
RATIOS.append(("bf16 M=8 in 8 GiB", "bf16 M=1", "a limit with room for packed weights"))
if newest():
    CASES["PyTorch bf16 M=1 compiled"] = torch(GPT2, chunks=1, flags=["bf16", "compile"])
    RATIOS.append(("bf16 M=1", "PyTorch bf16 M=1 compiled", "one core each"))

if __name__ == "__main__":
    answer("precision", CASES, RATIOS)
