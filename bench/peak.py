#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which share of one core's arithmetic does training use? (FLOPs of the ops, recomputation not counted.)"""
import plot
from cases import BUILD, RESULTS, GPT2, conditions, measure, ours, report, torch

CHUNKS = (1, 8)
CASES = {"peak": [BUILD / "bench_peak"]}
for m in CHUNKS:
    CASES[f"cgpipe M={m}"] = ours(GPT2, stages=1, chunks=m)
    CASES[f"PyTorch M={m}"] = torch(GPT2, chunks=m)


def main():
    medians = measure("peak", CASES, ("gflops", "gflops_fed", "step_seconds"))
    peak, fed = medians["peak"]["gflops"], medians["peak"]["gflops_fed"]
    gflop = medians[f"cgpipe M={CHUNKS[0]}"]["flops_per_step"] * 1e-9
    names = [name for name in CASES if name != "peak"]
    shares = {name: 100 * gflop / medians[name]["step_seconds"] / peak for name in names}
    lines = conditions(medians)
    lines += [f"peak of one core: {peak:.1f} GFLOP/s (f32 FMA, {medians['peak']['isa']}); a step: {gflop:.1f} GFLOP",
              f"of that the tile of a product alone, its operands in the L1 cache: {fed:.1f} GFLOP/s, {100 * fed / peak:.1f} %", ""]
    lines += [f"{'seconds a step':>26} {'GFLOP/s':>10} {'of peak':>10}"]
    lines += [f"{name:12} {medians[name]['step_seconds']:13.4f} {shares[name] * peak / 100:10.1f} {shares[name]:8.1f} %"
              for name in names]
    report("peak", lines)
    groups = {name: [shares[f"{name} M={m}"] for m in CHUNKS] for name in ("cgpipe", "PyTorch")}
    plot.bars(RESULTS / "share-of-peak.svg", "Training GPT-2 on one core, f32", "% of the core's FMA peak",
              [f"M={m}" for m in CHUNKS], groups)


main()
