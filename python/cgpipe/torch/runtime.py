# SPDX-License-Identifier: Apache-2.0
"""Run a captured nn.Module as a pipeline, under PyTorch's autograd.

    call        capture --> plan --> pipeline, each once per shapes, types and mode;
                parameters and running statistics become views of the engine's memory
    forward     cgp_pipeline_forward(), with outputs in PyTorch tensors
    backward    cgp_pipeline_backward(); gradients of parameters are views of the engine's buffers

To autograd, a forward is one function of the inputs and all parameters. So PyTorch itself handles
hooks and torch.autograd.grad(), and raises errors for parameters that changed before the backward.
Frozen parameters are frozen in the graph too. If other parameters are frozen, the module is
captured again.

An engine holds the values of one forward. A backward through an older forward, or a second backward
through the same forward, first repeats the forward with its dropout seed, without changing the
running statistics. In eval mode the module is captured separately, and forward is
cgp_pipeline_predict(). A backward through such a forward repeats the forward in a plan for
training."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch
from torch import Tensor, nn

from cgpipe.errors import CgpipeError
from cgpipe.torch.capture import CaptureError, capture
from cgpipe.torch.captured import LARGE, Captured
from cgpipe.torch.engine import Engine, Options, return_memory
from cgpipe.torch.state import State
from cgpipe.torch.surroundings import without_saving_hooks
from cgpipe.worker import Worker

__all__ = ["Options", "Runtime"]

#: Largest number of captures that a Runtime keeps.
CAPTURES = 8


@dataclass(eq=False)
class _Forward:
    """One forward of a Runtime, with the state that its backward needs besides autograd's saved
    tensors."""

    runtime: "Runtime"
    captured: Any
    engine: Engine
    parameters: List[nn.Parameter]
    names: List[str]  # the names of the parameters that autograd gave to this forward, in order
    training: bool
    wants: Tuple[bool, ...]  # which inputs get a gradient
    seed: Optional[int] = None
    state: Any = None  # the state of a module that must be captured again for a backward
    number: int = -1  # index of the engine's forward
    node: Any = None  # weak reference to autograd's node
    task: int = -1  # number of the last backward pass through this forward


class _Function(torch.autograd.Function):
    """A forward pass as one function of the inputs and the parameters."""

    @staticmethod
    def forward(ctx: Any, forward: _Forward, n_inputs: int, *tensors: Tensor) -> Tuple[Tensor, ...]:
        outputs = forward.runtime._run(forward, tensors[:n_inputs])
        ctx.forward_, ctx.n_inputs = forward, n_inputs
        forward.node = weakref.ref(ctx)
        forward.runtime.live.add(forward)
        ctx.save_for_backward(*tensors)
        ctx.mark_non_differentiable(*(y for y in outputs if not y.is_floating_point()))
        return outputs

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Optional[Tensor]) -> Tuple[Optional[Tensor], ...]:
        tensors = ctx.saved_tensors  # raises an error if a saved tensor has changed
        needed = ctx.needs_input_grad[2 + ctx.n_inputs:]
        return (None, None, *ctx.forward_.runtime._backward(ctx.forward_, tensors[:ctx.n_inputs],
                                                            needed, gradients))


class Runtime:
    """Runs a module's forward and backward as a pipeline.

    Call it with the module's inputs, tensors [N, ...]; it returns what the module returns.
    ``module.training`` chooses the mode. The module's parameters and running statistics become
    views of the pipeline's memory."""

    def __init__(self, module: nn.Module, options: Options) -> None:
        self.module, self.options = module, options
        self.worker = Worker()
        self.lock = threading.RLock()
        self.state = State(module)
        self.captures: "OrderedDict[Any, List[Captured]]" = OrderedDict()
        self.engines: Dict[Any, Engine] = {}
        self.owner: Optional[Engine] = None  # the engine whose parameters all other engines share
        # Forwards through which autograd may still run a backward.
        self.live: "weakref.WeakSet[_Forward]" = weakref.WeakSet()

    def __call__(self, *inputs: Tensor) -> Any:
        if torch._C._are_functorch_transforms_active():
            raise RuntimeError("a pipeline inside a transform of torch.func (vmap, grad, jvp) is "
                               "not covered (transform the module instead)")
        samples = _check_inputs(inputs)
        if torch.is_autocast_enabled("cpu"):
            raise RuntimeError("torch.autocast: values are float32 here (leave the region before "
                               "the call)")
        if torch.is_inference_mode_enabled():
            # Parameters become views of the pipeline's memory. If these views were made in
            # inference mode, the parameters could not be trained.
            with torch.inference_mode(False), torch.no_grad():
                return self(*(x.clone() if x.is_inference() else x for x in inputs))
        with self.lock:
            # Another thread may be capturing, and a capture replaces parameters temporarily.
            parameters = dict(self.module.named_parameters(remove_duplicate=False))
            _check_parameters(parameters)
            captured = self._capture(inputs, samples)
            names = [entry.name for entry in captured.parameters]
            used = [parameters[name] for name in names]
            gradient = torch.is_grad_enabled()
            wants = tuple(gradient and x.requires_grad for x in inputs)
            engine = self._engine(captured, samples, wants)
            self._adopt(engine, used)
            forward = _Forward(self, captured, engine, used, names, self.module.training, wants)
            if gradient and captured.has_batch_norm and not forward.training:
                forward.state = self.state.read()
            captured.regions.gradient = gradient
            if captured.regions.draws or (self.module.training and captured.has_dropout):
                forward.seed = int(torch.randint(2**62, (), dtype=torch.int64))
            if gradient and (any(wants) or any(p.requires_grad for p in used)):
                outputs = _Function.apply(forward, len(inputs), *inputs, *used)
            else:
                outputs = self._run(forward, inputs)
                if self.module.training:
                    self._settle(engine)
                captured.regions.warn()
            return captured.unflatten(outputs)

    # --- forward and backward ---

    def _run(self, forward: _Forward, inputs: Sequence[Tensor]) -> Tuple[Tensor, ...]:
        captured, engine = forward.captured, forward.engine
        given = captured.to_engine([x.detach() for x in inputs])
        outputs = captured.new_outputs(inputs[0].shape[0])
        if forward.training:
            self._start(forward, engine, given, outputs)
        else:
            self._seed(forward, engine)
            self._call(engine, engine.predict, given, outputs)
        # Return copies, not views, so that the caller may write to them in place.
        return tuple(y.data for y in captured.to_torch(outputs))

    def _start(self, forward: _Forward, engine: Engine, given: List[Tensor],
               outputs: List[Tensor]) -> None:
        """Run a training forward."""
        self._seed(forward, engine)
        if any(output.nbytes >= LARGE for output in outputs):
            return_memory()  # return heap memory that the last loss has left unused
        forward.number = self._call(engine, engine.forward, given, outputs)

    def _call(self, engine: Engine, function: Any, *arguments: Any) -> Any:
        """Run the pipeline. If a region raises an exception, the pipeline cannot be used again."""
        try:
            return self.worker.call(function, *arguments)
        except Exception:
            if engine.captured.regions:
                self._forget()
            raise

    def _seed(self, forward: _Forward, engine: Engine) -> None:
        if forward.seed is not None:
            self.worker.call(engine.call, "set_seed", forward.seed)

    def _settle(self, engine: Engine) -> None:
        """End a forward that gets no backward, and update the module's running statistics."""
        if engine.pending:
            self.worker.call(engine.skip_backward)
            self._count(engine)

    def _backward(self, forward: _Forward, inputs: Sequence[Tensor], needed: Sequence[bool],
                  gradients: Sequence[Optional[Tensor]]) -> List[Optional[Tensor]]:
        """Return the gradients of inputs and parameters."""
        with self.lock:
            engine = forward.engine
            again = not (forward.training and engine.pending and engine.forwards == forward.number)
            statistics: List[Tuple[Tensor, Tensor]] = []
            if again:
                engine, statistics = self._forward_again(forward, inputs)
            captured = forward.captured
            own = [entry.name for entry in captured.parameters]  # the order depends on the capture
            needed_of = dict(zip(forward.names, needed))
            needed = [needed_of[name] for name in own]
            _keep_gradients(engine, forward.parameters)
            wanted = captured.new_input_gradients(inputs, forward.wants)
            self._call(engine, engine.backward,
                       captured.output_gradients(gradients, inputs[0].shape[0]), wanted)
            for state, before in statistics:
                state.copy_(before)
            self._count(engine)
            captured.regions.warn()
            views = [view.detach() if need and view is not None and captured.has_gradient(i)
                     else None
                     for i, (view, need) in enumerate(zip(engine.gradients, needed))]
            if self._is_shared(forward) or not _will_accumulate(forward.parameters, needed):
                views = [None if view is None else view.clone() for view in views]
            found = dict(zip(own, views))
            return [*captured.input_gradients_to_torch(wanted),
                    *(found.get(name) for name in forward.names)]

    def _forward_again(self, forward: _Forward,
                       inputs: Sequence[Tensor]) -> Tuple[Engine, List[Tuple[Tensor, Tensor]]]:
        """Repeat a forward in an engine for training. Return the engine. Also return the statistics
        and buffers that the repetition changes, with copies of their old values."""
        captured, samples = forward.captured, inputs[0].shape[0]
        if not forward.training and captured.has_batch_norm:
            captured = self._with_gradients(forward, inputs)
        engine = self._engine(captured, samples, forward.wants)
        self._adopt(engine, forward.parameters)
        captured.regions.gradient = True
        statistics = [(x, x.detach().clone()) for x in [
            *engine.states, *captured.regions.buffers, *captured.regions.scaled]]
        self._start(forward, engine, captured.to_engine([x.detach() for x in inputs]),
                    captured.new_outputs(samples))
        forward.engine = engine
        return engine, statistics

    def _with_gradients(self, forward: _Forward, inputs: Sequence[Tensor]) -> Captured:
        """Let a forward in evaluation use a capture whose batch norms have gradients."""
        if forward.state != self.state.read():
            raise CgpipeError("backward: the module or its mode has changed since this forward in "
                              "eval mode (call backward() first)")
        with torch.enable_grad():
            captured = self._capture(inputs, inputs[0].shape[0], fixed_norms=True)
        parameters = dict(self.module.named_parameters(remove_duplicate=False))
        forward.parameters = [parameters[entry.name] for entry in captured.parameters]
        forward.captured = captured
        return captured

    def _is_shared(self, forward: _Forward) -> bool:
        """Return whether this backward pass goes through another forward, which will overwrite the
        engine's gradients."""
        forward.task = torch._C._current_graph_task_id()
        others = [other.node() for other in self.live if other.task != forward.task]
        return any(node is not None and torch._C._will_engine_execute_node(node) for node in others)

    def report(self) -> str:
        """Return a line for each module that PyTorch runs in any capture, and a line about the
        proof of each capture."""
        with self.lock:
            found = [captured.report() for captures in self.captures.values()
                     for captured in captures]
        return "\n".join(found)

    # --- captures and engines ---

    def _capture(self, inputs: Sequence[Tensor], samples: int,
                 fixed_norms: bool = False) -> Captured:
        """Return the module captured for these shapes and types, in its current state, for
        micro-batches of ceil(N / chunks) samples. ``fixed_norms``: in evaluation, let batch norms
        have gradients."""
        gradient = torch.is_grad_enabled()
        forms = ((x.shape[1:], x.dtype, gradient and x.requires_grad) for x in inputs)
        key = (self.state.read(), fixed_norms, *forms)
        microbatch = -(-samples // self.options.chunks)
        found = self.captures.setdefault(key, [])
        self.captures.move_to_end(key)
        for captured in found:
            if captured.guard.refuses(microbatch) is None and captured.tensors.changed() is None:
                break
        else:
            before = self.state.outside()
            with torch.random.fork_rng(devices=[]):  # keep the caller's random state
                given = [x.detach()[:microbatch].requires_grad_(gradient and x.requires_grad)
                         for x in inputs]
                captured = without_saving_hooks(lambda: capture(
                    self.module, given, name=self.options.name, verify=self.options.verify,
                    fallback=self.options.fallback, fixed_norms=fixed_norms))
            captured.regions.use_threads(self.options.torch_threads)
            captured.freeze(self.module)
            self.state.ignore(captured.regions.attributes)
            self.state.ignore_written(before)
            # The capture has run the module, which may have changed the state.
            after = self.state.read(), *key[1:]
            self.captures.setdefault(after, []).append(captured)
            self.captures.move_to_end(after)
            if not found:
                del self.captures[key]
            self._drop()
        for size in (microbatch, samples % microbatch or microbatch):
            refused = captured.guard.refuses(size)
            if refused is not None:
                raise CaptureError(f"input: a micro-batch has {size} of {samples} samples; "
                                   f"{refused} are expected: the module fails, or takes "
                                   "another path (choose chunks so that micro-batches are equal "
                                   "and larger)")
        return captured

    def _drop(self) -> None:
        """Drop the least recently used captures, with their engines."""
        for captures in self.captures.values():
            while len(captures) > CAPTURES:
                captures.pop(0)
        while len(self.captures) > CAPTURES:
            self.captures.popitem(last=False)
        kept = {id(captured) for captures in self.captures.values() for captured in captures}
        for key in [key for key in self.engines if key[0] not in kept]:
            if self.engines[key] is not self.owner:
                del self.engines[key]

    def _engine(self, captured: Any, samples: int, wants: Tuple[bool, ...]) -> Engine:
        """Return an engine for ``samples`` samples: an existing engine if its plan is large enough,
        else a new engine."""
        microbatch = -(-samples // self.options.chunks)
        # Only batch norms in training, and regions, depend on how a mini-batch is cut.
        exact = bool(captured.regions) or (captured.has_batch_norm and captured.training)
        key = (id(captured), wants, microbatch if exact else 0)
        engine = self.engines.get(key)
        if engine is None or engine.samples < samples:
            if engine is not None and engine is self.owner:
                self._forget()
            # In evaluation, always recompute: a backward is rare, and this takes the least memory.
            options = (self.options if captured.training
                       else replace(self.options, recompute="always"))
            engine = self.worker.call(Engine, self.worker, captured, options, samples, wants,
                                      self.owner)
            self.engines[key] = engine
            self.owner = self.owner or engine
        return engine

    def _forget(self) -> None:
        """Drop all engines; views that are still used keep their memory."""
        self.engines.clear()
        self.owner = None

    def _adopt(self, engine: Engine, parameters: Sequence[nn.Parameter]) -> None:
        """Make parameters and running statistics views of an engine's memory, and keep their
        values.

        If a forward of the engine waits for its backward, this forward ends without a backward.
        """
        self._settle(engine)
        changed = False
        for view, parameter in zip(engine.parameters, parameters):
            changed |= _become(parameter, view)
        versions = sum(parameter._version for parameter in parameters)
        if changed or versions != engine.versions:
            self.worker.call(engine.call, "parameters_changed")
            engine.versions = versions
        if changed:
            return_memory()
        buffers = dict(self.module.named_buffers(remove_duplicate=False))
        for view, entry in zip(engine.states, engine.captured.states):
            buffer = buffers[entry.name]
            if buffer.dtype == view.dtype:
                _become(buffer, view)
            else:  # the int64 count of PyTorch stays a separate copy
                view.copy_(buffer)

    def _count(self, engine: Engine) -> None:
        """Copy the batch norms' counts of batches to the module."""
        buffers = dict(self.module.named_buffers(remove_duplicate=False))
        for view, entry in zip(engine.states, engine.captured.states):
            if buffers[entry.name].dtype != view.dtype:
                buffers[entry.name].copy_(view.view_as(buffers[entry.name]))


def _become(tensor: Tensor, view: Tensor) -> bool:
    """Make a tensor share the memory of a view, and copy the tensor's values there. Return False if
    the tensor already shares that memory."""
    if tensor.data_ptr() == view.data_ptr() and tensor.stride() == view.stride():
        return False
    with torch.no_grad():
        view.copy_(tensor)
    tensor.data = view.detach()
    return True


def _keep_gradients(engine: Engine, parameters: Sequence[nn.Parameter]) -> None:
    """Copy the gradients in .grad that backward would overwrite. Autograd then adds the new
    gradients to the copies."""
    for view, parameter in zip(engine.gradients, parameters):
        if (view is not None and parameter.grad is not None
                and parameter.grad.untyped_storage().data_ptr()
                == view.untyped_storage().data_ptr()):
            parameter.grad = parameter.grad.clone()


def _will_accumulate(parameters: Sequence[nn.Parameter], needed: Sequence[bool]) -> bool:
    """Return whether gradients go to .grad, and not to the caller of torch.autograd.grad()."""
    for parameter, need in zip(parameters, needed):
        if need:
            try:
                return torch._C._will_engine_execute_node(
                    torch.autograd.graph.get_gradient_edge(parameter).node)
            except RuntimeError:
                return False
    return True


def _check_inputs(inputs: Sequence[Tensor]) -> int:
    """Check the inputs, and return the number of samples."""
    if not inputs:
        raise IndexError("input: at least one tensor is expected, got an empty tuple")
    for x in inputs:
        if x.dim() == 0:
            raise RuntimeError("input: a tensor [N, ...] is expected, got a scalar (unsqueeze(0))")
        if x.device.type != "cpu":
            raise ValueError("input: a tensor in the host's memory is expected, got one on "
                             f"{x.device} (call cpu())")
    sizes = {x.shape[0] for x in inputs}
    if len(sizes) > 1:
        raise ValueError("input: the same number of samples in all tensors is expected, got "
                         f"{' and '.join(map(str, sorted(sizes)))}")
    if 0 in sizes:
        raise ValueError("input: at least one sample is expected, got none")
    return sizes.pop()


def _check_parameters(parameters: Dict[str, nn.Parameter]) -> None:
    for name, parameter in parameters.items():
        if not isinstance(parameter, nn.Parameter):
            raise TypeError(f"{name}: an nn.Parameter is expected, got a tensor in its place "
                            "(torch.func.functional_call is not covered: copy_() the values into "
                            "the parameters under torch.no_grad())")
        if parameter.dtype != torch.float32:
            raise TypeError(f"{name}: float32 is expected, got "
                            f"{str(parameter.dtype).replace('torch.', '')} (cast the model back)")
        if parameter.device.type != "cpu":
            raise ValueError(f"{name}: a parameter in the host's memory is expected, got one on "
                             f"{parameter.device} (make GPipe from a module on the CPU)")
