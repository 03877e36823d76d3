# SPDX-License-Identifier: Apache-2.0
"""Parts that check single ops: random cases against ref, LINEAR with and without cuBLASLt, the
tensor core, and compute-sanitizer."""
import concurrent.futures
import pathlib
import re
import shutil

import machine
import speed
from check import NotRun, OutOfTime, result, verdict_of

# Programs, and the ops that they test on cuda-host in this check. Other tests cover all ops on
# cuda-host.
TESTS = {"test_op_backends": ["linear"], "test_op_properties": []}
SEEDS = ("11244888711800", "1", "2", "3", "4")  # the first seed once found a fault on a GPU


# --- random cases ---

def op_test(check, name, *ops, **variables):
    """Run a test of ops. Return "passed", or the failed tests with their first messages."""
    of = {"CGP_TEST_BACKEND": check.backend, "CGP_TEST_SCALE": "0.01" if check.small else "0.25"}
    done = check.run([check.built / "tests" / name, *ops],
                     env=check.environment(**of, **variables))
    check.log(f"{name} {variables}", done.stdout + done.stderr)
    if done.returncode == 0:
        return "passed"
    wrong = re.findall(r"^\[  FAILED  \] (?!\d+ test)(.*)", done.stdout + done.stderr, re.M)
    why = [line.removeprefix("ERROR: ") for line in done.stderr.splitlines()
           if line and not line.startswith("[")]
    return (f"{', '.join(dict.fromkeys(wrong[:4])) or f'exit code {done.returncode}'}: "
            f"{'; '.join(why[:2])[:400]}")


def line(name, said):
    return f"{'' if said in ('passed', 'clean') else 'FAILED '}{name}: {said}"


def seeds(check):
    """Run the first seed that has no result. Each further call runs one more seed, until five seeds
    have passed."""
    names = {seed: [f"{test}, seed {seed}" for test in TESTS] for seed in SEEDS}
    seed = next((seed for seed in SEEDS if not set(names[seed]) <= set(check.state)), None)
    for test, name in zip(TESTS, names.get(seed, ())):
        check.cell(name, lambda test=test: op_test(
            check, test, *(TESTS[test] if check.small else ()), CGP_TEST_SEED=seed))
    passed = [seed for seed in SEEDS if all(check.state.get(name) == "passed"
                                            for name in names[seed])]
    lines = [f"{len(passed)} of {len(SEEDS)} seeds passed: {' '.join(passed)}",
             *(line(name, said) for name, said in check.state.items() if said != "passed")]
    return result(verdict_of(lines), lines, more=len(check.state) < len(TESTS) * len(SEEDS))


# --- LINEAR ---

def linear(check):
    """Measure LINEAR in bf16 with cuBLASLt and with cgpipe's kernels, and test cgpipe's kernels."""
    if b"CGP_CUBLASLT_DIRS" not in check.plugin.read_bytes():
        raise NotRun("this build has no CGP_CUBLASLT=off")
    of = speed.sizes(check, steps=4)
    ms = {text: check.cell(text, lambda variables=variables: speed.profile(
        check, of, precision="bf16", variables=variables))["linear"]
        for text, variables in (("with cuBLASLt", {}),
                                ("without", {"CGP_CUBLASLT": "off"}))}
    said = check.cell("test", lambda: op_test(check, "test_op_backends", "linear", "conv2d",
                                              CGP_CUBLASLT="off", CGP_TEST_SEED=SEEDS[0]))
    lines = [", ".join(f"{text}: {value:.2f} ms" for text, value in ms.items())
             + ", GPT-2 in bf16, M=1",
             line(f"test_op_backends without cuBLASLt, seed {SEEDS[0]}", said)]
    return result(verdict_of(lines), lines, {f"linear {text}, ms": value
                                             for text, value in ms.items()})


# --- the tensor core ---

def probe(check):
    """Print how the tensor core adds, and how many sums differ from cuda-host's model."""
    name = "cuda_probe_host" if check.small else "cuda_probe"
    program = check.built / "tests" / name
    if not program.exists():
        raise NotRun(f"the build has no tests/{name}")
    found = check.json_of([program], env=check.environment())
    return result("measured", [", ".join(f"{key} {value}" for key, value in found.items())])


# --- compute-sanitizer ---

TOOLS = ("memcheck", "racecheck", "synccheck")
SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (\d+) (?:error|hazard)")
ERROR = re.compile(r"^========= (?:Invalid|Error:|Barrier error|Uninitialized)",
                   re.M)  # these lines precede the tool's summary


def sanitize(check, tool, sanitizer):
    """Return "clean", "N errors" or "not run (why)". The result is "clean" only if the tool reports
    no error and the program finished. All cases would take too long, so every seventh case is run.
    Because each op has eight cases, this covers all ops, with different sizes."""
    words = [check.built / "tests" / "cuda_digests", check.backend, "1/7"]
    try:
        done = check.run([sanitizer, "--tool", tool, "--print-limit", "20", *words],
                         env=check.environment())
    except OutOfTime as stopped:
        late, done = stopped, stopped.done
        if done is None:
            return f"not run ({late})"
    said = (done.stdout + done.stderr).strip()
    check.log(tool, said)
    found = SUMMARY.findall(said)
    if found and int(found[-1]) > 0:
        return f"{found[-1]} errors"
    if ERROR.search(said):
        return f"{len(ERROR.findall(said))} errors"
    if done.returncode is None:
        return f"not run ({late})"
    if "before first instrumented API call" in said:
        return "not run (it saw no call of CUDA)"
    ended = re.search(r"^[0-9a-f]{64}  sum of squares.* 100003 elements$", done.stdout, re.M)
    if not found or not ended or done.returncode != 0:
        return (f"not run (exit code {done.returncode}: "
                f"{(said.splitlines() or ['nothing said'])[-1][:200]})")
    return "clean"


def find_sanitizer():
    nvcc = machine.find_nvcc()
    places = [str(pathlib.Path(nvcc).resolve().parent)] if nvcc else []
    return (shutil.which("compute-sanitizer")
            or shutil.which("compute-sanitizer", path=":".join([*places, "/usr/local/cuda/bin"])))


def sanitizers(check):
    """Run the tools at the same time. A tool without a result runs again in the next call."""
    sanitizer = find_sanitizer()
    if check.small or not sanitizer:
        raise NotRun("no GPU" if check.small else "no compute-sanitizer")
    tools = [tool for tool in TOOLS if tool not in check.state]
    with concurrent.futures.ThreadPoolExecutor(len(TOOLS)) as pool:
        said = dict(zip(tools, pool.map(lambda tool: sanitize(check, tool, sanitizer), tools)))
    for tool, text in said.items():
        if not text.startswith("not run"):
            check.cell(tool, lambda text=text: text)
    lines = [line(*kept) for kept in check.state.items()]
    cut = [f"{tool}: {text}" for tool, text in said.items() if tool not in check.state]
    if cut and verdict_of(lines) == "passed":
        raise (OutOfTime if "not done after" in "".join(cut) else NotRun)("; ".join(lines + cut))
    return result(verdict_of(lines), lines + cut)
