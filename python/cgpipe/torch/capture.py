# SPDX-License-Identifier: Apache-2.0
"""Capture an nn.Module: translate a functional graph of aten ops, node by node, to a cgpipe graph.

    module --> export --> functional graph --> Translator --> graph, and nodes that stay in PyTorch

A tensor without the dimension of the samples is the same for all samples. Each node is translated,
evaluated by PyTorch, or refused."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Sequence, Set, Tuple

import torch
from torch import Tensor, nn

from cgpipe.torch import (elementwise, functions, losses, norms,  # noqa: F401  they register ops
                          proof, views)
from cgpipe.torch.attention import Positions, Scores
from cgpipe.torch.captured import Captured, Named
from cgpipe.torch.convex import Plan, Subgraph, is_skipped, reads_state, stateful_nodes
from cgpipe.torch.evaluate import Evaluator
from cgpipe.torch.export import Flat, Program, export, flatten, message, two_samples
from cgpipe.torch.fallback import Nodes, Unread, attempt_with_fallback
from cgpipe.torch.graph import Value
from cgpipe.torch.norms import Statistic
from cgpipe.torch.layout import BATCH, Layout, MixesSamples, Unlike
from cgpipe.torch.opaque import CALLS
from cgpipe.torch.ops import OPS, names
from cgpipe.torch.patterns import find_patterns
from cgpipe.torch.places import BEFORE, ENGINE, ONCE, TORCH, Place, is_added, place_of
from cgpipe.torch.region import output_operand
from cgpipe.torch.regions import Regions
from cgpipe.torch.state import Tensors
from cgpipe.torch.translator import (Constant, Loss, Outside, Parameter, Samples, Translator,
                                     Unsupported, nearest, shape_of)
from cgpipe.torch.watch import CaptureError, name_of, path_of

__all__ = ["CaptureError", "Captured", "Named", "capture"]


# --- layers ---


class _Layers:
    """The modules at which a stage may begin: the children of an nn.Sequential, else the elements
    of lists and sequences of modules."""

    def __init__(self, module: nn.Module, cut_at: Optional[Sequence[str]]) -> None:
        self.names: List[str] = []
        if cut_at is not None:
            self.names = list(cut_at)
        elif isinstance(module, nn.Sequential):
            self.names = [name for name, _ in module.named_children()]
        else:
            self._descend(module, "")

    def _descend(self, module: nn.Module, path: str) -> None:
        for name, child in module.named_children():
            own = f"{path}.{name}" if path else name
            lists = (nn.ModuleList, nn.ModuleDict)
            if (isinstance(child, (nn.Sequential, *lists))
                    or any(isinstance(m, lists) for m in child.modules())):
                self._descend(child, own)
            else:
                self.names.append(own)

    def of(self, path: str) -> Optional[str]:
        """Return the layer of a module by its path."""
        while path and path not in self.names:
            path = path.rpartition(".")[0]
        return path or None


def check_cuts(module: nn.Module, cut_at: Optional[Sequence[str]]) -> None:
    """Raise unless all of ``cut_at`` are paths of modules in ``module``."""
    if isinstance(cut_at, str):
        raise TypeError(f"cut_at: a list of paths is expected, got {cut_at!r}")
    known = [path for path, _ in module.named_modules() if path]
    for path in cut_at or ():
        if path not in known:
            near = nearest(path, known)
            raise CaptureError(f"cut_at: {path}: the module has none of this path"
                               + (f" (did you mean {near}?)" if near else ""))


# --- translation ---

class _Walk:
    """Translates the nodes of an exported program in order. ``plan``: the nodes that PyTorch runs;
    None: it runs none."""

    def __init__(self, t: Translator, layers: _Layers, evaluator: Evaluator, regions: Nodes,
                 plan: Optional[Plan]) -> None:
        self.t, self.layers, self.evaluator, self.regions = t, layers, evaluator, regions
        self.plan = plan
        self.stateful: Set[Any] = set()
        self.env: Dict[Any, Any] = {}
        self.places: List[Place] = []
        #: Why nodes could not be translated, and those of them that the plan has taken.
        self.refused: Dict[Any, CaptureError] = {}
        self.taken: Set[Any] = set()

    def run(self, module: Any, patterns: Dict[Any, Tuple[str, List[Any]]],
            absorbed: Set[Any]) -> Any:
        """Translate a graph; return its output."""
        for unit in module.graph.nodes if self.plan is None else self.plan.units():
            if isinstance(unit, Subgraph):
                self._add_subgraph(unit)
            elif unit.op == "output":
                return None if self.refused else self._argument(unit.args[0])
            elif unit not in absorbed and unit not in self.env:
                self._translate(module, unit, patterns)
        return None

    def _translate(self, module: Any, node: Any,
                   patterns: Dict[Any, Tuple[str, List[Any]]]) -> None:
        self.t.node = node
        layer = self.layers.of(path_of(node))
        missing = next((x for x in node.all_input_nodes if x in self.refused
                        and x not in self.env), None)
        if missing is not None and not is_skipped(node):
            self._refuse(node, self.refused[missing], missing in self.taken)
            return
        try:
            if node.op == "get_attr":
                self.env[node] = _attribute(module, node.target)
            elif node in patterns:
                name, arguments = patterns[node]
                self._begin(layer)
                self.env[node] = OPS[name](self.t, *[self._argument(a) for a in arguments])
                self.places.append(place_of(node, ENGINE, op=name))
            else:
                self._visit(node, layer)
        except (Unsupported, Unlike, MixesSamples) as error:
            self._refuse(node, _error(node, error), isinstance(error, Unsupported))

    def _refuse(self, node: Any, error: CaptureError, certain: bool = True) -> None:
        """Leave a node to PyTorch, and go on with a value in its place, to find more of them. An
        error that is not certain may be due to a node that the next walk leaves to PyTorch."""
        if self.plan is None:
            raise error
        if certain or not self.refused:
            if not self.plan.refuse(node, error):
                raise error
            self.taken.add(node)
        self.refused[node] = error
        self.env.pop(node, None)
        if self.plan.facts.is_carried(node):
            layout = output_operand(shape_of(node.meta["val"].shape)).layout
            self.env[node] = self.t.graph.input("a result of PyTorch", "f32", layout)

    def _add_subgraph(self, subgraph: Subgraph) -> None:
        self._begin(subgraph.layer)
        missing = [x for x in subgraph.arguments if x in self.refused and x not in self.env]
        try:
            if missing:
                raise Unread(missing[0])
            found = self.regions.add_subgraph(subgraph, self.env)
        except Unread as error:
            self._refuse(error.node, subgraph.error)
            return
        except (Unsupported, Unlike, MixesSamples):
            raise subgraph.error from None
        self.env.update(zip(subgraph.outputs, found))
        self.places += [place_of(node, TORCH, str(subgraph.error)) for node in subgraph.nodes
                        if name_of(node) != "getitem"]

    def _begin(self, layer: Optional[str]) -> None:
        if layer is not None:
            self.t.graph.layer(layer)

    def _argument(self, x: Any) -> Any:
        return (torch.fx.node.map_arg(x, lambda n: self.env[n])
                if isinstance(x, (torch.fx.Node, list, tuple)) else x)

    def _visit(self, node: Any, layer: Optional[str]) -> None:
        name = name_of(node)
        if is_skipped(node):
            return
        if name == "sym_size" and node.args[0] not in self.env:
            self.env[node] = Samples(2)
            return
        if name == "getitem":
            container = self.env[node.args[0]]
            self.env[node] = (container[node.args[1]] if isinstance(container, (list, tuple))
                              else self._evaluate(node))
            return
        arguments = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: self.env[n])
        if node.target is torch.ops.cgpipe.region.default:
            self._begin(layer)
            self.env[node] = self.regions.add(node.args[1], arguments[0][0])
            call = CALLS[node.args[1]]
            self.places.append(Place(call.path, type(call.module).__name__, "", TORCH, call.reason))
            return
        leaves = [x for x in torch.utils._pytree.tree_leaves(
            arguments, is_leaf=lambda x: x is None)]
        live = [x for x in leaves if isinstance(x, (Value, Scores, Positions, Parameter, Loss))]
        if not live:
            self.env[node] = self._evaluate(node, leaves)
            where = {Outside: BEFORE, Constant: ONCE}.get(type(self.env[node]))
            if where is not None:
                self.places.append(place_of(node, where))
            return
        self._begin(layer)
        if name == "sym_size":
            self.env[node] = (Samples(2) if node.meta["val"].__class__ is not int
                              else node.meta["val"])
            return
        if name not in OPS:
            raise self._unknown(name)
        if reads_state(node, self.stateful):
            raise Unsupported("a buffer that forward does not write to")
        args, kwargs = arguments
        self.env[node] = OPS[name](self.t, *args, **kwargs)
        _check_result(node, self.env[node])
        if not is_added(node):
            self.places.append(place_of(node, ENGINE))

    def _unknown(self, base: str) -> Unsupported:
        near = nearest(base, names())
        return Unsupported(f"{near} (nearest of {len(names())} ops; docs/reference/torch-ops.md "
                           "has all)" if near
                           else "none like it of the ops in docs/reference/torch-ops.md")

    def _evaluate(self, node: Any, leaves: Sequence[Any] = ()) -> Any:
        """Evaluate a node that depends only on constants, or defer a node that depends on integer
        inputs."""
        value = node.meta.get("val")
        if isinstance(value, (torch.SymInt, int)) and not isinstance(value, bool):
            return (Samples(int(self.evaluator.example(node)))
                    if isinstance(value, torch.SymInt) else value)
        if any(isinstance(x, Outside) for x in leaves) or (
                name_of(node) == "getitem" and isinstance(self.env[node.args[0]], Outside)):
            if isinstance(value, Tensor):
                return Outside(node, shape_of(value.shape), value.dtype)
            return [Outside(_Item(node, i), shape_of(x.shape), x.dtype)
                    for i, x in enumerate(value)]
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            raise Unsupported("a random tensor: only dropout")
        found = self.evaluator.example(node)
        batched = isinstance(value, Tensor) and any(batch for batch, _ in shape_of(value.shape))
        if isinstance(found, Tensor):
            return Constant(found, batched)
        if isinstance(found, (list, tuple)):
            return [Constant(x, batched) for x in found]
        return found


class _Item:
    """Element ``index`` of a node's result."""

    def __init__(self, node: Any, index: int) -> None:
        self.node, self.index = node, index


