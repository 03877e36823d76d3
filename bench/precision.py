#!/usr/bin/env python3
"""What does bf16 bring over f32?"""
import subprocess

from cases import SEED, answer, ours, plan

CASES = {}
for m in (1, 8):
    CASES[f"f32 M={m}"] = ours(SEED, stages=1, chunks=m)
    CASES[f"bf16 M={m}"] = ours(SEED, stages=1, chunks=m, precision="bf16")
RATIOS = [(f"bf16 M={m}", f"f32 M={m}", "one core, the same model") for m in (1, 8)]

if __name__ == "__main__":
    probe = subprocess.run(plan(SEED, chunks=1, precision="bf16"), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if probe.returncode == 0:
        answer("precision", CASES, RATIOS)
    else:
        print(f"precision: left out, as this cgpipe cannot do it: {probe.stderr.strip().splitlines()[-1]}")
