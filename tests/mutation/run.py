#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Mutation tests: break one property after the other, and check that the test for that property
fails. `make test` does not run them, because they build programs.

    tests/mutation/run.py BUILD [NAME...]

The sources are copied to BUILD/mutation. Each mutation of mutations.toml and cuda.toml is applied
there, one at a time. The mutation's test must fail, hang for more than 60 s, or crash in the named
function. Without the mutation, the test must pass.

A mutation is a text and its replacement. The text must occur exactly once in all sources. White
space in the text matches any white space. The program NAME_cuda_host is the program NAME on the
backend cuda-host, as in CTest."""
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parents[1]
PARTS = ["CMakeLists.txt", "cmake", "include", "src", "data", "models", "cli", "examples", "bench",
         "tests", "tools", "python"]
TIMEOUT = 60


def copy_sources(copy):
    """Copy the sources with their modification times, so that built objects stay valid. Delete
    files of the copy that are not among the sources."""
    for part in PARTS:
        source, target = SOURCE / part, copy / part
        if not source.exists():
            continue
        if source.is_dir():
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(source, target)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)


def find(copy, text):
    """Find the text in the sources. Return (file, match) and None, or None and the reason if the
    text does not occur exactly once."""
    pattern = re.compile(r"\s+".join(re.escape(word) for word in text.split()))
    found = []
    for directory in ("src", "data", "models"):
        for path in sorted((copy / directory).rglob("*.c*")):
            found += [(path, match) for match in pattern.finditer(path.read_text())]
    if len(found) == 1:
        return found[0], None
    return None, f"found {len(found)} times, expected once: {text}"


class Build:
    def __init__(self, copy):
        self.directory = copy / "build"
        arguments = os.environ.get("CMAKE_ARGS", "-G Ninja").split()
        subprocess.run(["cmake", "-S", copy, "-B", self.directory, *arguments], check=True,
                       stdout=subprocess.DEVNULL)

    def run(self, program):
        """Build and run a test program; return its exit code and output. The code is None if the
        program does not build, and "hung" if it did not end in time."""
        environment = dict(os.environ)
        if program.endswith("_cuda_host"):
            program = program.removesuffix("_cuda_host")
            environment |= {"CGP_TEST_BACKEND": "cuda-host",
                            "CGP_PLUGIN_PATH": str(self.directory / "tests/plugins"),
                            "CGP_CUDA_HOST_ORDER": "shuffled"}
        built = subprocess.run(["cmake", "--build", self.directory, "--target", program],
                               capture_output=True, text=True)
        if built.returncode != 0:
            return None, built.stdout[-2000:]
        try:
            done = subprocess.run([self.directory / "tests" / program], capture_output=True,
                                  text=True, errors="replace", timeout=TIMEOUT, cwd=self.directory,
                                  env=environment)
            return done.returncode, done.stdout + done.stderr
        except subprocess.TimeoutExpired as hung:
            return "hung", ((hung.stdout or b"") + (hung.stderr or b"")).decode(errors="replace")


def verdict(code, output, function):
    if code is None:
        return f"does not build:\n{output}"
    if code == 0:
        return "nothing fails"
    if re.search(rf"^\[  FAILED  \] {re.escape(function)}$", output, re.M):
        return None
    # Code 255: cmocka ended the program after a crash in a thread of cuda-host.
    began = re.findall(r"^\[ RUN      \] (.+)$", output, re.M)
    if (code in ("hung", 255) or code < 0) and began and began[-1] == function:
        return None
    return f"fails with {code}, but not in {function}"


def main():
    if len(sys.argv) < 2:
        sys.exit("run.py: expected BUILD [NAME...]")
    copy = Path(sys.argv[1]).resolve() / "mutation"
    copy.mkdir(parents=True, exist_ok=True)
    mutations = [m for name in ("mutations", "cuda")
                 for m in tomllib.loads((HERE / f"{name}.toml").read_text())["mutation"]]
    unknown = set(sys.argv[2:]) - {m["name"] for m in mutations}
    if unknown:
        sys.exit(f"run.py: {', '.join(sorted(unknown))}: "
                 "no such mutation in mutations.toml or cuda.toml")
    wanted = [m for m in mutations if len(sys.argv) == 2 or m["name"] in sys.argv[2:]]
    copy_sources(copy)
    for m in mutations: # an earlier run may have left the object of a mutated file
        place, _ = find(copy, m["find"])
        if place:
            place[0].touch()
    build = Build(copy)
    passes, failed = {}, 0
    for m in wanted:
        program, function = m["fails"].split(maxsplit=1)
        place, wrong = find(copy, m["find"])
        if program not in passes:
            passes[program] = build.run(program)[0] == 0
        if not passes[program]:
            wrong = f"{program} fails without it"
        if not wrong:
            path, match = place
            text = path.read_text()
            path.write_text(text[: match.start()] + m["replace"] + text[match.end() :])
            wrong = verdict(*build.run(program), function)
            path.write_text(text)
        print(f"not ok - {m['name']}: {wrong}" if wrong else f"ok - {m['name']}: {function} fails",
              flush=True)
        failed += bool(wrong)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
