# SPDX-License-Identifier: Apache-2.0
"""A captured module as a cgpipe.Model, for cgpipe.plan() and cgpipe.Pipeline."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch
from torch import Tensor, nn

from cgpipe.errors import ArgumentError
from cgpipe.model import Model
from cgpipe.torch import ranks
from cgpipe.torch.capture import Captured, CaptureError, capture
from cgpipe.torch.engine import view_of
from cgpipe.torch.examples import check_module
from cgpipe.torch.state import State
from cgpipe.torch.walk import check_cuts

__all__ = ["from_torch"]


#: Key of the target among a module's inputs by name. It has a space, so no parameter has this name.
_TARGET = "example target"


class _WithLoss(nn.Module):
    """A module followed by a loss of its output. The target is the last input."""

    path_of_module = "module"

    def __init__(self, module: nn.Module, loss: Any) -> None:
        super().__init__()
        self.module, self.loss = module, loss

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        target = kwargs.pop(_TARGET)
        output = self.module(*args, **kwargs)
        return output, self.loss(output, target)


@dataclass
class _Count:
    """A batch norm's count of batches: the int64 tensor of the module, the i32 state of the engine,
    and the value that both had last."""

    tensor: Tensor
    view: Tensor
    value: int


class _Module(Captured):
    """A captured module whose parameters a pipeline adopts."""

    module: nn.Module
    #: The module's state when it was captured.
    state: State
    was: Tuple[Any, ...]
    source: "_Source"

    def evaluation(self, pipeline: Any, inputs: Sequence[Any], losses: bool) -> Optional[Any]:
        """Return the pipeline that evaluates these inputs in place of ``pipeline``, or None if
        ``pipeline`` itself evaluates them."""
        if (not self.has_own_modes or not inputs or not getattr(inputs[0], "ndim", 0)
                or len(inputs[0]) == 0):
            return None
        if pipeline._evaluations is None:
            from cgpipe.torch.evaluation import Evaluations

            pipeline._evaluations = Evaluations(pipeline)
        return pipeline._evaluations.of(pipeline, inputs, losses)

    def check(self, samples: int, training: bool) -> None:
        """Raise if the module has changed since its capture, or takes another path than the graph
        for this number of samples.

        Raises:
            ArgumentError: The module has changed, or takes another path.
        """
        changed = self.state.difference(self.was, training) or self.tensors.changed()
        if changed is not None:
            raise ArgumentError(f"{changed} has changed since the module was captured (set it "
                                "back, or capture the module again)")
        if samples == 0:
            raise ArgumentError("input: at least one sample is expected, got none")
        refused = self.guard.refuses(samples)
        if refused is not None:
            raise ArgumentError(f"input: {refused} are expected in a micro-batch, got {samples}: "
                                "the module fails, or takes another path (capture it with an "
                                "example of that number)")

    def check_adopted(self, pipeline: Any) -> None:
        """Raise unless the module's parameters are still views of the pipeline's memory, have the
        requires_grad of the capture, and have no hooks.

        Raises:
            ArgumentError: A parameter has moved, was frozen or unfrozen, or has hooks.
        """
        for name, tensor, place in pipeline.adopted:
            if tensor.data_ptr() != place:
                raise ArgumentError(f"{name} has other memory than the pipeline's (write into it: "
                                    "copy_(), load_state_dict() without assign)")
        self._check_training()

    def adopt(self, pipeline: Any) -> None:
        """Copy the module's weights and statistics to a pipeline, and make the module's tensors
        views of the pipeline's memory."""
        if not pipeline.plan.inference:
            self._check_training()
        tensors = self._tensors()
        pipeline.adopted, pipeline.counts = [], []
        if hasattr(pipeline, "take_weights"):
            return  # this pipeline only evaluates, with the weights of another pipeline
        if pipeline.plan.ranks > 1:
            ranks.give(self, pipeline, tensors)
            return
        found = [(function, i, entry, entry.to_torch(view_of(pipeline, function, i)))
                 for function, entries in (("parameter", self.parameters), ("state", self.states))
                 for i, entry in enumerate(entries)]
        for _, _, entry, view in found:
            shape = list(tensors[entry.name].shape) if entry.name in tensors else None
            if shape != list(view.shape):
                raise ArgumentError(f"{entry.name}: shape {list(view.shape)} is expected, got "
                                    f"{shape or 'none'} (capture the module again)")
        for function, i, entry, view in found:
            tensor = tensors[entry.name]
            with torch.no_grad():
                view.copy_(tensor)
            if view.dtype == tensor.dtype:
                tensor.data = view
                pipeline.adopted.append((entry.name, tensor, view.data_ptr()))
            else:
                pipeline.counts.append(_Count(tensor, view, int(tensor)))
            if function == "parameter" and not pipeline.plan.inference and not self.is_frozen(i):
                tensor.grad = entry.to_torch(view_of(pipeline, "gradient", i))
        if any(view.is_cuda for *_, view in found):
            torch.cuda.synchronize()
        pipeline.parameters_changed()

    def take_counts(self, pipeline: Any) -> None:
        """Copy the engine's counts of batches to the module."""
        if any(tensor.data_ptr() != place for _, tensor, place in pipeline.adopted[:1]):
            return  # another pipeline has the module's tensors
        counts: List[_Count] = pipeline.counts
        for device in {count.view.device for count in counts}:
            there = [count for count in counts if count.view.device == device]
            values = torch.cat([count.view.reshape(1) for count in there]).tolist()
            for count, value in zip(there, values):
                count.value = value
                count.tensor.fill_(value)

    def give_counts(self, pipeline: Any) -> None:
        """If a caller or load_state_dict() has written counts of batches in the module, copy them
        to the engine."""
        for count in pipeline.counts:
            if int(count.tensor) != count.value:
                count.value = int(count.tensor)
                count.view.fill_(count.value)
                if count.view.is_cuda:
                    torch.cuda.synchronize(count.view.device)

    def _tensors(self) -> Dict[str, Tensor]:
        return {**dict(self.module.named_parameters(remove_duplicate=False)),
                **dict(self.module.named_buffers(remove_duplicate=False))}

    def _check_training(self) -> None:
        """Raise if training in the engine would change tensors that training in PyTorch would not
        change."""
        if self.has_batch_norm and not self.training:
            raise ArgumentError("a module that was captured in eval mode, whose batch norms use "
                                "their statistics, cannot be trained (capture it in train mode, "
                                "or plan inference)")
        used = {entry.name: i for i, entry in enumerate(self.parameters)}
        for name, parameter in self.module.named_parameters(remove_duplicate=False):
            if name not in used:
                continue
            if parameter.requires_grad == self.is_frozen(used[name]):
                raise ArgumentError(f"{name}.requires_grad has changed since the module was "
                                    "captured (set it back, or capture the module again)")
            if parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None):
                raise ArgumentError(f"{name} has hooks on its gradient, which are not covered here "
                                    "(cgpipe.torchgpipe.GPipe calls them)")

    def release(self, pipeline: Any) -> None:
        """Call this before the pipeline's memory is freed. Copy the module's tensors that are views
        of this memory to new memory. Tensors that are views of another pipeline's memory stay."""
        if pipeline.plan.ranks > 1:
            ranks.take(self, pipeline, self._tensors())
            return
        places = {view_of(pipeline, what, i).data_ptr()
                  for what, entries in (("parameter", self.parameters), ("state", self.states))
                  for i in range(len(entries))}
        mine = [tensor for _, tensor, _ in pipeline.adopted if tensor.data_ptr() in places]
        for tensor in mine:
            tensor.data = tensor.data.clone()
            tensor.grad = None
        pipeline.counts = []


