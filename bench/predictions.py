#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How well does the simulator predict the time of a step?

Predictions from a run: the model is a GPT-2 on two devices, with batch 16. A run of gpipe with 8
micro-batches measures the layers (--costs-out). From these costs, all schedules with 4, 8 and 16
micro-batches are predicted. In each round, and for each number of micro-batches, the measuring run
is repeated directly before the runs that it predicts. This is needed because the speed of a shared
machine changes within minutes.

Predictions from a profile (`predictions-profile.txt`): there are 30 pipelines of two devices with
micro-batches of one sample, and pipelines of AmoebaNet-D and U-Net with larger micro-batches. Their
times are predicted from `cgpipe profile` at three micro-batch sizes. In each round, the profile of
a model runs right before the model's pipelines. The profile runs twice: on one device while the
other core is idle, and on two devices at once.

PART=run or PART=profile in the environment selects one of these two parts.
"""
import csv
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

from cases import (PROGRAM, RESULTS, ROUNDS, GPT2, check_needs, conditions, model_spec, options_of,
                   report, run, training_options)

SIZES = {**GPT2, "width": min(GPT2["width"], 384), "heads": min(GPT2["heads"], 6), "batch": 16}
CHUNKS = (4, 8, 16)
RUN = "run_seconds"


def names():
    listed = subprocess.run([PROGRAM, "schedule", "--list", "--json", "-"], stdout=subprocess.PIPE,
                            stderr=subprocess.DEVNULL, check=True)
    known = [schedule["schedule"] for schedule in json.loads(listed.stdout)["schedules"]]
    return [name for name in known if name not in ("gpipe", "forward-only")]


def options(schedule, chunks):
    return training_options(SIZES, {"stages": 2, "schedule": schedule, "chunks": chunks,
                                    "balance": "flops"})


def bench(schedule, chunks, **more):
    return run([PROGRAM, "bench", "gpt2", "--model", model_spec(SIZES), "--json", "-",
                *options(schedule, chunks), *options_of(more)])


def predict(schedule, chunks, costs):
    return run([PROGRAM, "plan", model_spec(SIZES), "--json", "-", *options(schedule, chunks),
                "--costs", costs])


def sample(schedule, chunks, costs):
    """Return the measured and the predicted seconds and bubble, and the hash of the weights."""
    got, plan = bench(schedule, chunks), predict(schedule, chunks, costs)
    return {RUN: got[RUN], "simulated": plan[RUN + "_simulated"], "bubble": got["bubble_measured"],
            "bubble_simulated": plan["bubble_simulated"], "weights": got["weights_sha256"], **got}


def from_a_run():
    check_needs()
    RESULTS.mkdir(parents=True, exist_ok=True)
    cases = [(name, m) for m in CHUNKS for name in ("gpipe", *names()) if (name, m) != ("gpipe", 8)]
    samples = {case: [] for case in cases}
    keys = (RUN, "simulated", "bubble", "bubble_simulated")
    with tempfile.TemporaryDirectory() as directory, open(RESULTS / "predictions.csv", "w",
                                                          newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["round", "schedule", "chunks", *keys])
        for number in range(1, ROUNDS + 1):
            for i, case in enumerate(cases):
                print(f"predictions: round {number} of {ROUNDS}, {case[0]} M={case[1]}",
                      file=sys.stderr)
                if i == 0 or cases[i - 1][1] != case[1]:
                    bench("gpipe", 8, costs_out=pathlib.Path(directory) / "costs.json")
                samples[case].append(sample(*case, pathlib.Path(directory) / "costs.json"))
                writer.writerow([number, *case, *(samples[case][-1][key] for key in keys)])
                file.flush()
    errors = {case: statistics.median(s["simulated"] / s[RUN] - 1 for s in got)
              for case, got in samples.items()}
    lines = conditions({case: got[-1] for case, got in samples.items()})
    lines += [f"{'':14}"
              + "".join(f"{f'M={m}: seconds':>16}  error    bubble (sim.)" for m in CHUNKS)]
    for name in ("gpipe", *names()):
        line = f"{name:14}"
        for m in CHUNKS:
            got = samples.get((name, m))
            line += f"{'':39}" if not got else (
                f"{statistics.median(s[RUN] for s in got):16.4f} {100 * errors[name, m]:+5.1f}% "
                f"{100 * statistics.median(s['bubble'] for s in got):7.1f}% "
                f"({100 * got[0]['bubble_simulated']:4.1f}%)")
        lines.append(line.rstrip())
    sizes = sorted(abs(error) for error in errors.values())
    lines += ["", f"error of the simulated seconds: median {100 * statistics.median(sizes):.1f} %, "
                  f"worst {100 * sizes[-1]:.1f} %"]
    for m in CHUNKS:
        same = {s["weights"] for case, got in samples.items() for s in got if case[1] == m}
        lines.append(f"weights after the run, M={m}: "
                     + ("the same to the bit" if len(same) == 1 else "DIFFERENT"))
    report("predictions", lines)


# Each entry has a schedule, a recomputation mode and a number of micro-batches. A micro-batch has
# one sample.
ONES = [("gpipe", "never", 4), ("1f1b", "never", 4), ("zb-h1", "never", 4), ("gpipe", "never", 8),
        ("1f1b", "never", 8), ("zb-h1", "never", 8), ("zb-v", "never", 8),
        ("1f1b", "except_last", 8)]
TINY = bool(os.environ.get("TINY"))
MODELS = {"resnet101": "resnet20" if TINY else "resnet101",
          "AmoebaNet-D(18, 64)": "amoebanetd:L=3,D=16,image=64" if TINY else "amoebanetd:L=18,D=64",
          "U-Net(2, 32)": "unet:B=1,C=8,image=64" if TINY else "unet:B=2,C=32",
          "GPT-2": model_spec(GPT2)}


def pipelines():
    """Return two lists of cases (model, batch, schedule, recompute, chunks): with micro-batches of
    one sample, and with larger micro-batches."""
    cases = [(name, chunks, *how, chunks) for name in MODELS for *how, chunks in ONES]
    cases = [case for case in cases if case[0] != "GPT-2"
             or case[2:] not in (("zb-v", "never", 8), ("1f1b", "except_last", 8))]
    larger = [(name, 8, "1f1b", "never", chunks) for name in ("AmoebaNet-D(18, 64)", "U-Net(2, 32)")
              for chunks in (4, 2)]
    return cases, larger


def no_dropout(name):
    """Return the option that turns dropout off; only the GPT-2 benchmark has dropout."""
    return {"dropout": 0} if name == "GPT-2" else {}


def measure_and_predict(case, costs):
    """Return the measured seconds of a step without the optimizer, and the simulated seconds for
    each costs file."""
    name, batch, schedule, recompute, chunks = case
    words = options_of({"stages": 2, "batch": batch, "chunks": chunks, "schedule": schedule,
                        "recompute": recompute, "balance": "flops", "steps": os.environ.get("STEPS")
                        or 4, **no_dropout(name)})
    got = run([PROGRAM, "bench", MODELS[name], "--json", "-", *words])
    plans = [run([PROGRAM, "plan", MODELS[name], "--json", "-", *words, "--costs", file])
             for file in costs]
    return [got[RUN], *(plan[RUN + "_simulated"] for plan in plans)]


def profile_of(name, devices, file):
    words = options_of({"batch": 4, "repeats": 2, "devices": f"cpu*{devices}", **no_dropout(name)})
    file.write_text(json.dumps(run([PROGRAM, "profile", MODELS[name], "--json", "-", *words])))


def table(cases, medians):
    lines = [f"{'':22}{'':28}{'measured':>10}{'simulated':>11}{'error':>9}   "
             f"{'two at once':>11}{'error':>9}"]
    for case in cases:
        name, batch, schedule, recompute, chunks = case
        seconds, *simulated = medians[case]
        how = f"{schedule}, {recompute}, {batch} in {chunks}"
        errors = "".join(f"{value:11.4f}{100 * (value / seconds - 1):+8.1f}%   "
                         for value in simulated)
        lines.append(f"{name:22}{how:28}{seconds:10.4f}{errors}".rstrip())
    for k, what in enumerate(("one device measured alone", "two devices measured at once")):
        errors = sorted(abs(medians[case][1 + k] / medians[case][0] - 1) for case in cases)
        lines.append(f"{what}: error median {100 * statistics.median(errors):.1f} %, worst "
                     f"{100 * errors[-1]:.1f} %")
    return lines


def from_a_profile():
    if not PROGRAM.exists():
        raise SystemExit(f"{PROGRAM}: no such file (make, or BUILD=FOLDER)")
    RESULTS.mkdir(parents=True, exist_ok=True)
    ones, larger = pipelines()
    samples = {case: [] for case in ones + larger}
    with tempfile.TemporaryDirectory() as directory, open(RESULTS / "predictions-profile.csv", "w",
                                                          newline="") as file:
        costs = [pathlib.Path(directory) / f"costs{devices}.json" for devices in (1, 2)]
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["round", "model", "batch", "schedule", "recompute", "chunks", RUN,
                         "simulated", "simulated_two_at_once"])
        for number in range(1, ROUNDS + 1):
            for name in MODELS:
                print(f"predictions: round {number} of {ROUNDS}, profile of {name}",
                      file=sys.stderr)
                for devices, to in zip((1, 2), costs):
                    profile_of(name, devices, to)
                for case in (case for case in samples if case[0] == name):
                    samples[case].append(measure_and_predict(case, costs))
                    writer.writerow([number, *case, *samples[case][-1]])
                    file.flush()
    # Errors are computed per round, because a profile predicts only the pipelines of its own round.
    medians = {}
    for case, rows in samples.items():
        seconds = statistics.median(row[0] for row in rows)
        medians[case] = [seconds, *(seconds * statistics.median(row[k] / row[0] for row in rows)
                                    for k in (1, 2))]
    lines = conditions({}) + [f"{len(ones)} pipelines of two devices, micro-batches of one sample; "
                              "seconds of a step"]
    lines += (table(ones, medians) + ["", "AmoebaNet-D and U-Net, micro-batches of two and four"]
              + table(larger, medians))
    report("predictions-profile", lines)


def main():
    part = os.environ.get("PART")
    if part not in (None, "", "run", "profile"):
        raise SystemExit(f"PART={part}: expected run or profile")
    if part != "run":
        from_a_profile()
    if part != "profile":
        from_a_run()


if __name__ == "__main__":
    main()
