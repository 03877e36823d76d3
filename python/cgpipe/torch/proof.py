# SPDX-License-Identifier: Apache-2.0
"""Prove a capture: run the module by PyTorch and by the engine, and compare.

Both run forward and backward on two draws of inputs, with 2 and with 3 samples. Outputs, losses,
gradients of parameters and inputs, and all buffers must be near. How near follows from PyTorch
itself: it runs again with parameters and inputs moved by a few roundings, and the engine may differ
by eight times as much. Without a bound of this kind, a deep network could not be compared, since it
amplifies each rounding.

Dropout is left out on both sides: the masks of the engine are its own."""

from __future__ import annotations

import contextlib
import copy
import math
import os
from dataclasses import dataclass, replace
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from cgpipe.torch.captured import Captured
from cgpipe.torch.engine import Engine, Options, return_memory
from cgpipe.torch.opaque import original, replaced
from cgpipe.torch.surroundings import PROOF_SEED, put, seeded
from cgpipe.torch.watch import CaptureError, attributes_kept, buffers_kept
from cgpipe.worker import Worker

__all__ = ["prove", "wanted"]

#: Differences that are always allowed, relative to the tensor: of outputs, and of gradients.
OUTPUT, GRADIENT = 1e-5, 1e-4
#: A tensor that PyTorch's own roundings change by more than this cannot be compared.
UNPROVABLE = 1e-2
#: How many times PyTorch runs again, at first and before a tensor is refused.
FEW, MANY = 2, 16
#: Roundings by which parameters and inputs are moved.
MOVED = 4 * 2.0 ** -23


def wanted(verify: Optional[bool]) -> bool:
    """Return whether captures are proven: ``verify``, or the environment's CGPIPE_VERIFY."""
    return os.environ.get("CGPIPE_VERIFY", "1") != "0" if verify is None else verify


# --- runs ---


@dataclass
class _Run:
    """The tensors of a forward and backward, by name; None: no gradient."""

    outputs: Dict[str, Optional[Tensor]]
    gradients: Dict[str, Optional[Tensor]]


