# SPDX-License-Identifier: Apache-2.0
"""Capture an nn.Module: translate torch.export's training IR, node by node, to a cgpipe graph.

    module --> torch.export --> aten nodes --> Translator --> graph, and nodes that stay in PyTorch

Dimension 0 of each input counts the samples, and stays a symbol in the exported program. A tensor
without this dimension is the same for all samples. A capture runs only the module's forward on fake
tensors, and nodes that are constants."""

from __future__ import annotations

import math
import mmap
import re
import warnings
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Optional, Sequence, Set, Tuple

import torch
from torch import Tensor, nn

from cgpipe.errors import ArgumentError
from cgpipe.torch.attention import Positions, Scores
from cgpipe.torch.evaluate import Evaluator
from cgpipe.torch.graph import Value, from_memory, to_memory
from cgpipe.torch.layout import BATCH, Layout, MixesSamples, Unlike, count
from cgpipe.torch.ops import OPS, names
from cgpipe.torch.patterns import find_patterns
from cgpipe.torch.translator import (Constant, Hidden, Loss, Outside, Parameter, Samples,
                                     Translator, Unsupported, nearest, shape_of)

__all__ = ["CaptureError", "Captured", "Named", "capture"]

#: Oldest and newest supported PyTorch versions.
OLDEST, NEWEST = (2, 6), (2, 15)


class CaptureError(ArgumentError):
    """A module cannot be captured. The message has the path of the module, the op, and what is
    supported."""


# --- the captured module ---


@dataclass(frozen=True)
class Named:
    """A parameter or a running statistic: its name in the module, and the conversion of its memory
    to the module's tensor."""

    name: str
    shape: Tuple[int, ...]
    #: Permutation of the memory's dimensions to the module's order; (): none.
    order: Tuple[int, ...] = ()

    def to_torch(self, memory: Tensor) -> Tensor:
        """Return a view of the memory with the module's shape and order."""
        view = memory.permute(self.order) if self.order else memory
        return view if tuple(view.shape) == self.shape else view.view(self.shape)


