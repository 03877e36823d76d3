# SPDX-License-Identifier: Apache-2.0
"""Captured modules treat None or zero gradients, unused results, masks, checkpoints and numbers of
samples as PyTorch does. Also test what the proof of a capture reports."""

import contextlib
import copy
import random
import threading
import time
import types
import unittest
import warnings
from unittest import mock

from torch_support import Reverse, torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import cgpipe
from cgpipe.errors import ArgumentError
from cgpipe.torch import CaptureError, export, fallback, ops, proof
from cgpipe.torch.region import Region
from cgpipe.torch.watch import path_of
from cgpipe.torchgpipe import GPipe


class Part(nn.Module):
    """Call ``function(module, x)``. The module has layers ``a`` and ``b``, and a batch norm
    ``norm``."""

    def __init__(self, function):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(8, 8), nn.Linear(8, 8), nn.BatchNorm1d(8)
        self.function = function

    def forward(self, *x):
        return self.function(self, *x)


def unused_norm(m, x):
    m.norm(m.a(x))
    return m.b(x)


def overwritten(write):
    def call(m, x):
        y = m.a(x)
        write(y, x)
        return m.b(y * 1)
    return call


def not_three(m, x):
    if x.shape[0] == 3 or float(x.detach().sum()) > 1e9:
        raise ValueError("three samples")
    return m.a(x)


#: ENGINE has the functions that the engine runs. PYTORCH has the functions that PyTorch runs.
ENGINE = {
    "baddbmm": lambda m, x: torch.baddbmm(
        m.a(x).view(-1, 2, 4) @ x.view(-1, 4, 2), m.b(x).view(-1, 2, 4), x.view(-1, 4, 2),
        beta=0.5, alpha=2).flatten(1),
    "unused layer": lambda m, x: (m.a(x), m.b(x))[1],
    "checkpoint": lambda m, x: checkpoint(m.b, m.a(x), use_reentrant=True),
}
PYTORCH = {
    "unused batch norm": unused_norm,
    "unused result of a region": lambda m, x: (torch.cumsum(m.a(x), 1), m.b(x))[1],
    "detach in a region": lambda m, x: torch.cumsum(m.a(x.detach()), 1),
    "copy to a whole tensor": overwritten(lambda y, x: y.copy_(x)),
    "fill of a whole tensor": overwritten(lambda y, x: y.fill_(0.5)),
    "assignment to a whole tensor": overwritten(lambda y, x: y.__setitem__(slice(None), x)),
    "checkpoint": lambda m, x: checkpoint(lambda x: torch.cumsum(m.b(x), 1), m.a(x),
                                          use_reentrant=True),
    "checkpoint of an input": lambda m, x: m.b(x) + checkpoint(
        lambda x: torch.cumsum(m.a(x), 1), x, use_reentrant=True),
}


