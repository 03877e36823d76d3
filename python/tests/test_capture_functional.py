# SPDX-License-Identifier: Apache-2.0
"""A capture may itself replace the in-place writes of a program. Then the graph equals the graph
after PyTorch's functionalization."""

import unittest
from unittest import mock

from torch_support import IS_NEW, torch

from cgpipe.torch import capture, functional
from cgpipe.torchgpipe import GPipe
from torch import nn
from torch.nn import functional as F

IMAGE = (2, 3, 8, 8)


class Residual(nn.Module):
    """A residual block as in torchvision, with writes in place."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3)
        self.last = nn.BatchNorm2d(3)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        y = self.relu(self.norm(self.conv(x)))
        z = self.last(self.conv(y))
        z += y
        return self.relu(z)


class Layers(nn.Module):
    """Call ``function(module, x)``, where the module has two layers ``a`` and ``b``."""

    def __init__(self, function):
        super().__init__()
        self.a, self.b, self.function = nn.Linear(8, 8), nn.Linear(8, 8), function

    def forward(self, x):
        return self.function(self, x)


def writes(m, x):
    y = m.a(x)
    before = y * 2
    y.add_(before).mul_(0.5)
    y.sub_(m.b(x))
    return y, torch.sigmoid(before), m.b(y).tanh_()


def twice(m, x):
    y = m.a(x)
    y.mul_(3)
    return y.add_(1), y


def dropouts(m, x):
    kept = F.dropout(m.a(x), 0.0, True)
    y = F.dropout(m.b(F.dropout(kept, 0.0, True, inplace=True)), 0.3, m.training)
    y = y + kept
    return F.dropout(y.relu_(), 0.5, False) * 2


def arithmetic(m, x):
    y = m.a(x)
    y = (y / 3 - y.square()).neg() + (m.b(y).pow(2) + 1).sqrt()
    return F.logsigmoid(y) + y.sum(1, keepdim=True)


def views(m, x):
    y = m.a(x).unflatten(1, (2, 4)).transpose(1, 2).transpose(1, 2).flatten(1)
    return m.b(y) * x.sum(1).unsqueeze(1)


def shapes(m, x):
    y = m.a(x)[:, None].expand_as(x[:, None]).reshape(-1, 2, 4)
    first, second = y.contiguous().view(x.shape[0], -1, 2).mT.reshape(x.shape[0], 2, 4).unbind(1)
    return torch.cat([first, second[:, 1:], m.b(x).select(1, 0).unsqueeze(1)], 1).squeeze(1)


def by_samples(m, x):
    return m.a(x).add_(m.b(x)).view(1 * x.shape[0], -1, 2).flatten(1)


def heads(m, x):
    q, k = (layer(x).unflatten(2, (2, 4)).transpose(1, 2) for layer in (m.a, m.b))
    return F.scaled_dot_product_attention(q, k, k).transpose(1, 2).flatten(2)


class Hooked(nn.Linear):
    """A layer that PyTorch runs."""

    def __init__(self):
        super().__init__(8, 8)
        self.register_forward_hook(lambda *_: None)


def loss_of(function):
    """Return a module that computes a loss of its layers' results."""
    return Layers(lambda m, x: function(m.a(x), x.sigmoid()))


#: Modules that a capture rewrites itself, and the shapes of their inputs.
REWRITTEN = {
    "a residual block": (nn.Sequential(Residual(), Residual()), IMAGE),
    "a norm in eval mode": (nn.Sequential(nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3).eval()), IMAGE),
    "a cumulative norm": (nn.Sequential(nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3, momentum=None)),
                          IMAGE),
    "a classifier": (nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Hardswish(True),
                                   nn.ReLU6(True), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1),
                                   nn.Flatten(), nn.Linear(4, 5)), IMAGE),
    "pools in one dimension": (nn.Sequential(nn.Conv1d(3, 4, 3), nn.MaxPool1d(2),
                                             nn.AdaptiveAvgPool1d(1), nn.Flatten()), (2, 3, 9)),
    "pools in three dimensions": (nn.Sequential(nn.Conv3d(3, 4, 3), nn.MaxPool3d(2),
                                                nn.AdaptiveAvgPool3d(1), nn.Flatten()),
                                  (2, 3, 9, 9, 9)),
    "an upsampled image": (nn.Sequential(nn.Conv2d(3, 4, 3), nn.Upsample(
        (12, 12), mode="bilinear", align_corners=False), nn.ReLU(True)), IMAGE),
    "channels last": (Layers(lambda m, x: m.a(x.permute(0, 2, 3, 1)).relu_()), (2, 8, 3, 3)),
    "dropouts": (Layers(dropouts), (2, 8)),
    "dropouts in eval mode": (Layers(dropouts).eval(), (2, 8)),
    "arithmetic": (Layers(arithmetic), (2, 8)), "views": (Layers(views), (2, 8)),
    "shapes": (Layers(shapes), (2, 8)), "a number of samples": (Layers(by_samples), (2, 8)),
    "detach": (Layers(lambda m, x: m.a(x) * m.b(x).detach()), (2, 8)),
    "a softmax": (Layers(lambda m, x: m.a(x) + m.b(x).softmax(1)), (2, 8)),
    "attention": (Layers(heads), (2, 3, 8)),
    "upsampled by nearest": (nn.Sequential(nn.Conv2d(3, 4, 3), nn.Upsample(scale_factor=2.0)),
                             IMAGE),
    "an embedding": (nn.Sequential(nn.Embedding(5, 8), Layers(twice)),
                     torch.randint(5, (2, 3))),
    "log-probabilities": (Layers(lambda m, x: F.log_softmax(m.a(x), 1) + m.b(x)), (2, 8)),
    "writes": (Layers(writes), (2, 8)), "a result twice": (Layers(twice), (2, 8)),
    **{f.__name__: (loss_of(f), (2, 8)) for f in (
        F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.binary_cross_entropy_with_logits)},
}


