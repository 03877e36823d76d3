# SPDX-License-Identifier: Apache-2.0
"""Parts that measure cgpipe: the GPT-2 benchmark, bf16, several devices on one GPU, published
tables, and images. report.py has the bars, which are the required bounds of these figures."""
from check import result
from machine import bf16_peak

GIB = 2.0**30
SPEED = "samples_per_second"


def sizes(check, **changes):
    """Return the sizes of the GPT-2 benchmark at its full batch, or of a tiny model for cuda-host.
    The first two steps are not counted."""
    # Importing cases reads the environment and the command line, which main.py has prepared.
    from cases import GPT2
    tiny = {"layers": 2, "width": 16, "heads": 2, "vocab": 50, "seq": 8, "batch": 4, "steps": 3}
    return {**GPT2, "batch": 64, "steps": 8, **changes, **(tiny if check.small else {})}


def gpt2_run(check, of, chunks=1, stages=1, variables=None, flags=(), **options):
    from cases import ours
    return check.json_of([*ours(of, stages=stages, chunks=chunks, devices=check.devices(stages),
                                **options), "--quiet", *flags],
                         env=check.environment(**(variables or {})))


def gpt2_speed(check, of, chunks=1, stages=1, **options):
    run = gpt2_run(check, of, chunks, stages, **options)
    return {key: run[key] for key in (SPEED, "step_seconds", "flops_per_step")}


def profile(check, of, chunks=1, **options):
    """Return the milliseconds of a step for each kind of op. Each op is measured alone, so the step
    takes longer than usual."""
    run = gpt2_run(check, of, chunks, flags=["--ops"], **options)
    return {op["op"]: round(1e3 * sum(op[f"{part}_seconds"] for part in
                                      ("forward", "input", "weight")), 3) for op in run["ops"]}


def profile_line(name, ms):
    return f"{name}, ms by op: " + ", ".join(f"{op} {value:.2f}" for op, value in ms.items())


def gpt2(check):
    """Measure three things: the speed of f32 with 1 and with 64 micro-batches; the time of f32 per
    kind of op, for both numbers of micro-batches; the speed of tf32 with 1 micro-batch."""
    figures, profiles = {}, []
    for m in (1, sizes(check)["batch"]):
        figures[f"gpt2 M={m}"] = check.cell(f"M={m}", lambda: gpt2_speed(check, sizes(check),
                                                                         m))[SPEED]
        ms = check.cell(f"ops M={m}", lambda: profile(check, sizes(check, steps=4), m))
        profiles.append(profile_line(f"M={m}", ms))
    figures["gpt2 M=1 tf32"] = check.cell("tf32", lambda: gpt2_speed(
        check, sizes(check), precision="tf32"))[SPEED]
    lines = ["f32, B=64, T=128, K=1: " + ", ".join(f"{name[5:]} {speed:,.1f} samples/s"
                                                   for name, speed in figures.items()), *profiles]
    return result("measured", lines, figures)


def bf16(check):
    """Measure bf16 with sequences of 1024 tokens: the ops of one layer, and the fraction of the
    peak that the whole model reaches."""
    ms = check.cell("ops of one layer", lambda: profile(
        check, sizes(check, seq=1024, layers=1, steps=4), precision="bf16"))
    ours = check.cell("M=1", lambda: gpt2_speed(check, sizes(check, seq=1024, steps=6),
                                                precision="bf16"))
    flops = ours["flops_per_step"] / ours["step_seconds"] * 1e-12
    figures = {"attention ms": ms["attention"], "gpt2 bf16": ours[SPEED]}
    peak = bf16_peak(check.facts["device"])
    if peak:
        figures["bf16 MFU"] = flops / peak
    lines = [profile_line("one layer, B=64, T=1024", ms),
             f"all layers: {ours[SPEED]:,.1f} samples/s, {flops:,.1f} TFLOP/s; peak by the data "
             f"sheet: {peak or 'not known'}"]
    return result("measured", lines, figures)


def grid(check):
    """Measure K stages on one GPU with M micro-batches."""
    ks, ms = ((1, 2), (1, 4)) if check.small else ((1, 2, 4), (1, 4, 16, 64))
    speeds = {(k, m): check.cell(f"K={k} M={m}", lambda: gpt2_speed(
        check, sizes(check, steps=5), m, k))[SPEED] for k in ks for m in ms}
    lines = [f"samples/s, f32, B=64, T=128; columns M = {', '.join(map(str, ms))}",
             *(f"K={k}: " + " ".join(f"{speeds[k, m]:,.1f}" for m in ms) for k in ks)]
    return result("measured", lines, {f"grid K={k} M={m}": speed
                                      for (k, m), speed in speeds.items()})


# --- published tables ---

def small_cell(cell):
    """Return an entry of a published table, with a small model in place of the published model."""
    name, _, _, chunks, stages_, _, recompute, figures = cell
    return (name, "amoebanetd:L=3,D=8,classes=10,image=32", 4, min(chunks, 2), stages_, [],
            recompute, figures)


def tables(check):
    """Measure AmoebaNet-D's memory. All devices of an entry, with limits of 22 GiB each, are on one
    GPU. Only the planned bytes must fit into the GPU. The speeds of these runs mean nothing."""
    from published import TABLES
    from tables import options_of
    lines, figures = [], {}
    published = TABLES["amoebanetd-memory"]
    for cell in published["cells"][::4 if check.small else 1]:
        # The baseline, which has no published figure, runs 128 samples in one micro-batch.
        limit = "@22GiB" if cell[4] > 1 or cell[3] > 1 else ""
        used = small_cell(cell) if check.small else cell
        options = options_of(published, used, steps=2, devices=check.devices(cell[4], limit))
        run = check.cell(cell[0], lambda: table_cell(check, used[1], options))
        lines.append(f"AmoebaNet-D {cell[0]}: ran, loss {run['loss']:.4g}; activations "
                     f"{run['activation']:.2f} GiB, published {cell[7][1] or '-'}; largest device "
                     f"{run['largest']:.2f} GiB")
        if cell[7][1]:
            figures[f"{cell[0]} activations"] = run["activation"] / cell[7][1]
    return result("measured", lines, figures)


def table_cell(check, model, options):
    run = check.cgpipe("bench", model, **options)
    return {"loss": run["loss_last"], "activation": run["activation_bytes_total"] / GIB,
            "largest": max(device["planned_bytes"] for device in run["devices"]) / GIB}


# --- images ---

# For each case: the model, its batch, and the model for cuda-host, which runs with batch 4.
IMAGES = {
    "ResNet-101": ("resnet101", 128, "resnet:depth=8,width=4,classes=10,image=16"),
    "AmoebaNet-D(18, 256)": ("amoebanetd:L=18,D=256", 96, "amoebanetd:L=3,D=8,classes=10,image=32"),
    "U-Net(5, 64)": ("unet:B=5,C=64", 40, "unet:B=1,C=2,depth=2,image=16"),
}


def images(check):
    """Measure one device with one micro-batch, without dropout."""
    figures = {}
    for name, (model, batch, small) in IMAGES.items():
        options = {"devices": check.devices(), "batch": 4 if check.small else batch, "chunks": 1,
                   "steps": 3 if check.small else 6, **({"dropout": 0} if "unet" in model else {})}
        for precision in ("f32", "bf16"):
            figures[f"{name} {precision}"] = check.cell(
                f"{name} {precision}", lambda: check.cgpipe(
                    "bench", small if check.small else model, precision=precision,
                    **options)[SPEED])
    return result("measured", [f"{name}: {speed:,.1f} samples/s"
                               for name, speed in figures.items()], figures)
