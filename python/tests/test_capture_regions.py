# SPDX-License-Identifier: Apache-2.0
"""PyTorch runs only the ops that the engine lacks, and the engine runs the rest of the module.
Gradients are equal to the gradients in PyTorch, and results are bit-equal in all layouts."""

import copy
import unittest
import warnings
from types import SimpleNamespace

from torch_support import gradients, same, torch
from torch import nn
from torch.nn import functional as F

import cgpipe
from cgpipe.errors import ArgumentError, LimitError
from cgpipe.torch import CaptureError
from cgpipe.torch.watch import path_of
from cgpipe.torchgpipe import GPipe

LAYOUTS = [([3], "never"), ([1, 2], "always"), ([2, 1], "except_last"), ([1, 1, 1], "never")]


class Part(nn.Module):
    """Call ``function(module, y, x)`` between two linear layers. ``y`` is the result of the first
    layer on ``x``."""

    def __init__(self, function):
        super().__init__()
        self.a, self.b, self.function = nn.Linear(8, 8), nn.Linear(8, 8), function
        self.scale, self.drop = nn.Parameter(torch.linspace(0.5, 2, 8)), nn.Dropout(0.5)
        self.few = nn.ParameterList([nn.Parameter(torch.randn(8, 8)) for _ in range(6)])

    def forward(self, x):
        return self.b(self.function(self, self.a(x), x))


def many(module, y, x):
    for p in module.few:
        y = torch.einsum("nc,cd->nd", y, p)
    return y.tanh()


def on_data(module, y, x):
    return y * module.scale if float(y.detach().sum()) > -1e9 else y


def glued(module, y, x):
    y = y.view(-1, 2, 4).cumsum(2).reshape(y.shape[0], 8).neg().relu()
    return y.view(y.shape[0], 4, 2).cumsum(1).flatten(1)


# Each entry has a function, the ops that PyTorch runs, and the number of regions that PyTorch runs.
# None stands for ops that the test does not compare.
ALONE = {
    "cumsum": (lambda m, y, x: y.cumsum(1) * m.scale, "cumsum", 1),
    "sort": (lambda m, y, x: y.sort(1).values - x, "sort", 1),
    "max and where": (lambda m, y, x: torch.where(x > 0, y, x.max(1, True).values), None, 1),
    "norm": (lambda m, y, x: F.normalize(y.cumsum(1), dim=1) + x, None, 1),
    "einsum": (lambda m, y, x: torch.einsum("nc,cd->nd", y, m.b.weight) + m.scale, "einsum", 1),
    "a value of parameters": (lambda m, y, x: y @ (m.b.weight @ m.a.weight).cumsum(0),
                              "matmul cumsum matmul", 1),
    "samples in the last dimension": (lambda m, y, x: torch.linalg.solve(
        m.b.weight + 9 * torch.eye(8), y.T).T, "add linalg_solve", 1),
    "indices": (lambda m, y, x: y.gather(1, y.argsort(1)) + x, "argsort gather", 1),
    "a cast": (lambda m, y, x: y + (x * 3).int().float(), "to to", 1),
    "results of two regions": (lambda m, y, x: y.cummax(1).values + torch.frexp(y).mantissa,
                               "cummax frexp", 2),
    "two results": (lambda m, y, x: (lambda a, b: m.a(a) * b)(*torch.frexp(y.cumsum(1))[:1],
                                                              y.cumsum(1)), "cumsum frexp cumsum",
                    2),
    "six parameters": (many, "einsum " * 6, 1),
    "glue": (glued, "cumsum reshape neg relu view cumsum", 1),
    "a layer between": (lambda m, y, x: m.a(y.cumsum(1)).cumsum(1), "cumsum cumsum", 2),
    "a path around": (lambda m, y, x: (lambda z: torch.hypot(m.a(z), z))(y.cumsum(1)),
                      "cumsum hypot", 2),
    "a result that nothing reads": (lambda m, y, x: ((x > 0).float(), y.cumsum(1))[1], "cumsum", 1),
    "dropout between": (lambda m, y, x: m.drop(y.cumsum(1)).cumsum(1), "cumsum cumsum", 2),
}


