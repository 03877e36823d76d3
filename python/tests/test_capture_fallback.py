# SPDX-License-Identifier: Apache-2.0
"""Modules that cannot be captured are run by PyTorch inside the pipeline. Gradients are equal to
the gradients in PyTorch, and results are bit-equal in all layouts."""

import copy
import random
import unittest
import warnings

from torch_support import (HELD, Reverse, detached_write, gradients, same, torch,
                           write_without_gradient)
from torch import nn
from torch.nn import functional as F

import cgpipe
from cgpipe.errors import ArgumentError
from cgpipe.torch import CaptureError
from cgpipe.torchgpipe import GPipe
from cgpipe.torchgpipe.skip import pop, skippable, stash

LAYOUTS = [([3], "never"), ([1, 2], "always"), ([2, 1], "except_last"), ([1, 1, 1], "never")]


class Part(nn.Module):
    """Call ``function(module, y, x)``, where y is the result of a linear layer on x."""

    def __init__(self, function):
        super().__init__()
        self.a, self.b, self.function = nn.Linear(8, 8), nn.Linear(8, 8), function
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.count = 0

    def forward(self, x):
        return self.function(self, self.a(x), x)


def on_data(module, y, x):
    return module.b(y) if float(y.detach().sum()) > 0 else y * module.scale


def loop(module, y, x):
    while float(y.detach().abs().max()) > 0.5:
        y = module.b(y) * 0.5
    return y


def counted(module, y, x):
    module.count += 1
    return y * module.count


def hooked(module, y, x):
    y.register_hook(lambda gradient: gradient * 2)
    return y


def write_to_a_weight(module, y, x):
    with torch.no_grad():
        module.a.weight.mul_(0.5)
    return Reverse.apply(y)


SAME = {
    "a branch on data": on_data,
    "a loop on data": loop,
    "autograd.Function": lambda m, y, x: Reverse.apply(y) + m.b(x),
    "a Function held since before": lambda m, y, x: HELD(y) + m.b(x),
    "write through detach": detached_write,
    "write under no_grad": write_without_gradient,
    "attribute": counted,
    "hook of a tensor": hooked,
    "mode of gradients": lambda m, y, x: y * 2 if torch.is_grad_enabled() else y,
    "int": lambda m, y, x: m.b(x) + (y * 3).int().float(),
    "half": lambda m, y, x: y.half().float(),
    "bfloat16": lambda m, y, x: y.bfloat16().float(),
    "float64": lambda m, y, x: (y.double().exp() * m.scale.double()).float(),
    "cumsum": lambda m, y, x: torch.cumsum(y, 1),
    "fft": lambda m, y, x: torch.fft.rfft(y).abs() @ torch.ones(5, 8),
    "linalg": lambda m, y, x: torch.linalg.solve(m.b.weight + 9 * torch.eye(8), y.T).T,
    "sort": lambda m, y, x: y.sort(1).values * m.scale,
    "parameters": lambda m, y, x: y @ (m.b.weight @ m.a.weight).exp() + m.scale,
}


