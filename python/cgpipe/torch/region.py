# SPDX-License-Identifier: Apache-2.0
"""Fallback regions: parts of a captured module that PyTorch runs inside the pipeline.

A region is a custom op whose forward and backward call PyTorch on the stage's worker. Its inputs,
results, gradients and parameters are in planned memory. PyTorch's own memory is outside the plan.

    parameters 1 .. 4 of 9   the region's own op
    5 .. 8, 9                carriers: ops without data, which pass one number on as a token

Backward runs a region before its carriers, and computes the gradients of all parameters. Each op
then writes the gradients of its own parameters, which the engine adds up in the order of
micro-batches.

If the region's inputs and results stay in place until backward, the graph that autograd recorded in
forward is kept. Otherwise backward runs the forward again, with the same random numbers and
buffers."""

from __future__ import annotations

import contextlib
import ctypes
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch
from torch import Tensor, nn

from cgpipe import _c
from cgpipe._op import FLOPS, INFER, MAX, OUTSIDE, RUN, cgp_op
from cgpipe.errors import CgpipeError
from cgpipe.torch.finding import Finding
from cgpipe.torch.layout import BATCH, Axis, Layout, count
from cgpipe.torch.measured import of_samples
from cgpipe.torch.opaque import nodes_of
from cgpipe.torch.surroundings import (PROOF_SEED, add_storage, buffers_replaced, counting,
                                       evaluating, put, seeded, threads, unscaled, without_hooks)
from cgpipe.torch.watch import attributes_of, set_back

if TYPE_CHECKING:
    from cgpipe.torch.regions import Regions

__all__ = ["Operand", "Region", "memory_of", "output_operand"]

_TYPES = {torch.float32: (ctypes.c_float, torch.float32)}
_INTEGER = (ctypes.c_int32, torch.int32)
#: Guards the .grad of parameters. Regions may share parameters, and some backwards use .grad.
_ACCUMULATION = threading.Lock()


# --- memory ---


def memory_of(address: int, sizes: Sequence[int], dtype: torch.dtype = torch.float32) -> Tensor:
    """Return a tensor whose elements are memory of the plan."""
    c_type, found = _TYPES.get(dtype, _INTEGER)
    elements = 1
    for size in sizes:
        elements *= size
    return torch.frombuffer((c_type * elements).from_address(address), dtype=found).view(sizes)


class Operand:
    """A tensor of a region: its layout in the engine's memory, and its type in PyTorch."""

    def __init__(self, layout: Layout, dtype: torch.dtype = torch.float32) -> None:
        self.layout, self.dtype = layout, dtype
        axes = [axis for dim in layout.dims for axis in dim]
        place = {id(axis): i + 1 for i, axis in enumerate(layout.order)}
        self.order = [0 if axis is BATCH else place[id(axis)] for axis in axes]
        self.sizes = [axis.size for axis in layout.order]
        self.elements = count(layout.order)

    def view(self, address: int, samples: int) -> Tensor:
        """Return a view of memory with the axes in PyTorch's order."""
        return memory_of(address, [samples, *self.sizes], self.dtype).permute(self.order)

    def shape(self, samples: int) -> List[int]:
        """Return the shape of the tensor in PyTorch."""
        return self.layout.shape(samples)

    def read(self, address: int, samples: int) -> Tensor:
        """Return the tensor in PyTorch's order, contiguous. It is copied only if necessary."""
        return (self.view(address, samples).reshape(self.shape(samples)).contiguous()
                .to(self.dtype))

    def write(self, address: int, samples: int, value: Optional[Tensor]) -> None:
        """Write a tensor in PyTorch's order to memory. If ``value`` is None, write zeros."""
        view = self.view(address, samples)
        if value is None:
            view.zero_()
        else:
            view.copy_(value.reshape(view.shape))


# --- a region ---


@dataclass
class _Run:
    """The record of a forward of a region: the addresses of its inputs, the leaves of autograd's
    graph, and the results."""

    places: List[int]
    leaves: List[Tensor]
    results: List[Tensor]


