# SPDX-License-Identifier: Apache-2.0
"""Schedules: generate, check, simulate and draw them without a model (cgpipe/schedule.h)."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from numbers import Real
from typing import Any, Dict, List, Optional, Sequence, Union

from cgpipe import _c
from cgpipe.errors import ArgumentError

__all__ = ["Action", "Report", "Schedule", "Timeline", "schedule", "schedules"]

_KINDS = ["F", "B", "I", "W", "R", "SEND_F", "RECV_F", "SEND_B", "RECV_B"]
_COMPUTE = _KINDS[:5]

#: Names of the schedules whose generators take costs.
_BY_COSTS = ("zb-1p", "zb-2p")

Costs = Union[None, float, Sequence[float]]


@dataclass(frozen=True)
class Action:
    """An action in the list of a device. str() gives its form in a CSV table, such as "2F0"."""

    kind: str
    stage: int
    microbatch: int

    def __str__(self) -> str:
        return f"{self.stage}{self.kind}{self.microbatch}"


@dataclass(frozen=True)
class Report:
    """Results of :meth:`Schedule.check`."""

    #: For each stage: the largest number of micro-batches between F and the end of backward.
    peak_in_flight: List[int]
    #: For each device: the largest number of micro-batches in flight, summed over its stages.
    peak_slots: List[int]
    #: For each edge: the smallest number of buffers with which no deadlock is possible.
    min_capacity: List[int]


def schedules() -> Dict[str, str]:
    """Return a dictionary from the name of each schedule to a text that says when to use it."""
    found: Dict[str, str] = {}
    while True:
        info = _c.lib.cgp_schedule_info_at(len(found))
        if not info:
            return found
        found[_c.text(info.contents.name)] = _c.text(info.contents.when)


def schedule(name: str, devices: int, chunks: int, *, virtual_stages: int = 0, group: int = 0,
             placement: str = "loop", recompute: str = "never", forward: Costs = None,
             backward_input: Costs = None, backward_weight: Costs = None,
             latency: float = 0.0, in_flight: int = 0) -> "Schedule":
    """Generate a schedule.

    Args:
        name: One of :func:`schedules`.
        devices: Number of devices, n >= 1.
        chunks: Number of micro-batches, m >= 1.
        virtual_stages: Number of stages on each device; 0: the schedule's default.
        group: Number of micro-batches in a group, for interleaved and interleaved-zb; 0: n.
        placement: ``"loop"`` or ``"v"`` (forward-only).
        recompute: ``"never"``, ``"always"``, ``"except_last"``, each also with ``"+selective"``.
        forward: Time of F of each stage, for zb-1p and zb-2p; None: 1.
        backward_input: Time of I of each stage, given like ``forward``.
        backward_weight: Time of W of each stage, given like ``forward``.
        latency: Time of a message, for zb-1p and zb-2p.
        in_flight: Maximum number of half stages in flight on a device, for v-flex; 0: 2n, which
            takes the memory of 1f1b.

    Raises:
        ArgumentError: The name is unknown (the message suggests the most similar name), or an
            argument is out of range.
    """
    if placement not in ("loop", "v"):
        raise ArgumentError(f"placement: loop or v is expected, got {placement!r}")
    devices, chunks = _c.integer(devices, "devices"), _c.integer(chunks, "chunks")
    options = _c.cgp_schedule_options(ctypes.sizeof(_c.cgp_schedule_options), virtual_stages, group,
                                      int(placement == "v"), in_flight=in_flight)
    if name in _BY_COSTS:
        options.forward = _doubles(forward, devices, "forward")
        options.backward_input = _doubles(backward_input, devices, "backward_input")
        options.backward_weight = _doubles(backward_weight, devices, "backward_weight")
        options.latency = latency
    handle = ctypes.c_void_p()
    _c.check(_c.lib.cgp_schedule_create(ctypes.byref(handle), _c.encode(name, "schedule"), devices,
                                        chunks, ctypes.byref(options)))
    made = Schedule(handle)
    if name not in _BY_COSTS:
        _refuse_costs(name, forward=forward, backward_input=backward_input,
                      backward_weight=backward_weight, latency=latency or None)
    made._finish(recompute)
    return made


class Schedule(_c.Handle):
    """The actions of each device, including the transfers between consecutive stages.
    :func:`schedule` and :meth:`from_csv` make schedules."""

    def __init__(self, handle: Any, owner: Any = None) -> None:
        """Own a ``cgp_schedule *`` that has transfers. If ``owner`` is given, borrow the schedule
        from this object instead."""
        self._handle, self._owner = handle, owner
        if owner is None:
            _c.when_gone(self, _c.lib.cgp_schedule_destroy, handle)

    @classmethod
    def from_csv(cls, text: str, name: str = "schedule", recompute: str = "never") -> "Schedule":
        """Read a table with one row per device. Its fields are actions such as "F0" or "2F0".

        Args:
            text: The table. If it has transfers, these are kept unchanged.
            name: Name of the table, for messages.
            recompute: As in :func:`schedule`; a table with transfers must include its
                recomputations.

        Raises:
            FormatError: The table is wrong; the message names line and column.
            ArgumentError: ``recompute`` is given for a table with transfers.
        """
        handle = ctypes.c_void_p()
        if not isinstance(text, str):
            raise TypeError(f"{name}: the text of a table is expected, got {text!r}")
        data = text.encode()
        _c.check(_c.lib.cgp_schedule_from_csv(ctypes.byref(handle), _c.encode(name, "name"), data,
                                              len(data)))
        made = cls(handle)
        if all(action.kind in _COMPUTE for device in range(made.devices)
               for action in made.actions(device)):
            made._finish(recompute)
        elif _c.parse("recompute", recompute) != _c.CGP_RECOMPUTE_NEVER:
            raise ArgumentError(f"{name}: recompute: a table without transfers is expected, got "
                                "one with them (leave them out: they are inserted)")
        return made

    def _finish(self, recompute: str) -> None:
        """Insert recomputations and transfers."""
        mode = _c.parse("recompute", recompute)
        if mode != _c.CGP_RECOMPUTE_NEVER:
            _c.check(_c.lib.cgp_schedule_recompute(self._handle, mode))
        _c.check(_c.lib.cgp_schedule_lower_chain(self._handle))

    @property
    def name(self) -> str:
        """Name of the generator, or of the table."""
        return _c.text(_c.lib.cgp_schedule_name(self._handle))

    @property
    def devices(self) -> int:
        """Number of devices."""
        return int(_c.lib.cgp_schedule_devices(self._handle))

    @property
    def stages(self) -> int:
        """Number of stages."""
        return int(_c.lib.cgp_schedule_stages(self._handle))

    @property
    def chunks(self) -> int:
        """Number of micro-batches."""
        return int(_c.lib.cgp_schedule_chunks(self._handle))

    def device_of(self, stage: int) -> int:
        """Return the device of a stage."""
        return int(_c.lib.cgp_schedule_device_of(self._handle, _c.integer(stage, "stage")))

    def actions(self, device: int) -> List[Action]:
        """Return the actions of a device."""
        count = ctypes.c_int()
        actions = _c.lib.cgp_schedule_actions(self._handle, _c.integer(device, "device"),
                                              ctypes.byref(count))
        if not actions:
            raise ArgumentError(f"device: 0 to {self.devices - 1} is expected, got {device}")
        return [Action(_KINDS[a.kind], a.stage, a.microbatch) for a in actions[:count.value]]

    def check(self) -> Report:
        """Prove that the schedule follows the rules and does not deadlock.

        Raises:
            ArgumentError: The schedule breaks a rule or deadlocks. The message names device,
                position, action and rule, or the cycle of a deadlock.
        """
        report = _c.cgp_schedule_report()
        _c.check(_c.lib.cgp_schedule_check(self._handle, ctypes.byref(report)))
        try:
            return Report(report.peak_in_flight[:report.stages], report.peak_slots[:report.devices],
                          report.min_capacity[:report.edges])
        finally:
            _c.lib.cgp_schedule_report_release(ctypes.byref(report))

    def simulate(self, forward: Costs = None, backward_input: Costs = None,
                 backward_weight: Costs = None, *, recompute: Costs = None, latency: Costs = None,
                 transfer: Costs = None, transfers_block: bool = False,
                 capacity: Optional[Sequence[int]] = None) -> "Timeline":
        """Simulate when each action runs.

        Args:
            forward: Time of F, a number for each stage or one for all, in any unit. None: 1,
                divided among the stages of a device.
            backward_input: Time of I, given like ``forward``.
            backward_weight: Time of W, given like ``forward``. The time of B is the sum of the
                times of I and W.
            recompute: Time of R, given like ``forward``; None: the time of F.
            latency: Time from the end of a send until the message can be received, a number for
                each edge or one for all.
            transfer: Time of a message in addition to the latency.
            transfers_block: True: the receiving device is busy for the transfer time.
            capacity: Number of buffers of each edge; None: no limit.

        Raises:
            ArgumentError: A cost is negative, or the schedule deadlocks with this capacity.
        """
        n, edges = self.stages, max(0, 2 * (self.stages - 1))
        costs = _c.cgp_schedule_costs(_doubles(forward, n, "forward"),
                                      _doubles(backward_input, n, "backward_input"),
                                      _doubles(backward_weight, n, "backward_weight"),
                                      _doubles(recompute, n, "recompute"),
                                      _doubles(latency, edges, "latency"),
                                      _doubles(transfer, edges, "transfer"), transfers_block,
                                      _c.array(ctypes.c_int, capacity, "capacity"))
        timeline = _c.cgp_schedule_timeline()
        _c.check(_c.lib.cgp_schedule_simulate(self._handle, ctypes.byref(costs),
                                              ctypes.byref(timeline)))
        return Timeline(self, timeline)

    def to_csv(self, transfers: bool = False) -> str:
        """Return the table, one row per device. With ``transfers``, it includes sends and
        receives."""
        out = ctypes.c_void_p()
        _c.check(_c.lib.cgp_schedule_to_csv(
            self._handle, _c.CGP_CSV_TRANSFERS if transfers else _c.CGP_CSV_COMPUTE,
            ctypes.byref(out)))
        return _c.take_text(out)

    def draw(self) -> str:
        """Return a drawing in ASCII, one column per unit of time."""
        return self._text(_c.lib.cgp_schedule_draw(self._handle))

    def diagnostic(self) -> str:
        """Return a drawing of the schedule's error; "" if the schedule is correct."""
        return _c.take_text(_c.lib.cgp_schedule_draw_diagnostic(self._handle))

    def svg(self) -> str:
        """Return a drawing as SVG, simulated with equal costs."""
        return self.simulate().svg()

    @staticmethod
    def _text(address: Optional[int]) -> str:
        if address is None:
            raise ArgumentError(_c.message())
        return _c.take_text(address)

    def _repr_svg_(self) -> str:
        return self.svg()

    def __str__(self) -> str:
        return self.draw()

    def __repr__(self) -> str:
        return (f"<cgpipe.Schedule {self.name}: {self.devices} devices, {self.stages} stages, "
                f"{self.chunks} micro-batches>")


