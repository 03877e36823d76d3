# SPDX-License-Identifier: Apache-2.0
"""Parts that have one correct result: digests, bit equality between layouts and between ranks, and
memory."""
import collections
import math
import re
import shutil

from check import Failed, NotRun, ROOT, result, verdict_of

COMMITTED = ROOT / "tests" / "cuda" / "digests.txt"
# Each training runs ten steps of a model of one family. The random data of `cgpipe bench` are
# bit-identical on every machine (Philox), but initial weights depend on libm.
TRAININGS = [
    ("gpt2:layers=2,width=24,heads=2,vocab=50,seq=16", {"optimizer": "adamw", "dropout": 0.1}),
    ("resnet:depth=8,width=4,classes=10,image=16", {"optimizer": "sgd"}),
    ("amoebanetd:L=3,D=8,classes=10,image=32", {"optimizer": "rmsprop"}),
    ("unet:B=1,C=2,depth=2,image=16", {"optimizer": "adam", "dropout": 0.1}),
]


# --- digests ---

def op_digests(check, backend):
    """Return {name: digest} from cuda_digests."""
    done = check.run([check.built / "tests" / "cuda_digests", backend], env=check.environment())
    if done.returncode != 0:
        raise Failed(f"cuda_digests {backend}: exit code {done.returncode}: "
                     f"{done.stderr.strip()[-400:]}")
    return {line[66:]: line[:64] for line in done.stdout.splitlines()}


def training_digests(check, backend):
    """Return {name: digest} for weights and states after 10 steps, and the digest of this machine's
    libm.
    """
    digests, libm = {}, None
    for model, options in TRAININGS:
        run = check.cgpipe("bench", model, devices=f"{backend}:0", stages=1, batch=4, chunks=2,
                           steps=10, seed=7, lr=0.01, **options)
        libm = run["libm"]
        for key in ("weights_sha256", "state_sha256"):
            if run[key]:
                digests[f"10 steps, {model}, {options['optimizer']}, {key}"] = run[key]
    return digests, libm


def all_digests(check, backend):
    trainings, libm = training_digests(check, backend)
    return {"libm": libm, "ops": op_digests(check, backend), "trainings": trainings}


def digest_lines(found):
    """Return the digests in the format of the committed file."""
    lines = [f"{digest}  {name}" for part in ("ops", "trainings")
             for name, digest in found[part].items()]
    return "\n".join([f"libm {found['libm']}", *lines]) + "\n"


def committed_digests():
    libm, *lines = COMMITTED.read_text().splitlines()
    names = {line[66:]: line[:64] for line in lines}
    is_training = re.compile(r"\d+ steps, ").match
    return {"libm": libm.split()[1],
            "ops": {name: digest for name, digest in names.items() if not is_training(name)},
            "trainings": {name: digest for name, digest in names.items() if is_training(name)}}


def compare(what, found, expected):
    """Return a line that says "equal", or which digests differ."""
    wrong = [name for name in expected
             if found.get(name) != expected[name]] + [name for name in found
                                                      if name not in expected]
    if not wrong:
        return f"{what}: all {len(expected)} equal"
    return (f"FAILED {what}: {len(wrong)} of {len(expected)} differ: " + "; ".join(wrong[:8])
            + (" ..." if len(wrong) > 8 else ""))


def digests(check):
    host = check.cell("cuda-host", lambda: all_digests(check, "cuda-host"))
    committed = committed_digests()
    lines = [compare("ops, cuda-host here and committed", host["ops"], committed["ops"])]
    if host["libm"] == committed["libm"]:
        lines.append(compare("10 steps, cuda-host here and committed", host["trainings"],
                             committed["trainings"]))
    else:
        lines.append("10 steps, committed: of another libm, whose initial weights are others")
    if check.backend == "cuda-host":
        return result(verdict_of(lines), lines)
    found = check.cell(check.backend, lambda: all_digests(check, check.backend))
    lines += [compare(f"{what}, {check.backend} and cuda-host", found[key], host[key])
              for key, what in (("ops", "ops"), ("trainings", "10 steps"))]
    return result(verdict_of(lines), lines)


# --- bits ---

MODELS = {"gpt2": ("gpt2:layers=4,width=32,heads=2,vocab=50,seq=16",
                   {"dropout": 0.1, "optimizer": "adamw"}),
          "amoebanetd": ("amoebanetd:L=3,D=8,classes=10,image=32", {})}
