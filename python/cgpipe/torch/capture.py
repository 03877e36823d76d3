# SPDX-License-Identifier: Apache-2.0
"""Capture an nn.Module: translate a functional graph of aten ops to a cgpipe graph.

    module --> export --> functional graph --> Walk --> graph, and nodes that stay in PyTorch

A tensor that has no dimension for the samples is the same for all samples. Each node is translated,
or evaluated by PyTorch, or refused."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch
from torch import Tensor, nn

from cgpipe.torch import (elementwise, functions, losses, norms,  # noqa: F401  they register ops
                          proof, views, volumes)
from cgpipe.torch.boundaries import chosen, cuts_of
from cgpipe.torch.captured import Captured, Named
from cgpipe.torch.convex import Plan, stateful_nodes
from cgpipe.torch.evaluate import Evaluator
from cgpipe.torch.examples import check_module, of_inputs, of_module
from cgpipe.torch.export import Flat, Program, export, flatten, two_samples
from cgpipe.torch.fallback import Nodes, attempt_alone, attempt_with_fallback
from cgpipe.torch.finding import Finding
from cgpipe.torch.norms import Statistic
from cgpipe.torch.lost import Lost, has_tensors
from cgpipe.torch.layout import BATCH, Layout, Unlike
from cgpipe.torch.ops import OPS
from cgpipe.torch.patterns import find_patterns
from cgpipe.torch.regions import Regions
from cgpipe.torch.state import Tensors
from cgpipe.torch.translator import (Constant, Loss, Outside, Parameter, Translator, Unsupported,
                                     shape_of)
from cgpipe.torch.walk import Layers, Walk, check_cuts, raise_fault
from cgpipe.torch.watch import CaptureError

__all__ = ["CaptureError", "Captured", "Named", "capture"]


def capture(module: nn.Module, example_inputs: Sequence[Any],
            example_kwargs: Optional[Dict[str, Any]] = None, *,
            cut_at: Optional[Sequence[str]] = None, name: Optional[str] = None,
            verify: Optional[bool] = None, fallback: bool = True,
            fixed_norms: bool = False) -> Captured:
    """Capture a module in its current mode, training or evaluation.

    Args:
        module: The module, with f32 parameters on the CPU.
        example_inputs: A tensor [N, ...], for any N, or the positional inputs: tensors or
            structures of tensors. An example must require a gradient if, and only if, the input
            will require a gradient in later steps.
        example_kwargs: Inputs by name.
        cut_at: Paths of the modules at which a stage may begin. None: the children of an
            nn.Sequential. For other modules: the elements of lists and sequences of modules, at any
            depth, and the siblings of these lists and sequences.
        name: Name of the model.
        verify: Prove the capture: compare two small steps with PyTorch (proof.py). None: prove it
            unless CGPIPE_VERIFY=0 is in the environment.
        fixed_norms: True: in evaluation, compute gradients through batch norms, whose statistics
            become constants of the graph.
        fallback: Let PyTorch run the modules that cannot be captured. False: refuse them.

    Raises:
        CaptureError: Something is not supported. Exceptions that the module's own forward raises
            are not caught.
    """
    check_module(module)
    check_cuts(module, cut_at)
    flat, examples = prepare(module, example_inputs, example_kwargs)
    flat.fixed_norms = fixed_norms

    fine = False

    def attempt(opaque: Sequence[str]) -> Captured:
        bounds = chosen(module, fine) if proof.wanted(verify) else {}
        program = export(module, flat, examples, opaque, bounds)
        try:
            return translate(program, flat, module, examples, cut_at, name or type(module).__name__,
                             fallback)
        except Exception as error:
            raise_fault(Finding(""), error)
    failed: Optional[CaptureError] = None
    while True:
        captured: Captured = (attempt_with_fallback(module, flat, examples, attempt, failed)
                              if fallback else attempt_alone(module, flat, examples, attempt))
        try:
            if proof.wanted(verify):
                captured.proof = proof.prove(flat, captured, examples, fine)
            captured.regions.restart_times()
            return captured
        except proof.Different:
            if fine:
                raise
            # Prove again with all boundaries: this proof passes, or names the module that differs.
            fine = True
        except CaptureError as error:
            if not fallback or not error.paths or failed is not None:
                raise
            failed = error


def prepare(module: nn.Module, example_inputs: Sequence[Any],
            example_kwargs: Optional[Dict[str, Any]]) -> Tuple[Flat, List[Tensor]]:
    """Return the module as a module of positional tensors, and example tensors that all have the
    same number of samples.

    Raises:
        CaptureError: The engine does not support an input or a parameter.
    """
    if isinstance(example_inputs, Tensor):
        example_inputs = (example_inputs,)
    found = [*of_inputs(example_inputs, example_kwargs), *of_module(module)]
    if found:
        raise CaptureError(found[0], findings=found)
    leaves, spec = torch.utils._pytree.tree_flatten(
        (tuple(example_inputs), dict(example_kwargs or {})))
    places = [i for i, x in enumerate(leaves) if isinstance(x, Tensor)]
    # An export fails on views, because it compares their strides with the strides of the viewed
    # tensor.
    examples = [two_samples(leaves[i]).clone(memory_format=torch.contiguous_format)
                for i in places]
    flat = flatten(module, spec, places, [None if isinstance(x, Tensor) else x for x in leaves])
    # Set only the mode of the flat module itself, because its parts may have other modes.
    flat.training = module.training
    flat.wants = [leaves[i].is_floating_point() and leaves[i].requires_grad for i in places]
    return flat, examples


def _walk(program: Program, module: nn.Module, examples: Sequence[Tensor],
          cut_at: Optional[Sequence[str]], name: str, fallback: bool,
          fixed_norms: bool) -> Tuple[Walk, List[Optional[Layout]], Any]:
    """Translate the nodes of a program; return the walk, the layouts of inputs, and the outputs.
    If the engine refuses nodes that PyTorch can run, begin again with these nodes as regions."""
    graph_module = program.exported.graph_module
    evaluator, layers = Evaluator(graph_module, examples), Layers(module, cut_at)
    patterns, absorbed = find_patterns(graph_module.graph)
    plan = Plan(program.exported, layers.of, {*patterns, *absorbed}) if fallback else None
    stateful = stateful_nodes(program.exported)
    while True:
        t = Translator(name, module.training, OPS)
        t.fixed_norms = fixed_norms
        walk = Walk(t, layers, evaluator, Nodes(t, module), plan)
        walk.stateful = stateful
        layouts = placeholders(program.exported, walk, examples)
        found = walk.run(graph_module, patterns, absorbed)
        if not walk.refused:
            break
        if plan is None or not plan.changed:
            raise next(iter(walk.refused.values()))
    if walk.regions.parts:
        walk.regions.check(program.exported, examples)
    return walk, layouts, found


def translate(program: Program, flat: Flat, module: nn.Module, examples: Sequence[Tensor],
              cut_at: Optional[Sequence[str]], name: str, fallback: bool) -> Captured:
    """Translate an exported program to a graph.

    Raises:
        CaptureError: A node is not covered.
    """
    walk, layouts, found = _walk(program, module, examples, cut_at, name, fallback,
                                flat.fixed_norms)
    t, regions, evaluator = walk.t, walk.regions, walk.evaluator
    used = list(found) if isinstance(found, (list, tuple)) else [found]
    outputs, out_layouts = _outputs(t, program.exported, used)
    if not outputs:
        raise CaptureError("outputs: at least one tensor [N, ...], or a loss, is expected, got "
                           "none")
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
                        walk.live_places())
    captured.wants, captured.has_own_modes = flat.wants, program.has_own_modes
    captured.origins = {node["output"]: place for place, nodes in zip(walk.places, walk.added)
                        for node in nodes}
    boundaries = {key: node for key, node in program.boundaries.items()
                  if node not in walk.bypassed}
    captured.cuts = cuts_of(graph, walk.env, boundaries, captured.targets())
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
    """Find the values that require a gradient. Also store in each region which of its inputs
    require one, because the region's code may read their ``requires_grad``."""
    of_inputs = [w for w, layout in zip(captured.wants, captured.inputs) if layout is not None]
    found = {entry["value"] for entry, want in zip(captured.graph["inputs"], of_inputs) if want}
    trained = {key for key, p in module.named_parameters(remove_duplicate=False) if p.requires_grad}
    regions = {region.ops[-1].name.decode(): region for region in captured.regions.all}
    for node in nodes:
        region = regions.get(node.get("custom"))
        if region is not None:
            region.requires = [x in found for x in node["inputs"]]
        parameters = (captured.parameters[p].name for p in node.get("parameters", ()))
        has_gradient = (node.get("op") not in ("detach", "argmax")
                        and (region is None or region.has_gradient))
        if has_gradient and (
                not found.isdisjoint(node["inputs"]) or not trained.isdisjoint(parameters)):
            found.add(node["output"])
    captured.requires = found


