# SPDX-License-Identifier: Apache-2.0
"""PyTorch's values and gradients at the cuts of a proof (proof.py), and the comparison of tensors.

    Notes   keep results and their gradients while a module runs
    Feed    give them to the layers again, moved by a few roundings"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Sequence, Set, Tuple

import torch
from torch import Tensor

from cgpipe.torch.boundaries import Cut, Key, is_fresh
from cgpipe.torch.graph import from_memory, to_memory
from cgpipe.torch.layout import Layout

__all__ = ["Feed", "Notes", "Run", "Tensors", "difference", "moved", "shrinking",
           "size"]

#: Largest relative change of a tensor that is moved: the size of a few rounding errors.
MOVED = 4 * 2.0 ** -23
#: Number of random numbers that move a tensor; they are repeated. The number is prime, so the
#: repetition does not align with a dimension.
NOISE = 65521


#: Tensors by name. For results of modules, the name is the number of their graph value. None stands
#: for a gradient that PyTorch does not compute.
Tensors = Dict[Any, Optional[Tensor]]


@dataclass
class Run:
    """The tensors of a forward and backward. Tensors at cuts are in the engine's memory order."""

    outputs: Tensors
    gradients: Tensors
    results: Tensors = field(default_factory=dict)
    result_gradients: Tensors = field(default_factory=dict)
    #: The strides of PyTorch's results. ``requires`` has the results that require a gradient.
    #: ``alone`` has the results that are the whole result of their module.
    strides: Dict[int, Tuple[int, ...]] = field(default_factory=dict)
    requires: Set[int] = field(default_factory=set)
    alone: Set[int] = field(default_factory=set)


def moved(tensor: Tensor, generator: Optional[torch.Generator]) -> Tensor:
    """Return a tensor whose elements are moved by a few roundings. Without a generator, return the
    tensor itself."""
    if generator is None or not tensor.is_floating_point():
        return tensor
    x = tensor.detach()
    flat, found = x.reshape(-1), torch.empty(x.shape, dtype=x.dtype)
    noise = torch.rand([min(NOISE, flat.numel())], generator=generator, dtype=torch.float32) * 2 - 1
    factor, rows = (1 + MOVED * noise).to(x.dtype), flat.numel() // max(1, len(noise))
    whole, to = rows * len(factor), found.view(-1)
    torch.mul(flat[:whole].view(rows, -1), factor, out=to[:whole].view(rows, -1))
    torch.mul(flat[whole:], factor[:flat.numel() - whole], out=to[whole:])
    return found.requires_grad_(tensor.requires_grad)