LAYOUTS = [(1, "gpipe", "never", "on"), (2, "gpipe", "except_last", "on"),
           (4, "1f1b", "never", "on"), (4, "zb-h1", "never", "off")]
MIXED = [("gpipe", "never"), ("1f1b", "always"), ("zb-h1", "never")]
# Open MPI needs these options to start as root, and to start more ranks than there are cores.
MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
       "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_hwloc_base_binding_policy": "none"}


def trained(check, model, devices, stages, schedule, recompute, graphs="on", launcher=(),
            **options):
    """Return weights and loss after three steps. CUDA graphs are captured in the second step and
    launched in the third."""
    text, more = MODELS[model]
    run = check.cgpipe("bench", text, devices=devices, stages=stages, schedule=schedule,
                       recompute=recompute, batch=8, chunks=4, steps=3, launcher=launcher,
                       variables={"CGP_GRAPHS": graphs, **MPI}, **more, **options)
    return {"weights": run["weights_sha256"], "loss": run["loss_last"]}


def is_finite(cell):
    return cell["loss"] is not None and math.isfinite(cell["loss"])


def same(what, found):
    wrong = [name for name, cell in found.items() if not is_finite(cell)]
    if wrong:
        return f"FAILED {what}: the loss is not finite: " + ", ".join(wrong)
    if len({cell["weights"] for cell in found.values()}) == 1:
        return f"{what}: {len(found)} layouts, the same bits"
    return f"FAILED {what}: " + ", ".join(f"{name} {cell['weights'][:8]}"
                                          for name, cell in found.items())


def layouts(check, model, **options):
    return {f"K={k} {schedule} {recompute} graphs {graphs}":
            check.cell(" ".join(map(str, (model, k, schedule, recompute, graphs,
                                          *options.values()))),
                       lambda: trained(check, model, check.devices(k), k, schedule, recompute,
                                       graphs, **options))
            for k, schedule, recompute, graphs in LAYOUTS[::3 if check.small else 1]}


def gemms(check, precision):
    """Return which code computes GEMMs in bf16 or tf32, according to the log: algorithms of
    cuBLASLt, or cgpipe's kernels with the reason for using them.
    """
    model = ("gpt2:layers=1,width=32,heads=2,vocab=64,seq=16" if check.small
             else "gpt2:layers=1,width=768,heads=12,vocab=3000,seq=128")
    done = check.run([check.built / "cgpipe", "bench", model, "--devices", f"{check.backend}:0",
                      "--precision", precision, "--batch", 8, "--chunks", 1, "--steps", 1,
                      "--quiet"],
                     env=check.environment(CGP_LOG="info"))
    check.log(f"a step in {precision}", done.stderr)
    if done.returncode != 0:
        raise Failed(f"a step in {precision}: exit code {done.returncode}: "
                     f"{done.stderr.strip().splitlines()[-1:]}")
    said = set(re.findall(rf"(?:GEMM|weight's gradient)[^,\n]* in {precision}.*", done.stderr))
    by = collections.Counter(line.partition(": ")[2] for line in said if "GEMMs" not in line)
    return [*(f"{count} kinds of GEMM in {precision}: {text}" for text, count in
              sorted(by.items())),
            *(line for line in said if "GEMMs" in line)]


def near_cpu(found, cpu):
    """Return a line that compares the loss with the loss on the backend cpu, whose GEMMs round
    differently."""
    far = max(abs(cell["loss"] - cpu["loss"]) if is_finite(cell) and is_finite(cpu) else math.inf
              for cell in found.values())
    return (f"{'' if far < 0.02 else 'FAILED '}gpt2 in bf16: the loss is {far:.2g} from a cpu's "
            "(less than 0.02)")


