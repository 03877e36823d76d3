# SPDX-License-Identifier: Apache-2.0
"""The choice of fallback regions, and their nodes in a graph.

    capture fails, with the paths of modules --> these modules become opaque --> capture again

The innermost module that fails becomes opaque. If a module cannot be opaque because of its
arguments or results, its parent becomes opaque instead, and so on up to the whole module."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch
from torch import Tensor, nn

from cgpipe._op import MAX
from cgpipe.torch.attention import Scores
from cgpipe.torch.convex import Subgraph
from cgpipe.torch.graph import Value
from cgpipe.torch.layout import Layout, MixesSamples, Unlike
from cgpipe.torch.measured import is_reduced
from cgpipe.torch.finding import Finding, untraceable
from cgpipe.torch.opaque import CALLS, Call, record, traced
from cgpipe.torch.packing import pack
from cgpipe.torch.region import Operand, Region, output_operand
from cgpipe.torch.regions import Regions
from cgpipe.torch.state import SMALL
from cgpipe.torch.subgraph import Part, are_apart, function_of
from cgpipe.torch.translator import (Constant, Loss, Outside, Parameter, Samples, Translator,
                                     Unsupported, shape_of)
from cgpipe.torch.watch import CaptureError, TranslatorError, hooks_of, is_inside, name_of

__all__ = ["Nodes", "Unread", "attempt_alone", "attempt_with_fallback"]


class _Choice:
    """The modules that are opaque, which means that PyTorch runs them as a whole."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        #: Path of the whole module. If a loss was added, the engine computes the loss, which lies
        #: outside of this module.
        self.root = getattr(module, "path_of_module", "")
        self.modules: Dict[str, nn.Module] = {}
        #: Why a module was not captured.
        self.reasons: Dict[str, Finding] = {}
        #: All findings, in the order of the attempts.
        self.found: List[Finding] = []

    def add(self, paths: Sequence[str], findings: Sequence[Finding]) -> bool:
        """Make the modules at ``paths``, and all modules that are like them, opaque. Return whether
        there is a new opaque module."""
        self.found += findings
        before = set(self.modules)
        for path in paths:
            if not is_inside(path, [own for own in self.modules if own not in before]):
                self._add(path)
        for path in self.modules:
            own = [found for found in findings if is_inside(found.path, [path])]
            self.reasons.setdefault(path, own[0] if own else replace(findings[0], path=path))
        return set(self.modules) != before

    def _add(self, path: str) -> None:
        outer = next((own for own in self.modules if is_inside(path, [own])), None)
        if outer == "":
            return
        if outer is not None:  # the capture fails although the module is opaque
            path = outer.rpartition(".")[0]
        path = path or self.root
        found = self.module.get_submodule(path)
        while path and isinstance(found, (nn.ModuleList, nn.ModuleDict)):
            path = path.rpartition(".")[0]
            found = self.module.get_submodule(path)
        if any(getattr(child, "has_skips", False) for child in found.modules()):
            path, found = "", self.module
        for name, other in [(path, found), *self.module.named_modules()]:
            if name == path or (name and _alike(found, other)):
                self.modules[name] = other
        self._drop_inner()

    def raise_uncalled(self, called: Sequence[str]) -> bool:
        """If opaque modules are never called, make their parents opaque instead. Return whether
        there are such modules."""
        gone = [path for path in self.modules if path not in called]
        for path in gone:
            if self.modules.pop(path, None) is None:
                continue  # skip it: its parent is opaque
            if path:
                self._add(path.rpartition(".")[0])
            for name in self.modules:
                self.reasons.setdefault(name, self.reasons[path])
        return bool(gone)

    def _drop_inner(self) -> None:
        """Drop opaque modules that are inside of other opaque modules."""
        for path in list(self.modules):
            parts = path.split(".") if path else []
            outer = [".".join(parts[:i]) for i in range(len(parts))]
            if any(name in self.modules for name in outer):
                del self.modules[path]


