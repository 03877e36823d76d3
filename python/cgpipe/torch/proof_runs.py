# SPDX-License-Identifier: Apache-2.0
"""Run a module forward and backward by PyTorch and by the engine, for a proof (proof.py).

Dropout is left out on both sides, because the engine's random masks differ from PyTorch's."""

from __future__ import annotations

import contextlib
import copy
from dataclasses import dataclass, field, replace
from typing import Any, Dict, Iterator, List, Optional, Sequence, Set, Tuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from cgpipe.torch.boundaries import is_fresh, visiting
from cgpipe.torch.captured import Captured
from cgpipe.torch.engine import Engine
from cgpipe.torch.graph import from_memory, to_memory
from cgpipe.torch.opaque import original, replaced
from cgpipe.torch.proof_cuts import Feed, Notes, Run, Tensors, difference, moved, shrinking
from cgpipe.torch.proof_pieces import Piece, pieces_of
from cgpipe.torch.surroundings import PROOF_SEED, put, seeded
from cgpipe.torch.watch import CaptureError, attributes_kept, buffers_kept
from cgpipe.worker import Worker

__all__ = ["Draw", "Eager", "Ours"]


class _NoDropout(TorchFunctionMode):
    """Leave out dropout. Set ``drops`` if the module calls a dropout that would set elements to
    zero. In eval mode, such a call means that the dropout ignores the mode."""

    drops = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        if "dropout" in name:
            x = args[0] if args else kwargs["input"]
            self.drops = self.drops or _drops(args, kwargs)
            return (x, torch.ones_like(x, dtype=torch.bool)) if name == "native_dropout" else x
        place = {"scaled_dot_product_attention": 4, "multi_head_attention_forward": 10}.get(name)
        if place is not None:
            args = [*args[:place], 0.0, *args[place + 1:]] if len(args) > place else args
            kwargs = {key: 0.0 if key == "dropout_p" else x for key, x in kwargs.items()}
        return func(*args, **kwargs)


class _Moving(_NoDropout):
    """Move the result of each op that has a gradient by a few roundings. Results move towards zero,
    so that a result of tanh, for example, stays in the domain of acos."""

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()
        self.generator = generator

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        y = super().__torch_function__(func, types, args, kwargs)
        if (not isinstance(y, Tensor) or y.dtype != torch.float32 or not y.requires_grad
                or y.is_leaf or not is_fresh(y, (args, kwargs))):
            return y
        return y * shrinking(y.shape, self.generator)


def _drops(args: Sequence[Any], kwargs: Dict[str, Any]) -> bool:
    """Return whether a dropout with arguments (input, p, training) sets elements to zero."""
    p = args[1] if len(args) > 1 else kwargs.get("p", 0.5)
    training = args[2] if len(args) > 2 else kwargs.get("training", kwargs.get("train", True))
    return bool(p and training)


@contextlib.contextmanager
def _kept(module: nn.Module, captured: Captured) -> Iterator[List[str]]:
    """At the end of the context, restore buffers, scaled weights, attributes and the state of the
    random generator. Then add the names of the attributes that were set to the yielded list."""
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
    """Replace parameters by other tensors, wherever the module has them.

    (torch.func.functional_call() does not put the parameters back in a submodule that has two
    names.)
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


@dataclass
class Draw:
    """Random inputs, and PyTorch's results for them. ``seeds`` are the gradients of the outputs."""

    inputs: List[Tensor]
    expected: Run
    seeds: List[Tensor]
    #: By kind and name: how much a tensor of the engine differs from PyTorch's tensor.
    far: Dict[Tuple[str, Any], float] = field(default_factory=dict)
    values: Dict[int, Tensor] = field(default_factory=dict)
    #: Sums of gradients to which more pieces will add.
    sums: Dict[Tuple[str, Any], Optional[Tensor]] = field(default_factory=dict)

    @property
    def samples(self) -> int:
        """Return the number of samples."""
        return int(self.inputs[0].shape[0])

    def compare(self, kind: str, name: Any, x: Optional[Tensor]) -> None:
        """Record how much a tensor of the engine differs from PyTorch's tensor."""
        expected = getattr(self.expected, kind)
        if name in expected:
            self.far[kind, name] = difference(x, expected[name])