def shrinking(shape: Sequence[int], generator: torch.Generator) -> Tensor:
    """Return factors that move a tensor of this shape by a few roundings towards zero."""
    number = math.prod(shape)
    noise = torch.rand([min(NOISE, number)], generator=generator, dtype=torch.float32)
    return (1 - MOVED * noise).repeat(-(-number // max(1, len(noise))))[:number].view(shape)


# --- comparison ---


def _real(x: Tensor) -> Tensor:
    """Return a tensor of real numbers: for a complex tensor, its real and imaginary parts."""
    return torch.view_as_real(x.detach()) if x.is_complex() else x.detach()


def size(x: Optional[Tensor]) -> float:
    """Return the root mean square of the finite elements of a tensor."""
    if x is None or not x.numel():
        return 0.0
    x = _real(x)
    if x.is_floating_point():
        norm = float(torch.linalg.vector_norm(x))
        if math.isfinite(norm):
            return float(norm / x.numel() ** 0.5)
    finite = x[torch.isfinite(x)].double()
    return float(finite.square().mean().sqrt()) if finite.numel() else 0.0


def difference(a: Optional[Tensor], b: Optional[Tensor]) -> float:
    """Return the root mean square of the difference of two tensors. None stands for zeros. Infinite
    elements must be equal."""
    if a is None or b is None:
        return size(b if a is None else a)
    if a.shape != b.shape:
        return float("inf")
    if a.dtype == b.dtype and torch.equal(a, b):
        return 0.0
    a, b = _real(a), _real(b)
    if a.dtype == b.dtype == torch.float32:
        norm = float(torch.linalg.vector_norm(a - b)) / b.numel() ** 0.5
        if math.isfinite(norm):
            return float(norm)
    a, b = a.double(), b.double()
    finite = torch.isfinite(b)
    if not torch.equal(a[~finite].nan_to_num(), b[~finite].nan_to_num()):
        return float("inf")
    far = size(a[finite] - b[finite])
    return far if math.isfinite(far) else float("inf")


class Notes:
    """Records the results at cuts in a run: values and gradients in the engine's memory order."""

    def __init__(self, cuts: Dict[Key, Cut], samples: int) -> None:
        self.cuts, self.samples = cuts, samples
        self.values: Tensors = {}
        self.gradients: Tensors = {}
        self.strides: Dict[int, Tuple[int, ...]] = {}
        self.requires: Set[int] = set()
        self.alone: Set[int] = set()
        self.skip = self.generator = None

    def visit(self, key: Key, y: Tensor, arguments: Any) -> Tensor:
        """Record a result."""
        cut = self.cuts.get(key)
        if (cut is None or list(y.shape) != cut.layout.shape(self.samples) or y.is_leaf
                and y.requires_grad or not (y.requires_grad or torch.is_grad_enabled())
                or not is_fresh(y, arguments)
                # The memory of the result is not dense.
                or torch.empty_like(y, device="meta").stride() != y.stride()):
            return y
        number, layout = cut.number, cut.layout
        self.values[number] = _copied(y, layout)
        self.strides[number] = y.stride()
        if key[1:] == (0, 0):
            self.alone.add(number)
        if y.requires_grad:
            self.requires.add(number)
            self.gradients[number] = None

            def note(gradient: Tensor) -> None:
                self.gradients[number] = _copied(gradient, layout)
            y.register_hook(note)
        return y

    def seeds(self) -> List[Any]:
        """Return an empty list, because backward begins only at the outputs."""
        return []

    def move(self, x: Tensor) -> Tensor:
        """Return the tensor itself."""
        return x


def _copied(x: Tensor, layout: Layout) -> Tensor:
    memory = to_memory(x.detach(), layout)
    return memory.clone() if memory.data_ptr() == x.data_ptr() else memory


class Feed:
    """Replaces results at cuts by the results of an earlier run. So a module that reads a result
    gets the earlier result."""

    def __init__(self, cuts: Dict[Key, Cut], run: Run, generator: Optional[torch.Generator],
                 wanted: Optional[Set[str]]) -> None:
        self.cuts, self.run, self.generator = cuts, run, generator
        self.results: Tensors = {}
        self.leaves: Dict[int, Tensor] = {}
        self.layouts = {cut.number: cut.layout for cut in cuts.values()}
        self._made: List[Tuple[Tensor, Tensor]] = []
        self._wanted = wanted
        # Only a module that is called once may be left out.
        if any(number for _, number, _ in cuts):
            self._wanted = None

    def skip(self, path: str, number: int) -> Optional[Tensor]:
        """Return the result to use instead of a call of the module, or None to call the module."""
        cut = self.cuts.get((path, number, 0))
        if (self._wanted is None or cut is None or cut.number not in self.run.alone
                or any(own == path or own.startswith(path + ".") for own in self._wanted)):
            return None
        with torch._C.DisableTorchFunction():
            return self._leaf(cut)

    def visit(self, key: Key, y: Tensor, _: Any) -> Tensor:
        """Record a result, and return the result of the earlier run in its place."""
        cut = self.cuts.get(key)
        if cut is None:
            return y
        with torch._C.DisableTorchFunction():
            return self._exchange(cut, y)

    def _exchange(self, cut: Cut, y: Tensor) -> Tensor:
        self.results[cut.number] = _copied(y, cut.layout)
        gradient = self.run.result_gradients.get(cut.number)
        if y.requires_grad and gradient is not None:
            self._made.append((y, from_memory(self.move(gradient), cut.layout)))
        return self._leaf(cut)

    def move(self, x: Tensor) -> Tensor:
        """Return a tensor moved by a few roundings."""
        return moved(x, self.generator)

    def _leaf(self, cut: Cut) -> Tensor:
        value = self.run.results[cut.number]
        assert value is not None
        shaped = from_memory(self.move(value), cut.layout)
        leaf = torch.empty_strided(shaped.shape, self.run.strides[cut.number],
                                   dtype=shaped.dtype).copy_(shaped)
        self.leaves[cut.number] = leaf.requires_grad_(cut.number in self.run.requires)
        return leaf.clone()  # a clone is not a leaf of autograd's graph, so forward may write to it

    def seeds(self) -> List[Any]:
        """Return the results at which backward begins, and their gradients."""
        return self._made
