# SPDX-License-Identifier: Apache-2.0
"""Random modules train as in PyTorch, or are refused with a message that names the cause. Each test
compares outputs or losses, gradients, buffers and weights of three steps of SGD, with two numbers
of samples. GPipe trains two thirds of the modules. A Pipeline trains the others, which are captured
with a loss.

CGP_TEST_SEED repeats a run. CGP_TEST_MODULES is the number of modules; the default is 40."""

import collections
import concurrent.futures
import copy
import multiprocessing
import os
import random
import unittest
import warnings

import torch_support  # noqa: F401  skips without PyTorch

import torch
from random_losses import Loss
from random_modules import CHANGES, draw

import cgpipe
from cgpipe.errors import ArgumentError
from cgpipe.torch import CaptureError
from cgpipe.torchgpipe import GPipe

SEED = int(os.environ.get("CGP_TEST_SEED", random.SystemRandom().randrange(2 ** 32)))
COUNT = int(os.environ.get("CGP_TEST_MODULES", 40))

#: Allowed differences of tensors by kind, relative to a tensor's norm.
BOUNDS = {"output": 1e-5, "buffer": 1e-5, "gradient": 1e-4, "weight": 1e-5}
#: If the norm of a loss's gradient is smaller, it counts as this number in the comparison. Such a
#: gradient may be zero except for rounding errors, for example if all logits are equal. All runs of
#: PyTorch make the same rounding errors, so repeated runs do not show them.
SMALL = 2e-3
#: If the outputs of a step exceed the outputs of the first step by more than this factor, training
#: diverges, and the step is not compared.
DIVERGED = 1e3
#: A tensor is not compared if rounding errors change it by more than UNLIKE in one of RUNS runs.
UNLIKE, RUNS = 1e-2, 12


def as_tuple(x):
    return x if isinstance(x, tuple) else (x,)


def parts_of(x, samples):
    """Cut an input into micro-batches of ``samples`` samples; the last one may be smaller."""
    parts = [part.split(samples) for part in as_tuple(x)]
    return [part if isinstance(x, tuple) else part[0] for part in zip(*parts)]


def moved(x):
    """Return a copy of a float tensor with each element changed by a few rounding errors."""
    return x * (1 + 4 * 2.0 ** -23 * (2 * torch.rand_like(x) - 1)) if x.is_floating_point() else x


class Training:
    """Three training steps of a module. The function ``call`` takes an input and runs ``module``.
    If ``move`` is true, inputs and weights change by rounding errors."""

    def __init__(self, case, call, module, move=False):
        self.found, self.case, self.move = {}, case, move
        self.call, self.module = call, module
        if move:
            with torch.no_grad():
                for p in module.parameters():
                    p.copy_(moved(p))
        for i, x in enumerate(case.inputs):
            if i == 1 and case.change is not None:
                case.change(module)
            self._step(i, x)

    def _step(self, i, x):
        case = self.case
        given = tuple(t.clone().requires_grad_(t.is_floating_point() and case.wants)
                      for t in (map(moved, as_tuple(x)) if self.move else as_tuple(x)))
        optimizer = torch.optim.SGD(self.module.parameters(), lr=0.01)
        optimizer.zero_grad()
        outputs = as_tuple(self.call(given if isinstance(x, tuple) else given[0]))
        weights = case.weights(i, outputs)
        pairs = [(y, w) for y, w in zip(outputs, weights) if y.requires_grad]
        if pairs:
            sum((y * w).sum() for y, w in pairs).backward()
        tensors = {f"output {k}": y.detach().clone() for k, y in enumerate(outputs)}
        tensors.update((f"gradient input {k}", x.grad) for k, x in enumerate(given)
                       if x.requires_grad)
        tensors.update((f"gradient {name}", None if p.grad is None else p.grad.clone())
                       for name, p in self.module.named_parameters())
        optimizer.step()
        tensors.update((f"buffer {name}", b.clone()) for name, b in self.module.named_buffers())
        tensors.update((f"weight {name}", p.detach().clone())
                       for name, p in self.module.named_parameters())
        self.found.update((f"{name}, step {i}", value) for name, value in tensors.items())


class LossTraining:
    """Three training steps of a module with a loss. The function ``step`` takes inputs and a
    target, returns the loss and leaves gradients. The function ``update`` applies the gradients."""

    def __init__(self, case, module, step, update):
        self.found = {}
        for i, (x, target) in enumerate(zip(case.inputs, case.targets)):
            loss = torch.as_tensor(step(x, target), dtype=torch.float32).detach().clone()
            if not loss.isfinite():
                break  # a pipeline refuses updates after such a loss
            tensors = {"output loss": loss}
            for name, p in module.named_parameters():
                # A pipeline has a gradient of 0 where PyTorch has no gradient.
                tensors[f"gradient {name}"] = (torch.zeros_like(p) if p.grad is None
                                               else p.grad.clone())
            update()
            tensors.update((f"buffer {name}", b.clone()) for name, b in module.named_buffers())
            tensors.update((f"weight {name}", p.detach().clone())
                           for name, p in module.named_parameters())
            self.found.update((f"{name}, step {i}", value) for name, value in tensors.items())


