# SPDX-License-Identifier: Apache-2.0
"""The state of a capture. A capture translates nodes of an exported program to nodes of a graph.

    Constant    depends on no input or parameter: PyTorch evaluates it during the capture
    Outside     depends only on integer inputs: PyTorch evaluates it before each step
    Parameter   a parameter of the module
    Value       a value of the graph
    Part        a slice of a value; it becomes a node when something reads it
"""

from __future__ import annotations

import difflib
import math
from dataclasses import dataclass, replace
from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch
from torch import Tensor

from cgpipe.torch import broadcast
from cgpipe.torch.attention import Positions, Scores
from cgpipe.torch.graph import Graph, Value, to_memory
from cgpipe.torch.layout import BATCH, Axis, Layout, Unlike, count

__all__ = ["Constant", "Loss", "Outside", "Parameter", "Part", "Samples", "Term",
           "Translator", "Turned", "Unsupported", "row_of", "samples_of", "shape_of"]


class Unsupported(Exception):
    """An op, or a form of an op, is not supported. The text says what is supported."""


class Constant:
    """A tensor that is the same in each step. ``samples`` has the dimension that counts the
    samples, and its size for one sample; None: there is no such dimension. ``buffer`` is the
    tensor's name in the module if it is a buffer."""

    def __init__(self, tensor: Tensor, samples: Optional[Tuple[int, int]] = None,
                 buffer: Optional[str] = None) -> None:
        self.tensor, self.samples, self.buffer = tensor, samples, buffer


class Outside:
    """A node that PyTorch evaluates from the inputs before each step."""

    def __init__(self, node: Any, shape: List[Tuple[bool, int]], dtype: torch.dtype) -> None:
        self.node, self.shape, self.dtype = node, shape, dtype
        #: True if all elements of the result are known to be finite.
        self.finite = not dtype.is_floating_point


class Samples:
    """A number that depends on the number of samples."""

    def __init__(self, number: int) -> None:
        self.number = number


class Parameter:
    """A parameter of the module."""

    def __init__(self, name: str, shape: Sequence[int]) -> None:
        self.name, self.shape = name, list(shape)


class Turned(Parameter):
    """A parameter [out, in] of the module, seen as its transpose [in, out]; ``shape`` is [in,
    out]."""


@dataclass(frozen=True)
class Term:
    """A loss of the graph, and its factor in the sum of losses."""

    op: str
    inputs: List[int]
    attributes: Dict[str, Any]
    weight: float = 1.0

    def scaled(self, factor: float) -> "Term":
        """Return the loss times a number.

        Raises:
            Unsupported: The number is not above 0.
        """
        if not 0 < factor < math.inf:
            raise Unsupported("a loss times a number above 0")
        return replace(self, weight=factor * self.weight)

    def add(self, t: "Translator") -> None:
        """Add the loss to the graph."""
        t.graph.loss(self.op, self.inputs, self.attributes, self.weight)


class Loss:
    """A scalar loss: a weighted sum of losses of the graph."""

    def __init__(self, terms: Sequence[Term]) -> None:
        self.terms = list(terms)

    def scaled(self, factor: float) -> "Loss":
        """Return the loss times a number.

        Raises:
            Unsupported: A term cannot be multiplied by this number.
        """
        return Loss([term.scaled(factor) for term in self.terms])

    def plus(self, other: Any) -> "Loss":
        """Return the sum of two losses. ``other`` may also be the number 0.

        Raises:
            Unsupported: ``other`` is neither a loss nor 0.
        """
        if isinstance(other, (int, float)) and other == 0:
            return self
        if not isinstance(other, Loss):
            raise Unsupported("a sum of losses")
        return Loss(self.terms + other.terms)


class Part(Value):
    """A slice of a dimension. Its node is made when the slice is first used."""

    def __init__(self, source: "_Source", layout: Layout) -> None:
        self.source, self.layout = source, layout

    @property
    def number(self) -> int:  # type: ignore[override]
        return self.source.cut()

    def with_layout(self, layout: Layout) -> "Part":
        return Part(self.source, layout)


