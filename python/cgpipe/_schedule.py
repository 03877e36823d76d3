# SPDX-License-Identifier: Apache-2.0
"""Schedules: generate, check, simulate, draw; no model is needed. As in cgpipe/schedule.h."""

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

#: Schedules that are laid out for costs.
_BY_COSTS = ("zb-1p", "zb-2p")

Costs = Union[None, float, Sequence[float]]


@dataclass(frozen=True)
class Action:
    """An entry of a device's list; str() is as in a CSV, "2F0"."""

    kind: str
    stage: int
    microbatch: int

    def __str__(self) -> str:
        return f"{self.stage}{self.kind}{self.microbatch}"


@dataclass(frozen=True)
class Report:
    """What :meth:`Schedule.check` proves."""

    #: Of each stage: the most micro-batches between their F and the end of their backward.
    peak_in_flight: List[int]
    #: Of each device: the same, summed over its stages at one time.
    peak_slots: List[int]
    #: Of each edge: buffers with which it does not deadlock.
    min_capacity: List[int]


def schedules() -> Dict[str, str]:
    """Return the schedules there are: name, and when to use it."""
    found: Dict[str, str] = {}
    while True:
        info = _c.lib.cgp_schedule_info_at(len(found))
        if not info:
            return found
        found[_c.text(info.contents.name)] = _c.text(info.contents.when)


