# SPDX-License-Identifier: Apache-2.0
"""Parameter groups of PyTorch's optimizers and of plans.

For a captured module, a plan accepts a ``torch.optim`` optimizer in place of a cgpipe optimizer.
The optimizer's groups become groups of the plan. A group of the plan lists its parameters by name.
Only learning rate and weight decay may differ between groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Tuple

import torch

from cgpipe import _c, optim
from cgpipe.errors import ArgumentError

if TYPE_CHECKING:
    from cgpipe.pipeline import Pipeline

__all__ = ["Section", "of_plan", "optimizer_of"]

# The constants of PyTorch's optimizers that cgpipe's optimizers have under the same names.
_KINDS: Dict[type, Tuple[type, Tuple[str, ...]]] = {
    torch.optim.SGD: (optim.SGD, ("momentum", "nesterov")),
    torch.optim.Adam: (optim.Adam, ("betas", "eps")),
    torch.optim.AdamW: (optim.AdamW, ("betas", "eps")),
    torch.optim.RMSprop: (optim.RMSprop, ("momentum", "alpha", "eps"))}
# Options of PyTorch's optimizers that change the update. For each, the engine supports only this
# value.
_FIXED = {"dampening": 0, "maximize": False, "amsgrad": False, "centered": False}


def optimizer_of(given: torch.optim.Optimizer, captured: Any) -> optim.Optimizer:
    """Return the cgpipe optimizer that computes the same updates as a PyTorch optimizer of a
    captured module.

    Raises:
        ArgumentError: The engine does not compute the same updates, or the optimizer has a state,
            or does not have the module's parameters.
    """
    kind, names = _KINDS.get(type(given), (None, ()))
    if kind is None:
        raise ArgumentError("optimizer: SGD, Adam, AdamW or RMSprop is expected, got "
                            f"{type(given).__name__} (update it yourself: GPipe)")
    if captured is None:
        raise ArgumentError("optimizer: cgpipe's is expected with a model that is not a PyTorch "
                            f"module, got torch.optim.{type(given).__name__}")
    if any(given.state.values()):
        raise ArgumentError("optimizer: one without a state is expected (give a new one, then "
                            "pipeline.optimizer.load_state_dict(optimizer.state_dict()))")
    first = given.param_groups[0]
    for i, group in enumerate(given.param_groups):
        for name, expected in [*_FIXED.items(), *((name, first[name]) for name in names)]:
            if name in group and group[name] != expected:
                raise ArgumentError(f"optimizer: group {i}: {name} {expected} is expected, got "
                                    f"{group[name]}")
    _check_parameters(given, captured)
    engine = {entry.name for entry in captured.parameters}
    known: Dict[Any, str] = {}
    for name, parameter in captured.module.named_parameters(remove_duplicate=False):
        if name in engine:
            known[parameter] = name
    groups = []
    for group in given.param_groups:
        patterns = [_escaped(known[p]) for p in group["params"] if p in known]
        if patterns:
            groups.append(optim.ParameterGroup(patterns, float(group["lr"]),
                                               float(group["weight_decay"])))
    found = kind(lr=float(first["lr"]), weight_decay=float(first["weight_decay"]), groups=groups,
                 **{name: first[name] for name in names})
    assert isinstance(found, optim.Optimizer)
    return found


def _check_parameters(given: torch.optim.Optimizer, captured: Any) -> None:
    """Raise unless the optimizer has all trainable parameters of the module, and no others."""
    names = {p: name for name, p in captured.module.named_parameters()}
    there = {p for group in given.param_groups for p in group["params"]}
    for i, group in enumerate(given.param_groups):
        for p in group["params"]:
            if p not in names:
                raise ArgumentError(f"optimizer: group {i}: parameters of the module are expected, "
                                    f"got another, of shape {list(p.shape)}")
    for p, name in names.items():
        if p.requires_grad and p not in there:
            raise ArgumentError(f"optimizer: {name} is expected in a group (or "
                                "requires_grad_(False), if it is not to be trained)")


def _escaped(name: str) -> str:
    """Return the pattern that matches only this name."""
    return "".join(f"\\{c}" if c in "\\*?[]" else c for c in name)


class Section:
    """The parameters of one PyTorch group. ``group`` is the index of the plan's group to which
    these parameters belong; -1: they belong to no group of the plan."""

    def __init__(self, group: int, parameters: List[Any], lr: float, weight_decay: float) -> None:
        self.group, self.parameters = group, parameters
        self.lr, self.weight_decay = lr, weight_decay

    def options(self) -> Dict[str, Any]:
        """Return the options of the group in the form that a PyTorch optimizer takes."""
        return {"params": self.parameters, "lr": self.lr, "weight_decay": self.weight_decay}


def of_plan(pipeline: "Pipeline", numbers: Dict[Any, int], parameters: List[Any],
            decays: List[bool]) -> List[Section]:
    """Return the plan's groups as PyTorch groups: first the parameters in no group, then each group
    of the plan. If the norms and biases of a group do not decay, this group becomes two PyTorch
    groups.

    Args:
        pipeline: The pipeline of the plan.
        numbers: Maps each PyTorch parameter that the engine trains to the engine's number for it.
        parameters: All PyTorch parameters.
        decays: For each of the engine's parameters, True if the model marks it for weight decay.
    """
    options = pipeline.plan.optimizer
    found: Dict[Tuple[int, bool], Section] = {}
    for group in range(-1, len(options.groups)):
        own = options.groups[group] if group >= 0 else optim.ParameterGroup("")
        lr = options.lr if own.lr is None else own.lr
        decay = options.weight_decay if own.weight_decay is None else own.weight_decay
        found[group, True] = Section(group, [], lr, decay)
        found[group, False] = Section(group, [], lr, 0.0)
    for parameter in parameters:
        number = numbers.get(parameter, -1)
        group = _c.lib.cgp_plan_parameter_group(pipeline.plan._handle, number)
        section = found[group, True]
        alone = group >= 0 and options.groups[group].weight_decay is not None
        if not (options.decay_all or alone or section.weight_decay == 0 or number < 0
                or decays[number]):
            section = found[group, False]
        section.parameters.append(parameter)
    return [section for section in found.values() if section.parameters]
