# SPDX-License-Identifier: Apache-2.0
"""Parts that have one right answer: digests, sanitizers, bits over layouts, memory, properties of bf16."""
import re
import shutil
import subprocess
import threading

from check import Failed, NotRun, OutOfTime, ROOT, result, verdict_of

COMMITTED = ROOT / "tests" / "cuda" / "digests.txt"
# 10 steps of a model of each family. bench draws its data with Philox alone; initial weights ask libm.
TRAININGS = [
    ("gpt2:layers=2,width=24,heads=2,vocab=50,seq=16", {"optimizer": "adamw", "dropout": 0.1}),
    ("resnet:depth=8,width=4,classes=10,image=16", {"optimizer": "sgd"}),
    ("amoebanetd:L=3,D=8,classes=10,image=32", {"optimizer": "rmsprop"}),
    ("unet:B=1,C=2,depth=2,image=16", {"optimizer": "adam", "dropout": 0.1}),
]


# --- digests ---

def op_digests(check, backend):
    """{name: digest} of cuda_digests."""
    done = check.run([check.build / "tests" / "cuda_digests", backend], env=check.environment())
    if done.returncode != 0:
        raise Failed(f"cuda_digests {backend}: exit code {done.returncode}: {done.stderr.strip()[-400:]}")
    return {line[66:]: line[:64] for line in done.stdout.splitlines()}


def training_digests(check, backend):
    """({name: digest} of weights and states after 10 steps, the digest of this machine's libm)."""
    digests, libm = {}, None
    for model, options in TRAININGS:
        run = check.cgpipe("bench", model, devices=f"{backend}:0", stages=1, batch=4, chunks=2, steps=10, seed=7, lr=0.01, **options)
        libm = run["libm"]
        for key in ("weights_sha256", "state_sha256"):
            if run[key]:
                digests[f"10 steps, {model}, {options['optimizer']}, {key}"] = run[key]
    return digests, libm


def all_digests(check, backend):
    trainings, libm = training_digests(check, backend)
    return {"libm": libm, "ops": op_digests(check, backend), "trainings": trainings}


def digest_lines(found):
    """As they are committed."""
    lines = [f"{digest}  {name}" for part in ("ops", "trainings") for name, digest in found[part].items()]
    return "\n".join([f"libm {found['libm']}", *lines]) + "\n"


def committed_digests():
    libm, *lines = COMMITTED.read_text().splitlines()
    names = {line[66:]: line[:64] for line in lines}
    is_training = re.compile(r"\d+ steps, ").match
    return {"libm": libm.split()[1], "ops": {name: digest for name, digest in names.items() if not is_training(name)},
            "trainings": {name: digest for name, digest in names.items() if is_training(name)}}


def compare(what, found, expected):
    """A line: equal, or which differ."""
    wrong = [name for name in expected if found.get(name) != expected[name]] + [name for name in found if name not in expected]
    if not wrong:
        return f"{what}: all {len(expected)} equal"
    return f"FAILED {what}: {len(wrong)} of {len(expected)} differ: " + "; ".join(wrong[:8]) + (" ..." if len(wrong) > 8 else "")


def digests(check):
    host = check.cell("cuda-host", lambda: all_digests(check, "cuda-host"))
    committed = committed_digests()
    lines = [compare("ops, cuda-host here and committed", host["ops"], committed["ops"])]
    if host["libm"] == committed["libm"]:
        lines.append(compare("10 steps, cuda-host here and committed", host["trainings"], committed["trainings"]))
    else:
        lines.append("10 steps, committed: of another libm, whose initial weights are others")
    if check.backend != "cuda-host":
        found = check.cell(check.backend, lambda: all_digests(check, check.backend))
        lines += [compare(f"{what}, {check.backend} and cuda-host", found[key], host[key])
                  for key, what in (("ops", "ops"), ("trainings", "10 steps"))]
    return result(verdict_of(lines), lines)


# --- compute-sanitizer ---

TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (\d+) (?:error|hazard)")


def sanitize(check, tool, sanitizer):
    """"clean", "N errors" or "not run (why)": clean only if it says so of a program that came to its end."""
    program = check.build / "tests" / "cuda_digests"
    try:
        done = check.run([sanitizer, "--tool", tool, "--print-limit", "5", program, check.backend], limit=90, env=check.environment())
    except NotRun as reason:
        return f"not run ({reason})"
    except OutOfTime:
        return "not run (90 s did not do)"
    said = (done.stdout + done.stderr).strip()
    found = SUMMARY.findall(said)
    if found and int(found[-1]) > 0:
        return f"{found[-1]} errors"
    ended = re.search(r"^[0-9a-f]{64}  sum of squares.* 100003 elements$", done.stdout, re.M)
    if not found or not ended or done.returncode != 0:
        return f"not run (exit code {done.returncode}: {(said.splitlines() or ['nothing said'])[-1][:200]})"
    return "clean"


def sanitizers(check):
    sanitizer = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path="/usr/local/cuda/bin")
    if not sanitizer:
        raise NotRun("no compute-sanitizer")
    said = {tool: check.cell(tool, lambda tool=tool: sanitize(check, tool, sanitizer)) for tool in TOOLS}
    lines = [f"{'FAILED ' if text.endswith('errors') else ''}{tool}: {text}" for tool, text in said.items()]
    verdict = verdict_of(lines)
    if verdict == "passed" and set(said.values()) != {"clean"}:
        verdict = "not run"  # not in full
    return result(verdict, lines)


# --- bits ---

