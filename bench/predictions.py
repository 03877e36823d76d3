#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Does the simulator know how long a step takes under every schedule?

A GPT-2 on two devices, batch 16. The schedules, in 4, 8 and 16 micro-batches, are predicted from one run of gpipe in 8 micro-batches
that measures its layers (--costs-out), made right before theirs, in each round and for each number of micro-batches: a machine that
is shared changes its speed within minutes. For 4 and 16 micro-batches the costs are taken as proportional to their samples.
"""
import csv
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

from cases import PROGRAM, RESULTS, ROUNDS, GPT2, check_needs, conditions, model_spec, options_of, report, run, training_options

SIZES = {**GPT2, "width": min(GPT2["width"], 384), "heads": min(GPT2["heads"], 6), "batch": 16}
CHUNKS = (4, 8, 16)
RUN = "run_seconds"


def names():
    listed = subprocess.run([PROGRAM, "schedule", "--list", "--json", "-"], stdout=subprocess.PIPE,
                            stderr=subprocess.DEVNULL, check=True)
    known = [schedule["schedule"] for schedule in json.loads(listed.stdout)["schedules"]]
    return [name for name in known if name not in ("gpipe", "forward-only")]


def options(schedule, chunks):
    return training_options(SIZES, {"stages": 2, "schedule": schedule, "chunks": chunks, "balance": "flops"})


def bench(schedule, chunks, **more):
    return run([PROGRAM, "bench", "gpt2", "--model", model_spec(SIZES), "--json", "-", *options(schedule, chunks),
                *options_of(more)])


def predict(schedule, chunks, costs):
    return run([PROGRAM, "plan", model_spec(SIZES), "--json", "-", *options(schedule, chunks), "--costs", costs])


def sample(schedule, chunks, costs):
    """Seconds and bubble, measured and predicted, and the hash of the weights."""
    got, plan = bench(schedule, chunks), predict(schedule, chunks, costs)
    return {RUN: got[RUN], "simulated": plan[RUN + "_simulated"], "bubble": got["bubble_measured"],
            "bubble_simulated": plan["bubble_simulated"], "weights": got["weights_sha256"], **got}


def main():
    check_needs()
    RESULTS.mkdir(parents=True, exist_ok=True)
    cases = [(name, m) for m in CHUNKS for name in ("gpipe", *names()) if (name, m) != ("gpipe", 8)]
    samples = {case: [] for case in cases}
    keys = (RUN, "simulated", "bubble", "bubble_simulated")
    with tempfile.TemporaryDirectory() as directory, open(RESULTS / "predictions.csv", "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["round", "schedule", "chunks", *keys])
        for number in range(1, ROUNDS + 1):
            for i, case in enumerate(cases):
                print(f"predictions: round {number} of {ROUNDS}, {case[0]} M={case[1]}", file=sys.stderr)
                if i == 0 or cases[i - 1][1] != case[1]:
                    bench("gpipe", 8, costs_out=pathlib.Path(directory) / "costs.json")
                samples[case].append(sample(*case, pathlib.Path(directory) / "costs.json"))
                writer.writerow([number, *case, *(samples[case][-1][key] for key in keys)])
                file.flush()
    errors = {case: statistics.median(s["simulated"] / s[RUN] - 1 for s in got) for case, got in samples.items()}
    lines = conditions({case: got[-1] for case, got in samples.items()})
    lines += [f"{'':14}" + "".join(f"{f'M={m}: seconds':>16}  error    bubble (sim.)" for m in CHUNKS)]
    for name in ("gpipe", *names()):
        line = f"{name:14}"
        for m in CHUNKS:
            got = samples.get((name, m))
            line += f"{'':39}" if not got else (
                f"{statistics.median(s[RUN] for s in got):16.4f} {100 * errors[name, m]:+5.1f}% "
                f"{100 * statistics.median(s['bubble'] for s in got):7.1f}% ({100 * got[0]['bubble_simulated']:4.1f}%)")
        lines.append(line.rstrip())
    sizes = sorted(abs(error) for error in errors.values())
    lines += ["", f"error of the simulated seconds: median {100 * statistics.median(sizes):.1f} %, worst {100 * sizes[-1]:.1f} %"]
    for m in CHUNKS:
        same = {s["weights"] for case, got in samples.items() for s in got if case[1] == m}
        lines.append(f"weights after the run, M={m}: " + ("the same to the bit" if len(same) == 1 else "DIFFERENT"))
    report("predictions", lines)


if __name__ == "__main__":
    main()
