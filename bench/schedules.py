#!/usr/bin/env python3
"""Which schedule is fastest on two devices, and does the simulator know it?

Every schedule that two devices can run trains the seed experiment's GPT-2, batch 16, in 4, 8 and 16 micro-batches. What the simulator
says of each comes from one run of gpipe in 8 micro-batches, which measures its layers as it runs (--costs-out).
"""
import json
import pathlib
import statistics
import subprocess
import tempfile

from cases import PROGRAM, SEED, conditions, measure, model_text, options_of, report, run, training_options

BATCH = 16
CHUNKS = (4, 8, 16)
RUN = "run_seconds"


def names():
    listed = json.loads(subprocess.run([PROGRAM, "schedule", "--list", "--json", "-"], stdout=subprocess.PIPE, check=True).stdout)
    return [schedule["schedule"] for schedule in listed["schedules"] if schedule["schedule"] != "forward-only"]


def options(schedule, chunks):
    return training_options({**SEED, "batch": BATCH}, {"stages": 2, "schedule": schedule, "chunks": chunks, "balance": "flops"})


def bench(schedule, chunks, **more):
    return [PROGRAM, "bench", "gpt2", "--model", model_text(SEED), "--json", "-", *options(schedule, chunks), *options_of(more)]


def predicted(schedule, chunks, costs):
    return run([PROGRAM, "plan", model_text(SEED), "--json", "-", *options(schedule, chunks), "--costs", costs])


def main():
    with tempfile.TemporaryDirectory() as folder:
        costs = pathlib.Path(folder) / "costs.json"
        cases = {f"{name} M={m}": (name, m) for m in CHUNKS for name in names()}
        run(bench("gpipe", 8, costs_out=costs))
        medians = measure("schedules", {case: bench(*key) for case, key in cases.items()}, (RUN, "bubble_measured"))
        plans = {case: predicted(*key, costs) for case, key in cases.items()}
    errors = {case: plans[case][RUN + "_simulated"] / medians[case][RUN] - 1 for case in cases}
    width = max(map(len, cases))
    lines = conditions(medians) + [f"{'':{width}}   seconds  simulated    error   bubble  simulated  to gpipe  MiB"]
    for case, (_, m) in cases.items():
        r, plan = medians[case], plans[case]
        lines.append(f"{case:{width}} {r[RUN]:9.4f} {plan[RUN + '_simulated']:10.4f} {100 * errors[case]:+7.1f}% "
                     f"{100 * r['bubble_measured']:7.1f}% {100 * plan['bubble_simulated']:9.1f}% "
                     f"{medians[f'gpipe M={m}'][RUN] / r[RUN]:9.3f} {r['activation_bytes_total'] / 2**20:7.1f}")
    others = sorted(abs(error) for case, error in errors.items() if case != "gpipe M=8")
    lines += ["", f"error of the simulated seconds but for gpipe M=8: median {100 * statistics.median(others):.1f} %, "
                  f"worst {100 * others[-1]:.1f} %"]
    hashes = {case: medians[case]["weights_sha256"] for case in cases}
    for m in CHUNKS:
        same = {hashes[case] for case, key in cases.items() if key[1] == m}
        lines.append(f"weights after the run, M={m}: " + ("the same to the bit" if len(same) == 1 else f"{len(same)} different"))
    report("schedules", lines)


if __name__ == "__main__":
    main()
