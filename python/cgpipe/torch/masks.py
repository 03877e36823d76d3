# SPDX-License-Identifier: Apache-2.0
"""Attention with any mask.

    none, causal, a window                      ATTENTION
    a mask for each sample, or for each head    product, mask, softmax, product

A mask that follows from integer inputs, such as a mask of padded tokens, is a hidden input. A row
whose keys are all masked gives 0, as in PyTorch."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Tuple

import torch
from torch import Tensor

from cgpipe.torch.attention import Scores
from cgpipe.torch.choices import derived
from cgpipe.torch.functions import function
from cgpipe.torch.graph import Value
from cgpipe.torch.layout import BATCH, Axis, count
from cgpipe.torch.translator import Constant, Outside, Unsupported, row_of

if TYPE_CHECKING:
    from cgpipe.torch.translator import Translator

__all__ = ["attend"]

#: More keys than any attention has.
MOST_KEYS = 2.0**40


def attend(t: "Translator", scores: Scores, v: Value, mask: Any, p: float,
           is_causal: bool) -> Any:
    """Return attention with values. ``mask`` has booleans, true where scores stay, or numbers that
    are added to the scores."""
    if isinstance(mask, Constant):
        mask = Constant(row_of(mask))
    if len(scores.a.layout.dims) == 4 and scores.a.layout.dims[0] == (BATCH,) and (
            mask is None or isinstance(mask, Constant)):
        try:
            fast = scores.masked(mask.tensor) if mask is not None else scores
            fast.causal = is_causal
            return fast.softmax(-1).dropout(p).times(t, v)
        except Unsupported:
            if mask is None:
                raise
    if is_causal:
        rows, keys = count(scores.a.layout.dims[-2]), count(scores.b.layout.dims[-1])
        mask = Constant(torch.ones(rows, keys, dtype=torch.bool).tril())
    return _explicit(t, scores, v, mask, p)


def _explicit(t: "Translator", scores: Scores, v: Value, mask: Any, p: float) -> Value:
    heads = count(scores.a.layout.dims[1])
    if scores.grouped:
        scores.b, v = _repeated(scores.b, heads), _repeated(v, heads)
    y, kept = scores.value(), None
    if mask is not None:
        added, kept = _mask(t, mask)
        y = t.binary("add", y, added)
    y = t.apply("softmax", y, -1)
    if p > 0:
        y = t.apply("dropout", y, p, True)
    found = Scores(t, y, v).value()
    return found if kept is None else t.binary("multiply", found, kept)


def _repeated(x: Value, heads: int) -> Value:
    """Return keys or values with as many heads as the queries."""
    dims = list(x.layout.dims)
    times = heads // count(dims[1])
    dims[1] = dims[1] + ((Axis(times, True),) if times > 1 else ())
    return x.with_layout(x.layout.with_dims(dims))


# --- masks ---


def _mask(t: "Translator", mask: Any) -> Tuple[Any, Any]:
    """Return the numbers to add to the scores. Also return which rows have a key that is not masked
    (None: all rows)."""
    if isinstance(mask, Constant):
        kept = _kept(mask.tensor)
        return (Constant(_added(mask.tensor)),
                None if bool(kept.all()) else Constant(kept.to(torch.float32)))
    if isinstance(mask, Outside):
        rows = [*mask.shape[:-1], (False, 1)]
        return (derived(t, mask, "added", _added, mask.shape),
                derived(t, mask, "rows", _rows, rows))
    return _computed(t, mask)


def _computed(t: "Translator", mask: Any) -> Tuple[Any, Any]:
    """Do the same for a mask that the graph computes. It may contain -infinity, so the numbers to
    add are limited to finite numbers. A row has a key that is not masked if one of its numbers is
    finite: 2^-128 times a finite number is above -2."""
    most = torch.finfo(torch.float32).max
    small = t.unary("scale", t.unary("scale", mask, {"slope": 2.0**-64}), {"slope": 2.0**-64})
    finite = function(t, "clamp", t.binary("add", small, 2.0), 0.0, 1.0)
    share = t.unary("scale", t.apply("mean", finite, [-1], True), {"slope": 2.0 * MOST_KEYS})
    return function(t, "clamp", mask, -most, most), function(t, "clamp", share, 0.0, 1.0)


def _kept(mask: Tensor) -> Tensor:
    """Return which rows [..., 1] have a key that is not masked."""
    return (mask if mask.dtype == torch.bool else mask > -math.inf).any(-1, keepdim=True)


def _rows(mask: Tensor) -> Tensor:
    return _kept(mask).to(torch.float32)


def _added(mask: Tensor) -> Tensor:
    """Return the numbers that are added to scores. In rows without a key they are 0."""
    added = (torch.zeros(mask.shape).masked_fill(~mask, -math.inf) if mask.dtype == torch.bool
             else mask.to(torch.float32))
    return added.masked_fill(~_kept(mask), 0.0)
