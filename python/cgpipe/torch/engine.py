# SPDX-License-Identifier: Apache-2.0
"""A captured module's plan and pipeline, with its memory as PyTorch tensors.

    Engine    has a model, plan and pipeline, and views of parameters, gradients and statistics

A Runtime's engines belong to one thread, a Worker, which makes all calls.
"""

from __future__ import annotations

import ctypes
import json
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch
from torch import Tensor

from cgpipe import _c, _views
from cgpipe.dlpack import DeviceTensor
from cgpipe.errors import ArgumentError
from cgpipe.worker import Worker

__all__ = ["Engine", "Options", "return_memory", "view_of"]


@dataclass(frozen=True)
class Options:
    """The options with which a Runtime makes plans. See cgp_plan_options in cgpipe/plan.h."""

    #: For each stage, the prefix of its layers' names; None: one stage per device, balanced by
    #: FLOPs.
    stages: Optional[Sequence[str]] = None
    #: Name of each stage's device.
    devices: Sequence[str] = ("cpu",)
    #: Number of micro-batches.
    chunks: int = 1
    #: "never", "always" or "except_last", each with or without "+selective"; or "budget", with
    #: limits in the names of devices.
    recompute: str = "never"
    #: True: cut each stage in two if all devices are CPUs. This shortens the bubble but takes
    #: more memory. CPU devices share their memory, so the halves may be on different devices.
    halves: bool = False
    #: True: the caller computes the loss from the outputs. False: the module returns its losses.
    external_loss: bool = True
    #: True: update running statistics once per mini-batch.
    deferred_batch_norm: bool = False
    #: True: prove each capture; None: prove it unless CGPIPE_VERIFY=0 is in the environment.
    verify: Optional[bool] = None
    #: ``fallback`` is true if PyTorch may run parts that cannot be captured. ``torch_threads`` is
    #: the number of threads that PyTorch then uses.
    fallback: bool = True
    torch_threads: int = 1
    #: Threads of each device; None: the number of PyTorch's threads, divided by the number of
    #: devices.
    threads: Optional[int] = None
    #: Name of the model in messages; None: the module's class.
    name: Optional[str] = None


# --- memory ---


class _Handles:
    """Model, plan and pipeline of an engine. Views of the pipeline's memory keep this object
    alive."""

    def __init__(self, worker: Worker, regions: Any) -> None:
        self.model, self.plan, self.pipeline = (ctypes.c_void_p() for _ in range(3))
        self.owner: Optional[_Handles] = None  # owner of shared parameters
        _c.when_gone(self, worker.post, destroy, self.pipeline, self.plan, self.model, regions)


def destroy(pipeline: ctypes.c_void_p, plan: ctypes.c_void_p, model: ctypes.c_void_p,
            _regions: Any) -> None:
    """Destroy the objects of an engine. The tables of the regions must outlive the engine's
    model."""
    _c.lib.cgp_pipeline_destroy(pipeline)
    _c.lib.cgp_plan_destroy(plan)
    _c.lib.cgp_model_destroy(model)


_TYPES: Dict[int, Tuple[Any, torch.dtype]] = {0: (ctypes.c_float, torch.float32),
                                              1: (ctypes.c_int32, torch.int32)}


def _view(tensor: Any, owner: Any) -> Tensor:
    """Return a tensor whose elements are this memory. The tensor keeps ``owner`` alive."""
    shape = [tensor.shape.dims[i] for i in range(tensor.shape.rank)]
    count = 1
    for size in shape:
        count *= size
    c_type, dtype = _TYPES[tensor.dtype]
    array = (c_type * count).from_address(tensor.data)
    array.owner = owner
    return torch.frombuffer(array, dtype=dtype).view(shape)


def _as_tensor(tensor: Tensor) -> Any:
    """Return a cgp_tensor with the memory of a contiguous PyTorch tensor, f32 or i32."""
    dims = (ctypes.c_int64 * 6)(*tensor.shape)
    return _c.cgp_tensor(0 if tensor.dtype == torch.float32 else 1,
                         _c.cgp_shape(tensor.dim(), dims), tensor.data_ptr())


def _pointers(tensors: Sequence[Optional[Tensor]]) -> Any:
    """Return an array of pointers to cgp_tensors, with NULL for None."""
    structs = [None if t is None else _as_tensor(t) for t in tensors]
    array = (ctypes.POINTER(_c.cgp_tensor) * max(1, len(structs)))()
    for i, struct in enumerate(structs):
        if struct is not None:
            array[i] = ctypes.pointer(struct)
    return array


