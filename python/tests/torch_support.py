# SPDX-License-Identifier: Apache-2.0
"""PyTorch for the tests that need it, and parts of modules that a graph cannot express. Tests skip
without PyTorch, or with a version that cannot capture modules."""

import sys

try:
    import torch
except ImportError:
    print("skipped: there is no torch", file=sys.stderr)
    sys.exit(77)

if tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 6):
    print(f"skipped: torch 2.6 or later is needed, this is {torch.__version__}", file=sys.stderr)
    sys.exit(77)


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1.0

    @staticmethod
    def backward(ctx, gradient):
        return -gradient


def detached_write(module, y, x):
    y.detach().mul_(0.5)
    return y * 1


def write_without_gradient(module, y, x):
    with torch.no_grad():
        y.mul_(2.0)
    return module.b(y)
