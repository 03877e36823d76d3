# SPDX-License-Identifier: Apache-2.0
"""Elementwise functions in captured modules: outputs and gradients are equal to PyTorch's results,
even at points where a function has no derivative."""

import unittest

import torch_support  # noqa: F401  skips without PyTorch

import torch
from compare import compare
from torch import nn
from torch.nn import functional as F

from cgpipe.torch import CaptureError, capture
from cgpipe.torch.runtime import Options, Runtime

IMAGE, ROWS = (4, 6, 5, 5), (4, 5, 12)

MODULES = {
    "ReLU6": nn.ReLU6(), "Hardtanh": nn.Hardtanh(-0.5, 0.7), "Hardsigmoid": nn.Hardsigmoid(),
    "Hardswish": nn.Hardswish(), "ELU": nn.ELU(), "ELU of alpha": nn.ELU(0.3), "CELU": nn.CELU(1.7),
    "SELU": nn.SELU(), "Softplus": nn.Softplus(), "Softplus of beta": nn.Softplus(2.5, 3),
    "Mish": nn.Mish(), "LogSigmoid": nn.LogSigmoid(), "Softsign": nn.Softsign(),
    "PReLU": nn.PReLU(), "GLU": nn.GLU(),
    **{f"{kind.__name__} in place": nn.Sequential(nn.Linear(12, 12), kind(inplace=True))
       for kind in (nn.ReLU6, nn.Hardtanh, nn.Hardsigmoid, nn.Hardswish, nn.ELU, nn.CELU, nn.SELU,
                    nn.Mish)},
}

# Functions that are tested on positive numbers only.
POSITIVE = {
    "sqrt": torch.sqrt, "rsqrt": torch.rsqrt, "log": torch.log, "reciprocal": torch.reciprocal,
    "a number by a tensor": lambda x: 2.5 / x, "half a power": lambda x: x ** 0.5,
    "minus half a power": lambda x: x.pow(-0.5), "power -1": lambda x: x ** -1,
    "power -2": lambda x: x ** -2, "power -3": lambda x: x ** -3, "power -4": lambda x: x ** -4,
    "sqrt in place": lambda x: (x * 2).sqrt_(), "a norm by hand":
        lambda x: x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-3),
    "normalised": lambda x: x / x.sum(-1, keepdim=True),
}

FUNCTIONS = {
    "relu6": F.relu6, "clamp": lambda x: x.clamp(-0.5, 0.5), "clip": lambda x: torch.clip(x, 0, 1),
    "clamp from below": lambda x: x.clamp(min=0.25), "clamp_min": lambda x: x.clamp_min(-0.5),
    "clamp_max": lambda x: torch.clamp_max(x, 0.3),
    "clamp in place": lambda x: (x * 2).clamp_(0, 1), "abs": torch.abs,
    "abs in place": lambda x: (x * 2).abs_(), "exp": torch.exp,
    "exp in place": lambda x: (x * 2).exp_(), "power 1": lambda x: x ** 1,
    "power 4": lambda x: x ** 4, "square": torch.square,
    "a part of a tensor": lambda x: torch.cat([x[:, :2].exp(), x[:, 2:].abs()], 1),
    "sum of columns": lambda x: x.sum(-1), "sum of rows": lambda x: x.sum(1, keepdim=True),
    "sum of both": lambda x: x.sum((1, 2)).unsqueeze(1), "sum of an expansion":
        lambda x: (x.mean(1, keepdim=True).expand(-1, 5, -1)).sum(1),
    "by constants": lambda x: x / torch.arange(1, 13), "constants by":
        lambda x: torch.arange(1.0, 13) / (x * x + 1),
    "softmax by hand": lambda x: x.exp() / x.exp().sum(-1, keepdim=True),
}

# Functions, and the points at which they have no derivative.
BENDS = {
    "relu6": (F.relu6, [0, 6]), "hardtanh": (F.hardtanh, [-1, 1]),
    "clamp": (lambda x: x.clamp(-1, 1), [-1, 1]), "clamp_min": (lambda x: x.clamp_min(0.1), [0.1]),
    "clamp_max": (lambda x: x.clamp_max(0.1), [0.1]), "hardsigmoid": (F.hardsigmoid, [-3, 3]),
    "hardswish": (F.hardswish, [-3, 3]), "abs": (torch.abs, [0]),
    "elu": (lambda x: F.elu(x, 0.4), [0]), "celu": (lambda x: F.celu(x, 0.4), [0]),
    "selu": (F.selu, [0]), "softplus": (lambda x: F.softplus(x, 2, 5), [2.5]),
    "prelu": (nn.PReLU(), [0]),
}