def return_memory() -> None:
    """Return free pages of the C library's heap to the system. Call this after a capture, after
    parameters have moved, or after the loss of a large output was computed."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


# --- models and plans ---


def read_model(model: ctypes.c_void_p, captured: Any, input_gradients: Sequence[bool] = ()) -> None:
    """Make a captured module's model. It computes the gradients of the inputs for which
    ``input_gradients`` is true."""
    graph = dict(captured.graph)
    wanted = list(input_gradients) + [False] * len(graph["inputs"])
    graph["inputs"] = [dict(entry, gradient=True)
                       if want and graph["values"][entry["value"]]["dtype"] == "f32" else entry
                       for entry, want in zip(graph["inputs"], wanted)]
    text = json.dumps(graph).encode()
    _c.check(_c.lib.cgp_model_from_json(ctypes.byref(model), graph["name"].encode(), text,
                                        len(text), *captured.regions.array()))


def layer_stages(model: ctypes.c_void_p, prefixes: Sequence[str]) -> List[int]:
    """Return the stage of each layer. A layer belongs to the stage whose prefix matches the layer's
    name. If no prefix matches, the layer belongs to the stage of the previous layer."""
    stages, stage = [], 0
    for i in range(_c.lib.cgp_model_layers(model)):
        name = _c.text(_c.lib.cgp_model_layer_name(model, i))
        stage = next((j for j, prefix in enumerate(prefixes)
                      if name == prefix or name.startswith(prefix + ".")), stage)
        stages.append(stage)
    return stages


def device_name(device: str) -> str:
    """Return the engine's name of a PyTorch device. Each stage on "cpu" gets its own device."""
    kind, _, ordinal = device.partition(":")
    return kind if kind == "cpu" else f"{kind}:{ordinal or 0}"


def _halves(model: ctypes.c_void_p, balance: Sequence[int]) -> Optional[List[int]]:
    """Return the balance that results if each stage is cut into halves of about equal FLOPs. Return
    None if a stage cannot be cut because it has a single layer."""
    halves: List[int] = []
    first = 0
    for layers in balance:
        if layers < 2:
            return None
        flops = [_c.lib.cgp_layer_flops(model, i) for i in range(first, first + layers)]
        cut = min(range(1, layers), key=lambda i: max(sum(flops[:i]), sum(flops[i:])))
        halves += [cut, layers - cut]
        first += layers
    return halves


def _set_balance(o: Any, model: ctypes.c_void_p, options: Options, balance: List[int],
                 devices: Sequence[str]) -> None:
    """Set the layers of each device. A device r of n has one stage, or the two half stages r and n
    + r. Results are bit-identical either way."""
    o.stages = len(balance)
    o.balance = _c.array(ctypes.c_int, balance, "balance")
    halves = (_halves(model, balance)
              if options.halves and len(balance) > 1 and set(devices) == {"cpu"} else None)
    if halves:
        o.schedule, o.virtual_stages = (
            b"looped-bfs-zb" if options.recompute == "never" else b"looped-bfs", 2)
        o.balance = _c.array(ctypes.c_int, halves, "balance")


