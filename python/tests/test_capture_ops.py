# SPDX-License-Identifier: Apache-2.0
"""Captured ops, in each of their spellings: outputs, gradients and statistics are equal to
PyTorch's results."""

import pathlib
import re
import unittest
from collections import OrderedDict

from torch_support import Function, torch

from compare import as_tuple, compare, far
from torch import nn
from torch.nn import functional as F

import cgpipe
from cgpipe.torch import CaptureError, capture, ops
from cgpipe.torch.runtime import Options, Runtime

IMAGE, ROWS = (4, 3, 8, 8), (4, 5, 12)

# Modules by name, with the shapes of their inputs.
MODULES = {
    "linear": (nn.Linear(12, 7), ROWS), "linear without bias": (nn.Linear(12, 7, bias=False), ROWS),
    "linear of rows": (nn.Linear(6, 2), (5, 6)), "relu": (nn.ReLU(), ROWS),
    "relu in place": (nn.Sequential(nn.Linear(12, 12), nn.ReLU(inplace=True)), ROWS),
    "leaky_relu": (nn.LeakyReLU(0.2), ROWS), "gelu": (nn.GELU(), ROWS),
    "gelu tanh": (nn.GELU("tanh"), ROWS), "silu": (nn.SiLU(), ROWS),
    "sigmoid": (nn.Sigmoid(), ROWS), "tanh": (nn.Tanh(), ROWS), "softmax": (nn.Softmax(-1), ROWS),
    "softmax of channels": (nn.Softmax(1), IMAGE), "layer_norm": (nn.LayerNorm(12), ROWS),
    "layer_norm of two": (nn.LayerNorm((5, 12)), ROWS), "rms_norm": (nn.RMSNorm(12), ROWS),
    "group_norm": (nn.GroupNorm(2, 4), (3, 4, 5, 5)),
    "instance_norm": (nn.InstanceNorm2d(3), IMAGE), "batch_norm": (nn.BatchNorm2d(3), IMAGE),
    "batch_norm of rows": (nn.BatchNorm1d(12), (6, 12)),
    "batch_norm of lengths": (nn.BatchNorm1d(5), ROWS), "conv2d": (nn.Conv2d(3, 5, 3, 2, 1), IMAGE),
    "conv2d same": (nn.Conv2d(3, 5, 3, padding="same", bias=False), IMAGE),
    "conv2d of one side": (nn.Conv2d(3, 4, (1, 7), (1, 2), (0, 3)), IMAGE),
    "conv_transpose2d": (nn.ConvTranspose2d(3, 4, 3, 2, 1, 1), IMAGE),
    "max_pool": (nn.MaxPool2d(3, 2, 1), IMAGE), "average_pool": (nn.AvgPool2d(2), IMAGE),
    "average_pool, padded": (nn.AvgPool2d(3, 2, 1), IMAGE),
    "average_pool, not counted": (nn.AvgPool2d(3, 1, 1, count_include_pad=False), IMAGE),
    "adaptive 1": (nn.AdaptiveAvgPool2d(1), IMAGE), "adaptive 4": (nn.AdaptiveAvgPool2d(4), IMAGE),
    "upsample": (nn.Upsample(scale_factor=2), IMAGE), "pad": (nn.ZeroPad2d((1, 2, 0, 3)), IMAGE),
    "flatten": (nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(144, 2)), IMAGE),
    "identity": (nn.Identity(), ROWS),
}

