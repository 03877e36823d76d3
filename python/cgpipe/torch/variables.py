# SPDX-License-Identifier: Apache-2.0
"""Variables that a module's forward reads from outside of the module: globals, variables of
enclosing functions, default values of arguments, and arguments that functools.partial() has fixed.

The search covers forward, and the methods and functions that forward calls by name, but not the
code of installed packages. It finds numbers, texts, tensors, and lists and dictionaries of numbers
and texts. It also finds attributes (settings.scale), and follows a local name that is assigned once
(s = settings). It leaves out variables that the code assigns or writes to."""

from __future__ import annotations

import dis
import functools
import inspect
import itertools
import os
import re
import sysconfig
import types
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

import torch
from torch import Tensor, nn

from cgpipe.torch.watch import plain

__all__ = ["Variable", "variables_of"]

#: Largest list or dictionary that is compared by its values.
LARGEST = 64

_INSTALLED = ("site-packages", "dist-packages", "<frozen", sysconfig.get_path("stdlib"),
              os.path.dirname(torch.__file__))
_MISSING = object()
#: Methods that write to a list or a dictionary.
_WRITERS = {"update", "setdefault", "pop", "popitem", "clear", "append", "extend", "insert",
            "remove", "sort", "reverse"}
#: Instructions that copy a container and a key, for an assignment such as d[key] += 1.
_COPIES = {"COPY", "DUP_TOP_TWO"}


class Variable(NamedTuple):
    """A variable: its identity, its name in messages, and a function that returns its value."""

    key: Any
    name: str
    get: Callable[[], Any]


#: A function, and the class of the ``self`` whose methods the function calls.
_Method = Tuple[types.FunctionType, type]


def variables_of(*roots: Any) -> List[Variable]:
    """Return the variables that modules and functions read. Each variable appears once."""
    found: Dict[Any, Variable] = {}
    assigned: Set[Any] = set()
    written: Set[Any] = set()
    seen: Set[_Method] = set()
    pending = [method for root in roots for method in _roots(root)]
    found.update((x.key, x) for root in roots for x in _arguments(root))
    while pending:
        method = pending.pop()
        if method in seen or not _is_own(method[0]):
            continue
        seen.add(method)
        for use, variable in _uses(*method):
            called = list(_functions(variable.get(), method[1]))
            pending += called
            found.update((x.key, x) for x in _arguments(variable.get()))
            if use == "assigns":
                assigned.add(variable.key)
            elif use == "writes":
                written.add(variable.key)
            elif not called and _is_variable(variable.get()):
                found[variable.key] = variable
    return [variable for key, variable in found.items() if key not in assigned
            and not (key in written and isinstance(variable.get(), (list, dict)))]


def _arguments(value: Any) -> Iterator[Variable]:
    """Yield the arguments that functools.partial() has fixed in a function, and those attributes of
    the arguments that the function reads."""
    while isinstance(value, functools.partial):
        fixed = [*((i, value.args) for i in range(len(value.args))),
                 *((name, value.keywords) for name in value.keywords)]
        for key, table in fixed:
            for path in _argument_paths(value.func, key):
                variable = Variable(
                    (id(table), key, path), f"the argument {'.'.join([str(key), *path])} of "
                    "functools.partial()",
                    functools.partial(_attribute, functools.partial(_item, table, key), path))
                if _is_variable(variable.get()):
                    yield variable
        value = value.func


def _argument_paths(function: Any, key: Any) -> List[Tuple[str, ...]]:
    """Return the attribute chains that a function reads from one of its arguments. ``key`` is the
    position or the name of the argument. The first chain is empty: it stands for the argument
    itself."""
    paths: List[Tuple[str, ...]] = [()]
    if not isinstance(function, types.FunctionType):
        return paths
    names = function.__code__.co_varnames
    name = names[key] if isinstance(key, int) and key < len(names) else key
    for _, kind, path in _names(function.__code__):
        first, *attributes = path.split(".")
        if kind == "argument" and first == name and attributes:
            paths.append(tuple(attributes))
    return paths


