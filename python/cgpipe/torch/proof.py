# SPDX-License-Identifier: Apache-2.0
"""Prove a capture: run the module by PyTorch and by the engine, and compare.

Both run forward and backward on two draws of inputs, with 3 and with 2 samples. Outputs, losses,
gradients of parameters and inputs, and all buffers must be near. Where they are not, PyTorch runs
again with parameters and inputs moved by a few roundings, and the engine may differ by eight times
as much. Without a bound of this kind, a deep network could not be compared, since it amplifies each
rounding."""

from __future__ import annotations

import math
import os
import time
from dataclasses import dataclass, field
from typing import Dict, List, Optional, Sequence, Tuple

import torch
from torch import Tensor, nn

from cgpipe.torch.captured import Captured
from cgpipe.torch.engine import return_memory
from cgpipe.torch.proof_runs import Eager, Ours, Run
from cgpipe.torch.watch import CaptureError

__all__ = ["Proof", "prove", "wanted"]

#: Differences that are always allowed, relative to the tensor: of outputs, and of gradients.
BOUNDS = {"outputs": 1e-5, "gradients": 1e-4}
#: A tensor that PyTorch's own roundings change by more than this cannot be compared.
UNPROVABLE = 1e-2
#: How many times PyTorch runs again for a draw before a tensor is refused.
MANY = 16


def wanted(verify: Optional[bool]) -> bool:
    """Return whether captures are proven: ``verify``, or the environment's CGPIPE_VERIFY."""
    return os.environ.get("CGPIPE_VERIFY", "1") != "0" if verify is None else verify


@dataclass
class Proof:
    """The result of a proof."""

    #: Numbers of samples of the draws, and the tensors that were compared.
    samples: List[int] = field(default_factory=list)
    tensors: int = 0
    #: Tensors that roundings alone change by more than UNPROVABLE.
    unprovable: List[str] = field(default_factory=list)
    #: Runs of PyTorch beside the first run of each draw, and the duration of the proof.
    repeats: int = 0
    seconds: float = 0.0

    def report(self) -> str:
        """Return a line about the proof."""
        counts = " and ".join(map(str, self.samples))
        text = (f"proof: {self.tensors - len(self.unprovable)} tensors equal PyTorch's, for "
                f"{counts} samples; {self.seconds:.1f} s")
        if self.unprovable:
            text += f"; not provable, for roundings change them by more than {UNPROVABLE:.0%}: "
            text += ", ".join(self.unprovable[:3])
            if len(self.unprovable) > 3:
                text += f" and {len(self.unprovable) - 3} others"
        return text


# --- draws ---


def _draw(examples: Sequence[Tensor], samples: int, other: bool) -> List[Tensor]:
    """Return ``samples`` rows of the example. ``other``: permuted, and floats perturbed by 10 %;
    probabilities stay within 0 and 1."""
    generator = torch.Generator().manual_seed(7)
    rows = torch.arange(samples) % examples[0].shape[0]
    if other:
        rows = torch.randperm(examples[0].shape[0] * samples, generator=generator)[:samples]
        rows = rows % examples[0].shape[0]
    found = []
    for x in examples:
        x = x.detach()[rows]
        if other and x.is_floating_point():
            moved = x * (1 + 0.1 * torch.randn(x.shape, generator=generator))
            x = moved.clamp(0, 1) if bool(((x >= 0) & (x <= 1)).all()) else moved
        found.append(x.contiguous())
    return found


# --- comparison ---


def _real(x: Tensor) -> Tensor:
    """Return a tensor of real numbers, of a complex one its real and imaginary parts."""
    return torch.view_as_real(x.detach()) if x.is_complex() else x.detach()


def _size(x: Optional[Tensor]) -> float:
    """Return the root mean square of the finite elements."""
    if x is None or not x.numel():
        return 0.0
    x = _real(x)
    if x.is_floating_point():
        norm = float(torch.linalg.vector_norm(x))
        if math.isfinite(norm):
            return float(norm / x.numel() ** 0.5)
    finite = x[torch.isfinite(x)].double()
    return float(finite.square().mean().sqrt()) if finite.numel() else 0.0


def _difference(a: Optional[Tensor], b: Optional[Tensor], scale: float) -> float:
    if a is None or b is None:
        return _size(b if a is None else a) / scale
    if a.shape != b.shape:
        return float("inf")
    if a.dtype == b.dtype and torch.equal(a, b):
        return 0.0
    a, b = _real(a), _real(b)
    if a.dtype == b.dtype == torch.float32:
        norm = float(torch.linalg.vector_norm(a - b)) / b.numel() ** 0.5
        if math.isfinite(norm):
            return float(norm / scale)
    a, b = a.double(), b.double()
    finite = torch.isfinite(b)
    if not torch.equal(a[~finite].nan_to_num(), b[~finite].nan_to_num()):
        return float("inf")
    far = _size(a[finite] - b[finite]) / scale
    return far if math.isfinite(far) else float("inf")


def _layer(name: str) -> str:
    return name.rpartition(".")[0]


