# SPDX-License-Identifier: Apache-2.0
"""Test the proof of a capture without the static checks. Each test removes one check, or one part
of a translation, and captures a module that needs it. The proof must refuse the capture. UNSEEN
lists the checks that the proof cannot replace.

--table prints the proof's message for each check."""

import contextlib
import random
import sys
import types
import unittest
import warnings
from unittest import mock

from torch_support import Reverse, detached_write, torch, write_without_gradient

from cgpipe.errors import CgpipeError
from cgpipe.torch import CaptureError, capture, functional, walk, watch
from cgpipe.torch.export import Guard
from cgpipe.torch.ops import OPS
from torch import nn
from torch.nn import functional as F

LEAF = torch.full([8], 2.0, requires_grad=True)


class Stop(nn.Module):
    """Call ``function(module, y, x)``, where y is the result of a linear layer on x."""

    def __init__(self, function):
        super().__init__()
        self.a, self.b, self.function = nn.Linear(8, 8), nn.Linear(8, 8), function
        self.register_buffer("count", torch.zeros(8))

    def forward(self, x):
        return self.function(self, self.a(x), x)


class Deep(nn.Module):
    """A layer nested in other layers; it changes the output by less than 1 %."""

    def __init__(self, function):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(8, 8), Stop(function), nn.Linear(8, 8))

    def forward(self, x):
        return x + 1e-3 * self.inner(x)


class Words(nn.Module):
    """An embedding of integers."""

    def __init__(self, function=lambda x: x, **options):
        super().__init__()
        self.a, self.function = nn.Embedding(5, 8, **options), function

    def forward(self, x):
        return self.a(self.function(x))


def no_grad(module, y, x):
    with torch.no_grad():
        z = module.a(x) * 2
    return module.b(y) * z


def by_grad_mode(module, y, x):
    return y * 1.5 if torch.is_grad_enabled() else y


def set_attribute(module, y, x):
    module.calls = getattr(module, "calls", 0) + 1
    return y


def add_to_buffer(module, y, x):
    module.count.add_(1)
    return y


def replace_buffer(module, y, x):
    module.count = module.count + 1
    return y


def through_a_view(module, y, x):
    y.flatten(1).mul_(2)
    return module.b(y)


def autocast(module, y, x):
    with torch.autocast("cpu", torch.bfloat16):
        z = module.b(x)
    return y + z.float()


def hook_of_tensor(module, y, x):
    y.register_hook(lambda g: g * 2)
    return y * 1


def hooked():
    module = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    module[1].register_full_backward_hook(lambda m, given, _: tuple(g * 2 for g in given))
    return module


# --- checks that are removed ---


def without(*names):
    """Return patches that turn checks off; each check is a function "module.name"."""
    return [mock.patch(f"cgpipe.torch.{name}", lambda *_, **__: None) for name in names]


def without_findings(text):
    """Return a patch that watches a trace, but ignores findings that contain this text."""
    @contextlib.contextmanager
    def watching(module):
        try:
            with watch.watching(module) as after:
                yield after
        except CaptureError as error:
            if text not in str(error):
                raise
    return [mock.patch("cgpipe.torch.export.watching", watching)]


@contextlib.contextmanager
def nothing(*_):
    yield


class _Torch:
    """PyTorch without the tag that marks random ops."""

    Tag = types.SimpleNamespace(nondeterministic_seeded=None)

    def __getattr__(self, name):
        return getattr(torch, name)


def embedding(t, weight, ids, *_):
    return EMBEDDING(t, weight, ids)


EMBEDDING = OPS["embedding"]
CASTS = without("elementwise.need", "walk._check_result")

