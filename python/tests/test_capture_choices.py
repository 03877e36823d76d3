# SPDX-License-Identifier: Apache-2.0
"""where() and masked_fill() of captured modules drop the elements that are not chosen, even if
these are infinite or NaN. Outputs and gradients are equal to PyTorch's results."""

import copy
import unittest
import warnings

from torch_support import Function, torch

import torch.nn.functional as F
from cgpipe.torch import capture
from cgpipe.torchgpipe import GPipe
from torch import nn


class Choice(nn.Module):
    """Call ``function(module, x, keep)``. The input ``keep`` has integers: 1 where an element is
    chosen."""

    def __init__(self, function):
        super().__init__()
        self.a, self.b, self.function = nn.Linear(6, 6), nn.Linear(6, 3), function

    def forward(self, given):
        x, keep = given
        return self.b(self.function(self, x, keep > 0))


#: Functions, and whether the engine (not PyTorch) runs their where() or masked_fill().
CHOICES = {
    "missing inputs": (lambda m, x, k: m.a(x.masked_fill(~k, 0.0)), False),
    "missing inputs, moved": (lambda m, x, k: m.a(torch.where(k, x.tanh() * 2, 1.0)), False),
    "a logarithm": (lambda m, x, k: torch.where(k, x.abs().log(), m.a(x.nan_to_num())), False),
    "a quotient": (lambda m, x, k: torch.where(k, 1 / (x.abs() + 1), m.a(x.nan_to_num())), False),
    "a root": (lambda m, x, k: torch.where(k, x.abs().sqrt(), m.a(x.nan_to_num())), False),
    "infinity, filled again": (
        lambda m, x, k: m.a(x.nan_to_num()).masked_fill(k, float("inf")).masked_fill(k, 0.5),
        False),
    "values": (lambda m, x, k: m.a(x.nan_to_num()).masked_fill(k, 0.25), True),
    "values of two layers": (
        lambda m, x, k: (lambda y: torch.where(k, y, F.gelu(m.a(y))))(m.a(x.nan_to_num())), True),
}


def inputs(seed):
    torch.manual_seed(seed)
    x, keep = torch.randn(4, 6), torch.randint(0, 2, (4, 6))
    return x.masked_fill(keep == 0, float("nan")), keep


def steps(model, chunks):
    """Return the outputs and gradients of three steps of SGD."""
    found, optimizer = [], torch.optim.SGD(model.parameters(), lr=0.1)
    for i in range(3):
        optimizer.zero_grad()
        given = inputs(i)
        y = torch.cat([model(part) for part in zip(*(x.chunk(chunks) for x in given))])
        y.square().sum().backward()
        found += [y.detach(), *(None if p.grad is None else p.grad.clone()
                                for p in model.parameters())]
        optimizer.step()
    return found


class Choices(unittest.TestCase):
    def setUp(self):
        warnings.simplefilter("ignore")
        torch.manual_seed(0)

    def test_what_is_not_chosen_does_not_matter(self):
        for name, (function, of_engine) in CHOICES.items():
            with self.subTest(name):
                module = nn.Sequential(Choice(function))
                model = GPipe(copy.deepcopy(module), [1], chunks=2)
                expected, found = steps(module, 1), steps(model, 1)
                self.assertTrue(any(torch.isfinite(x).all() for x in expected))
                for a, b in zip(found, expected):
                    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5, equal_nan=True)
                run = [line for line in model.report().splitlines() if "proof" not in line]
                self.assertEqual(any("masked_fill" in x or "where" in x for x in run),
                                 not of_engine, model.report())

    def test_a_mask_of_attention_stays_in_the_engine(self):
        mask = torch.ones(5, 5).tril() > 0
        attend = Function(lambda x: F.scaled_dot_product_attention(
            *x[:, None].chunk(3, -1), torch.zeros(5, 5).masked_fill(~mask, float("-inf")))[:, 0])
        captured = capture(nn.Sequential(nn.Linear(4, 12), attend), (torch.randn(2, 5, 4),))
        self.assertFalse(captured.regions)


if __name__ == "__main__":
    unittest.main()