class _Source:
    """The source of a Part. The axes of the value form three groups. The Part consists of elements
    ``begin`` .. ``end`` - 1 of the second group."""

    def __init__(self, graph: Graph, x: Value, groups: Sequence[Sequence[Axis]], begin: int,
                 end: int) -> None:
        self.graph, self.x, self.groups, self.begin, self.end = graph, x, groups, begin, end
        self.made: Optional[int] = None

    def cut(self) -> int:
        if self.made is None:
            before, own, after = self.groups
            number = self.graph.arrange(self.x, self.groups)
            self.made = self.graph.add("slice", [number],
                                       [count(before), self.end - self.begin, count(after)],
                                       {"dim": [1, 0], "begin": self.begin, "end": self.end})
        return self.made


class Hidden:
    """A hidden input: an input of the graph that is not an input of the module. It has either
    ``rows`` [1, ...], which are the same for each sample, or ``outside``."""

    def __init__(self, number: int, layout: Layout, rows: Optional[Tensor] = None,
                 outside: Optional[Outside] = None) -> None:
        self.number, self.layout, self.rows, self.outside = number, layout, rows, outside


class Translator:
    """Builds the graph of a module."""

    def __init__(self, name: str, training: bool, ops: Dict[str, Any]) -> None:
        self.graph, self.training, self.ops = Graph(name), training, ops
        self.has_dropout = self.has_batch_norm = False
        self.fixed_norms = False  # in evaluation, let batch norms have gradients
        self.node: Any = None
        self.hidden: List[Hidden] = []
        self.real: Dict[Any, int] = {}  # values of the placeholders of integer inputs
        self.orders: Dict[str, Tuple[List[int], Tuple[int, ...], List[int]]] = {}
        self.state_names: List[str] = []
        self._hidden_outside: Dict[Any, int] = {}
        # For each parameter that is used as a value: the number of the value.
        self._values: Dict[str, int] = {}
        # Functions of nodes' results. The key is the node and the function's name.
        self.derived: Dict[Any, Outside] = {}

    # --- the current node ---

    def apply(self, name: str, *arguments: Any) -> Any:
        """Translate another op as part of the current node."""
        return self.ops[name](self, *arguments)

    def shape_of_result(self) -> List[Tuple[bool, int]]:
        """Return the shape of the node's result: for each dimension, whether it counts the samples,
        and its size for one sample."""
        return shape_of(self.node.meta["val"].shape)

    def unsupported(self, what: str) -> Unsupported:
        """Return the exception for a form of an op that is not supported."""
        return Unsupported(what)

    # --- arguments ---

    def value(self, x: Any) -> Value:
        """Return an argument as a tensor of the graph."""
        if isinstance(x, Value):
            return x
        if isinstance(x, Scores):
            return x.value()
        if isinstance(x, Parameter):
            return self._parameter_value(x)
        if isinstance(x, Positions):
            return self._positions_value(x)
        if isinstance(x, Outside) and x.dtype.is_floating_point:
            return self._outside(x)
        if isinstance(x, Constant) and self.is_batched(x):
            layout = _layout_of(shape_of_constant(x))
            return self.constant(x, layout)
        raise Unsupported({Outside: "arithmetic on integers that depend on the inputs",
                           Loss: "a loss at the end",
                           Samples: "no value that depends on the number of samples"}.get(
                               type(x), "a tensor with samples"))

    def is_batched(self, x: Constant) -> bool:
        """Return whether a constant has a row for each sample."""
        return x.samples is not None

    def number(self, x: Any) -> Optional[float]:
        """Return an argument as a number, or None if it is not a number."""
        if isinstance(x, Samples):
            raise Unsupported("no value that depends on the number of samples")
        if isinstance(x, (int, float)) and not isinstance(x, bool):
            return float(x)
        if isinstance(x, Constant) and x.tensor.numel() == 1 and x.samples is None:
            return float(x.tensor)
        return None

    def constant_number(self, x: Any) -> Optional[float]:
        """Return a number, or the common value of all elements of a constant. Return None if the
        argument is neither."""
        if (isinstance(x, Constant) and x.tensor.numel() > 1
                and bool((x.tensor == x.tensor.flatten()[0]).all())):
            return float(x.tensor.flatten()[0])
        return self.number(x)

    def integers(self, x: Any) -> Tuple[int, Layout]:
        """Return the number of the graph value that holds an integer tensor, and the layout of the
        value."""
        if isinstance(x, Outside):
            layout = _layout_of(x.shape)
            if x.node in self.real:
                return self.real[x.node], layout
            if x.node not in self._hidden_outside:
                self._hidden_outside[x.node] = self._add_hidden("i32", layout, outside=x)
            return self._hidden_outside[x.node], layout
        if isinstance(x, Constant) and self.is_batched(x):
            layout = _layout_of(shape_of_constant(x))
            rows = to_memory(row_of(x), layout).to(torch.int32)
            return self._add_hidden("i32", layout, rows=rows), layout
        raise Unsupported("integers that are inputs, or follow from them")

    def _outside(self, x: Outside) -> Value:
        layout = _layout_of(x.shape)
        if x.node not in self._hidden_outside:
            self._hidden_outside[x.node] = self._add_hidden("f32", layout, outside=x)
        return Value(self._hidden_outside[x.node], layout)

    def _parameter_value(self, x: Parameter) -> Value:
        """Return a parameter as a value whose layout has no axis BATCH. The value is the same for
        each sample."""
        if isinstance(x, Turned):
            value = self._parameter_value(Parameter(x.name, x.shape[::-1]))
            return value.with_layout(value.layout.transpose(0, 1))
        sizes = [Axis(size) for size in x.shape if size != 1]
        total = count(sizes)
        if x.name not in self._values:
            ids = self._add_hidden("i32", _layout_of([(True, 1)]),
                                   rows=torch.zeros([1, 1], dtype=torch.int32))
            named = self.parameter(x, [1, total], decays=len(sizes) > 1)
            self._values[x.name] = self.graph.add("embedding", [ids], [1, total],
                                                  {"size": 1, "width": total}, [named])
        shape = [axis.size for axis in sizes] if len(sizes) <= 5 else [total]
        left = list(sizes)
        dims = [(left.pop(0),) if size != 1 else () for size in x.shape]
        return Value(self.graph.reshape(self._values[x.name], shape), Layout(dims, sizes))

    def _positions_value(self, x: Positions) -> Value:
        """Return rows of a parameter as a value whose layout has no axis BATCH. The rows are the
        same for each sample."""
        size, width = x.weight.shape
        rows = x.ids.reshape(1, -1).to(torch.int32)
        ids = self._add_hidden("i32", _layout_of([(True, 1), (False, rows.shape[1])]), rows=rows)
        named = self.parameter(x.weight, [size, width])
        y = self.graph.add("embedding", [ids], [rows.shape[1], width],
                           {"size": size, "width": width}, [named])
        dims = [(Axis(n),) if n != 1 else () for n in (*x.ids.shape, width)]
        axes = [axis for dim in dims for axis in dim]
        shape = [axis.size for axis in axes] if len(axes) <= 5 else [count(axes)]
        return Value(self.graph.reshape(y, shape), Layout(dims, axes))

    def _add_hidden(self, dtype: str, layout: Layout, rows: Optional[Tensor] = None,
                    outside: Optional[Outside] = None) -> int:
        value = self.graph.input(f"hidden {len(self.hidden)}", dtype, layout)
        self.hidden.append(Hidden(value.number, layout, rows, outside))
        return value.number

    def constant(self, x: Constant, layout: Layout) -> Value:
        """Return a constant, broadcast if necessary, as a value with this layout."""
        row = row_of(x).to(torch.float32)
        shape = [count(dim) for dim in layout.dims]
        if any(axis.repeated for axis in layout.logical()):
            raise Unlike("repeated values (expand) where they must be in memory")
        try:
            rows = to_memory(row.broadcast_to(shape), layout)
        except RuntimeError:
            raise Unlike("a constant of another shape") from None
        return Value(self._add_hidden("f32", layout, rows=rows), layout)

    # --- nodes ---

    def unary(self, name: str, x: Any, attributes: Optional[Dict[str, Any]] = None) -> Value:
        """Add an elementwise op."""
        x = self.value(x)
        return Value(self.graph.add(name, [x.number], self.graph.shape(x.number), attributes),
                     x.layout)

    def binary(self, name: str, a: Any, b: Any) -> Value:
        """Add an elementwise op of two tensors of the same shape; one operand may be a constant."""
        numbers = [isinstance(x, (int, float, Constant)) for x in (a, b)]
        if numbers[0]:
            b = self.value(b)
            a = self.constant(_as_constant(a), b.layout)
        elif numbers[1]:
            a = self.value(a)
            b = self.constant(_as_constant(b), a.layout)
        a, b = broadcast.broadcast([self.value(a), self.value(b)])
        first, second, layout = broadcast.aligned(self, a, b)
        return Value(self.graph.add(name, [first, second], self.graph.shape(first)), layout)

    def same_order(self, a: Value, b: Value) -> Tuple[int, int]:
        """Return two tensors of the same shape in the same memory order."""
        first, second, _ = broadcast.aligned(self, a, b)
        return first, second

    def whole(self, x: Any) -> Value:
        """Return an argument as a tensor of the graph whose elements are all in memory."""
        return broadcast.materialized(self, self.value(x))

    def part(self, x: Value, dim: int, begin: int, end: int) -> Value:
        """Return elements begin .. end - 1 of a dimension."""
        dims = list(x.layout.dims)
        dim = x.layout.dim(dim)
        own, order = list(dims[dim]), x.layout.order
        if (begin, end) == (0, count(own)):
            return x
        if begin >= end:
            raise Unsupported("a part that is not empty")
        if any(axis.repeated for axis in own):
            raise Unlike("repeated values (expand) where they must be in memory")
        at = order.index(own[0])
        if order[at:at + len(own)] != own:  # the dimension is not contiguous
            order = [axis for axis in order if axis not in own] + own
            at = len(order) - len(own)
        before, after = order[:at], order[at + len(own):]
        made = (Axis(end - begin),) if end - begin != 1 else ()
        dims[dim] = made
        source = _Source(self.graph, x, [before, own, after], begin, end)
        return Part(source, Layout(dims, [*before, *made, *after]))

    def fused(self, q: Value, k: Value, v: Value) -> Optional[int]:
        """Return the value whose three parts are q, k and v, for fused attention. Return None if
        there is no such value."""
        parts = [q, k, v]
        if not all(isinstance(x, Part) for x in parts):
            return None
        sources = [x.source for x in parts]  # type: ignore[attr-defined]
        first = sources[0]
        width = first.end - first.begin
        total = count(first.groups[1])
        for i, (x, source) in enumerate(zip(parts, sources)):
            dims = x.layout.dims
            plain = x.layout.order == [*dims[2], *dims[1], *dims[3]]
            if (source.x.number != first.x.number or source.groups[2] or source.begin != i * width
                    or source.end != (i + 1) * width or 3 * width != total or not plain):
                return None
        return self.graph.arrange(first.x, first.groups[:2])

    def add_positions(self, x: Value, positions: Any) -> Value:
        """Add a parameter, or learned position embeddings, to each sample."""
        sizes = x.layout.sizes()[1:]
        if len(sizes) < 2:
            raise Unsupported("a parameter [T, C] that is added to a value [N, T, C]")
        weight = positions.weight if isinstance(positions, Positions) else positions
        shape = list(weight.shape)
        rows, width = count([a for dim in x.layout.dims[1:-1] for a in dim]), sizes[-1]
        whole = isinstance(positions, Parameter)
        if not whole:
            ids = positions.ids.reshape(-1)
            whole = shape[0] == rows and torch.equal(ids, torch.arange(rows))
        if whole and [s for s in shape if s != 1] == [s for s in sizes if s != 1]:
            number = self.graph.arrange(
                x, [[a for dim in x.layout.dims[1:-1] for a in dim], x.layout.dims[-1]])
            named = self.parameter(weight, [rows, width])
            y = self.graph.add("position", [number], [rows, width], None, [named])
            return Value(y, Layout(x.layout.dims, x.layout.logical()))
        if isinstance(positions, Parameter):
            raise Unsupported("a parameter [T, C] that is added to a value [N, T, C]")
        ids_layout = _layout_of([(True, 1), (False, rows)])
        ids = (positions.ids.reshape(-1).broadcast_to([rows]) if positions.ids.numel() == 1
               else positions.ids.reshape(-1))
        hidden = self._add_hidden("i32", ids_layout, rows=ids.reshape(1, -1).to(torch.int32))
        named = self.parameter(weight, shape)
        y = self.graph.add("embedding", [hidden], [rows, width], {"size": shape[0], "width": width},
                           [named])
        logical = x.layout.with_dims(x.layout.dims)
        table = Value(self.graph.reshape(y, [rows, width]), Layout(logical.dims, logical.logical()))
        return self.binary("add", x, table)

    # --- parameters and states ---

    def parameter(self, parameter: Any, shape: Sequence[int], order: Optional[Sequence[int]] = None,
                  decays: bool = True) -> int:
        """Return the number of a parameter whose memory has this shape. ``order`` is the
        permutation to the module's dimensions."""
        if not isinstance(parameter, Parameter):
            raise Unsupported("a parameter of the module, not a value made of it")
        self.orders.setdefault(parameter.name, (list(shape), tuple(order or ()), parameter.shape))
        return self.graph.parameter(parameter.name, shape, decays)

    def statistics(self, mean: str, var: str, _size: int) -> List[str]:
        """Return the names of a batch norm's states."""
        names = [mean, var, mean.rpartition(".")[0] + ".num_batches_tracked"]
        names[2] = names[2].lstrip(".")
        self.state_names.extend(names)
        return names


