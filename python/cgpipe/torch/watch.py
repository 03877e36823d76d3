# SPDX-License-Identifier: Apache-2.0
"""Before and during a trace, find effects of a module that an exported program would lose. Refuse
modules with such effects.

A trace records the ops of one forward. It does not record the backward of an autograd.Function,
hooks, Python attributes that forward sets, or whether a write happened under no_grad(). The capture
of a module with any of these would have other gradients or outputs than the module has in
PyTorch."""

from __future__ import annotations

import contextlib
import functools
import random
import sys
import threading
from typing import Any, Callable, Dict, Iterator, List, Sequence, Tuple, Union

import torch
import torch.utils.checkpoint
from torch import Tensor, nn

from cgpipe.errors import ArgumentError, CgpipeError
from cgpipe.torch.finding import Finding, line_of_frame

__all__ = ["CaptureError", "attributes_kept", "attributes_of", "buffers_kept",
           "buffers_replaced_since", "check_hooks", "check_writes", "detach_regions",
           "global_hooks", "hooks_of", "is_inside", "is_managed", "name_of", "path_of", "plain",
           "Tables", "TranslatorError", "replaced_in", "set_back", "tables_of", "watching"]


class CaptureError(ArgumentError):
    """A module cannot be captured. The message gives the path of the module, the op, and what is
    supported."""

    def __init__(self, message: Union[str, Finding], paths: Sequence[str] = (),
                 findings: Sequence[Finding] = ()) -> None:
        super().__init__(str(message))
        #: Paths of the modules that PyTorch may run instead of the engine.
        self.paths = list(paths)
        #: The findings; the message contains the first finding.
        self.findings = list(findings) or [message if isinstance(message, Finding)
                                           else Finding(self.paths[0] if paths else "",
                                                        text=message)]

    def rename(self, own: Callable[[str], str]) -> None:
        """Rename the paths by a function."""
        self.args, self.paths = (own(str(self)),), [own(path) for path in self.paths]
        self.findings = [found.renamed(own) for found in self.findings]


class TranslatorError(CgpipeError):
    """This package has failed to translate a node of a module. The module is not left to PyTorch,
    because that would hide the fault."""

# --- hooks ---

#: Maps the name of a module's table of hooks to PyTorch's term for these hooks.
_HOOKS = {"_forward_hooks": "forward hooks", "_forward_pre_hooks": "forward pre-hooks",
          "_backward_hooks": "backward hooks", "_backward_pre_hooks": "backward pre-hooks"}


def hooks_of(module: nn.Module) -> int:
    """Return the number of a module's hooks."""
    return sum([len(getattr(module, table, None) or ()) for table in _HOOKS])


def global_hooks() -> int:
    """Return the number of hooks of all modules."""
    return sum(len(getattr(nn.modules.module, f"_global{table}", None) or ()) for table in _HOOKS)


def check_hooks(module: nn.Module, opaque: Sequence[str] = ()) -> None:
    """Raise if a module has hooks, or if there are hooks for all modules, because a trace would run
    hooks only once, or never. ``opaque`` has the modules whose hooks PyTorch runs."""
    for table, text in _HOOKS.items():
        if getattr(nn.modules.module, f"_global{table}", None) and "" not in opaque:
            raise CaptureError(f"all modules: {text} are not covered (remove them)", [""])
    way = "are not covered (remove them, or call what they do in forward)"
    found = [Finding(path, text=f"{text} {way}")
             for path, child in module.named_modules(remove_duplicate=False)
             for table, text in _HOOKS.items()
             if getattr(child, table, None) and not is_inside(path, opaque)]
    if found:
        raise CaptureError(found[0], [finding.path for finding in found], found)


def is_inside(path: str, paths: Sequence[str]) -> bool:
    """Return whether a module is one of these modules, or is inside of one."""
    return any(not own or path == own or path.startswith(own + ".") for own in paths)


# --- buffers ---


@contextlib.contextmanager
def buffers_kept(module: nn.Module) -> Iterator[None]:
    """Restore the buffers that a forward writes to or replaces. Do not write to any other buffer:
    PyTorch counts the writes to a tensor, and this count tells whether a mask has changed."""
    tables = tables_of(module)
    before = [(buffer, buffer.clone()) for buffer in module.buffers()]
    try:
        yield
    finally:
        for _, table, entries in tables:
            if replaced_in(table, entries):
                table.clear()
                table.update(entries)
        with torch.no_grad():
            for buffer, value in before:
                if buffer.grad_fn is not None:
                    buffer.detach_()
                if not torch.equal(buffer, value):
                    buffer.copy_(value)


