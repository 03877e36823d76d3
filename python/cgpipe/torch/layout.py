# SPDX-License-Identifier: Apache-2.0
"""Layouts: PyTorch tensors as views of a graph's values.

A value of the engine is stored, for each sample, in memory order. A PyTorch tensor is a view of
such a value. The dimensions of both are products of *axes*, which may have any order:

    value [H, W, C] of a convolution      axes h w c in memory
    tensor [N, C, H, W]                   dims (batch) (c) (h) (w)
    flattened to [N, C * H * W]           dims (batch) (c h w)

So views, permutations and flattenings cost nothing until an op needs a certain memory order. Axes
of size 1 are left out."""

from __future__ import annotations

from typing import Iterable, List, Optional, Sequence, Tuple

__all__ = ["BATCH", "Axis", "Layout", "MixesSamples", "Unlike"]


class MixesSamples(Exception):
    """An op moves the samples out of dimension 0."""


class Unlike(Exception):
    """Shapes do not fit together."""


class Axis:
    """A factor of a dimension. If an axis is ``repeated``, the values are the same along the whole
    axis, so the axis takes no memory."""

    __slots__ = ("repeated", "size")

    def __init__(self, size: int, repeated: bool = False) -> None:
        self.size, self.repeated = size, repeated


#: The axis that counts the samples of the mini-batch.
BATCH = Axis(0)

Dim = Tuple[Axis, ...]


def count(axes: Iterable[Axis]) -> int:
    """Return the number of elements of axes, without the batch."""
    total = 1
    for axis in axes:
        if axis is not BATCH:
            total *= axis.size
    return total


def _axes(size: int) -> Dim:
    return (Axis(size),) if size != 1 else ()


