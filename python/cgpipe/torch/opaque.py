# SPDX-License-Identifier: Apache-2.0
"""Opaque modules: modules that an export keeps as a single node, and that PyTorch runs in each
step.

    record()     run the module on two numbers of samples, and note each call of an opaque module:
                 structures, shapes, buffers that it writes to, whether it draws random numbers
    traced()     let each call be one node cgpipe::region(inputs, key) while a module is exported

A module's call includes its hooks."""

from __future__ import annotations

import contextlib
import itertools
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

import torch
from torch import Tensor, nn

from cgpipe.torch.finding import Finding
from cgpipe.torch.measured import counted
from cgpipe.torch.surroundings import random_states
from cgpipe.torch.watch import (CaptureError, Tables, attributes_kept, attributes_of, buffers_kept,
                                buffers_replaced_since, plain, set_back, tables_of)

__all__ = ["CALLS", "Call", "drew", "original", "record", "replaced", "traced"]

Shape = List[Tuple[bool, int]]


def _flatten(value: Any) -> Tuple[List[Any], Any]:
    leaves, spec = torch.utils._pytree.tree_flatten(value)
    return leaves, spec


def _unflatten(leaves: Sequence[Any], spec: Any) -> Any:
    return torch.utils._pytree.tree_unflatten(list(leaves), spec)


@dataclass
class _Side:
    """The arguments or the results of a call: their structure, the shapes and types of tensors, and
    all parts that are not tensors."""

    spec: Any
    rest: List[Any]
    shapes: List[List[int]]
    dtypes: List[torch.dtype]

    @classmethod
    def of(cls, value: Any) -> "_Side":
        leaves, spec = _flatten(value)
        tensors = [x for x in leaves if isinstance(x, Tensor)]
        return cls(spec, [None if isinstance(x, Tensor) else (x,) for x in leaves],
                   [list(x.shape) for x in tensors], [x.dtype for x in tensors])

    def build(self, tensors: Sequence[Tensor]) -> Any:
        """Return the arguments or results, with these tensors in place of the recorded tensors."""
        left = list(tensors)
        return _unflatten([left.pop(0) if x is None else x[0] for x in self.rest], self.spec)

    def differs(self, other: "_Side") -> bool:
        """Return whether ``other`` differs in its structure, in the types of its tensors, or in a
        part that is not a tensor."""
        return (self.spec != other.spec or self.dtypes != other.dtypes
                or len(self.rest) != len(other.rest)
                or any((a is None) != (b is None) or a is not None and not _same(a[0], b[0])
                       for a, b in zip(self.rest, other.rest)))


def _same(a: Any, b: Any) -> bool:
    return a is b or (type(a) is type(b) and plain(a) and bool(a == b))


@dataclass
class Call:
    """A call of an opaque module in a forward."""

    path: str
    module: nn.Module
    arguments: _Side
    results: _Side
    draws: bool
    #: Buffers and attributes to which forward writes. ``writes`` has the indices of the arguments
    #: to which it writes.
    buffers: List[str]
    attributes: List[Tuple[nn.Module, str]]
    writes: List[int]
    #: Tensors that the results depend on and that require a gradient, but that are not parameters
    #: of the module.
    leaves: List[Tensor]
    #: Shapes of the results. For each dimension: whether it counts the samples, and its size for
    #: one sample.
    shapes: List[Shape] = field(default_factory=list)
    #: For each result, True if it requires a gradient.
    requires: List[bool] = field(default_factory=list)
    #: Tensors of the results; kept only while calls are recorded.
    values: List[Tensor] = field(default_factory=list)
    #: True if forward scales rows of the module's weight (nn.Embedding with max_norm).
    scales: bool = False
    #: True if a sample's results depend on other samples.
    mixes: bool = False
    #: Number of operations in the recorded call or, after the calls are merged, in one sample.
    flops: float = 0.0
    #: True if forward computes in a type with fewer bits than float32.
    reduced: bool = False
    #: Why the module was not captured.
    reason: Finding = Finding("")

    def __call__(self, tensors: Sequence[Tensor]) -> List[Tensor]:
        """Call the module; return the results' tensors, and the arguments that it writes to."""
        args, kwargs = self.arguments.build(tensors)
        value = self.module(*args, **kwargs)
        if self.results.differs(_Side.of(value)):
            raise CaptureError(f"{self.path}: results of one structure are expected in every call")
        return [*[x for x in _flatten(value)[0] if isinstance(x, Tensor)],
                *[tensors[i] for i in self.writes]]

    def error(self, text: str) -> CaptureError:
        """Return the exception that names this call."""
        return CaptureError(Finding(self.path, type(self.module).__name__ if self.path else "",
                                    text=text),
                            paths=[self.path.rpartition(".")[0]] if self.path else [])