class _Comparison:
    """Compares runs of the engine with runs of PyTorch."""

    def __init__(self, eager: Eager, proof: Proof) -> None:
        self.eager, self.proof = eager, proof
        self.generator = torch.Generator().manual_seed(11)
        #: How much roundings have changed a tensor, by kind and name.
        self.spread: Dict[Tuple[str, str], float] = {}

    def check(self, inputs: Sequence[Tensor], expected: Run, got: Run) -> None:
        """Compare a draw's runs; ``inputs``: the draw.

        Raises:
            CaptureError: A tensor differs.
        """
        scales = self._scales(expected, got)
        far = {key: _difference(getattr(got, key[0]).get(key[1]), getattr(expected, key[0])[key[1]],
                                scale) for key, scale in scales.items()}
        self.proof.tensors = max(self.proof.tensors, len(far))
        wrong = self._wrong(far)
        for _ in range(MANY):
            if not wrong:
                return
            other = self.eager.run(inputs, self.generator)
            self.proof.repeats += 1
            for key in wrong:
                own = _difference(getattr(other, key[0])[key[1]], getattr(expected, key[0])[key[1]],
                                  scales[key])
                self.spread[key] = max(self.spread.get(key, 0.0), own)
            wrong = self._wrong(far)
        for kind, name in wrong:
            raise CaptureError(
                f"{name}: {'its gradient ' if kind == 'gradients' else ''}differs from PyTorch's "
                f"by {far[kind, name]:.1e} of its size, where roundings explain "
                f"{self._bound((kind, name)):.1e}: the module has a part that the capture does not "
                "understand (please report it; verify=False captures it anyway)")

    def _scales(self, expected: Run, got: Run) -> Dict[Tuple[str, str], float]:
        """Return the tensors to compare, and what their differences are relative to."""
        scales = {("outputs", name): _size(want) or 1.0
                  for name, want in expected.outputs.items() if name in got.outputs}
        if not got.gradients:
            return scales
        sizes = {name: _size(want) for name, want in expected.gradients.items()}
        # A gradient that is zero but for rounding, such as that of a bias before a batch norm, is
        # compared with the largest of its module.
        largest: Dict[str, float] = {}
        for name, size in sizes.items():
            largest[_layer(name)] = max(largest.get(_layer(name), 0.0), size)
        for name, want in expected.gradients.items():
            if name in got.gradients:
                scales["gradients", name] = max(sizes[name], 1e-3 * largest[_layer(name)]) or 1.0
            elif name in self.eager.parameters and want is not None:
                raise CaptureError(f"{name}: PyTorch computes a gradient, and the captured graph "
                                   "does not contain the parameter")
        return scales

    def _bound(self, key: Tuple[str, str]) -> float:
        return max(BOUNDS[key[0]], 8 * self.spread.get(key, 0.0))

    def _wrong(self, far: Dict[Tuple[str, str], float]) -> List[Tuple[str, str]]:
        """Return the tensors that differ by more than their bound. Notes those not provable."""
        found = []
        for (kind, name), value in far.items():
            if self.spread.get((kind, name), 0.0) > UNPROVABLE and value > BOUNDS[kind]:
                text = f"the gradient of {name}" if kind == "gradients" else name
                if text not in self.proof.unprovable:
                    self.proof.unprovable.append(text)
            elif value > self._bound((kind, name)):
                found.append((kind, name))
        return found


# --- the proof ---


def prove(flat: nn.Module, captured: Captured, examples: Sequence[Tensor]) -> Proof:
    """Compare a captured module with PyTorch. Sets the numbers of samples that its graph is for.

    Raises:
        CaptureError: They differ. The message has the output, the parameter or the buffer.
    """
    begin, proof = time.perf_counter(), Proof()
    eager = Eager(flat, captured)
    ours = Ours(captured, eager.module)
    comparison = _Comparison(eager, proof)
    for samples, other in ((3, True), (2, False)):
        inputs, expected = _expected(eager, captured, examples, samples, other)
        proof.samples.append(inputs[0].shape[0])
        comparison.check(inputs, expected, ours.run(inputs, eager.seeds))
    if captured.training and not captured.regions:
        _check_without_gradient(eager, inputs, expected)
    if captured.guard.least <= 1 and not _takes_one(eager, inputs, expected):
        captured.guard.least = 2
    del ours
    return_memory()
    proof.seconds = time.perf_counter() - begin
    return proof


def _expected(eager: Eager, captured: Captured, examples: Sequence[Tensor], samples: int,
              other: bool) -> Tuple[List[Tensor], Run]:
    """Return a draw and PyTorch's run. A number of samples that PyTorch refuses becomes a guard;
    then the example's number is drawn."""
    if captured.guard.refuses(samples) is None and samples != examples[0].shape[0]:
        inputs = _draw(examples, samples, other)
        try:
            return inputs, eager.run(inputs)
        except Exception:
            captured.guard.without.add(samples)
    inputs = _draw(examples, examples[0].shape[0] if captured.guard.refuses(samples) is not None
                   else samples, other)
    return inputs, eager.run(inputs)


def _check_without_gradient(eager: Eager, inputs: Sequence[Tensor], expected: Run) -> None:
    """Raise if the module returns something else where gradients are disabled. (In evaluation,
    PyTorch itself leaves out what its attention masks.)"""
    for name, x in eager.named(eager.outputs(inputs)).items():
        want = expected.outputs[name]
        if _difference(x, want, _size(want) or 1.0) > UNPROVABLE:
            raise CaptureError(f"{name}: another result under no_grad() is not covered", [""])


def _takes_one(eager: Eager, inputs: Sequence[Tensor], expected: Run) -> bool:
    """Return whether PyTorch takes a single sample, and gives outputs of the same shape as it gives
    each of several. ``expected``: its run on ``inputs``."""
    try:
        alone = eager.outputs([x[:1] for x in inputs])
    except Exception:
        return False
    return [x.shape[1:] if x.dim() else None for x in alone] == eager.shapes
