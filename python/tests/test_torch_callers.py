# SPDX-License-Identifier: Apache-2.0
"""A pipeline may be part of a checkpoint, of a compiled module, or of a program with another
default dtype. Other callers are refused with a message that names them."""

import copy
import unittest
import warnings

from torch_support import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from cgpipe.torchgpipe import GPipe


class Callers(unittest.TestCase):
    def test_the_default_type_of_floats_may_be_another(self):
        module, x = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU()), torch.randn(6, 8)
        early, late = (GPipe(copy.deepcopy(module), [1, 2], chunks=1) for _ in range(2))
        early(x)
        module(x)
        torch.set_default_dtype(torch.float64)
        try:
            for model in (early, late):
                found = []
                for m in (model, copy.deepcopy(module)):
                    given = x.clone().requires_grad_()
                    y = m(given)
                    y.square().sum().backward()
                    found.append([y, given.grad])
                torch.testing.assert_close(*found)
        finally:
            torch.set_default_dtype(torch.float32)

    def test_a_first_forward_may_be_in_a_checkpoint(self):
        module, x = nn.Sequential(nn.Linear(8, 8), nn.Tanh()), torch.randn(4, 8)
        for reentrant in (False, True):
            found = []
            for m in (GPipe(copy.deepcopy(module), [1, 1], chunks=2), module):
                given = x.clone().requires_grad_()
                y = checkpoint(m, given, use_reentrant=reentrant)
                y.square().sum().backward()
                found.append([y, given.grad])
            torch.testing.assert_close(*found)

    def test_a_compiled_pipeline_is_called_as_it_is(self):
        module, x = nn.Sequential(nn.Linear(8, 8), nn.Tanh()), torch.randn(4, 8)
        model = GPipe(copy.deepcopy(module), [1, 1])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            y = torch.compile(model, backend="eager")(x)
        torch.testing.assert_close(y, module(x))

    def test_what_a_pipeline_cannot_be_part_of_is_named(self):
        layers, x = [nn.Linear(8, 8), nn.Tanh()], torch.randn(4, 8)
        model = GPipe(nn.Sequential(*layers), [1, 1])
        weights = {name: p * 2 for name, p in model.named_parameters()}
        for function, text in (
                (lambda: GPipe(nn.Sequential(nn.Linear(8, 8), model), [1, 1])(x),
                 "a pipeline inside another one"),
                (lambda: torch.func.functional_call(model, weights, (x,)),
                 "0.weight: an nn.Parameter is expected"),
                (lambda: torch.func.vmap(model)(x[:, None]), "inside a transform of torch.func")):
            with self.subTest(text), self.assertRaisesRegex(Exception, text):
                function()


if __name__ == "__main__":
    unittest.main()
