#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Make tests/data/reference_ops.json: values and gradients of PyTorch's ops. Tests compare cgpipe's
ops with them.

    apt-get install -y python3-torch               # Debian 12: PyTorch 1.13
    /usr/bin/python3 tools/reference_ops.py [FILE] # default: tests/data/reference_ops.json

x[i] = float32((i - 40) * 0.3), dy[i] = float32(cos(i)), other[i] = float32(sin(2 i)), i = 0 .. 80;
weight[c] = float32(1 + c / 8), bias[c] = float32(c / 4 - 1), c = 0 .. 8. y and the gradients of its
inputs are in float64. Elementwise ops use x as a vector. Other ops use x as one sample [9, 9].

Ops that move elements, and products, use cgpipe's layouts. Element i of operand k is ((37 i + 11 k)
mod 41 - 20) / 16: k = 0 for x, 1 for a second input or the weight, 2 for the bias, 3 for dy. Sums
of their products are exact in float32, in any order.

Attention: q, k, v and dy are wave(1) .. wave(4), rounded to float32; softmax and products are in
float64. Rotary embeddings: x is wave(1), dy is wave(2). Frequencies and angles are in float32, as
in Hugging Face's modeling_llama.py and modeling_rope_utils.py (Apache-2.0). Cosines, sines and
products are in float64.
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


def bce(x, target):
    return F.binary_cross_entropy(x, target, reduction="none")


# Functions of cgp_function: number, constants `a` and `b`, PyTorch's op, and whether x must be
# positive. Limits are multiples of 0.3 as float32, so that some x are equal to a limit.
LOW, HIGH = (float(torch.tensor(limit, dtype=torch.float32)) for limit in (-0.6, 1.2))
FUNCTIONS = [
    (0, LOW, HIGH, lambda x: F.hardtanh(x, LOW, HIGH), False),
    (1, 0, 0, torch.sqrt, True),
    (2, 0, 0, torch.rsqrt, True),
    (3, 0, 0, torch.reciprocal, True),
    (4, 0, 0, torch.exp, False),
    (5, -0.5, 1.25, lambda x: x.clamp(-0.5, 1.25), False),
    (6, 0, 0, F.hardsigmoid, False),
    (7, 0, 0, F.hardswish, False),
    (8, 0, 0, torch.abs, False),
    (9, 0, 0, torch.log, True),
    (10, 0.75, 1, lambda x: F.elu(x, 0.75), False),
    (10, 1.5, 1 / 1.5, lambda x: F.celu(x, 1.5), False),
    (11, 1.5, 6, lambda x: F.softplus(x, 1.5, 6), False),
    (12, 0, 0, F.mish, False),
    (13, 0, 0, lambda x: bce(x, torch.ones_like(x)), False),
    (14, 0, 0, lambda x: bce(x, torch.zeros_like(x)), False),
]


def rms_norm(x, weight):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS) * weight


# A sample has 9 rows of 9 channels, in 3 groups. In PyTorch, channels come before rows.
def group_norm(x, weight, bias):
    return F.group_norm(x.T[None], 3, weight, bias, EPS)[0].T


# Ops on [9, 9]. The names of the arguments tell which operands they are.
OTHERS = {
    "multiply": lambda x, other: x * other,
    "subtract": lambda x, other: x - other,
    "softmax": lambda x: F.softmax(x, -1),
    "log_softmax": lambda x: F.log_softmax(x, -1),
    "rms_norm": rms_norm,
    "group_norm": group_norm,
    "mean": lambda x: x.mean(0),
}


# Losses of x [9, 9], summed over the elements. `other` has the targets.
LOSSES = {
    "bce_with_logits": lambda x, other: F.binary_cross_entropy_with_logits(
        x, other.abs(), reduction="sum"),
    "mse": lambda x, other: F.mse_loss(x, other, reduction="sum"),
    "smooth_l1": lambda x, other: F.smooth_l1_loss(x, other, reduction="sum", beta=0.75),
    "l1": lambda x, other: F.l1_loss(x, other, reduction="sum"),
    "weighted_mean": lambda x, other: (x * other).sum(),
}


def loss(op, given):
    x = given["x"].clone().requires_grad_()
    value = op(x, given["other"])
    value.backward()
    return {"loss": value.item(), "dx": x.grad.reshape(-1).tolist()}


