# SPDX-License-Identifier: Apache-2.0
"""What a captured graph fixes of a module, and may change later: modes, numbers and texts among the
attributes, hooks, submodules, and tensors that are no parameters. It is read in front of each
step."""

from __future__ import annotations

import dataclasses
import operator
import types
from typing import Any, Dict, List, Optional, Tuple

import torch
from torch import Tensor, nn

from cgpipe.torch.watch import hooks_of, is_managed, plain

__all__ = ["State", "Tensors"]


class _Same:
    """An object that equals itself alone. It is kept, so that no other object gets its address."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def _frozen(value: Any) -> Any:
    """Return a hashable form: numbers, texts and containers by value, other objects by identity."""
    if plain(value):
        return value
    if isinstance(value, (list, tuple)):
        return tuple(map(_frozen, value))
    if isinstance(value, dict):
        return tuple((_frozen(key), _frozen(x)) for key, x in value.items())
    return _Same(value)


def _is_config(value: Any) -> bool:
    return (isinstance(value, types.SimpleNamespace) or type(value).__name__.endswith("Config")
            or (dataclasses.is_dataclass(value) and not isinstance(value, type)))


class _Owner:
    """A module, or an object with settings: the entries of its dictionary."""

    def __init__(self, path: str, values: Dict[str, Any]) -> None:
        self.path, self.values, self.size = path, values, len(values)
        keys = [key for key in values if key != "training" and not is_managed(key)]
        self.plain = [key for key in keys if plain(values[key])]
        self.rest = [key for key in keys if not plain(values[key])]
        # itemgetter() returns a tuple only for several keys.
        self.get = operator.itemgetter(*self.plain) if len(self.plain) > 1 else self._get

    def _get(self, values: Dict[str, Any]) -> Tuple[Any, ...]:
        return tuple(values[key] for key in self.plain)

    def read(self) -> Tuple[Any, ...]:
        """Return the values, of which the first are `plain`, and the rest `rest`."""
        return (*self.get(self.values), *[_frozen(self.values[key]) for key in self.rest])

    def names(self) -> List[str]:
        return [*self.plain, *self.rest]


class State:
    """The state of a module's modes, attributes, hooks and submodules. States compare by ==."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self._list()

    def _list(self) -> None:
        self._modules = [child for _, child in self.module.named_modules()]
        self._children = [tuple(child._modules.values()) for child in self._modules]
        self._owners = [_Owner(path, child.__dict__) for path, child in self.module.named_modules()]
        seen: Dict[int, _Owner] = {}
        for owner in self._owners:
            for key in owner.rest:
                value = owner.values[key]
                if _is_config(value) and hasattr(value, "__dict__"):
                    path = f"{owner.path}.{key}" if owner.path else key
                    seen.setdefault(id(value), _Owner(path, value.__dict__))
        self._owners += seen.values()

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
            except (KeyError, TypeError):  # an attribute has another name or type
                pass
        self._list()
        return self._read()

    def _read(self) -> Tuple[Any, ...]:
        modules = self._modules
        return (tuple(map(_Same, modules)), tuple([m.training for m in modules]),
                tuple(map(hooks_of, modules)), tuple([owner.read() for owner in self._owners]))

    def difference(self, before: Tuple[Any, ...]) -> Optional[str]:
        """Return the name of what has changed since ``before``; None: nothing."""
        now = self.read()
        if now == before:
            return None
        if now[0] != before[0]:
            return "a submodule"
        for i, name in ((1, "training"), (2, "hooks")):
            for owner, a, b in zip(self._owners, before[i], now[i]):
                if a != b:
                    return f"{owner.path}.{name}" if owner.path else name
        for owner, was, values in zip(self._owners, before[3], now[3]):
            for name, a, b in zip(owner.names(), was, values):
                if a != b:
                    return f"{owner.path}.{name}" if owner.path else name
        return "an attribute"


#: Largest number of elements of a tensor that is compared by value. A larger tensor is compared by
#: its memory and version, which PyTorch counts for each write except through .data and NumPy.
_SMALL = 4096


class Tensors:
    """Tensors of a module, such as masks, whose values a graph contains."""

    def __init__(self) -> None:
        self._entries: List[Tuple[str, Dict[str, Any], str, Tensor, int, Optional[Tensor]]] = []

    def add(self, module: nn.Module, name: str) -> None:
        """Add the tensor ``name``, a path in the module, unless the path has none."""
        path, _, key = name.rpartition(".")
        try:
            owner = module.get_submodule(path)
        except AttributeError:
            return
        table = owner._buffers if key in owner._buffers else owner.__dict__
        tensor = table.get(key)
        if isinstance(tensor, Tensor):
            copy = tensor.detach().clone() if tensor.numel() <= _SMALL else None
            self._entries.append((name, table, key, tensor, tensor._version, copy))

    def changed(self) -> Optional[str]:
        """Return the name of a tensor that has changed; None: none has."""
        for name, table, key, tensor, version, copy in self._entries:
            now = table.get(key)
            if copy is not None:
                if not isinstance(now, Tensor) or now.dtype != copy.dtype \
                        or not torch.equal(now, copy):
                    return name
            elif now is not tensor or tensor._version != version:
                return name
        return None
