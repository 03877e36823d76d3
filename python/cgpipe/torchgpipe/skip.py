# SPDX-License-Identifier: Apache-2.0
"""Skip connections between layers of a sequential module, by name.

    @skippable(stash=["skip"])              @skippable(pop=["skip"])
    class Encoder(nn.Module):               class Decoder(nn.Module):
        def forward(self, x):                   def forward(self, x):
            yield stash("skip", x)                  skip = yield pop("skip")
            return self.conv(x)                     return self.conv(x) + skip

The names are those of torchgpipe.skip. The layers also work without GPipe: a stashed tensor stays
in a thread-local dictionary until it is popped. While GPipe captures the whole module, it uses a
separate dictionary. So a skip becomes a value of the captured graph. The value is sent directly
from the stage of its stash to the stage of its pop."""

from __future__ import annotations

import contextlib
import functools
import inspect
import threading
import uuid
from typing import (Any, Callable, ClassVar, Dict, FrozenSet, Iterable, Iterator, List, Optional,
                    Set, Tuple, Type, TypeVar)

from torch import Tensor, nn

__all__ = ["Namespace", "pop", "skippable", "stash", "verify_skippables"]


class _NamespaceType(type):
    """Metaclass of Namespace. With it, None counts as an instance of Namespace, because None is the
    default namespace."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return instance is None or super().__instancecheck__(instance)


@functools.total_ordering
class Namespace(metaclass=_NamespaceType):
    """Keeps skips of the same name apart; see ``isolate``. A copy equals its original. None is the
    default namespace."""

    __slots__ = ("id",)

    def __init__(self) -> None:
        self.id = uuid.uuid4()

    def __repr__(self) -> str:
        return f"<Namespace '{self.id}'>"

    def __hash__(self) -> int:
        return hash(self.id)

    def __eq__(self, other: Any) -> bool:
        return type(other) is Namespace and self.id == other.id

    def __lt__(self, other: Any) -> bool:
        return type(other) is Namespace and self.id < other.id


Key = Tuple[Optional[Namespace], str]


class stash:
    """A command: keep ``tensor`` (or None) under ``name`` until another layer pops it. The forward
    of a skippable layer yields this command."""

    __slots__ = ("name", "tensor")

    def __init__(self, name: str, tensor: Optional[Tensor]) -> None:
        self.name = name
        self.tensor = tensor


class pop:
    """A command: return the value that was stashed under ``name``. The forward of a skippable layer
    yields this command."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


class _Skips(threading.local):
    """The skips of a thread that are stashed but not popped."""

    def __init__(self) -> None:
        self.tensors: Dict[Key, Optional[Tensor]] = {}


_skips = _Skips()


@contextlib.contextmanager
def fresh_skips() -> Iterator[Dict[Key, Optional[Tensor]]]:
    """Run with an empty dictionary of skips; restore the previous one afterwards."""
    before, _skips.tensors = _skips.tensors, {}
    try:
        yield _skips.tensors
    finally:
        _skips.tensors = before


T = TypeVar("T", bound="Skippable")


class Skippable(nn.Module):
    """Base of the classes that ``skippable`` makes. The wrapped layer is the attribute ``module``,
    so names of parameters contain the word "module"."""

    module_cls: ClassVar[Type[nn.Module]]
    stashable_names: ClassVar[FrozenSet[str]]
    poppable_names: ClassVar[FrozenSet[str]]

    #: True: the layer also takes or returns tensors that are neither arguments nor results.
    has_skips = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        self.module = self.module_cls(*args, **kwargs)
        self.namespaces: Dict[str, Optional[Namespace]] = {}

    def __repr__(self) -> str:
        return f"@skippable({self.module})"

    def namespaced(self, name: str) -> Key:
        """Return (namespace, name)."""
        return (self.namespaces.get(name), name)

    def stashable(self) -> List[Key]:
        """Return the names that this layer stashes, with their namespaces."""
        return [self.namespaced(name) for name in sorted(self.stashable_names)]

    def poppable(self) -> List[Key]:
        """Return the names that this layer pops, with their namespaces."""
        return [self.namespaced(name) for name in sorted(self.poppable_names)]

    def isolate(self: T, ns: Namespace, *, only: Optional[Iterable[str]] = None) -> T:
        """Put the names of this layer, or only the names in ``only``, into a namespace. Return the
        layer."""
        names = self.stashable_names | self.poppable_names if only is None else set(only)
        for name in names:
            self.namespaces[name] = ns
        return self

    def forward(self, input: Any) -> Any:
        """Run the layer and execute the commands that it yields. Raise RuntimeError if the layer
        does not stash and pop exactly the names that it declares."""
        return _Run(self).run(self.module(input))


