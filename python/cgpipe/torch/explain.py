# SPDX-License-Identifier: Apache-2.0
"""Explain a capture before it is used: what the engine runs, what PyTorch runs, what is refused.

The explanation is the result of a real capture. In addition, each exported program is surveyed. In
a survey, a node that cannot be translated gets a placeholder as its result. So the survey finds all
nodes that cannot be translated, not only the first."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Callable, Dict, List, Optional, Sequence, Set, Tuple

import torch
from torch import Tensor, nn

from cgpipe.torch.capture import placeholders, prepare, translate
from cgpipe.torch.captured import Captured
from cgpipe.torch.convex import stateful_nodes
from cgpipe.torch.evaluate import Evaluator
from cgpipe.torch.examples import check_module
from cgpipe.torch.export import Program, export
from cgpipe.torch.fallback import Nodes, attempt_with_fallback
from cgpipe.torch.finding import ITSELF, UNTRACED, Finding, called, fold
from cgpipe.torch.layout import Layout
from cgpipe.torch.ops import OPS
from cgpipe.torch.patterns import find_patterns
from cgpipe.torch.places import BEFORE, ENGINE, TORCH, Place
from cgpipe.torch.translator import Constant, Outside, Samples, Translator, Unsupported, shape_of
from cgpipe.torch.walk import UNKNOWN, Layers, Walk
from cgpipe.torch.watch import CaptureError, is_inside, name_of

__all__ = ["ENGINE", "PYTORCH", "REFUSED", "Entry", "Explanation", "explain"]

#: The values of Entry.runs besides ENGINE.
PYTORCH, REFUSED = TORCH, "refused"


@dataclass(frozen=True)
class Entry:
    """An op of a module, or another part of the module."""

    #: ENGINE, PYTORCH or REFUSED.
    runs: str
    #: The module's path; "": the module itself.
    path: str
    #: The name of the module's class.
    kind: str
    #: The op's name in PyTorch; "": the part is not a single op.
    op: str
    #: "file:line" of the user's code; "": there is no such line.
    line: str
    #: Number of calls of the op; 0: not known.
    calls: int
    #: Why the engine does not run this part; "" if it does.
    reason: str


@dataclass
class Explanation:
    """Where each part of a module runs. ``print()`` shows a table with a row for each kind of op in
    a module. Modules that are alike share a row: "layers.0-11"."""

    entries: List[Entry] = field(default_factory=list)

    @property
    def engine(self) -> List[Entry]:
        """What the engine runs."""
        return self._of(ENGINE)

    @property
    def pytorch(self) -> List[Entry]:
        """What PyTorch runs inside the pipeline."""
        return self._of(PYTORCH)

    @property
    def refused(self) -> List[Entry]:
        """What cannot run; [] if the module is captured."""
        return self._of(REFUSED)

    def _of(self, runs: str) -> List[Entry]:
        return [entry for entry in self.entries if entry.runs == runs]

    def __str__(self) -> str:
        return _table(self)

    __repr__ = __str__


# --- the survey of a program ---


class _Survey(Walk):
    """Translates all nodes that can be translated, and records the others."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.failed: List[Finding] = []
        #: Nodes whose results are placeholders, or depend on placeholders.
        self.unsure: Set[Any] = set()

    def _translate(self, module: Any, node: Any, patterns: Dict[Any, Any]) -> None:
        if any(before in self.unsure for before in node.all_input_nodes):
            self.unsure.add(node)
        try:
            super()._translate(module, node, patterns)
        except Exception:  # the cause is a placeholder, or translate() raises the exception again
            self.env[node] = _stand_in(self.t, node)
            self.unsure.add(node)

    def _refuse(self, node: Any, error: CaptureError, certain: bool = True) -> None:
        # A node that depends on a placeholder may have failed because of the placeholder. But an
        # unknown op is a failure in any case.
        if node not in self.unsure or name_of(node) not in OPS:
            self.failed += error.findings
        self.env[node] = _stand_in(self.t, node)
        self.unsure.add(node)


def _stand_in(t: Translator, node: Any) -> Any:
    """Return a placeholder with the shape and the type of a node's result."""
    value = node.meta.get("val")
    if isinstance(value, (list, tuple)):
        return [_of_tensor(t, node, x) for x in value]
    return _of_tensor(t, node, value)


