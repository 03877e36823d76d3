#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make tests/data/schedules/torch-VERSION.txt: the tables of every schedule of PyTorch's
pipelining.

    python3 tools/reference_schedules.py DIRECTORY [--all]         # for this Python's PyTorch
    python3 tools/reference_schedules.py DIRECTORY --source TREE   # for a wheel in TREE/torch/...

The committed files are for torch 2.5.1 (which writes B for I), 2.6.0, 2.9.0 and 2.15.0. They were
made with Linux wheels from PyPI, which were unpacked and not installed:

    pip download --no-deps --only-binary=:all: --python-version 3.11 \\
        --platform manylinux_2_28_aarch64 torch==2.15.0
    unzip -q torch-2.15.0-*.whl 'torch/version.py' 'torch/distributed/pipelining/*' -d tree

(2.5.1: --platform manylinux2014_aarch64.) The tables come from
torch/distributed/pipelining/schedules.py alone, which is pure Python. With --source only that file
and _utils.py are loaded, and fakes replace all that they import. Stages are fakes with and without
--source: the tables depend only on a stage's place in the pipeline.

A file is a sequence of tables, separated by empty lines:

    # ScheduleInterleaved1F1B devices=2 stages=4 chunks=4 format=compute_only
    0F0,0F1,...                       as _dump_csv() writes it, a line per device

    compute_only    the order of the compute actions, with idle steps
    compute_comms   with transfers, and other actions that the runtime adds
    compute_comms+defer+budget   likewise, with receives as late as possible and few pending sends
                    (2.15)

ScheduleGPipe and Schedule1F1B have no _dump_csv(): their _get_pipeline_order() is written in the
same format. In versions where Schedule1F1B has _dump_csv(), it numbers the forwards of the last
stage from 1 to m; the files keep these numbers.

--all also makes larger sizes, and adds the tables with transfers for all sizes. These tables are
for inspection by hand and are not committed."""
import argparse
import csv
import importlib.util
import io
import os
import sys
import types

# Devices, stages per device, micro-batches.
LOOPED = [(2, 2, 4), (4, 2, 8)]
V = [(2, 2, 4), (4, 2, 8)]
SIZES = {
    "ScheduleGPipe": [(2, 1, 3), (4, 1, 4)],
    "Schedule1F1B": [(1, 1, 2), (2, 1, 3), (4, 1, 8)],
    "ScheduleLoopedBFS": [(2, 2, 4)],
    "ScheduleInterleaved1F1B": LOOPED,
    "ScheduleInterleavedZeroBubble": LOOPED,
    "ScheduleZBVZeroBubble": V,
    "ScheduleDualPipeV": [(2, 2, 4), (4, 2, 10)],
}
MORE = {
    "ScheduleGPipe": [(1, 1, 1), (3, 1, 7), (8, 1, 16)],
    "Schedule1F1B": [(1, 1, 1), (3, 1, 3), (8, 1, 16)],
    "ScheduleLoopedBFS": [(1, 2, 1), (3, 3, 5), (4, 2, 8), (8, 2, 16)],
    "ScheduleInterleaved1F1B": [(1, 2, 2), (2, 3, 6), (3, 3, 6), (4, 4, 8), (8, 2, 16)],
    "ScheduleInterleavedZeroBubble": [(2, 3, 6), (3, 3, 6), (4, 4, 8), (8, 2, 16)],
    "ScheduleZBVZeroBubble": [(1, 2, 1), (3, 2, 2), (3, 2, 9), (4, 2, 16), (8, 2, 20)],
    "ScheduleDualPipeV": [(1, 2, 2), (3, 2, 9), (4, 2, 8), (8, 2, 20)],
}


# --- loading ---


class Meta(type):
    """A fake for everything that a Python module needs while it is loaded. It is a class whose
    attributes are fakes too."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Meta(name, (Standin,), {})


class Standin(metaclass=Meta):
    def __init__(self, *args, **kwargs):
        pass

    def __call__(self, decorated=None, *args, **kwargs):
        return decorated


class StandinModule(types.ModuleType):
    __path__ = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Meta(name, (Standin,), {})


class Finder:
    """Import torch.* as fakes, except for the two files of pipelining that make tables."""

    def __init__(self, tree):
        self.directory = os.path.join(tree, "torch", "distributed", "pipelining")

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] != "torch":
            return None
        package, _, last = name.rpartition(".")
        if package == "torch.distributed.pipelining" and last in ("schedules", "_utils"):
            return importlib.util.spec_from_file_location(
                name, os.path.join(self.directory, last + ".py"))
        return importlib.util.spec_from_loader(name, self, is_package=True)

    def create_module(self, spec):
        return StandinModule(spec.name)

    def exec_module(self, module):
        pass


