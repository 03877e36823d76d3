#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What fraction of a GEMM's rate does causal attention reach? It is measured on one core in f32,
for different sequence lengths.

The case is GPT-2's attention, with 12 heads of 64 columns. Only FLOPs of the causal half are
counted. Forward has 2 matrix products (q k^T, P v). Backward has 5 (q k^T again, dy v^T, P^T dy,
dS^T q, dS k). Each product takes T^2 x 768 FLOPs. The GEMM is the preceding layer of the same
model, [T, 768] x [768, 2304]. Forward is compared with that layer's forward, and backward with that
layer's input backward. For comparison, the script measures PyTorch's
scaled_dot_product_attention(is_causal=True), whose backward has the same 5 products."""
import json
import pathlib
import sys
import tempfile
import time

CASE = sys.argv[1:] if len(sys.argv) == 3 else []  # [library, length] when one case is measured
del sys.argv[1:len(CASE) + 1]
import cases  # noqa: E402, reads the remaining arguments

WIDTH, HEADS = 768, 12
LENGTHS = (64, 128) if cases.os.environ.get("TINY") else (512, 1024, 2048, 4096, 8192)


def graph(length):
    """Return a model of a linear layer, attention and a head, as a graph file."""
    shapes = [[length, WIDTH], [length], [length, 3 * WIDTH], [length, WIDTH], [length, 8]]
    values = [{"dtype": "i32" if i == 1 else "f32", "shape": shape}
              for i, shape in enumerate(shapes)]
    attention = {"heads": HEADS, "p": 0, "causal": True, "fused": True}

    def linear(layer, x, y, parameter, size):
        return {"op": "linear", "layer": layer, "inputs": [x], "output": y,
                "parameters": [parameter],
                "attributes": {"size": size, "bias": False, "transposed": False}}

    def weight(name, *shape):
        return {"name": name, "shape": shape, "init": "normal", "scale": 0.05, "decays": True}

    return {"format": "cgpipe-graph", "version": 2, "name": "attention", "values": values,
            "inputs": [{"name": "x", "value": 0, "gradient": True},
                       {"name": "targets", "value": 1}], "layers": ["gemm", "attention", "head"],
            "parameters": [weight("gemm.weight", 3 * WIDTH, WIDTH),
                           weight("head.weight", 8, WIDTH)],
            "nodes": [linear(0, 0, 2, 0, 3 * WIDTH), {"op": "attention", "layer": 1, "inputs": [2],
                                                      "output": 3, "attributes": attention},
                      linear(2, 3, 4, 1, 8)],
            "losses": [{"op": "cross_entropy", "inputs": [4, 1], "weight": 1,
                        "attributes": {"ignore": -100}}], "outputs": [4]}


def case_ours(length):
    """Return the seconds that attention takes in forward and in backward, and the GFLOP/s that the
    GEMM reaches in forward and in input backward."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "attention.json")
        path.write_text(json.dumps(graph(length)))
        found = cases.run([cases.PROGRAM, "profile", path, "--batch", "1", "--repeats", "3",
                           "--json", "-", "--quiet"])
    gemm, attention, _ = found["layers"]
    gflop = 6e-9 * length * WIDTH * WIDTH
    return {"forward": attention["forward_seconds"][0], "backward": attention["input_seconds"][0],
            "gemm_forward": gflop / gemm["forward_seconds"][0],
            "gemm_backward": gflop / gemm["input_seconds"][0]}


def case_torch(length):
    import torch
    torch.set_num_threads(1)
    q, k, v = (torch.randn(1, HEADS, length, WIDTH // HEADS, requires_grad=True) for _ in range(3))
    dy = torch.randn(1, HEADS, length, WIDTH // HEADS)
    times = []
    for _ in range(4):
        begin = time.perf_counter()
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        middle = time.perf_counter()
        y.backward(dy)
        times.append((middle - begin, time.perf_counter() - middle))
    forward, backward = (sorted(column)[1] for column in zip(*times[1:]))
    return {"torch": torch.__version__, "blas": "its own BLAS", "forward": forward,
            "backward": backward}


def main():
    programs = {"cgpipe": "/usr/bin/python3", "PyTorch": cases.PYTHON}
    known = {f"{name} {length}": [python, __file__, name, str(length)] for length in LENGTHS
             for name, python in programs.items()}
    medians = cases.measure("attention", known,
                            ("forward", "backward", "gemm_forward", "gemm_backward"))
    lines = [f"{cases.cpu_name()}, one core, f32; rounds: {cases.ROUNDS}; PyTorch "
             f"{medians[f'PyTorch {LENGTHS[0]}']['torch']}", "",
             f"{'':8} {'forward: GFLOP/s':>18} {'of GEMM':>9} {'PyTorch':>9} "
             f"{'backward: GFLOP/s':>20} {'of GEMM':>9} {'PyTorch':>9}"]
    for length in LENGTHS:
        row = f"T = {length:<6}"
        for part, products in (("forward", 2), ("backward", 5)):
            gflop = products * 1e-9 * length * length * WIDTH
            mine, theirs = (medians[f"{name} {length}"] for name in programs)
            rate = gflop / mine[part]
            row += (f" {rate:18.1f} {100 * rate / mine['gemm_' + part]:7.1f} % "
                    f"{gflop / theirs[part]:9.1f}")
        lines.append(row)
    cases.report("attention", lines)


if CASE:
    print(json.dumps({"cgpipe": case_ours, "PyTorch": case_torch}[CASE[0]](int(CASE[1]))))
else:
    main()
