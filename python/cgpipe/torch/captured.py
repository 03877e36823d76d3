# SPDX-License-Identifier: Apache-2.0
"""A captured module: its graph, and the conversions of its inputs, outputs, parameters and
statistics."""

from __future__ import annotations

import math
import mmap
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Optional, Sequence, Set, Tuple

import torch
from torch import Tensor, nn

from cgpipe.errors import ArgumentError
from cgpipe.torch.boundaries import Cut, Key
from cgpipe.torch.evaluate import Evaluator
from cgpipe.torch.export import Guard
from cgpipe.torch.graph import MAX_RANK, from_memory, to_memory
from cgpipe.torch.layout import BATCH, Layout, count
from cgpipe.torch.measured import bytes_of
from cgpipe.torch.places import Place
from cgpipe.torch.regions import Regions
from cgpipe.torch.state import Tensors
from cgpipe.torch.translator import Hidden

__all__ = ["LARGE", "Captured", "Named"]


@dataclass(frozen=True)
class Named:
    """A parameter or a running statistic: its name in the module, and how its memory is viewed as
    the module's tensor."""

    name: str
    shape: Tuple[int, ...]
    #: Permutation from the dimensions in memory to the module's dimensions; (): the same order.
    order: Tuple[int, ...] = ()

    def to_torch(self, memory: Tensor) -> Tensor:
        """Return a view of the memory. Its shape and its order of dimensions are those of the
        module's tensor."""
        view = memory.permute(self.order) if self.order else memory
        return view if tuple(view.shape) == self.shape else view.view(self.shape)


