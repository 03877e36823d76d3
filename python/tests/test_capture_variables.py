# SPDX-License-Identifier: Apache-2.0
"""Test variables that a module's forward or a loss reads from outside of the module. After a
change, the next step uses the new value, or is refused with a message that names the variable."""

import argparse
import contextlib
import copy
import functools
import re
import types
import unittest
from unittest import mock

from torch_support import torch
from torch import nn
from torch.nn import functional as F

import cgpipe
from cgpipe.errors import ArgumentError
from cgpipe.torch import runtime, state
from cgpipe.torchgpipe import GPipe

with torch.inference_mode():
    CONSTANT = torch.ones(8)
SCALE, UNREAD, POWERS = 2.0, 1.0, {"first": 1.0}
COUNTS, CACHE, WEIGHT, SIZES, LOG = {"n": 0}, {}, torch.ones(8), [1.0, 2.0], []
SETTINGS = argparse.Namespace(scale=2.0, calls=0, inner=types.SimpleNamespace(sizes=[1.0]))


def times_scale(y):
    return y * SCALE


def scaled(function):
    """Decorate a function: multiply its result by SCALE."""
    @functools.wraps(function)
    def call(*args):
        return function(*args) * SCALE
    return call


class Base(nn.Module):
    """A base class; each subclass reads the global SCALE in another way."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(8, 8)
        self.bound = self.method

    def method(self, y):
        return y * SCALE

    @property
    def scale(self):
        return SCALE

    @classmethod
    def of_class(cls, y):
        return y * SCALE

    def factor(self):
        return 1.0

    def shared(self, y):
        return y * self.factor()

    def forward(self, x):
        return self.a(x) * SCALE


class Super(Base):
    def forward(self, x):
        return super().forward(x)


class Decorated(Base):
    @torch.no_grad()
    def factor(self):
        return SCALE

    def forward(self, x):
        return self.shared(self.a(x))


class OwnDecorator(Base):
    forward = scaled(lambda self, x: self.a(x))


class Property(Base):
    def forward(self, x):
        return self.a(x) * self.scale


class ClassMethod(Base):
    def forward(self, x):
        return self.of_class(self.a(x))


class Bound(Base):
    def forward(self, x):
        return self.bound(self.a(x))


class Factor(Base):
    def factor(self):
        return SCALE

    def forward(self, x):
        return self.shared(self.a(x))


class Unscaled(Base):
    """A module that shares a function with Factor. In this module the function reads no
    variable."""

    def forward(self, x):
        return self.shared(self.a(x))


class Stop(nn.Module):
    """Call ``function(module, y, x)``, where y is the result of a linear layer on x."""

    def __init__(self, function):
        super().__init__()
        self.a, self.function = nn.Linear(8, 8), function

    def forward(self, x):
        return self.function(self, self.a(x), x)


class Named:
    """A class whose attributes are settings."""

    scale = 2.0


class Ancestor(nn.Module):
    factor = 1.0

    def forward(self, x):
        return x * self.factor


class Derived(Ancestor):
    """A module that reads an attribute of its base class."""


class Scaled:
    """A callable object that also has a loss as a method."""

    def __init__(self):
        self.factor = 1.0

    def __call__(self, module, y, x):
        return y * self.factor

    def loss(self, y, target):
        return self.factor * F.mse_loss(y, target)


class Slots:
    """An object with __slots__ and no __dict__."""

    __slots__ = ("factor",)

    def __init__(self):
        self.factor = 1.0


@contextlib.contextmanager
def changed(container, key, value):
    """Set an item of a container; restore the old value at the end of the block."""
    before, container[key] = container[key], value
    try:
        yield
    finally:
        container[key] = before


class Variables(unittest.TestCase):
    def test_changed_variables_count_in_the_next_step(self):
        torch.manual_seed(0)
        factor, calls, x, y = 3.0, 0, torch.randn(6, 8), torch.randint(0, 8, (6,))

        def forward(module, y, x):
            nonlocal calls
            calls += 1  # variables that forward assigns are not compared
            return times_scale(y) * factor * POWERS["first"]
        module = Stop(forward)
        model = GPipe(nn.Sequential(copy.deepcopy(module)), [1])
        taken = cgpipe.from_torch(copy.deepcopy(module), (x,), loss=F.cross_entropy,
                                  example_target=y)
        pipeline = cgpipe.Pipeline(taken, batch=6)

        def check(name):
            with self.subTest(name):
                torch.testing.assert_close(model(x), module(x), rtol=1e-5, atol=1e-5)
                with self.assertRaisesRegex(ArgumentError, f"^{name} has changed since"):
                    pipeline.step(x, y)
        torch.testing.assert_close(model(x), module(x), rtol=1e-5, atol=1e-5)
        pipeline.step(x, y)
        with mock.patch(f"{__name__}.SCALE", 5.0):
            check("the global SCALE")
        with mock.patch.dict(POWERS, first=7.0):
            check("the global POWERS")
        pipeline.step(x, y)
        factor = 4.0
        check("the variable factor")
        with mock.patch(f"{__name__}.UNREAD", 2.0):
            torch.testing.assert_close(model(x), module(x), rtol=1e-5, atol=1e-5)

    def test_tensors_outside_of_the_module_are_compared_by_value(self):
        x = torch.randn(6, 8)
        module = Stop(lambda m, y, x: y * WEIGHT + CONSTANT)
        model = GPipe(nn.Sequential(module), [1])
        with mock.patch.object(runtime, "capture", wraps=runtime.capture) as capture:
            torch.testing.assert_close(model(x), module(x))
            with mock.patch(f"{__name__}.WEIGHT", WEIGHT.clone()):
                model(x)
            self.assertEqual(capture.call_count, 1)
            for write in (lambda: WEIGHT.data.fill_(3), lambda: WEIGHT.numpy().fill(5)):
                write()
                torch.testing.assert_close(model(x), module(x))
        WEIGHT.fill_(1)

    def test_variables_of_all_methods_are_found(self):
        torch.manual_seed(0)
        x = torch.randn(6, 8)
        for classes in ((Super,), (Decorated,), (OwnDecorator,), (Property,), (ClassMethod,),
                        (Bound,), (Factor, Unscaled), (Unscaled, Factor)):
            module = nn.Sequential(*[cls() for cls in classes])
            pipeline = cgpipe.Pipeline(cgpipe.from_torch(module, (x,), verify=False), batch=6,
                                       external_loss=True)
            with self.subTest(classes), mock.patch(f"{__name__}.SCALE", 5.0), \
                    self.assertRaisesRegex(ArgumentError, "^the global SCALE has changed since"):
                pipeline.forward(x)

    def test_what_forward_writes_to_is_not_compared(self):
        def counted(m, y, x):
            COUNTS["n"] += 1
            return y * POWERS["first"]

        def counted_elsewhere(m, y, x):
            counts = COUNTS
            counts["n"] = counts["n"] + 1
            return y * POWERS["first"]

        def cached(m, y, x):
            CACHE.setdefault(m.training, 1)
            y[:, 0] = POWERS["first"]
            return y

        def appended(m, y, x):
            LOG.append(len(LOG))
            return y * POWERS["first"]

        def counted_in_an_object(m, y, x):
            SETTINGS.calls += 1
            return y * POWERS["first"]

        def counted_in_an_object_elsewhere(m, y, x):
            settings = SETTINGS
            settings.calls += SETTINGS.calls
            return y * POWERS["first"]
        x = torch.randn(6, 8)
        for function in (counted, counted_elsewhere, cached, appended, counted_in_an_object,
                         counted_in_an_object_elsewhere):
            module = Stop(lambda m, y, x, function=function: function(m, y, x))
            module.function = function
            model = GPipe(nn.Sequential(module), [1])
            pipeline = cgpipe.Pipeline(cgpipe.from_torch(copy.deepcopy(module), (x,)), batch=6,
                                       external_loss=True)
            with self.subTest(function.__name__), \
                    mock.patch.object(runtime, "capture", wraps=runtime.capture) as capture:
                for _ in range(3):
                    model(x)
                    pipeline.forward(x)
                    pipeline.backward(torch.ones(6, 8))
                    module(x)
                self.assertEqual(capture.call_count, 1)
                with mock.patch.dict(POWERS, first=7.0):
                    torch.testing.assert_close(model(x), module(x), rtol=1e-5, atol=1e-5)
                    with self.assertRaisesRegex(ArgumentError, "^the global POWERS has changed"):
                        pipeline.forward(x)

    def test_attributes_lists_and_fixed_arguments_are_compared(self):
        torch.manual_seed(0)
        x, smoothing = torch.randn(6, 8), [0.5]
        fixed = functools.partial(lambda y, factor: y * factor, factor=2.0)
        changes = {
            "the global SETTINGS.scale": (lambda y: y * SETTINGS.scale,
                                          mock.patch.object(SETTINGS, "scale", 5.0)),
            "the global SETTINGS.inner.sizes": (
                lambda y: y * SETTINGS.inner.sizes[0],
                mock.patch.object(SETTINGS.inner, "sizes", [3.0])),
            "the global Named.scale": (lambda y: y * Named.scale,
                                       mock.patch.object(Named, "scale", 5.0)),
            "the global SIZES": (lambda y: y * SIZES[1], mock.patch(f"{__name__}.SIZES", [1, 7])),
            "the variable smoothing": (lambda y: y * smoothing[0], changed(smoothing, 0, 0.25)),
            "the argument factor of functools.partial()": (
                lambda y: fixed(y), changed(fixed.keywords, "factor", 3.0))}
        for name, (function, change) in changes.items():
            module = nn.Sequential(Stop(lambda m, y, x, call=function: call(y)))
            module[0].call = function
            model = GPipe(copy.deepcopy(module), [1])
            pipeline = cgpipe.Pipeline(cgpipe.from_torch(copy.deepcopy(module), (x,)), batch=6,
                                       external_loss=True)
            with self.subTest(name):
                for _ in range(2):
                    torch.testing.assert_close(model(x), module(x))
                    pipeline.forward(x)
                    pipeline.backward(torch.ones(6, 8))
                with change, self.assertRaisesRegex(ArgumentError, f"^{re.escape(name)} has chan"):
                    torch.testing.assert_close(model(x), module(x))
                    pipeline.forward(x)

    def test_default_values_and_local_names_are_compared(self):
        torch.manual_seed(0)
        x, factors = torch.randn(6, 8), [2.0]
        settings = types.SimpleNamespace(scale=2.0, inner=types.SimpleNamespace(scale=2.0))

        def number(y, factor=2.0):
            return y * factor

        def container(y, *, factors=factors):
            return y * factors[0]

        def attribute(y, settings=settings):
            return y * settings.scale

        def alias(y):
            local = SETTINGS
            inner = local.inner
            return y * inner.sizes[0] * local.scale
        fixed = functools.partial(lambda y, other: y * other.inner.scale, other=settings)
        changes = {
            "the default value factor": (number, lambda: mock.patch.object(
                number, "__defaults__", (3.0,))),
            "the default value factors": (container, lambda: changed(factors, 0, 3.0)),
            "the default value settings.scale": (
                attribute, lambda: mock.patch.object(settings, "scale", 3.0)),
            "the global SETTINGS.inner.sizes": (
                alias, lambda: mock.patch.object(SETTINGS.inner, "sizes", [3.0])),
            "the global SETTINGS.scale": (alias, lambda: mock.patch.object(SETTINGS, "scale", 3.0)),
            "the argument other.inner.scale of functools.partial()": (
                lambda y: fixed(y), lambda: mock.patch.object(settings.inner, "scale", 3.0))}
        for name, (function, change) in changes.items():
            module = nn.Sequential(Stop(lambda m, y, x, call=function: call(y)))
            module[0].call = function
            model = GPipe(copy.deepcopy(module), [1])
            pipeline = cgpipe.Pipeline(cgpipe.from_torch(copy.deepcopy(module), (x,)), batch=6,
                                       external_loss=True)
            with self.subTest(name):
                torch.testing.assert_close(model(x), module(x))
                with change():
                    torch.testing.assert_close(model(x), module(x))
                    with self.assertRaisesRegex(ArgumentError, f"^{re.escape(name)} has changed"):
                        pipeline.forward(x)

    def test_settings_in_other_objects_are_compared(self):
        torch.manual_seed(0)
        x, nested = torch.randn(6, 8), {"m": {"k": 1.0}}
        slots, partial = Slots(), functools.partial(F.leaky_relu, negative_slope=0.1)
        cases = {
            "base class": (Derived(), lambda: mock.patch.object(Ancestor, "factor", 3.0)),
            "callable": (Stop(Scaled()), lambda: mock.patch.object(
                cases["callable"][0].function, "factor", 3.0)),
            "slots": (Stop(lambda m, y, x: y * m.settings.factor),
                      lambda: mock.patch.object(slots, "factor", 3.0)),
            "partial": (Stop(lambda m, y, x: m.call(y)),
                        lambda: changed(partial.keywords, "negative_slope", 0.9)),
            "module in a list": (Stop(lambda m, y, x: m.hidden[0](y)), lambda: mock.patch.object(
                cases["module in a list"][0].hidden[0], "factor", 3.0)),
            "nested": (Stop(lambda m, y, x: y * nested["m"]["k"]),
                       lambda: changed(nested["m"], "k", 3.0))}
        cases["slots"][0].settings, cases["partial"][0].call = slots, partial
        cases["module in a list"][0].hidden = [Derived()]
        for name, (layer, change) in cases.items():
            module = nn.Sequential(layer, nn.Linear(8, 8))
            model = GPipe(module, [1, 1])
            with self.subTest(name):
                before = model(x)
                with change():
                    torch.testing.assert_close(model(x), module(x), rtol=1e-4, atol=1e-5)
                    self.assertFalse(torch.allclose(model(x), before))

    def test_many_objects_are_told_apart(self):
        many = [Scaled() for _ in range(500)]
        for i, scaled in enumerate(many):
            vars(scaled)["factor"] = float(i)
        memo = state._Memo()
        found = [state._frozen(scaled, memo) for scaled in many]
        self.assertEqual(len({repr(settings) for _, settings in found}), 500)

    def test_the_object_of_a_method_as_a_loss_is_compared(self):
        x, scaled = torch.randn(6, 8), Scaled()
        model = cgpipe.from_torch(nn.Sequential(nn.Linear(8, 8)), (x,), loss=scaled.loss,
                                  example_target=x)
        pipeline = cgpipe.Pipeline(model, batch=6)
        pipeline.step(x, x)
        scaled.factor = 3.0
        with self.assertRaisesRegex(ArgumentError, "loss.factor has changed since"):
            pipeline.step(x, x)

    def test_a_loss_that_has_changed_is_refused(self):
        class Smoothed(nn.Module):
            def __init__(self):
                super().__init__()
                self.smoothing = 0.1

            def forward(self, y, target):
                return F.cross_entropy(y, target, label_smoothing=self.smoothing)
        smoothed, x, y = Smoothed(), torch.randn(6, 8), torch.randint(0, 8, (6,))
        fixed = functools.partial(F.cross_entropy, label_smoothing=0.1)
        changes = {
            "the global SCALE": (lambda y, t: F.cross_entropy(y, t) * SCALE,
                                 mock.patch(f"{__name__}.SCALE", 5.0)),
            "the global WEIGHT": (lambda y, t: F.cross_entropy(y, t, weight=WEIGHT),
                                  mock.patch(f"{__name__}.WEIGHT", 5 * torch.ones(8))),
            "the argument label_smoothing of functools.partial()": (
                fixed, changed(fixed.keywords, "label_smoothing", 0.5)),
            "loss.smoothing": (smoothed, mock.patch.object(smoothed, "smoothing", 0.5))}
        for name, (loss, change) in changes.items():
            model = cgpipe.from_torch(nn.Linear(8, 8), (x,), loss=loss, example_target=y)
            pipeline = cgpipe.Pipeline(model, batch=6)
            pipeline.step(x, y)
            with self.subTest(name):
                with change, self.assertRaisesRegex(ArgumentError, f"^{re.escape(name)} has chan"):
                    pipeline.step(x, y)
                pipeline.step(x, y)


if __name__ == "__main__":
    unittest.main()
