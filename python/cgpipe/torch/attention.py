# SPDX-License-Identifier: Apache-2.0
"""Translate attention, which a module may compute by one op or by several. A matrix product that
may be part of attention is added to the graph only once it is clear which ops read the product."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, List, Optional, Tuple

import torch
from torch import Tensor

from cgpipe.torch.graph import Value
from cgpipe.torch.layout import Axis, Layout, count

if TYPE_CHECKING:
    from cgpipe.torch.translator import Parameter, Translator

__all__ = ["Positions", "Scores"]

#: An additive mask hides a score if it adds this number or a smaller one.
MASKED = -1e4


class Positions:
    """Rows of a learned position embedding. An op adds these rows to each sample of a value."""

    def __init__(self, weight: "Parameter", ids: Tensor) -> None:
        self.weight, self.ids = weight, ids


class Scores:
    """The scores of attention: the matrix product of ``a`` and ``b``, perhaps scaled and masked, or
    the softmax of this product. The scores are not in the graph until they are multiplied by
    values."""

    def __init__(self, t: "Translator", a: Value, b: Value, scale: Optional[float] = None,
                 grouped: bool = False) -> None:
        self.t, self.merged = t, len(a.layout.dims) == 3 and len(a.layout.dims[0]) > 1
        self.a, self.b = (_unmerged(a), _unmerged(b)) if self.merged else (a, b)
        self.scale = 1.0 if scale is None else scale
        self.causal, self.is_softmax, self.grouped = False, False, grouped
        self.masks: List[Tensor] = []
        self.p = 0.0

    def _with(self, **changes: Any) -> "Scores":
        other = copy.copy(self)
        other.__dict__.update(changes)
        return other

    # --- ops on scores ---

    def scaled(self, factor: float) -> Any:
        """Return the scores times a number."""
        if self.is_softmax or self.masks:
            return self.t.unary("scale", self.value(), {"slope": factor})
        return self._with(scale=self.scale * factor)

    def masked(self, mask: Tensor) -> "Scores":
        """Return the masked scores. A boolean ``mask`` is true where scores stay. A ``mask`` of
        numbers is added to the scores."""
        return self._with(masks=[*self.masks, mask])

    def softmax(self, dim: int) -> Any:
        """Return the softmax over the last dimension."""
        rank = len(self.a.layout.dims) - self.merged
        if dim not in (-1, rank - 1) or self.is_softmax:
            return self.t.apply("softmax", self.value(), dim)
        return self._with(is_softmax=True)

    def dropout(self, p: float) -> Any:
        """Return the scores with dropout."""
        if not self.is_softmax:
            return self.t.apply("dropout", self.value(), p, True)
        return self._with(p=p)

    def times(self, t: "Translator", v: Value) -> Any:
        """Return the product of the scores and the values, which is attention."""
        v = _unmerged(v) if self.merged else v
        if not self.is_softmax or len(self.a.layout.dims) != 4:
            return Scores(t, self.value(), v)
        y = self._attend(t, v)
        return _merged(y) if self.merged else y

    # --- nodes of the graph ---

    def _attend(self, t: "Translator", v: Value) -> Value:
        q, k = self.a, self.b.with_layout(self.b.layout.transpose(-1, -2))
        heads, rows = count(q.layout.dims[1]), count(q.layout.dims[2])
        keys = count(k.layout.dims[2])
        causal, window = self._mask(rows, keys)
        attributes = {"heads": heads, "p": self.p}
        own = [tuple(axis for axis in x.layout.dims[1] if not axis.repeated) for x in (k, v)]
        kv_heads = count(own[0])
        if kv_heads != heads:
            attributes["kv_heads"] = kv_heads
        if self.scale != count(q.layout.dims[3]) ** -0.5:
            attributes["scale"] = self.scale
        if causal:
            attributes["causal"] = True
        if window:
            attributes["window"] = window
        t.has_dropout |= self.p > 0
        made = tuple(Axis(axis.size) for axis in v.layout.dims[3])
        dims = q.layout.dims
        layout = Layout([dims[0], dims[1], dims[2], made], [*dims[2], *dims[1], *made])
        shape = [rows, heads * count(made)]
        fused = t.fused(q, k, v) if kv_heads == heads and causal else None
        if fused is not None:
            return Value(t.graph.add("attention", [fused], shape, dict(attributes, fused=True)),
                         layout)
        numbers = [t.graph.arrange(q, [dims[2], [*dims[1], *dims[3]]])]
        for x, axes in zip((k, v), own):
            numbers.append(t.graph.arrange(x, [x.layout.dims[2], [*axes, *x.layout.dims[3]]]))
        return Value(t.graph.add("attention", numbers, shape, attributes), layout)

    def _mask(self, rows: int, keys: int) -> Tuple[bool, int]:
        """Return whether all masks together make attention causal, and the size of the attention
        window (0: no window)."""
        keep = torch.ones(rows, keys, dtype=torch.bool)
        if self.causal:
            keep &= torch.ones(rows, keys, dtype=torch.bool).tril()
        for mask in self.masks:
            keep &= self._kept(mask, rows, keys)
        if bool(keep.all()):
            return False, 0
        tril = torch.ones(rows, keys, dtype=torch.bool).tril()
        if rows == keys:
            if torch.equal(keep, tril):
                return True, 0
            window = int(keep[-1].sum())
            if torch.equal(keep, tril & ~tril.tril(-window)):
                return True, window
        raise self.t.unsupported(
            "attention with a mask that is causal, with or without a window, or none")

    def _kept(self, mask: Tensor, rows: int, keys: int) -> Tensor:
        """Return a boolean tensor [rows, keys] that is true where a mask keeps the score."""
        if mask.dtype != torch.bool:
            if bool(((mask != 0) & (mask > MASKED)).any()):
                raise self.t.unsupported("attention without a bias")
            mask = mask == 0
        every = mask.broadcast_to([*mask.shape[:-2], rows, keys]).reshape(-1, rows, keys)
        if not bool((every == every[:1]).all()):
            raise self.t.unsupported("attention with one mask for all samples and heads")
        return every[0]

    def value(self) -> Value:
        """Add the scores to the graph as a value, because an op outside of attention reads them."""
        t = self.t
        if self.masks or self.causal:
            raise t.unsupported("a mask of attention's scores, whose softmax meets values")
        y = self._product()
        if self.scale != 1:
            y = t.unary("scale", y, {"slope": self.scale})
        if self.is_softmax:
            y = t.apply("softmax", y, -1)
        if self.p > 0:
            y = t.apply("dropout", y, self.p, True)
        return _merged(y) if self.merged else y

    def _product(self) -> Value:
        graph = self.t.graph
        self.a, self.b = self.t.whole(self.a), self.t.whole(self.b)
        a, b = self.a.layout, self.b.layout
        lead = len(a.dims) - 2
        alone = [x.with_dims([*x.dims[:lead], (), ()]) for x in (a, b)]
        left, right = alone[0].refined(alone[1])
        axes = left.logical()
        m, k, n = a.dims[-2], b.dims[-2], b.dims[-1]
        turned = bool(k) and b.order[-1] is k[-1] and bool(n)
        x = graph.arrange(Value(self.a.number, left), [axes, m, a.dims[-1]])
        y = graph.arrange(Value(self.b.number, right),
                          [right.logical(), n, k] if turned else [right.logical(), k, n])
        made = tuple(Axis(axis.size) for axis in n)
        rows = tuple(Axis(axis.size) for axis in m)
        number = graph.add("matmul", [x, y], [count(axes), count(m), count(n)],
                           {"transpose": [False, turned]})
        return Value(number, Layout([*left.dims[:lead], rows, made], [*axes, *rows, *made]))


def _unmerged(x: Value) -> Value:
    """Split a dimension that merges samples and heads into two dimensions."""
    first = x.layout.dims[0]
    return x.with_layout(x.layout.with_dims([first[:1], first[1:], *x.layout.dims[1:]]))


def _merged(x: Value) -> Value:
    dims = x.layout.dims
    return x.with_layout(x.layout.with_dims([dims[0] + dims[1], *dims[2:]]))