MODELS = {"gpt2": ("gpt2:layers=4,width=32,heads=2,vocab=50,seq=16", {"dropout": 0.1, "optimizer": "adamw"}),
          "amoebanetd": ("amoebanetd:L=3,D=8,classes=10,image=32", {})}
LAYOUTS = [(1, "gpipe", "never"), (2, "gpipe", "except_last"), (4, "1f1b", "never"), (4, "zb-h1", "never")]
MIXED = [("gpipe", "never"), ("1f1b", "always"), ("zb-h1", "never")]


def weights(check, model, devices, stages, schedule, recompute, **options):
    text, more = MODELS[model]
    run = check.cgpipe("bench", text, devices=devices, stages=stages, schedule=schedule, recompute=recompute, batch=8, chunks=4, steps=2,
                       **more, **options)
    return run["weights_sha256"]


def same(what, found):
    if len(set(found.values())) == 1:
        return f"{what}: {len(found)} layouts, the same bits"
    return f"FAILED {what}: " + ", ".join(f"{name} {digest[:8]}" for name, digest in found.items())


def layouts(check, model, **options):
    return {f"K={k} {schedule} {recompute}":
            check.cell(" ".join(map(str, (model, k, schedule, recompute, *options.values()))),
                       lambda: weights(check, model, check.devices(k), k, schedule, recompute, **options))
            for k, schedule, recompute in LAYOUTS}


def bits(check):
    lines = [same(f"{model}, devices of one {check.backend}", layouts(check, model)) for model in MODELS]
    mixed = {}
    for backend in dict.fromkeys((check.backend, "cuda-host")):
        for schedule, recompute in MIXED:
            mixed[f"{backend},cpu {schedule} {recompute}"] = check.cell(
                f"mixed {backend} {schedule} {recompute}",
                lambda: weights(check, "gpt2", f"{backend}:0,cpu", 2, schedule, recompute, balance="4,4"))
    lines.append(same("gpt2, beside a cpu", mixed))
    return result(verdict_of(lines), lines)


# --- memory ---

WATCH = """
import sys, threading, torch
torch.cuda.mem_get_info()
done = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), done.set()), daemon=True).start()
first = least = torch.cuda.mem_get_info()[0]
print("ready", flush=True)
while not done.wait(0.005):
    least = min(least, torch.cuda.mem_get_info()[0])
print(first - least)
"""


def watched(check, function):
    """(What `function` returns, the most bytes by which the GPU's free memory fell meanwhile), by cudaMemGetInfo of another process."""
    with subprocess.Popen([check.python, "-c", WATCH], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as watcher:
        limit = threading.Timer(max(check.left(), 1), watcher.kill)
        limit.start()
        try:
            watcher.stdout.readline()
            returned = function()
            return returned, int(watcher.communicate()[0] or -1)
        finally:
            limit.cancel()
            watcher.kill()


def memory_cell(check, stages, chunks):
    sizes = {"model": "gpt2:layers=4,width=32,heads=2,vocab=50,seq=16", "batch": 8} if check.small else {"batch": 64}

    def run():
        return check.cgpipe("bench", "gpt2", devices=check.devices(stages), stages=stages, chunks=chunks, steps=2, **sizes)
    report, taken = watched(check, run) if not check.small and check.facts["torch"] else (run(), None)
    return {"planned": [device["planned_bytes"] for device in report["devices"]],
            "allocated": [device["allocated_bytes"] for device in report["devices"]], "taken": taken}


def memory(check):
    lines = []
    for stages, chunks in ((1, 1), (4, 8)):
        cell = check.cell(f"K={stages} M={chunks}", lambda: memory_cell(check, stages, chunks))
        planned, allocated = sum(cell["planned"]), sum(cell["allocated"])
        equal = cell["planned"] == cell["allocated"]
        line = f"{'' if equal else 'FAILED '}K={stages} M={chunks}: planned {planned:,} bytes, allocated {allocated:,}"
        if cell["taken"] is None or cell["taken"] < 0:
            line += f"; the driver's part: not measured ({'no GPU' if check.small else 'PyTorch is asked for it'})"
        else:
            line += f"; beside it the driver took {(cell['taken'] - allocated) / 2**20:,.0f} MiB (context, modules, graphs)"
        lines.append(line)
    return result(verdict_of(lines), lines)


# --- bf16 ---

PROPERTIES = ("test_op_backends", "test_op_properties", "test_op_bf16")


def refusal(check):
    """What a plan in bf16 is refused with; "": it is not."""
    done = check.run([check.build / "cgpipe", "plan", MODELS["gpt2"][0], "--devices", f"{check.backend}:0", "--precision", "bf16"],
                     env=check.environment())
    return done.stderr.strip() if done.returncode != 0 else ""


def property_test(check, name):
    done = check.run([check.build / "tests" / name], env={**check.environment(), "CGP_TEST_BACKEND": check.backend})
    wrong = re.findall(r"\[  FAILED  \] (.*)", done.stdout + done.stderr)
    seed = re.findall(r"CGP_TEST_SEED=\d+", done.stdout)
    return "passed" if done.returncode == 0 else f"{', '.join(wrong[:4]) or f'exit code {done.returncode}'} ({' '.join(seed)})"


def bf16(check):
    refused = refusal(check)
    if refused:
        raise NotRun(f"refused at plan time: {refused}")
    lines = [same("gpt2 in bf16", layouts(check, "gpt2", precision="bf16"))]
    for name in PROPERTIES:
        said = check.cell(name, lambda name=name: property_test(check, name))
        lines.append(f"{'' if said == 'passed' else 'FAILED '}{name}: {said}")
    return result(verdict_of(lines), lines)