class Exact(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        warnings.simplefilter("ignore")

    def check(self, module, x):
        """Compare outputs, gradients and buffers; return the pipeline."""
        eager, taken = copy.deepcopy(module), copy.deepcopy(module)
        model = GPipe(taken, [1] * len(taken))
        outputs = [f(x) for f in (model, eager)]
        torch.testing.assert_close(*outputs)
        for y in outputs:
            y.square().sum().backward()
        for (name, p), own in zip(eager.named_parameters(), taken.parameters()):
            self.assertEqual(p.grad is None, own.grad is None, name)
            if p.grad is not None:
                torch.testing.assert_close(own.grad, p.grad, rtol=1e-4, atol=1e-5)
        for (name, b), own in zip(eager.named_buffers(), taken.buffers()):
            torch.testing.assert_close(own, b, msg=name)
        return model

    def test_the_engine_has_pytorchs_gradients_none_included(self):
        for name, function in ENGINE.items():
            with self.subTest(name):
                model = self.check(nn.Sequential(nn.Linear(8, 8), Part(function)),
                                   torch.randn(6, 8))
                self.assertRegex(model.report(), "^proof: [^\n]*$")

    def test_regions_have_pytorchs_gradients_none_included(self):
        for name, function in PYTORCH.items():
            with self.subTest(name):
                self.check(nn.Sequential(nn.Linear(8, 8), Part(function)), torch.randn(6, 8))

    def test_a_mask_stays_boolean_in_a_region(self):
        def masked(m, pair):
            x, mask = pair
            return torch.cumsum(m.a(x).masked_fill(mask, 0.0), 1)
        x, mask = torch.randn(6, 8), torch.rand(6, 8) < 0.5
        self.check(nn.Sequential(Part(masked), nn.Linear(8, 3)), (x, mask))

    def test_layers_that_are_never_called_do_not_fall_back(self):
        module = nn.Sequential(nn.Linear(8, 8), Part(lambda m, x: x * 2))
        module[0].register_forward_hook(lambda m, x, y: y * 2)
        self.check(module, torch.randn(6, 8))

    def test_a_recurrent_layer_is_proven(self):
        module = nn.Sequential(nn.LSTM(8, 3, batch_first=True), Part(lambda m, x: x[0]))
        cgpipe.from_torch(module, (torch.randn(4, 5, 8),))

    def test_numbers_of_samples_that_pytorch_refuses_are_refused(self):
        model = GPipe(nn.Sequential(Part(not_three)), [1])
        model(torch.randn(4, 8))
        self.assertRegex(model.report(), "proof: .* for 4 and 2 samples")
        with self.assertRaisesRegex(ValueError, "three samples"):  # raised by the module
            model(torch.randn(3, 8))
        taken = cgpipe.from_torch(nn.Sequential(Part(not_three)), (torch.randn(4, 8),))
        with self.assertRaisesRegex(ArgumentError, "another number of samples than 3"):
            taken._captured.check(3, True)
        even = GPipe(nn.Sequential(Part(lambda m, x: m.a(x) * (len(x) ** 0.5))), [1])
        even(torch.randn(4, 8))

    def test_a_proof_reports_its_cost_and_what_it_cannot_compare(self):
        def report(**options):
            module = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64))
            return cgpipe.from_torch(module, (torch.randn(4, 64),), **options).report()
        text = r"^proof: {} tensors equal PyTorch's, for 3 and 2 samples; \d+\.\d s{}$"
        self.assertRegex(report(), text.format(7, ""))
        with mock.patch.multiple(proof, EXACT=0.0, UNPROVABLE=0.0):
            self.assertRegex(report(), text.format(
                r"\d", "; not provable, for roundings explain .*: .*the gradient of 2.weight.*"))
        self.assertEqual(report(verify=False), "not proven")

    def test_a_checkpoint_is_run_again_with_other_roundings(self):
        for reentrant in (False, True):
            # With EXACT = 0, rounding explains no difference, so the proof runs the module again
            # with other rounding errors.
            with self.subTest(reentrant=reentrant), mock.patch.object(proof, "EXACT", 0.0):
                def function(m, x, reentrant=reentrant):
                    return checkpoint(lambda x: torch.tanh(F.dropout(m.b(x), 0.5)), m.a(x),
                                      use_reentrant=reentrant)
                self.assertRegex(cgpipe.from_torch(nn.Sequential(nn.Linear(8, 8), Part(function)),
                                                   (torch.randn(4, 8),)).report(), "^proof: ")

    def test_a_checkpoint_of_an_input_without_a_gradient_gives_none(self):
        part = Part(lambda m, x: x + checkpoint(m.a, x, use_reentrant=True))
        module = nn.Sequential(nn.Sequential(part, part), nn.Linear(8, 3))
        x, target = torch.randn(4, 8), torch.randn(4, 3)

        def capture():
            return cgpipe.from_torch(module, (x,), loss=nn.MSELoss(), example_target=target)
        nn.functional.mse_loss(module(x), target).backward()
        expected = [p.grad for p in module.parameters()]
        self.assertEqual([g is None for g in expected], [True] * (len(expected) - 2) + [False] * 2)
        module.zero_grad()
        with cgpipe.Pipeline(capture(), batch=4, optimizer=cgpipe.SGD(lr=0.1)) as pipeline:
            pipeline.step(x, target, update=False)
            for p, want in zip(module.parameters(), expected):
                torch.testing.assert_close(p.grad, torch.zeros_like(p) if want is None else want)

        # If has_gradient is always true, the engine computes a gradient, and the proof notices it.
        def region(*args, **options):
            return Region(*args, **{**options, "has_gradient": True})
        with mock.patch.object(fallback, "Region", region), \
                self.assertRaisesRegex(CaptureError, "gradient of its result differs"):
            capture()

    def test_paths_that_torch_export_gives_from_the_caller(self):
        def path(*own):
            return path_of(mock.Mock(meta={"nn_module_stack": {x: (x, "") for x in own}}))
        for own, expected in {
                ("", "module", "module.0", "module.0.1"): "0.1",
                ("", "module", "module.0", "f"): "0.f",
                ("", "module", "module.0", "f", "f.1"): "0.f.1",
                ("", "module", "module.0", "f", "g"): "0.f.g"}.items():
            self.assertEqual(path(*own), expected)

    def test_zeros_with_several_rows_for_a_sample(self):
        for options in ({"add_zero_attn": True}, {"add_bias_kv": True}):
            part = Part(lambda m, x: m.attention(x, x, x, need_weights=False)[0])
            part.attention = nn.MultiheadAttention(8, 2, batch_first=True, **options)
            self.check(nn.Sequential(part, nn.Linear(8, 3)), torch.randn(6, 5, 8))
        self.check(nn.Sequential(Part(lambda m, x: torch.cat([
            m.a(x), torch.zeros(1, 3 * len(x), 8).transpose(0, 1).reshape(-1, 3, 8)], 1))),
            torch.randn(6, 5, 8))

    def test_rows_whose_keys_are_all_masked_are_zeros(self):
        part = Part(lambda m, x: m.attention(x, x, x, need_weights=False,
                                             key_padding_mask=x[..., 0] == 0)[0])
        part.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        module = nn.Sequential(part, nn.Linear(8, 3))
        model, x = GPipe(copy.deepcopy(module), [1, 1]), torch.randn(4, 3, 8)
        model(x)
        x[1] = 0
        torch.testing.assert_close(model(x), module(x))

    def test_a_forward_in_inference_mode(self):
        for trained in (False, True):
            with self.subTest(trained=trained):
                module = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
                model, x = GPipe(copy.deepcopy(module), [1, 1], chunks=2), torch.randn(4, 8)
                if trained:
                    model(x).sum().backward()
                with torch.inference_mode():
                    torch.testing.assert_close(model(x * 1), module(x * 1))
                self.check(module, x)
                model(x).sum().backward()
                torch.optim.SGD(model.parameters(), lr=0.1).step()

    def test_examples_whose_first_targets_do_not_count(self):
        x, y = torch.randn(8, 6), torch.tensor([-100] * 4 + [0, 1, 2, 0])
        model = cgpipe.from_torch(nn.Sequential(nn.Linear(6, 3)), (x,), loss=F.cross_entropy,
                                  example_target=y)
        self.assertRegex(model.report(), "^proof: ")

    def test_empty_parts_and_results_of_integers_alone(self):
        for function in (lambda m, x: torch.cat([x[:, :0], m.a(x)], 1),
                         lambda m, x: m.a(x).split([8, 0], 1)[0]):
            self.check(nn.Sequential(nn.Linear(8, 8), Part(function)), torch.randn(4, 8))
        for function in (lambda m, k: k.float() * 2, lambda m, k: F.one_hot(k, 9).float()):
            x = torch.ones(4, 8).long()
            self.assertTrue(torch.equal(GPipe(nn.Sequential(Part(function)), [1])(x),
                                        function(None, x)))

    def test_scripted_layers_are_run_by_pytorch(self):
        module = nn.Sequential(torch.jit.script(nn.Linear(8, 8)), nn.Tanh())
        x = torch.randn(4, 8)
        torch.testing.assert_close(GPipe(module, [1, 1])(x), module(x))

    def test_slopes_outside_of_0_to_1(self):
        for slope in (2.0, -0.5):
            self.check(nn.Sequential(nn.Linear(8, 8), nn.LeakyReLU(slope)), torch.randn(4, 8))

    def test_threads_that_call_during_a_capture_wait(self):
        model, x = GPipe(nn.Sequential(nn.Linear(8, 8), nn.Tanh()), [1, 1]), torch.randn(4, 8)
        found = []

        def call(i):
            time.sleep(0.02 * i)
            try:
                found.append(model(x).shape)
            except Exception as error:
                found.append(error)
        threads = [threading.Thread(target=call, args=(i,)) for i in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(found, [x.shape] * 6)

    def test_a_wide_bound_proves_nothing(self):
        key = "outputs", "output 0"

        def check(spread, far):
            found = proof.Proof()
            ours = types.SimpleNamespace(captured=types.SimpleNamespace(cuts={}))
            comparison = proof._Comparison(None, ours, found)
            comparison.spread[key], comparison.exact[key] = spread, 1e-6
            return comparison._wrong({key: far}), found.unprovable
        for spread, far, wrong, unprovable in (
                (1e-3, 7e-3, [], []), (1e-3, 9e-3, [key], []), (3e-3, 2e-2, [], ["output 0"]),
                (3e-3, 1e-7, [], []), (3e-3, 3e-2, [key], []), (2e-2, 1.0, [], ["output 0"])):
            with self.subTest(spread=spread, far=far):
                self.assertEqual(check(spread, far), (wrong, unprovable))

    def test_code_sees_which_inputs_and_results_require_a_gradient(self):
        asks = Part(lambda m, x: m.a(x) * 2 if x.requires_grad else m.b(x))
        for wants in (False, True):
            x = torch.randn(6, 8, requires_grad=wants)
            self.check(nn.Sequential(asks, nn.Tanh()), x)
            self.check(nn.Sequential(Part(lambda m, x: checkpoint(
                lambda x: torch.cumsum(m.a(x), 1), x, use_reentrant=True) * m.b(x)), nn.Tanh()), x)

        def hooked(m, x):
            y = m.a(x)
            if y.requires_grad:
                y.register_hook(lambda gradient: gradient * 2)
            return m.b(y)
        module = nn.Sequential(nn.Linear(8, 8), Part(hooked), nn.Linear(8, 8))
        module[1].a.register_forward_hook(lambda m, x, y: y + 1)
        self.check(module, torch.randn(6, 8))

    def test_a_proof_notices_what_a_trace_has_missed(self):
        def counted(m, x):
            m.count = getattr(m, "count", 0) + 1
            return m.a(x)

        def hooked(m, x):
            y = m.a(x)
            if y.requires_grad:
                y.register_hook(lambda gradient: gradient * 2)
            return m.b(y)
        found = {"count is set by forward": counted,
                 r"differs from PyTorch's .*, in 1: mul \(test_capture_exact.py":
                     lambda m, x: m.a(x) * random.random(),
                 "under no_grad": lambda m, x: m.a(x) * 2 if torch.is_grad_enabled() else m.a(x),
                 r"1\.a: the gradient of its result differs .*, in 1: mul \(torch_support.py":
                     lambda m, x: m.b(Reverse.apply(m.a(x))),
                 r"\.bias: its gradient differs .*, in .*1\.a: linear": hooked}
        with mock.patch.object(export, "watching",
                               lambda module: contextlib.nullcontext(lambda: None)):
            for text, function in found.items():
                module = nn.Sequential(nn.Linear(8, 8), Part(function))
                with self.subTest(text), self.assertRaisesRegex(CaptureError, text):
                    cgpipe.from_torch(module, (torch.randn(4, 8),), fallback=False)

    def test_a_proof_compares_layer_by_layer(self):
        def far(function):
            layers = [nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.ReLU(inplace=True))
                      for _ in range(8)]
            module = nn.Sequential(*layers, Part(function), nn.Linear(8, 3))
            return cgpipe.from_torch(module, (torch.randn(4, 8),))
        self.assertNotIn("not provable", far(lambda m, x: m.a(x)).report())
        # The proof finds an error of 1e-4 in one layer's gradient, however many layers there are.
        with mock.patch.dict(ops.OPS, {"detach": lambda t, x: x}):
            with self.assertRaisesRegex(CaptureError, "8.b: the gradient of its result differs"):
                far(lambda m, x: m.a(x) + 1e-4 * m.b(x).detach())

    def test_a_mean_that_is_zero_is_proven(self):
        module = nn.Sequential(nn.Conv2d(3, 8, 1), nn.BatchNorm2d(8),
                               nn.Conv2d(8, 8, 1, bias=False),
                               nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(512, 4))
        model = cgpipe.from_torch(module, (torch.randn(4, 3, 8, 8),))
        self.assertNotIn("running_mean", model.report())


if __name__ == "__main__":
    unittest.main()