def _item(table: Any, key: Any) -> Any:
    return table.get(key, _MISSING) if isinstance(table, dict) else table[key]


def _default(function: types.FunctionType, name: str) -> Any:
    """Return the default value of an argument."""
    code, values = function.__code__, function.__defaults__ or ()
    names = code.co_varnames[:code.co_argcount][code.co_argcount - len(values):]
    return {**dict(zip(names, values)), **(function.__kwdefaults__ or {})}.get(name, _MISSING)


def _roots(root: Any) -> Iterator[_Method]:
    if isinstance(root, nn.Module):
        for child in root.modules():
            own = inspect.getattr_static(type(child), "forward", None)
            for value in (own, *list(vars(child).values())):
                yield from _functions(value, type(child))
        return
    found = list(_functions(root, type(root)))
    yield from found or _functions(getattr(type(root), "__call__", None), type(root))


def _functions(value: Any, cls: type) -> Iterator[_Method]:
    """Yield the functions that run if a value is called, or is read as an attribute: the function
    of a method or property, and both the wrapper and the wrapped function of a decorator. ``cls``
    is the class of the method's ``self``."""
    for _ in range(LARGEST):  # __wrapped__ may be a cycle
        if isinstance(value, types.FunctionType):
            yield value, cls
            value = vars(value).get("__wrapped__")
        elif isinstance(value, types.MethodType):
            own = value.__self__
            value, cls = value.__func__, own if isinstance(own, type) else type(own)
        elif isinstance(value, (classmethod, staticmethod)):
            value = value.__func__
        elif isinstance(value, property):
            value = value.fget
        elif isinstance(value, (functools.partial, functools.partialmethod,
                                functools.cached_property)):
            value = value.func
        else:
            return


def _is_own(function: types.FunctionType) -> bool:
    file = function.__code__.co_filename
    return not any(part in file for part in _INSTALLED)


def _is_variable(value: Any) -> bool:
    return isinstance(value, Tensor) or _is_plain(value, 3)


def _is_plain(value: Any, depth: int) -> bool:
    """Return whether a value is a number or a text, or consists of numbers and texts."""
    if isinstance(value, (list, dict)) and depth > 0:
        inner = list(value.values() if isinstance(value, dict) else value)
        return len(inner) <= LARGEST and all(_is_plain(x, depth - 1) for x in inner)
    return plain(value)


class _Step(NamedTuple):
    """An instruction with at most one name."""

    opname: str
    argval: Any


def _steps(code: types.CodeType) -> List[_Step]:
    """Return the instructions of a function. An instruction for two local names is split in two."""
    found = []
    for step in dis.get_instructions(code):
        if isinstance(step.argval, tuple) and "_FAST" in step.opname:
            actions = re.findall("(LOAD|STORE)_FAST", step.opname)
            found += [_Step(f"{action}_FAST", name) for action, name in zip(actions, step.argval)]
        elif step.opname not in ("CACHE", "EXTENDED_ARG", "PUSH_NULL", "RESUME"):
            found.append(_Step(step.opname, step.argval))
    return found