class _Run:
    """One forward of a skippable layer, with the declared names that still have to be stashed or
    popped."""

    def __init__(self, layer: Skippable) -> None:
        self.layer = layer
        self.to_stash = set(layer.stashable_names)
        self.to_pop = set(layer.poppable_names)

    def run(self, result: Any) -> Any:
        if inspect.isgenerator(result):
            result = self.drive(result)
        if self.to_stash:
            raise RuntimeError(f"{self.names(self.to_stash)} must be stashed but have not")
        if self.to_pop:
            raise RuntimeError(f"{self.names(self.to_pop)} must be popped but have not")
        return result

    def drive(self, generator: Any) -> Any:
        """Execute a generator's commands until it returns."""
        answer = None
        try:
            while True:
                answer = self.serve(generator.send(answer))
        except StopIteration as stop:
            return stop.value

    def serve(self, command: Any) -> Optional[Tensor]:
        if isinstance(command, stash):
            self.take(command.name, self.layer.stashable_names, self.to_stash, "stash")
            _skips.tensors[self.layer.namespaced(command.name)] = command.tensor
            return None
        if isinstance(command, pop):
            self.take(command.name, self.layer.poppable_names, self.to_pop, "pop")
            key = self.layer.namespaced(command.name)
            if key not in _skips.tensors:
                raise RuntimeError(f"'{command.name}' has not been stashed")
            return _skips.tensors.pop(key)
        raise TypeError(f"{command!r} is not a command from stash or pop")

    def take(self, name: str, declared: FrozenSet[str], due: Set[str], verb: str) -> None:
        if name not in declared:
            raise RuntimeError(
                f"'{name}' has not been declared as {verb}{'p' if verb == 'pop' else ''}able")
        due.discard(name)

    @staticmethod
    def names(names: Set[str]) -> str:
        return ", ".join(f"'{name}'" for name in sorted(names))


def skippable(stash: Iterable[str] = (),
              pop: Iterable[str] = ()) -> Callable[[Type[nn.Module]], Type[Skippable]]:
    """Return a decorator for module classes whose forward yields ``stash(name, tensor)`` and
    ``pop(name)``.

    stash, pop: lists of the names that the class stashes and pops. A single str is refused, because
    each of its letters would count as a name."""
    for argument, names in (("stash", stash), ("pop", pop)):
        if isinstance(names, str):
            raise TypeError(f"{argument}: a list of names is expected, got the str '{names}' "
                            f"(write [{names!r}])")
    attributes = {"stashable_names": frozenset(stash), "poppable_names": frozenset(pop)}

    def wrap(module_cls: Type[nn.Module]) -> Type[Skippable]:
        # __module__ and __qualname__ let pickle find the class under its decorated name.
        return type(module_cls.__name__, (Skippable,),
                    {"module_cls": module_cls, "__module__": module_cls.__module__,
                     "__qualname__": module_cls.__qualname__, "__doc__": module_cls.__doc__,
                     **attributes})

    return wrap


def verify_skippables(module: nn.Sequential) -> None:
    """Check the children of a module: each name must be stashed once, and popped once after that.

    If names do not match, raise TypeError with all mismatches.
    """
    stashed: Set[Key] = set()
    popped: Set[Key] = set()
    problems: List[str] = []

    for layer_name, layer in module.named_children():
        if not isinstance(layer, Skippable):
            continue
        both = layer.stashable_names & layer.poppable_names
        problems += [f"'{layer_name}' declared '{name}' both as stashable and as poppable"
                     for name in sorted(both)]
        for key in layer.stashable():
            if key[1] in both:
                continue
            if key in stashed:
                problems.append(f"'{layer_name}' redeclared '{key[1]}' as stashable but not "
                                "isolated by namespace")
            stashed.add(key)
        for key in layer.poppable():
            if key[1] in both:
                continue
            if key in popped:
                problems.append(f"'{layer_name}' redeclared '{key[1]}' as poppable but not "
                                "isolated by namespace")
            elif key not in stashed:
                problems.append(
                    f"'{layer_name}' declared '{key[1]}' as poppable but it was not stashed")
            else:
                popped.add(key)

    left = sorted(name for _, name in stashed - popped)
    problems += [f"no module declared '{name}' as poppable but stashed" for name in left]
    if problems:
        raise TypeError("one or more pairs of stash and pop do not match:\n\n"
                        + "\n".join(f"* {p}" for p in problems))
