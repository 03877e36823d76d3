# SPDX-License-Identifier: Apache-2.0
"""The part of a module's state on which a captured graph depends. This part may change after the
capture. It consists of modes, attributes, hooks, submodules, tensors that are not parameters, and
variables that forward reads. It is read before each step."""

from __future__ import annotations

import ctypes
import functools
import operator
import types
from typing import Any, Callable, Dict, List, Optional, Sequence, Set, Tuple, Union

import torch
from torch import Tensor, nn

from cgpipe.torch.variables import variables_of
from cgpipe.torch.watch import global_hooks, hooks_of, is_managed

__all__ = ["SMALL", "State", "Tensors"]


class _Same:
    """A wrapper of an object that equals only wrappers of the same object. It keeps the object
    alive, so that no other object gets the same address."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


#: Objects whose classes these Python modules define are not settings of a forward.
_FOREIGN = ("torch", "builtins", "logging", "threading", "_thread", "collections", "functools")
#: Depth to which objects and containers are read, and the largest array that is read.
_DEPTH, _ARRAY = 4, 4096


#: Types of objects whose attributes are not settings, or are read elsewhere.
_OTHERS = (type, nn.Module, types.ModuleType, types.FunctionType, types.BuiltinFunctionType,
           types.MethodType)


def _settings(value: Any) -> Optional[Dict[str, Any]]:
    """Return the attributes of an object, without running code of the object. Return None if the
    attributes are not settings."""
    if isinstance(value, _OTHERS) or type(value).__module__.startswith(_FOREIGN):
        return None
    slots = [name for cls in type(value).__mro__ for name in _names_of(vars(cls).get("__slots__"))]
    found = dict(getattr(value, "__dict__", {}))
    for name in slots:
        if hasattr(value, name) and name not in ("__dict__", "__weakref__"):
            found[name] = getattr(value, name)
    return found if found or slots or hasattr(value, "__dict__") else None


def _names_of(slots: Any) -> Sequence[str]:
    return (slots,) if isinstance(slots, str) else tuple(slots or ())


#: Types whose comparison runs no code of the user.
_EXACT = {type(None), bool, int, float, str, torch.dtype, tuple}
#: Largest number of elements of a tensor that is compared by value. A larger tensor is compared by
#: its memory and its version. PyTorch counts up the version at each write, except through .data and
#: NumPy.
SMALL = 4096


class _Memo(Dict[int, Any]):
    """During one read of the state, this maps the ids of objects to their hashable forms."""

    def __init__(self, modules: Sequence[nn.Module] = ()) -> None:
        self.modules = modules

    @functools.cached_property
    def own(self) -> Set[int]:
        """Return the ids of the modules' parameters and buffers, whose values change in a step."""
        return {id(x) for m in self.modules
                for x in (*m._parameters.values(), *m._buffers.values())}


def _is_exact(value: Any) -> bool:
    return type(value) in _EXACT and (type(value) is not tuple or all(map(_is_exact, value)))


def _frozen_tensor(x: Tensor, memo: _Memo) -> Any:
    """Return a hashable form of a tensor. Small tensors are compared by value, others by identity
    and version."""
    if id(x) in memo.own:
        return _Same(x)
    if (x.numel() <= SMALL and not x.requires_grad and type(x) is Tensor
            and x.layout is torch.strided and x.device.type == "cpu" and not x.is_quantized):
        with torch.no_grad():
            copy = torch.empty(x.shape, dtype=x.dtype, device="cpu").copy_(x)
        return tuple(x.shape), x.dtype, ctypes.string_at(copy.data_ptr(), copy.nbytes)
    # PyTorch counts no versions of a tensor that was made under inference_mode().
    return _Same(x), None if x.is_inference() else x._version


def _frozen(value: Any, memo: _Memo, depth: int = _DEPTH) -> Any:
    """Return a hashable form: numbers, texts, containers and settings by value, other objects by
    identity. Comparing two such forms runs no code of the caller."""
    if _is_exact(value):
        return value
    if isinstance(value, Tensor):
        return _frozen_tensor(value, memo)
    for base in (int, float, str):
        if isinstance(value, base):
            return _Same(type(value)), base.__repr__(value)
    if depth == 0:
        return _Same(value)
    if id(value) in memo:
        return memo[id(value)]
    found: Any = _Same(value)
    if isinstance(value, (list, tuple)):
        found = tuple([_frozen(x, memo, depth - 1) for x in value])
    elif isinstance(value, (set, frozenset)):
        found = frozenset(_frozen(x, memo, depth - 1) for x in list(value))
    elif isinstance(value, dict):
        found = tuple([(_frozen(key, memo, 0), _frozen(x, memo, depth - 1))
                       # Copy the items, because other threads may write to the dictionary.
                       for key, x in list(value.items())])
    elif type(value).__name__ == "ndarray" and value.size <= _ARRAY:
        found = value.tobytes()
    elif isinstance(value, functools.partial):
        found = (_Same(value.func), _frozen(value.args, memo, depth - 1),
                 _frozen(value.keywords, memo, depth - 1))
    # A module in a list, for example.
    elif isinstance(value, nn.Module) and value not in memo.modules:
        found = (_Same(value), _attributes({key: x for key, x in list(vars(value).items())
                                            if not key.startswith("_")}, memo, depth))
    else:
        settings = _settings(value)
        if settings is not None:
            found = (_Same(type(value)), _attributes(settings, memo, depth))
    memo[id(value)] = found
    return found