def load(tree):
    """Return the module of schedules and the version of its torch."""
    if tree is None:
        import torch
        import torch.distributed.pipelining.schedules as schedules

        return schedules, torch.__version__.split("+")[0]
    sys.meta_path.insert(0, Finder(tree))
    version = {}
    with open(os.path.join(tree, "torch", "version.py"), encoding="utf-8") as file:
        for line in file:
            if line.startswith("__version__"):
                exec(line, version)
    import torch.distributed.pipelining.schedules as schedules

    return schedules, version["__version__"].split("+")[0]


# --- tables ---


class Stage:
    """A stage's place in the pipeline, without its computation."""

    def __init__(self, index, placement, devices):
        stages = len(placement)
        self.stage_index = index
        self.stage_index_to_group_rank = placement
        self.num_stages = stages
        self.group_size = devices
        self.group_rank = 0
        self.is_first = index == 0
        self.is_last = index == stages - 1
        self.has_backward = True
        self.submod = None
        self.group = None
        self.device = "cpu"

    def _prepare_forward_infra(self, chunks):
        pass

    _prepare_backward_infra = _prepare_forward_infra


def stages_of(name, devices, v):
    """Return the stages of device 0."""
    placement = {stage: stage % devices for stage in range(devices * v)}
    if name in ("ScheduleZBVZeroBubble", "ScheduleDualPipeV"):
        placement = {stage: min(stage, 2 * devices - 1 - stage) for stage in range(devices * v)}
    return [Stage(stage, placement, devices) for stage in placement if placement[stage] == 0]


def write(rows):
    text = io.StringIO(newline="")
    csv.writer(text).writerows(rows)
    return text.getvalue().replace("\r\n", "\n")


def loss(output, target):
    return output


def dumped(schedule, **options):
    path = "schedule.csv.tmp"
    try:
        schedule._dump_csv(path, **options)
        with open(path, newline="", encoding="utf-8") as file:
            return file.read().replace("\r\n", "\n")
    finally:
        if os.path.exists(path):
            os.remove(path)


def runtime(schedules, source, stages, chunks, **options):
    """Return the lists of a schedule with transfers, as PyTorch's runtime makes them from the
    compute actions."""
    made = schedules._PipelineScheduleRuntime(stages, chunks, loss_fn=loss, **options)
    order = {rank: list(actions) for rank, actions in source.pipeline_order.items()}
    prepare = getattr(made, "_prepare_schedule_with_comms",
                      None) or made._load_actions  # the method's name before PyTorch 2.9
    prepare(order)
    return dumped(made)


def budgeted(schedules, source, stages, chunks):
    """Return the lists of a schedule with transfers. Receives are as late as possible, and pending
    sends are as few as the schedule can run with."""
    for budget in range(1, 100):
        try:
            return runtime(
                schedules, source, stages, chunks, defer_pp_recv=True, max_outstanding_sends=budget,
                defer_reduce_grad_wait=True
            )
        except ValueError as error:
            if "max_outstanding_sends" not in str(error):
                raise
    raise AssertionError("no number of pending sends is enough")


def tables(schedules, name, size, first, every):
    """Return pairs of a format and a table. `first` says that this is the first size. For later
    sizes, return fewer pairs unless `every` is true."""
    devices, v, chunks = size
    kind = getattr(schedules, name, None)
    if kind is None:
        return
    stages = stages_of(name, devices, v)
    if issubclass(kind, schedules.PipelineScheduleSingle):
        order = getattr(kind(stages[0], chunks, loss_fn=loss), "_get_pipeline_order",
                        lambda: None)()
        if order is not None:
            yield "compute_only", write(order[rank] for rank in sorted(order))
        return
    schedule = kind(stages, chunks, loss_fn=loss)
    yield "compute_only", write(schedule.pipeline_order[rank]
                                for rank in sorted(schedule.pipeline_order))
    newest = hasattr(schedules, "_add_wait_send_budget")
    if every or first or newest:
        yield "compute_comms", runtime(schedules, schedule, stages, chunks)
    if newest and (every or first):
        yield "compute_comms+defer+budget", budgeted(schedules, schedule, stages, chunks)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("directory")
    parser.add_argument("--source")
    parser.add_argument("--all", action="store_true")
    options = parser.parse_args()
    schedules, version = load(options.source)
    parts = []
    for name, sizes in SIZES.items():
        for i, size in enumerate(sizes + (MORE[name] if options.all else [])):
            for form, table in tables(schedules, name, size, i == 0, options.all):
                devices, v, chunks = size
                parts.append(f"# {name} devices={devices} stages={devices * v} chunks={chunks} "
                             f"format={form}\n{table}")
    path = os.path.join(options.directory, f"torch-{version}.txt")
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(parts))
    print(f"{path}: {len(parts)} tables")


if __name__ == "__main__":
    main()