def _error(node: Any, error: Exception) -> CaptureError:
    """Return the exception for a node that is not covered."""
    text = (f"{error} is covered" if isinstance(error, Unsupported) else
            f"{error}: not covered here" if isinstance(error, Unlike) else
            "mixes samples: dimension 0 is theirs, and stays in front")
    path = path_of(node)
    return CaptureError(message(path, node, text), [path])


def _check_result(node: Any, result: Any) -> None:
    """Raise unless a result has the type and the shape of PyTorch's."""
    value = node.meta.get("val")
    if not isinstance(result, Value) or not isinstance(value, Tensor):
        return
    if value.dtype != torch.float32:
        raise Unsupported(f"{str(value.dtype).replace('torch.', '')} is computed: only float32")
    found = [(BATCH in dim, size) for dim, size in zip(result.layout.dims, result.layout.sizes())]
    if found != shape_of(value.shape):
        raise Unsupported(f"a result of shape {found}")


def _attribute(module: Any, target: str) -> Any:
    for part in target.split("."):
        module = getattr(module, part)
    return Constant(module) if isinstance(module, Tensor) else module


# --- capture ---


def capture(module: nn.Module, example_inputs: Sequence[Any],
            example_kwargs: Optional[Dict[str, Any]] = None, *,
            cut_at: Optional[Sequence[str]] = None, name: Optional[str] = None,
            verify: Optional[bool] = None, fallback: bool = True) -> Captured:
    """Capture a module in its current mode, training or evaluation.

    Args:
        module: The module, with f32 parameters on the CPU.
        example_inputs: Positional inputs: tensors [N, ...] for any N, or structures of them, which
            require a gradient as in the steps.
        example_kwargs: Inputs by name.
        cut_at: Paths of the modules at which a stage may begin. None: the children of an
            nn.Sequential; else the elements of lists and sequences, and the modules beside them.
        name: Name of the model.
        verify: Prove the capture: compare two small steps with PyTorch's (proof.py). None: unless
            CGPIPE_VERIFY=0 is in the environment.
        fallback: Let PyTorch run the modules that cannot be captured. False: refuse them.

    Raises:
        CaptureError: Something is not supported. Exceptions that the module's own forward raises
            are not caught.
    """
    check_cuts(module, cut_at)
    leaves, spec = torch.utils._pytree.tree_flatten(
        (tuple(example_inputs), dict(example_kwargs or {})))
    places = [i for i, x in enumerate(leaves) if isinstance(x, Tensor)]
    if not places:
        raise CaptureError("example: at least one tensor [N, ...] is expected, got none")
    examples = [two_samples(leaves[i]) for i in places]
    least = min(x.shape[0] for x in examples)
    examples = [x[:least] for x in examples]
    flat = flatten(module, spec, places, [None if isinstance(x, Tensor) else x for x in leaves])
    flat.training = module.training  # the mode of this module alone: its parts may differ
    flat.wants = [leaves[i].is_floating_point() and leaves[i].requires_grad for i in places]

    def attempt(opaque: Sequence[str]) -> Captured:
        program = export(module, flat, examples, opaque)
        return _translate(program, flat, module, examples, cut_at, name or type(module).__name__,
                          fallback)
    captured = attempt_with_fallback(module, flat, examples, attempt) if fallback else attempt(())
    if proof.wanted(verify):
        try:
            captured.proof = proof.prove(flat, captured, examples)
        except CaptureError as error:
            if not fallback or not error.paths:
                raise
            captured = attempt_with_fallback(module, flat, examples, attempt, error)
            captured.proof = proof.prove(flat, captured, examples)
    captured.regions.restart_times()
    return captured