def _alike(a: nn.Module, b: nn.Module) -> bool:
    """Return whether two modules are so alike that the same reason stops the capture of both."""
    if (type(a) is not type(b) or hooks_of(a) != hooks_of(b)
            or isinstance(a, (nn.Sequential, nn.ModuleList, nn.ModuleDict))):
        return False
    return not type(a).__module__.startswith("torch.nn") or (
        not list(a.children()) and repr(a) == repr(b))


def attempt_alone(module: nn.Module, flat: nn.Module, examples: Sequence[Tensor],
                  attempt: Callable[[Sequence[str]], Any]) -> Any:
    """Return ``attempt(())``.

    Raises:
        CaptureError: The capture fails. Exceptions that the module's own forward raises are not
            caught.
    """
    try:
        return attempt(())
    except (CaptureError, TranslatorError):
        raise
    except Exception as error:
        record(module, {}, flat, examples)  # raises the module's own exception
        found = untraceable(module, error)
        raise CaptureError(found, [found.path]) from error


def attempt_with_fallback(module: nn.Module, flat: nn.Module, examples: Sequence[Tensor],
                          attempt: Callable[[Sequence[str]], Any],
                          failed: Optional[CaptureError] = None,
                          found: Optional[List[Finding]] = None) -> Any:
    """Return ``attempt(opaque)``: a capture in which calls of opaque modules are nodes. While it
    fails, more modules become opaque. ``failed`` is the error of a first capture. The reasons of
    all failures are added to ``found``.

    Raises:
        CaptureError: No further module can become opaque. Exceptions that the module's own forward
            raises are not caught.
    """
    choice, first = _Choice(module), failed
    choice.found = [] if found is None else found
    if failed is not None:
        _add(choice, failed, failed.paths, failed)
    while True:
        try:
            calls = record(module, choice.modules, flat, examples) if choice.modules else {}
        except CaptureError as error:
            _add(choice, error, error.paths, first)
            continue
        if choice.raise_uncalled(list(calls)):
            continue
        for call in (call for entries in calls.values() for call in entries):
            call.reason = choice.reasons.get(call.path, call.reason)
        try:
            with traced(choice.modules, calls):
                return attempt(list(choice.modules))
        except CaptureError as error:
            first = first or error
            _add(choice, error, error.paths, first)
        except TranslatorError:
            raise
        except Exception as error:
            # Either the trace or the module itself has failed. If it is the module, record() raises
            # the module's exception.
            reason = untraceable(module, error)
            if not choice.add([reason.path], [reason]):
                raise CaptureError(reason) from error


def _add(choice: _Choice, error: CaptureError, paths: Sequence[str],
         first: Optional[CaptureError]) -> None:
    """Make more modules opaque. If there are none to add, raise the first error, because it has the
    real reason."""
    if choice.add(paths, error.findings):
        return
    if first is None or str(first) == str(error):
        raise error
    raise CaptureError(f"{first} (and PyTorch cannot run it inside the pipeline: {error})",
                       findings=error.findings) from error


class Unread(Exception):
    """A subgraph cannot read the result of a node."""

    def __init__(self, node: Any) -> None:
        super().__init__(str(node))
        self.node = node