class Layout:
    """The dimensions of a tensor, and the order of its axes in memory."""

    def __init__(self, dims: Sequence[Dim], order: Sequence[Axis]) -> None:
        self.dims: List[Dim] = list(dims)
        self.order: List[Axis] = list(order)

    @classmethod
    def of_shape(cls, sizes: Sequence[int], order: Optional[Sequence[int]] = None) -> "Layout":
        """Return the layout of a tensor [N, *sizes]. ``order`` has indices into ``sizes``, in
        memory order."""
        axes = [_axes(size) for size in sizes]
        return cls([(BATCH,), *axes],
                   [axis for i in order or range(len(sizes)) for axis in axes[i]])

    # --- shapes ---

    @property
    def has_batch(self) -> bool:
        """True if the outermost axis of dimension 0 counts the samples, and no other dimension
        counts them."""
        return (bool(self.dims) and self.dims[0][:1] == (BATCH,)
                and all(BATCH not in dim for dim in self.dims[1:]))

    def sizes(self) -> List[int]:
        """Return the sizes of the dimensions for one sample."""
        return [count(dim) for dim in self.dims]

    def shape(self, samples: int) -> List[int]:
        """Return the sizes of the dimensions for a number of samples."""
        return [count(dim) * (samples if BATCH in dim else 1) for dim in self.dims]

    def logical(self) -> List[Axis]:
        """Return the axes in the order of the dimensions, without the batch."""
        return [axis for dim in self.dims for axis in dim if axis is not BATCH]

    def dim(self, index: int) -> int:
        """Return the index of a dimension from the start; a negative ``index`` counts from the
        end."""
        return index + len(self.dims) if index < 0 else index

    def with_dims(self, dims: Sequence[Dim]) -> "Layout":
        """Return the layout that has other dimensions for the same memory."""
        return Layout(dims, self.order)

    # --- views ---

    def view(self, shape: Sequence[Tuple[bool, int]]) -> "Layout":
        """Return the layout with another shape. Each entry of the shape is a pair: whether the
        dimension counts the samples, and its size for one sample."""
        left = [axis for dim in self.dims for axis in dim]
        order = list(self.order)
        dims: List[Dim] = []
        for batch, size in shape:
            taken: List[Axis] = []
            while size > 1 or batch:
                if not left or (left[0] is BATCH and not batch) or (size == 1
                                                                     and left[0] is not BATCH):
                    raise MixesSamples
                axis = left.pop(0)
                if axis is BATCH:
                    taken.append(axis)
                    batch = False
                    continue
                if size % axis.size:
                    if axis.size % size:
                        raise Unlike("a view whose sizes do not divide each other")
                    axis, rest = self._split(order, axis, size)
                    left.insert(0, rest)
                taken.append(axis)
                size //= axis.size
            dims.append(tuple(taken))
        if left:
            raise Unlike("a view of other elements")
        return Layout(dims, order)

    @staticmethod
    def _split(order: List[Axis], axis: Axis, size: int) -> Tuple[Axis, Axis]:
        """Split an axis into an outer axis of ``size`` elements and an axis for the rest."""
        parts = Axis(size, axis.repeated), Axis(axis.size // size, axis.repeated)
        if not axis.repeated:
            at = order.index(axis)
            order[at:at + 1] = parts
        return parts

    def permute(self, order: Sequence[int]) -> "Layout":
        """Return the layout with its dimensions in another order."""
        return self.with_dims([self.dims[self.dim(i)] for i in order])

    def transpose(self, a: int, b: int) -> "Layout":
        """Return the layout with two dimensions exchanged."""
        dims = list(self.dims)
        a, b = self.dim(a), self.dim(b)
        dims[a], dims[b] = dims[b], dims[a]
        return self.with_dims(dims)

    def unsqueeze(self, at: int) -> "Layout":
        """Return the layout with an additional dimension of size 1."""
        dims = list(self.dims)
        dims.insert(at + len(dims) + 1 if at < 0 else at, ())
        return self.with_dims(dims)

    def drop(self, at: int) -> "Layout":
        """Return the layout without this dimension, whose size is 1."""
        at = self.dim(at)
        return self.with_dims(self.dims[:at] + self.dims[at + 1:])

    def expand(self, shape: Sequence[Tuple[bool, int]]) -> "Layout":
        """Return the layout with dimensions of size 1 repeated, and new dimensions in front.
        ``shape`` may count the samples in a dimension that has size 1 in the layout. If the layout
        has no dimension for the samples, that dimension becomes the dimension of the samples."""
        dims: List[Dim] = [()] * (len(shape) - len(self.dims)) + self.dims
        found: List[Dim] = []
        for (batch, size), dim in zip(shape, dims):
            if batch and BATCH not in dim:
                if dim or any(BATCH in own for own in self.dims):
                    raise Unlike("an expansion over the samples")
                dim = (BATCH,)
            repeat = size > 1 and count(dim) == 1
            found.append(dim + (Axis(size, True),) if repeat else dim)
        return self.with_dims(found)

    # --- pairs ---

    def refined(self, other: "Layout") -> Tuple["Layout", "Layout"]:
        """Split the axes of two layouts of the same shape into equal axes, so that the memory
        orders can be compared."""
        if len(self.dims) != len(other.dims):
            raise Unlike("tensors of different ranks")
        orders = list(self.order), list(other.order)
        dims: Tuple[List[Dim], List[Dim]] = [], []
        for a, b in zip(self.dims, other.dims):
            left = list(a), list(b)
            if (BATCH in a) != (BATCH in b) or count(a) != count(b):
                raise Unlike("tensors of different shapes")
            found: Tuple[List[Axis], List[Axis]] = [], []
            while left[0] and left[1]:
                x, y = left[0].pop(0), left[1].pop(0)
                if (x is BATCH) != (y is BATCH):
                    raise MixesSamples
                if x.size > y.size:
                    x, rest = self._divide(orders[0], x, y.size)
                    left[0].insert(0, rest)
                elif y.size > x.size:
                    y, rest = self._divide(orders[1], y, x.size)
                    left[1].insert(0, rest)
                found[0].append(x)
                found[1].append(y)
            dims[0].append(tuple(found[0]))
            dims[1].append(tuple(found[1]))
        return Layout(dims[0], orders[0]), Layout(dims[1], orders[1])

    def _divide(self, order: List[Axis], axis: Axis, size: int) -> Tuple[Axis, Axis]:
        if axis.size % size:
            raise Unlike("tensors whose dimensions are factors of no common ones")
        return self._split(order, axis, size)
