# SPDX-License-Identifier: Apache-2.0
"""Compare typical training loops with PyTorch: accumulation, clipping, optimizer states, learning
rate schedulers."""

import copy
import tempfile
import unittest
import warnings

import support  # noqa: F401: skips without NumPy
from torch_support import torch
from torch import nn

import cgpipe
from cgpipe.torch import CaptureError
from cgpipe.torchgpipe import GPipe


def module(tied=False):
    torch.manual_seed(1)
    found = nn.Sequential(nn.Linear(6, 6), nn.GELU(), nn.Linear(6, 6), nn.GELU(), nn.Linear(6, 3))
    if tied:
        found[2].weight = found[0].weight
    return found


def data(samples=16, seed=2):
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(samples, 6, generator=generator),
            torch.randint(0, 3, (samples,), generator=generator))


def convolutions():
    torch.manual_seed(3)
    return nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.ReLU(),
                         nn.Flatten(), nn.Linear(4 * 16, 3))


def images(samples, seed=2):
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(samples, 3, 6, 6, generator=generator),
            torch.randint(0, 3, (samples,), generator=generator))


def steps_of_torch(net, optimizer, seed):
    x, y = images(16, seed)
    optimizer.zero_grad()
    nn.functional.cross_entropy(net(x), y).backward()
    optimizer.step()


def captured(net, example=None, **options):
    x, y = example or data(4)
    model = cgpipe.from_torch(net, (x,), loss=nn.CrossEntropyLoss(), example_target=y)
    return cgpipe.Pipeline(model, **{"stages": 2, "chunks": 4, "batch": 16, **options})