# --- calls ---

Replacement = Callable[[str, nn.Module, Any, Any], Any]


@contextlib.contextmanager
def replaced(modules: Dict[str, nn.Module], call: Replacement) -> Iterator[None]:
    """While this context is active, a call of one of these modules runs ``call(path, module, args,
    kwargs)`` instead."""
    def of(path: str, module: nn.Module) -> Callable[..., Any]:
        return lambda *args, **kwargs: call(path, module, args, kwargs)
    before = [(module, module.__dict__.get("_compiled_call_impl")) for module in modules.values()]
    try:
        for path, module in modules.items():
            module.__dict__["_compiled_call_impl"] = of(path, module)
        yield
    finally:
        for module, value in before:
            if value is None:
                module.__dict__.pop("_compiled_call_impl", None)
            else:
                module.__dict__["_compiled_call_impl"] = value


@contextlib.contextmanager
def original(module: nn.Module) -> Iterator[None]:
    """While this context is active, a call of the module runs the module itself."""
    value = module.__dict__.pop("_compiled_call_impl", None)
    try:
        yield
    finally:
        module.__dict__["_compiled_call_impl"] = value


# --- record ---


class _Recorder:
    """Records the calls of opaque modules."""

    def __init__(self) -> None:
        self.calls: List[Call] = []
        self._inside = False

    def __call__(self, path: str, module: nn.Module, args: Any, kwargs: Any) -> Any:
        if self._inside:
            with original(module):
                return module(*args, **kwargs)
        given = [x for x in _flatten((args, kwargs))[0] if isinstance(x, Tensor)]
        arguments = _Side.of((args, kwargs))
        versions, states = [x._version for x in given], random_states()
        attributes = attributes_of(module)
        buffers = [(name, b, b.clone()) for name, b in module.named_buffers()]
        tables = tables_of(module)
        weights = [(name, p, p._version, p.detach().clone())
                   for name, p in module.named_parameters()]
        self._inside = True
        try:
            with original(module), counted() as work:
                value = module(*args, **kwargs)
        finally:
            self._inside = False
        call = Call(path, module, arguments, _Side.of(value), drew(states),
                    [name for name, b, was in buffers if not torch.equal(b, was)],
                    _set_attributes(module, attributes),
                    [i for i, x in enumerate(given) if x._version != versions[i]],
                    _leaves(value, given, module))
        _check_weights(call, weights)
        call.buffers += _replaced_buffers(call, tables, buffers)
        call.flops, call.reduced = work.flops, work.reduced
        results = [*[x for x in _flatten(value)[0] if isinstance(x, Tensor)],
                   *[given[i] for i in call.writes]]
        call.requires = [x.requires_grad for x in results]
        call.values = [x.detach().clone() for x in results]
        self.calls.append(call)
        return value


def _check_weights(call: Call, weights: Sequence[Tuple[str, Tensor, int, Tensor]]) -> None:
    """Raise if forward has written to a parameter. The parameter's values are restored."""
    written = [name for name, p, version, _ in weights if p._version != version]
    call.scales = _scales(call.module) and bool(written)
    for _, p, version, value in weights:
        if p._version != version:
            p.data.copy_(value)
    if written and not call.scales:
        raise call.error(f"forward writes to the parameter {written[0]}, which is not covered")


def _scales(module: nn.Module) -> bool:
    """Return whether a module only looks up rows of its weight, after scaling them down to a
    maximum norm. The gradient of such a module does not depend on the values of the weight."""
    return (isinstance(module, nn.Embedding) and module.max_norm is not None
            and type(module).forward is nn.Embedding.forward)


def _replaced_buffers(call: Call, tables: Tables,
                      buffers: Sequence[Tuple[str, Tensor, Tensor]]) -> List[str]:
    """Return the buffers that forward has replaced by other tensors.

    Raises:
        CaptureError: A buffer is new or gone, or has several names, or the new tensor has another
            shape or type or a gradient.
    """
    entries = [id(b) for _, _, before in tables for b in before.values()]
    known = {name: b for name, b, _ in buffers}
    now = dict(call.module.named_buffers(remove_duplicate=False))
    found = buffers_replaced_since(tables)
    for name in [*known, *found]:
        was, b = known.get(name), now.get(name)
        if was is None or b is None or (b.shape, b.dtype) != (was.shape, was.dtype):
            raise call.error(f"forward makes, removes or reshapes the buffer {name}, which is not "
                             "covered (register it with its final shape)")
        if b.requires_grad:
            raise call.error(f"forward sets the buffer {name} to a value with a gradient, which is "
                             "not covered (detach() it)")
        if name in found and entries.count(id(was)) > 1:
            raise call.error(f"forward sets the buffer {name}, which has several names: not "
                             "covered (write in place: copy_())")
    return found


