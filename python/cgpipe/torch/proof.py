# SPDX-License-Identifier: Apache-2.0
"""Prove a capture: run the module by PyTorch and by the engine, and compare them layer by layer.

    PyTorch    x --> layer --> layer --> layer --> y      once, noting values and gradients
                       |         |         |
    engine     x --> layer   --> layer   --> layer        each on PyTorch's own

Both run forward and backward on two random inputs (draws), with 3 and with 2 samples. Each layer of
the engine gets PyTorch's values and gradients, so rounding does not grow from layer to layer.
Results of layers, outputs, losses, gradients and buffers are compared. To find how large a
difference rounding can explain, PyTorch runs each layer again. In these runs, values, parameters
and results of ops are changed by a few roundings. The engine may differ by eight times the effect
of these changes, and always by 1e-6 of the layer's largest tensor."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Sequence, Set, Tuple

import torch
from torch import Tensor, nn

from cgpipe.torch.captured import Captured
from cgpipe.torch.engine import return_memory
from cgpipe.torch.finding import ITSELF, called
from cgpipe.torch.proof_cuts import Feed, difference, size
from cgpipe.torch.proof_pieces import Piece
from cgpipe.torch.proof_runs import Draw, Eager, Ours
from cgpipe.torch.watch import CaptureError

__all__ = ["Different", "Proof", "prove", "wanted"]

#: The difference that is always allowed, relative to the largest tensor of the layer.
EXACT = 1e-6
#: The difference that is always allowed where PyTorch computes in fewer bits than float32, relative
#: to the tensor. If an operand is rounded differently, a value may become its neighbour in
#: bfloat16, 2^-8 away. A few repeated runs may not show this.
REDUCED = 2.0**-8
#: If a tensor differs by more than this many times its bound, PyTorch is not run again for it.
HOPELESS = 1000
#: The allowed difference, as a multiple of the change that PyTorch's own roundings cause.
ROUNDINGS = 8
#: A bound that is larger than this proves nothing.
UNPROVABLE = 1e-2
#: Maximum number of repeated PyTorch runs for a draw, after which a tensor is refused.
MANY = 16


def wanted(verify: Optional[bool]) -> bool:
    """Return whether captures must be proven: ``verify`` decides or, if it is None, the
    environment's CGPIPE_VERIFY."""
    return os.environ.get("CGPIPE_VERIFY", "1") != "0" if verify is None else verify


class Different(CaptureError):
    """The numbers of the engine and of PyTorch differ by more than rounding explains."""


@dataclass
class Proof:
    """The result of a proof."""

    #: Numbers of samples of the draws, and the tensors that were compared.
    samples: List[int] = field(default_factory=list)
    tensors: int = 0
    #: Tensors whose bound exceeds UNPROVABLE.
    unprovable: List[str] = field(default_factory=list)
    #: ``repeats`` is the number of PyTorch runs after the first run of each draw. ``seconds`` is
    #: the duration of the proof.
    repeats: int = 0
    seconds: float = 0.0

    def report(self) -> str:
        """Return a line about the proof."""
        counts = " and ".join(map(str, self.samples))
        text = (f"proof: {self.tensors - len(self.unprovable)} tensors equal PyTorch's, for "
                f"{counts} samples; {self.seconds:.1f} s")
        if self.unprovable:
            text += f"; not provable, for roundings explain more than {UNPROVABLE:.0%}: "
            text += ", ".join(self.unprovable[:3])
            if len(self.unprovable) > 3:
                text += f" and {len(self.unprovable) - 3} others"
        return text


# --- draws ---


def _draw(examples: Sequence[Tensor], samples: int, other: bool, first: int = 0) -> List[Tensor]:
    """Return ``samples`` rows of the example, beginning with row ``first``. If ``other``, the rows
    are permuted, and floats are perturbed by 10 %; probabilities stay between 0 and 1."""
    generator = torch.Generator().manual_seed(7)
    rows = torch.arange(first, first + samples)
    if other:
        rows = torch.randperm(examples[0].shape[0] * samples, generator=generator)[rows]
    rows = rows % examples[0].shape[0]
    found = []
    for x in examples:
        x = x.detach()[rows]
        if other and x.is_floating_point():
            moved = x * (1 + 0.1 * torch.randn(x.shape, generator=generator, dtype=x.dtype))
            x = moved.clamp(0, 1) if bool(((x >= 0) & (x <= 1)).all()) else moved
        found.append(x.contiguous())
    return found


