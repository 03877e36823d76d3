# SPDX-License-Identifier: Apache-2.0
"""Parts that measure: the GPT-2 benchmark, published tables, images, and several devices on one
GPU, compared with PyTorch and llm.c."""
import sys

from check import Failed, NotRun, ROOT, goal, result
from kernels import occupancy
from llmc import llmc_run
from machine import bf16_peak

sys.path.insert(0, str(ROOT / "bench"))
GIB = 2.0**30
SPEED = "samples_per_second"
STEPS = 12  # the first two steps are not counted


def bench_cases():
    """Import bench/cases.py, which reads the environment and the command line; main.py prepares
    both."""
    import cases
    return cases


def sizes(check, **changes):
    """The model of the GPT-2 benchmark at its full batch; a tiny one for cuda-host."""
    tiny = {"layers": 4, "width": 16, "heads": 2, "vocab": 50, "seq": 8, "batch": 64, "steps": 3}
    return {**(tiny if check.small else {**bench_cases().GPT2, "batch": 64, "steps": STEPS}),
            **changes}


def gpt2_ours(check, chunks, stages=1, **options):
    of = sizes(check, **{key: options.pop(key) for key in ("seq", "steps") if key in options})
    return check.json_of(bench_cases().ours(of, stages=stages, chunks=chunks,
                                            devices=check.devices(stages), **options))


def of_others(function):
    """Return the result of a foreign program, or {"failed": text}: its failure fails no part."""
    try:
        return function()
    except (Failed, NotRun, ValueError, IndexError) as failure:
        return {"failed": str(failure)}


def did_not_run(check):
    """Return a line for each failed case of a foreign program."""
    failed = {key.partition(", round ")[0]: cell["failed"] for key, cell in check.state.items()
              if "failed" in cell}
    return [f"{name}: did not run: {text}" for name, text in failed.items()]


def peer(check, script, options, flags=()):
    """Run a PyTorch script of bench/ on the same device."""
    words = [check.python, ROOT / "bench" / script, *bench_cases().options_of(options), *flags]
    return of_others(lambda: check.json_of([*words, "--device", "cpu" if check.small else "cuda"],
                                           ours=False))


def gpt2_torch(check, chunks, *flags, **changes):
    return peer(check, "gpt2_torch.py", {**sizes(check, **changes), "chunks": chunks}, flags)


def table(medians):
    return [f"{name}: {speed:,.1f} samples/s" for name, speed in medians.items()]


# --- the GPT-2 benchmark ---