def schedule(name: str, devices: int, chunks: int, *, virtual_stages: int = 0, group: int = 0,
             placement: str = "loop", recompute: str = "never", forward: Costs = None,
             backward_input: Costs = None, backward_weight: Costs = None,
             latency: float = 0.0) -> "Schedule":
    """Generate a schedule.

    Args:
        name: One of :func:`schedules`.
        devices: n >= 1.
        chunks: m >= 1 micro-batches.
        virtual_stages: Stages on each device; 0: as the schedule has them.
        group: interleaved, interleaved-zb: micro-batches of a group; 0: n.
        placement: forward-only: ``"loop"`` or ``"v"``.
        recompute: ``"never"``, ``"always"``, ``"except_last"``, each also with ``"+selective"``.
        forward: zb-1p, zb-2p: time of F of each stage, for how it is laid out; None: 1.
        backward_input: Likewise, of I.
        backward_weight: Likewise, of W.
        latency: zb-1p, zb-2p: time of a message.

    Raises:
        ArgumentError: An unknown name (the message has the nearest), or another argument is out of range.
    """
    if placement not in ("loop", "v"):
        raise ArgumentError(f"placement: loop or v is expected, got {placement!r}")
    devices, chunks = _c.integer(devices, "devices"), _c.integer(chunks, "chunks")
    options = _c.cgp_schedule_options(ctypes.sizeof(_c.cgp_schedule_options), virtual_stages, group,
                                      int(placement == "v"))
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
    """The actions of each device, with the transfers of a chain of stages. Make one by
    :func:`schedule` or :meth:`from_csv`."""

    def __init__(self, handle: Any, owner: Any = None) -> None:
        """Take a ``cgp_schedule *``, lowered; with an owner, borrow it."""
        self._handle, self._owner = handle, owner
        if owner is None:
            _c.when_gone(self, _c.lib.cgp_schedule_destroy, handle)

    @classmethod
    def from_csv(cls, text: str, name: str = "schedule", recompute: str = "never") -> "Schedule":
        """Read a table, one row per device: cells "F0" or "2F0".

        Args:
            text: The table. One with transfers keeps them as they are.
            name: Of the table, for messages.
            recompute: As of :func:`schedule`; a table with transfers has its recomputations itself.

        Raises:
            FormatError: The message has line and column.
            ArgumentError: Recomputations for a table with transfers.
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
            raise ArgumentError(f"{name}: recompute: a table without transfers is expected, got one with them (leave them out: they are "
                                "inserted)")
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
        """Return the list of a device."""
        count = ctypes.c_int()
        actions = _c.lib.cgp_schedule_actions(self._handle, _c.integer(device, "device"),
                                              ctypes.byref(count))
        if not actions:
            raise ArgumentError(f"device: 0 to {self.devices - 1} is expected, got {device}")
        return [Action(_KINDS[a.kind], a.stage, a.microbatch) for a in actions[:count.value]]

    def check(self) -> Report:
        """Prove that the schedule keeps the rules and does not deadlock.

        Raises:
            ArgumentError: The message names device, position, action and rule; for a deadlock, the cycle.
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
        """Return when each action runs.

        Args:
            forward: Time of F of each stage, or of all, in any unit; None: 1, shared by the stages of a device.
            backward_input: Likewise, of I.
            backward_weight: Likewise, of W; B takes I + W.
            recompute: Likewise, of R; None: as F.
            latency: From the end of a send until the message can be taken, of each edge, or of all.
            transfer: Time of a message beyond it.
            transfers_block: A message takes that time on the receiving device.
            capacity: Buffers of each edge; None: without limit.

        Raises:
            ArgumentError: A cost is negative, or it deadlocks with this capacity.
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
        """Return the table, one row per device; with ``transfers`` the sends and receives too."""
        out = ctypes.c_void_p()
        _c.check(_c.lib.cgp_schedule_to_csv(self._handle, _c.CGP_CSV_TRANSFERS if transfers
                                            else _c.CGP_CSV_COMPUTE, ctypes.byref(out)))
        return _c.take_text(out)

    def draw(self) -> str:
        """Return a drawing in ASCII, one column per unit of time."""
        return self._text(_c.lib.cgp_schedule_draw(self._handle))

    def diagnostic(self) -> str:
        """Return a drawing of where the schedule is wrong, "" if it is not."""
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
        return f"<cgpipe.Schedule {self.name}: {self.devices} devices, {self.stages} stages, {self.chunks} micro-batches>"


class Timeline(_c.Handle):
    """The times of a step, simulated in the unit of its costs, or measured in seconds from the
    start of its first action."""

    def __init__(self, made_of: Schedule, timeline: Any, owner: Any = None) -> None:
        """Take a cgp_schedule_timeline; with an owner, borrow it."""
        self._timeline, self._owner = timeline, owner
        #: Of which schedule.
        self.schedule = made_of
        if owner is None:
            _c.when_gone(self, _c.lib.cgp_schedule_timeline_release, ctypes.byref(timeline))

    @property
    def measured(self) -> bool:
        """Measured, not simulated."""
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
        """Of each device: compute time / makespan."""
        return list(self._timeline.busy[:self._timeline.devices])

    def start(self, device: int) -> List[float]:
        """Return when each action of a device starts, in the order of :meth:`Schedule.actions`."""
        return list(self._timeline.start[device][:len(self.schedule.actions(device))])

    def end(self, device: int) -> List[float]:
        """Return when each action of a device ends."""
        return list(self._timeline.end[device][:len(self.schedule.actions(device))])

    def svg(self) -> str:
        """Return a drawing as SVG."""
        return self._written(_c.lib.cgp_schedule_svg)

    def draw(self, columns: int = 100) -> str:
        """Return a drawing in ASCII, to scale."""
        return self._written(_c.lib.cgp_schedule_draw_timeline, self.makespan or 1.0,
                             _c.integer(columns, "columns"))

    def trace(self, microseconds: Optional[float] = None) -> str:
        """Return Chrome's trace events, which ui.perfetto.dev opens.

        Args:
            microseconds: Of a unit of time; None: of seconds if measured, else 1.
        """
        if microseconds is None:
            microseconds = 1e6 if self.measured else 1.0
        return self._written(_c.lib.cgp_schedule_trace, microseconds)

    def compare(self) -> List[Dict[str, float]]:
        """Return for each device of a measured step where its time went, in seconds: compute,
        bubble, imbalance, variation, copies, wake-ups and the rest, which add up to the makespan.

        Raises:
            ArgumentError: It is a simulated one.
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
        return f"<cgpipe.Timeline {self.schedule.name}: makespan {self.makespan:.6g}{unit}, bubble {self.bubble:.1%}>"


def _refuse_costs(name: str, **costs: Costs) -> None:
    for option, value in costs.items():
        if value is not None:
            raise ArgumentError(f"{option}: {' or '.join(_BY_COSTS)} is expected, which are laid out for it, got schedule {name!r} "
                                "(simulate() takes costs for each)")


def _doubles(values: Costs, count: int, name: str) -> Any:
    """Return an array of one cost for each of ``count``; None is NULL."""
    if values is None:
        return None
    listed = _c.array(ctypes.c_double, [values] * count if isinstance(values, Real) else values,
                      name)
    if len(listed) != count:
        raise ArgumentError(f"{name}: {count} are expected, got {len(listed)}")
    return listed