@dataclass
class Captured:
    """A module as a graph, and the conversions of its inputs and outputs."""

    #: The graph, in the form that cgpipe.Model.from_json() reads. Its inputs are the module's
    #: inputs, followed by hidden inputs (values that PyTorch computes before each step).
    graph: Dict[str, Any]
    #: Parameters in the graph's order.
    parameters: List[Named]
    #: States in the graph's order.
    states: List[Named]
    #: True if the module was in training mode.
    training: bool
    has_dropout: bool
    has_batch_norm: bool
    #: Layout of each input of the module; None: the graph does not read this input.
    inputs: List[Optional[Layout]]
    hidden: List[Hidden]
    #: The kind of each output of the module: ("output", index of the graph's output) or ("loss",
    #: index of the loss).
    outputs: List[Tuple[str, int]]
    #: Layouts of the graph's outputs.
    layouts: List[Layout]
    evaluator: Evaluator
    #: Function that rebuilds the structure of the module's output from its tensors.
    unflatten: Callable[[Sequence[Any]], Any]
    guard: Guard
    #: Tensors whose values the graph contains.
    tensors: Tensors
    #: The parts of the module that PyTorch runs.
    regions: Regions
    #: All ops in order, and where they run.
    places: List[Place] = field(default_factory=list)
    #: ``cuts`` has the boundaries of layers (boundaries.py). ``origins`` has the op in the module
    #: that made a value of the graph.
    cuts: Dict[Key, Cut] = field(default_factory=dict)
    origins: Dict[int, Place] = field(default_factory=dict)
    #: The result of the proof (proof.py) of this capture; None: the capture was not proven.
    proof: Optional[Any] = None
    #: True if evaluation may take another path than training (modes.py).
    has_own_modes: bool = False
    #: Bytes of a second pipeline for evaluation (evaluation.py). The plan does not include them.
    evaluation_bytes: int = 0
    #: For each input, True if it requires a gradient.
    wants: List[bool] = field(default_factory=list)
    #: Values that require a gradient: they depend on trained parameters, or on inputs that require
    #: a gradient.
    requires: Set[int] = field(default_factory=set)
    _rows: Dict[Tuple[int, int], Tensor] = field(default_factory=dict)
    _with_gradient: Optional[Tuple[Set[Any], Tuple[Set[int], Set[int], Set[int]]]] = None
    _of_targets: Optional[List[bool]] = None

    def _reached(self) -> Tuple[Set[int], Set[int], Set[int]]:
        """Return the values and the parameters that a gradient reaches, and the parameters that it
        may reach in regions. A gradient does not reach a tensor that the graph detaches, or that a
        region detached in the last step. In PyTorch, the gradient of such a tensor is None, not
        zeros."""
        stopped = self.regions.stopped
        if self._with_gradient is None or self._with_gradient[0] != stopped:
            self._with_gradient = stopped, self._behind(
                {*self.graph["outputs"], *(loss["inputs"][0] for loss in self.graph["losses"])},
                stopped)
        return self._with_gradient[1]

    def _behind(self, values: Set[int],
                stopped: Set[Any]) -> Tuple[Set[int], Set[int], Set[int]]:
        """Return the values, the parameters, and the parameters of regions that gradients of
        ``values`` reach. ``stopped`` has a pair (op, index) for each input of a region that no
        gradient reaches."""
        parameters: Set[int] = set()
        of_regions: Set[int] = set()
        for node in reversed(self.graph["nodes"]):
            if node["output"] in values and node.get("op") not in ("detach", "argmax"):
                values.update(x for k, x in enumerate(node["inputs"])
                              if not stopped or (node.get("custom"), k) not in stopped)
                of = of_regions if "custom" in node else parameters
                of.update(node.get("parameters", ()))
        return values, parameters, of_regions

    def _targets(self) -> Tuple[Set[int], Set[int], Set[int]]:
        """Return the values and parameters that would get gradients through targets of losses in
        PyTorch. The engine computes no gradients of targets."""
        return self._behind({x for loss in self.graph["losses"] for x in loss["inputs"][1:]}, set())

    def targets(self) -> Set[int]:
        """Return the values on which a loss's target depends."""
        return self._targets()[0]

    def are_targets(self) -> List[bool]:
        """Return for each input of the module whether a loss's target depends on it."""
        values, entries = self._targets()[0], iter(self.graph["inputs"])
        return [layout is not None and next(entries)["value"] in values for layout in self.inputs]

    def check_targets(self, inputs: Sequence[Any]) -> None:
        """Raise if a target requires a gradient, which the engine does not compute.

        Raises:
            ArgumentError: A target requires a gradient.
        """
        if self._of_targets is None:
            self._of_targets = self.are_targets()
        for i, (x, is_target) in enumerate(zip(inputs, self._of_targets)):
            if is_target and getattr(x, "requires_grad", False):
                raise ArgumentError(f"input {i}: a target of a loss without requires_grad is "
                                    "expected: it gets no gradient (detach it)")

    def trained_target(self, trained: Set[str]) -> Optional[str]:
        """If a loss's target depends on a parameter in ``trained``, return the name of this
        parameter, else None."""
        _, parameters, of_regions = self._targets()
        names = [self.parameters[i].name for i in sorted(parameters | of_regions)]
        return next((name for name in names if name in trained), None)

    @property
    def tied(self) -> bool:
        """True if at least one parameter has several uses."""
        uses = [p for node in self.graph["nodes"] for p in node.get("parameters", ())]
        return len(set(uses)) < len(uses)

    def has_gradient(self, parameter: int) -> bool:
        """Return whether a parameter is not frozen and a gradient reaches it. For a parameter of a
        region, the answer holds for the last step."""
        _, parameters, of_regions = self._reached()
        reached = parameter in parameters or (
            parameter in of_regions and self.parameters[parameter].name in self.regions.reached)
        return reached and not self.is_frozen(parameter)

    def is_frozen(self, parameter: int) -> bool:
        """Return whether the graph freezes a parameter."""
        return bool(self.graph["parameters"][parameter].get("frozen", False))

    def freeze(self, module: nn.Module) -> None:
        """Freeze the parameters that the module does not train."""
        found = dict(module.named_parameters(remove_duplicate=False))
        for entry, parameter in zip(self.graph["parameters"], self.parameters):
            if not found[parameter.name].requires_grad:
                entry["frozen"] = True

    def report(self) -> str:
        """Return a text: a line for each region, a line about the proof and, if there is a second
        pipeline for evaluation, a line about this pipeline."""
        text = "not proven" if self.proof is None else self.proof.report()
        second = (f"evaluation: another pipeline takes {bytes_of(self.evaluation_bytes)} beside "
                  "the plan" if self.evaluation_bytes else "")
        return "\n".join(filter(None, [self.regions.report(), text, second]))

    # --- inputs ---

    def to_engine(self, inputs: Sequence[Any]) -> List[Any]:
        """Convert the module's inputs [N, ...] to the graph's inputs. An input that is already in
        the engine's memory order is not copied."""
        tensors = [_tensor(x, i) for i, x in enumerate(inputs)]
        if len(tensors) < len(self.inputs):
            raise ArgumentError(f"inputs: {len(self.inputs)} are expected, as in the example, got "
                                f"{len(tensors)}")
        # Any further inputs are the targets of Model.with_loss().
        tensors, added = tensors[:len(self.inputs)], tensors[len(self.inputs):]
        samples = tensors[0].shape[0]
        found = [self._input(x, layout, i)
                 for i, (x, layout) in enumerate(zip(tensors, self.inputs)) if layout is not None]
        nodes = [h.outside.node for h in self.hidden if h.outside is not None]
        outside = (self.evaluator.run(nodes, [x.cpu().contiguous() for x in tensors])
                   if nodes else {})
        for hidden in self.hidden:
            if hidden.outside is not None:
                x = to_memory(outside[hidden.outside.node], hidden.layout)
                found.append(x.to(torch.float32) if x.is_floating_point()
                             else _narrowed(x, "integers that are computed from the inputs"))
            else:
                found.append(self._repeated(hidden, samples))
        found = [x.reshape(samples, *(x.shape[1:] or (1,))) if x.dim() <= MAX_RANK + 1
                 else x.reshape(samples, -1) for x in found]
        return found + [x if x.is_floating_point() else _narrowed(x, "targets") for x in added]

    def with_absent(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """Return the inputs. Inputs at the end that are absent or None are replaced by zeros."""
        while inputs and inputs[-1] is None:
            inputs = inputs[:-1]
        if not 0 < len(inputs) < len(self.inputs):
            return inputs
        found, entries = list(inputs), iter(self.graph["inputs"])
        for layout in self.inputs[:len(inputs)]:
            if layout is not None:
                next(entries)
        for layout in self.inputs[len(inputs):]:
            sizes = [] if layout is None else [count(dim) for dim in layout.dims[1:]]
            of_floats = (layout is None
                         or self.graph["values"][next(entries)["value"]]["dtype"] == "f32")
            found.append(torch.zeros((len(inputs[0]), *sizes),
                                     dtype=torch.float32 if of_floats else torch.int32))
        return found

    @staticmethod
    def _input(x: Tensor, layout: Layout, i: int) -> Tensor:
        sizes = [size for size in (count(dim) for dim in layout.dims[1:])]
        if list(x.shape[1:]) != sizes:
            shape = ", ".join(map(str, ["N", *sizes]))
            raise ArgumentError(f"input {i}: [{shape}] is expected, got {list(x.shape)} (capture "
                                "the module with an example of that shape)")
        return to_memory(x if x.is_floating_point() else _narrowed(x, f"input {i}"), layout)

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
                sizes = [axis.size for axis in layout.order]
                shape = [x.shape[0], *(sizes if 0 < len(sizes) <= MAX_RANK
                                       else [math.prod(sizes)])]
                found.append(torch.empty(shape, dtype=torch.float32)
                             if want and x.is_floating_point() else None)
        return found + [None] * len(self.hidden)

    def input_gradients_to_torch(
            self, gradients: Sequence[Any]) -> List[Optional[Tensor]]:
        """Convert the gradients of the graph's inputs to gradients of the module's inputs."""
        left = list(zip(gradients, self.graph["inputs"]))
        found: List[Optional[Tensor]] = []
        for layout in self.inputs:
            gradient, entry = left.pop(0) if layout is not None else (None, {})
            found.append(None if gradient is None or layout is None
                         or entry["value"] not in self._reached()[0]
                         else from_memory(torch.as_tensor(gradient), layout))
        return found

    # --- outputs ---

    def new_outputs(self, samples: int) -> List[Tensor]:
        """Return new tensors for the graph's outputs."""
        return [_new_output([samples, *self._shape(i)]) for i in range(len(self.layouts))]

    def _shape(self, output: int) -> List[int]:
        shape: List[int] = self.graph["values"][self.graph["outputs"][output]]["shape"]
        return shape

    def to_torch(self, outputs: Sequence[Any]) -> Tuple[Any, ...]:
        """Convert the graph's outputs to the module's outputs. An output that another rank computes
        is None, and stays None."""
        tensors = [x if x is None or isinstance(x, Tensor) else torch.from_numpy(x)
                   for x in outputs]
        return tuple(None if tensors[i] is None else from_memory(tensors[i], self.layouts[i])
                     for kind, i in self.outputs if kind == "output")

    def gradients_to_engine(self, gradients: Sequence[Any],
                            samples: int) -> List[Optional[Tensor]]:
        """Convert the gradients of the module's outputs to gradients of the graph's outputs.

        Raises:
            ArgumentError: A gradient is missing, or does not have the shape of its output.
        """
        layouts = [self.layouts[i] for kind, i in self.outputs if kind == "output"]
        if len(gradients) != len(layouts):
            raise ArgumentError(f"gradients: {len(layouts)} are expected, one for each output, got "
                                f"{len(gradients)}")
        tensors = [x if x is None or isinstance(x, Tensor) else torch.from_numpy(x)
                   for x in gradients]
        for i, (x, layout) in enumerate(zip(tensors, layouts)):
            if x is not None and list(x.shape) != layout.shape(samples):
                raise ArgumentError(f"gradient {i}: shape {layout.shape(samples)} is expected, got "
                                    f"{list(x.shape)}")
        return self.output_gradients([None if x is None else x.detach() for x in tensors], samples)

    def check_added_loss(self) -> None:
        """Raise unless the graph's first output has the same order of dimensions as the module's
        output, because targets of an added loss have that order.

        Raises:
            ArgumentError: The output is not stored in the order of its dimensions.
        """
        layout = self.layouts[0]
        if layout.dims[0] != (BATCH,) or layout.order != layout.logical():
            raise ArgumentError("with_loss: an output whose memory has the order of its dimensions "
                                "is expected, unlike that of images (give the loss to from_torch)")

    def output_gradients(self, gradients: Sequence[Optional[Tensor]],
                         samples: int) -> List[Optional[Tensor]]:
        """Return the gradients of the graph's outputs, and zeros for an output without a gradient.
        For an output that the module returns twice, return the sum of both gradients."""
        sums: List[Optional[Tensor]] = [None] * len(self.layouts)
        for (kind, i), gradient in zip([o for o in self.outputs if o[0] == "output"], gradients):
            if gradient is not None:
                before = sums[i]
                sums[i] = gradient if before is None else before + gradient
        return [torch.zeros([samples, *self._shape(i)], dtype=torch.float32) if x is None
                else to_memory(x, self.layouts[i]).reshape(samples, *self._shape(i))
                for i, x in enumerate(sums)]


def _tensor(x: Any, i: int) -> Tensor:
    """Return input ``i`` as a tensor."""
    if isinstance(x, Tensor):
        return x
    if type(x).__name__ != "ndarray":
        raise TypeError(f"input {i}: a tensor or an array is expected, got {type(x).__name__}")
    return torch.from_numpy(x)


def _narrowed(x: Tensor, name: str) -> Tensor:
    """Return integers as int32.

    Raises:
        ArgumentError: An integer does not fit.
    """
    if x.dtype == torch.int64 and x.numel():
        least, most = (int(end) for end in torch.aminmax(x))
        if least < -2**31 or most >= 2**31:
            raise ArgumentError(f"{name}: integers of 32 bits are expected, got "
                                f"{least if least < -2**31 else most}")
    return x.to(torch.int32)


#: Outputs of at least this many bytes get their own pages. Computing the loss of such an output
#: takes several times its size on the C library's heap.
LARGE = 1 << 20


def _new_output(shape: List[int]) -> Tensor:
    """Return a tensor for an output. A large tensor gets its own pages, which go back to the system
    after its last use. On the C library's heap, the tensor would leave a gap between the values
    that a loss saves."""
    count = math.prod(shape)
    if 4 * count < LARGE:
        return torch.empty(shape, dtype=torch.float32)
    pages = mmap.mmap(-1, 4 * count, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return torch.frombuffer(pages, dtype=torch.float32).view(shape)
