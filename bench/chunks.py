#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How do speed and memory change with the number of micro-batches?"""
import csv

import plot
from cases import RESULTS, GPT2, SPEED, conditions, measure, ours, plan, report, run, torch

CHUNKS = (1, 2, 4, 8)
RECOMPUTE = ("never", "except_last", "always")
CONFIGURATIONS = {
    "cgpipe K=1": lambda m: ours(GPT2, stages=1, chunks=m),
    "cgpipe K=2": lambda m: ours(GPT2, stages=2, chunks=m, balance="8,8"),
    "PyTorch, one thread": lambda m: torch(GPT2, chunks=m),
}
BALANCES = {1: "16", 2: "8,8"}


def by_chunks(name, value):
    return [(m, value(f"{name} M={m}")) for m in CHUNKS]


def planned_mib(stages, recompute, m):
    options = {"stages": stages, "balance": BALANCES[stages], "recompute": recompute, "chunks": m}
    return run(plan(GPT2, **options))["activation_bytes_total"] / 2**20


def memory_series(medians):
    series = {f"K={k} {recompute}": [(m, planned_mib(k, recompute, m)) for m in CHUNKS]
              for k in BALANCES for recompute in RECOMPUTE}
    series["PyTorch, one thread"] = by_chunks("PyTorch, one thread",
                                              lambda name: medians[name]["activation_mib"])
    return series


def write_csv(name, series):
    with open(RESULTS / name, "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["configuration", "chunks", "activation_mib"])
        writer.writerows([name, m, f"{mib:.3f}"] for name, points in series.items()
                         for m, mib in points)


def rows(series, form):
    width = max(map(len, series))
    head = f"{'M':>{width}}" + "".join(f" {m:10}" for m in CHUNKS)
    return [head] + [f"{name:{width}}" + "".join(f" {y:{form}}" for _, y in points)
                     for name, points in series.items()]


def main():
    cases = {f"{name} M={m}": make(m) for name, make in CONFIGURATIONS.items() for m in CHUNKS}
    medians = measure("chunks", cases, (SPEED, "activation_mib"))
    speed = {name: by_chunks(name, lambda case: medians[case][SPEED]) for name in CONFIGURATIONS}
    memory = memory_series(medians)
    write_csv("memory.csv", memory)
    lines = conditions(medians) + ["samples/s"] + rows(speed, "10.3f")
    lines += ["", "activations in MiB: planned; PyTorch's measured"] + rows(memory, "10.1f")
    report("chunks", lines)
    plot.lines(RESULTS / "samples-vs-chunks.svg", "GPT-2 of 90 million parameters, batch 8",
               "micro-batches M", "samples per second", speed)
    plot.lines(RESULTS / "memory-vs-chunks.svg", "Activations of all devices, batch 8",
               "micro-batches M", "MiB", memory)


main()