@dataclass(eq=False)
class Region:
    """A part of a module that PyTorch runs."""

    path: str
    #: The module, or the module that has the ops.
    module: nn.Module
    function: Callable[[Sequence[Tensor]], List[Tensor]]
    inputs: List[Operand]
    outputs: List[Operand]
    #: Parameters by name, in the order in which the ops list them.
    parameters: List[Tuple[str, nn.Parameter]]
    #: Buffers to which forward may write. ``writes_buffers`` says whether it wrote to any of them
    #: when it ran on the example.
    buffers: List[Tensor]
    writes_buffers: bool
    #: Attributes that forward sets. ``writes`` has the indices of the inputs to which it writes.
    attributes: List[Tuple[nn.Module, str]]
    writes: List[int]
    #: ``draws`` is true if forward draws random numbers. ``mixes`` is true if samples depend on
    #: each other.
    draws: bool
    mixes: bool
    #: Why the engine does not run this part.
    reason: Finding
    regions: "Regions"
    #: True if forward scales rows of the module's weight, as nn.Embedding does with max_norm.
    scales: bool = False
    #: Number of operations in a forward of one sample; 0: not known.
    flops: float = 0.0
    #: False if no result requires a gradient. An example is a checkpoint(use_reentrant=True) whose
    #: input requires no gradient.
    has_gradient: bool = True
    #: True if forward computes in a type with fewer bits than float32.
    reduced: bool = False
    #: For each value of the op, True if it requires a gradient.
    requires: List[bool] = field(default_factory=list)
    #: Names of the ops if the region is a part of the module; (): it is the whole module.
    only: Sequence[str] = ()
    #: Bytes that PyTorch keeps from forward to backward, for each number of samples in the proof.
    kept_bytes: Dict[int, int] = field(default_factory=dict)
    #: For each input, the index of its value among the op's inputs (packing.py).
    slots: List[int] = field(default_factory=list)
    #: For each parameter: its shape in memory, and the permutation to PyTorch's dimensions; an
    #: empty permutation means that the order is the same.
    orders: List[Tuple[Tuple[int, ...], Tuple[int, ...]]] = field(default_factory=list)
    ops: List[Any] = field(default_factory=list)
    seconds: float = 0.0
    _kept: Dict[Any, _Run] = field(default_factory=dict)
    #: Copies of the tensors that a forward writes to, made before the forward. If forward scales
    #: its weight, this is a copy of the scaled rows.
    _before: Dict[Any, Any] = field(default_factory=dict)
    _latest: Any = None
    #: Results of _is_reentrant().
    _reentrant: Dict[Tuple[bool, ...], bool] = field(default_factory=dict)
    _large: Optional[List[Tuple[str, Any, Tensor]]] = None
    _waiting: Dict[int, List[Optional[Tensor]]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The path of the module, and the ops if the region is a part of it."""
        path = self.path or "the module itself"
        return f"{path}: {', '.join(self.only)}" if self.only else path

    @property
    def values(self) -> int:
        """Number of the op's inputs, not counting a token."""
        return max(self.slots) + 1

    @property
    def scaled(self) -> List[Tensor]:
        """The weight whose rows forward scales."""
        return [self.module.weight] if self.scales else []

    # --- ops ---

    def make_ops(self, names: Sequence[str], orders: Sequence[Any]) -> None:
        """Make the tables of the carriers (in the order of the graph) and the table of the region's
        op. ``orders`` has, for each parameter, its shape in memory and the permutation to PyTorch's
        dimensions."""
        self.orders = [(tuple(shape), tuple(order)) for shape, order in orders]
        for name in names[:-1]:
            first = MAX * (len(names) - 1 - len(self.ops))
            self.ops.append(self._carrier(name, first, min(first + MAX, len(self.parameters))))
        op = cgp_op(names[-1], self.values + (len(names) > 1))
        op.input_needs_x = (1 << self.values) - 1
        op.outside_bytes = OUTSIDE(lambda _node, samples: of_samples(self.kept_bytes, samples))
        op.weight_in_input = bool(self.parameters)
        if self.flops:
            # Backward has two products for each product of forward. The action W has no kernel of
            # its own, so the action I counts both.
            op.flops = FLOPS(lambda _node, direction: self.flops * (1.0, 2.0, 0.0)[direction])
        total = sum(output.elements for output in self.outputs)
        sizes = ([a.size for a in self.outputs[0].layout.order] or [1]
                 if len(self.outputs) == 1 else [total])
        op.infer = INFER(self._infer(sizes, 0, min(MAX, len(self.parameters))))
        op.forward = RUN(self._guarded(self._forward))
        op.backward_input = RUN(self._guarded(self._backward))
        self.ops.append(op)

    def _carrier(self, name: str, first: int, end: int) -> Any:
        op = cgp_op(name, 1)
        op.weight_in_input = True

        def forward(run: Any) -> None:
            memory_of(run.y, [run.n]).zero_()

        def backward(run: Any) -> None:
            if run.dx[0]:
                memory_of(run.dx[0], [run.n]).zero_()
            self._write_gradients(run, first, end)
        op.infer = INFER(self._infer([1], first, end))
        op.forward = RUN(self._guarded(forward))
        op.backward_input = RUN(self._guarded(backward))
        return op

    def _infer(self, sizes: Sequence[int], first: int, end: int) -> Callable[..., int]:
        def infer(_attributes: Any, _inputs: Any, out: Any) -> int:
            shapes = out.contents
            _set_shape(shapes.output.shape, sizes)
            shapes.n_parameters = end - first
            for k in range(first, end):
                parameter = shapes.parameters[k - first]
                parameter.suffix = b"parameter"
                parameter.decays = True
                _set_shape(parameter.shape, self.orders[k][0])
            return 0
        return infer

    def _guarded(self, function: Callable[[Any], None]) -> Callable[[Any], int]:
        """Return a function that C can call. If ``function`` raises, the exception is kept, and the
        caller of the step raises it again."""
        def call(run: Any) -> int:
            begin = time.perf_counter()
            try:
                with threads(self.regions.threads):
                    function(run.contents)
                return 0
            except BaseException as error:
                self.regions.keep_error(self, error)
                return _c.CGP_EINVAL
            finally:
                self.seconds += time.perf_counter() - begin
        return call

    # --- forward and backward ---

    def _key(self, run: Any) -> int:
        """Return a seed that is a function of the run's seed, the step, the op and the first sample
        of the micro-batch."""
        words = (ctypes.c_float * 2)()
        _c.lib.cgp_op_random(ctypes.addressof(run), 0, 0, 2, words)
        return (int(words[0] * 2**24) << 24) | int(words[1] * 2**24)

    def _call(self, run: Any, key: int, gradient: bool) -> _Run:
        samples, leaves = run.n, []
        given: List[Tensor] = []
        for k, operand in enumerate(self.inputs):
            x = operand.read(run.x[self.slots[k]], samples)
            if gradient and self.requires[self.slots[k]]:
                x = x.detach().requires_grad_()
            leaves.append(x)
            given.append(x.clone() if k in self.writes else x)
        proving = self.regions.proving
        seed = None if not self.draws else key if proving is None else PROOF_SEED
        evaluates = self.regions.training and not run.training and not self.only
        places = {*run.x[:self.values], *(x.untyped_storage().data_ptr() for x in [
            *self.module.parameters(), *self.module.buffers()])} if proving else set()
        count: Any = counting(places) if proving and gradient else contextlib.nullcontext({})
        with torch.set_grad_enabled(gradient), seeded(seed), count as kept, \
                evaluating(self.module) if evaluates else contextlib.nullcontext(), \
                contextlib.nullcontext() if proving is None else proving():
            results = self.function(given)
        for i, (result, operand) in enumerate(zip(results, self.outputs)):
            if list(result.shape) != operand.shape(samples) or result.dtype != torch.float32:
                raise CgpipeError(
                    f"{self.name}: output {i}: float32 {operand.shape(samples)} is expected, got "
                    f"{str(result.dtype).replace('torch.', '')} {list(result.shape)}")
        if proving and gradient:
            for x in [*leaves, *results]:
                add_storage(kept, x, places)
            self.kept_bytes[samples] = sum(kept.values())
        return _Run(run.x[:self.values], leaves, results)

    def _call_first(self, run: Any, key: int, gradient: bool) -> _Run:
        """Run a forward, and store the new values of the buffers that it writes to."""
        if self.scales:
            found = self._call(run, key, gradient)
            if run.training:
                self._before[threading.get_ident(), key] = found.results[0].detach()
            return found
        if not self.buffers and not self.attributes:
            return self._call(run, key, gradient)
        before = [buffer.clone() for buffer in self.buffers]
        if run.training:
            self._before[threading.get_ident(), key] = (
                before, attributes_of(self.module) if self.attributes else None)
        copies = [value.clone() for value in before]
        with buffers_replaced(self.module, self.buffers, copies):
            found = self._call(run, key, gradient)
        for buffer, value in zip(self.buffers, copies):
            if (value.shape, value.dtype) != (buffer.shape, buffer.dtype):
                raise CgpipeError(f"{self.path}: forward sets a buffer {list(buffer.shape)} to a "
                                  f"tensor {list(value.shape)}: one shape is expected")
        put(self.buffers, copies)
        return found

    def _call_again(self, run: Any, key: int, gradient: bool) -> _Run:
        """Repeat a forward with the buffers and attributes that the first run had. The current
        buffers and attributes do not change."""
        # Look up the rows as they are, because scaling them again may change them by a rounding.
        if self.scales:
            with unscaled(self.module):
                return self._call(run, key, gradient)
        if not self.buffers and not self.attributes:
            return self._call(run, key, gradient)
        before, attributes = self._before.get((threading.get_ident(), key), (self.buffers, None))
        now = attributes_of(self.module) if self.attributes else None
        try:
            if attributes is not None:
                set_back(self.module, attributes)
            with buffers_replaced(self.module, self.buffers, [b.clone() for b in before]):
                return self._call(run, key, gradient)
        finally:
            if now is not None:
                set_back(self.module, now)

    def _forward(self, run: Any) -> None:
        again = bool(_c.lib.cgp_is_recomputing())
        key = self._key(run)
        wanted = self.regions.gradient
        gradient = run.training if wanted is None else wanted
        before = [(*entry, entry[2]._version) for entry in self._large_buffers()]
        found = (self._call_again if again else self._call_first)(run, key, gradient)
        _check_unwritten(before)
        first, results = 0, found.results
        if again and self.scales:
            results = [self._before[threading.get_ident(), key]]
        for result, operand in zip(results, self.outputs):
            self._write_result(run, first, operand, result.detach())
            first += operand.elements
        if run.training and gradient:
            self._keep((threading.get_ident(), key), found, again)

    def _large_buffers(self) -> List[Tuple[str, Any, Tensor]]:
        """Return the path, table and tensor of each buffer to which forward must not write."""
        if self.only:
            return []
        if self._large is None:
            own = {id(buffer) for buffer in self.buffers}
            self._large = [(f"{self.path}.{path}.{key}".replace("..", ".").strip("."),
                            child._buffers, buffer)
                           for path, child in self.module.named_modules()
                           for key, buffer in child._buffers.items()
                           if buffer is not None and id(buffer) not in own]
        return self._large

    def _keep(self, key: Any, found: _Run, again: bool) -> None:
        """Save the record of a forward for its backward. With recomputation, save only two kinds:
        the last forward, and forwards that are recomputations (``again``)."""
        if self.regions.keep is None:
            return
        if not self.regions.keep and not again:
            self._kept.pop(self._latest, None)
            self._latest = key
        self._kept[key] = found

    def _write_result(self, run: Any, first: int, operand: Operand, result: Tensor) -> None:
        if len(self.outputs) == 1:
            operand.write(run.y, run.n, result)
            return
        total = sum(output.elements for output in self.outputs)
        rows = memory_of(run.y, [run.n, total])[:, first:first + operand.elements]
        rows.copy_(_rows(result, operand, run.n))

    def _backward(self, run: Any) -> None:
        key = self._key(run)
        found = self._kept.pop((threading.get_ident(), key), None)
        # Recomputed inputs may be at other addresses than the inputs of forward were.
        if found is None or found.places != run.x[:self.values]:
            found = self._call_again(run, key, True)
        self._before.pop((threading.get_ident(), key), None)
        wanted = [x for x in found.leaves if x.requires_grad]
        parameters = [p for _, p in self.parameters if p.requires_grad]
        pairs = [(result, gradient) for result, gradient
                 in zip(found.results, self._output_gradients(run)) if result.requires_grad]
        gradients: Sequence[Optional[Tensor]] = [None] * (len(wanted) + len(parameters))
        if pairs and gradients:
            with without_hooks(parameters):
                gradients = self._gradients(pairs, wanted, parameters, self._is_reentrant(found))
        of = {id(x): gradient for x, gradient in zip([*wanted, *parameters], gradients)}
        name = self.ops[-1].name.decode()
        for k, (operand, x) in enumerate(zip(self.inputs, found.leaves)):
            slot = self.slots[k]
            (self.regions.asked if of.get(id(x)) is None else self.regions.passed).add((name, slot))
            if run.dx[slot]:
                operand.write(run.dx[slot], run.n, of.get(id(x)))
        if run.dx[self.values] if self.values < MAX else None:
            memory_of(run.dx[self.values], [run.n]).zero_()
        self.regions.reached.update(name for name, p in self.parameters
                                    if of.get(id(p)) is not None)
        self._waiting[threading.get_ident()] = [of.get(id(p)) for _, p in self.parameters]
        self._write_gradients(run, 0, min(MAX, len(self.parameters)))

    def _is_reentrant(self, found: _Run) -> bool:
        """Return whether forward has called checkpoint(use_reentrant=True), whose backward runs a
        second backward. PyTorch records no such call if none of its inputs needs a gradient."""
        needs = tuple(x.requires_grad for x in found.leaves)
        if needs not in self._reentrant:
            self._reentrant[needs] = any(node.name() == "CheckpointFunctionBackward"
                                         for node in nodes_of(found.results, []))
        return self._reentrant[needs]

    def _gradients(self, pairs: Sequence[Tuple[Tensor, Tensor]], wanted: Sequence[Tensor],
                   parameters: Sequence[nn.Parameter], reentrant: bool
                   ) -> Sequence[Optional[Tensor]]:
        """Return the gradients of inputs and parameters. ``pairs`` has the results with their
        gradients."""
        outputs, given = zip(*pairs)
        if not reentrant:
            return torch.autograd.grad(outputs, [*wanted, *parameters], given, allow_unused=True)
        with _ACCUMULATION:  # a second backward inside of this backward adds to .grad
            before = [p.grad for p in parameters]
            try:
                for p in parameters:
                    p.grad = None
                torch.autograd.backward(outputs, given)
                return [x.grad for x in [*wanted, *parameters]]
            finally:
                for p, gradient in zip(parameters, before):
                    p.grad = gradient

    def _output_gradients(self, run: Any) -> List[Tensor]:
        if len(self.outputs) == 1:
            return [self.outputs[0].view(run.dy, run.n).reshape(self.outputs[0].shape(run.n))]
        total = sum(output.elements for output in self.outputs)
        rows, first, found = memory_of(run.dy, [run.n, total]), 0, []
        for operand in self.outputs:
            found.append(_from_rows(rows[:, first:first + operand.elements], operand, run.n))
            first += operand.elements
        return found

    def _write_gradients(self, run: Any, first: int, end: int) -> None:
        """Write the gradients of parameters first .. end - 1, which backward has computed."""
        waiting = self._waiting[threading.get_ident()]
        for k in range(first, end):
            shape, order = self.orders[k]
            memory, gradient = memory_of(run.dparameters[k - first], shape), waiting[k]
            waiting[k] = None
            if gradient is None:
                memory.zero_()
            else:
                view = memory.permute(order) if order else memory
                gradient = gradient.to_dense() if gradient.is_sparse else gradient
                view.copy_(gradient.reshape(view.shape))

    def forget(self) -> None:
        """Drop the tensors kept by forwards that had no backward."""
        self._kept.clear()
        self._before.clear()
        self._latest = None


def _check_unwritten(before: Sequence[Tuple[str, Any, Tensor, int]]) -> None:
    """Raise if forward has written to a buffer, or replaced a buffer. Restore a replaced buffer."""
    for name, table, buffer, version in before:
        key = name.rpartition(".")[2]
        replaced = table.get(key) is not buffer
        if replaced:
            table[key] = buffer
        if replaced or buffer._version != version:
            raise CgpipeError(f"{name}: forward writes to this large buffer, which it did not for "
                              "the example (capture it with an example for which it does)")


def _rows(value: Tensor, operand: Operand, samples: int) -> Tensor:
    """Return a result as one row per sample, in the order of its layout."""
    axes = [samples if axis is BATCH else axis.size
            for dim in operand.layout.dims for axis in dim]
    at = [axis for dim in operand.layout.dims for axis in dim].index(BATCH)
    return value.reshape(axes).movedim(at, 0).reshape(samples, operand.elements)


def _from_rows(rows: Tensor, operand: Operand, samples: int) -> Tensor:
    axes = [axis for dim in operand.layout.dims for axis in dim]
    at = axes.index(BATCH)
    sizes = [axis.size for axis in axes if axis is not BATCH]
    return rows.reshape([samples, *sizes]).movedim(0, at).reshape(operand.shape(samples))


def _set_shape(shape: Any, sizes: Sequence[int]) -> None:
    shape.rank = len(sizes)
    for i, size in enumerate(sizes):
        shape.dims[i] = size


def output_operand(shape: Sequence[Tuple[bool, int]]) -> Operand:
    """Return the operand for a result: its shape, in this memory order."""
    dims = [((BATCH,) if batch else ()) + ((Axis(size),) if size != 1 else ())
            for batch, size in shape]
    layout = Layout(dims, [])
    layout.order = layout.logical()
    return Operand(layout)
