# SPDX-License-Identifier: Apache-2.0
"""Boundaries of layers: the tensors at which a proof (proof.py) cuts a module.

    chosen()    the modules whose results are boundaries
    visiting()  call a function with each result while the module runs
    unmark()    the nodes of an exported program that have these results
    cuts_of()   their values in the graph

A trace marks a result by returning a copy of it as one more output of the whole module."""

from __future__ import annotations

import contextlib
import math
from typing import (Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence,
                    Tuple)

import torch
from torch import Tensor, nn

from cgpipe.torch.graph import Value
from cgpipe.torch.layout import BATCH, Layout, count
from cgpipe.torch.opaque import replaced
from cgpipe.torch.translator import Part

__all__ = ["Cut", "Key", "chosen", "cuts_of", "is_fresh", "marking", "unmark", "visiting"]

#: The key of a result tensor: the module's path, the number of the call, and the tensor's place in
#: the result. Place 0: the result is a single tensor. Larger places count the tensors in a tuple,
#: list or dictionary, from 1.
Key = Tuple[str, int, int]
#: A reference to the original function, because a trace replaces the attribute of torch.
_is_grad_enabled = torch.is_grad_enabled


class Cut(NamedTuple):
    """A boundary: its value in the graph, with the layout of PyTorch's tensor."""

    path: str
    number: int
    layout: Layout


def chosen(module: nn.Module, fine: bool) -> Dict[str, nn.Module]:
    """Return the modules whose results are boundaries, by path. With ``fine``, these are all
    modules. Otherwise they are the modules with several parts, except nn.Sequential, and the
    modules with parameters. For example, a convolution directly before a norm is not a boundary,
    but the norm is. The reason is that in the next op, such as relu, a rounding difference may
    cause a jump. The boundary gives PyTorch's values to this next op."""
    found: Dict[str, nn.Module] = {}

    def descend(path: str, parent: nn.Module) -> None:
        children = list(parent.named_children())
        for (name, child), (_, after) in zip(children, [*children[1:], ("", None)]):
            own = f"{path}.{name}" if path else name
            if fine or _is_boundary(child, after):
                found[own] = child
            descend(own, child)
    descend("", module)
    paths = {id(child): path for path, child in found.items()}
    return {path: child for path, child in found.items() if paths[id(child)] == path}


def _is_boundary(module: nn.Module, after: Optional[nn.Module]) -> bool:
    """Return whether a module's result is a boundary. ``after`` is the next part of the same parent
    module."""
    if isinstance(module, nn.Sequential):
        return False  # the result of an nn.Sequential is the result of its last part
    if len(module._modules) > 1:
        return True
    return bool(module._parameters) and (_is_norm(module) or not _is_norm(after))


def _is_norm(module: Optional[nn.Module]) -> bool:
    own = [] if module is None else [p for p in module._parameters.values() if p is not None]
    return bool(own) and all(p.dim() == 1 for p in own)


# --- calls ---

#: visit(key, result, arguments) returns the tensor that replaces the result.
Visit = Callable[[Key, Tensor, Any], Tensor]
#: skip(path, number of the call) returns the result to use instead of a call of the module, or None
#: to call the module.
Skip = Callable[[str, int], Optional[Tensor]]


@contextlib.contextmanager
def visiting(modules: Dict[str, nn.Module], visit: Visit,
             skip: Optional[Skip] = None) -> Iterator[None]:
    """While these modules run, call ``visit`` with the tensors of each result."""
    calls: Dict[str, int] = {}

    def call(path: str, module: nn.Module, args: Any, kwargs: Any) -> Any:
        number = calls[path] = calls.get(path, -1) + 1
        found = None if skip is None else skip(path, number)
        if found is not None:
            return found
        y = module._call_impl(*args, **kwargs)
        if isinstance(y, Tensor):
            return visit((path, number, 0), y, (args, kwargs))
        if type(y) not in (tuple, list, dict):
            return y
        leaves, spec = torch.utils._pytree.tree_flatten(y)
        new = [visit((path, number, i), x, (args, kwargs)) if isinstance(x, Tensor) else x
               for i, x in enumerate(leaves, 1)]
        same = all(a is b for a, b in zip(leaves, new))
        return y if same else torch.utils._pytree.tree_unflatten(new, spec)
    free = {path: m for path, m in modules.items() if "_compiled_call_impl" not in m.__dict__}
    with replaced(free, call):
        yield


def is_fresh(y: Tensor, arguments: Any) -> bool:
    """Return whether a result has its own memory. It has none if it shares the memory of an
    argument, to which the module has written in place."""
    place = y.untyped_storage().data_ptr()
    return all(x.untyped_storage().data_ptr() != place
               for x in torch.utils._pytree.tree_leaves(arguments) if isinstance(x, Tensor))


# --- an exported program ---


@contextlib.contextmanager
def marking(modules: Dict[str, nn.Module], marks: List[Tuple[Key, Tensor]]) -> Iterator[None]:
    """Add a copy of each result to ``marks`` while a module is traced. Leave out results that are
    made while gradients are disabled, because no gradient passes through them."""
    def visit(key: Key, y: Tensor, _: Any) -> Tensor:
        if y.dtype == torch.float32 and _is_grad_enabled():
            marks.append((key, y.clone()))
        return y
    with visiting(modules, visit):
        yield


def unmark(exported: Any, keys: Sequence[Key]) -> Dict[Key, Any]:
    """Remove the marks, which are the last outputs of a functional program. Each mark is a copy of
    a node's result. Return these nodes."""
    if not keys:
        return {}
    graph = exported.graph_module.graph
    output = next(iter(reversed(graph.nodes)))
    every, first = output.args[0], len(output.args[0]) - len(keys)
    output.args = (tuple(every[:first]),)
    del exported.graph_signature.output_specs[first:]
    found: Dict[Key, Any] = {}
    for key, node in zip(keys, every[first:]):
        if node.target is torch.ops.aten.clone.default:
            found[key] = node.args[0]
            if not node.users:
                graph.erase_node(node)
    return found


def cuts_of(graph: Dict[str, Any], env: Dict[Any, Any], nodes: Dict[Key, Any],
            targets: Iterable[int]) -> Dict[Key, Cut]:
    """Return the boundaries that are values of a graph. ``env`` maps each node, in order, to its
    translation. ``targets`` are the values that are targets of losses."""
    first: Dict[int, Any] = {}  # keep the first view: a later view has only a part of the gradient
    for node, x in env.items():
        if isinstance(x, Part):
            if x.source.made is not None:
                first.setdefault(x.source.made, node)
        elif isinstance(x, Value):
            first.setdefault(x.number, node)
    made = {node["output"] for node in graph["nodes"]}
    kept = {*graph["outputs"], *targets, *(x for loss in graph["losses"] for x in loss["inputs"])}
    found: Dict[Key, Cut] = {}
    for key, node in nodes.items():
        x = env.get(node)
        if (type(x) is Value and first[x.number] is node and x.number in made
                and x.number not in kept and _is_whole(x, graph)):
            kept.add(x.number)
            found[key] = Cut(key[0], x.number, x.layout)
    return found


def _is_whole(x: Value, graph: Dict[str, Any]) -> bool:
    """Return whether a tensor [N, ...] has each element of its graph value exactly once."""
    layout, value = x.layout, graph["values"][x.number]
    return (value["dtype"] == "f32" and layout.has_batch and layout.dims[0] == (BATCH,)
            and not any(axis.repeated for axis in layout.logical())
            and count(layout.order) == math.prod(value["shape"]))
