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

import build
import exactness
import machine
import ops
import peers
import report
import speed
from check import Check, Failed, NotRun, OutOfTime, ROOT, result

KERNELS = ("src/backend/cuda",)
STEP = (*KERNELS, "src/pipeline", "src/plan", "include")
BENCH = (*STEP, "bench/cases.py")

# The parts: name, function, seconds on a GPU, and sources. A result becomes invalid if these
# sources or the function's file change. A part that takes more than twice the listed seconds is
# stopped, and continues in the next call. With `--part`, there is no such limit.
PARTS = [
    ("digests", exactness.digests, 50, (*STEP, "tests/cuda/digests.c", "tests/cuda/digests.txt",
                                        "tests/fakes/cuda")),
    ("bits", exactness.bits, 20, STEP),
    ("memory", exactness.memory, 10, STEP),
    ("ops", ops.seeds, 60, (*KERNELS, "tests/op")),
    ("linear", ops.linear, 25, (*BENCH, "tests/op")),
    ("gpt2", speed.gpt2, 40, BENCH),
    ("bf16", speed.bf16, 20, BENCH),
    ("tables", speed.tables, 90, (*STEP, "bench/tables.py", "bench/published.py")),
    ("grid", speed.grid, 50, BENCH),
    ("images", speed.images, 45, BENCH),
    ("peers", peers.peers, 60, ("bench/*_torch.py", "bench/torch_peer.py", "bench/cases.py",
                                "tools/reference_models.py")),
    ("ranks", exactness.ranks, 10, (*STEP, "src/transport")),
    ("torch", exactness.torch, 15, (*STEP, "python/cgpipe", "python/tests/test_dlpack.py")),
    ("probe", ops.probe, 10, ("src/backend/cuda/mma.cuh", "tests/cuda/probe*",
                              "tests/fakes/cuda/tensor_core_model.h")),
    ("sanitizers", ops.sanitizers, 60, (*KERNELS, "tests/cuda/digests.c")),
]
NAMES = [name for name, *_ in PARTS]


def parse():
    parser = argparse.ArgumentParser(prog="tools/gpu_check.sh",
                                     description="Check and measure the CUDA kernels on this "
                                                 "machine's GPU.",
                                     epilog="Exit code 0: all parts are done, none has failed; "
                                            "1: one has failed; 2: nothing was run; "
                                            "3: parts are left, call again.")
    parser.add_argument("--part", action="append", choices=NAMES, metavar="NAME",
                        help="only this part, also if it is done, limited by --minutes alone: "
                        + " ".join(NAMES))
    parser.add_argument("--minutes", type=float, default=9.5, metavar="N",
                        help="time limit of the call, without a build [9.5]")
    parser.add_argument("--out", type=pathlib.Path, metavar="DIR",
                        default=os.environ.get("OUT") or ROOT / "build-gpu" / "results",
                        help="where results and the log are written [$OUT, or build-gpu/results]")
    parser.add_argument("--report", type=pathlib.Path, metavar="DIR",
                        default=ROOT / "bench" / "results",
                        help="where earlier results are read and, of a GPU, a copy of the results "
                             "is written [bench/results]")
    parser.add_argument("--backend", choices=["cuda", "cuda-host"], default="cuda",
                        help="cuda-host tries this script without a GPU [cuda]")
    parser.add_argument("--built", type=pathlib.Path, metavar="DIR",
                        help="use this build or pack; do not build")
    parser.add_argument("--pack", type=pathlib.Path, metavar="DIR",
                        help="build, copy what a machine with a GPU needs to DIR, and end")
    parser.add_argument("--arch", default="90", metavar="N",
                        help="with --pack: compute capability of the GPU [90]")
    return parser.parse_args()


def key_of(facts, name, function, sources):
    own = f"tools/gpu_check/{function.__module__}.py"
    torch = facts["torch"] if name in ("peers", "torch") else None
    return machine.key((own, *sources), facts["device"], facts["driver"], torch)


