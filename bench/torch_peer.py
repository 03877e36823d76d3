# SPDX-License-Identifier: Apache-2.0
"""Helpers for the scripts that measure PyTorch: options, the choice of BLAS, the optimizer of
`cgpipe bench`, and the timed steps.

Import this module before PyTorch, because PyTorch reads OMP_NUM_THREADS. On a GPU (--device cuda),
TF32 is off, so f32 products are not rounded to TF32."""
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
    """Return the name of the BLAS. If OpenBLAS does not recognise the CPU and uses its slowest
    kernels, restart with better kernels."""
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


def add_options(parser):
    """Add the options for a GPU."""
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--compile", action="store_true", help="by torch.compile")
    parser.add_argument("--bf16", action="store_true", help="autocast to bf16")


def start(options):
    """Set the variables that PyTorch reads; call this before importing it. Return the name of the
    BLAS, or of the GPU's libraries."""
    # PyTorch uses this number of threads in each thread that a pipeline starts
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    return best_blas() if options.device == "cpu" else "cuBLAS and cuDNN"


def prepare(torch, model, options):
    """Return the model on its device, and the function that runs the model."""
    if options.device != "cpu":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        torch.backends.cudnn.benchmark = True
    model = model.to(options.device)
    run = torch.compile(model) if options.compile else model

    def forward(x):
        with torch.autocast(options.device, dtype=torch.bfloat16, enabled=options.bf16):
            y = run(x)
        return y.float()

    return model, forward if options.bf16 else run


def resident_mib(key):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith(key))


def begin_peak(torch, on_cpu):
    if not on_cpu:
        torch.cuda.reset_peak_memory_stats()
        return
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # reset VmHWM


def memory_mib(torch, on_cpu, key):
    """Return the current (VmRSS) or the peak (VmHWM) resident memory. On a GPU, return the memory
    of PyTorch's tensors."""
    if on_cpu:
        return resident_mib(key)
    return (torch.cuda.memory_allocated() if key == "VmRSS"
            else torch.cuda.max_memory_allocated()) / 2**20


def make_optimizer(torch, model):
    """Return the optimizer of `cgpipe bench`, with gradients and momentum allocated."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, nesterov=True,
                                weight_decay=1e-4)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    return optimizer


def measure(torch, model, step, options, blas, more=None, parameters=None):
    """Time `step()` and print one JSON line. `step()` computes gradients and returns the loss of a
    mini-batch. `parameters` is the number of parameters over all processes."""
    on_cpu = options.device == "cpu"
    if on_cpu and not torch.__file__.startswith("/usr/lib/"):  # PyTorch comes from a wheel
        blas = "its own BLAS"
    optimizer = make_optimizer(torch, model)
    gc.collect()
    begin_peak(torch, on_cpu)
    before = memory_mib(torch, on_cpu, "VmRSS")
    seconds, losses = [], []
    for _ in range(options.steps):
        begin = time.perf_counter()
        optimizer.zero_grad(set_to_none=not on_cpu and options.chunks == 1)
        losses.append(step())
        optimizer.step()
        if not on_cpu:
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
    median = statistics.median(seconds[2:] or seconds)
    print(json.dumps({
        "torch": torch.__version__, "blas": blas, "parameters": parameters
        or sum(p.numel() for p in model.parameters()), "step_seconds": median,
        "samples_per_second": options.batch / median,
        "activation_mib": round(memory_mib(torch, on_cpu, "VmHWM") - before, 1),
        "losses": [round(loss, 5) for loss in losses], **(more() if more else {})}))