# --- comparison ---

_WHAT = {"outputs": "", "results": "its result ", "gradients": "its gradient ",
         "result_gradients": "the gradient of its result "}
_Name = Tuple[str, Any]


class _Comparison:
    """Compares runs of the engine with runs of PyTorch."""

    def __init__(self, eager: Eager, ours: Ours, proof: Proof) -> None:
        self.eager, self.ours, self.proof = eager, ours, proof
        self.generator = torch.Generator().manual_seed(11)
        self.paths = {cut.number: cut.path for cut in ours.captured.cuts.values()}
        #: The change of a tensor by roundings, by kind and name, relative to its scale.
        self.spread: Dict[_Name, float] = {}
        #: The difference that is always allowed, relative to the scale. It is EXACT times the
        #: largest tensor of the layer.
        self.exact: Dict[_Name, float] = {}
        #: ``suspect`` has the tensors that are not provable. ``doubtful`` has the cuts next to
        #: pieces for which a second run of PyTorch gave other numbers.
        self.suspect: List[_Name] = []
        self.doubtful: Set[int] = set()

    def check(self, draw: Draw) -> None:
        """Compare the two runs of a draw, by PyTorch and by the engine.

        Raises:
            Different: A tensor differs.
        """
        scales = self._scales(draw)
        self.suspect = []
        far = {key: draw.far[key] / scale for key, scale in scales.items()}
        self.proof.tensors = max(self.proof.tensors, len(far))
        wrong = self._wrong(far)
        for _ in range(MANY):
            if not wrong or any(far[key] > HOPELESS * self._bound(key) for key in wrong
                                if key in self.spread):
                break
            for key, own in self._again(draw, wrong, scales, self.generator).items():
                self.spread[key] = max(self.spread.get(key, 0.0), own)
            wrong = self._wrong(far)
        if wrong:
            raise self._error(max(wrong, key=lambda key: far[key] / self._bound(key)), far)
        if self.suspect and self.paths:
            # With nothing changed, a second run of PyTorch should give the same numbers. If the
            # numbers differ, the module cannot be cut here.
            again = self._again(draw, self.suspect, scales, None)
            self.doubtful.update(x for key, own in again.items() if own > UNPROVABLE
                                 for piece in self._pieces(key)
                                 for x in [*piece.inputs, *piece.outputs])

    def _again(self, draw: Draw, keys: Sequence[_Name], scales: Dict[_Name, float],
               generator: Optional[torch.Generator]) -> Dict[_Name, float]:
        """Run layers again in PyTorch with rounding changes. Return how much their tensors differ
        from the first run."""
        pieces = [piece for key in keys for piece in self._pieces(key)]
        wanted = {self.paths[x] for piece in pieces for x in piece.outputs if x in self.paths}
        read = {self.ours.names[entry.name] for piece in pieces
                for entry in piece.captured.parameters}
        if not all(map(self._pieces, keys)):
            read = set(self.eager.parameters)
        other = self.eager.again(draw.inputs, draw.expected, generator, wanted, read)
        self.proof.repeats += 1
        return {key: difference(getattr(other, key[0]).get(key[1]),
                                getattr(draw.expected, key[0])[key[1]]) / scales[key]
                for key in keys if key in scales}

    def _pieces(self, key: _Name) -> Sequence[Piece]:
        return self.ours.pieces.get(key, ())

    def _error(self, key: _Name, far: Dict[_Name, float]) -> "Different":
        ops = list(dict.fromkeys(f"{place.path or ITSELF}: {called(place.op)}"
                                 + (f" ({place.line})" if place.line else "")
                                 for piece in self._pieces(key) for place in piece.origins))
        where = ", ".join(ops[:3]) + (f" and {len(ops) - 3} others" if len(ops) > 3 else "")
        name = self.paths[key[1]] if key[0].startswith("result") else key[1]
        return Different(
            f"{name}: {_WHAT[key[0]]}differs from PyTorch's by {far[key]:.1e} of its size, where "
            f"roundings explain {self._bound(key):.1e}"
            + (f", in {where}" if where else "") + ": the module has a part that the capture does "
            "not understand (please report it; verify=False captures it anyway)")

    def _scales(self, draw: Draw) -> Dict[_Name, float]:
        """Return the scale of each tensor, to which differences are relative."""
        expected, has_gradients = draw.expected, any(kind == "gradients" for kind, _ in draw.far)
        for name, want in expected.gradients.items() if has_gradients else ():
            if ("gradients", name) not in draw.far and name in self.eager.parameters \
                    and want is not None:
                raise CaptureError(f"{name}: PyTorch computes a gradient, and the captured graph "
                                   "does not contain the parameter")
        sizes = {key: size(getattr(expected, key[0])[key[1]]) for key in draw.far}
        # A gradient that is zero except for rounding, such as the gradient of a bias before a batch
        # norm, is compared relative to the largest gradient of its layer. The same holds for a
        # running mean that is zero except for rounding.
        largest: Dict[_Name, float] = {}
        for key, own in sizes.items():
            layer = key[0], self._layer(key)
            largest[layer] = max(largest.get(layer, 0.0), own)
        scales = {}
        for key, own in sizes.items():
            most = largest[key[0], self._layer(key)]
            scales[key] = max(own, 1e-3 * most) or 1.0
            self.exact[key] = max(EXACT, EXACT * most / scales[key])
            if any(region.reduced for piece in self._pieces(key) for region in piece.regions):
                self.exact[key] = max(self.exact[key], REDUCED)
        return scales

    def _layer(self, key: _Name) -> Any:
        """Return the layer of a tensor. For a gradient, this is the innermost module with a
        boundary; for a running statistic, it is the module that has the statistic."""
        if key[0] == "outputs" and str(key[1]).endswith(("running_mean", "running_var")):
            return str(key[1]).rpartition(".")[0]
        if key[0] != "gradients":
            return key[1]
        paths, path = set(self.paths.values()), str(key[1]).rpartition(".")[0]
        own = path
        while path and path not in paths:
            path = path.rpartition(".")[0]
        return path or own

    def _bound(self, key: _Name) -> float:
        return self.exact.get(key, EXACT) + ROUNDINGS * self.spread.get(key, 0.0)

    def _wrong(self, far: Dict[_Name, float]) -> List[_Name]:
        """Return the tensors that differ by more than their bound. Also record the tensors that are
        not provable."""
        found = []
        for key, value in far.items():
            spread = self.spread.get(key, 0.0)
            if value <= self.exact[key]:
                continue
            if spread <= UNPROVABLE and value > self._bound(key):
                found.append(key)
            elif ROUNDINGS * spread > UNPROVABLE:
                name = self.paths[key[1]] if key[0].startswith("result") else key[1]
                text = {"outputs": name, "results": f"the result of {name}",
                        "gradients": f"the gradient of {name}",
                        "result_gradients": f"the gradient of {name}'s result"}[key[0]]
                if text not in self.proof.unprovable:
                    self.proof.unprovable.append(text)
                self.suspect.append(key)
        return found