# Functions by name, with the shapes of their inputs.
FUNCTIONS = {
    "add": (lambda x, y: x + y, [ROWS, ROWS]), "add a number": (lambda x: x + 1.5, [ROWS]),
    "subtract": (lambda x, y: x - y, [ROWS, ROWS]), "from a number": (lambda x: 2 - x, [ROWS]),
    "multiply": (lambda x, y: x * y, [ROWS, ROWS]), "scale": (lambda x: 3 * x / 7, [ROWS]),
    "negative": (lambda x: -x, [ROWS]), "square": (lambda x: x ** 2, [ROWS]),
    "cube": (lambda x: x.pow(3), [ROWS]),
    "transposed sum": (lambda x: x + x.transpose(1, 2).contiguous().transpose(1, 2), [ROWS]),
    "sum with a transposed": (lambda x: x + x.transpose(1, 2), [(3, 4, 4)]),
    "permute": (lambda x: x.permute(0, 3, 1, 2), [(2, 3, 4, 5)]),
    "slice": (lambda x: x[:, 1:4, :6], [ROWS]), "negative slice": (lambda x: x[:, -3:], [ROWS]),
    "select": (lambda x: x[:, 2], [ROWS]), "split": (lambda x: x.split([2, 6, 4], -1)[1], [ROWS]),
    "chunks": (lambda x: torch.cat(x.chunk(3, -1)[::-1], -1), [ROWS]),
    "unbind": (lambda x: x.unbind(1)[3] + x.unbind(1)[0], [ROWS]),
    "cat of channels": (lambda x, y: torch.cat([x, y], 1), [IMAGE, IMAGE]),
    "cat of rows": (lambda x, y: torch.cat([x, y], 1), [ROWS, ROWS]),
    "cat of five": (lambda x: torch.cat([x] * 5, -1), [ROWS]),
    "mean of rows": (lambda x: x.mean(1), [ROWS]),
    "mean of columns": (lambda x: x.mean(-1, keepdim=True), [ROWS]),
    "mean of an image": (lambda x: x.mean((2, 3)), [IMAGE]),
    "matmul": (lambda x, y: x @ y, [(2, 3, 4, 5), (2, 3, 5, 6)]),
    "matmul transposed": (lambda x, y: x @ y.transpose(1, 2), [ROWS, ROWS]),
    "bmm": (lambda x, y: torch.bmm(x, y), [(3, 4, 5), (3, 5, 2)]),
    "softmax of a product": (lambda x, y: (x @ y.mT).softmax(-1), [ROWS, ROWS]),
    "unflatten": (lambda x: x.unflatten(2, (3, 4)).mean(2), [ROWS]),
    "several": (lambda x, y: (x * y, x, x.mean(1)), [ROWS, ROWS]),
    "one twice": (lambda x: (x * 2,) * 2, [ROWS]),
    "a constant": (lambda x: x * torch.arange(12.0) + torch.ones(5, 1), [ROWS]),
    "in place": (lambda x: (x * 1).add_(x).mul_(2), [ROWS]),
    "gelu by hand": (lambda x: 0.5 * x
                     * (1 + torch.tanh(0.7978845608028654 * (x + 0.044715 * torch.pow(x, 3)))),
                     [ROWS]),
}


class Attention(nn.Module):
    """Attention, written in one of several ways."""

    def __init__(self, spelling, heads=2, kv_heads=2, width=8):
        super().__init__()
        self.spelling, self.heads, self.kv_heads, self.width = spelling, heads, kv_heads, width
        self.qkv = nn.Linear(width, width + 2 * width * kv_heads // heads)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        n, t, c = x.shape
        d = c // self.heads
        q, k, v = self.qkv(x).split([c, d * self.kv_heads, d * self.kv_heads], -1)
        q, k, v = (y.view(n, t, -1, d).transpose(1, 2) for y in (q, k, v))
        y = self.spelling(q, k, v)
        return self.out(y.transpose(1, 2).reshape(n, t, c))


def _spelled(mask):
    def attend(q, k, v):
        t = q.shape[-2]
        keep = torch.ones(t, t, dtype=torch.bool).tril()
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
        return mask(scores, keep).softmax(-1) @ v
    return attend


def _bands(q, k, v):
    t = q.shape[-2]
    ones = torch.ones(t, t, dtype=torch.bool)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=ones.tril() & ~ones.tril(-3))


