#!/usr/bin/env python3
"""What do two stages bring ResNet-101 with more micro-batches, and what do the published settings leave on one device?

The cases of resnet101.py that concern stages, once more, with 16 micro-batches: names as there.
"""
from cases import SPEED, conditions, measure, report
from resnet101 import CASES, ours

STAGES = {
    "naive-1 M=1": CASES["naive-1 M=1"],
    "naive-1 M=2": CASES["naive-1 M=2"],
    "pipeline-1": CASES["pipeline-1"],
    "pipeline-2 B=64 M=16": ours(batch=64, stages=2, chunks=16, balance="time"),
}


def main():
    medians = measure("resnet101_stages", STAGES)
    speed = {name: result[SPEED] for name, result in medians.items()}
    naive = max(("naive-1 M=1", "naive-1 M=2"), key=speed.get)
    width = max(map(len, STAGES))
    lines = conditions(medians) + [f"{'samples/s':>{width + 11}}"]
    lines += [f"{name:{width}} {speed[name]:10.3f}" for name in STAGES] + ["", "ratios of samples/s"]
    lines += [f"{speed[name] / speed[naive]:10.3f}  {name} / {naive}" for name in list(STAGES)[2:]]
    report("resnet101_stages", lines)


main()
