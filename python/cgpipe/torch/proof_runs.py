# SPDX-License-Identifier: Apache-2.0
"""Run a module forward and backward by PyTorch and by the engine, for a proof (proof.py).

Dropout is left out on both sides: the masks of the engine are its own."""

from __future__ import annotations

import contextlib
import copy
from dataclasses import dataclass, replace
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from cgpipe.torch.captured import Captured
from cgpipe.torch.engine import Engine, Options
from cgpipe.torch.opaque import original, replaced
from cgpipe.torch.surroundings import PROOF_SEED, put, seeded
from cgpipe.torch.watch import CaptureError, attributes_kept, buffers_kept
from cgpipe.worker import Worker

__all__ = ["Eager", "Ours", "Run"]

#: Roundings by which parameters and inputs are moved.
MOVED = 4 * 2.0 ** -23


@dataclass
class Run:
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
def _kept(module: nn.Module, captured: Captured) -> Iterator[List[str]]:
    """Keep buffers, scaled weights, attributes and the state of the random generator. The names of
    the attributes that were set are in the list afterwards."""
    scaled = captured.regions.scaled
    before = [weight.detach().clone() for weight in scaled]
    with buffers_kept(module), attributes_kept(module) as changed, \
            torch.random.fork_rng(devices=[]):
        try:
            yield changed
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


class Eager:
    """Runs a flat module by PyTorch. Random numbers are the same in each run, so that those that a
    graph fixes are not taken for roundings."""

    def __init__(self, flat: nn.Module, captured: Captured) -> None:
        self.flat, self.captured = flat, captured
        module: Any = flat.module
        self.module: nn.Module = module
        self.parameters: Dict[str, Tensor] = {name: p for name, p in self.module.named_parameters()
                                              if p.requires_grad}
        #: Gradients of the outputs of the last run, and the shapes of its outputs for a sample.
        self.seeds: List[Tensor] = []
        self.shapes: List[Any] = []

    def outputs(self, inputs: Sequence[Tensor]) -> List[Tensor]:
        """Return the outputs of a forward without gradients."""
        with _kept(self.module, self.captured), torch.no_grad(), _NoDropout():
            return list(self.flat(*inputs))

    def run(self, inputs: Sequence[Tensor], moved: Optional[torch.Generator] = None) -> Run:
        """Run forward and backward; ``moved``: with parameters and inputs moved."""
        given = [x.detach().clone().requires_grad_(want)
                 for x, want in zip(inputs, self.captured.wants)]
        # Detached, so that no hook of a parameter runs.
        parameters = {name: p.detach().requires_grad_() for name, p in self.parameters.items()}
        if moved is not None:
            given = [_moved(x, moved) for x in given]
            parameters = {name: _moved(p, moved) for name, p in parameters.items()}
        with _kept(self.module, self.captured) as changed, torch.enable_grad(), _NoDropout(), \
                seeded(PROOF_SEED), _replaced(self.module, parameters), self._seeded():
            outputs = self.flat(*given)
            self.shapes = [y.shape[1:] if y.dim() else None for y in outputs]
            found = self._backward(outputs, given, parameters)
            buffers = {name: b.clone() for name, b in self.module.named_buffers()}
        self._check_attributes(changed)
        return Run({**self.named(outputs), **buffers}, found)

    def _check_attributes(self, changed: Sequence[str]) -> None:
        known = {(id(module), key) for module, key in self.captured.regions.attributes}
        for name in changed:
            path, _, key = name.rpartition(".")
            module = self.module.get_submodule(path)
            # A recurrent layer lists its weights, which the proof has replaced.
            if (id(module), key) not in known and not type(module).__module__.startswith("torch."):
                raise CaptureError(f"{name} is set by forward: attributes that change are not "
                                   "covered", [""])

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

    def named(self, outputs: Sequence[Tensor]) -> Dict[str, Optional[Tensor]]:
        """Return the outputs and the loss by name."""
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
        # Not autograd.grad(), which checkpoint(use_reentrant=True) does not support.
        torch.autograd.backward([y for y, _ in pairs], [seed for _, seed in pairs])
        return {name: x.grad for name, x in zip(names, leaves)}


def _without_dropout(graph: Dict[str, Any]) -> Dict[str, Any]:
    graph = copy.copy(graph)
    graph["nodes"] = [dict(node, attributes=dict(node["attributes"], p=0))
                      if "p" in node.get("attributes", {}) else node for node in graph["nodes"]]
    return graph


class Ours:
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
        self.engine: Optional[Engine] = None

    def run(self, inputs: Sequence[Tensor], seeds: Sequence[Tensor]) -> Run:
        """Run forward and backward."""
        regions = self.captured.regions
        regions.proving = _NoDropout
        try:
            with _kept(self.module, self.captured):
                found = self._run(inputs, seeds)
                # All buffers: what PyTorch alone writes to would be lost.
                buffers = {name: b.clone() for name, b in self.module.named_buffers()}
                return Run({**buffers, **found.outputs}, found.gradients)
        finally:
            regions.proving = None

    def _run(self, inputs: Sequence[Tensor], seeds: Sequence[Tensor]) -> Run:
        captured, samples = self.captured, inputs[0].shape[0]
        wants = self._wants()
        engine = self.engine = self._engine(samples, wants)
        self._copy(engine)
        outputs = captured.new_outputs(samples)
        gradients = captured.new_input_gradients(inputs, wants)
        given = captured.to_engine([x.detach() for x in inputs])
        if captured.has_batch_norm and not captured.training:
            # Nothing has a gradient through the fixed statistics of a batch norm.
            self.worker.call(engine.predict, given, outputs)
            return Run(self._outputs(outputs), {})
        if captured.graph["losses"]:
            loss = torch.tensor(self.worker.call(engine.step, given, gradients))
            found: Dict[str, Optional[Tensor]] = {"loss": loss}
        else:
            self.worker.call(engine.forward, given, outputs)
            found = self._outputs(outputs)
            self.worker.call(engine.backward, captured.output_gradients(seeds, samples), gradients)
        states = {entry.name: view.clone() for view, entry in zip(engine.states, captured.states)}
        return Run({**found, **states}, self._gradients(engine, inputs, gradients))

    def _engine(self, samples: int, wants: Tuple[bool, ...]) -> Engine:
        """Return an engine: the last one, if its plan is for so many samples or more."""
        external = not self.captured.graph["losses"]
        if self.engine is not None and external and samples <= self.engine.samples:
            return self.engine
        self.engine = None  # first free its memory
        found: Engine = self.worker.call(Engine, self.worker, self.captured,
                                         Options(external_loss=external), samples, wants)
        return found

    def _wants(self) -> Tuple[bool, ...]:
        """Return which inputs get a gradient: those that the graph reads, except targets."""
        captured = self.captured
        return tuple(layout is not None and not is_target and want
                     for want, layout, is_target in zip(captured.wants, captured.inputs,
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
                                          self._wants())):
            if want:
                found[f"input {i}"] = x
        return found
