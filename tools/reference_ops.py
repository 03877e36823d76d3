#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Make tests/data/reference_ops.json: values and gradients of PyTorch's ops, to compare ours with.

    apt-get install -y python3-torch               # Debian 12: PyTorch 1.13
    /usr/bin/python3 tools/reference_ops.py [FILE] # default: tests/data/reference_ops.json

Elementwise ops: x[i] = float32((i - 40) * 0.3), dy[i] = float32(cos(i)), i = 0 .. 80; y = f(x) and dx = dy f'(x) in float64.

Others, in our layouts: element i of operand k is ((37 i + 11 k) mod 41 - 20) / 16, with k = 0 of x, 1 of a second input or of the
weight, 2 of the bias, 3 of dy. Sums of their products are exact in float32, in any order.
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


def operand(k, *shape):
    numbers = [((37 * i + 11 * k) % 41 - 20) / 16 for i in range(math.prod(shape))]
    return torch.tensor(numbers, dtype=torch.float64).reshape(shape).requires_grad_()


def results(y, **leaves):
    y.backward(operand(3, *y.shape).detach())
    numbers = {"y": y.flatten().tolist()}
    for name, leaf in leaves.items():
        numbers[name] = leaf.grad.flatten().tolist()
    return numbers


def transpose(x, dim0, dim1):
    return results(x.transpose(dim0, dim1), dx0=x)


def part(x, dim, begin, end):
    return results(x.narrow(dim, begin, end - begin), dx0=x)


def matmul(a, b, transpose_a, transpose_b):
    y = torch.matmul(a.transpose(-1, -2) if transpose_a else a, b.transpose(-1, -2) if transpose_b else b)
    return results(y, dx0=a, dx1=b)


def conv_transpose2d(sides, out, kernel, **options):
    x, weight, bias = operand(0, 2, *sides), operand(1, *kernel, out, sides[2]), operand(2, out)
    y = F.conv_transpose2d(x.permute(0, 3, 1, 2), weight.permute(3, 2, 0, 1), bias, **options)
    return results(y.permute(0, 2, 3, 1).contiguous(), dx0=x, dweight=weight, dbias=bias)


# As in tests/op/test_op_reference.c; samples first.
def others():
    return {
        "transpose 0 2": transpose(operand(0, 2, 3, 4, 5), 1, 3),
        "transpose 1 0": transpose(operand(0, 2, 3, 4, 5), 2, 1),
        "slice 1": part(operand(0, 2, 4, 6, 3), 2, 1, 4),
        "slice -1": part(operand(0, 2, 4, 6, 3), -1, 2, 3),
        "matmul": matmul(operand(0, 2, 3, 4, 5), operand(1, 2, 3, 5, 2), False, False),
        "matmul a": matmul(operand(0, 2, 3, 5, 4), operand(1, 2, 3, 5, 2), True, False),
        "matmul b": matmul(operand(0, 2, 3, 4, 5), operand(1, 2, 3, 2, 5), False, True),
        "matmul a b": matmul(operand(0, 2, 3, 5, 4), operand(1, 2, 3, 2, 5), True, True),
        "conv_transpose2d": conv_transpose2d((3, 4, 2), 3, (3, 2)),
        "conv_transpose2d padded": conv_transpose2d((3, 4, 2), 3, (3, 4), stride=(2, 3), padding=(1, 2), output_padding=(1, 2)),
        "conv_transpose2d apart": conv_transpose2d((3, 2, 3), 2, (1, 2), stride=(3, 3), output_padding=(2, 0)),
        "conv_transpose2d pointwise": conv_transpose2d((3, 4, 5), 2, (1, 1)),
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
    result.update(others())
    with open(path, "w", encoding="ascii") as file:
        json.dump(result, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
