#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What fraction of one core's arithmetic peak does training use, and where does the rest of the
time go? (FLOPs are counted without recomputation. The table by kind of op comes from `cgpipe bench
--ops` in the last round.)"""
import plot
from cases import BUILD, RESULTS, GPT2, conditions, measure, ours, report, torch

CHUNKS = (1, 8)
CASES = {"peak": [BUILD / "bench_peak"]}
for m in CHUNKS:
    CASES[f"cgpipe M={m}"] = ours(GPT2, stages=1, chunks=m) + ["--ops"]
    CASES[f"PyTorch M={m}"] = torch(GPT2, chunks=m)
# The kinds of op in the table. Each kind has several ops, which have these names in graph files.
KINDS = {"GEMM": ("linear", "matmul"), "attention": ("attention",), "norms": ("layer_norm",),
         "GELU": ("gelu",), "loss": ("cross_entropy",)}
PARTS = ("forward_seconds", "input_seconds", "weight_seconds")


def table(run, peak):
    """Return lines with the seconds per step of each kind of op, and the rate that it reaches."""
    rows = {kind: [0.0, 0.0, 0.0] for kind in [*KINDS, "others"]}
    for op in run["ops"]:
        kind = next((kind for kind, names in KINDS.items() if op["op"] in names), "others")
        for i, value in enumerate((sum(op[part] for part in PARTS), op["flops"], op["bytes"])):
            rows[kind][i] += value
    rows["optimizer"] = [run["update_seconds"], 0, 0]
    rows["idle"] = [run["step_seconds"] - sum(seconds for seconds, _, _ in rows.values()), 0, 0]
    yield f"{'':12} {'ms a step':>13} {'of step':>10} {'of peak':>10} {'GB/s':>8}"
    for kind, (seconds, flops, count) in rows.items():
        of_peak = (f"{100e-9 * flops / seconds / peak:8.1f} %" if kind in ("GEMM", "attention")
                   else "")
        rate = f"{1e-9 * count / seconds:8.1f}" if count and seconds else ""
        yield (f"{kind:12} {1e3 * seconds:13.2f} {100 * seconds / run['step_seconds']:8.2f} % "
               f"{of_peak:>10} {rate:>8}").rstrip()


def main():
    medians = measure("peak", CASES, ("gflops", "gflops_fed", "step_seconds"))
    peak, fed = medians["peak"]["gflops"], medians["peak"]["gflops_fed"]
    gflop = medians[f"cgpipe M={CHUNKS[0]}"]["flops_per_step"] * 1e-9
    names = [name for name in CASES if name != "peak"]
    shares = {name: 100 * gflop / medians[name]["step_seconds"] / peak for name in names}
    lines = conditions(medians)
    lines += [f"peak of one core: {peak:.1f} GFLOP/s (f32 FMA, {medians['peak']['isa']}); a step: "
              f"{gflop:.1f} GFLOP",
              f"of that the tile of a product alone, its operands in the L1 cache: {fed:.1f} "
              f"GFLOP/s, {100 * fed / peak:.1f} %", ""]
    lines += [f"{'seconds a step':>26} {'GFLOP/s':>10} {'of peak':>10}"]
    lines += [f"{name:12} {medians[name]['step_seconds']:13.4f} {shares[name] * peak / 100:10.1f} "
              f"{shares[name]:8.1f} %"
              for name in names]
    for m in CHUNKS:
        lines += ["", f"cgpipe M={m}, by kind of op"] + list(table(medians[f"cgpipe M={m}"], peak))
    report("peak", lines)
    groups = {name: [shares[f"{name} M={m}"] for m in CHUNKS] for name in ("cgpipe", "PyTorch")}
    plot.bars(RESULTS / "share-of-peak.svg", "Training GPT-2 on one core, f32",
              "% of the core's FMA peak", [f"M={m}" for m in CHUNKS], groups)


main()
