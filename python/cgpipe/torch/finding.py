# SPDX-License-Identifier: Apache-2.0
"""Places in a module, in the user's names: the module's path, the op, and the line that calls the
op.

    layers.3.attention: cumsum (model.py:41): the engine has no such op

The line is the innermost line of code outside of PyTorch and this package. The path of its file is
relative to the longest entry of sys.path that contains the file."""

from __future__ import annotations

import os
import re
import sys
import traceback
from dataclasses import dataclass, replace
from typing import Any, Callable, Dict, Iterable, List, Sequence, Tuple

import torch
from torch import nn

__all__ = ["ITSELF", "UNTRACED", "Finding", "called", "fold", "line_of", "line_of_error",
           "line_of_frame", "path_of_error", "untraceable"]

UNTRACED = "its forward cannot be traced"
#: Messages have this text in place of the path of the whole module.
ITSELF = "the module itself"


@dataclass(frozen=True)
class Finding:
    """A place in a module, and a text about it. Unknown parts are empty."""

    #: The module's path; "": the module itself.
    path: str
    op: str = ""
    #: "file:line".
    line: str = ""
    text: str = ""

    def renamed(self, own: Callable[[str], str]) -> "Finding":
        """Return a copy of the finding in which the function ``own`` has renamed path and text."""
        return replace(self, path=own(self.path), text=own(self.text))

    def of(self, path: str) -> str:
        """Return the text for a line that already names ``path``. This is the path of the finding's
        module, or of a module that contains it."""
        line = f" ({self.line})" if self.line else ""
        inside = f"in {self.path}: " if self.path != path else ""
        return (f"{inside}{self.op}{line}: {self.text}" if self.op
                else f"{inside}{self.text}{line}")

    def __str__(self) -> str:
        return f"{self.path or ITSELF}: {self.of(self.path)}"


#: Maps the name of a functional op to the name under which users call the op.
_CALLED = {"_native_batch_norm_legit": "batch_norm", "_native_batch_norm_legit_functional":
           "batch_norm", "_native_batch_norm_legit_no_training": "batch_norm",
           "native_dropout": "dropout", "_unsafe_view": "view", "_to_copy": "to"}


def called(op: str) -> str:
    """Return the name of an op in the form in which a user calls it."""
    return _CALLED.get(op, op)


# --- lines ---

#: Folders whose code does not belong to the user.
_FOREIGN = (os.path.dirname(torch.__file__) + os.sep,
            os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep)


def _is_own(file: str) -> bool:
    return (not file.startswith((*_FOREIGN, "<", "torch" + os.sep))
            and not os.path.basename(os.path.dirname(file)) == "importlib")


def _place(file: str, line: int) -> str:
    roots = [os.path.abspath(root) + os.sep for root in sys.path]
    root = max((root for root in roots if file.startswith(root)), key=len, default="")
    return f"{file[len(root):]}:{line}"


_FRAME = re.compile(r'File "([^"]+)", line (\d+)')


def line_of(node: Any) -> str:
    """Return the line of the user's code that called a node's op, or "" if there is no line."""
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    own = [(file, int(line)) for file, line in frames if _is_own(file)]
    return _place(*own[-1]) if own else ""


def line_of_frame(frame: Any) -> str:
    """Return the line of the user's code in a frame or its callers, or "" if there is no line."""
    while frame is not None and not _is_own(frame.f_code.co_filename):
        frame = frame.f_back
    return "" if frame is None else _place(frame.f_code.co_filename, frame.f_lineno)


def line_of_error(error: BaseException) -> str:
    """Return the line of the user's code in which an exception was raised, below the last call of
    this package. Return "" if there is no such line."""
    frames = traceback.extract_tb(error.__traceback__)
    last = max((i for i, f in enumerate(frames) if f.filename.startswith(_FOREIGN[1])), default=-1)
    own = [f for f in frames[last + 1:] if _is_own(f.filename)]
    return _place(own[-1].filename, own[-1].lineno or 0) if own else ""


# --- traces that fail ---

def path_of_error(module: nn.Module, error: BaseException) -> str:
    """Return the path of the innermost module whose method raised an exception."""
    paths = {id(child): path for path, child in module.named_modules()}
    found, trace = "", error.__traceback__
    while trace is not None:
        found = paths.get(id(trace.tb_frame.f_locals.get("self")), found)
        trace = trace.tb_next
    return found


_OPERATOR = re.compile(r"^(?:\w+\.)?(\w+)\.\w+(?:\s|$)")


def untraceable(module: nn.Module, error: BaseException) -> Finding:
    """Return a finding about an exception that a trace of the module raises, although the module
    runs in PyTorch. The text of the exception is left out, because it is about internals of
    PyTorch."""
    path, line = path_of_error(module, error), line_of_error(error)
    text, kind = str(error), type(error).__name__
    if "onstraint" in text and ("specializ" in text or "violated" in text):
        return Finding(path, "", line, "dimension 0 of the inputs is that of the samples, of any "
                                       "number: the module takes a certain number")
    if "data-dependent" in text or "DataDependent" in kind:
        return Finding(path, "", line, "data-dependent control flow, a size or a number that "
                                       "depends on the values of tensors, is not in a graph")
    found = _OPERATOR.match(text) if kind == "UnsupportedOperatorException" else None
    if found:
        return Finding(path, found.group(1), line, "PyTorch cannot trace this op")
    if isinstance(error, RuntimeError) and ".numpy()" in text:
        return Finding(path, "numpy", line, "a graph has no NumPy")
    if isinstance(dict(module.named_modules()).get(path), torch.jit.ScriptModule):
        return Finding(path, "", line, "a scripted module has no Python code to trace")
    return Finding(path, "", line, UNTRACED)


# --- paths that are alike ---


def fold(paths: Iterable[str]) -> List[str]:
    """Return paths with consecutive numbers folded: "layers.0-11.attention"."""
    found = list(dict.fromkeys(paths))
    depth = max((path.count(".") for path in found), default=-1) + 1
    for at in range(depth):
        found = _fold_at(found, at)
    return found


def _fold_at(paths: Sequence[str], at: int) -> List[str]:
    """Dots cut each path into parts. Fold the numbers that are part ``at`` of a path."""
    groups: Dict[Tuple[str, ...], List[int]] = {}
    order: List[Any] = []
    for path in paths:
        parts = path.split(".")
        if len(parts) <= at or not parts[at].isdigit():
            order.append(path)
            continue
        key = (*parts[:at], "", *parts[at + 1:])
        if key not in groups:
            order.append(key)
        groups.setdefault(key, []).append(int(parts[at]))
    folded: List[str] = []
    for entry in order:
        if isinstance(entry, str):
            folded.append(entry)
        else:
            folded += [".".join((*entry[:at], run, *entry[at + 1:]))
                       for run in _runs(groups[entry])]
    return folded


def _runs(numbers: Sequence[int]) -> List[str]:
    runs: List[List[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return [str(a) if a == b else f"{a}-{b}" for a, b in runs]