#: Modules for which PyTorch loses source lines, because it replaces ops by simpler ops.
WITHOUT_LINES = {"shapes", "a number of samples"}


def through_a_view(m, x):
    y = m.a(x)
    y.flatten(1).mul_(2)
    return m.b(y)


def after_a_view(m, x):
    y = m.a(x)
    view = y.flatten(1)
    y.mul_(2)
    return view


def after_a_transpose(m, x):
    y = m.a(x)
    view = y.mT
    y.mul_(2)
    return view.flatten(1)


def after_a_part(m, x):
    y = m.a(x)
    view = y[..., :4]
    y.mul_(2)
    return view


def after_an_identity(m, x):
    y = m.a(x)
    same = F.dropout(y, 0.0, True)
    y.mul_(2)
    return same


def to_a_part(m, x):
    y = m.a(x)
    y[:, :2] = 0
    return y


def without_gradient(m, x):
    with torch.no_grad():
        y = m.a(x)
    return m.b(x) * y


def to_an_argument(m, x):
    y = x.clone()
    torch.add(x, 1, out=y)
    return m.a(x) * y


@torch.library.custom_op("cgpipe_test::clone", mutates_args={"y"})
def doubling(y: torch.Tensor) -> torch.Tensor:
    """Write to a tensor, although this op has the name of clone, which writes nothing."""
    y.mul_(2)
    return y + 1


@doubling.register_fake
def _(y):
    return torch.empty_like(y)


def by_another_library(m, x):
    y = x.clone()
    z = doubling(y)
    return m.a(x) * y * z


#: Modules that a capture does not rewrite, so that PyTorch functionalizes them.
OTHERS = {
    "after a dropout that keeps all": after_an_identity,
    "to an argument": to_an_argument,
    "through a view": through_a_view, "after a view": after_a_view, "to a part": to_a_part,
    "after a transpose": after_a_transpose, "after a part": after_a_part,
    "a dropout that ends": lambda m, x: F.alpha_dropout(m.a(x), 0.0) + m.b(x),
    "without gradient": without_gradient,
}


class Functional(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(3)

    def graphs(self, module, shape):
        """Return (rewritten, [own, expected]). ``rewritten`` tells whether a capture rewrote the
        program itself. ``own`` is the result of this capture: the graph, cuts, places, states and
        so on. ``expected`` is the result of a capture by PyTorch's functionalization."""
        own = functional.rewrite
        x = shape if isinstance(shape, torch.Tensor) else torch.randn(shape)
        found = []

        def call(program):
            found.append(own(program))
            return found[-1]
        captures = []
        for replacement in (call, lambda program: False):
            with mock.patch.object(functional, "rewrite", replacement):
                captures.append(capture(module, (x,), fallback=False))
        return found[-1], [(c.graph, [(cut.path, cut.number) for cut in c.cuts.values()],
                            [(p.path, p.where, p.line) for p in c.places], c.states,
                            c.parameters, c.outputs, c.guard.least, c.has_own_modes)
                           for c in captures]

    @unittest.skipUnless(IS_NEW, "older versions of PyTorch functionalize otherwise")
    def test_the_graph_is_that_of_pytorchs_functionalization(self):
        for name, (module, shape) in REWRITTEN.items():
            with self.subTest(name):
                rewritten, (own, expected) = self.graphs(module, shape)
                self.assertTrue(rewritten)
                if name in WITHOUT_LINES:
                    own, expected = ((graph, *rest) for graph, _, _, *rest in (own, expected))
                self.assertEqual(own, expected)

    def test_a_module_that_pytorch_runs_stays_one_node(self):
        module, x = nn.Sequential(nn.Linear(8, 8), Hooked(), Layers(twice)), torch.randn(2, 8)
        found, own = [], functional.rewrite
        for replacement in (lambda program: found.append(own(program)) or found[-1],
                            lambda program: False):
            with mock.patch.object(functional, "rewrite", replacement):
                captured = capture(module, (x,))
            found.append((len(captured.graph["nodes"]), [r.path for r in captured.regions.all],
                          [(cut.path, cut.number) for cut in captured.cuts.values()]))
        self.assertTrue(found[-3])
        self.assertEqual(found[-2], found[-1])
        self.assertEqual(found[-1][1], ["1"])

    @unittest.skipUnless(IS_NEW, "older versions of PyTorch functionalize otherwise")
    def test_writes_to_views_are_left_to_pytorch(self):
        for name, function in OTHERS.items():
            with self.subTest(name):
                rewritten, (own, expected) = self.graphs(Layers(function), (2, 3, 8))
                self.assertFalse(rewritten)
                self.assertEqual(own, expected)

    def test_a_write_to_another_buffer_is_left_to_pytorch(self):
        module = Layers(lambda m, x: (m.count.add_(1), m.a(x))[1])
        module.register_buffer("count", torch.zeros([]))
        rewritten = []
        own = functional.rewrite
        with mock.patch.object(functional, "rewrite",
                               lambda program: rewritten.append(own(program)) or rewritten[-1]):
            capture(module, (torch.randn(2, 8),))
        self.assertFalse(rewritten[0])

    def test_an_op_of_another_library_is_left_to_pytorch(self):
        module, x = Layers(by_another_library), torch.randn(2, 8)
        model = GPipe(nn.Sequential(module), [1], verify=False)
        torch.testing.assert_close(model(x), module(x))


if __name__ == "__main__":
    unittest.main()
