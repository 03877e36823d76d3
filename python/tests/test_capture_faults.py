# SPDX-License-Identifier: Apache-2.0
"""A fault of the translator is reported. The capture does not hide the fault by letting PyTorch run
the module."""

import unittest
import warnings
from unittest import mock

from torch_support import Function, Reverse, torch

import cgpipe
from cgpipe.errors import CgpipeError
from cgpipe.torch import CaptureError, capture
from cgpipe.torch.ops import OPS
from torch import nn


class Unused(nn.Module):
    """A layer with a branch whose result is unused."""

    def __init__(self):
        super().__init__()
        self.used, self.unused = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        torch.tanh(self.unused(x))
        return self.used(x).relu()


def fails(*_):
    raise KeyError("a table")


class Faults(unittest.TestCase):
    def setUp(self):
        warnings.simplefilter("ignore")

    def test_a_fault_of_the_translator_is_shown_with_the_path_of_the_module(self):
        module, x = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Tanh())), torch.randn(2, 4)
        for fallback in (True, False):
            with mock.patch.dict(OPS, tanh=fails), self.assertRaisesRegex(
                    CgpipeError, r"^1.0: tanh: KeyError in its translation: 'a table'") as found:
                capture(module, (x,), fallback=fallback)
            self.assertNotIsInstance(found.exception, CaptureError)
        self.assertTrue(capture(module, (x,)).graph["nodes"])

    def test_a_fault_beside_the_nodes_is_shown(self):
        with mock.patch("cgpipe.torch.capture._outputs", fails), self.assertRaisesRegex(
                CgpipeError, "^the module itself: KeyError in its translation"):
            capture(nn.Linear(4, 4), (torch.randn(2, 4),))

    def test_an_op_alone_and_a_whole_module_run_by_pytorch_beside_each_other(self):
        class Cumulated(nn.Module):
            def forward(self, x):
                return x.cumsum(1)
        reverse, order = Function(Reverse.apply), Cumulated()
        module = nn.Sequential(nn.Linear(4, 4), reverse, nn.Linear(4, 4), order)
        captured = capture(module, (torch.randn(3, 4),))
        self.assertEqual([(region.path, list(region.only)) for region in captured.regions.all],
                         [("1", []), ("3", ["cumsum"])])

    def test_a_mask_that_attention_lacks_leaves_its_linear_layers_in_the_engine(self):
        class Attention(nn.Module):
            def __init__(self):
                super().__init__()
                self.qkv, self.out = nn.Linear(4, 12), nn.Linear(4, 4)

            def forward(self, x):
                q, k, v = self.qkv(x).chunk(3, -1)
                mask = torch.ones(5, 5).triu(1) > 0
                scores = (q @ k.transpose(1, 2)).masked_fill(mask, float("-inf"))
                return self.out(scores.softmax(-1) @ v)
        captured = capture(nn.Sequential(Attention()), (torch.randn(3, 5, 4),))
        self.assertEqual([region.only for region in captured.regions.all],
                         [["masked_fill", "softmax", "matmul"]])
        self.assertEqual([p.path for p in captured.places if p.op == "linear"], ["0.qkv", "0.out"])

    def test_exceptions_of_a_module_keep_their_type(self):
        class Wrong(nn.Module):
            def forward(self, x):
                return x @ torch.ones(5, 5)
        with self.assertRaisesRegex(RuntimeError, "shapes|size"):
            capture(nn.Sequential(nn.Linear(4, 4), Wrong()), (torch.randn(2, 4),))

    def test_ops_whose_results_are_unused_have_no_place(self):
        captured = cgpipe.from_torch(Unused(), (torch.randn(2, 4),))._captured
        self.assertEqual([(place.path, place.op) for place in captured.places],
                         [("used", "linear"), ("", "relu")])


if __name__ == "__main__":
    unittest.main()
