# SPDX-License-Identifier: Apache-2.0
"""A pipeline's optimizer as a torch.optim.Optimizer. Learning rate schedulers can set its learning
rate, and its state_dict() and load_state_dict() have the format of PyTorch's optimizer.

The engine computes the update. This adapter contains a PyTorch optimizer of the same kind, and
shares its param groups. The PyTorch optimizer also checks a loaded state. It has state tensors only
while a state is saved or loaded."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple

import torch
from torch import Tensor, nn

from cgpipe import _c, optim
from cgpipe.errors import ArgumentError, StateError
from cgpipe.model import Value
from cgpipe.torch.groups import of_plan

if TYPE_CHECKING:
    from cgpipe.pipeline import Pipeline

__all__ = ["PipelineOptimizer"]

# Names of the engine's states in PyTorch, by kind of optimizer.
_STATES = {"SGD": ("momentum_buffer",), "Adam": ("exp_avg", "exp_avg_sq"),
           "AdamW": ("exp_avg", "exp_avg_sq"), "RMSprop": ("square_avg", "momentum_buffer")}
# Options that change only how PyTorch computes an update, not its result.
_FREE = {"lr", "initial_lr", "params", "param_names", "foreach", "fused", "capturable",
         "differentiable", "max_lr", "min_lr", "max_momentum", "base_momentum", "swa_lr",
         "decoupled_weight_decay"}


class PipelineOptimizer(torch.optim.Optimizer):
    """The optimizer of a pipeline. Pipeline.optimizer makes it."""

    def __init__(self, pipeline: "Pipeline") -> None:
        options = pipeline.plan.optimizer
        if options.schedule is not None:
            raise ArgumentError("optimizer: the plan has a schedule of its own (schedule=None, if "
                                "PyTorch's is to set the learning rate)")
        self._pipeline = pipeline
        self._engine, parameters = _parameters(pipeline)
        self._kind = type(options).__name__
        numbers = {parameter: i for parameter, (i, _) in self._engine.items()}
        given = pipeline.plan.given_optimizer
        if given is not None:
            self._template = given
            self._sections = [self._group_of(group["params"], numbers)
                              for group in given.param_groups]
        else:
            entries = json.loads(pipeline.model.to_json())["parameters"]
            sections = of_plan(pipeline, numbers, parameters,
                               [bool(entry.get("decays")) for entry in entries])
            self._sections = [section.group for section in sections]
            self._template = _template(options, [section.options() for section in sections])
        self._was = [{k: v for k, v in group.items() if k not in _FREE}
                     for group in self._template.param_groups]
        super().__init__([{**group} for group in self._template.param_groups],
                         self._template.defaults)
        self.param_groups = self._template.param_groups

    def step(self, closure: Any = None) -> None:
        """Update the parameters, as Pipeline.update() does."""
        if closure is not None:
            raise ArgumentError("optimizer: no closure is expected (call Pipeline.step() and "
                                "update())")
        self._pipeline.update()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Discard the gradients that wait for an update, as Pipeline.zero_grad() does."""
        self._pipeline.zero_grad()

    def _group_of(self, parameters: List[Any], numbers: Dict[Any, int]) -> Optional[int]:
        """Return the group of the plan to which a PyTorch group belongs. Return None if the engine
        has none of the group's parameters."""
        found = [numbers[p] for p in parameters if p in numbers]
        handle = self._pipeline.plan._handle
        return _c.lib.cgp_plan_parameter_group(handle, found[0]) if found else None

    def learning_rates(self) -> Dict[int, float]:
        """Return a dictionary from the plan's groups to their learning rates in the next update.
        Key -1 is for parameters in no group.

        Raises:
            ArgumentError: A scheduler has changed something other than learning rates, or set
                different rates within one group of the plan.
        """
        for group, was in zip(self.param_groups, self._was):
            for name, value in was.items():
                if group.get(name) != value:
                    raise ArgumentError(
                        f"optimizer: {name} is {value} in the plan, got {group.get(name)}: only "
                        "the learning rate can change (OneCycleLR: cycle_momentum=False)")
        if len(self.param_groups) != len(self._sections):
            raise ArgumentError(f"optimizer: {len(self._sections)} groups are expected, as in the "
                                f"plan, got {len(self.param_groups)}")
        rates: Dict[int, float] = {}
        for section, group in zip(self._sections, self.param_groups):
            lr = float(group["lr"])
            if section is not None and rates.setdefault(section, lr) != lr:
                raise ArgumentError(
                    "optimizer: one learning rate is expected for all parameters that are in no "
                    f"group of the plan, or in the same, got {rates[section]} and {lr}")
        return rates

    def _names(self) -> Tuple[str, ...]:
        count = _c.lib.cgp_optim_states(self._pipeline.plan._options.optim)
        return _STATES[self._kind][:count]

    def state_dict(self) -> Dict[str, Any]:
        """Return the state in the format of the torch.optim optimizer of this kind. That optimizer
        can load the state."""
        updates = self._pipeline.updates
        for parameter, (index, entry) in self._engine.items():
            state: Dict[str, Any] = {}
            if self._kind != "SGD":
                state["step"] = torch.tensor(float(updates), dtype=torch.float32)
            for i, name in enumerate(self._names()):
                state[name] = entry.to_torch(self._read(index, i)).clone()
            if state:
                self._template.state[parameter] = state
        found: Dict[str, Any] = self._template.state_dict()
        self._template.state.clear()
        return found

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Load the state and the learning rate that a torch.optim optimizer of this kind has saved.

        Raises:
            ArgumentError: The state has other constants than the plan, other kinds of states, or
                a different number of updates for some parameters. Nothing was changed.
        """
        before = [dict(group) for group in self.param_groups]
        try:
            self._template.load_state_dict(state_dict)
            self.param_groups = self._template.param_groups
            self.learning_rates()
            values, updates = self._collect()
        except ValueError as error:  # an ArgumentError is a ValueError too
            for group, was in zip(self._template.param_groups, before):
                group.clear()
                group.update(was)
            self.param_groups = self._template.param_groups
            self._template.state.clear()
            raise ArgumentError(str(error)) from None
        self._template.state.clear()
        self._write(values, updates)

    def _collect(self) -> Tuple[List[Tuple[int, int, Tensor]], Optional[int]]:
        """Return a list of (parameter, state, value in the engine's order), and the number of
        updates."""
        found, steps = [], set()
        shapes = {i: v.shape for i, v in enumerate(self._pipeline._parameters)}
        for parameter, (index, entry) in self._engine.items():
            state = self._template.state.get(parameter, {})
            if self._kind != "SGD":
                steps.add(int(state.get("step", 0)))
            for i, name in enumerate(self._names()):
                memory = torch.zeros(shapes[index], dtype=torch.float32)
                if state.get(name) is not None:
                    entry.to_torch(memory).copy_(state[name])
                elif state:
                    raise ArgumentError(f"optimizer: {entry.name} has no {name} in the state")
                found.append((index, i, memory))
        if len(steps) > 1:
            raise ArgumentError("optimizer: one number of updates is expected for all parameters, "
                                f"got {sorted(steps)}")
        return found, steps.pop() if steps else None

    def _read(self, index: int, state: int) -> Tensor:
        out = torch.empty(self._pipeline._parameters[index].shape, dtype=torch.float32)
        self._pipeline._call(lambda: _c.check(_c.lib.cgp_pipeline_get_optimizer_state(
            self._pipeline._handle, index, state, out.data_ptr())))
        return out

    def _write(self, values: List[Tuple[int, int, Tensor]], updates: Optional[int]) -> None:
        handle = self._pipeline._handle

        def run() -> None:
            if updates is not None:
                _c.check(_c.lib.cgp_pipeline_set_updates(handle, updates))
            for index, state, memory in values:
                _c.check(_c.lib.cgp_pipeline_set_optimizer_state(handle, index, state,
                                                                 memory.data_ptr()))

        if self._pipeline._waits:
            raise StateError("optimizer: gradients wait for their update (update() or zero_grad())")
        self._pipeline._call(run)


class _Plain:
    """A parameter of a model that was not captured from a PyTorch module."""

    def __init__(self, value: Value) -> None:
        self.name = value.name

    def to_torch(self, memory: Tensor) -> Tensor:
        """Return the memory itself, because it already has the model's order."""
        return memory


def _parameters(pipeline: "Pipeline") -> Tuple[Dict[Any, Tuple[int, Any]], List[Any]]:
    """Return a dictionary with the number and the conversion of each PyTorch parameter that the
    engine trains. Also return a list of all parameters, in PyTorch's order."""
    captured = pipeline.model._captured
    if captured is None:
        zero = torch.zeros((), dtype=torch.float32)
        plain = [nn.Parameter(zero.expand(v.shape)) for v in pipeline._parameters]
        return ({p: (i, _Plain(v)) for i, (p, v) in enumerate(zip(plain, pipeline._parameters))},
                plain)
    names = dict(captured.module.named_parameters(remove_duplicate=False))
    engine = {names[entry.name]: (i, entry) for i, entry in enumerate(captured.parameters)}
    return engine, list(captured.module.parameters())


def _template(options: optim.Optimizer, groups: List[Dict[str, Any]]) -> torch.optim.Optimizer:
    """Return PyTorch's optimizer with the plan's constants."""
    both = {"lr": options.lr, "weight_decay": options.weight_decay}
    if isinstance(options, optim.SGD):
        return torch.optim.SGD(groups, momentum=options.momentum, nesterov=options.nesterov, **both)
    if isinstance(options, optim.RMSprop):
        return torch.optim.RMSprop(groups, alpha=options.alpha, eps=options.eps,
                                   momentum=options.momentum, **both)
    assert isinstance(options, (optim.Adam, optim.AdamW))
    kind = torch.optim.AdamW if isinstance(options, optim.AdamW) else torch.optim.Adam
    return kind(groups, betas=options.betas, eps=options.eps, **both)