class Eager:
    """Runs a flat module by PyTorch. Random numbers are the same in each run, because random
    numbers that are constants of the graph would otherwise look like rounding errors."""

    def __init__(self, flat: nn.Module, captured: Captured) -> None:
        self.flat, self.captured = flat, captured
        module: Any = flat.module
        self.module: nn.Module = module
        self.modules = dict(self.module.named_modules(remove_duplicate=False))
        self.parameters: Dict[str, Tensor] = {name: p for name, p in self.module.named_parameters()
                                              if p.requires_grad}
        #: ``seeds`` has the gradients of the last run's outputs. ``shapes`` has the shapes of these
        #: outputs for one sample.
        self.seeds: List[Tensor] = []
        self.shapes: List[Any] = []

    def outputs(self, inputs: Sequence[Tensor], cuts: Optional[Feed] = None) -> List[Tensor]:
        """Return the outputs of a forward without gradients. The method visit() of ``cuts`` gets
        the results at cuts."""
        with _kept(self.module, self.captured), torch.no_grad(), _NoDropout(), \
                (contextlib.nullcontext() if cuts is None
                 else visiting(self._bounds(), cuts.visit, cuts.skip)):
            return list(self.flat(*inputs))

    def _bounds(self) -> Dict[str, nn.Module]:
        return {cut.path: self.modules[cut.path] for cut in self.captured.cuts.values()}

    def run(self, inputs: Sequence[Tensor]) -> Run:
        """Run forward and backward, and record the results at cuts."""
        given = [x.detach().clone().requires_grad_(want)
                 for x, want in zip(inputs, self.captured.wants)]
        # Parameters are detached, so that none of their hooks runs.
        parameters = {name: p.detach().requires_grad_() for name, p in self.parameters.items()}
        notes = Notes(self.captured.cuts, inputs[0].shape[0])
        found = self._run(given, parameters, notes)
        if any(difference(a, b) for a, b in zip(given, inputs)):
            raise CaptureError("forward writes to its input, which is not covered (write to a "
                               "clone)", [""])
        found.results, found.result_gradients = notes.values, notes.gradients
        found.strides, found.requires, found.alone = notes.strides, notes.requires, notes.alone
        return found

    def again(self, inputs: Sequence[Tensor], expected: Run, generator: Optional[torch.Generator],
              wanted: Set[str], read: Set[str]) -> Run:
        """Run each layer again on the values of an earlier run. With a generator, all values and
        the parameters in ``read`` are moved by a few roundings. Only the modules in ``wanted`` are
        called. Other modules return the results of the earlier run."""
        moves = [x.detach().clone().requires_grad_(want)
                 for x, want in zip(inputs, self.captured.wants)]
        given = [moved(x, generator) for x in moves]
        parameters = {name: moved(p.detach().requires_grad_(), generator if name in read else None)
                      for name, p in self.parameters.items()}
        feed = Feed(self.captured.cuts, expected, generator, wanted)
        found = self._run(given, parameters, feed)
        found.results = feed.results
        found.result_gradients = {
            number: None if x.grad is None else to_memory(x.grad, feed.layouts[number])
            for number, x in feed.leaves.items()}
        return found

    def _run(self, given: List[Tensor], parameters: Dict[str, Tensor], cuts: Any) -> Run:
        generator = cuts.generator
        dropout = _NoDropout() if generator is None else _Moving(generator)
        with _kept(self.module, self.captured) as changed, torch.enable_grad(), \
                seeded(PROOF_SEED), _replaced(self.module, parameters), self._seeded():
            with dropout, visiting(self._bounds(), cuts.visit, cuts.skip):
                outputs = self.flat(*given)
            if isinstance(cuts, Notes):
                self._check_leaves(outputs, [*given, *parameters.values()])
            self.shapes = [y.shape[1:] if y.dim() else None for y in outputs]
            # The second forward of a checkpoint must save as many tensors as the first.
            with dropout:
                found = self._backward(outputs, given, parameters, cuts)
            buffers = {name: b.clone() for name, b in self.module.named_buffers()}
        self._check_attributes(changed)
        if dropout.drops and not self.captured.training and not self.captured.regions:
            raise CaptureError("dropout in eval mode is not covered", [""])
        return Run({**self.named(outputs), **buffers}, found)

    @staticmethod
    def _check_leaves(outputs: Sequence[Tensor], leaves: Sequence[Tensor]) -> None:
        """Raise if a backward would reach tensors other than inputs and parameters."""
        known, seen = {id(x) for x in leaves}, set()  # type: Set[int], Set[Any]
        pending = [y.grad_fn for y in outputs if y.grad_fn is not None]
        while pending:
            node = pending.pop()
            if node in seen:
                continue
            seen.add(node)
            pending += [after for after, _ in node.next_functions if after is not None]
            if id(getattr(node, "variable", node)) not in known and hasattr(node, "variable"):
                raise CaptureError("a tensor that requires a gradient and is no parameter is not "
                                   "covered (register it as a parameter)", [""])

    def _check_attributes(self, changed: Sequence[str]) -> None:
        known = {(id(module), key) for module, key in self.captured.regions.attributes}
        for name in changed:
            path, _, key = name.rpartition(".")
            module = self.module.get_submodule(path)
            # A recurrent layer of PyTorch has an attribute that lists its weights. The proof has
            # replaced these weights.
            if (id(module), key) not in known and not type(module).__module__.startswith("torch."):
                raise CaptureError(f"{name} is set by forward: attributes that change are not "
                                   "covered", [""])

    def _seeded(self) -> contextlib.AbstractContextManager[None]:
        """Let each module that draws random numbers draw the same numbers as the region that
        replaces it in the engine."""
        def call(_path: str, module: nn.Module, args: Any, kwargs: Any) -> Any:
            with original(module), seeded(PROOF_SEED):
                return module(*args, **kwargs)
        return replaced({region.path: region.module for region in self.captured.regions.all
                         if region.draws}, call)

    def _seed(self, y: Tensor, kind: str, generator: torch.Generator) -> Tensor:
        """Return the gradient with which backward begins at an output: 1 for a loss, 0 for another
        output of a module with losses, and random numbers if there are no losses."""
        if kind == "loss":
            return torch.ones_like(y)
        if self.captured.graph["losses"]:
            return torch.zeros_like(y)
        return torch.randn(y.shape, generator=generator, dtype=y.dtype)

    def named(self, outputs: Sequence[Tensor]) -> Tensors:
        """Return the outputs and the loss by name."""
        kinds = [kind for kind, _ in self.captured.outputs]
        found: Tensors = {
            f"output {i}": y.detach() for i, (y, kind) in enumerate(zip(outputs, kinds))
            if kind == "output"}
        losses = [y.detach() for y, kind in zip(outputs, kinds) if kind == "loss"]
        return {**found, "loss": torch.stack(losses).sum()} if losses else found

    def _backward(self, outputs: Sequence[Tensor], inputs: Sequence[Tensor],
                  parameters: Dict[str, Tensor], cuts: Any) -> Tensors:
        if [s.shape for s in self.seeds] != [y.shape for y in outputs]:
            generator = torch.Generator().manual_seed(5)
            self.seeds = [self._seed(y, kind, generator)
                          for y, (kind, _) in zip(outputs, self.captured.outputs)]
        pairs = [(y, cuts.move(seed)) for y, seed in zip(outputs, self.seeds)
                 if y.requires_grad and bool(seed.any())] + cuts.seeds()
        names = [*parameters, *(f"input {i}" for i, x in enumerate(inputs) if x.requires_grad)]
        leaves = [*parameters.values(), *(x for x in inputs if x.requires_grad)]
        if not pairs or not leaves:
            return {name: None for name in names}
        # torch.autograd.backward() would switch off the mode that removes dropout.
        # (autograd.grad() keeps the mode, but does not support checkpoint(use_reentrant=True).)
        torch.autograd.Variable._execution_engine.run_backward(
            tuple(y for y, _ in pairs), tuple(seed for _, seed in pairs), False, False, (),
            allow_unreachable=True, accumulate_grad=True)
        return {name: x.grad.to_dense() if x.grad is not None and x.grad.is_sparse else x.grad
                for name, x in zip(names, leaves)}


