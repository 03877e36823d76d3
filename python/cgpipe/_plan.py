# SPDX-License-Identifier: Apache-2.0
"""Plans: all memory and all actions of a step, fixed before the step runs (cgpipe/plan.h)."""

from __future__ import annotations

import ctypes
import html
import re
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

from cgpipe import _c, _ranks, _search
from cgpipe._schedule import Schedule, Timeline
from cgpipe.errors import ArgumentError
from cgpipe.model import Model, measure_layers
from cgpipe.optim import SGD, Optimizer

__all__ = ["Device", "Plan", "Stage", "plan"]


@dataclass(frozen=True)
class Stage:
    """A stage of a plan. FLOPs are for a full micro-batch."""

    layers: List[str]
    device: int
    forward_flops: float
    backward_flops: float
    #: Number of slots for saved values, and size of a slot in bytes. A slot holds one micro-batch.
    saved_slots: int
    saved_slot_bytes: int


@dataclass(frozen=True)
class Device:
    """A device of a plan, and the bytes that the plan uses there."""

    name: str
    stages: Tuple[int, ...]
    parameter_bytes: int
    gradient_bytes: int
    optimizer_bytes: int
    activation_bytes: int
    #: All bytes that a pipeline allocates on the device.
    planned_bytes: int
    #: Rank of the process that owns the device.
    rank: int
    #: Measured maximum of the bytes that PyTorch keeps in regions (docs/reference/torch-ops.md).
    #: ``planned_bytes`` does not include these bytes, but a memory limit counts them.
    outside_bytes: int = 0
    #: Bytes of the partial sums of gradients, with ``gradient_groups``.
    partial_gradient_bytes: int = 0