def drew(before: Tuple[Any, ...]) -> bool:
    """Return whether random numbers were drawn."""
    after = random_states()
    return not torch.equal(before[0], after[0]) or repr(before[1:]) != repr(after[1:])


def _set_attributes(module: nn.Module, before: Any) -> List[Tuple[nn.Module, str]]:
    """Return the attributes that forward has set, but do not restore them."""
    now = attributes_of(module)
    names = set_back(module, before)
    set_back(module, now)
    return [(module.get_submodule(path), key)
            for path, _, key in (name.rpartition(".") for name in names)]


def nodes_of(value: Any, given: Sequence[Tensor]) -> Iterator[Any]:
    """Yield the nodes of autograd's graph of a result. The search ends at the arguments."""
    seen = {x.grad_fn for x in given if x.grad_fn is not None}
    pending = [x.grad_fn for x in _flatten(value)[0]
               if isinstance(x, Tensor) and x.grad_fn is not None]
    while pending:
        node = pending.pop()
        if node not in seen:
            seen.add(node)
            yield node
            pending += [child for child, _ in node.next_functions if child is not None]


def _leaves(value: Any, given: Sequence[Tensor], module: nn.Module) -> List[Tensor]:
    """Return the leaves of autograd's graph of a result, except parameters of the module. The
    search ends at the arguments."""
    known = {id(x) for x in [*module.parameters(), *given]}
    variables = [getattr(node, "variable", None) for node in nodes_of(value, given)]
    return [x for x in variables if x is not None and id(x) not in known]


