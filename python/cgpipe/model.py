# SPDX-License-Identifier: Apache-2.0
"""A model: a graph of layers, made from JSON (docs/reference/graph-files.md)."""

from __future__ import annotations

import ctypes
import json
import os
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Tuple, Union

from cgpipe import _c
from cgpipe.errors import ArgumentError

__all__ = ["Model", "Value"]

_DTYPES = ["float32", "int32", "bfloat16", "int64"]


@dataclass(frozen=True)
class Value:
    """An input, output, parameter or state: its name, shape and type. Shapes of inputs and outputs
    are for one sample."""

    name: str
    shape: Tuple[int, ...]
    dtype: str
    #: True for an input if backward computes its gradient.
    gradient: bool = False
    #: True for a parameter if it is frozen: training keeps its values.
    frozen: bool = False


class Model(_c.Handle):
    """A finished model. Any number of plans and pipelines may use it. It does not change after the
    first plan.

    To make a model, call :meth:`from_file`, :meth:`from_json` or :func:`cgpipe.from_torch`.
    """

    def __init__(self, handle: Any, regions: Any = None) -> None:
        """Own a ``cgp_model *``. ``regions`` are the parts that PyTorch runs
        (cgpipe.torch.region). The model uses their ops."""
        self._handle = handle
        _c.when_gone(self, _destroy, handle, regions)
        #: The captured module of :func:`cgpipe.from_torch`, which converts tensors and adopts
        #: weights; and the number of inputs that added losses have.
        self._captured: Any = None
        self._targets = 0
        self._added: List[Tuple[str, Optional[int]]] = []  # name and ignore_index of each

    @classmethod
    def from_json(cls, graph: Union[str, bytes, Mapping[str, Any]], name: str = "graph") -> "Model":
        """Make a model from JSON, given as a text or as an object.

        Args:
            graph: The JSON; docs/reference/graph-files.md lists all keys.
            name: Name of the JSON text, for messages.

        Raises:
            FormatError: The JSON is wrong. The message gives the name, the place ("nodes[3]") and
                what is expected there.
        """
        return cls._from_json(graph, name)

    @classmethod
    def _from_json(cls, graph: Union[str, bytes, Mapping[str, Any]], name: str,
                   regions: Any = None) -> "Model":
        """Make a model whose graph may use the ops of regions that PyTorch runs."""
        if isinstance(graph, Mapping):
            graph = json.dumps(graph)
        data = graph.encode() if isinstance(graph, str) else graph
        if not isinstance(data, bytes):
            raise TypeError(f"{name}: JSON is expected, its text or a mapping, got {graph!r}")
        handle = ctypes.c_void_p()
        _c.check(_c.lib.cgp_model_from_json(ctypes.byref(handle), _c.encode(name, "name"), data,
                                            len(data),
                                            *((None, 0) if regions is None else regions.array())))
        return cls(handle, regions)

    @classmethod
    def from_file(cls, path: Union[str, "os.PathLike[str]"]) -> "Model":
        """Make a model from a graph file, as written by ``cgpipe export``.

        Raises:
            FileError: The file is missing or unreadable.
            FormatError: As in :meth:`from_json`.
        """
        handle = ctypes.c_void_p()
        _c.check(_c.lib.cgp_model_read(ctypes.byref(handle), _c.path(path), None, 0))
        return cls(handle)

    def to_json(self) -> str:
        """Return the model as JSON. A model that is made from this JSON is bit-identical."""
        out = ctypes.c_void_p()
        _c.check(_c.lib.cgp_model_to_json(ctypes.byref(out), self._handle))
        return _c.take_text(out)

    def freeze(self, *patterns: str) -> None:
        """Freeze the parameters whose names match a pattern: training keeps their values, and they
        have no gradients and no optimizer state.

        For a module of :func:`cgpipe.from_torch`, set the ``requires_grad`` of its parameters
        before the capture instead.

        Args:
            patterns: As in a shell: ``"h.[0-5].*"``.

        Raises:
            ArgumentError: A pattern matches no parameter, or the model has a captured module.
            StateError: A plan was made of the model.
        """
        if self._captured is not None:
            raise ArgumentError("freeze: a model without a captured module is expected (set "
                                "requires_grad of its parameters, and capture it again)")
        for pattern in patterns:
            _c.check(_c.lib.cgp_model_freeze(self._handle, _c.encode(pattern, "pattern")))

    def with_loss(self, loss: str, ignore_index: Optional[int] = None) -> "Model":
        """Return a copy of this model with an additional input, ``targets``, and a loss of the
        first output.

        Args:
            loss: ``"cross_entropy"``: logits [N, ..., classes] and targets [N, ...] i32; for logits
                [N, classes], targets may also be [N]. ``"bce_with_logits"``, ``"mse"``, ``"l1"``:
                f32 targets of the output's shape.
            ignore_index: Targets that cross_entropy ignores; None: -100.

        Raises:
            ArgumentError: The model has no output, the loss is unknown, or the output of a captured
                module is not stored in the order of its dimensions.
        """
        if loss not in ("cross_entropy", "bce_with_logits", "mse", "l1"):
            raise ArgumentError("loss: cross_entropy, bce_with_logits, mse or l1 is expected, got "
                                f"{loss!r}")
        if ignore_index is not None and loss != "cross_entropy":
            raise ArgumentError("ignore_index: cross_entropy is expected, whose targets are "
                                f"classes, got {loss}")
        ignore_index = -100 if ignore_index is None else _c.integer(ignore_index, "ignore_index")
        if not self.outputs:
            raise ArgumentError(f"{self.name}: an output is expected, of which the loss is "
                                "computed, got none")
        if self._captured is not None:
            self._captured.check_added_loss()
        model = Model._from_json(_add_loss(json.loads(self.to_json()), loss, ignore_index),
                                 self.name, self._captured and self._captured.regions)
        model._captured, model._targets = self._captured, self._targets + 1
        model._added = [*self._added, (loss, None if loss != "cross_entropy" else ignore_index)]
        return model

    def report(self) -> str:
        """Return a text with a line for each module that cannot be captured. PyTorch runs such a
        module inside the pipeline. The line gives its path, its share of the pipeline's time, and
        the reason. The last line is about the proof of the capture. The text is empty if the model
        has no captured module.
        """
        return "" if self._captured is None else str(self._captured.report())

    @property
    def name(self) -> str:
        """Name of the model."""
        return _c.text(_c.lib.cgp_model_name(self._handle))

    @property
    def layers(self) -> List[str]:
        """Names of the layers. A stage may begin at any layer."""
        return [_c.text(_c.lib.cgp_model_layer_name(self._handle, i))
                for i in range(_c.lib.cgp_model_layers(self._handle))]

    @property
    def inputs(self) -> List[Value]:
        """Inputs in order of declaration; shapes are for one sample."""
        lib, handle = _c.lib, self._handle
        return [Value(_c.text(lib.cgp_model_input_name(handle, i)),
                      _c.shape(lib.cgp_model_input_shape(handle, i)),
                      _DTYPES[lib.cgp_model_input_dtype(handle, i)],
                      lib.cgp_model_input_has_gradient(handle, i))
                for i in range(lib.cgp_model_inputs(handle))]

    @property
    def outputs(self) -> List[Value]:
        """Outputs in order; shapes are for one sample."""
        lib, handle = _c.lib, self._handle
        return [Value(f"output{i}", _c.shape(lib.cgp_model_output_shape(handle, i)),
                      _DTYPES[lib.cgp_model_output_dtype(handle, i)])
                for i in range(lib.cgp_model_outputs(handle))]

    @property
    def parameters(self) -> List[Value]:
        """Parameters in order of first use, f32. Tied parameters appear once."""
        lib, handle = _c.lib, self._handle
        return [Value(_c.text(lib.cgp_model_parameter_name(handle, i)),
                      _c.shape(lib.cgp_model_parameter_shape(handle, i).contents), "float32",
                      frozen=lib.cgp_model_parameter_frozen(handle, i))
                for i in range(lib.cgp_model_parameters(handle))]

    @property
    def states(self) -> List[Value]:
        """Running statistics in the order of their ops."""
        lib, handle = _c.lib, self._handle
        return [Value(_c.text(lib.cgp_model_state_name(handle, i)),
                      _c.shape(lib.cgp_model_state_shape(handle, i).contents),
                      _DTYPES[lib.cgp_model_state_dtype(handle, i)])
                for i in range(lib.cgp_model_states(handle))]

    @property
    def parameter_count(self) -> int:
        """Total number of elements of the parameters."""
        return int(_c.lib.cgp_model_parameter_count(self._handle))

    def balance(self, stages: int, by: str = "flops", *, samples: int = 1, recompute: bool = False,
                in_flight: int = 1, threads: int = 1, device: Optional[str] = None,
                precision: str = "f32", convolution: str = "direct",
                parameter_scale: float = 2.0) -> List[int]:
        """Return the number of layers of each stage in a balanced partition.

        Args:
            stages: Number of stages.
            by: ``"flops"``; ``"time"``, for which kernels are measured on this machine; or
                ``"size"``, bytes of parameters and activations. An argument below with one of these
                values in parentheses is used only for that value.
            samples: Number of samples of a micro-batch (time, size).
            recompute: Count the recomputation of each stage's forward (time).
            in_flight: Number of micro-batches whose activations are kept (size).
            threads: Threads of a device (time).
            device: Name of the device (time); None: ``"cpu"``.
            precision, convolution: As in :func:`cgpipe.plan` (time).
            parameter_scale: Bytes that a device keeps per byte of a parameter (size): for the
                parameter itself, its gradient and its optimizer states.

        Raises:
            ArgumentError: There are more stages than layers, ``by`` is unknown, or ``device`` is
                given and ``by`` is not ``"time"``.
        """
        kinds = _c.parse("precision", precision), _c.parse("convolution", convolution)
        if device is not None and by != "time":
            raise ArgumentError("device: a balance by time is expected, for which it is measured, "
                                f"got {by!r}")
        stages = _c.integer(stages, "stages")
        out = (ctypes.c_int * min(max(1, stages), len(self.layers) + 1))()
        if by == "flops":
            _c.check(_c.lib.cgp_balance_by_flops(self._handle, stages, out))
        elif by == "time":
            costs = measure_layers(self._handle, samples, threads, device, *kinds)
            _c.check(_c.lib.cgp_balance_by_time(self._handle, costs, bool(recompute), stages, out))
        elif by == "size":
            options = _c.cgp_balance_size_options(ctypes.sizeof(_c.cgp_balance_size_options),
                                                  samples, in_flight, parameter_scale)
            _c.check(_c.lib.cgp_balance_by_size(self._handle, ctypes.byref(options), stages, out))
        else:
            raise ArgumentError(f"by: flops, time or size is expected, got {by!r}")
        return list(out)

    def __repr__(self) -> str:
        return (f"<cgpipe.Model {self.name}: {len(self.layers)} layers, "
                f"{self.parameter_count:,} parameters>")