# --- the proof ---


def prove(flat: nn.Module, captured: Captured, examples: Sequence[Tensor],
          fine: bool = False) -> Proof:
    """Compare a captured module with PyTorch. Also set the range of numbers of samples for which
    the graph is valid. If ``fine``, run each piece alone, so that the message can name the ops that
    differ.

    Raises:
        Different: The captured module differs. The message names the module or the tensor, and the
            ops.
        CaptureError: The module does something that a capture does not support.
    """
    begin, proof = time.perf_counter(), Proof()
    eager = Eager(flat, captured)
    draws = [_expected(eager, captured, examples, samples, other)
             for samples, other in ((3, True), (2, False))]
    proof.samples = [draw.samples for draw in draws]
    captured.cuts = {key: cut for key, cut in captured.cuts.items()
                     if all(cut.number in draw.expected.results for draw in draws)}
    while not _compare(eager, captured, draws, proof, fine):
        proof.unprovable.clear()
    if captured.training and not captured.regions:
        _check_without_gradient(eager, draws[-1])
    if captured.guard.least <= 1 and not _takes_one(eager, draws[-1]):
        captured.guard.least = 2
    return_memory()
    proof.seconds = time.perf_counter() - begin
    return proof


def _compare(eager: Eager, captured: Captured, draws: Sequence[Draw], proof: Proof,
             fine: bool) -> bool:
    """Compare the engine with PyTorch, layer by layer. If the module cannot be compared at some
    cuts, remove these cuts and return False. At such a cut, the rest of the module fails if the
    result at the cut is replaced, or the replaced result gets another gradient than the module's
    own result."""
    ours = Ours(captured, eager.module, draws, join=not fine)
    ours.run()
    comparison = _Comparison(eager, ours, proof)
    lost: Set[int] = set()
    try:
        # Run the smaller draw first, because its roundings serve both draws.
        for draw in reversed(draws):
            comparison.check(draw)
        lost = comparison.doubtful
    except CaptureError:
        raise
    except Exception:
        if not captured.cuts:
            raise
        lost = {cut.number for cut in captured.cuts.values()}
    before = len(captured.cuts)
    captured.cuts = {key: cut for key, cut in captured.cuts.items() if cut.number not in lost}
    return len(captured.cuts) == before