def _repeated(q, k, v):
    n, h, t, d = k.shape
    k, v = (x[:, :, None].expand(n, h, 2, t, d).reshape(n, 2 * h, t, d) for x in (k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


SPELLINGS = {
    "causal": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
    "all": F.scaled_dot_product_attention,
    "scaled": lambda q, k, v: F.scaled_dot_product_attention(
        q, k, v, is_causal=True, scale=0.3),
    "window": _bands,
    "a mask of booleans": lambda q, k, v: F.scaled_dot_product_attention(
        q, k, v, attn_mask=torch.ones(5, 5, dtype=torch.bool).tril()),
    "a mask that is added": lambda q, k, v: F.scaled_dot_product_attention(
        q, k, v, attn_mask=torch.full((1, 1, 5, 5), -1e9).triu(1)),
    "where": _spelled(lambda s, keep: torch.where(keep, s, torch.full([], -3e38))),
    "masked_fill": _spelled(lambda s, keep: s.masked_fill(~keep, float("-inf"))),
    "added": _spelled(
        lambda s, keep: s + torch.zeros(s.shape[-2:]).masked_fill(~keep, float("-inf"))),
    "no mask": _spelled(lambda s, keep: s),
}


class Ops(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(3)

    def test_modules(self):
        for name, (module, shape) in MODULES.items():
            if shape is not None:
                with self.subTest(name):
                    compare(self, module.train(), torch.randn(shape))

    def test_functions(self):
        for name, (function, shapes) in FUNCTIONS.items():
            if shapes is not None:
                with self.subTest(name):
                    compare(self, Function(function), *map(torch.randn, shapes))

    def test_attention(self):
        for name, spelling in SPELLINGS.items():
            with self.subTest(name):
                compare(self, Attention(spelling), torch.randn(3, 5, 8))
        compare(self, Attention(_repeated, heads=4, kv_heads=2), torch.randn(3, 5, 8))

    def test_one_fused_op_where_q_k_and_v_are_thirds(self):
        captured = capture(Attention(SPELLINGS["causal"]), (torch.randn(2, 5, 8),))
        self.assertEqual([n["op"] for n in captured.graph["nodes"]],
                         ["linear", "attention", "linear"])

    def test_embeddings(self):
        class Both(nn.Module):
            def __init__(self, rows):
                super().__init__()
                self.tokens, self.places = nn.Embedding(11, 6), nn.Embedding(rows, 6)

            def forward(self, ids):
                return self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        for rows in (5, 9):
            compare(self, Both(rows), torch.randint(0, 11, (4, 5)))

    def test_integers_that_follow_from_the_inputs(self):
        class Shifted(nn.Module):
            def __init__(self):
                super().__init__()
                self.tokens = nn.Embedding(12, 6)

            def forward(self, ids):
                return self.tokens(F.pad(ids, (1, 0), value=11)[:, :-1])
        compare(self, Shifted(), torch.randint(0, 11, (4, 5)))

    def test_tied_weights(self):
        class Tied(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = nn.Linear(6, 6, bias=False)
                self.outer = nn.Linear(6, 6)
                self.outer.weight = self.inner.weight

            def forward(self, x):
                return self.outer(torch.tanh(self.inner(x)))
        compare(self, Tied(), torch.randn(5, 6), devices=["cpu"])
        compare(self, Tied(), torch.randn(5, 6), chunks=2, devices=["cpu", "cpu"])

    def test_evaluation_has_running_statistics_and_no_dropout(self):
        module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5), nn.Flatten(),
                               nn.Linear(144, 2))
        x = torch.randn(IMAGE)
        module(x)
        module.eval()
        with torch.no_grad():
            expected = module(x)
            got = as_tuple(Runtime(module, Options())(x))[0]
        self.assertLess(far(got, expected), 1e-5)

    def test_a_cut_at_no_module_is_refused(self):
        module = nn.Sequential(OrderedDict(one=nn.Linear(4, 4), two=nn.Linear(4, 3)))
        for options in ({}, {"loss": nn.CrossEntropyLoss(),
                             "example_target": torch.zeros(2, dtype=torch.long)}):
            with self.assertRaisesRegex(CaptureError, "cut_at: tow: the module has none of this "
                                        "path .did you mean two"):
                cgpipe.from_torch(module, (torch.randn(2, 4),), cut_at=["one", "tow"], **options)
        with self.assertRaisesRegex(TypeError, "a list of paths"):
            cgpipe.from_torch(module, (torch.randn(2, 4),), cut_at="one")

    def test_layers_are_the_children_of_a_sequential(self):
        model = cgpipe.from_torch(
            nn.Sequential(nn.Linear(4, 4), nn.ReLU(),
                          nn.Sequential(nn.Linear(4, 4), nn.Tanh())), (torch.randn(2, 4),))
        self.assertEqual(model.layers, ["0", "1", "2"])
        cut = cgpipe.from_torch(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)),
                                (torch.randn(2, 4),), cut_at=["0", "2"])
        self.assertEqual(cut.layers, ["0", "2"])

    def test_losses_of_the_module(self):
        for loss, target in ((nn.CrossEntropyLoss(), torch.randint(0, 3, (8,))),
                             (nn.BCEWithLogitsLoss(), torch.rand(8, 3))):
            module = nn.Sequential(nn.Linear(6, 5), nn.GELU(), nn.Linear(5, 3))
            x = torch.randn(8, 6)
            expected = float(loss(module(x), target))
            model = cgpipe.from_torch(module, (x,), loss=loss, example_target=target)
            with cgpipe.Pipeline(model, stages=2, chunks=4, batch=8,
                                 optimizer=cgpipe.SGD(lr=0.1)) as pipeline:
                self.assertAlmostEqual(pipeline.step(x, target), expected, 5)
                self.assertLess(pipeline.step(x, target), expected)
                self.assertLess(far(loss(module(x), target),
                                    torch.tensor(pipeline.evaluate(x, target))),
                                1e-5)  # module and pipeline share the weights


