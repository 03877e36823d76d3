# SPDX-License-Identifier: Apache-2.0
"""Helpers for all parts of a check: commands with time-outs, saved cells, verdicts."""
import dataclasses
import json
import os
import pathlib
import signal
import statistics
import subprocess
import time

from machine import find_nvcc

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

# Results are for the defaults: ignore what a caller has set for cgpipe or bench/.
for name in [name for name in os.environ if name.startswith("CGP_")
             or name in ("TINY", "STEPS", "ROUNDS")]:
    del os.environ[name]


class NotRun(Exception):
    """A part cannot run here; the message is the reason."""


class Failed(Exception):
    """A command failed, or its output is wrong."""


class OutOfTime(Exception):
    """A part's time, or the check's, is over. `done` is the output so far of a command that was
    stopped, without an exit code."""
    done = None


@dataclasses.dataclass
class Check:
    """The build, backend and results of the parts. `cuda-host` replaces a GPU: sizes are small, and
    speeds mean nothing."""
    backend: str
    build: pathlib.Path
    results: pathlib.Path  # a JSON file for each part
    packed: pathlib.Path
    python: str
    facts: dict
    deadline: float
    part: str = ""
    part_deadline: float = 0.0
    state: dict = dataclasses.field(default_factory=dict)

    @property
    def small(self):
        return self.backend != "cuda"

    def left(self):
        return min(self.deadline, self.part_deadline) - time.monotonic()

    def environment(self, **variables):
        """Return the environment for programs of this build, with the packed libraries and the
        toolkit's libraries, which cuda opens."""
        toolkit = find_nvcc()
        places = [str(self.packed / "lib")] if self.packed else []
        places += [os.environ["LD_LIBRARY_PATH"]] if os.environ.get("LD_LIBRARY_PATH") else []
        if toolkit:
            directory = pathlib.Path(toolkit).resolve().parent.parent
            places += [str(directory / name)
                       for name in ("lib64", "lib", "targets/x86_64-linux/lib")]
        return {**os.environ, "CGP_PLUGIN_PATH": f"{self.build}/plugins:{self.build}/tests/plugins",
                "CGP_LOG": "error", "LD_LIBRARY_PATH": ":".join(places), **variables}

    def devices(self, count=1, limit=""):
        return f"{self.backend}:0{limit}*{count}"

    def run(self, words, limit=None, **options):
        """Run a command for the time that is left, at most `limit` seconds."""
        seconds = min(self.left(), limit or self.left())
        if seconds <= 0:
            raise OutOfTime(self.part)
        words = [str(word) for word in words]
        try:
            child = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                     text=True, start_new_session=True, **{"cwd": ROOT, **options})
        except OSError as error:
            raise NotRun(f"{words[0]}: {error.strerror}") from error
        try:
            out, err = child.communicate(timeout=seconds)
        except BaseException as stopped:
            os.killpg(child.pid, signal.SIGKILL)  # the command and its child processes
            out, err = child.communicate()
            if not isinstance(stopped, subprocess.TimeoutExpired):
                raise
            late = OutOfTime(f"{pathlib.Path(words[0]).name}: not done after {seconds:.0f} s")
            late.done = subprocess.CompletedProcess(words, None, out, err)
            raise late from stopped
        return subprocess.CompletedProcess(words, child.returncode, out, err)

    def json_of(self, words, ours=True, **variables):
        """Return the JSON that a command prints."""
        done = self.run(words, env=self.environment(**variables) if ours else None)
        if done.returncode != 0:
            said = done.stderr.strip().splitlines() or ["nothing said"]
            raise Failed(f"{' '.join(map(str, words))}: exit code {done.returncode}: {said[-1]}")
        return json.loads(done.stdout.strip().splitlines()[-1] if not ours else done.stdout)

    def cgpipe(self, command, *operands, variables=None, **options):
        words = [word for key, value in options.items()
                 for word in ("--" + key.replace("_", "-"), str(value))]
        return self.json_of([self.build / "cgpipe", command, *operands, *words, "--json", "-",
                             "--quiet"], **(variables or {}))

    def cell(self, key, function):
        """Return the result of `function` and save it, so that a restarted part skips it."""
        if key not in self.state:
            self.state[key] = function()
            self.keep()
        return self.state[key]

    def keep(self, **result):
        self.results.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"part": self.part, "cells": self.state, **result}, indent=1)
        at = self.results / f"{self.part}.json"
        at.with_suffix(".new").write_text(text + "\n")
        at.with_suffix(".new").replace(at)

    def rounds(self, cases, rounds, key="samples_per_second"):
        """Run the cases {name: function} alternately, A B A B. Return the medians of a key, without
        failed cases. Every run is saved."""
        failed = set()
        for number in range(1, rounds + 1):
            for name, function in cases.items():
                if name not in failed and "failed" in self.cell(f"{name}, round {number}",
                                                                function):
                    failed.add(name)
        return {name: statistics.median(self.state[f"{name}, round {number}"][key]
                                        for number in range(1, rounds + 1))
                for name in cases if name not in failed}


def result(verdict, lines, goals=()):
    """Return a part's result; `verdict` is passed, failed or measured."""
    return {"verdict": verdict, "lines": list(lines), "goals": [goal for goal in goals if goal]}


def goal(check, text, value, bound, at_most=False):
    """Return a figure with its goal; None for cuda-host."""
    if check.small or value is None:
        return None
    return {"text": text, "value": round(value, 4), "bound": bound, "at_most": at_most,
            "met": value <= bound if at_most else value >= bound}


def verdict_of(lines):
    return "failed" if any(line.startswith("FAILED") for line in lines) else "passed"