class Plan(_c.Handle):
    """An immutable plan of a model. :class:`cgpipe.Pipeline` runs it."""

    def __init__(self, model: Model, stages: Optional[int] = None,
                 schedule: Union[None, str, Schedule] = None, chunks: int = 1, batch: int = 1, *,
                 balance: Union[None, str, Sequence[int]] = None, virtual_stages: int = 0,
                 group: int = 0, recompute: Optional[str] = None, optimizer: Any = None,
                 inference: bool = False, devices: Union[None, int, Sequence[str]] = None,
                 threads: int = 1, memory_limit: Union[int, str] = 0,
                 external_loss: bool = False, precision: str = "f32",
                 deferred_batch_norm: bool = False, convolution: str = "direct",
                 ranks: Optional[int] = None, gradient_groups: Optional[int] = None,
                 in_flight: int = 0, memory: Union[None, int, str] = None,
                 replicas: int = 1, shard_optimizer: bool = False) -> None:
        """See :func:`plan`."""
        if not isinstance(model, Model):
            raise TypeError(f"model: a cgpipe.Model is expected, got {model!r}")
        self.model = model
        #: The PyTorch optimizer that the caller gave, or None. Pipeline.optimizer returns it.
        self.given_optimizer: Any = None
        if hasattr(optimizer, "param_groups"):
            from cgpipe.torch.groups import optimizer_of

            self.given_optimizer, optimizer = optimizer, optimizer_of(optimizer, model._captured)
        self.optimizer = SGD(lr=0.01) if optimizer is None else optimizer
        if not isinstance(self.optimizer, Optimizer):
            raise TypeError(
                f"optimizer: SGD, AdamW, Adam or RMSprop is expected, got {optimizer!r}")
        options = self._options = _c.cgp_plan_options(ctypes.sizeof(_c.cgp_plan_options))
        if isinstance(devices, int):
            devices = ["cpu"] * _c.integer(devices, "devices")
        if stages is None:
            stages = len(devices) if devices else 1
        #: The options that a plan for inference takes from this plan.
        self.given: Dict[str, Any] = {
            "devices": devices, "threads": threads, "memory_limit": memory_limit,
            "precision": precision, "convolution": convolution}
        options.devices = _names(devices)
        options.stages, options.batch, options.chunks = stages, batch, chunks
        options.virtual_stages, options.group = virtual_stages, group
        options.in_flight = in_flight
        if isinstance(schedule, Schedule):
            options.table = schedule._handle
        elif schedule is not None:
            options.schedule = _c.encode(schedule, "schedule")
        options.recompute, options.optim = (
            _c.parse("recompute", recompute or "never"), self.optimizer._struct())
        options.inference, options.external_loss, options.deferred_batch_norm = (
            inference, external_loss, deferred_batch_norm)
        if memory is not None and memory_limit:
            raise ArgumentError("memory: one limit is expected, got memory_limit beside it")
        options.threads_per_device = threads
        options.memory_limit = _bytes(memory_limit if memory is None else memory)
        options.replicas = _c.integer(replicas, "replicas")
        options.shard_optimizer = shard_optimizer
        options.ranks = _ranks.of_replica(ranks, options.replicas)
        #: The micro-batches form this number of groups. The groups' gradients are added in a binary
        #: tree.
        self.gradient_groups = (
            _c.lib.cgp_plan_options_gradient_groups(ctypes.byref(options))
            if gradient_groups is None else _c.integer(gradient_groups, "gradient_groups"))
        options.gradient_groups = self.gradient_groups
        if memory is not None and options.replicas > 1:
            raise ArgumentError(f"memory: one replica is expected, got {replicas} (memory_limit)")
        options.precision, options.convolution = (
            _c.parse("precision", precision), _c.parse("convolution", convolution))
        if balance is not None:
            options.balance = self._balance(balance)
        if model._captured is not None:
            if options.replicas > 1 and _ranks.launched() == 1:
                raise ArgumentError(
                    f"replicas: one is expected for a PyTorch module in one process, got {replicas}"
                    f" (mpirun -n {replicas} python ...)")
            model._captured.regions.check(devices or (), deferred_batch_norm,
                                          options.ranks * options.replicas)
            if options.memory_limit and not inference:
                model._captured.regions.check_limit()
        handle = ctypes.c_void_p()
        given = {"schedule": schedule is not None, "virtual_stages": virtual_stages > 0,
                 "recompute": recompute is not None, "balance": balance is not None}
        searches = memory is not None and not isinstance(balance, str)
        try:
            mode = _search.create(handle, model._handle, options, given if searches else None)
        except ArgumentError as error:
            raise _ranks.hint(error, ranks) from None
        #: True if each value stays at the same address from forward to backward; False if
        #: recomputation may move values. None if the precision is not f32, because bf16 values are
        #: copied.
        self.keeps_values = ((mode or recompute or "never").startswith("never")
                             if precision == "f32" else None)
        self._handle = handle
        # The library borrowed the memory of these members only during the call.
        options.table = options.schedule = options.devices = options.balance = None
        # Destroy the plan before the model.
        _c.when_gone(self, _destroy, handle, model)

    def _balance(self, balance: Union[str, Sequence[int]]) -> Any:
        """Return the number of layers of each stage, or None to let the library balance by
        FLOPs."""
        if isinstance(balance, str):
            return self._balanced(balance)
        layers = _c.array(ctypes.c_int, balance, "balance")
        _c.check(_c.lib.cgp_balance_check(self.model._handle, len(layers), layers))
        return layers

    def _balanced(self, by: str) -> Any:
        """Balance by measured times, or by bytes."""
        if by == "flops":
            return None
        if by not in ("time", "size"):
            raise ArgumentError(f"balance: flops, time or size is expected, got {by!r}")
        options, handle, costs = self._options, self.model._handle, None
        if by == "time":
            device = _c.text(options.devices[0]) if options.devices else None
            costs = measure_layers(handle, -(-options.batch // max(1, options.chunks)),
                                   options.threads_per_device, device, options.precision,
                                   options.convolution)
        stages = _c.lib.cgp_plan_options_stages(ctypes.byref(options))
        layers = (ctypes.c_int * min(max(1, stages), len(self.model.layers) + 1))()
        goal = _c.CGP_BALANCE_MAKESPAN if by == "time" else _c.CGP_BALANCE_MEMORY
        _c.check(_c.lib.cgp_balance_for_plan(handle, ctypes.byref(options), goal, costs, layers))
        return layers

    @property
    def stages(self) -> List[Stage]:
        """The stages."""
        names = self.model.layers
        found = []
        for i in range(_c.lib.cgp_plan_stages(self._handle)):
            s = _c.lib.cgp_plan_stage_at(self._handle, i).contents
            found.append(Stage(names[s.first_layer:s.first_layer + s.layers], s.device,
                               s.forward_flops, s.backward_flops, s.saved_slots,
                               s.saved_slot_bytes))
        return found

    @property
    def devices(self) -> List[Device]:
        """The devices."""
        found = []
        for i in range(_c.lib.cgp_plan_devices(self._handle)):
            d = _c.lib.cgp_plan_device_at(self._handle, i).contents
            found.append(Device(_c.text(d.name), tuple(d.stage_list[:d.stages]), d.parameter_bytes,
                                d.gradient_bytes, d.optimizer_bytes, d.activation_bytes,
                                d.planned_bytes, d.rank, d.outside_bytes,
                                d.partial_gradient_bytes))
        return found

    @property
    def balance(self) -> List[int]:
        """Layers of each stage."""
        return list(_c.lib.cgp_plan_balance(self._handle)[:_c.lib.cgp_plan_stages(self._handle)])

    @property
    def batch(self) -> int:
        """Maximum number of samples in a step (a mini-batch)."""
        return int(self._options.batch)

    @property
    def microbatch(self) -> int:
        """Number of samples in a full micro-batch."""
        return int(_c.lib.cgp_plan_microbatch(self._handle))

    @property
    def chunks(self) -> int:
        """Number of micro-batches in a full mini-batch."""
        return int(_c.lib.cgp_plan_chunks(self._handle))

    @property
    def ranks(self) -> int:
        """Number of processes; with ``replicas``, of each replica."""
        return int(self._options.ranks)

    @property
    def replicas(self) -> int:
        """Number of copies of the pipeline that share the micro-batches."""
        return int(self._options.replicas)

    @property
    def shard_optimizer(self) -> bool:
        """Whether each replica has optimizer state only for the parameters that it updates."""
        return bool(self._options.shard_optimizer) and self.replicas > 1

    def rank_of(self, output: int) -> int:
        """Return the number of the process, of each replica, that computes an output."""
        stage = _c.lib.cgp_plan_stage_at(self._handle,
                                         _c.lib.cgp_plan_output_stage(self._handle, output))
        return int(_c.lib.cgp_plan_device_at(self._handle, stage.contents.device).contents.rank)

    @property
    def inference(self) -> bool:
        """True if the plan has no backward."""
        return bool(self._options.inference)

    @property
    def external_loss(self) -> bool:
        """True if the caller computes the loss."""
        return bool(self._options.external_loss)

    @property
    def schedule(self) -> Schedule:
        """The actions of each device."""
        return Schedule(_c.lib.cgp_plan_schedule(self._handle), self)

    @property
    def timeline(self) -> Timeline:
        """Timeline of the planned step, with FLOPs as times."""
        return Timeline(self.schedule, _c.lib.cgp_plan_timeline(self._handle).contents, self)

    @property
    def hash(self) -> str:
        """SHA-256 of model, options, layout and actions. Plans with equal hashes are equal."""
        out = ctypes.create_string_buffer(65)
        _c.check(_c.lib.cgp_plan_hash(self._handle, out))
        return out.value.decode()

    def csv(self, transfers: bool = False) -> str:
        """Return the schedule as a table, see :meth:`Schedule.to_csv`."""
        return self.schedule.to_csv(transfers)

    def svg(self) -> str:
        """Return a drawing of the planned step as SVG."""
        return self.timeline.svg()

    def __str__(self) -> str:
        lines = [f"{self.model.name}: {len(self.stages)} stages, batch {self.batch} = "
                 f"{self.chunks} x {self.microbatch}"
                 + (f", {self.replicas} replicas" if self.replicas > 1 else "")
                 + (", sharded optimizer" if self.shard_optimizer else "")
                 + (f", {self.gradient_groups} gradient groups" if self.gradient_groups > 1
                    else "")]
        for i, stage in enumerate(self.stages):
            lines.append(f"stage {i} on {self.devices[stage.device].name}: "
                         f"{_layers(stage.layers)}, forward {stage.forward_flops:.3g} FLOPs")
        return "\n".join(lines + _table(self.devices) + _outside(self)) + "\n"

    def _repr_svg_(self) -> str:
        return self.svg()

    def _repr_html_(self) -> str:
        header = "".join(f"<th>{name}</th>" for name in (
            "device", "stages", "layers", "parameters", "gradients", "optimizer", "activations",
            "bytes"))
        rows = []
        for device in self.devices:
            layers = [name for stage in device.stages for name in self.stages[stage].layers]
            cells = [device.name, " ".join(map(str, device.stages)), _layers(layers),
                     f"{device.parameter_bytes:,}", f"{device.gradient_bytes:,}",
                     f"{device.optimizer_bytes:,}", f"{device.activation_bytes:,}",
                     f"{device.planned_bytes:,}"]
            rows.append("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells)
                        + "</tr>")
        outside = "".join(f"<p>{html.escape(line)}</p>" for line in _outside(self))
        return f"<table><tr>{header}</tr>{''.join(rows)}</table>{outside}{self.svg()}"

    def __repr__(self) -> str:
        return (f"<cgpipe.Plan of {self.model.name}: balance {' '.join(map(str, self.balance))}, "
                f"{self.schedule!r}>")


def plan(model: Any, stages: Any = None, schedule: Union[None, str, Schedule] = None,
         chunks: int = 1, batch: int = 1, *, example: Any = None,
         memory: Union[None, int, str] = None, **options: Any) -> Plan:
    """Plan a model, without allocating device memory or running anything. ``print()`` shows the
    plan as a table with a row for each device.

        print(cgpipe.plan(module, example, devices=4, memory="24GiB", chunks=8, batch=64))

    Args:
        model: The model to train, or a PyTorch module. If the module returns no loss, the plan has
            an external loss.
        stages: Number of stages; a multiple of v if the schedule has v stages on each device. None:
            one stage for each device. For a module, this argument may be its example input.
        schedule: A name from :func:`cgpipe.schedules`, or a table. None: ``"1f1b"``, or
            ``"gpipe"`` with ``external_loss``, or ``"forward-only"`` with ``inference``. With
            ``inference``, no other schedule is allowed.
        chunks: Number of micro-batches.
        batch: Samples of a mini-batch.
        balance: Layers of each stage, or ``"flops"`` (the default), ``"time"``, ``"size"``.
        virtual_stages, group, in_flight: See :func:`cgpipe.schedule`.
        recompute: ``"never"``, ``"always"``, ``"except_last"``, each also with ``"+selective"``;
            or ``"budget"``: the least recomputation with which the plan stays within
            ``memory_limit`` or the limits of its devices.
        optimizer: An optimizer such as :class:`cgpipe.SGD`; None: SGD with lr 0.01. For a PyTorch
            module, it may also be an optimizer of ``torch.optim`` that has the module's parameters,
            in one or more groups.
        inference: True: plan forward only.
        devices: Names such as ``"cpu"``, ``"cuda:1"``, ``"cuda:0@22GiB"``, or a number of CPU
            devices; None: all devices are ``"cpu"``.
        threads: Threads of each device.
        memory_limit: Maximum bytes of a device, a number or a text (``"24GiB"``); 0: no limit.
        external_loss: True: the caller computes the loss from the outputs.
        precision: ``"f32"``, ``"bf16"`` (activations in half the bytes), or ``"tf32"`` (like f32,
            but linear layers multiply with fewer bits; only on NVIDIA GPUs). With bf16 and tf32,
            the bits of results depend on the kind of processor.
        deferred_batch_norm: Update running statistics once per mini-batch.
        gradient_groups: A power of two. The micro-batches are cut into this many groups, and the
            gradients of the groups are added in a binary tree. 1: gradients are added one after the
            other. The bits of gradients depend on this number. None: 1; with ``replicas``, the
            largest power of two up to 8 that divides ``chunks``, at least ``replicas``.
        convolution: How 3 x 3 convolutions of stride 1 are computed, ``"direct"`` or
            ``"winograd"``.
        memory: A limit like ``memory_limit``. If the default plan exceeds it, the result is the
            fastest plan that fits. That plan may differ in schedule, stages per device, balance and
            recomputation; options that the caller gives stay. ``chunks`` stays too, so results have
            the same bits.
        example: A module's example input or inputs: a tensor [N, ...] or a list of tensors.
        ranks: Number of processes, each with at least one device. None: as many as ``mpirun``
            started; 1: each process trains alone. With ``replicas``, the number of processes of
            each replica.
        replicas: A power of two: this many copies of the pipeline share the micro-batches of each
            mini-batch. They are threads if this is the only process, otherwise each has processes
            of its own. All processes pass the whole mini-batch. The
            bits of results depend on ``gradient_groups``, not on ``replicas``.
        shard_optimizer: Each replica has optimizer state only for the parts of the parameters that
            it updates (ZeRO stage 1). Bits stay the same.

    Raises:
        ArgumentError: An option is wrong, or the model has nothing to train.
        LimitError: A device would need more memory than its limit. The message suggests a fix or,
            with ``memory``, names the least memory that suffices.
    """
    if not isinstance(model, Model) and hasattr(model, "named_parameters"):
        if stages is not None and not isinstance(stages, int):
            stages, example = None, stages
        if example is None:
            raise ArgumentError("example: a module's example input is expected, got none")
        from cgpipe.torch import from_torch

        many = isinstance(example, (list, tuple))
        model = from_torch(model, example if many else (example,), verify=False)
        if not model._captured.graph["losses"] and not options.get("inference"):
            options.setdefault("external_loss", True)
    return Plan(model, stages, schedule, chunks, batch, memory=memory, **options)


def _bytes(size: Union[int, str]) -> int:
    """Return a number of bytes from a number, or from a text such as "24GiB"."""
    if not isinstance(size, str):
        return _c.integer(size, "memory_limit", ctypes.c_int64)
    units = {"": 0, "B": 0, "KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40}
    found = re.fullmatch(r"(\d+(?:\.\d+)?) *([A-Za-z]*)", size)
    if not found or found[2] not in units:
        raise ArgumentError(f"memory_limit: bytes or a size such as '24GiB' is expected, got "
                            f"{size!r}")
    return int(float(found[1]) * 2**units[found[2]])


def _table(devices: Sequence[Device]) -> List[str]:
    """Return a table of bytes as lines, with a row for each device."""
    rows = [["device", "stages", "parameters", "gradients", "optimizer", "activations",
             "total bytes"]]
    for d in devices:
        sizes = (d.parameter_bytes, d.gradient_bytes, d.optimizer_bytes, d.activation_bytes,
                 d.planned_bytes)
        rows.append([d.name, " ".join(map(str, d.stages)), *(f"{size:,}" for size in sizes)])
    widths = [max(map(len, column)) for column in zip(*rows)]
    return ["  ".join(cell.ljust(width) if i < 2 else cell.rjust(width)
                      for i, (cell, width) in enumerate(zip(row, widths))) for row in rows]


def _outside(plan: Plan) -> List[str]:
    """Return lines about the memory that PyTorch uses in regions. The plan does not contain this
    memory."""
    captured = plan.model._captured
    if captured is None or not captured.regions or plan.inference:
        return []
    if not all(region.kept_bytes for region in captured.regions.all):
        return ["outside the plan: PyTorch in regions, not measured (verify=True measures it)"]
    return [f"outside the plan: PyTorch in regions keeps up to {d.outside_bytes:,} bytes on "
            f"{d.name} (measured)" for d in plan.devices if d.outside_bytes]


def _destroy(handle: Any, model: Model) -> None:
    _c.lib.cgp_plan_destroy(handle)
    del model


def _names(devices: Optional[Sequence[str]]) -> Any:
    if isinstance(devices, str):
        raise ArgumentError(f"devices: a list of names is expected, got {devices!r}")
    if devices is None:
        return None
    return _c.array(ctypes.c_char_p, [_c.encode(name, "devices") for name in devices], "devices")


def _layers(names: Sequence[str]) -> str:
    return (names[0] if len(names) == 1
            else f"{names[0]} .. {names[-1]} ({len(names)} layers)" if names
            else "no layer")