def from_torch(module: nn.Module, example_inputs: Sequence[Any],
               example_kwargs: Optional[Dict[str, Any]] = None, *,
               loss: Optional[Callable[..., Tensor]] = None, example_target: Any = None,
               input_gradients: bool = False, cut_at: Optional[Sequence[str]] = None,
               name: Optional[str] = None, verify: Optional[bool] = None,
               fallback: bool = True, torch_threads: int = 1) -> Model:
    """Capture a module as a model.

        model = cgpipe.from_torch(module, (x,), loss=torch.nn.functional.cross_entropy,
                                  example_target=y)
        pipeline = cgpipe.Pipeline(model, stages=2, chunks=8, batch=64,
                                   optimizer=cgpipe.AdamW(lr=1e-3))
        pipeline.step(x, y)

    A pipeline takes over the module's weights. Parameters and running statistics become views of
    the pipeline's memory, so the module and its ``state_dict()`` always have the trained values.
    Counts of batches (``num_batches_tracked``) are copied after each step. With several ranks, the
    module gets the trained values when the pipeline is closed.

    Args:
        module: An nn.Module with f32 parameters on the CPU, in the mode to capture: call
            ``train()`` first.
        example_inputs: A tensor [N, ...], for any N, or the positional inputs: tensors or
            structures of tensors. Their values do not matter.
        example_kwargs: Inputs by name.
        loss: A function of the module's output and a target. It computes losses of
            torch.nn.functional that docs/reference/torch-ops.md lists, or sums of these losses.
            None: there are only the losses that the module returns.
        example_target: An example of a target for ``loss``.
        input_gradients: Let backward compute the gradients of f32 inputs, except targets of losses.
        cut_at: Paths of modules at which a stage may begin. None: the children of an nn.Sequential
            or, in another module, the elements of lists and sequences of modules.
        name: Name of the model; None: the module's class.
        verify: Prove the capture: compare two small steps with PyTorch. None: prove it unless
            CGPIPE_VERIFY=0 is in the environment.
        fallback: Let PyTorch run parts that cannot be captured, inside the pipeline. False: refuse
            them.
        torch_threads: Number of threads that PyTorch uses for these parts. The bits of their
            results depend on this number.

    Raises:
        cgpipe.torch.CaptureError: Something is not supported. The message gives the module's path,
            the op, and what is supported.
    """
    check_module(module)
    check_cuts(module, cut_at)
    inputs = (example_inputs,) if isinstance(example_inputs, Tensor) else tuple(example_inputs)
    inputs, example_kwargs = torch.utils._pytree.tree_map_only(
        Tensor, lambda x: x.detach().requires_grad_(input_gradients and x.is_floating_point()),
        (inputs, dict(example_kwargs or {})))
    source = _Source(module, loss, cut_at, name, verify, fallback)
    state = State(module, loss)
    before = state.outside()
    captured = source.capture((inputs, example_kwargs, example_target), trains=True)
    captured.regions.use_threads(torch_threads)
    captured.state = state
    state.ignore(captured.regions.attributes)
    state.ignore_written(before)
    captured.was = captured.state.read()
    captured.freeze(module)
    graph = captured.graph
    if input_gradients:
        read = [is_target for is_target, layout in zip(captured.are_targets(), captured.inputs)
                if layout is not None]
        for entry, is_target in zip(graph["inputs"], read):
            if not is_target and graph["values"][entry["value"]]["dtype"] == "f32":
                entry["gradient"] = True
    return _model(captured)


