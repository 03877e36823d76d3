# SPDX-License-Identifier: Apache-2.0
"""Evaluation of a captured module whose forward depends on its mode (modes.py).

    Pipeline.predict(x)      the module without its loss, captured in eval mode
    Pipeline.evaluate(x, y)  the module with its loss, captured in eval mode

The capture in eval mode is made at the first evaluation, and proven. If its graph equals the
training graph except for dropout, the pipeline itself evaluates. Otherwise a second pipeline
evaluates, with a plan for inference. If both plans have parameters and running statistics at the
same offsets, both pipelines share this memory. If not, the second pipeline copies parameters and
statistics before each evaluation."""

from __future__ import annotations

import ctypes
from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch
from torch import Tensor

from cgpipe import _c
from cgpipe._plan import Plan
from cgpipe.errors import ArgumentError
from cgpipe.model import Model
from cgpipe.pipeline import Pipeline
from cgpipe.torch.engine import view_of
from cgpipe.torch.modes import are_equal_in_evaluation
from cgpipe.torch.ranks import allowing_state_dict
from cgpipe.torch.surroundings import evaluating

__all__ = ["Evaluations"]


class _Evaluation(Pipeline):
    """A pipeline that evaluates with the parameters and running statistics of another pipeline, its
    owner."""

    def __init__(self, owner: Pipeline, plan: Plan) -> None:
        self._owner, self.shares = owner, False
        super().__init__(plan)

    def _new_worker(self) -> Any:
        return self._owner._worker  # pipelines that share memory are called on the same thread

    def _create(self, seed: int, ends: List[Any]) -> None:
        ends.append(_Kept(self._owner._memory))
        out, plan = ctypes.byref(self._handle), self.plan._handle
        try:
            _c.check(_c.lib.cgp_pipeline_create_sharing(out, plan, self._owner._handle))
            self.shares = True
        except ArgumentError:
            _c.check(_c.lib.cgp_pipeline_create(out, plan, seed))

    def own_bytes(self) -> int:
        """Return the bytes that the pipeline allocates, without the parameters that it shares."""
        return sum(device.planned_bytes - (device.parameter_bytes if self.shares else 0)
                   for device in self.plan.devices)

    def take_weights(self) -> None:
        """Copy parameters and statistics from the owner. If the owner does not have a parameter or
        statistic, copy it from the module."""
        if not self.shares:
            own, captured = self._owner.model._captured, self.model._captured
            tensors: Dict[str, Tensor] = captured._tensors()
            tensors.update(_views(self._owner, own))
            with torch.no_grad():
                for name, view in _views(self, captured).items():
                    view.copy_(tensors[name])
            if any(view.is_cuda for view in tensors.values()):
                torch.cuda.synchronize()
        self._call(lambda: _c.check(_c.lib.cgp_pipeline_parameters_changed(self._handle)))


class _Kept:
    """Keeps memory alive until a pipeline that shares the memory is destroyed."""

    rank = 0

    def __init__(self, memory: Any) -> None:
        self._memory = memory

    def destroy(self) -> None:
        self._memory = None


def _views(pipeline: Pipeline, captured: Any) -> Dict[str, Tensor]:
    return {entry.name: entry.to_torch(view_of(pipeline, what, i))
            for what, entries in (("parameter", captured.parameters), ("state", captured.states))
            for i, entry in enumerate(entries)}


class Evaluations:
    """The pipelines that evaluate for a Pipeline."""

    def __init__(self, owner: Pipeline) -> None:
        self._captured = owner.model._captured
        #: One entry is for outputs and one is for losses. An entry has the module captured in eval
        #: mode, and the pipeline that runs it. None: the owner runs it.
        self._found: Dict[bool, Tuple[Any, Optional[_Evaluation]]] = {}

    def of(self, owner: Pipeline, inputs: Sequence[Any], losses: bool) -> Optional[Pipeline]:
        """Return the pipeline that evaluates these inputs of a mini-batch, or None if the owner
        evaluates them.

        Raises:
            ArgumentError: The module has changed since its capture, or the pipeline has several
                ranks and evaluation takes another path than training.
            CaptureError: The module in eval mode cannot be captured.
        """
        changed = self._captured.state.difference(self._captured.was, False)
        if changed is not None:
            raise ArgumentError(f"{changed} has changed since the module was captured (set it "
                                "back, or capture the module again)")
        inputs = self._captured.with_absent(inputs)
        samples = min(len(inputs[0]), owner.plan.microbatch)
        captured, pipeline = self._found.get(losses, (None, None))
        if (captured is None or captured.tensors.changed() is not None
                or captured.guard.refuses(samples) is not None):
            if pipeline is not None:
                pipeline.close()
            self._found[losses] = captured, pipeline = self._new(owner, inputs, samples, losses)
            self._captured.evaluation_bytes = sum(
                other.own_bytes() for _, other in self._found.values() if other is not None)
        if pipeline is not None:
            pipeline.take_weights()
        return pipeline

    def _new(self, owner: Pipeline, inputs: Sequence[Any], samples: int,
             losses: bool) -> Tuple[Any, Optional[_Evaluation]]:
        own, module = self._captured, self._captured.module
        examples = [torch.as_tensor(x)[:samples].detach().cpu() for x in inputs]
        before = own.state.outside()
        with evaluating(module), allowing_state_dict(own, owner):
            model = own.source.capture_again(examples, losses and not owner.model._targets)
        own.state.ignore_written(before)
        own.was = own.state.read()
        found = model._captured
        found.regions.use_threads(own.regions.threads)
        # The module may be in training mode later. So regions must put it into eval mode whenever
        # they evaluate.
        found.regions.training = True
        found.state, found.was, found.has_own_modes = own.state, own.was, False
        if are_equal_in_evaluation(own, found, losses and not owner.model._targets):
            return found, None
        if owner.plan.ranks > 1:
            raise ArgumentError(f"{owner.model.name}: evaluation takes another path than training, "
                                f"for which one rank is expected, got {owner.plan.ranks} "
                                "(evaluate in PyTorch)")
        if losses:
            for loss, ignore_index in owner.model._added:
                model = model.with_loss(loss, ignore_index)
        return found, _Evaluation(owner, _plan(owner.plan, model))

    def close(self) -> None:
        """Close the pipelines."""
        self._captured.evaluation_bytes = 0
        for _, pipeline in self._found.values():
            if pipeline is not None:
                pipeline.close()
        self._found.clear()


def _plan(plan: Plan, model: Model) -> Plan:
    """Return a plan for inference on the devices of another plan. If both models have the same
    layers, the new plan also has the same stages."""
    stages = min(len(plan.devices), len(model.layers))
    alike = model.layers == plan.model.layers and len(plan.stages) == stages
    options = {**plan.given, "devices": (plan.given["devices"] or [])[:stages] or None}
    return Plan(model, stages, None, plan.chunks, plan.batch, inference=True, ranks=1,
                balance=plan.balance if alike else None, **options)
