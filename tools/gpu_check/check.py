# SPDX-License-Identifier: Apache-2.0
"""Helpers for all parts of a check: commands with time-outs, saved intermediate results, results of
parts."""
import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import machine

ROOT = machine.ROOT
sys.path.insert(0, str(ROOT / "bench"))

# Results must be for the default settings, so ignore environment variables that a caller has set
# for cgpipe or bench/.
for name in [name for name in os.environ if name.startswith("CGP_")
             or name in ("TINY", "STEPS", "ROUNDS")]:
    del os.environ[name]


class NotRun(Exception):
    """A part cannot run on this machine or with this build; the message is the reason."""


class Failed(Exception):
    """A command failed, or its output is wrong."""


class OutOfTime(Exception):
    """The time of a part, or of the whole check, is over. If a command was stopped, `done` has the
    output that it had written so far, but no exit code."""
    done = None


@dataclasses.dataclass
class Check:
    """The build, backend and results of the parts. With the backend `cuda-host`, which needs no
    GPU, sizes are small, and speeds mean nothing."""
    backend: str
    built: pathlib.Path
    python: str
    facts: dict
    deadline: float
    store: object = None  # report.Store
    part: str = ""
    part_deadline: float = float("inf")
    state: dict = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        places = [self.built / "lib", *os.environ.get("LD_LIBRARY_PATH", "").split(":"),
                  *machine.libraries(self.python)]
        self.loaded = ":".join(str(place) for place in places if str(place))

    @property
    def small(self):
        return self.backend != "cuda"

    @property
    def plugin(self):
        directory = "tests/plugins" if self.small else "plugins"
        return self.built / directory / f"libcgpipe-{self.backend}.so"

    def left(self):
        return min(self.deadline, self.part_deadline) - time.monotonic()

    def environment(self, **variables):
        """Return the environment for programs of this build."""
        return {**os.environ, "CGP_PLUGIN_PATH": f"{self.built}/plugins:{self.built}/tests/plugins",
                "CGP_LOG": "error", "LD_LIBRARY_PATH": self.loaded, **variables}

    def devices(self, count=1, limit=""):
        return f"{self.backend}:0{limit}*{count}"

    def run(self, words, **options):
        """Run a command for at most the time that is left."""
        seconds = self.left()
        if seconds <= 0:
            raise OutOfTime(self.part)
        words = [str(word) for word in words]
        try:
            child = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                     text=True, start_new_session=True, **{"cwd": ROOT, **options})
        except OSError as error:
            raise NotRun(f"{words[0]}: {error.strerror}") from error
        try:
            out, err = child.communicate(timeout=min(seconds, 1e6))
        except BaseException as stopped:
            os.killpg(child.pid, signal.SIGKILL)  # the command and its child processes
            out, err = child.communicate()
            if not isinstance(stopped, subprocess.TimeoutExpired):
                raise
            late = OutOfTime(f"{pathlib.Path(words[0]).name}: not done after {seconds:.0f} s")
            late.done = subprocess.CompletedProcess(words, None, out, err)
            raise late from stopped
        return subprocess.CompletedProcess(words, child.returncode, out, err)

    def json_of(self, words, **environment):
        """Return the JSON that a command prints."""
        done = self.run(words, **environment)
        if done.returncode != 0:
            said = done.stderr.strip().splitlines() or ["nothing said"]
            raise Failed(f"{' '.join(map(str, words))}: exit code {done.returncode}: {said[-1]}")
        return json.loads(done.stdout)

    def cgpipe(self, command, *operands, variables=None, launcher=(), **options):
        words = [word for key, value in options.items() if value != ""
                 for word in ("--" + key.replace("_", "-"), str(value))]
        return self.json_of([*launcher, self.built / "cgpipe", command, *operands, *words, "--json",
                             "-", "--quiet"], env=self.environment(**(variables or {})))

    def cell(self, name, function):
        """Return the result of `function`, and save it, so that a later call does not run
        `function` again."""
        if name not in self.state:
            self.state[name] = function()
            self.store.keep(self.part, cells=self.state)
        return self.state[name]

    def log(self, title, text):
        """Append the output of a program to the log beside the results."""
        with open(self.store.at.with_suffix(".log"), "a") as file:
            file.write(f"--- {title}\n{text}\n")


def result(verdict, lines, figures=None, **more):
    """Return the result of a part. `verdict` is one of "passed", "failed" and "measured". The
    report compares figures with bars, which are upper or lower bounds."""
    return {"verdict": verdict, "lines": list(lines), "figures": figures or {}, **more}


def verdict_of(lines):
    return "failed" if any(line.startswith("FAILED") for line in lines) else "passed"
