#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Run the parts of tools/gpu_check.sh in the order of their importance, and resume where an earlier
call stopped."""
import argparse
import math
import os
import pathlib
import sys
import time
import traceback

import machine
import report
from check import Check, Failed, NotRun, OutOfTime, ROOT

# For each part: name, module and function, seconds needed to start on a GPU, maximum seconds. A
# part that is cut off resumes in the next call. `--part` lifts the limit, because a command that
# takes longer than the limit could otherwise never finish.
PARTS = [
    ("digests", "exactness.digests", 20, 120),
    ("bits", "exactness.bits", 20, 90),
    ("memory", "exactness.memory", 20, 60),
    ("bf16", "exactness.bf16", 30, 240),
    ("gpt2", "speed.gpt2", 60, 300),
    ("tables", "speed.tables", 60, 300),
    ("grid", "speed.grid", 40, 240),
    ("images", "speed.images", 60, 240),
    ("bf16-speed", "speed.bf16_speed", 30, 120),
    ("stages", "speed.stages", 30, 120),
    ("sanitizers", "exactness.sanitizers", 70, 200),
    ("llm.c", "speed.llmc", 40, 120),
]


def parse():
    parser = argparse.ArgumentParser(prog="tools/gpu_check.sh",
                                     description="Check and measure the CUDA kernels on this "
                                                 "machine's GPU.",
                                     epilog="Exit code 0: all parts are done, none has failed; "
                                            "1: one has failed; 2: nothing was run; "
                                            "3: parts are left, call again.")
    names = [name for name, *_ in PARTS]
    parser.add_argument("--part", action="append", choices=names, metavar="NAME",
                        help="only this part, also if it is done, limited by --minutes alone: "
                        + " ".join(names))
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build-gpu" / "results",
                        metavar="DIR", help="where parts leave their JSON [build-gpu/results]")
    parser.add_argument("--minutes", type=float, default=8, metavar="N",
                        help="no part begins that would end later [8]")
    parser.add_argument("--backend", choices=["cuda", "cuda-host"], default="cuda",
                        help="cuda-host tries this script without a GPU [cuda]")
    parser.add_argument("--packed", type=pathlib.Path, metavar="DIR",
                        help="what --pack has made: libraries that this machine lacks")
    parser.add_argument("--built", type=pathlib.Path, metavar="DIR",
                        help="a build that is there, instead of build-gpu/build")
    parser.add_argument("--report", type=pathlib.Path, metavar="DIR",
                        help="where the report goes [bench/results; of cuda-host --out]")
    parser.add_argument("--pack", type=pathlib.Path, metavar="DIR",
                        help="on a machine that has all: copy what the build needs, and end")
    parser.add_argument("--llmc", type=pathlib.Path, metavar="DIR",
                        help="with --pack: a checkout of llm.c, to be measured beside")
    return parser.parse_args()


def function_of(path):
    module, name = path.split(".")
    return getattr(__import__(module), name)


def run_part(check, name, path, limit, anew):
    """Run a part; it saves {"verdict", "lines", "goals", "seconds", "date", "commit", ..}."""
    check.part, check.part_deadline = name, time.monotonic() + (math.inf if check.small else limit)
    kept = report.kept(check.results, name)
    check.state = {} if anew else kept.get("cells", {})
    begin = time.monotonic()
    try:
        found = function_of(path)(check)
    except NotRun as reason:
        found = {"verdict": "not run", "lines": [str(reason)], "goals": []}
    except Failed as failure:
        found = {"verdict": "failed", "lines": [f"FAILED {failure}"], "goals": []}
    except OutOfTime as late:
        lines = [f"{late}: call again; {len(check.state)} cells are kept",
                 *report.so_far(check.state)]
        found = {"verdict": "not finished", "lines": lines, "goals": []}
    except Exception as bug:  # a bug in this script must not cost the other parts their GPU time
        traceback.print_exc()
        found = {"verdict": "failed", "lines": [f"FAILED {type(bug).__name__}: {bug}"], "goals": []}
    seconds = time.monotonic() - begin + (0 if anew else kept.get("seconds", 0))
    check.keep(seconds=round(seconds, 1), **{key: check.facts[key] for key in report.OF_A_PART},
               **found)
    return found["verdict"]


def is_done(check, name):
    return report.kept(check.results, name).get("verdict") in report.FINAL


def run_parts(check, wanted):
    for name, path, estimate, limit in PARTS:
        if wanted and name not in wanted:
            continue
        done = is_done(check, name)
        if done and not wanted:
            continue
        if check.deadline - time.monotonic() < (0 if check.small else estimate):
            print(f"{name}: is left for the next call (needs {estimate} s or more)",
                  flush=True)
            continue
        print(f"{name} ...", flush=True)
        verdict = run_part(check, name, path, math.inf if wanted else limit, done)
        print(f"{name}: {verdict}", flush=True)


def needs_a_build(check, wanted):
    return wanted or not all(is_done(check, name) for name, *_ in PARTS)


def main():
    options = parse()
    sys.argv[1:] = []  # bench/cases.py would read the arguments
    if options.backend == "cuda" and not machine.gpu():
        print("gpu_check: expected a GPU, nvidia-smi names none (--backend cuda-host tries the "
              "script without one)", file=sys.stderr)
        return 2
    begin = time.monotonic()
    python = os.environ.get("PYTHON") or sys.executable
    packed = options.packed.resolve() if options.packed else None
    build = (options.built or ROOT / "build-gpu" / "build").resolve()
    os.environ.update(BUILD=str(build), PYTHON=python)
    facts = machine.facts(options.backend, python, packed)
    results = options.out.resolve() / f"{machine.slug(facts['device'])}-{facts['sources'][:12]}"
    check = Check(options.backend, build, results, packed, python, facts,
                  begin + 60 * options.minutes)
    built = "passed"
    if not options.built and needs_a_build(check, options.part):
        print("build ...", flush=True)
        built = run_part(check, "build", "build.build", 60 * options.minutes, True)
    if built == "passed":
        run_parts(check, options.part)
    names = ["build"] * (not options.built) + [name for name, *_ in PARTS]
    where = options.report or (results if check.small else ROOT / "bench" / "results")
    return report.write(check, names, where.resolve(), options.part)


sys.exit(main())