REFUSED = {
    "clamp between numbers, not tensors": [
        lambda x: torch.clamp(x, torch.zeros(12), torch.ones(12)),
        lambda x: torch.clamp(x, torch.tensor(0.0)), lambda x: torch.clamp(x, x * 0.5)],
    "clamp between limits that ascend": [lambda x: x.clamp(1, -1)],
    "threshold of at most 80": [nn.Softplus(1, 1000)],
    "softplus with beta above 0": [lambda x: F.softplus(x, -1)],
    "celu with alpha above 0": [nn.CELU(-1.0)],
    "pow with an exponent of 1 to 4": [lambda x: x ** 2.5, lambda x: x ** 0, lambda x: x ** x],
    "div without rounding_mode": [lambda x: torch.div(x, 2, rounding_mode="floor")],
    "sum within a sample": [lambda x: x.sum(0, keepdim=True) + x],
    "a sum of losses": [lambda x: x.sum() + x],
}


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


class Several(nn.Module):
    """Modules side by side, each with its own input and output, so that one capture tests all of
    them."""

    def __init__(self, named):
        super().__init__()
        self.parts = nn.ModuleList(f if isinstance(f, nn.Module) else Function(f)
                                   for f in named.values())

    def forward(self, *inputs):
        return tuple(part(x) for part, x in zip(self.parts, inputs))


class PReLUs(nn.Module):
    """Two PReLUs with a slope per channel: one on images, one on rows."""

    def __init__(self):
        super().__init__()
        self.images, self.rows = nn.PReLU(6), nn.PReLU(6, init=0.1)

    def forward(self, x):
        with_slopes = self.images(x)
        return self.rows(with_slopes.mean((2, 3)) - 0.1)


class Functions(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(5)

    def check(self, named, draw):
        """Compare modules or functions with PyTorch. A failure names the number of the input or
        output."""
        compare(self, Several(named), *(draw() for _ in named))

    def test_modules(self):
        self.check(MODULES, lambda: 3 * torch.randn(ROWS))

    def test_functions(self):
        self.check(FUNCTIONS, lambda: torch.randn(ROWS))

    def test_functions_of_positive_numbers(self):
        self.check(POSITIVE, lambda: torch.rand(ROWS) + 0.5)

    def test_quotients_of_tensors(self):
        divide = Function(lambda x, y: x / y)
        compare(self, divide, torch.randn(ROWS), torch.rand(ROWS) + 0.5)
        compare(self, divide, torch.randn(ROWS), torch.rand(4, 1, 12) + 0.5)
        compare(self, Function(lambda x, y: torch.true_divide(y, x)), torch.rand(ROWS) + 0.5,
                torch.randn(4, 5, 1))

    def test_slopes_by_channel(self):
        compare(self, PReLUs(), torch.randn(IMAGE))

    def test_a_parameter_of_a_function(self):
        class Scaled(nn.Module):
            def __init__(self):
                super().__init__()
                self.scale = nn.Parameter(torch.tensor([0.3]))
                self.width = nn.Parameter(torch.rand(12) + 0.5)

            def forward(self, x):
                return x * self.scale.exp() / self.width
        compare(self, Scaled(), torch.randn(ROWS))

    def test_bends(self):
        module = Several({name: function for name, (function, _) in BENDS.items()})
        inputs = [torch.tensor([[v, v - 0.25, v + 0.25] for v in (points[0], points[-1])])
                  for _, points in BENDS.values()]
        given = [[x.clone().requires_grad_() for x in inputs] for _ in range(2)]
        outputs = module(*given[0]), Runtime(module, Options())(*given[1])
        for ys in outputs:
            sum((0.75 * y).sum() for y in ys).backward()
        for i, name in enumerate(BENDS):
            with self.subTest(name):
                torch.testing.assert_close(outputs[1][i], outputs[0][i], rtol=1e-6, atol=0)
                torch.testing.assert_close(given[1][i].grad, given[0][i].grad, rtol=1e-6, atol=0)

    def test_a_small_result_keeps_its_digits(self):
        x = torch.tensor([[-1e-6, -1e-3, -20.0, -60.0]])
        functions = {f.__name__: f for f in (F.elu, F.softplus, F.mish, torch.exp)}
        got = Runtime(Several(functions), Options())(*[x] * 4)
        for y, function in zip(got, functions.values()):
            torch.testing.assert_close(y, function(x), rtol=2e-6, atol=0)

    def test_refusals_name_what_is_covered(self):
        for text, functions in REFUSED.items():
            for function in functions:
                module = function if isinstance(function, nn.Module) else Function(function)
                with self.subTest(text), self.assertRaisesRegex(CaptureError, text):
                    capture(module, (torch.randn(ROWS),), fallback=False)

    def test_relu6_keeps_its_result_alone(self):
        module = nn.Sequential(nn.Linear(12, 12), nn.ReLU6(), nn.Linear(12, 12))
        graph = capture(module, (torch.randn(4, 12),)).graph
        self.assertEqual([n["op"] for n in graph["nodes"]], ["linear", "function_of_y", "linear"])


if __name__ == "__main__":
    unittest.main()