def torchs(model):
    """Return the names of the ops that PyTorch runs."""
    return [p.op for p in model._captured.places if p.where == "PyTorch"]


def module_of(function):
    return nn.Sequential(nn.Linear(8, 8), Part(function), nn.Linear(8, 4))


class Regions(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        warnings.simplefilter("ignore")

    def test_a_path_below_the_module_that_calls_is_its_whole_path(self):
        for paths, expected in ((["", "module", "module.1.f", "table"], "1.f.table"),
                                (["", "module", "module.1", "module.0.a"], "0.a"),
                                (["", "module"], ""), ([], "")):
            stack = {str(i): (path, "a class") for i, path in enumerate(paths)}
            self.assertEqual(path_of(SimpleNamespace(meta={"nn_module_stack": stack})), expected)

    def test_pytorch_runs_the_op_alone_with_the_bits_of_every_layout(self):
        x = torch.randn(6, 8)
        for i, (name, (function, ops, regions)) in enumerate(ALONE.items()):
            module = module_of(function)
            model = cgpipe.from_torch(module, (x,))
            with self.subTest(name):
                self.assertEqual(torchs(model), ops.split() if ops else torchs(model))
                self.assertEqual(len(model._captured.regions.all), regions)
                linears = [p.path for p in model._captured.places
                           if p.op == "linear" and p.where == "engine"]
                self.assertEqual((linears[:2], linears[-2:]), (["0", "1.a"], ["1.b", "2"]))
            module[1].drop.p = 0.0
            expected, bits = gradients(copy.deepcopy(module), x, 2), None
            for balance, mode in (LAYOUTS[0], LAYOUTS[1 + i % 3]):
                model = GPipe(copy.deepcopy(module), balance, chunks=2, checkpoint=mode,
                              verify=False)
                with self.subTest(name, balance=balance, mode=mode):
                    found = gradients(model, x)
                    same(self, found, expected, name)
                    bits = bits or found
                    self.assertTrue(all(a is b or torch.equal(a, b) for a, b in zip(found, bits)))

    def test_a_region_stays_within_a_layer_so_that_stages_can_be_cut_between(self):
        class Sort(nn.Module):
            def forward(self, x):
                return x.sort(1).values
        x, module = torch.randn(6, 8), nn.Sequential(nn.Linear(8, 8), Sort(), Sort(), Sort())
        model = GPipe(copy.deepcopy(module), [2, 1, 1])
        same(self, gradients(model, x), gradients(module, x), "sort")
        self.assertRegex(model.report(),
                         r"(?m)^partitions.0.1, partitions.1.2, partitions.2.3 \(Sort\): .*op$")
        one = cgpipe.from_torch(nn.Sequential(module), (x,), cut_at=["0"])
        self.assertRegex(one.report(),
                         r"(?m)^0 \(Sequential\): .*; only sort; in 0.1: sort .*no such op$")

    def test_results_that_their_own_region_reads_are_proven(self):
        class Outer(nn.Module):
            """Adds a linear layer, whose weight PyTorch computes."""

            def __init__(self):
                super().__init__()
                self.p = nn.Parameter(torch.randn(8))

            def forward(self, x):
                return x + F.linear(x, torch.outer(self.p, self.p), self.p)

        class Twice(nn.Module):
            """The region of both calls reads the result of the first call. So the gradient of
            this result is not a value of the graph."""

            def __init__(self):
                super().__init__()
                self.f = nn.Sequential(Outer())

            def forward(self, x):
                return self.f(self.f(x))
        torch.manual_seed(0)
        module, x = nn.Sequential(nn.Linear(8, 8), Twice()), torch.randn(6, 8)
        model = GPipe(copy.deepcopy(module), [2])
        torch.testing.assert_close(model(x), module(x), rtol=1e-4, atol=1e-5)
        self.assertEqual(model.report().count("tensors equal PyTorch's"), 1)
        model(x).sum().backward()
        module(x).sum().backward()
        for p, q in zip(model.parameters(), module.parameters()):
            torch.testing.assert_close(p.grad, q.grad, rtol=1e-4, atol=1e-5)

    def test_dropout_beside_a_region_is_the_engines(self):
        x, bits = torch.randn(6, 8), None
        module = module_of(ALONE["dropout between"][0])
        for balance, mode in LAYOUTS:
            model = GPipe(copy.deepcopy(module), balance, chunks=2, checkpoint=mode, verify=False)
            torch.manual_seed(3)
            found = gradients(model, x)
            bits = bits or found
            self.assertTrue(all(a is b or torch.equal(a, b) for a, b in zip(found, bits)))
        self.assertFalse(torch.equal(model(x), model(x)))
        same(self, gradients(model.eval(), x)[:1], gradients(module.eval(), x), "eval")

    def test_pipelines_train_to_the_same_bits_in_all_schedules(self):
        x, y, bits = torch.randn(12, 8), torch.randint(0, 4, (12,)), None
        module = module_of(lambda m, y, x: torch.einsum("nc,cd->nd", y, m.b.weight) * m.scale)
        module[1].b.weight.requires_grad_(False)
        module[0].bias.requires_grad_(False)
        eager = copy.deepcopy(module)
        trained = [p for p in eager.parameters() if p.requires_grad]
        optimizer = torch.optim.SGD(trained, lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            for _ in range(2):
                F.cross_entropy(eager(x), y).backward()
            optimizer.step()
        for stages, schedule, recompute in ((1, None, "never"), (2, "1f1b", "always"),
                                            (3, "zb-h1", "never"), (3, "gpipe", "except_last")):
            taken = copy.deepcopy(module)
            model = cgpipe.from_torch(taken, (x,), loss=nn.CrossEntropyLoss(), example_target=y,
                                      verify=False)
            pipeline = cgpipe.Pipeline(model, stages, schedule, 3, 12, recompute=recompute,
                                       optimizer=cgpipe.SGD(lr=0.1))
            for i in range(4):
                pipeline.step(x, y, update=bool(i % 2))
            found = [p.detach().clone() for p in taken.parameters()]
            same(self, found, list(eager.parameters()), schedule)
            bits = bits or found
            self.assertTrue(all(torch.equal(a, b) for a, b in zip(found, bits)), schedule)
        self.assertAlmostEqual(pipeline.evaluate(x, y), float(F.cross_entropy(eager(x), y)), 5)

    def test_a_bf16_plan_converts_at_the_borders(self):
        x, y = torch.randn(12, 8), torch.randint(0, 4, (12,))
        module = module_of(lambda m, y, x: torch.einsum("nc,cd->nd", y, m.b.weight).cumsum(1))
        eager = copy.deepcopy(module)
        F.cross_entropy(eager(x), y).backward()
        model = cgpipe.from_torch(module, (x,), loss=nn.CrossEntropyLoss(), example_target=y)
        pipeline = cgpipe.Pipeline(model, 2, None, 2, 12, precision="bf16",
                                   optimizer=cgpipe.SGD(lr=0.0))
        pipeline.step(x, y)
        for (name, p), q in zip(eager.named_parameters(), module.parameters()):
            if p.grad is not None:
                far = float((p.grad - q.grad).norm() / p.grad.norm())
                self.assertTrue(1e-6 < far < 3e-2, (name, far))

    def test_a_constant_that_changes_is_seen(self):
        part = Part(lambda m, y, x: torch.hypot(y, m.mask).cumsum(1))
        part.register_buffer("mask", torch.ones(8))
        module, x = nn.Sequential(nn.Linear(8, 8), part), torch.randn(6, 8)
        model = GPipe(copy.deepcopy(module), [1, 1])
        pipeline = cgpipe.Pipeline(cgpipe.from_torch(copy.deepcopy(module), (x,)), batch=6,
                                   external_loss=True)
        for value in (1, 2):
            for own in (module[1], model[1]):
                own.mask.fill_(value)
            same(self, gradients(model, x)[:2], gradients(module, x), value)
        captured = pipeline.model._captured
        captured.module[1].mask.fill_(2)
        with self.assertRaisesRegex(ArgumentError, "1.mask has changed"):
            pipeline.forward(x)

    def test_the_whole_module_is_taken_where_a_region_would_mix_samples_or_draw(self):
        def table(module, y, x):
            ids = (x * 3).long().clamp(0, 7)
            return F.embedding(ids, module.scale[:, None] * module.b.weight,
                               scale_grad_by_freq=True).sum(1) + y
        whole = {
            "samples that are added up": lambda m, y, x: y.cumsum(0),
            "samples that are sorted": lambda m, y, x: y.sort(0).values,
            "the mean of samples": lambda m, y, x: y.cumsum(1) - y.cumsum(1).mean(0),
            "gradients that are counted": table,
            "a number of samples": lambda m, y, x: (y / y.shape[0]).cumsum(1),
            "random numbers": lambda m, y, x: F.rrelu(y, training=True).cumsum(1),
            "a statistic": lambda m, y, x: torch.hypot(y, m.norm.running_mean) + m.norm(y),
            "a statistic, in the engine": lambda m, y, x: y - m.norm.running_mean + m.norm(y),
            "a buffer": lambda m, y, x: (m.count.add_(y.detach().cumsum(1).sum()), y)[1],
        }
        x = torch.randn(6, 8)
        for name, function in whole.items():
            module = module_of(function)
            module[1].register_buffer("count", torch.zeros(()))
            module[1].norm = nn.BatchNorm1d(8)
            model = cgpipe.from_torch(module, (x,), verify=False)
            with self.subTest(name):
                self.assertEqual(torchs(model), ["Part"])
                self.assertRegex(model.report(), r"(?m)^1 \(Part\): ((?!only).)*$")

    def test_the_report_has_the_memory_that_autograd_keeps(self):
        class Product(nn.Module):
            def forward(self, x):  # autograd keeps two tensors of 4-byte numbers
                return (x.cumsum(1) * x.detach().cumsum(1)).cumsum(1)
        for module, width, kept in ((Product(), 64, "512 B"), (Product(), 1024, "8 KiB"),
                                    (Part(on_data), 8, "96 B")):
            model = cgpipe.from_torch(nn.Sequential(module), (torch.randn(4, width),),
                                      input_gradients=True)
            self.assertRegex(model.report(), f"^0 .*; keeps {kept} a sample; ")

    def test_plans_count_the_memory_that_autograd_keeps(self):
        module = nn.Sequential(nn.Linear(8, 8), Part(lambda m, y, x: y.cumsum(1).sort(1).values),
                               nn.Linear(8, 8))
        x, target = torch.randn(8, 8), torch.randn(8, 8)
        model = cgpipe.from_torch(module, (x,), loss=nn.MSELoss(), example_target=target)
        kept = model._captured.regions.all[0].kept_bytes
        self.assertGreater(kept[3], kept[2])
        for recompute in ("never", "always"):
            options = {"stages": 2, "balance": [2, 1], "chunks": 4, "batch": 12,
                       "recompute": recompute}
            plan = cgpipe.plan(model, **options)
            first, second = plan.devices  # 2 micro-batches of 3 samples are in flight
            self.assertEqual((first.outside_bytes, second.outside_bytes), (2 * kept[3], 0))
            line = f"outside the plan: PyTorch in regions keeps up to {2 * kept[3]:,} bytes"
            self.assertIn(f"{line} on cpu:0 (measured)\n", str(plan))
            self.assertIn(line, plan._repr_html_())
            limit = first.planned_bytes + first.outside_bytes
            cgpipe.plan(model, memory=limit, **options)
            with self.assertRaisesRegex(LimitError, "device cpu:0: needs .*, outside the plan "):
                cgpipe.plan(model, memory=limit - 1, **options)
        self.assertNotIn("outside", str(cgpipe.plan(model, inference=True, batch=16)))
        model = cgpipe.from_torch(module, (x,), loss=nn.MSELoss(), example_target=target,
                                  verify=False)
        self.assertIn("not measured (verify=True measures it)", str(cgpipe.plan(model, batch=16)))
        with self.assertRaisesRegex(ArgumentError, "^1: cumsum, sort: PyTorch runs it .* its "
                                    r"memory is not measured \(verify=True"):
            cgpipe.plan(model, batch=16, memory="1GiB")

    def test_regions_read_any_number_of_tensors(self):
        class Many(nn.Module):
            def __init__(self, function):
                super().__init__()
                self.parts = nn.ModuleList(nn.Linear(8, 4) for _ in range(11))
                self.few = nn.ParameterList([nn.Parameter(torch.randn(4)) for _ in range(6)])
                self.whole, self.function = Whole(), function

            def forward(self, x):
                return self.function(self, [part(x) for part in self.parts], x)

        class Whole(nn.Module):
            def forward(self, x, *tensors):
                y = sum(tensors) * x[:, :4]
                return y.sin() if float(y.detach().sum()) > -1e9 else y

        functions = {
            "ops": lambda m, t, x: torch.stack([*t, *(t[0] * p for p in m.few)],
                                               1).cumsum(1).sum(1),
            "a module": lambda m, t, x: m.whole(x, *t)}
        x = torch.randn(6, 8)
        for name, function in functions.items():
            module, bits = nn.Sequential(nn.Linear(8, 8), Many(function), nn.Linear(4, 4)), None
            expected = gradients(copy.deepcopy(module), x, 3)
            self.assertEqual(torchs(cgpipe.from_torch(module, (x,), verify=False)),
                             ["cumsum"] if name == "ops" else ["Whole"])
            for balance, checkpoint in LAYOUTS:
                model = GPipe(copy.deepcopy(module), balance, chunks=3, checkpoint=checkpoint)
                found = gradients(model, x)
                bits = bits or found
                with self.subTest(name, balance=balance):
                    same(self, found, expected, name)
                    self.assertTrue(all(a is b or torch.equal(a, b) for a, b in zip(found, bits)))

    def test_pytorch_has_the_threads_that_are_asked_for_and_the_callers_afterwards(self):
        counts, before = [], torch.get_num_threads()

        def count(module, y, x):
            counts.append(torch.get_num_threads())
            return on_data(module, y, x)
        x, module = torch.randn(6, 8), nn.Sequential(Part(count))
        for number in (1, 3):
            model = GPipe(copy.deepcopy(module), [1], torch_threads=number, verify=False)
            pipeline = cgpipe.Pipeline(cgpipe.from_torch(
                copy.deepcopy(module), (x,), torch_threads=number), batch=6, external_loss=True)
            for run in (model, pipeline.forward):
                run(x)
                self.assertEqual((counts[-1], torch.get_num_threads()), (number, before))
        with self.assertRaisesRegex(ArgumentError, "torch_threads: at least 1 is expected, got 0"):
            cgpipe.from_torch(module, (x,), torch_threads=0)
        with self.assertRaisesRegex(ValueError, "torch_threads must be positive"):
            GPipe(module, [1], torch_threads=0)

    def test_messages_name_the_path_and_the_ops(self):
        x = torch.randn(6, 8)
        module = nn.Sequential(nn.Sequential(Part(lambda m, y, x: y.sort(1).values.cumsum(1))))
        model = cgpipe.from_torch(module, (x,), loss=nn.CrossEntropyLoss(),
                                  example_target=torch.randint(0, 8, (6,)))
        line = r"sort \(test_capture_regions.py:\d+\): the engine has no such op"
        self.assertRegex(model.report(), rf"(?m)^0.0 \(Part\): has not run; keeps .* B a sample; "
                         rf"only sort, cumsum; {line}$")
        with self.assertRaisesRegex(ArgumentError, "^0.0: sort, cumsum: .*cpu is expected, got"):
            cgpipe.plan(model, devices=["cuda:0"])
        with self.assertRaisesRegex(CaptureError, f"^0.0: {line}$"):
            cgpipe.from_torch(module, (x,), fallback=False)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            pipeline = cgpipe.Pipeline(model, batch=6)
            for _ in range(2):
                pipeline.step(x, torch.zeros(6).long())
        texts = [str(w.message) for w in caught if "PyTorch runs" in str(w.message)]
        self.assertEqual(len(texts), 1)
        self.assertRegex(texts[0], rf"0.0 \(Part\): \d+ % of the time; keeps .* B a sample; only "
                         rf"sort, cumsum; {line}$")


if __name__ == "__main__":
    unittest.main()
