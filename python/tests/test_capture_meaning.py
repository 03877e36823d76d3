# SPDX-License-Identifier: Apache-2.0
"""A captured module has PyTorch's gradients and outputs, or is refused with a message that names
the cause. The modules in this file stop gradients, write through views, cast, have custom backwards
or hooks, branch on the number of samples, or change after their capture."""

import copy
import random
import threading
import types
import unittest
from unittest import mock

from torch_support import HELD, Reverse, detached_write, torch, write_without_gradient
from torch import nn
from torch.nn import functional as F

import cgpipe
from cgpipe.errors import ArgumentError, CgpipeError
from cgpipe.torch import CaptureError, runtime
from cgpipe.torchgpipe import GPipe


class Stop(nn.Module):
    """Call ``function(module, y, x)``, where y is the result of a linear layer on x."""

    def __init__(self, function):
        super().__init__()
        self.a, self.b, self.function = nn.Linear(8, 8), nn.Linear(8, 8), function

    def forward(self, x):
        return self.function(self, self.a(x), x)


def normed():
    """Return a module in eval mode whose batch norm has statistics."""
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(),
                           nn.Linear(36, 2))
    for _ in range(3):
        module(2 * torch.randn(8, 3, 5, 5) + 1)
    return module.eval()


def no_grad(module, y, x):
    with torch.no_grad():
        z = module.a(x) * 2
    return module.b(y) * z


def enabled_again(module, y, x):
    with torch.no_grad():
        z = y * 2
        with torch.enable_grad():
            w = module.b(x)
    return z + w * 3


def write(function):
    def run(module, y, x):
        function(y)
        return y * 1
    return run


def base_of_a_view(module, y, x):
    view = y.view(-1, 2, 4)
    y.add_(1.0)
    return view.reshape(-1, 8)


def slice_write(module, y, x):
    y = y * 1
    y[:, 2:5] = module.b(x)[:, :3]
    y[:, 0] = 0
    return y


RIGHT = {
    "detach": lambda m, y, x: m.b(x) * y.detach(),
    "straight-through": lambda m, y, x: y + (torch.tanh(y) - y).detach(),
    "detached whole": lambda m, y, x: m.b(y.detach()),
    "no_grad": no_grad,
    "enable_grad in no_grad": enabled_again,
    "view": write(lambda y: y.view(-1, 2, 4).mul_(2.0)),
    "unsqueeze": write(lambda y: y.unsqueeze(1).relu_()),
    "transpose": write(lambda y: y.transpose(0, 1).relu_()),
    "view_as": write(lambda y: y.view_as(y).mul_(3)),
    "base": base_of_a_view,
    "slice": slice_write,
    "unused layer": lambda m, y, x: (m.b(y), m.a(x) * 2)[1],
}


def set_attribute(module, y, x):
    module.count = getattr(module, "count", 0) + 1
    return y


LEAF = torch.ones(8, requires_grad=True)