def _prune(t: Translator, regions: Regions) -> None:
    """Remove nodes whose results are unused.

    Raises:
        CaptureError: An unused node would change buffers or attributes.
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


def placeholders(program: Any, walk: Walk, examples: Sequence[Tensor]) -> List[Optional[Layout]]:
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
            _check_constant(target, tensor)
            walk.env[node] = Constant(tensor.detach(), buffer=target)
            walk.evaluator.set(node, tensor.detach().clone())
        elif kind == "USER_INPUT":
            layouts.append(_real_input(walk, node, len(layouts), examples[len(layouts)]))
        else:
            raise CaptureError(f"{node.name}: an input of the kind {kind.lower()} is not covered")
    return layouts


def _check_constant(name: str, tensor: Tensor) -> None:
    """Raise if a tensor that is not a parameter requires a gradient."""
    if tensor.requires_grad:
        raise CaptureError(f"{name}: a tensor that requires a gradient and is no parameter is not "
                           "covered (register it as a parameter)")


def _real_input(walk: Walk, node: Any, index: int, example: Tensor) -> Optional[Layout]:
    shape = shape_of(node.meta["val"].shape)
    if not shape or shape[0] != (True, 1) or any(batch for batch, _ in shape[1:]):
        raise CaptureError(f"input {index}: dimension 0 is that of the samples, of any number; the "
                           f"module takes {list(example.shape)}")
    sizes = [size for _, size in shape[1:]]
    walk.evaluator.set_input(node, index)
    layout = Layout.of_shape(
        sizes, [1, 2, 0] if len(sizes) == 3 and example.is_floating_point() else None)
    dtype = "f32" if example.is_floating_point() else "i32"
    value = walk.t.graph.input(f"argument {index}", dtype, layout)
    if example.is_floating_point():
        walk.env[node] = value
    else:
        walk.env[node] = Outside(node, shape, example.dtype)
        walk.t.real[node] = value.number
    return layout


def _check_mutation(spec: Any, result: Any) -> None:
    """Raise if forward writes to a tensor that is not a running statistic of a batch norm."""
    if spec.kind.name == "BUFFER_MUTATION":
        target = spec.target.replace("module.", "", 1)
        counter = target.rpartition(".")[2] == "num_batches_tracked"
        if not isinstance(result, Statistic) and not (counter and isinstance(result, Constant)):
            raise CaptureError(f"{target}: forward writes to this buffer; only the running "
                               "statistics of batch norms are covered", [target.rpartition(".")[0]])
    elif spec.kind.name not in ("USER_OUTPUT", "TOKEN"):
        raise CaptureError(Finding("", text="forward writes to its input, which is not covered "
                                            "(write to a clone)"))


def _check_states(states: Sequence[str], program: Any) -> None:
    """Raise unless forward writes to the running statistics of all batch norms, because the engine
    writes to all of them."""
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
    outputs. Each value appears only once among the graph's outputs."""
    outputs: List[Tuple[str, int]] = []
    layouts: List[Layout] = []
    specs = program.graph_signature.output_specs
    for spec, x in zip(specs, found):
        _check_mutation(spec, x)
    found = [x for spec, x in zip(specs, found) if spec.kind.name == "USER_OUTPUT"]
    places: Dict[int, int] = {}
    for i, x in enumerate(found):
        if isinstance(x, Loss):
            for term in x.terms:
                term.add(t)
            outputs.append(("loss", len(t.graph.losses) - 1))
            continue
        try:
            value = t.whole(x)
        except (Unsupported, Unlike):
            raise CaptureError(f"output {i}: float32 [N, ...] is expected, got {_said(x)}",
                               [""]) from None
        if not value.layout.dims or value.layout.dims[0][:1] != (BATCH,):
            raise CaptureError(
                f"output {i}: a tensor [N, ...] is expected, dimension 0 that of the samples",
                [""])
        number = value.number
        # A graph may not return an input, so an additional node copies the input.
        if any(number == entry["value"] for entry in t.graph.inputs):
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


def _said(x: Any) -> str:
    """Return a description of an output."""
    if isinstance(x, Constant):
        return "a tensor that is the same for all samples"
    if isinstance(x, Outside):
        return f"{str(x.dtype).replace('torch.', '')} computed from the inputs"
    return "a value that the engine has not in memory"


def _same_shape(shape: List[int]) -> Dict[str, Any]:
    return {"rank": len(shape), "dims": (shape + [0] * 6)[:6]}


def _unflattener(flat: Flat) -> Callable[[Sequence[Any]], Any]:
    spec = flat.form.spec
    leaves = [Lost(type(x).__name__) if has_tensors(x) else x for x in flat.form.leaves]

    def unflatten(tensors: Sequence[Any]) -> Any:
        left = list(tensors)
        return torch.utils._pytree.tree_unflatten(
            [left.pop(0) if x is None else x for x in leaves], spec)
    return unflatten


def _check_outside(captured: Captured, evaluator: Evaluator, examples: Sequence[Tensor]) -> None:
    """Raise if an integer that PyTorch computes for a sample depends on another sample."""
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


