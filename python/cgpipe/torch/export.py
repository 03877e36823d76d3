# SPDX-License-Identifier: Apache-2.0
"""Export an nn.Module as a functional graph of aten ops.

    module --> torch.export --> checks, detached regions --> functional graph, guards

Dimension 0 of each input counts the samples, and stays a symbol. A functional graph has no writes
to tensors: a write, for example through a view, becomes a new value. The outputs of regions under
no_grad() are detached before the graph becomes functional, so gradients stop where the module stops
them."""

from __future__ import annotations

import contextlib
import gc
import io
import logging
import re
import sys
import threading
import warnings
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Set, Tuple

import torch
from sympy import Symbol
from torch import Tensor, nn
from torch.utils._sympy.printers import PythonPrinter

from cgpipe.torch.boundaries import Key, marking, unmark
from cgpipe.torch.finding import Finding, called, line_of, untraceable
from cgpipe.torch.functional import functionalize
from cgpipe.torch.modes import has_own_modes, noting_reads
from cgpipe.torch.watch import (CaptureError, buffers_kept, buffers_replaced_since, check_hooks,
                                check_writes, detach_regions, name_of, path_of, tables_of,
                                watching)

__all__ = ["Flat", "Guard", "Program", "export", "finding_of", "flatten", "two_samples"]

#: Oldest and newest supported PyTorch versions.
OLDEST, NEWEST = (2, 9), (2, 15)


def _check_version() -> None:
    match = re.match(r"(\d+)\.(\d+)", torch.__version__)
    version = tuple(map(int, match.groups())) if match else (0, 0)
    if not OLDEST <= version <= NEWEST:
        raise CaptureError(f"PyTorch {OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]} is "
                           f"expected, got {torch.__version__}")


# --- a flat module ---


def _nothing() -> None:
    pass


class _Form:
    """The structure of a module's output, and the parts of the output that are not tensors. They
    are in a separate object, because torch.export watches the attributes of modules."""

    spec: Any = None
    leaves: Sequence[Any] = ()
    #: Buffers that the last forward replaced by other tensors.
    replaced: Sequence[str] = ()
    #: Functions to call at the end of a forward.
    after: Callable[[], None] = staticmethod(_nothing)

    def __init__(self) -> None:
        #: Results of modules that a trace returns in addition to the outputs (boundaries.py).
        self.marks: List[Tuple[Key, Tensor]] = []


class Flat(nn.Module):
    """A module that maps positional tensors to a tuple of tensors. flatten() makes its forward."""

    def __init__(self, module: nn.Module, spec: Any, places: Sequence[int],
                 rest: Sequence[Any]) -> None:
        super().__init__()
        self.module = module
        self._spec, self._places, self._rest = spec, list(places), list(rest)
        #: For each input tensor, True if it requires a gradient.
        self.wants = [False] * len(places)
        #: True if batch norms in evaluation have gradients (capture.py).
        self.fixed_norms = False
        self.form = _Form()

    def run(self, *tensors: Tensor) -> Tuple[Tensor, ...]:
        """Call the module."""
        leaves = list(self._rest)
        for place, tensor in zip(self._places, tensors):
            leaves[place] = tensor
        args, kwargs = torch.utils._pytree.tree_unflatten(leaves, self._spec)
        tables = tables_of(self.module)
        self.form.marks.clear()
        found, self.form.spec = torch.utils._pytree.tree_flatten(self.module(*args, **kwargs))
        self.form.replaced = buffers_replaced_since(tables)
        self.form.after()
        self.form.leaves = [None if isinstance(x, Tensor) else x for x in found]
        return (*(x for x in found if isinstance(x, Tensor)), *(x for _, x in self.form.marks))


def flatten(module: nn.Module, spec: Any, places: Sequence[int], rest: Sequence[Any]) -> Flat:
    """Return a flat module whose forward has one parameter per tensor, because some versions of
    torch.export do not support *tensors."""
    names = ", ".join(f"x{i}" for i in range(len(places)))
    scope: Dict[str, Any] = {}
    exec(f"def forward(self, {names}): return self.run({names})", scope)
    return type("Flat", (Flat,), {"forward": scope["forward"]})(  # type: ignore[no-any-return]
        module, spec, places, rest)


# --- the number of samples ---


@dataclass
class Guard:
    """The assumptions that an exported program makes about the number of samples, as sympy
    comparisons."""

    comparisons: List[Any]
    #: Smallest and largest number of samples.
    least: int = 1
    most: Optional[int] = None
    #: Numbers of samples that the module itself refuses.
    without: Set[int] = field(default_factory=set)

    def refuses(self, samples: int) -> Optional[str]:
        """Return a comparison that does not hold for this number of samples, or None if all
        comparisons hold."""
        if samples < self.least or (self.most is not None and samples > self.most):
            return (f"at least {self.least} samples" if samples < self.least
                    else f"at most {self.most} samples")
        if samples in self.without:
            return f"another number of samples than {samples}"
        for comparison in self.comparisons:
            names = {symbol: samples for symbol in comparison.free_symbols}
            if not bool(comparison.subs(names)):
                text = PythonPrinter().doprint(
                    comparison.subs({symbol: Symbol("N") for symbol in names}))
                return f"samples N with {text}"
        return None