@dataclass
class _Source:
    """The arguments of a capture, kept for capturing the module again in another mode."""

    module: nn.Module
    loss: Optional[Callable[..., Tensor]]
    cut_at: Optional[Sequence[str]]
    name: Optional[str]
    verify: Optional[bool]
    fallback: bool
    #: The structure of inputs and target, and the leaves of this structure that are not tensors.
    spec: Any = None
    rest: Sequence[Any] = ()

    def capture(self, examples: Tuple[Any, ...], with_loss: bool = True,
                trains: bool = False) -> _Module:
        """Capture the module in its current mode. ``examples``: inputs, inputs by name, and a
        target. ``trains``: if there is a loss, capture batch norms so that the module can train
        even in eval mode."""
        leaves, self.spec = torch.utils._pytree.tree_flatten(examples)
        self.rest = [None if isinstance(x, Tensor) else (x,) for x in leaves]
        inputs, kwargs, target = examples
        found: Any = (_capture_with_loss(self, inputs, kwargs, target, trains)
                      if self.loss is not None and with_loss
                      else capture(self.module, inputs, kwargs, cut_at=self.cut_at, name=self.name,
                                   verify=self.verify, fallback=self.fallback))
        found.__class__ = _Module
        found.module, found.source = self.module, self
        return found  # type: ignore[no-any-return]

    def capture_again(self, examples: Sequence[Tensor], with_loss: bool) -> Model:
        """Capture the module in its current mode, with other tensors as examples."""
        left = list(examples)
        given = torch.utils._pytree.tree_unflatten(
            [left.pop(0) if x is None else x[0] for x in self.rest], self.spec)
        return _model(self.capture(given, with_loss))


def _model(captured: _Module) -> Model:
    model = Model._from_json(captured.graph, captured.graph["name"], captured.regions)
    model._captured = captured
    return model


def _capture_with_loss(source: _Source, inputs: Sequence[Any], kwargs: Dict[str, Any],
                       target: Any, trains: bool) -> Captured:
    module, cut_at = source.module, source.cut_at
    if getattr(target, "requires_grad", False):
        raise CaptureError("example_target: a tensor without requires_grad is expected: targets "
                           "get no gradient (detach it)")
    whole = _WithLoss(module, source.loss)
    whole.training = module.training
    if cut_at is None and isinstance(module, nn.Sequential):
        cut_at = [child for child, _ in module.named_children()]
    paths = None if cut_at is None else [f"module.{path}" for path in cut_at]
    parts = "|".join(re.escape(key) for key in (*module._modules, *module._parameters,
                                                *module._buffers) if key) or "$"
    within = re.compile(rf"(?<![\w./])module\.(?=(?:{parts})\b)")
    number = sum(isinstance(x, Tensor)
                 for x in torch.utils._pytree.tree_leaves((tuple(inputs), kwargs)))

    def own(text: str) -> str:
        text = re.sub(rf"^input ({_TARGET}(?=[:,]|$)|{number}(?=: dimension 0))", "example_target",
                      text)
        return "" if text == "module" else within.sub("", text)
    try:
        captured = capture(whole, inputs, {**kwargs, _TARGET: target}, cut_at=paths,
                           name=source.name or type(module).__name__, verify=source.verify,
                           fallback=source.fallback, fixed_norms=trains)
    except CaptureError as error:
        error.rename(own)
        raise
    captured.regions.rename(own)
    captured.tensors.rename(own)
    if captured.proof is not None:
        captured.proof.unprovable = [own(name) for name in captured.proof.unprovable]
    captured.places = [p._replace(path=own(p.path), reason=own(p.reason)) for p in captured.places]
    graph = captured.graph
    graph["layers"] = [own(layer) for layer in graph["layers"]]
    for parameter in graph["parameters"]:
        parameter["name"] = own(parameter["name"])
    for node in graph["nodes"]:
        if "states" in node:
            node["states"] = [own(state) for state in node["states"]]
    captured.parameters = [type(p)(own(p.name), p.shape, p.order) for p in captured.parameters]
    captured.states = [type(s)(own(s.name), s.shape, s.order) for s in captured.states]
    return captured
