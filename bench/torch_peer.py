# SPDX-License-Identifier: Apache-2.0
"""What the scripts that measure PyTorch share: which BLAS, the optimizer of `cgpipe bench`, the timed steps.

Import it before PyTorch: it reads OMP_NUM_THREADS.
"""
import ctypes
import gc
import json
import os
import statistics
import sys
import time


def cpu_has(flag):
    with open("/proc/cpuinfo") as file:
        return any(line.startswith("flags") and flag in line.split() for line in file)


def best_blas():
    """Name the BLAS. OpenBLAS that does not know the CPU takes its slowest kernels: then start anew with better ones."""
    try:
        corename = ctypes.CDLL("libblas.so.3").openblas_get_corename
    except (OSError, AttributeError):
        return "a BLAS that is not OpenBLAS (apt-get install libopenblas0-openmp is faster)"
    corename.restype = ctypes.c_char_p
    core = corename().decode()
    better = "SkylakeX" if cpu_has("avx512f") else "Haswell" if cpu_has("avx2") else core
    if core == "Prescott" and core != better:
        os.environ["OPENBLAS_CORETYPE"] = better
        os.execv(sys.executable, [sys.executable] + sys.argv)
    told = " (OPENBLAS_CORETYPE is set)" if "OPENBLAS_CORETYPE" in os.environ else ""
    return f"OpenBLAS for {core}{told}"


def start(threads):
    """The variables that PyTorch reads; call it before the import. Name the BLAS."""
    os.environ["OMP_NUM_THREADS"] = str(threads)  # for each thread that a pipeline starts too
    return best_blas()


def resident_mib(key):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith(key))


def make_optimizer(torch, model):
    """That of `cgpipe bench`, with gradients and momentum made."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, nesterov=True, weight_decay=1e-4)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    return optimizer


def measure(torch, model, step, options, blas, more=None):
    """Run `step()`, which gives the loss of a mini-batch and leaves gradients, and print one JSON line."""
    optimizer = make_optimizer(torch, model)
    gc.collect()
    before = resident_mib("VmRSS")
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # VmHWM begins anew
    seconds, losses = [], []
    for _ in range(options.steps):
        begin = time.perf_counter()
        optimizer.zero_grad(set_to_none=False)
        losses.append(step())
        optimizer.step()
        seconds.append(time.perf_counter() - begin)
    median = statistics.median(seconds[2:] or seconds)
    print(json.dumps({
        "torch": torch.__version__, "blas": blas, "parameters": sum(p.numel() for p in model.parameters()),
        "step_seconds": median, "samples_per_second": options.batch / median,
        "activation_mib": round(resident_mib("VmHWM") - before, 1), "losses": [round(loss, 5) for loss in losses],
        **(more() if more else {})}))