def _expected(eager: Eager, captured: Captured, examples: Sequence[Tensor], samples: int,
              other: bool) -> Draw:
    """Return a draw and PyTorch's run of it. If PyTorch refuses the number of samples, record this
    number as refused, and make a draw with the example's number of samples."""
    if captured.guard.refuses(samples) is None and samples != examples[0].shape[0]:
        try:
            return _counted(eager, examples, samples, other)
        except Exception:
            captured.guard.without.add(samples)
    return _counted(eager, examples, examples[0].shape[0]
                    if captured.guard.refuses(samples) is not None else samples, other)


def _counted(eager: Eager, examples: Sequence[Tensor], samples: int, other: bool) -> Draw:
    """Return a draw and PyTorch's run of it. If possible, this run has a finite loss. A mean loss
    is NaN if all targets of the chosen rows are ignored."""
    draws = []
    for first in range(0, examples[0].shape[0], samples):
        inputs = _draw(examples, samples, other, first)
        draws.append(Draw(inputs, eager.run(inputs), eager.seeds))
        loss = draws[-1].expected.outputs.get("loss")
        if loss is None or bool(loss.isfinite()):
            return draws[-1]
    return draws[0]


def _check_without_gradient(eager: Eager, draw: Draw) -> None:
    """Raise if a layer or the module returns another result while gradients are disabled. (In
    evaluation, PyTorch's own attention leaves out masked positions.)"""
    feed = Feed(eager.captured.cuts, draw.expected, None, None)
    found = eager.named(eager.outputs(draw.inputs, feed))
    paths = {cut.number: cut.path for cut in eager.captured.cuts.values()}
    pairs = [*((name, x, draw.expected.outputs[name]) for name, x in found.items()),
             *((paths[k], x, draw.expected.results[k]) for k, x in feed.results.items())]
    for name, x, want in pairs:
        if difference(x, want) > UNPROVABLE * (size(want) or 1.0):
            raise CaptureError(f"{name}: another result under no_grad() is not covered", [""])


def _takes_one(eager: Eager, draw: Draw) -> bool:
    """Return whether PyTorch accepts a single sample. Its outputs must also have the same shape as
    the outputs of one of several samples."""
    try:
        alone = eager.outputs([x[:1] for x in draw.inputs])
    except Exception:
        return False
    return [x.shape[1:] if x.dim() else None for x in alone] == eager.shapes
