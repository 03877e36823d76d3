# SPDX-License-Identifier: Apache-2.0
"""An explanation lists where each part of a module runs, and why, under the user's names. Unusual
modules and inputs either run, or are refused with a message that names them."""

import collections
import contextlib
import io
import pathlib
import re
import time
import unittest
import warnings

from torch_support import Reverse, torch
from torch import nn
from torch.nn import functional as F

import cgpipe
from cgpipe.torch import CaptureError, Entry, capture, explain
from cgpipe.torchgpipe import GPipe
from cgpipe.torchgpipe.balance import balance_by_size

PAGES = pathlib.Path(__file__).resolve().parents[2] / "docs"
#: Words for internals of PyTorch and of this package; messages must not contain them.
INSIDE = (r"torch\.(_|export|fx)|[Gg]uard|data-dependent expr|symbol|tracing|proxy|aten|u0"
          r"|specializ|Whole|Flat|_Walk|Traceback|subclass|Dynamo")
Named = collections.namedtuple("Named", "a b")


class Part(nn.Module):
    """Call ``function(module, *inputs)``."""

    def __init__(self, function, **parts):
        super().__init__()
        self.lin, self.function = nn.Linear(8, 8), function
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *inputs, **named):
        return self.function(self, *inputs, **named)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin, self.cum = nn.Linear(8, 8), Cumulated()

    def forward(self, x):
        return x + self.cum(F.relu(self.lin(x)))


class Cumulated(nn.Module):
    def forward(self, x):
        return torch.cumsum(x, 1)


def part(function, **parts):
    return lambda: Part(function, **parts)


def hooked():
    module = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    module[0].register_forward_hook(lambda module, given, y: y * 2)
    return module


def tied():
    module = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
    module[2].weight = module[0].weight
    return module


def plain():
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU())


def scripted():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.script(plain())


def on_meta():
    with torch.device("meta"):
        return plain()


X, IDS = torch.ones(4, 8), torch.ones(4, 3, dtype=torch.long)

#: Modules that run. Each entry has a function that makes the module, its inputs, and the parts that
#: PyTorch runs, as (path, op, text).
RUN = {
    "hook": (hooked, (X,), [("0", "", "forward hooks")]),
    "autograd.Function": (part(lambda m, x: Reverse.apply(m.lin(x))), (X,),
                          [("", "Reverse", "backward of an autograd.Function")]),
    "control flow": (part(lambda m, x: m.lin(x) if x.sum() > 0 else x), (X,),
                     [("", "", "data-dependent control flow")]),
    "LSTM": (part(lambda m, x: m.rnn(x)[0], rnn=nn.LSTM(8, 8, batch_first=True)),
             (torch.ones(4, 5, 8),), [("rnn", "lstm", "no such op")]),
    "complex": (part(lambda m, x: torch.view_as_real(torch.fft.fft(m.lin(x)))[..., 0]), (X,),
                [("", "fft_fft", "no such op")]),
    "sparse": (part(lambda m, x: torch.sparse.mm(torch.eye(8).to_sparse(), m.lin(x).T).T), (X,),
               [("", "_sparse_addmm", "cannot trace this op")]),
    "attribute": (part(lambda m, x: (setattr(m, "n", 1), m.lin(x))[1]), (X,),
                  [("", "n", "attributes that forward sets")]),
    "NumPy": (part(lambda m, x: m.lin(torch.from_numpy(x.detach().numpy()))), (X,),
              [("", "numpy", "no NumPy")]),
    "scripted part": (lambda: nn.Sequential(nn.Linear(8, 8), scripted()), (X,),
                      [("1", "", "a scripted module has no Python code")]),
    "weight norm": (lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(8, 8))),
                    (X,), [("0.parametrizations.weight.0", "_weight_norm", "no such op")]),
    "integers": (lambda: nn.Sequential(nn.Embedding(10, 8), nn.Linear(8, 2)), (IDS,), []),
    "bool": (part(lambda m, x, keep: m.lin(x) * keep.float()), (X, X > 0), None),
    "dict": (part(lambda m, x: {"a": m.lin(x), "b": x}), (X,), []),
    "named tuple": (part(lambda m, x: Named(m.lin(x), x)), (X,), []),
    "None": (part(lambda m, x: (m.lin(x), None)), (X,), []),
    "text": (part(lambda m, x, mode: m.lin(x) if mode == "a" else x), (X, "a"), []),
    "list": (part(lambda m, xs: m.lin(xs[0]) + xs[1]), ([X, X],), []),
    "tied": (tied, (X,), []),
    "ParameterList": (part(lambda m, x: x @ m.ps[0], ps=nn.ParameterList(
        [nn.Parameter(torch.ones(8, 8))])), (X,), []),
    "ModuleDict": (part(lambda m, x: m.d["a"](x), d=nn.ModuleDict({"a": nn.Linear(8, 8)})), (X,),
                   []),
    "DataParallel": (lambda: nn.Sequential(nn.Linear(8, 8), nn.DataParallel(nn.Linear(8, 8))), (X,),
                     []),
    "no samples": (plain, (X[:0],), []),
    "one sample": (plain, (X[:1],), []),
    "a tensor": (plain, X, []),
}