class Adoption(unittest.TestCase):
    def test_the_module_follows_the_last_pipeline(self):
        module = nn.Linear(3, 2)
        x, y = torch.randn(4, 3), torch.randint(0, 2, (4,))
        model = cgpipe.from_torch(module, (x,), loss=nn.CrossEntropyLoss(), example_target=y)
        first = cgpipe.Pipeline(model, batch=4, optimizer=cgpipe.SGD(lr=0.1))
        first.step(x, y)
        trained = module.weight.detach().clone()
        second = cgpipe.Pipeline(model, batch=4, optimizer=cgpipe.SGD(lr=0.1))
        self.assertTrue(torch.equal(module.weight, trained))
        first.close()
        second.step(x, y)
        self.assertFalse(torch.equal(module.weight, trained))
        trained = module.weight.detach().clone()
        second.close()
        self.assertTrue(torch.equal(module.weight, trained))
        self.assertEqual(module(x).shape, (4, 2))


class Page(unittest.TestCase):
    def test_the_program_of_the_readme_trains(self):
        page = (pathlib.Path(__file__).resolve().parents[2] / "README.md").read_text()
        names = {}
        torch.manual_seed(1)
        exec(re.search(r"```python\n(.*?)```", page, re.DOTALL).group(1), names)
        self.assertLess(names["loss"], 0.5)

    def test_the_page_has_every_op(self):
        page = (pathlib.Path(__file__).resolve().parents[2]
                / "docs/reference/torch-ops.md").read_text()
        table = set(re.findall(r"`(\w+)`", "".join(
            line.split("|")[1] for line in page.splitlines() if line.startswith("| `"))))
        self.assertEqual(sorted(table), ops.names())


class Refusals(unittest.TestCase):
    def refused(self, function, shape, text):
        module = function if isinstance(function, nn.Module) else Function(function)
        with self.assertRaisesRegex(CaptureError, text):
            capture(module, (torch.randn(shape),), fallback=False)

    def test_samples_stay_apart(self):
        self.refused(lambda x: x.mean(0, keepdim=True) + x, ROWS,
                     "mean within a sample: dimension 0 is the samples'")
        self.refused(lambda x: x.transpose(0, 1), ROWS, "output 0: a tensor .N, ....")
        self.refused(lambda x: x[1:], ROWS, "slice within a sample")
        self.refused(lambda x: torch.cat([x, x]), ROWS, "cat within a sample")
        self.refused(lambda x: x / x.shape[0], ROWS, "depends on the number of samples")
        self.refused(nn.Softmax(0), ROWS, "softmax within a sample")

    def test_what_is_not_covered_is_named_with_its_place(self):
        module = nn.Sequential(nn.Linear(12, 12), nn.Sequential(nn.ReLU(), nn.Threshold(0, 1)))
        self.refused(module, ROWS, r"^1\.1: threshold.*")
        self.refused(nn.Sequential(nn.MaxPool2d(3, dilation=2)), (2, 4, 8, 8),
                     "^0: max_pool2d.*dilation is covered")
        self.refused(nn.BatchNorm2d(3, affine=False), IMAGE, "affine=True")
        self.refused(nn.BatchNorm2d(3, track_running_stats=False), IMAGE,
                     "track_running_stats=True")
        self.refused(nn.RMSNorm(12, elementwise_affine=False), ROWS,
                     "rms_norm with its parameters")

    def test_inputs(self):
        with self.assertRaisesRegex(CaptureError, "float32 is expected, got float64"):
            capture(nn.Linear(3, 3).double(), (torch.randn(2, 3, dtype=torch.float64),))
        with self.assertRaisesRegex(CaptureError, "at least one tensor"):
            capture(nn.Linear(3, 3), ())

    def test_what_forward_raises_comes_through(self):
        class Own(Exception):
            pass

        def fail(x):
            raise Own("mine")
        with self.assertRaisesRegex(Own, "mine"):
            capture(Function(fail), (torch.randn(2, 3),))


if __name__ == "__main__":
    unittest.main()