#: The buffers of each part of a module: the path of the part, its table, and the table's entries.
Tables = List[Tuple[str, Dict[str, Any], Dict[str, Any]]]


def tables_of(module: nn.Module) -> Tables:
    """Return the tables of a module's buffers."""
    return [(path, child._buffers, dict(child._buffers)) for path, child in module.named_modules()]


def replaced_in(table: Dict[str, Any], before: Dict[str, Any]) -> List[str]:
    """Return the names of buffers that were replaced by other tensors, added or removed."""
    return [key for key in {**before, **table} if key not in table or key not in before
            or table[key] is not before[key]]


def buffers_replaced_since(tables: Tables) -> List[str]:
    """Return the paths of the buffers that forward has replaced by other tensors."""
    return [f"{path}.{key}" if path else key for path, table, before in tables
            for key in replaced_in(table, before)]


# --- custom backwards and attributes, while a module is traced ---

#: Python modules of PyTorch. They have autograd Functions whose backward is the derivative of their
#: forward.
_KNOWN = ("torch.utils.checkpoint", "torch._")


@contextlib.contextmanager
def watching(module: nn.Module) -> Iterator[Callable[[], None]]:
    """At the end of a trace, raise if the trace called an autograd.Function, or if forward set
    attributes of a module. The attributes are restored. The trace must call the returned function
    at the end of forward, because torch.export itself restores attributes when it ends."""
    paths = {id(child): path for path, child in module.named_modules()}
    found: List[Finding] = []
    thread = threading.get_ident()
    before = attributes_of(module)
    original = torch.autograd.Function.__dict__["apply"]
    register = Tensor.register_hook
    drawn = _random_states()
    is_grad_enabled = torch.is_grad_enabled
    checkpoints = torch.utils.checkpoint.CheckpointFunction
    changed: List[str] = []

    def asks_grad_mode() -> bool:
        caller = sys._getframe(1).f_globals.get("__name__", "")
        if threading.get_ident() == thread and not caller.startswith(("torch", "transformers")):
            found.append(_called(paths, "is_grad_enabled", "a path that depends on the gradient "
                                 "mode is not covered"))
        return is_grad_enabled()

    def register_hook(tensor: Tensor, hook: Any) -> Any:
        if threading.get_ident() == thread:
            found.append(_called(paths, "register_hook", "hooks of tensors are not covered"))
        return register(tensor, hook)

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        # A checkpoint with use_reentrant=True, whose forward runs under no_grad().
        if cls is checkpoints:
            if any(isinstance(x, Tensor) and x.requires_grad for x in args):
                return args[0](*args[2:])
            found.append(_called(paths, cls.__name__, "a checkpoint(use_reentrant=True) of inputs "
                                 "without a gradient is not covered"))
        return original.__get__(None, cls)(*args, **kwargs)

    def note(cls: Any) -> None:
        if threading.get_ident() == thread:
            found.append(_called(paths, cls.__name__, "the backward of an autograd.Function is "
                                 "not covered"))

    Tensor.register_hook = register_hook  # type: ignore[method-assign]
    torch.is_grad_enabled = asks_grad_mode
    torch.autograd.Function.apply = classmethod(apply)  # type: ignore[assignment, method-assign]
    try:
        with _noting_functions(note):
            yield lambda: changed.extend(set_back(module, before))
    finally:
        torch.autograd.Function.apply = original  # type: ignore[method-assign]
        Tensor.register_hook = register  # type: ignore[method-assign]
        torch.is_grad_enabled = is_grad_enabled
        changed += set_back(module, before)
    if drawn != _random_states():
        found.append(Finding("", "random", text="Python's or NumPy's random numbers, which a graph "
                                                "would fix, are not covered (dropout is)"))
    found += [Finding(*_split(name), text=_CHANGES) for name in changed
              if not _split(name)[1].startswith("_flat_weight")]  # nn.RNNBase's list of parameters
    if found:
        raise CaptureError(found[0], [finding.path for finding in found], found)