def gradients(op, given, dy):
    leaves = {name: given[name].clone().requires_grad_()
              for name in inspect.signature(op).parameters}
    y = op(**leaves)
    y.backward(dy.reshape(-1)[:y.numel()].reshape(y.shape))
    return {"y": y.reshape(-1).tolist(),
            **{"d" + name: leaf.grad.reshape(-1).tolist() for name, leaf in leaves.items()}}


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
    y = torch.matmul(a.transpose(-1, -2) if transpose_a else a, b.transpose(-1, -2) if transpose_b
                     else b)
    return results(y, dx0=a, dx1=b)


def conv_transpose2d(sides, out, kernel, **options):
    x, weight, bias = operand(0, 2, *sides), operand(1, *kernel, out, sides[2]), operand(2, out)
    y = F.conv_transpose2d(x.permute(0, 3, 1, 2), weight.permute(3, 2, 0, 1), bias, **options)
    return results(y.permute(0, 2, 3, 1).contiguous(), dx0=x, dweight=weight, dbias=bias)


# The same operands as in tests/op/test_op_reference.c. The first dimension counts the samples.
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
        "conv_transpose2d padded": conv_transpose2d((3, 4, 2), 3, (3, 4), stride=(2, 3),
                                                    padding=(1, 2), output_padding=(1, 2)),
        "conv_transpose2d apart": conv_transpose2d((3, 2, 3), 2, (1, 2), stride=(3, 3),
                                                   output_padding=(2, 0)),
        "conv_transpose2d pointwise": conv_transpose2d((3, 4, 5), 2, (1, 1)),
    }


# heads, kv_heads, T, S, D, DV, causal, window, scale (0: 1 / sqrt(D))
ATTENTION = [
    (4, 2, 6, 6, 4, 4, True, 0, 0),
    (2, 2, 7, 7, 3, 5, True, 3, 0),
    (3, 1, 5, 8, 2, 3, False, 0, 0.4),
]

# heads, T, D, width, interleaved, theta, offset, scaling (0: none, 1: linear, 2: Llama 3.1),
# factor, low, high, original length
ROTARY = [
    (2, 5, 8, 8, False, 10000.0, 0, 0, 1, 0, 0, 0),
    (2, 5, 8, 8, True, 10000.0, 0, 0, 1, 0, 0, 0),
    (2, 4, 9, 6, False, 500000.0, 100, 1, 4, 0, 0, 0),
    (1, 6, 16, 16, False, 500000.0, 3000, 2, 8, 1, 4, 1024),
]


def wave(number, rows, columns):
    values = [math.cos(0.7 * number + 1.3 * i * (1 + 0.01 * number)) * 2
              for i in range(rows * columns)]
    return torch.tensor(values, dtype=torch.float32).double().reshape(rows, columns)


