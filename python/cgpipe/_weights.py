# SPDX-License-Identifier: Apache-2.0
"""A pipeline's parameters, gradients and running statistics, by name."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, Sequence, Tuple, Union

from cgpipe import _c, _views, tensors
from cgpipe.errors import ArgumentError
from cgpipe.model import Value

__all__ = ["Weights"]


class Weights(_c.Handle):
    """The base class of a pipeline that reads and writes its parameters and states."""

    _handle: Any
    _parameters: List[Value]
    _states: List[Value]
    _call: Callable[..., Any]
    model: Any

    def parameter(self, name: Union[str, int], *, copy: bool = True) -> Any:
        """Return a copy of a parameter, as float32 in row-major order.

        Args:
            name: The parameter's name or number.
            copy: False: return a view of the pipeline's memory, which keeps that memory alive. It
                is a NumPy array or, on a GPU, a ``cgpipe.dlpack.DeviceTensor`` for
                ``torch.from_dlpack()``. Call :meth:`parameters_changed` after a write.
        """
        return self._get("parameter", self._parameters, name, copy)

    def gradient(self, name: Union[str, int], *, copy: bool = True) -> Any:
        """Return a copy of a parameter's gradient from the last step, before clipping, or a view
        as in :meth:`parameter`. If several steps accumulate gradients, call this after the last of
        these steps: an earlier view may lack a part of the gradient of a tied parameter."""
        return self._get("gradient", self._parameters, name, copy)

    def state(self, name: Union[str, int], *, copy: bool = True) -> Any:
        """Return a copy of a running statistic, or a view as in :meth:`parameter`."""
        return self._get("state", self._states, name, copy)

    def parameters_changed(self) -> None:
        """Call this after writes through views of parameters. GPU work that writes to the views
        must be complete (``torch.cuda.synchronize()``)."""
        self._call(lambda: _c.check(_c.lib.cgp_pipeline_parameters_changed(self._handle)))
        if self.model._captured is not None:
            self.model._captured.give_counts(self)

    def _take_counts(self) -> None:
        """Copy the engine's counts of batches to a captured module. (The module's counts cannot be
        views of the engine's counts, because the types differ.)"""
        if self.model._captured is not None:
            self.model._captured.take_counts(self)

    def set_parameter(self, name: Union[str, int], value: Any) -> None:
        """Set a parameter to an array of its shape."""
        self._write(_c.lib.cgp_pipeline_set_parameter, self._parameters, name, value)

    def set_state(self, name: Union[str, int], value: Any) -> None:
        """Set a running statistic to an array of its shape."""
        self._write(_c.lib.cgp_pipeline_set_state, self._states, name, value)
        self._take_counts()

    def state_dict(self) -> Dict[str, Any]:
        """Return copies of all parameters and running statistics, by name, in the shapes and order
        of ``model.parameters`` and ``model.states``. For a captured module, return what the
        module's own ``state_dict()`` returns, as PyTorch tensors."""
        if self.model._captured is not None:
            from cgpipe.torch import weights

            return weights.state_dict(self.model._captured, self)
        return {**{v.name: self.parameter(i) for i, v in enumerate(self._parameters)},
                **{v.name: self.state(i) for i, v in enumerate(self._states)}}

    def load_state_dict(self, values: Mapping[str, Any]) -> None:
        """Set parameters and running statistics by name. ``values`` is what :meth:`state_dict`
        returns, or the ``state_dict()`` of a captured module.

        Raises:
            ArgumentError: A name is missing or unknown, or a value does not fit; nothing was
                changed.
        """
        if self.model._captured is not None:
            from cgpipe.torch import weights

            weights.load(self.model._captured, self, values)
            return
        kinds = ((_c.lib.cgp_pipeline_set_parameter, self._parameters),
                 (_c.lib.cgp_pipeline_set_state, self._states))
        known = {entry.name for _, entries in kinds for entry in entries}
        for what, names in (("missing", known - set(values)), ("unknown", set(values) - known)):
            if names:
                raise ArgumentError(f"{min(names, key=str)}: {what}"
                                    f"{f' ({len(names)} names are)' if len(names) > 1 else ''}")
        found = [(function, i, *_fitting(values[entry.name], entry)) for function, entries in kinds
                 for i, entry in enumerate(entries)]

        def run() -> None:
            for function, index, _, address in found:
                _c.check(function(self._handle, index, address))

        self._call(run)
        self._take_counts()

    def _get(self, what: str, entries: Sequence[Value], name: Union[str, int], copy: bool) -> Any:
        index = _find(entries, name)
        if not copy:
            if what == "gradient":
                self._call(lambda: _c.check(_c.lib.cgp_pipeline_complete_gradients(self._handle)))
            return _views.view(self, what, index)
        function = getattr(_c.lib, f"cgp_pipeline_get_{what}")
        out = tensors.empty_like(entries[index].shape, entries[index].dtype, ())
        self._call(lambda: _c.check(function(self._handle, index, out.ctypes.data)))
        return out

    def _write(self, function: Any, entries: Sequence[Value], name: Union[str, int],
               value: Any) -> None:
        index = _find(entries, name)
        keep, address = _fitting(value, entries[index])
        self._call(lambda: _c.check(function(self._handle, index, address)))
        del keep


def _fitting(value: Any, wanted: Value) -> Tuple[Any, int]:
    """Convert a value for a parameter or state. Return the object that owns the converted value's
    memory, and the address of that memory."""
    keep, shape, address = tensors.whole(value, wanted)
    if shape != wanted.shape:
        raise ArgumentError(
            f"{wanted.name}: shape {list(wanted.shape)} is expected, got {list(shape)}")
    return keep, address


def _find(entries: Sequence[Value], name: Union[str, int]) -> int:
    """Return the index of a parameter or state."""
    if hasattr(name, "__index__"):
        if not 0 <= name < len(entries):
            raise ArgumentError(f"parameter: 0 to {len(entries) - 1} is expected, got {name}")
        return name
    for i, entry in enumerate(entries):
        if entry.name == name:
            return i
    raise ArgumentError(f"{name}: no parameter or state of this name")