@contextlib.contextmanager
def _noting_functions(note: Callable[[Any], None]) -> Iterator[None]:
    """Call ``note(class)`` before each forward of an autograd.Function. Wrapping ``apply`` is not
    enough, because a module may have stored the ``apply`` of a class before the trace."""
    def noted(cls: Any, forward: Any) -> Any:
        @functools.wraps(forward)
        def call(*args: Any, **kwargs: Any) -> Any:
            note(cls)
            return forward(*args, **kwargs)
        return staticmethod(call)
    pending, found = [torch.autograd.Function], {}  # type: Tuple[List[Any], Dict[Any, Any]]
    while pending:
        cls = pending.pop()
        pending += cls.__subclasses__()
        own = cls.__dict__.get("forward")
        if isinstance(own, staticmethod) and not cls.__module__.startswith(_KNOWN):
            found[cls] = own
    found.pop(torch.autograd.Function, None)
    try:
        for cls, own in found.items():
            cls.forward = noted(cls, own.__func__)
        yield
    finally:
        for cls, own in found.items():
            cls.forward = own


_CHANGES = ("attributes that forward sets are not covered (the running statistics of batch norms "
            "are)")


def _split(name: str) -> Tuple[str, str]:
    """Return the path of a module and the name of its attribute."""
    path, _, key = name.rpartition(".")
    return path, key


def attributes_of(module: nn.Module) -> Dict[str, Dict[str, Any]]:
    """Return the attributes of a module's parts, for set_back()."""
    return {path: dict(_attributes(child)) for path, child in module.named_modules()}


@contextlib.contextmanager
def attributes_kept(module: nn.Module) -> Iterator[List[str]]:
    """At the end of the context, restore the attributes that a forward has set, and add their names
    to the yielded list."""
    before, changed = attributes_of(module), []  # type: Tuple[Any, List[str]]
    try:
        yield changed
    finally:
        changed += set_back(module, before)


def _random_states() -> Tuple[Any, ...]:
    """Return the states of Python's and, if it is imported, NumPy's random generators."""
    numpy = sys.modules.get("numpy")
    return (random.getstate(),
            None if numpy is None else repr(numpy.random.get_state()[1:3]))


def _called(paths: Dict[int, str], op: str, text: str) -> Finding:
    """Return a finding about a call: the innermost module whose method is running, and the line."""
    frame: Any = sys._getframe(2)
    line = line_of_frame(frame)
    while frame is not None:
        path = paths.get(id(frame.f_locals.get("self")))
        if path is not None:
            return Finding(path, op, line, text)
        frame = frame.f_back
    return Finding("", op, line, text)


#: Entries of a module's dictionary that PyTorch itself manages.
_MANAGED = {"_parameters", "_buffers", "_modules", "training", "_non_persistent_buffers_set",
            "_is_full_backward_hook", "call_super_init", "dump_patches", "_version"}


def is_managed(key: str) -> bool:
    """Return whether PyTorch, not the module's own code, manages this entry of a module's
    dictionary."""
    return key in _MANAGED or key.endswith("hooks") or "hooks_with" in key or "hooks_always" in key


def _attributes(module: nn.Module) -> Iterator[Tuple[str, Any]]:
    for key, value in module.__dict__.items():
        if not is_managed(key):
            yield key, _copy(value)


def _copy(value: Any) -> Any:
    """Return a shallow copy of a container, whose elements are later compared by identity. Return
    any other value itself."""
    return type(value)(value) if type(value) in (list, dict, set) else value


def _equal(a: Any, b: Any) -> bool:
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if type(a) in (list, tuple):
        return len(a) == len(b) and all(map(_equal, a, b))
    if type(a) is set:
        return bool(a == b)
    if type(a) is dict:
        return a.keys() == b.keys() and all(_equal(a[key], b[key]) for key in a)
    return plain(a) and bool(a == b or (a != a and b != b))


def plain(value: Any) -> bool:
    """Return whether a value is a number, a text, None, or a tuple of these."""
    return (value is None or isinstance(value, (bool, int, float, str, torch.dtype))
            or (isinstance(value, tuple) and all(map(plain, value))))


def set_back(module: nn.Module, before: Dict[str, Dict[str, Any]]) -> List[str]:
    """Restore the attributes that a trace changed, and return their names."""
    changed: List[str] = []
    for path, child in module.named_modules():
        was, now = before.get(path, {}), dict(_attributes(child))
        for key in was.keys() | now.keys():
            if key in was and key in now and _equal(was[key], now[key]):
                continue
            changed.append(f"{path}.{key}" if path else key)
            if key in was:
                child.__dict__[key] = was[key]
            else:
                del child.__dict__[key]
    return sorted(changed)


