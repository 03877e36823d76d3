#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Run torchgpipe's own tests against cgpipe.torchgpipe, with only the import replaced.

    TORCHGPIPE_SRC=DIR python3 python/tests/torchgpipe_tests.py [PYTEST OPTION...]

DIR is a checkout of torchgpipe v0.0.7. Its tests are copied to a temporary directory. In the
copies, `torchgpipe` becomes `cgpipe.torchgpipe`, and imports of internal names are removed. A test
that uses an internal name, directly or through a helper in its file, does not run. Public names are
the names in torchgpipe's documentation:

    torchgpipe           GPipe, is_checkpointing, is_recomputing
    torchgpipe.balance   balance_by_time, balance_by_size
    torchgpipe.skip      skippable, stash, pop, Namespace, verify_skippables

torchgpipe_expected.txt, beside this script, has a line for each test that does not run or does not
pass, with the reason. The script fails if the results differ from this list, for example if a
listed test passes."""

import ast
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree

HERE = pathlib.Path(__file__).resolve().parent
EXPECTED = HERE / "torchgpipe_expected.txt"
PUBLIC = {
    "torchgpipe": {"GPipe", "is_checkpointing", "is_recomputing"},
    "torchgpipe.balance": {"balance_by_time", "balance_by_size"},
    "torchgpipe.skip": {"skippable", "stash", "pop", "Namespace", "verify_skippables"},
}

# torchgpipe's tests are for pytest 5. pytest 7 removed warns(None), which records any warning; this
# conftest.py restores it.
CONFTEST = '''
import warnings
import pytest
import torch

_warns = pytest.warns


def _warns_or_records(expected=Warning, *args, **kwargs):
    return warnings.catch_warnings(record=True) if expected is None \
else _warns(expected, *args, **kwargs)


pytest.warns = _warns_or_records


@pytest.fixture(autouse=True)
def manual_seed_zero():
    torch.manual_seed(0)
'''


def rewrite(source):
    """Import a test file's public names from cgpipe.torchgpipe. Return the new text, and the
    internal names that the file imports."""
    lines, internal = source.splitlines(), set()
    for node in ast.parse(source).body:
        if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("torchgpipe"):
            continue
        public = PUBLIC.get(node.module, set())
        kept = [a.name for a in node.names if a.name in public]
        internal |= {a.asname or a.name for a in node.names if a.name not in public}
        lines[node.lineno - 1:node.end_lineno] = [""] * (node.end_lineno - node.lineno + 1)
        if kept:
            lines[node.lineno - 1] = f"from cgpipe.{node.module} import {', '.join(kept)}"
    return "\n".join(lines) + "\n", internal


def names_in(node):
    names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        for function in (n for n in ast.walk(node) if isinstance(n, ast.FunctionDef)):
            names |= {a.arg for a in function.args.args}  # arguments are fixtures
    # A call like monkeypatch.setattr('torchgpipe.skip.portal...') names an internal module in a
    # string.
    texts = [n.value for n in ast.walk(node) if isinstance(n, ast.Constant)
             and isinstance(n.value, str)]
    return names | {text for text in texts
                    if text.startswith("torchgpipe.")} - {"torchgpipe.balance"}


def internal_tests(source, internal):
    """Return the tests of a file that use an internal name, directly or through other definitions
    in the file."""
    uses, automatic = {}, set()
    for node in ast.parse(source).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            uses[node.name] = names_in(node)
            if any("autouse" in ast.dump(d) for d in node.decorator_list):
                automatic.add(node.name)
    tainted = set(internal)
    while True:
        more = {name for name, used in uses.items() if name not in tainted
                and (used & tainted or any(u.startswith("torchgpipe.") for u in used))}
        if not more:
            break
        tainted |= more
    tests = {name for name in uses if name.lower().startswith("test")}
    return tests if automatic & tainted else tests & tainted


def copy_tests(source, target):
    """Copy the tests; return the tests that use internal names, as {path: names}."""
    found = {}
    for path in sorted((source / "tests").rglob("test_*.py")):
        relative = path.relative_to(source / "tests")
        text, internal = rewrite(path.read_text())
        (target / relative).parent.mkdir(parents=True, exist_ok=True)
        (target / relative).write_text(text)
        found[str(relative)] = internal_tests(text, internal)
    (target / "conftest.py").write_text(CONFTEST)
    return found


def all_tests(target):
    """Return the names of all test functions and classes, as path::name."""
    return {f"{path.relative_to(target)}::{node.name}" for path in sorted(target.rglob("test_*.py"))
            for node in ast.parse(path.read_text()).body
            if isinstance(node, (ast.FunctionDef, ast.ClassDef))
            and node.name.lower().startswith("test")}


def run(target, tests, options):
    """Run tests; return {path::name[case]: "passed", "failed" or "skipped"}."""
    report = target / "report.xml"
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(
        [str(HERE.parent)] + [p for p in [os.environ.get("PYTHONPATH")] if p]))
    subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider",
                    "--import-mode=importlib", "--tb=short", "-o", "junit_family=xunit1",
                    f"--junitxml={report}", *options, *sorted(tests)], cwd=target, env=environment,
                   check=False)
    results = {}
    for case in ElementTree.parse(report).iter("testcase"):
        kinds = {child.tag: child for child in case}
        skip = kinds.get("skipped")
        # A test that torchgpipe marks as an expected failure, and that fails, counts as passed.
        skipped = skip is not None and skip.get("type") != "pytest.xfail"
        outcome = ("failed" if "failure" in kinds or "error" in kinds
                   else "skipped" if skipped else "passed")
        results[f"{case.get('file')}::{case.get('name')}"] = outcome
    return results


def read_expected():
    """Read torchgpipe_expected.txt; return {test: (expected outcome, reason)}."""
    expected = {}
    for line in EXPECTED.read_text().splitlines():
        if line and not line.startswith("#"):
            word, test, reason = line.split(None, 2)
            expected[test] = (word, reason)
    return expected


def compare(internal, results):
    """Return a line for each difference from torchgpipe_expected.txt."""
    expected = read_expected()
    internals = {test for test, (word, _) in expected.items() if word == "internal"}
    differences = [f"{test}: uses internal names, and is not listed"
                   for test in sorted(internal - internals)]
    differences += [f"{test}: listed as internal, and is not"
                    for test in sorted(internals - internal)]
    seen = {}
    for case, outcome in results.items():
        seen.setdefault(case.split("[")[0], []).append((case, outcome))
    for test, cases in sorted(seen.items()):
        for case, outcome in cases:
            word = expected.get(case, expected.get(test, ("passes", "")))[0]
            wanted = {"fails": "failed", "cuda": "skipped"}.get(word, "passed")
            if outcome != wanted:
                differences.append(f"{case}: {outcome}, expected: {wanted}")
    gone = [test for test, (word, _) in expected.items() if word != "internal"
            and test.split("[")[0] not in seen]
    return differences + [f"{test}: listed, and there is no such test" for test in sorted(gone)]


def main():
    source = os.environ.get("TORCHGPIPE_SRC")
    if not source:
        print("TORCHGPIPE_SRC: the directory of torchgpipe's source is expected, nothing is set",
              file=sys.stderr)
        return 77
    try:
        import pytest  # noqa: F401
        import torch  # noqa: F401
    except ImportError as error:
        print(f"skipped: {error}", file=sys.stderr)
        return 77
    target = pathlib.Path(tempfile.mkdtemp(prefix="torchgpipe-tests-"))
    try:
        found = copy_tests(pathlib.Path(source), target)
        internal = {f"{path}::{name}" for path, names in found.items() for name in names}
        results = run(target, all_tests(target) - internal, sys.argv[1:])
        differences = compare(internal, results)
        counts = {word: list(results.values()).count(word)
                  for word in ("passed", "failed", "skipped")}
        print(f"{len(all_tests(target))} tests, {len(internal)} of internal names; of the others' "
              "cases " + ", ".join(f"{n} {word}" for word, n in counts.items()))
        for line in differences:
            print(f"differs: {line}")
        return 1 if differences else 0
    finally:
        shutil.rmtree(target, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