@functools.lru_cache(maxsize=1024)
def _names(code: types.CodeType) -> Tuple[Tuple[str, str, str], ...]:
    """Return the names in the code of a function and of the functions inside it. An entry has three
    parts. The first says whether the code reads the name, assigns it, or writes to its container.
    The second is the kind of the name. The third is the name, with attributes of its value
    (config.scale)."""
    found: Dict[Tuple[str, str, str], None] = {}
    steps = _steps(code)
    stored = [step.argval for step in steps if step.opname == "STORE_FAST"]
    n = code.co_argcount + code.co_kwonlyargcount
    #: What local names stand for: arguments, and names that are assigned once.
    local = {name: ("argument", name) for name in code.co_varnames[:n] if name not in stored}
    for i, step in enumerate(steps):
        action, _, kind = step.opname.partition("_")
        name = step.argval
        if kind in ("ATTR", "METHOD", "SUPER_ATTR") and action == "LOAD":
            found["reads", "attribute", name] = None
        if kind in ("GLOBAL", "DEREF", "CLASSDEREF", "FROM_DICT_OR_DEREF"):
            place = "global" if kind == "GLOBAL" else "variable"
        elif step.opname.startswith("LOAD_FAST") and name in local:
            place, name = local[name]
        else:
            continue
        if action != "LOAD":
            found["assigns", place, name] = None
            continue
        attributes = _attributes(steps[i + 1:])
        after = steps[i + 1 + len(attributes):]
        for k in range(len(attributes) + 1):
            path = ".".join([name, *attributes[:k]])
            found["reads", place, path] = None
            if _writes(steps[i + 1 + k:i + 3 + k]):
                found["writes", place, path] = None
        if _stored(after):
            found["assigns", place, ".".join([name, *attributes, str(_stored(after))])] = None
        if after and after[0].opname == "STORE_FAST" and stored.count(after[0].argval) == 1:
            local[after[0].argval] = (place, ".".join([name, *attributes]))
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            found.update(dict.fromkeys(x for x in _names(inner) if x[1] != "argument"))
    return tuple(found)


def _attributes(steps: List[_Step]) -> List[str]:
    """Return the chain of attributes (a.b.c) that the first instructions load."""
    loads = itertools.takewhile(lambda step: step.opname in ("LOAD_ATTR", "LOAD_METHOD"), steps)
    return [step.argval for step in loads]


def _stored(steps: List[_Step]) -> Optional[str]:
    """The instructions follow the load of an object. Return the attribute that they assign or
    delete: x.a = value, x.a += value, or del x.a."""
    if steps and steps[0].opname in ("COPY", "DUP_TOP"):
        steps = steps[1:2]
    names = [step.argval for step in steps[:1] if step.opname.endswith("_ATTR")]
    return names[0] if names else None


def _writes(steps: List[_Step]) -> bool:
    """The instructions follow the load of a container. Return whether they write to the container:
    d[key] = value, d[key] += value, del d[key], or a method. (A capture detects other writes when
    it executes them.)"""
    if not steps:
        return False
    if steps[0].opname in ("LOAD_ATTR", "LOAD_METHOD"):
        return steps[0].argval in _WRITERS
    return steps[-1].opname in ("STORE_SUBSCR", "DELETE_SUBSCR", *_COPIES)


def _uses(function: types.FunctionType, cls: type) -> Iterator[Tuple[str, Variable]]:
    """Yield the variables, and the attributes of a class, that a function uses."""
    table = function.__globals__
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or ()))
    for use, kind, path in _names(function.__code__):
        name, *attributes = path.split(".")
        if kind == "attribute":
            for base in cls.__mro__:
                method = vars(base).get(name)
                if any(True for _ in _functions(method, cls)):
                    yield use, Variable((base, name), name, functools.partial(vars(base).get, name))
        elif kind == "global" and name in table:
            yield use, Variable((id(table), path), f"the global {path}", functools.partial(
                _attribute, functools.partial(table.get, name, _MISSING), attributes))
        elif kind == "argument" and _default(function, name) is not _MISSING:
            yield use, Variable((id(function), path), f"the default value {path}",
                                functools.partial(_attribute, functools.partial(
                                    _default, function, name), attributes))
        elif kind == "variable" and name in cells:
            yield use, Variable((id(cells[name]), path), f"the variable {path}", functools.partial(
                _attribute, functools.partial(_content, cells[name]), attributes))


def _attribute(get: Callable[[], Any], names: Sequence[str]) -> Any:
    """Follow a chain of attributes from a value, without running code. Attributes of installed
    packages count as missing. Attributes of PyTorch modules also count as missing, because State
    (state.py) compares them."""
    value = get()
    for name in names:
        file = getattr(value, "__file__", "") if isinstance(value, types.ModuleType) else ""
        if isinstance(value, nn.Module) or file is None or any(x in file for x in _INSTALLED):
            return _MISSING
        value = inspect.getattr_static(value, name, _MISSING)
    return value


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # the variable has no value yet
        return _MISSING