def _attributes(table: Dict[str, Any], memo: _Memo, depth: int) -> Any:
    """Return a hashable form of attributes. The dictionary is not added to the memo, because
    another dictionary could later have its address."""
    return tuple([(key, _frozen(x, memo, depth - 1)) for key, x in table.items()])


class _Owner:
    """The entries of one dictionary that belong to the state. This is the dictionary of a
    module, of a class of modules, or of a loss."""

    def __init__(self, path: str, values: Any, ignored: Set[str]) -> None:
        self.path, self.values, self.size = path, values, len(values)
        keys = [key for key in list(values)
                if key != "training" and not is_managed(key) and key not in ignored]
        self.plain = [key for key in keys if _is_exact(values[key])]
        self.rest = [key for key in keys if not _is_exact(values[key])]
        # itemgetter() returns a tuple only for several keys.
        self.get = operator.itemgetter(*self.plain) if len(self.plain) > 1 else self._get

    def _get(self, values: Any) -> Tuple[Any, ...]:
        return tuple(values[key] for key in self.plain)

    def read(self, memo: _Memo) -> Tuple[Any, ...]:
        """Return the values of the keys in `plain`, then the values of the keys in `rest`."""
        found: Tuple[Any, ...] = self.get(self.values)
        if not _EXACT.issuperset(map(type, found)):
            # State.read() then lists the attributes again.
            raise TypeError("an attribute has another type")
        if not self.rest:
            return found
        return (*found, *[_frozen(self.values[key], memo) for key in self.rest])

    def names(self) -> List[str]:
        return [*self.plain, *self.rest]


class _Variables:
    """The variables that a module's forward reads from outside of the module."""

    path, size = "", 0
    values: Dict[str, Any] = {}

    def __init__(self, roots: Sequence[Any], ignored: Set[Any]) -> None:
        self.entries = [x for x in variables_of(*roots) if x.key not in ignored]

    def read(self, memo: _Memo) -> Tuple[Any, ...]:
        """Return the values."""
        return tuple([_frozen(x.get(), memo) for x in self.entries])

    def names(self) -> List[str]:
        return [x.name for x in self.entries]


def _tensors_of(module: nn.Module) -> Tuple[Any, ...]:
    """Return which tensors are the parameters and buffers, and which parameters are trained."""
    return (*[p if p is None else (_Same(p), p.requires_grad)
              for p in module._parameters.values()],
            *[b if b is None else _Same(b) for b in module._buffers.values()])


def _changed_tensor(values: Any, before: Tuple[Any, ...], now: Tuple[Any, ...]) -> str:
    """Compare two results of _tensors_of(). Return the name of the first parameter or buffer that
    differs. ``values`` is the module's dictionary."""
    names = [*values["_parameters"], *values["_buffers"]]
    if len(before) != len(now):
        return "parameters and buffers"
    name, a, b = next((name, a, b) for name, a, b in zip(names, before, now) if a != b)
    frozen = isinstance(a, tuple) and isinstance(b, tuple) and a[0] == b[0]
    return f"{name}.requires_grad" if frozen else name