def _without_dropout(graph: Dict[str, Any]) -> Dict[str, Any]:
    graph = copy.copy(graph)
    graph["nodes"] = [dict(node, attributes=dict(node["attributes"], p=0))
                      if "p" in node.get("attributes", {}) else node for node in graph["nodes"]]
    return graph


class Ours:
    """Runs a captured module by the engine, in pieces of one stage each."""

    def __init__(self, captured: Captured, module: nn.Module, draws: Sequence[Draw],
                 join: bool) -> None:
        self.captured, self.module, self.draws, self.join = captured, module, draws, join
        self.tensors = {**dict(module.named_parameters(remove_duplicate=False)),
                        **dict(module.named_buffers(remove_duplicate=False))}
        # If a parameter has several names, PyTorch uses the first name.
        first = {id(p): name for name, p in module.named_parameters()}
        self.names = {name: first[id(p)]
                      for name, p in module.named_parameters(remove_duplicate=False)}
        self.worker = Worker()
        #: For each tensor, by kind and name: the pieces that compute a part of it.
        self.pieces: Dict[Tuple[str, Any], List[Piece]] = {}
        self._inputs = self._wants()
        self._input_names = {f"input {i}": i for i in self._inputs.values()}

    def run(self) -> None:
        """Run forward and backward of all pieces for each draw. Set the member ``far`` of each
        draw."""
        graph = replace(self.captured, graph=_without_dropout(self.captured.graph))
        requires = set().union(*(draw.expected.requires for draw in self.draws))
        for draw in self.draws:
            # The engine computes a gradient of each of these values. If PyTorch computes no
            # gradient, the engine's gradient must be zero.
            ours = self.captured.requires.intersection(draw.expected.results)
            for number in ours - draw.expected.requires:
                draw.expected.result_gradients[number] = None
            requires |= ours
        for draw in self.draws:
            draw.values, draw.far = self._values(draw), {}
            for name, b in self.module.named_buffers():
                draw.compare("outputs", name, b)
        pieces = pieces_of(graph, requires | set(self._inputs), self.join)
        for piece in pieces:
            for name in self._gradients_of(piece):
                self.pieces.setdefault(name, []).append(piece)
        for piece in pieces:
            self._run_piece(piece)

    def _run_piece(self, piece: Piece) -> None:
        engine: Optional[Engine] = None
        regions = self.captured.regions
        regions.proving = _NoDropout
        try:
            for draw in self.draws:
                if engine is None or piece.losses or draw.samples > engine.samples:
                    engine = None  # free the memory of the previous engine first
                    engine = piece.engine(self.worker, draw.samples)
                # Without regions, the engine does not write to the module.
                with (_kept(self.module, self.captured) if piece.regions
                      else contextlib.nullcontext()):
                    self._copy(piece, engine)
                    self._step(piece, engine, draw)
                    self._take_buffers(piece, engine, draw)
        finally:
            regions.proving = None

    def _values(self, draw: Draw) -> Dict[int, Tensor]:
        """Return the values that pieces read, in the engine's memory order."""
        given = self.captured.to_engine([x.detach() for x in draw.inputs])
        numbers = [entry["value"] for entry in self.captured.graph["inputs"]]
        return {**dict(zip(numbers, given)), **self._shaped(draw.expected.results)}

    def _shaped(self, tensors: Tensors) -> Dict[int, Tensor]:
        """Return tensors at cuts, reshaped to the shapes of their graph values."""
        values = self.captured.graph["values"]
        return {number: x.view(x.shape[0], *values[number]["shape"])
                for number, x in tensors.items() if x is not None}

    def _wants(self) -> Dict[int, int]:
        """Return the inputs that get a gradient, except targets: a dictionary from value to
        index."""
        captured = self.captured
        entries = iter(captured.graph["inputs"])
        wanted = [(next(entries)["value"], i, want and not is_target)
                  for i, (want, layout, is_target) in enumerate(
                      zip(captured.wants, captured.inputs, captured.are_targets()))
                  if layout is not None]
        return {value: i for value, i, want in wanted if want}

    def _step(self, piece: Piece, engine: Engine, draw: Draw) -> None:
        captured, call = self.captured, self.worker.call
        given = [draw.values[x] for x in piece.inputs]
        outputs = [torch.empty([draw.samples, *piece.shape(i)], dtype=torch.float32)
                   for i in range(len(piece.outputs))]
        gradients = piece.new_gradients(given)
        if captured.has_batch_norm and not captured.training:
            # The engine computes no gradient through the fixed statistics of a batch norm.
            if outputs:
                call(engine.predict, given, outputs)
            self._compare_outputs(piece, draw, outputs)
            return
        if piece.losses:
            loss = call(engine.step, given, gradients)
            self._note("outputs", "loss", piece)
            draw.compare("outputs", "loss", torch.tensor(loss, dtype=torch.float32))
        else:
            call(engine.forward, given, outputs)
            self._compare_outputs(piece, draw, outputs)
            call(engine.backward, self._seeds(piece, draw), gradients)
        own = {self.names[entry.name]: view if piece.captured.has_gradient(i) else None
               for i, (entry, view) in enumerate(zip(piece.captured.parameters, engine.gradients))}
        found = [*own.values(), *(x for x, want in zip(gradients, piece.wants) if want)]
        for (kind, name), x in zip(self._gradients_of(piece), found):
            self._add(piece, draw, kind, name, x)

    def _gradients_of(self, piece: Piece) -> List[Tuple[str, Any]]:
        """Return the gradients that a piece computes, by kind and name."""
        names = dict.fromkeys(self.names[entry.name] for entry in piece.captured.parameters)
        read = [x for x, want in zip(piece.inputs, piece.wants) if want]
        return [*(("gradients", name) for name in names),
                *(("gradients", f"input {self._inputs[x]}") if x in self._inputs
                  else ("result_gradients", x) for x in read)]

    def _add(self, piece: Piece, draw: Draw, kind: str, name: Any, x: Optional[Tensor]) -> None:
        """Add the gradient that a piece has computed to the sum over pieces. After the last piece,
        compare the sum."""
        before = draw.sums.pop((kind, name), None)
        total = before if x is None else x if before is None else before.add_(x)
        if piece is not self.pieces[kind, name][-1]:
            draw.sums[kind, name] = x.clone() if total is x and x is not None else total
            return
        if name in self._input_names and total is not None:
            layout = self.captured.inputs[self._input_names[name]]
            assert layout is not None
            total = from_memory(total, layout)
        expected = draw.expected.result_gradients.get(name)
        if kind == "result_gradients" and total is not None and expected is not None:
            total = total.view_as(expected)
        draw.compare(kind, name, total)

    def _note(self, kind: str, name: Any, piece: Piece) -> None:
        pieces = self.pieces.setdefault((kind, name), [])
        if piece not in pieces:
            pieces.append(piece)

    def _compare_outputs(self, piece: Piece, draw: Draw, outputs: Sequence[Tensor]) -> None:
        captured = self.captured
        for number, y in zip(piece.outputs, outputs):
            self._note("results", number, piece)
            draw.compare("results", number, y.view_as(draw.expected.results[number])
                         if number in draw.expected.results else None)
            for i, (kind, k) in enumerate(captured.outputs):
                if kind == "output" and captured.graph["outputs"][k] == number:
                    self._note("outputs", f"output {i}", piece)
                    draw.compare("outputs", f"output {i}", from_memory(y, captured.layouts[k]))

    def _seeds(self, piece: Piece, draw: Draw) -> List[Tensor]:
        """Return the gradients of a piece's outputs."""
        captured = self.captured
        numbers = captured.graph["outputs"]
        last = dict(zip(numbers, captured.output_gradients(draw.seeds, draw.samples)))
        known = {**self._shaped(draw.expected.result_gradients), **last}
        return [known[x] if x in known
                else torch.zeros([draw.samples, *piece.shape(i)], dtype=torch.float32)
                for i, x in enumerate(piece.outputs)]

    def _copy(self, piece: Piece, engine: Engine) -> None:
        with torch.no_grad():
            for views, entries in ((engine.parameters, piece.captured.parameters),
                                   (engine.states, piece.captured.states)):
                for view, entry in zip(views, entries):
                    view.copy_(self.tensors[entry.name].view_as(view))
        self.worker.call(engine.call, "parameters_changed")

    def _take_buffers(self, piece: Piece, engine: Engine, draw: Draw) -> None:
        """Compare with PyTorch what the piece has written: its own states, and the buffers of its
        regions."""
        for view, entry in zip(engine.states, piece.captured.states):
            draw.compare("outputs", entry.name, view)
            self._note("outputs", entry.name, piece)
        if piece.regions:
            own = {id(b) for region in piece.regions for b in region.buffers}
            for name, b in self.module.named_buffers():
                if id(b) in own:
                    draw.compare("outputs", name, b)
                    self._note("outputs", name, piece)