def size(x):
    return 0.0 if x is None else float(x.double().norm())


class Case:
    """A random module, with its inputs, loss or change, and layout."""

    def __init__(self, seed):
        torch.manual_seed(seed)
        self.pick = pick = random.Random(seed)
        self.drawn = drawn = draw(pick)
        drawn.module.train(pick.random() < 0.7)
        self.chunks, self.wants = pick.choice([1, 1, 2]), pick.random() < 0.8
        least = 2 * self.chunks
        # If forward branches on the number of samples, all micro-batches must have the same size.
        step = self.chunks if "samples in forward" in drawn.constructs else 1
        sizes = [step * pick.randint(least // step, 5 + least // step) for _ in range(2)]
        self.inputs = [drawn.inputs(n) for n in (*sizes, sizes[0])]
        self.name, self.change, self.loss = None, None, None
        if pick.random() < 0.33:
            self._draw_loss()
        elif pick.random() < 0.3:
            self.name = pick.choice(sorted(CHANGES))
            self.change = CHANGES[self.name](pick, drawn.module)
        self.constructs = sorted({*drawn.constructs, *(
            [f"changed {self.name}"] if self.change else []), *(
            [f"loss: {self.loss.name}"] if self.loss else []),
            *([] if drawn.module.training else ["eval"])})
        self._weights = {}
        self.layers = len(drawn.module)
        self.stages = pick.randint(1, self.layers)
        self.mode = pick.choice(["never", "always", "except_last"])

    def _draw_loss(self):
        """Draw a loss and its targets, if an output has a gradient."""
        outputs = [as_tuple(copy.deepcopy(self.drawn.module)(x)) for x in self.inputs]
        gradients = [y.requires_grad for y in outputs[0]]
        if any(gradients):
            self.loss = Loss(self.pick, gradients)
            sizes = [len(as_tuple(x)[0]) for x in self.inputs]
            single = any(size % -(-max(sizes) // self.chunks) == 1 for size in sizes)
            if single or "samples in forward" in self.drawn.constructs:
                # A pipeline refuses a forward that takes another path, and a batch norm refuses a
                # single sample. So all steps get the same number of samples.
                self.inputs[1] = self.inputs[2]
                outputs[1] = outputs[2]
            self.batch = max(len(as_tuple(x)[0]) for x in self.inputs)
            self.targets = [self.loss.target(of_step) for of_step in outputs]

    def weights(self, step, outputs):
        """Return the gradients that the test passes for a step's outputs."""
        if step not in self._weights:
            self._weights[step] = [torch.randn(y.shape) for y in outputs]
        return self._weights[step]

    def eager(self, move=False):
        """Train the module by PyTorch; return the Training. If ``move`` is true, its rounding
        errors differ."""
        module = copy.deepcopy(self.drawn.module)
        if move:  # contiguous inputs change the rounding of products in bfloat16
            for layer in module.modules():
                layer.register_forward_pre_hook(lambda _, args: tuple(
                    x.contiguous() if torch.is_tensor(x) else x for x in args))

        def call(x):
            # The micro-batches of a Pipeline keep their planned size; GPipe cuts each batch into
            # ``chunks`` micro-batches.
            samples = -(-(len(as_tuple(x)[0]) if self.loss is None else self.batch) // self.chunks)
            outputs = [as_tuple(module(part)) for part in parts_of(x, samples)]
            return tuple(torch.cat(parts) for parts in zip(*outputs))
        if self.loss is None:
            return Training(self, call, module, move)
        if move:
            with torch.no_grad():
                for p in module.parameters():
                    p.copy_(moved(p))
        optimizer = torch.optim.SGD(module.parameters(), lr=0.01)

        def step(x, target):
            optimizer.zero_grad()
            if move:
                x = tuple(map(moved, x)) if isinstance(x, tuple) else moved(x)
            loss = self.loss(call(x), target)
            loss.backward()
            return loss
        return LossTraining(self, module, step, optimizer.step)

    def pipeline(self):
        """Train the module by a Pipeline with a loss; return the training and the pipeline's
        report."""
        module = copy.deepcopy(self.drawn.module)
        # nn.Sequential takes one argument, which may be a tuple.
        model = cgpipe.from_torch(module, (self.inputs[0],), loss=self.loss,
                                  example_target=self.targets[0])
        with cgpipe.Pipeline(model, stages=min(self.stages, len(model.layers)), chunks=self.chunks,
                             recompute=self.mode, batch=self.batch,
                             optimizer=cgpipe.SGD(lr=0.01)) as pipeline:
            def step(x, target):
                return pipeline.step(*as_tuple(x), target, update=False)
            return LossTraining(self, module, step, pipeline.update), model

    def gpipe(self):
        """Train the module by GPipe; return the training and the GPipe module."""
        module = copy.deepcopy(self.drawn.module)
        balance = [1] * (self.stages - 1) + [self.layers - self.stages + 1]
        model = GPipe(module, balance, chunks=self.chunks, checkpoint=self.mode)
        return Training(self, model, module), model

    def differences(self, found, expected):
        """Compare a training with ``expected``, a training by PyTorch. Return the tensors that
        differ by more than is allowed, with a text that has the difference and the bound."""
        found, wrong, others = found.found, {}, []
        end = self._diverged(expected.found)
        for name, want in expected.found.items():
            if int(name[-1]) >= end:
                continue
            scale = max(size(want), 1e-3 * self._largest(expected.found, name)) or 1.0
            if self.loss is not None and name.startswith("gradient"):
                scale = max(scale, SMALL)
            far = difference(found.get(name), want, scale)
            bound, i = BOUNDS[name.split()[0]], 0
            while far > bound and i < RUNS:
                if i == len(others):
                    others.append(self.eager(True).found)
                own = difference(others[i][name], want, scale)
                bound, i = max(bound, float("inf") if own > UNLIKE else 8 * own), i + 1
            if far > bound:
                wrong[name] = f"{far:.1e} > {bound:.1e}"
        return wrong

    @staticmethod
    def _diverged(tensors):
        """Return the first step whose outputs are too large to be compared. If there is none,
        return the number of steps."""
        sizes = [0.0] * 3
        for name, x in tensors.items():
            if name.startswith("output"):
                sizes[int(name[-1])] = max(sizes[int(name[-1])], size(x))
        return next((i for i, x in enumerate(sizes) if x > DIVERGED * max(sizes[0], 1.0)), 3)

    @staticmethod
    def _largest(tensors, name):
        """Return the largest norm of a gradient in this tensor's module and step; 0 if the tensor
        is not a gradient."""
        if not name.startswith("gradient"):
            return 0.0
        path, step = name.split(", ")[0].rpartition(".")[0], name.split(", ")[1]
        return max((size(x) for key, x in tensors.items()
                    if key.startswith(path) and key.endswith(step)), default=0.0)


def difference(a, b, scale):
    if a is None or b is None:
        return 0.0 if a is b else float("inf")
    if a.shape != b.shape or a.dtype != b.dtype:
        return float("inf")
    far = float((a.double() - b.double()).norm()) / scale
    return far if far == far else float("inf")


def judge(seed):
    """Return the constructs of a module, what runs it ("engine", "part", "PyTorch" or "refused"),
    and a text. The text has the refusal, or how the module does not train as in PyTorch."""
    warnings.simplefilter("ignore")
    case = Case(seed)
    expected = case.eager()
    try:
        found, model = case.gpipe() if case.loss is None else case.pipeline()
    except (CaptureError, ArgumentError) as error:
        return case.constructs, "refused", f"refused: {case.constructs}: {error}"
    wrong = case.differences(found, expected)
    report = "".join(line for line in model.report().splitlines() if "proof: " not in line)
    runs = ("engine" if not report else "PyTorch" if report.startswith("the module itself")
            else "part")
    text = f"{wrong}\n{case.constructs}\n{case.drawn.module}" if wrong else ""
    return case.constructs, runs, text


def judge_all():
    """Judge all modules, in one process for each core. A process that dies fails its modules."""
    processes = min(COUNT, len(os.sched_getaffinity(0)))
    if processes == 1:
        yield from map(judge, range(SEED, SEED + COUNT))
        return
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(processes, context) as pool:
        yield from pool.map(judge, range(SEED, SEED + COUNT))


class Modules(unittest.TestCase):
    def test_they_train_as_in_pytorch_or_are_refused_by_name(self):
        print(f"CGP_TEST_SEED={SEED}")
        table = collections.defaultdict(collections.Counter)
        for i, (constructs, verdict, text) in enumerate(judge_all()):
            if verdict == "refused":
                print(text)
            with self.subTest(seed=SEED + i):
                self.assertTrue(verdict == "refused" or not text, text)
            for construct in ["all", *constructs]:
                table[construct][verdict] += 1
        columns = ["engine", "part", "PyTorch", "refused"]
        for construct, counts in sorted(table.items()):
            print(f"{construct:28}" + "".join(f"{counts[c]:8} {c}" for c in columns))
        refused = table["all"]["refused"]
        self.assertLessEqual(refused, max(1, 0.02 * COUNT))


if __name__ == "__main__":
    unittest.main()
