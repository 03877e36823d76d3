# SPDX-License-Identifier: Apache-2.0
"""Compare groups of parameters, each with its own learning rate and weight decay, with PyTorch's
param_groups."""

import copy
import unittest

import support  # noqa: F401: skips without NumPy
from torch_support import torch
from torch import nn

import cgpipe
from cgpipe.errors import ArgumentError


def module():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 6), nn.GELU(), nn.LayerNorm(6), nn.Linear(6, 6), nn.GELU(),
                         nn.Linear(6, 3))


def data(seed=2):
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(16, 6, generator=generator),
            torch.randint(0, 3, (16,), generator=generator))


def captured(net, **options):
    x, y = data()
    model = cgpipe.from_torch(net, (x[:4],), loss=nn.CrossEntropyLoss(), example_target=y[:4],
                              verify=False)
    return cgpipe.Pipeline(model, **{"stages": 2, "chunks": 4, "batch": 16, **options})


def groups(net):
    """Return groups in which the head learns faster, and norms and biases do not decay."""
    parameters = dict(net.named_parameters())
    flat = [name for name, p in parameters.items() if p.ndim < 2 and not name.startswith("5.")]
    head = [name for name in parameters if name.startswith("5.")]
    others = [name for name in parameters if name not in flat + head]
    return [{"params": [parameters[name] for name in others]},
            {"params": [parameters[name] for name in head], "lr": 0.05},
            {"params": [parameters[name] for name in flat], "weight_decay": 0.0}]


KINDS = [(torch.optim.SGD, {"momentum": 0.9, "nesterov": True, "lr": 0.01}),
         (torch.optim.Adam, {"betas": (0.8, 0.9), "lr": 0.01}),
         (torch.optim.AdamW, {"eps": 1e-6, "lr": 0.01}),
         (torch.optim.RMSprop, {"alpha": 0.9, "momentum": 0.5, "lr": 0.001})]