@dataclass
class Captured:
    """A module as a graph, and the conversions of its inputs and outputs."""

    #: The graph, in the form of cgpipe.Model.from_json(). Its inputs are the module's inputs,
    #: followed by hidden inputs.
    graph: Dict[str, Any]
    #: Parameters in the graph's order.
    parameters: List[Named]
    #: States in the graph's order.
    states: List[Named]
    #: True if the module was in training mode.
    training: bool
    has_dropout: bool
    has_batch_norm: bool
    #: Layouts of the module's inputs; None: the graph does not read the input.
    inputs: List[Optional[Layout]]
    hidden: List[Hidden]
    #: For each output of the module: ("output", index of the graph's output) or ("loss", index of
    #: the loss).
    outputs: List[Tuple[str, int]]
    #: Layouts of the graph's outputs.
    layouts: List[Layout]
    evaluator: Evaluator
    #: Rebuild the module's output structure from its tensors.
    unflatten: Callable[[Sequence[Any]], Any]
    _rows: Dict[Tuple[int, int], Tensor] = field(default_factory=dict)

    # --- inputs ---

    def to_engine(self, inputs: Sequence[Any]) -> List[Any]:
        """Convert the module's inputs [N, ...] to the graph's inputs. Inputs that are in the
        engine's memory order are not copied."""
        tensors = [x if isinstance(x, Tensor) else torch.from_numpy(x) for x in inputs]
        if len(tensors) < len(self.inputs):
            raise ArgumentError(f"inputs: {len(self.inputs)} are expected, got {len(tensors)}")
        # Any further inputs are the targets of Model.with_loss().
        tensors, added = tensors[:len(self.inputs)], tensors[len(self.inputs):]
        samples = tensors[0].shape[0]
        found = [self._input(x, layout, i)
                 for i, (x, layout) in enumerate(zip(tensors, self.inputs)) if layout is not None]
        outside = self.evaluator.run([h.outside.node for h in self.hidden if h.outside is not None],
                                     tensors)
        for hidden in self.hidden:
            if hidden.outside is not None:
                x = to_memory(outside[hidden.outside.node], hidden.layout)
                found.append(x.to(torch.float32 if x.is_floating_point() else torch.int32))
            else:
                found.append(self._repeated(hidden, samples))
        found = [x.reshape(samples, *(x.shape[1:] or (1,))) for x in found]
        return found + [x if x.is_floating_point() else x.to(torch.int32) for x in added]

    @staticmethod
    def _input(x: Tensor, layout: Layout, i: int) -> Tensor:
        sizes = [size for size in (count(dim) for dim in layout.dims[1:])]
        if list(x.shape[1:]) != sizes:
            raise ArgumentError(f"input {i}: [N, {', '.join(map(str, sizes))}] is expected, got "
                                f"{list(x.shape)}")
        return to_memory(x if x.is_floating_point() else x.to(torch.int32), layout)

    def _repeated(self, hidden: Hidden, samples: int) -> Tensor:
        key = (hidden.number, samples)
        if key not in self._rows:
            assert hidden.rows is not None
            self._rows[key] = hidden.rows.expand(samples, *hidden.rows.shape[1:]).contiguous()
        return self._rows[key]

    def new_input_gradients(self, inputs: Sequence[Tensor],
                            wants: Sequence[bool]) -> List[Optional[Tensor]]:
        """Return new tensors for the gradients of the graph's inputs; None for a gradient that is
        not wanted."""
        found: List[Optional[Tensor]] = []
        for x, layout, want in zip(inputs, self.inputs, wants):
            if layout is not None:
                shape = ([x.shape[0], *(axis.size for axis in layout.order)] if layout.order
                         else [x.shape[0], 1])
                found.append(torch.empty(shape) if want and x.is_floating_point() else None)
        return found + [None] * len(self.hidden)

    def input_gradients_to_torch(
            self, gradients: Sequence[Optional[Tensor]]) -> List[Optional[Tensor]]:
        """Convert the gradients of the graph's inputs to gradients of the module's inputs."""
        left = list(gradients)
        found: List[Optional[Tensor]] = []
        for layout in self.inputs:
            gradient = left.pop(0) if layout is not None else None
            found.append(None if gradient is None or layout is None
                         else from_memory(gradient, layout))
        return found

    # --- outputs ---

    def new_outputs(self, samples: int) -> List[Tensor]:
        """Return new tensors for the graph's outputs."""
        return [_new_output([samples, *self._shape(i)]) for i in range(len(self.layouts))]

    def _shape(self, output: int) -> List[int]:
        shape: List[int] = self.graph["values"][self.graph["outputs"][output]]["shape"]
        return shape

    def to_torch(self, outputs: Sequence[Any]) -> Tuple[Tensor, ...]:
        """Convert the graph's outputs to the module's outputs."""
        tensors = [x if isinstance(x, Tensor) else torch.from_numpy(x) for x in outputs]
        return tuple(from_memory(tensors[i], self.layouts[i]) for kind, i in self.outputs
                     if kind == "output")

    def output_gradients(self, gradients: Sequence[Optional[Tensor]],
                         samples: int) -> List[Optional[Tensor]]:
        """Return the gradients of the graph's outputs, zeros for outputs without a gradient. An
        output that the module returns twice gets the sum."""
        sums: List[Optional[Tensor]] = [None] * len(self.layouts)
        for (kind, i), gradient in zip([o for o in self.outputs if o[0] == "output"], gradients):
            if gradient is not None:
                before = sums[i]
                sums[i] = gradient if before is None else before + gradient
        return [torch.zeros([samples, *self._shape(i)]) if x is None
                else to_memory(x, self.layouts[i]).reshape(samples, *self._shape(i))
                for i, x in enumerate(sums)]


#: Minimum size in bytes of a large output. The loss of such an output takes several times that size
#: on the C library's heap.
LARGE = 1 << 20