def _walk(program: Program, module: nn.Module, examples: Sequence[Tensor],
          cut_at: Optional[Sequence[str]], name: str,
          fallback: bool) -> Tuple[_Walk, List[Optional[Layout]], Any]:
    """Translate the nodes of a program; return the walk, the layouts of inputs, and the outputs.
    While nodes are refused that PyTorch can run, it begins again with their regions."""
    graph_module = program.exported.graph_module
    evaluator, layers = Evaluator(graph_module, examples), _Layers(module, cut_at)
    patterns, absorbed = find_patterns(graph_module.graph)
    plan = Plan(program.exported, layers.of, {*patterns, *absorbed}) if fallback else None
    stateful = stateful_nodes(program.exported)
    while True:
        t = Translator(name, module.training, OPS)
        walk = _Walk(t, layers, evaluator, Nodes(t, module), plan)
        walk.stateful = stateful
        layouts = _placeholders(program.exported, walk, examples)
        found = walk.run(graph_module, patterns, absorbed)
        if not walk.refused:
            break
        if plan is None or not plan.changed:
            raise next(iter(walk.refused.values()))
    if walk.regions.parts:
        walk.regions.check(program.exported, examples)
    return walk, layouts, found


def _translate(program: Program, flat: Flat, module: nn.Module, examples: Sequence[Tensor],
               cut_at: Optional[Sequence[str]], name: str, fallback: bool) -> Captured:
    walk, layouts, found = _walk(program, module, examples, cut_at, name, fallback)
    t, regions, evaluator = walk.t, walk.regions, walk.evaluator
    used = list(found) if isinstance(found, (list, tuple)) else [found]
    outputs, out_layouts = _outputs(t, program.exported, used)
    found_regions = regions.finish()
    _prune(t, found_regions)
    if module.training:
        _check_states(t.graph.states, program.exported)
    graph = t.graph.json()
    shapes = {key: tuple(p.shape) for key, p in module.named_parameters(remove_duplicate=False)}
    parameters = [Named(p["name"], shapes[p["name"]], t.orders[p["name"]][1])
                  for p in graph["parameters"]]
    state_shapes = {key: tuple(b.shape) for key, b in module.named_buffers(remove_duplicate=False)}
    states = [Named(s, state_shapes[s]) for s in t.graph.states]
    captured = Captured(graph, parameters, states, module.training, t.has_dropout, t.has_batch_norm,
                        layouts, t.hidden, outputs, out_layouts, evaluator, _unflattener(flat),
                        program.guard, _tensors(program.exported, module, states), found_regions,
                        walk.places)
    captured.wants = flat.wants
    _find_requires(captured, t.graph.nodes, module)
    _check_outside(captured, evaluator, examples)
    trained = {key for key, p in module.named_parameters(remove_duplicate=False) if p.requires_grad}
    name_of_target = captured.trained_target(trained)
    if name_of_target is not None:
        raise CaptureError(f"{name_of_target}: the target of a loss depends on this parameter, "
                           "which gets no gradient from there (detach() the target)")
    evaluator.forget(everything=all(h.outside is None for h in t.hidden))
    return captured