def _destroy(handle: Any, _regions: Any) -> None:
    """Destroy a model. The tables of its regions' ops must outlive the model."""
    _c.lib.cgp_model_destroy(handle)


def measure_layers(handle: Any, samples: int, threads: int, device: Optional[str],
                   precision: int = 0, convolution: int = 0) -> Any:
    """Return the costs of a model's layers, measured in training steps (cgp_profile_steps)."""
    options = _c.cgp_profile_options(
        ctypes.sizeof(_c.cgp_profile_options), ctypes.pointer(ctypes.c_int64(samples)), 1,
        n_devices=1, threads=threads, steps=5, precision=precision, convolution=convolution,
        optim=_c.cgp_optim(lr=1e-6))  # a learning rate so small that the weights hardly change
    if device is not None:
        options.devices = (ctypes.c_char_p * 1)(_c.encode(device, "device"))
    costs = (_c.cgp_layer_cost * max(1, _c.lib.cgp_model_layers(handle)))()
    _c.check(_c.lib.cgp_profile_steps(handle, ctypes.byref(options), costs, None))
    return costs


def _add_loss(graph: Dict[str, Any], loss: str, ignore_index: int) -> Dict[str, Any]:
    """Return a graph with a loss of its first output."""
    output = graph["outputs"][0]
    logits = graph["values"][output]
    if loss == "cross_entropy":
        target = {"dtype": "i32", "shape": logits["shape"][:-1] or [1]}
        attributes: Optional[Dict[str, Any]] = {"ignore": ignore_index}
    else:
        target = {"dtype": "f32", "shape": logits["shape"]}
        loss, attributes = ("smooth_l1", {"beta": 0}) if loss == "l1" else (loss, None)
    graph["values"].append(target)
    graph["inputs"].append({"name": "targets", "value": len(graph["values"]) - 1})
    entry = {"op": loss, "inputs": [output, len(graph["values"]) - 1], "weight": 1}
    graph["losses"].append({**entry, "attributes": attributes} if attributes else entry)
    return graph