class Beside(unittest.TestCase):
    def close(self, got, expected):
        for (name, a), (_, b) in zip(got.named_parameters(), expected.named_parameters()):
            torch.testing.assert_close(a, b, rtol=2e-5, atol=1e-6, msg=name)

    def test_accumulation_and_clipping(self):
        for tied in (False, True):
            net = module(tied)
            expected = copy.deepcopy(net)
            optimizer = torch.optim.SGD(expected.parameters(), lr=0.5, momentum=0.9)
            x, y = data()
            with captured(net, optimizer=cgpipe.SGD(lr=0.5, momentum=0.9)) as training:
                for _ in range(3):
                    for part in (slice(0, 5), slice(5, 16)):
                        loss = nn.functional.cross_entropy(expected(x[part]), y[part])
                        loss.backward()
                        self.assertAlmostEqual(training.step(x[part], y[part], update=False),
                                               loss.item(), places=5)
                        for a, b in zip(net.parameters(), expected.parameters()):
                            torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-6)
                    norm = nn.utils.clip_grad_norm_(expected.parameters(), 0.1)
                    self.assertAlmostEqual(training.clip_grad_norm_(0.1), norm.item(), places=5)
                    optimizer.step()
                    optimizer.zero_grad()
                    training.update()
                    self.close(net, expected)
                training.step(x, y, update=False)
                training.zero_grad()
                training.step(x[:5], y[:5])
                nn.functional.cross_entropy(expected(x[:5]), y[:5]).backward()
                optimizer.step()
                self.close(net, expected)

    def test_accumulation_with_a_loss_of_the_caller(self):
        net = module(tied=True)
        expected = copy.deepcopy(net)
        x, y = data()
        model = cgpipe.from_torch(net, (x,))
        with cgpipe.Pipeline(model, stages=2, chunks=4, batch=16, external_loss=True) as training:
            for part in (slice(0, 5), slice(5, 16)):
                nn.functional.cross_entropy(expected(x[part]), y[part]).backward()
                output = training.forward(x[part]).requires_grad_()
                nn.functional.cross_entropy(output, y[part]).backward()
                training.backward(output.grad)
                for a, b in zip(net.parameters(), expected.parameters()):
                    torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-6)

    def test_a_run_continues_in_pytorch_and_back(self):
        for mine, theirs, options in (
                (cgpipe.SGD, torch.optim.SGD, {"momentum": 0.9, "weight_decay": 0.01}),
                (cgpipe.SGD, torch.optim.SGD, {}),
                (cgpipe.Adam, torch.optim.Adam, {"weight_decay": 0.01}),
                (cgpipe.AdamW, torch.optim.AdamW, {}),
                (cgpipe.RMSprop, torch.optim.RMSprop, {"momentum": 0.5})):
            with self.subTest(mine.__name__):
                net = convolutions()
                other = copy.deepcopy(net)
                alone = copy.deepcopy(net)
                only = theirs(alone.parameters(), lr=0.01, **options)
                with captured(net, images(4), optimizer=mine(lr=0.01, **options)) as training:
                    for i in range(2):
                        training.step(*images(16, i))
                        steps_of_torch(alone, only, i)
                    optimizer = theirs(other.parameters(), lr=0.5, **options)
                    optimizer.load_state_dict(training.optimizer.state_dict())
                    other.load_state_dict(net.state_dict())
                    for i in range(2, 4):  # continue in PyTorch
                        steps_of_torch(other, optimizer, i)
                        steps_of_torch(alone, only, i)
                    state = copy.deepcopy(optimizer.state_dict())
                    net.load_state_dict(other.state_dict())
                    training.parameters_changed()
                    training.optimizer.load_state_dict(state)
                    self.same(training.optimizer.state_dict(), state)
                    for i in range(4, 6):  # continue in the pipeline
                        training.step(*images(16, i))
                        steps_of_torch(alone, only, i)
                    self.close(net, alone)
                    if mine is not cgpipe.SGD:
                        self.assertEqual(training.updates, 6)

    def same(self, got, expected):
        self.assertEqual(got["state"].keys(), expected["state"].keys())
        for key, state in expected["state"].items():
            for name, value in state.items():
                if value is not None:
                    torch.testing.assert_close(got["state"][key][name], value, rtol=0, atol=0)
        for a, b in zip(got["param_groups"], expected["param_groups"]):
            self.assertEqual(a["params"], b["params"])
            self.assertEqual(a["lr"], b["lr"])

    def test_schedulers_drive_the_learning_rate(self):
        schedulers = torch.optim.lr_scheduler
        for make in (lambda o: schedulers.CosineAnnealingLR(o, 5),
                     lambda o: schedulers.OneCycleLR(o, 0.5, total_steps=8, cycle_momentum=False),
                     lambda o: schedulers.SequentialLR(
                         o, [schedulers.LinearLR(o, 0.1, total_iters=3),
                             schedulers.ExponentialLR(o, 0.5)], [3])):
            net = module()
            expected = copy.deepcopy(net)
            optimizer = torch.optim.SGD(expected.parameters(), lr=0.3, momentum=0.9)
            theirs = make(optimizer)
            with captured(net, optimizer=cgpipe.SGD(lr=0.3, momentum=0.9)) as training:
                mine = make(training.optimizer)
                with warnings.catch_warnings():
                    warnings.simplefilter("error")
                    for i in range(6):
                        x, y = data(16, i)
                        training.step(x, y)
                        mine.step()
                        optimizer.zero_grad()
                        nn.functional.cross_entropy(expected(x), y).backward()
                        optimizer.step()
                        theirs.step()
                        self.assertEqual(mine.get_last_lr(), theirs.get_last_lr())
                self.close(net, expected)

    def test_a_loop_of_pytorch(self):
        net = module()
        with captured(net) as training, captured(module()) as expected:
            for i in range(3):
                training.optimizer.zero_grad()
                training.step(*data(16, i), update=False)
                training.optimizer.step()
                expected.step(*data(16, i))
            self.assertEqual(training.weights_sha256, expected.weights_sha256)

    def test_what_the_engine_cannot_do_is_refused(self):
        x, y = data()
        with captured(module(), optimizer=cgpipe.SGD(lr=0.1, momentum=0.9)) as training:
            before = training.weights_sha256
            for key, value in (("momentum", 0.5), ("weight_decay", 0.1), ("nesterov", True)):
                group = training.optimizer.param_groups[0]
                was, group[key] = group[key], value
                with self.assertRaisesRegex(cgpipe.errors.ArgumentError, key):
                    training.step(x, y)
                group[key] = was
                training.zero_grad()
            self.assertEqual(training.weights_sha256, before)
            state = training.optimizer.state_dict()
            for bad in (torch.optim.Adam(module().parameters()),
                        torch.optim.SGD(module().parameters(), lr=0.1, momentum=0.8),
                        torch.optim.SGD(module()[0].parameters(), lr=0.1, momentum=0.9)):
                with self.assertRaises(cgpipe.errors.ArgumentError):
                    training.optimizer.load_state_dict(bad.state_dict())
                self.same(training.optimizer.state_dict(), state)
            training.step(x, y)
        schedule = cgpipe.StepLr(3)
        with captured(module(), optimizer=cgpipe.SGD(lr=0.1, schedule=schedule)) as training:
            with self.assertRaisesRegex(cgpipe.errors.ArgumentError, "schedule"):
                training.optimizer.state_dict()
            training.step(x, y)

    def test_parameters_without_decay_are_a_group(self):
        optimizer = cgpipe.AdamW(lr=0.1, weight_decay=0.1, decay_all=False)
        with captured(module(), optimizer=optimizer) as training:
            training.step(*data())
            groups = training.optimizer.state_dict()["param_groups"]
            self.assertEqual([(g["weight_decay"], g["params"]) for g in groups],
                             [(0.1, [0, 1, 2]), (0.0, [3, 4, 5])])

    def test_a_model_that_is_no_module(self):
        x, y = support.batch(16)
        with cgpipe.Pipeline(support.model(), batch=16, optimizer=cgpipe.Adam(lr=0.1)) as first, \
                cgpipe.Pipeline(support.model(), batch=16, optimizer=cgpipe.Adam(lr=0.1)) as second:
            first.step(x, y)
            second.load_state_dict(first.state_dict())
            second.optimizer.load_state_dict(first.optimizer.state_dict())
            first.step(x, y)
            second.step(x, y)
            self.assertEqual(first.weights_sha256, second.weights_sha256)

    def test_in_place_ops_on_an_output(self):
        for change in (lambda out: out.mul_(2), lambda out: nn.functional.relu(out, inplace=True),
                       lambda out: (out[:, :2].zero_(), out)[1]):
            net = module()
            expected = copy.deepcopy(net)
            x, _ = data()
            change(GPipe(net, balance=[3, 2], chunks=4)(x)).pow(2).sum().backward()
            change(expected(x)).pow(2).sum().backward()
            for a, b in zip(net.parameters(), expected.parameters()):
                torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-5)

    def test_gradients_of_a_loss_of_the_caller_have_the_modules_layout(self):
        class Token(nn.Module):
            def __init__(self):
                super().__init__()
                self.token = nn.Parameter(torch.randn(1, 1, 8))

            def forward(self, x):
                return torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1)[:, 0] + x.mean(1)

        class Twice(nn.Module):
            def forward(self, x):
                return x, x.permute(0, 2, 3, 1), x
        torch.manual_seed(0)
        conv = nn.Conv2d(4, 4, 3, padding=1)
        for net, shape in ((nn.Sequential(conv, nn.Conv2d(4, 4, 1)), (4, 4, 4)),
                           (nn.Sequential(nn.Conv2d(2, 3, 3), nn.Flatten(1)), (2, 5, 4)),
                           (nn.Sequential(nn.Linear(8, 8), Token()), (5, 8)),
                           (nn.Sequential(nn.Conv2d(2, 3, 2), Twice()), (2, 5, 4))):
            x = torch.randn(6, *shape)
            given, eager = x.clone().requires_grad_(), copy.deepcopy(net)
            expected = eager(given)
            expected = expected if isinstance(expected, tuple) else (expected,)
            seeds = [torch.randn(y.shape) for y in expected]
            torch.autograd.backward(expected, seeds)
            model = cgpipe.from_torch(net, (x,), input_gradients=True)
            for convert in (lambda y: y, lambda y: y.numpy()):
                with cgpipe.Pipeline(model, stages=2, chunks=3, batch=6, external_loss=True,
                                     optimizer=cgpipe.SGD(lr=0.5)) as training:
                    training.forward(convert(x))
                    with self.assertRaisesRegex(cgpipe.errors.ArgumentError, "gradient 0: shape"):
                        training.backward(*[convert(seed[..., :1]) for seed in seeds])
                    with self.assertRaisesRegex(cgpipe.errors.ArgumentError, "one for each"):
                        training.backward(*map(convert, seeds), None)
                    found, = training.backward(*map(convert, seeds))
                    torch.testing.assert_close(found, given.grad, rtol=1e-4, atol=1e-5)
                    for a, b in zip(net.parameters(), eager.parameters()):
                        torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-5)

    def test_a_loss_is_added_only_to_an_output_in_the_order_of_its_memory(self):
        images = cgpipe.from_torch(nn.Sequential(nn.Conv2d(4, 4, 1)), (torch.randn(2, 4, 4, 4),))
        for loss in ("bce_with_logits", "cross_entropy"):
            with self.assertRaisesRegex(cgpipe.errors.ArgumentError, "with_loss: an output whose"):
                images.with_loss(loss)

    def test_targets_get_no_gradient(self):
        loss = nn.functional.binary_cross_entropy_with_logits
        torch.manual_seed(0)
        x, y = torch.randn(4, 5, 8), torch.rand(4, 40)
        net = nn.Sequential(nn.Linear(8, 8), nn.Flatten(1))
        eager = copy.deepcopy(net)
        for gradients in (False, True):
            model = cgpipe.from_torch(net, (x,), loss=loss, example_target=y,
                                      input_gradients=gradients)
            self.assertEqual([v.gradient for v in model.inputs], [gradients, False])
        with cgpipe.Pipeline(model, chunks=2, batch=4, optimizer=cgpipe.SGD(lr=0.5)) as training:
            self.assertAlmostEqual(training.step(x, y), loss(eager(x), y).item(), places=5)
            with self.assertRaisesRegex(cgpipe.errors.ArgumentError, "input 1: a target of a loss"):
                training.step(x, y.requires_grad_())
        with self.assertRaisesRegex(CaptureError, "example_target: a tensor without requires_grad"):
            cgpipe.from_torch(net, (x,), loss=loss, example_target=y)

        class Distilled(nn.Module):
            def __init__(self, detach):
                super().__init__()
                self.own, self.teacher, self.detach = nn.Linear(8, 8), nn.Linear(8, 8), detach

            def forward(self, x):
                target = self.teacher(x).sigmoid()
                return loss(self.own(x), target.detach() if self.detach else target)
        cgpipe.from_torch(Distilled(True), (x,))
        with self.assertRaisesRegex(CaptureError, "teacher.weight: the target of a loss depends"):
            cgpipe.from_torch(Distilled(False), (x,), verify=False)
        frozen = Distilled(False)
        frozen.teacher.requires_grad_(False)
        cgpipe.from_torch(frozen, (x,))

    def test_batches_are_counted_in_each_step(self):
        loss = nn.functional.cross_entropy
        for momentum in (0.1, None):
            torch.manual_seed(0)
            net = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6, momentum=momentum),
                                nn.Linear(6, 3), nn.BatchNorm1d(3, momentum=momentum))
            eager, (x, y) = copy.deepcopy(net), data(8)
            optimizer = torch.optim.SGD(eager.parameters(), lr=0.5)

            def same():
                for (name, a), b in zip(eager.state_dict().items(), net.state_dict().values()):
                    torch.testing.assert_close(b, a, rtol=1e-4, atol=1e-5, msg=name)

            def step(training):
                optimizer.zero_grad()
                sum(loss(eager(part), target) / 2
                    for part, target in zip(x.chunk(2), y.chunk(2))).backward()
                optimizer.step()
                training.step(x, y)
            with tempfile.TemporaryDirectory() as run, \
                    captured(net, chunks=2, batch=8, optimizer=cgpipe.SGD(lr=0.5)) as training:
                step(training)
                same()
                training.save(run)
                saved = copy.deepcopy(net.state_dict())
                step(training)
                same()
                self.assertEqual(int(net[3].num_batches_tracked), 4)
                for load in (lambda: training.load(run), lambda: net.load_state_dict(saved)):
                    load()
                    eager.load_state_dict(saved)
                    training.parameters_changed()
                    same()
                    step(training)
                    same()
                training.set_state("1.num_batches_tracked", [9])
                self.assertEqual(int(net[1].num_batches_tracked), 9)
            self.assertEqual(int(net[1].num_batches_tracked), 9)

    def test_a_module_is_planned(self):
        x, _ = data()
        plan = cgpipe.plan(module(), x, devices=3, memory="1MiB", chunks=4, batch=16)
        self.assertEqual((len(plan.stages), plan.external_loss), (3, True))
        rows = str(plan).splitlines()[-4:]
        self.assertEqual([row.split()[:2] for row in rows],
                         [["device", "stages"], ["cpu:0", "0"], ["cpu:1", "1"], ["cpu:2", "2"]])
        self.assertIn(f"{plan.devices[1].planned_bytes:,}", rows[2])
        with self.assertRaisesRegex(cgpipe.errors.LimitError, "cpu"):
            cgpipe.plan(module(), example=[x], stages=2, memory_limit="1KiB")
        for bad in ("24 gigs", "x", "-1GiB"):
            with self.assertRaisesRegex(cgpipe.errors.ArgumentError, "memory_limit"):
                cgpipe.plan(module(), x, memory_limit=bad)
        with self.assertRaisesRegex(cgpipe.errors.ArgumentError, "example"):
            cgpipe.plan(module())


if __name__ == "__main__":
    unittest.main()
