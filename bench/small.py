#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What do many tiny micro-batches cost if kernels are short?"""
from cases import SMALL, answer, ours, torch

CASES = {}
for m in (1, 8, 64):
    CASES[f"M={m}"] = ours(SMALL, stages=1, chunks=m)
    CASES[f"PyTorch M={m}"] = torch(SMALL, chunks=m)
RATIOS = [
    ("M=64", "M=1", "what micro-batches of one sample leave of the speed"),
    ("PyTorch M=64", "PyTorch M=1", "the same in PyTorch"),
    ("M=1", "PyTorch M=1", "one thread each"),
    ("M=64", "PyTorch M=64", "one thread each, micro-batches of one sample"),
]

if __name__ == "__main__":
    answer("small", CASES, RATIOS)