def _of_tensor(t: Translator, node: Any, value: Any) -> Any:
    if isinstance(value, torch.SymInt):
        return Samples(2)
    if not isinstance(value, Tensor):
        return value
    try:
        shape = shape_of(value.shape)
        if not any(batch for batch, _ in shape):
            return Constant(torch.ones([size for _, size in shape], dtype=value.dtype))
        if value.dtype.is_floating_point and shape[0] == (True, 1):
            return t.graph.input("", "f32", Layout.of_shape([size for _, size in shape[1:]]))
        return Outside(node, shape, value.dtype)
    except (Unsupported, RuntimeError):
        return None


def _survey(program: Program, module: nn.Module, examples: Sequence[Tensor]) -> _Survey:
    """Translate all nodes of an exported program that can be translated."""
    t = Translator("", module.training, OPS)
    graph = program.exported.graph_module
    evaluator = Evaluator(graph, examples)
    survey = _Survey(t, Layers(module, ()), evaluator, Nodes(t, module), None)
    survey.stateful = stateful_nodes(program.exported)
    placeholders(program.exported, survey, examples)
    survey.run(graph, *find_patterns(graph.graph))
    return survey


# --- the explanation ---


class _Explainer:
    """Captures a module, and keeps the findings of each attempt."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.modules = dict(module.named_modules(remove_duplicate=False))
        self.found: List[Finding] = []
        #: ``failed`` has the ops that no survey could translate. ``places`` says where each op
        #: runs, according to the last survey.
        self.failed: List[Finding] = []
        self.places: List[Place] = []

    def attempt(self, flat: Any, examples: Sequence[Tensor], opaque: Sequence[str]) -> Captured:
        program = export(self.module, flat, examples, opaque)
        try:
            survey = _survey(program, self.module, examples)
            self.places = survey.places
            self.failed += survey.failed
        except CaptureError as error:
            self.failed += error.findings
        return translate(program, flat, self.module, examples, None, "", True)

    def explain(self, inputs: Sequence[Any], kwargs: Optional[Dict[str, Any]]) -> Explanation:
        try:
            flat, examples = prepare(self.module, inputs, kwargs)
            captured = attempt_with_fallback(
                self.module, flat, examples,
                lambda opaque: self.attempt(flat, examples, opaque), found=self.found)
        except CaptureError as error:
            return Explanation([*self._refused(error), *self._of_places(ENGINE, self.places)])
        entries = [entry for region in captured.regions.all if not region.only
                   for entry in self._of_region(region)]
        entries += self._of_parts(captured)
        return Explanation([*dict.fromkeys(entries), *self._of_places(BEFORE, captured.places),
                            *self._of_places(ENGINE, captured.places)])

    def _refused(self, error: CaptureError) -> List[Entry]:
        findings = list(dict.fromkeys([*error.findings, *self.found, *self.failed]))
        known = [found for found in findings if found.text != UNTRACED]
        return self._entries(REFUSED, known or findings)

    def _of_region(self, region: Any) -> List[Entry]:
        findings = [found for found in dict.fromkeys([*self.failed, *self.found])
                    if is_inside(found.path, [region.path])] or [region.reason]
        findings = [found if found.path == region.path else
                    replace(found, path=region.path, text=f"in {found.path}: {found.text}")
                    for found in findings]
        if region.mixes:
            findings = [replace(found, text=f"{found.text}; mixes the samples of a micro-batch")
                        for found in findings]
        return self._entries(PYTORCH, findings)

    def _of_parts(self, captured: Captured) -> List[Entry]:
        """Return an entry for each op of the regions that are parts of modules."""
        whole = [region.path for region in captured.regions.all if not region.only]
        reasons = {replace(found, text=""): found.text for found in self.failed}
        findings = []
        for place in captured.places:
            if place.where == TORCH and place.path not in whole:
                found = Finding(place.path, called(place.op), place.line)
                beside = "beside an op that PyTorch runs" if place.op in OPS else UNKNOWN
                findings.append(replace(found, text=reasons.get(found, beside)))
        return self._entries(PYTORCH, findings)

    def _of_places(self, where: str, places: Sequence[Place]) -> List[Entry]:
        text = ("" if where == ENGINE
                else "depends on integer inputs alone: computed before each step")
        return self._entries(ENGINE if where == ENGINE else PYTORCH, [
            Finding(place.path, called(place.op), place.line, text)
            for place in places if place.where == where])

    def _entries(self, runs: str, findings: Sequence[Finding]) -> List[Entry]:
        calls: Dict[Finding, int] = {}
        for found in findings:
            calls[found] = calls.get(found, 0) + 1
        return [Entry(runs, found.path, self._kind(found.path), found.op, found.line,
                      number if found.op and runs != REFUSED else 0, found.text)
                for found, number in calls.items()]

    def _kind(self, path: str) -> str:
        return type(self.modules[path]).__name__ if path in self.modules else ""


def explain(module: nn.Module, example_inputs: Any,
            example_kwargs: Optional[Dict[str, Any]] = None) -> Explanation:
    """Return for each part of a module whether the engine would run it, PyTorch would run it, or it
    would be refused.

        print(cgpipe.torch.explain(module, x))

    The module is captured in its current mode, as from_torch() and GPipe capture it, but it is not
    proven against PyTorch. In a real capture, a proof that fails moves more modules to PyTorch, or
    refuses them. The module does not change.

    Args:
        module: An nn.Module, or a GPipe.
        example_inputs: A tensor [N, ...], or the positional inputs.
        example_kwargs: Inputs by name.

    Raises:
        TypeError: The module is no nn.Module. Exceptions that the module's own forward raises for
            the example are not caught. If a module is refused, nothing is raised.
    """
    check_module(module)
    whole: Optional[Callable[[Any], Tuple[nn.Module, Any]]] = getattr(module, "_whole_for", None)
    if whole is not None:
        module, example_inputs = whole(example_inputs)
    with torch.random.fork_rng(devices=[]):
        return _Explainer(module).explain(example_inputs, example_kwargs)


# --- the table ---


def _rows(entries: Sequence[Entry]) -> List[Tuple[str, ...]]:
    """Return one row for each kind of op in modules that are alike. Modules are alike if their
    entries for the op differ only in the path and the number of calls."""
    groups: Dict[Tuple[str, ...], List[Entry]] = {}
    for entry in entries:
        groups.setdefault((entry.runs, entry.path, entry.kind, entry.op, entry.reason),
                          []).append(entry)
    alike: Dict[Tuple[Any, ...], List[List[Entry]]] = {}
    for same in groups.values():
        first = same[0]
        key = (first.runs, first.kind, first.op, first.reason, _lines(same))
        alike.setdefault(key, []).append(same)
    rows: List[Tuple[str, ...]] = []
    for (runs, kind, op, reason, lines), found in alike.items():
        by_path = {same[0].path: sum(entry.calls for entry in same) for same in found}
        path = ", ".join(_short(fold(by_path)))
        rows.append((runs, f"{path} ({kind})" if path and kind else path or ITSELF, op, lines,
                     str(sum(by_path.values()) or ""), reason))
    return rows


def _short(paths: List[str]) -> List[str]:
    return paths if len(paths) <= 4 else [*paths[:3], f"{len(paths) - 3} more"]


def _lines(entries: Sequence[Entry]) -> str:
    """Return the lines of entries: "model.py:12,14"."""
    files: Dict[str, List[str]] = {}
    for entry in entries:
        if entry.line:
            file, _, line = entry.line.rpartition(":")
            files.setdefault(file, []).append(line)
    return " ".join(f"{file}:{','.join(dict.fromkeys(lines))}" for file, lines in files.items())


def _table(explanation: Explanation) -> str:
    order = [REFUSED, PYTORCH, ENGINE]
    rows = [row for runs in order for row in _rows(explanation._of(runs))]
    if not rows:
        return "nothing to run"
    head = ("runs", "module", "op", "line", "calls", "reason")
    used = [i for i in range(len(head)) if any(row[i] for row in rows)]
    shown = [[row[i] for i in used] for row in (head, *rows)]
    widths = [max(len(row[i]) for row in shown) for i in range(len(used))]
    return "\n".join("  ".join(cell.rjust(w) if head[i] == "calls" else cell.ljust(w)
                               for i, cell, w in zip(used, row, widths)).rstrip() for row in shown)