def _find_requires(captured: Captured, nodes: Sequence[Any], module: nn.Module) -> None:
    """Find the inputs of regions that require a gradient, as some code asks for."""
    of_inputs = [w for w, layout in zip(captured.wants, captured.inputs) if layout is not None]
    found = {entry["value"] for entry, want in zip(captured.graph["inputs"], of_inputs) if want}
    trained = {key for key, p in module.named_parameters(remove_duplicate=False) if p.requires_grad}
    regions = {region.ops[-1].name.decode(): region for region in captured.regions.all}
    for node in nodes:
        region = regions.get(node.get("custom"))
        if region is not None:
            region.requires = [x in found for x in node["inputs"]]
        parameters = (captured.parameters[p].name for p in node.get("parameters", ()))
        if node.get("op") not in ("detach", "argmax") and (
                not found.isdisjoint(node["inputs"]) or not trained.isdisjoint(parameters)):
            found.add(node["output"])


def _prune(t: Translator, regions: Regions) -> None:
    """Remove nodes whose results are unused.

    Raises:
        CaptureError: One of them would change buffers or attributes.
    """
    names = {node.get("custom") for node in t.graph.prune()}
    if any(name not in t.graph.states for name in t.state_names):
        missing = next(name for name in t.state_names if name not in t.graph.states)
        owner = missing.rpartition(".")[0]
        raise CaptureError(f"{missing}: batch_norm whose result is used is covered",
                           [owner.rpartition(".")[0]])
    unused = [region for region in regions.all if region.ops[-1].name.decode() in names]
    for region in unused:
        if region.writes_buffers or region.attributes or region.scales:
            raise CaptureError(f"{region.path}: forward changes its buffers or attributes, and its "
                               "result is unused, which is not covered",
                               [region.path.rpartition(".")[0]])
        regions.all.remove(region)