#: Modules and inputs that are refused. Each entry has a function that makes the module, its inputs,
#: and the path and text of the message.
REFUSED = {
    "lazy": (lambda: nn.Sequential(nn.LazyLinear(8)), (X,), "0.weight", "uninitialized"),
    "half": (lambda: plain().half(), (X,), "0.weight", "float32 is expected, got float16"),
    "meta": (on_meta, (X,), "0.weight", "on the CPU is expected, got one on meta"),
    "scripted": (scripted, (X,), "", "Python code is expected, got a scripted one"),
    "complex": (plain, (X.to(torch.complex64),), "input 0", "got complex64"),
    "double": (plain, (X.double(),), "input 0", "float32 is expected, got float64"),
    "sparse": (plain, (X.to_sparse(),), "input 0", "dense is expected, got sparse_coo"),
    "on meta": (plain, (X.to("meta"),), "input 0", "on the CPU is expected, got one on meta"),
    "scalar": (plain, (torch.tensor(1.0),), "input 0", "N, .... is expected, got a scalar"),
    "array": (plain, (X.numpy(),), "inputs", "one tensor .* is expected, got ndarray"),
    "text": (plain, ("a",), "inputs", "one tensor .* is expected, got str"),
    "nothing": (plain, (), "inputs", "one tensor .* is expected, got none"),
    "other samples": (part(lambda m, x, y: x + y), (X, X[:1]), "input 1",
                      "4 samples are expected, as in input 0, got 1"),
    "in a list": (part(lambda m, xs: xs[0]), ([X, X.double()],), "input 0, element 1",
                  "float32 is expected, got float64"),
    "integers": (part(lambda m, x: x * 2), (IDS,), "", "float32 .* is expected, got int64"),
    "complex result": (part(lambda m, x: torch.fft.fft(m.lin(x))), (X,), "",
                       "float32 .* is expected, got complex64"),
    "rows": (part(lambda m, x: m.lin(x)[x[:, 0] > 2]), (X,), "", "for 4 samples"),
    "no output": (part(lambda m, x: None), (X,), "", "at least one tensor .* got none"),
    "one number of samples": (part(lambda m, x: m.lin(x.reshape(4, 8))), (X,), "",
                              "takes 4 alone"),
}