def _new_output(shape: List[int]) -> Tensor:
    """Return a tensor for an output. A large tensor gets its own pages, which go back to the system
    after its last use. On the C library's heap it would leave a gap between the values that a loss
    saves."""
    count = math.prod(shape)
    if 4 * count < LARGE:
        return torch.empty(shape)
    pages = mmap.mmap(-1, 4 * count, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return torch.frombuffer(pages, dtype=torch.float32).view(shape)


# --- export ---


def _check_version() -> None:
    match = re.match(r"(\d+)\.(\d+)", torch.__version__)
    version = tuple(map(int, match.groups())) if match else (0, 0)
    if not OLDEST <= version <= NEWEST:
        raise CaptureError(f"PyTorch {OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]} is "
                           f"expected, got {torch.__version__}")


class _Form:
    """The structure of a module's output, and the parts of the output that are not tensors. It is a
    separate object because an export watches a module's attributes."""

    spec: Any = None
    leaves: Sequence[Any] = ()


class _Flat(nn.Module):
    """A module that maps positional tensors to a tuple of tensors. _flatten() makes its forward."""

    def __init__(self, module: nn.Module, spec: Any, places: Sequence[int],
                 rest: Sequence[Any]) -> None:
        super().__init__()
        self.module = module
        self._spec, self._places, self._rest = spec, list(places), list(rest)
        self.form = _Form()

    def run(self, *tensors: Tensor) -> Tuple[Tensor, ...]:
        """Call the module."""
        leaves = list(self._rest)
        for place, tensor in zip(self._places, tensors):
            leaves[place] = tensor
        args, kwargs = torch.utils._pytree.tree_unflatten(leaves, self._spec)
        found, self.form.spec = torch.utils._pytree.tree_flatten(self.module(*args, **kwargs))
        self.form.leaves = [None if isinstance(x, Tensor) else x for x in found]
        return tuple(x for x in found if isinstance(x, Tensor))


def _flatten(module: nn.Module, spec: Any, places: Sequence[int], rest: Sequence[Any]) -> _Flat:
    """Return a flat module whose forward has a parameter per tensor: some versions of torch.export
    do not support *tensors."""
    names = ", ".join(f"x{i}" for i in range(len(places)))
    scope: Dict[str, Any] = {}
    exec(f"def forward(self, {names}): return self.run({names})", scope)
    return type("_Flat", (_Flat,), {"forward": scope["forward"]})(  # type: ignore[no-any-return]
        module, spec, places, rest)


def _export(flat: _Flat, tensors: Sequence[Tensor]) -> Any:
    exporter = torch.export.export
    if hasattr(torch.export, "export_for_training") and torch.__version__ < "2.9":
        exporter = torch.export.export_for_training
    shapes = tuple({0: torch.export.Dim.DYNAMIC} for _ in tensors)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return exporter(flat, tuple(tensors), dynamic_shapes=shapes, strict=False)


def _explain(error: BaseException) -> Optional[str]:
    """Return an explanation of an error of torch.export; None: the module itself raised the
    error."""
    text = str(error)
    if "onstraint" in text and ("specializ" in text or "violated" in text):
        return ("dimension 0 of the inputs is that of the samples, of any number: the module takes "
                "a certain number")
    if type(error).__module__.startswith(("torch._dynamo", "torch._export", "torch.export",
                                          "torch.fx", "torch._subclasses")):
        return text.splitlines()[0] if text else type(error).__name__
    return None


def _two_samples(x: Tensor) -> Tensor:
    """Return an example with at least two samples: torch.export treats one sample as a special
    case."""
    if x.dim() == 0:
        raise CaptureError("example: a tensor [N, ...] is expected, got a scalar")
    x = x.detach()
    return (x if x.shape[0] > 1
            else torch.cat([x, x]) if x.shape[0] == 1
            else x.new_zeros([2, *x.shape[1:]]))


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

_SKIPPED = ("_assert", "sym_constrain", "_guard", "assert_")
_INLINED = ("wrap_with_set_grad_enabled", "wrap_with_autocast")


class _Walk:
    """Translates the nodes of an exported program in order."""

    def __init__(self, t: Translator, layers: _Layers, evaluator: Evaluator) -> None:
        self.t, self.layers, self.evaluator = t, layers, evaluator
        self.env: Dict[Any, Any] = {}

    def run(self, module: Any, patterns: Dict[Any, Tuple[str, List[Any]]],
            absorbed: Set[Any]) -> Any:
        """Translate a graph; return its output."""
        for node in module.graph.nodes:
            if node.op == "output":
                return torch.fx.node.map_arg(node.args[0], lambda n: self.env[n])
            if node in absorbed or node in self.env:
                continue
            self.t.node = node
            path = _path_of(node)
            layer = self.layers.of(path)
            try:
                if node.op == "get_attr":
                    self.env[node] = _attribute(module, node.target)
                elif node in patterns:
                    name, arguments = patterns[node]
                    self._begin(layer)
                    self.env[node] = OPS[name](self.t, *[self._argument(a) for a in arguments])
                else:
                    self._visit(node, layer)
            except Unsupported as error:
                raise CaptureError(_message(path, node, f"{error} is covered")) from None
            except Unlike as error:
                raise CaptureError(_message(path, node, f"{error}: not covered here")) from None
            except MixesSamples:
                raise CaptureError(_message(
                    path, node,
                    "mixes samples: dimension 0 is theirs, and stays in front")) from None
        return None

    def _begin(self, layer: Optional[str]) -> None:
        if layer is not None:
            self.t.graph.layer(layer)

    def _argument(self, x: Any) -> Any:
        return (torch.fx.node.map_arg(x, lambda n: self.env[n])
                if isinstance(x, (torch.fx.Node, list, tuple)) else x)

    def _visit(self, node: Any, layer: Optional[str]) -> None:
        name = name_of(node)
        if name.startswith(_SKIPPED):
            return
        if name in _INLINED:
            self._inline(node)
            return
        if name == "getitem":
            container = self.env[node.args[0]]
            self.env[node] = (container[node.args[1]] if isinstance(container, (list, tuple))
                              else self._evaluate(node))
            return
        arguments = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: self.env[n])
        leaves = [x for x in torch.utils._pytree.tree_leaves(
            arguments, is_leaf=lambda x: x is None)]
        live = [x for x in leaves if isinstance(x, (Value, Scores, Positions, Parameter, Loss))]
        if not live:
            self.env[node] = self._evaluate(node, leaves)
            return
        in_place = name.endswith("_") and not name.endswith("__")
        if in_place:
            self._check_in_place(node)
        self._begin(layer)
        base = name.rstrip("_") if in_place else name
        if base == "sym_size":
            self.env[node] = (Samples(2) if node.meta["val"].__class__ is not int
                              else node.meta["val"])
            return
        if base not in OPS:
            raise self._unknown(base)
        args, kwargs = arguments
        self.env[node] = OPS[base](self.t, *args, **kwargs)
        if in_place:
            self.env[node.args[0]] = self.env[node]

    def _unknown(self, base: str) -> Unsupported:
        near = nearest(base, names())
        return Unsupported(f"{near} (nearest of {len(names())} ops; docs/reference/torch-ops.md "
                           "has all)" if near
                           else "none like it of the ops in docs/reference/torch-ops.md")

    @staticmethod
    def _check_in_place(node: Any) -> None:
        source = node.args[0]
        if isinstance(source, torch.fx.Node) and name_of(source) in (
                "slice", "select", "narrow", "split", "chunk", "getitem", "unbind"):
            raise Unsupported("writing in place to whole tensors, not to parts of one,")

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
        found = self.evaluator.example(node)
        batched = isinstance(value, Tensor) and any(batch for batch, _ in shape_of(value.shape))
        if isinstance(found, Tensor):
            return Constant(found, batched)
        if isinstance(found, (list, tuple)):
            return [Constant(x, batched) for x in found]
        return found

    def _inline(self, node: Any) -> None:
        """Translate the inner graph of a node that only sets a mode."""
        modules = [a for a in node.args if isinstance(a, torch.fx.Node) and a.op == "get_attr"]
        inner = self.env[modules[0]]
        arguments = node.args[node.args.index(modules[0]) + 1:]
        holders = [n for n in inner.graph.nodes if n.op == "placeholder"]
        for holder, argument in zip(holders, arguments):
            self.env[holder] = self.env[argument]
            self.evaluator.rename(holder, argument)
        found = self.run(inner, *find_patterns(inner.graph))
        self.env[node] = found if isinstance(found, (list, tuple)) else [found]
        self.evaluator.rename_output(node, inner.graph)


