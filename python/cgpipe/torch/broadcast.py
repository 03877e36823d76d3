# SPDX-License-Identifier: Apache-2.0
"""Parameters as values, and broadcast values.

If an op reads a parameter as a tensor, the parameter becomes a row of an EMBEDDING, and every
sample reads this row. So the parameter's gradient is the sum over the samples. Until the value is
expanded, its layout has no axis BATCH.

A broadcast dimension is a repeated axis, which takes no memory. If an op needs the repeated
elements in memory, UPSAMPLE makes them:

    before, after  -->  image [before, 1, after]  -->  [before, repeats, after]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, List, Optional, Sequence, Tuple

from cgpipe.torch.graph import Value
from cgpipe.torch.layout import BATCH, Axis, Dim, Layout, Unlike, count

if TYPE_CHECKING:
    from cgpipe.torch.translator import Translator

__all__ = ["aligned", "broadcast", "materialized"]

#: Largest scale of UPSAMPLE.
LARGEST_SCALE = 1024


def broadcast(values: Sequence[Value]) -> List[Value]:
    """Return the values broadcast to one shape: dimensions of size 1 are repeated. If one value has
    the dimension of the samples, all results have this dimension."""
    rank = max(len(x.layout.dims) for x in values)
    padded = [[()] * (rank - len(x.layout.dims)) + x.layout.dims for x in values]
    shape = []
    for at in range(rank):
        dims: List[Dim] = [p[at] for p in padded]
        shape.append((any(BATCH in dim for dim in dims), max(count(dim) for dim in dims)))
    found = []
    for x, dims in zip(values, padded):
        same = [(BATCH in dim, count(dim)) for dim in dims] == shape
        layout = x.layout.with_dims(dims)
        found.append(x.with_layout(layout if same else layout.expand(shape)))
    return found


def materialized(t: "Translator", x: Value, order: Optional[Sequence[Axis]] = None) -> Value:
    """Return a value whose repeated axes are in memory. ``order`` has all axes in the wanted memory
    order; None: the repeated axes come first."""
    logical = x.layout.logical()
    repeated = [axis for axis in logical if axis.repeated]
    if not repeated:
        return x
    wanted = list(order or [*repeated, *x.layout.order])
    made = {id(axis): Axis(axis.size) if axis.repeated else axis for axis in wanted}
    number, memory = x.number, [axis for axis in wanted if not axis.repeated]
    number = t.graph.ordered(x, memory)
    for at, axis in enumerate(wanted):
        if not axis.repeated:
            continue
        before = [made[id(a)] for a in wanted[:at]]
        after = [a for a in wanted[at + 1:] if not a.repeated]
        first = count(before)
        for times in _factors(axis.size):
            number = t.graph.reshape(number, [first, 1, count(after)])
            number = t.graph.add("upsample", [number], [first, times, count(after)],
                                 {"stride": [1, times]})
            first *= times
    number = t.graph.reshape(number, [axis.size for axis in wanted] if len(wanted) <= 5
                             else [count(wanted)])
    dims = [tuple(made.get(id(axis), axis) for axis in dim) for dim in x.layout.dims]
    return Value(number, Layout(dims, [made[id(axis)] for axis in wanted]))


def _factors(number: int) -> List[int]:
    """Factor a number into scales that UPSAMPLE supports."""
    found = []
    while number > LARGEST_SCALE:
        factor = next((n for n in range(LARGEST_SCALE, 1, -1) if number % n == 0), None)
        if factor is None:
            raise Unlike(f"{number} repeated values, which has no factor up to {LARGEST_SCALE}")
        found.append(factor)
        number //= factor
    return [*found, number] if number > 1 else found


def aligned(t: "Translator", a: Value, b: Value) -> Tuple[int, int, Layout]:
    """Return two values of one shape in one memory order. This is the order of the first value,
    unless the first value has repeated axes."""
    la, lb = a.layout.refined(b.layout)
    pairs = list(zip(la.logical(), lb.logical()))
    left, right = Value(a.number, la), Value(b.number, lb)
    if any(y.repeated and not x.repeated for x, y in pairs):
        right = _like(t, right, left, [(y, x) for x, y in pairs])
        pairs = list(zip(la.logical(), right.layout.logical()))
    if any(x.repeated and not y.repeated for x, y in pairs):
        left = _like(t, left, right, pairs)
        pairs = list(zip(left.layout.logical(), right.layout.logical()))
    names = {id(x): y for x, y in pairs}
    second = t.graph.ordered(right, [names[id(axis)] for axis in left.layout.order])
    return (left.number, t.graph.reshape(second, t.graph.shape(left.number)), left.layout)


def _like(t: "Translator", x: Value, y: Value, pairs: Sequence[Tuple[Axis, Axis]]) -> Value:
    """Return x with its repeated axes in memory, except axes that y repeats too. If y has all axes
    in memory, they are in y's memory order. ``pairs`` are the equal axes of x and y, in the order
    of the dimensions."""
    names = {id(b): a for a, b in pairs}
    own = {id(a) for a, b in pairs if a.repeated and not b.repeated}
    order = [names[id(axis)] for axis in y.layout.order]
    if any(axis not in order for axis in x.layout.order):
        order = [*(a for a in order if id(a) in own), *x.layout.order]
    kept = {id(axis): Axis(axis.size) for axis in x.layout.logical()
            if axis.repeated and id(axis) not in own}
    # Axes that both values repeat stay out of memory. They are hidden while the other axes are put
    # into memory.
    dims = [tuple(axis for axis in dim if id(axis) not in kept) for dim in x.layout.dims]
    made = materialized(t, Value(x.number, Layout(dims, x.layout.order)), order)
    found = []
    for dim, new in zip(x.layout.dims, made.layout.dims):
        left = list(new)
        found.append(tuple(axis if id(axis) in kept else left.pop(0) for axis in dim))
    return Value(made.number, Layout(found, made.layout.order))