def nearest(name: str, known: Sequence[str]) -> Optional[str]:
    """Return the known name that is most similar to ``name``, or None if no name is similar."""
    found = difflib.get_close_matches(name, known, 1, 0.6)
    return found[0] if found else None


def shape_of(sizes: Sequence[Any]) -> List[Tuple[bool, int]]:
    """Return for each dimension whether it counts the samples, and its size for one sample."""
    found = []
    for size in sizes:
        if isinstance(size, int):
            found.append((False, size))
            continue
        expression = size.node.expr
        symbols = list(expression.free_symbols)
        factor = expression.subs({symbol: 1 for symbol in symbols}) if len(symbols) == 1 else None
        if factor is None or expression != factor * symbols[0] or not factor.is_integer:
            raise Unsupported(f"no dimension that depends on the number of samples as {expression}")
        found.append((True, int(factor)))
    return found


def samples_of(shape: Sequence[Tuple[bool, int]]) -> Optional[Tuple[int, int]]:
    """Return the dimension that counts the samples, and its size for one sample. Return None if
    there is no such dimension."""
    return next(((dim, size) for dim, (batch, size) in enumerate(shape) if batch), None)


def shape_of_constant(x: Constant) -> List[Tuple[bool, int]]:
    """Return the shape of a constant: for each dimension, whether it counts the samples, and its
    size for one sample."""
    assert x.samples is not None
    dim, size = x.samples
    return [(True, size) if d == dim else (False, n) for d, n in enumerate(x.tensor.shape)]


def _layout_of(shape: Sequence[Tuple[bool, int]]) -> Layout:
    dims = [((BATCH,) if batch else ()) + ((Axis(size),) if size != 1 else ())
            for batch, size in shape]
    layout = Layout(dims, [])
    layout.order = layout.logical()
    if not layout.has_batch:
        raise Unsupported("a tensor [N, ...] whose dimension 0 is the samples'")
    return layout


def row_of(x: Constant) -> Tensor:
    """Return the part of a constant for one sample. All samples must have equal parts."""
    if x.samples is None:
        return x.tensor
    dim, size = x.samples
    first = x.tensor.narrow(dim, 0, size)
    if not all(torch.equal(part, first) for part in x.tensor.split(size, dim)):
        raise Unsupported("a constant that is the same for all samples")
    return first


def _as_constant(x: Any) -> Constant:
    return x if isinstance(x, Constant) else Constant(torch.tensor(float(x), dtype=torch.float32))