def run_part(check, name, function, repeat):
    """Run a part, and keep its result and time. If it has no result, return the reason. Also return
    whether the part continues in the next call."""
    before, begin = check.store.parts[name], time.monotonic()
    part = check.store.parts[name] = {} if repeat else before
    check.part, check.state = name, dict(part.get("cells", {}))
    reason = None
    try:
        found = function(check)
    except NotRun as why:
        check.store.parts[name] = before if repeat else check.store.parts[name]
        return str(why), False
    except OutOfTime as late:
        reason, found = f"{late}: call again; {len(check.state)} cells are kept", {"more": True}
    except Failed as failure:
        found = result("failed", [f"FAILED {failure}"])
    except Exception as bug:  # a bug in this script must not cost the other parts their GPU time
        traceback.print_exc()
        found = result("failed", [f"FAILED {type(bug).__name__}: {bug}"])
    cells = check.state if found.pop("more", False) else {}
    check.store.keep(name, cells=cells, **found,
                     seconds=round(part.get("seconds", 0) + time.monotonic() - begin, 1))
    return reason, reason is not None


def to_run(store, wanted):
    """Return the parts to run. Parts that have passed, but can run with more seeds, come last."""
    if wanted:
        return [part for part in PARTS if part[0] in wanted]
    done = [part for part in PARTS if store.is_done(part[0])]
    return ([part for part in PARTS if part not in done]
            + [part for part in done if store.parts[part[0]]["cells"]])


def run_parts(check, wanted):
    """Run the parts for which there is time. Return {part: why it did not run}, and the parts that
    are left."""
    todo, reasons, left = to_run(check.store, wanted), {}, []
    print(f"to run: {', '.join(f'{name} {seconds} s' for name, _, seconds, _ in todo) or 'nothing'}"
          f"; {sum(part[2] for part in todo)} s in all, {max(check.left(), 0):.0f} s are there",
          flush=True)
    for name, function, seconds, _ in todo:
        rest = check.deadline - time.monotonic()
        if rest < (0 if check.small else seconds / 2):
            reasons[name] = f"no time: {seconds} s are needed, {max(rest, 0):.0f} s are there"
            left.append(name)
            continue
        print(f"{name} ({seconds} s) ...", flush=True)
        check.part_deadline = math.inf if wanted or check.small else time.monotonic() + 2 * seconds
        repeat = bool(wanted) and not check.store.parts[name].get("cells")
        reasons[name], goes_on = run_part(check, name, function, repeat)
        left += [name] if goes_on else []
    return reasons, left


def prepare(options):
    """Return the check for the given build. If no build is given, build first."""
    if options.backend == "cuda" and not machine.gpu():
        raise NotRun("expected a GPU, nvidia-smi names none (--backend cuda-host tries the script "
                     "without one)")
    built = (options.built or build.build(options.backend)).resolve()
    python = os.environ.get("PYTHON") or sys.executable
    os.environ.update(BUILD=str(built), PYTHON=python)
    facts = machine.facts(options.backend, python, built)
    check = Check(options.backend, built, python, facts, time.monotonic() + 60 * options.minutes)
    build.check_build(check)
    keys = {name: key_of(facts, name, function, sources) for name, function, _, sources in PARTS}
    file = f"gpu_check.{machine.slug(facts['device'])}.json"
    check.store = report.Store(pathlib.Path(options.out).resolve() / file, options.report / file,
                               facts, keys)
    return check


def main():
    options = parse()
    sys.argv[1:] = []  # bench/cases.py would read the arguments
    try:
        if options.pack:
            return build.pack(options.pack.resolve(), options.built, options.arch)
        check = prepare(options)
    except (Failed, NotRun) as reason:
        print(f"gpu_check: {reason}", file=sys.stderr)
        return 2
    reasons, left = run_parts(check, options.part)
    return report.write(check.store, options.part or NAMES, reasons, left,
                        None if check.small else options.report.resolve())


if __name__ == "__main__":
    sys.exit(main())