def _scaled(one: Sequence[int], n: int, other: Sequence[int], m: int) -> Optional[Shape]:
    """Find the dimension that counts the samples, from the shapes for n and for m samples. Return
    None unless exactly one dimension counts them."""
    shape: Shape = []
    if len(one) != len(other):
        return None
    for a, b in zip(one, other):
        if a == b:
            shape.append((False, a))
        elif a % n == 0 and a // n * m == b:
            shape.append((True, a // n))
        else:
            return None
    return shape if sum(batch for batch, _ in shape) == 1 else None


def record(module: nn.Module, modules: Dict[str, nn.Module], flat: nn.Module,
           examples: Sequence[Tensor]) -> Dict[str, List[Call]]:
    """Run a module on the examples, and on other numbers of samples; return the calls of opaque
    modules, by path. Exceptions that the module raises for the example are not caught."""
    samples = examples[0].shape[0]
    first = _recorded(module, modules, flat, examples)
    second, other = None, 0
    for other in [n for n in (3, 4, 6, 8, 5, 7, 2) if n != samples]:
        rows = torch.arange(other) % samples
        try:
            second = _recorded(module, modules, flat, [x[rows] for x in examples])
            break
        except CaptureError:
            raise
        except Exception:
            continue
    if second is None:
        raise CaptureError(f"any number of samples is expected, the module takes {samples} alone")
    if [call.path for call in first] != [call.path for call in second]:
        raise CaptureError(Finding("", text="the same calls are expected for all numbers of "
                                            "samples, forward calls other modules for some"), [""])
    found: Dict[str, List[Call]] = {}
    for a, b in zip(first, second):
        _merge(a, b, samples, other)
        found.setdefault(a.path, []).append(a)
    return found


def _merge(call: Call, again: Call, samples: int, other: int) -> None:
    call.flops /= samples
    if call.arguments.differs(again.arguments) or call.results.differs(again.results):
        raise call.error("has other arguments or results for another number of samples")
    if call.writes != again.writes:
        raise call.error("writes to other arguments for another number of samples")
    for i, (a, b) in enumerate(zip(call.values, again.values)):
        shape = _scaled(a.shape, samples, b.shape, other)
        if shape is None or a.dtype != torch.float32:
            raise call.error(f"result {i}: float32 [N, ...] is expected, got "
                             f"{str(a.dtype).replace('torch.', '')} {list(a.shape)} for {samples} "
                             "samples")
        call.shapes.append(shape)
        # If random numbers are drawn, results always differ between the two numbers of samples.
        if not (call.draws or again.draws):
            call.mixes |= not _rows_agree(a, b, shape, samples, other)
    if not call.shapes:
        raise call.error("returns no tensor")
    call.values = []
    call.draws |= again.draws
    call.attributes += again.attributes
    call.buffers = sorted({*call.buffers, *again.buffers})
    if call.leaves or again.leaves:
        raise call.error("a tensor that requires a gradient and is no parameter of it is not "
                         "covered (register it as a parameter)")


def _rows_agree(a: Tensor, b: Tensor, shape: Shape, samples: int, other: int) -> bool:
    """Return whether each sample's result is independent of the other samples in a run."""
    dim = next(i for i, (batch, _) in enumerate(shape) if batch)
    size, rows = shape[dim][1], min(samples, other)
    a, b = a.narrow(dim, 0, size * rows), b.narrow(dim, 0, size * rows)
    if not a.numel():
        return True
    return bool(torch.allclose(a, b, 1e-3, 1e-3 * float(a.abs().max()), equal_nan=True))


def _recorded(module: nn.Module, modules: Dict[str, nn.Module], flat: nn.Module,
              examples: Sequence[Tensor]) -> List[Call]:
    recorder = _Recorder()
    # Clones of floats are not leaves of autograd's graph, so forward may write to them.
    wants: List[bool] = flat.wants
    given = [x.detach().clone().requires_grad_() * 1 if want else x.detach().clone()
             for x, want in zip(examples, wants)]
    with buffers_kept(module), torch.random.fork_rng(devices=[]), torch.enable_grad(), \
            attributes_kept(module), replaced(modules, recorder):
        flat(*given)
    return recorder.calls


# --- export ---

_KEYS = itertools.count(1)
#: Calls by their key in the graph, while a module is captured.
CALLS: Dict[int, Call] = {}


@torch.library.custom_op("cgpipe::region", mutates_args=())
def _region(inputs: List[Tensor], key: int) -> List[Tensor]:
    """A call of an opaque module, in a graph."""
    raise NotImplementedError("a region of cgpipe runs inside a pipeline")


@_region.register_fake
def _(inputs: List[Tensor], key: int) -> List[Tensor]:
    call = CALLS[key]
    samples: Any = None
    for x, shape in zip(inputs, call.arguments.shapes):
        for size, example in zip(x.shape, shape):
            if samples is None and not isinstance(size, int):
                expression = size.node.expr
                symbols = list(expression.free_symbols)
                factor = expression.subs({symbol: 1 for symbol in symbols})
                samples = size // int(factor) if factor != 1 else size
    if samples is None:
        raise call.error("no argument with samples")
    return [torch.empty([samples * size if batch else size for batch, size in shape],
                        dtype=torch.float32, device=inputs[0].device) for shape in call.shapes]


@contextlib.contextmanager
def traced(modules: Dict[str, nn.Module], calls: Dict[str, List[Call]]) -> Iterator[None]:
    """Let each call of an opaque module be one node while a module is exported."""
    counts: Dict[str, int] = {}
    keys = {path: [next(_KEYS) for _ in entries] for path, entries in calls.items()}
    CALLS.update({key: call for path, entries in calls.items()
                  for key, call in zip(keys[path], entries)})

    def trace(path: str, module: nn.Module, args: Any, kwargs: Any) -> Any:
        i = counts[path] = counts.get(path, -1) + 1
        entries = calls.get(path, [])
        entry = entries[i % len(entries)] if entries else None
        if entry is None or entry.arguments.differs(_Side.of((args, kwargs))):
            raise CaptureError(f"{path or 'the module itself'}: other arguments than in a call by "
                               "PyTorch",
                               paths=[path.rpartition(".")[0]] if path else [])
        tensors = [x for x in _flatten((args, kwargs))[0] if isinstance(x, Tensor)]
        found = torch.ops.cgpipe.region(tensors, keys[path][i % len(entries)])
        # The module may read requires_grad, and may write to the tensors. So the tensors must
        # require gradients without being leaves of autograd's graph.
        found = [x.requires_grad_().clone() if requires else x
                 for x, requires in zip(found, entry.requires)]
        for i, value in zip(entry.writes, found[len(entry.results.shapes):]):
            tensors[i].copy_(value)
        return entry.results.build(found)
    try:
        with replaced(modules, trace):
            yield
    finally:
        for own in keys.values():
            for key in own:
                CALLS.pop(key, None)
