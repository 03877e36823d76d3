# SPDX-License-Identifier: Apache-2.0
"""With the scripts in bench/, measure PyTorch on the same work as speed.py. PyTorch runs eager with
TF32 off, or with autocast to bf16. These figures depend on the device, its driver and PyTorch, and
not on cgpipe's kernels."""
from check import Failed, NotRun, ROOT, result
from speed import SPEED, sizes

# For each case: script, options, options on a CPU, and flags.
RESNET = ("resnet_torch.py", {"batch": 128, "steps": 6}, {"depth": 50, "image": 32})
AMOEBA = ("images_torch.py", {"model": "amoebanetd", "batch": 96, "steps": 6},
          {"layers": 3, "filters": 16, "image": 32})
UNET = ("images_torch.py", {"model": "unet", "image": 192, "batch": 40, "steps": 6},
        {"convs": 1, "channels": 4, "depth": 2, "image": 16})


def cases(check):
    gpt2 = "gpt2_torch.py"
    return {
        "PyTorch gpt2 M=1": (gpt2, sizes(check), {}),
        "PyTorch gpt2 M=64": (gpt2, {**sizes(check, steps=6), "chunks": sizes(check)["batch"]}, {}),
        "PyTorch gpt2 bf16": (gpt2, sizes(check, seq=1024, steps=6), {}, "--bf16"),
        "PyTorch ResNet-101 f32": RESNET,
        "PyTorch ResNet-101 bf16": (*RESNET, "--bf16", "--channels-last", "1"),
        "PyTorch AmoebaNet-D(18, 256) f32": AMOEBA,
        "PyTorch U-Net(5, 64) f32": UNET,
    }


def speed_of(check, script, options, small, *flags):
    """Return samples per second or, if the script fails, its message. A failed script does not make
    a part fail."""
    from cases import options_of
    if check.small:
        options = {**options, **small, "batch": 4, "steps": 3}
    try:
        return check.json_of([check.python, ROOT / "bench" / script, *options_of(options), *flags,
                              "--device", "cpu" if check.small else "cuda"])[SPEED]
    except (Failed, NotRun, ValueError, IndexError) as failure:
        return str(failure)


def peers(check):
    if not check.facts["torch"]:
        raise NotRun(f"{check.python} has no PyTorch (PYTHON=...)")
    found = {name: check.cell(name, lambda case=case: speed_of(check, *case))
             for name, case in cases(check).items()}
    figures = {name: speed for name, speed in found.items() if not isinstance(speed, str)}
    lines = [f"{name}: {speed:,.1f} samples/s" if name in figures
             else f"{name}: did not run: {speed}" for name, speed in found.items()]
    return result("measured", [f"PyTorch {check.facts['torch']}", *lines], figures)