def make_plan(plan: ctypes.c_void_p, model: ctypes.c_void_p, options: Options,
              samples: int) -> None:
    """Plan a model, with a stage for each prefix that has layers."""
    microbatch = -(-samples // options.chunks)
    chunks = -(-samples // microbatch)  # may be fewer than options.chunks, as in torch.chunk()
    o = _c.cgp_plan_options(struct_size=ctypes.sizeof(_c.cgp_plan_options), batch=samples,
                            chunks=chunks, ranks=1, gradient_groups=1, replicas=1,
                            external_loss=options.external_loss,
                            deferred_batch_norm=options.deferred_batch_norm)
    o.optim.lr = 0.01  # unused: PyTorch's optimizers update the parameters
    devices = [device_name(device) for device in options.devices]
    if options.stages is None:
        o.stages = min(len(devices), _c.lib.cgp_model_layers(model))
    else:
        of_layers = layer_stages(model, options.stages)
        used = sorted(set(of_layers))
        devices = [devices[stage] for stage in used]
        _set_balance(o, model, options, [of_layers.count(stage) for stage in used], devices)
    o.devices = _c.array(ctypes.c_char_p,
                         [_c.encode(device, "devices") for device in devices[:o.stages]], "devices")
    o.threads_per_device = options.threads or max(1, torch.get_num_threads() // o.stages)
    o.recompute = _c.parse("recompute", options.recompute)
    _c.check(_c.lib.cgp_plan_create(ctypes.byref(plan), model, ctypes.byref(o)))


# --- a plan and its pipeline ---


class Engine:
    """A plan of a captured module and its pipeline. Its methods must be called on the Runtime's
    thread. Other threads may only read views."""

    def __init__(self, worker: Worker, captured: Any, options: Options, samples: int,
                 input_gradients: Sequence[bool], owner: Optional["Engine"] = None) -> None:
        self.captured, self.samples = captured, samples
        self.keeps = options.recompute.startswith("never")
        # Sum of PyTorch's version counters of the parameters, at their last change.
        self.versions: Optional[int] = None
        self.forwards = 0  # index of the last forward
        # Tensors that the engine borrows until the backward.
        self.inputs: Optional[List[Tensor]] = None
        self.handles = _Handles(worker, captured.regions)
        captured.regions.check(options.devices, options.deferred_batch_norm)
        read_model(self.handles.model, captured, input_gradients)
        make_plan(self.handles.plan, self.handles.model, options, samples)
        self._create(owner)
        self.parameters = self._views(_c.lib.cgp_pipeline_parameter_tensor, captured.parameters)
        self.gradients = self._gradients()
        self.states = self._views(_c.lib.cgp_pipeline_state_tensor, captured.states)

    def _create(self, owner: Optional["Engine"]) -> None:
        """Create the pipeline. The pipeline shares the parameters of the engine ``owner`` if both
        plans allow that."""
        handles = self.handles
        if owner is not None:
            try:
                _c.check(_c.lib.cgp_pipeline_create_sharing(ctypes.byref(handles.pipeline),
                                                            handles.plan, owner.handles.pipeline))
                handles.owner = owner.handles  # the owner must outlive this pipeline
                return
            except ArgumentError:
                pass  # parameters cannot be shared, so they are copied whenever another engine runs
        _c.check(_c.lib.cgp_pipeline_create(ctypes.byref(handles.pipeline), handles.plan, 1))

    def _views(self, function: Any, names: Sequence[Any]) -> List[Tensor]:
        return [self._view(function, i, entry) for i, entry in enumerate(names)]

    def _view(self, function: Any, i: int, entry: Any) -> Tensor:
        tensor = _c.cgp_tensor()
        _c.check(function(self.handles.pipeline, i, ctypes.byref(tensor)))
        found: Tensor = entry.to_torch(_view(tensor, self.handles))
        return found

    def _gradients(self) -> List[Optional[Tensor]]:
        """Return views of the gradients; None for frozen parameters."""
        frozen = [self.captured.is_frozen(i) for i in range(len(self.captured.parameters))]
        return [None if is_frozen else self._view(_c.lib.cgp_pipeline_gradient_tensor, i, entry)
                for i, (is_frozen, entry) in enumerate(zip(frozen, self.captured.parameters))]

    @property
    def pending(self) -> bool:
        """True if a forward has no backward yet."""
        return self.inputs is not None

    def forward(self, inputs: List[Tensor], outputs: List[Tensor]) -> int:
        """Run a training forward; return its index."""
        self.skip_backward()
        self.captured.regions.forget()
        self.call("forward", _pointers(inputs), len(inputs), _pointers(outputs), len(outputs))
        self.inputs = inputs
        self.forwards += 1
        return self.forwards

    def skip_backward(self) -> None:
        """End a forward that gets no backward. Running statistics change as they would after a
        backward."""
        if self.pending:
            self.inputs = None
            self.call("skip_backward")

    def backward(self, gradients: List[Tensor], input_gradients: List[Optional[Tensor]]) -> None:
        """Run the backward of the last forward. It writes the engine's gradients and
        ``input_gradients``."""
        wanted = any(gradient is not None for gradient in input_gradients)
        if wanted:
            self.call("set_input_gradients", _pointers(input_gradients), len(input_gradients))
        try:
            self.call("backward", _pointers(gradients), len(gradients))
        finally:
            if wanted:
                self.call("set_input_gradients", None, 0)
        self.inputs = None

    def step(self, inputs: List[Tensor], input_gradients: List[Optional[Tensor]]) -> float:
        """Run forward and backward of a module that returns its losses, without an update. They
        write the engine's gradients and ``input_gradients``. Return the sum of the losses."""
        loss = ctypes.c_double()
        self.captured.regions.forget()
        self.call("set_input_gradients", _pointers(input_gradients), len(input_gradients))
        self.call("step", _pointers(inputs), len(inputs), ctypes.byref(loss))
        return loss.value

    def predict(self, inputs: List[Tensor], outputs: List[Tensor]) -> None:
        """Run forward in evaluation mode."""
        self.call("predict", _pointers(inputs), len(inputs), _pointers(outputs), len(outputs))

    def call(self, name: str, *arguments: Any) -> None:
        """Call cgp_pipeline_<name>()."""
        function = getattr(_c.lib, f"cgp_pipeline_{name}")
        regions = self.captured.regions
        if name in ("forward", "backward", "step", "predict"):
            regions.keep = self.keeps
            regions.call(lambda: _c.check(function(self.handles.pipeline, *arguments)),
                         _c.lib.cgp_plan_devices(self.handles.plan))
        else:
            _c.check(function(self.handles.pipeline, *arguments))


def view_of(pipeline: Any, what: str, index: int) -> Tensor:
    """Return a tensor that is a view of a "parameter", "gradient" or "state" of a cgpipe.Pipeline.
    The tensor keeps the memory alive."""
    view = _views.view(pipeline, what, index)
    if isinstance(view, DeviceTensor):
        return torch.from_dlpack(view)
    return torch.from_numpy(view)
