#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How far are the losses in bf16 from the losses in f32, at every step of the demo?

    bench/losses.py              seeds 1 to 8, 200 steps: some minutes on one core
    SEEDS=3 STEPS=50             fewer
    WARMUP=0                     with another --warmup than the demo's

The command is the command of `make demo`, but with one stage (two stages give the same numbers).
The script also compares f32 with the AVX2 kernels and f32 with the best instruction set. This shows
how much f32 rounding alone changes a loss.
"""
import csv
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile

from cases import BUILD, PROGRAM, RESULTS, ROOT, cpu_name, report

SEEDS = range(1, int(os.environ.get("SEEDS") or 8) + 1)
STEPS = int(os.environ.get("STEPS") or 200)
BEST = ("f32", None)


def cases():
    """Return the cases to compare with the case BEST, {name: (precision, CGP_CPU_ISA)}. Leave out
    cases that this processor does not support."""
    flags = set(re.search(r"^flags\s*:(.*)$", open("/proc/cpuinfo").read(), re.M)[1].split())
    found = {"bf16, AMX": ("bf16", "amx")} if "amx_bf16" in flags else {}
    found.update({"bf16, AVX512_BF16": ("bf16", "v4-bf16")} if "avx512_bf16" in flags else {})
    found.update({"bf16, AVX-512": ("bf16", "v4")} if "avx512f" in flags else {})
    return {**found, "bf16, AVX2": ("bf16", "v3"), "f32, AVX2": ("f32", "v3")}


def demo():
    """Return the words of the demo's command, from the Makefile."""
    make = ["make", "-s", "-n", "-C", ROOT, "demo", f"BUILD={BUILD.resolve()}", "STAGES=1",
            f"DEMO_STEPS={STEPS}"]
    text = subprocess.run(make, stdout=subprocess.PIPE, text=True,
                          check=True).stdout.replace("\\\n", " ")
    words = shlex.split(next(line for line in text.splitlines() if "cgpipe train" in line))
    if os.environ.get("WARMUP"):
        words[words.index("--warmup") + 1] = os.environ["WARMUP"]
    return words


def losses(words, seed, precision, isa):
    """Return the loss of each step."""
    with tempfile.TemporaryDirectory() as directory:
        words = list(words)
        for option, value in (("--seed", str(seed)), ("--run", directory + "/run"),
                              ("--sample", "1")):
            words[words.index(option) + 1] = value
        words += ["--precision", precision]
        environment = {**os.environ, **({"CGP_CPU_ISA": isa} if isa else {})}
        done = subprocess.run(words, cwd=ROOT, env=environment, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            sys.exit(f"{done.stdout}exit code {done.returncode}")
        with open(directory + "/run/metrics.jsonl") as file:
            steps = [json.loads(line) for line in file]
        return [step["loss"] for step in steps if "loss" in step]


def compare(ours, theirs):
    """Return the largest difference in per cent, the step where it occurs, the mean difference, and
    the last difference."""
    off = [100 * abs(a - b) / b for a, b in zip(ours, theirs)]
    return max(off), 1 + off.index(max(off)), sum(off) / len(off), off[-1]


def main():
    if not PROGRAM.exists():
        sys.exit(f"{PROGRAM}: no such file (make, or BUILD=FOLDER)")
    RESULTS.mkdir(parents=True, exist_ok=True)
    words, found = demo(), cases()
    rows = {name: [] for name in found}
    for seed in SEEDS:
        f32 = losses(words, seed, *BEST)
        for name, case in found.items():
            print(f"losses: seed {seed} of {len(SEEDS)}, {name}", file=sys.stderr)
            rows[name].append(compare(losses(words, seed, *case), f32))
    with open(RESULTS / "losses.csv", "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["case", "seed", "worst_percent", "worst_step", "mean_percent",
                         "last_percent"])
        writer.writerows([name, seed, *row] for name in rows
                         for seed, row in zip(SEEDS, rows[name]))
    lines = [f"{cpu_name()}; {STEPS} steps, warm-up of {words[words.index('--warmup') + 1]}",
             "difference from the loss in f32, in per cent of it: worst step of each seed, mean "
             "and last of all", "",
             f"{'seed':13}" + "".join(f"{seed:9}" for seed in SEEDS) + "     mean     last"]
    for name, row in rows.items():
        means = [sum(r[k] for r in row) / len(row) for k in (2, 3)]
        lines.append(f"{name:13}" + "".join(f"{x:9.2g}" for x in [r[0] for r in row] + means))
    report("losses", lines)


if __name__ == "__main__":
    main()
