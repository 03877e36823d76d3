#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Make tests/data/reference_ops.json: values and gradients of PyTorch's ops, to compare ours with.

    apt-get install -y python3-torch               # Debian 12: PyTorch 1.13
    /usr/bin/python3 tools/reference_ops.py [FILE] # default: tests/data/reference_ops.json

x[i] = float32((i - 40) * 0.3), dy[i] = float32(cos(i)), other[i] = float32(sin(2 i)), i = 0 .. 80; weight[c] = float32(1 + c / 8),
bias[c] = float32(c / 4 - 1), c = 0 .. 8. y and the gradients of what it is made of, in float64. Elementwise ops have x as it is, the others
[9, 9] of one sample.
"""
import inspect
import json
import math
import os
import sys

import torch
import torch.nn.functional as F

EPS = 1e-5

OPS = {
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "relu": F.relu,
    "scale": lambda x: -1.25 * x,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
}


def rms_norm(x, weight):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS) * weight


# A sample of 9 rows of 9 channels, in 3 groups: PyTorch's channels come first.
def group_norm(x, weight, bias):
    return F.group_norm(x.T[None], 3, weight, bias, EPS)[0].T


# Of [9, 9]; the names of the arguments say what they are.
OTHERS = {
    "multiply": lambda x, other: x * other,
    "subtract": lambda x, other: x - other,
    "softmax": lambda x: F.softmax(x, -1),
    "rms_norm": rms_norm,
    "group_norm": group_norm,
    "mean": lambda x: x.mean(0),
}


def gradients(op, given, dy):
    leaves = {name: given[name].clone().requires_grad_() for name in inspect.signature(op).parameters}
    y = op(**leaves)
    y.backward(dy.reshape(-1)[:y.numel()].reshape(y.shape))
    return {"y": y.reshape(-1).tolist(), **{"d" + name: leaf.grad.reshape(-1).tolist() for name, leaf in leaves.items()}}


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    path = sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, "..", "tests", "data", "reference_ops.json")
    torch.set_num_threads(1)
    x = torch.tensor([(i - 40) * 0.3 for i in range(81)], dtype=torch.float32).double()
    dy = torch.tensor([math.cos(i) for i in range(81)], dtype=torch.float32).double()
    other = torch.tensor([math.sin(2 * i) for i in range(81)], dtype=torch.float32).double()
    weight = torch.tensor([1 + c / 8 for c in range(9)], dtype=torch.float32).double()
    bias = torch.tensor([c / 4 - 1 for c in range(9)], dtype=torch.float32).double()
    given = {"x": x.reshape(9, 9), "other": other.reshape(9, 9), "weight": weight, "bias": bias}
    result = {"about": "made by tools/reference_ops.py", "torch": torch.__version__, "x": x.tolist(), "dy": dy.tolist(),
              "other": other.tolist(), "weight": weight.tolist(), "bias": bias.tolist()}
    for name, op in OPS.items():
        leaf = x.clone().requires_grad_()
        y = op(leaf)
        y.backward(dy)
        result[name] = {"y": y.tolist(), "dx": leaf.grad.tolist()}
    for name, op in OTHERS.items():
        result[name] = gradients(op, given, dy)
    with open(path, "w", encoding="ascii") as file:
        json.dump(result, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
