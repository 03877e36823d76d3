#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long is the gap between two actions that need not wait? How long does a waiting stage take to
continue after its message arrives?"""
from cases import GPT2, SMALL, conditions, measure, ours, report

KEYS = ("gap_median_seconds", "wake_median_seconds")
CASES = {f"{name}, {schedule} M=8": ours(sizes, stages=2, chunks=8, schedule=schedule)
         for name, sizes in (("seed", GPT2), ("small", SMALL))
         for schedule in ("gpipe", "1f1b", "zb-v")}


def main():
    medians = measure("overheads", CASES, KEYS)
    width = max(map(len, CASES))
    seed = {name: result for name, result in medians.items() if name.startswith("seed")}
    lines = conditions(seed) + [
        "microseconds, medians of all actions of a step, of the steps, of the rounds",
        f"{'':{width}}  between actions  from a message to the stage that waits"]
    lines += [f"{name:{width}} {1e6 * result[KEYS[0]]:16.2f} {1e6 * result[KEYS[1]]:38.2f}"
              for name, result in medians.items()]
    report("overheads", lines)


if __name__ == "__main__":
    main()