REFUSED = {
    "autograd.Function": (lambda m, y, x: Reverse.apply(y), "Reverse .*of an autograd.Function"),
    "held Function": (lambda m, y, x: HELD(y), "Reverse .*of an autograd.Function"),
    "write through detach": (detached_write, "mul_.*a write without gradient"),
    "write under no_grad": (write_without_gradient, "mul_.*a write without gradient"),
    "attribute": (set_attribute, "count: attributes that forward sets"),
    "int": (lambda m, y, x: y.int().float(), "a cast to float32"),
    "bool": (lambda m, y, x: y.bool().float(), "a cast to float32"),
    "half": (lambda m, y, x: y.half().float(), "a cast to float32"),
    "bfloat16": (lambda m, y, x: y.bfloat16().float(), "a cast to float32"),
    "noise": (lambda m, y, x: y + torch.randn(8), "a random tensor"),
    "half of the samples": (lambda m, y, x: y[:y.shape[0] // 2], "slice within a sample"),
    "hook of a tensor": (lambda m, y, x: (y.register_hook(lambda g: g * 2), y)[1], "register_hook"),
    "mode of gradients": (lambda m, y, x: y * 2 if torch.is_grad_enabled() else y,
                          "is_grad_enabled"),
    "dropout in eval": (lambda m, y, x: F.dropout(y, 0.5, training=True), None),
    "a leaf": (lambda m, y, x: y * LEAF, "requires a gradient and is no parameter"),
    "Python's random numbers": (lambda m, y, x: y * random.random(), "random numbers"),
    "write to the input": (lambda m, y, x: (x.add_(1), y)[1], "writes to its input"),
}


class Meaning(unittest.TestCase):
    def check(self, module, x, **options):
        eager, taken = copy.deepcopy(module), GPipe(nn.Sequential(copy.deepcopy(module)), [1],
                                                    **options)
        inputs = [x.clone().requires_grad_() for _ in range(2)]
        outputs = [eager(inputs[0]), taken(inputs[1])]
        torch.testing.assert_close(outputs[1], outputs[0], rtol=1e-5, atol=1e-5)
        for y in outputs:
            y.pow(2).sum().backward()
        pairs = list(zip(eager.named_parameters(), taken[0].parameters()))
        for (name, a), b in [*pairs, (("input", inputs[0]), inputs[1])]:
            if a.grad is None:
                self.assertIsNone(b.grad, name)
            else:
                torch.testing.assert_close(b.grad, a.grad, rtol=1e-4, atol=1e-4, msg=name)

    def test_gradients_stop_where_the_module_stops_them_and_writes_reach_their_tensor(self):
        for name, function in RIGHT.items():
            with self.subTest(name):
                torch.manual_seed(0)
                self.check(Stop(function), torch.randn(6, 8), chunks=2)

    def test_what_a_graph_cannot_say_is_refused_by_name(self):
        for name, (function, text) in REFUSED.items():
            model = GPipe(nn.Sequential(Stop(function)), [1], fallback=False)
            if name == "dropout in eval":
                model, text = model.eval(), "dropout in the mode"
            with self.subTest(name), self.assertRaisesRegex(CaptureError, text):
                model(torch.randn(6, 8))

    def test_a_layer_with_two_names_stays_a_layer(self):
        torch.manual_seed(0)
        layer, x = nn.Linear(8, 8), torch.randn(6, 8)
        shared = nn.Sequential(nn.Sequential(layer, nn.ReLU(), layer))
        parameter = layer.weight
        model = GPipe(shared, [1])
        model(x).sum().backward()
        self.assertIs(layer.weight, parameter)
        self.assertIsNotNone(parameter.grad)

    def test_hooks_are_refused_also_later(self):
        for name in ("register_forward_hook", "register_forward_pre_hook",
                     "register_full_backward_hook", "register_full_backward_pre_hook"):
            module = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
            model = GPipe(module, [2], fallback=False)
            model(torch.randn(4, 8))
            getattr(module[1], name)(lambda *_: None)
            with self.subTest(name), self.assertRaisesRegex(CaptureError, "1: .*hooks are not"):
                model(torch.randn(4, 8))

    def test_embeddings_with_options_and_large_integers_are_refused(self):
        ids = torch.tensor([[1, 1, 2]] * 3)
        with self.assertRaisesRegex(CaptureError, "scale_grad_by_freq"):
            GPipe(nn.Sequential(nn.Embedding(10, 4, scale_grad_by_freq=True)), [1],
                  fallback=False)(ids)
        model = GPipe(nn.Sequential(nn.Embedding(10, 4)), [1])
        model(ids)
        with self.assertRaisesRegex(ArgumentError, "32 bits are expected, got 429496729"):
            model(ids + 2**32)


class Branch(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(8, 8)

    def forward(self, x):
        return self.a(x) * 2 if x.shape[0] >= 4 else self.a(x)


class Masked(nn.Module):
    def __init__(self, *shape):
        super().__init__()
        shape = shape or (8,)
        self.a = nn.Linear(shape[-1], shape[-1])
        self.register_buffer("mask", torch.ones(shape))
        self.factor = 2.0

    def forward(self, x):
        return self.a(x) * self.mask * self.factor


class Configured(nn.Module):
    """A module whose forward reads settings from objects, lists, a function attribute and the
    class."""

    power = 1.0

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(8, 8)
        self.config = types.SimpleNamespace(scale=2.0, inner=types.SimpleNamespace(shift=1.0))
        self.factors, self.tensors, self.names = [1.0, 3.0], [torch.ones(8)], {"a"}
        self.function = torch.tanh

    def forward(self, x):
        y = self.function(self.a(x)) * self.config.scale * self.factors[1]
        return (y + self.tensors[0] + self.config.inner.shift) * self.power


class Text(str):
    """A string whose comparison raises an exception."""

    __hash__ = str.__hash__

    def __eq__(self, other):
        raise RuntimeError("not comparable")


class Changes(unittest.TestCase):
    def test_parameters_in_lists_change_in_a_step(self):
        x, module = torch.randn(6, 8), nn.Sequential(Stop(lambda m, y, x: y))
        module[0].weights = [module[0].a.weight]
        pipeline = cgpipe.Pipeline(cgpipe.from_torch(module, (x,)), batch=6, external_loss=True)
        for _ in range(2):
            pipeline.forward(x)
            pipeline.backward(torch.ones(6, 8))
            with torch.no_grad():
                module[0].a.weight.mul_(2)

    def test_settings_need_not_compare(self):
        x, module = torch.randn(6, 8), Stop(lambda m, y, x: y * (len(m.text) + len(m.texts[0])))
        module.text, module.texts = Text("a"), [Text("b")]
        pipeline = cgpipe.Pipeline(cgpipe.from_torch(module, (x,), verify=False), batch=6,
                                   external_loss=True)

        def step():
            pipeline.forward(x)
            pipeline.backward(torch.ones(6, 8))
        module.text, module.texts[0] = Text("a"), Text("b")
        step()
        module.text = Text("ab")
        with self.assertRaisesRegex(ArgumentError, "^text has changed since"):
            step()
        module.text, module.texts[0] = Text("a"), Text("bc")
        with self.assertRaisesRegex(ArgumentError, "^texts has changed since"):
            step()

    def test_a_module_that_stays_as_it_is_is_captured_once(self):
        x = torch.randn(4, 80, 80)
        model = GPipe(nn.Sequential(Masked(80, 80)), [1])  # the mask's version counter is compared
        pipeline = cgpipe.Pipeline(cgpipe.from_torch(Masked(80, 80), (x,)), batch=4,
                                   external_loss=True)
        with mock.patch.object(runtime, "capture", wraps=runtime.capture) as capture:
            for _ in range(3):
                model(x)
                pipeline.forward(x)
                pipeline.backward(x)
        self.assertEqual(capture.call_count, 1)

    def test_a_single_sample_is_refused_where_pytorch_gives_it_another_shape(self):
        squeezed = nn.Sequential(nn.Linear(8, 1), nn.Flatten(0))
        GPipe(squeezed, [2])(torch.randn(1, 8))

        class Squeeze(nn.Module):
            def forward(self, x):
                return x.squeeze()
        for module in (nn.Sequential(nn.Linear(8, 1), Squeeze()), nn.Sequential(nn.BatchNorm1d(8))):
            model = GPipe(module, [len(module)])
            model(torch.randn(4, 8))
            with self.assertRaisesRegex(CaptureError, "1 of 1 samples; at least 2 samples are"):
                model(torch.randn(1, 8))

    def test_changed_settings_count_in_the_next_step(self):
        torch.manual_seed(0)
        x, module = torch.randn(6, 8), Configured()
        model = GPipe(nn.Sequential(copy.deepcopy(module)), [1])

        def change(name):
            for target in (module, model[0]):
                if name == "object":
                    target.config.scale = 5.0
                elif name == "list":
                    target.factors[1] = 7.0
                elif name == "function":
                    target.function = torch.sigmoid
                elif name == "submodule":
                    target.a = nn.Linear(8, 8)
                    nn.init.constant_(target.a.weight, 0.5)
                    nn.init.zeros_(target.a.bias)
                elif name == "tensor in a list":
                    target.tensors[0].fill_(4.0)
                elif name == "object in an object":
                    target.config.inner.shift = 3.0
                elif name == "parameter":
                    target.a.bias = nn.Parameter(torch.full((8,), 0.25))
                elif name == "class":
                    Configured.power = 2.0
        for name in ("nothing", "object", "list", "function", "submodule", "tensor in a list",
                     "object in an object", "parameter", "class"):
            change(name)
            with self.subTest(name):
                torch.testing.assert_close(model(x), module(x), rtol=1e-5, atol=1e-5)

    def test_an_output_may_be_written_to_in_place(self):
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(8, 8))
        model, x = GPipe(copy.deepcopy(module), [1]), torch.randn(4, 8)
        for taken in (module, model):
            taken(x).mul_(2).relu_().sum().backward()
        torch.testing.assert_close(model[0].weight.grad, module[0].weight.grad)

    def test_a_call_under_autocast_is_refused(self):
        model = GPipe(nn.Sequential(nn.Linear(8, 8)), [1])
        with torch.autocast("cpu", torch.bfloat16), \
                self.assertRaisesRegex(RuntimeError, "autocast"):
            model(torch.randn(4, 8))

    def test_a_branch_on_the_number_of_samples_is_taken_for_each_number(self):
        torch.manual_seed(0)
        module = Branch()
        model = GPipe(nn.Sequential(copy.deepcopy(module)), [1])
        for samples in (6, 3, 4, 1, 5):
            x = torch.randn(samples, 8)
            torch.testing.assert_close(model(x), module(x))
        with self.assertRaisesRegex(CaptureError, "a micro-batch has 3 of 7 samples"):
            GPipe(nn.Sequential(module), [1], chunks=2)(torch.randn(7, 8))

    def test_changed_modes_rates_buffers_and_layers_count_in_the_next_step(self):
        torch.manual_seed(0)
        x = torch.randn(6, 8)
        module = nn.Sequential(Masked(), nn.Dropout(0.0), nn.BatchNorm1d(8))
        model = GPipe(copy.deepcopy(module), [3])

        def same():
            torch.testing.assert_close(model(x), module(x), rtol=1e-5, atol=1e-5)
        same()
        for target in (module, model):
            target[0].mask[:4] = 0
        same()
        for target in (module, model):
            target[0].factor = 3.0
        same()
        zeros = GPipe(nn.Sequential(nn.Identity(), nn.Dropout(0.0)), [2])
        zeros(x)
        zeros[1].p = 0.9
        self.assertGreater(int((zeros(x) == 0).sum()), 20)
        zeros[1].eval()
        self.assertEqual(int((zeros(x) == 0).sum()), 0)

    def test_a_pipeline_refuses_a_module_that_has_changed(self):
        x, y = torch.randn(8, 8), torch.randint(0, 8, (8,))
        module = Masked()
        model = cgpipe.from_torch(module, (x,), loss=nn.CrossEntropyLoss(), example_target=y)
        pipeline = cgpipe.Pipeline(model, batch=8, optimizer=cgpipe.SGD(lr=0.1))
        pipeline.step(x, y)
        module.factor = 3.0
        with self.assertRaisesRegex(ArgumentError, "factor has changed since"):
            pipeline.step(x, y)
        module.factor = 2.0
        module.mask[0] = 0
        with self.assertRaisesRegex(ArgumentError, "mask has changed since"):
            pipeline.step(x, y)
        module.mask[0] = 1
        module.a.weight.requires_grad_(False)
        with self.assertRaisesRegex(ArgumentError, "a.weight.requires_grad has changed since"):
            pipeline.step(x, y)
        module.a.weight.requires_grad_(True)
        pipeline.step(x, y)
        mask, module.mask = module.mask, module.mask.clone()
        with self.assertRaisesRegex(ArgumentError, "^mask has changed since"):
            pipeline.step(x, y)
        module.mask = mask
        module.a.weight.data = module.a.weight.data.clone()
        with self.assertRaisesRegex(ArgumentError, "a.weight has other memory"):
            pipeline.step(x, y)

    def test_a_pipeline_keeps_frozen_parameters(self):
        torch.manual_seed(0)
        x, y = torch.randn(8, 8), torch.randint(0, 8, (8,))
        module = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8))
        module[0].requires_grad_(False)
        module[1].weight.requires_grad_(False)
        other = copy.deepcopy(module)
        model = cgpipe.from_torch(module, (x,), loss=nn.CrossEntropyLoss(), example_target=y)
        self.assertEqual([p.name for p in model.parameters if p.frozen],
                         ["0.weight", "0.bias", "1.weight"])
        pipeline = cgpipe.Pipeline(model, stages=3, batch=8, chunks=4,
                                   optimizer=cgpipe.AdamW(lr=0.1))
        optimizer = torch.optim.AdamW([p for p in other.parameters() if p.requires_grad], lr=0.1)
        for _ in range(3):
            pipeline.step(x, y)
            optimizer.zero_grad()
            F.cross_entropy(other(x), y).backward()
            optimizer.step()
        for (name, p), q in zip(module.named_parameters(), other.parameters()):
            if p.requires_grad:
                torch.testing.assert_close(p, q, rtol=1e-4, atol=1e-5)
            else:
                self.assertTrue(torch.equal(p, q), name)
                self.assertIsNone(p.grad, name)
        module[0].bias.requires_grad_(True)
        with self.assertRaisesRegex(ArgumentError, "0.bias.requires_grad has changed since"):
            pipeline.step(x, y)
        with self.assertRaisesRegex(ArgumentError, "0.bias.requires_grad has changed since"):
            cgpipe.Pipeline(model, batch=8, optimizer=cgpipe.SGD(lr=0.1))

    def test_a_pipeline_refuses_hooks(self):
        x, y = torch.randn(8, 8), torch.randint(0, 8, (8,))
        hooked = nn.Sequential(nn.Linear(8, 8))
        hooked[0].weight.register_hook(lambda gradient: gradient * 0)
        model = cgpipe.from_torch(hooked, (x,), loss=nn.CrossEntropyLoss(), example_target=y)
        with self.assertRaisesRegex(ArgumentError, "0.weight has hooks"):
            cgpipe.Pipeline(model, batch=8, optimizer=cgpipe.SGD(lr=0.1))

    def test_batch_norms_in_eval_mode_have_gradients(self):
        module, x = normed(), torch.randn(6, 3, 5, 5, requires_grad=True)
        model = GPipe(copy.deepcopy(module), [2, 3], chunks=2).eval()
        weights = torch.randn(6, 2)
        for _ in range(3):
            found = []
            for m in (model, module):
                x.grad = None
                m.zero_grad()
                y = m(x)
                for _ in range(2):
                    (y * weights).sum().backward(retain_graph=True)
                found.append([y, x.grad, *(p.grad for p in m.parameters())])
            torch.testing.assert_close(*found)
            for m in (model, module):  # the statistics are constants of the capture
                next(b for name, b in m.named_buffers() if name.endswith("mean")).add_(0.5)
        found = model(x)
        model.train()
        with self.assertRaisesRegex(CgpipeError, "its mode has changed since this forward"):
            found.sum().backward()

    def test_a_pipeline_trains_a_module_in_eval_mode(self):
        module, loss = normed(), nn.MSELoss()
        x, y = torch.randn(6, 3, 5, 5), torch.randn(6, 2)
        own = copy.deepcopy(module)
        model = cgpipe.from_torch(own, (x,), loss=loss, example_target=y)
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        with cgpipe.Pipeline(model, batch=6, chunks=2, stages=2,
                             optimizer=cgpipe.SGD(lr=0.1)) as pipeline:
            for _ in range(3):
                optimizer.zero_grad()
                expected = loss(module(x), y)
                expected.backward()
                optimizer.step()
                self.assertAlmostEqual(pipeline.step(x, y), expected.item(), places=5)
            torch.testing.assert_close(torch.as_tensor(pipeline.predict(x)), module(x))
            torch.testing.assert_close(own.state_dict(), module.state_dict())

    def test_captures_in_threads_wait_for_each_other(self):
        failures = []

        def run():
            try:
                model = GPipe(nn.Sequential(nn.Linear(8, 8)), [1])
                model(torch.randn(4, 8)).sum().backward()
            except Exception as error:
                failures.append(repr(error))
        threads = [threading.Thread(target=run) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        run()
        self.assertEqual(failures, [])


if __name__ == "__main__":
    unittest.main()