def attention(heads, kv_heads, rows, keys, depth, width, causal, window, scale):
    q, k = wave(1, rows, heads * depth).requires_grad_(), wave(2, keys,
                                                               kv_heads * depth).requires_grad_()
    v, dy = wave(3, keys, kv_heads * width).requires_grad_(), wave(4, rows, heads * width)
    t, s = torch.arange(rows)[:, None], torch.arange(keys)[None, :]
    seen = (s <= t) & ((window == 0)
                       | (s > t - window)) if causal else torch.ones(rows, keys, dtype=torch.bool)
    each = [x.reshape(-1, n, x.shape[1] // n).transpose(0, 1)
            for x, n in ((q, heads), (k, kv_heads), (v, kv_heads))]
    k_all, v_all = (x.repeat_interleave(heads // kv_heads, dim=0) for x in each[1:])
    scores = each[0] @ k_all.transpose(1, 2) * (scale or 1 / math.sqrt(depth))
    y = ((scores.masked_fill(~seen, -math.inf).softmax(dim=-1) @ v_all)
         .transpose(0, 1).reshape(rows, heads * width))
    y.backward(dy)
    tensors = {"q": q, "k": k, "v": v, "dy": dy, "y": y, "dq": q.grad, "dk": k.grad, "dv": v.grad}
    options = dict(zip(("heads", "kv_heads", "rows", "keys", "depth", "width", "causal", "window",
                        "scale"),
                       (heads, kv_heads, rows, keys, depth, width, causal, window, scale)))
    return {**options, **{name: x.flatten().tolist() for name, x in tensors.items()}}


def frequencies(width, theta, scaling, factor, low, high, length):
    f = 1.0 / (theta ** (torch.arange(0, width, 2, dtype=torch.int64).float() / width))
    if scaling == 1:
        return f / factor
    if scaling == 0:
        return f
    wavelength = 2 * math.pi / f
    scaled = torch.where(wavelength > length / low, f / factor, f)
    smooth = (length / wavelength - low) / (high - low)
    between = ~(wavelength < length / high) * ~(wavelength > length / low)
    return torch.where(between, (1 - smooth) * scaled / factor + smooth * scaled, scaled)


def rotary(heads, rows, depth, width, interleaved, theta, offset, scaling, factor, low, high,
           length):
    x, dy = wave(1, rows, heads * depth).requires_grad_(), wave(2, rows, heads * depth)
    position = torch.arange(offset, offset + rows).float()
    angle = position[:, None] * frequencies(width, theta, scaling, factor, low, high,
                                            length)[None, :]
    assert angle.dtype == torch.float32
    cos, sin = angle.double().cos()[:, None], angle.double().sin()[:, None]
    rotated, rest = x.reshape(rows, heads, depth).split([width, depth - width], dim=-1)
    a, b = (rotated[..., 0::2], rotated[..., 1::2]) if interleaved else rotated.chunk(2, dim=-1)
    pair = (a * cos - b * sin, b * cos + a * sin)
    rotated = torch.stack(pair, dim=-1).flatten(-2) if interleaved else torch.cat(pair, dim=-1)
    y = torch.cat((rotated, rest), dim=-1).reshape(rows, heads * depth)
    y.backward(dy)
    options = dict(zip(("heads", "rows", "depth", "width", "interleaved", "theta", "offset",
                        "scaling", "factor", "low", "high", "length"),
                       (heads, rows, depth, width, interleaved, theta, offset, scaling, factor, low,
                        high, length)))
    return {**options, **{name: t.flatten().tolist()
                          for name, t in {"x": x, "dy": dy, "y": y, "dx": x.grad}.items()}}


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    path = sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, "..", "tests", "data",
                                                              "reference_ops.json")
    torch.set_num_threads(1)
    x = torch.tensor([(i - 40) * 0.3 for i in range(81)], dtype=torch.float32).double()
    dy = torch.tensor([math.cos(i) for i in range(81)], dtype=torch.float32).double()
    other = torch.tensor([math.sin(2 * i) for i in range(81)], dtype=torch.float32).double()
    weight = torch.tensor([1 + c / 8 for c in range(9)], dtype=torch.float32).double()
    bias = torch.tensor([c / 4 - 1 for c in range(9)], dtype=torch.float32).double()
    given = {"x": x.reshape(9, 9), "other": other.reshape(9, 9), "weight": weight, "bias": bias}
    result = {"about": "made by tools/reference_ops.py", "torch": torch.__version__,
              "x": x.tolist(), "dy": dy.tolist(), "other": other.tolist(),
              "weight": weight.tolist(), "bias": bias.tolist()}
    for name, op in OPS.items():
        leaf = x.clone().requires_grad_()
        y = op(leaf)
        y.backward(dy)
        result[name] = {"y": y.tolist(), "dx": leaf.grad.tolist()}
    result["functions"] = []
    for number, a, b, op, positive in FUNCTIONS:
        leaf = (x.abs() + 0.5 if positive else x.clone()).detach()
        if number >= 13:  # probabilities, including 0 and 1
            leaf = (leaf / 24 + 0.5).float().double()
        leaf.requires_grad_()
        y = op(leaf)
        y.backward(dy)
        result["functions"].append({"function": number, "a": a, "b": b, "x": leaf.tolist(),
                                    "y": y.tolist(), "dx": leaf.grad.tolist()})
    for name, op in OTHERS.items():
        result[name] = gradients(op, given, dy)
    for name, op in LOSSES.items():
        result[name] = loss(op, given)
    result.update(others())
    result["attention"] = [attention(*case) for case in ATTENTION]
    result["rotary"] = [rotary(*case) for case in ROTARY]
    with open(path, "w", encoding="ascii") as file:
        json.dump(result, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