def _tensors(program: Any, module: nn.Module, states: Sequence[Named]) -> Tensors:
    """Return the tensors of the module that the graph reads as constants."""
    kinds = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
    own = {state.name for state in states}
    tensors = Tensors()
    for node in program.graph_module.graph.nodes:
        spec = kinds.get(node.name) if node.op == "placeholder" and node.users else None
        if spec is not None and spec.kind.name in ("BUFFER", "CONSTANT_TENSOR"):
            name = (spec.target or "").replace("module.", "", 1)
            if name not in own:
                tensors.add(module, name)
    return tensors


def _placeholders(program: Any, walk: _Walk, examples: Sequence[Tensor]) -> List[Optional[Layout]]:
    """Map the placeholders of the program to inputs, parameters and buffers; return the inputs'
    layouts."""
    kinds = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
    layouts: List[Optional[Layout]] = []
    for node in program.graph_module.graph.nodes:
        if node.op != "placeholder":
            continue
        spec = kinds[node.name]
        kind, target = spec.kind.name, (spec.target or "").replace("module.", "", 1)
        if kind == "PARAMETER":
            walk.env[node] = Parameter(target, node.meta["val"].shape)
            walk.evaluator.set(node, None)
        elif kind in ("BUFFER", "CONSTANT_TENSOR"):
            tensor = program.state_dict.get(spec.target)
            tensor = program.constants.get(spec.target) if tensor is None else tensor
            if tensor.requires_grad:
                raise CaptureError(f"{target}: a tensor that requires a gradient and is no "
                                   "parameter is not covered (register it as a parameter)")
            walk.env[node] = Constant(tensor.detach(), buffer=target)
            walk.evaluator.set(node, tensor.detach().clone())
        elif kind == "USER_INPUT":
            layouts.append(_real_input(walk, node, len(layouts), examples[len(layouts)]))
        else:
            raise CaptureError(f"{node.name}: an input of the kind {kind.lower()} is not covered")
    return layouts


def _real_input(walk: _Walk, node: Any, index: int, example: Tensor) -> Optional[Layout]:
    shape = shape_of(node.meta["val"].shape)
    if not shape or shape[0] != (True, 1) or any(batch for batch, _ in shape[1:]):
        raise CaptureError(f"input {index}: dimension 0 is that of the samples, of any number; the "
                           f"module takes {list(example.shape)}")
    sizes = [size for _, size in shape[1:]]
    walk.evaluator.set_input(node, index)
    if example.is_floating_point() and example.dtype != torch.float32:
        raise CaptureError(f"input {index}: float32 is expected, got "
                           f"{str(example.dtype).replace('torch.', '')}")
    layout = Layout.of_shape(
        sizes, [1, 2, 0] if len(sizes) == 3 and example.is_floating_point() else None)
    dtype = "f32" if example.is_floating_point() else "i32"
    value = walk.t.graph.input(f"input {index}", dtype, layout)
    if example.is_floating_point():
        walk.env[node] = value
    else:
        walk.env[node] = Outside(node, shape, example.dtype)
        walk.t.real[node] = value.number
    return layout