# --- regions without gradient, and writes, in the exported program ---


def name_of(node: Any) -> str:
    """Return an op's name without namespace and overload."""
    target = getattr(node, "target", None)
    if isinstance(target, torch._ops.OpOverload):
        return str(target._schema.name.split("::")[-1])
    return getattr(target, "__name__", str(target))


_REGION = "wrap_with_set_grad_enabled"


def detach_regions(module: Any) -> None:
    """Detach each output of a region under no_grad(), because a functional graph has no such
    regions."""
    for node in list(module.graph.nodes):
        if name_of(node) != _REGION:
            continue
        inner = getattr(module, node.args[1].target)
        detach_regions(inner)
        if node.args[0]:
            continue
        output = next(n for n in inner.graph.nodes if n.op == "output")
        with inner.graph.inserting_before(output):
            made = [_detached(inner.graph, x) for x in output.args[0]]
        output.args = (tuple(made),)
        inner.recompile()


def _detached(graph: Any, x: Any) -> Any:
    value = x.meta.get("val") if isinstance(x, torch.fx.Node) else None
    if not isinstance(value, Tensor) or not value.is_floating_point():
        return x
    node = graph.call_function(torch.ops.aten.detach.default, (x,))
    node.meta = dict(x.meta)
    return node


def check_writes(graph: Any, module: Any, message: Callable[[Any, str], CaptureError],
                 outer: Sequence[Any] = (), has_grad: bool = True) -> None:
    """Raise if an op writes to a tensor that has a gradient, and autograd does not record the
    write. This happens under no_grad() or through detach(). ``outer`` has the arguments of the
    region to which the graph belongs."""
    holders = [n for n in graph.nodes if n.op == "placeholder"]
    given = dict(zip(holders, outer))
    for node in graph.nodes:
        if name_of(node) == _REGION:
            inner = getattr(module, node.args[1].target)
            check_writes(inner.graph, inner, message,
                         [_origin(a, given)[0] for a in node.args[2:]], bool(node.args[0]))
            continue
        if not _writes(node):
            continue
        origin, detached, outside = _origin(node.args[0], given)
        buffer = origin.op == "placeholder" and origin.name.startswith(("b_", "c_"))
        if (detached if has_grad else outside) and not buffer and _is_float(origin):
            raise message(node, "a write without gradient (under no_grad(), or through detach()) "
                                "to a tensor that has a gradient is not covered")


def _is_float(node: Any) -> bool:
    value = node.meta.get("val")
    return isinstance(value, Tensor) and value.is_floating_point()


def _writes(node: Any) -> bool:
    target = getattr(node, "target", None)
    if not isinstance(target, torch._ops.OpOverload) or not target._schema.arguments:
        return False
    alias = target._schema.arguments[0].alias_info
    return alias is not None and alias.is_write


def _origin(node: Any, given: Dict[Any, Any]) -> Tuple[Any, bool, bool]:
    """Return the node that made the memory of a node's result. Also return whether a detach() lies
    between the two nodes, and whether the memory comes from outside of the region, whose arguments
    are ``given``."""
    detached = False
    while True:
        if node in given:
            return given[node], detached, True
        if not isinstance(node, torch.fx.Node) or node.op != "call_function" or not node.args:
            return node, detached, False
        if name_of(node) == "getitem":
            node = node.args[0]
            continue
        target = node.target
        if not isinstance(target, torch._ops.OpOverload) or not target._schema.returns \
                or target._schema.returns[0].alias_info is None:
            return node, detached, False
        detached |= name_of(node) == "detach"
        node = node.args[0]


def path_of(node: Any) -> str:
    """Return the path of the module to which a node belongs. For some nodes, torch.export gives the
    paths of inner modules relative to the calling module, not relative to the root."""
    whole, inner = "", ""
    for own, *_ in (node.meta.get("nn_module_stack") or {}).values():
        own = str(own).replace("L['self'].", "").replace("L['self']", "")
        if not whole or own in ("", "module") or own.startswith("module."):
            whole, inner = own, ""
        else:
            inner = own if not inner or own.startswith(f"{inner}.") else f"{inner}.{own}"
    path = f"{whole}.{inner}" if inner else whole
    return path[len("module."):] if path.startswith("module.") else "" if path == "module" else path