def _guard(program: Any) -> Guard:
    comparisons: List[Any] = []
    symbols: Set[Any] = set()
    for node in program.graph.nodes:
        value = node.meta.get("val")
        for size in value.shape if node.op == "placeholder" and isinstance(value, Tensor) else ():
            if isinstance(size, torch.SymInt):
                symbols |= size.node.expr.free_symbols
                comparisons += [guard.expr for guard in getattr(size.node.shape_env, "guards", ())]
    ranges = [r for symbol, r in program.range_constraints.items() if symbol in symbols]
    least = max((int(r.lower) for r in ranges), default=1)
    uppers = [int(r.upper) for r in ranges if r.upper < 2**62 and "oo" not in str(r.upper)]
    # torch.export traces 0 and 1 samples separately, so every exported program has a lower bound of
    # 2 samples.
    return Guard(list(dict.fromkeys(comparisons)), 1 if least <= 2 else least,
                 min(uppers, default=None))


# --- the export ---

#: torch.export has process-wide state: two exports at the same time break all later exports.
_LOCK = threading.RLock()


@dataclass
class Program:
    """A functional exported program, and its assumptions about the number of samples."""

    exported: Any
    guard: Guard
    #: True if evaluation may take another path (modes.py).
    has_own_modes: bool = False
    #: The nodes of the results that are boundaries of layers.
    boundaries: Dict[Key, Any] = field(default_factory=dict)


def export(module: nn.Module, flat: Flat, examples: Sequence[Tensor],
           opaque: Sequence[str] = (), bounds: Optional[Dict[str, nn.Module]] = None) -> Program:
    """Export a flat module in its current mode. Buffers keep their values. ``opaque``: paths of
    modules whose calls are nodes (opaque.py). ``bounds``: modules whose results are boundaries.

    Raises:
        CaptureError: The module cannot be exported, or the exported program would lose a part of
            it. Exceptions that the module's own forward raises are not caught.
    """
    _check_version()
    check_hooks(module, opaque)
    cumulative = [m for m in module.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)
                  and m.momentum is None]
    with _LOCK:
        for m in cumulative:  # -1 means cumulative to the engine; PyTorch would use a tensor
            m.momentum = -1.0
        try:
            with marking(bounds or {}, flat.form.marks), buffers_kept(module), \
                    watching(module) as flat.form.after, torch.enable_grad(), \
                    warnings.catch_warnings(), _quiet(), _without_collection(), \
                    noting_reads() as reads:
                warnings.simplefilter("ignore")
                program = _trace(flat, examples)
                names = [Finding(path, key, text="buffers that forward replaces are not covered")
                         for path, _, key in (x.rpartition(".") for x in flat.form.replaced)]
                if names:
                    raise CaptureError(names[0], [finding.path for finding in names], names)
                found = _functional(program, [key for key, _ in flat.form.marks])
            found.has_own_modes = any(m.training for m in module.modules()) and (
                reads.found or has_own_modes(found.exported.graph_module.graph, module))
            return found
        except CaptureError:
            raise
        except Exception as error:
            if not _is_of_export(error):
                raise
            found = untraceable(module, error)
            raise CaptureError(found, [found.path]) from error
        finally:
            flat.form.after = _nothing
            flat.form.marks.clear()
            for m in cumulative:
                m.momentum = None


@contextlib.contextmanager
def _without_collection() -> Iterator[None]:
    """Disable garbage collection, which would traverse the graphs of a trace again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """If a trace fails, do not let it write its log and graph to standard error."""
    before, text = logging.root.manager.disable, io.StringIO()
    logging.disable(logging.CRITICAL)
    try:
        with contextlib.redirect_stderr(text):
            yield
        sys.stderr.write(text.getvalue())
    finally:
        logging.disable(before)


def _trace(flat: Flat, examples: Sequence[Tensor]) -> Any:
    shapes = tuple({0: torch.export.Dim.DYNAMIC} for _ in examples)
    given = tuple(x.detach().requires_grad_(want) for x, want in zip(examples, flat.wants))
    return torch.export.export(flat, given, dynamic_shapes=shapes, strict=False)


def _functional(program: Any, marks: Sequence[Key]) -> Program:
    def error(node: Any, text: str) -> CaptureError:
        return CaptureError(finding_of(node, text), [path_of(node)])
    guard = _guard(program)
    check_writes(program.graph, program.graph_module, error)
    detach_regions(program.graph_module)
    try:
        exported = functionalize(program)
        return Program(exported, guard, boundaries=unmark(exported, marks))
    except Exception as failure:
        raise CaptureError("its graph of ops cannot be made functional by PyTorch",
                           [""]) from failure


def finding_of(node: Any, text: str) -> Finding:
    """Return a finding that names the place of a node."""
    return Finding(path_of(node), called(name_of(node)), line_of(node), text)


def _is_of_export(error: BaseException) -> bool:
    """Return whether torch.export itself raised an exception, and not the module."""
    text = str(error)
    return ("onstraint" in text and ("specializ" in text or "violated" in text)
            ) or type(error).__module__.startswith(
                ("torch._dynamo", "torch._export", "torch.export", "torch.fx",
                 "torch._subclasses"))


def two_samples(x: Tensor) -> Tensor:
    """Return an example with at least two samples, because torch.export treats one sample as a
    special case."""
    if x.dim() == 0:
        raise CaptureError("example: a tensor [N, ...] is expected, got a scalar")
    x = x.detach()
    return (x if x.shape[0] > 1
            else torch.cat([x, x]) if x.shape[0] == 1
            else x.new_zeros([2, *x.shape[1:]]))