class State:
    """The state of a module: modes, attributes, hooks, submodules, and which tensors are parameters
    and buffers. States compare by ==. ``loss`` is a function of the module's output. The variables
    and attributes that ``loss`` reads belong to the state too."""

    def __init__(self, module: nn.Module, loss: Any = None) -> None:
        self.module, self.loss = module, loss
        self._ignored: Dict[int, Set[str]] = {}
        self._written: Set[Any] = set()  # variables outside of the module
        self._list()

    def ignore(self, attributes: Sequence[Tuple[nn.Module, str]]) -> bool:
        """Ignore attributes that forward sets. Return whether any of them was not ignored
        before."""
        new = [(child, key) for child, key in attributes
               if key not in self._ignored.get(id(child), ())]
        for child, key in new:
            self._ignored.setdefault(id(child), set()).add(key)
        if new:
            self._list()
        return bool(new)

    def outside(self) -> Dict[Any, Any]:
        """Return the current values of the variables outside of the module, for
        ignore_written()."""
        memo = _Memo(self._modules)
        return {x.key: _frozen(x.get(), memo) for x in self._variables.entries}

    def ignore_written(self, before: Dict[Any, Any]) -> None:
        """Ignore the variables that differ from ``before``. A capture ran code that has written to
        these variables. They are caches, for example."""
        now = self.outside()
        new = {key for key, value in before.items() if now.get(key, value) != value}
        if new:
            self._written |= new
            self._list()

    def _list(self) -> None:
        self._modules = [child for _, child in self.module.named_modules()]
        self._children = [tuple(child._modules.values()) for child in self._modules]
        self._owners: List[Union[_Owner, _Variables]] = [
            _Owner(path, child.__dict__, self._ignored.get(id(child), set()))
            for path, child in self.module.named_modules()]
        classes = {cls: None for child in self._modules for cls in type(child).__mro__
                   if not cls.__module__.startswith(_FOREIGN)}
        self._owners += [_Owner(cls.__name__, vars(cls), set()) for cls in classes]
        if self.loss is not None:
            loss = self.loss.__self__ if isinstance(self.loss, types.MethodType) else self.loss
            own = loss.named_modules() if isinstance(loss, nn.Module) else [("", loss)]
            self._owners += [_Owner(f"loss.{path}" if path else "loss", vars(value),
                                    self._ignored.get(id(value), set()))
                             for path, value in own if hasattr(value, "__dict__")]
        self._variables = _Variables([self.module, self.loss], self._written)
        self._owners.append(self._variables)

    def _is_stale(self) -> bool:
        """Return whether submodules or attributes were added or removed since they were listed."""
        for owner in self._owners:
            if len(owner.values) != owner.size:
                return True
        for child, children in zip(self._modules, self._children):
            if tuple(child._modules.values()) != children:
                return True
        return False

    def read(self) -> Tuple[Any, ...]:
        """Return the current state, which can be hashed."""
        if not self._is_stale():
            try:
                found = self._read()
                hash(found)
                return found
            except (KeyError, TypeError):  # an attribute has another name or type now
                pass
        self._list()
        return self._read()

    def _read(self) -> Tuple[Any, ...]:
        modules, memo = self._modules, _Memo(self._modules)
        return (tuple(map(_Same, modules)), tuple([m.training for m in modules]),
                tuple(map(hooks_of, modules)), tuple(map(_tensors_of, modules)),
                tuple([owner.read(memo) for owner in self._owners]),
                tuple([_Same(type(m)) for m in modules]), global_hooks())

    def difference(self, before: Tuple[Any, ...], modes: bool) -> Optional[str]:
        """Return the name of what has changed since ``before``, or None if nothing has changed. If
        ``modes``, also compare the mode of each module."""
        now = self.read()
        if now == before:
            return None
        if now[0] != before[0] or now[5] != before[5]:
            return "a submodule"
        for i, name in ((1, "training"), (2, "hooks"), (3, "")):
            for owner, a, b in zip(self._owners, before[i], now[i]):
                if a != b and (i != 1 or modes):
                    name = name or _changed_tensor(owner.values, a, b)
                    return f"{owner.path}.{name}" if owner.path else name
        for owner, was, values in zip(self._owners, before[4], now[4]):
            for name, a, b in zip(owner.names(), was, values):
                if a != b:
                    return f"{owner.path}.{name}" if owner.path else name
        return "an attribute" if now[4:] != before[4:] else None


class Tensors:
    """Tensors of a module, such as masks, whose values a graph contains."""

    def __init__(self) -> None:
        self._entries: List[Tuple[str, Dict[str, Any], str, Tensor, int, Optional[Tensor]]] = []

    def add(self, module: nn.Module, name: str) -> None:
        """Add the tensor at the path ``name`` of the module, if there is a tensor."""
        path, _, key = name.rpartition(".")
        try:
            owner = module.get_submodule(path)
        except AttributeError:
            return
        table = owner._buffers if key in owner._buffers else owner.__dict__
        tensor = table.get(key)
        if isinstance(tensor, Tensor):
            copy = tensor.detach().clone() if tensor.numel() <= SMALL else None
            self._entries.append((name, table, key, tensor, tensor._version, copy))

    def rename(self, own: Callable[[str], str]) -> None:
        """Rename the tensors by a function."""
        self._entries = [(own(name), *rest) for name, *rest in self._entries]

    def changed(self) -> Optional[str]:
        """Return the name of a tensor that has changed, or None if no tensor has changed."""
        for name, table, key, tensor, version, copy in self._entries:
            now = table.get(key)
            if copy is not None:
                if not isinstance(now, Tensor) or now.dtype != copy.dtype \
                        or not torch.equal(now, copy):
                    return name
            elif now is not tensor or tensor._version != version:
                return name
        return None
