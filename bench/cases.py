# SPDX-License-Identifier: Apache-2.0
"""Measurement code that all benchmarks in this directory share.

Each script answers a question. A question has several cases. A case is a command that measures its
own speed and prints JSON. The cases run alternately, A B C A B C ..., so that other load on the
machine affects all of them. A case's figure is the median over the rounds. All samples go to
RESULTS/QUESTION.csv, and the printed text goes to RESULTS/QUESTION.txt.

    bench/QUESTION.py [ROUNDS]       or in the environment, with the defaults:

    ROUNDS=5                         rounds, at least 5 for figures to publish
    STEPS=                           steps of a run, the first two not counted [the question's]
    BUILD=build                      directory of cgpipe, bench_peak and bench_cores
    PYTHON=/usr/bin/python3          interpreter with PyTorch: Debian's, or a virtual environment
                                     with the newest (TORCH=latest tools/python.sh), after which
                                     Debian's is measured too, if it is installed
    RESULTS=bench/results            directory for the CSV, text and SVG files
    TINY=                            1: tiny models, to try a script (with another RESULTS)
"""
import csv
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
ROUNDS = int(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("ROUNDS") or 5)
BUILD = pathlib.Path(os.environ.get("BUILD") or ROOT / "build")
RESULTS = pathlib.Path(os.environ.get("RESULTS") or ROOT / "bench" / "results")
PROGRAM = BUILD / "cgpipe"
DEBIAN = "/usr/bin/python3"
PYTHON = os.environ.get("PYTHON") or DEBIAN
SPEED = "samples_per_second"

# The model of the GPT-2 benchmark, and a model that is so small that overheads of an interpreter
# are visible in its speed.
GPT2 = {"layers": 12, "width": 768, "heads": 12, "vocab": 3000, "seq": 128, "batch": 8, "steps": 5}
SMALL = {"layers": 4, "width": 128, "heads": 4, "vocab": 256, "seq": 64, "batch": 64, "steps": 20}
for sizes in (GPT2, SMALL):
    sizes.update({"width": 16, "heads": 2, "vocab": 50, "seq": 8} if os.environ.get("TINY") else {})
    sizes.update({"steps": int(os.environ["STEPS"])} if os.environ.get("STEPS") else {})


def options_of(options):
    return [word for key, value in options.items() for word in ("--" + key.replace("_", "-"),
                                                                str(value))]


def model_spec(sizes):
    return "gpt2:" + ",".join(f"{key}={sizes[key]}"
                              for key in ("layers", "width", "heads", "vocab", "seq"))


def training_options(sizes, options):
    return options_of({"batch": sizes["batch"], "dropout": 0, "steps": sizes["steps"],
                       "schedule": "gpipe", **options})


def ours(sizes, **options):
    """Return the command of a cgpipe case. The keys of `options` are cgpipe's option names, with
    `_` in place of `-`."""
    return [PROGRAM, "bench", "gpt2", "--model", model_spec(sizes), "--json", "-",
            *training_options(sizes, options)]


def plan(sizes, **options):
    return [PROGRAM, "plan", model_spec(sizes), "--json", "-", *training_options(sizes, options)]


def torch(sizes, python=PYTHON, flags=(), **options):
    """Return the command for the same model in PyTorch. Options and flags are passed to
    gpt2_torch.py."""
    return [python, ROOT / "bench" / "gpt2_torch.py", *options_of({**sizes, **options}),
            *(f"--{flag}" for flag in flags)]


def has_torch(python):
    return subprocess.run([python, "-c", "import torch"], stderr=subprocess.DEVNULL).returncode == 0


def older():
    """Return Debian's Python interpreter if it has PyTorch and PYTHON names another interpreter;
    else None."""
    return DEBIAN if PYTHON != DEBIAN and has_torch(DEBIAN) else None


def newest():
    """Return whether PYTHON has PyTorch 2."""
    return PYTHON != DEBIAN and subprocess.run([PYTHON, "-c", "import torch._dynamo"],
                                               stderr=subprocess.DEVNULL).returncode == 0


