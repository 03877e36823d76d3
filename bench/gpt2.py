#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How fast does the GPT-2 of the benchmark train, in stages and not, and against PyTorch?"""
from cases import GPT2, answer, ours, torch

CASES = {
    "K=1 M=1": ours(GPT2, stages=1, chunks=1),
    "K=1 M=8": ours(GPT2, stages=1, chunks=8),
    "K=2 M=8": ours(GPT2, stages=2, chunks=8, balance="8,8", recompute="never"),
    "K=2 M=8 except_last": ours(GPT2, stages=2, chunks=8, balance="8,8", recompute="except_last"),
    "K=1 M=1 T=2": ours(GPT2, stages=1, chunks=1, threads_per_device=2),
    "PyTorch M=1": torch(GPT2, chunks=1),
    "PyTorch M=8": torch(GPT2, chunks=8),
    "PyTorch M=1 T=2": torch(GPT2, chunks=1, threads=2),
    "PyTorch K=2 M=8": torch(GPT2, chunks=8, pipeline=2),
}
RATIOS = [
    ("K=1 M=1", "PyTorch M=1", "one thread each"),
    ("K=1 M=8", "K=1 M=1", "what 8 micro-batches leave of the speed of one"),
    ("PyTorch M=8", "PyTorch M=1", "the same in PyTorch"),
    ("K=2 M=8", "K=1 M=8", "what a second stage on a second core brings"),
    ("K=2 M=8", "K=1 M=1", "the same, micro-batches paid for"),
    ("K=2 M=8 except_last", "K=2 M=8", "what is left with recomputation"),
    ("K=1 M=1 T=2", "K=1 M=1", "what a second thread in the kernels brings"),
    ("K=1 M=1 T=2", "PyTorch M=1 T=2", "two threads each"),
    ("K=2 M=8", "PyTorch K=2 M=8", "two stages each; PyTorch's by hand, a thread a stage"),
]

if __name__ == "__main__":
    answer("gpt2", CASES, RATIOS)