def gpt2(check):
    """Measure one micro-batch and 64, and PyTorch eager (TF32 off) and compiled."""
    cases = {f"cgpipe M={m}": lambda m=m: gpt2_ours(check, m) for m in (1, 64)}
    if check.facts["torch"]:
        for m in (1, 64):
            fewer = {"steps": STEPS // 2} if m > 1 and not check.small else {}  # a second each
            cases[f"PyTorch eager M={m}"] = lambda m=m, fewer=fewer: gpt2_torch(check, m, **fewer)
        if not check.small:
            cases["PyTorch compiled M=1"] = lambda: gpt2_torch(check, 1, "--compile")
    medians = check.rounds(cases, 1)
    lines = ["f32, B=64, T=128, K=1", *table(medians), *did_not_run(check)]
    kept = goal(check, "M=64 over M=1", medians["cgpipe M=64"] / medians["cgpipe M=1"], 0.40)
    goals = [kept, *(goal(check, f"M={m} over PyTorch eager",
                          medians[f"cgpipe M={m}"] / medians[f"PyTorch eager M={m}"], bound)
                     for m, bound in ((1, 0.90), (64, 2.0)) if f"PyTorch eager M={m}" in medians)]
    if kept and not kept["met"]:
        lines += occupancy(check.build)
    return result("measured", lines, goals)


def grid(check):
    """Measure K stages on one GPU with M micro-batches."""
    lines = ["samples/s, f32, B=64, T=128; columns M = 1, 4, 16, 64"]
    for k in (1, 2, 4):
        row = []
        for m in (1, 64) if check.small else (1, 4, 16, 64):
            cell = check.cell(f"K={k} M={m}",
                              lambda: gpt2_ours(check, m, stages=k, steps=3 if check.small else 6))
            row.append(cell[SPEED])
        lines.append(f"K={k}: " + " ".join(f"{speed:,.1f}" for speed in row))
    return result("measured", lines)


def stages(check):
    """Compare the speed of one device with that of four devices on the same GPU."""
    cases = {f"K={k} M=16": lambda k=k: gpt2_ours(check, 16, stages=k) for k in (1, 4)}
    medians = check.rounds(cases, 1)
    return result("measured", table(medians),
                  [goal(check, "K=4 over K=1", medians["K=4 M=16"] / medians["K=1 M=16"], 0.95)])


def bf16_speed(check):
    """Measure the fraction of the device's peak at T=1024."""
    changes = {} if check.small else {"seq": 1024, "steps": 6}
    ours = check.cell("cgpipe M=1", lambda: gpt2_ours(check, 1, precision="bf16", **changes))
    flops = ours["flops_per_step"] / ours["step_seconds"]
    lines = [f"cgpipe: {ours[SPEED]:,.1f} samples/s, {flops / 1e12:,.1f} TFLOP/s"]
    if check.facts["torch"]:
        torch = check.cell("PyTorch eager M=1", lambda: gpt2_torch(check, 1, "--bf16", **changes))
        lines += did_not_run(check) or [f"PyTorch eager, autocast: {torch[SPEED]:,.1f} samples/s"]
    peak = bf16_peak(check.facts["device"])
    if not peak:
        return result("measured", [*lines, f"no peak is known of {check.facts['device']}"])
    return result("measured", [*lines, f"peak: {peak:,.1f} TFLOP/s by the data sheet"],
                  [goal(check, "fraction of the peak, M=1", flops / 1e12 / peak, 0.30)])


# --- published tables ---

def small_cell(cell):
    """Return a cell with a small model in place of its own."""
    name, model, _, chunks, stages_, _, recompute, figures = cell
    small = ("unet:B=2,C=4,depth=2,image=16" if model.startswith("unet")
             else "amoebanetd:L=3,D=8,classes=10,image=32")
    return name, small, 4, min(chunks, 2), stages_, [], recompute, figures


def tables(check):
    """Measure AmoebaNet-D's memory: every cell runs on devices of 22 GiB on one GPU. Only planned
    bytes must fit, so speeds mean nothing."""
    from published import TABLES
    from tables import options_of
    lines, goals = [], []
    published = TABLES["amoebanetd-memory"]
    for cell in published["cells"]:
        # The baseline has no published figure, and runs 128 samples in one micro-batch.
        limit = "@22GiB" if cell[4] > 1 or cell[3] > 1 else ""
        used = small_cell(cell) if check.small else cell
        options = options_of(published, used, steps=2, devices=check.devices(cell[4], limit))
        options = {key.replace("-", "_"): value for key, value in options.items() if value}
        run = check.cell(cell[0], lambda: check.cgpipe("bench", used[1], **options))
        activation, largest = (run["activation_bytes_total"] / GIB,
                               max(device["planned_bytes"] for device in run["devices"]) / GIB)
        lines.append(f"AmoebaNet-D {cell[0]}: ran, loss {run['loss_last']:.4g}; "
                     f"activations {activation:.2f} GiB, "
                     f"published {cell[7][1] or '-'}; largest device {largest:.2f} GiB")
        if cell[7][1]:
            goals.append(goal(check, f"{cell[0]}: activations over the published",
                              activation / cell[7][1], 0.9, at_most=True))
    lines.append(unet_plan(check, TABLES["unet-memory"], options_of))
    return result("measured", lines, goals)


def unet_plan(check, published, options_of):
    """Plan U-Net's cell of eight devices, which is larger than a GPU."""
    cell = published["cells"][-1]
    used = small_cell(cell) if check.small else cell
    options = options_of(published, used, devices=check.devices(cell[4], "@22GiB"))
    options = {key.replace("-", "_"): value for key, value in options.items() if value}
    plan = check.cell("U-Net", lambda: check.cgpipe("plan", used[1], **options))
    planned = plan["planned_bytes_total"] / GIB
    return (f"U-Net {cell[0]}: planned {planned:.2f} GiB in {len(plan['devices'])} devices of 22 "
            f"GiB, published {cell[7][0]}")


# --- images ---

# Model, batch, PyTorch script and its options, target ratio.
IMAGES = {
    "ResNet-101": ("resnet101", 128, "resnet_torch.py", {}, 0.7),
    "AmoebaNet-D(18, 256)": ("amoebanetd:L=18,D=256", 96, "images_torch.py",
                             {"model": "amoebanetd"}, None),
    "U-Net(5, 64)": ("unet:B=5,C=64", 40, "images_torch.py", {"model": "unet", "image": 192}, None),
}
SMALL_IMAGES = {
    "ResNet-101": ("resnet:depth=8,width=4,classes=10,image=16", 4, "resnet_torch.py",
                   {"depth": 50, "image": 32}, None),
    "AmoebaNet-D(18, 256)": ("amoebanetd:L=3,D=8,classes=10,image=32", 4, "images_torch.py",
                             {"model": "amoebanetd", "layers": 3, "filters": 16, "image": 32},
                             None),
    "U-Net(5, 64)": ("unet:B=1,C=2,depth=2,image=16", 4, "images_torch.py",
                     {"model": "unet", "convs": 1, "channels": 4, "depth": 2, "image": 16}, None),
}


def images(check):
    """Measure one device with one micro-batch, f32 and no dropout, and PyTorch eager in both memory
    layouts."""
    lines, goals = [], []
    steps = 3 if check.small else 6
    for name, (model, batch, script, options, bound) in (SMALL_IMAGES if check.small
                                                         else IMAGES).items():
        dropout = {"dropout": 0} if model.startswith("unet") else {}
        cases = {name: lambda: check.cgpipe("bench", model, devices=check.devices(), batch=batch,
                                            chunks=1, steps=steps, **dropout)}
        if check.facts["torch"]:
            for last in (0, 1):
                cases[f"{name}, PyTorch {'channels-last' if last else 'eager'}"] = (
                    lambda last=last: peer(
                        check, script,
                        {**options, "batch": batch, "steps": steps, "channels-last": last}))
        medians = check.rounds(cases, 1)
        lines += table(medians)
        if len(medians) > 1 and bound:
            ours, *peers = medians.values()
            goals.append(goal(check, f"{name} over PyTorch's best", ours / max(peers), bound))
    return result("measured", lines + did_not_run(check), goals)


# --- llm.c ---

def llmc(check):
    """Run llm.c's f32 program on the same shapes, if the pack has its source."""
    if check.small:
        raise NotRun("no GPU")
    source = check.packed / "llm.c" if check.packed else None
    if not source or not source.exists():
        raise NotRun("the pack has no llm.c (tools/gpu_check.sh --pack DIR --llmc CHECKOUT)")
    cases = {"llm.c f32": lambda: of_others(lambda: llmc_run(check, source, sizes(check))),
             "cgpipe M=1": lambda: gpt2_ours(check, 1)}
    medians = check.rounds(cases, 1)
    about = "llm.c: TF32 off, tied embeddings, 3072 columns of vocabulary, AdamW; ours: untied, SGD"
    return result("measured", [about, *table(medians), *did_not_run(check)])