class Fallback(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        random.seed(0)
        warnings.simplefilter("ignore")

    def test_what_a_graph_cannot_say_has_pytorchs_gradients_and_the_bits_of_every_layout(self):
        x = torch.randn(6, 8)
        for i, (name, function) in enumerate(SAME.items()):
            module = nn.Sequential(nn.Linear(8, 8), Part(function), nn.Linear(8, 4))
            expected = gradients(copy.deepcopy(module), x, 2)
            bits = None
            for balance, mode in (LAYOUTS[0], LAYOUTS[1 + i % 3]):
                model = GPipe(copy.deepcopy(module), balance, chunks=2, checkpoint=mode,
                              verify=bits is None)
                with self.subTest(name, balance=balance, mode=mode):
                    found = gradients(model, x)
                    same(self, found, expected, name)
                    bits = bits or found
                    self.assertTrue(all(a is b or torch.equal(a, b) for a, b in zip(found, bits)))
                    self.assertIn("1", model.report())

    def test_a_second_step_is_right_too(self):
        x = torch.randn(6, 8)
        module = nn.Sequential(nn.Linear(8, 8), Part(counted), nn.Linear(8, 4))
        for mode in ("never", "always", "except_last"):
            eager, model = copy.deepcopy(module), GPipe(copy.deepcopy(module), [1, 2], chunks=2,
                                                        checkpoint=mode)
            for _ in range(3):
                same(self, gradients(model, x), gradients(eager, x, 2), mode)
            self.assertEqual((eager[1].count, model[1].count), (6, 6))

    def test_only_the_innermost_module_leaves_the_engine(self):
        inner = nn.Sequential(nn.Linear(8, 8), nn.Sequential(nn.Linear(8, 8), Part(on_data)))
        model = cgpipe.from_torch(inner, (torch.randn(4, 8),))
        self.assertIn("1.1 (Part): ", model.report())
        self.assertRegex(model.report(), r"^.*\nproof: \d+ tensors equal PyTorch's, for .*$")
        self.assertEqual(model.layers, ["0", "1"])

    def test_hooks_of_layers_run(self):
        x = torch.randn(6, 8)
        seen = []

        def train(module, gpipe):
            module[1].register_forward_hook(lambda m, i, y: y * 2)
            module[1].register_forward_pre_hook(lambda m, i: (i[0] + 1,))
            module[1].register_full_backward_hook(lambda m, i, o: (i[0] * 3,))
            module[1].register_forward_hook(lambda m, i, y: seen.append(len(y)))
            return gradients(GPipe(module, [1, 1], chunks=2) if gpipe else module, x,
                             1 if gpipe else 2)
        module = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
        same(self, train(copy.deepcopy(module), True), train(module, False), "hooks")
        self.assertIn(3, seen)

    def test_balances_count_the_operations_of_a_region(self):
        module = nn.Sequential(nn.Linear(8, 6), nn.Linear(6, 5), nn.Conv1d(1, 2, 3))
        module[1].register_forward_hook(lambda m, x, y: y.unsqueeze(1))
        for layer in module:
            layer.register_forward_hook(lambda *_: None)
        regions = cgpipe.torch.capture(module, (torch.randn(4, 8),)).regions.all
        self.assertEqual([region.flops for region in regions],
                         [2 * 8 * 6, 2 * 6 * 5, 2 * 3 * 2 * 3])
        op = regions[0].ops[-1]
        self.assertEqual([op.flops(None, direction) for direction in range(3)], [96, 192, 0])

    def test_regions_know_whether_they_round_to_fewer_bits(self):
        def in_autocast(m, y, x):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return m.b(y).float()
        for function, reduced in ((in_autocast, True), (SAME["half"], True), (SAME["fft"], False),
                                  (SAME["a branch on data"], False)):
            regions = cgpipe.torch.capture(Part(function), (torch.randn(4, 8),)).regions.all
            self.assertEqual([region.reduced for region in regions], [reduced] * len(regions))
            self.assertTrue(regions)

    def test_tuples_integers_and_constants_pass_through_a_region(self):
        class Two(nn.Module):
            def __init__(self):
                super().__init__()
                self.table = nn.Embedding(10, 8, scale_grad_by_freq=True)

            def forward(self, pair):
                x, ids = pair
                y = self.table(ids) * torch.tensor(2.0)
                if float(y.detach().sum()) < 1e9:
                    x = x + y.sum(1)
                return x, y.cumsum(1), x[:, :3] * 2

        class Join(nn.Module):
            def forward(self, three):
                a, b, c = three
                return a + b.mean(1) + F.pad(c, (0, 5))
        x, ids = torch.randn(6, 8), torch.randint(0, 10, (6, 5))
        module = nn.Sequential(Two(), Join(), nn.Linear(8, 2))
        model = GPipe(copy.deepcopy(module), [1, 1, 1])
        for taken in (module, model):
            taken((x, ids)).square().sum().backward()
        torch.testing.assert_close(model((x, ids)), module((x, ids)))
        same(self, [p.grad for p in model.parameters()], [p.grad for p in module.parameters()], "")

    def test_a_parameter_is_shared_with_a_layer_of_the_engine(self):
        class Shared(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.part, self.last = nn.Linear(8, 8), Part(loop), nn.Linear(8, 8)
                self.part.b = self.first
                self.part.a.weight = self.last.weight

            def forward(self, x):
                return self.last(self.part(self.first(x)))
        x, module = torch.randn(6, 8), nn.Sequential(Shared(), nn.Linear(8, 2))
        model = GPipe(copy.deepcopy(module), [1, 1], chunks=2)
        same(self, gradients(model, x), gradients(module, x), "shared")

    def test_skips_stay_inside_a_region(self):
        @skippable(stash=["a"])
        class Stash(nn.Module):
            def forward(self, x):
                yield stash("a", x)
                return x * 2

        @skippable(pop=["a"])
        class Pop(nn.Module):
            def forward(self, x):
                a = yield pop("a")
                return x + a if float(a.detach().sum()) < 1e9 else x
        a, b, x = nn.Linear(8, 8), nn.Linear(8, 8), torch.randn(6, 8)
        model = GPipe(nn.Sequential(Stash(), a, Pop(), b), [2, 2], chunks=2)
        y = model(x)
        torch.testing.assert_close(y, b(a(x * 2) + x))

    def test_buffers_change_once_per_micro_batch_in_order(self):
        class Norm(nn.Module):
            def __init__(self):
                super().__init__()
                self.norm = nn.BatchNorm1d(8, momentum=None)
                self.register_buffer("sum", torch.zeros(8))

            def forward(self, x):
                self.sum.mul_(0.5).add_(x.detach().mean(0))
                return self.norm(x) + self.sum * x
        x = torch.randn(9, 8)
        module = nn.Sequential(nn.Linear(8, 8), Norm(), nn.Linear(8, 2))
        for mode in ("never", "always", "except_last"):
            eager = copy.deepcopy(module)
            model = GPipe(copy.deepcopy(module), [1, 1, 1], chunks=3, checkpoint=mode)
            for _ in range(2):
                outputs = torch.cat([eager(part).detach() for part in x.chunk(3)])
                torch.testing.assert_close(model(x), outputs)
            for name, buffer in eager.named_buffers():
                torch.testing.assert_close(dict(model.partitions[1].named_buffers())[
                    name], buffer, msg=f"{mode} {name}")
            self.assertEqual(int(model[1].norm.num_batches_tracked), 6)

    def test_statistics_that_the_engine_does_not_have_change_as_in_pytorch(self):
        class Own(nn.Module):
            def __init__(self, function, *names):
                super().__init__()
                self.function = function
                for name in names:
                    self.register_buffer(name, torch.ones(8))
                self.weight, self.bias = nn.Parameter(torch.ones(8)), nn.Parameter(torch.zeros(8))

            def forward(self, x):
                return self.function(x, self.a, self.b, self.weight, self.bias, True)

        class Uncounted(nn.BatchNorm1d):
            def forward(self, x):
                return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias,
                                    True, 0.3)
        modules = {"InstanceNorm1d": nn.InstanceNorm1d(8, track_running_stats=True),
                   "instance_norm": Own(F.instance_norm, "a", "b"),
                   "batch_norm": Own(F.batch_norm, "a", "b"),
                   "batch_norm without its count": Uncounted(8)}
        x = torch.randn(6, 8, 4)
        for name, module in modules.items():
            # Statistics over only 4 numbers would amplify rounding errors, so a linear layer makes
            # 16 numbers of them.
            module = nn.Sequential(nn.Sequential(nn.Linear(4, 16)), module)
            with self.subTest(name):
                eager, model = copy.deepcopy(module), GPipe(copy.deepcopy(module), [1, 1], chunks=2)
                for _ in range(2):
                    same(self, gradients(model, x), gradients(eager, x, 2), name)
                for (key, b), own in zip(eager.named_buffers(), model.buffers()):
                    torch.testing.assert_close(own, b, msg=lambda m: f"{name} {key}: {m}")
                self.assertEqual(model.report().split()[0], "partitions.1.1")
                with self.assertRaisesRegex(CaptureError, "1.*norm.* is covered"):
                    cgpipe.from_torch(module, (x,), fallback=False)

    def test_a_batch_norm_at_two_places_runs_by_pytorch(self):
        norm, x = nn.BatchNorm1d(8), torch.randn(6, 8)
        module = nn.Sequential(nn.Linear(8, 8), norm, nn.Linear(8, 8), norm)
        eager = copy.deepcopy(module)
        model = cgpipe.from_torch(module, (x,))
        self.assertRegex(model.report(), "^the module itself ")
        pipeline = cgpipe.Pipeline(model, chunks=2, batch=6, external_loss=True)
        expected = torch.cat([eager(part).detach() for part in x.chunk(2)])
        same(self, [pipeline.forward(x), *module.buffers()], [expected, *eager.buffers()], "twice")

    def test_a_buffer_that_pytorch_alone_writes_to_fails_the_proof(self):
        class Blind(nn.Linear):
            def __init__(self):
                super().__init__(8, 8)
                self.register_buffer("calls", torch.zeros(1))

            def forward(self, x):
                if not torch.compiler.is_compiling():
                    self.calls.add_(1)
                return super().forward(x)
        with self.assertRaisesRegex(CaptureError, "calls: differs from PyTorch's"):
            cgpipe.from_torch(nn.Sequential(Blind()), (torch.randn(4, 8),))

    def test_buffers_that_forward_replaces_are_pytorchs(self):
        def average(module, y, x):
            module.kept = 0.9 * module.kept + 0.1 * y.detach().mean(0)
            return y - module.kept

        def count(module, y, x):
            module.kept = module.kept * 0.5 + 1
            return y * module.kept

        def rarely(module, y, x):
            if float(y.detach().max()) > 1e3:
                module.kept = module.kept + 1
                module.other.add_(1)
            return y * module.kept + module.other
        for function in (average, count, rarely):
            part = Part(function)
            part.register_buffer("kept", torch.ones(8))
            part.register_buffer("other", torch.ones(8))
            module, buffer = nn.Sequential(nn.Linear(8, 8), part, nn.Linear(8, 4)), part.kept
            with self.assertRaises(CaptureError):
                cgpipe.from_torch(module, (torch.randn(6, 8),), fallback=False)
            self.assertIs(part.kept, buffer)
            self.assertTrue(torch.equal(buffer, torch.ones(8)))
            for balance, mode in LAYOUTS:
                eager = copy.deepcopy(module)
                model = GPipe(copy.deepcopy(module), balance, chunks=2, checkpoint=mode)
                for scale in (1, 1e5, 1):
                    x = scale * torch.randn(6, 8)
                    with self.subTest(function.__name__, balance=balance, mode=mode):
                        same(self, gradients(model, x)[:1], gradients(eager, x, 2)[:1], mode)
                        for a, b in zip(model.buffers(), eager.buffers()):
                            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
            pipeline = cgpipe.Pipeline(cgpipe.from_torch(module, (x,)), chunks=2, batch=6,
                                       external_loss=True)
            expected = gradients(copy.deepcopy(module), x, 2)[:1]
            same(self, [pipeline.forward(x)], expected, "pipeline")

    def test_a_large_buffer_that_only_later_samples_change_is_refused(self):
        def in_place(module, y, x):
            return y * (module.large.add_(1) if float(x.max()) > 1e3 else module.large)[0]

        def replace(module, y, x):
            if float(x.max()) > 1e3:
                module.large = module.large + 1
            return y * module.large[0]
        for function in (in_place, replace):
            part, x = Part(function), torch.randn(6, 8)
            part.register_buffer("large", torch.ones(1000, 8))
            model, buffer = GPipe(nn.Sequential(part), [1]), part.large
            model(x)
            with self.assertRaisesRegex(cgpipe.errors.CgpipeError, "0.0.large: forward writes to"):
                model(1e4 * x)
            self.assertIs(part.large, buffer)
            model(x)

    def test_buffers_that_forward_makes_or_gives_a_gradient_are_refused(self):
        refused = {
            "with a gradient": lambda m, y, x: (setattr(m, "kept", m.kept + y.mean(0)), y)[1],
            "to a value with a": lambda m, y, x: (m.kept.add_(y.mean(0)), y)[1],
            "reshapes the buffer .*kept": lambda m, y, x: (
                setattr(m, "kept", torch.cat([m.kept, m.kept])), y.cumsum(1))[1],
            "makes.* the buffer .*new": lambda m, y, x: (
                m.register_buffer("new", y.detach().mean(0)), y)[1],
            "several names": lambda m, y, x: (
                setattr(m, "kept", m.kept + y.detach().mean(0)), y)[1],
        }
        for text, function in refused.items():
            part = Part(function)
            part.register_buffer("kept", torch.ones(8))
            if text == "several names":
                part.register_buffer("same", part.kept)
            buffer = part.kept
            with self.subTest(text), self.assertRaisesRegex(CaptureError, text):
                GPipe(nn.Sequential(part), [1])(torch.randn(6, 8))
            self.assertEqual((part.kept is buffer, buffer.requires_grad), (True, False))
            self.assertTrue(torch.equal(buffer, torch.ones(8)))

    def test_gradients_through_buffers_that_change_are_right(self):
        class Sum(nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("sum", torch.ones(8))

            def forward(self, x):
                with torch.no_grad():
                    self.sum += x.detach().mean(0)
                return x * self.sum.clone()
        x = torch.randn(9, 8)
        module = nn.Sequential(nn.Linear(8, 8), Sum(), nn.Linear(8, 2))
        expected = gradients(copy.deepcopy(module), x, 3)
        for mode in ("never", "always", "except_last"):
            model = GPipe(copy.deepcopy(module), [1, 1, 1], chunks=3, checkpoint=mode)
            same(self, gradients(model, x), expected, mode)

    def test_random_numbers_are_equal_in_every_layout_and_leave_the_generator_alone(self):
        def noisy(module, y, x):
            y = F.dropout(y, 0.5, training=True) * (1 + random.random())
            return module.b(y + torch.randn_like(y)) if float(y.detach().sum()) < 1e9 else y
        x, bits = torch.randn(6, 8), None
        module = nn.Sequential(nn.Linear(8, 8), Part(noisy), nn.Linear(8, 4))
        for balance, mode in LAYOUTS:
            model = GPipe(copy.deepcopy(module), balance, chunks=2, checkpoint=mode)
            gradients(model, x)
            model.zero_grad(set_to_none=True)
            torch.manual_seed(3)
            before = random.getstate()
            found = gradients(model, x)
            self.assertEqual(random.getstate(), before)
            bits = bits or (found, torch.rand(1))
            self.assertTrue(all(a is b or torch.equal(a, b) for a, b in zip(found, bits[0])))
        self.assertFalse(torch.equal(model(x), model(x)))

    def test_evaluation_runs_the_modules_own_mode(self):
        class Branch(nn.Module):
            def __init__(self):
                super().__init__()
                self.norm, self.drop = nn.BatchNorm1d(8), nn.Dropout(0.5)

            def forward(self, x):
                return self.drop(self.norm(x)) if float(x.detach().sum()) < 1e9 else x
        x, module = torch.randn(8, 8), nn.Sequential(nn.Linear(8, 8), Branch())
        module[1].norm.running_mean.fill_(0.5)
        model = GPipe(copy.deepcopy(module).eval(), [1, 1], chunks=2)
        same(self, gradients(model, x), gradients(module.eval(), x), "eval")
        y = torch.randint(0, 8, (8,))
        graph = cgpipe.from_torch(module.train(), (x,), loss=nn.CrossEntropyLoss(),
                                  example_target=y)
        pipeline = cgpipe.Pipeline(graph, batch=8, stages=2)
        expected = F.cross_entropy(module.eval()(x), y)
        module.train()
        self.assertAlmostEqual(pipeline.evaluate(x, y), float(expected), places=5)
        self.assertEqual(int(module[1].norm.num_batches_tracked), 0)

    def test_pipelines_train_to_the_same_bits_in_all_schedules(self):
        x, y, bits = torch.randn(12, 8), torch.randint(0, 4, (12,)), None
        module = nn.Sequential(nn.Linear(8, 8), Part(on_data), nn.Linear(8, 4))
        eager = copy.deepcopy(module)
        optimizer = torch.optim.SGD(eager.parameters(), lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            for part, target in zip(x.chunk(3), y.chunk(3)):
                (F.cross_entropy(eager(part), target) / 3).backward()
            optimizer.step()
        for stages, schedule, recompute in ((1, None, "never"), (2, "1f1b", "always"),
                                            (3, "zb-h1", "never"), (3, "gpipe", "except_last")):
            taken = copy.deepcopy(module)
            model = cgpipe.from_torch(taken, (x,), loss=nn.CrossEntropyLoss(), example_target=y)
            pipeline = cgpipe.Pipeline(model, stages, schedule, 3, 12, recompute=recompute,
                                       optimizer=cgpipe.SGD(lr=0.1))
            for _ in range(2):
                pipeline.step(x, y)
            found = [p.detach().clone() for p in taken.parameters()]
            same(self, found, list(eager.parameters()), schedule)
            bits = bits or found
            self.assertTrue(all(torch.equal(a, b) for a, b in zip(found, bits)), schedule)

    def test_an_exception_keeps_its_type_names_the_module_and_leaves_the_model_usable(self):
        fails = [False]

        def failing(module, y, x):
            if fails[0]:
                raise KeyError("mine")
            return on_data(module, y, x)
        x = torch.randn(6, 8)
        model = GPipe(nn.Sequential(nn.Linear(8, 8), Part(failing)), [1, 1], chunks=3)
        expected = gradients(model, x)
        fails[0] = True
        for _ in range(2):
            with self.assertRaises(KeyError) as caught:
                model(x)
            if hasattr(caught.exception, "__notes__"):
                self.assertIn("in partitions.1.1, which PyTorch", caught.exception.__notes__[0])
        fails[0] = False
        model.zero_grad(set_to_none=True)
        same(self, gradients(model, x), expected, "after a failure")

    def test_a_warning_and_a_report_name_what_pytorch_runs(self):
        model = GPipe(nn.Sequential(nn.Linear(8, 8), Part(on_data)), [1, 1])
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(2):
                model(torch.randn(4, 8)).sum().backward()
        texts = [str(w.message) for w in caught if "PyTorch runs" in str(w.message)]
        self.assertEqual(len(texts), 1)
        for text in (texts[0], model.report()):
            self.assertRegex(text, r"partitions.1.1 \(Part\): \d+ % of the time; .*data-dependent")
        self.assertEqual(GPipe(nn.Sequential(nn.Linear(8, 8)), [1]).report(), "")

    def test_a_list_says_where_each_op_runs(self):
        class Shift(nn.Module):
            def forward(self, pair):
                x, ids = pair
                return x + (ids + 1).float() * torch.ones(8).cumsum(0)
        module = nn.Sequential(Shift(), nn.Linear(8, 8), Part(on_data))
        pair = torch.randn(4, 8), torch.ones(4, 8).long()
        captured = cgpipe.from_torch(module, (pair,))._captured
        found = [(p.path, p.op, p.where) for p in captured.places]
        self.assertEqual([place for place in found if place[1] != "to"], [
            ("0", "add", "before each step"), ("0", "ones", "once"), ("0", "cumsum", "once"),
            ("0", "mul", "before each step"), ("0", "add", "engine"), ("1", "linear", "engine"),
            ("2", "Part", "PyTorch")])
        self.assertRegex(captured.places[-1].reason, "data-dependent")
        self.assertRegex(captured.places[0].line, r"test_capture_fallback.py:\d+$")

    def test_an_embedding_scales_its_rows_to_its_max_norm(self):
        ids, bits = torch.randint(0, 11, (6, 5)), None
        module = nn.Sequential(nn.Embedding(11, 8, max_norm=1.0), nn.Linear(8, 8), nn.Linear(8, 4))
        before, expected = copy.deepcopy(module.state_dict()), copy.deepcopy(module)
        cgpipe.from_torch(module, (ids,))
        for key, value in module.state_dict().items():
            self.assertTrue(torch.equal(value, before[key]), key)

        def train(model, chunks):
            optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
            for _ in range(3):
                optimizer.zero_grad()
                torch.cat([model(part) for part in ids.chunk(chunks)]).square().sum().backward()
                optimizer.step()
            return [model(ids).detach(), *[p.detach() for p in model.parameters()]]
        expected = train(expected, 2)
        for balance, mode in LAYOUTS:
            found = train(GPipe(copy.deepcopy(module), balance, chunks=2, checkpoint=mode), 1)
            same(self, found, expected, mode)
            bits = bits or found
            self.assertTrue(all(torch.equal(a, b) for a, b in zip(found, bits)), mode)
        shared = nn.Sequential(nn.Sequential(module[0], nn.Linear(8, 8), nn.Linear(8, 11)))
        shared[0][2].weight = module[0].weight
        with self.assertRaisesRegex(CaptureError, "partitions.0.0.0: Embedding: max_norm is"):
            GPipe(shared, [1])(ids)

    def test_a_running_statistic_that_others_read_is_pytorchs(self):
        class Reader(nn.Module):
            def __init__(self, function):
                super().__init__()
                self.norm, self.function = nn.BatchNorm2d(4), function

            def forward(self, x):
                return self.function(self.norm, self.norm(x))
        for function in (lambda norm, y: y + norm.running_mean[None, :, None, None],
                         lambda norm, y: y * norm.running_var.detach().mean(),
                         lambda norm, y: y / norm.running_var.view(1, -1, 1, 1).sqrt()):
            module = nn.Sequential(nn.Conv2d(4, 4, 1), Reader(function), nn.Flatten())
            self._same_as_in_pytorch(module, [torch.randn(n, 4, 3, 3) + 1 for n in (4, 4, 4)])

    def test_sizes_that_depend_on_values_and_sparse_gradients(self):
        chosen = Part(lambda m, y, x: torch.masked_select(y, x > -100).view(x.shape))
        self._same_as_in_pytorch(nn.Sequential(nn.Linear(8, 8), chosen), [torch.randn(4, 8)] * 3)
        words = nn.Sequential(nn.Embedding(7, 8, sparse=True), nn.Linear(8, 3))
        self._same_as_in_pytorch(words, [torch.randint(0, 7, (4, 5)) for _ in range(3)])

    def _same_as_in_pytorch(self, module, inputs):
        """Check three steps of SGD: losses, weights and statistics."""
        def loss(y, target):
            return (y - target).square().mean()
        ours, target = copy.deepcopy(module), torch.zeros(module(inputs[0]).shape)
        module = copy.deepcopy(ours)
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        model = cgpipe.from_torch(ours, (inputs[0],), loss=loss, example_target=target)
        with warnings.catch_warnings(), cgpipe.Pipeline(
                model, stages=1, chunks=1, batch=4, optimizer=cgpipe.SGD(lr=0.1)) as pipeline:
            warnings.simplefilter("ignore")
            for x in inputs:
                optimizer.zero_grad()
                want = loss(module(x), target)
                want.backward()
                optimizer.step()
                self.assertAlmostEqual(pipeline.step(x, target), float(want.detach()), places=5)
            same(self, ours.state_dict().values(), module.state_dict().values(), "after 3 steps")

    def test_messages_have_the_users_own_paths(self):
        x, y = torch.randn(6, 8), torch.randint(0, 8, (6,))

        def captured(part, **options):
            return cgpipe.from_torch(nn.Sequential(nn.Sequential(part)), (x,), example_target=y,
                                     loss=nn.CrossEntropyLoss(), **options)
        model = captured(Part(on_data))
        self.assertRegex(model.report(), r"^0.0 \(Part\): .*data-dependent")
        with self.assertRaisesRegex(ArgumentError, "^0.0: .*one rank is expected, got 2"):
            cgpipe.plan(model, ranks=2)
        with self.assertRaisesRegex(CaptureError, "^0.0: .*data-dependent"):
            captured(Part(on_data), fallback=False)
        with self.assertRaises(CaptureError) as caught:
            captured(Part(write_to_a_weight))
        self.assertRegex(str(caught.exception), "^0.0: mul_.*the parameter 0.0.a.weight")
        self.assertNotRegex(str(caught.exception), "_WithLoss|module[.]")
        with self.assertRaises(CaptureError) as caught:
            GPipe(nn.Sequential(Part(write_to_a_weight)), [1])(x)
        self.assertNotIn("Whole", str(caught.exception))

    def test_what_cannot_be_a_region_is_refused_by_name(self):
        leaf, x = torch.ones(8, requires_grad=True), torch.randn(6, 8)
        refused = {
            "slice": lambda m, y, x: y[:y.shape[0] // 2],
            "requires a gradient and is no parameter": lambda m, y, x: Reverse.apply(y) * leaf,
            "writes to the parameter .*a.weight": write_to_a_weight,
        }
        for text, function in refused.items():
            part = Part(function)
            before = copy.deepcopy(part.state_dict())
            with self.subTest(text), self.assertRaisesRegex(CaptureError, text):
                GPipe(nn.Sequential(part), [1])(x)
            for key, value in part.state_dict().items():
                self.assertTrue(torch.equal(value, before[key]), key)
        module = nn.Sequential(Part(on_data))
        with self.assertRaisesRegex(CaptureError, "data-dependent"):
            GPipe(module, [1], fallback=False)(x)
        with self.assertRaisesRegex(CaptureError, "data-dependent"):
            cgpipe.from_torch(module, (x,), fallback=False)
        with self.assertRaisesRegex(ArgumentError, "device cpu is expected, got cuda"):
            cgpipe.plan(cgpipe.from_torch(module, (x,)), devices=["cuda:0"])


if __name__ == "__main__":
    unittest.main()
