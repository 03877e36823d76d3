# SPDX-License-Identifier: Apache-2.0
"""Import PyTorch for the tests that need it, and define functions that a graph cannot express. The
tests are skipped without PyTorch, or with a version that cannot capture modules."""

import sys

try:
    import torch
except ImportError:
    print("skipped: there is no torch", file=sys.stderr)
    sys.exit(77)

VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])
if VERSION < (2, 9):
    print(f"skipped: torch 2.9 or later is needed, this is {torch.__version__}", file=sys.stderr)
    sys.exit(77)

#: False: this version of PyTorch traces some losses only for a fixed number of samples, and
#: functionalizes some programs in another way.
IS_NEW = VERSION >= (2, 15)


class Function(torch.nn.Module):
    """A module that calls a function of tensors."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


def gradients(model, x, chunks=1):
    """Run one forward for each micro-batch and one backward; return outputs and gradients."""
    x = x.clone().requires_grad_()
    y = torch.cat([model(part) for part in x.chunk(chunks)])
    y.square().sum().backward()
    return [y.detach(), x.grad, *[p.grad for p in model.parameters()]]


def same(test, found, expected, name):
    """Check outputs and gradients against PyTorch's. An expected None means that there must be no
    gradient."""
    for a, b in zip(found, expected):
        if b is None:
            test.assertIsNone(a, name)
        else:
            torch.testing.assert_close(a, b, rtol=2e-4, atol=2e-5, msg=lambda m: f"{name}: {m}")


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1.0

    @staticmethod
    def backward(ctx, gradient):
        return -gradient


#: A reference to ``Reverse.apply`` that exists before a trace watches this function. Modules may
#: hold such references.
HELD = Reverse.apply


def detached_write(module, y, x):
    y.detach().mul_(0.5)
    return y * 1


def write_without_gradient(module, y, x):
    with torch.no_grad():
        y.mul_(2.0)
    return module.b(y)
