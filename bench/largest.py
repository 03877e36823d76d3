#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""largest.py [STAGES...] -- find the largest GPT-2 whose plan fits devices of 2 GiB.

The script bisects the number of blocks of a GPT-2 with width 768. A model fits if `cgpipe plan
--search` finds a balance that needs at most 2 GiB on each device. The schedule is 1f1b with full
recomputation. With --run, the largest model then trains for two steps in the planned memory.
"""

import argparse
import json
import subprocess

LIMIT = "2GiB"
MOST = 4096  # largest number of blocks to try


def spec(blocks):
    return f"gpt2:layers={blocks},width=768,heads=12,vocab=50257,seq=128"


def words(stages):
    return [
        *("--stages", str(stages), "--batch", "8", "--chunks", "8", "--memory-limit", LIMIT),
        *("--schedule", "1f1b", "--recompute", "always+selective", "--optimizer", "adamw"),
    ]


def search(program, stages, blocks):
    """Return the best plan of a model with this many blocks, or None if none fits."""
    command = [program, "plan", spec(blocks), *words(stages), "--search", "--quiet", "--json", "-"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        if "no plan fits" in done.stderr or "the model has" in done.stderr:
            return None
        raise SystemExit(done.stderr)
    return json.loads(done.stdout)["choices"][0]


def largest(program, stages):
    """Return the largest number of blocks with a plan that fits, and that plan."""
    fits, fails, best = 0, MOST, None
    while fits + 1 < fails:
        middle = min(2 * fits + 8, (fits + fails) // 2)
        choice = search(program, stages, middle)
        if choice:
            fits, best = middle, choice
        else:
            fails = middle
    return fits, best


def run(program, stages, blocks, choice):
    """Train for two steps with a plan that the search chose. Return the seconds of a step, and the
    allocated bytes."""
    command = [program, "bench", spec(blocks), *words(stages), "--steps", "2", "--dropout", "0"]
    command += ["--balance", ",".join(map(str, choice["balance"])), "--quiet", "--json", "-"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    report = json.loads(done.stdout)
    return report["run_seconds"], max(d["allocated_bytes"] for d in report["devices"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("stages", nargs="*", type=int, default=[1, 2, 4, 8])
    parser.add_argument("--program", default="build/cgpipe")
    parser.add_argument("--run", action="store_true", help="train the largest models for two steps")
    options = parser.parse_args()
    print("| stages | blocks | parameters, 10^6 | fullest device, bytes | run |")
    print("|---|---|---|---|---|")
    for stages in options.stages:
        blocks, choice = largest(options.program, stages)
        command = [options.program, "plan", spec(blocks), *words(stages), "--quiet", "--json", "-"]
        command += ["--balance", ",".join(map(str, choice["balance"]))]
        plan = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
        row = f"| {stages} | {blocks} | {plan['parameters'] / 1e6:.1f} "
        row += f"| {choice['planned_bytes_fullest']:,} "
        if options.run:
            seconds, bytes_run = run(options.program, stages, blocks, choice)
            same = bytes_run == choice["planned_bytes_fullest"]
            bytes_text = "the planned bytes" if same else f"{bytes_run:,} bytes"
            print(row + f"| {seconds:.1f} s a step, {bytes_text} |", flush=True)
        else:
            print(row + "| |", flush=True)


if __name__ == "__main__":
    main()