#: Each entry has patches that remove a check, a function that makes a module, and the module's
#: input. None stands for an input of 8 floats per sample.
CHECKS = {
    "detach": ([mock.patch.dict(OPS, detach=lambda t, x: x)],
               lambda: Stop(lambda m, y, x: m.b(x) * y.detach()), None),
    "regions under no_grad": (without("export.detach_regions"), lambda: Stop(no_grad), None),
    "writes through detach": (without("export.check_writes"), lambda: Stop(detached_write), None),
    "writes under no_grad": (without("export.check_writes"),
                             lambda: Stop(write_without_gradient), None),
    "writes to views": ([mock.patch.object(functional, "_has_own_memory", lambda node: True)],
                        lambda: Stop(through_a_view), torch.randn(2, 3, 8)),
    "autograd.Function": ([mock.patch("cgpipe.torch.watch._noting_functions", nothing)],
                          lambda: Stop(lambda m, y, x: Reverse.apply(y)), None),
    "hooks of modules": ([*without("export.check_hooks"), mock.patch(
        "cgpipe.torch.watch._noting_functions", nothing)], hooked, None),
    "hooks of tensors": (without_findings("register_hook"), lambda: Stop(hook_of_tensor), None),
    "the gradient mode": (without_findings("is_grad_enabled"), lambda: Stop(by_grad_mode), None),
    "the gradient mode of a deep module": (without_findings("is_grad_enabled"),
                                           lambda: Deep(by_grad_mode), None),
    "attributes": (without_findings("attributes that forward sets"),
                   lambda: Stop(set_attribute), None),
    "writes to buffers": (without("capture._check_mutation"), lambda: Stop(add_to_buffer), None),
    "replaced buffers": ([mock.patch("cgpipe.torch.export.buffers_replaced_since",
                                     lambda _: [])], lambda: Stop(replace_buffer), None),
    "writes to inputs": (without("capture._check_mutation"),
                         lambda: Stop(lambda m, y, x: (x.add_(1), m.b(x))[1]), None),
    "tensors that require a gradient": (without("capture._check_constant"),
                                        lambda: Stop(lambda m, y, x: y * LEAF), None),
    "random tensors": ([mock.patch.object(walk, "torch", _Torch())],
                       lambda: Stop(lambda m, y, x: y + torch.randn(8)), None),
    "Python's random numbers": (without_findings("random"),
                                lambda: Stop(lambda m, y, x: y * random.random()), None),
    "casts": (CASTS, lambda: Stop(lambda m, y, x: y.int().float()), None),
    "autocast": (CASTS, lambda: Stop(autocast), None),
    "alpha": (CASTS, lambda: Stop(lambda m, y, x: torch.add(y, m.b(x), alpha=2)), None),
    "embeddings by frequency": (without("ops.need"), lambda: Words(scale_grad_by_freq=True),
                                torch.tensor([[0, 1, 1], [2, 2, 2]])),
    "the row of the padding": ([mock.patch.dict(OPS, embedding=embedding)],
                               lambda: Words(padding_idx=1), torch.tensor([[0, 1], [1, 2]])),
    "guards on samples": ([mock.patch("cgpipe.torch.export._guard", lambda _: Guard([]))],
                          lambda: Stop(lambda m, y, x: y * 2 if x.shape[0] % 2 else y), None),
    "parameters of targets": ([mock.patch("cgpipe.torch.captured.Captured.trained_target",
                                          lambda *_: None)],
                              lambda: Stop(lambda m, y, x: F.binary_cross_entropy_with_logits(
                                  y, m.b(x).sigmoid())), None),
    "dropout in eval mode": (CASTS, lambda: Stop(
        lambda m, y, x: F.dropout(y, 0.5, training=True)).eval(), None),
    "integers of other samples": (without("capture._check_outside"),
                                  lambda: Words(lambda x: x.flip(0)),
                                  torch.tensor([[0, 1], [3, 2]])),
}

#: Checks that the proof cannot replace, with the reason.
UNSEEN = {
    "integers of other samples": "a proof has one micro-batch",
}


def spread(module, x):
    """Return how much PyTorch's result changes if the samples are permuted and another number of
    threads is used."""
    order, threads = torch.randperm(len(x)), torch.get_num_threads()

    def run(x):
        x = x.clone().requires_grad_()
        y = module(x)
        return y.detach(), torch.autograd.grad(y, x, torch.ones_like(y))[0]
    own = run(x)
    torch.set_num_threads(3 - min(threads, 2))
    try:
        other = [y[order.argsort()] for y in run(x[order])]
    finally:
        torch.set_num_threads(threads)
    return max(float((a - b).abs().max()) for a, b in zip(own, other))


class Proof(unittest.TestCase):
    def setUp(self):
        warnings.simplefilter("ignore")
        torch.manual_seed(1)

    def outcome(self, name):
        """Remove a check and capture its module. Return the proof's message; None if the proof
        accepts the module."""
        patches, make, x = CHECKS[name]
        x = torch.randn(2, 8) if x is None else x
        with contextlib.ExitStack() as stack:
            for patch in patches:
                stack.enter_context(patch)
            capture(make(), (x.clone(),), fallback=False, verify=False)  # no other check fails
            try:
                capture(make(), (x.clone(),), fallback=False, verify=True)
            except CaptureError as error:
                return str(error)
        return None

    def test_with_its_check_a_module_is_refused_or_proven(self):
        for name, (_, make, x) in CHECKS.items():
            x = torch.randn(2, 8) if x is None else x
            with self.subTest(name), contextlib.suppress(CaptureError):
                capture(make(), (x.clone(),), fallback=False, verify=True)

    def test_roundings_that_a_permutation_of_samples_does_not_change_are_no_difference(self):
        module, x = Stop(lambda m, y, x: F.layer_norm(y + 300, [8])), torch.randn(2, 8)
        self.assertEqual(spread(module, x), 0)
        found = capture(module, (x,), fallback=False).proof
        self.assertGreater(found.repeats, 0)  # a difference exceeds the fixed bound
        self.assertEqual(found.unprovable, [])
        with mock.patch("cgpipe.torch.proof_cuts.MOVED", 0), self.assertRaises(CaptureError):
            capture(module, (x,), fallback=False)
        module = Stop(lambda m, y, x: F.layer_norm(y + 1e6, [8]))
        self.assertIn("output 0", capture(module, (x,), fallback=False).proof.unprovable)

    def test_the_proof_notices_what_the_checks_refuse(self):
        for name in CHECKS:
            with self.subTest(name):
                found = self.outcome(name)
                if name in UNSEEN:
                    self.assertIsNone(found)
                else:
                    self.assertIsNotNone(found, "not noticed")


if __name__ == "__main__":
    if sys.argv[1:] == ["--table"]:
        warnings.simplefilter("ignore")
        for name in CHECKS:
            try:
                print(f"{name}: {Proof().outcome(name)}"[:150], flush=True)
            except (AssertionError, CgpipeError) as error:
                print(f"{name}: NO MUTATION: {error}"[:220], flush=True)
    else:
        unittest.main()