def bits(check):
    lines = [same(f"{model}, devices of one {check.backend}", layouts(check, model))
             for model in MODELS]
    mixed = {}
    for backend in dict.fromkeys((check.backend, "cuda-host")):
        for schedule, recompute in MIXED[::2 if check.small else 1]:
            mixed[f"{backend},cpu {schedule} {recompute}"] = check.cell(
                f"mixed {backend} {schedule} {recompute}",
                lambda: trained(check, "gpt2", f"{backend}:0,cpu", 2, schedule, recompute,
                                balance="4,4"))
    lines.append(same("gpt2, beside a cpu", mixed))
    found = layouts(check, "gpt2", precision="bf16")
    cpu = check.cell("cpu", lambda: trained(check, "gpt2", "cpu", 1, "gpipe", "never",
                                            precision="bf16"))
    lines += [same("gpt2 in bf16", found), near_cpu(found, cpu),
              same("gpt2 in tf32", layouts(check, "gpt2", precision="tf32"))]
    for precision in ("bf16", "tf32"):
        said = check.cell(f"gemms {precision}", lambda: gemms(check, precision))
        lines += said
        if not (check.small or any(re.search(r"cuBLASLt's algorithm \d", line) for line in said)):
            lines.append(f"FAILED GEMMs in {precision}: the log names no algorithm of cuBLASLt")
    return result(verdict_of(lines), lines)


def ranks(check):
    """Compare one process with two MPI processes. Each of the two has a device on the same GPU."""
    launcher, plugin = shutil.which("mpirun"), check.built / "plugins" / "libcgpipe-mpi.so"
    if not launcher or not plugin.exists():
        raise NotRun("no mpirun" if plugin.exists() else "the build has no libcgpipe-mpi.so")
    needs = check.run(["ldd", plugin], env=check.environment()).stdout
    if "not found" in needs or check.run([launcher, "-n", 2, "true"],
                                         env=check.environment(**MPI)).returncode != 0:
        raise NotRun("the plug-in mpi is of another MPI, or mpirun starts no processes")
    found = {f"{count} processes": check.cell(
        f"{count} processes", lambda: trained(check, "gpt2", check.devices(2), 2, "1f1b", "never",
                                              launcher=[launcher, "-n", count][:3 * count - 3]))
             for count in (1, 2)}
    lines = [same("gpt2, processes", found)]
    return result(verdict_of(lines), lines)


def torch(check):
    """Train with PyTorch's tensors on the GPU, and compare with tensors on the host."""
    library = next(iter(sorted(check.built.glob("libcgpipe.so*"))), None)
    if not check.facts["torch"] or not library:
        raise NotRun(f"{check.python} has no PyTorch (PYTHON=...)" if library
                     else "the build has no libcgpipe.so")
    variables = {} if check.small else {"CGPIPE_GPU": "1"}
    done = check.run([check.python, ROOT / "python" / "tests" / "test_dlpack.py"],
                     env=check.environment(PYTHONPATH=str(ROOT / "python"),
                                           CGPIPE_LIBRARY=str(library), **variables))
    check.log("torch", done.stdout + done.stderr)
    ran = re.search(r"^Ran \d+ tests", done.stderr, re.M)
    line = f"PyTorch {check.facts['torch']}: {ran[0] if ran else 'no test was counted'}"
    return result(*(("passed", [line]) if done.returncode == 0 else
                    ("failed", [f"FAILED {line}, exit code {done.returncode} (see the log)"])))


# --- memory ---

def memory_cell(check, stages, chunks):
    sizes = {"model": "gpt2:layers=4,width=32,heads=2,vocab=50,seq=16",
             "batch": 8} if check.small else {"batch": 64}
    report = check.cgpipe("bench", "gpt2", devices=check.devices(stages), stages=stages,
                          chunks=chunks, steps=3, **sizes)
    return {key: [device[key + "_bytes"] for device in report["devices"]]
            for key in ("planned", "allocated", "driver")}


def memory(check):
    lines = []
    for stages, chunks in ((1, 1), (4, 8)):
        cell = check.cell(f"K={stages} M={chunks}", lambda: memory_cell(check, stages, chunks))
        planned, allocated = sum(cell["planned"]), sum(cell["allocated"])
        equal = cell["planned"] == cell["allocated"]
        # All devices are on one ordinal, so this figure is the same for each device.
        driver = cell["driver"][0]
        taken = ("not known" if driver is None
                 else f"{driver / 2**20:,.0f} MiB, other programs included")
        lines.append(f"{'' if equal else 'FAILED '}K={stages} M={chunks}: planned {planned:,} "
                     f"bytes, allocated {allocated:,}; "
                     f"the driver's part besides: {taken}")
    return result(verdict_of(lines), lines)
