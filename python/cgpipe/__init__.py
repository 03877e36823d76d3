# SPDX-License-Identifier: Apache-2.0
"""cgpipe: pipeline-parallel training on the C library.

    import cgpipe

    model = cgpipe.Model.from_file("resnet20.json")  # from cgpipe export resnet20
    pipeline = cgpipe.Pipeline(model, stages=2, schedule="zb-v", chunks=8, batch=64,
                               optimizer=cgpipe.SGD(lr=0.1, momentum=0.9))
    loss = pipeline.step(x, y)                       # NumPy arrays or PyTorch tensors, not copied

    cgpipe.plan(model, stages=4, schedule="1f1b", chunks=8, batch=64)  # bytes and schedule only
    cgpipe.schedule("zb-1p", devices=4, chunks=8)                      # needs no model
    cgpipe.from_torch(module, example_inputs)                          # captures a PyTorch module
    from cgpipe.torchgpipe import GPipe                                # torchgpipe's interface

Only the last two import PyTorch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, List

# The functions plan() and schedule() are in modules named _plan and _schedule, so that no module
# has the same name as a function.
_PLACES = {
    "Adam": "optim", "AdamW": "optim", "LrSchedule": "optim", "Optimizer": "optim",
    "RMSprop": "optim", "SGD": "optim", "ConstantLr": "optim", "CosineLr": "optim",
    "MilestonesLr": "optim", "ParameterGroup": "optim", "StepLr": "optim",
    "CgpipeError": "errors",
    "Model": "model",
    "Pipeline": "pipeline",
    "Plan": "_plan", "plan": "_plan",
    "Schedule": "_schedule", "Timeline": "_schedule", "schedule": "_schedule",
    "schedules": "_schedule",
    "from_torch": "torch",
}
_MODULES = ["_c", "errors", "torch", "torchgpipe"]

__all__ = sorted(_PLACES) + ["errors"]
__version__ = "0.1.0"

if TYPE_CHECKING:
    from cgpipe import errors
    from cgpipe.errors import CgpipeError
    from cgpipe.model import Model
    from cgpipe.optim import (SGD, Adam, AdamW, ConstantLr, CosineLr, LrSchedule, MilestonesLr,
                              Optimizer, ParameterGroup, RMSprop, StepLr)
    from cgpipe.pipeline import Pipeline
    from cgpipe._plan import Plan, plan
    from cgpipe._schedule import Schedule, Timeline, schedule, schedules


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"cgpipe.{name}")
    if name not in _PLACES:
        raise AttributeError(f"module 'cgpipe' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"cgpipe.{_PLACES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> List[str]:
    return sorted({*globals(), *_PLACES, *_MODULES})