class Explanations(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        warnings.simplefilter("ignore")

    def test_each_op_has_its_module_its_line_and_what_runs_it(self):
        model = nn.Sequential(collections.OrderedDict(
            [("first", nn.Linear(8, 8)), *((f"{i}", Block()) for i in range(3))]))
        found = explain(model, X)
        line = next(e.line for e in found.engine if e.op == "relu")
        self.assertRegex(line, r"^test_capture_explain.py:\d+$")
        self.assertIn(Entry("engine", "first", "Linear", "linear", "", 1, ""), found.entries)
        self.assertIn(Entry("engine", "1", "Block", "relu", line, 1, ""), found.entries)
        self.assertEqual([(e.path, e.kind, e.op, e.reason) for e in found.pytorch], [
            (f"{i}.cum", "Cumulated", "cumsum", "the engine has no such op") for i in range(3)])
        self.assertEqual(found.refused, [])

    def test_modules_that_are_alike_are_one_row_of_a_table(self):
        text = str(explain(nn.Sequential(*(Block() for _ in range(12))), X))
        rows = [re.split("  +", line) for line in text.splitlines()]
        self.assertEqual(rows[0], ["runs", "module", "op", "line", "calls", "reason"])
        self.assertEqual(rows[1][:3], ["PyTorch", "0-11.cum (Cumulated)", "cumsum"])
        self.assertEqual([(row[1], row[2], row[4]) for row in rows[2:]], [
            ("0-11.lin (Linear)", "linear", "12"), ("0-11 (Block)", "relu", "12"),
            ("0-11 (Block)", "add", "12")])
        starts = {line.index("cumsum" if "cumsum" in line else "linear")
                  for line in text.splitlines()[1:3]}
        self.assertEqual(len(starts), 1)

    def test_all_reasons_are_found_at_once(self):
        def own(function):
            return type("Own", (Part,), {})(function)
        model = nn.Sequential(
            own(lambda m, x: torch.cumsum(m.lin(x), 1).sort(1).values),
            own(lambda m, x: (setattr(m, "n", 1), Reverse.apply(x))[1]), nn.Linear(8, 8),
            nn.Linear(8, 8), own(lambda m, x: m.lin(x) if x.sum() > 0 else x))
        for i in (2, 3):
            model[i].register_forward_pre_hook(lambda module, given: None)
        found = {(e.path, e.op) for e in explain(model, X).pytorch}
        self.assertLessEqual({("0", "cumsum"), ("0", "sort"), ("1", "n"), ("1", "Reverse"),
                              ("2", ""), ("3", ""), ("4", "")}, found)
        self.assertNotIn("0.lin", {path for path, _ in found})

    def test_a_refused_module_is_explained_not_raised(self):
        found = explain(nn.Sequential(nn.Linear(8, 8), Cumulated(), Part(lambda m, x: x.argmax(1))),
                        X)
        self.assertRegex(found.refused[0].reason, "float32 .* is expected, got int64")
        self.assertLessEqual({("1", "cumsum"), ("2", "argmax")},
                             {(e.path, e.op) for e in found.refused})
        self.assertIn(("0", "linear"), [(e.path, e.op) for e in found.engine])

    def test_what_forward_raises_comes_through(self):
        with self.assertRaisesRegex(RuntimeError, "size mismatch|shapes cannot"):
            explain(Part(lambda m, x: m.lin(x) @ torch.ones(3)), X)
        with self.assertRaisesRegex(TypeError, "module: an nn.Module is expected, got function"):
            explain(lambda x: x, X)

    def test_a_module_stays_as_it_is(self):
        module = nn.Sequential(nn.BatchNorm1d(8), nn.Dropout(0.5),
                               Part(lambda m, x: (setattr(m, "n", 1), m.lin(x))[1]))
        before, state = module[0].running_mean.clone(), torch.get_rng_state()
        explain(module, X)
        self.assertTrue(torch.equal(module[0].running_mean, before))
        self.assertTrue(torch.equal(torch.get_rng_state(), state))
        self.assertFalse(hasattr(module[2], "n"))
        self.assertTrue(all(p.grad is None for p in module.parameters()))

    def test_integers_that_follow_from_inputs_are_computed_before_a_step(self):
        found = explain(nn.Sequential(Part(lambda m, ids: m.e(ids + 1), e=nn.Embedding(9, 8))), IDS)
        self.assertEqual([(e.path, e.op) for e in found.pytorch], [("0", "add")])
        self.assertRegex(found.pytorch[0].reason, "before each step")


class Odd(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        warnings.simplefilter("ignore")

    def test_modules_that_run(self):
        for name, (make, inputs, expected) in RUN.items():
            with self.subTest(name):
                found = explain(make(), inputs)
                self.assertNotRegex(str(found), INSIDE)
                self.assertEqual(found.refused, [])
                for path, op, text in expected or ():
                    self.assertTrue(any((e.path, e.op) == (path, op) and text in e.reason
                                        for e in found.pytorch), str(found))
                if expected == []:
                    self.assertEqual(found.pytorch, [])

    def test_modules_and_inputs_that_are_refused(self):
        for name, (make, inputs, path, text) in REFUSED.items():
            with self.subTest(name):
                found = explain(make(), inputs)
                self.assertNotRegex(str(found), INSIDE)
                self.assertEqual(found.refused[0].path, path)
                self.assertRegex(found.refused[0].reason, text)
                with self.assertRaisesRegex(CaptureError, text) as caught:
                    capture(make(), inputs, verify=False)
                self.assertNotRegex(str(caught.exception), INSIDE)

    def test_named_inputs_have_their_names(self):
        def scaled(m, x, scale=None):
            return m.lin(x) * scale
        self.assertEqual(explain(Part(scaled), X, {"scale": 2.0}).pytorch, [])
        found = explain(Part(scaled), X, {"scale": torch.tensor(2.0)})
        self.assertEqual(found.refused[0].path, "input scale")

    def test_steps_name_the_input(self):
        model = cgpipe.from_torch(plain(), X, verify=False)
        pipeline = cgpipe.Pipeline(model, batch=4, external_loss=True, optimizer=cgpipe.SGD(lr=0.1))
        for x, kind, text in (
                (X[:, :7], ValueError, r"^input 0: \[N, 8\] is expected, got \[4, 7\]"),
                ("a", TypeError, "^input 0: a tensor or an array is expected, got str"),
                (X[:0], ValueError, "^input: at least one sample is expected, got none")):
            with self.assertRaisesRegex((kind, cgpipe.errors.ArgumentError), text):
                pipeline.forward(x)
        with self.assertRaisesRegex(CaptureError, "^example_target: 4 samples are expected"):
            cgpipe.from_torch(plain(), X, loss=nn.CrossEntropyLoss(), example_target=IDS[:2, 0])


class GPipes(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        warnings.simplefilter("ignore")

    def test_paths_are_those_of_gpipe(self):
        model = GPipe(nn.Sequential(nn.Embedding(10, 8), Cumulated(), nn.Linear(8, 8)), [1, 2],
                      verify=False)
        found = explain(model, IDS)
        self.assertEqual([(e.path, e.op) for e in found.pytorch], [("partitions.1.1", "cumsum")])
        self.assertEqual([e.path for e in found.engine], ["partitions.0.0", "partitions.1.2"])
        model(IDS)
        with self.assertRaises(cgpipe.errors.ArgumentError) as caught:
            model(IDS + 90)
        self.assertRegex(str(caught.exception),
                         "argument 0: .*is 91, expected 0 to 9.*partitions.0.0")
        self.assertNotIn("Whole", str(caught.exception))
        (_, runtime), = model._runtimes.values()
        names = {c.graph["name"] for found in runtime.captures.values() for c in found}
        self.assertEqual(names, {"GPipe"})

    def test_a_report_has_a_line_for_modules_that_are_alike_with_their_share_of_the_time(self):
        model = GPipe(nn.Sequential(*(Block() for _ in range(3))), [3], verify=False)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model(X).sum().backward()
        (text,) = [str(w.message) for w in caught if "PyTorch runs" in str(w.message)]
        self.assertEqual(text.partition("\n")[2] + "\nnot proven", model.report())
        self.assertRegex(model.report(),
                         r"^partitions.0.0-2.cum \(Cumulated\): \d+ % of the time; only cumsum; "
                         r"cumsum \(test_capture_explain.py:\d+\): the engine has no such op\n"
                         r"not proven$")
        (_, runtime), = model._runtimes.values()
        (captured,), = runtime.captures.values()
        share = sum(r.seconds for r in captured.regions.all) / captured.regions.seconds
        self.assertTrue(0 < share < 1)
        self.assertIn(f": {100 * share:.0f} % of the time", model.report())

    def test_shares_of_stages_add_up_to_at_most_all_of_the_time(self):
        module = nn.Sequential(*(nn.Linear(512, 512) for _ in range(2)))
        for layer in module:
            layer.register_forward_hook(lambda *_: time.sleep(0.01))
        model = GPipe(module, [1, 1], chunks=8)
        warnings.simplefilter("ignore")
        for _ in range(2):
            model(torch.randn(64, 512)).sum().backward()
        shares = [int(x) for x in re.findall(r": (\d+) % of the time", model.report())]
        self.assertTrue(shares and 50 < sum(shares) <= 101, shares)

    def test_outputs_and_balances_name_the_layer(self):
        with self.assertRaisesRegex(TypeError, "but got dict from partitions.1"):
            GPipe(nn.Sequential(nn.Linear(8, 8), Part(lambda m, x: {"a": x})), [1, 1])(X)
        with self.assertRaisesRegex(CaptureError, "^1.weight: float32 is expected"):
            balance_by_size(2, nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8).half()), X)


class Pages(unittest.TestCase):
    def test_pages_show_what_an_explanation_prints(self):
        for page in ("how-to/python.md", "how-to/from-torchgpipe.md"):
            text = (PAGES / page).read_text()
            (code, shown), = re.findall(r"```python\n((?:(?!```).)*explain\((?:(?!```).)*)```\n\n"
                                        r"```text\n(.*?)```", text, re.S)
            out = io.StringIO()
            with self.subTest(page), contextlib.redirect_stdout(out):
                names = {"torch": torch, "nn": nn, "cgpipe": cgpipe, "GPipe": GPipe}
                exec(compile(code, "mine.py", "exec"), names)
            self.assertEqual(out.getvalue(), shown)


if __name__ == "__main__":
    unittest.main()