class Nodes:
    """Makes the nodes of regions in a graph."""

    def __init__(self, t: Translator, module: nn.Module) -> None:
        self.t, self.regions = t, Regions(t.training)
        self._names: Dict[int, str] = {}
        for name, p in module.named_parameters():
            self._names[id(p)] = name
        self._module = module
        #: For each region, the nodes of its carriers, and the region's own node.
        self._nodes: List[List[Any]] = []
        #: For each region that is a part of a module, the region's function, and the reason why the
        #: engine does not run it.
        self.parts: List[Tuple[Part, CaptureError]] = []

    def add(self, key: int, inputs: Sequence[Any]) -> List[Value]:
        """Add the node for a call of an opaque module; return the results."""
        region = self._region(CALLS[key], inputs)
        return self._add(region, [self._input(x) for x in inputs if not _is_fixed(x)])

    def add_subgraph(self, subgraph: Subgraph, env: Dict[Any, Any]) -> List[Value]:
        """Add the node for a subgraph, whose arguments are in ``env``; return the results.

        Raises:
            Unread: The subgraph cannot read one of its arguments.
        """
        inputs, read, fixed = [], [], {}
        for node in subgraph.arguments:
            x = env[node]
            if isinstance(x, Samples):
                continue
            if isinstance(x, Loss):
                raise Unread(node)
            if _is_fixed(x) or not isinstance(x, (Value, Scores, Outside, Constant)):
                fixed[node] = x.tensor if _is_fixed(x) else x
                continue
            try:
                read.append(self._input(x))
            except (Unsupported, Unlike, MixesSamples) as error:
                raise Unread(node) from error
            inputs.append(node)
        if not inputs:
            raise Unsupported("tensors with samples as arguments")
        tensors = dict(self._module.named_parameters(remove_duplicate=False))
        parameters = [tensors[env[node].name] for node in subgraph.parameters]
        function = function_of(subgraph, inputs, fixed, parameters)
        region = Region(subgraph.path, self._module.get_submodule(subgraph.path), function, [],
                        [output_operand(shape_of(node.meta["val"].shape))
                         for node in subgraph.outputs],
                        list({id(p): (self._names[id(p)], p) for p in parameters
                              if p.requires_grad}.values()),
                        [], False, [], [], False, False, subgraph.error.findings[0], self.regions,
                        only=list(dict.fromkeys(
                            name_of(n) for n in subgraph.nodes if name_of(n) != "getitem")),
                        reduced=any(is_reduced(n.meta.get("val")) for n in subgraph.nodes))
        self.regions.all.append(region)
        part = Part(function, inputs, subgraph.outputs, parameters, list(fixed.values()))
        self.parts.append((part, subgraph.error))
        return self._add(region, read)

    def _add(self, region: Region, inputs: Sequence[Tuple[int, Operand]]) -> List[Value]:
        room = MAX - (len(region.parameters) > MAX)
        if not inputs:
            raise Unsupported("a tensor with samples as an argument")
        values, region.inputs, region.slots = pack(self.t.graph, inputs, room)
        if len(values) > room:
            raise Unsupported(f"at most {room - 1} integer tensors among more than {room} with "
                              "samples as arguments")
        self._nodes.append([])
        values += self._carriers(-(-len(region.parameters) // MAX) - 1)
        return self._outputs(region, values)

    def _carriers(self, number: int) -> List[int]:
        """Add ``number`` nodes, called carriers, for the parameters that do not fit into the
        region's own op. Return a list with the token of the last carrier; [] if there is none."""
        if number <= 0:
            return []
        token = self.t._add_hidden("i32", Layout.of_shape([]), rows=torch.zeros(1, 1).int())
        for _ in range(number):
            token = self.t.graph.add("", [token], [1])
            self._nodes[-1].append(self.t.graph.nodes[-1])
        return [token]

    def _region(self, call: Call, inputs: Sequence[Any]) -> Region:
        fixed = [x.tensor if _is_fixed(x) else None for x in inputs]

        def function(given: Sequence[Tensor]) -> List[Tensor]:
            left = list(given)
            return call([left.pop(0) if x is None else x for x in fixed])
        parameters = [(self._names[id(p)], p) for p in call.module.parameters() if p.requires_grad]
        # Include all small buffers, because forward may later write to a buffer to which it did not
        # write for the example.
        buffers = [b for name, b in call.module.named_buffers()
                   if name in call.buffers or b.numel() <= SMALL]
        writes = [sum(x is None for x in fixed[:i]) for i in call.writes]
        region = Region(call.path, call.module, function, [],
                        [output_operand(shape) for shape in call.shapes], parameters,
                        buffers, bool(call.buffers), call.attributes, writes, call.draws,
                        call.mixes, call.reason, self.regions, scales=call.scales,
                        has_gradient=any(call.requires), flops=call.flops, reduced=call.reduced)
        self.regions.all.append(region)
        self.t.has_dropout |= call.draws
        return region

    def _input(self, x: Any) -> Tuple[int, Operand]:
        if isinstance(x, Parameter):
            raise Unsupported("no parameter of another module as an argument")
        if isinstance(x, (Value, Scores)):
            value = self.t.whole(x)
            return value.number, Operand(value.layout)
        dtype = x.dtype if isinstance(x, Outside) else x.tensor.dtype
        if dtype.is_floating_point:
            value = self.t.value(x)
            return value.number, Operand(value.layout)
        number, layout = self.t.integers(x)
        return number, Operand(layout, dtype)

    def _outputs(self, region: Region, values: List[int]) -> List[Value]:
        graph, operands = self.t.graph, region.outputs
        shapes = [[a.size for a in operand.layout.order] or [1] for operand in operands]
        total = sum(operand.elements for operand in operands)
        if len(operands) == 1 and len(shapes[0]) > 5:
            raise Unsupported("a result of at most 5 dimensions")
        number = graph.add("", values, shapes[0] if len(operands) == 1 else [total])
        if region.parameters:
            graph.trained.add(number)
        self._nodes[-1].append(graph.nodes[-1])
        if len(operands) == 1:
            return [Value(number, operands[0].layout)]
        number, first, found = graph.reshape(number, [1, total, 1]), 0, []
        for operand, shape in zip(operands, shapes):
            end = first + operand.elements
            part = graph.add("slice", [number], [1, operand.elements, 1],
                             {"dim": [1, 0], "begin": first, "end": end})
            found.append(Value(graph.reshape(part, shape), operand.layout))
            first = end
        return found

    def check(self, program: Any, examples: Sequence[Tensor]) -> None:
        """Raise unless the parts of modules compute each sample independently of the others."""
        apart = are_apart([part for part, _ in self.parts], program, self._module, examples)
        for (_, error), is_apart in zip(self.parts, apart):
            if not is_apart:
                raise error

    def finish(self) -> Regions:
        """Complete the nodes of regions, after all other nodes have declared their parameters."""
        declared = {}
        tensors = dict(self._module.named_parameters(remove_duplicate=False))
        for name in self.t.orders:
            declared[id(tensors[name])] = name
        for i, (region, nodes) in enumerate(zip(self.regions.all, self._nodes)):
            used = {id(p) for other in self.regions.all if other is not region
                    for p in ([p for _, p in other.parameters] if other.only
                              else other.module.parameters())} | set(declared)
            if any(id(p) in used for p in region.scaled):
                raise CaptureError(f"{region.path or 'the module itself'}: Embedding: max_norm is "
                                   "covered where the module is called once and shares no weight")
            self._finish(i, region, nodes, declared)
        return self.regions

    def _finish(self, i: int, region: Region, nodes: List[Any], declared: Dict[int, str]) -> None:
        numbers, orders = [], []
        region.parameters = [(declared.get(id(p), name), p) for name, p in region.parameters]
        for name, p in region.parameters:
            shape = self.t.orders[name][0] if name in self.t.orders else list(p.shape) or [1]
            numbers.append(self.t.parameter(Parameter(name, list(p.shape)), shape,
                                            decays=p.dim() > 1))
            orders.append((shape, self.t.orders[name][1]))
        names = [f"torch {i}.{k}: {region.path}" for k in range(len(nodes))]
        for k, node in enumerate(nodes):
            del node["op"]
            first = MAX * (len(nodes) - 1 - k)
            node["custom"] = names[k]
            if numbers:
                node["parameters"] = numbers[first:first + MAX]
        region.make_ops(names, orders)


def _is_fixed(x: Any) -> bool:
    return isinstance(x, Constant) and x.samples is None