class _Item:
    """Element ``index`` of a node's result."""

    def __init__(self, node: Any, index: int) -> None:
        self.node, self.index = node, index


def name_of(node: Any) -> str:
    """Return an op's name without namespace and overload."""
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        return str(target._schema.name.split("::")[-1])
    return getattr(target, "__name__", str(target))


def _path_of(node: Any) -> str:
    """Return the path of the module that a node belongs to."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    path = stack[-1][0] if stack else ""
    path = re.sub(r"^L\['self'\]\.?", "", path)
    return path[len("module."):] if path.startswith("module.") else "" if path == "module" else path


def _attribute(module: Any, target: str) -> Any:
    for part in target.split("."):
        module = getattr(module, part)
    return Constant(module) if isinstance(module, Tensor) else module


def _message(path: str, node: Any, text: str) -> str:
    source = (node.meta.get("stack_trace") or "").strip().splitlines()
    line = ""
    for i in range(len(source) - 1, -1, -1):
        if source[i].strip().startswith("File "):
            line = f""" ({source[i].strip().split(', in ')[0].replace('File ', '')
                          .replace(chr(34), '').replace(', line ', ':')})"""
            break
    return f"{path or 'the module itself'}: {name_of(node)}{line}: {text}"


# --- capture ---


def capture(module: nn.Module, example_inputs: Sequence[Any],
            example_kwargs: Optional[Dict[str, Any]] = None, *,
            cut_at: Optional[Sequence[str]] = None, name: Optional[str] = None) -> Captured:
    """Capture a module in its current mode, training or evaluation.

    Args:
        module: The module, with f32 parameters on the CPU.
        example_inputs: Positional inputs: tensors [N, ...] for any N, or structures of them.
        example_kwargs: Inputs by name.
        cut_at: Paths of the modules at which a stage may begin. None: the children of an
            nn.Sequential; else the elements of lists and sequences, and the modules beside them.
        name: Name of the model.

    Raises:
        CaptureError: Something is not supported. Exceptions that the module's own forward raises
            are not caught.
    """
    _check_version()
    check_cuts(module, cut_at)
    leaves, spec = torch.utils._pytree.tree_flatten(
        (tuple(example_inputs), dict(example_kwargs or {})))
    places = [i for i, x in enumerate(leaves) if isinstance(x, Tensor)]
    if not places:
        raise CaptureError("example: at least one tensor [N, ...] is expected, got none")
    examples = [_two_samples(leaves[i]) for i in places]
    least = min(x.shape[0] for x in examples)
    flat = _flatten(module, spec, places, [None if isinstance(x, Tensor) else x for x in leaves])
    flat.training = module.training  # the mode of this module alone: its parts may differ
    examples = [x[:least] for x in examples]
    buffers = {key: buffer.clone() for key, buffer in module.named_buffers()}
    cumulative = [m for m in module.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)
                  and m.momentum is None]
    for m in cumulative:  # -1 means cumulative to the engine; PyTorch would use a tensor
        m.momentum = -1.0
    try:
        program = _export(flat, examples)
    except Exception as error:
        explained = _explain(error)
        if explained is None:
            raise
        raise CaptureError(f"{type(module).__name__}: {explained}") from error
    finally:
        for m in cumulative:
            m.momentum = None
        for key, buffer in module.named_buffers():
            if key in buffers and not torch.equal(buffer, buffers[key]):
                buffer.copy_(buffers[key])
    return _translate(program, flat, module, examples, cut_at, name or type(module).__name__)


def _translate(program: Any, flat: _Flat, module: nn.Module, examples: Sequence[Tensor],
               cut_at: Optional[Sequence[str]], name: str) -> Captured:
    t = Translator(name, module.training, OPS)
    graph_module = program.graph_module
    evaluator = Evaluator(graph_module, examples)
    walk = _Walk(t, _Layers(module, cut_at), evaluator)
    layouts = _placeholders(program, walk, examples)
    found = walk.run(graph_module, *find_patterns(graph_module.graph))
    used = list(found) if isinstance(found, (list, tuple)) else [found]
    outputs, out_layouts = _outputs(t, program, used, walk)
    graph = t.graph.json()
    shapes = {key: tuple(p.shape) for key, p in module.named_parameters(remove_duplicate=False)}
    parameters = [Named(p["name"], shapes[p["name"]], t.orders[p["name"]][1])
                  for p in graph["parameters"]]
    state_shapes = {key: tuple(b.shape) for key, b in module.named_buffers(remove_duplicate=False)}
    states = [Named(s, state_shapes[s]) for s in t.graph.states]
    captured = Captured(graph, parameters, states, module.training, t.has_dropout, t.has_batch_norm,
                        layouts, t.hidden, outputs, out_layouts, evaluator, _unflattener(flat))
    _check_outside(captured, evaluator, examples)
    evaluator.forget(everything=all(h.outside is None for h in t.hidden))
    return captured


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


def _outputs(t: Translator, program: Any, found: Sequence[Any],
             walk: _Walk) -> Tuple[List[Tuple[str, int]], List[Layout]]:
    """Return the kind and index of each output of the module, and the layouts of the graph's
    outputs, where each value appears once."""
    outputs: List[Tuple[str, int]] = []
    layouts: List[Layout] = []
    mutated = sum(spec.kind.name != "USER_OUTPUT" for spec in program.graph_signature.output_specs)
    of_inputs = {entry["value"] for entry in t.graph.inputs}
    places: Dict[int, int] = {}
    for i, x in enumerate(found[mutated:]):
        if isinstance(x, Loss):
            t.graph.loss(x.op, x.inputs, x.attributes)
            outputs.append(("loss", len(t.graph.losses) - 1))
            continue
        try:
            value = t.value(x)
        except Unsupported as error:
            raise CaptureError(f"output {i}: {error} is expected") from None
        if any(axis.repeated for axis in value.layout.logical()):
            raise CaptureError(f"output {i}: repeated values (expand) are not covered")
        if not value.layout.dims or value.layout.dims[0][:1] != (BATCH,):
            raise CaptureError(
                f"output {i}: a tensor [N, ...] is expected, dimension 0 that of the samples")
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


def _unflattener(flat: _Flat) -> Callable[[Sequence[Any]], Any]:
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


