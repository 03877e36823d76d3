#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Make tests/data/reference_ops.json: values and gradients of PyTorch's elementwise ops, to compare ours with.

    apt-get install -y python3-torch               # Debian 12: PyTorch 1.13
    /usr/bin/python3 tools/reference_ops.py [FILE] # default: tests/data/reference_ops.json

x[i] = float32((i - 40) * 0.3), dy[i] = float32(cos(i)), i = 0 .. 80; y = f(x) and dx = dy f'(x) in float64.
"""
import json
import math
import os
import sys

import torch
import torch.nn.functional as F

OPS = {
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "relu": F.relu,
}


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    path = sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, "..", "tests", "data", "reference_ops.json")
    torch.set_num_threads(1)
    x = torch.tensor([(i - 40) * 0.3 for i in range(81)], dtype=torch.float32).double()
    dy = torch.tensor([math.cos(i) for i in range(81)], dtype=torch.float32).double()
    result = {"about": "made by tools/reference_ops.py", "torch": torch.__version__, "x": x.tolist(), "dy": dy.tolist()}
    for name, op in OPS.items():
        leaf = x.clone().requires_grad_()
        y = op(leaf)
        y.backward(dy)
        result[name] = {"y": y.tolist(), "dx": leaf.grad.tolist()}
    with open(path, "w", encoding="ascii") as file:
        json.dump(result, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