class Groups(unittest.TestCase):
    def close(self, got, expected):
        for (name, a), (_, b) in zip(got.named_parameters(), expected.named_parameters()):
            torch.testing.assert_close(a, b, rtol=2e-4, atol=2e-6, msg=lambda m: f"{name}: {m}")

    def steps(self, net, optimizer, steps, scheduler=None):
        for i in steps:
            x, y = data(i)
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(x), y).backward()
            optimizer.step()
            if scheduler:
                scheduler.step()

    def test_an_optimizer_of_torch_with_groups(self):
        for kind, options in KINDS:
            with self.subTest(kind=kind.__name__):
                net, expected = module(), module()
                theirs = kind(groups(expected), weight_decay=0.1, **options)
                given = kind(groups(net), weight_decay=0.1, **options)
                rates = [lambda i: 0.9**i, lambda i: 1.0 / (1 + i), lambda i: float(i % 2)]
                scheduler = torch.optim.lr_scheduler.LambdaLR(theirs, rates)
                with captured(net, optimizer=given) as training:
                    mine = torch.optim.lr_scheduler.LambdaLR(training.optimizer, rates)
                    for i in range(5):
                        training.step(*data(i))
                        mine.step()
                    self.steps(expected, theirs, range(5), scheduler)
                    self.close(net, expected)
                    # In mid-training, exchange the optimizer state with PyTorch in both directions.
                    state = copy.deepcopy(training.optimizer.state_dict())
                    again = copy.deepcopy(expected)
                    other = kind(groups(again), weight_decay=0.1, **options)
                    other.load_state_dict(state)
                    self.assertEqual([g["lr"] for g in other.param_groups],
                                     [g["lr"] for g in theirs.param_groups])
                    training.optimizer.load_state_dict(theirs.state_dict())
                    training.step(*data(7))
                    self.steps(expected, theirs, [7])
                    self.steps(again, other, [7])
                    self.close(net, expected)
                    self.close(again, expected)

    def test_groups_by_pattern(self):
        net, expected = module(), module()
        theirs = torch.optim.AdamW(groups(expected), lr=0.01, weight_decay=0.1)
        mine = cgpipe.AdamW(lr=0.01, weight_decay=0.1, groups=[
            cgpipe.ParameterGroup("5.*", lr=0.05),
            cgpipe.ParameterGroup(["*.bias", "2.*"], weight_decay=0.0)])
        with captured(net, optimizer=mine) as training:
            for i in range(3):
                training.step(*data(i))
            self.steps(expected, theirs, range(3))
            self.close(net, expected)
            found = [(g["lr"], g["weight_decay"], len(g["params"]))
                     for g in training.optimizer.param_groups]
            self.assertEqual(found, [(0.01, 0.1, 2), (0.05, 0.1, 2), (0.01, 0.0, 4)])
            for group in training.optimizer.param_groups:
                group["lr"] *= 0.5
            for group in theirs.param_groups:
                group["lr"] *= 0.5
            training.step(*data(4))
            self.steps(expected, theirs, [4])
            self.close(net, expected)

    def test_a_model_that_is_no_module(self):
        x, y = support.batch(16)
        names = [p.name for p in support.model().parameters]
        first = cgpipe.ParameterGroup([names[0]], lr=0.0, weight_decay=0.0)
        with cgpipe.Pipeline(support.model(), batch=16,
                             optimizer=cgpipe.SGD(lr=0.1, groups=[first])) as training:
            before = training.state_dict()
            training.step(x, y)
            after = training.state_dict()
        self.assertTrue((before[names[0]] == after[names[0]]).all())
        self.assertFalse((before[names[-1]] == after[names[-1]]).all())

    def test_what_the_engine_cannot_do_is_refused(self):
        net = module()
        one = {"params": list(net[0].parameters()), "momentum": 0.5}
        rest = {"params": [p for layer in net[1:] for p in layer.parameters()]}
        used = torch.optim.SGD(net.parameters(), momentum=0.9)
        self.steps(net, used, range(1))
        for given, message in (
                (torch.optim.SGD([rest, one], momentum=0.9), "group 1: momentum 0.9 is expected"),
                (torch.optim.Adam(net.parameters(), amsgrad=True), "amsgrad False is expected"),
                (torch.optim.SGD(net.parameters(), maximize=True), "maximize False is expected"),
                (torch.optim.Adagrad(net.parameters()), "SGD, Adam, AdamW or RMSprop is expected"),
                (torch.optim.SGD(rest["params"]), "0.weight is expected in a group"),
                (torch.optim.SGD([*net.parameters(), nn.Parameter(torch.zeros(2))]),
                 r"group 0: parameters of the module are expected, got another, of shape \[2\]"),
                (used, "one without a state is expected")):
            with self.assertRaisesRegex(ArgumentError, message):
                captured(net, optimizer=given)
        with self.assertRaisesRegex(ArgumentError, "cgpipe's is expected with a model that is not"):
            cgpipe.Pipeline(support.model(), batch=16, optimizer=torch.optim.SGD(net.parameters()))
        for patterns, message in (("head.*", r'matches "head\.\*"'), ("", "pattern of names")):
            given = cgpipe.SGD(lr=0.1, groups=[cgpipe.ParameterGroup(patterns, lr=1.0)])
            with self.assertRaisesRegex(ArgumentError, message):
                captured(net, optimizer=given)

    def test_rates_that_a_plan_has_once_must_agree(self):
        net = module()
        mine = cgpipe.AdamW(lr=0.01, weight_decay=0.1, decay_all=False)
        with captured(net, optimizer=mine) as training:
            self.assertEqual(len(training.optimizer.param_groups), 2)
            training.optimizer.param_groups[1]["lr"] = 0.5
            with self.assertRaisesRegex(ArgumentError, "one learning rate is expected"):
                training.step(*data())


if __name__ == "__main__":
    unittest.main()