class Timeline(_c.Handle):
    """The start and end times of a step's actions. Simulated times have the unit of the costs.
    Measured times are in seconds from the start of the first action."""

    def __init__(self, made_of: Schedule, timeline: Any, owner: Any = None) -> None:
        """Own a ``cgp_schedule_timeline``. If ``owner`` is given, borrow the timeline from this
        object instead."""
        self._timeline, self._owner = timeline, owner
        #: The schedule that ran.
        self.schedule = made_of
        if owner is None:
            _c.when_gone(self, _c.lib.cgp_schedule_timeline_release, ctypes.byref(timeline))

    @property
    def measured(self) -> bool:
        """True if the timeline was measured, not simulated."""
        return bool(self._timeline.ready)

    @property
    def makespan(self) -> float:
        """End of the last action."""
        return float(self._timeline.makespan)

    @property
    def bubble(self) -> float:
        """1 - compute time of all devices / (devices x makespan)."""
        return float(self._timeline.bubble_makespan)

    @property
    def busy(self) -> List[float]:
        """For each device: compute time / makespan."""
        return list(self._timeline.busy[:self._timeline.devices])

    def start(self, device: int) -> List[float]:
        """Return the start times of a device's actions, in the order of
        :meth:`Schedule.actions`."""
        return list(self._timeline.start[device][:len(self.schedule.actions(device))])

    def end(self, device: int) -> List[float]:
        """Return the end times of a device's actions."""
        return list(self._timeline.end[device][:len(self.schedule.actions(device))])

    def svg(self) -> str:
        """Return a drawing as SVG."""
        return self._written(_c.lib.cgp_schedule_svg)

    def draw(self, columns: int = 100) -> str:
        """Return a drawing in ASCII, to scale."""
        return self._written(_c.lib.cgp_schedule_draw_timeline, self.makespan or 1.0,
                             _c.integer(columns, "columns"))

    def trace(self, microseconds: Optional[float] = None) -> str:
        """Return Chrome trace events, which ui.perfetto.dev opens.

        Args:
            microseconds: Number of microseconds in one unit of time. None: 1e6 for a measured
                timeline, whose unit is a second, else 1.
        """
        if microseconds is None:
            microseconds = 1e6 if self.measured else 1.0
        return self._written(_c.lib.cgp_schedule_trace, microseconds)

    def compare(self) -> List[Dict[str, float]]:
        """Return how each device spent its time in a measured step, in seconds. The parts are
        compute, bubble, imbalance, variation, copy, wakeup and other; their sum is the makespan.

        Raises:
            ArgumentError: The timeline was simulated.
        """
        out = _c.cgp_schedule_comparison()
        _c.check(_c.lib.cgp_schedule_compare(self.schedule._handle, ctypes.byref(self._timeline),
                                             ctypes.byref(out)))
        names = [name[len("CGP_PART_"):].lower() for name in _c.ENUMS["cgp_schedule_part"][:-1]]
        try:
            return [dict(zip(names, out.parts[device])) for device in range(out.devices)]
        finally:
            _c.lib.cgp_schedule_comparison_release(ctypes.byref(out))

    def _written(self, function: Any, *arguments: Any) -> str:
        out = ctypes.c_void_p()
        _c.check(function(self.schedule._handle, ctypes.byref(self._timeline), *arguments,
                          ctypes.byref(out)))
        return _c.take_text(out)

    def _repr_svg_(self) -> str:
        return self.svg()

    def __repr__(self) -> str:
        unit = " s" if self.measured else ""
        return (f"<cgpipe.Timeline {self.schedule.name}: makespan {self.makespan:.6g}{unit}, "
                f"bubble {self.bubble:.1%}>")


def _refuse_costs(name: str, **costs: Costs) -> None:
    for option, value in costs.items():
        if value is not None:
            raise ArgumentError(f"{option}: {' or '.join(_BY_COSTS)} is expected, which are laid "
                                f"out for it, got schedule {name!r} (simulate() takes costs for "
                                "each)")


def _doubles(values: Costs, count: int, name: str) -> Any:
    """Return an array of ``count`` costs. A single number is repeated; None becomes NULL."""
    if values is None:
        return None
    listed = _c.array(ctypes.c_double,
                      [values] * count if isinstance(values, Real) else values, name)
    if len(listed) != count:
        raise ArgumentError(f"{name}: {count} are expected, got {len(listed)}")
    return listed