def run(command):
    """Run a command; return the JSON that it prints."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stderr}exit code {done.returncode}")
    return json.loads(done.stdout)


def check_needs():
    """If programs are missing, exit with a message before an hour of measurements begins."""
    for file in (PROGRAM, BUILD / "bench_cores"):
        if not file.exists():
            sys.exit(f"{file}: no such file (make, then cmake --build {BUILD} --target bench_cores "
                     "bench_peak, or BUILD=FOLDER)")
    missing = [] if shutil.which("gnuplot") else ["gnuplot-nox"]
    if not has_torch(PYTHON):
        missing += ["python3-torch", "libopenblas0-openmp"]
    if missing:
        sys.exit(f"bench: needs {' '.join(missing)} (apt-get install {' '.join(missing)})")


def round_trip():
    """Return the nanoseconds that a cache line takes for a round trip between two cores (cores.c).
    This time is a measure of the cost of sharing work."""
    return run([BUILD / "bench_cores"])["round_trip_ns"]


def measure(question, cases, keys=(SPEED,)):
    """Run the cases {name: command} alternately. For each name, return the last output of its case.
    In this output, the value of each of `keys` is the median over the rounds. After each run, the
    round trip time between the cores is measured too."""
    check_needs()
    RESULTS.mkdir(parents=True, exist_ok=True)
    results = {name: [] for name in cases}
    with open(RESULTS / f"{question}.csv", "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["round", "case", *keys, "round_trip_ns"])
        for number in range(1, ROUNDS + 1):
            for name, command in cases.items():
                print(f"{question}: round {number} of {ROUNDS}, {name}", file=sys.stderr)
                result = {**run(command), "round_trip_ns": round_trip()}
                results[name].append(result)
                writer.writerow([number, name, *(result.get(key, "") for key in keys),
                                 result["round_trip_ns"]])
                file.flush()
    return {name: {**runs[-1], **{key: statistics.median(result[key] for result in runs)
                                  for key in keys if key in runs[-1]},
                   "round_trips": [result["round_trip_ns"] for result in runs],
                   "samples": [result.get(keys[0]) for result in runs]}
            for name, runs in results.items()}


def cpu_name():
    with open("/proc/cpuinfo") as file:
        return next((line.split(":")[1].strip() for line in file if line.startswith("model name")),
                    "unknown CPU")


def machine(medians):
    """Return lines about the machine and the round trip between its cores. The round trip limits
    the speed-up that a second core gives."""
    lines = [f"{cpu_name()}, {os.cpu_count()} cores; rounds: {ROUNDS}"]
    trips = sorted(trip for result in medians.values() for trip in result.get("round_trips", ())
                   if trip)
    if trips:
        lines.append(f"a cache line from core to core and back: {statistics.median(trips):.0f} ns "
                     f"({trips[0]:.0f} to {trips[-1]:.0f})")
    return lines


def conditions(medians):
    """Return lines about the machine and the libraries; check that all cases ran the same model."""
    counts = {result["parameters"] for result in medians.values() if "parameters" in result}
    if len(counts) > 1:
        sys.exit(f"bench: the cases have models of different sizes: {sorted(counts)} parameters")
    lines = machine(medians)
    lines[0] += f"; models of {counts.pop():,} parameters" if counts else ""
    peers = {f"PyTorch {result['torch']}, {result['blas']}" for result in medians.values()
             if "torch" in result}
    return lines + sorted(peers) + [""]


def report(question, lines):
    text = "\n".join(lines) + "\n"
    (RESULTS / f"{question}.txt").write_text(text)
    print(text)


def answer(question, cases, ratios, judged=None):
    """Measure, then report the samples/s of each case and the `ratios`, which are tuples (case,
    reference case, meaning). The function `judged` gets the speeds and returns further ratios."""
    medians = measure(question, cases)
    ratios = [*ratios, *(judged({name: result[SPEED] for name, result in medians.items()}) if judged
                         else ())]
    width = max(map(len, cases))
    lines = conditions(medians) + [f"{'samples/s':>{width + 11}}"]
    lines += [f"{name:{width}} {medians[name][SPEED]:10.3f}"
              for name in cases] + ["", "ratios of samples/s"]
    lines += [f"{medians[above][SPEED] / medians[below][SPEED]:10.3f}  {above} / {below}: {meaning}"
              for above, below, meaning in ratios]
    report(question, lines)
    return medians
