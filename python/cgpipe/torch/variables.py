# SPDX-License-Identifier: Apache-2.0
"""Variables outside of a module that its forward reads: globals, and those of enclosing functions.

Read are forward, the methods and functions that it calls by name, and functions among the module's
attributes; none of installed packages. Compared are numbers, texts, tensors, and dictionaries of
numbers and texts, unless forward assigns them. Forward may append to a list, so lists are not."""

from __future__ import annotations

import dis
import functools
import os
import sysconfig
import types
from typing import Any, Callable, Dict, Iterator, List, Set, Tuple

import torch
from torch import Tensor, nn

from cgpipe.torch.watch import plain

__all__ = ["variables_of"]

#: Largest dictionary that is compared by its values.
LARGEST = 64

_INSTALLED = ("site-packages", "dist-packages", "<frozen", sysconfig.get_path("stdlib"),
              os.path.dirname(torch.__file__))
_MISSING = object()
#: A variable: its name in messages, and a function that returns its value.
Variable = Tuple[str, Callable[[], Any]]


def variables_of(module: nn.Module) -> List[Variable]:
    """Return the variables that a module's forward reads, each once."""
    found: Dict[Any, Variable] = {}
    assigned: Set[Any] = set()
    seen: Set[Any] = set()
    pending = [(function, type(child)) for child in module.modules()
               for function in _roots(child)]
    while pending:
        function, cls = pending.pop()
        if function in seen or not _is_own(function):
            continue
        seen.add(function)
        for key, name, get, called in _names(function, cls, assigned):
            if isinstance(called, types.FunctionType):
                pending.append((called, cls))
            elif called is None and _is_variable(get()):
                found[key] = name, get
    return [variable for key, variable in found.items() if key not in assigned]


def _roots(module: nn.Module) -> Iterator[Any]:
    for value in (type(module).forward, *vars(module).values()):
        while isinstance(value, functools.partial):
            value = value.func
        if isinstance(value, types.FunctionType):
            yield value


def _is_own(function: Any) -> bool:
    file = function.__code__.co_filename
    return not any(part in file for part in _INSTALLED)


def _is_variable(value: Any) -> bool:
    if isinstance(value, dict):
        return len(value) <= LARGEST and all(map(plain, value.values()))
    return plain(value) or isinstance(value, Tensor)


def _codes(code: Any) -> Iterator[Any]:
    """Yield a function's code, and that of the functions in it."""
    yield code
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            yield from _codes(inner)


def _names(function: Any, cls: type, assigned: Set[Any]) -> Iterator[Tuple[Any, str, Any, Any]]:
    """Yield the names that a function reads: a key, the name, a function that returns the value,
    and the function that it calls by this name."""
    table = function.__globals__
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or ()))
    for code in _codes(function.__code__):
        for step in dis.get_instructions(code):
            name = step.argval
            key: Any = (id(table), name)
            if step.opname in ("STORE_GLOBAL", "DELETE_GLOBAL"):
                assigned.add(key)
            elif step.opname == "LOAD_GLOBAL" and name in table:
                yield (key, f"the global {name}", functools.partial(table.get, name, _MISSING),
                       _function(table[name]))
            elif step.opname in ("LOAD_ATTR", "LOAD_METHOD"):
                method = getattr(cls, name, None)
                if isinstance(method, types.FunctionType):
                    yield key, name, None, method
            elif step.opname == "STORE_DEREF" and name in cells:
                assigned.add(id(cells[name]))
            elif step.opname in ("LOAD_DEREF", "LOAD_CLASSDEREF") and name in cells:
                get = functools.partial(_content, cells[name])
                yield id(cells[name]), f"the variable {name}", get, _function(get())


def _function(value: Any) -> Any:
    return value if isinstance(value, types.FunctionType) else None


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it has no value yet
        return _MISSING