class _NoDropout(TorchFunctionMode):
    """Leave out dropout."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        if "dropout" in name:
            x = args[0] if args else kwargs["input"]
            return (x, torch.ones_like(x, dtype=torch.bool)) if name == "native_dropout" else x
        place = {"scaled_dot_product_attention": 4, "multi_head_attention_forward": 10}.get(name)
        if place is not None:
            args = [*args[:place], 0.0, *args[place + 1:]] if len(args) > place else args
            kwargs = {key: 0.0 if key == "dropout_p" else x for key, x in kwargs.items()}
        return func(*args, **kwargs)


@contextlib.contextmanager
def _kept(module: nn.Module, captured: Captured) -> Iterator[None]:
    """Keep buffers, scaled weights, attributes and the state of the random generator."""
    scaled = captured.regions.scaled
    before = [weight.detach().clone() for weight in scaled]
    with buffers_kept(module), attributes_kept(module), torch.random.fork_rng(devices=[]):
        try:
            yield
        finally:
            put(scaled, before)


@contextlib.contextmanager
def _replaced(module: nn.Module, parameters: Dict[str, Tensor]) -> Iterator[None]:
    """Let other tensors take the place of parameters, wherever the module has them.

    (torch.func.functional_call() leaves them there in a submodule that has two names.)
    """
    new = {id(p): parameters[name] for name, p in module.named_parameters() if name in parameters}
    places = [(child._parameters, key, p) for child in module.modules()
              for key, p in child._parameters.items() if id(p) in new]
    try:
        for table, key, p in places:
            table[key] = new[id(p)]  # type: ignore[assignment]
        yield
    finally:
        for table, key, p in places:
            table[key] = p


def _moved(tensor: Tensor, generator: torch.Generator) -> Tensor:
    """Return a tensor whose elements are moved by a few roundings."""
    if not tensor.is_floating_point():
        return tensor
    noise = torch.rand(tensor.shape, generator=generator) * 2 - 1
    return (tensor.detach() * (1 + MOVED * noise)).requires_grad_(tensor.requires_grad)


class _Eager:
    """Runs a flat module by PyTorch."""

    def __init__(self, flat: nn.Module, captured: Captured) -> None:
        self.flat, self.captured = flat, captured
        module: Any = flat.module
        self.module: nn.Module = module
        self.parameters: Dict[str, Tensor] = {name: p for name, p in self.module.named_parameters()
                                              if p.requires_grad}
        self.seeds: List[Tensor] = []

    def outputs(self, inputs: Sequence[Tensor]) -> List[Tensor]:
        """Return the outputs of a forward without gradients."""
        with _kept(self.module, self.captured), torch.no_grad(), _NoDropout():
            return list(self.flat(*inputs))

    def run(self, inputs: Sequence[Tensor], moved: Optional[torch.Generator] = None) -> _Run:
        """Run forward and backward; ``moved``: with parameters and inputs moved."""
        given = [x.detach().clone().requires_grad_(x.is_floating_point()) for x in inputs]
        # Detached, so that no hook of a parameter runs.
        parameters = {name: p.detach().requires_grad_() for name, p in self.parameters.items()}
        if moved is not None:
            given = [_moved(x, moved) for x in given]
            parameters = {name: _moved(p, moved) for name, p in parameters.items()}
        with _kept(self.module, self.captured), torch.enable_grad(), _NoDropout(), \
                _replaced(self.module, parameters), self._seeded():
            outputs = self.flat(*given)
            found = self._backward(outputs, given, parameters)
            buffers = {name: b.clone() for name, b in self.module.named_buffers()}
        return _Run({**self._outputs(outputs), **buffers}, found)

    def _seeded(self) -> contextlib.AbstractContextManager[None]:
        """Let modules that draw random numbers draw those of their regions."""
        def call(_path: str, module: nn.Module, args: Any, kwargs: Any) -> Any:
            with original(module), seeded(PROOF_SEED):
                return module(*args, **kwargs)
        return replaced({region.path: region.module for region in self.captured.regions.all
                         if region.draws}, call)

    def _seed(self, y: Tensor, kind: str, generator: torch.Generator) -> Tensor:
        """Return the gradient of an output: 1 for a loss, and 0 for an output beside a loss."""
        if kind == "loss":
            return torch.ones_like(y)
        if self.captured.graph["losses"]:
            return torch.zeros_like(y)
        return torch.randn(y.shape, generator=generator)

    def _outputs(self, outputs: Sequence[Tensor]) -> Dict[str, Optional[Tensor]]:
        kinds = [kind for kind, _ in self.captured.outputs]
        found: Dict[str, Optional[Tensor]] = {
            f"output {i}": y.detach() for i, (y, kind) in enumerate(zip(outputs, kinds))
            if kind == "output"}
        losses = [y.detach() for y, kind in zip(outputs, kinds) if kind == "loss"]
        return {**found, "loss": torch.stack(losses).sum()} if losses else found

    def _backward(self, outputs: Sequence[Tensor], inputs: Sequence[Tensor],
                  parameters: Dict[str, Tensor]) -> Dict[str, Optional[Tensor]]:
        if [s.shape for s in self.seeds] != [y.shape for y in outputs]:
            generator = torch.Generator().manual_seed(5)
            self.seeds = [self._seed(y, kind, generator)
                          for y, (kind, _) in zip(outputs, self.captured.outputs)]
        pairs = [(y, seed) for y, seed in zip(outputs, self.seeds)
                 if y.requires_grad and bool(seed.any())]
        names = [*parameters, *(f"input {i}" for i, x in enumerate(inputs) if x.requires_grad)]
        leaves = [*parameters.values(), *(x for x in inputs if x.requires_grad)]
        if not pairs or not leaves:
            return {name: None for name in names}
        found = torch.autograd.grad([y for y, _ in pairs], leaves, [seed for _, seed in pairs],
                                    allow_unused=True)
        return dict(zip(names, found))


def _without_dropout(graph: Dict[str, Any]) -> Dict[str, Any]:
    graph = copy.copy(graph)
    graph["nodes"] = [dict(node, attributes=dict(node["attributes"], p=0))
                      if "p" in node.get("attributes", {}) else node for node in graph["nodes"]]
    return graph


class _Ours:
    """Runs a captured module by the engine, as one stage."""

    def __init__(self, captured: Captured, module: nn.Module) -> None:
        self.captured = replace(captured, graph=_without_dropout(captured.graph))
        self.tensors = {**dict(module.named_parameters(remove_duplicate=False)),
                        **dict(module.named_buffers(remove_duplicate=False))}
        # The name that PyTorch gives a parameter that has several.
        first = {id(p): name for name, p in module.named_parameters()}
        self.names = {name: first[id(p)]
                      for name, p in module.named_parameters(remove_duplicate=False)}
        self.module, self.worker = module, Worker()

    def run(self, inputs: Sequence[Tensor], seeds: Sequence[Tensor]) -> _Run:
        """Run forward and backward."""
        regions = self.captured.regions
        regions.proving = _NoDropout
        try:
            with _kept(self.module, self.captured):
                found = self._run(inputs, seeds)
                # All buffers: what PyTorch alone writes to would be lost.
                buffers = {name: b.clone() for name, b in self.module.named_buffers()}
                return _Run({**buffers, **found.outputs}, found.gradients)
        finally:
            regions.proving = None

    def _run(self, inputs: Sequence[Tensor], seeds: Sequence[Tensor]) -> _Run:
        captured, samples = self.captured, inputs[0].shape[0]
        wants = self._wants(inputs)
        options = Options(external_loss=not captured.graph["losses"])
        engine = self.worker.call(Engine, self.worker, captured, options, samples, wants)
        self._copy(engine)
        outputs = captured.new_outputs(samples)
        gradients = captured.new_input_gradients(inputs, wants)
        given = captured.to_engine([x.detach() for x in inputs])
        if captured.has_batch_norm and not captured.training:
            # Nothing has a gradient through the fixed statistics of a batch norm.
            self.worker.call(engine.predict, given, outputs)
            return _Run(self._outputs(outputs), {})
        if captured.graph["losses"]:
            loss = torch.tensor(self.worker.call(engine.step, given, gradients))
            found: Dict[str, Optional[Tensor]] = {"loss": loss}
        else:
            self.worker.call(engine.forward, given, outputs)
            found = self._outputs(outputs)
            self.worker.call(engine.backward, captured.output_gradients(seeds, samples), gradients)
        states = {entry.name: view.clone() for view, entry in zip(engine.states, captured.states)}
        return _Run({**found, **states}, self._gradients(engine, inputs, gradients))

    def _wants(self, inputs: Sequence[Tensor]) -> Tuple[bool, ...]:
        """Return which inputs get a gradient: floats that the graph reads, except targets."""
        captured = self.captured
        return tuple(layout is not None and not is_target and x.is_floating_point()
                     for x, layout, is_target in zip(inputs, captured.inputs,
                                                     captured.are_targets()))

    def _outputs(self, outputs: Sequence[Tensor]) -> Dict[str, Optional[Tensor]]:
        places = [i for i, (kind, _) in enumerate(self.captured.outputs) if kind == "output"]
        return {f"output {i}": y for i, y in zip(places, self.captured.to_torch(outputs))}

    def _copy(self, engine: Engine) -> None:
        with torch.no_grad():
            for views, entries in ((engine.parameters, self.captured.parameters),
                                   (engine.states, self.captured.states)):
                for view, entry in zip(views, entries):
                    view.copy_(self.tensors[entry.name].view_as(view))
        self.worker.call(engine.call, "parameters_changed")

    def _gradients(self, engine: Engine, inputs: Sequence[Tensor],
                   gradients: Sequence[Optional[Tensor]]) -> Dict[str, Optional[Tensor]]:
        captured = self.captured
        found: Dict[str, Optional[Tensor]] = {
            self.names[entry.name]: view.clone() if captured.has_gradient(i) else None
            for i, (view, entry) in enumerate(zip(engine.gradients, captured.parameters))}
        for i, (x, want) in enumerate(zip(captured.input_gradients_to_torch(gradients),
                                          self._wants(inputs))):
            if want:
                found[f"input {i}"] = x
        return found


# --- draws ---


def _draw(examples: Sequence[Tensor], samples: int, other: bool) -> List[Tensor]:
    """Return ``samples`` rows of the example. ``other``: permuted, and floats perturbed by 10 %."""
    generator = torch.Generator().manual_seed(7)
    rows = torch.arange(samples) % examples[0].shape[0]
    if other:
        rows = torch.randperm(examples[0].shape[0] * samples, generator=generator)[:samples]
        rows = rows % examples[0].shape[0]
    found = []
    for x in examples:
        x = x.detach()[rows]
        if other and x.is_floating_point():
            x = x * (1 + 0.1 * torch.randn(x.shape, generator=generator))
        found.append(x.contiguous())
    return found


# --- comparison ---


def _real(x: Tensor) -> Tensor:
    """Return a tensor of real numbers, of a complex one its real and imaginary parts."""
    return torch.view_as_real(x.detach()) if x.is_complex() else x.detach()


def _size(x: Optional[Tensor]) -> float:
    """Return the root mean square of the finite elements."""
    if x is None:
        return 0.0
    x = _real(x)
    finite = x[torch.isfinite(x)].double()
    return float(finite.square().mean().sqrt()) if finite.numel() else 0.0


def _difference(a: Optional[Tensor], b: Optional[Tensor], scale: float) -> float:
    if a is None or b is None:
        return _size(b if a is None else a) / scale
    if a.shape != b.shape:
        return float("inf")
    if a.dtype == b.dtype and torch.equal(a, b):
        return 0.0
    a, b = _real(a).double(), _real(b).double()
    finite = torch.isfinite(b)
    if not torch.equal(a[~finite].nan_to_num(), b[~finite].nan_to_num()):
        return float("inf")
    far = _size(a[finite] - b[finite]) / scale
    return far if math.isfinite(far) else float("inf")


class _Comparison:
    """Compares a run of the engine with runs of PyTorch on one draw."""

    def __init__(self, eager: _Eager, inputs: Sequence[Tensor]) -> None:
        self.eager, self.inputs = eager, inputs
        self.generator = torch.Generator().manual_seed(11)
        self.expected = eager.run(inputs)
        self.others = [eager.run(inputs, self.generator) for _ in range(FEW)]

    def check(self, got: _Run) -> None:
        for name, want in self.expected.outputs.items():
            if name in got.outputs:
                self._check("outputs", name, got.outputs[name], want, _size(want) or 1.0, OUTPUT)
        if not got.gradients:
            return
        largest = self._largest()
        for name, want in self.expected.gradients.items():
            if name not in got.gradients:
                if name in self.eager.parameters and want is not None:
                    raise CaptureError(f"{name}: PyTorch computes a gradient, and the captured "
                                       "graph does not contain the parameter")
                continue
            scale = max(_size(want), 1e-3 * largest.get(_layer(name), 0.0)) or 1.0
            self._check("gradients", name, got.gradients.get(name), want, scale, GRADIENT)

    def _largest(self) -> Dict[str, float]:
        """Return the size of the largest gradient of each module. A gradient that is zero but for
        rounding, such as that of a bias before a batch norm, is compared with it."""
        found: Dict[str, float] = {}
        for name, x in self.expected.gradients.items():
            found[_layer(name)] = max(found.get(_layer(name), 0.0), _size(x))
        return found

    def _check(self, kind: str, name: str, got: Optional[Tensor], want: Optional[Tensor],
               scale: float, bound: float) -> None:
        far = _difference(got, want, scale)
        i = 0
        while far > bound and i < MANY:
            if i == len(self.others):
                self.others.append(self.eager.run(self.inputs, self.generator))
            own = _difference(getattr(self.others[i], kind)[name], want, scale)
            bound = max(bound, float("inf") if own > UNPROVABLE else 8 * own)
            i += 1
        if far > bound:
            what = {"outputs": "", "gradients": "its gradient "}[kind]
            raise CaptureError(
                f"{name}: {what}differs from PyTorch's by {far:.1e} of its size, where roundings "
                f"explain {bound:.1e}: the module has a part that the capture does not understand "
                "(please report it; verify=False captures it anyway)")


def _layer(name: str) -> str:
    return name.rpartition(".")[0]


# --- the proof ---


def prove(flat: nn.Module, captured: Captured, examples: Sequence[Tensor]) -> None:
    """Compare a captured module with PyTorch. Sets the least number of samples that its graph is
    for.

    Raises:
        CaptureError: They differ. The message has the output, the parameter or the buffer.
    """
    eager = _Eager(flat, captured)
    ours = _Ours(captured, eager.module)
    for samples, other in ((2, False), (3, True)):
        if captured.guard.refuses(samples) is not None:
            samples = examples[0].shape[0]
        inputs = _draw(examples, samples, other)
        comparison = _Comparison(eager, inputs)
        comparison.check(ours.run(inputs, eager.seeds))
    if captured.guard.least <= 1 and not _takes_one(eager, examples):
        captured.guard.least = 2
    del ours
    return_memory()


def _takes_one(eager: _Eager, examples: Sequence[Tensor]) -> bool:
    """Return whether PyTorch takes a single sample, and gives outputs of the same shape as it gives
    each of two."""
    two = _draw(examples, 2, False)
    try:
        alone = eager.outputs([x[:1] for x in two])
    except Exception:
        return False
    beside = eager.outputs(two)
    return [x.shape[1:] if x.dim() else None for x in alone] == [
        y.shape[1:] if y.dim() else None for y in beside]