def _check_mutation(spec: Any, result: Any) -> None:
    """Raise unless a tensor that forward writes to is a statistic of a batch norm."""
    if spec.kind.name == "BUFFER_MUTATION":
        target = spec.target.replace("module.", "", 1)
        counter = target.rpartition(".")[2] == "num_batches_tracked"
        if not isinstance(result, Statistic) and not (counter and isinstance(result, Constant)):
            raise CaptureError(f"{target}: forward writes to this buffer; only the running "
                               "statistics of batch norms are covered", [target.rpartition(".")[0]])
    elif spec.kind.name not in ("USER_OUTPUT", "TOKEN"):
        raise CaptureError("forward writes to its input: not covered (write to a clone)")


def _check_states(states: Sequence[str], program: Any) -> None:
    """Raise unless forward writes to all running statistics of batch norms, which the engine
    does."""
    specs = program.graph_signature.output_specs
    written = {spec.target.replace("module.", "", 1) for spec in specs
               if spec.kind.name == "BUFFER_MUTATION"}
    for name in states:
        if name not in written:
            raise CaptureError(f"{name}: batch_norm whose forward writes to this buffer, like "
                               "nn.BatchNorm's, is covered", [name.rpartition(".")[0]])


def _outputs(t: Translator, program: Any,
             found: Sequence[Any]) -> Tuple[List[Tuple[str, int]], List[Layout]]:
    """Return the kind and index of each output of the module, and the layouts of the graph's
    outputs, where each value appears once."""
    outputs: List[Tuple[str, int]] = []
    layouts: List[Layout] = []
    specs = program.graph_signature.output_specs
    for spec, x in zip(specs, found):
        _check_mutation(spec, x)
    found = [x for spec, x in zip(specs, found) if spec.kind.name == "USER_OUTPUT"]
    of_inputs = {entry["value"] for entry in t.graph.inputs}
    places: Dict[int, int] = {}
    for i, x in enumerate(found):
        if isinstance(x, Loss):
            for term in x.terms:
                t.graph.loss(term.op, term.inputs, term.attributes, term.weight)
            outputs.append(("loss", len(t.graph.losses) - 1))
            continue
        try:
            value = t.whole(x)
        except (Unsupported, Unlike) as error:
            raise CaptureError(f"output {i}: {error} is expected", [""]) from None
        if not value.layout.dims or value.layout.dims[0][:1] != (BATCH,):
            raise CaptureError(
                f"output {i}: a tensor [N, ...] is expected, dimension 0 that of the samples",
                [""])
        number = value.number
        if number in of_inputs:  # an output that is an input: copy it with one more node
            number = t.graph.add("reshape", [number], t.graph.shape(number),
                                 _same_shape(t.graph.shape(number)))
        if number in places and layouts[places[number]].dims == value.layout.dims:
            outputs.append(("output", places[number]))
            continue
        if number in places:
            number = t.graph.add("reshape", [number], t.graph.shape(number),
                                 _same_shape(t.graph.shape(number)))
        places[number] = len(layouts)
        outputs.append(("output", len(layouts)))
        layouts.append(value.layout)
        t.graph.outputs.append(number)
    return outputs, layouts


def _same_shape(shape: List[int]) -> Dict[str, Any]:
    return {"rank": len(shape), "dims": (shape + [0] * 6)[:6]}


def _unflattener(flat: Flat) -> Callable[[Sequence[Any]], Any]:
    spec, leaves = flat.form.spec, list(flat.form.leaves)

    def unflatten(tensors: Sequence[Any]) -> Any:
        left = list(tensors)
        return torch.utils._pytree.tree_unflatten(
            [left.pop(0) if x is None else x for x in leaves], spec)
    return unflatten


def _check_outside(captured: Captured, evaluator: Evaluator, examples: Sequence[Tensor]) -> None:
    """Refuse integers of a sample that depend on another sample."""
    nodes = [h.outside.node for h in captured.hidden if h.outside is not None]
    if not nodes:
        return
    whole = evaluator.run(nodes, list(examples))
    for i in range(examples[0].shape[0]):
        alone = evaluator.run(nodes, [x[i:i + 1] for x in examples])
        for node in nodes:
            rows = alone[node].shape[0]
            if not torch.equal(alone[node], whole[node][i * rows:(i + 1) * rows]):
                raise CaptureError("integers that are computed from the inputs mix samples: "
                                   "dimension 0 is theirs")


